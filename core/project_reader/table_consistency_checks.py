"""Checks that the tables of a project are consistent with each other; all findings are reported in one pass."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from core.lineage.table_graph import cycles
from core.model.names import TableName
from core.model.problems import Problem, Severity, Where
from core.model.table_formats import EXTERNAL_INPUTS, WRITTEN, TableFormat, table_format
from core.project.connectors import DELTA
from core.project.model import Table, writers_by_topic
from core.project_reader.location_checks import check_location
from core.sql.metadata_columns import METADATA_NAMES
from core.sql.statement import Column, TableDdl, TableRead, line_of
from core.text.sentence import Fact
from core.text.wording import counted, did_you_mean

MissingInInputs = Callable[[Table, Sequence[str]], list[Problem]]
"""Function that returns a Problem for each given column that a statement reads but that none of its inputs has."""


def check_tables(
    tables: Mapping[TableName, Table],
    declared: Set[TableName],
    views: Mapping[TableName, str],
    problems: list[Problem],
    *,
    unreadable: Set[TableName],
    missing_in_inputs: MissingInInputs,
    connectors: Set[str] = frozenset(),
    jars_known: bool = True,
) -> None:
    """Check the sink, columns and reads of every table.

    The tables in `unreadable` seem to be external only because their statements could not be read; their sinks are not
    checked. `connectors` are the connectors declared in headgate.yml; if `jars_known` is False, pools may have jars of
    other connectors.
    """
    for table in tables.values():
        if table.name not in unreadable:
            _check_sink(table, problems)
            _check_connector(table, connectors, problems)
            if table.external:
                check_location(table, connectors, problems, jars_known=jars_known)
        if table.parsed is not None:
            _check_columns(table, missing_in_inputs, problems)
            _check_reads(table, tables, declared, views, problems)


def _check_sink(table: Table, problems: list[Problem]) -> None:
    ddl, where = table.parsed_ddl, Where(table.ddl.path, table.parsed_ddl.line)
    format = table_format(ddl.format)
    if table.external:
        if wrong := _wrong_input(table, format):
            problems.append(Problem(f"{table.name} {wrong[0]}", wrong[1], where, table.name))
        return
    if not format.written:
        problems.append(
            Problem(
                f"{table.name} is {ddl.format or 'without a format'}, which this version cannot write",
                f"write USING {' or '.join(WRITTEN)}",
                where,
                table.name,
            )
        )
    if format.topics:
        from core.sql.written_topics import sink_fault

        if (fault := sink_fault(ddl)) is not None:
            problems.append(Problem(f"{table.name} {fault}", str(fault.remedy), where, table.name))
    elif ddl.location:
        problems.append(
            Problem(
                f"{table.name} is written by a statement and has a LOCATION",
                "remove LOCATION: the environment determines where managed tables are stored",
                where,
                table.name,
            )
        )


def _wrong_input(table: Table, format: TableFormat) -> tuple[str, str] | None:
    """Return summary and remedy of a mistake in an external table's format or options; None if there is no mistake."""
    ddl = table.parsed_ddl
    if not format.external_input:
        formats = f"formats for external input: {', '.join(EXTERNAL_INPUTS)}"
        return f"is {ddl.format or 'without a format'}, which this version cannot read", formats
    if not format.has_files and (fault := _wrong_source(ddl, format)) is not None:
        return str(fault), str(fault.remedy)
    if not ddl.location:
        remedy = f"add LOCATION if it is an external input, or add dml.{table.name}.sql, or a manifest"
        return "has no statement and no LOCATION", remedy
    return None


def _wrong_source(ddl: TableDdl, format: TableFormat) -> Fact[Any] | None:
    if format.topics:
        from core.sql.kafka_topics import topic_fault

        return topic_fault(ddl)
    if format.database:
        from core.sql.jdbc_tables import jdbc_fault

        return jdbc_fault(ddl)
    from core.sql.postgres_changes import changes_fault

    return changes_fault(ddl)


def _check_connector(table: Table, connectors: Set[str], problems: list[Problem]) -> None:
    format = table_format(table.parsed_ddl.format)
    if DELTA.name not in connectors and format.database and _is_copied(table.parsed_ddl):
        problems.append(
            Problem(
                f"{table.name} has refresh, and headgate.yml names no connector delta for the copy of its rows",
                "add delta: {} to connectors in headgate.yml, or remove refresh: each batch then reads the database",
                Where(table.ddl.path, table.parsed_ddl.line),
                table.name,
            )
        )
    needed = format.connector
    if needed and needed not in connectors:
        problems.append(
            Problem(
                f"{table.name} is {table.parsed_ddl.format}, and headgate.yml names no connector {needed}",
                f"add connectors: {{{needed}: {{}}}} to headgate.yml; its jars are fetched when the pool starts next",
                Where(table.ddl.path, table.parsed_ddl.line),
                table.name,
            )
        )


def _is_copied(ddl: TableDdl) -> bool:
    from core.sql.jdbc_tables import refresh_s

    return refresh_s(ddl) is not None


def _check_columns(table: Table, missing_in_inputs: MissingInInputs, problems: list[Problem]) -> None:
    """Report column names that differ from the DDL's, because a file sink writes the query's columns (Spark 4.2.0)."""
    parsed, path = table.parsed, table.dml.path if table.dml else ""
    if parsed is None:
        return
    added = METADATA_NAMES if table.settings.metadata else ()
    declared = [name for column in table.parsed_ddl.columns if (name := column.name.lower()) not in added]
    named = [name for column in parsed.columns if not _is_star(column) and (name := column.name.lower()) not in added]
    if not declared or not parsed.columns:
        return
    has_star = any(map(_is_star, parsed.columns))
    unknown = [name for name in named if name not in declared]
    if (has_star and not unknown) or declared == named:
        return
    where = Where(path, parsed.line)
    if not has_star and len(declared) != len(named):
        problems.append(
            Problem(
                f"{table.name} has {counted(len(declared), 'column')} and its statement writes {len(named)}",
                "write one value for each column of the DDL",
                where,
                table.name,
                detail=_difference(declared, named),
            )
        )
    elif missing := missing_in_inputs(table, unknown):
        problems += missing
    elif unknown:
        problems.append(
            Problem(
                f"{table.name} has no column {', '.join(unknown)}, which its statement writes",
                "name each value with AS to match the DDL, or declare the column there",
                where,
                table.name,
                detail="" if has_star else _difference(declared, named),
            )
        )


def _difference(declared: list[str], written: list[str]) -> str:
    parts = (
        f"only in the DDL: {', '.join(name for name in declared if name not in written)}",
        f"only in the statement: {', '.join(name for name in written if name not in declared)}",
    )
    return "; ".join(part for part in parts if not part.endswith(": "))


def _is_star(column: Column) -> bool:
    return column.name == "*"


def _check_reads(
    table: Table,
    tables: Mapping[TableName, Table],
    declared: Set[TableName],
    views: Mapping[TableName, str],
    problems: list[Problem],
) -> None:
    assert table.parsed is not None and table.dml is not None
    for read in table.parsed.reads:
        problem = _wrong_read(read, table, tables, declared, views)
        place = Where(table.dml.path, line_of(table.dml.text, table.parsed, read.start))
        if problem is not None:
            problems.append(Problem(problem[0], problem[1], place, read.table))
        elif read.streaming and not table.settings.upserts and read.table in tables:
            problems += _first_rows_twice(table, tables[read.table], place)


def _first_rows_twice(table: Table, source: Table, place: Where) -> list[Problem]:
    if not table_format(source.parsed_ddl.format).changes:
        return []
    from core.sql.postgres_changes import ChangesRisk, begins_with_rows

    if not begins_with_rows(source.parsed_ddl):
        return []
    risk = ChangesRisk.ROWS_TWICE.of(source=source.name)
    return [Problem(f"{table.name} {risk}", str(risk.remedy), place, table.name, severity=Severity.WARNING)]


def _wrong_read(
    read: TableRead,
    table: Table,
    tables: Mapping[TableName, Table],
    declared: Set[TableName],
    views: Mapping[TableName, str],
) -> tuple[str, str] | None:
    """Return the summary and remedy of a mistake in how a statement reads a table; None if there is no mistake."""
    if read.table in views:
        if read.streaming:
            return f"{table.name} streams {read.table}, which is a view", "stream the tables that the view reads"
        return None
    if read.table not in declared:
        near = did_you_mean(read.table, declared)
        return (
            f"{table.name} reads {read.table}, which no DDL declares",
            " If not, ".join(filter(None, (near, f"declare it: headgate init table {read.table}"))),
        )
    parent = tables.get(read.table)
    if parent is not None and not parent.external and table_format(parent.parsed_ddl.format).topics:
        return (
            f"{table.name} reads {read.table}, which a statement writes to a topic",
            "declare the topic as an external table of another name, with subscribe, and stream that",
        )
    wrong = wrong_watermark(read, parent.parsed_ddl) if parent is not None else None
    if wrong is not None:
        return wrong
    if parent is not None and not read.streaming and table_format(parent.parsed_ddl.format).topics:
        return (
            f"{table.name} reads {read.table} as a static side, but a topic can only be streamed",
            f"write STREAM {read.table}, or write the topic into a table and read that",
        )
    if parent is not None and not read.streaming and table_format(parent.parsed_ddl.format).changes:
        return (
            f"{table.name} reads {read.table} as a static side, but changes can only be streamed",
            f"write STREAM {read.table}, or declare the table itself USING jdbc and read that",
        )
    if parent is not None and read.streaming and table_format(parent.parsed_ddl.format).database:
        return (
            f"{table.name} streams {read.table}, but Spark cannot stream a table of a database",
            f"remove STREAM before {read.table}: each batch then reads the table as it is at that time",
        )
    if parent is not None and not read.streaming and not parent.external:
        return (
            f"{table.name} reads {read.table} as a static side, but a statement keeps changing it",
            f"write STREAM {read.table}: a static side is read as it is when the query starts, later rows never join",
        )
    return None


def wrong_watermark(read: TableRead, ddl: TableDdl) -> tuple[str, str] | None:
    """Return the summary and remedy of a mistake in a table's watermark; None if there is no mistake.

    Spark would raise EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE, or UNRESOLVED_COLUMN for an unknown name (tested on Spark
    4.2.0).
    """
    name = read.watermark.column if read.watermark is not None else ""
    if not name.replace("_", "a").isalnum():
        return None
    kinds = {column.name.lower(): column.type for column in ddl.columns}
    if name not in kinds:
        remedy = did_you_mean(name, kinds) or f"columns: {', '.join(kinds)}"
        return f"the watermark is on {name}, a column that {read.table} does not have", remedy
    if kinds[name] not in ("timestamp", "timestamp_ntz"):
        times = [column for column, kind in kinds.items() if kind == "timestamp"]
        remedy = f"put it on {' or '.join(times)}" if times else "write WATERMARK to_timestamp(…) AS t DELAY OF …"
        return f"the watermark is on {name}, which is {kinds[name]}, not a timestamp", remedy
    return None


def cycle_problems(tables: Mapping[TableName, Table]) -> list[tuple[Problem, tuple[TableName, ...]]]:
    """Return a Problem for one cycle of each strongly connected component, with the cycle's tables in order."""
    parents: dict[TableName, Sequence[TableName]] = {
        name: [read.table for read in table.parsed.reads if read.table in tables] if table.parsed else ()
        for name, table in tables.items()
    }
    found = []
    for cycle in cycles(parents):
        last = tables[cycle[0]]
        assert last.dml is not None and last.parsed is not None
        problem = Problem(
            f"these tables form a cycle: {' → '.join((*cycle, cycle[0]))}",
            "remove one of these reads",
            Where(last.dml.path, last.parsed.line),
            cycle[0],
            detail=", ".join(cycle),
        )
        found.append((problem, cycle))
    return found


def topic_loop_problems(tables: Mapping[TableName, Table]) -> list[Problem]:
    """Return a warning about one loop for each set of tables that feeds a topic's messages back into that topic.

    Spark would write and read such messages for ever. A loop may be intentional, for example to repeat and count
    attempts.
    """
    written = {name: table for name, table in tables.items() if table.written_topic()}
    if not written:
        return []
    from core.sql.kafka_topics import topics_by_server

    def messages_of(table: Table) -> frozenset[tuple[str, str]]:
        return topics_by_server(table.parsed_ddl.location)

    parents: dict[TableName, Sequence[TableName]] = {}
    for name, table in tables.items():
        if table.parsed is not None:
            parents[name] = [read.table for read in table.parsed.reads if read.table in tables]
        elif table_format(table.parsed_ddl.format).topics:
            read = messages_of(table)
            parents[name] = [each for each, other in written.items() if messages_of(other) & read]
    found = []
    for cycle in cycles(parents):
        writer = next((each for each in cycle if each in written), None)
        if writer is not None:
            loop = " → ".join((*cycle, cycle[0]))
            summary = f"{writer} writes topic {written[writer].written_topic()}, whose messages it gets back: {loop}"
            remedy = "write another topic, or drop messages that come back"
            where = Where(written[writer].ddl.path, written[writer].parsed_ddl.line)
            found.append(Problem(summary, remedy, where, writer, severity=Severity.WARNING))
    return found


def shared_topic_problems(tables: Mapping[TableName, Table]) -> list[Problem]:
    """Return a warning for each topic that several statements write, whichever products they belong to.

    It may be intended, but keys of one statement cannot deduplicate the messages of another.
    """
    found, told = [], set[tuple[TableName, ...]]()
    for writers in writers_by_topic(tables).values():
        if len(writers) < 2 or writers in told:
            continue
        told.add(writers)
        first, last = tables[writers[0]], tables[writers[-1]]
        summary = f"{' and '.join(writers)} write one topic, {first.written_topic()}"
        remedy = "write topics of their own, or give the messages a column by which readers tell them apart"
        where = Where(last.ddl.path, last.parsed_ddl.line)
        found.append(Problem(summary, remedy, where, last.name, severity=Severity.WARNING))
    return found
