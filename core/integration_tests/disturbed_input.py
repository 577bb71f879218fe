"""Input that is disturbed: rows that arrive late and in no order, and sources with one column more."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from core.integration_tests.case_reader import sources_of
from core.integration_tests.generated_input import longest_delay_s
from core.integration_tests.scenarios import ScenarioInput
from core.model.names import TableName
from core.model.table_formats import table_format
from core.project.model import Project, Table
from core.sql.kafka_topics import ValueFormat, value_format
from core.sql.statement import Column, TableDdl
from core.statement_tests.case import Part, Row
from core.statement_tests.fixture_rows import columns_of
from core.text.wording import counted

ADDED = Column("added_by_test", "", "string")
"""The column that a source gets."""

ADDED_VALUE = "a new column"


def lateness_s(project: Project, tables: Iterable[TableName]) -> float:
    """Return how late rows may arrive, in seconds: half of the longest delay of a watermark; 0 if there is none."""
    return longest_delay_s(project, tables) / 2


@dataclass(frozen=True, slots=True)
class LateInput:
    """The parts of an input whose rows are late or in another order, and how many rows that are."""

    parts: tuple[Part, ...]
    reordered: int
    """Number of rows whose part has the rows of their source in another order than before."""
    late: int
    """Number of rows that arrive a part later."""
    late_s: float
    """By how many seconds they are late at most."""

    def words(self) -> str:
        """Say what was done to the rows, as in `with 3 rows in another order`; empty if that is nothing."""
        said = [f"{counted(self.reordered, 'row')} in another order"] if self.reordered else []
        if self.late:
            said.append(f"{counted(self.late, 'row')} up to {self.late_s:g} s late")
        return f"with {' and '.join(said)}" if said else ""


def late_input(
    given: ScenarioInput, project: Project, tables: Iterable[TableName], late_s: float | None = None
) -> LateInput:
    """Return the same rows, of which some arrive a part later, and all in reverse order within their part.

    In the part before the disturbed one, every row of a stream is delayed that is older than the newest one, but not by
    more than `late_s` seconds, which are those of `lateness_s` if None.
    """
    chosen = tuple(tables)
    late_s = lateness_s(project, chosen) if late_s is None else late_s
    times = _times(project, chosen)
    parts: list[dict[TableName, tuple[Row, ...]]] = [dict(part) for part in given.parts]
    before, middle, moved = parts[given.middle - 2], parts[given.middle - 1], 0
    for source, place in times.items():
        rows = before.get(source, ())
        ages = _ages_s(rows, place)
        late = [row for row, age_s in zip(rows, ages, strict=True) if 0 < age_s <= late_s]
        if late:
            before[source] = tuple(row for row in rows if row not in late)
            middle[source] = (*late, *middle.get(source, ()))
            moved += len(late)
    reordered = sum(len(rows) for part in parts for rows in part.values() if rows != rows[::-1])
    return LateInput(
        tuple({name: rows[::-1] for name, rows in part.items()} for part in parts), reordered, moved, late_s
    )


def can_have_column_more(table: Table) -> bool:
    """True if an external table can get the additional column.

    A file of plain text has lines instead of columns, and a topic whose values are not parsed has no fields.
    """
    columns, ddl = dict(columns_of(table)), table.parsed_ddl
    if table_format(ddl.format).topics and value_format(ddl) is ValueFormat.RAW:
        return False
    return tuple(columns) != ("value",) and ADDED.name not in columns


def with_column_more(ddl: TableDdl) -> TableDdl:
    """Return a declaration with the additional column at its end."""
    return replace(ddl, columns=(*ddl.columns, ADDED))


def columns_with_it(columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that are the additional one, or contain it as a field; types are given by name."""
    return tuple(name for name, kind in columns.items() if ADDED.name in f"{name} {kind}".lower())


def with_value_more(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return rows with a value for the additional column."""
    return tuple((*row, ADDED_VALUE) for row in rows)


def _times(project: Project, tables: Iterable[TableName]) -> Mapping[TableName, int]:
    """Return the position of the event time among the columns of each stream; streams without one are left out."""
    found: dict[TableName, int] = {}
    for source, streamed in sources_of(project, tables).items():
        columns = columns_of(project.tables[source])
        kinds = [place for place, (_, kind) in enumerate(columns) if kind.startswith("timestamp")]
        named = {
            read.watermark.column.strip("`").lower()
            for table in project.tables.values()
            if table.parsed is not None
            for read in table.parsed.reads
            if read.table == source and read.watermark is not None
        }
        marked = [place for place in kinds if columns[place][0].lower() in named]
        if streamed and (marked or kinds):
            found[source] = (marked or kinds)[0]
    return found


def _ages_s(rows: Iterable[Row], place: int) -> list[float]:
    """Return by how many seconds each row is older than the newest one; 0 for a row without a time."""
    times = [value if isinstance(value := row[place], datetime) else None for row in rows]
    newest = max((time for time in times if time is not None), default=None)
    return [0.0 if time is None or newest is None else (newest - time).total_seconds() for time in times]
