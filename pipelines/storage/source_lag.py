"""How far the streamed sources of a query are ahead of it: files written minus files consumed.

Consumed is what a committed batch has read; files of a batch that is under way count as lag.
"""

import os
import threading
import time
from collections.abc import Mapping

from core.model.names import TableName
from core.model.table_formats import TableFormat, table_format
from core.ports.storage import SourceLag
from pipelines.storage.file_sources import FileSource, SourceGone
from pipelines.storage.file_stream_logs import local_path, read_source_log
from pipelines.storage.row_counting import RowCounter, SourceFile, estimated_rows

REFRESH_S = 0.5
"""A source that several statements read is looked at once within this time."""


class SourceLags:
    """Measures sources of statements, round by round; holds what is pending and reads only what is new."""

    def __init__(self, *, counter: RowCounter | None = None, refresh_s: float = REFRESH_S) -> None:
        self._lock = threading.Lock()
        self._counter = counter or RowCounter()
        self._refresh_s = refresh_s
        self._sources: dict[tuple[str, TableFormat], FileSource] = {}
        self._refreshed: dict[tuple[str, TableFormat], float] = {}
        self._readings: dict[tuple[str, int], SourceBacklog] = {}

    def measure(
        self,
        checkpoint: str,
        consumed: Mapping[int, int],
        sources: tuple[tuple[int, TableName, str, str], ...],
    ) -> tuple[SourceLag, ...]:
        """Measure the sources (ordinal, table, folder, format) of one checkpoint at its committed log positions."""
        with self._lock:
            return tuple(
                self._measure(checkpoint, consumed.get(ordinal, -1), (ordinal, table, folder.rstrip("/"), format))
                for ordinal, table, folder, format in sources
            )

    def _measure(self, checkpoint: str, upto: int, source: tuple[int, TableName, str, str]) -> SourceLag:
        ordinal, table, folder, format = source
        folder = local_path(folder)
        key = (checkpoint, ordinal)
        reading = self._readings.get(key)
        if reading is not None and (reading.source.folder != folder or not reading.continues(upto)):
            self._drop(key)
            reading = None
        try:
            found = self._refreshed_source(folder, table_format(format))
            if reading is None:
                reading = SourceBacklog(f"{checkpoint}/sources/{ordinal}", found)
                self._readings[key] = reading
            reading.advance(upto)
        except (SourceGone, FileNotFoundError):
            return _missing(table)
        if reading.replaced:
            return _missing(table)
        return self._position(table, reading)

    def _refreshed_source(self, folder: str, format: TableFormat) -> FileSource:
        key = (folder, format)
        now = time.monotonic()
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = FileSource(folder, format, self._counter)
        if now - self._refreshed.get(key, -self._refresh_s) >= self._refresh_s:
            source.refresh(time.time())
            self._refreshed[key] = now
        return source

    def _drop(self, key: tuple[str, int]) -> None:
        reading = self._readings.pop(key)
        reading.source.unsubscribe(reading)
        if reading.source.deserted:
            gone = (reading.source.folder, reading.source.format)
            self._sources.pop(gone, None)
            self._refreshed.pop(gone, None)

    def _position(self, table: TableName, reading: "SourceBacklog") -> SourceLag:
        source = reading.source
        size, rows, known, oldest = 0, 0, 0, None
        for file in reading.pending.values():
            size += file.size
            oldest = file.at if oldest is None or file.at < oldest else oldest
            if (file.counted or self._counter.count(file, source.folder, source.format)) and file.rows is not None:
                rows += file.rows
                known += file.size
        exact = not reading.pending or (source.format.counts_rows_exactly and known == size)
        lag = estimated_rows(rows, known, size)
        produced = source.produced_rows()
        now = time.time()
        return SourceLag(
            table=table,
            files=len(reading.pending),
            bytes=size,
            rows=lag,
            exact=exact,
            oldest_s=None if oldest is None else max(0.0, now - oldest),
            produced_rows=produced,
            consumed_rows=None if produced is None or lag is None or known != size else max(0, produced - lag),
            newest_s=None if source.newest_at is None else max(0.0, now - source.newest_at),
        )


class SourceBacklog:
    """One statement's reading of one source: which files it has not consumed."""

    def __init__(self, log: str, source: FileSource) -> None:
        self.source = source
        self.pending: dict[str, SourceFile] = {}
        self.replaced = False
        """Whether what was consumed came from another table in the same place."""
        self._log = log
        self._identity = _identity(log)
        self._generation = -1
        self._upto = -1
        self._early: set[str] = set()

    def continues(self, upto: int) -> bool:
        """Return whether this still is the checkpoint it was: its log the same folder, its position not behind."""
        return upto >= self._upto and (not self._identity or _identity(self._log) == self._identity)

    def advance(self, upto: int) -> None:
        """Record what was consumed up to a position of the source log."""
        if self._generation != self.source.generation:
            self._begin(upto)
            return
        if upto > self._upto:
            for entry in read_source_log(self._log, self._upto, upto):
                path = local_path(str(entry["path"]))
                # The source was looked at before this file was written there: it will be reported yet.
                if self.pending.pop(path, None) is None:
                    self._early.add(path)
            self._upto = upto
            self._identity = self._identity or _identity(self._log)

    def added(self, file: SourceFile) -> None:
        """Hear of a new file."""
        if file.path in self._early:
            self._early.discard(file.path)
        else:
            self.pending[file.path] = file

    def removed(self, path: str) -> None:
        """Hear that a file is gone, so that nobody can read it any more."""
        self.pending.pop(path, None)

    def _begin(self, upto: int) -> None:
        consumed = {local_path(str(entry["path"])) for entry in read_source_log(self._log, -1, upto)}
        files = self.source.subscribe(self)
        self._generation = self.source.generation
        self._identity = _identity(self._log)
        self._upto = upto
        self._early.clear()
        self.pending = {path: file for path, file in files.items() if path not in consumed}
        # Lines that landed may be cleaned up behind a reader; the log of a table forgets nothing, and a late task of
        # a writer that was stopped makes the folder of a table that is gone once more, empty (seen on 4.2.0).
        keeps_all = self.source.logged or self.source.is_table or self.source.format.keeps_read_files
        self.replaced = bool(consumed) and keeps_all and consumed.isdisjoint(files)


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _missing(table: TableName) -> SourceLag:
    return SourceLag(table=table, files=0, bytes=0, rows=None, exact=False, oldest_s=None, missing=True)
