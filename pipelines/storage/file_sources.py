"""Tracks the files of a source, read from the log of a table or listed from a plain folder.

For a log, only a position and totals are kept in memory; for a plain folder, all file names. For a new reader, the
whole log is read again.
"""

import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from core.model.table_formats import TableFormat
from pipelines.storage.file_store import FolderEntry, FolderView, store_of
from pipelines.storage.file_stream_logs import (
    LogEntry,
    LogRestarted,
    WholeLog,
    local_path,
    read_table_log,
    whole_table_log,
)
from pipelines.storage.row_counting import RowCounter, SourceFile

TABLE_LOG_FOLDER = "_spark_metadata"
TABLE_NOTE_FILE = "_headgate.json"

SETTLED_S = 2.0
"""Seconds after which another change of a folder is certain to change its modification time."""


class FileListener(Protocol):
    """Receives the files added to or removed from a source."""

    def added(self, file: SourceFile) -> None: ...
    def removed(self, path: str) -> None: ...


class SourceGone(Exception):
    """Raised if a source does not exist or was replaced."""


@dataclass(frozen=True, slots=True)
class _Listing:
    changed_ns: int
    at: float
    names: frozenset[str]
    below: tuple[str, ...]
    """Paths of the subfolders."""


class FileSource:
    """A folder that statements stream from. All its readers share one refresh in each round."""

    def __init__(self, folder: str, format: TableFormat, counter: RowCounter) -> None:
        self.folder = folder
        self.format = format
        self.lock = threading.Lock()
        """Held by the thread that reads the source or advances one of its readers."""
        self._files = store_of(folder)
        self.logged: bool | None = None
        """Whether a log lists the files; None before the first refresh. A plain folder gets a log when its first writer
        starts.
        """
        self.generation = 0
        """Number of times that everything known was discarded."""
        self.looks = 0
        """Number of refreshes so far."""
        self.newest_at: float | None = None
        self._counter = counter
        self._readers: dict[FileListener, None] = {}
        self._history: Iterator[SourceFile] = iter(())
        self._uncounted: deque[SourceFile] = deque()
        self._rows = 0
        self._rows_known = True
        self._position = -1
        self._last_path = ""
        self._sure = True
        """Whether the position is known to belong to the current log, not to an earlier log in the folder."""
        self._whole: WholeLog | None = None
        """The log as the last refresh has read it; None if that refresh read only a part."""
        self._identity: tuple[int, ...] = ()
        self._settled_ns = 0
        """Modification time of the log, in nanoseconds, when last read. 0 if it may have changed again within the same
        clock tick.
        """
        self._listings: dict[str, _Listing] = {}

    def subscribe(self, reader: FileListener) -> Iterator[SourceFile]:
        """Register a reader, and yield all current files of the source; if it has a log, in the log's order."""
        self.listen(reader)
        if not self.logged:
            return self._there()
        if self._whole is not None:
            return map(logged_file, self._whole.again())
        whole = whole_table_log(f"{self.folder}/{TABLE_LOG_FOLDER}")
        while whole.newest > self._position:
            # Files after the position would be reported again as new.
            self.refresh(0.0)
            whole = whole_table_log(f"{self.folder}/{TABLE_LOG_FOLDER}")
        return map(logged_file, whole)

    def listen(self, reader: FileListener) -> None:
        """Register a reader that already knows the current files."""
        self._readers[reader] = None

    def unsubscribe(self, reader: FileListener) -> None:
        """Remove a reader. Any thread may call this while another one reads the source."""
        self._readers.pop(reader, None)

    @property
    def is_table(self) -> bool:
        """True if the folder has a Headgate note, and is therefore a table that a query writes with a log."""
        return self._files.exists(f"{self.folder}/{TABLE_NOTE_FILE}")

    def refresh(self, now: float) -> None:
        """Report new and removed files to the readers. Raises SourceGone if the folder is missing."""
        try:
            if not self.logged:
                below = self._files.below(self.folder)
                logged = below.is_folder(f"{self.folder}/{TABLE_LOG_FOLDER}")
                if logged and self.logged is not None:
                    self._forget()
                self.logged = logged
                if not logged:
                    self._list(below, now)
            if self.logged:
                self._read_log()
        except (FileNotFoundError, NotADirectoryError) as error:
            if self._identity:
                self._forget()
            raise SourceGone(self.folder) from error
        self.looks += 1

    def produced_rows(self) -> int | None:
        """Return the number of rows in all files ever seen in this source.

        The result is None until all files are counted, or if a file cannot be counted.
        """
        while self._uncounted or self._take_history():
            if not self._counter.count(self._uncounted[0], self.folder, self.format, history=True):
                return None
            file = self._uncounted.popleft()
            self._rows_known = self._rows_known and file.rows is not None
            self._rows += file.rows or 0
        return self._rows if self._rows_known else None

    def encoded(self) -> dict[str, Any] | None:
        """Return the log position, row count and latest file time as JSON.

        The result is None for a plain folder, or as long as the rows of some files are uncounted.
        """
        # What was restored belongs to a log, even before the first refresh.
        if self.logged is False or not self._identity or self._uncounted or self._take_history():
            return None
        return {
            "identity": self._identity,
            "position": self._position,
            "last_path": self._last_path,
            "rows": self.produced_rows(),
            "newest_at": self.newest_at,
        }

    def restore(self, encoded: Mapping[str, Any]) -> None:
        """Restore the state that `encoded` returned in an earlier process. A log that was replaced is read in full."""
        self._identity = tuple(encoded["identity"])
        self._position, self._last_path = encoded["position"], encoded["last_path"]
        self._rows, self._rows_known = encoded["rows"] or 0, encoded["rows"] is not None
        self.newest_at, self._sure = encoded["newest_at"], False

    def _take_history(self) -> bool:
        try:
            file = next(self._history, None)
        except (OSError, ValueError):
            self._rows_known, file = False, None
        if file is not None:
            self._uncounted.append(file)
        return file is not None

    def _add(self, file: SourceFile) -> None:
        self._uncounted.append(file)
        self.newest_at = file.at if self.newest_at is None else max(self.newest_at, file.at)
        for reader in tuple(self._readers):
            reader.added(file)

    def _forget(self) -> None:
        # Readers notice the new generation and subscribe again.
        self.generation += 1
        self.newest_at = None
        self._history = iter(())
        self._uncounted.clear()
        self._rows, self._rows_known = 0, True
        self._position, self._last_path, self._identity = -1, "", ()
        self._listings.clear()

    def _read_log(self) -> None:
        folder, self._whole = f"{self.folder}/{TABLE_LOG_FOLDER}", None
        found = self._files.stat(folder)
        identity = (found.st_dev, found.st_ino)
        if self._identity and identity != self._identity:
            self._forget()
        elif self._sure and found.st_mtime_ns == self._settled_ns:
            return
        settled = time.time() - found.st_mtime > SETTLED_S
        if self._position >= 0:
            try:
                chunk = read_table_log(folder, self._position, self._last_path, sure=self._sure)
            except LogRestarted:
                self._forget()
            else:
                self._position = chunk.newest
                self._apply_log_entries(chunk.entries)
        if self._position < 0:
            # Readers of this source subscribe again and read the log themselves.
            whole = self._whole = whole_table_log(folder)
            self._position = whole.newest
            self._history = map(logged_file, whole.compacted)
            if whole.last is not None:
                self._last_path = str(whole.last.get("path", ""))
                self.newest_at = logged_file(whole.last).at
            self._apply_log_entries(whole.recent)
        # Folders of an object store have no identity, so the last entry is compared at each refresh.
        self._identity, self._sure = identity, any(identity)
        self._settled_ns = found.st_mtime_ns if settled else 0

    def _apply_log_entries(self, entries: Iterable[LogEntry]) -> None:
        for entry in entries:
            self._last_path = str(entry.get("path", ""))
            if entry.get("action", "add") == "add":
                self._add(logged_file(entry))
            else:
                self._remove(local_path(self._last_path))

    def _remove(self, path: str) -> None:
        for reader in tuple(self._readers):
            reader.removed(path)

    def _list(self, below: FolderView, now: float) -> None:
        found = below.stat(self.folder)
        self._identity = (found.st_dev, found.st_ino)
        there: set[str] = set()
        self._walk(below, self.folder, now, there)
        for folder in self._listings.keys() - there:
            for name in self._listings.pop(folder).names:
                self._remove(f"{folder}/{name}")

    def _walk(self, view: FolderView, folder: str, now: float, there: set[str]) -> None:
        """List a folder recursively, except subfolders that have not changed since they were last listed.

        A subfolder is skipped only if its last change was at least two seconds before it was last listed.
        """
        try:
            changed = view.stat(folder).st_mtime_ns
            known = self._listings.get(folder, _Listing(0, 0.0, frozenset(), ()))
            if known.changed_ns != changed or known.at - changed / 1e9 < 2.0:
                names, folders = self._news(view, folder, known.names)
                known = self._listings[folder] = _Listing(changed, now, names, folders)
        except FileNotFoundError:
            return
        there.add(folder)
        for below in known.below:
            self._walk(view, below, now, there)

    def _news(self, view: FolderView, folder: str, before: frozenset[str]) -> tuple[frozenset[str], tuple[str, ...]]:
        """Report the files that were added to or removed from a folder; return its files and its subfolders."""
        found = {entry.name: entry for entry in view.entries(folder) if is_data(entry.name)}
        below = tuple(f"{folder}/{name}" for name, entry in found.items() if entry.is_dir())
        names = {name for name, entry in found.items() if not entry.is_dir()}
        for name in before - names:
            self._remove(f"{folder}/{name}")
        for name in sorted(names - before):
            file = _file(found[name])
            if file is None:
                names.discard(name)
            else:
                self._add(file)
        return frozenset(names), below

    def _there(self) -> Iterator[SourceFile]:
        view = self._files.below(self.folder)
        for folder, listing in self._listings.items():
            with suppress(FileNotFoundError):
                for entry in view.entries(folder):
                    if entry.name in listing.names and (file := _file(entry)) is not None:
                        yield file


def _file(entry: FolderEntry) -> SourceFile | None:
    try:
        about = entry.stat()
    except FileNotFoundError:
        return None
    return SourceFile(entry.path, about.st_size, about.st_mtime) if stat.S_ISREG(about.st_mode) else None


def logged_file(entry: dict[str, object]) -> SourceFile:
    """Convert an entry of a table's log to a file. A missing size or time becomes 0."""
    size, at = entry.get("size", 0), entry.get("modificationTime", 0)
    return SourceFile(
        local_path(str(entry.get("path", ""))),
        size if isinstance(size, int) else 0,
        at / 1000 if isinstance(at, int) else 0.0,
    )


def is_data(name: str) -> bool:
    """True if Spark reads files of this name (Spark 4.2.0, `HadoopFSUtils.shouldFilterOutPathName`)."""
    return not (name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"))
