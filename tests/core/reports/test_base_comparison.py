"""The report on the comparison of an overlay with its base: verdict, parts, and Markdown that nothing breaks."""

from typing import Any

import pytest

from core.model.names import TableName as T
from core.reports.base_comparison import BaseComparison, comparison_as_markdown, comparison_of
from core.run.records import OVERLAY_COMPARISON, CheckResultRow
from core.text.markdown_page import COMMENT_LIMIT

NOON = 1_798_718_400.0


def row(table: str, check: str, verdict: str = "ok", summary: str = "", **fields: Any) -> CheckResultRow:
    known = {"n": 1, "at": NOON, "old_version": 3, "new_version": 1, "old_batch": 7, "new_batch": 2} | fields
    return CheckResultRow(OVERLAY_COMPARISON, T(table), check=check, verdict=verdict, summary=summary, **known)


def report(*rows: CheckResultRow) -> BaseComparison:
    found = comparison_of("pr-123", "dev", rows)
    assert found is not None
    return found


CHANGE = row("orders", "change", "expected", "FILTER: amount > 1 || x → amount > 2")
POSITION = row("orders", "position", counts={"old_watermark_ms": 60_000, "new_watermark_ms": 60_000})
ROWS = row("orders", "rows", "expected", "10 → 8", counts={"old": 1000, "new": 998})
EXPECTED = row("orders", "differences", "expected", "2 rows only in the old version: filter",
               counts={"expected": 2, "unexpected": 0})  # fmt: skip
WRONG = row("orders", "differences", "unexpected", "1 row with other values, unexpected",
            counts={"expected": 2, "unexpected": 1},
            examples=({"why": "", "old": {"id": 1, "note": "a|b ``` c"}, "new": {"id": 1, "note": None}},
                      {"why": "filter", "old": {"id": 2}, "new": None}))  # fmt: skip
SKIPPED = row("paid", "base", "skipped", "dev has moved on", old_batch=None, new_batch=None)
TOPIC = row("sent", "differences", "skipped", "it writes a topic", counts={"left_out": "topic"})
LEFT_OUT = row("sales", "differences", "ok", "no row differs in the compared columns; not compared: items, cents",
               counts={"expected": 0, "unexpected": 0, "columns_left_out": {
                   "items": {"kind": "changed", "because": "orders.items: column items: a|b → c"},
                   "cents": {"kind": "changed", "because": "orders.items: column items: a|b → c"},
                   "id": {"kind": "not deterministic", "because": "column id: uuid"}}})  # fmt: skip
NEW = row("fresh", "presence", "skipped", "only pr-123 has it", old_version=0)
GONE = row("other", "presence", "skipped", "only dev has it", new_version=0)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ((CHANGE, EXPECTED), "nothing unexpected in 1 compared table"),
        ((CHANGE, WRONG, SKIPPED), "unexpected: orders, of 1 compared table; 1 table could not be compared: paid"),
        ((SKIPPED, NEW), "no rows were compared; 1 table could not be compared: paid"),
        ((NEW, GONE), "no rows were compared"),
        ((CHANGE, EXPECTED, TOPIC), "nothing unexpected in 1 compared table; 1 table not compared"),
        ((GONE,), "no rows were compared, because pr-123 serves no table yet"),
    ],
)
def test_the_verdict_says_what_was_compared(rows: tuple[CheckResultRow, ...], verdict: str) -> None:
    assert str(report(*rows).verdict) == verdict


def test_a_comparison_without_rows_is_none() -> None:
    assert comparison_of("pr-123", "dev", ()) is None


def test_the_parts_are_apart() -> None:
    found = report(CHANGE, EXPECTED, SKIPPED, NEW, GONE)
    assert [[each.table for each in part] for part in (
        found.compared, found.skipped, found.only_in_overlay(), found.only_in_base(), found.unexpected)] == [
        ["orders"], ["paid"], ["fresh"], ["other"], []]  # fmt: skip


def test_markdown_begins_with_the_verdict_and_has_one_row_for_each_compared_table() -> None:
    text = comparison_as_markdown(report(CHANGE, POSITION, EXPECTED, ROWS, SKIPPED, NEW, GONE))
    assert text.splitlines() == [
        "### pr-123 compared with dev: nothing unexpected in 1 compared table; 1 table could not be compared: paid",
        "",
        "**PARTLY COMPARED** · compared at 2026-12-31 12:00:00 UTC, after the same input; old: dev, new: pr-123",
        "",
        "| table | change | rows in dev | rows in pr-123 | differing rows | explained by | position |",
        "|---|---|--:|--:|--:|---|---|",
        "| orders (v3 and v1) | FILTER: amount &gt; 1 \\|\\| x → amount &gt; 2 | 1,000 | 998 | 2 "
        "| 2 rows only in the old version: filter | batches 7 and 2, watermark 1970-01-01 00:01:00 UTC |",
        "",
        "**Not compared**",
        "",
        "- `paid`: dev has moved on",
        "",
        "**Only in pr-123**",
        "",
        "- fresh@v1",
        "",
        "**Only in dev**",
        "",
        "- other@v3",
    ]


def test_columns_that_were_not_compared_are_listed_with_the_edit_although_no_row_differs() -> None:
    lines = comparison_as_markdown(report(LEFT_OUT)).splitlines()
    assert lines[0] == "### pr-123 compared with dev: nothing unexpected in 1 compared table; 3 columns not compared"
    assert lines[2].startswith("**PARTLY COMPARED** · ") and "| 0, 3 columns not compared |" in lines[6]
    at = lines.index("**Columns not compared**")
    assert lines[at + 2 :] == [
        "- `sales`: items, cents (orders.items: column items: a\\|b → c)",
        "- `sales`: id (column id: uuid)",
    ]


def test_a_comparison_that_left_nothing_out_is_ok() -> None:
    assert "**OK** · " in comparison_as_markdown(report(CHANGE, EXPECTED, ROWS))


def test_rows_that_cannot_be_paired_are_not_counted_as_equal() -> None:
    words = "rows cannot be paired: GROUP BY changed"
    text = comparison_as_markdown(report(row("sales", "differences", "expected", words, counts={"unpaired": 1})))
    assert "; rows of 1 table not paired" in text and "**PARTLY COMPARED**" in text and f"| ? | {words} |" in text


def test_an_overlay_with_a_window_is_called_partial_with_the_rows_that_nothing_else_explains() -> None:
    windowed = row("orders", "differences", "expected", "begins later",
                   counts={"expected": 17_012, "unexpected": 0, "from_start": 17_012})  # fmt: skip
    found = comparison_of("pr-123", "dev", (windowed,), NOON)
    assert found is not None and found.passes
    lines = comparison_as_markdown(found).splitlines()
    assert lines[0] == (
        "### pr-123 compared with dev: nothing unexpected in 1 compared table; partial: pr-123 reads its sources "
        "since 2026-12-31 12:00:00 UTC, which may explain 17,012 differing rows"
    )
    assert lines[2].startswith("**PARTLY COMPARED** · ")


@pytest.mark.parametrize(
    ("rows", "passes"),
    [((EXPECTED,), True), ((EXPECTED, NEW, GONE), True), ((TOPIC,), True), ((SKIPPED,), False), ((WRONG,), False)],
)
def test_a_comparison_passes_if_every_table_was_compared_whose_rows_can_be(
    rows: tuple[CheckResultRow, ...], passes: bool
) -> None:
    assert report(*rows).passes is passes


def test_only_unexpected_rows_are_examples_and_no_value_ends_their_block() -> None:
    lines = comparison_as_markdown(report(CHANGE, POSITION, WRONG, ROWS)).splitlines()
    assert lines[2].startswith("**UNEXPECTED** · ")
    assert "| 3, 1 unexpected | NOT EXPLAINED: differences |" in lines[6]
    at = lines.index("- `orders`, differences: 1 row with other values, unexpected")
    assert lines[at + 2 : at + 6] == [
        "````diff", '- {"id": 1, "note": "a|b ``` c"}', '+ {"id": 1, "note": null}', "````",
    ]  # fmt: skip
    assert '{"id": 2}' not in "\n".join(lines)


def test_markdown_fits_into_a_comment_and_says_what_it_leaves_out() -> None:
    rows = []
    for n in range(900):
        big = {"why": "", "old": None, "new": {"note": "x" * 1900}}
        rows += [row(f"t{n:03}", "differences", "unexpected", "wrong " * 40, examples=(big, big, big)), NEW]
    text = comparison_as_markdown(report(*rows))
    assert len(text.encode()) <= COMMENT_LIMIT
    assert "more tables left out" in text and "headgate release diff --last shows all of them" in text
