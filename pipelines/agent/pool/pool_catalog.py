"""Fills the pool's catalog from the registry, first tables, then pointers, and removes them at the end.

Each request creates several entries, or finds that they exist. Entries for which such a request fails are then created
or compared individually. Entries that the catalog refuses are retried later and do not delay the others.
"""

import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from core.model.errors import Busy, EngineRefused, HeadgateError, PoolUnreachable, TryAgain
from core.model.names import TableName, query_name
from core.model.states import ALIVE, State, TableFaultKind
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.ports.spark import CatalogTable
from core.project.naming import OWN
from pipelines.agent.context import WRITE_CALL_S, AgentContext, AgentPool, PoolConnection
from pipelines.agent.statements.deployment_lifecycle import record_why_not_as_wanted, stop
from pipelines.agent.tables.external_inputs import refuse_input_not_there
from pipelines.agent.tables.table_identities import fault_of_sink, forget, pointer_of, register_again, tables_of
from pipelines.spark_connect.call_deadlines import in_threads

TOGETHER = 10
"""Number of tables or pointers per request.

The number is small, so that a request meets its deadline, and so that few entries must be created individually after a
failed request.
"""

Together = Callable[[Sequence[Deployment]], Set[tuple[TableName, int]]]
"""Performs an action on several versions in one request, and returns the versions for which it succeeded."""


def fill(
    at_once: int, deployments: Sequence[Deployment], together: Together, alone: Callable[[Deployment], None]
) -> None:
    """Call `together` on groups of versions, then `alone` on each version for which that failed.

    At most `at_once` calls run in parallel.
    """
    groups = [deployments[n : n + TOGETHER] for n in range(0, len(deployments), TOGETHER)]
    done = frozenset[tuple[TableName, int]]().union(*in_threads(at_once, together, groups))
    in_threads(at_once, alone, [each for each in deployments if (each.table, each.version) not in done])


def register_together(
    agent: AgentContext, pool: PoolConnection, deployments: Sequence[Deployment]
) -> Set[tuple[TableName, int]]:
    """Register existing tables that the catalog lacks, in one request; return the versions that are now registered.

    The result is empty if the catalog refuses the request.
    """
    found = {(each.table, each.version): _as_recorded(agent, each) for each in deployments}
    tables = [table for tables in found.values() for table in tables]
    try:
        made = pool.call(WRITE_CALL_S, pool.tables.create_together, tables)
    except EngineRefused:
        # The caller retries each version alone, which is then refused again or found to exist.
        return frozenset()
    return {version for version, tables in found.items() if tables and made.issuperset(table.name for table in tables)}


def point_together(
    agent: AgentContext, pool: PoolConnection, deployments: Sequence[Deployment]
) -> Set[tuple[TableName, int]]:
    """Create the pointers that the catalog lacks, in one request; return the versions whose pointers now exist.

    The result is empty if the catalog refuses the request.
    """
    pointers = {(each.table, each.version): pointer_of(agent.layout, each) for each in deployments}
    try:
        made = pool.call(WRITE_CALL_S, pool.tables.point_together, tuple(pointers.values()))
    except EngineRefused:
        return frozenset()
    return {version for version, (view, _, _) in pointers.items() if view in made}


def leave_server(
    agent: AgentContext, pool: AgentPool, deployments: Sequence[Deployment], *, purge: bool
) -> tuple[frozenset[tuple[TableName, int]], str]:
    """Stop an environment's queries on a server that the agent does not manage; return what stays there.

    With `purge`, also remove the names of its tables and pointers from the catalog; names of external tables that the
    environment shares with another one are kept. The result is the versions that may still run, and a sentence on what
    stays; it is empty if nothing does.
    """
    kept: dict[str, str] = {}
    running: set[tuple[TableName, int]] = set()

    def tried(name: str, act: Callable[[], object]) -> bool:
        try:
            act()
        except HeadgateError as error:
            kept[name] = error.summary
            return False
        return True

    def stop_one(each: Deployment) -> None:
        if not tried(query_name(each.table, each.version), lambda: stop(agent, each)):
            running.add((each.table, each.version))

    alive = (*ALIVE, State.UNKNOWN)
    statements = [each for each in deployments if not each.external and agent.pools.of(each) is pool]
    in_threads(TOGETHER, stop_one, [each for each in statements if each.state in alive])
    if purge and not running:
        in_threads(TOGETHER, lambda each: _release(agent, pool, each, tried), deployments)
    if not kept:
        return frozenset(), ""
    name, why = min(kept.items())
    more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    return frozenset(running), f"{name}{more} may still be on {pool.name}: {why}"


def _release(
    agent: AgentContext, of: AgentPool, each: Deployment, tried: Callable[[str, Callable[[], object]], bool]
) -> None:
    layout = agent.layout
    if each.writes_topic or (each.external and layout.environment.sources.of != OWN):
        return

    def unpoint() -> None:
        pool = of.connection_for_stops()
        pool.call(WRITE_CALL_S, pool.tables.unpoint, layout.pointer_name(each.table))

    if each.active and not each.external:
        tried(layout.pointer_name(each.table), unpoint)
    if table_format(each.format).has_files:
        name = layout.catalog_name(each.table, each.version)
        tried(name, lambda: forget(of.connection_for_stops(), layout, each))


def _as_recorded(agent: AgentContext, deployment: Deployment) -> tuple[CatalogTable, ...]:
    try:
        if not table_format(deployment.format).transaction_log:
            return tables_of(agent.layout, deployment)
        if deployment.external:
            refuse_input_not_there(agent, deployment)
        elif fault_of_sink(agent, deployment):
            return ()
        return tables_of(agent.layout, deployment, agent.files)
    except HeadgateError:
        return ()


log = logging.getLogger(__name__)

ACTS_AT_ONCE = 8
"""Number of parallel starts, stops or registrations: enough to keep a pool of two cores busy."""

REGISTER_EVERY_S = 10.0
"""Seconds between two attempts to register a table that the catalog has refused."""


_NOT_IN_CATALOG = TableFaultKind.NOT_IN_CATALOG


@dataclass(frozen=True, slots=True)
class Lacking:
    """The reason why a version's table may be missing from the pool's catalog."""

    summary: str
    """Summary of the error that occurred while the table was registered."""
    is_refused: bool
    """True if the catalog refused the table. False if the table may exist but could not be checked."""

    def __str__(self) -> str:
        said = "is not in the pool's catalog" if self.is_refused else "could not be checked"
        return f"which {said}: {self.summary}"


@dataclass(slots=True)
class PoolCatalog:
    """Fills the pool's catalog, and keeps track of the tables and pointers that are still missing from it."""

    agent: AgentContext
    pool: AgentPool
    _unregistered: dict[tuple[TableName, int], Lacking] = field(default_factory=dict)
    """Versions whose table the catalog may lack."""
    _unpointed: set[tuple[TableName, int]] = field(default_factory=set)
    """Versions whose pointer the catalog refused, or may lack after an interrupted swap."""
    _register_at: float = 0.0

    def lacking(self, version: tuple[TableName, int]) -> Lacking | None:
        """Return why a version's table may be missing from the catalog; None if the catalog has the table."""
        return self._unregistered.get(version)

    def restore(self, pool: PoolConnection) -> None:
        """Fill the pool's catalog from the registry: tables, then pointers. Existing entries are kept.

        If a table cannot be registered, the error is recorded, and the agent tries again later.
        """
        for database in self.agent.layout.databases:
            pool.call(WRITE_CALL_S, pool.tables.create_database, database)
        deployments = self.agent.ledger.deployments()
        self._unregistered.clear()
        self._unpointed.clear()
        fill(ACTS_AT_ONCE, deployments, partial(register_together, self.agent, pool), partial(self._register, pool))
        for deployment in deployments:
            if (deployment.table, deployment.version) not in self._unregistered:
                self._take_back(deployment)
        pointed = [deployment for deployment in deployments if self._has_pointer(deployment)]
        fill(ACTS_AT_ONCE, pointed, partial(point_together, self.agent, pool), partial(self._point, pool))
        self._register_at = self.agent.monotonic() + REGISTER_EVERY_S

    def _register(self, pool: PoolConnection, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        try:
            register_again(self.agent, pool, deployment)
        except PoolUnreachable:
            raise
        except TryAgain as error:
            # The table may be in the catalog and its query running, so no error is recorded, but nothing new is
            # started.
            lacking = Lacking(error.summary, is_refused=False)
            if self._unregistered.get(key) != lacking:
                log.warning("the table of %s, %s", query_name(*key), lacking)
            self._unregistered[key] = lacking
        except HeadgateError as error:
            self._unregistered[key] = Lacking(error.summary, is_refused=True)
            self._record(deployment, f"its table is not in the pool's catalog: {error.summary}", _NOT_IN_CATALOG)
        else:
            self._unregistered.pop(key, None)
            self._take_back(deployment)

    def _take_back(self, deployment: Deployment) -> None:
        if deployment.error_class == _NOT_IN_CATALOG and self._is_here(deployment):
            self.agent.ledger.observe_deployment(deployment, error="", error_class="")

    def _has_pointer(self, deployment: Deployment) -> bool:
        # While the identity is in doubt, an outdated ledger could point other users of the pool to an older version.
        leads = not deployment.external and not deployment.writes_topic
        served = deployment.active and leads and not self.agent.identity.doubt
        return served and (deployment.table, deployment.version) not in self._unregistered

    def _point(self, pool: PoolConnection, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        if not self._has_pointer(deployment):
            return
        try:
            pool.call(WRITE_CALL_S, pool.tables.point, *pointer_of(self.agent.layout, deployment))
        except EngineRefused as error:
            self._unpointed.add(key)
            self._record(deployment, f"its pointer is not in the pool's catalog: {error.summary}")
        else:
            self._unpointed.discard(key)

    def _record(self, deployment: Deployment, why: str, error_class: str = "") -> None:
        # A statement that runs in another pool is as wanted; only readers in this pool wait for its table.
        if self._is_here(deployment):
            record_why_not_as_wanted(self.agent, deployment, why, error_class=error_class)
        else:
            log.warning("%s, in the pool %s: %s", query_name(deployment.table, deployment.version), self.pool.name, why)

    def _is_here(self, deployment: Deployment) -> bool:
        return self.agent.pools.of(deployment) is self.pool

    def try_again(self, deployments: tuple[Deployment, ...]) -> None:
        """Retry tables and pointers that the catalog refused, and pointers that an interrupted swap may have moved."""
        uncertain = {
            (d.table, d.version) for d in deployments if d.active and d.table in self.pool.tables_with_uncertain_pointer
        }
        self.pool.tables_with_uncertain_pointer.difference_update(table for table, _ in uncertain)
        self._unpointed |= uncertain
        lacking = self._unpointed | self._unregistered.keys()
        if not lacking or self.agent.monotonic() < self._register_at:
            return
        self._register_at = self.agent.monotonic() + REGISTER_EVERY_S
        refused = [d for d in deployments if (d.table, d.version) in lacking]
        in_threads(ACTS_AT_ONCE, partial(self._register_once_more, self.pool.connection()), refused)

    def _register_once_more(self, pool: PoolConnection, deployment: Deployment) -> None:
        versions = [(found.table, found.version) for found in self.agent.ledger.versions(deployment.table)]
        try:
            with self.agent.locks.holding(*versions, by="the reconciler", wait_s=0):
                now = self.agent.ledger.deployment(deployment.table, deployment.version)
                if now is not None and not now.deleted:
                    self._register(pool, now)
                    self._point(pool, now)
        except Busy:
            return
