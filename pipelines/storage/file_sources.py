"""How far a source has been written: the files of a table by its log, or of a plain folder by listing it.

Each holds what it has seen only as long as somebody has not consumed it; who comes later reads the log again.
"""

import os
import stat
from collections import deque
from typing import Protocol

from core.model.table_formats import TableFormat
from pipelines.storage.file_stream_logs import LogRestarted, local_path, read_table_log
from pipelines.storage.row_counting import RowCounter, SourceFile

TABLE_LOG_FOLDER = "_spark_metadata"
TABLE_NOTE_FILE = "_headgate.json"


class FileListener(Protocol):
    """Who wants to hear of new files."""

    def added(self, file: SourceFile) -> None: ...
    def removed(self, path: str) -> None: ...


class SourceGone(Exception):
    """The source is not there, or is not the one it was."""


class FileSource:
    """One folder that is streamed from; refreshed at most once a round, read by any number of statements."""

    def __init__(self, folder: str, format: TableFormat, counter: RowCounter) -> None:
        self.folder = folder
        self.format = format
        self.logged = os.path.isdir(f"{folder}/{TABLE_LOG_FOLDER}")
        """Whether the files are named by a log; a plain folder may get one later, when its first writer comes."""
        self.generation = 0
        """Counts how often what was known had to be given up."""
        self.newest_at: float | None = None
        self._counter = counter
        self._readers: list[FileListener] = []
        self._uncounted: deque[SourceFile] = deque()
        self._rows = 0
        self._rows_known = True
        self._position = -1
        self._last_path = ""
        self._identity: tuple[int, ...] = ()
        self._listed: dict[str, SourceFile] = {}
        self._stamps: dict[str, tuple[int, float, list[tuple[str, bool]]]] = {}

    def subscribe(self, reader: FileListener) -> dict[str, SourceFile]:
        """Register a reader and return all current files, by path."""
        if reader not in self._readers:
            self._readers.append(reader)
        if not self.logged:
            return dict(self._listed)
        chunk = read_table_log(f"{self.folder}/{TABLE_LOG_FOLDER}", -1, "")
        files = {file.path: file for file in map(logged_file, chunk.entries)}
        if chunk.newest > self._position:
            self.refresh(0.0)
        return files

    def unsubscribe(self, reader: FileListener) -> None:
        """Unregister a reader."""
        if reader in self._readers:
            self._readers.remove(reader)

    @property
    def is_table(self) -> bool:
        """Return whether a note of ours says that a query writes it, so that its files are named by a log."""
        return os.path.exists(f"{self.folder}/{TABLE_NOTE_FILE}")

    @property
    def deserted(self) -> bool:
        """Return whether nobody reads it any more."""
        return not self._readers

    def refresh(self, now: float) -> None:
        """List the folder and pass new files to the readers; raises SourceGone if it does not exist."""
        try:
            if not self.logged and os.path.isdir(f"{self.folder}/{TABLE_LOG_FOLDER}"):
                self._forget()
                self.logged = True
            if self.logged:
                self._read_log()
            else:
                self._list(now)
        except (FileNotFoundError, NotADirectoryError) as error:
            if self._identity:
                self._forget()
            raise SourceGone(self.folder) from error

    def produced_rows(self) -> int | None:
        """Rows ever seen in this source; None while some files are not counted yet."""
        while self._uncounted:
            if not self._counter.count(self._uncounted[0], self.folder, self.format, history=True):
                return None
            file = self._uncounted.popleft()
            self._rows_known = self._rows_known and file.rows is not None
            self._rows += file.rows or 0
        return self._rows if self._rows_known else None

    def _add(self, file: SourceFile) -> None:
        self._uncounted.append(file)
        self.newest_at = file.at if self.newest_at is None else max(self.newest_at, file.at)
        for reader in self._readers:
            reader.added(file)

    def _forget(self) -> None:
        """Start over; readers notice by the generation and subscribe again."""
        self.generation += 1
        self.newest_at = None
        self._uncounted.clear()
        self._rows, self._rows_known = 0, True
        self._position, self._last_path, self._identity = -1, "", ()
        self._listed.clear()
        self._stamps.clear()

    def _read_log(self) -> None:
        folder = f"{self.folder}/{TABLE_LOG_FOLDER}"
        found = os.stat(folder)
        identity = (found.st_dev, found.st_ino)
        if self._identity and identity != self._identity:
            self._forget()
        self._identity = identity
        try:
            chunk = read_table_log(folder, self._position, self._last_path)
        except LogRestarted:
            self._forget()
            chunk = read_table_log(folder, -1, "")
        if chunk.whole and self._position >= 0:
            # The batches since were cleaned up, which takes ten minutes without a look: everything is read again.
            self._forget()
        self._identity = identity
        self._position = chunk.newest
        for entry in chunk.entries:
            self._last_path = str(entry.get("path", ""))
            if entry.get("action", "add") == "add":
                self._add(logged_file(entry))
            else:
                for reader in self._readers:
                    reader.removed(local_path(self._last_path))

    def _list(self, now: float) -> None:
        found = os.stat(self.folder)
        self._identity = (found.st_dev, found.st_ino)
        there: set[str] = set()
        self._walk(self.folder, now, there)
        for path in self._listed.keys() - there:
            del self._listed[path]
            for reader in self._readers:
                reader.removed(path)
        for path in sorted(there - self._listed.keys()):
            try:
                about = os.stat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(about.st_mode):
                self._listed[path] = SourceFile(path, about.st_size, about.st_mtime)
                self._add(self._listed[path])

    def _walk(self, folder: str, now: float, into: set[str]) -> None:
        """List a folder and those below it; one that has not changed for two seconds is not read again."""
        try:
            changed = os.stat(folder).st_mtime_ns
        except FileNotFoundError:
            return
        known = self._stamps.get(folder)
        if known is None or known[0] != changed or known[1] - changed / 1e9 < 2.0:
            with os.scandir(folder) as entries:
                names = [(entry.path, entry.is_dir()) for entry in entries if is_data(entry.name)]
            known = (changed, now, names)
            self._stamps[folder] = known
        for path, is_folder in known[2]:
            if is_folder:
                self._walk(path, now, into)
            else:
                into.add(path)


def logged_file(entry: dict[str, object]) -> SourceFile:
    """Read an entry of a table's log; what it does not say is 0."""
    size, at = entry.get("size", 0), entry.get("modificationTime", 0)
    return SourceFile(
        local_path(str(entry.get("path", ""))),
        size if isinstance(size, int) else 0,
        at / 1000 if isinstance(at, int) else 0.0,
    )


def is_data(name: str) -> bool:
    """Return whether Spark reads a file of this name (4.2.0, `HadoopFSUtils.shouldFilterOutPathName`)."""
    return not (name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"))
