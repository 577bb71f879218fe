"""Totals of versions with different grouping: what differs, and when that is unexpected."""

from dataclasses import replace
from typing import Any

import pytest

from core.sql.comparison.row_effects import CommonTotal, CommonTotals, RowEffect, RowSide, TotalsDifferenceReason
from core.text.sentence import Fact
from core.validation.comparison_queries import ComparedRows
from core.validation.expected_differences import ExpectedDifferences
from core.validation.regrouped_totals import totals_query, totals_result

TOTALS = CommonTotals(
    ("since",),
    (CommonTotal("sum(v)", "sum(s)", "sum(s)", ("s", "s")), CommonTotal("count(*)", "sum(n)", "count(*)", ("n", ""))),
)
COLUMNS = ("since", "s", "n", "most")
EQUAL: dict[str, Any] = {"groups": 20, "only_old": 0, "only_new": 0, "apart_0": 0, "apart_1": 0, "example": None}


def test_equal_totals_are_named_with_the_columns_not_compared() -> None:
    found = totals_result(TOTALS, [EQUAL], ExpectedDifferences(unpairable_because="x"), COLUMNS)
    assert (found.verdict, found.summary) == ("expected", "sum(v), count(*) equal for each since; not compared: most")
    keys = totals_result(replace(TOTALS, totals=()), [EQUAL], ExpectedDifferences(unpairable_because="x"), ("since",))
    assert keys.summary == "the values of since equal for each since"


@pytest.mark.parametrize(
    ("unless", "effects", "verdict", "words"),
    [
        (None, (), "unexpected", ", unexpected"),
        (TotalsDifferenceReason.HAVING.of(), (), "expected", ": HAVING removes groups (may be explained)"),
        (None, (RowEffect(RowSide.OLD, "filter added: x"),), "expected", ": filter added: x (may be explained)"),
    ],
)
def test_totals_that_differ_are_unexpected_unless_rows_differ_for_another_reason(
    unless: Fact[TotalsDifferenceReason] | None, effects: tuple[RowEffect, ...], verdict: str, words: str
) -> None:
    example = {"k": '{"since":1}', "o": '{"sum(v)":"4"}', "n": None}
    row = EQUAL | {"apart_0": 7, "only_old": 1, "example": example}
    expected = ExpectedDifferences(unpairable_because="GROUP BY changed", rows=effects)
    found = totals_result(replace(TOTALS, unless=unless), [row], expected, COLUMNS)
    lead = "sum(v) differs in 7 of 20; 1 value of since only in the old version"
    assert (found.verdict, found.summary) == (verdict, f"{lead}{words}; not compared: most")
    (example_shown,) = found.examples
    assert (example_shown["old"], example_shown["new"]) == ({"since": 1, "sum(v)": "4"}, None)


def test_floats_are_added_up_in_nine_digits_and_numbers_of_any_type_as_decimals() -> None:
    rows = ComparedRows("o", "n", (("s", "double"), ("n", "bigint")), frozenset())
    query = totals_query(rows, TOTALS)
    assert "format_string('%.9e', sum(s) + 0D)" in query
    assert "CAST(try_cast(count(*) AS DECIMAL(38, 9)) AS STRING)" in query
