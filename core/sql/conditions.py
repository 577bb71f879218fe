"""Conditions over the columns of a table, as they stand in a yml: whether what can be parsed can also be true."""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from core.sql.parsing.parser import parse_query
from core.sql.tokens.lexer import open_sql, tokens_of


def why_no_condition(condition: str, kinds: Mapping[str, str]) -> str:
    """Return why an expression is neither true nor false, empty where it is or where that is not certain.

    `kinds` are types by column, both in lower case. Raises SqlDiagnostic for what cannot be parsed.
    """
    sql = f"SELECT 1 WHERE ({condition}\n)"
    return _why_not(parse_query(tokens_of(open_sql(sql, "")), sql).args["where"].this, kinds)


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
