"""The fast lane: stop, start and restart of statements, in the thread of the caller, overtaking every run."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from core.lineage.table_graph import depths
from core.model.errors import Busy, EngineRefused, LedgerUnavailable, PoolUnreachable, Refused, TryAgain, UsageError
from core.model.names import TableName, physical_name, query_name
from core.model.states import AT_REST, State, WantedState
from core.observed.serving import serving_versions
from pipelines.agent.bounded_threads import in_threads
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_lifecycle import mark_stopped, start, state_change, stop
from pipelines.spark import call_deadlines
from state.emergency_journal import EmergencyJournal
from state.row_types import Deployment
from state.table_acts import TableAct

log = logging.getLogger(__name__)

LEDGER_S = 0.15
"""How long a stop waits for the ledger before its intent goes to the emergency journal."""

STOP_S = 8.0
"""Deadline of a stop; after it the stop is sent, not confirmed, and the reconciler goes on with it."""


STOPS_AT_ONCE = 8
"""Calls of Spark's stop at one time: forty statements stop within three seconds."""

HOLDER_S = 1.0
"""How long a stop waits for somebody who holds its version and is not starting it."""

RECORD_S = 1.0
"""How long a stop that has taken effect waits for the ledger to record it."""

STARTED, RESTARTED = "started", "restarted"
PENDING = ", first batch pending"
"""After what Spark has taken: that it works, its first batch proves."""
RAN, RESTED = "was running already", "was stopped already"
STOPPED, SENT, WAITS = "stopped", "sent, not confirmed", "not sent: the pool does not answer"
"""What comes of an act on one version."""

NOT_RECORDED = ", not recorded"
"""Neither ledger nor emergency journal took the intent: an agent that ends forgets it, and the next one starts it."""


class Recorded(Enum):
    """Where the intent of a stop is on disk; false where it is nowhere."""

    LEDGER = "ledger"
    JOURNAL = "emergency journal"
    NOWHERE = ""

    def __bool__(self) -> bool:
        return self is not Recorded.NOWHERE


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """What came of an act on one statement."""

    table: TableName
    version: int
    outcome: str
    """One of the words above, STARTED and RESTARTED with PENDING; or why it was not stopped. With NOT_RECORDED where no
    disk took a stop."""
    called_ms: float | None
    """From the command's arrival to Spark's stop being called; None when it was not."""
    took_ms: float

    def as_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "version": self.version,
            "outcome": self.outcome,
            "called_ms": None if self.called_ms is None else round(self.called_ms, 1),
            "took_ms": round(self.took_ms, 1),
        }


class FastLane:
    """Stops, starts and restarts at once. The registry is remembered, so that a stop needs no readable ledger."""

    def __init__(self, world: AgentContext, emergency: EmergencyJournal) -> None:
        self._world = world
        self._emergency = emergency
        self._remembered: tuple[Deployment, ...] = ()

    def remember(self, deployments: tuple[Deployment, ...]) -> None:
        """Cache the registry as last read, for a stop while the ledger cannot be read."""
        self._remembered = deployments

    def stop(self, names: tuple[str, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Stop all versions of tables that may run, or one that is named `a@v2`, sinks first.

        There is one intent for all, before the first call of Spark.
        """
        found = self._stoppable(names)
        self._world.locks.stop(names)
        recorded = self._intend(names, by)
        outcomes = in_threads(STOPS_AT_ONCE, partial(self._stop_one, arrived=arrived), found)
        if recorded is Recorded.LEDGER:
            self._record(found, outcomes, by)
        return outcomes if recorded else tuple(replace(o, outcome=o.outcome + NOT_RECORDED) for o in outcomes)

    def start(self, names: tuple[str, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Start stopped or failed statements on their checkpoints, sources first."""
        return tuple(self._start_one(d, arrived, by, done=STARTED) for d in reversed(self._find(names)))

    def restart(self, names: tuple[str, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Stop and start statements on their checkpoints with the deployed revision."""
        return tuple(self._start_one(d, arrived, by, done=RESTARTED) for d in self._find(names))

    def _start_one(self, found: Deployment, arrived: float, by: str, *, done: str) -> ActOutcome:
        """Start one version, after a stop where it is `restarted`; the stop of its table ends with it."""
        world, key = self._world, (found.table, found.version)
        stops, verb = world.locks.stops(key), "restart" if done == RESTARTED else "start"
        with self._held(found, f"what {by} has {done}") as deployment:
            if done == STARTED and self._runs(deployment):
                self._say(deployment, f"{RAN}: start by {by}")
                return _outcome(deployment, RAN, arrived)
            world.ledger.want_running(*key, TableAct(f"a {verb} by {by}", world.clock()))
            try:
                self._fail_without_parents(deployment)
                if done == RESTARTED:
                    if deployment.state not in AT_REST:
                        world.ledger.update_deployment(*key, state=State.STOPPING)
                    stop(world, deployment)
                start(world, deployment, stops=stops)
            except (Refused, TryAgain):
                if deployment.wanted == WantedState.STOPPED:
                    # Refused is refused: it must not begin by itself once the pool is back.
                    world.ledger.stop_statements(self._resting(*key))
                raise
        self._tell(deployment, State.STARTING, f"{done} by {by}")
        return _outcome(deployment, done + PENDING, arrived)

    def _resting(self, table: TableName, version: int) -> list[str]:
        """Name a version, and those of its table that are wanted stopped anyway: a start has ended the stop of all."""
        every = (d for d in self._world.ledger.versions(table) if not d.deleted)
        return [query_name(table, d.version) for d in every if d.version == version or d.wanted == WantedState.STOPPED]

    def _runs(self, deployment: Deployment) -> bool:
        """Return whether a statement runs, or is starting, and nobody has asked for its stop."""
        there = deployment.state in (State.STARTING, State.RUNNING) and deployment.query_id
        stopping = self._world.locks.has_unrecorded_stop((deployment.table, deployment.version))
        return bool(there) and deployment.wanted == WantedState.RUNNING and not stopping

    @contextmanager
    def _held(self, found: Deployment, by: str) -> Iterator[Deployment]:
        """Hold a version and read it again: a run may have given it other texts, or deleted it, in the meantime."""
        key = (found.table, found.version)
        with self._world.locks.holding(key, by=by):
            deployment = self._world.ledger.deployment(*key)
            if deployment is None or deployment.deleted:
                raise UsageError(
                    f"{query_name(*key)} was deleted in the meantime", remedy="headgate ls shows what is deployed"
                )
            yield deployment

    def _find(self, names: tuple[str, ...]) -> tuple[Deployment, ...]:
        """Find what serves and what is named, sinks before sources; raises UsageError naming what is not deployed."""
        deployments = self._registry()
        return _sinks_first(deployments, _named(names, deployments))

    def _stoppable(self, names: tuple[str, ...]) -> tuple[Deployment, ...]:
        """Find the same, and all other versions of whole tables that may run, sinks before sources."""
        deployments = self._registry()
        found = _named(names, deployments)
        others = [d for d in deployments if d.table in names and d not in found and not d.deleted and _may_run(d)]
        return _sinks_first(deployments, [*found, *others])

    def _registry(self) -> tuple[Deployment, ...]:
        """Read the registry, or return it as it was last read while the ledger cannot be read in time."""
        try:
            return tuple(call_deadlines.call(LEDGER_S, self._world.ledger.deployments))
        except (LedgerUnavailable, PoolUnreachable):
            return self._remembered

    def _intend(self, names: tuple[str, ...], by: str) -> "Recorded":
        """Write down that tables, or versions, are wanted stopped, where it can be written."""
        try:
            act = TableAct(f"a stop by {by}", self._world.clock())
            call_deadlines.call(LEDGER_S, self._world.ledger.stop_statements, names, act)
        except (LedgerUnavailable, PoolUnreachable) as error:
            log.warning(
                "the ledger did not record a stop in time; it is written to the emergency journal: %s", error.summary
            )
            entry = {"at": self._world.clock(), "act": "stop", "by": by, "tables": list(names)}
            taken = self._emergency.append(entry)
            if not taken.is_new:
                # The entry that waits is applied, and reported as recorded, once for both.
                self._world.locks.recorded(names)
            return Recorded.JOURNAL if taken.on_disk else Recorded.NOWHERE
        self._world.locks.recorded(names)
        return Recorded.LEDGER

    def _tell(self, deployment: Deployment, state: State, how: str) -> None:
        """Record among the events what an operator did."""
        self._say(deployment, f"{state_change(deployment.state, state)}, {how}")

    def _say(self, deployment: Deployment, words: str) -> None:
        self._world.event("state", words, about=(deployment.table, deployment.version))

    def _stop_one(self, deployment: Deployment, arrived: float) -> ActOutcome:
        """Stop one version at once; where somebody holds it, stop it once more after them, within the deadline."""
        calls: list[float] = []
        key, ends_at = (deployment.table, deployment.version), arrived + STOP_S

        def called() -> None:
            calls.append(_since(arrived))

        try:
            held = key in self._world.locks.held()
            stop(self._world, deployment, seconds=STOP_S, calling=called)
            if held:
                self._stop_after_holder(deployment, ends_at, called)
        except (PoolUnreachable, Busy) as error:
            log.warning("stop of %s not confirmed: %s", query_name(*key), error.summary)
            said = SENT if calls else WAITS
            return ActOutcome(*key, said, calls[0] if calls else None, _since(arrived))
        except EngineRefused as error:
            log.warning("stop of %s refused: %s", query_name(*key), error.summary)
            return ActOutcome(*key, f"not stopped: {error.summary}", calls[0] if calls else None, _since(arrived))
        # Spark's stop is called whatever the ledger says: it may not know.
        rested = (deployment.wanted, deployment.state) == (WantedState.STOPPED, State.STOPPED)
        return ActOutcome(*key, RESTED if rested else STOPPED, calls[0] if calls else None, _since(arrived))

    def _stop_after_holder(self, deployment: Deployment, ends_at: float, called: Callable[[], None]) -> None:
        """Stop a version once more after whoever holds it, who looks for stops after a start and ends what it started.

        Raises Busy where a start goes on. Who holds it and starts nothing may wait for a locked ledger: no stop does.
        """
        key = (deployment.table, deployment.version)
        try:
            with self._world.locks.holding(key, by="a stop", wait_s=HOLDER_S):
                stop(self._world, deployment, seconds=STOP_S, calling=called)
        except Busy:
            if self._world.locks.is_starting(key):
                with self._world.locks.holding(key, by="a stop", wait_s=max(0.0, ends_at - time.monotonic())):
                    stop(self._world, deployment, seconds=STOP_S, calling=called)

    def _record(self, found: tuple[Deployment, ...], outcomes: tuple[ActOutcome, ...], by: str) -> None:
        """Record what is stopped; what cannot be recorded in time the reconciler finds by itself."""

        def write() -> None:
            for deployment, outcome in zip(found, outcomes, strict=True):
                now = self._world.ledger.deployment(deployment.table, deployment.version)
                if outcome.outcome == RESTED:
                    self._say(deployment, f"{RESTED}: stop by {by}")
                # A version that somebody has started since is theirs; the reconciler may have found it gone already.
                if outcome.outcome == STOPPED and now is not None and now.run_id in ("", deployment.run_id):
                    mark_stopped(self._world, deployment)
                    if deployment.state != State.STOPPED:
                        self._tell(deployment, State.STOPPED, f"stopped by {by}")

        try:
            call_deadlines.call(RECORD_S, write)
        except (LedgerUnavailable, PoolUnreachable) as error:
            log.warning("statements are stopped; the ledger will be updated later: %s", error.summary)

    def _fail_without_parents(self, deployment: Deployment) -> None:
        """Refuse to start a statement whose parent's version is gone: it would be active, silent and blind."""
        versions = {(d.table, d.version) for d in self._world.ledger.deployments()}
        gone = [
            physical_name(b.parent, b.version) if b.version else str(b.parent)
            for b in deployment.bindings
            if (b.parent, b.version) not in versions or self._world.locks.is_being_deleted((b.parent, b.version))
        ]
        if gone:
            raise Refused(
                f"{deployment.table} reads {', '.join(gone)}, which does not exist",
                remedy=f"headgate plan {deployment.table} --rebuild",
            )


def _named(names: tuple[str, ...], registry: tuple[Deployment, ...]) -> list[Deployment]:
    """Return each version once: what serves of a table, or the one that is named; raises UsageError."""
    every: dict[str, Deployment] = {query_name(d.table, d.version): d for d in registry if not d.deleted}
    every |= {str(table): found for table, found in serving_versions(registry).items()}
    for name in names:
        if name not in every or every[name].external:
            why = "is an external table: Headgate runs no statement for it" if name in every else "is not deployed"
            raise UsageError(f"{name} {why}", remedy="headgate ls shows what is deployed")
    return list({(found.table, found.version): found for found in map(every.__getitem__, names)}.values())


def _sinks_first(registry: tuple[Deployment, ...], found: list[Deployment]) -> tuple[Deployment, ...]:
    depth = depths((d.table, [b.parent for b in d.bindings]) for d in registry)
    return tuple(sorted(found, key=lambda d: (-depth[d.table], d.table, d.version)))


def _may_run(deployment: Deployment) -> bool:
    return deployment.wanted == WantedState.RUNNING or deployment.state not in AT_REST | {State.ABSENT, State.PENDING}


def _outcome(deployment: Deployment, outcome: str, arrived: float) -> ActOutcome:
    return ActOutcome(deployment.table, deployment.version, outcome, None, _since(arrived))


def _since(arrived: float) -> float:
    return (time.monotonic() - arrived) * 1000
