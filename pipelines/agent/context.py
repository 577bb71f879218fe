"""The context that all parts of the agent share: ledger, pool, files and environment layout."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import LedgerUnavailable, PoolUnreachable, Refused, TryAgain
from core.model.events import EventCause, EventKind, StateChange
from core.model.names import TableName
from core.model.states import State
from core.observed.cluster_manager import ManagerWord
from core.observed.versions import Deployment, serving_version
from core.policy.freeze_windows import frozen_until
from core.policy.roles_and_rules import ALLOW
from core.ports.spark import Analysis, Jobs, Queries, Tables, TableUpkeep
from core.ports.storage import Checkpoints
from core.project.model import Environment, Pool
from core.text.sentence import Fact, Sentence
from core.text.wording import did_you_mean
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.pool_work import PoolWork
from pipelines.agent.statement_locks import StatementLocks
from state.ledger import Ledger
from state.row_types import AuditRow, EventRow
from state.runs import draw_run_id

log = logging.getLogger(__name__)

FAULT_VARIABLE = "HEADGATE_FAULT_AT"
"""Environment variable for drills: comma-separated numbers or labels of the fault points at which to kill the agent."""

TRACE_VARIABLE = "HEADGATE_FAULT_TRACE"
"""Environment variable for drills: a file to which each fault point, when reached, appends its number and label."""


class FaultPoints:
    """Points in the code, before and after each effect, at which a crash drill can kill the agent.

    The points are numbered in the order in which they are reached. They do nothing unless enabled by an environment
    variable.
    """

    def __init__(self, at: str = "", trace: str = "") -> None:
        self._at = frozenset(at.split(",")) - {""}
        self._trace = trace
        self._count = 0
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> "FaultPoints":
        """Create fault points from the environment variables `FAULT_VARIABLE` and `TRACE_VARIABLE`."""
        return cls(os.environ.get(FAULT_VARIABLE, ""), os.environ.get(TRACE_VARIABLE, ""))

    def pass_by(self, label: str) -> None:
        """Record that fault point `label` has been reached, and kill the agent if a crash drill selected it."""
        if not (self._at or self._trace):
            return
        with self._lock:
            self._count += 1
            if self._trace:
                with open(self._trace, "a") as file:
                    file.write(f"{self._count} {label}\n")
            if self._at & {str(self._count), label}:
                log.warning("dying at fault point %s %s, as asked", self._count, label)
                os.kill(os.getpid(), signal.SIGKILL)


P = ParamSpec("P")
T = TypeVar("T")

WRITE_CALL_S = 20.0
"""Deadline of a pool call that starts or changes something, in seconds."""

READ_CALL_S = 5.0
"""Deadline of a pool call that only reads, in seconds."""


class PoolConnection(Protocol):
    """A session with the Spark pool, and interfaces whose methods must be invoked through `call`."""

    queries: Queries
    tables: Tables
    analysis: Analysis
    upkeep: TableUpkeep
    jobs: Jobs
    """Not to be invoked through `call`, because a slow job says nothing about the pool."""

    def call(self, seconds: float, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn` and return its result, or raise PoolUnreachable if the pool does not answer within `seconds`."""


class PoolClient(Protocol):
    """Provides connections to the pool."""

    def connection(self) -> PoolConnection:
        """Return the current connection, which callers must not store, or raise PoolUnreachable if there is none."""

    def connection_for_stops(self) -> PoolConnection:
        """Return the connection even while the pool's catalog is being filled, because stops must not wait for that.

        Raises PoolUnreachable if there is no connection.
        """

    def start_again(self) -> bool:
        """Allow the pool to restart if the agent has given up on it. Returns whether the agent had given up."""

    def connectors(self) -> Collection[str] | None:
        """Return the names of the connectors with which the pool was started; None if unknown."""

    def manager_word(self) -> Fact[ManagerWord] | None:
        """Ask the manager of the pool's cluster whether the application of a server that others manage runs.

        Returns None if there is no such manager.
        """

    @property
    def holds_catalog(self) -> bool:
        """False if the pool is a local server that does not run: its next catalog is filled from the registry."""


@dataclass(slots=True)
class AgentPool:
    """One pool of the environment, and what the agent knows of it."""

    declared: Pool
    place: str
    """As in `Environment.place_of`."""
    client: PoolClient
    tables_with_uncertain_pointer: set[TableName] = field(default_factory=set)
    """Tables whose pointers in this pool, after an interrupted swap, may lead to the old or to the new version.

    The reconciler corrects these pointers.
    """

    @property
    def name(self) -> str:
        return self.declared.name

    def connection(self) -> PoolConnection:
        """Return the current connection, as `PoolClient` does."""
        return self.client.connection()

    def connection_for_stops(self) -> PoolConnection:
        """Return the connection even while the catalog is being filled, as `PoolClient` does."""
        return self.client.connection_for_stops()


class Pools:
    """The pools of the environment, in declared order; the first is the default."""

    def __init__(self, environment: Environment, clients: Mapping[str, PoolClient]) -> None:
        """Create the pools of an environment; `clients` are by name."""
        self._environment = environment
        self._pools = {
            each.name: AgentPool(each, environment.place_of(each), clients[each.name]) for each in environment.pools
        }
        self.default = self._pools[environment.pool.name]

    @property
    def are_several(self) -> bool:
        """True if statements run in more than one pool."""
        return len(self._pools) > 1

    def every(self) -> tuple[AgentPool, ...]:
        return tuple(self._pools.values())

    def named(self, name: str) -> AgentPool:
        """Return the pool of a name, or raise Refused if there is none."""
        if name not in self._pools:
            known = did_you_mean(name, self._pools) or f"pools: {', '.join(self._pools)}"
            raise Refused(f"there is no pool {name}", remedy=known)
        return self._pools[name]

    def of(self, deployment: Deployment) -> AgentPool:
        """Return the only pool in which a version's query may be: where it runs, was last started, or is to start."""
        if not self.are_several:
            return self.default
        return self._pools[self._environment.pool_holding(deployment.pool).name]

    def reachable(self) -> PoolConnection:
        """Return a connection to the first pool that has one, for reads that any pool can answer."""
        for pool in self.every():
            with suppress(PoolUnreachable):
                return pool.connection()
        return self.default.connection()

    def with_catalog(self) -> tuple[AgentPool, ...]:
        """Return the pools whose catalogs have to follow a change; at least one.

        A local pool that does not run is left out, because its next catalog is filled from the registry.
        """
        return tuple(pool for pool in self.every() if pool.client.holds_catalog) or (self.default,)

    def in_every_catalog(self, act: Callable[[PoolConnection], object]) -> None:
        """Call `act` with a connection to each pool of `with_catalog`.

        Raises PoolUnreachable before the first call if one of them has no connection.
        """
        for connection in [pool.connection() for pool in self.with_catalog()]:
            act(connection)

    def add_to_catalogs(self, act: Callable[[PoolConnection], object], needed: AgentPool) -> None:
        """Call `act`, which adds a table, with a connection to `needed`, then to every other pool that can be reached.

        A table that a pool lacks is added before a statement that needs it starts there, or with its pointer.
        """
        act(needed.connection())
        for pool in self.with_catalog():
            if pool is not needed:
                with suppress(PoolUnreachable):
                    act(pool.connection())


class Identity(Protocol):
    """Checks whether the ledger and the data folder belong to the same environment."""

    @property
    def doubt(self) -> str:
        """Return why the ledger and data folder may belong to different environments; empty if there is no doubt."""

    @property
    def fault(self) -> TryAgain | None:
        """Return why the last attempt to read or write the data folder failed; None if it succeeded."""

    def refuse_other_environment(self) -> None:
        """Raise NotAdopted if the ledger and data folder may not match, or Busy if they have not been compared yet."""

    def refuse_doubt(self) -> None:
        """Raise NotAdopted or Busy unless the ledger and the data folder are known to match.

        Every start makes this check.
        """

    def adopt(self, take_over: Callable[[int], object]) -> int:
        """Resolve a mismatch: call `take_over` with a new epoch, record it in ledger and data folder, and return it."""


class AlwaysMatchingIdentity:
    """An identity check that always passes, for contexts that have no data folder to compare."""

    doubt = ""
    fault = None

    def refuse_other_environment(self) -> None:
        return

    def refuse_doubt(self) -> None:
        return

    def adopt(self, take_over: Callable[[int], object]) -> int:
        take_over(1)
        return 1


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Clock for the uptime; on Linux, it includes the time for which the machine was suspended."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """Time since the machine booted."""

    boot: str
    """Id of the boot; empty if the system does not provide one."""
    seconds: float


def machine_uptime() -> Uptime:
    """Return the machine's uptime and the id of its current boot."""
    try:
        boot = _BOOT_ID.read_text("ascii").strip()
    except OSError:
        boot = ""
    return Uptime(boot, time.clock_gettime(_CLOCK))


def event_row(
    at: float,
    kind: EventKind,
    summary: str,
    *,
    about: tuple[str, int] = ("", 0),
    detail: str = "",
    fingerprint: str = "",
) -> EventRow:
    """Create an event without recording it.

    `about` is the (table, version) concerned; by default, the event concerns the whole environment.
    """
    row = EventRow(0, at, table=about[0], version=about[1], kind=kind, summary=Sentence(summary), detail=detail)
    return replace(row, fingerprint=fingerprint)


@dataclass(slots=True)
class AgentContext:
    """The state and services that all parts of an agent share.

    Clocks and id generators are fields, so that tests can replace them.
    """

    places: EnvironmentPaths
    folder: str
    """Absolute path of the project folder."""
    project_id: str
    project: str
    layout: EnvironmentLayout
    ledger: Ledger
    ledger_id: str
    pools: Pools
    files: Checkpoints
    faults: FaultPoints = field(default_factory=FaultPoints)
    paused_run_ids: set[str] = field(default_factory=set)
    """Run ids of queries that a step has paused. The start that ends a pause is not counted as a restart."""
    unrecorded_run_ids: set[str] = field(default_factory=set)
    """Run ids of queries that have started but are not recorded in the ledger yet."""
    serving_record_is_stale: threading.Event = field(default_factory=threading.Event)
    """Set while the ledger and the data folder's record may disagree on which versions serve."""
    clock: Callable[[], float] = time.time
    """The wall clock, in epoch seconds; it jumps when the machine's clock is set."""
    monotonic: Callable[[], float] = time.monotonic
    """The clock for measuring durations."""
    run_id: Callable[[str], str] = draw_run_id
    """Creates the id of a new run from the hash of the run's plan."""
    uptime: Callable[[], Uptime] = machine_uptime
    """Returns the machine's uptime, against which the wall clock is checked."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set once, when the agent is asked to stop. Loops wait on this event instead of sleeping."""
    locks: StatementLocks = field(default_factory=StatementLocks)
    """Locks of versions, shared by steps, operator actions and the reconciler. They also order operator commands."""
    identity: Identity = field(default_factory=AlwaysMatchingIdentity)
    """Checks whether the ledger and the data folder belong to the same environment."""
    work: PoolWork = field(default_factory=lambda: PoolWork({}))
    """What the executors and tasks of the pools do, as far as anybody needs it."""

    def __post_init__(self) -> None:
        self.locks.count_above(self.ledger.newest_serial())

    def event(
        self,
        kind: EventKind,
        summary: str,
        *,
        about: tuple[str, int] = ("", 0),
        detail: str | Sentence | None = None,
        fingerprint: str = "",
        run: str = "",
    ) -> None:
        """Record an event.

        `about` is the (table, version) concerned; by default, the event concerns the whole environment. `run` is the id
        of the run that caused the event; empty if no run did.
        """
        event = event_row(self.clock(), kind, summary, about=about, detail=str(detail or ""), fingerprint=fingerprint)
        self.ledger.add_event(replace(event, cause=EventCause.RUN, by=run) if run else event)

    def state_event(
        self,
        deployment: Deployment,
        after: State,
        *,
        detail: str | Sentence | None = None,
        cause: EventCause = EventCause.NONE,
        by: str = "",
    ) -> None:
        """Record an event for a version's transition from the state in `deployment` to `after`.

        `by` is the operator or the id of the run that `cause` refers to; empty if there is none.
        """
        change = StateChange(deployment.state, after, cause, by)
        self.ledger.add_event(
            EventRow(
                0, self.clock(), table=deployment.table, version=deployment.version, kind=EventKind.STATE,
                summary=change.sentence, detail=str(detail or ""), before=change.before, state=after, cause=cause,
                by=by,
            )
        )  # fmt: skip

    def record_completed_change(
        self, kind: EventKind, summary: str, *, about: tuple[str, int] = ("", 0), detail: str | Sentence | None = None
    ) -> None:
        """Record an event for a change that is already made. If the ledger is unavailable, only log the event."""
        try:
            self.event(kind, summary, about=about, detail=detail)
        except LedgerUnavailable as error:
            log.warning("%s; there is no event of it: %s", summary, error.summary)

    @property
    def machine_may_move(self) -> bool:
        """True if the policy allows the environment to be moved to another machine."""
        return self.layout.environment.policy.machine_moves == ALLOW

    def frozen(self) -> str | None:
        """Return the end of the current freeze window, formatted for display, or None if no freeze is in force."""
        policy = self.ledger.recorded_policy() or self.layout.environment.policy
        return frozen_until(policy.freeze, self.clock())

    def audit(self, actor: str, action: str, subject: str, **more: str) -> None:
        """Record in the audit log that `actor` performed `action` on `subject`.

        `more` may contain plan_hash, confirmation and outcome.
        """
        self.ledger.add_audit(AuditRow(0, self.clock(), actor, action, subject, **more))

    def serving(self, table: TableName) -> Deployment | None:
        """Return the version of a table that the bare table name refers to; None if no version serves."""
        found = serving_version(self.ledger.versions(table))
        return None if found is None or found.deleted else found
