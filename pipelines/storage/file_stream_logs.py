"""Spark's logs of files: `_spark_metadata` of a table and `sources/<i>` of a checkpoint, read as they grow.

Files `N` hold one batch; every tenth is `N.compact` and holds all batches up to N, oldest first; what a compact file
covers is deleted ten minutes later (Spark 4.2.0, `CompactibleFileStreamLog`).
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

LogEntry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogChunk:
    """What a log holds beyond a position."""

    newest: int
    """The newest batch that was read: where to go on; -1 while the log is empty."""
    entries: tuple[LogEntry, ...]
    whole: bool
    """Whether the entries are all there are, not only those beyond the position asked for."""


class LogRestarted(Exception):
    """The log is shorter than it was: somebody began it anew."""


def read_table_log(folder: str, after: int, last_path: str) -> LogChunk:
    """Read `_spark_metadata` beyond batch `after` (-1 for all), where `last_path` was the last entry seen.

    Raises FileNotFoundError without a log, LogRestarted when it is not the one that `after` came from.
    """
    names = _names(folder)
    newest = max(names, default=-1)
    if newest < after:
        raise LogRestarted(folder)
    if newest == after:
        return LogChunk(newest, (), whole=False)
    if after < 0 or any(batch not in names for batch in range(after + 1, newest + 1)):
        return LogChunk(newest, tuple(_all(folder, names, newest)), whole=True)
    entries: list[LogEntry] = []
    for batch in range(after + 1, newest + 1):
        if not names[batch].endswith(".compact"):
            entries += _parsed(_lines(f"{folder}/{names[batch]}"))
            continue
        mark = _raw_path(entries[-1]) if entries else last_path
        fresh = _tail(_lines(f"{folder}/{names[batch]}"), mark)
        if fresh is None:
            raise LogRestarted(folder)
        entries += fresh
    return LogChunk(newest, tuple(entries), whole=False)


def read_source_log(folder: str, after: int, upto: int) -> tuple[LogEntry, ...]:
    """Read the entries of a checkpoint's source log with `after` < batch ≤ `upto`; nothing when there is no log."""
    try:
        names = _names(folder)
    except FileNotFoundError:
        return ()
    if after >= 0 and all(batch in names for batch in range(after + 1, upto + 1)):
        read: list[LogEntry] = []
        for batch in range(after + 1, upto + 1):
            lines = _lines(f"{folder}/{names[batch]}")
            read += _newer_than(lines, batch - 1) if names[batch].endswith(".compact") else _parsed(lines)
        return tuple(entry for entry in read if after < entry.get("batchId", after + 1) <= upto)
    # A compact file beyond `upto` covers it as well, and may be the only one left.
    compact = [batch for batch, name in names.items() if name.endswith(".compact")]
    covering = min((batch for batch in compact if batch >= upto), default=None)
    everything = _parsed(_lines(f"{folder}/{names[covering]}")) if covering is not None else _all(folder, names, upto)
    return tuple(entry for entry in everything if after < entry.get("batchId", 0) <= upto)


def local_path(uri: str) -> str:
    """Convert the URI of an entry to a path: `file:///a%20b` is `/a b`; other schemes stay as they are."""
    if not uri.startswith("file:"):
        return uri
    path = uri[5:]
    if path.startswith("//"):
        path = path[2:]
    return unquote(path) if "%" in path else path


def _names(folder: str) -> dict[int, str]:
    """Return file names by batch; temporary and checksum files begin with a dot."""
    names: dict[int, str] = {}
    with os.scandir(folder) as found:
        for entry in found:
            number = entry.name.removesuffix(".compact")
            if number.isdigit():
                names[int(number)] = entry.name
    return names


def _all(folder: str, names: dict[int, str], upto: int) -> Iterator[LogEntry]:
    """Return every entry up to a batch: the newest compact file, then each batch after it."""
    start = max((batch for batch, name in names.items() if name.endswith(".compact") and batch <= upto), default=-1)
    for batch in sorted(batch for batch in names if start <= batch <= upto):
        yield from _parsed(_lines(f"{folder}/{names[batch]}"))


def _lines(path: str) -> list[bytes]:
    """Return the entries of one file, without the version line; nothing when it is cleaned up in this moment."""
    try:
        with open(path, "rb") as file:
            return file.read().split(b"\n")[1:]
    except FileNotFoundError:
        return []


def _parsed(lines: list[bytes]) -> list[LogEntry]:
    return [json.loads(line) for line in lines if line]


def _tail(lines: list[bytes], mark: str) -> list[LogEntry] | None:
    """Return the entries after the one whose path is `mark`, which is near the end; None when it is not there."""
    found: list[LogEntry] = []
    for line in reversed(lines):
        if not line:
            continue
        entry: LogEntry = json.loads(line)
        if _raw_path(entry) == mark:
            return found[::-1]
        found.append(entry)
    return found[::-1] if not mark else None


def _newer_than(lines: list[bytes], batch: int) -> list[LogEntry]:
    found: list[LogEntry] = []
    for line in reversed(lines):
        if not line:
            continue
        entry: LogEntry = json.loads(line)
        if entry.get("batchId", batch) <= batch:
            break
        found.append(entry)
    return found[::-1]


def _raw_path(entry: LogEntry) -> str:
    return str(entry.get("path", ""))
