"""Rows of the ledger as dataclasses. Times are epoch seconds (float), or None if unknown."""

from dataclasses import dataclass

from core.model.names import TableName
from core.model.states import PoolState
from core.observed.cluster_manager import ManagerWord, PoolLoss, utc_time
from core.observed.served_environment import ServedEnvironment
from core.project.model import Pool
from core.text.sentence import Fact, Sentence


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One sample of a version's lag, throughput and batch duration."""

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
    """An event, or a group of `count` events with the same fingerprint, from `first_at` to `at`."""

    id: int
    at: float
    table: str
    version: int
    kind: str
    """The kind of the event, as an `EventKind`."""
    summary: Sentence
    detail: str = ""
    fingerprint: str = ""
    count: int = 1
    first_at: float = 0.0
    before: str = ""
    """The previous state of the version; empty if no state changed."""
    state: str = ""
    """The new state of the version or run; empty if no state changed."""
    cause: str = ""
    """The cause of the event, as an `EventCause`."""
    by: str = ""
    """The login or the id of the run that caused the event; empty if neither did."""

    @property
    def about(self) -> str:
        """A label such as `orders v2`; the table name alone if the table is external, empty if there is no table."""
        return f"{self.table} v{self.version}" if self.table and self.version else self.table


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A submitted plan. `status` is open, applied, superseded, expired or refused."""

    hash: str
    body: str
    """Canonical JSON of the plan, including the plan's hash."""
    author: str
    created_at: float
    expires_at: float
    status: str
    run_id: str = ""
    texts: str = ""
    """The source files from which the plan was computed, as JSON of path → content."""
    author_uid: int | None = None
    """Login uid of the author or, if the kernel does not know it, the uid."""
    superseded_by: str = ""
    """What superseded the plan: `run 7f3a-1 of ana on orders`, `plan 3fa2c1d0e4b5 of lee on orders`."""
    superseded_at: float | None = None
    folder: str = ""
    """The project folder of `texts`; empty if the plan was saved before it was submitted."""
    author_process_uid: int | None = None
    """Uid of the submitting process, which differs from `author_uid` under `sudo`."""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A user's approval of a plan. There is at most one per uid."""

    plan_hash: str
    uid: int
    """Uid that identifies the approver, as `PlanRow.author_uid` identifies the author."""
    login: str
    at: float
    process_uid: int | None = None
    """Uid of the submitting process, as in `PlanRow.author_process_uid`."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A recorded policy. `status` is "in force", "waits" (for approval) or "replaced"."""

    id: int
    at: float
    actor: str
    actor_uid: int | None
    """Uid of the actor, as in `PlanRow.author_uid`; None if the agent recorded the policy."""
    digest: str
    body: dict[str, object]
    """The policy as written by `core.policy.roles_and_rules.policy_as_json`."""
    status: str
    approver: str = ""
    in_force_at: float | None = None
    actor_process_uid: int | None = None
    """Uid of the actor's process, as in `PlanRow.author_process_uid`."""


@dataclass(frozen=True, slots=True)
class CommandRow:
    """An entry of the command log: a command that the agent accepted or refused."""

    id: int
    at: float
    actor: str
    op: str
    subject: str
    line: str
    """The equivalent command line."""
    outcome: str
    """The outcome, as a `CommandOutcome`."""
    detail: str = ""
    """What the command started or created, or why it failed, as one human-readable line."""
    ended_at: float | None = None
    took_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry of the append-only audit log."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    plan_hash: str = ""
    confirmation: str = ""
    outcome: str = ""
    previous: str = ""
    """Hash of the previous entry. The ledger sets `previous` and `hash`."""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class AuditArchiveRow:
    """An archive file, next to the ledger, of audit entries that were moved out of the ledger."""

    file: str
    year: int
    """UTC year of the archive's entries."""
    first: int
    """Number of the archive's first entry."""
    last: int
    hash: str
    """Hash of the archive's last entry."""
    bytes: int
    """Offset in bytes at which the archive's last entry ends."""


@dataclass(frozen=True, slots=True)
class StagedRow:
    """A table that an actor has staged in a project folder for the next plan."""

    actor: str
    folder: str
    table: TableName
    verb: str
    """deploy, hold (a deploy that is held before its swap) or delete."""
    at: float


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """The last check of the wall clock, and the clock changes found so far."""

    wall: float
    """The time of the wall clock, in epoch seconds."""
    boot: str
    uptime_s: float
    debt_s: float = 0.0
    """Seconds by which recent jumps have set the clock ahead.

    When old data is deleted, its age is computed from the current time minus these seconds.
    """
    hold_s: float = 0.0
    """Number of seconds for which `debt_s` remains in effect."""
    moved_s: float = 0.0
    """Total seconds by which deadlines were shifted. A time minus this total is independent of clock changes."""


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool of the environment, as its agent has last seen it."""

    place: str = ""
    """Name of the pool's folder below `pools` in the home; empty for the home itself, which is that of one pool."""
    n: int = 0
    """Position among the declared pools; 0 is the default pool."""
    name: str = "local"
    state: PoolState = PoolState.OFF
    detail: str = ""
    generation: int = 0
    """Number of sessions that were opened; statements started in an earlier one were lost with it."""
    session_id: str = ""
    began_at: float | None = None
    """When the current generation began, in epoch seconds; None if it began under an older release, or never."""
    declared: Pool | None = None
    """The pool as headgate.yml declared it when the agent started, without secrets; None if no agent recorded it."""
    most: int | None = None
    """Most statements that may run in it at the same time, as declared; None for no limit."""
    engine: str = ""
    """Spark version of its server, as of the newest connection; empty if unknown."""
    cordoned_at: float | None = None
    """Since when the pool takes no new statements, in epoch seconds; None if it takes them."""
    cordoned_by: str = ""
    application: str = ""
    """Id of the application of a server with a `url`, as it said when the agent last connected; empty if unknown."""
    silent_since: float | None = None
    """Since when a server with a `url` has not answered or cannot run anything, in epoch seconds; None if it can."""
    manager_says: Fact[ManagerWord] | None = None
    """What the manager of its cluster says about the application meanwhile; None if it was not asked."""

    @property
    def loss(self) -> Fact[PoolLoss] | None:
        """Who says what about a server with a `url` that does not answer; None if it answers, or never has."""
        if self.silent_since is None or self.declared is None:
            return None
        since = utc_time(self.silent_since)
        if self.manager_says is not None:
            return PoolLoss.REPORTED.of(since=since, word=self.manager_says)
        kind = PoolLoss.UNASKED if self.declared.master_page or self.declared.yarn_ui else PoolLoss.UNVOUCHED
        return kind.of(since=since)


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """The environment: its identity, agent, pools and doubts."""

    ledger_id: str
    project_id: str
    project: str
    environment: str
    protected: bool
    agent_pid: int | None
    agent_started_at: float | None
    agent_seen_at: float | None
    """The agent's last heartbeat, from which the age of all data is measured."""
    pools: tuple[PoolRow, ...] = (PoolRow(),)
    """The pools in declared order, at least one; the first is the default."""
    epoch: int = 1
    """Epoch of the ledger.

    It increases with each adoption and each restore, and is also recorded in owner files.
    """
    mark: int = 0
    """Counter that advances together with a counter in the data folder while an agent runs. If the two differ, the
    ledger or the data folder is an older copy."""
    doubt: str = ""
    """Why the environment may not be the one in the ledger.

    Nothing starts until the environment is adopted.
    """
    served: int = 0
    """Number of times that the data folder's record of serving versions has been written."""
    serves: ServedEnvironment | None = None
    """What the newest agent works with; None if the ledger was last written by a release that did not record it."""

    @property
    def worst_pool(self) -> PoolRow:
        """The pool whose state is the most urgent; the first of several."""
        return max(self.pools, key=lambda pool: (pool.state.urgency, -pool.n))

    @property
    def pool_state(self) -> PoolState:
        """The most urgent state of a pool."""
        return self.worst_pool.state

    def pool_of(self, recorded: str) -> PoolRow:
        """Return the pool of a version that records a pool of this name; the default pool if that is not declared."""
        return self.pool_named(recorded) or self.pools[0]

    def pool_named(self, name: str) -> PoolRow | None:
        """Return the pool of a name; None if there is none."""
        return next((pool for pool in self.pools if pool.name == name), None)
