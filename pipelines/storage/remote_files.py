"""What the stores of other machines have in common: statuses, walks, and files that are read in parts."""

import errno
import io
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from core.model.file_stores import StoreFault
from core.text.sentence import Fact
from pipelines.storage.file_store import FolderView

WHOLE_BYTES = 4 * 1024 * 1024
"""Largest file that is read at once when it is opened. Of a larger one, parts are read as they are needed."""

_END_BYTES = 64 * 1024
"""Bytes that are read at once for Arrow, which mostly needs the end of a file alone."""


class StoreError(OSError):
    """Raised if a store does not give what it was asked for; `fault` says why, and `filename` what was asked for."""

    def __init__(self, code: int, fault: Fact[StoreFault], path: str) -> None:
        super().__init__(code, str(fault), path)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """The status of a file or folder; `st_ino` is described by each store."""

    st_mode: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_dev: int = 0

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


class RemoteEntry(NamedTuple):
    """An entry of a folder, with the status that the listing had."""

    name: str
    path: str
    status: RemoteStatus

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    def stat(self) -> RemoteStatus:
        return self.status


class RemoteFiles(ABC):
    """The part of a `FileStore` that follows from statuses, listings and contents. There are no links."""

    @abstractmethod
    def stat(self, path: str) -> RemoteStatus: ...

    @abstractmethod
    def entries(self, folder: str) -> Sequence[RemoteEntry]: ...

    @abstractmethod
    def read(self, path: str) -> bytes: ...

    @abstractmethod
    def read_part(self, path: str, offset: int, length: int) -> bytes:
        """Return up to `length` bytes of a file from `offset`, which is within it."""

    def below(self, folder: str) -> FolderView:
        """Return the store itself, in which each folder is listed when it is asked for."""
        return self

    def walk(self, folder: str, *, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
        try:
            entries = self.entries(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        below = [entry.name for entry in entries if entry.is_dir()]
        names = [entry.name for entry in entries if not entry.is_dir()]
        if topdown:
            yield folder, below, names
        for name in below:
            yield from self.walk(f"{folder}/{name}", topdown=topdown)
        if not topdown:
            yield folder, below, names

    def exists(self, path: str) -> bool:
        return self._mode(path) != 0

    def is_folder(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def is_link(self, path: str) -> bool:
        return False

    def real_path(self, path: str) -> str:
        return path

    def open(self, path: str) -> BinaryIO:
        return self.open_with_status(path)[0]

    def open_with_status(self, path: str) -> tuple[BinaryIO, RemoteStatus]:
        status = self.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        if status.st_size <= WHOLE_BYTES:
            return io.BytesIO(self.read(path)), status
        return io.BufferedReader(_Parts(self, path, status.st_size), WHOLE_BYTES), status

    def for_arrow(self, path: str) -> BinaryIO:
        return io.BufferedReader(_Parts(self, path, self.stat(path).st_size), _END_BYTES)

    def missing(self, paths: Sequence[str]) -> Iterable[str]:
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            by_folder.setdefault(os.path.dirname(path), []).append(path)
        gone: list[str] = []
        for folder, each in by_folder.items():
            there: set[str] = set()
            with suppress(FileNotFoundError, NotADirectoryError):
                there = {entry.path for entry in self.entries(folder)}
            gone += [path for path in each if path not in there]
        return gone

    def _mode(self, path: str) -> int:
        try:
            return self.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0


class _Parts(io.RawIOBase):
    """A file of which parts are read as they are needed."""

    def __init__(self, files: RemoteFiles, path: str, size: int) -> None:
        self._files, self._path, self._size, self._at = files, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        found = self._files.read_part(self._path, self._at, length)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
