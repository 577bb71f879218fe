"""Expressions that depend on the order of rows, and among these the lists that can be sorted."""

import pytest

from core.sql.expression_properties import RowOrder, row_order


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("collect_list(note)", RowOrder("collect_list(note)", sorts=True)),
        ("collect_set(note) FILTER (WHERE id > 1)", RowOrder("collect_set(note)", sorts=True)),
        ("array_join(collect_list(x), ',')", RowOrder("collect_list(x)", sorts=False)),
        ("first(a) + 1", RowOrder("first(a)", sorts=False)),
        ("max_by(a, b)", RowOrder("max_by(a, b)", sorts=False)),
        ("listagg(x, ',')", RowOrder("listagg(x, ',')", sorts=False)),
        ("listagg(x, ',') WITHIN GROUP (ORDER BY x)", None),
        ("sort_array(collect_list(x))", None),
        ("size(collect_set(x))", None),
        ("sum(x) + count(*)", None),
        ("first", None),
        ("(", None),
    ],
)
def test_row_order_matters_only_to_lists_and_first_values(expression: str, expected: RowOrder | None) -> None:
    assert row_order(expression) == expected
