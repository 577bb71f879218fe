"""Rows of the ledger as dataclasses; times are epoch seconds (float), None where not known."""

from dataclasses import dataclass

from core.model.names import TableName
from core.text.sentence import Sentence


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
    """Of `EventKind`."""
    summary: Sentence
    detail: str = ""
    fingerprint: str = ""
    count: int = 1
    first_at: float = 0.0
    before: str = ""
    """The state from which its version has come; empty where none has changed."""
    state: str = ""
    """The state that its version, or its run, has come to; empty where none has changed."""
    cause: str = ""
    """Of `EventCause`."""
    by: str = ""
    """Who has done it: a login, or the id of a run; empty where it happened by itself."""

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
    """Of `CommandOutcome`."""
    detail: str = ""
    """What it has begun or made, or why it was not done; a line for people."""
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
