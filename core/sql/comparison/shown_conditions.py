"""Conditions of a query over the columns of its output, by which rows of either version are told."""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from core.sql.comparison.query_edits import parsed_expression
from core.sql.parsing.canonical_text import sql_of
from core.sql.streaming.aggregation import aggregate_function


def shown_condition(term: str, old: Any, new: Any) -> str:
    """Return a condition over the output's columns; empty where they do not show it.

    A column shows an expression that it is in both versions; of grouped rows only keys and aggregates are shown.
    """
    tree = parsed_expression(term)
    if tree is None or tree.find(exp.Query) is not None:
        return ""
    before = {sql_of(each.unalias()): each.alias_or_name for each in old.expressions}
    shown: dict[str, str] = {}
    for each in new.expressions:
        text = sql_of(each.unalias())
        if before.get(text) == each.alias_or_name:
            shown.setdefault(text, each.alias_or_name)
    whole = exp.Paren(this=tree)
    return sql_of(whole) if _show(whole, shown) else ""


def _show(parent: Any, shown: Mapping[str, str]) -> bool:
    """Put the output's columns in place of what they are, from the outside inwards; False where one lacks."""
    for child in list(parent.iter_expressions()):
        if (name := shown.get(sql_of(child))) is not None:
            child.replace(exp.column(exp.to_identifier(name, quoted=True)))
        elif isinstance(child, exp.Column) or aggregate_function(child) is not None or not _show(child, shown):
            return False
    return True


def unmatched_rows(table: str, old: Any, new: Any) -> str:
    """Return what is true of rows without a match: all columns of the joined table that the output shows are NULL."""
    after = {each.alias_or_name: sql_of(each.unalias()) for each in new.expressions}
    shown = [
        each.alias_or_name
        for each in old.expressions
        if isinstance(each.unalias(), exp.Column)
        and each.unalias().table == table
        and after.get(each.alias_or_name) == sql_of(each.unalias())
    ]
    nulls = " AND ".join(f"{sql_of(exp.to_identifier(name, quoted=True))} IS NULL" for name in shown)
    return f"({nulls})" if nulls else ""
