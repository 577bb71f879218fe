"""Parsing of the files in `integration` folders into cases; mistakes become Problems with a file and a line."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping

from core.integration_tests.case import IntegrationCase
from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem
from core.project.model import Project, Table
from core.project_reader.ephemeral_project import upstream_of
from core.project_reader.ephemeral_systems import is_assigned
from core.project_reader.yaml_reader import YamlValue
from core.statement_tests.case import Part, Row
from core.statement_tests.fixture_rows import (
    FixtureFile,
    columns_of,
    expected_columns_of,
    listed_columns,
    read_fixture_files,
    read_rows,
)
from core.text.wording import did_you_mean

KEYS = ("description", "given", "expect", "key", "tolerance", "within")

LONGEST_S = 3_600.0
"""Longest time that `within` may give, in seconds."""


def read_integration_cases(
    texts: Mapping[str, str], project: Project
) -> tuple[tuple[IntegrationCase, ...], tuple[Problem, ...]]:
    """Read each YAML file in `texts` as a case; return the valid cases and all Problems.

    `texts` contains the files of the `integration` folders by path.
    """
    return read_fixture_files(texts, project.tables, lambda file: _read_case(file, project))


def sources_of(project: Project, tables: Iterable[TableName]) -> dict[TableName, bool]:
    """Return the external tables upstream of tables, and whether a statement there streams them."""
    chosen = upstream_of(project, tables)
    streamed = {
        read.table
        for name in chosen
        if (parsed := project.tables[name].parsed) is not None
        for read in parsed.reads
        if read.streaming
    }
    return {name: name in streamed for name in chosen if project.tables[name].external}


def _read_case(file: FixtureFile, project: Project) -> IntegrationCase:
    top = file.top
    top.only(KEYS)
    given, expect = top.value("given"), top.value("expect")
    if given is None:
        file.report("given is missing", "write given: {table: [rows…]}", top.line, "given")
    if expect is None:
        remedy = "write expect: {table: [rows…]}, with [] for a table that must stay empty"
        file.report("expect is missing", remedy, top.line, "expect")
    expected = _expected(file, expect) if expect is not None else {}
    sources = sources_of(project, expected)
    within = top.number("within", 1.0, most=LONGEST_S) if "within" in top.nodes else None
    return IntegrationCase(
        posixpath.basename(file.path).removesuffix(".yml"),
        file.path,
        # Without valid tables in expect, every table in given would be no source of them.
        parts=tuple(_parts(file, given, sources, expected)) if given is not None and expected else (),
        expected=expected,
        keys=_keys(file, {name: project.tables[name] for name in expected}),
        tolerance=top.number("tolerance", 1e-9, most=1),
        within_s=within,
        description=top.text("description", ""),
    )


def _expected(file: FixtureFile, value: YamlValue) -> dict[TableName, tuple[Row, ...]]:
    if not value.pairs:
        file.report("expect is not a mapping of tables to rows", "write table: [rows…]", value.line, "expect")
    found: dict[TableName, tuple[Row, ...]] = {}
    statements = [name for name, table in file.tables.items() if not table.external]
    for name, rows, line in _named(file, value):
        table = file.tables.get(name)
        if name in found:
            file.report(f"{name} appears twice in expect", "keep one", line, name)
        elif table is None:
            file.report(f"{name} is not declared", did_you_mean(name, statements) or "name a table", line, name)
        elif table.external:
            file.report(f"{name} is external: nothing is written to it", "name a table with a statement", line, name)
        else:
            found[name] = read_rows(file, rows, "expect", name, expected_columns_of(table))
    return found


def _parts(
    file: FixtureFile, given: YamlValue, sources: Mapping[TableName, bool], expected: Iterable[TableName]
) -> Iterator[Part]:
    values = given.items if given.items is not None else (given,)
    if not values:
        file.report("given is empty", "write given: {table: [rows…]}", given.line, "given")
    for number, value in enumerate(values, 1):
        if value.pairs is None:
            summary = f"part {number} of given is not a mapping of tables to rows"
            file.report(summary, "write table: [rows…]", value.line, "given")
            continue
        part: dict[TableName, tuple[Row, ...]] = {}
        for name, rows, line in _named(file, value):
            if name in part:
                file.report(f"{name} appears twice in part {number}", "keep one", line, name)
            elif name not in sources:
                remedy = did_you_mean(name, sources) or f"sources: {', '.join(sources) or 'none'}"
                file.report(f"{name} is no source of {' or '.join(expected) or 'any table'}", remedy, line, name)
            elif number > 1 and not sources[name]:
                summary = f"{name} is a static side, which is read only once: its rows belong in the first part"
                file.report(summary, "move its rows to the first part", line, name)
            else:
                part[name] = read_rows(file, rows, "given", name, columns_of(file.tables[name]))
                _report_assigned(file, file.tables[name], part[name], line)
        yield part


def _report_assigned(file: FixtureFile, table: Table, rows: tuple[Row, ...], line: int) -> None:
    """Report values that the broker gives to messages."""
    for place, (column, _) in enumerate(columns_of(table)):
        if is_assigned(table.parsed_ddl, column) and any(row[place] is not None for row in rows):
            summary = f"{table.name} has values of {column}, which the broker gives to each message"
            file.report(summary, "leave it out: rows become messages in their order, from offset 0", line, column)


def _named(file: FixtureFile, value: YamlValue) -> Iterator[tuple[TableName, YamlValue, int]]:
    for key, rows in value.pairs or ():
        try:
            yield parse_table_name(key.text or ""), rows, key.line
        except BadName as error:
            file.report(error.summary, error.remedy, key.line)


def _keys(file: FixtureFile, expected: Mapping[TableName, Table]) -> dict[TableName, tuple[str, ...]]:
    found = {name: tuple(map(str.lower, table.settings.key)) for name, table in expected.items()}
    value = file.top.value("key")
    if value is not None and value.pairs is None:
        file.report("key is not a mapping of tables to columns", "write key: {table: [column]}", value.line, "key")
    for name, columns, line in _named(file, value) if value is not None else ():
        if name not in expected:
            file.report(f"{name} is not in expect", did_you_mean(name, expected) or "leave it out", line, name)
            continue
        known = {column.lower() for column, _ in expected_columns_of(expected[name])}
        given = [(item.text or "").lower() for item in columns.items or (columns,)]
        for column in given:
            if column not in known:
                remedy = did_you_mean(column, known) or listed_columns(sorted(known))
                file.report(f"{name} has no column {column}", remedy, line, column)
        found[name] = tuple(given)
    return found
