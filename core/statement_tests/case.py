"""A test case of a statement: its input rows, in micro-batches, and the expected rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.model.names import TableName

Row = tuple[object, ...]
"""Values in the order of the declared columns; `core.statement_tests.typed_values` lists their Python types."""

Part = Mapping[TableName, tuple[Row, ...]]
"""The input rows of one micro-batch, by table name."""

TypedColumns = tuple[tuple[str, str], ...]
"""Declared columns as pairs (name, type), in order."""


@dataclass(frozen=True, slots=True)
class StatementCase:
    """A test case, read from a file in a `tests` folder; `expected` is empty until the output is recorded."""

    name: str
    """File name without its extension."""
    path: str
    """Path relative to the project folder, with forward slashes."""
    table: TableName
    """The table whose statement is tested."""
    parts: tuple[Part, ...]
    """Micro-batches in order; the first micro-batch contains the rows of static sides."""
    expected: tuple[Row, ...] = ()
    """All rows that the statement should write over all micro-batches, in no particular order."""
    key: tuple[str, ...] = ()
    """Key columns, by which missing rows are paired with unexpected rows."""
    tolerance: float = field(default=1e-9)
    """Allowed difference between two floats, relative to the larger of the two."""

    @property
    def label(self) -> str:
        """The name of the case for display, including its table."""
        return f"{self.table}/{self.name}"
