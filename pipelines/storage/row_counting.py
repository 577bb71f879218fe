"""Counting rows within a budget: what a round cannot afford is counted in the next ones.

Rows of Parquet files are exact, from their footers; rows of JSON, CSV and text files are always an estimate from their
bytes, one row a line.
"""

import os
import time
from collections import OrderedDict
from dataclasses import dataclass

import pyarrow.parquet

LINE_FORMATS = frozenset({"json", "csv", "text"})

_SAMPLE_BYTES = 256 * 1024
_FIRST_FILES = 8
_EVERY_FILES = 50
COMPRESSED_ENDINGS = (".gz", ".bz2", ".zst", ".xz", ".snappy", ".lz4", ".deflate")


class BytesPerLine:
    """What has been learned of one folder's lines: a few files are read, all others are divided."""

    def __init__(self) -> None:
        self._bytes = 0
        self._rows = 0
        self._seen = 0

    def rows_of(self, path: str, size: int) -> int | None:
        """Estimate the rows of a file; None for a compressed one and before anything was learned."""
        if path.endswith(COMPRESSED_ENDINGS):
            return None
        self._seen += 1
        if self._seen <= _FIRST_FILES or self._seen % _EVERY_FILES == 0:
            self._learn(path)
        if not self._rows:
            return 0 if size == 0 else None
        return round(size * self._rows / self._bytes)

    def _learn(self, path: str) -> None:
        try:
            with open(path, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                sample = file.read(_SAMPLE_BYTES)
        except OSError:
            return
        rows = sample.count(b"\n")
        if len(sample) == size and sample and not sample.endswith(b"\n"):
            rows += 1
        if rows:
            self._bytes += len(sample)
            self._rows += rows


def parquet_rows(path: str) -> int | None:
    """Read the row count of a file; None when it is gone or is no Parquet. About 0.1 ms."""
    try:
        return int(pyarrow.parquet.read_metadata(path).num_rows)
    except (OSError, ValueError):
        return None


WINDOW_S = 4.0
BUDGET_S = 0.06
"""Time for reading footers in each window: a backlog of thousands must not make the agent heavy."""
_HISTORY_SHARE = 0.3
"""Part of it that files which everybody has consumed may take from those that are lag."""

_REMEMBERED = 50_000


@dataclass(slots=True, eq=False)
class SourceFile:
    """One file of a source, shared by all who read it."""

    path: str
    size: int
    at: float
    """Modification time, epoch seconds."""
    rows: int | None = None
    """None until counted."""
    counted: bool = False
    """Whether nothing more will be learned."""


class RowCounter:
    """Counts rows by format; one for all folders, so that the budget is one."""

    def __init__(self, *, window_s: float = WINDOW_S, budget_s: float = BUDGET_S) -> None:
        self._window_s = window_s
        self._budget_s = budget_s
        self._window_at = 0.0
        self._spent = 0.0
        self._footers: OrderedDict[tuple[str, int], int | None] = OrderedDict()
        self._learned: dict[str, BytesPerLine] = {}

    def count(self, file: SourceFile, folder: str, format: str, *, history: bool = False) -> bool:
        """Count a file's rows; returns False if the budget of this window is used up, earlier for `history`."""
        if file.counted:
            return True
        if format == "parquet":
            return self._count_footer(file, self._budget_s * (_HISTORY_SHARE if history else 1.0))
        if format in LINE_FORMATS:
            file.rows = self._learned.setdefault(folder, BytesPerLine()).rows_of(file.path, file.size)
        file.counted = True
        return True

    def _count_footer(self, file: SourceFile, budget_s: float) -> bool:
        key = (file.path, file.size)
        if key not in self._footers:
            now = time.monotonic()
            if now - self._window_at >= self._window_s:
                self._window_at, self._spent = now, 0.0
            if self._spent >= budget_s:
                return False
            self._footers[key] = parquet_rows(file.path)
            self._spent += time.monotonic() - now
            if len(self._footers) > _REMEMBERED:
                self._footers.popitem(last=False)
        file.rows = self._footers[key]
        file.counted = True
        return True


def counts_rows_exactly(format: str) -> bool:
    """Return whether rows of this format are counted, not estimated."""
    return format == "parquet"


def estimated_rows(rows: int, known: int, size: int) -> int | None:
    """Estimate the rows of all bytes from those of the known ones; None when nothing is known of something."""
    if known == size:
        return rows
    return round(rows * size / known) if known else None
