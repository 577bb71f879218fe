"""The catalog of a server that has just begun: several tables, or pointers, in a request, then what is left, alone."""

from collections.abc import Callable, Sequence, Set

from core.model.errors import EngineRefused, HeadgateError
from core.model.names import TableName
from core.model.table_formats import table_format
from core.ports.spark import CatalogTable
from pipelines.agent.bounded_threads import in_threads
from pipelines.agent.context import WRITE_CALL_S, AgentContext, PoolConnection
from pipelines.agent.inputs_with_logs import refuse_input_not_there
from pipelines.agent.table_identities import why_other_sink
from pipelines.agent.version_tables import pointer_of, tables_of
from state.row_types import Deployment

TOGETHER = 10
"""In one request: few enough that a refused one leaves few to be looked at alone, and that it ends well in time."""

Together = Callable[[Sequence[Deployment]], Set[tuple[TableName, int]]]
"""Acts on several versions, and returns those that it has left nothing to do for."""


def fill(
    at_once: int, deployments: Sequence[Deployment], together: Together, alone: Callable[[Deployment], None]
) -> None:
    """Act on versions together, and alone on those that this leaves, so many acts at once."""
    groups = [deployments[n : n + TOGETHER] for n in range(0, len(deployments), TOGETHER)]
    done = frozenset[tuple[TableName, int]]().union(*in_threads(at_once, together, groups))
    in_threads(at_once, alone, [each for each in deployments if (each.table, each.version) not in done])


def register_together(
    world: AgentContext, pool: PoolConnection, deployments: Sequence[Deployment]
) -> Set[tuple[TableName, int]]:
    """Put the tables of versions, which were made before, into a catalog that lacks them; return whose are there."""
    found = {(each.table, each.version): _as_recorded(world, each) for each in deployments}
    tables = [table for tables in found.values() for table in tables]
    try:
        made = pool.call(WRITE_CALL_S, pool.tables.create_together, tables)
    except EngineRefused:
        # Each alone is refused once more, or is found to be there.
        return frozenset()
    return {version for version, tables in found.items() if tables and made.issuperset(table.name for table in tables)}


def point_together(
    world: AgentContext, pool: PoolConnection, deployments: Sequence[Deployment]
) -> Set[tuple[TableName, int]]:
    """Point the views of versions that a catalog lacks, and return whose are there."""
    pointers = {(each.table, each.version): pointer_of(world.layout, each) for each in deployments}
    try:
        made = pool.call(WRITE_CALL_S, pool.tables.point_together, tuple(pointers.values()))
    except EngineRefused:
        return frozenset()
    return {version for version, (view, _, _) in pointers.items() if view in made}


def _as_recorded(world: AgentContext, deployment: Deployment) -> tuple[CatalogTable, ...]:
    """Return a version's tables; none where they are not what was made, which is said of each alone."""
    try:
        if not table_format(deployment.format).transaction_log:
            return tables_of(world.layout, deployment)
        if deployment.external:
            refuse_input_not_there(world, deployment)
        elif why_other_sink(world, deployment):
            return ()
        return tables_of(world.layout, deployment, world.files)
    except HeadgateError:
        return ()
