"""Table identities and catalog entries: a table is registered only if it was created for its version.

A keyed version also has a table of deleted keys. If that table is missing, a batch would create an empty one; if it was
replaced, a batch would write to the replacement. In both cases, late rows would bring deleted keys back. The tables are
checked against the ledger before each start and while the statement runs. A version that inherits older rows in its
predecessor's format has a second table for them.
"""

import os
import re
from dataclasses import replace

from core.model.errors import EngineRefused, Refused
from core.model.names import physical_name, query_name
from core.model.states import State, TableFaultKind
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.ports.spark import CatalogTable, Pointer
from core.ports.storage import Checkpoints, TableFault, VersionFolders
from core.sql.statement import TableRead, selects_star
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext, PoolConnection
from pipelines.agent.deployment_compiler import (
    EnvironmentLayout,
    column_types,
    parsed_statement,
    streamed_reads,
    streamed_sources,
    topic_of,
    tracks_schemas,
    upsert_of,
)
from pipelines.agent.tables.external_inputs import (
    fault_of_base,
    fault_of_inputs,
    refuse_input_not_there,
    remedy_for_input,
    schemas_of,
    sources_with_registry,
)
from pipelines.storage.file_store import store_of


def tables_of(
    layout: EnvironmentLayout, deployment: Deployment, logs: Checkpoints | None = None
) -> tuple[CatalogTable, ...]:
    """Return the catalog entries of a version's tables; empty if the version writes to a topic.

    If the tables exist, pass `logs` to read their columns. An external table gets its declared columns; its actual
    columns are checked when a statement that reads it starts.
    """

    def table(name: str, ddl: str, folder: str) -> CatalogTable:
        columns = logs.columns(folder, deployment.format) if logs is not None else None
        if deployment.external and logs is not None:
            columns = dict(column_types(deployment.texts, deployment.table))
        return CatalogTable(name, ddl, exists=logs is not None, columns=columns)

    if deployment.writes_topic:
        return ()
    name = layout.catalog_name(deployment.table, deployment.version)
    found = table(name, deployment.compiled_ddl, deployment.folder)
    if not deployment.before_ddl:
        return (found,)
    before = VersionFolders(deployment.folder, deployment.checkpoint).before
    return found, table(layout.before_name(deployment.table, deployment.version), deployment.before_ddl, before)


def register(
    agent: AgentContext, pool: PoolConnection, deployment: Deployment, *, logs: Checkpoints | None = None
) -> None:
    """Register a version's tables, as returned by `tables_of`, in the catalog.

    Existing entries are kept, except entries of tables without files, which are replaced. Raises the errors of
    `registered_schemas` for a table over topics with a schema registry.
    """
    if (schemas := schemas_of(agent, deployment)) is not None:
        name = agent.layout.catalog_name(deployment.table, deployment.version)
        pool.call(WRITE_CALL_S, pool.tables.create_over_avro, name, deployment.compiled_ddl, schemas)
        return
    for table in tables_of(agent.layout, deployment, logs):
        pool.call(WRITE_CALL_S, pool.tables.create, table.name, table.ddl, exists=table.exists, columns=table.columns)


def forget(pool: PoolConnection, layout: EnvironmentLayout, deployment: Deployment) -> None:
    """Remove a version's tables from the catalog, but keep their files."""
    pool.call(WRITE_CALL_S, pool.tables.forget, layout.catalog_name(deployment.table, deployment.version))
    if deployment.before_ddl:
        pool.call(WRITE_CALL_S, pool.tables.forget, layout.before_name(deployment.table, deployment.version))


def pointer_of(layout: EnvironmentLayout, deployment: Deployment) -> Pointer:
    """Return the pointer to a version. It exists in the catalog while the version serves."""
    table, version = deployment.table, deployment.version
    before = (layout.before_name(table, version),) if deployment.before_ddl else ()
    return layout.pointer_name(table), (*before, layout.catalog_name(table, version)), deployment.columns


_BY_HAND = "it was renamed or dropped by hand, and a new name can be taken back"
_TAKE_CHANGES = frozenset({"skipchangecommits", "ignorechanges", "ignoredeletes", "readchangefeed"})
"""Options that let a Delta stream continue after rows of its table were changed or deleted."""


class NotInCatalog(Refused):
    """Raised if the catalog lacks a table and refuses to register it, or could not be queried."""


def register_again(agent: AgentContext, pool: PoolConnection, deployment: Deployment) -> None:
    """Register a version's existing table in the pool's catalog.

    Raises Refused if the table's log is gone or belongs to another table. Without a log, Delta would silently create an
    empty table in its place (Delta 4.4.0).
    """
    if not table_format(deployment.format).transaction_log:
        register(agent, pool, deployment)
        return
    if deployment.external:
        refuse_input_not_there(agent, deployment)
    elif fault := fault_of_sink(agent, deployment):
        raise Refused(fault.why, remedy=f"headgate plan {deployment.table} --rebuild")
    register(agent, pool, deployment, logs=agent.files)


def register_new_schemas(agent: AgentContext, deployment: Deployment) -> None:
    """Register a statement's topics again if they have a schema registry, because it may have new schemas.

    Call this before each start: a query never learns a schema that its table did not have when it was started. Raises
    NotInCatalog if the catalog refuses the table, and the errors of `registered_schemas`.
    """
    for source in sources_with_registry(agent, deployment):
        try:
            register(agent, agent.pools.of(deployment).connection(), source)
        except EngineRefused as error:
            raise NotInCatalog(
                f"the pool's catalog refuses {source.table}: {error.summary}", remedy=error.remedy
            ) from error


def register_if_missing(agent: AgentContext, pool: PoolConnection, deployment: Deployment) -> None:
    """Register the tables of a version that the catalog of a pool lacks.

    Raises Refused if a table does not belong to the version, and NotInCatalog if the catalog refuses it. Call this
    before each start: if the name passed to `toTable` is missing, Spark 4.2.0 creates a table in its warehouse and
    writes there.
    """
    refuse_missing_topic(agent, deployment)
    name = agent.layout.catalog_name(deployment.table, deployment.version)
    said = f"the pool's catalog does not say whether it has {name}"
    try:
        if all(pool.call(READ_CALL_S, pool.tables.has, table.name) for table in tables_of(agent.layout, deployment)):
            return
        said = f"{name} is not in the pool's catalog, which refuses it"
        register_again(agent, pool, deployment)
    except EngineRefused as error:
        raise NotInCatalog(
            f"{said}: {error.summary}",
            remedy=error.remedy or f"headgate start {deployment.table} once that is repaired",
        ) from error


def refuse_missing_topic(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused if a version's output topic does not exist, because Kafka might create it with default settings."""
    topic = topic_of(deployment, agent.layout)
    if topic is not None and (fault := agent.files.source_fault("", ((0, topic.table, topic.location, topic.format),))):
        raise Refused(f"{deployment.table} {fault[1].why}", remedy="create it: Headgate creates and changes no topics")


def refuse_other_tables(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused if a start would write to, or continue reading, a different table than before."""
    if fault := fault_of_tables(agent, deployment):
        raise fault.refused()


def fault_of_tables(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    """Return why a start would write to, or continue reading, a different table than before; None if it would not.

    Spark compares the ids of the tables that it reads, but not of the table that it writes, so earlier rows would be
    lost silently. A column that a streamed table has lost is reported last, because with `schema_tracking` a plan can
    continue despite it.
    """
    if deployment.external:
        return None
    if fault := fault_of_sink(agent, deployment) or fault_of_deleted_keys(agent, deployment):
        return replace(fault, remedy=_remedy(deployment))
    lost_column: TableFault | None = None
    for find in (fault_of_base, _fault_of_source, fault_of_inputs, _fault_of_static_side):
        fault = find(agent, deployment)
        if fault is not None and fault.kind is not TableFaultKind.STREAM_COLUMNS_CHANGED:
            return fault
        lost_column = lost_column or fault
    return lost_column


def refuse_gone(agent: AgentContext, deployment: Deployment, because: Exception | None = None) -> None:
    """Raise Refused if a version's table is gone.

    `because` is the error of the query that failed on it, or None if no query failed.
    """
    if deployment.external:
        if table_format(deployment.format).transaction_log:
            refuse_input_not_there(agent, deployment)
    elif agent.files.contents(deployment.folder, deployment.format) is None:
        name = query_name(deployment.table, deployment.version)
        summary = f"the table of {name} is gone: {_gone_words(deployment.folder)}"
        raise Refused(summary, remedy=_remedy(deployment)) from because


def fault_of_folder(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    """Return the fault if the folder of a version's table is gone, or None if the folder exists.

    Also returns None if the parent folder is missing, because the disk may simply not be mounted.
    """
    if agent.files.is_there(deployment.folder) or not agent.files.is_there(os.path.dirname(deployment.folder)):
        return None
    name = query_name(deployment.table, deployment.version)
    why = f"the table of {name} is gone: there is no folder {deployment.folder}"
    return TableFault(TableFaultKind.GONE, why, _remedy(deployment))


def fault_of_sink(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    """Return why a version's table is damaged or not the one created for it, or None if it is intact."""
    if not table_format(deployment.format).transaction_log:
        return None
    name = query_name(deployment.table, deployment.version)
    found = agent.files.identity(deployment.folder, deployment.format)
    if not found:
        return TableFault(TableFaultKind.GONE, f"the table of {name} is gone: {_gone_words(deployment.folder)}")
    if deployment.table_id and found != deployment.table_id:
        why = f"the table of {name} was re-created: its id is {found} and was {deployment.table_id}"
        return TableFault(TableFaultKind.REPLACED, why)
    if lost := _lost_columns(agent, deployment):
        why = f"the table of {name} has no column {', '.join(lost)} any more: {_BY_HAND}"
        return TableFault(TableFaultKind.COLUMNS_CHANGED, why)
    before = VersionFolders(deployment.folder, deployment.checkpoint).before
    if deployment.before_ddl and not agent.files.identity(before, deployment.format):
        why = f"the table of the rows from before {name} is gone: {_gone_words(before)}"
        return TableFault(TableFaultKind.GONE, why)
    return None


def _lost_columns(agent: AgentContext, deployment: Deployment) -> list[str]:
    there = agent.files.columns(deployment.folder, deployment.stored_as)
    names = {column.lower() for column in there or deployment.columns}
    return [column for column in deployment.columns if column.lower() not in names]


def _fault_of_static_side(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    for binding in deployment.bindings:
        side = None if binding.streamed else agent.ledger.deployment(binding.parent, binding.version)
        if side is None or side.external or not (lost := _lost_columns(agent, side)):
            continue
        parsed = parsed_statement(deployment)
        read = [
            each for each in lost if selects_star(parsed) or re.search(rf"\b{re.escape(each)}\b", parsed.select, re.I)
        ]
        if read:
            about = f"{physical_name(binding.parent, binding.version)}, a static side of"
            name = query_name(deployment.table, deployment.version)
            why = f"{about} {name}, has no column {', '.join(read)} any more: {_BY_HAND}"
            return TableFault(TableFaultKind.COLUMNS_CHANGED, why, _remedy(deployment))
    return None


def _gone_words(folder: str) -> str:
    return f"{folder} has no log" if store_of(folder).is_folder(folder) else f"there is no folder {folder}"


def _remedy(deployment: Deployment) -> str:
    return f"headgate plan {deployment.table} --rebuild, or restore its folder from a backup"


def takes_changes(read: TableRead) -> bool:
    """True if a stream's options let it continue after rows of its table were changed or deleted."""
    return not _TAKE_CHANGES.isdisjoint(key.lower() for key, _ in read.options)


def _fault_of_source(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    parents = {}
    for binding in deployment.bindings:
        if binding.streamed and (parent := agent.ledger.deployment(binding.parent, binding.version)) is not None:
            parents[binding.parent, binding.version] = parent
    formats = [table_format(parent.format) for parent in parents.values()]
    if not any(format.transaction_log or format.topics or format.changes for format in formats):
        return None
    reads = streamed_reads(deployment)
    sources = streamed_sources(deployment, reads, parents)
    take_changes = frozenset(n for n, read in enumerate(reads) if takes_changes(read))
    other = agent.files.source_fault(
        deployment.checkpoint,
        sources,
        take_changes=take_changes,
        tracked=tracks_schemas(deployment),
        running=deployment.state in (State.RUNNING, State.DEGRADED),
    )
    if other is None:
        return None
    table, fault = other
    version = next((version for parent, version in parents if parent == table), 0)
    name = query_name(deployment.table, deployment.version)
    if not version:
        remedy = fault.remedy or remedy_for_input(deployment, fault.kind)
        return replace(fault, why=f"{table}, which {name} reads, {fault.why}", remedy=remedy)
    why = f"{physical_name(table, version)}, which {name} reads, {fault.why}"
    return replace(fault, why=why, remedy=_remedy(deployment))


def deleted_keys_of(deployment: Deployment) -> str:
    """Return the location of a version's table of deleted keys; empty if the version has none.

    The version's first batch creates the table.
    """
    upsert = upsert_of(deployment) if "deletes:" in deployment.texts.yml else None
    return upsert.deleted if upsert is not None and upsert.deletes and upsert.sequence else ""


def fault_of_deleted_keys(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    """Return why a version's table of deleted keys is gone, replaced or an older copy, or None if it is intact.

    If the ledger does not record the table's identity, any existing table is accepted.
    """
    if not (place := deleted_keys_of(deployment)):
        return None
    what = f"the table of the keys that were deleted from {query_name(deployment.table, deployment.version)}"
    checkpoint = agent.files.read(deployment.checkpoint)
    if not agent.files.is_there(f"{place}/_delta_log"):
        begun = checkpoint is not None and checkpoint.batch is not None
        return TableFault(TableFaultKind.GONE, f"{what} is gone: there is no log in {place}") if begun else None
    known = deployment.deleted_keys_version
    found = agent.files.log_mark(place, known)
    if found is None or not deployment.deleted_keys_id:
        return None
    risk = "late rows would bring those keys back"
    if found.id != deployment.deleted_keys_id:
        why = f"{what} was re-created: its id is {found.id} and was {deployment.deleted_keys_id}, and {risk}"
        return TableFault(TableFaultKind.REPLACED, why)
    planned = checkpoint.planned if checkpoint is not None else None
    if known is None or planned is None or planned < (deployment.deleted_keys_batch or 0):
        # With an older checkpoint, an older table is legitimate.
        return None
    if found.version < known:
        why = f"{what} is an older copy: it ends with version {found.version} and had version {known}, and {risk}"
        return TableFault(TableFaultKind.REPLACED, why)
    if found.commit and found.commit != deployment.deleted_keys_commit:
        why = f"{what} is an older copy that was written on: its version {known} is another one than it had, and {risk}"
        return TableFault(TableFaultKind.REPLACED, why)
    return None


def keep_deleted_keys(agent: AgentContext, deployment: Deployment) -> None:
    """Record the identity and latest version of the table of deleted keys, which the caller has just checked."""
    place = deleted_keys_of(deployment)
    found = agent.files.log_mark(place) if place else None
    # The checkpoint is read after the table, because a batch is planned before it writes.
    checkpoint = agent.files.read(deployment.checkpoint) if found is not None else None
    if found is None or checkpoint is None or checkpoint.planned is None:
        return
    mark = (found.id, found.version, found.commit)
    before = (deployment.deleted_keys_id, deployment.deleted_keys_version, deployment.deleted_keys_commit)
    if mark != before or checkpoint.planned < (deployment.deleted_keys_batch or 0):
        agent.ledger.update_deployment(
            deployment.table,
            deployment.version,
            deleted_keys_id=found.id,
            deleted_keys_version=found.version,
            deleted_keys_commit=found.commit,
            deleted_keys_batch=checkpoint.planned,
        )
