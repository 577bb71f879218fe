"""Aggregates whose values depend on the order of rows, which is another one each time."""

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from core.sql.comparison.query_edits import parsed_expression
from core.sql.parsing.canonical_text import sql_of
from core.sql.streaming.aggregation import aggregate_function

_LISTS = frozenset(("array_agg", "collect_list", "collect_set"))
"""Those that give the same values in another order."""
_ANY = frozenset(
    (
        *("any_value", "first", "first_value", "last", "last_value", "max_by", "min_by", "mode", "listagg"),
        *("string_agg", "approx_percentile", "percentile_approx", "approx_top_k", "histogram_numeric"),
    )
)
"""Those that give other values: that of whichever row comes first, or an approximation of them all."""
_BLIND = frozenset(
    ("array_contains", "array_max", "array_min", "array_size", "array_sort", "cardinality", "size", "sort_array")
)
"""Functions that a list in any order gives the same value."""
_SHORTEST = 60


@dataclass(frozen=True, slots=True)
class RowOrder:
    """How a value depends on the order of rows."""

    call: str
    """The aggregate, in SQL."""
    sorts: bool
    """Whether the value is a list, which is the same once it is sorted."""


def row_order(expression: str) -> RowOrder | None:
    """Return how an expression depends on the order of rows; None where it does not, or cannot be read."""
    tree = parsed_expression(expression)
    call = _first(tree) if tree is not None else None
    if call is None:
        return None
    text = sql_of(call)
    whole = aggregate_function(tree)
    return RowOrder(
        text if len(text) <= _SHORTEST else f"{text[: _SHORTEST - 1]}…",
        sorts=whole is not None and _name(whole) in _LISTS,
    )


def _first(node: Any) -> Any:
    """Return the first call that depends on the order; what is blind to it, or says the order, is not looked into."""
    name = _name(node)
    if isinstance(node, exp.WithinGroup) or name in _BLIND:
        return None
    if name in _LISTS or name in _ANY:
        return node
    return next((found for child in node.iter_expressions() if (found := _first(child)) is not None), None)


def _name(node: Any) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
