"""What an edit of a query does to its rows: which columns have other values, which rows one version alone has, and why.

What cannot be told from the texts is never guessed: a condition that no output column shows has no predicate, and an
edit that regroups rows leaves nothing to be paired.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from sqlglot import exp

from core.sql.comparison.query_edits import NUMBERED_ALIAS, query_blocks, terms_of
from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.function_names import plain_function_name
from core.sql.parsing.parser import parse_expression
from core.sql.streaming.aggregation import aggregate_function, aggregates_in
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of

_MAKES_NULLS = re.compile(r"\b(nullif|try_\w+|null|lag|lead|nth_value)\b", re.I)
_TRIES = re.compile(r"\btry_\w+\(", re.I)
_SHORTEST = 80


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


def row_effects(old: str, new: str) -> StatementEffects:
    """Return what the edit between two canonical queries does; nothing where they are equal."""
    try:
        before, after = query_blocks(old), query_blocks(new)
        keys = _key_columns(after[0]) if after and after[0].parent is None else ()
    except (SqlDiagnostic, RecursionError):
        return StatementEffects(anything="" if old == new else "the query changed, and it cannot be read")
    if old == new:
        return StatementEffects(keys=keys)
    if not before or len(before) != len(after) or before[0].parent is not None or after[0].parent is not None:
        return StatementEffects(anything="the structure of the query changed")
    found = _Effects(grouped=any(map(_groups, (*before, *after))))
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        if bool(was.args.get("joins")) != bool(now.args.get("joins")):
            _drop_qualifier(was)
            _drop_qualifier(now)
        _compare(was, now, found, outermost=number == 0)
    changed = found.changed | ({name: why for name, why in found.values_of(after[0])} if found.values else {})
    kept = tuple(RowEffect(r.side, r.why, r.predicate if not _names(r.predicate) & changed.keys() else "")
                 for r in found.rows)  # fmt: skip
    same_keys = keys if not changed.keys() & set(keys) else ()
    return StatementEffects(
        changed, frozenset(found.nulls), tuple(found.within), tuple(dict.fromkeys(kept)), found.anything, found.alike,
        same_keys,
    )  # fmt: skip


def renamed_predicate(predicate: str, names: Mapping[str, str]) -> str:
    """Return a predicate with its columns renamed; empty where one of them has no name there, or there is none."""
    if not predicate:
        return ""
    tree = _expression(predicate)
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

    def values_of(self, select: Any) -> Iterator[tuple[str, str]]:
        """Give each output that is no key of a group, and why it has other values."""
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
                predicate = _shown(term, old, new) if outermost else ""
                found.rows.append(RowEffect(side, why, f"NOT coalesce({predicate}, false)" if predicate else ""))
                below = found.grouped and not (outermost and clause == "having")
                if below and not (outermost and predicate and _groups(select)):
                    found.values = found.values or why
    _joins(old, new, found)
    for word, was, now in _regrouping(old, new):
        if was != now:
            words = f"{word} changed: {_cut(was or 'none')} → {_cut(now or 'none')}"
            found.anything = found.anything or words
            if word == "GROUP BY" and _keys(old) - _keys(new):
                found.alike = found.alike or words
    if (old.args.get("distinct") is None) != (new.args.get("distinct") is None):
        added = old.args.get("distinct") is None
        words = f"DISTINCT {'added' if added else 'removed'}"
        found.rows.append(RowEffect(RowSide.OLD if added else RowSide.NEW, words))
        found.values = found.values or (words if found.grouped else "")
        found.alike = found.alike or ("" if added else words)


def _drop_qualifier(select: Any) -> None:
    """Name the columns of the first source without it: canonical texts name it only beside a second one."""
    from_ = select.args.get("from_")
    source = from_.this.name if from_ is not None and isinstance(from_.this, exp.Table) else ""
    name = source.removeprefix("STREAM ")
    for part in ("expressions", "where", "having", "group"):
        found = select.args.get(part)
        for node in found if isinstance(found, list) else [found] if found is not None else []:
            for column in node.find_all(exp.Column):
                if name and column.table == name:
                    column.set("table", None)


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


def _joins(old: Any, new: Any, found: _Effects) -> None:
    """A join that was added keeps every row once where it is a LEFT one, and may drop rows where it is an INNER one."""
    for was, now in zip_longest(old.args.get("joins") or [], new.args.get("joins") or []):
        if was is not None and now is not None:
            if sql_of(was) != sql_of(now):
                why = f"join changed: {_cut(sql_of(was))} → {_cut(sql_of(now))}"
                found.rows += [RowEffect(RowSide.OLD, why), RowEffect(RowSide.NEW, why)]
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


def _regrouping(old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """Give what decides what a row is: (words, before, after)."""
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


def _shown(term: str, old: Any, new: Any) -> str:
    """Return a condition over the output's columns; empty where they do not show it.

    A column shows an expression that it is in both versions; of grouped rows only keys and aggregates are shown.
    """
    tree = _expression(term)
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


def _expression(text: str) -> Any:
    """Parse one expression of a block; None where it cannot be read by itself."""
    try:
        tree, _ = parse_expression(tokens_of(open_sql(text, "")))
    except (SqlDiagnostic, RecursionError):
        return None
    for node in list(tree.walk()):
        if isinstance(node, exp.Anonymous):
            node.set("this", plain_function_name(str(node.this)))
    return tree


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
