"""The tables of a version in the pool's catalog, and the pointer that serves it.

A version has a table, and a second one where rows from before its first were left as they were stored.
"""

from core.observed.versions import Deployment
from core.ports.spark import CatalogTable, Pointer
from core.ports.storage import Checkpoints, VersionFolders
from pipelines.agent.context import WRITE_CALL_S, PoolConnection
from pipelines.agent.deployment_compiler import EnvironmentLayout, column_types


def tables_of(
    layout: EnvironmentLayout, deployment: Deployment, logs: Checkpoints | None = None
) -> tuple[CatalogTable, ...]:
    """Return the tables of a version as a catalog is to have them; with `logs` they exist, with the columns there.

    What others write counts as it is declared: in which columns it is another one each of its readers is told itself.
    """

    def table(name: str, ddl: str, folder: str) -> CatalogTable:
        columns = logs.columns(folder, deployment.format) if logs is not None else None
        if deployment.external and logs is not None:
            columns = dict(column_types(deployment.texts, deployment.table))
        return CatalogTable(name, ddl, exists=logs is not None, columns=columns)

    name = layout.catalog_name(deployment.table, deployment.version)
    found = table(name, deployment.compiled_ddl, deployment.folder)
    if not deployment.before_ddl:
        return (found,)
    before = VersionFolders(deployment.folder, deployment.checkpoint).before
    return found, table(layout.before_name(deployment.table, deployment.version), deployment.before_ddl, before)


def register(
    pool: PoolConnection, layout: EnvironmentLayout, deployment: Deployment, *, logs: Checkpoints | None = None
) -> None:
    """Put the tables of a version into the catalog, as `tables_of` has them; what is there stays."""
    for table in tables_of(layout, deployment, logs):
        pool.call(WRITE_CALL_S, pool.tables.create, table.name, table.ddl, exists=table.exists, columns=table.columns)


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
