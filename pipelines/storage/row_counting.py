"""Counts the rows of files within a time budget. The remaining files are counted in the next round.

How the rows of a format are counted depends on its `row_counting` in `core.model.table_formats`.
"""

import errno
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from core.model.table_formats import RowCounting, TableFormat
from pipelines.storage.file_store import FileStore, store_of

_SAMPLE_BYTES = 256 * 1024
_FIRST_FILES = 8
_EVERY_FILES = 50
_UNANSWERED = frozenset({errno.EAGAIN, errno.EHOSTUNREACH, errno.EIO, errno.ETIMEDOUT})
_COMPRESSED_ENDINGS = (".gz", ".bz2", ".zst", ".xz", ".snappy", ".lz4", ".deflate")


class BytesPerLine:
    """Estimates row counts from the average line length in a folder, learned from a few of its files."""

    def __init__(self) -> None:
        self._bytes = 0
        self._rows = 0
        self._seen = 0

    def rows_of(self, path: str, size: int) -> int | None:
        """Estimate a file's row count; None if the file is compressed or nothing has been learned yet."""
        if path.endswith(_COMPRESSED_ENDINGS):
            return None
        self._seen += 1
        if self._seen <= _FIRST_FILES or self._seen % _EVERY_FILES == 0:
            self._learn(path)
        if not self._rows:
            return 0 if size == 0 else None
        return round(size * self._rows / self._bytes)

    def _learn(self, path: str) -> None:
        try:
            file, about = store_of(path).open_with_status(path)
            with file:
                sample = file.read(_SAMPLE_BYTES)
        except OSError:
            return
        rows = sample.count(b"\n")
        if len(sample) == about.st_size and sample and not sample.endswith(b"\n"):
            rows += 1
        if rows:
            self._bytes += len(sample)
            self._rows += rows


def parquet_rows(path: str) -> int | None:
    """Return a Parquet file's row count; None if the file is gone or not Parquet. A local file takes about 0.1 ms.

    Raises OSError if the store of the file does not answer.
    """
    try:
        # Imported here, because an agent answers 0.2 s earlier after its start without this import.
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(store_of(path).for_arrow(path)).num_rows)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _UNANSWERED:
            raise
        return None


WINDOW_S = 4.0
BUDGET_S = 0.06
"""Seconds per window for reading footers, so that thousands of files do not slow the agent down."""
_HISTORY_SHARE = 0.3
"""Share of the budget for files that all readers have consumed."""

_REMEMBERED = 10_000


@dataclass(slots=True, eq=False)
class SourceFile:
    """A file of a source, shared by all readers of the source."""

    path: str
    size: int
    at: float
    """Modification time of the file, in epoch seconds."""
    rows: int | None = None
    """Row count; None until counted, or if the rows cannot be counted."""
    counted: bool = False
    """True if `rows` is final."""


class RowCounter:
    """Counts rows of source files by a method that suits their format. All folders of a store share a time budget."""

    def __init__(self, *, window_s: float = WINDOW_S, budget_s: float = BUDGET_S) -> None:
        self._window_s = window_s
        self._budget_s = budget_s
        self._lock = threading.Lock()
        self._window_at = 0.0
        self._spent: dict[FileStore, float] = {}
        self._footers: OrderedDict[tuple[str, int], int | None] = OrderedDict()
        self._learned: dict[str, BytesPerLine] = {}

    def count(self, file: SourceFile, folder: str, format: TableFormat, *, history: bool = False) -> bool:
        """Count a file's rows. Returns False if the time budget is used up for now.

        Files that all readers have consumed (`history`) get a smaller budget.
        """
        if file.counted:
            return True
        if format.counts_rows_exactly:
            return self._count_footer(file, self._budget_s * (_HISTORY_SHARE if history else 1.0))
        if format.row_counting is RowCounting.LINES:
            file.rows = self._learned.setdefault(folder, BytesPerLine()).rows_of(file.path, file.size)
        file.counted = True
        return True

    def _count_footer(self, file: SourceFile, budget_s: float) -> bool:
        key, store, now = (file.path, file.size), store_of(file.path), time.monotonic()
        with self._lock:
            if now - self._window_at >= self._window_s:
                self._window_at, self._spent = now, {}
            file.counted, file.rows = key in self._footers, self._footers.get(key)
            if file.counted or self._spent.get(store, 0.0) >= budget_s:
                return file.counted
        try:
            rows = parquet_rows(file.path)
        except OSError:
            return False
        finally:
            with self._lock:
                self._spent[store] = self._spent.get(store, 0.0) + time.monotonic() - now
        with self._lock:
            self._footers[key] = rows
            if len(self._footers) > _REMEMBERED:
                self._footers.popitem(last=False)
        file.counted, file.rows = True, rows
        return True


DataFile = tuple[float, str, int]
"""Modification time, path and size of a data file."""

_SAMPLED = 8
"""Number of text files read to estimate the line length."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table that were counted so far. `counted` returns a new value that includes new files."""

    rows: int | None = None
    """Row count; None if it cannot even be estimated."""
    exact: bool = False
    whole: bool = False
    """True if all files were counted."""
    _files: int = 0
    """Number of files whose footers were read. They are the table's first files."""
    _digest: int = 0
    _footer_rows: int = 0
    _footer_bytes: int = 0
    """Total size in bytes of the files whose footers could be read."""

    def counted(self, files: list[DataFile], format: TableFormat, seconds: float) -> "TableRows":
        """Count the rows of all files in a table, reading Parquet footers for at most `seconds`."""
        size = sum(file[2] for file in files)
        if format.counts_rows_exactly:
            return self._with_footers(files, size, time.monotonic() + seconds)
        rows = _rows_of_lines(files, size) if format.row_counting is RowCounting.LINES else None
        return TableRows(rows, exact=not files, whole=True)

    def _with_footers(self, files: list[DataFile], all_bytes: int, until: float) -> "TableRows":
        done, rows, size = self._files, self._footer_rows, self._footer_bytes
        if done > len(files) or _digest(files[:done]) != self._digest:
            done, rows, size = 0, 0, 0
        for _, path, length in files[done:]:
            if time.monotonic() > until:
                break
            found = parquet_rows(path)
            rows, size = rows + (found or 0), size + (length if found is not None else 0)
            done += 1
        return TableRows(
            estimated_rows(rows, size, all_bytes),
            not files or size == all_bytes,
            whole=done == len(files),
            _files=done, _digest=_digest(files[:done]), _footer_rows=rows, _footer_bytes=size,
        )  # fmt: skip


def _rows_of_lines(files: list[DataFile], size: int) -> int | None:
    """Estimate the rows of text files from an evenly spread sample; None if a file is compressed."""
    if any(path.endswith(_COMPRESSED_ENDINGS) for _, path, _ in files):
        return None
    learned = BytesPerLine()
    step = max(1, len(files) // _SAMPLED)
    for _, path, length in files[::step][:_SAMPLED]:
        learned.rows_of(path, length)
    return learned.rows_of("", size)


def _digest(files: list[DataFile]) -> int:
    return hash(tuple(files))


def estimated_rows(rows: int, known: int, size: int) -> int | None:
    """Extrapolate `rows` from `known` bytes to `size` bytes; None if no bytes are known."""
    if known == size:
        return rows
    return round(rows * size / known) if known else None
