"""Verdicts on upgrades from rows, and their relation to the plan's own classification."""

from dataclasses import replace

import pytest
import small_project

from core.model.names import TableName
from core.project.revision import Revision
from core.project_reader.revision_reader import revision_of
from core.statement_tests.case import Row, StatementCase
from core.statement_tests.request import CaseOutcome, CaseResult, UpgradeVerdict
from core.statement_tests.upgrade import compatible_code, planned_change, shown_unsafe, upgrade_words, verdict_of

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


CODE = "def a(landed):\n    return landed.withColumn('kind', F.{}('kind'))\n"
SAFE, SEAM, MIXED, REFUSED = UpgradeVerdict


def job(function: str, yml: str = "", ddl: str = "") -> Revision:
    """Return a revision of table a as a job whose code calls a function of Spark."""
    files = small_project.texts()
    folder = "pipelines/facts/p/a"
    files[f"{folder}/sql-scripts/job.a.py"] = CODE.format(function)
    del files[f"{folder}/sql-scripts/dml.a.sql"]
    files[f"{folder}/a.yml"] = yml
    if ddl:
        files[f"{folder}/sql-scripts/ddl.a.sql"] = ddl
    return revision_of(small_project.project(files).tables[TableName("a")])


def job_words(old: Revision, new: Revision, verdict: UpgradeVerdict) -> tuple[tuple[str, ...], str]:
    """Return the words on an upgrade, and what would be reported to the agent."""
    tables = small_project.project(small_project.texts()).tables
    result = CaseResult("", "a", "one", CaseOutcome.FAILED, "", verdict=verdict)
    change = planned_change(old, new, tables)
    return upgrade_words(result, change, compatible_code(old, new, tables)), shown_unsafe(result, change)


@pytest.mark.parametrize(("verdict", "named"), [(SAFE, True), (SEAM, True), (MIXED, False), (REFUSED, False)])
def test_state_that_new_code_continues_correctly_is_named_with_the_line_that_makes_a_restart(
    verdict: UpgradeVerdict, named: bool
) -> None:
    old, new = job("upper"), job("initcap")
    tables = small_project.project(small_project.texts()).tables
    line = f"state_compatible: {compatible_code(old, new, tables)}"
    said, reported = job_words(old, new, verdict)
    assert said[1] == "a plan would rebuild the statement: state no longer fits (6a)"
    assert any(line in each for each in said) is named and not reported
    declared, reported = job_words(old, job("initcap", line), verdict)
    assert declared[1] == "a plan would restart the statement: output of the state (6c)"
    assert declared[2] == "state_compatible in its yml declares that the new code continues this state"
    assert declared[-1].startswith("PLAN AND TEST DISAGREE") is bool(reported) is (not named)


def test_no_line_is_named_if_a_plan_rebuilds_for_another_reason_or_the_text_is_sql() -> None:
    tables = small_project.project(small_project.texts()).tables
    wider = "CREATE TABLE a (id BIGINT, kind STRING, other STRING NOT NULL) USING parquet;"
    assert compatible_code(job("upper"), job("initcap", ddl=wider), tables) == ""
    assert compatible_code(revision(PLAIN), revision(NAMED), tables) == ""
    assert compatible_code(job("upper"), job("upper"), tables) == ""
