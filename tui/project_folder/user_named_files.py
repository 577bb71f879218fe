"""Reads and writes files at paths that users give.

Reads have a size limit and accept pipes. Writes are atomic.
"""

import errno
import os
import stat
import tempfile

from core.model.errors import FREE_SPACE, HeadgateError, UsageError

_MB = 1_000_000


def read_text(path: str, said: str, *, most_mb: int, remedy: str) -> str:
    """Read a UTF-8 file, called `said` in messages.

    Raises UsageError if the file cannot be read, is neither a regular file nor a pipe, or exceeds `most_mb` megabytes.
    A pipe, as in `--observed <(command)`, is also read up to that size.
    """
    try:
        about = os.stat(path)
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISFIFO(about.st_mode)):
            raise UsageError(f"{said} cannot be read: it is not a regular file", remedy=remedy)
        refuse_long(about.st_size, said, most_mb=most_mb, remedy=remedy)
        with open(path, "rb") as file:
            data = file.read(most_mb * _MB + 1)
        refuse_long(len(data), said, most_mb=most_mb, remedy=remedy)
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{said} cannot be read: {why}", remedy=remedy) from error


def refuse_long(size: int, said: str, *, most_mb: int, remedy: str) -> None:
    """Raise UsageError if `size`, in bytes, exceeds `most_mb` megabytes. `said` names the file in the message."""
    if size > most_mb * _MB:
        raise UsageError(f"{said} cannot be read: it is larger than {most_mb} MB", remedy=remedy)


def write_whole(path: str, text: str) -> None:
    """Replace or create a file atomically, following links.

    Raises HeadgateError if the disk is full, and UsageError for other failures or if the path is not a regular file.
    """
    try:
        target = _file_to_replace(path)
        descriptor, part = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".headgate-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(part, 0o644)
            os.replace(part, target)
        except OSError:
            os.unlink(part)
            raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HeadgateError(f"{path} cannot be written: the disk is full", remedy=FREE_SPACE) from error
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", remedy="name a file in an existing folder"
        ) from error


def write_new(path: str, text: str) -> None:
    """Create a file, and its folder if necessary. Raises UsageError if it exists or cannot be written."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                os.unlink(path)
                raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", remedy="see that its folder can be") from error


def _file_to_replace(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return os.path.realpath(path)
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} exists and is not a regular file", remedy="name a new file, or one to replace")
    return os.path.realpath(path)
