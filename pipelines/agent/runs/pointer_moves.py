"""Moving the pointers of a release, all of them forward or all of them back."""

import logging
from collections.abc import Iterable

from core.model.errors import EngineRefused
from core.model.names import TableName
from core.observed.versions import Deployment
from pipelines.agent.context import WRITE_CALL_S, AgentContext
from pipelines.agent.tables.catalog_entries import pointer_of

log = logging.getLogger(__name__)

TRIES = 2


def move_forward(agent: AgentContext, targets: list[tuple[TableName, int]]) -> float:
    """Point every table to its new version in one loop; returns its seconds.

    Raises EngineRefused where one cannot be moved twice: all are back at what served before by then, as the ledger has
    it, and the error says so.
    """
    found = {(d.table, d.version): d for d in agent.ledger.deployments()}
    new = [found[target] for target in targets if target in found]
    tries = 0
    while True:
        begun: list[str] = []
        try:
            return _move(agent, new, begun, "swap")
        except EngineRefused as error:
            if not begun:
                # What could refuse one was looked at first.
                raise
            tries += 1
            log.warning("%s was not moved: %s", begun[-1], error.summary)
            if tries == TRIES:
                why = f"{begun[-1]} was refused {TRIES} times: {error.summary}; {moved_back(agent, targets)}"
                raise EngineRefused(why, error_class=error.error_class, remedy=error.remedy) from error


def put_back(agent: AgentContext, tables: Iterable[TableName]) -> None:
    """Point tables to what serves by the ledger; one that nothing serves has no pointer afterwards."""
    served = {d.table: d for d in agent.ledger.deployments() if d.active}
    tables, pool = tuple(tables), agent.pool.connection()
    _move(agent, [served[table] for table in tables if table in served], [], "swap back")
    for table in tables:
        if table not in served:
            pool.call(WRITE_CALL_S, pool.tables.unpoint, agent.layout.pointer_name(table))


def moved_back(agent: AgentContext, targets: list[tuple[TableName, int]]) -> str:
    """Put the pointers back, and say what came of it."""
    try:
        put_back(agent, (table for table, _ in targets))
    except EngineRefused as error:
        log.error("pointers are not back: %s", error.summary)
        return f"some pointers have moved and could not be moved back ({error.summary}): headgate runs retry moves all"
    return "no pointer has moved"


def _move(agent: AgentContext, versions: list[Deployment], begun: list[str], label: str) -> float:
    """Move pointers in one loop; `begun` takes each one's name just before it moves."""

    def before(view: str) -> None:
        begun.append(view)
        agent.faults.pass_by(f"{label} {view}")

    pool, pointers = agent.pool.connection(), [pointer_of(agent.layout, version) for version in versions]
    return pool.call(WRITE_CALL_S * max(1, len(pointers)), pool.tables.swap, pointers, before)
