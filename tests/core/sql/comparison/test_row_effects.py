"""The effects of an edit on a statement's rows: which columns differ, which rows only one version has, and why."""

from collections.abc import Mapping

import pytest

from core.sql.comparison.row_effects import (
    RowCause,
    RowSide,
    StatementEffects,
    makes_nulls,
    renamed_predicate,
    row_effects,
)
from core.sql.statement_reader import read_any
from core.text.sentence import Fact

PLAIN = "SELECT id, upper(kind) AS kind, o.amount * 2 AS twice FROM STREAM a AS o"
GROUPED = (
    "SELECT window(ts, '5 minutes').start AS w, kind, count(*) AS n, sum(v) AS s FROM STREAM a "
    "WATERMARK ts DELAY OF INTERVAL 1 MINUTE GROUP BY window(ts, '5 minutes'), kind"
)
NESTED = "WITH c AS (SELECT id, amount * 2 AS m, kind FROM STREAM a) SELECT c.id, c.m FROM c"


def canonical(select: str) -> str:
    """Return a query's canonical text; batch-only queries are accepted too."""
    (found,), _ = read_any(f"INSERT INTO t {select}", "")
    return found.canonical


def effects(old: str, new: str) -> StatementEffects:
    return row_effects(canonical(old), canonical(new))


def texts(changed: Mapping[str, Fact[RowCause]]) -> dict[str, str]:
    return {name: str(why) for name, why in changed.items()}


def rows(found: StatementEffects) -> list[tuple[str, str, str]]:
    return [(row.side.value, row.why, row.predicate) for row in found.rows]


@pytest.mark.parametrize("select", [PLAIN, GROUPED, NESTED])
def test_an_unchanged_query_has_no_effect_on_rows(select: str) -> None:
    found = effects(select, select)
    assert (dict(found.changed), found.rows, found.unpairable_because) == ({}, (), None)


def test_a_filter_on_output_columns_has_a_predicate() -> None:
    assert rows(effects(PLAIN, f"{PLAIN} WHERE id > 3")) == [
        ("old", "filter added: id > 3", "NOT coalesce((`id` > 3), false)")
    ]
    assert rows(effects(f"{PLAIN} WHERE id > 3", PLAIN)) == [
        ("new", "filter removed: id > 3", "NOT coalesce((`id` > 3), false)")
    ]
    assert rows(effects(PLAIN, f"{PLAIN} WHERE upper(kind) = 'X'"))[0][2] == "NOT coalesce((`kind` = 'X'), false)"


@pytest.mark.parametrize("filtered", ["kind = 'x'", "other > 1", "amount > 1"])
def test_a_filter_that_the_output_does_not_show_has_no_predicate(filtered: str) -> None:
    """The output's `kind` is a different value, upper(kind)."""
    (row,) = rows(effects(PLAIN, f"{PLAIN} WHERE {filtered}"))
    assert row[0] == "old" and row[2] == ""


def test_a_changed_filter_removes_rows_and_adds_others() -> None:
    assert [row[:2] for row in rows(effects(f"{PLAIN} WHERE id > 3", f"{PLAIN} WHERE id > 5"))] == [
        ("old", "filter changed: id > 3 → id > 5"),
        ("new", "filter changed: id > 3 → id > 5"),
    ]
    two = rows(effects(f"{PLAIN} WHERE id > 3", f"{PLAIN} WHERE id > 5 AND id < 9"))
    assert {row[1] for row in two} == {"filter added: id > 5", "filter added: id < 9", "filter removed: id > 3"}


def test_an_edited_expression_is_a_change_of_its_column_alone() -> None:
    found = effects(PLAIN, PLAIN.replace("* 2", "* 3"))
    assert texts(found.changed) == {"twice": "column twice: amount * 2 → amount * 3"}
    assert (found.nulls, found.rows, found.unpairable_because) == (frozenset(), (), None)


def test_a_predicate_on_an_edited_column_is_dropped() -> None:
    found = effects(PLAIN, f"{PLAIN.replace('id, upper', 'id + 1 AS id, upper')} WHERE id + 1 > 3")
    assert set(found.changed) == {"id"} and rows(found)[0][2] == ""


def test_a_left_join_keeps_all_rows_and_an_inner_join_may_remove_some() -> None:
    joined = PLAIN.replace(" FROM", ", p.name FROM") + " {} JOIN p ON p.k = o.kind"
    left, inner, full = (effects(PLAIN, joined.format(word)) for word in ("LEFT", "INNER", "FULL OUTER"))
    assert (dict(left.changed), left.rows, left.unpairable_because) == ({}, (), None)
    assert [row[0] for row in rows(inner)] == ["old"] and not inner.changed
    assert [row[0] for row in rows(full)] == ["new"]
    assert [row[0] for row in rows(effects(joined.format("INNER"), PLAIN))] == ["new"]


def test_a_filter_on_a_group_key_removes_groups_and_any_other_changes_aggregates() -> None:
    on_key = effects(GROUPED, GROUPED.replace(" GROUP", " WHERE kind = 'x' GROUP"))
    assert rows(on_key) == [("old", "filter added: kind = 'x'", "NOT coalesce((`kind` = 'x'), false)")]
    assert not on_key.changed and on_key.keys == ("w", "kind")
    other = effects(GROUPED, GROUPED.replace(" GROUP", " WHERE v > 0 GROUP"))
    assert rows(other) == [("old", "filter added: v > 0", "")]
    assert texts(other.changed) == dict.fromkeys(("n", "s"), "filter added: v > 0")


def test_having_on_an_output_aggregate_has_a_predicate() -> None:
    found = effects(GROUPED, f"{GROUPED} HAVING count(*) > 2")
    assert (
        rows(found) == [("old", "HAVING added: count(*) > 2", "NOT coalesce((`n` > 2), false)")] and not found.changed
    )


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (GROUPED.replace("5 minutes", "10 minutes"), "GROUP BY changed"),
        (GROUPED.replace(", kind", ""), "GROUP BY changed"),
        (GROUPED.replace("STREAM a", "STREAM b"), "source changed"),
        (PLAIN, "GROUP BY changed"),
        (f"{GROUPED} UNION {GROUPED}", "the structure of the query changed"),
    ],
)
def test_rows_cannot_be_paired_after_an_edit_of_their_grain(new: str, why: str) -> None:
    assert str(effects(GROUPED, new).unpairable_because).startswith(why)


def test_a_lateral_view_is_named_without_the_alias_of_the_canonical_text() -> None:
    found = effects(PLAIN, f"{PLAIN} LATERAL VIEW explode(array(1, 2)) twice")
    assert (
        str(found.multiplicity_change) == "lateral view changed: none → LATERAL VIEW explode(array(1, 2))"
        and not found.merged_by
    )


def test_a_column_of_a_lateral_view_is_named_by_its_exploded_expression() -> None:
    plain = f"{PLAIN} LATERAL VIEW explode(tags) v AS tag"
    found = effects(plain, plain.replace("upper(kind)", "v.tag"))
    assert str(found.changed["kind"]) == "column kind: upper(kind) → `explode(tags)`.tag"


def test_only_removing_a_group_key_or_distinct_duplicates_rows() -> None:
    assert str(effects(GROUPED, GROUPED.replace(", kind", "")).merged_by).startswith("GROUP BY changed")
    assert effects(GROUPED, f"{GROUPED}, v").merged_by is None
    distinct = PLAIN.replace("SELECT", "SELECT DISTINCT")
    assert (str(effects(distinct, PLAIN).merged_by), effects(PLAIN, distinct).merged_by) == ("DISTINCT removed", None)


def test_an_edit_below_a_part_of_with_is_named_with_its_column_or_its_filter() -> None:
    unfolded = "SELECT c.id, c.m, p.name FROM (SELECT id, rand() * amount AS m FROM STREAM a) c JOIN p ON p.id = c.id"
    assert effects(unfolded, unfolded.replace("* amount", "* 3")).within == (
        ("m", RowCause.COLUMN.of(column="m", before="rand() * amount", after="rand() * 3")),
    )
    (row,) = rows(effects(NESTED, NESTED.replace("STREAM a)", "STREAM a WHERE kind = 'x')")))
    assert row == ("old", "filter added: kind = 'x'", "")


def test_a_row_is_distinct_only_once() -> None:
    distinct = PLAIN.replace("SELECT", "SELECT DISTINCT")
    added, removed = effects(PLAIN, distinct), effects(distinct, PLAIN)
    assert (str(added.multiplicity_change), added.withheld, added.rows) == ("DISTINCT added", RowSide.NEW, ())
    assert (str(removed.multiplicity_change), removed.withheld, removed.rows) == ("DISTINCT removed", RowSide.OLD, ())


@pytest.mark.parametrize(
    ("view", "side"),
    [("explode(tags)", "old"), ("explode(array())", "old"), ("explode(array(1))", ""), ("OUTER explode(tags)", "")],
)
def test_a_lateral_view_drops_only_rows_with_an_empty_collection(view: str, side: str) -> None:
    viewed = f"{PLAIN} LATERAL VIEW {view} x AS y"
    assert [row[0] for row in rows(effects(PLAIN, viewed))] == ([side] if side else [])
    assert [row[0] for row in rows(effects(viewed, PLAIN))] == (["new"] if side else [])
    assert not effects(PLAIN, viewed).unpairable_because


def test_a_branch_of_a_union_adds_rows_that_equal_no_others() -> None:
    twice = f"{PLAIN} UNION ALL {PLAIN} WHERE id > 3"
    (added,), (removed,) = effects(PLAIN, twice).rows, effects(twice, PLAIN).rows
    assert (added.side, added.may_equal_others, removed.side) == (RowSide.NEW, False, RowSide.OLD)
    assert effects(PLAIN, f"{PLAIN.replace('* 2', '* 3')} UNION ALL {GROUPED}").unpairable_because


def test_a_branch_of_a_union_that_is_edited_is_neither_removed_nor_added() -> None:
    other = "SELECT id, kind FROM STREAM b"
    first = "SELECT id, kind FROM STREAM a WHERE id > 0"
    for edited, words in (
        (f"{first} AND kind <> 'void'", "branch changed: filter added: kind <> 'void'"),
        (first.replace(" kind ", " upper(kind) AS kind "), "branch changed: column kind: kind → upper(kind)"),
    ):
        found = effects(f"{first} UNION ALL {other}", f"{edited} UNION ALL {other}").rows
        assert [(row.side, row.why, row.may_equal_others) for row in found] == [
            (RowSide.OLD, words, True), (RowSide.NEW, words, False),
        ]  # fmt: skip
    (old, new) = effects(f"{first} UNION ALL {other}", f"{GROUPED} UNION ALL {other}").rows
    assert old.why == new.why and old.why.startswith("branch changed: SELECT id, kind FROM STREAM a")


def test_a_left_join_turned_inner_loses_only_rows_without_a_match() -> None:
    left = "SELECT o.id, p.name, p.zone AS z FROM STREAM a AS o LEFT JOIN p ON p.k = o.kind"
    inner = left.replace("LEFT ", "")
    ((side, why, predicate),) = rows(effects(left, inner))
    assert (side, predicate) == ("old", "(`name` IS NULL AND `z` IS NULL)")
    assert why == "join with p: LEFT → INNER, which drops rows without a match"
    assert rows(effects(inner, left))[0][0::2] == ("new", predicate)
    other = effects(left, inner.replace("p.k", "p.j")).rows
    assert [(row.side.value, row.predicate, row.may_equal_others) for row in other] == [
        ("old", "", True),
        ("new", "", False),
    ]


def test_regrouped_rows_keep_their_totals() -> None:
    found = effects(GROUPED, GROUPED.replace(", kind GROUP", " GROUP").replace("), kind", ")").replace(" kind,", ""))
    assert str(found.unpairable_because).startswith("GROUP BY changed") and found.totals is not None
    assert found.totals.keys == ("w",) and not found.totals.unless
    assert [(t.words, t.old, t.new) for t in found.totals.totals] == [
        ("count(*)", "sum(n)", "sum(n)"), ("sum(v)", "sum(s)", "sum(s)"),
    ]  # fmt: skip
    plain = "SELECT kind, v FROM STREAM a"
    begins = effects(plain, "SELECT kind, sum(v) AS v, min(v) AS least, avg(v) AS mid FROM STREAM a WATERMARK ts DELAY "
                     "OF INTERVAL 1 MINUTE GROUP BY kind, window(ts, '5 minutes')").totals  # fmt: skip
    assert begins is not None and "withheld" in str(begins.unless) and begins.keys == ("kind",)
    assert {(t.words, t.old, t.new) for t in begins.totals} == {
        ("sum(v)", "sum(v)", "sum(v)"), ("min(v)", "min(v)", "min(least)"),
    }  # fmt: skip
    other = effects(GROUPED, GROUPED.replace("5 minutes", "10 minutes")).totals
    assert other is not None and other.keys == ("kind",) and "withheld" in str(other.unless)


def test_a_field_of_the_window_is_a_key_however_it_is_written() -> None:
    dotted = GROUPED.replace("window(ts, '5 minutes').start AS w", "window.start AS w")
    assert effects(dotted, dotted.replace("sum(v)", "max(v)")).keys == ("w", "kind")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("nullif(a, 0)", True), ("CASE WHEN a THEN 1 END", True), ("CASE WHEN a THEN 1 ELSE 2 END", False),
     ("try_cast(a AS INT)", False), ("NULL", True), ("a + 1", False), ("lag(a) OVER (ORDER BY b)", True)],
)  # fmt: skip
def test_only_deliberate_nulls_are_expected(expression: str, expected: bool) -> None:
    assert makes_nulls(expression) is expected


def test_a_predicate_is_renamed_as_a_whole_or_not_at_all() -> None:
    assert renamed_predicate("NOT coalesce((`id` > 3), false)", {"id": "key"}) == "NOT coalesce((`key` > 3), FALSE)"
    assert renamed_predicate("`id` > `other`", {"id": "key"}) == ""
    assert renamed_predicate("", {"id": "key"}) == ""
