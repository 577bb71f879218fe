"""Reads and writes small JSON files, and moves and deletes folders, on disks that may be full or unreachable."""

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from core.model.errors import TryAgain
from pipelines.storage.file_stream_logs import local_path


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON object from a file; return an empty object if the file does not exist.

    Raises ValueError if the file contains anything else.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, so that it survives a power cut."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        # On a full disk, every attempt would otherwise leave a temporary file behind.
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Ensure that renames in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def reachable(folder: str) -> Iterator[None]:
    """Convert file system errors in the block to TryAgain, because the same call may succeed later."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = f"the disk under {folder} is full: {error.strerror}"
            raise TryAgain(full, remedy="free space there") from error
        summary = f"{folder} cannot be reached: {error.strerror or error}"
        remedy = "mount it, or let the user of the agent read and write it"
        raise TryAgain(summary, remedy=remedy) from error


def is_denied(error: TryAgain) -> bool:
    """True if `reachable` raised an error because of permissions or a read-only disk, which a retry does not change."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def move_folder(place: Path, target: Path) -> None:
    """Rename a folder, or copy and delete it if the target is on another file system."""
    try:
        os.rename(place, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy = target.with_name(f"{target.name}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy, symlinks=True)
        os.rename(copy, target)
        sync_folder(target.parent)
        shutil.rmtree(place)
    sync_folder(place.parent)


def removed_as_empty(place: Path) -> bool:
    """Delete a folder if it and all folders in it contain no files; return False, and keep the files, if any does."""
    for folder, _, files in os.walk(place, topdown=False):
        if files:
            return False
        try:
            os.rmdir(folder)
        except OSError:
            return False
    return not place.exists()


def remove_folder(place: Path, *, last: str) -> None:
    """Delete a folder. Its file `last` is deleted after all others, and kept if one of them cannot be deleted."""
    for entry in place.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != last:
            with suppress(OSError):
                entry.unlink()
    if [entry.name for entry in place.iterdir()] == [last]:
        (place / last).unlink()
        place.rmdir()


def disk_space(folder: str) -> tuple[int | None, int | None]:
    """Return the available and the total bytes on a folder's disk; (None, None) if it cannot be reached."""
    place = local_path(folder)
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        found = os.statvfs(place)
    except OSError:
        return None, None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
