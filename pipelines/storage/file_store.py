"""Stores of files: the local file system, HDFS, and object stores. The scheme of a path selects the store.

A store offers the part of `os` that tables and checkpoints need, with the results and the errors of `os`. So one
implementation of logs, offsets and ownership works in every store, and a local call costs no more than before.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, Protocol

from core.model.file_stores import HDFS, LOCAL_FILES, OTHER, store_kind


class FileStatus(Protocol):
    """What a store knows about a file or folder: the part of `os.stat_result` that is used.

    `st_dev` and `st_ino` identify it: a later one at the same path has other numbers, except that a local file system
    may reuse those of a deleted file.
    """

    @property
    def st_mode(self) -> int: ...
    @property
    def st_dev(self) -> int: ...
    @property
    def st_ino(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime(self) -> float: ...
    @property
    def st_mtime_ns(self) -> int: ...


class FolderEntry(Protocol):
    """An entry of a folder: the part of `os.DirEntry` that is used."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    def is_dir(self) -> bool: ...
    def stat(self) -> FileStatus:
        """Return the status of the file; a local file may be gone, which raises FileNotFoundError."""


class FolderView(Protocol):
    """A folder and everything below it, at one moment or, in most stores, at each call."""

    def stat(self, path: str) -> FileStatus: ...
    def entries(self, folder: str) -> Sequence[FolderEntry]: ...
    def is_folder(self, path: str) -> bool: ...


class FileStore(Protocol):
    """A store of files. All paths are absolute, and each method raises OSError.

    A store that does not answer raises an error in every method, `exists` included.
    """

    def stat(self, path: str) -> FileStatus: ...

    def entries(self, folder: str) -> Sequence[FolderEntry]:
        """List a folder, in no particular order."""

    def below(self, folder: str) -> FolderView:
        """Return a view for callers that list many folders below one: where that is cheaper, all are listed at once."""

    def walk(self, folder: str, *, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
        """Walk a folder as `os.walk` does; nothing if the folder does not exist."""

    def exists(self, path: str) -> bool: ...
    def is_folder(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool: ...
    def is_link(self, path: str) -> bool: ...

    def real_path(self, path: str) -> str:
        """Return a path without links."""

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading. It stays readable after it was deleted."""

    def open_with_status(self, path: str) -> tuple[BinaryIO, FileStatus]:
        """Open a file for reading, and return the status of this very file."""

    def read(self, path: str) -> bytes: ...

    def for_arrow(self, path: str) -> str | BinaryIO:
        """Return what pyarrow opens as the file; for a local one the path, which is fastest."""

    def missing(self, paths: Sequence[str]) -> Iterable[str]:
        """Return those of the paths at which there is nothing."""

    def write(self, path: str, content: bytes) -> None:
        """Create or overwrite a file, neither atomically nor durably."""

    def replace(self, path: str, content: bytes) -> None:
        """Create or replace a file atomically, so that it survives a power cut."""

    def make_folders(self, path: str) -> None:
        """Create a folder and its parents, unless they exist."""

    def rename(self, path: str, target: str) -> None:
        """Rename a folder atomically and durably. The target must not exist or be an empty folder."""

    def move(self, path: str, target: str) -> None:
        """Rename a folder, or copy and delete it if the target is in another file system."""

    def link_or_copy(self, path: str, copy: str) -> None:
        """Create a file with the same content, as a link if the store has links; nothing if `copy` exists."""

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None:
        """Delete an empty folder."""

    def remove_tree(self, path: str) -> None:
        """Delete a folder with its contents, without an error if some of it cannot be deleted or does not exist."""

    def space(self, folder: str) -> tuple[int | None, int | None]:
        """Return the available and the total bytes of the store that has a folder; None if they are unknown."""


_NOT_LINKED = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP})


class LocalFiles:
    """The local file system."""

    def stat(self, path: str) -> FileStatus:
        return os.stat(path)

    def entries(self, folder: str) -> Sequence[FolderEntry]:
        with os.scandir(folder) as found:
            return list(found)

    def below(self, folder: str) -> "LocalFiles":
        return self

    def walk(self, folder: str, *, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
        return os.walk(folder, topdown)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def open_with_status(self, path: str) -> tuple[BinaryIO, FileStatus]:
        file = open(path, "rb")  # noqa: SIM115  # Closed by the caller.
        return file, os.fstat(file.fileno())

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def for_arrow(self, path: str) -> str | BinaryIO:
        return path

    def missing(self, paths: Sequence[str]) -> Iterable[str]:
        return [path for path in paths if not os.path.exists(path)]

    def write(self, path: str, content: bytes) -> None:
        with open(path, "wb") as file:
            file.write(content)

    def replace(self, path: str, content: bytes) -> None:
        folder, name = os.path.split(path)
        temporary = f"{folder}/.{name}.{secrets.token_hex(4)}"
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            # On a full disk, every attempt would otherwise leave a temporary file behind.
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def make_folders(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, path: str, target: str) -> None:
        os.rename(path, target)
        self.sync(os.path.dirname(target))

    def move(self, path: str, target: str) -> None:
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy = f"{target}.copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy, symlinks=True)
            os.rename(copy, target)
            self.sync(os.path.dirname(target))
            shutil.rmtree(path)
        self.sync(os.path.dirname(path))

    def link_or_copy(self, path: str, copy: str) -> None:
        try:
            os.link(path, copy)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NOT_LINKED:
                raise
            temporary = f"{os.path.dirname(copy)}/.{secrets.token_hex(8)}"
            shutil.copy2(path, temporary)
            os.rename(temporary, copy)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def space(self, folder: str) -> tuple[int | None, int | None]:
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def sync(self, folder: str) -> None:
        """Ensure that renames in a folder survive a power cut."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


LOCAL = LocalFiles()


def store_of(path: str) -> FileStore:
    """Return the store of a path, which is shared by all threads.

    A path with a scheme that Headgate cannot read belongs to the local store, in which nothing has such a path.
    """
    if "://" not in path or (kind := store_kind(path)) in (LOCAL_FILES, OTHER):
        return LOCAL
    root = "/".join(path.split("/", 3)[:3])
    # Imported here, because most agents have only local files.
    if kind is HDFS:
        from pipelines.storage.hdfs_files import hdfs_files

        return hdfs_files(root)
    from pipelines.storage.object_files import object_files

    return object_files(root)


def missing(paths: Iterable[str]) -> frozenset[str]:
    """Return those of the paths at which there is nothing. They may belong to several stores."""
    by_store: dict[FileStore, list[str]] = {}
    for path in paths:
        by_store.setdefault(store_of(path), []).append(path)
    return frozenset(path for store, each in by_store.items() for path in store.missing(each))
