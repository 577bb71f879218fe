"""Origins of a statement's columns and rows, as frozen values that need no parser.

There are two kinds of input: a *value* flows into a column; a *condition* decides which rows or groups exist. A CASE
test is a value, because it selects a value for its own row. FILTER, and PARTITION BY and ORDER BY of a window, are
conditions.
"""

from dataclasses import dataclass
from enum import StrEnum

from core.model.names import TableName


class InputKind(StrEnum):
    """How an input contributes."""

    VALUE = "value"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True, order=True)
class ColumnOrigin:
    """A column of a table that the statement reads; without a column, the rows of the table."""

    table: TableName
    column: str = ""
    """As the DDL writes it."""


@dataclass(frozen=True, slots=True)
class LineageStep:
    """A column of a CTE or subquery between output and origin."""

    name: str
    """`part.column`, the part as named by its author."""
    expression: str


@dataclass(frozen=True, slots=True)
class LineageInput:
    """A column, or the rows, of a table that an output or condition depends on."""

    origin: ColumnOrigin
    kind: InputKind
    expression: str
    """SQL of the output or condition; columns are qualified by table if there are several, and by WITH query."""
    fields: tuple[str, ...] = ()
    """Paths inside a struct that are read, sorted; empty if the whole column is read."""
    through: tuple[LineageStep, ...] = ()
    """Steps between output and origin, starting at the output; empty if the table is read directly."""


@dataclass(frozen=True, slots=True)
class LineageOutput:
    """A column that the statement writes; without inputs it is a constant, unless part of it is unresolved."""

    name: str
    """In lower case; a stream writes by name."""
    expression: str
    inputs: tuple[LineageInput, ...]
    """Sorted by kind and origin; an origin listed as a value is not repeated as a condition."""
    offset: int
    """Offset in `ParsedStatement.select` of the expression's first name."""


@dataclass(frozen=True, slots=True)
class LineageCondition:
    """A clause that decides which rows or groups the statement writes."""

    clause: str
    """WHERE, JOIN, GROUP BY, HAVING, DISTINCT, WATERMARK, LATERAL VIEW, FROM …; FROM stands for a table's rows."""
    expression: str
    inputs: tuple[LineageInput, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class UnresolvedName:
    """A name that cannot be resolved; never guessed, never dropped."""

    name: str
    """As written, without backticks."""
    reason: str
    """One sentence without a full stop."""
    within: str
    """The output column or clause that contains it."""
    offset: int
    lacking: tuple[str, ...] = ()
    """For a column that surely does not exist: all tables and WITH queries that could have it."""
    known: tuple[str, ...] = ()
    """The columns of `lacking`, sorted."""


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """A position in the statement that names a column of a table."""

    origin: ColumnOrigin
    offset: int


@dataclass(frozen=True, slots=True)
class StatementLineage:
    """The lineage of one statement."""

    outputs: tuple[LineageOutput, ...]
    conditions: tuple[LineageCondition, ...]
    unresolved: tuple[UnresolvedName, ...]
    references: tuple[ColumnReference, ...]
    """In text order; includes those in unused WITH queries, which Spark checks too."""
