"""Multisets of typed rows: missing and unexpected rows, and rows that differ in some columns of one key."""

from datetime import UTC, datetime
from decimal import Decimal

from core.statement_tests.comparison import SHOWN, compare_rows

COLUMNS = (("id", "bigint"), ("price", "double"))


def test_equal_multisets_have_no_difference_in_any_order() -> None:
    rows = [(1, 0.5), (2, None), (1, 0.5)]
    assert not compare_rows(COLUMNS, rows, reversed(rows))


def test_a_row_that_occurs_once_too_often_is_unexpected() -> None:
    found = compare_rows(COLUMNS, [(1, 0.5)], [(1, 0.5), (1, 0.5)])
    assert (found.missing, found.unexpected) == ((), ((1, 0.5),))


def test_floats_are_equal_within_the_relative_tolerance_alone() -> None:
    assert not compare_rows(COLUMNS, [(1, 1e9)], [(1, 1e9 + 0.1)], tolerance=1e-9)
    assert compare_rows(COLUMNS, [(1, 1e9)], [(1, 1e9 + 10)], tolerance=1e-9)
    assert not compare_rows(COLUMNS, [(1, float("nan"))], [(1, float("nan"))])
    assert compare_rows(COLUMNS, [(1, 0.0)], [(1, None)])


def test_types_are_exact_inside_of_lists_too() -> None:
    one = (("x", "array<int>"),)
    assert compare_rows(one, [((1, 2),)], [((2, 1),)])
    assert compare_rows(one, [((1,),)], [((Decimal(1),),)])
    assert compare_rows(one, [(True,)], [(1,)])
    moment = datetime(2026, 1, 1)
    assert compare_rows(one, [(moment,)], [(moment.replace(tzinfo=UTC),)])


def test_a_key_pairs_a_missing_row_with_an_unexpected_one() -> None:
    found = compare_rows(COLUMNS, [(1, 0.5), (2, 1.0), (3, 1.0)], [(1, 0.7), (4, 1.0), (3, 1.0)], key=("id",))
    assert (found.missing, found.unexpected) == (((2, 1.0),), ((4, 1.0),))
    assert found.differing == (((1, 0.5), (1, 0.7)),)
    assert found.as_json()["differing_rows"] == [
        {"row": {"id": "1", "price": "0.5"}, "columns": {"price": ["0.5", "0.7"]}}
    ]


def test_a_key_that_names_several_rows_pairs_none() -> None:
    found = compare_rows(COLUMNS, [(1, 0.5), (1, 0.6)], [(1, 0.7)], key=("id",))
    assert (len(found.missing), len(found.unexpected), found.differing) == (2, 1, ())


def test_the_report_is_bounded_and_counts_the_rest() -> None:
    found = compare_rows(COLUMNS, [], [(n, None) for n in range(100)]).as_json()
    assert (found["unexpected"], len(found["unexpected_rows"])) == (100, SHOWN)
    assert found["unexpected_rows"][0] == {"id": "0", "price": "null"}
