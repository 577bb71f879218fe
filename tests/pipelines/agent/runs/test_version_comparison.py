"""What a comparison of two versions expects besides their edits: rows kept by a seam, and partial versions."""

from dataclasses import replace
from typing import Any

import pytest
from ledger_rows import deployment_row, external_row

from core.model.names import TableName
from core.observed.aligned_positions import AlignedPair
from core.observed.versions import Binding
from core.project.revision import RevisionTexts
from core.sql.comparison.row_effects import RowEffect, RowSide
from core.validation.comparison_queries import ComparedRows
from core.validation.expected_differences import ExpectedDifferences
from core.validation.verdicts import differences_result
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.compared_versions import LedgerVersions
from pipelines.agent.runs.differences_explained_by_release import VersionPair, expected_of, of_release
from pipelines.agent.runs.version_comparison import VersionComparison

TEXTS = RevisionTexts(ddl="CREATE TABLE a (id INT) USING parquet", dml="INSERT INTO a SELECT id FROM STREAM raw")


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, ""),
        ({"older_rows": "rows from raw@v1"}, "a@v1 holds rows from raw@v1, in any number"),
        ({"begins_after": "batch 7 of a@v0"}, "a@v1 begins with the rows after batch 7 of a@v0, in any number"),
        ({"begins_where": ("raw.ts >= 1",)}, "a@v1 begins with raw.ts >= 1, in any number"),
    ],
)
def test_rows_of_the_serving_version_from_other_texts_may_differ_in_any_way(
    known: dict[str, Any], words: str, agent: AgentContext
) -> None:
    old, new = (
        deployment_row(table=TableName("a"), version=n, revision="r", texts=TEXTS, **more)
        for n, more in ((1, known), (2, {}))
    )
    expected = of_release(agent.files, LedgerVersions(agent.ledger), {}, old, new)
    assert {row.why for row in expected.rows} == ({words} if words else set())
    assert {row.side for row in expected.rows} == ({*RowSide} if words else set()) and not expected.unpairable_because


TIMED = RevisionTexts(
    ddl="CREATE TABLE a (id INT, at TIMESTAMP) USING parquet", dml="INSERT INTO a SELECT id, ts AS at FROM STREAM raw"
)
GROUPED = "INSERT INTO a SELECT 1 AS id, ts AS at FROM STREAM raw WATERMARK ts DELAY OF INTERVAL 1 DAY GROUP BY ts"


def test_a_version_that_begins_later_lacks_only_rows_from_before_its_start(agent: AgentContext) -> None:
    raw = external_row("raw", texts=RevisionTexts("CREATE TABLE raw (id INT, ts TIMESTAMP) USING json LOCATION 'r'"))
    known = {(TableName("raw"), 0): raw}
    reads = (Binding(TableName("raw"), 0, True),)
    where = ("raw.ts >= TIMESTAMP '2026-01-01'",)
    old, new = (
        deployment_row(version=n, texts=TIMED, bindings=reads, begins_where=begins)
        for n, begins in ((1, where), (2, ()))
    )
    (row,) = of_release(agent.files, LedgerVersions(agent.ledger), known, old, new).rows
    assert (row.side, row.why) == (RowSide.NEW, f"a@v1 begins with {where[0]}")
    assert "`at`" in row.predicate and row.predicate.startswith("NOT coalesce(")
    grouped = replace(TIMED, dml=GROUPED)
    old, new = replace(old, texts=grouped), replace(new, texts=grouped)
    assert {each.why for each in of_release(agent.files, LedgerVersions(agent.ledger), known, old, new).rows} == {
        f"a@v1 begins with {where[0]}, in any number"
    }


@pytest.mark.parametrize(
    ("before", "most"),
    [
        ({}, 150),
        ({"begins_after": "batch 3 of a@v0"}, None),
        ({"older_rows": "rows from raw@v1"}, None),
        (None, None),
    ],
)
def test_no_more_rows_can_be_new_than_the_version_before_held_up_to_its_last_batch(
    before: dict[str, Any] | None, most: int | None, agent: AgentContext, pool: Any
) -> None:
    pool.answered["headgate_before"] = (("n",), ((150,),))
    old, new = (
        deployment_row(table="a", version=n, texts=TEXTS, **begins)
        for n, begins in (
            (2, {"begins_after": "wherever", "begins_after_version": 1, "begins_after_batch": 7}),
            (3, {}),
        )
    )
    if before is not None:
        agent.ledger.put_deployment(deployment_row(table="a", version=1, texts=TEXTS, **before))
    comparison = VersionComparison(agent, LedgerVersions(agent.ledger))
    with comparison.turn():
        comparison.compare(VersionPair(old, new, AlignedPair(1, 1)))
    (differences,) = [sql for sql, _ in pool.compared if "WITH uneven" in sql]
    assert differences
    assert any("count(*) AS n FROM headgate_before" in sql for sql, _ in pool.compared) is (most is not None)


def test_rows_that_a_later_start_or_an_edit_may_explain_are_not_put_down_to_the_edit(
    agent: AgentContext, pool: Any
) -> None:
    pool.answered["WITH uneven"] = (("side", "effect", "old_rows", "new_rows"), (("old", 0, 9, 0),))
    edited = replace(TEXTS, dml="INSERT INTO a SELECT id FROM STREAM raw WHERE kind > 3")
    old = deployment_row(table="a", version=1, texts=TEXTS)
    new = deployment_row(table="a", version=2, texts=edited, begins_after="4 files written before noon")
    comparison = VersionComparison(agent, LedgerVersions(agent.ledger))
    with comparison.turn():
        found = comparison.compare(VersionPair(old, new, AlignedPair(1, 1)))
    (differences,) = [each for each in found if each.check == "differences"]
    starts = "a@v2 begins with the rows after 4 files written before noon, in any number"
    words = f"9 rows only in the old version: {starts} or filter added: kind > 3 (may be explained)"
    assert (differences.summary, differences.counts["from_start"]) == (words, 9)


@pytest.mark.parametrize(("rows", "verdict"), [(150, "expected"), (151, "unexpected")])
def test_rows_beyond_what_can_be_new_are_unexpected(rows: int, verdict: str) -> None:
    effect = RowEffect(RowSide.NEW, "a@v2 begins later", most=150)
    group = {"side": "new", "effect": 0, "old_rows": 0, "new_rows": rows}
    expected = ExpectedDifferences(rows=(effect,))
    compared = ComparedRows("o", "n", (("id", "int"),), frozenset({"id"}))
    found = differences_result(compared, [group], expected.rows, expected)
    assert found.verdict == verdict
    if verdict == "unexpected":
        assert "151 rows only in the new version, of which a@v2 begins later explains 150 at most" in found.summary


def test_distinct_withholds_rows_that_its_watermark_has_not_passed(agent: AgentContext) -> None:
    streamed = "SELECT id, at FROM STREAM raw WATERMARK at DELAY OF INTERVAL 1 MINUTE WHERE id > 3"
    old, new = (
        deployment_row(version=n, texts=replace(TIMED, dml=f"INSERT INTO a {select}"))
        for n, select in (
            (1, streamed.replace(" WHERE id > 3", "")),
            (2, streamed.replace("SELECT", "SELECT DISTINCT")),
        )
    )
    told = expected_of(
        agent.files, LedgerVersions(agent.ledger), VersionPair(old, new, AlignedPair(4, 5, 60_000, 61_000))
    ).rows
    assert [(row.side.value, row.why, row.predicate) for row in told] == [
        ("old", "filter added: id > 3, whose condition is NULL there", "((`id` > 3)) IS NULL"),
        ("old", "filter added: id > 3", "NOT coalesce((`id` > 3), false)"),
        ("old", "DISTINCT withholds rows that the watermark has not passed", "at >= timestamp_millis(61000)"),
    ]
    back = expected_of(
        agent.files, LedgerVersions(agent.ledger), VersionPair(new, old, AlignedPair(5, 4, 61_000, 60_000))
    ).rows
    assert [(row.side.value, row.predicate) for row in back][-1] == ("new", "at >= timestamp_millis(61000)")


def test_late_rows_do_not_duplicate_a_group(agent: AgentContext) -> None:
    behind = AlignedPair(4, 5, 60_000, 61_000, same_watermarks=False)
    grouped = replace(TIMED, dml=GROUPED)
    for texts, alike in ((TIMED, True), (grouped, False)):
        old, new = (deployment_row(version=n, texts=texts) for n in (1, 2))
        (row,) = expected_of(agent.files, LedgerVersions(agent.ledger), VersionPair(old, new, behind)).rows
        assert (row.side, row.may_equal_others) == (RowSide.NEW, alike)
