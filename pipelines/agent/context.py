"""The context that all parts of the agent share: ledger, pool, files and environment layout."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import LedgerUnavailable
from core.model.events import EventCause, EventKind, StateChange
from core.model.names import TableName
from core.model.states import State
from core.observed.versions import Deployment, serving_version
from core.policy.freeze_windows import frozen_until
from core.policy.model import ALLOW
from core.ports.spark import Analysis, Queries, Tables, TableUpkeep
from core.ports.storage import Checkpoints
from core.text.sentence import Sentence
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.statement_locks import StatementLocks
from state.ledger import Ledger
from state.row_types import AuditRow, EventRow
from state.runs import draw_run_id

log = logging.getLogger(__name__)

FAULT_VARIABLE = "HEADGATE_FAULT_AT"
"""Environment variable for drills: numbers or labels of fault points at which the agent dies, separated by commas."""

TRACE_VARIABLE = "HEADGATE_FAULT_TRACE"
"""Environment variable for drills: a file to which every fault point appends its label, one per line."""


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
        """Create the fault points as configured by the environment variables `FAULT_VARIABLE` and `TRACE_VARIABLE`."""
        return cls(os.environ.get(FAULT_VARIABLE, ""), os.environ.get(TRACE_VARIABLE, ""))

    def pass_by(self, label: str) -> None:
        """Record that execution has reached a fault point, and kill the agent if a crash drill selected this point."""
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
    """A session with the Spark pool, and the interfaces that use it; their methods must be invoked through `call`."""

    queries: Queries
    tables: Tables
    analysis: Analysis
    upkeep: TableUpkeep

    def call(self, seconds: float, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn` and return its result, or raise PoolUnreachable if the pool does not answer within `seconds`."""


class PoolClient(Protocol):
    """Gives the other parts of the agent access to the pool."""

    def connection(self) -> PoolConnection:
        """Return the current connection, which callers must not store, or raise PoolUnreachable if there is none."""

    def connection_for_stops(self) -> PoolConnection:
        """Return the connection even while the pool's catalog is being filled, because stops must not wait for that."""

    def start_again(self) -> bool:
        """Allow a restart of the pool if the agent gave up on it after repeated failures; return whether it had."""


class Identity(Protocol):
    """Checks whether the ledger and the data folder belong to the same environment."""

    @property
    def doubt(self) -> str:
        """Return why ledger and data folder may belong to different environments; empty if nothing suggests it."""

    def refuse_other_environment(self) -> None:
        """Raise NotAdopted if the ledger and the data folder may not match, or Busy if they were not compared yet."""

    def refuse_doubt(self) -> None:
        """Raise NotAdopted or Busy unless ledger and data folder are known to match, as every start requires."""

    def adopt(self, take_over: Callable[[int], object]) -> int:
        """Call `take_over` with a new epoch, record that the ledger and the data folder match, and return the epoch."""


class AlwaysMatchingIdentity:
    """An identity check that always passes, for contexts that have no data folder to compare."""

    doubt = ""

    def refuse_other_environment(self) -> None:
        return

    def refuse_doubt(self) -> None:
        return

    def adopt(self, take_over: Callable[[int], object]) -> int:
        take_over(1)
        return 1


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that, on Linux, also counts the time for which the machine was suspended."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """The time since the machine was booted."""

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
    """Create an event about a version, given as (table, version), or about the environment, without recording it."""
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
    pool: PoolClient
    files: Checkpoints
    faults: FaultPoints = field(default_factory=FaultPoints)
    adrift: set[TableName] = field(default_factory=set)
    """Tables whose pointers may be at either version after an interrupted swap; the reconciler corrects them."""
    paused: set[str] = field(default_factory=set)
    """Run ids of queries that a step has paused; their next start is not counted as a restart."""
    unrecorded: set[str] = field(default_factory=set)
    """Run ids of queries that were started correctly but could not be recorded in the ledger yet."""
    unserved: threading.Event = field(default_factory=threading.Event)
    """Set while the record of serving versions in the data folder may differ from the ledger."""
    clock: Callable[[], float] = time.time
    """The wall clock, in epoch seconds; it jumps when the machine's clock is set."""
    monotonic: Callable[[], float] = time.monotonic
    """The clock for measuring durations."""
    run_id: Callable[[str], str] = draw_run_id
    """Returns a new run id on each call, derived from the hash of a plan."""
    uptime: Callable[[], Uptime] = machine_uptime
    """Returns the machine's uptime, against which the wall clock is checked."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set once, when the agent is asked to stop; every loop waits on it instead of sleeping."""
    locks: StatementLocks = field(default_factory=StatementLocks)
    """Locks of versions, for steps, operator actions and the reconciler; also orders operator commands."""
    identity: Identity = field(default_factory=AlwaysMatchingIdentity)
    """Checks whether ledger and data folder belong to the same environment."""
    connectors: Callable[[], Collection[str] | None] = lambda: None
    """Returns the names of the connectors that the pool was started with; None if unknown."""

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
        """Record an event about a version, given as (table, version), or about the environment.

        `run` is the id of the run that caused the event, if any.
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
        """Record an event for a version's transition from its current state to `after`, with the transition's cause."""
        change = StateChange(deployment.state, after, cause, by)
        self.ledger.add_event(
            EventRow(
                0, self.clock(), table=deployment.table, version=deployment.version, kind=EventKind.STATE,
                summary=change.sentence, detail=str(detail or ""), before=change.before, state=after, cause=cause,
                by=by,
            )
        )  # fmt: skip

    def event_of_done(
        self, kind: EventKind, summary: str, *, about: tuple[str, int] = ("", 0), detail: str | Sentence | None = None
    ) -> None:
        """Record an event for a change that has already been made. If the ledger is unavailable, only log the event."""
        try:
            self.event(kind, summary, about=about, detail=detail)
        except LedgerUnavailable as error:
            log.warning("%s; there is no event of it: %s", summary, error.summary)

    @property
    def machine_may_move(self) -> bool:
        """Return whether the policy allows an agent to continue on a different machine."""
        return self.layout.environment.policy.machine_moves == ALLOW

    def frozen(self) -> str | None:
        """Return the end of the current freeze, formatted for display, or None outside all freeze windows."""
        policy = self.ledger.recorded_policy() or self.layout.environment.policy
        return frozen_until(policy.freeze, self.clock())

    def audit(self, actor: str, action: str, subject: str, **more: str) -> None:
        """Record in the audit log who did what to what. `more` may contain plan_hash, confirmation and outcome."""
        self.ledger.add_audit(AuditRow(0, self.clock(), actor, action, subject, **more))

    def serving(self, table: TableName) -> Deployment | None:
        """Return the version that a table's bare name refers to, or None if the table is not deployed."""
        found = serving_version(self.ledger.versions(table))
        return None if found is None or found.deleted else found
