"""The tables of a version in the pool's catalog, and the pointer that serves it.

A version has a table, and a second one where rows from before its first were left as they were stored.
"""

from core.ports.spark import Pointer
from pipelines.agent.context import WRITE_CALL_S, PoolConnection
from pipelines.agent.deployment_compiler import EnvironmentLayout
from state.row_types import Deployment


def register(pool: PoolConnection, layout: EnvironmentLayout, deployment: Deployment, *, exists: bool = False) -> None:
    """Put the tables of a version into the catalog; what is there stays, and what `exists` has its own columns."""
    name = layout.catalog_name(deployment.table, deployment.version)
    pool.call(WRITE_CALL_S, pool.tables.create, name, deployment.compiled_ddl, exists=exists)
    if deployment.before_ddl:
        before = layout.before_name(deployment.table, deployment.version)
        pool.call(WRITE_CALL_S, pool.tables.create, before, deployment.before_ddl, exists=exists)


def forget(pool: PoolConnection, layout: EnvironmentLayout, deployment: Deployment) -> None:
    """Take the tables of a version out of the catalog; files stay."""
    pool.call(WRITE_CALL_S, pool.tables.forget, layout.catalog_name(deployment.table, deployment.version))
    if deployment.before_ddl:
        pool.call(WRITE_CALL_S, pool.tables.forget, layout.before_name(deployment.table, deployment.version))


def pointer_of(layout: EnvironmentLayout, deployment: Deployment) -> Pointer:
    """Return the pointer as it is while a version serves."""
    table, version = deployment.table, deployment.version
    before = (layout.before_name(table, version),) if deployment.before_ddl else ()
    return layout.pointer_name(table), (*before, layout.catalog_name(table, version)), deployment.columns
