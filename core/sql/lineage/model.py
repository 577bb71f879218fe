"""Where a statement's columns and rows come from, as frozen values that need no parser to read.

Two kinds are kept apart: a *value* flows into a column; a *condition* decides which rows or groups there are. A test of
CASE is a value: it picks a value for its own row. FILTER, PARTITION BY and ORDER BY of a window are conditions.
"""

from dataclasses import dataclass
from enum import StrEnum

from core.model.names import TableName


class InputKind(StrEnum):
    """How an input matters."""

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
    """A column of a CTE or subquery on the way."""

    name: str
    """`part.column`, the part as its author named it."""
    expression: str


@dataclass(frozen=True, slots=True)
class LineageInput:
    """One column, or the rows, of a table that an output or a condition stands on."""

    origin: ColumnOrigin
    kind: InputKind
    expression: str
    """SQL of the output or condition, over tables where there are several and over parts of WITH by their names."""
    fields: tuple[str, ...] = ()
    """Paths inside a struct that are read, sorted; empty when the whole column is."""
    through: tuple[LineageStep, ...] = ()
    """Parts of the statement between origin and output, from the output inwards; empty when it reads the table."""


@dataclass(frozen=True, slots=True)
class LineageOutput:
    """A column that the statement writes; no inputs mean a constant, unless something of it is unresolved."""

    name: str
    """In lower case; a stream writes by name."""
    expression: str
    inputs: tuple[LineageInput, ...]
    """Sorted by kind and origin; a value is not listed as condition again."""
    offset: int
    """In `ParsedStatement.select`: where the first name of the expression stands."""


@dataclass(frozen=True, slots=True)
class LineageCondition:
    """What decides which rows or groups the statement writes."""

    clause: str
    """WHERE, JOIN, GROUP BY, HAVING, DISTINCT, WATERMARK, LATERAL VIEW, FROM …; FROM stands for a table's rows."""
    expression: str
    inputs: tuple[LineageInput, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class UnresolvedName:
    """A name that cannot be followed; never guessed, never dropped."""

    name: str
    """As it is written, without back-ticks."""
    reason: str
    """One sentence without a full stop."""
    within: str
    """The output column or the clause that it stands in."""
    offset: int
    lacking: tuple[str, ...] = ()
    """Of a column that surely is nowhere: every table and part of WITH that could have it, and has not."""
    known: tuple[str, ...] = ()
    """With `lacking`: the columns that these have, sorted."""


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """A place in the statement that names a column of a table."""

    origin: ColumnOrigin
    offset: int


@dataclass(frozen=True, slots=True)
class StatementLineage:
    """All of one statement."""

    outputs: tuple[LineageOutput, ...]
    conditions: tuple[LineageCondition, ...]
    unresolved: tuple[UnresolvedName, ...]
    references: tuple[ColumnReference, ...]
    """In text order; those in parts of WITH that nothing reads included: Spark checks them too."""
