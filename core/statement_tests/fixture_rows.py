"""Rows of fixtures, as YAML or CSV: read as values of the declared types; mistakes become Problems with their line."""

import csv
import io
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from core.model.names import TableName
from core.model.problems import Problem, Severity, Where, in_reading_order
from core.project.model import Table
from core.project_reader.yaml_reader import YamlSection, YamlValue, read_yaml
from core.sql.metadata_columns import without_metadata
from core.statement_tests.case import Row, TypedColumns
from core.statement_tests.typed_values import BadValue, typed_value, value_of_cell
from core.text.wording import counted, did_you_mean

C = TypeVar("C")

CSV_ENDING = "csv"

MOST_ROWS = 10_000
"""Maximum number of rows in one fixture: tests should be small enough to read."""


@dataclass(frozen=True, slots=True)
class FixtureFile:
    """A file with a test case, its values, and the files beside it."""

    path: str
    top: YamlSection
    tables: Mapping[TableName, Table]
    csv_files: Mapping[str, str]
    """Contents of the CSV files in the same folder, by file name."""

    def report(self, summary: str, remedy: str, line: int, subject: str = "") -> None:
        """Add a Problem at a line of the file."""
        self.top.problems.append(Problem(summary, remedy, Where(self.path, line), subject))


def read_fixture_files(
    texts: Mapping[str, str], tables: Mapping[TableName, Table], read: Callable[[FixtureFile], C | None]
) -> tuple[tuple[C, ...], tuple[Problem, ...]]:
    """Read each YAML file in `texts` as a test case; return the valid cases, sorted by path, and all Problems.

    `texts` contains all files of the folders by path. `read` returns None, or reports an error, for an invalid case.
    """
    problems: list[Problem] = []
    found: list[C] = []
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
            case = read(FixtureFile(path, top, tables, beside))
            if case is not None and not any(problem.severity is Severity.ERROR for problem in mine):
                found.append(case)
        problems += mine
    return tuple(found), in_reading_order(problems)


def columns_of(table: Table) -> TypedColumns:
    """Return the declared columns of a table as pairs (name, type), in order."""
    return tuple((column.name, column.type) for column in table.parsed_ddl.columns)


def expected_columns_of(table: Table) -> TypedColumns:
    """Return the columns of a statement's expected rows: those of its table, without metadata columns."""
    ddl = without_metadata(table.parsed_ddl) if table.settings.metadata else table.parsed_ddl
    return tuple((column.name, column.type) for column in ddl.columns)


def read_rows(
    file: FixtureFile, value: YamlValue, key: str, table: TableName, columns: TypedColumns
) -> tuple[Row, ...]:
    """Return the rows of a table that a value of the file contains, or the CSV file that it names.

    `key` is the key of the file to which the value belongs. Mistakes are reported.
    """
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


def _row(file: FixtureFile, item: YamlValue, table: TableName, columns: TypedColumns) -> Row:
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


def _rows_of_csv(file: FixtureFile, value: YamlValue, table: TableName, columns: TypedColumns) -> tuple[Row, ...]:
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


def _cells(file: FixtureFile, path: str, table: TableName, columns: TypedColumns) -> Iterator[Row]:
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
    file: FixtureFile, cells: Mapping[str, str], table: TableName, columns: TypedColumns, *, where: Where
) -> Row:
    row: list[object] = []
    for name, kind in columns:
        try:
            row.append(value_of_cell(cells.get(name.lower(), ""), kind))
        except BadValue as error:
            row.append(None)
            _wrong_value(file, f"{table}.{name}", kind, error, where)
    return tuple(row)


def _unknown_column(file: FixtureFile, table: TableName, name: str, known: Iterable[str], where: Where) -> None:
    remedy = did_you_mean(name.lower(), known) or listed_columns(known)
    file.top.problems.append(Problem(f"{table} has no column {name}", remedy, where, name))


def _wrong_value(file: FixtureFile, column: str, kind: str, error: BadValue, where: Where) -> None:
    file.top.problems.append(Problem(f"{column} must be of type {kind}", f"write {error}", where, column))


def listed_columns(known: Iterable[str]) -> str:
    """List the declared columns, as a remedy."""
    return f"declared: {', '.join(known)}"
