"""The fast lane: stop, start and restart of statements, in the thread of the caller, overtaking every run."""

import logging
import time
from dataclasses import dataclass
from typing import Any

from core.lineage.table_graph import depths
from core.model.errors import LedgerUnavailable, PoolUnreachable, Refused, TryAgain, UsageError
from core.model.names import TableName, physical_name, query_name
from core.model.states import State, WantedState
from core.observed.serving import serving_versions
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_lifecycle import mark_stopped, start, stop
from pipelines.spark import call_deadlines
from state.emergency_journal import EmergencyJournal
from state.row_types import Deployment

log = logging.getLogger(__name__)

LEDGER_S = 0.15
"""How long a stop waits for the ledger before its intent goes to the emergency journal."""

STOP_S = 8.0
"""Deadline of a stop; after it the stop is sent, not confirmed, and the reconciler goes on with it."""


NOT_RECORDED = ", not recorded"
"""Neither ledger nor emergency journal took the intent: an agent that ends forgets it, and the next one starts it."""


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """What came of an act on one statement."""

    table: TableName
    version: int
    outcome: str
    """stopped, started, restarted, or `sent, not confirmed`; with NOT_RECORDED where no disk took a stop."""
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

    def stop(self, tables: tuple[TableName, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Stop statements, sinks first; intent first, in the emergency journal if the ledger cannot take it."""
        found = self._find(tables)
        recorded = [self._intend(deployment) for deployment in found]
        outcomes = []
        for deployment, is_recorded in zip(found, recorded, strict=True):
            outcomes.append(self._stop_one(deployment, arrived, by, recorded=is_recorded))
        return tuple(outcomes)

    def start(self, tables: tuple[TableName, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Start stopped or failed statements on their checkpoints, sources first."""
        outcomes = []
        for deployment in reversed(self._find(tables)):
            self._fail_without_parents(deployment)
            key = (deployment.table, deployment.version)
            self._world.ledger.update_deployment(*key, wanted=WantedState.RUNNING)
            try:
                start(self._world, deployment)
            except (Refused, TryAgain):
                # Refused is refused: it must not begin by itself once the pool is back.
                self._world.ledger.update_deployment(*key, wanted=deployment.wanted)
                raise
            self._tell(deployment, State.STARTING, f"started by {by}")
            outcomes.append(_outcome(deployment, "started", arrived))
        return tuple(outcomes)

    def restart(self, tables: tuple[TableName, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Stop and start statements on their checkpoints with the deployed revision."""
        outcomes = []
        for deployment in self._find(tables):
            key = (deployment.table, deployment.version)
            with self._world.occupied(deployment):
                self._world.ledger.update_deployment(*key, wanted=WantedState.RUNNING, state=State.STOPPING)
                stop(self._world, deployment)
                start(self._world, deployment)
            self._tell(deployment, State.STARTING, f"restarted by {by}")
            outcomes.append(_outcome(deployment, "restarted", arrived))
        return tuple(outcomes)

    def _find(self, tables: tuple[TableName, ...]) -> tuple[Deployment, ...]:
        """Find the serving versions, sinks before sources; raises UsageError naming what is not deployed."""
        try:
            deployments = tuple(self._world.ledger.deployments())
        except LedgerUnavailable:
            deployments = self._remembered
        serving = serving_versions(deployments)
        for table in tables:
            if table not in serving or serving[table].external:
                why = (
                    "is an external table: Headgate runs no statement for it" if table in serving else "is not deployed"
                )
                raise UsageError(f"{table} {why}", remedy="headgate ls shows what is deployed")
        depth = depths((d.table, [b.parent for b in d.bindings]) for d in deployments)
        return tuple(sorted((serving[table] for table in tables), key=lambda d: (-depth[d.table], d.table)))

    def _intend(self, deployment: Deployment) -> bool:
        """Write down that a stop is wanted; returns whether it is on disk."""
        table, version = deployment.table, deployment.version
        write = self._world.ledger.update_deployment
        try:
            call_deadlines.call(LEDGER_S, write, table, version, wanted=WantedState.STOPPED, state=State.STOPPING)
        except (LedgerUnavailable, PoolUnreachable) as error:
            log.warning(
                "the ledger did not record a stop in time; it is written to the emergency journal: %s", error.summary
            )
            entry = {"at": self._world.clock(), "act": "stop", "table": table, "version": version}
            return self._emergency.append(entry)
        return True

    def _tell(self, deployment: Deployment, state: State, how: str) -> None:
        """Record among the events what an operator did."""
        about = (deployment.table, deployment.version)
        self._world.event("state", f"{deployment.state} → {state}, {how}", about=about)

    def _stop_one(self, deployment: Deployment, arrived: float, by: str, *, recorded: bool) -> ActOutcome:
        calls: list[float] = []
        name = query_name(deployment.table, deployment.version)
        try:
            stop(self._world, deployment, seconds=STOP_S, calling=lambda: calls.append(_since(arrived)))
        except PoolUnreachable as error:
            log.warning("stop of %s sent, not confirmed: %s", name, error.summary)
            called = calls[0] if calls else None
            said = "sent, not confirmed" + ("" if recorded else NOT_RECORDED)
            return ActOutcome(deployment.table, deployment.version, said, called, _since(arrived))
        took = _since(arrived)
        try:
            call_deadlines.call(LEDGER_S, mark_stopped, self._world, deployment)
            recorded = True
            if deployment.state != State.STOPPED:
                call_deadlines.call(LEDGER_S, self._tell, deployment, State.STOPPED, f"stopped by {by}")
        except (LedgerUnavailable, PoolUnreachable):
            log.warning("%s is stopped; the ledger will be updated later", name)
        said = "stopped" if recorded else f"stopped{NOT_RECORDED}"
        return ActOutcome(deployment.table, deployment.version, said, calls[0] if calls else None, took)

    def _fail_without_parents(self, deployment: Deployment) -> None:
        """Refuse to start a statement whose parent's version is gone: it would be active, silent and blind."""
        versions = {(d.table, d.version) for d in self._world.ledger.deployments()}
        gone = [
            physical_name(b.parent, b.version) if b.version else str(b.parent)
            for b in deployment.bindings
            if (b.parent, b.version) not in versions
        ]
        if gone:
            raise Refused(
                f"{deployment.table} reads {', '.join(gone)}, which does not exist",
                remedy=f"headgate plan {deployment.table} --rebuild",
            )


def _outcome(deployment: Deployment, outcome: str, arrived: float) -> ActOutcome:
    return ActOutcome(deployment.table, deployment.version, outcome, None, _since(arrived))


def _since(arrived: float) -> float:
    return (time.monotonic() - arrived) * 1000
