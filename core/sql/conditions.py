"""Conditions over the columns of a table, as they stand in a yml: whether what can be parsed can also be true."""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from core.sql.parsing.function_names import AGGREGATES, GENERATORS, plain_function_name
from core.sql.parsing.parser import parse_query
from core.sql.tokens.lexer import open_sql, tokens_of

_OTHER_EACH_TIME = frozenset({"rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"})
"""Functions that Spark calls not deterministic, of those that conditions of a MERGE take or fail at (4.2.0)."""


def why_no_condition(condition: str, kinds: Mapping[str, str]) -> str:
    """Return why an expression is not true or false of one row, empty where it is or where that is not certain.

    `kinds` are types by column, both in lower case. Raises SqlDiagnostic for what cannot be parsed.
    """
    sql = f"SELECT 1 WHERE ({condition}\n)"
    node = parse_query(tokens_of(open_sql(sql, "")), sql).args["where"].this
    return _why_not_of_one_row(node) or _why_not(node, kinds)


def _why_not_of_one_row(node: Any) -> str:
    """Return what a condition asks that no row alone answers, or not twice the same; empty where it asks nothing."""
    for call in node.find_all(exp.Anonymous):
        name = plain_function_name(str(call.this))
        if isinstance(call.parent, exp.Window):
            return f"{name}() OVER compares rows, and a condition is asked of one"
        if name in AGGREGATES:
            return f"{name}() is computed of many rows, and a condition is asked of one"
        if name in GENERATORS:
            return f"{name}() makes many rows of one"
        if name in _OTHER_EACH_TIME:
            return f"{name}() is another value each time, and a batch that is written again has to delete the same"
    return ""


def _why_not(node: Any, kinds: Mapping[str, str]) -> str:
    match node:
        case exp.Paren() | exp.Not():
            return _why_not(node.this, kinds)
        case exp.And() | exp.Or():
            return _why_not(node.left, kinds) or _why_not(node.right, kinds)
        case exp.Alias():
            return f"{node.alias} names what stands before it, and compares nothing"
        case exp.Tuple():
            return "it is several expressions"
        case exp.Literal():
            return f"{node.sql()} is neither true nor false"
        case exp.Column():
            kind = kinds.get(node.name.lower(), "boolean")
            return "" if kind == "boolean" else f"{node.name} is {kind}, which is neither true nor false"
        case _:
            return ""
