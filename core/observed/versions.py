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
    """A parent as one deployment reads it; `version` 0 is an external table."""

    parent: TableName
    version: int
    streamed: bool


@dataclass(frozen=True, slots=True)
class Deployment:
    """One version of one statement, as deployed."""

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
    """CREATE TABLE IF NOT EXISTS with physical name and location: what a new catalog is given."""
    columns: tuple[str, ...]
    """Names in order, for the pointer."""
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
    """Whether this is the version that the pointer serves; exactly one per table that is not deleted."""
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
    """Set once tombstoned; the files go after this time."""
    trash: str = ""
    """Folder that holds what was set aside."""
    external: bool = False
    checkpoint_ok: bool = True
    """False once the agent has found that it cannot go on."""
    lost: str = ""
    """What is missing or another's then, in a sentence; empty while it can."""
    lost_kind: str = ""
    """Of `TableFaultKind`, where a table is what is the matter; empty where it is the checkpoint."""
    pool: Pool | None = None
    """What it was started on, with what its checkpoint has pinned at the first start; None where that is not known."""
    engine: str = ""
    """Version of Spark that it was started on last; empty where it is not known."""
    made_by: str = ""
    """The run that has made table and checkpoint; empty where it is not known."""
    recorded: int = 0
    """How often it was recorded in the data folder; a record that counts higher is of a newer ledger."""
    served_at: float | None = None
    """When the pointer moved to it last; None where it never served."""
    served_by: str = ""
    """The run that moved the pointer to it; empty where it is not known."""
    served_before: int | None = None
    """The version that the pointer led to before it; None where there was none."""
    stops_at: float | None = None
    """When its query stops, because another version serves; None where it does not by itself."""
    begins_where: tuple[str, ...] = ()
    """What it reads of its streams, where that is not everything: `orders.ts >= TIMESTAMP '…'`; `compiled` has it."""
    older_rows: str = ""
    """What its table holds besides the rows of its text over what it reads now, in words: `rows that came of a@v1`."""
    begins_after: str = ""
    """What came before its first row, where that is not nothing: `batch 12 of orders@v1`."""
    before_ddl: str = ""
    """CREATE TABLE IF NOT EXISTS of the rows from before its first, which its pointer serves as well; empty where
    there are none."""
    table_id: str = ""
    """The id that the table itself had when it was made; empty where its format knows none."""
    clone_of: int = 0
    """The version of the same table in whose files rows of it lie, as a clone; 0 where all lie in its own."""
    deleted_keys_id: str = ""
    """The id of the table of its deleted keys, as it was found first; empty where there was none yet."""
    deleted_keys_version: int | None = None
    """How far the log of that table has come, as it was seen last."""
    deleted_keys_commit: str = ""
    """What tells the commit of that version from another one of its number."""
    deleted_keys_batch: int | None = None
    """The newest batch that was planned then: a checkpoint that has it is not older than that table."""

    @property
    def stored_as(self) -> str:
        """Its format as files are asked of: a table of others lies in its folder, one of ours below it."""
        return format_of_others(self.format) if self.external else self.format

    @property
    def deleted(self) -> bool:
        """Whether only its tombstone is left."""
        return self.drop_after is not None


@dataclass(frozen=True, slots=True)
class Measurement:
    """Latest figures of a deployment (`progress`), one row per deployment."""

    table: TableName
    version: int
    at: float
    lag_rows: int | None = None
    lag_files: int | None = None
    lag_bytes: int | None = None
    exact: bool = True
    behind_s: float | None = None
    """Age of the oldest input that is not committed; 0 where none waits."""
    data_age_s: float | None = None
    """Age of the newest input that there is, of the source that has been silent longest."""
    fault: str = ""
    """Of `core.model.states.Fault`; empty where there is none."""
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
    """Of the last batch that said it: a statement that is stopped keeps its state."""
    state_bytes: int | None = None
    dropped_by_watermark: int | None = None
    committed_at: float | None = None
    sources: tuple[dict[str, object], ...] = ()
    """Per source: table, rows, files, bytes, behind_s, newest_s, exact, missing."""
    fastest_rows_s: float | None = None
    """The fastest batch of this version that was ever seen: rows read by its duration."""


_FIGURES = (
    "lag_rows", "lag_files", "lag_bytes", "exact", "behind_s", "data_age_s", "rate_rows_s", "eta_s", "in_rows_s",
    "out_rows_s", "rows_total", "batch", "batch_ms", "committed_at",
)  # fmt: skip


class StatementLine(NamedTuple):
    """What a list shows of one version: the light join of deployment and measurement."""

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
    """What it reads, as the ledger stores it; `bindings` reads it."""
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
    """When its query was started last; None where it never was."""
    exact: bool = True
    active: bool = False
    external: bool = False
    stateful: bool = False
    keyed: bool = False
    deleted: bool = False
    served_at: float | None = None
    limited: bool = False
    """Whether its lag grows while its SQL limits what a batch reads (maxFilesPerTrigger)."""

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The versions that it reads; read anew at each call."""
        return tuple([Binding(*item) for item in json.loads(self.bound)])

    @property
    def fault_word(self) -> str:
        """What asks for an operator, as `core.model.states.Fault`; the state may be newer than what was measured."""
        if self.state == State.FAILED:
            return Fault.FAILED
        return (self.fault or "") if self.state in MAY_WORK and self.fault != Fault.FAILED else ""

    @property
    def state_word(self) -> str:
        """What people and programs are told of its state: a table that others fill has none of ours."""
        return "external" if self.external else str(self.state)

    @property
    def measurement(self) -> Measurement | None:
        """Its latest figures, as far as a list has them; None before the first measurement."""
        if self.at is None:
            return None
        figures = {name: getattr(self, name) for name in _FIGURES}
        return Measurement(self.table, self.version, self.at, trend=self.trend or "unknown", **figures)


KnownVersion = Deployment | StatementLine
"""A version as whoever asks has it at hand."""


_KEYS_BY_PART: Mapping[str, tuple[str, ...]] = {
    "planning": ("queryPlanning",),
    "reading": ("latestOffset", "getBatch"),
    "computing": ("addBatch",),
    "committing": ("walCommit", "commitOffsets", "commitBatch"),
}


def batch_shares(durations_ms: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each part of a batch, between 0 and 1; nothing where nothing is known."""
    sums = {part: sum(durations_ms.get(key, 0) for key in keys) for part, keys in _KEYS_BY_PART.items()}
    total = sum(sums.values())
    return {part: value / total for part, value in sums.items()} if total else {}


def slowest_part(durations_ms: Mapping[str, int]) -> str:
    """Return what a batch spends most of its time on: planning, reading, computing or committing; empty if unknown."""
    shares = batch_shares(durations_ms)
    return max(shares, key=lambda part: shares[part], default="")


INTERVAL_S = 2.0
"""How often the agent writes its heartbeat."""

STALE_S = 3 * INTERVAL_S
"""Age of the heartbeat from which data are called stale."""


V = TypeVar("V", bound=KnownVersion)


def serving_version(versions: Iterable[V]) -> V | None:
    """Return the version that a table's name means; None where there is no version at all.

    It is the one that the pointer leads to. Before there is a pointer it is the newest whose query was ever started,
    because that one may run and hold rows, else the newest. A deleted version is meant only where all are deleted, and
    then the one that served last.
    """
    return max(versions, key=_standing, default=None)


def serving_versions(versions: Iterable[V]) -> dict[TableName, V]:
    """Return what serves of every table, by name; linear in versions."""
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
    """Return the seconds since the agent's last heartbeat; None where no agent ever wrote."""
    return None if agent_seen_at is None else max(0.0, now - agent_seen_at)


def is_stale(age_s: float | None, agent_pid: int | None) -> bool:
    """Return whether nobody keeps the data fresh: an agent that ends in order takes its pid away."""
    return age_s is None or age_s > STALE_S or agent_pid is None
