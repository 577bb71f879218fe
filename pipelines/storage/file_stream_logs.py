"""Reads Spark's file logs incrementally: `_spark_metadata` of a table, `sources/<i>` of a checkpoint.

File `N` contains batch N. Every tenth file is called `N.compact` and contains all batches up to N, oldest first. The
files that it covers are deleted ten minutes later (Spark 4.2.0, `CompactibleFileStreamLog`).
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, takewhile
from typing import Any, BinaryIO
from urllib.parse import unquote

from core.model.file_stores import OTHER, store_kind
from core.model.names import whole_number
from pipelines.storage.file_store import FolderEntry, store_of

LogEntry = dict[str, Any]

_BLOCK_BYTES = 64 * 1024
"""Block size for reading a file backwards, equivalent to about three hundred entries."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """The entries of a log after a given position."""

    newest: int
    """Latest batch read, after which the next read continues. -1 while the log is empty."""
    entries: tuple[LogEntry, ...]


class LogRestarted(Exception):
    """Raised if a log was recreated: it is shorter than before, or has different entries."""


@dataclass(frozen=True, slots=True)
class WholeLog:
    """A whole log, read lazily.

    Its latest compact file stays open, so that the log remains readable even if that file is deleted.
    """

    newest: int
    """Latest batch. -1 while the log is empty."""
    compacted: Iterator[LogEntry]
    """Entries of the latest compact file, oldest first.

    They make up most of the log, and can be iterated only once.
    """
    recent: tuple[LogEntry, ...]
    """Entries of the batches after the compact file."""
    last: LogEntry | None
    """Last entry of the log."""
    compact: str = ""
    """Path of the latest compact file; empty if there is none."""

    def again(self) -> "WholeLog":
        """Return the same log for another iteration; its compact file is opened anew, and must still exist."""
        return replace(self, compacted=_entries(self.compact)) if self.compact else self

    def __iter__(self) -> Iterator[LogEntry]:
        """Yield all entries, oldest first. Works only once."""
        return chain(self.compacted, self.recent)


def whole_table_log(folder: str) -> WholeLog:
    """Open a table's log in its folder `_spark_metadata`. Raises FileNotFoundError if there is no log."""
    names = batch_files(folder)
    newest = max(names, default=-1)
    start = max((batch for batch, name in names.items() if name.endswith(".compact")), default=-1)
    recent: list[LogEntry] = []
    for batch in sorted(batch for batch in names if batch > start):
        recent += _entries(f"{folder}/{names[batch]}")
    last = recent[-1] if recent else None
    if start < 0:
        return WholeLog(newest, iter(()), tuple(recent), last)
    compact = f"{folder}/{names[start]}"
    last = last or next(_entries_backwards(compact), None)
    return WholeLog(newest, _entries(compact), tuple(recent), last, compact)


def read_table_log(folder: str, after: int, last_path: str, *, sure: bool = True) -> LogChunk:
    """Read a table's log after batch `after`, whose last entry had the path `last_path`.

    Raises FileNotFoundError if there is no log, and LogRestarted if the log was recreated since it was last read. With
    `sure`, a recreated log is detected only if it is shorter or has new batches.
    """
    names = batch_files(folder)
    newest = max(names, default=-1)
    if newest < after:
        raise LogRestarted(folder)
    if after in names and (newest > after or not sure):
        last = next(_entries_backwards(f"{folder}/{names[after]}"), None)
        if last is not None and str(last.get("path", "")) != last_path:
            raise LogRestarted(folder)
    entries: list[LogEntry] = []
    # A compact file also contains the batches that were deleted before we read them.
    compact = [batch for batch, name in names.items() if batch > after and name.endswith(".compact")]
    start = after + 1
    if compact:
        mark = max(compact)
        fresh = _after_mark(f"{folder}/{names[mark]}", last_path)
        if fresh is None:
            raise LogRestarted(folder)
        entries, start = fresh, mark + 1
    for batch in range(start, newest + 1):
        if batch not in names:
            raise LogRestarted(folder)
        entries += _entries(f"{folder}/{names[batch]}")
    return LogChunk(newest, tuple(entries))


def table_log_batches(folder: str, after: int, seen: int) -> Iterator[tuple[int, Iterator[LogEntry], bool]]:
    """Yield a table's batches after batch `after`, each as (batch, entries, whole).

    The entries are the batch's own or, if `whole`, all entries up to it, because earlier batches are no longer
    separate. `seen` is the number of entries up to `after`. Batches before the oldest compact file needed are skipped.
    Raises FileNotFoundError if there is no log.
    """
    names = batch_files(folder)
    newest = max(names, default=-1)
    if any(batch not in names for batch in range(after + 1, newest + 1)):
        # Deleted batches are in the next compact file, which is complete.
        gap = max(batch for batch in range(after + 1, newest + 1) if batch not in names)
        start = min((batch for batch, name in names.items() if batch > gap and name.endswith(".compact")), default=-1)
        if start < 0:
            return
        entries = list(_entries(f"{folder}/{names[start]}"))
        yield start, iter(entries), True
        after, seen = start, len(entries)
    for batch in range(after + 1, newest + 1):
        found = _entries(f"{folder}/{names[batch]}")
        mine = list(islice(found, seen, None) if names[batch].endswith(".compact") else found)
        if not mine and not store_of(folder).exists(f"{folder}/{names[batch]}"):
            return
        seen += len(mine)
        yield batch, iter(mine), False


def read_source_log(folder: str, after: int, upto: int) -> Iterator[LogEntry]:
    """Yield the entries of a checkpoint's source log with `after` < batch ≤ `upto`, or nothing if there is no log."""
    try:
        names = batch_files(folder)
    except FileNotFoundError:
        return
    compact = [batch for batch, name in names.items() if name.endswith(".compact")]
    start = after + 1
    if after < 0 or any(batch not in names for batch in range(start, upto + 1)):
        # A compact file after `upto` covers it too, and may be the only one left.
        covering = min((batch for batch in compact if batch >= upto), default=max(compact, default=-1))
        if covering >= 0:
            path = f"{folder}/{names[covering]}"
            found = _entries(path) if after < 0 else iter(_newer_than(path, after))
            yield from (entry for entry in found if after < entry.get("batchId", 0) <= upto)
        start = max(start, covering + 1)
    for batch in sorted(batch for batch in names if start <= batch <= upto):
        path = f"{folder}/{names[batch]}"
        yield from _newer_than(path, batch - 1) if names[batch].endswith(".compact") else _entries(path)


def newest_batch(folder: str) -> int | None:
    """Return the latest batch in a log; None if it is empty or does not exist."""
    found = newest_entry(folder)
    return found[0] if found is not None else None


def newest_entry(folder: str) -> tuple[int, FolderEntry] | None:
    """Return the latest batch in a log with its file; None if the log is empty or does not exist."""
    with suppress(FileNotFoundError):
        return max(_entries_by_batch(folder).items(), default=None, key=lambda found: found[0])
    return None


def first_gap(folder: str) -> int | None:
    """Return the first missing batch among those that Spark reads when a query starts; None if none is missing.

    Spark reads the latest compact file and everything after it. A log that does not exist has no gap.
    """
    try:
        names = batch_files(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    start = max((batch for batch, name in names.items() if name.endswith(".compact")), default=0)
    return next((batch for batch in range(start, max(names, default=-1) + 1) if batch not in names), None)


def local_path(uri: str) -> str:
    """Convert a URI in a log to a path of `store_of`: `file:///a%20b` becomes `/a b`, `hdfs://n/a%20b` `hdfs://n/a b`.

    URIs of stores that Headgate cannot read are kept.
    """
    if uri.startswith("file:"):
        path = uri[5:].removeprefix("//")
        return unquote(path) if "%" in path else path
    encoded = "%" in uri and "://" in uri and store_kind(uri) is not OTHER
    return unquote(uri) if encoded else uri


def batch_files(folder: str) -> dict[int, str]:
    """Return the file names in a log by batch number, without temporary and checksum files.

    Raises FileNotFoundError or NotADirectoryError if there is no log.
    """
    return {batch: entry.name for batch, entry in _entries_by_batch(folder).items()}


def _entries_by_batch(folder: str) -> dict[int, FolderEntry]:
    numbered = (
        (whole_number(entry.name.removesuffix(".compact")), entry) for entry in store_of(folder).entries(folder)
    )
    return {batch: entry for batch, entry in numbered if batch is not None}


def _entries(path: str) -> Iterator[LogEntry]:
    """Yield the entries of a log file. The file is opened at once, so that it can be read even after it is deleted."""
    try:
        file = store_of(path).open(path)
    except FileNotFoundError:
        return iter(())
    return _read(file)


def _read(file: BinaryIO) -> Iterator[LogEntry]:
    with file:
        next(file, None)  # The version.
        for line in file:
            if line := line.strip():
                yield json.loads(line)


def _entries_backwards(path: str) -> Iterator[LogEntry]:
    try:
        file = store_of(path).open(path)
    except FileNotFoundError:
        return
    with file:
        place, rest = file.seek(0, os.SEEK_END), b""
        while place > 0:
            size = min(_BLOCK_BYTES, place)
            place = file.seek(place - size)
            first, *lines = (file.read(size) + rest).split(b"\n")
            yield from (json.loads(line) for line in reversed(lines) if line)
            rest = first


def _after_mark(path: str, mark: str) -> list[LogEntry] | None:
    found: list[LogEntry] = []
    for entry in _entries_backwards(path):
        if mark and str(entry.get("path", "")) == mark:
            return found[::-1]
        found.append(entry)
    return None if mark else found[::-1]


def _newer_than(path: str, batch: int) -> list[LogEntry]:
    newer = takewhile(lambda entry: entry.get("batchId", batch) > batch, _entries_backwards(path))
    return list(newer)[::-1]
