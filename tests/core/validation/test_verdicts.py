"""Verdicts on a comparison: what blocks, in which words, and what is never shown."""

import json
from dataclasses import replace

import pytest

from core.sql.comparison.row_effects import RowEffect, RowSide
from core.validation.comparison_queries import ComparedRows, duplicates_query, sampling
from core.validation.expected_differences import ExpectedDifferences
from core.validation.verdicts import (
    EXAMPLE_CHARACTERS,
    CheckResult,
    CheckVerdict,
    blocking_words,
    differences_result,
    duplicates_result,
    kept_rows_result,
    profile_results,
    project_check_result,
    schema_result,
)

ROWS = ComparedRows("o", "n", (("id", "bigint"), ("price", "double")), frozenset({"id", "price"}))
NONE = ExpectedDifferences()
SAME = CheckResult("differences", CheckVerdict.OK, "no row differs")
FILTER = ExpectedDifferences(rows=(RowEffect(RowSide.OLD, "filter added: id > 2", "NOT (`id` > 2)"),))


def side(name: str, rows: int, **more: object) -> dict[str, object]:
    filled = {"filled_0": rows, "filled_1": rows, "sum_0": "6", "sum_1": "1.5"}
    return {"side": name, "rows": rows, **filled, **more}


def group(name: str, effect: int, old: int, new: int, *examples: tuple[str | None, str | None]) -> dict[str, object]:
    found: dict[str, object] = {"side": name, "effect": effect, "old_rows": old, "new_rows": new}
    for n in (1, 2, 3):
        found[f"old_{n}"], found[f"new_{n}"] = examples[n - 1] if n <= len(examples) else (None, None)
    return found


def judged(old: dict[str, object], new: dict[str, object], expected: ExpectedDifferences = NONE) -> dict[str, str]:
    found = profile_results(ROWS, (old, new), expected, SAME)
    return {result.check: str(result.verdict) for result in found if result.verdict != "ok"}


def test_equal_profiles_are_ok_and_sums_of_floats_may_differ_in_the_tenth_digit() -> None:
    assert judged(side("old", 3), side("new", 3)) == {}
    assert judged(side("old", 3, sum_1="0.1"), side("new", 3, sum_1="0.10000000000000009")) == {}
    assert judged(side("old", 3, sum_0="6"), side("new", 3, sum_0="7")) == {"sums": "unexpected"}


def test_a_number_of_distinct_values_is_shown_as_an_estimate() -> None:
    sides = (side(name, 3, distinct_0=n, most_0=str(n)) for name, n in (("old", 3), ("new", 2)))
    (profile,) = [found for found in profile_results(ROWS, tuple(sides), FILTER, SAME) if found.check == "profile"]
    assert profile.summary == "id: distinct values ≈3 → ≈2; id: most 3 → 2"


def test_counts_that_an_edit_explains_are_expected_only_where_its_rows_are() -> None:
    assert judged(side("old", 3), side("new", 2), FILTER)["rows"] == "expected"
    differ = CheckResult("differences", CheckVerdict.UNEXPECTED, "x")
    found = profile_results(ROWS, (side("old", 3), side("new", 2)), FILTER, differ)
    assert found[0].verdict == "unexpected"


def test_a_version_that_has_become_empty_is_blocked_whatever_explains_rows_that_are_gone() -> None:
    found = profile_results(ROWS, (side("old", 3), side("new", 0)), FILTER, SAME)
    assert (found[0].verdict, found[0].summary) == ("unexpected", "3 → 0, the new version is empty")
    withheld = profile_results(ROWS, (side("old", 3), side("new", 0)), FILTER, SAME, empties=True)
    assert withheld[0].verdict == "expected"


@pytest.mark.parametrize(
    ("gone", "verdict", "words"),
    [
        (0, "ok", "the new version has every row of the old one"),
        (50, "expected", "the new version lacks 50 of 100 rows of the old one: the source changed (may be explained)"),
        (51, "unexpected", "the new version lacks 51 of 100 rows of the old one, unexpected"),
    ],
)
def test_rows_kept_over_a_different_query_may_only_lack_a_few(gone: int, verdict: str, words: str) -> None:
    found = kept_rows_result([{"rows": 100, "gone": gone}], "the source changed")
    assert (found.verdict, found.summary) == (verdict, words)


def test_exploding_duplicated_rows_duplicates_them_no_further() -> None:
    exploded = ExpectedDifferences(multiplicity_change="lateral view changed")
    for keys, verdict in ((5, "expected"), (6, "unexpected")):
        sides = [{"side": "old", "keys": 5, "excess": 5}, {"side": "new", "keys": keys, "excess": 12}]
        assert duplicates_result(ROWS, sides, exploded, declared=False).verdict == verdict


def test_columns_that_are_not_compared_are_named() -> None:
    apart = ExpectedDifferences(
        changed={"price": "column price: first(price) depends on the order of rows"}, volatile=frozenset({"price"})
    )
    found = differences_result(ROWS, [], (), apart)
    assert found.verdict == "expected" and found.summary == f"not compared: {apart.changed['price']}"
    assert found.counts["columns_left_out"] == {
        "price": {"kind": "not deterministic", "because": apart.changed["price"]}
    }


def test_no_row_is_called_equal_if_a_changed_column_was_left_out_of_the_comparison() -> None:
    edited, rows = ExpectedDifferences(changed={"price": "value changed"}), replace(ROWS, equal=frozenset({"id"}))
    found = differences_result(rows, [], (), edited)
    assert (found.verdict, found.summary) == ("ok", "no row differs in the compared columns; not compared: price")
    assert found.counts["columns_left_out"] == {"price": {"kind": "changed", "because": "value changed"}}
    (sums,) = [one for one in profile_results(rows, (side("old", 3), side("new", 3, sum_1="2")), edited, found)
               if one.check == "sums"]  # fmt: skip
    assert (sums.verdict, sums.summary) == ("expected", "sums of price: 1.5 → 2")
    lost = differences_result(rows, [group("old", -1, 2, 0)], (), edited)
    assert lost.summary.endswith(", unexpected; not compared: price")
    assert differences_result(ROWS, [], (), NONE).summary == "no row differs"


def test_a_new_branch_explains_no_rows_that_are_equal_to_others() -> None:
    excess = [{"side": "new", "keys": 3, "excess": 3, "least": None, "most": None}]
    for alike, verdict in ((True, "expected"), (False, "unexpected")):
        expected = ExpectedDifferences(rows=(RowEffect(RowSide.NEW, "branch added", may_equal_others=alike),))
        assert duplicates_result(ROWS, excess, expected, declared=False).verdict == verdict
    join = ExpectedDifferences(rows=(RowEffect(RowSide.NEW, "join changed", may_equal_others=False),))
    for more, verdict in ((10, "expected"), (11, "unexpected")):
        sides = [{"side": "old", "excess": 5}, {"side": "new", "excess": more}]
        assert duplicates_result(ROWS, sides, join, declared=False).verdict == verdict
        assert duplicates_result(ROWS, sides, join, declared=False, grown=3.0).verdict == "expected"


def test_new_nulls_are_counted_beyond_those_of_new_rows() -> None:
    edited = ExpectedDifferences(changed={"price": "x"})
    assert judged(side("old", 3), side("new", 3, filled_1=1), edited)["nulls"] == "unexpected"
    came = CheckResult("differences", CheckVerdict.EXPECTED, "x", {"only_new": 2})
    rows = replace(ROWS, equal=frozenset({"id"}))
    found = profile_results(rows, (side("old", 3), side("new", 5, filled_1=3)), edited, came)
    assert {r.check: str(r.verdict) for r in found}["nulls"] == "expected"


@pytest.mark.parametrize(
    ("old", "new", "expected", "declared", "verdict"),
    [
        (0, 0, ExpectedDifferences(), False, "ok"),
        (5, 5, ExpectedDifferences(), False, "ok"),
        (0, 1, ExpectedDifferences(), False, "unexpected"),
        (0, 1, FILTER, False, "unexpected"),
        (0, 1, ExpectedDifferences(rows=(RowEffect(RowSide.NEW, "filter removed"),)), False, "expected"),
        (0, 1, ExpectedDifferences(rows=(RowEffect(RowSide.NEW, "filter removed"),)), True, "unexpected"),
        (0, 1, ExpectedDifferences(unpairable_because="lateral view changed"), False, "unexpected"),
        (9, 1944, ExpectedDifferences(unpairable_because="lateral view changed"), False, "unexpected"),
        (1000, 1005, ExpectedDifferences(unpairable_because="source changed"), False, "expected"),
        (
            0,
            1,
            ExpectedDifferences((), unpairable_because="GROUP BY changed", merged_by="GROUP BY changed"),
            False,
            "expected",
        ),
        (
            0,
            1,
            ExpectedDifferences((), unpairable_because="GROUP BY changed", merged_by="GROUP BY changed"),
            True,
            "unexpected",
        ),
    ],
)
def test_more_duplicates_than_before_need_rows_that_may_be_equal(
    old: int, new: int, expected: ExpectedDifferences, declared: bool, verdict: str
) -> None:
    sides = [{"side": "old", "excess": old}, {"side": "new", "excess": new, "least": '{"id":1}', "most": '{"id":1}'}]
    found = duplicates_result(ROWS, sides, expected, declared)
    assert found.verdict == verdict
    assert all(bool(example["why"]) is (verdict != "unexpected") for example in found.examples)


def test_without_pairs_duplicated_rows_leave_counts_and_sums_unexplained() -> None:
    exploded = ExpectedDifferences(unpairable_because="lateral view changed")
    old, new = side("old", 1944), side("new", 3888, sum_0="12")
    for doubled, verdict in ((True, "unexpected"), (False, "expected")):
        found = profile_results(ROWS, (old, new), exploded, SAME, doubled=doubled)
        assert {r.check: str(r.verdict) for r in found if r.check in ("rows", "sums")} == dict.fromkeys(
            ("rows", "sums"), verdict
        )
    found = profile_results(ROWS, (old, new), exploded, SAME, doubled=True)
    assert blocking_words(found).startswith("rows 1,944 → 3,888; sums: ")


def test_rows_of_the_new_version_are_the_same_only_with_its_own_columns() -> None:
    told = replace(ROWS, own=(("item", "string"),))
    assert "struct(item AS item)" in duplicates_query(told)
    assert "item" not in duplicates_query(replace(told, key=("id",)))
    shown = duplicates_result(told, [], NONE, False).summary
    assert shown == "0 → 0 duplicate rows by all columns, of the old version by those that are compared"


def test_differences_name_their_explanation_or_are_unexpected() -> None:
    groups = [
        group("old", 0, 7, 0, ('{"id":1}', None)),
        group("new", -1, 0, 2, (None, '{"id":9,"note":"password=hunter2"}')),
        group("changed", -1, 1, 1, ('{"id":4,"price":1}', '{"id":4,"price":2}')),
    ]
    found = differences_result(ROWS, groups, FILTER.rows, FILTER)
    assert (found.verdict, found.counts) == ("unexpected", {"expected": 7, "unexpected": 3, "only_new": 2})
    assert found.summary == (
        "1 row with other values; 2 rows only in the new version, unexpected; "
        "7 rows only in the old version: filter added: id > 2"
    )
    assert "hunter2" not in json.dumps(found.examples)
    assert blocking_words([found]).endswith("; for example price 1 → 2")


def test_rows_that_a_later_start_may_explain_are_counted() -> None:
    starts = ExpectedDifferences(rows=(RowEffect(RowSide.OLD, "it begins later", from_start=True),))
    found = differences_result(ROWS, [group("old", 0, 9122, 0)], starts.rows, starts)
    assert (found.counts["from_start"], found.summary) == (
        9122, "9,122 rows only in the old version: it begins later (may be explained)",
    )  # fmt: skip


def test_a_long_row_is_cut_and_many_columns_are_counted() -> None:
    long = '{"id":"' + "x" * 9999 + '"}'
    (example,) = differences_result(ROWS, [group("new", -1, 0, 1, (None, long))], (), NONE).examples
    assert len(str(example["new"])) == EXAMPLE_CHARACTERS + 1
    wide = ComparedRows("o", "n", tuple((f"c{n}", "bigint") for n in range(50)), frozenset())
    sums = {f"sum_{n}": str(n) for n in range(50)}
    found = profile_results(
        wide, ({"side": "old", "rows": 1}, {"side": "new", "rows": 1, **sums}), ExpectedDifferences(), SAME
    )
    assert found[2].summary.endswith("; and 30 more")


def test_a_check_gives_no_row_or_has_failed_with_the_first_one() -> None:
    assert project_check_result("x", ("id",), ()).verdict == "ok"
    failed = project_check_result("x", ("id", "token"), ((4, "abc"),))
    assert (failed.check, failed.verdict) == ("check x", "failed")
    assert failed.examples[0]["new"] == {"id": 4, "token": "*****"} and "abc" not in failed.summary


def test_added_and_removed_columns_are_expected() -> None:
    found = schema_result((("id", "int"), ("a", "int")), (("ID", "bigint"), ("b", "int")), ExpectedDifferences())
    assert (found.verdict, found.summary) == ("expected", "+ b; - a; id: int → bigint")
    assert schema_result((("id", "int"),), (("id", "int"),), ExpectedDifferences()).verdict == "ok"


def test_tables_with_more_than_five_million_rows_are_compared_by_a_sample() -> None:
    assert [sampling(0, n) for n in (0, 5_000_000, 5_000_001, 50_000_000)] == [1, 1, 2, 10]
