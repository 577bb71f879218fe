"""Results of integration tests: what was found, as a fact, and the first table whose rows differ."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.model.names import TableName
from core.statement_tests.case import Row, TypedColumns
from core.statement_tests.comparison import MOST_FOUND, RowDifference, compare_rows
from core.statement_tests.request import CaseOutcome
from core.text.sentence import Fact, FactKind


class Found(FactKind):
    """What an integration test has found."""

    AS_EXPECTED = "{rows:row} in {tables:table} as expected, at most {slowest_s} s after a part"
    DIFFERENT = "{table} differs: {missing} missing, {unexpected} unexpected, {differing} with other values"
    TOO_MANY = "{table} has more rows than are compared ({most})"
    TOO_SLOW = "part {part} was not read everywhere within {seconds} s: {why}"
    FAILED = "after part {part}, {error}"
    ERROR = "{error}"
    NO_KEY = "a key pairs missing rows with unexpected ones and shows which columns differ: key: {{{table}: [column]}}"
    STAND_IN = "files stood for {tables:and}, so the connection to the database was not tested"


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one case or scenario."""

    __test__ = False

    name: str
    """`product/case`, or `scenario: tables`."""
    path: str
    """Path of the case's file; empty for a scenario."""
    outcome: CaseOutcome
    fact: Fact[FactKind]
    took_s: float = 0.0
    """Duration with the start and the end of its environment."""
    table: str = ""
    """The first table downstream that is at fault; empty if none is."""
    difference: Mapping[str, Any] | None = None
    """The output of `RowDifference.as_json` for that table."""
    notes: tuple[Fact[FactKind], ...] = field(default=())
    """What else was found, such as other tables that differ."""

    @property
    def passed(self) -> bool:
        """False if the test failed or could not be run to its end."""
        return self.outcome in (CaseOutcome.PASSED, CaseOutcome.SKIPPED)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "name": self.name,
            "file": self.path or None,
            "outcome": str(self.outcome),
            "fact": self.fact.as_json(),
            "table": self.table or None,
            "difference": self.difference,
            "notes": [note.as_json() for note in self.notes],
            "took_s": round(self.took_s, 1),
        }


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table with its expected and found rows; the key is given in lower case."""

    table: TableName
    columns: TypedColumns
    expected: tuple[Row, ...]
    found: tuple[Row, ...]
    key: tuple[str, ...] = ()


def first_difference(tables: Iterable[CheckedTable], *, tolerance: float) -> tuple[CheckedTable, RowDifference] | None:
    """Return the first table whose rows differ from the expected ones. Upstream tables come first in `tables`."""
    for each in tables:
        difference = compare_rows(each.columns, each.expected, each.found, key=each.key, tolerance=tolerance)
        if difference:
            return each, difference
    return None


def judged(name: str, path: str, tables: tuple[CheckedTable, ...], *, tolerance: float, slowest_s: float) -> TestResult:
    """Compare all tables, upstream ones first, and return the result; its duration is added later."""
    for each in tables:
        if len(each.found) > MOST_FOUND:
            fact: Fact[FactKind] = Found.TOO_MANY.of(table=each.table, most=MOST_FOUND)
            return TestResult(name, path, CaseOutcome.FAILED, fact, table=each.table)
    if (first := first_difference(tables, tolerance=tolerance)) is not None:
        at, difference = first
        fact = Found.DIFFERENT.of(
            table=at.table,
            missing=len(difference.missing),
            unexpected=len(difference.unexpected),
            differing=len(difference.differing),
        )
        notes = (
            (Found.NO_KEY.of(table=at.table),) if difference.missing and difference.unexpected and not at.key else ()
        )
        return TestResult(
            name, path, CaseOutcome.FAILED, fact, table=at.table, difference=difference.as_json(), notes=notes
        )  # fmt: skip
    rows = sum(len(each.expected) for each in tables)
    fact = Found.AS_EXPECTED.of(rows=rows, tables=len(tables), slowest_s=round(slowest_s, 1))
    return TestResult(name, path, CaseOutcome.PASSED, fact)
