"""Finds out what every batch of a version read and wrote, from the logs of its checkpoint and table.

A set of files is identified by a mark, which consists of the number of files and the sum of their path hashes, so that
the order of the files is irrelevant. Only the last hundred batches are known, or fewer if Spark has deleted their logs.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, islice

from core.observed.aligned_positions import NOTHING, BatchHistory, BatchPosition
from pipelines.storage.file_sources import TABLE_LOG_FOLDER
from pipelines.storage.file_store import store_of
from pipelines.storage.file_stream_logs import (
    LogEntry,
    batch_files,
    local_path,
    newest_batch,
    read_source_log,
    table_log_batches,
    whole_table_log,
)

KEPT = 400
"""Number of latest marks of a log that always stay in memory."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """The number of files in a set and the sum of their path hashes, so that the order of the files is irrelevant."""

    files: int = 0
    hashes: int = 0

    def plus(self, entries: Iterable[LogEntry]) -> "_Sum":
        files, hashes = self.files, self.hashes
        for entry in entries:
            path = local_path(str(entry.get("path", "")))
            files += 1
            hashes += int.from_bytes(hashlib.sha256(path.encode("utf-8", "surrogatepass")).digest()[:16])
        return replace(self, files=files, hashes=hashes % (1 << 128))

    @property
    def mark(self) -> str:
        return f"{self.files}:{self.hashes:x}"


@dataclass(slots=True)
class _Log:
    upto: int = -1
    sum: _Sum = field(default_factory=_Sum)
    marks: dict[int, str] = field(default_factory=dict)

    def put(self, batch: int, sum: _Sum) -> None:
        self.upto, self.sum = batch, sum
        self.marks[batch] = sum.mark
        if len(self.marks) > 2 * KEPT:
            self.marks = dict(islice(self.marks.items(), len(self.marks) - KEPT, None))


class BatchHistories:
    """Reads the batch histories of versions. A repeated call reads only new parts of the logs."""

    def __init__(self, other_mark: Callable[[str], str | None] = lambda line: None) -> None:
        """Create a reader. `other_mark` converts the offset of a source without a file log to a mark."""
        self._other_mark = other_mark
        self._lock = threading.Lock()
        self._logs: dict[str, _Log] = {}
        self._positions: dict[str, dict[int, BatchPosition]] = {}
        """Known positions by checkpoint and batch. A position never changes once its batch is planned."""

    def history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return what each known batch of a version read and wrote; empty before the version's first batch.

        `sources` is the number of sources that the version streams. Raises ValueError if a log cannot be read.
        """
        with self._lock:
            written = self._table_log(folder.rstrip("/"))
            known = self._positions.get(checkpoint, {})
            batches = {
                batch: found
                for batch in _batches(checkpoint, written.upto)
                if (found := known.get(batch) or self._position(checkpoint, batch, sources)) is not None
            }
            self._positions[checkpoint] = batches
            held: dict[str, tuple[int, int]] = {}
            for batch, mark in sorted(written.marks.items()):
                held[mark] = (held.get(mark, (batch, batch))[0], batch)
            return BatchHistory(batches, held)

    def files(self, folder: str, upto: int) -> tuple[str, ...]:
        """Return the files that a table's batches up to and including `upto` wrote, oldest first.

        Raises ValueError if the log no longer separates these files from files of later batches.
        """
        place = folder.rstrip("/")
        with self._lock:
            known = self._table_log(place)
            count = 0 if upto < 0 else _count(known, upto)
        if count is None:
            raise ValueError(f"the log of {place} does not say any more what batch {upto} had written")
        if count == 0:
            return ()
        entries = islice(_added(whole_table_log(f"{place}/{TABLE_LOG_FOLDER}")), count)
        found = tuple(local_path(str(entry["path"])) for entry in entries)
        if len(found) < count:
            raise ValueError(f"the log of {place} has become shorter")
        return found

    def _position(self, checkpoint: str, batch: int, sources: int) -> BatchPosition | None:
        try:
            lines = store_of(checkpoint).read(f"{checkpoint}/offsets/{batch}").decode().split("\n")
        except FileNotFoundError:
            return None
        if not lines[0].startswith("v") or len(lines) < 2:
            raise ValueError(f"not an offset log: {lines[0][:20]!r}")
        marks = [self._mark(checkpoint, ordinal, line) for ordinal, line in enumerate(lines[2 : 2 + sources])]
        consumed = tuple(mark for mark in marks if mark is not None)
        if len(consumed) < sources:
            return None
        return BatchPosition(consumed, int(json.loads(lines[1]).get("batchWatermarkMs") or 0))

    def _mark(self, checkpoint: str, ordinal: int, line: str) -> str | None:
        if not line.startswith("{"):
            return NOTHING
        offset = json.loads(line).get("logOffset")
        if not isinstance(offset, int):
            return self._other_mark(line)
        log = self._source_log(f"{checkpoint}/sources/{ordinal}", offset)
        return log.marks.get(offset)

    def _source_log(self, folder: str, upto: int) -> _Log:
        log = self._logs.setdefault(folder, _Log())
        if upto <= log.upto:
            return log
        sum = log.sum
        batches = groupby(read_source_log(folder, log.upto, upto), key=lambda entry: int(entry.get("batchId", 0)))
        for batch, entries in batches:
            sum = sum.plus(entries)
            log.put(batch, sum)
        return log

    def _table_log(self, folder: str) -> _Log:
        """Read the new part of a table's log, and return the whole log. Batches merged by compaction have no mark."""
        place = f"{folder}/{TABLE_LOG_FOLDER}"
        log = self._logs.setdefault(place, _Log())
        try:
            for batch, entries, whole in table_log_batches(place, log.upto, log.sum.files):
                log.put(batch, (_Sum() if whole else log.sum).plus(_added(entries)))
        except FileNotFoundError:
            return self._logs.pop(place)
        return log


def _count(log: _Log, batch: int) -> int | None:
    mark = log.marks.get(batch)
    return None if mark is None else int(mark.partition(":")[0])


def _batches(checkpoint: str, written: int) -> Iterator[int]:
    """Yield the batches of a checkpoint whose rows are in the table, whether or not Spark has committed them."""
    committed = newest_batch(f"{checkpoint}/commits")
    newest = written if committed is None else max(committed, written)
    with suppress(FileNotFoundError):
        yield from (batch for batch in batch_files(f"{checkpoint}/offsets") if batch <= newest)


def _added(entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    return (entry for entry in entries if entry.get("action", "add") == "add")
