"""When a table begins to miss its objective and when it meets it again: one event each, whichever agent measures."""

from core.lag.faults import ObjectiveWatch
from core.model.names import TableName
from core.model.states import MET, MISSED, WantedState
from core.text.units import long_duration
from pipelines.agent.context import AgentContext
from state.row_types import Deployment


class ObjectiveTransitions:
    """What was recorded last of each table; the ledger's events are the memory of a new agent."""

    def __init__(self, world: AgentContext) -> None:
        self._world = world
        self._watches: dict[TableName, ObjectiveWatch] = {}

    def hear(self, deployment: Deployment, behind_s: float | None, objective_s: float) -> None:
        """Judge one measurement of the version that serves; what an operator has stopped misses nothing."""
        if not deployment.active or deployment.wanted == WantedState.STOPPED:
            return
        table, now = deployment.table, self._world.clock()
        before = self._watches.get(table) or self._recalled(table)
        after = before.heard(behind_s, objective_s, now)
        if after.missed != before.missed:
            objective = f"the objective of {long_duration(objective_s)}"
            summary = (
                f"{long_duration(behind_s)} behind, beyond {objective}"
                if after.missed
                else f"within {objective} again, after {long_duration(after.since - before.since)}"
            )
            self._world.event(MISSED if after.missed else MET, summary, about=(table, deployment.version))
        # Once the event is written: one that the ledger did not take is recorded by the next measurement.
        self._watches[table] = after

    def forget(self, tables: set[TableName]) -> None:
        """Drop what is known of other tables than these."""
        self._watches = {table: watch for table, watch in self._watches.items() if table in tables}

    def _recalled(self, table: TableName) -> ObjectiveWatch:
        last = self._world.ledger.objective_event(table)
        return ObjectiveWatch(last.kind == MISSED, last.at) if last else ObjectiveWatch()
