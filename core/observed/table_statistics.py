"""Measurements behind the costs in a plan: table statistics, log histories, headroom; None means not known."""

import json
from dataclasses import dataclass

SMALL_FILE = 16_000_000
"""Bytes below which a file of a table is a small one: opening it costs more than reading it."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Of one table's serving version, or of an external table."""

    at: float | None = None
    """When it was measured, epoch seconds."""
    rows: int | None = None
    """Rows in the table."""
    exact: bool = True
    """Whether `rows` was counted, not estimated from sizes."""
    bytes: int | None = None
    files: int | None = None
    earliest: float | None = None
    """When the oldest file that is still there was written, epoch seconds."""
    gone: int | None = None
    """Files that its own statement has read and that are no longer there: a rebuild would miss their rows, and so would
    a rebuild of all that reads it. None for an external table, and where the checkpoint cannot be read."""
    rate_rows_s: float | None = None
    """The fastest batch of its statement that was ever seen: rows read by its duration."""
    state_rows: int | None = None
    """Of its statement's state, as its last batch said; bytes of memory."""
    state_bytes: int | None = None
    batch_s: float | None = None
    """How long its last batch took."""
    small_files: int | None = None
    """Files of less than SMALL_FILE; None where the format has no log that says so."""
    log_entries: int | None = None
    """Of a table with a log of versions, the versions since its last checkpoint: each is read apart by whoever opens
    the table."""
    log_bytes: int | None = None
    log: str = ""
    """What its log says of versions, as `core.observed.table_statistics` writes it; empty where it has none."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Of the environment: where new versions go."""

    at: float | None = None
    disk_free: int | None = None
    """Bytes where tables and checkpoints lie."""
    disk_total: int | None = None
    cores: int | None = None
    """Of a pool of ours; None where the pool is somebody else's."""
    busy: float | None = None
    """Seconds of batches by second and core, over the last minutes: 1 when every core has had a batch to itself all
    the time, more when batches share them. None where the cores are not known."""
    engine: str = ""
    """Version of Spark that the pool has now; empty where it is not known."""


NEWEST_COMMITS = 64
"""Commits of one table that are told; of older ones nobody says how many rows they hold."""


@dataclass(frozen=True, slots=True)
class LogHistory:
    """Of one table, as it was measured."""

    first: int
    """The oldest version whose commit is still there."""
    first_at: float
    """When it was committed, epoch seconds."""
    commits: tuple[tuple[int, float, int | None], ...]
    """(version, when it was committed, rows that came with it), the newest last; None rows where nobody says."""
    kept_h: float | None = None
    """For how many hours the table keeps files that its newest version does not hold, by the properties that it has;
    None where they say it unreadably, or it was not measured."""

    @property
    def last(self) -> int:
        """Return the newest version."""
        return self.commits[-1][0]

    @property
    def last_at(self) -> float:
        """Return when that was committed, epoch seconds."""
        return self.commits[-1][1]

    def rows_from(self, version: int) -> int | None:
        """Count the rows that came with a version and after it; None where that is not known."""
        return self._rows(self.commits[0][0] <= version, [rows for n, _, rows in self.commits if n >= version])

    def rows_since(self, moment: float) -> int | None:
        """Count the rows that were committed at a moment or after it; None where that is not known."""
        whole = self.commits[0][1] <= moment or self.commits[0][0] == 0
        return self._rows(whole, [rows for _, at, rows in self.commits if at >= moment])

    @staticmethod
    def _rows(whole: bool, rows: list[int | None]) -> int | None:
        known = [each for each in rows if each is not None]
        return sum(known) if whole and len(known) == len(rows) else None

    def as_text(self) -> str:
        """Write it as `history_of` reads it."""
        said = {"first": [self.first, self.first_at], "commits": self.commits, "kept_h": self.kept_h}
        return json.dumps(said, separators=(",", ":"))


def history_of(text: str) -> LogHistory | None:
    """Read what `as_text` writes; None where it says nothing, or something else."""
    try:
        found = json.loads(text)
        commits = tuple((int(n), float(at), None if rows is None else int(rows)) for n, at, rows in found["commits"])
        kept_h = None if (kept := found["kept_h"]) is None else float(kept)
        return LogHistory(int(found["first"][0]), float(found["first"][1]), commits, kept_h) if commits else None
    except (ValueError, KeyError, TypeError, IndexError):
        return None
