"""Lineage of a statement's columns and rows, as frozen values that can be used without a parser.

An input is either a *value*, which flows into a column, or a *condition*, which decides which rows or groups exist. The
test of a CASE is a value, because it selects a value within its own row. FILTER is a condition, and so are the
PARTITION BY and ORDER BY of a window.
"""

from dataclasses import dataclass
from enum import StrEnum

from core.model.names import TableName
from core.text.sentence import Sentence


class InputKind(StrEnum):
    """How an input contributes to an output: as a value or as a condition."""

    VALUE = "value"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True, order=True)
class ColumnOrigin:
    """A column of a table that the statement reads, or the rows of that table if `column` is empty."""

    table: TableName
    column: str = ""
    """Name of the column, spelled as in the DDL."""


@dataclass(frozen=True, slots=True)
class LineageStep:
    """A column of a CTE or subquery between an output and its origin."""

    name: str
    """Name of the column as `part.column`; `part` is the name of the CTE or subquery in the statement."""
    expression: str


@dataclass(frozen=True, slots=True)
class LineageInput:
    """A column of a table, or the rows of a table, on which an output or a condition depends."""

    origin: ColumnOrigin
    kind: InputKind
    expression: str
    """SQL of the output or condition, with columns qualified by WITH query, or by table if there are several tables."""
    fields: tuple[str, ...] = ()
    """Paths of the struct fields that are read, sorted; empty if the whole column is read."""
    through: tuple[LineageStep, ...] = ()
    """Columns between output and origin, starting at the output; empty if the table is read directly."""


@dataclass(frozen=True, slots=True)
class LineageOutput:
    """A column that the statement writes; it is constant if it has no inputs and no unresolved names."""

    name: str
    """Column name in lower case; streams match columns by name."""
    expression: str
    inputs: tuple[LineageInput, ...]
    """Inputs sorted by kind and origin. An origin of a value is not listed again as a condition."""
    offset: int
    """Offset in `ParsedStatement.select` of the first name in the expression."""
    copies: ColumnOrigin | None = None
    """The column of a table whose values the output has unchanged; None if it computes others."""


@dataclass(frozen=True, slots=True)
class LineageCondition:
    """A clause that decides which rows or groups the statement writes."""

    clause: str
    """Name of the clause: WHERE, JOIN, GROUP BY, HAVING, DISTINCT, WATERMARK, LATERAL VIEW, FROM …

    FROM means that the output's rows depend on the rows of a table in FROM.
    """
    expression: str
    inputs: tuple[LineageInput, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class UnresolvedName:
    """A name that cannot be resolved, with the reason."""

    name: str
    """The name as written, without backticks."""
    reason: Sentence
    """The reason, without a full stop."""
    within: str
    """The output column or clause that contains the name."""
    offset: int
    lacking: tuple[str, ...] = ()
    """The tables and WITH queries that were searched; empty unless the column is certain not to exist."""
    known: tuple[str, ...] = ()
    """The columns of the tables and WITH queries in `lacking`, sorted."""


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """An occurrence of a table column's name in a statement."""

    origin: ColumnOrigin
    offset: int


@dataclass(frozen=True, slots=True, order=True)
class ColumnComparison:
    """A term of ON, USING or WHERE that compares two columns of tables, whose values no expression has changed."""

    one: ColumnOrigin
    other: ColumnOrigin
    equal: bool
    """True for `one = other`; False for `one <= other` or `one < other`."""


@dataclass(frozen=True, slots=True)
class StatementLineage:
    """The lineage of one statement."""

    outputs: tuple[LineageOutput, ...]
    conditions: tuple[LineageCondition, ...]
    unresolved: tuple[UnresolvedName, ...]
    references: tuple[ColumnReference, ...]
    """References in text order, including those in unused WITH queries, because Spark checks them as well."""
    comparisons: tuple[ColumnComparison, ...] = ()
    """The comparisons among the terms that AND combines in these clauses; sorted."""
