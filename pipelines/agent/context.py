"""What every part of the agent works on: the ledger, the pool, the files and the layout of the environment."""

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
"""A count, or labels with commas between: the agent kills itself with SIGKILL there, whichever is first (drills)."""

TRACE_VARIABLE = "HEADGATE_FAULT_TRACE"
"""A file that each point is appended to, one label a line, so that a drill can loop over all of them."""


class FaultPoints:
    """Numbered places around every intent and evidence; free of cost unless a drill has asked for one."""

    def __init__(self, at: str = "", trace: str = "") -> None:
        self._at = frozenset(at.split(",")) - {""}
        self._trace = trace
        self._count = 0
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> "FaultPoints":
        """Read what a drill asked for from the process's environment."""
        return cls(os.environ.get(FAULT_VARIABLE, ""), os.environ.get(TRACE_VARIABLE, ""))

    def pass_by(self, label: str) -> None:
        """Pass a point; does not return when a drill asked to die here."""
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
"""Deadline of a call to the pool that starts or changes something."""

READ_CALL_S = 5.0
"""Deadline of a call to the pool that only looks."""


class PoolConnection(Protocol):
    """One generation's ports to the pool; each method of a port is called through `call`."""

    queries: Queries
    tables: Tables
    analysis: Analysis
    upkeep: TableUpkeep

    def call(self, seconds: float, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `fn` returns; raises PoolUnreachable where the pool does not answer within `seconds`."""


class PoolClient(Protocol):
    """The pool as the agent's rooms see it."""

    def connection(self) -> PoolConnection:
        """Return the connection of this moment, for one use; raises PoolUnreachable where there is none."""

    def connection_for_stops(self) -> PoolConnection:
        """Return the connection also while the catalog is still being restored, which no stop waits for."""

    def start_again(self) -> bool:
        """Start a pool again that was given up; returns whether it was."""


class Identity(Protocol):
    """Whether this is the world that the ledger describes."""

    @property
    def doubt(self) -> str:
        """Explain why it may be another one; empty where it is not."""

    def refuse_other_world(self) -> None:
        """Raise NotAdopted in doubt, and Busy before ledger and data folder were compared."""

    def refuse_doubt(self) -> None:
        """Raise NotAdopted in doubt: nothing starts then. Raise Busy where nobody could compare yet."""

    def adopt(self, take_over: Callable[[int], object]) -> int:
        """Take what is there for the ledger's own, `take_over` with the new epoch first; returns the epoch."""


class Undoubted:
    """The identity of a world that nobody compares."""

    doubt = ""

    def refuse_other_world(self) -> None:
        return

    def refuse_doubt(self) -> None:
        return

    def adopt(self, take_over: Callable[[int], object]) -> int:
        take_over(1)
        return 1


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while a Linux machine sleeps."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """How long the machine has been up."""

    boot: str
    """Which start of the machine; empty where it does not say."""
    seconds: float


def machine_uptime() -> Uptime:
    """Return for how long this machine has been up."""
    try:
        boot = _BOOT_ID.read_text("ascii").strip()
    except OSError:
        boot = ""
    return Uptime(boot, time.clock_gettime(_CLOCK))


@dataclass(slots=True)
class AgentContext:
    """One environment at work. Clocks and what is drawn are here so that tests can set them."""

    places: EnvironmentPaths
    folder: str
    """Absolute project folder."""
    project_id: str
    project: str
    layout: EnvironmentLayout
    ledger: Ledger
    ledger_id: str
    pool: PoolClient
    files: Checkpoints
    faults: FaultPoints = field(default_factory=FaultPoints)
    adrift: set[TableName] = field(default_factory=set)
    """Tables whose pointers a swap has left who knows where: the reconciler has them lead to what serves."""
    paused: set[str] = field(default_factory=set)
    """Runs of queries that a step has stopped for a while: they did not end by themselves, and are no restart."""
    unrecorded: set[str] = field(default_factory=set)
    """Runs of queries that were started as they were meant, and that the ledger could not take yet."""
    unserved: threading.Event = field(default_factory=threading.Event)
    """Set while the record of what serves may not be as the ledger has it."""
    clock: Callable[[], float] = time.time
    """When something was: epoch seconds, which jump when the machine's clock is set."""
    monotonic: Callable[[], float] = time.monotonic
    """How long something took."""
    run_id: Callable[[str], str] = draw_run_id
    """The id of a new run, by the hash of its plan; another one each time."""
    uptime: Callable[[], Uptime] = machine_uptime
    """What the wall clock is checked against."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set once, when the agent is to end; every loop waits on it instead of sleeping."""
    locks: StatementLocks = field(default_factory=StatementLocks)
    """Who acts on which version, and the order of words; a step, an operator's act and the reconciler hold what they
    act on."""
    identity: Identity = field(default_factory=Undoubted)
    """Whether this is the world that the ledger describes; compared by the daemon."""
    connectors: Callable[[], Collection[str] | None] = lambda: None
    """What the pool was given beside Spark, by name; None where nobody can tell."""

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
        """Record what happened, to a version (table, version) or to the environment, where one has done it by a run."""
        now, (table, version) = self.clock(), about
        event = EventRow(
            0,
            now,
            table=table,
            version=version,
            kind=kind,
            summary=Sentence(summary),
            detail=str(detail or ""),
            fingerprint=fingerprint,
        )
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
        """Record that a version has come from the state of its row to another one, and who has done it."""
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
        """Record, as `event`, what is done: a ledger that does not take it only now does not make it a failure."""
        try:
            self.event(kind, summary, about=about, detail=detail)
        except LedgerUnavailable as error:
            log.warning("%s; there is no event of it: %s", summary, error.summary)

    @property
    def machine_may_move(self) -> bool:
        """Return whether the policy lets an agent go on where another machine has stopped."""
        return self.layout.environment.policy.machine_moves == ALLOW

    def frozen(self) -> str | None:
        """Return until when a freeze window of the policy in force lasts, in words; None outside of all."""
        policy = self.ledger.recorded_policy() or self.layout.environment.policy
        return frozen_until(policy.freeze, self.clock())

    def audit(self, actor: str, action: str, subject: str, **more: str) -> None:
        """Record who did what; `more` are plan_hash, confirmation and outcome."""
        self.ledger.add_audit(AuditRow(0, self.clock(), actor, action, subject, **more))

    def serving(self, table: TableName) -> Deployment | None:
        """Find the version that an operator means by a table's name; None where the table is not deployed."""
        found = serving_version(self.ledger.versions(table))
        return None if found is None or found.deleted else found
