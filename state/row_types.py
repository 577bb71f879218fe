"""Rows of the ledger as dataclasses; times are epoch seconds (float), None where not known."""

from dataclasses import dataclass, field

from core.model.names import TableName
from core.model.table_formats import format_of_others
from core.observed.deployment import Binding
from core.project.model import Pool
from core.project.revision import RevisionTexts


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


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One point of a deployment's ring."""

    at: float
    lag_rows: int | None
    lag_files: int | None
    lag_bytes: int | None
    in_rows_s: float | None
    out_rows_s: float | None
    batch_ms: int | None
    produced_rows: int | None = None
    consumed_rows: int | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """A state change, or exceptions grouped by fingerprint (`count` times between `first_at` and `at`)."""

    id: int
    at: float
    table: str
    version: int
    kind: str
    """state, exception, pool, run, ticket, clock, world, or that an objective is missed or met."""
    summary: str
    detail: str = ""
    fingerprint: str = ""
    count: int = 1
    first_at: float = 0.0

    @property
    def about(self) -> str:
        """Return its table and version, of which an input has none; empty where it is about no table."""
        return f"{self.table} v{self.version}" if self.table and self.version else self.table


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A submitted plan; `status` is open, applied, superseded, expired or refused."""

    hash: str
    body: str
    """Canonical JSON of the plan, hash included."""
    author: str
    created_at: float
    expires_at: float
    status: str
    run_id: str = ""
    texts: str = ""
    """Declared texts it was computed from, as JSON path → text."""
    author_uid: int | None = None
    """Login uid of the author where the kernel knows one, else the uid."""
    superseded_by: str = ""
    """What came after it on a table of its scope: `run 7f3a-1 of ana on orders`, `plan 3fa2c1d0e4b5 of lee`."""
    superseded_at: float | None = None
    folder: str = ""
    """The project folder whose files these texts were; empty where they came from a file or from before a plan."""
    author_process_uid: int | None = None
    """Uid of the process that submitted it, which differs from `author_uid` under `sudo`."""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One login's approval of a plan, at most one of each."""

    plan_hash: str
    uid: int
    """As `PlanRow.author_uid`: what tells two people apart."""
    login: str
    at: float
    process_uid: int | None = None
    """As `PlanRow.author_process_uid`."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy as somebody recorded it; `status` is in force, waits or replaced."""

    id: int
    at: float
    actor: str
    actor_uid: int | None
    """As `PlanRow.author_uid`; None where the agent recorded it by itself."""
    digest: str
    body: dict[str, object]
    """As `core.policy.model.policy_as_json` gives it."""
    status: str
    approver: str = ""
    in_force_at: float | None = None
    actor_process_uid: int | None = None
    """As `PlanRow.author_process_uid`."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a run; `state` of `core.run.model.StepState`."""

    n: int
    do: str
    table: str
    version: int
    state: str
    tries: int = 0
    note: str = ""
    """One line: the gate's figures, the error, or why it is kept or blocked."""
    started_at: float | None = None
    ended_at: float | None = None
    intent_at: float | None = None
    evidence: dict[str, object] = field(default_factory=dict)
    predicted_low_s: float | None = None
    """What was predicted before the run began, and is never changed; None where nothing like it was measured."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One execution of a plan; `state` of `core.run.model.RunState`."""

    id: str
    plan_hash: str
    actor: str
    state: str
    started_at: float
    ended_at: float | None
    steps: tuple[StepRow, ...] = ()
    continues: str = ""
    """Id of the failed run that this one goes on from."""
    continued_by: str = ""
    """Id of the run that went on from this one."""
    serial: int = 0
    """Of the word that applied it, or retried it last: a stop with a higher one came during the run."""
    acknowledged_by: str = ""
    """Who has seen that it failed; empty while nobody has."""
    predicted_low_s: float | None = None
    """As of its steps."""
    predicted_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One accepted or refused command."""

    id: int
    at: float
    actor: str
    op: str
    subject: str
    line: str
    """The complete CLI line that does the same."""
    outcome: str
    """accepted (begun, not proved), done, unchanged, partly (some of several statements), refused or failed."""
    detail: str = ""
    ended_at: float | None = None
    took_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Append-only: who did what to what."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    plan_hash: str = ""
    confirmation: str = ""
    outcome: str = ""
    previous: str = ""
    """Hash of the entry before it; the ledger fills in both."""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class AuditArchiveRow:
    """A file beside the ledger that holds older entries of the audit, as far as they have left the ledger."""

    file: str
    year: int
    """UTC, of its entries."""
    first: int
    """Number of its first entry."""
    last: int
    hash: str
    """Of its last entry."""
    bytes: int
    """Where its last entry ends."""


@dataclass(frozen=True, slots=True)
class StagedRow:
    """One table that an actor has staged in a project folder."""

    actor: str
    folder: str
    table: TableName
    verb: str
    """deploy, hold (a deploy that is held before its swap) or delete."""
    at: float


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """When the wall clock was checked last, and what it had been set by until then."""

    wall: float
    """Epoch seconds."""
    boot: str
    uptime_s: float
    debt_s: float = 0.0
    """By how much it is ahead of the lowest clock by which rows were written that are not forgotten yet."""
    hold_s: float = 0.0
    """For how much longer that counts."""
    moved_s: float = 0.0
    """By how much deadlines have moved along with it, ever: a time without that is the same whatever it was set to."""


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """The environment's own row: who serves it and how fresh it is."""

    ledger_id: str
    project_id: str
    project: str
    environment: str
    protected: bool
    agent_pid: int | None
    agent_started_at: float | None
    agent_seen_at: float | None
    """Heartbeat of the agent, every second or two: the age of all data."""
    pool: str
    """Name of the pool."""
    pool_state: str
    """starting, up, silent, down, failed (it waits for a person) or off."""
    pool_detail: str
    pool_generation: int
    session_id: str
    epoch: int = 1
    """Counts adoptions; owner files carry it."""
    mark: int = 0
    """Counts up while an agent serves, as the mark in the data folder does: an older copy of either is behind."""
    doubt: str = ""
    """Why this may not be the world that the ledger describes; nothing is started until it is adopted."""
    served: int = 0
    """How often it was recorded in the data folder what serves."""
