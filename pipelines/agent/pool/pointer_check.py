"""Pointers as the catalog has them, compared with what serves by the ledger, a bounded number in each round.

A pointer that a call has moved after its deadline, or that somebody else has moved, is put right.
"""

import logging
from collections.abc import Iterable

from core.model.actions import StepKind
from core.model.errors import Busy, EngineRefused, LedgerUnavailable, PoolUnreachable, Refused, TryAgain
from core.model.events import EventKind
from core.model.names import TableName, physical_name
from core.observed.versions import Deployment
from core.ports.spark import Pointer
from pipelines.agent.context import WRITE_CALL_S, AgentContext
from pipelines.agent.tables.catalog_entries import pointer_of
from pipelines.agent.tables.table_identities import register_if_missing

log = logging.getLogger(__name__)

EVERY_S = 30.0
"""Between two rounds."""

TABLES = 100
"""Whose pointers are compared in one round: Spark takes a third of a second to show so many views (4.2.0)."""


class PointerCheck:
    """Compares pointers round by round, some tables at a time."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._from = TableName("")
        """The last table that was compared."""
        self._said: set[tuple[TableName, int]] = set()
        """Tables whose pointers were put right and that the catalog shows in another way, with what served then."""

    def round(self) -> None:
        """Put the pointers of the next tables right; in doubt nothing is pointed. A pointer that is held is left."""
        self._agent.identity.refuse_doubt()
        every: dict[TableName, list[Deployment]] = {}
        for deployment in self._agent.ledger.deployments(include_deleted=True):
            if not deployment.external:
                every.setdefault(deployment.table, []).append(deployment)
        after = sorted(table for table in every if table > self._from)[:TABLES]
        self._from = after[-1] if len(after) == TABLES else TableName("")
        found = {table: every[table] for table in after if (table, _serving(every[table])) not in self._said}
        standing = self._standing(version for versions in found.values() for version in versions)
        for table in (table for table, versions in found.items() if self._astray(versions, standing)):
            try:
                self._put_right(table)
            except Busy:
                continue
            except (PoolUnreachable, LedgerUnavailable):
                raise
            except (EngineRefused, Refused, TryAgain) as error:
                log.warning("the pointer of %s is not put right: %s", table, error.summary)

    def _put_right(self, table: TableName) -> None:
        """Look once more at a pointer that nobody can move meanwhile, and move or drop it."""
        agent, pool, view = self._agent, self._agent.pool.connection(), self._agent.layout.pointer_name(table)
        versions = agent.ledger.versions(table)
        with agent.locks.holding(*((d.table, d.version) for d in versions), by="a comparison of pointers", wait_s=0):
            versions = agent.ledger.versions(table)
            if self._is_being_deleted(table) or not self._astray(versions, self._standing(versions)):
                return
            serving = next((d for d in versions if d.active), None)
            if serving is None:
                pool.call(WRITE_CALL_S, pool.tables.unpoint, view)
            else:
                # A delete that failed halfway has taken its table out of the catalog.
                register_if_missing(agent, serving)
                pool.call(WRITE_CALL_S, pool.tables.point, *pointer_of(agent.layout, serving))
            if self._astray(versions, self._standing(versions)):
                self._said.add((table, _serving(versions)))
                return
            led = "its pointer was there, and nothing serves: it was dropped"
            if serving is not None:
                led = f"its pointer did not lead to {physical_name(table, serving.version)}: it was put right"
            agent.event(
                EventKind.STATE, led, about=(table, serving.version if serving is not None else versions[-1].version)
            )

    def _is_being_deleted(self, table: TableName) -> bool:
        """Return whether an open run deletes a table: it drops all pointers before the first table is gone."""
        steps = (step for run in self._agent.ledger.open_runs() for step in run.steps)
        return any((step.do, step.table) == (StepKind.UNPOINT, table) for step in steps)

    def _standing(self, versions: Iterable[Deployment]) -> frozenset[Pointer]:
        """Return the pointers that the catalog has, of those that versions may have."""
        pointers = tuple(pointer_of(self._agent.layout, version) for version in versions)
        pool = self._agent.pool.connection()
        return pool.call(WRITE_CALL_S, pool.tables.standing, pointers) if pointers else frozenset()

    def _astray(self, versions: Iterable[Deployment], standing: frozenset[Pointer]) -> bool:
        """Return whether a table's pointer leads elsewhere than to what serves, or is there where nothing does.

        Where nothing serves, a view of its name is its pointer only if it leads to a version of it.
        """
        pointers = {pointer_of(self._agent.layout, version): version.active for version in versions}
        serving = [pointer for pointer, active in pointers.items() if active]
        return not standing.issuperset(serving) if serving else not standing.isdisjoint(pointers)


def _serving(versions: Iterable[Deployment]) -> int:
    """Return which version of a table serves; 0 where none does."""
    return next((version.version for version in versions if version.active), 0)
