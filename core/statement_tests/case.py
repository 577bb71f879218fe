"""A test case of a statement as values: rows in, in parts, and the rows that are expected."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.model.names import TableName

TESTS_FOLDER = "tests"
"""Beside a table's `sql-scripts`."""

Row = tuple[object, ...]
"""Values in the order of the declared columns, as `core.statement_tests.typed_values` gives them."""

Part = Mapping[TableName, tuple[Row, ...]]
"""What arrives for one micro-batch, by table that is read."""

TypedColumns = tuple[tuple[str, str], ...]
"""Declared columns as (name, type), in order."""


@dataclass(frozen=True, slots=True)
class StatementCase:
    """One file of a folder `tests`, or what is known of it before it has expected rows."""

    name: str
    """The file's name without its ending."""
    path: str
    """Relative to the project folder, with forward slashes."""
    table: TableName
    """The table whose statement is tested."""
    parts: tuple[Part, ...]
    """Micro-batches, in order; what is read as a static side is in the first."""
    expected: tuple[Row, ...] = ()
    """All rows that the statement writes over all parts, in any order."""
    key: tuple[str, ...] = ()
    """Columns by which a missing row and an unexpected one are taken for the same."""
    tolerance: float = field(default=1e-9)
    """By how much floats may differ, relative to the greater one."""

    @property
    def label(self) -> str:
        """Return how the case is named to people."""
        return f"{self.table}/{self.name}"
