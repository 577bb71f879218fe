"""Fills the pool's catalog from the registry: tables first, then pointers; refused ones are retried.

A refusal does not delay other entries. The catalog of a new server is filled with several tables or pointers per
request; entries that such a request leaves out are created one by one.
"""

import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from core.model.errors import Busy, EngineRefused, HeadgateError, PoolUnreachable, TryAgain
from core.model.names import TableName, query_name
from core.model.states import TableFaultKind
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.ports.spark import CatalogTable
from pipelines.agent.context import WRITE_CALL_S, AgentContext, PoolConnection
from pipelines.agent.statements.deployment_lifecycle import say_why
from pipelines.agent.tables.external_inputs import refuse_input_not_there
from pipelines.agent.tables.table_identities import fault_of_sink, pointer_of, register_again, tables_of
from pipelines.spark_connect.call_deadlines import in_threads

TOGETHER = 10
"""Number of tables or pointers per request: small enough that the request ends in time.

If the request is refused, little work is left.
"""

Together = Callable[[Sequence[Deployment]], Set[tuple[TableName, int]]]
"""Acts on several versions, and returns those that are done."""


def fill(
    at_once: int, deployments: Sequence[Deployment], together: Together, alone: Callable[[Deployment], None]
) -> None:
    """Act on groups of versions, then one by one on those that are left, with `at_once` actions in parallel."""
    groups = [deployments[n : n + TOGETHER] for n in range(0, len(deployments), TOGETHER)]
    done = frozenset[tuple[TableName, int]]().union(*in_threads(at_once, together, groups))
    in_threads(at_once, alone, [each for each in deployments if (each.table, each.version) not in done])


def register_together(
    agent: AgentContext, pool: PoolConnection, deployments: Sequence[Deployment]
) -> Set[tuple[TableName, int]]:
    """Register the existing tables that the catalog lacks in one request; returns the versions that are registered."""
    found = {(each.table, each.version): _as_recorded(agent, each) for each in deployments}
    tables = [table for tables in found.values() for table in tables]
    try:
        made = pool.call(WRITE_CALL_S, pool.tables.create_together, tables)
    except EngineRefused:
        # Each one is retried alone, and is refused again or found to exist.
        return frozenset()
    return {version for version, tables in found.items() if tables and made.issuperset(table.name for table in tables)}


def point_together(
    agent: AgentContext, pool: PoolConnection, deployments: Sequence[Deployment]
) -> Set[tuple[TableName, int]]:
    """Create the pointers that the catalog lacks in one request; returns the versions whose pointer was created."""
    pointers = {(each.table, each.version): pointer_of(agent.layout, each) for each in deployments}
    try:
        made = pool.call(WRITE_CALL_S, pool.tables.point_together, tuple(pointers.values()))
    except EngineRefused:
        return frozenset()
    return {version for version, (view, _, _) in pointers.items() if view in made}


def _as_recorded(agent: AgentContext, deployment: Deployment) -> tuple[CatalogTable, ...]:
    """Return a version's tables; empty if they are not the ones created for it, which `_register` then reports."""
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
"""Starts, stops or tables at one time: enough to keep a pool of two cores busy."""

REGISTER_EVERY_S = 10.0
"""Seconds between two attempts to register a table that the catalog has refused."""


_NOT_IN_CATALOG = TableFaultKind.NOT_IN_CATALOG


@dataclass(frozen=True, slots=True)
class Lacking:
    """Why the catalog may lack the table of a version."""

    summary: str
    """The summary of the error."""
    is_refused: bool
    """Whether the catalog refused the table; if False, the table could not be checked and may exist."""

    def __str__(self) -> str:
        said = "is not in the pool's catalog" if self.is_refused else "could not be checked"
        return f"which {said}: {self.summary}"


@dataclass(slots=True)
class PoolCatalog:
    """Fills the pool's catalog, and knows which tables and pointers are still missing from it."""

    agent: AgentContext
    _unregistered: dict[tuple[TableName, int], Lacking] = field(default_factory=dict)
    """Versions whose table the catalog may lack."""
    _unpointed: set[tuple[TableName, int]] = field(default_factory=set)
    """Versions whose pointer the catalog has refused."""
    _register_at: float = 0.0

    def lacking(self, version: tuple[TableName, int]) -> Lacking | None:
        """Return why the table of a version may be missing from the catalog; None if it is there."""
        return self._unregistered.get(version)

    def restore(self, pool: PoolConnection) -> None:
        """Fill the pool's catalog from the registry: tables, then pointers. Idempotent; existing entries stay.

        A refused table is recorded with its error and retried in later rounds.
        """
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
            # It may be in the catalog and run, so no error is recorded, but nothing is started over it.
            lacking = Lacking(error.summary, is_refused=False)
            if self._unregistered.get(key) != lacking:
                log.warning("the table of %s, %s", query_name(*key), lacking)
            self._unregistered[key] = lacking
        except HeadgateError as error:
            self._unregistered[key] = Lacking(error.summary, is_refused=True)
            said = f"its table is not in the pool's catalog: {error.summary}"
            say_why(self.agent, deployment, said, error_class=_NOT_IN_CATALOG)
        else:
            self._unregistered.pop(key, None)
            self._take_back(deployment)

    def _take_back(self, deployment: Deployment) -> None:
        """Clear the error of a version whose table the catalog has accepted in the meantime."""
        if deployment.error_class == _NOT_IN_CATALOG:
            self.agent.ledger.observe_deployment(deployment, error="", error_class="")

    def _has_pointer(self, deployment: Deployment) -> bool:
        # In doubt, an older ledger could point other users of the pool to an older version.
        served = deployment.active and not deployment.external and not self.agent.identity.doubt
        return served and (deployment.table, deployment.version) not in self._unregistered

    def _point(self, pool: PoolConnection, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        if not self._has_pointer(deployment):
            return
        try:
            pool.call(WRITE_CALL_S, pool.tables.point, *pointer_of(self.agent.layout, deployment))
        except EngineRefused as error:
            self._unpointed.add(key)
            say_why(self.agent, deployment, f"its pointer is not in the pool's catalog: {error.summary}")
        else:
            self._unpointed.discard(key)

    def try_again(self, deployments: tuple[Deployment, ...]) -> None:
        """Retry tables that the catalog has refused, and pointers that a swap left in an unknown state."""
        adrift = {(d.table, d.version) for d in deployments if d.active and d.table in self.agent.adrift}
        self.agent.adrift.difference_update(table for table, _ in adrift)
        self._unpointed |= adrift
        lacking = self._unpointed | self._unregistered.keys()
        if not lacking or self.agent.monotonic() < self._register_at:
            return
        self._register_at = self.agent.monotonic() + REGISTER_EVERY_S
        refused = [d for d in deployments if (d.table, d.version) in lacking]
        in_threads(ACTS_AT_ONCE, partial(self._register_once_more, self.agent.pool.connection()), refused)

    def _register_once_more(self, pool: PoolConnection, deployment: Deployment) -> None:
        """Retry one table, unless a version of it is locked: a swap moves the same pointer."""
        versions = [(found.table, found.version) for found in self.agent.ledger.versions(deployment.table)]
        try:
            with self.agent.locks.holding(*versions, by="the reconciler", wait_s=0):
                now = self.agent.ledger.deployment(deployment.table, deployment.version)
                if now is not None and not now.deleted:
                    self._register(pool, now)
                    self._point(pool, now)
        except Busy:
            return
