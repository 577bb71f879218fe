"""Files in object stores (S3, Google Cloud Storage, Azure), read through Arrow with a deadline for every call.

Folders are prefixes of names: they have no time and no identity, so a folder may always have changed just now. All that
is below one is listed by one request per thousand files. Headgate writes nothing in object stores.
"""

import errno
import io
import re
import stat
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import lru_cache
from typing import Any, BinaryIO, Never, TypeVar

from core.model.file_stores import GCS, StoreFault, store_kind
from core.text.secret_masking import mask_secrets
from pipelines.spark_connect import call_deadlines
from pipelines.storage import remote_files
from pipelines.storage.hadoop_settings import NoSecret, hadoop_settings
from pipelines.storage.object_clients import Connect, client_of, inner_root
from pipelines.storage.remote_files import RemoteEntry, RemoteFiles, RemoteStatus, StoreError

CALL_S, LISTING_S = 10.0, 30.0
"""Deadlines in seconds for a call, and for the listing of everything below a folder."""

SILENT_S = 5.0
"""Seconds for which calls fail at once after the store has not answered, so that a round over many folders ends."""

MOST_WAITING = 4
"""Most calls that may still wait for an answer after their deadline; meanwhile, further calls fail at once."""

T = TypeVar("T")


class ObjectFiles(RemoteFiles):
    """One bucket or container, with paths such as `s3a://bucket/folder`. Thread-safe.

    The number of a file is made from its size and its time in seconds, the finest that all requests report; that of a
    folder is 0.
    """

    def __init__(self, root: str, connect: Connect) -> None:
        """Read the store at `root`; `connect` creates its client, and again after it has refused the credentials."""
        self._root, self._inner = root, inner_root(root)
        self._connect = connect
        self._store = f"{store_kind(root).name} ({root})"
        self._client: Any = None
        self._lock = threading.Lock()
        self._silent: tuple[float, StoreError] | None = None
        """Until when calls fail at once, and with which error."""
        self._waiting: list[Future[Any]] = []
        """Calls that have missed their deadline, and may wait for ever."""

    def stat(self, path: str) -> RemoteStatus:
        found = self._call(path, lambda client: client.get_file_info(self._key(path)))
        if (status := _status(found)) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return status

    def entries(self, folder: str) -> Sequence[RemoteEntry]:
        try:
            if store_kind(self._root) is GCS:
                # Arrow's client of Google lists files alone, unless it has created a folder itself (26.0).
                return self.below(folder).entries(folder)
            return list(self._listed(folder, recursive=False).values())
        except FileNotFoundError:
            if self.is_file(folder):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", folder) from None
            raise

    def below(self, folder: str) -> "ObjectListing":
        return ObjectListing(folder, self._listed(folder, recursive=True))

    def open_with_status(self, path: str) -> tuple[BinaryIO, RemoteStatus]:
        # S3 reports the time with the content, which saves one of three requests and, if there is no file, one of two.
        def act(client: Any) -> tuple[int, str, bytes]:
            with client.open_input_file(self._key(path)) as file:
                size, at = file.size(), (file.metadata() or {}).get("Last-Modified", b"").decode()
                return size, at, bytes(file.read()) if at and size <= remote_files.WHOLE_BYTES else b""

        size, at, content = self._call(path, act)
        if not at or size > remote_files.WHOLE_BYTES:
            return super().open_with_status(path)
        return io.BytesIO(content), _file_status(size, int(datetime.fromisoformat(at).timestamp()))

    def read(self, path: str) -> bytes:
        def act(client: Any) -> bytes:
            with client.open_input_file(self._key(path)) as file:
                return bytes(file.read())

        return self._call(path, act)

    def read_part(self, path: str, offset: int, length: int) -> bytes:
        def act(client: Any) -> bytes:
            with client.open_input_file(self._key(path)) as file:
                return bytes(file.read_at(length, offset))

        return self._call(path, act)

    def space(self, folder: str) -> tuple[int | None, int | None]:
        return None, None

    def _read_only(self, path: str, *_: object) -> Never:
        raise OSError(errno.EROFS, "Headgate writes nothing in object stores", path)

    write = replace = make_folders = rename = move = link_or_copy = unlink = rmdir = remove_tree = _read_only

    def _key(self, path: str) -> str:
        return (self._inner + path.removeprefix(self._root)).rstrip("/")

    def _listed(self, folder: str, *, recursive: bool) -> dict[str, RemoteEntry]:
        """Return entries by path. Raises FileNotFoundError if nothing begins with the folder."""

        def act(client: Any) -> Any:
            from pyarrow import fs

            return client.get_file_info(fs.FileSelector(self._key(folder), recursive=recursive))

        found: dict[str, RemoteEntry] = {}
        for each in self._call(folder, act, LISTING_S if recursive else CALL_S):
            path = self._root + each.path.removeprefix(self._inner)
            if (status := _status(each)) is not None:
                found[path] = RemoteEntry(each.base_name, path, status)
        return found

    def _call(self, path: str, act: Callable[[Any], T], seconds: float | None = None) -> T:
        """Return what `act` makes of the client, or raise OSError, at the latest after `seconds` or CALL_S."""
        if (silent := self._silent) is not None and time.monotonic() < silent[0]:
            raise silent[1]
        self._waiting = [call for call in self._waiting if not call.done()]
        if len(self._waiting) >= MOST_WAITING:
            raise self._fault(path, errno.ETIMEDOUT, StoreFault.SILENT)
        try:
            found = call_deadlines.call(seconds or CALL_S, self._with_client, act)
        except call_deadlines.MissedDeadline as error:
            if call_deadlines.is_given_up():
                raise TimeoutError(errno.ETIMEDOUT, "the caller has given up", path) from error
            if error.work is not None:
                self._waiting.append(error.work)
            raise self._fault(path, errno.ETIMEDOUT, StoreFault.SILENT) from error
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "No such file", path) from error
        except NoSecret as error:
            raise self._fault(path, errno.EACCES, StoreFault.NO_SECRET, reference=str(error)) from None
        except (OSError, ValueError, NotImplementedError) as error:
            raise self._refusal(path, error) from None
        self._silent = None
        return found

    def _with_client(self, act: Callable[[Any], T]) -> T:
        with self._lock:
            client = self._client = self._client or self._connect()
        return act(client)

    def _refusal(self, path: str, error: Exception) -> OSError:
        """Return the error for a failure of the client, which reports most of its reasons only as text."""
        # Quoted names of files and folders could contain any of the words.
        text = _NAMES.sub("", _REQUEST.sub("", str(error)))
        if _MISSING.search(text):
            return FileNotFoundError(errno.ENOENT, "No such file or bucket", path)
        if _REFUSED.search(text):
            # A client keeps its keys. The next call reads them again, because they may have been renewed.
            self._client = None
            return self._fault(path, errno.EACCES, StoreFault.REFUSED)
        if _BUSY.search(text):
            return self._fault(path, errno.EAGAIN, StoreFault.BUSY)
        if _SLOW.search(text):
            return self._fault(path, errno.ETIMEDOUT, StoreFault.SILENT)
        if found := _UNREACHABLE.search(text):
            return self._fault(path, errno.EHOSTUNREACH, StoreFault.UNREACHABLE, why=found[0])
        why = mask_secrets(_REQUEST.sub("", str(error)).strip())
        return self._fault(path, errno.EIO, StoreFault.FAILED, why=why[:_LONGEST])

    def _fault(self, path: str, code: int, kind: StoreFault, **values: object) -> StoreError:
        found = StoreError(code, kind.of(store=self._store, **values), path)
        if kind in (StoreFault.SILENT, StoreFault.UNREACHABLE):
            self._silent = (time.monotonic() + SILENT_S, found)
        return found


_LONGEST = 200
_NAMES = re.compile(r"'[^']*'")
_REQUEST = re.compile(r" ?\(Request ID: [^)]*\)| error_info=\{.*")
_MISSING = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|\ANo such file or directory")
_REFUSED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN|ExpiredToken"
    r"|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED|AuthorizationFailure|AuthenticationFailed|\b403\b"
)
_BUSY = re.compile(r"SLOW_DOWN|SlowDown|THROTTLING|SERVICE_UNAVAILABLE|HTTP status (?:429|503)")
_SLOW = re.compile(r"Timeout was reached|Operation too slow|DEADLINE_EXCEEDED")
_UNREACHABLE = re.compile(r"Could not (?:connect to server|resolve host[^,;}]*)|SSL[^,;}]*|(?<=\]=)[^,;}]+")
"""Words of the errors of Arrow 26 and of the clients inside of it."""


class ObjectListing:
    """Everything that was below a folder when it was listed."""

    def __init__(self, folder: str, entries: dict[str, RemoteEntry]) -> None:
        """Arrange entries by folder; `entries` are by path, and may lack folders that contain others."""
        self._entries = entries
        self._by_folder: dict[str, list[RemoteEntry]] = {folder: []}
        for entry in entries.values():
            if entry.is_dir():
                self._add_folder(entry.path)
            else:
                self._add_folder(above := entry.path.rpartition("/")[0])
                self._by_folder[above].append(entry)

    def _add_folder(self, path: str) -> None:
        if path not in self._by_folder:
            self._by_folder[path] = []
            above, _, name = path.rpartition("/")
            self._add_folder(above)
            self._by_folder[above].append(RemoteEntry(name, path, _folder_status()))

    def stat(self, path: str) -> RemoteStatus:
        if path in self._by_folder:
            return _folder_status()
        if path not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return self._entries[path].status

    def entries(self, folder: str) -> Sequence[RemoteEntry]:
        if folder not in self._by_folder:
            raise FileNotFoundError(errno.ENOENT, "No such file", folder)
        return self._by_folder[folder]

    def is_folder(self, path: str) -> bool:
        return path in self._by_folder


def _status(found: Any) -> RemoteStatus | None:
    """Convert what Arrow knows about a path; None if there is nothing."""
    if found.is_file:
        return _file_status(found.size, (found.mtime_ns or 0) // 1_000_000_000)
    return _folder_status() if found.type.name == "Directory" else None


def _file_status(size: int, seconds: int) -> RemoteStatus:
    return RemoteStatus(stat.S_IFREG, hash((size, seconds)), size, seconds * 1_000_000_000)


def _folder_status() -> RemoteStatus:
    return RemoteStatus(stat.S_IFDIR, 0, 0, time.time_ns())


@lru_cache(maxsize=256)
def object_files(root: str) -> ObjectFiles:
    """Return the store of a root such as `s3a://bucket`, with the settings of Hadoop as they are when it is used."""
    return ObjectFiles(root, lambda: client_of(root, hadoop_settings()))
