"""Versions of tables as the ledger records them, their latest measurements, and which of them serves.

Times are epoch seconds, None where not known.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from core.model.names import TableName
from core.model.states import MAY_WORK, Fault, State
from core.model.table_formats import format_of_others
from core.project.model import Pool
from core.project.revision import RevisionTexts


@dataclass(frozen=True, slots=True)
class Binding:
    """An upstream table as read by one deployment; `version` 0 is an external table."""

    parent: TableName
    version: int
    streamed: bool


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployed version of a statement."""

    table: TableName
    version: int
    product: str
    layer: str
    owner: str
    revision: str
    """Hash of `texts`."""
    texts: RevisionTexts
    compiled: str
    """Compiled SELECT; empty for an external table."""
    compiled_ddl: str
    """CREATE TABLE IF NOT EXISTS with physical name and location, to register the table in a new catalog."""
    columns: tuple[str, ...]
    """Column names in order, for the pointer view."""
    format: str
    folder: str
    """Absolute folder of the table."""
    checkpoint: str
    """Absolute folder; empty for an external table."""
    checkpoint_id: str
    trigger: str
    mode: str
    stateful: bool
    wanted: str
    """running or stopped."""
    state: str
    """Observed, of `core.model.states.State`."""
    state_since: float
    active: bool
    """Whether the pointer leads to this version; exactly one per table that is not deleted."""
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
    """Set once tombstoned; the files are deleted after this time."""
    trash: str = ""
    """Folder in the trash that holds its files."""
    external: bool = False
    checkpoint_ok: bool = True
    """False once the agent found that it cannot continue from its checkpoint."""
    lost: str = ""
    """What is missing or belongs to another query, as a sentence; empty while it can continue."""
    lost_kind: str = ""
    """A `TableFaultKind` if a table is the cause; empty if it is the checkpoint."""
    pool: Pool | None = None
    """The pool it last started on, with the settings pinned by its checkpoint; None if unknown."""
    engine: str = ""
    """Spark version of its last start; empty if unknown."""
    made_by: str = ""
    """The run that created table and checkpoint; empty if unknown."""
    recorded: int = 0
    """How often it was recorded in the data folder; a record with a higher count comes from a newer ledger."""
    served_at: float | None = None
    """When the pointer last moved to it; None if it never served."""
    served_by: str = ""
    """The run that moved the pointer to it; empty if unknown."""
    served_before: int | None = None
    """The version that served before it; None if there was none."""
    stops_at: float | None = None
    """When its query will be stopped because another version serves; None if no stop is scheduled."""
    begins_where: tuple[str, ...] = ()
    """Filters on its streams if it does not read everything: `orders.ts >= TIMESTAMP '…'`; part of `compiled`."""
    older_rows: str = ""
    """Rows in its table that its text does not produce from its current inputs: `rows that came of a@v1`."""
    begins_after: str = ""
    """The position before its first row, if it has one: `batch 12 of orders@v1`."""
    before_ddl: str = ""
    """CREATE TABLE IF NOT EXISTS of the table with earlier rows that its pointer also serves; empty if there is
    none."""
    table_id: str = ""
    """The id of the table at its creation; empty if the format has no ids."""
    clone_of: int = 0
    """The version of which it is a clone, whose files it references; 0 if it has only its own files."""
    deleted_keys_id: str = ""
    """The id of its table of deleted keys when first seen; empty before there is one."""
    deleted_keys_version: int | None = None
    """Newest version of that table when last seen."""
    deleted_keys_commit: str = ""
    """Digest of the commit of that version."""
    deleted_keys_batch: int | None = None
    """The newest planned batch at that time: a checkpoint that contains it is not older than that table."""

    @property
    def stored_as(self) -> str:
        """The format name for file access, which tells tables of others from ours."""
        return format_of_others(self.format) if self.external else self.format

    @property
    def deleted(self) -> bool:
        """Whether it was deleted."""
        return self.drop_after is not None


@dataclass(frozen=True, slots=True)
class Measurement:
    """The latest measurement of a deployment, one row each."""

    table: TableName
    version: int
    at: float
    lag_rows: int | None = None
    lag_files: int | None = None
    lag_bytes: int | None = None
    exact: bool = True
    behind_s: float | None = None
    """Age of the oldest uncommitted input; 0 if none is pending."""
    data_age_s: float | None = None
    """Age of the newest input of the source that has been silent longest."""
    fault: str = ""
    """A `core.model.states.Fault`; empty if there is none."""
    fault_why: str = ""
    """One clause for people."""
    trend: str = "unknown"
    rate_rows_s: float | None = None
    """Change of lag; negative while draining."""
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
    """State rows as of the last batch that reported them; kept while stopped."""
    state_bytes: int | None = None
    dropped_by_watermark: int | None = None
    committed_at: float | None = None
    sources: tuple[dict[str, object], ...] = ()
    """Per source: table, rows, files, bytes, behind_s, newest_s, exact, missing."""
    fastest_rows_s: float | None = None
    """Throughput of the fastest batch of this version: rows read per second."""


_FIGURES = (
    "lag_rows", "lag_files", "lag_bytes", "exact", "behind_s", "data_age_s", "rate_rows_s", "eta_s", "in_rows_s",
    "out_rows_s", "rows_total", "batch", "batch_ms", "committed_at",
)  # fmt: skip


class StatementLine(NamedTuple):
    """One version in a list: a light join of deployment and measurement."""

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
    """Hash of its texts."""
    format: str = ""
    trigger: str = ""
    bound: str = "[]"
    """Its bindings as stored in the ledger; `bindings` decodes them."""
    at: float | None = None
    """When it was measured; None before the first measurement."""
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
    """When its query was last started; None if it never was."""
    exact: bool = True
    active: bool = False
    external: bool = False
    stateful: bool = False
    keyed: bool = False
    deleted: bool = False
    served_at: float | None = None
    limited: bool = False
    """Whether its lag grows while maxFilesPerTrigger limits its batches."""

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The versions that it reads; decoded at each access."""
        return tuple([Binding(*item) for item in json.loads(self.bound)])

    @property
    def fault_word(self) -> str:
        """Its fault as `core.model.states.Fault`, corrected by the state, which may be newer than the measurement."""
        if self.state == State.FAILED:
            return Fault.FAILED
        return (self.fault or "") if self.state in MAY_WORK and self.fault != Fault.FAILED else ""

    @property
    def state_word(self) -> str:
        """Its state for display; `external` for a table that others write."""
        return "external" if self.external else str(self.state)

    @property
    def measurement(self) -> Measurement | None:
        """Its latest measurement, as far as a list has it; None before the first."""
        if self.at is None:
            return None
        figures = {name: getattr(self, name) for name in _FIGURES}
        return Measurement(self.table, self.version, self.at, trend=self.trend or "unknown", **figures)


KnownVersion = Deployment | StatementLine
"""A version in either form."""


_KEYS_BY_PART: Mapping[str, tuple[str, ...]] = {
    "planning": ("queryPlanning",),
    "reading": ("latestOffset", "getBatch"),
    "computing": ("addBatch",),
    "committing": ("walCommit", "commitOffsets", "commitBatch"),
}


def batch_shares(durations_ms: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each phase of a batch, between 0 and 1; empty if unknown."""
    sums = {part: sum(durations_ms.get(key, 0) for key in keys) for part, keys in _KEYS_BY_PART.items()}
    total = sum(sums.values())
    return {part: value / total for part, value in sums.items()} if total else {}


def slowest_part(durations_ms: Mapping[str, int]) -> str:
    """Return the longest phase of a batch: planning, reading, computing or committing; empty if unknown."""
    shares = batch_shares(durations_ms)
    return max(shares, key=lambda part: shares[part], default="")


INTERVAL_S = 2.0
"""How often the agent writes its heartbeat."""

STALE_S = 3 * INTERVAL_S
"""Age of the heartbeat above which data are stale."""


V = TypeVar("V", bound=KnownVersion)


def serving_version(versions: Iterable[V]) -> V | None:
    """Return the version that a table's name refers to; None if there are no versions.

    This is the version behind the pointer. Without a pointer it is the newest version that was ever started, since
    it may run and hold rows, else the newest. If all versions are deleted, it is the one that served last.
    """
    return max(versions, key=_standing, default=None)


def serving_versions(versions: Iterable[V]) -> dict[TableName, V]:
    """Return the serving version of every table, by name; linear in versions."""
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
    """Return the seconds since the agent's last heartbeat; None if there never was one."""
    return None if agent_seen_at is None else max(0.0, now - agent_seen_at)


def is_stale(age_s: float | None, agent_pid: int | None) -> bool:
    """True if no agent updates the data; an agent that ends in order removes its pid."""
    return age_s is None or age_s > STALE_S or agent_pid is None
