"""Statements whose streams keep the columns that they have read: how they start, and that they are started again.

Spark ends such a stream once at each change of columns, and says that it is to be started again (Delta 4.4.0).
"""

from core.model.table_formats import table_format
from core.sql.schema_tracking import tracking_options, with_stream_options
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import streamed_reads, tracks_schemas
from state.row_types import Deployment

COLUMNS_KEPT = "DELTA_STREAMING_METADATA_EVOLUTION"
"""Class of the error with which a stream ends once it has kept other columns."""


def select_of(world: AgentContext, deployment: Deployment) -> str:
    """Return the SELECT that is started: the compiled one, with a place below its checkpoint for what is kept.

    It is written at each start, because a version may go on from another checkpoint than its first.
    """
    if not tracks_schemas(deployment):
        return deployment.compiled
    versions = {binding.parent: binding.version for binding in deployment.bindings if binding.streamed}
    options = {}
    for ordinal, read in enumerate(streamed_reads(deployment)):
        parent = world.ledger.deployment(read.table, versions.get(read.table, 0))
        if parent is not None and table_format(parent.format).transaction_log:
            options[ordinal] = tracking_options(deployment.checkpoint, ordinal)
    return with_stream_options(deployment.compiled, options)


def goes_on(deployment: Deployment, error_class: str) -> bool:
    """Return whether a statement that ended has only kept other columns: its next start goes on over them."""
    return error_class == COLUMNS_KEPT and tracks_schemas(deployment)
