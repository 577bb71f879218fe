"""The schemas of a table: of each version in the ledger, and of the files."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from core.changes.schema_compatibility import columns_in, columns_of, conflicts
from core.lineage.column_usage import reads_column, writes_null_without
from core.model.actions import Action, StepKind
from core.model.errors import LedgerUnavailable, UsageError
from core.model.names import TableName
from core.observed.versions import Deployment, StatementLine, serving_version
from core.plan.model import PlanNode
from core.project.model import Project, Settings, Table
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import revision_of
from core.project_reader.table_yml import read_settings
from core.run.model import StepState
from core.sql.statement import TableDdl
from core.text.wording import did_you_mean
from state.ledger import LedgerReader
from tui.presentation.reports.schema_history import (
    ALTERED,
    DELETED,
    NEVER_SERVED,
    REPLACED,
    SERVES,
    SchemaHistory,
    TableSchema,
)
from tui.services.plan_submission import plan_of_row

RUNS = 200
"""Maximum number of runs that are searched for columns that were altered in place."""


def schema_history(
    reader: LedgerReader | None, project: Project, table: TableName, parse_cache: ParseCache
) -> SchemaHistory:
    """Return the schemas of a table, from a ledger (None before the first start) and from the files.

    Raises UsageError if the table is neither deployed nor declared.
    """
    declared = project.tables.get(table)
    versions = tuple(reversed(reader.versions(table))) if reader is not None else ()
    if declared is None and not versions:
        remedy = did_you_mean(table, project.tables) or "headgate inventory lists all tables"
        raise UsageError(f"there is no table {table}", remedy=remedy)
    mode = project.compatibility(declared) if declared is not None else None
    if declared.external if declared is not None else versions[-1].external:
        return SchemaHistory(
            table, mode=mode, missing=f"{table} is external: others change its columns, and only its DDL is known"
        )
    if reader is None or not versions:
        return SchemaHistory(table, mode=mode, missing=f"{table} has no history: it was never deployed here")
    schemas, unreadable = list[TableSchema](), list[int]()
    for one in versions:
        found, complete = _schemas_of(reader, one, versions, declared, parse_cache)
        schemas += found
        unreadable += [] if complete else [one.version]
    serving = serving_version(versions)
    if declared is not None and serving is not None:
        now, then = columns_in(declared.parsed_ddl), parse_cache.ddl(serving.texts.ddl, "")[1]
        if then is None or columns_in(then) != now:
            schemas.append(TableSchema(0, columns_of(revision_of(declared))))
    schemas = [
        replace(each, named=_named(reader, table, each, schemas[at:], parse_cache)) for at, each in enumerate(schemas)
    ]
    return SchemaHistory(table, tuple(schemas), mode, unreadable=tuple(unreadable))


def _schemas_of(
    reader: LedgerReader,
    one: Deployment,
    versions: Sequence[Deployment],
    declared: Table | None,
    parse_cache: ParseCache,
) -> tuple[list[TableSchema], bool]:
    """Return the schemas of a version, oldest first, and whether every DDL can be parsed; any other has no schema."""
    altered = list(_alterations(reader, one))
    texts = [(altered[0][1].old.ddl, one.created_at)] if altered else []
    texts += [(node.texts.ddl, at) for at, node in altered]
    if not altered or altered[-1][1].texts.ddl != one.texts.ddl:
        texts.append((one.texts.ddl, altered[-1][0] if altered else one.created_at))
    parsed = [(ddl, at) for text, at in texts if (ddl := _ddl(text, parse_cache)) is not None]
    kept: list[tuple[TableDdl, float]] = []
    for ddl, at in parsed:
        if not kept or columns_in(kept[-1][0]) != columns_in(ddl):
            kept.append((ddl, at))
    found = [TableSchema(one.version, columns_in(ddl), at, ALTERED) for ddl, at in kept[:-1]]
    for ddl, at in kept[-1:]:
        readers = _readers(reader, one, declared)
        found.append(TableSchema(one.version, columns_in(ddl), at, _state(one, versions), readers))
    return found, len(parsed) == len(texts)


def _ddl(text: str, parse_cache: ParseCache) -> TableDdl | None:
    return parse_cache.ddl(text, "")[1]


def _alterations(reader: LedgerReader, one: Deployment) -> Iterator[tuple[float, PlanNode]]:
    """Yield when a version was altered in place, and the node of that plan, oldest first, as far as plans are kept."""
    for run in reversed(reader.runs_of(one.table, RUNS)):
        done = [
            step.ended_at
            for step in run.steps
            if (step.do, step.state, step.table, step.version)
            == (StepKind.ALTER, StepState.DONE, one.table, one.version)
        ]
        row = reader.plan(run.plan_hash) if done and done[0] is not None else None
        if row is None or done[0] is None:
            continue
        with suppress(LedgerUnavailable):
            for node in plan_of_row(row).nodes:
                if node.table == one.table and node.action is Action.RESTART:
                    yield done[0], node


def _state(one: Deployment, versions: Sequence[Deployment]) -> str:
    if one.deleted:
        return DELETED
    serving = serving_version(versions)
    if serving is not None and one.version == serving.version:
        return SERVES
    return NEVER_SERVED if one.served_at is None else REPLACED


def _readers(reader: LedgerReader, one: Deployment, declared: Table | None) -> tuple[str, ...]:
    bound = [f"{line.table}@v{line.version}" for line in _bound(reader, one.table, one.version)]
    outside = declared.settings.outside_readers if declared is not None and one.active else ()
    exposed = [f"{name} ({owner})" if owner else name for name, owner in outside]
    tickets = [
        ticket.reader
        for ticket in reader.unclosed_tickets()
        if not ticket.is_statement and ticket.old == f"{one.table}__v{one.version}"
    ]
    return tuple(sorted({*bound, *exposed, *tickets}))


def _bound(reader: LedgerReader, table: TableName, version: int) -> list[StatementLine]:
    return [
        line for line in reader.statements() if any(b.parent == table and b.version == version for b in line.bindings)
    ]


def _named(
    reader: LedgerReader, table: TableName, schema: TableSchema, later: Sequence[TableSchema], parse_cache: ParseCache
) -> frozenset[str]:
    """Return the columns that later schemas drop and that a reader of a schema may name.

    The SQL of a reader that is no statement is unknown, so it may name any.
    """
    found = (conflict for each in later for conflict in conflicts(schema.columns, each.columns))
    dropped = frozenset(conflict.top_column for conflict in found if conflict.for_its_readers_only)
    if not dropped or not schema.readers:
        return frozenset()
    bound = _bound(reader, table, schema.version)
    if len(schema.readers) > len(bound):
        return dropped
    statements = [reader.deployment(line.table, line.version) for line in bound]
    return frozenset(
        c for c in dropped for each in statements if each is None or _reads(reader, each, table, c, parse_cache)
    )


def _reads(reader: LedgerReader, one: Deployment, table: TableName, column: str, parse_cache: ParseCache) -> bool:
    parents = (reader.deployment(binding.parent, binding.version) for binding in one.bindings)
    ddls = {each.table: _ddl(each.texts.ddl, parse_cache) for each in parents if each is not None}
    columns = {name: ddl.columns for name, ddl in ddls.items() if ddl is not None}
    parsed = [each for each in parse_cache.statements(one.texts.dml, "")[0] if each.writes == one.table]
    written = _ddl(one.texts.ddl, parse_cache)
    settings = read_settings(one.texts.yml, f"{one.table}.yml", Settings(), [])
    return not parsed or any(
        reads_column(each, table, column, columns)
        and not (written and writes_null_without(column, each, table, columns, written=written, settings=settings))
        for each in parsed
    )
