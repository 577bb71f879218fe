"""Measurements for estimating a plan's costs: table statistics, log histories and headroom. None means unknown."""

import json
from dataclasses import dataclass

SMALL_FILE = 16_000_000
"""Size in bytes below which opening a file costs more than reading it."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Statistics of the serving version of a table, or of an external table."""

    at: float | None = None
    """When the statistics were measured, in epoch seconds."""
    rows: int | None = None
    """Rows in the table."""
    exact: bool = True
    """Whether `rows` was counted, not estimated from sizes."""
    bytes: int | None = None
    files: int | None = None
    earliest: float | None = None
    """When the oldest existing file was written, in epoch seconds."""
    gone: int | None = None
    """Number of files that the statement has read and that no longer exist.

    A rebuild of the table or of one of its readers would lack the rows of these files. None for an external table, or
    if the checkpoint cannot be read.
    """
    rate_rows_s: float | None = None
    """Rows read per second in the fastest batch of the statement."""
    state_rows: int | None = None
    """Rows in the statement's state after its last batch; `state_bytes` is the memory that this state uses."""
    state_bytes: int | None = None
    batch_s: float | None = None
    """Duration of the statement's last batch."""
    small_files: int | None = None
    """Number of files smaller than `SMALL_FILE`; None if the format has no transaction log."""
    log_entries: int | None = None
    """Number of versions since the last checkpoint of the transaction log; opening the table reads all of them."""
    log_bytes: int | None = None
    log: str = ""
    """A `LogHistory` as a string; empty if the table has no transaction log."""
    time_left: str = ""
    """The shortest `TimeLeft` of the statement's sources as a string; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Disk space and pool capacity that are available for new versions."""

    at: float | None = None
    disk_free: int | None = None
    """Free bytes on the disk of tables and checkpoints."""
    disk_total: int | None = None
    cores: int | None = None
    """Cores of a pool that Headgate started; None for any other pool."""
    busy: float | None = None
    """Seconds of batch time per second and core, averaged over the last minutes; None if the cores are unknown.

    The value is 1 if every core is busy with one batch, and greater if several batches share a core.
    """
    engine: str = ""
    """Spark version of the pool; empty if unknown."""


NEWEST_COMMITS = 64
"""Number of commits that a history keeps; the row counts of older commits are unknown."""


@dataclass(frozen=True, slots=True)
class LogHistory:
    """The versions in a table's transaction log from which a stream may start."""

    first: int
    """The oldest version whose commit is still in the log."""
    first_at: float
    """When the version `first` was committed, in epoch seconds."""
    commits: tuple[tuple[int, float, int | None], ...]
    """Triples (version, commit time, rows added), newest last; the rows are None if not recorded."""
    kept_h: float | None = None
    """Hours for which the table keeps unreferenced files, by its properties; None if unreadable or not measured."""

    @property
    def last(self) -> int:
        """The number of the latest version in the log."""
        return self.commits[-1][0]

    @property
    def last_at(self) -> float:
        """The commit time of the latest version, in epoch seconds."""
        return self.commits[-1][1]

    def rows_from(self, version: int) -> int | None:
        """Return the number of rows added by `version` and all later versions; None if unknown."""
        return self._rows(self.commits[0][0] <= version, [rows for n, _, rows in self.commits if n >= version])

    def rows_since(self, moment: float) -> int | None:
        """Return the number of rows committed at or after `moment`, in epoch seconds; None if unknown."""
        whole = self.commits[0][1] <= moment or self.commits[0][0] == 0
        return self._rows(whole, [rows for _, at, rows in self.commits if at >= moment])

    @staticmethod
    def _rows(whole: bool, rows: list[int | None]) -> int | None:
        known = [each for each in rows if each is not None]
        return sum(known) if whole and len(known) == len(rows) else None

    def as_text(self) -> str:
        """Return the history as a string that `history_of` parses."""
        said = {"first": [self.first, self.first_at], "commits": self.commits, "kept_h": self.kept_h}
        return json.dumps(said, separators=(",", ":"))


def history_of(text: str) -> LogHistory | None:
    """Parse a history written by `as_text`; return None for any other string."""
    try:
        found = json.loads(text)
        commits = tuple((int(n), float(at), None if rows is None else int(rows)) for n, at, rows in found["commits"])
        kept_h = None if (kept := found["kept_h"]) is None else float(kept)
        return LogHistory(int(found["first"][0]), float(found["first"][1]), commits, kept_h) if commits else None
    except (ValueError, KeyError, TypeError, IndexError):
        return None
