"""Reads and writes small JSON files, and deletes folders, in stores that may be full or unreachable."""

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from core.model.errors import StoreUnreachable, TryAgain
from core.model.file_stores import HDFS, LOCAL_FILES, StoreFault, store_kind
from pipelines.storage.file_store import store_of
from pipelines.storage.file_stream_logs import local_path
from pipelines.storage.remote_files import StoreError

_SILENT = frozenset({errno.EAGAIN, errno.EHOSTUNREACH, errno.ETIMEDOUT})
"""Errors of a store that does not answer, or asks to try again."""


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON object from a file; return an empty object if the file does not exist.

    Raises ValueError if the file contains anything else.
    """
    try:
        text = store_of(path).read(path).decode()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def write_json(path: str, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, so that it survives a power cut."""
    text = json.dumps(value, indent=1, sort_keys=True)
    store_of(path).replace(path, f"{text}\n".encode())


@contextmanager
def reachable(folder: str) -> Iterator[None]:
    """Convert file system errors in the block to TryAgain, because the same call may succeed later."""
    try:
        yield
    except OSError as error:
        raise unreachable(folder, error) from error


def unreachable(folder: str, error: OSError) -> TryAgain:
    """Convert an error of a call for a folder to TryAgain, or StoreUnreachable if its store does not answer."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TryAgain(f"the disk under {folder} is full: {error.strerror}", remedy="free space there")
    kind_of_error = StoreUnreachable if error.errno in _SILENT else TryAgain
    if isinstance(error, StoreError):
        return kind_of_error(f"{error.filename} cannot be read: {error.fault}", remedy=str(error.fault.remedy))
    remedy = "mount it, or let the user of the agent read and write it"
    if (kind := store_kind(folder)) is HDFS:
        remedy = "check the name node, and the rights of the user of the agent"
    elif kind is not LOCAL_FILES:
        remedy = str(StoreFault.SILENT.of(store=kind.name).remedy)
    return kind_of_error(f"{folder} cannot be reached: {error.strerror or error}", remedy=remedy)


def is_denied(error: TryAgain) -> bool:
    """True if `reachable` raised an error because of permissions or a read-only disk, which a retry does not change."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def removed_as_empty(place: str) -> bool:
    """Delete a folder if it and all folders in it contain no files; return False, and keep the files, if any does."""
    files = store_of(place)
    for folder, _, names in files.walk(place, topdown=False):
        if names:
            return False
        try:
            files.rmdir(folder)
        except OSError:
            return False
    return not files.exists(place)


def remove_folder(place: str, *, last: str) -> None:
    """Delete a folder. Its file `last` is deleted after all others, and kept if one of them cannot be deleted."""
    files = store_of(place)
    for entry in files.entries(place):
        if entry.is_dir() and not files.is_link(entry.path):
            files.remove_tree(entry.path)
        elif entry.name != last:
            with suppress(OSError):
                files.unlink(entry.path)
    if [entry.name for entry in files.entries(place)] == [last]:
        files.unlink(f"{place}/{last}")
        files.rmdir(place)


def disk_space(folder: str) -> tuple[int | None, int | None]:
    """Return the available and the total bytes on a folder's disk; (None, None) if it cannot be reached."""
    place = local_path(folder)
    try:
        return store_of(place).space(place)
    except OSError:
        return None, None
