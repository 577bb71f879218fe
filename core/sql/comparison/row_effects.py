"""What an edit of a query does to its rows: which columns have other values, which rows one version alone has, and why.

What cannot be told from the texts is never guessed: a condition that no output column shows has no predicate, and an
edit that regroups rows leaves nothing to be paired.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from sqlglot import exp

from core.sql.comparison.query_edits import (
    NO_ALIASES,
    NUMBERED_ALIAS,
    Aliases,
    compared_blocks,
    drop_first_qualifier,
    parsed_expression,
    query_blocks,
    terms_of,
)
from core.sql.parsing.canonical_text import sql_of
from core.sql.streaming.aggregation import aggregate_function, aggregates_in
from core.sql.tokens.lexer import SqlDiagnostic
from core.text.escaping import quoted_name

_MAKES_NULLS = re.compile(r"\b(nullif|try_\w+|null|lag|lead|nth_value)\b", re.I)
_TRIES = re.compile(r"\btry_\w+\(", re.I)
_SHORTEST = 80


_OVER_GROUPS = {
    "sum": "sum", "count": "sum", "count_if": "sum", "min": "min", "max": "max",
    "bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or", "some": "bool_or", "any": "bool_or",
}  # fmt: skip
"""Aggregate of rows → the aggregate of its values over groups that gives the same of all their rows."""
_OVER_ROWS = ("sum", "count", "min", "max")
"""Aggregates that a column of rows that are not grouped is compared by."""
_TIMED = re.compile(r"\bWATERMARK (\S+) DELAY", re.I)
_COUNTED = ("count(*)", "count(1)")


class RowSide(StrEnum):
    """Which version has a row, or other values in it."""

    OLD = "old"
    NEW = "new"
    CHANGED = "changed"
    """Both have a row of this key, with other values."""


@dataclass(frozen=True, slots=True)
class RowEffect:
    """Rows that only one version has."""

    side: RowSide
    why: str
    predicate: str = ""
    """What is true of such rows, over columns of the output; empty where the output does not show it."""
    alike: bool = True
    """Whether such rows may be equal to others, however many are."""
    most: int | None = None
    """How many such rows there can be; None where that is not known."""


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


@dataclass(frozen=True, slots=True)
class StatementEffects:
    """What an edit does to a statement's output."""

    changed: Mapping[str, str] = field(default_factory=dict)
    """Columns of the output with other values → the edit."""
    nulls: frozenset[str] = frozenset()
    """Those of them whose new expression is made to give NULL."""
    within: tuple[tuple[str, str], ...] = ()
    """Columns of a CTE or subquery that were edited, each with the edit: what they feed has other values."""
    rows: tuple[RowEffect, ...] = ()
    anything: str = ""
    """The edit after which rows cannot be paired; empty where they can."""
    alike: str = ""
    """The edit that removes what told rows apart, a key of a group or DISTINCT; empty where there is none."""
    keys: tuple[str, ...] = ()
    """Columns of the output that are a row's group; empty where rows are not grouped, or a key is not in the output."""
    once: str = ""
    """The edit after which a row may stand more or less often than before: DISTINCT, or a lateral view."""
    withheld: RowSide | None = None
    """The version that is DISTINCT alone: it withholds rows that its watermark has not passed."""
    totals: CommonTotals | None = None
    """What can be compared where the groups are others."""
    rewritten: bool = False
    """Whether rows cannot be paired because the query is another one, not because its groups are."""


def row_effects(old: str, new: str, aliases: tuple[Aliases, Aliases] = NO_ALIASES) -> StatementEffects:
    """Return what the edit between two canonical queries does; nothing where they are equal."""
    try:
        before, after = compared_blocks(old, new, aliases)
        for block in (*before, *after):
            with_whole_windows(block)
        keys = _key_columns(after[0]) if after and after[0].parent is None else ()
    except (SqlDiagnostic, RecursionError):
        return StatementEffects(anything="" if old == new else "the query changed, and it cannot be read")
    if old == new:
        return StatementEffects(keys=keys)
    if not before or len(before) != len(after) or before[0].parent is not None or after[0].parent is not None:
        return _branches((old, new), aliases) or StatementEffects(
            anything="the structure of the query changed", rewritten=not any(map(_groups, (*before, *after)))
        )
    found = _Effects(grouped=any(map(_groups, (*before, *after))))
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        if bool(was.args.get("joins")) != bool(now.args.get("joins")):
            drop_first_qualifier(was)
            drop_first_qualifier(now)
        _compare(was, now, found, outermost=number == 0)
    changed = found.changed | ({name: why for name, why in found.values_of(after[0])} if found.values else {})
    kept = tuple(replace(r, predicate="") if _names(r.predicate) & changed.keys() else r for r in found.rows)
    same_keys = keys if not changed.keys() & set(keys) else ()
    regrouped = found.anything == found.regrouped != "" and len(before) == 1
    totals = totals_of(before[0], after[0], (old, new)) if regrouped else None
    return StatementEffects(
        changed, frozenset(found.nulls), tuple(found.within), tuple(dict.fromkeys(kept)), found.anything, found.alike,
        same_keys, found.once, found.withheld, totals, bool(found.anything) and not (found.regrouped or found.grouped),
    )  # fmt: skip


def _branches(texts: tuple[str, str], aliases: tuple[Aliases, Aliases]) -> StatementEffects | None:
    """Return what comes and goes with whole branches of a UNION ALL; None where something else was edited as well."""
    before, after = (Counter(_branch_texts(*each)) for each in zip(texts, aliases, strict=True))
    if not before or not after or not before & after:
        return None
    gone, come = list((before - after).elements()), list((after - before).elements())
    if len(gone) == len(come) == 1:
        why = f"branch changed: {_cut(_edit_of_branch(gone[0], come[0]))}"
        return StatementEffects(rows=(RowEffect(RowSide.OLD, why), RowEffect(RowSide.NEW, why, alike=False)))
    rows = [RowEffect(RowSide.OLD, f"branch removed: {_cut(text)}") for text in before - after]
    rows += [RowEffect(RowSide.NEW, f"branch added: {_cut(text)}", alike=False) for text in after - before]
    return StatementEffects(rows=tuple(rows))


def _edit_of_branch(old: str, new: str) -> str:
    """Return what was edited of one SELECT: its filters and columns where that is told, else both texts."""
    found = row_effects(old, new)
    words = dict.fromkeys((*(row.why for row in found.rows), *found.changed.values()))
    return "; ".join(words) if words and not found.anything else f"{old} → {new}"


def _branch_texts(text: str, aliases: Aliases) -> list[str]:
    """List the branches of a UNION ALL, or the one SELECT that a query is; empty for any other one."""
    blocks = query_blocks(text, aliases)
    root = blocks[0].root() if blocks else None
    found: list[str] = []
    open_ = [root]
    while open_:
        node = open_.pop()
        if isinstance(node, exp.Select) and node.args.get("with_") is None:
            found.append(sql_of(node))
        elif isinstance(node, exp.Union) and not node.args.get("distinct") and node.args.get("with_") is None:
            open_ += [node.right, node.left]
        else:
            return []
    return found


def renamed_predicate(predicate: str, names: Mapping[str, str]) -> str:
    """Return a predicate with its columns renamed; empty where one of them has no name there, or there is none."""
    if not predicate:
        return ""
    tree = parsed_expression(predicate)
    if tree is None:
        return ""
    for column in list(tree.find_all(exp.Column)):
        name = names.get(column.name.lower())
        if name is None:
            return ""
        column.set("table", None)
        column.set("this", exp.to_identifier(name, quoted=True))
    return sql_of(tree)


def makes_nulls(expression: str) -> bool:
    """Return whether an expression is made to give NULL; a try_… that was meant to succeed is not."""
    lacks_else = "CASE" in expression.upper() and not re.search(r"\bELSE\b", expression, re.I)
    return lacks_else or bool(_MAKES_NULLS.search(_TRIES.sub("(", expression)))


@dataclass(slots=True)
class _Effects:
    """What was found so far."""

    grouped: bool
    changed: dict[str, str] = field(default_factory=dict)
    nulls: set[str] = field(default_factory=set)
    within: list[tuple[str, str]] = field(default_factory=list)
    rows: list[RowEffect] = field(default_factory=list)
    values: str = ""
    """Why what is computed over groups has other values; empty where it has not."""
    anything: str = ""
    alike: str = ""
    regrouped: str = ""
    """The edit of GROUP BY, or of aggregates without it."""
    once: str = ""
    withheld: RowSide | None = None

    def values_of(self, select: Any) -> Iterator[tuple[str, str]]:
        """Yield each output that is no key of a group, and why it has other values."""
        keys = _keys(select)
        for each in select.expressions:
            if not (keys and _is_of_keys(each.unalias(), keys)):
                yield each.alias_or_name.lower(), self.values


def _compare(old: Any, new: Any, found: _Effects, *, outermost: bool) -> None:
    _outputs(old, new, found, outermost=outermost)
    for clause, word in (("where", "filter"), ("having", "HAVING")):
        gone, come = _apart(terms_of(old, clause), terms_of(new, clause))
        for terms, side, what, select in ((come, RowSide.OLD, "added", new), (gone, RowSide.NEW, "removed", old)):
            for term in terms:
                why = f"{word} {what}: {_cut(term)}"
                predicate = shown_condition(term, old, new) if outermost else ""
                found.rows.append(RowEffect(side, why, f"NOT coalesce({predicate}, false)" if predicate else ""))
                below = found.grouped and not (outermost and clause == "having")
                if below and not (outermost and predicate and _groups(select)):
                    found.values = found.values or why
    _joins(old, new, found, outermost=outermost)
    for word, was, now in _regrouping(old, new):
        if was != now:
            words = f"{word} changed: {_cut(was or 'none')} → {_cut(now or 'none')}"
            if word == "lateral view" and not found.grouped and (not was or not now):
                found.once = found.once or words
                _rows_without_values(new if now else old, RowSide.OLD if now else RowSide.NEW, words, found)
                continue
            found.anything = found.anything or words
            if word in ("GROUP BY", "grouping") and outermost:
                found.regrouped = found.regrouped or words
            if word == "GROUP BY" and _keys(old) - _keys(new):
                found.alike = found.alike or words
    if (old.args.get("distinct") is None) != (new.args.get("distinct") is None):
        added = old.args.get("distinct") is None
        words = f"DISTINCT {'added' if added else 'removed'}"
        if outermost and not found.grouped:
            found.once, found.withheld = words, RowSide.NEW if added else RowSide.OLD
        else:
            found.rows.append(RowEffect(RowSide.OLD if added else RowSide.NEW, words))
        found.values = found.values or (words if found.grouped else "")
        found.alike = found.alike or ("" if added else words)


def _outputs(old: Any, new: Any, found: _Effects, *, outermost: bool) -> None:
    before = {each.alias_or_name.lower(): sql_of(each.unalias()) for each in old.expressions}
    after = {each.alias_or_name.lower(): sql_of(each.unalias()) for each in new.expressions}
    for name, text in after.items():
        was = before.get(name, text)
        if was == text:
            continue
        why = f"column {name}: {_cut(was)} → {_cut(text)}"
        if outermost:
            found.changed[name] = why
            if makes_nulls(text):
                found.nulls.add(name)
        else:
            found.within.append((name, why))


def _rows_without_values(select: Any, side: RowSide, why: str, found: _Effects) -> None:
    """A lateral view drops rows of which it explodes nothing, unless it is OUTER or explodes what is never empty."""
    for lateral in select.args["laterals"]:
        call = lateral.this
        listed = next(call.iter_expressions(), None) if isinstance(call, exp.Anonymous | exp.Func) else None
        if not (lateral.args.get("outer") or (isinstance(listed, exp.Array | exp.Anonymous) and _is_filled(listed))):
            found.rows.append(RowEffect(side, why))
            return


def _is_filled(node: Any) -> bool:
    name = "array" if isinstance(node, exp.Array) else str(node.this).lower()
    return name in ("array", "map") and next(node.iter_expressions(), None) is not None


def _joins(old: Any, new: Any, found: _Effects, *, outermost: bool) -> None:
    """A join that was added keeps every row once where it is a LEFT one, and may drop rows where it is an INNER one."""
    for was, now in zip_longest(old.args.get("joins") or [], new.args.get("joins") or []):
        if was is not None and now is not None:
            if (
                sql_of(was) != sql_of(now)
                and {_side(was), _side(now)} == {"LEFT", "INNER"}
                and _same_but_side(was, now)
            ):
                removed = _side(now) == "INNER"
                why = f"join with {now.this.name}: {_side(was)} → {_side(now)}, by which rows without a match "
                why += "are gone" if removed else "come"
                predicate = unmatched_rows(now.this.name, old, new) if outermost else ""
                found.rows.append(RowEffect(RowSide.OLD if removed else RowSide.NEW, why, predicate))
                found.values = why if found.grouped else found.values
            elif sql_of(was) != sql_of(now):
                why = f"join changed: {_cut(sql_of(was))} → {_cut(sql_of(now))}"
                found.rows += [RowEffect(RowSide.OLD, why), RowEffect(RowSide.NEW, why, alike=False)]
                found.values = why if found.grouped else found.values
            continue
        join, added = (now, True) if was is None else (was, False)
        why = f"join {'added' if added else 'removed'}: {_cut(sql_of(join))}"
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        if side in ("RIGHT", "FULL"):
            found.rows.append(RowEffect(RowSide.NEW if added else RowSide.OLD, why))
        if side in ("", "RIGHT") and kind != "CROSS":
            found.rows.append(RowEffect(RowSide.OLD if added else RowSide.NEW, why))
            found.values = why if found.grouped else found.values


def _side(join: Any) -> str:
    """Return LEFT, INNER, or what else a join is."""
    side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
    return " ".join(filter(None, (side, kind.replace("OUTER", "").strip()))) or "INNER"


def _same_but_side(was: Any, now: Any) -> bool:
    one, other = was.copy(), now.copy()
    for join in (one, other):
        join.set("side", None)
        join.set("kind", None)
    return isinstance(now.this, exp.Table) and sql_of(one) == sql_of(other)


def _regrouping(old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what decides what a row is: (words, before, after)."""
    for key, word in (("from_", "source"), ("laterals", "lateral view"), ("limit", "LIMIT"), ("qualify", "QUALIFY")):
        if key == "from_":
            was, now = (_source(select) for select in (old, new))
        else:
            was, now = (NUMBERED_ALIAS.sub("", _text(select.args.get(key))) for select in (old, new))
        yield word, was, now
    yield "GROUP BY", ", ".join(sorted(_keys(old))), ", ".join(sorted(_keys(new)))
    if not _keys(old) and not _keys(new):
        yield "grouping", "all rows" if _aggregates(old) else "", "all rows" if _aggregates(new) else ""


def _source(select: Any) -> str:
    from_ = select.args.get("from_")
    return sql_of(from_.this) if from_ is not None and isinstance(from_.this, exp.Table) else ""


def _text(value: Any) -> str:
    return ", ".join(map(sql_of, value)) if isinstance(value, list) else "" if value is None else sql_of(value)


def _apart(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[list[str], list[str]]:
    return [term for term in old if term not in new], [term for term in new if term not in old]


def _groups(select: Any) -> bool:
    return bool(_keys(select)) or _aggregates(select)


def _aggregates(select: Any) -> bool:
    return any(aggregates_in(each) for each in select.expressions)


def _keys(select: Any) -> frozenset[str]:
    group = select.args.get("group")
    return frozenset(sql_of(each) for each in (group.iter_expressions() if group is not None else ()))


def _key_columns(select: Any) -> tuple[str, ...]:
    """Return the outputs that are functions of the keys of a group, where each key is in one of them."""
    keys = _keys(select)
    if not keys:
        return ()
    columns = [each for each in select.expressions if _is_of_keys(each.unalias(), keys)]
    seen = {key for key in keys for each in columns if any(sql_of(node) == key for node in each.unalias().walk())}
    return tuple(each.alias_or_name.lower() for each in columns) if seen == keys else ()


def _is_of_keys(node: Any, keys: frozenset[str]) -> bool:
    """Return whether an expression stands on nothing but keys, and on one at least."""
    if sql_of(node) in keys:
        return True
    if isinstance(node, exp.Column) or aggregate_function(node) is not None:
        return False
    children = list(node.iter_expressions())
    inner = [child for child in children if not isinstance(child, exp.Literal | exp.Identifier | exp.DataType)]
    return bool(inner) and all(_is_of_keys(child, keys) for child in inner)


def _names(predicate: str) -> set[str]:
    return {name.lower() for name in re.findall(r"`([^`]+)`", predicate)}


def _cut(text: str) -> str:
    return text if len(text) <= _SHORTEST else f"{text[: _SHORTEST - 1]}…"


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
