"""Table versions as recorded in the ledger, their latest measurements, and the selection of the serving version.

A time is in epoch seconds, or None if unknown.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from core.model.errors import LedgerUnavailable
from core.model.names import TableName
from core.model.states import MAY_WORK, UNUSABLE_INPUT, Fault, State
from core.model.table_formats import format_of_others, table_format
from core.project.model import Pool
from core.project.revision import RevisionTexts
from core.text.sentence import Sentence


@dataclass(frozen=True, slots=True)
class Binding:
    """A version of an input table that a deployment reads; `version` is 0 for an external table."""

    parent: TableName
    version: int
    streamed: bool


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployed version of a table, with its SQL, state, folders and start position."""

    table: TableName
    version: int
    product: str
    layer: str
    owner: str
    revision: str
    """Hash of `texts`."""
    texts: RevisionTexts
    compiled: str
    """The SELECT with physical table names; empty for an external table."""
    compiled_ddl: str
    """CREATE TABLE IF NOT EXISTS with the physical name and location, used to register the table in a new catalog."""
    columns: tuple[str, ...]
    """Column names in the order of the pointer view."""
    format: str
    folder: str
    """Absolute path of the table's folder."""
    checkpoint: str
    """Absolute path of the checkpoint; empty for an external table."""
    checkpoint_id: str
    trigger: str
    mode: str
    stateful: bool
    wanted: str
    """The desired state, `running` or `stopped`."""
    state: str
    """The observed state, a value of `core.model.states.State`."""
    state_since: float
    active: bool
    """Whether the pointer leads to this version; true for exactly one version of every table that is not deleted."""
    bindings: tuple[Binding, ...]
    query_id: str = ""
    run_id: str = ""
    restarts: int = 0
    error_class: str = ""
    error: str = ""
    started_at: float | None = None
    created_at: float = 0.0
    plan_hash: str = ""
    drop_after: float | None = None
    """When the files will be deleted; None unless the version is in the trash."""
    trash: str = ""
    """Folder in the trash that holds the files."""
    external: bool = False
    checkpoint_ok: bool = True
    """False once the agent has found that the statement cannot continue from its checkpoint."""
    lost: str = ""
    """What is missing or belongs to another query, as a sentence; empty if the statement can continue."""
    lost_kind: str = ""
    """The `TableFaultKind` of the table that prevents the statement from continuing; empty for any other cause."""
    pool: Pool | None = None
    """The only pool in which the version's query may be, as at its last start or, before its first, as declared.

    It has the settings that the checkpoint has pinned. None if unknown, which means the default pool.
    """
    engine: str = ""
    """Spark version at the last start; empty if unknown."""
    made_by: str = ""
    """The run that created the table and the checkpoint; empty if unknown."""
    recorded: int = 0
    """How often this version was recorded in the data folder; a higher number in the folder is from a newer ledger."""
    served_at: float | None = None
    """When the pointer last moved to this version; None if it never served."""
    served_by: str = ""
    """The run that moved the pointer to this version; empty if unknown."""
    served_before: int | None = None
    """The version that served immediately before this one; None if there was none."""
    stops_at: float | None = None
    """When the query will be stopped because another version now serves; None if no stop is scheduled."""
    begins_where: tuple[str, ...] = ()
    """Filters on the streams, such as `orders.ts >= TIMESTAMP '…'`; empty if the version reads everything.

    They are also part of `compiled`.
    """
    older_rows: str = ""
    """Description of the rows that the SQL does not produce from its current inputs, such as `rows from a@v1`."""
    begins_after: str = ""
    """The position before the version's first row, such as `batch 12 of orders@v1`; empty if there is none."""
    begins_after_version: int = 0
    """The version of this table after whose batch `begins_after_batch` this version starts; 0 if there is none."""
    begins_after_batch: int | None = None
    before_ddl: str = ""
    """CREATE TABLE IF NOT EXISTS for the table of earlier rows that the pointer also serves; empty if there is none."""
    table_id: str = ""
    """The id of the table at its creation; empty if the format has no ids."""
    clone_of: int = 0
    """The version whose files this version references because it was cloned from it; 0 if it was not cloned."""
    deleted_keys_id: str = ""
    """The id of the table of deleted keys when it was first seen; empty until then."""
    deleted_keys_version: int | None = None
    """The latest version of the table of deleted keys when that table was last seen."""
    deleted_keys_commit: str = ""
    """Digest of the commit of the version in `deleted_keys_version`."""
    deleted_keys_batch: int | None = None
    """The latest planned batch when the table of deleted keys was last seen.

    A checkpoint that contains this batch is not older than the table of deleted keys.
    """
    version_id: str = ""
    """The UUID of this version, generated before its first start; empty for an external table.

    Restarts keep it, also with another text; `query_id` is Spark's, and belongs to the checkpoint.
    """

    @property
    def stored_as(self) -> str:
        """The format name to pass to `table_format`: `format`, or `format_of_others(format)` for an external table."""
        return format_of_others(self.format) if self.external else self.format

    @property
    def writes_topic(self) -> bool:
        """True if the version writes a topic, so that it has neither a table in the catalog nor a pointer."""
        return not self.external and table_format(self.format).topics

    @property
    def in_python(self) -> bool:
        """True if the statement is a job in Python."""
        return "python_job(" in self.compiled

    @property
    def deleted(self) -> bool:
        """True if the version is in the trash."""
        return self.drop_after is not None


@dataclass(frozen=True, slots=True)
class Measurement:
    """The latest measurement of a deployed version; None means unknown."""

    table: TableName
    version: int
    at: float
    lag_rows: int | None = None
    lag_files: int | None = None
    lag_bytes: int | None = None
    exact: bool = True
    behind_s: float | None = None
    """Age of the oldest uncommitted input, in seconds; 0 if none is pending."""
    data_age_s: float | None = None
    """Age of the newest input in the source that has been silent longest, in seconds."""
    fault: str = ""
    """A value of `core.model.states.Fault`; empty if there is none."""
    fault_why: str = ""
    """The reason for the fault, as one human-readable clause."""
    trend: str = "unknown"
    rate_rows_s: float | None = None
    """Change of lag in rows per second; negative while the lag shrinks."""
    eta_s: float | None = None
    in_rows_s: float | None = None
    out_rows_s: float | None = None
    rows_total: int | None = None
    """Rows in the version's table."""
    batch: int | None = None
    batch_ms: int | None = None
    durations: dict[str, int] = field(default_factory=dict)
    watermark: str = ""
    state_rows: int | None = None
    """Rows of state as of the last batch that reported them; kept while the statement is stopped."""
    state_bytes: int | None = None
    dropped_by_watermark: int | None = None
    committed_at: float | None = None
    sources: tuple[dict[str, object], ...] = ()
    """For each source: table, rows, files, bytes, behind_s, newest_s, exact, missing, time_left.

    `unmeasured` is the reason, as a clause, if the lag on a source could not be measured.
    """
    fastest_rows_s: float | None = None
    """Rows read per second in the fastest batch of this version."""
    time_left: str = ""
    """The shortest `TimeLeft` of the sources as a string; empty if there is none."""
    objective_s: float | None = None
    """The lag objective in seconds, declared or by default; None if unknown."""
    slow: str = ""
    """Why the statement is slow, as `core.lag.slowness.slowness_text` writes it; empty if it is not, or if unknown."""

    @property
    def why_unmeasured(self) -> Sentence | None:
        """The reason, as a clause, why the lag could not be measured; None if it was measured."""
        return next((Sentence(str(source["unmeasured"])) for source in self.sources if source.get("unmeasured")), None)


_FIGURES = (
    "lag_rows", "lag_files", "lag_bytes", "exact", "behind_s", "data_age_s", "rate_rows_s", "eta_s", "in_rows_s",
    "out_rows_s", "rows_total", "batch", "batch_ms", "committed_at", "time_left",
)  # fmt: skip


class StatementLine(NamedTuple):
    """One line of the list of statements: a version with selected fields of its deployment and latest measurement."""

    table: TableName
    version: int
    product: str
    layer: str
    owner: str
    state: str
    state_since: float = 0.0
    wanted: str = ""
    error_class: str = ""
    error: str = ""
    restarts: int = 0
    revision: str = ""
    """Hash of the version's texts."""
    format: str = ""
    trigger: str = ""
    bound: str = "[]"
    """Bindings as stored in the ledger; `bindings` decodes them."""
    at: float | None = None
    """When the version was measured; None before the first measurement."""
    lag_rows: int | None = None
    lag_files: int | None = None
    lag_bytes: int | None = None
    behind_s: float | None = None
    data_age_s: float | None = None
    fault: str | None = None
    trend: str | None = None
    rate_rows_s: float | None = None
    eta_s: float | None = None
    in_rows_s: float | None = None
    out_rows_s: float | None = None
    rows_total: int | None = None
    batch: int | None = None
    batch_ms: int | None = None
    committed_at: float | None = None
    started_at: float | None = None
    """When the query was last started, or the last copy of a database table was begun; None if neither happened."""
    exact: bool = True
    active: bool = False
    external: bool = False
    stateful: bool = False
    keyed: bool = False
    deleted: bool = False
    served_at: float | None = None
    limited: bool = False
    """Whether the lag grows while `maxFilesPerTrigger` limits the batches."""
    time_left: str = ""
    """The shortest `TimeLeft` of the sources as a string; empty if there is none."""

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The input versions that this version reads, decoded at each access. Raises LedgerUnavailable if broken."""
        try:
            return tuple([Binding(*item) for item in json.loads(self.bound)])
        except (ValueError, TypeError) as error:
            what = f"the ledger has inputs of {self.table}@v{self.version} that cannot be read"
            raise LedgerUnavailable(what, remedy="headgate restore puts a backup in its place") from error

    @property
    def copied_at(self) -> float | None:
        """When the last copy of a database table's rows was begun; None if the rows are not copied."""
        return self.started_at if table_format(self.format).database else None

    @property
    def fault_word(self) -> str:
        """The version's `Fault`; empty if it has none.

        A failed state takes precedence over the measured fault, since the state may be newer.
        """
        if self.state == State.FAILED:
            return Fault.FAILED
        return (self.fault or "") if self.state in MAY_WORK and self.fault != Fault.FAILED else ""

    @property
    def is_unusable_input(self) -> bool:
        """True for an external table that cannot be read, is gone, or is no longer filled."""
        return self.external and self.error_class in UNUSABLE_INPUT

    @property
    def state_word(self) -> str:
        """The state to display; `external` for a table that other systems write."""
        return "external" if self.external else str(self.state)

    @property
    def measurement(self) -> Measurement | None:
        """The latest measurement, with only the fields that this line has; None if there was no measurement yet."""
        if self.at is None:
            return None
        figures = {name: getattr(self, name) for name in _FIGURES}
        return Measurement(self.table, self.version, self.at, trend=self.trend or "unknown", **figures)


KnownVersion = Deployment | StatementLine
"""A version, as its complete record or as a line of a list."""


KEYS_BY_PART: Mapping[str, tuple[str, ...]] = {
    "planning": ("queryPlanning",),
    "reading": ("latestOffset", "getBatch"),
    "computing": ("addBatch",),
    "committing": ("walCommit", "commitOffsets", "commitBatch"),
}
"""Keys of Spark's durations by the phase of a batch."""


def batch_shares(durations_ms: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each phase in the duration of a batch, between 0 and 1; empty if no duration is known."""
    sums = {part: sum(durations_ms.get(key, 0) for key in keys) for part, keys in KEYS_BY_PART.items()}
    total = sum(sums.values())
    return {part: value / total for part, value in sums.items()} if total else {}


def slowest_part(durations_ms: Mapping[str, int]) -> str:
    """Return the longest phase of a batch: planning, reading, computing or committing; empty if unknown."""
    shares = batch_shares(durations_ms)
    return max(shares, key=lambda part: shares[part], default="")


INTERVAL_S = 2.0
"""Seconds between two heartbeats of the agent."""

STALE_S = 3 * INTERVAL_S
"""Age of the heartbeat, in seconds, above which data are treated as stale."""


V = TypeVar("V", bound=KnownVersion)


def serving_version(versions: Iterable[V]) -> V | None:
    """Return the version that a table's name refers to; None if there are no versions.

    This is the version behind the pointer. Without a pointer, it is the latest version that was ever started, because
    that version may be running and have rows; if none was started, it is the latest version. If all versions are
    deleted, it is the version that served last.
    """
    return max(versions, key=_standing, default=None)


def bindings_of(lines: Iterable[StatementLine]) -> list[tuple[Binding, ...]]:
    """Decode the bindings of many lines, in their order; faster than reading the `bindings` of every line.

    Raises LedgerUnavailable if those of a line are broken.
    """
    given = tuple(lines)
    try:
        decoded = json.loads(f"[{','.join([line.bound for line in given])}]")
        return [tuple([Binding(*item) for item in items]) for items in decoded]
    except (ValueError, TypeError):
        # One by one, so that the error names the line.
        return [line.bindings for line in given]


def serving_versions(versions: Iterable[V]) -> dict[TableName, V]:
    """Return the serving version of every table, sorted by table name, in time linear in the number of versions."""
    found: dict[TableName, V] = {}
    for one in versions:
        known = found.get(one.table)
        if known is None or _standing(one) > _standing(known):
            found[one.table] = one
    return {table: found[table] for table in sorted(found)}


def _standing(one: KnownVersion) -> tuple[bool, bool, float, bool, int]:
    served = (one.served_at or 0.0) if one.deleted else 0.0
    return not one.deleted, one.active, served, one.started_at is not None, one.version


def heartbeat_age_s(agent_seen_at: float | None, now: float) -> float | None:
    """Return the seconds since the agent's last heartbeat; None if there has been none yet."""
    return None if agent_seen_at is None else max(0.0, now - agent_seen_at)


def is_stale(age_s: float | None, agent_pid: int | None) -> bool:
    """True if no agent updates the data, because the heartbeat is too old or the agent has exited."""
    return age_s is None or age_s > STALE_S or agent_pid is None
