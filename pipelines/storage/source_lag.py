"""Measures a query's lag behind its file sources, that is, the files written but not yet consumed.

A file is consumed once a committed batch has read it. The files of a running batch still count as lag.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from core.model.names import TableName
from core.model.table_formats import TABLE_FORMATS, TableFormat, table_format
from core.ports.storage import SourceLag
from pipelines.storage.file_sources import FileSource, SourceGone
from pipelines.storage.file_store import store_of
from pipelines.storage.file_stream_logs import local_path, read_source_log
from pipelines.storage.row_counting import RowCounter, SourceFile, estimated_rows

REFRESH_S = 0.5
"""Minimum seconds between two refreshes of a source, however many statements read it."""


SLOW_S, SLOW_RESTS = 2.0, 10
"""A refresh that takes longer than this many seconds is repeated only after that many times as long.

A large folder of an object store is listed as a whole. Rounds in between know the files of the last listing.
"""

FORGET_S = 3600.0
"""Seconds before measurements that are no longer requested are discarded."""

FOLDED_PENDING = 1_000
"""Maximum number of pending files saved for the next process. With more, the next process reads the logs again."""


class SourceLags:
    """Measures in every round how far statements are behind their sources, reading only the new parts of logs.

    Pending files are kept in memory. For consumed files, only a position and totals are kept; `encoded` returns them,
    to be saved for the agent's next process. Thread-safe: a thread that waits for the store of a source delays only
    threads that need the same source.
    """

    def __init__(self, *, counter: RowCounter | None = None, refresh_s: float = REFRESH_S) -> None:
        self._lock = threading.Lock()
        """Guards the mappings, and is never held during a read."""
        self._counter = counter or RowCounter()
        self._refresh_s = refresh_s
        self._sources: dict[tuple[str, TableFormat], FileSource] = {}
        self._refreshed: dict[tuple[str, TableFormat], float] = {}
        self._readings: dict[tuple[str, int], SourceBacklog] = {}
        self._measured: dict[tuple[str, int], float] = {}
        self._forgotten_at = time.monotonic()

    def measure(
        self,
        checkpoint: str,
        consumed: Mapping[int, int],
        sources: tuple[tuple[int, TableName, str, str], ...],
    ) -> tuple[SourceLag, ...]:
        """Return a statement's lag behind each source.

        `consumed` maps each source's ordinal to the statement's committed position in the log.
        """
        with self._lock:
            self._forget_unused(time.monotonic())
        return tuple(
            self._measure(checkpoint, consumed.get(ordinal, -1), (ordinal, table, folder.rstrip("/"), format))
            for ordinal, table, folder, format in sources
        )

    def rows(self, folder: str, format: str) -> int | None:
        """Return the row count of all files in a source; None if they are not counted yet or cannot be counted."""
        found = table_format(format)
        if not found.counts_rows_exactly:
            return None
        source = self._source(local_path(folder.rstrip("/")), found)
        with source.lock:
            try:
                self._refresh(source)
                return source.produced_rows()
            except SourceGone:
                return None

    def encoded(self) -> dict[str, str]:
        """Return positions and totals of sources and backlogs, as JSON by key, for `restore`.

        A source that another thread reads at the moment is left out, because its store may not answer.
        """
        with self._lock:
            readings: dict[FileSource, list[tuple[str, int]]] = {source: [] for source in self._sources.values()}
            for key, reading in self._readings.items():
                readings[reading.source].append(key)
        found: dict[str, str] = {}
        for source, keys in readings.items():
            if not source.lock.acquire(blocking=False):
                continue
            try:
                if encoded := source.encoded():
                    found[f"source {source.format.name} {source.folder}"] = json.dumps(encoded)
                    found |= self._encoded_readings(source, keys)
            finally:
                source.lock.release()
        return found

    def _encoded_readings(self, source: FileSource, keys: Iterable[tuple[str, int]]) -> Iterator[tuple[str, str]]:
        for checkpoint, ordinal in keys:
            reading = self._readings.get((checkpoint, ordinal))
            if reading is not None and reading.source is source and (encoded := reading.encoded()):
                about = {"folder": source.folder, "format": source.format.name, **encoded}
                yield f"reading {ordinal} {checkpoint}", json.dumps(about)

    def restore(self, encoded: Mapping[str, str]) -> None:
        """Restore the result of `encoded` in a new process.

        Unreadable entries, such as entries of another Headgate version, are ignored, and their sources are measured
        from the beginning.
        """
        with self._lock:
            for key, body in sorted(encoded.items(), reverse=True):  # Sources before readings.
                with suppress(ValueError, KeyError, TypeError):
                    kind, name, place = key.split(" ", 2)
                    self._restore(kind, name, place, json.loads(body))

    def _restore(self, kind: str, name: str, place: str, values: dict[str, Any]) -> None:
        if kind == "source":
            source = FileSource(place, TABLE_FORMATS[name], self._counter)
            source.restore(values)
            self._sources[place, source.format] = source
            self._refreshed[place, source.format] = time.monotonic() - self._refresh_s
        elif found := self._sources.get((values["folder"], TABLE_FORMATS[values["format"]])):
            reading = SourceBacklog(f"{place}/sources/{name}", found)
            reading.restore(values)
            self._readings[place, int(name)] = reading
            self._measured[place, int(name)] = time.monotonic()

    def _measure(self, checkpoint: str, upto: int, source: tuple[int, TableName, str, str]) -> SourceLag:
        ordinal, table, folder, format = source
        found = self._source(local_path(folder), table_format(format))
        with found.lock:
            try:
                reading = self._reading((checkpoint, ordinal), found, upto)
                self._refresh(found)
                reading.advance(upto)
            except (SourceGone, FileNotFoundError):
                return _missing(table)
            return _missing(table) if reading.replaced else self._position(table, reading)

    def _reading(self, key: tuple[str, int], source: FileSource, upto: int) -> "SourceBacklog":
        known = self._readings.get(key)
        continues = known is not None and known.source is source and known.continues(upto)
        with self._lock:
            self._measured[key] = time.monotonic()
            if known is None or not continues:
                if known is not None:
                    self._drop(key)
                known = self._readings[key] = SourceBacklog(f"{key[0]}/sources/{key[1]}", source)
        return known

    def _source(self, folder: str, format: TableFormat) -> FileSource:
        with self._lock:
            if (found := self._sources.get((folder, format))) is None:
                found = self._sources[folder, format] = FileSource(folder, format, self._counter)
            return found

    def _refresh(self, source: FileSource) -> None:
        """Read what is new in a source whose lock is held, unless that was done a moment ago."""
        key, now = (source.folder, source.format), time.monotonic()
        if now - self._refreshed.get(key, -self._refresh_s) >= self._refresh_s:
            source.refresh(time.time())
            took = time.monotonic() - now
            with self._lock:
                self._refreshed[key] = now + (SLOW_RESTS * took if took > SLOW_S else 0.0)

    def _forget_unused(self, now: float) -> None:
        # A backlog that nobody requests would collect all new files of its source.
        if now - self._forgotten_at < FORGET_S / 10:
            return
        self._forgotten_at = now
        for key in [key for key, at in self._measured.items() if at < now - FORGET_S]:
            del self._measured[key]
            if key in self._readings:
                self._drop(key)
        read = {id(reading.source) for reading in self._readings.values()}
        for place in [place for place, at in self._refreshed.items() if at < now - FORGET_S]:
            if place not in self._sources or id(self._sources[place]) not in read:
                self._sources.pop(place, None)
                del self._refreshed[place]

    def _drop(self, key: tuple[str, int]) -> None:
        # Another thread may have dropped it meanwhile.
        if reading := self._readings.pop(key, None):
            reading.source.unsubscribe(reading)

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
    """The files of one source that a given statement has not consumed."""

    def __init__(self, log: str, source: FileSource) -> None:
        self.source = source
        self.pending: dict[str, SourceFile] = {}
        self.replaced = False
        """Whether the consumed files came from another table in the same folder."""
        self._log = log
        self._identity: tuple[int, int] | None = None
        self._generation = -1
        self._upto = -1
        self._early: dict[str, int] = {}
        """Files consumed before the source reported them, with the source's number of refreshes at that time."""

    def continues(self, upto: int) -> bool:
        """True if this backlog can advance to the position `upto` in the checkpoint's source log.

        It cannot if the log was replaced, or if the backlog has already passed this position.
        """
        return upto >= self._upto and (not self._identity or _identity(self._log) == self._identity)

    def advance(self, upto: int) -> None:
        """Drop from the backlog the files that the statement has consumed, up to a position in its source log."""
        if self._generation != self.source.generation:
            self._begin(upto)
            return
        if self._early:
            # Forget files that were missing from two refreshes: they were deleted before the first of the two.
            self._early = {path: look for path, look in self._early.items() if look >= self.source.looks}
        if upto > self._upto:
            for path in self._consumed(self._upto, upto):
                # The source was refreshed before this file was written and will still report it.
                if self.pending.pop(path, None) is None:
                    self._early[path] = self.source.looks
            self._upto = upto
            self._identity = self._identity or _identity(self._log)

    def added(self, file: SourceFile) -> None:
        """Add a new file of the source, unless the statement has already consumed it."""
        if self._early.pop(file.path, None) is None:
            self.pending[file.path] = file

    def removed(self, path: str) -> None:
        """Remove a deleted file, which can no longer be read."""
        self.pending.pop(path, None)

    def encoded(self) -> dict[str, Any] | None:
        """Return the position and the pending files as JSON; None if they are uncertain or too many to save."""
        settled = self._generation == self.source.generation and not self.replaced and not self._early
        if not settled or not self._identity or len(self.pending) > FOLDED_PENDING:
            return None
        pending = [(file.path, file.size, file.at) for file in self.pending.values()]
        return {"identity": self._identity, "upto": self._upto, "pending": pending}

    def restore(self, encoded: Mapping[str, Any]) -> None:
        """Restore the result of `encoded`. The source must have been restored before."""
        self.source.listen(self)
        self._generation = self.source.generation
        self._identity, self._upto = tuple(encoded["identity"]), encoded["upto"]
        self.pending = {path: SourceFile(path, size, at) for path, size, at in encoded["pending"]}

    def _begin(self, upto: int) -> None:
        files = self.source.subscribe(self)
        generation = self.source.generation
        self._identity = _identity(self._log)
        self._upto = upto
        self._early.clear()
        consumed = self._consumed(-1, upto)
        # A plain folder has no order, and files read earlier may be gone, so only existing files are kept.
        written = (files, {}) if self.source.logged else (iter(()), {file.path: file for file in files})
        self.pending, read, matched = _unread(*written, consumed, hold=bool(self.source.logged))
        # Landed text files may be deleted once read, but the log of a table keeps everything. After a table was
        # deleted, a late task of its stopped writer recreates its folder, empty (seen on 4.2.0).
        keeps_all = self.source.logged or self.source.is_table or self.source.format.keeps_read_files
        self.replaced = bool(read) and keeps_all and not matched
        # Only now, because a store that fails during the reads above must not leave the backlog incomplete.
        self._generation = generation

    def _consumed(self, after: int, upto: int) -> Iterator[str]:
        return (local_path(str(entry["path"])) for entry in read_source_log(self._log, after, upto))


def _unread(
    files: Iterator[SourceFile], pending: dict[str, SourceFile], consumed: Iterator[str], *, hold: bool
) -> tuple[dict[str, SourceFile], int, int]:
    """Match a source's files with the paths that a statement has consumed, both in order.

    Return the unconsumed files, the number of consumed paths, and the number of consumed files that the source still
    lists. With `hold`, a path that is consumed before the source lists its file is kept until then. Statements read
    files roughly in the order in which they were written, so few paths are kept even for long logs.
    """
    ahead: set[str] = set()
    read = matched = 0
    for file, path in zip_longest(files, consumed):
        if path is not None:
            read += 1
            if pending.pop(path, None) is not None:
                matched += 1
            elif hold:
                ahead.add(path)
        if file is None:
            continue
        if file.path in ahead:
            ahead.discard(file.path)
            matched += 1
        else:
            pending[file.path] = file
    return pending, read, matched


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        found = store_of(folder).stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _missing(table: TableName) -> SourceLag:
    return SourceLag(table=table, files=0, bytes=0, rows=None, exact=False, oldest_s=None, missing=True)
