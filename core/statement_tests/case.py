"""A test case of a statement: input rows in parts, and the expected rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.model.names import TableName

Row = tuple[object, ...]
"""Values in the order of the declared columns, as `core.statement_tests.typed_values` gives them."""

Part = Mapping[TableName, tuple[Row, ...]]
"""The input of one micro-batch, by table."""

TypedColumns = tuple[tuple[str, str], ...]
"""Declared columns as (name, type), in order."""


@dataclass(frozen=True, slots=True)
class StatementCase:
    """One file of a `tests` folder; `expected` may still be missing."""

    name: str
    """The file's name without its ending."""
    path: str
    """Relative to the project folder, with forward slashes."""
    table: TableName
    """The table whose statement is tested."""
    parts: tuple[Part, ...]
    """Micro-batches in order; rows of static sides are in the first."""
    expected: tuple[Row, ...] = ()
    """All rows that the statement writes over all parts, in any order."""
    key: tuple[str, ...] = ()
    """Columns by which missing and unexpected rows are paired."""
    tolerance: float = field(default=1e-9)
    """Allowed difference of floats, relative to the greater one."""

    @property
    def label(self) -> str:
        """The name of the case for people."""
        return f"{self.table}/{self.name}"
