"""Verdicts on upgrades from rows, and their relation to the plan's own classification."""

from dataclasses import replace

import pytest
import small_project

from core.model.names import TableName
from core.project.revision import Revision
from core.project_reader.revision_reader import revision_of
from core.statement_tests.case import Row, StatementCase
from core.statement_tests.request import CaseOutcome, CaseResult, UpgradeVerdict
from core.statement_tests.upgrade import planned_change, upgrade_words, verdict_of

COLUMNS = (("id", "bigint"), ("kind", "string"))
CASE = StatementCase("one", "tests/one.yml", TableName("a"), ())
A, B, X, Y = (1, "a"), (2, "b"), (1, "x"), (2, "y")


@pytest.mark.parametrize(
    ("before", "end", "verdict", "missing"),
    [
        ((A,), (A, B), UpgradeVerdict.SAFE, ()),
        ((), (B, A), UpgradeVerdict.SAFE, ()),
        ((X,), (X, B), UpgradeVerdict.SEAM, (A,)),
        ((), (B,), UpgradeVerdict.SEAM, (A,)),
        ((A,), (A, Y), UpgradeVerdict.MIXED, (B,)),
        ((A,), (A,), UpgradeVerdict.MIXED, (B,)),
    ],
)
def test_rows_before_the_change_are_a_seam_and_rows_after_it_are_mixed(
    before: tuple[Row, ...], end: tuple[Row, ...], verdict: UpgradeVerdict, missing: tuple[Row, ...]
) -> None:
    found, difference = verdict_of(CASE, COLUMNS, alone=((A,), (A, B)), upgraded=(before, end))
    assert (found, difference.missing) == (verdict, missing)


def revision(select: str) -> Revision:
    return revision_of(small_project.project(small_project.texts(a=select)).tables[TableName("a")])


def words(old: str, new: str, verdict: UpgradeVerdict) -> tuple[str, ...]:
    tables = small_project.project(small_project.texts()).tables
    outcome = CaseOutcome.PASSED if verdict is UpgradeVerdict.SAFE else CaseOutcome.FAILED
    result = CaseResult("", "a", "one", outcome, "", verdict=verdict)
    return upgrade_words(result, planned_change(revision(old), revision(new), tables))


PLAIN = "SELECT id, kind FROM STREAM landed"
FILTERED = f"{PLAIN} WHERE id > 1"
NAMED = "SELECT id, kind FROM STREAM landed IDENTIFIED BY one"


def test_the_action_of_a_plan_is_shown_and_whether_it_announces_a_seam() -> None:
    said = words(PLAIN, FILTERED, UpgradeVerdict.SEAM)
    assert said[1] == "a plan would restart the statement: filter or projection (3)"
    assert said[-1].startswith("the plan announces it: rows that are there already")


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (PLAIN, FILTERED, UpgradeVerdict.MIXED),
        (PLAIN, FILTERED, UpgradeVerdict.REFUSED),
        (PLAIN, f"{PLAIN} -- the same", UpgradeVerdict.SEAM),
    ],
)
def test_a_plan_that_continues_on_wrong_rows_is_contradicted(old: str, new: str, verdict: UpgradeVerdict) -> None:
    assert words(old, new, verdict)[-1].startswith("PLAN AND TEST DISAGREE")


def test_a_rebuild_where_rows_are_the_same_stays_a_rebuild() -> None:
    assert "does not prove" in words(PLAIN, NAMED, UpgradeVerdict.SAFE)[-1]
    assert not any("DISAGREE" in each for each in words(PLAIN, NAMED, UpgradeVerdict.MIXED))


def test_a_case_that_did_not_run_shows_only_the_action_of_a_plan() -> None:
    tables = small_project.project(small_project.texts()).tables
    change = planned_change(revision(PLAIN), revision(FILTERED), tables)
    skipped = replace(CaseResult("", "a", "one", CaseOutcome.SKIPPED, "it has one part"))
    assert [each.startswith("a plan would") for each in upgrade_words(skipped, change)] == [True, False]
