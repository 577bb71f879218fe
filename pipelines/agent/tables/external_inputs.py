"""External tables that statements read: tables with a transaction log, topics, and database tables or changes.

Headgate compares these tables with their declarations, and never creates or changes them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from core.lineage.column_usage import reads_column
from core.model.actions import Action
from core.model.errors import HeadgateError, Refused, TryAgain
from core.model.file_stores import StoreAbility, store_kind
from core.model.names import query_name
from core.model.states import TableFaultKind
from core.model.table_formats import table_format
from core.observed.seen_inputs import SeenTopics, folder_key, missing_folder, topics_key
from core.observed.versions import Deployment
from core.plan.model import Plan
from core.ports.storage import TableFault
from core.project.model import Project
from core.project.overlay import Overlay
from core.sql.avro_schemas import SchemasByPart
from core.sql.kafka_topics import avro_parts, registry_of
from core.sql.statement import absolute_location
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import hidden_except, parsed_ddl, parsed_statement, topic_of
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.declared_tables import fault_of_declaration, fault_of_topics, fault_where_missing, path_of
from pipelines.storage.change_slots import fault_of_changes
from pipelines.storage.kafka_messages import MESSAGE_COLUMNS, fault_of_columns, newest_messages
from pipelines.storage.postgres_tables import database_fault, rows_in_database
from pipelines.storage.schema_registry import AvroText, fault_of_schemas, note_unknown_schema, registered_schemas
from state.overlay_files import read_overlay

_BEGINS = frozenset({Action.START, Action.RESTART, Action.REBUILD})
"""Actions that register a table or start a statement with new SQL."""


_PATTERN = re.compile(r"[*?[{]")
"""Matches a path that Spark takes for a pattern of paths."""


def refuse_input_not_there(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused if an input has no log at its location, because Delta would create an empty table there."""
    _refuse(_fault_where_missing(agent, deployment))


def refuse_input_unlike(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused if an input is missing, or if its columns or properties differ from its declaration."""
    _refuse(fault_of_input(agent, deployment))


def fault_of_input(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    """Return how an input differs from its declared columns or properties, or None if it does not."""
    if deployment.external and (gone := _fault_where_inherited(agent, read_overlay(agent.places.home), deployment)):
        return replace(gone, why=f"{deployment.table} is {gone.why}")
    if table_format(deployment.format).topics:
        ddl = parsed_ddl(deployment)
        return fault_of_topics(agent.files, ddl) or fault_of_schemas(ddl, agent.places.home)
    if table_format(deployment.format).database:
        return database_fault(parsed_ddl(deployment))
    if table_format(deployment.format).changes:
        return fault_of_changes(parsed_ddl(deployment))
    about = (agent.files, parsed_ddl(deployment), deployment.folder, _file(deployment))
    return _fault_where_missing(agent, deployment) or fault_of_declaration(*about)


def schemas_of(agent: AgentContext, deployment: Deployment) -> SchemasByPart | None:
    """Return the registered schemas of an input's messages; None if the input has no schema registry.

    Raises the same errors as `registered_schemas`.
    """
    ddl = parsed_ddl(deployment) if table_format(deployment.format).topics else None
    return None if ddl is None or registry_of(ddl) is None else registered_schemas(ddl, agent.places.home)


def refuse_unlike_schemas(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused with all differences between the columns of topics and their newest schemas in the registry."""
    _refuse(fault_of_schemas(parsed_ddl(deployment), agent.places.home))


def sources_with_registry(agent: AgentContext, deployment: Deployment) -> list[Deployment]:
    """Return the topics with a schema registry that a statement reads."""
    bound = {binding.parent: None for binding in deployment.bindings if not binding.version}
    found = (agent.ledger.deployment(parent, 0) for parent in bound)
    topics = [each for each in found if each is not None and table_format(each.format).topics]
    return [each for each in topics if registry_of(parsed_ddl(each)) is not None]


def note_schema(agent: AgentContext, deployment: Deployment, schema: int) -> None:
    """Record the unknown schema of a message that ended a statement; the next start requests it from the registry."""
    for source in sources_with_registry(agent, deployment):
        note_unknown_schema(parsed_ddl(source), agent.places.home, schema)


def note_on_columns(deployment: Deployment) -> str:
    """Return a note on the declared columns that no message of a topic has.

    The note is empty if there are no such columns, or if no message can be read.
    """
    with suppress(HeadgateError):
        if table_format(deployment.format).topics and (fault := fault_of_columns(parsed_ddl(deployment))):
            return fault.sentence
    return ""


def _fault_where_missing(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    # The remedy for a registered input is different, because a plan cannot change its location.
    fault = fault_where_missing(agent.files, parsed_ddl(deployment), deployment.folder, _file(deployment))
    if fault is None or agent.ledger.deployment(deployment.table, 0) is None:
        return fault
    elsewhere = "if it was moved, declare the new location under a new name and move its readers there"
    return replace(fault, remedy=f"have its owner put it back: Headgate never creates external tables; {elsewhere}")


def refuse_unlike_inputs(agent: AgentContext, project: Project, plan: Plan) -> None:
    """Raise Refused if a plan registers or starts to read an input whose log or schemas differ from its declaration."""
    acting = [node for node in plan.nodes if node.action in _BEGINS]
    names = {node.table for node in acting} | {binding.parent for node in acting for binding in node.bindings}
    for table in (project.tables[name] for name in sorted(names) if name in project.tables):
        if table.external and table_format(table.parsed_ddl.format).transaction_log:
            about = (agent.files, table.parsed_ddl, agent.layout.external_location(table.parsed_ddl), table.ddl.file)
            _refuse(fault_where_missing(*about) or fault_of_declaration(*about))
        if table.external and table_format(table.parsed_ddl.format).topics:
            # If the registry is unreachable, cached copies of its schemas are used. A table without cached schemas is
            # refused when it is registered.
            with suppress(TryAgain):
                _refuse(fault_of_schemas(table.parsed_ddl, agent.places.home))


def look_for_inputs(agent: AgentContext, locations: Sequence[str], folders: Sequence[str], seconds: float) -> bool:
    """Record which topics exist at locations, and which declared folders, for the plans that follow.

    Returns False if plans cannot have changed. Takes at most `seconds` for topics and for folders each. Patterns and
    folders of other file systems are taken to exist.
    """
    found = _look_for_folders(agent, folders, seconds) if folders else False
    if locations:
        _look_for_topics(agent, locations, seconds)
    return found or bool(locations)


def _look_for_folders(agent: AgentContext, locations: Sequence[str], seconds: float) -> bool:
    data, known = agent.layout.sources_data or agent.layout.data, agent.ledger.spark_analyses()
    paths = {each: path_of(absolute_location(each, data)) for each in locations}
    local = {
        each: path
        for each, path in paths.items()
        if StoreAbility.READ in store_kind(path).abilities and not _PATTERN.search(path)
    }
    try:
        missing = call_deadlines.call(seconds, agent.files.missing_folders, tuple(local.values()))
    except call_deadlines.MissedDeadline:
        return False
    # What exists is recorded only where it was missing before: a project has thousands of folders.
    news = {each: path if path in missing else "" for each, path in local.items()}
    news = {each: path for each, path in news.items() if path != missing_folder(known, each)}
    for location, path in news.items():
        agent.ledger.put_spark_analysis(folder_key(location), path, at=agent.clock())
    return bool(news)


def _look_for_topics(agent: AgentContext, locations: Sequence[str], seconds: float) -> None:
    missing: Mapping[str, tuple[str, ...] | HeadgateError] = {}
    with suppress(call_deadlines.MissedDeadline):
        missing = call_deadlines.call(seconds, agent.files.missing_topics, locations)
    for location in locations:
        found = missing.get(location, TryAgain("its brokers do not answer in time"))
        seen = SeenTopics(unread=found.summary) if isinstance(found, HeadgateError) else SeenTopics(missing=found)
        agent.ledger.put_spark_analysis(topics_key(location), seen.as_text(), at=agent.clock())


def reads_inputs(agent: AgentContext, deployment: Deployment) -> bool:
    """True if a statement reads an external table with a transaction log."""
    return any(True for _ in _inputs(agent, deployment))


def _inputs(agent: AgentContext, deployment: Deployment) -> Iterator[Deployment]:
    for binding in deployment.bindings:
        source = None if binding.version else agent.ledger.deployment(binding.parent, 0)
        if source is not None and source.external and table_format(source.format).transaction_log:
            yield source


def fault_of_inputs(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    """Return why an input with a log is gone or lacks a column that the statement reads; None if all are intact."""
    for source in _inputs(agent, deployment):
        about = (agent.files, parsed_ddl(source), source.folder, _file(source))
        is_read = partial(_is_read, agent, deployment, source)
        if fault := _fault_where_missing(agent, source) or fault_of_declaration(*about, is_read=is_read):
            name = query_name(deployment.table, deployment.version)
            return replace(fault, why=f"{name} reads {source.table}: {fault.why}")
    return None


def _is_read(agent: AgentContext, deployment: Deployment, source: Deployment, column: str) -> bool:
    parents = (agent.ledger.deployment(binding.parent, binding.version) for binding in deployment.bindings)
    columns = {parent.table: parsed_ddl(parent).columns for parent in parents if parent is not None}
    return reads_column(parsed_statement(deployment), source.table, column, columns)


def fault_of_base(agent: AgentContext, deployment: Deployment) -> TableFault | None:
    """Return which version of its base an overlay's statement reads although it is gone; None if there is none."""
    overlay = read_overlay(agent.places.home)
    for binding in deployment.bindings if overlay is not None else ():
        source = None if binding.version else agent.ledger.deployment(binding.parent, 0)
        if source is not None and (fault := _fault_where_inherited(agent, overlay, source)):
            return replace(fault, why=f"{query_name(deployment.table, deployment.version)} reads {fault.why}")
    return None


def _fault_where_inherited(agent: AgentContext, overlay: Overlay | None, source: Deployment) -> TableFault | None:
    """Return that an external table, which is a version of an overlay's base, is gone; None if it is not."""
    version = overlay.inherited.get(source.table, 0) if overlay is not None else 0
    format = table_format(source.format)
    if overlay is None or not version or not format.has_files:
        return None
    folder = source.folder.removesuffix(f"/{format.subfolder}")
    # Without the folder of all tables, the disk of the base may not be mounted.
    if agent.files.has_owner(folder) or not agent.files.is_there(f"{overlay.base_data}/tables"):
        return None
    base, here = overlay.base, agent.layout.environment.name
    again = f"headgate down --env {here} --purge, then headgate up --env {here} --from {base}"
    return TableFault(
        TableFaultKind.GONE,
        f"{query_name(source.table, version)} of {base}, which is gone: it is no longer in {folder}",
        f"if {base} has deleted the table, headgate undelete {source.table} --env {base} brings it back; or create the "
        f"overlay again: {again}",
    )


def remedy_for_input(deployment: Deployment, kind: TableFaultKind) -> str:
    """Return what to do about a changed external input, which Headgate can neither rebuild nor restore."""
    if kind is TableFaultKind.GONE:
        return "have the owner of the table put it back: Headgate never creates external tables"
    rebuild = f"headgate plan {deployment.table} --rebuild reads what is there now"
    if kind is TableFaultKind.ROWS_CHANGED:
        return f"{rebuild}; with ('skipChangeCommits'='true') on its STREAM it skips such versions"
    return f"{rebuild}, or have the owner of the table put back what was there"


def _file(deployment: Deployment) -> str:
    return f"ddl.{deployment.table}.sql"


def read_from_outside(
    agent: AgentContext, deployment: Deployment, limit: int
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the columns and rows of a table without files: the newest messages of topics, or rows of a database table.

    The pool is not used, because its views exist only in the session that runs the statements. Raises Refused for a
    table of changes, which has no rows, and for a database table whose yml hides all columns.
    """
    hidden_but = hidden_except(deployment)
    if table_format(deployment.format).topics:
        ddl = topic_of(deployment, agent.layout) or parsed_ddl(deployment)
        decoded = AvroText(ddl, agent.places.home).decoded if avro_parts(ddl) else None
        rows = newest_messages(ddl.location, limit, decoded, hidden=hidden_but is not None)
        return MESSAGE_COLUMNS, [(*row[:3], _time_of(row[3]), *row[4:]) for row in rows]
    if table_format(deployment.format).changes:
        raise Refused(f"{deployment.table} has no rows: it is a stream", remedy="peek a table that is written from it")
    ddl = parsed_ddl(deployment)
    if hidden_but is not None:
        ddl = replace(ddl, columns=tuple(each for each in ddl.columns if each.name.lower() in hidden_but))
    if not ddl.columns:
        remedy = "name columns that may be shown in its yml, key: [id], and plan it"
        raise Refused(f"the yml of {deployment.table} hides its values", remedy=remedy)
    return tuple(column.name for column in ddl.columns), rows_in_database(ddl, limit)


def _time_of(epoch_ms: int) -> str | None:
    """Return the time of a message in UTC, as Spark shows it; None if it has no time, which Kafka reports as -1."""
    if epoch_ms < 0:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def _refuse(fault: TableFault | None) -> None:
    if fault is not None:
        raise fault.refused()
