"""Parsing of the files in `tests` folders into test cases; mistakes become Problems with a file and a line."""

import posixpath
from collections.abc import Iterator, Mapping

from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem
from core.project.model import Table
from core.project_reader.paths import TESTS_FOLDER
from core.project_reader.yaml_reader import YamlValue
from core.sql.analysis_safety import unsafe_for_tests
from core.sql.statement import ParsedStatement
from core.statement_tests.case import Part, Row, StatementCase
from core.statement_tests.fixture_rows import (
    FixtureFile,
    columns_of,
    expected_columns_of,
    listed_columns,
    read_fixture_files,
    read_rows,
)
from core.text.wording import did_you_mean

KEYS = ("description", "table", "given", "expect", "key", "tolerance")


def read_cases(
    texts: Mapping[str, str], tables: Mapping[TableName, Table]
) -> tuple[tuple[StatementCase, ...], tuple[Problem, ...]]:
    """Read each YAML file in the `tests` folders as a test case; return the valid cases and all Problems."""
    units: dict[str, list[Table]] = {}
    for table in tables.values():
        units.setdefault(table.case_folder, []).append(table)
    return read_fixture_files(
        texts, tables, lambda file: _read_case(file, units.get(posixpath.dirname(posixpath.dirname(file.path)), []))
    )


def refuse_unsafe(table: Table) -> Iterator[Problem]:
    """Yield a Problem if Spark cannot run a table's statement safely, so that the statement must not be tested."""
    if table.parsed is None or table.dml is None:
        return
    if (why := unsafe_for_tests(table.parsed)) is not None:
        where = table.dml.at(table.parsed.line)
        yield Problem(f"{table.name} cannot be tested: {why}", "correct the statement", where, table.name)


def _read_case(file: FixtureFile, unit: list[Table]) -> StatementCase | None:
    top = file.top
    top.only(KEYS)
    table = _table(file, unit)
    if table is None or table.parsed is None:
        return None
    columns = expected_columns_of(table)
    given, expect = top.value("given"), top.value("expect")
    if given is None:
        file.report("given is missing", "write given: {table: [rows…]}", top.line, "given")
    if expect is None:
        remedy = "write expect: [rows…], or [] if no rows are expected"
        file.report("expect is missing", remedy, top.line, "expect")
    parts = tuple(_parts(file, given, table.parsed)) if given is not None else ()
    expected = read_rows(file, expect, "expect", table.name, columns) if expect is not None else ()
    known = {name.lower(): name for name, _ in columns}
    key = top.texts("key", table.settings.key)
    for name in key:
        if name.lower() not in known:
            file.report(
                f"{table.name} has no column {name}", did_you_mean(name, known) or listed_columns(known),
                top.at("key").line, name,
            )  # fmt: skip
    tolerance = top.number("tolerance", 1e-9, most=1)
    name = posixpath.basename(file.path).removesuffix(".yml")
    return StatementCase(
        name,
        file.path,
        table=table.name,
        parts=parts,
        expected=expected,
        key=tuple(map(str.lower, key)),
        tolerance=tolerance,
    )


def _table(file: FixtureFile, unit: list[Table]) -> Table | None:
    statements = {table.name: table for table in unit if not table.external}
    line = file.top.at("table").line
    if not statements:
        file.report(f"there is no statement beside {TESTS_FOLDER}/ to test", "move the file to a table with one", 0)
        return None
    named = file.top.text("table", "")
    if not named:
        if len(statements) == 1:
            return next(iter(statements.values()))
        listed = ", ".join(statements)
        file.report(f"it does not say which of {listed} it tests", f"write table: {next(iter(statements))}", line)
        return None
    found = statements.get(TableName(named.lower()))
    if found is None:
        remedy = did_you_mean(named.lower(), statements) or f"statements here: {', '.join(statements)}"
        file.report(f"{named} is not a statement of this folder", remedy, line, named)
    return found


def _parts(file: FixtureFile, given: YamlValue, parsed: ParsedStatement) -> Iterator[Part]:
    values = given.items if given.items is not None else (given,)
    if not values:
        file.report("given is empty", "write given: {table: [rows…]}", given.line, "given")
    for number, value in enumerate(values, 1):
        if value.pairs is None:
            file.report(f"part {number} of given is not a mapping of tables to rows",
                        "write table: [rows…]", value.line, "given")  # fmt: skip
            continue
        yield _part(file, value, parsed, number)


def _part(file: FixtureFile, value: YamlValue, parsed: ParsedStatement, number: int) -> Part:
    reads = {read.table for read in parsed.reads}
    streamed = {read.table for read in parsed.reads if read.streaming}
    found: dict[TableName, tuple[Row, ...]] = {}
    for key, rows in value.pairs or ():
        try:
            name = parse_table_name(key.text or "")
        except BadName as error:
            file.report(error.summary, error.remedy, key.line)
            continue
        if name not in reads:
            remedy = did_you_mean(name, reads) or f"it reads {', '.join(sorted(reads))}"
            file.report(f"{parsed.writes} does not read {name}", remedy, key.line, name)
        elif name not in file.tables:
            file.report(f"{name} is not declared", "declare it, or remove its rows", key.line, name)
        elif name in found:
            file.report(f"{name} appears twice in part {number}", "keep one", key.line, name)
        elif number > 1 and name not in streamed:
            summary = f"{name} is a static side, which is read only once: its rows belong in the first part"
            file.report(summary, "move its rows to the first part", key.line, name)
        else:
            found[name] = read_rows(file, rows, "given", name, columns_of(file.tables[name]))
    return found
