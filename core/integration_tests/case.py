"""A case of an integration test: rows written to sources, in parts, and the rows expected in tables downstream."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.model.names import TableName
from core.statement_tests.case import Part, Row


@dataclass(frozen=True, slots=True)
class IntegrationCase:
    """A case, read from a file in a folder `integration`, or generated."""

    name: str
    """File name without its extension."""
    path: str
    """Path relative to the project folder, with forward slashes."""
    parts: tuple[Part, ...]
    """Rows by source, in the order in which they are written. Static sides have rows in the first part only."""
    expected: Mapping[TableName, tuple[Row, ...]]
    """All rows that a table has in the end, in no particular order."""
    keys: Mapping[TableName, tuple[str, ...]]
    """Key columns by table, by which missing rows are paired with unexpected ones."""
    tolerance: float = 1e-9
    """Allowed difference between two floats, relative to the larger of the two."""
    within_s: float | None = None
    """Seconds within which every part must have been read everywhere; None if the case does not bound it."""
    description: str = ""
