"""What was measured of a table or of an environment: the inputs of every price in a plan; None is what is not known."""

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
    """What its log says of versions, as `core.observed.log_history` writes it; empty where it has none."""


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
