"""What two runs of the same statements over the same rows need not have in common."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.model.names import TableName
from core.model.table_formats import table_format
from core.project.model import Project
from core.project.naming import DECLARED, Naming
from core.project_reader.ephemeral_project import upstream_of
from core.project_reader.ephemeral_systems import read_messages
from core.sql.statement import TableDdl
from core.statement_tests.case import Row, TypedColumns
from core.statement_tests.fixture_rows import expected_columns_of
from core.validation.expected_differences import (
    ComparedStatement,
    ExpectedDifferences,
    expected_differences,
    rows_chosen_at_random,
)

_OFFSET = "the offsets of rows in another order"


@dataclass(frozen=True, slots=True)
class Repeatability:
    """Which columns of a table, and whether its number of rows, are the same in every run."""

    columns: TypedColumns
    """The columns that can be compared, in order."""
    left_out: Mapping[str, str]
    """The reason by column, in lower case, for the other columns."""
    unrepeatable: str = ""
    """Why not even the number of rows is the same in every run; empty if it is."""
    places: tuple[int, ...] = ()
    """Positions of `columns` among all columns."""

    def projected(self, rows: Iterable[Row]) -> tuple[Row, ...]:
        """Return rows without the columns that are left out."""
        return tuple(tuple(row[place] for place in self.places) for row in rows)


def repeatability(
    project: Project, built: Iterable[TableName], *, base: Naming = DECLARED, reordered: bool = False
) -> dict[TableName, Repeatability]:
    """Return what can be compared for each statement; upstream tables come first in `built`.

    `base` is the naming of the environment on whose declarations the run is based. If the input of one of the runs is
    `reordered`, so are the offsets of its messages. A statement that reads messages of another one reads some of them
    twice if that repeats a batch, and rows downstream are not the same.

    Non-deterministic functions and lists without an order are found in the texts and followed along the lineage. Of a
    job in Python, nothing is known, so all its columns are compared.
    """
    ddls: dict[TableName, TableDdl] = {name: table.parsed_ddl for name, table in project.tables.items()}
    differences: dict[TableName, ExpectedDifferences] = {}
    if reordered:
        over_topics = (name for name, ddl in ddls.items() if table_format(ddl.format).topics)
        differences = {name: ExpectedDifferences(changed={"_offset": _OFFSET}) for name in over_topics}
    every = tuple(built)
    writers = read_messages((project.tables[name] for name in upstream_of(project, every)), base)
    found: dict[TableName, Repeatability] = {}
    for name in every:
        table = project.tables[name]
        assert table.parsed is not None, "built tables have a statement"
        differences[name] = ExpectedDifferences()
        if not table.parsed.in_python:
            statement = ComparedStatement(table.parsed, table.parsed_ddl)
            read = {each.table for each in table.parsed.reads}
            parents = {parent: differences[parent] for parent in read & differences.keys()}
            differences[name] = expected_differences(statement, statement, ddls, parents)
        read_here = [each.table for each in table.parsed.reads if each.table in found]
        why = next((found[parent].unrepeatable for parent in read_here if found[parent].unrepeatable), "")
        again = next((writers[each.table] for each in table.parsed.reads if each.table in writers), "")
        if not why and again:
            why = f"{name} reads messages of {again}, which writes them at least once"
        if not why and (call := rows_chosen_at_random(table.parsed, ddls)):
            why = f"{call} decides which rows {name} has"
        found[name] = _of(expected_columns_of(table), differences[name], why)
    return found


def _of(columns: TypedColumns, expected: ExpectedDifferences, why: str) -> Repeatability:
    left_out = {name: why for name, why in expected.changed.items()}
    left_out |= {name: "a list without an order" for name in expected.sorted}
    places = tuple(place for place, (name, _) in enumerate(columns) if name.lower() not in left_out)
    why = why or "; ".join(dict.fromkeys(row.why for row in expected.rows)) or expected.unpairable_because
    kept = tuple(columns[place] for place in places)
    return Repeatability(kept, left_out, unrepeatable=why, places=places)
