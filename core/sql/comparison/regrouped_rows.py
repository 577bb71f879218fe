"""What stays the same of a query whose rows are grouped otherwise: totals, and the values of the keys that are left.

Rows of such versions cannot be paired. But the sum of what is summed over groups is the sum over all rows, whatever the
groups are, and so is that of a column which was not grouped before.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from core.sql.parsing.canonical_text import sql_of
from core.sql.streaming.aggregation import aggregate_function, aggregates_in
from core.text.escaping import quoted_name

_OVER_GROUPS = {
    "sum": "sum", "count": "sum", "count_if": "sum", "min": "min", "max": "max",
    "bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or", "some": "bool_or", "any": "bool_or",
}  # fmt: skip
"""Aggregate of rows → the aggregate of its values over groups that gives the same of all their rows."""
_OVER_ROWS = ("sum", "count", "min", "max")
"""Aggregates that a column of rows that are not grouped is compared by."""
_TIMED = re.compile(r"\bWATERMARK (\S+) DELAY", re.I)
_COUNTED = ("count(*)", "count(1)")


@dataclass(frozen=True, slots=True)
class CommonTotal:
    """One figure that both versions give."""

    words: str
    """As one of both statements writes it."""
    old: str
    """Over the columns of the old version, in SQL."""
    new: str
    columns: tuple[str, str] = ("", "")
    """The columns that it stands on, in lower case; empty where it counts rows."""


@dataclass(frozen=True, slots=True)
class CommonTotals:
    """What can be compared of two versions whose rows are grouped otherwise."""

    keys: tuple[str, ...]
    """Columns, in lower case, that both have alike: totals are compared for each of their values."""
    totals: tuple[CommonTotal, ...]
    unless: str = ""
    """Why totals may differ all the same; empty where they may not."""


def totals_of(old: Any, new: Any, texts: tuple[str, str]) -> CommonTotals:
    """Return what can be compared of two SELECTs, the outermost ones of two canonical texts."""
    before, after = _shown(old), _shown(new)
    keys = tuple(name for name, text in before.keys.items() if after.keys.get(name) == text)
    totals = tuple(
        CommonTotal(text, one[0], after.totals[text][0], (one[1], after.totals[text][1]))
        for text, one in before.totals.items()
        if text in after.totals and {one[1], after.totals[text][1]}.isdisjoint(keys)
    )
    return CommonTotals(keys, totals, _unless(old, new, texts))


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a SELECT shows: columns that tell groups apart, and totals → (SQL over its columns, the column)."""

    keys: Mapping[str, str]
    totals: Mapping[str, tuple[str, str]]


def _shown(select: Any) -> _Shown:
    grouped = _keys(select)
    keys: dict[str, str] = {}
    totals: dict[str, tuple[str, str]] = {}
    alone = not grouped and not any(aggregates_in(each) for each in select.expressions)
    for each in select.expressions:
        node, name = each.unalias(), each.alias_or_name.lower()
        text, column = sql_of(node), quoted_name(name)
        call = aggregate_function(node)
        if alone:
            keys[name] = text
            totals |= {f"{word}({text})": (f"{word}({column})", name) for word in _OVER_ROWS}
        elif grouped and not aggregates_in(node):
            keys[name] = text
        elif call is node and (over := _OVER_GROUPS.get(str(call.this).lower())) and "DISTINCT" not in text:
            totals["count(*)" if text in _COUNTED else text] = (f"{over}({column})", name)
    if alone:
        totals["count(*)"] = ("count(*)", "")
    return _Shown(keys, totals)


def _unless(old: Any, new: Any, texts: tuple[str, str]) -> str:
    """Return why totals may differ: groups of which only some are emitted yet, and rows that HAVING takes away."""
    if old.args.get("having") is not None or new.args.get("having") is not None:
        return "HAVING removes groups"
    was, now = (_timed(select, text) for select, text in zip((old, new), texts, strict=True))
    if was != now or any("session_window" in key for key in was | now):
        return "the newest groups are withheld until the watermark has passed them, by other times in each version"
    return ""


def _timed(select: Any, text: str) -> frozenset[str]:
    """Return the keys by which groups are withheld until the watermark has passed them."""
    names = {found.rpartition(".")[2].strip("`") for found in _TIMED.findall(text)}
    return frozenset(
        key for key in _keys(select) if "window(" in key or names & set(re.findall(r"\w+", key))
    )  # fmt: skip


def _keys(select: Any) -> frozenset[str]:
    group = select.args.get("group")
    return frozenset(sql_of(each) for each in (group.iter_expressions() if group is not None else ()))


def with_whole_windows(select: Any) -> None:
    """Write `window.start` as the field of the window that the query groups by, so that its text tells which."""
    windows = [node for node in (select.args.get("group") or exp.Group()).iter_expressions() if _is_window(node)]
    if len(windows) != 1:
        return
    word = str(windows[0].this).lower()
    for each in select.expressions:
        for column in list(each.find_all(exp.Column)):
            if column.table.lower() == word:
                column.replace(exp.Dot(this=windows[0].copy(), expression=exp.to_identifier(column.name)))


def _is_window(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in ("window", "session_window")
