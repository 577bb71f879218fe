"""Moves pointers, the catalog views that lead to the serving versions, and periodically corrects wrong pointers.

A pointer is wrong if a delayed call or another program has moved it. Each round checks a limited number of pointers.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from core.model.actions import StepKind
from core.model.errors import Busy, EngineRefused, LedgerUnavailable, PoolUnreachable, Refused, TryAgain
from core.model.events import EventKind
from core.model.names import TableName, physical_name
from core.observed.versions import Deployment
from core.planner.pool_load import may_run
from core.ports.spark import Pointer
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext, AgentPool, PoolConnection
from pipelines.agent.tables.table_identities import pointer_of, register_if_missing

TRIES = 2


def move_forward(agent: AgentContext, targets: list[tuple[TableName, int]]) -> float:
    """Point each table to its new version, and return the duration in seconds.

    If the catalog refuses a pointer twice, all pointers are moved back to the versions that serve according to the
    ledger, and EngineRefused is raised. The error message states whether this succeeded.
    """
    found = {(d.table, d.version): d for d in agent.ledger.deployments()}
    new = [found[target] for target in targets if target in found and not found[target].writes_topic]
    tries = 0
    while True:
        begun: list[str] = []
        try:
            return _move(agent, new, begun, "swap")
        except EngineRefused as error:
            if not begun:
                # Everything that can refuse the first pointer was checked before.
                raise
            tries += 1
            log.warning("%s was not moved: %s", begun[-1], error.summary)
            if tries == TRIES:
                why = f"{begun[-1]} was refused {TRIES} times: {error.summary}; {move_back(agent, targets)}"
                raise EngineRefused(why, error_class=error.error_class, remedy=error.remedy) from error


def put_back(agent: AgentContext, tables: Iterable[TableName]) -> None:
    """Point tables to the versions that serve according to the ledger; drop the pointer if no version serves."""
    served = {d.table: d for d in agent.ledger.deployments() if d.active}
    tables = tuple(tables)
    pointed = (served[table] for table in tables if table in served)
    _move(agent, [version for version in pointed if not version.writes_topic], [], "swap back")
    for table in tables:
        if table not in served:
            agent.pools.in_every_catalog(partial(_unpoint, agent.layout.pointer_name(table)))


def _unpoint(pointer: str, pool: PoolConnection) -> None:
    pool.call(WRITE_CALL_S, pool.tables.unpoint, pointer)


def move_back(agent: AgentContext, targets: list[tuple[TableName, int]]) -> str:
    """Move pointers back to the versions that the ledger records as serving.

    Returns a description of the result, for an error message.
    """
    try:
        put_back(agent, (table for table, _ in targets))
    except EngineRefused as error:
        log.error("pointers are not back: %s", error.summary)
        return f"some pointers have moved and could not be moved back ({error.summary}): headgate runs retry moves all"
    return "no pointer has moved"


def _move(agent: AgentContext, versions: list[Deployment], begun: list[str], label: str) -> float:
    """Move pointers in every pool, and return the duration in seconds.

    Each pointer's name is appended to `begun` just before it moves. A pool that is down keeps all pointers where they
    are, unless it is a local one, whose catalog is filled from the registry when it starts, or one that is drained.
    """
    pointers = [pointer_of(agent.layout, version) for version in versions]
    pools = _awaited(agent, pointers)
    connections = [(pool, pool.connection()) for pool in pools]
    if agent.pools.are_several:
        for pool, connection in connections:
            _refuse_silent(pool, connection, pointers)
        # A local pool that starts during the swap may read the registry before the swap is recorded, and a drained one
        # answers later.
        for pool in agent.pools.every():
            if pool not in pools:
                pool.tables_with_uncertain_pointer.update(version.table for version in versions)
    took = 0.0
    for pool, connection in connections:

        def before(view: str, of: str = f" in {pool.name}" if agent.pools.are_several else "") -> None:
            begun.append(view)
            agent.faults.pass_by(f"{label} {view}{of}")

        took += connection.call(WRITE_CALL_S * max(1, len(pointers)), connection.tables.swap, pointers, before)
    return took


def _awaited(agent: AgentContext, pointers: Sequence[Pointer]) -> tuple[AgentPool, ...]:
    """Return the pools in which pointers move now: those with a catalog, except drained ones that do not answer.

    A lost pool would otherwise prevent every swap until headgate.yml no longer declares it.
    """
    pools = agent.pools.with_catalog()
    if not agent.pools.are_several:
        return pools
    cordoned = {row.name for row in agent.ledger.facts().pools if row.cordoned_at is not None}
    used = {agent.pools.of(each).name for each in agent.ledger.deployments() if not each.external and may_run(each)}
    owed = []
    for pool in pools:
        if pool.name in cordoned - used:
            try:
                _refuse_silent(pool, pool.connection(), pointers)
            except PoolUnreachable as error:
                log.warning("the pointers of the drained pool %s move when it answers: %s", pool.name, error.summary)
                owed.append(pool)
    return tuple(pool for pool in pools if pool not in owed) or pools


def _refuse_silent(pool: AgentPool, connection: PoolConnection, pointers: Sequence[Pointer]) -> None:
    """Raise PoolUnreachable if a pool does not answer, so that no pointer moves in the others."""
    try:
        connection.call(READ_CALL_S, connection.tables.existing_pointers, pointers)
    except PoolUnreachable as error:
        words = f"no pointer moves while the pool {pool.name} does not answer: {error.summary}"
        raise PoolUnreachable(words, remedy=f"headgate pool show {pool.name}") from error


log = logging.getLogger(__name__)

EVERY_S = 30.0
"""Seconds between two rounds of pointer checks."""

TABLES = 100
"""Tables checked per round: Spark takes a third of a second to list this many views (Spark 4.2.0)."""


class PointerCheck:
    """Compares the pointers of one pool with the serving versions in the ledger, some tables per round."""

    def __init__(self, agent: AgentContext, pool: AgentPool | None = None) -> None:
        """Check the pointers in a pool, which is the default pool if it is None."""
        self._agent = agent
        self._pool = pool or agent.pools.default
        self._from = TableName("")
        """The last table that was checked; empty if the next round begins with the first table."""
        self._given_up: set[tuple[TableName, int]] = set()
        """Tables, with their serving version, that are skipped because correcting their pointer had no effect."""

    def round(self) -> None:
        """Compare the pointers of the next tables with the ledger, and correct wrong pointers.

        Tables with locked versions are skipped.
        """
        self._agent.identity.refuse_doubt()
        every: dict[TableName, list[Deployment]] = {}
        for deployment in self._agent.ledger.deployments(include_deleted=True):
            if not deployment.external and not deployment.writes_topic:
                every.setdefault(deployment.table, []).append(deployment)
        after = sorted(table for table in every if table > self._from)[:TABLES]
        self._from = after[-1] if len(after) == TABLES else TableName("")
        found = {table: every[table] for table in after if (table, _serving(every[table])) not in self._given_up}
        existing = self._existing_pointers(version for versions in found.values() for version in versions)
        for table in (table for table, versions in found.items() if self._is_wrong(versions, existing)):
            try:
                self._repair(table)
            except Busy:
                continue
            except (PoolUnreachable, LedgerUnavailable):
                raise
            except (EngineRefused, Refused, TryAgain) as error:
                log.warning("the pointer of %s could not be corrected: %s", table, error.summary)

    def _repair(self, table: TableName) -> None:
        agent, pool, view = self._agent, self._pool.connection(), self._agent.layout.pointer_name(table)
        versions = agent.ledger.versions(table)
        with agent.locks.holding(*((d.table, d.version) for d in versions), by="a comparison of pointers", wait_s=0):
            versions = agent.ledger.versions(table)
            if self._is_being_deleted(table) or not self._is_wrong(versions, self._existing_pointers(versions)):
                return
            serving = next((d for d in versions if d.active), None)
            if serving is None:
                pool.call(WRITE_CALL_S, pool.tables.unpoint, view)
            else:
                # A delete that failed halfway may have removed its table from the catalog.
                register_if_missing(agent, pool, serving)
                pool.call(WRITE_CALL_S, pool.tables.point, *pointer_of(agent.layout, serving))
            if self._is_wrong(versions, self._existing_pointers(versions)):
                self._given_up.add((table, _serving(versions)))
                return
            where = f" in the pool {self._pool.name}" if agent.pools.are_several else ""
            led = f"its pointer{where} existed although no version serves: it was dropped"
            if serving is not None:
                led = f"its pointer{where} did not lead to {physical_name(table, serving.version)}: it was corrected"
            agent.event(
                EventKind.STATE, led, about=(table, serving.version if serving is not None else versions[-1].version)
            )

    def _is_being_deleted(self, table: TableName) -> bool:
        # A run that deletes a table drops the pointer before it deletes the versions.
        steps = (step for run in self._agent.ledger.open_runs() for step in run.steps)
        return any((step.do, step.table) == (StepKind.UNPOINT, table) for step in steps)

    def _existing_pointers(self, versions: Iterable[Deployment]) -> frozenset[Pointer]:
        pointers = tuple(pointer_of(self._agent.layout, version) for version in versions)
        pool = self._pool.connection()
        return pool.call(WRITE_CALL_S, pool.tables.existing_pointers, pointers) if pointers else frozenset()

    def _is_wrong(self, versions: Iterable[Deployment], existing: frozenset[Pointer]) -> bool:
        """True if a table's pointer does not lead to the serving version, or exists although no version serves.

        If no version serves, a view with the pointer's name is a pointer only if it leads to one of the versions.
        """
        pointers = {pointer_of(self._agent.layout, version): version.active for version in versions}
        serving = [pointer for pointer, active in pointers.items() if active]
        return not existing.issuperset(serving) if serving else not existing.isdisjoint(pointers)


def _serving(versions: Iterable[Deployment]) -> int:
    return next((version.version for version in versions if version.active), 0)
