"""Parsing of the files in `tests` folders into test cases; mistakes become Problems with a file and a line."""

import csv
import io
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem, Severity, Where, in_reading_order
from core.project.model import Table
from core.project_reader.paths import TESTS_FOLDER
from core.project_reader.yaml_reader import YamlSection, YamlValue, read_yaml
from core.sql.analysis_safety import unsafe_for_tests
from core.sql.metadata_columns import without_metadata
from core.sql.statement import ParsedStatement
from core.statement_tests.case import Part, Row, StatementCase, TypedColumns
from core.statement_tests.typed_values import BadValue, typed_value, value_of_cell
from core.text.wording import counted, did_you_mean

KEYS = ("description", "table", "given", "expect", "key", "tolerance")

CSV_ENDING = "csv"

MOST_ROWS = 10_000
"""Maximum number of rows in one fixture: tests should be small enough to read."""


@dataclass(frozen=True, slots=True)
class _CaseFile:
    path: str
    top: YamlSection
    tables: Mapping[TableName, Table]
    csv_files: Mapping[str, str]
    """Contents of the CSV files in the same folder, by file name."""

    def report(self, summary: str, remedy: str, line: int, subject: str = "") -> None:
        self.top.problems.append(Problem(summary, remedy, Where(self.path, line), subject))


def read_cases(
    texts: Mapping[str, str], tables: Mapping[TableName, Table]
) -> tuple[tuple[StatementCase, ...], tuple[Problem, ...]]:
    """Read each YAML file in the `tests` folders as a test case; return the valid cases and all Problems."""
    problems: list[Problem] = []
    found: list[StatementCase] = []
    units: dict[str, list[Table]] = {}
    for table in tables.values():
        units.setdefault(table.case_folder, []).append(table)
    for path in sorted(texts):
        folder, name = posixpath.split(path)
        stem, _, ending = name.rpartition(".")
        right = CSV_ENDING if ending.lower() == CSV_ENDING else "yml"
        if ending != right:
            problems.append(Problem(f"{name} is ignored", f"rename it to {stem}.{right}", Where(path)))
        if not name.endswith(".yml"):
            continue
        mine: list[Problem] = []
        top = read_yaml(texts[path], path, mine)
        if top is not None:
            beside = {posixpath.basename(other): texts[other] for other in texts if posixpath.dirname(other) == folder}
            case = _read_case(_CaseFile(path, top, tables, beside), units.get(posixpath.dirname(folder), []))
            if case is not None and not any(problem.severity is Severity.ERROR for problem in mine):
                found.append(case)
        problems += mine
    return tuple(found), in_reading_order(problems)


def refuse_unsafe(table: Table) -> Iterator[Problem]:
    """Yield a Problem if Spark cannot run a table's statement safely, so that the statement must not be tested."""
    if table.parsed is None or table.dml is None:
        return
    if (why := unsafe_for_tests(table.parsed)) is not None:
        where = table.dml.at(table.parsed.line)
        yield Problem(f"{table.name} cannot be tested: {why}", "correct the statement", where, table.name)


def columns_of(table: Table) -> TypedColumns:
    """Return the declared columns of a table as pairs (name, type), in order."""
    return tuple((column.name, column.type) for column in table.parsed_ddl.columns)


def expected_columns_of(table: Table) -> TypedColumns:
    """Return the columns of a statement's expected rows: those of its table, without metadata columns."""
    ddl = without_metadata(table.parsed_ddl) if table.settings.metadata else table.parsed_ddl
    return tuple((column.name, column.type) for column in ddl.columns)


def _read_case(file: _CaseFile, unit: list[Table]) -> StatementCase | None:
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
    expected = _rows(file, expect, "expect", table.name, columns) if expect is not None else ()
    known = {name.lower(): name for name, _ in columns}
    key = top.texts("key", table.settings.key)
    for name in key:
        if name.lower() not in known:
            file.report(
                f"{table.name} has no column {name}", did_you_mean(name, known) or _declared(known),
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


def _table(file: _CaseFile, unit: list[Table]) -> Table | None:
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


def _parts(file: _CaseFile, given: YamlValue, parsed: ParsedStatement) -> Iterator[Part]:
    values = given.items if given.items is not None else (given,)
    if not values:
        file.report("given is empty", "write given: {table: [rows…]}", given.line, "given")
    for number, value in enumerate(values, 1):
        if value.pairs is None:
            file.report(f"part {number} of given is not a mapping of tables to rows",
                        "write table: [rows…]", value.line, "given")  # fmt: skip
            continue
        yield _part(file, value, parsed, number)


def _part(file: _CaseFile, value: YamlValue, parsed: ParsedStatement, number: int) -> Part:
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
            found[name] = _rows(file, rows, "given", name, columns_of(file.tables[name]))
    return found


def _rows(file: _CaseFile, value: YamlValue, key: str, table: TableName, columns: TypedColumns) -> tuple[Row, ...]:
    if value.text is not None and value.text.endswith(".csv"):
        return _rows_of_csv(file, value, table, columns)
    if value.items is None:
        empty = value.text is None and value.pairs is None
        remedy = (
            "write [] for no rows" if empty else "write a list of mappings, - {column: value}, or the name of a CSV"
        )
        file.report(f"the rows of {table} in {key} are not a list", remedy, value.line, table)
        return ()
    if len(value.items) > MOST_ROWS:
        file.report(f"{table} has {counted(len(value.items), 'row')}", f"keep at most {MOST_ROWS}", value.line, table)
        return ()
    found = []
    for item in value.items:
        if item.pairs is None:
            file.report(f"a row of {table} is not a mapping", "write - {column: value}", item.line, table)
        else:
            found.append(_row(file, item, table, columns))
    return tuple(found)


def _row(file: _CaseFile, item: YamlValue, table: TableName, columns: TypedColumns) -> Row:
    kinds = {name.lower(): kind for name, kind in columns}
    values: dict[str, object] = {}
    for key, value in item.pairs or ():
        name = (key.text or "").lower()
        if name not in kinds:
            _unknown_column(file, table, key.text or "", kinds, Where(file.path, key.line))
        elif name in values:
            file.report(f"{name} appears twice in a row of {table}", "keep one", key.line, name)
        else:
            values[name] = None
            try:
                values[name] = typed_value(value, kinds[name])
            except BadValue as error:
                _wrong_value(file, f"{table}.{name}", kinds[name], error, Where(file.path, value.line))
    return tuple(values.get(name.lower()) for name, _ in columns)


def _rows_of_csv(file: _CaseFile, value: YamlValue, table: TableName, columns: TypedColumns) -> tuple[Row, ...]:
    name = value.text or ""
    if name not in file.csv_files:
        near = did_you_mean(name, (each for each in file.csv_files if each.endswith(".csv")))
        file.report(
            f"{name} is not in the folder of this file", near or "write its name without a folder", value.line, name
        )
        return ()
    path = posixpath.join(posixpath.dirname(file.path), name)
    try:
        return tuple(_cells(file, path, table, columns))
    except csv.Error as error:
        file.top.problems.append(Problem(f"{name} is not CSV: {error}", "save it as comma-separated text", Where(path)))
        return ()


def _cells(file: _CaseFile, path: str, table: TableName, columns: TypedColumns) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(file.csv_files[posixpath.basename(path)], newline=""), strict=True)
    kinds = {name.lower(): kind for name, kind in columns}
    head = [name.strip().lower() for name in next(reader, [])]
    for name in head:
        if name not in kinds:
            _unknown_column(file, table, name, kinds, Where(path, 1))
        elif head.count(name) > 1:
            file.top.problems.append(Problem(f"{name} appears twice", "keep one", Where(path, 1), name))
    for count, cells in enumerate(reader):
        where = Where(path, reader.line_num)
        if count >= MOST_ROWS:
            file.top.problems.append(Problem(f"it has more than {MOST_ROWS} rows", "keep fewer", where))
            return
        if cells and len(cells) != len(head):
            summary = f"a row has {counted(len(cells), 'cell')}, but the header line has {len(head)}"
            file.top.problems.append(Problem(summary, "put values that contain commas in quotes", where))
        elif cells:
            yield _row_of_cells(file, dict(zip(head, cells, strict=True)), table, columns, where=where)


def _row_of_cells(
    file: _CaseFile, cells: Mapping[str, str], table: TableName, columns: TypedColumns, *, where: Where
) -> Row:
    row: list[object] = []
    for name, kind in columns:
        try:
            row.append(value_of_cell(cells.get(name.lower(), ""), kind))
        except BadValue as error:
            row.append(None)
            _wrong_value(file, f"{table}.{name}", kind, error, where)
    return tuple(row)


def _unknown_column(file: _CaseFile, table: TableName, name: str, known: Iterable[str], where: Where) -> None:
    remedy = did_you_mean(name.lower(), known) or _declared(known)
    file.top.problems.append(Problem(f"{table} has no column {name}", remedy, where, name))


def _wrong_value(file: _CaseFile, column: str, kind: str, error: BadValue, where: Where) -> None:
    file.top.problems.append(Problem(f"{column} must be of type {kind}", f"write {error}", where, column))


def _declared(known: Iterable[str]) -> str:
    return f"declared: {', '.join(known)}"
