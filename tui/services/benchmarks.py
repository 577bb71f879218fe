"""Benchmarks of a project: what is measured, and the child process that writes load and measures.

A benchmark runs in an ephemeral environment. Only samples are read from the environment on which that is based.
"""

import os
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.bench.replayed_load import event_column
from core.bench.request import BenchRequest, BenchSource, BenchStatement
from core.bench.watermark_waits import watermark_wait
from core.lag.faults import objective_s
from core.lineage.compared_columns import ComparedColumns, compared_columns
from core.model.errors import Refused, UsageError
from core.model.names import TableName, trigger_s
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.project.data_folder import absolute_data_folder
from core.project.ephemeral import PREFIX
from core.project.model import Project, Table
from core.project.naming import Naming
from core.project_reader.ephemeral_project import EphemeralProject
from core.project_reader.ephemeral_systems import as_stand_in, read_messages
from core.sql.kafka_topics import topic_place
from core.sql.lineage.model import ColumnOrigin
from core.sql.written_topics import with_topic_named
from core.statement_tests.case_writer import literals_in
from core.statement_tests.fixture_rows import columns_of
from core.text.wording import did_you_mean
from tui.agent_client.spark_side_process import SparkSideProcess
from tui.project_folder.git_objects import texts_differing_from
from tui.services.environment_service import EnvironmentService
from tui.services.ephemeral_environment import isolated_project
from tui.services.ephemeral_topics import topic_locations
from tui.services.statement_tests import refuse_problems

RUNNER = "pipelines.bench"

LOADABLE = ("json", "csv", "parquet", "delta")
"""Formats of external tables in files to which the benchmark can write rows."""

_UNREADABLE = frozenset({"timestampformat", "dateformat", "timestampntzformat", "compression", "charset", "encoding"})
"""Options of a source under which the rows that the benchmark writes would be read as something else."""

_UNWRITABLE = {
    "delta.columnmapping.mode": "none",
    "delta.enableincommittimestamps": "false",
    "delta.enablerowtracking": "false",
}
"""Properties of a Delta table, each with the value under which the commits of the benchmark are valid."""

END_S = 10.0


@dataclass(frozen=True, slots=True)
class BenchTables:
    """The tables of a benchmark."""

    measured: tuple[TableName, ...]
    """The chosen statements."""
    streamed: tuple[TableName, ...]
    """The external tables from which statements stream, sorted; without those that read messages of a statement."""
    static: tuple[TableName, ...]
    """The external tables that are only read as static sides, sorted."""
    stand_ins: tuple[TableName, ...] = ()
    """Those of both for which files stand, because their rows are in a database; sorted."""
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The topics that its environment has, by their brokers; sorted, and without the prefix that it gives them."""
    compared: ComparedColumns = field(default_factory=ComparedColumns)
    """How the statements compare the columns of external tables."""


def choose_tables(operations: EnvironmentService, words: Iterable[str], products: Iterable[str]) -> BenchTables:
    """Return the tables to measure; all statements if no table and no product is given.

    Raises UsageError for an unknown name, and Refused if a source cannot be written to.
    """
    declared = operations.projects.read_sound_tables().project
    words, products = tuple(words), tuple(products)
    known = sorted({table.product for table in declared.tables.values()})
    for product in products:
        if product not in known:
            raise UsageError(f"{product!r} is not a product", remedy=did_you_mean(product, known) or ", ".join(known))
    named = set(operations.selected(words, declared=True)) if words else set()
    for name in sorted(named - declared.tables.keys()):
        remedy = did_you_mean(name, declared.tables) or "headgate inventory lists all"
        raise UsageError(f"{name} is not declared", remedy=remedy)
    statements = {name for name, table in declared.tables.items() if not table.external}
    of_products = {name for name in statements if declared.tables[name].product in products}
    chosen = (named | of_products) & statements if words or products else statements
    if not chosen:
        raise UsageError("none of these tables has a statement", remedy="name a table that has one")
    upstream = _upstream(declared, chosen)
    _refuse_unknown_inputs(declared, upstream)
    streamed = _read(declared, upstream, streaming=True)
    static = _read(declared, upstream, streaming=False) - streamed
    for name in sorted(streamed | static):
        _refuse_source(declared.tables[name])
    own = isolated_project(operations, chosen)
    base = declared.environments[operations.place.environment].naming
    written = read_messages((declared.tables[name] for name in (*own.built, *streamed)), base)
    for name in sorted(written):
        if len(topic_place(declared.tables[name].parsed_ddl.location).topics) > 1:
            raise Refused(
                f"{name} reads several topics, of which {written[name]} writes one: no load is written to the others",
                remedy=f"leave out {written[name]}, or what reads {name}",
            )
    return BenchTables(
        tuple(sorted(chosen)),
        tuple(sorted(streamed - written.keys())),
        tuple(sorted(static)),
        stand_ins=own.stand_ins,
        topics=topics_by_brokers(own),
        compared=compared_columns(declared, upstream),
    )


def topics_by_brokers(project: EphemeralProject) -> dict[str, tuple[str, ...]]:
    """Return the topics of an isolated project, by brokers, without the prefix of their names; sorted."""
    topics: dict[str, set[str]] = {}
    for place in map(topic_place, topic_locations(project.topics)):
        topics.setdefault(place.servers, set()).update(each.removeprefix(f"{PREFIX}_") for each in place.topics)
    return {servers: tuple(sorted(names)) for servers, names in sorted(topics.items())}


def _upstream(project: Project, chosen: Iterable[TableName]) -> frozenset[TableName]:
    """Return tables and all statements upstream of them, and of those in the same folders."""
    found: set[TableName] = set()
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        table = project.tables.get(name)
        if table is None or table.parsed is None or name in found:
            continue
        found.add(name)
        waiting += [read.table for read in table.parsed.reads]
        waiting += [each.name for each in project.tables.values() if each.folder == table.folder]
    return frozenset(found)


def _read(project: Project, statements: Iterable[TableName], *, streaming: bool) -> set[TableName]:
    return {
        read.table
        for name in statements
        if (parsed := project.tables[name].parsed) is not None
        for read in parsed.reads
        if read.streaming == streaming and read.table in project.tables and project.tables[read.table].external
    }


def _refuse_unknown_inputs(project: Project, statements: Iterable[TableName]) -> None:
    for name in sorted(statements):
        parsed = project.tables[name].parsed
        for read in parsed.reads if parsed is not None else ():
            if read.table not in project.tables:
                raise Refused(
                    f"{name} reads {read.table}, whose files are missing or have errors",
                    remedy="headgate plan --all lists them",
                )


def _refuse_source(table: Table) -> None:
    format = table.parsed_ddl.format
    if not table_format(format).has_files:
        return
    if format not in LOADABLE:
        raise Refused(
            f"{table.name} is a source in {format}, to which a benchmark cannot write rows",
            remedy=f"leave out what reads it; topics, and files in {', '.join(LOADABLE)}, can be written",
        )
    for name, value in table.parsed_ddl.properties:
        if value.lower() != _UNWRITABLE.get(name.lower(), value.lower()):
            raise Refused(
                f"{table.name} has the property {name}, under which a benchmark cannot write rows",
                remedy="leave out what reads it",
            )
    given = sorted({name.lower() for name, _ in table.parsed_ddl.options} & _UNREADABLE)
    if given:
        raise Refused(
            f"{table.name} has the option {given[0]}, which a benchmark cannot write rows for",
            remedy="leave out what reads it",
        )


def bench_sources(
    operations: EnvironmentService,
    tables: Iterable[TableName],
    folders: Mapping[TableName, str],
    samples: Mapping[TableName, str],
    compared: ComparedColumns | None = None,
) -> tuple[BenchSource, ...]:
    """Return external tables as the child process needs them.

    `operations` is the environment from whose sources the sample is taken, unless `samples` has another file. No
    database is read, and no messages whose values are hidden. `folders` contains the folder to which rows of a table
    are written, or the location of its topics.
    """
    project = operations.projects.read_sound_tables().project
    environment = project.environments[operations.place.environment]
    declared = environment.sources.data or operations.place.data
    data = absolute_data_folder(operations.place.folder, declared, os.path.abspath)
    found = []
    for name in tables:
        table = project.tables[name]
        columns = columns_of(table)
        readers = [each.parsed for each in project.tables.values() if each.parsed is not None]
        own = [each for each in readers if any(read.table == name for read in each.reads)]
        marks = [read.watermark.column for each in own for read in each.reads if read.table == name and read.watermark]
        other = [read.watermark.column for each in readers for read in each.reads if read.watermark]
        literals = literals_in(each.select for each in own)
        format = table_format(table.parsed_ddl.format)
        stands_in = format.database or format.changes
        ddl = as_stand_in(table.parsed_ddl) if stands_in else table.parsed_ddl
        place = ddl.location if format.topics or not ddl.location else ddl.location_in(data)
        found.append(
            BenchSource(
                table=name,
                folder=folders.get(name, ""),
                format=ddl.format,
                columns=columns,
                options={key.lower(): value for key, value in ddl.options},
                sample=samples.get(name, "" if stands_in or table.settings.hides_payload else place),
                event_column=event_column(columns, [*marks, *other]),
                literals=tuple((column, equal, tuple(texts)) for (column, equal), texts in sorted(literals.items())),
                partitioning=ddl.partitioning if format.transaction_log else (),
                **_comparisons(name, columns, compared or ComparedColumns()),
                stands_in=stands_in,
            )
        )
    return tuple(found)


def _comparisons(table: TableName, columns: Iterable[tuple[str, str]], compared: ComparedColumns) -> dict[str, Any]:
    """Return the fields of `BenchSource` about columns that are compared with those of other sources."""
    at = {name: ColumnOrigin(table, name) for name, _ in columns}
    groups = {name: first for name, each in at.items() if (first := compared.joined.get(each)) is not None}
    return {
        "joined": tuple((name, f"{first.table}.{first.column}") for name, first in groups.items()),
        "ends": tuple(name for name, each in at.items() if each in compared.ends),
        "within": next((name for name, each in at.items() if each in compared.within), ""),
    }


def deployed_statements(operations: EnvironmentService) -> tuple[BenchStatement, ...]:
    """Return the statements that an environment runs, with the folders of their tables and checkpoints."""
    every = operations.reader.deployments()
    by_version = {(each.table, each.version): each for each in every}
    project = operations.project()
    naming = project.environments[operations.place.environment].naming
    writers = read_messages(project.tables.values(), naming)
    return tuple(
        _statement(each, project.tables[each.table], by_version, writers, naming)
        for each in every
        if each.active and not each.external and each.table in project.tables
    )


def _statement(
    deployment: Deployment,
    table: Table,
    by_version: Mapping[tuple[TableName, int], Deployment],
    writers: Mapping[TableName, TableName],
    naming: Naming,
) -> BenchStatement:
    assert table.parsed is not None, "it is not external"
    versions = {binding.parent: binding.version for binding in deployment.bindings if binding.streamed}
    sources = []
    for read in table.parsed.reads:
        if read.streaming:
            parent = by_version[(read.table, versions.get(read.table, 0))]
            # An external table lies in its folder itself, whatever its format.
            own = table_format(parent.stored_as).place_in(parent.folder)
            place = parent.folder if parent.external else own
            # Whoever reads a topic that a statement writes reads what that statement has written.
            sources.append((writers.get(read.table, read.table), place, parent.stored_as))
    format = table_format(deployment.format)
    topic = with_topic_named(table.parsed_ddl, naming.of).location if format.topics else ""
    return BenchStatement(
        table=deployment.table,
        place=topic or format.place_in(deployment.folder),
        format=deployment.format,
        checkpoint=deployment.checkpoint,
        sources=tuple(sources),
        trigger_s=trigger_s(deployment.trigger),
        objective_s=objective_s(table.settings.objective, deployment.trigger),
        waits=watermark_wait(table.parsed, appends=not table.settings.upserts),
    )


def run_child(request: BenchRequest, environ: Mapping[str, str]) -> Generator[dict[str, Any]]:
    """Yield the answers of a child process until it finishes. Raises HeadgateError if it fails.

    Closing the generator ends the child.
    """
    process = SparkSideProcess(RUNNER, environ=environ, task="measures", end_s=END_S)
    try:
        process.send(request.as_json())
        yield from process.answers()
    finally:
        process.end()


def texts_before(operations: EnvironmentService, since: str) -> tuple[dict[str, str], frozenset[TableName]]:
    """Return all texts of the project at a git reference, and the statements whose files differ from them.

    Raises UsageError if `since` is no git reference, and InvalidProject if a file that differs has an error.
    """
    declared = operations.projects.read_sound_tables()
    differing = texts_differing_from(operations.place.folder, since, declared.texts)
    mine = (each for each in declared.problems if each.where is not None and each.where.path in differing)
    refuse_problems(f"the files that differ from {since}", tuple(mine))
    old = {path: text for path, text in {**declared.texts, **differing}.items() if text is not None}
    changed = {
        name
        for name, table in declared.project.tables.items()
        if not table.external and any(path.startswith(f"{table.folder}/") for path in differing)
    }
    return old, frozenset(changed)
