"""Effects of an edit on the rows of a query: which columns change, which rows only one version has, and why.

An effect is reported only if the SQL proves it. A condition on columns that are not in the output yields no predicate,
and rows cannot be paired if the two versions group them differently. Totals can still be compared, because a sum over
either version's groups, or over ungrouped rows, is the sum over all rows.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from sqlglot import exp

from core.sql.comparison.query_edits import (
    NO_ALIASES,
    NUMBERED_ALIAS,
    Aliases,
    compared_selects,
    drop_first_qualifier,
    group_key_texts,
    parsed_expression,
    selects_of,
    terms_of,
)
from core.sql.parsing.canonical_text import sql_of
from core.sql.streaming.aggregation import aggregate_function, aggregates_in
from core.sql.tokens.lexer import SqlDiagnostic
from core.text.escaping import quoted_name
from core.text.sentence import Fact, FactKind
from core.text.wording import clipped

_MAKES_NULLS = re.compile(r"\b(nullif|try_\w+|null|lag|lead|nth_value)\b", re.I)
_TRIES = re.compile(r"\btry_\w+\(", re.I)
_CLIPPED = 80
"""Maximum number of characters of SQL that a cause quotes."""
_OVER_GROUPS = {
    "sum": "sum", "count": "sum", "count_if": "sum", "min": "min", "max": "max",
    "bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or", "some": "bool_or", "any": "bool_or",
}  # fmt: skip
"""Maps each aggregate to the aggregate that computes the same total from the results per group."""
_OVER_ROWS = ("sum", "count", "min", "max")
"""Aggregates that are compared for each column if the rows are not grouped."""
_WATERMARK = re.compile(r"\bWATERMARK (\S+) DELAY", re.I)
_COUNTED = ("count(*)", "count(1)")


class RowCause(FactKind):
    """An edit that makes rows or values differ between two versions of a statement."""

    UNREADABLE = "the query changed, and what that does to its rows is unknown"
    RESTRUCTURED = "the structure of the query changed"
    FILTER_ADDED = "filter added: {term}"
    FILTER_REMOVED = "filter removed: {term}"
    FILTER_CHANGED = "filter changed: {before} → {after}"
    HAVING_ADDED = "HAVING added: {term}"
    HAVING_REMOVED = "HAVING removed: {term}"
    HAVING_CHANGED = "HAVING changed: {before} → {after}"
    COLUMN = "column {column}: {before} → {after}"
    JOIN_ADDED = "join added: {join}"
    JOIN_REMOVED = "join removed: {join}"
    JOIN_CHANGED = "join changed: {before} → {after}"
    JOIN_KEEPS_UNMATCHED = "join with {table}: {before} → {after}, which keeps rows without a match"
    JOIN_DROPS_UNMATCHED = "join with {table}: {before} → {after}, which drops rows without a match"
    BRANCH_ADDED = "branch added: {branch}"
    BRANCH_REMOVED = "branch removed: {branch}"
    BRANCH_CHANGED = "branch changed: {edit}"
    DISTINCT_ADDED = "DISTINCT added"
    DISTINCT_REMOVED = "DISTINCT removed"
    SOURCE = "source changed: {before} → {after}"
    LATERAL_VIEW = "lateral view changed: {before} → {after}"
    LIMIT = "LIMIT changed: {before} → {after}"
    QUALIFY = "QUALIFY changed: {before} → {after}"
    GROUP_BY = "GROUP BY changed: {before} → {after}"
    GROUPING = "grouping changed: {before} → {after}"


Cause = Fact[RowCause]


class TotalsDifferenceReason(FactKind):
    """A reason why totals may legitimately differ between two versions that group rows differently."""

    HAVING = "HAVING removes groups"
    WITHHELD = "the newest groups are withheld until the watermark has passed them, at different times in each version"


class RowSide(StrEnum):
    """The version that has a row: only the old version, only the new version, or both with different values."""

    OLD = "old"
    NEW = "new"
    CHANGED = "changed"
    """Both versions have a row with the same key, but with different values."""


@dataclass(frozen=True, slots=True)
class RowEffect:
    """A set of rows that only one version has, or whose values differ between the versions."""

    side: RowSide
    why: str
    predicate: str = ""
    """SQL condition over output columns that all of these rows meet; empty if output columns cannot express it."""
    may_equal_others: bool = True
    """Whether any number of these rows may equal other rows."""
    most: int | None = None
    """Maximum number of such rows; None if unknown."""
    from_start: bool = False
    """Whether the rows differ only because the two versions start at different positions."""


@dataclass(frozen=True, slots=True)
class CommonTotal:
    """An aggregate that can be computed from the output rows of both versions of a statement."""

    words: str
    """SQL of the aggregate as both statements write it."""
    old: str
    """SQL that computes the aggregate from the output columns of the old version."""
    new: str
    columns: tuple[str, str] = ("", "")
    """The columns that `old` and `new` aggregate, in lower case; both are empty for a row count."""


@dataclass(frozen=True, slots=True)
class CommonTotals:
    """The totals by which two versions can be compared even if they group their rows differently."""

    keys: tuple[str, ...]
    """Grouping columns of both versions, in lower case; totals are compared per combination of their values."""
    totals: tuple[CommonTotal, ...]
    unless: Fact[TotalsDifferenceReason] | None = None
    """Why the totals may legitimately differ; None if they must be equal."""


@dataclass(frozen=True, slots=True)
class StatementEffects:
    """The effects of an edit on the output rows of a statement."""

    changed: Mapping[str, Cause] = field(default_factory=dict)
    """Maps each output column whose values change to the edit that changes them."""
    nulls: frozenset[str] = frozenset()
    """Changed columns whose new expression produces NULL by design."""
    within: tuple[tuple[str, Cause], ...] = ()
    """Edited columns of CTEs and subqueries, each with its edit; all values computed from them may differ as well."""
    rows: tuple[RowEffect, ...] = ()
    unpairable_because: Cause | None = None
    """The edit after which old rows cannot be paired with new rows; None if they can be paired."""
    merged_by: Cause | None = None
    """The edit that may make distinct rows equal, by removing a group key or DISTINCT; None if there is none."""
    keys: tuple[str, ...] = ()
    """Output columns that identify a row's group; empty if rows are not grouped or a key is missing from the output."""
    multiplicity_change: Cause | None = None
    """The edit to DISTINCT or a lateral view that may change how often a row occurs; None if there is no such edit."""
    withheld: RowSide | None = None
    """The version that withholds rows until the watermark has passed, because only it has DISTINCT; otherwise None."""
    totals: CommonTotals | None = None
    """The totals that can be compared if the versions group rows differently; None if they group rows alike."""
    rewritten: bool = False
    """Whether rows cannot be paired although neither version groups them, because the query was rewritten."""


def row_effects(old: str, new: str, aliases: tuple[Aliases, Aliases] = NO_ALIASES) -> StatementEffects:
    """Return the effects of the edit between two canonical queries; equal queries have no effects."""
    try:
        before, after = compared_selects(old, new, aliases)
        for block in (*before, *after):
            _expand_window_fields(block)
        keys = _key_columns(after[0]) if after and after[0].parent is None else ()
    except (SqlDiagnostic, RecursionError):
        return StatementEffects(unpairable_because=None if old == new else RowCause.UNREADABLE.of())
    if old == new:
        return StatementEffects(keys=keys)
    if not before or len(before) != len(after) or before[0].parent is not None or after[0].parent is not None:
        return _branches((old, new), aliases) or StatementEffects(
            unpairable_because=RowCause.RESTRUCTURED.of(), rewritten=not any(map(_groups, (*before, *after)))
        )
    found = _Effects(grouped=any(map(_groups, (*before, *after))))
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        if bool(was.args.get("joins")) != bool(now.args.get("joins")):
            drop_first_qualifier(was)
            drop_first_qualifier(now)
        _compare(was, now, found, outermost=number == 0)
    changed = found.changed | (dict(found.changed_aggregate_outputs(after[0])) if found.values else {})
    kept = tuple(replace(r, predicate="") if _names(r.predicate) & changed.keys() else r for r in found.rows)
    regrouped = (
        found.unpairable_because is not None and found.unpairable_because is found.regrouped and len(before) == 1
    )
    return StatementEffects(
        changed=changed,
        nulls=frozenset(found.nulls),
        within=tuple(found.within),
        rows=tuple(dict.fromkeys(kept)),
        unpairable_because=found.unpairable_because,
        merged_by=found.merged_by,
        keys=keys if not changed.keys() & set(keys) else (),
        multiplicity_change=found.multiplicity_change,
        withheld=found.withheld,
        totals=_common_totals(before[0], after[0], (old, new)) if regrouped else None,
        rewritten=found.unpairable_because is not None and not (found.regrouped or found.grouped),
    )


def _branches(texts: tuple[str, str], aliases: tuple[Aliases, Aliases]) -> StatementEffects | None:
    """Return the effects of adding, removing or changing UNION ALL branches; None if there are other edits."""
    before, after = (Counter(_branch_texts(*each)) for each in zip(texts, aliases, strict=True))
    if not before or not after or not before & after:
        return None
    gone, come = list((before - after).elements()), list((after - before).elements())
    if len(gone) == len(come) == 1:
        why = str(RowCause.BRANCH_CHANGED.of(edit=_clip(_branch_edit(gone[0], come[0]))))
        return StatementEffects(rows=(RowEffect(RowSide.OLD, why), RowEffect(RowSide.NEW, why, may_equal_others=False)))
    rows = [RowEffect(RowSide.OLD, str(RowCause.BRANCH_REMOVED.of(branch=_clip(text)))) for text in before - after]
    rows += [
        RowEffect(RowSide.NEW, str(RowCause.BRANCH_ADDED.of(branch=_clip(text))), may_equal_others=False)
        for text in after - before
    ]
    return StatementEffects(rows=tuple(rows))


def _branch_edit(old: str, new: str) -> str:
    found = row_effects(old, new)
    words = dict.fromkeys((*(row.why for row in found.rows), *map(str, found.changed.values())))
    return "; ".join(words) if words and not found.unpairable_because else f"{old} → {new}"


def _branch_texts(text: str, aliases: Aliases) -> list[str]:
    """Return the SQL of each UNION ALL branch, or of a query that is a single SELECT; empty for all other queries."""
    selects = selects_of(text, aliases)
    root = selects[0].root() if selects else None
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
    """Return a predicate with its columns renamed; empty if `names` lacks any of them or `predicate` is empty.

    The keys of `names` are in lower case. The result is also empty if the predicate cannot be parsed.
    """
    tree = parsed_expression(predicate) if predicate else None
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
    """True if an expression produces NULL by design, as `nullif()` or a CASE without ELSE does.

    The `try_…` functions do not count.
    """
    lacks_else = "CASE" in expression.upper() and not re.search(r"\bELSE\b", expression, re.I)
    return lacks_else or bool(_MAKES_NULLS.search(_TRIES.sub("(", expression)))


@dataclass(slots=True)
class _Effects:
    grouped: bool
    changed: dict[str, Cause] = field(default_factory=dict)
    nulls: set[str] = field(default_factory=set)
    within: list[tuple[str, Cause]] = field(default_factory=list)
    rows: list[RowEffect] = field(default_factory=list)
    values: Cause | None = None
    """The edit that changes the values of aggregates over groups; None if there is none."""
    unpairable_because: Cause | None = None
    merged_by: Cause | None = None
    regrouped: Cause | None = None
    """The edit that changes GROUP BY, or that adds or removes aggregates without GROUP BY; None if there is none."""
    multiplicity_change: Cause | None = None
    withheld: RowSide | None = None

    def add_one_sided_rows(
        self, side: RowSide, why: Cause, predicate: str = "", *, may_equal_others: bool = True
    ) -> None:
        self.rows.append(RowEffect(side, str(why), predicate, may_equal_others))

    def changed_aggregate_outputs(self, select: Any) -> Iterator[tuple[str, Cause]]:
        """Yield each output column that changes because the aggregated rows changed, with the edit responsible.

        An output that is computed from grouping keys alone does not change.
        """
        keys = group_key_texts(select)
        for each in select.expressions:
            if self.values is not None and not (keys and _is_of_keys(each.unalias(), keys)):
                yield each.alias_or_name.lower(), self.values


_TERM_CAUSES = {
    "where": (RowCause.FILTER_ADDED, RowCause.FILTER_REMOVED, RowCause.FILTER_CHANGED),
    "having": (RowCause.HAVING_ADDED, RowCause.HAVING_REMOVED, RowCause.HAVING_CHANGED),
}


def _compare(old: Any, new: Any, found: _Effects, *, outermost: bool) -> None:
    _outputs(old, new, found, outermost=outermost)
    for clause, (addition, removal, change) in _TERM_CAUSES.items():
        before, after = terms_of(old, clause), terms_of(new, clause)
        gone, come = [each for each in before if each not in after], [each for each in after if each not in before]
        # A single removal and a single addition are one change, as in `query_edits`.
        changed = change.of(before=_clip(gone[0]), after=_clip(come[0])) if len(gone) == len(come) == 1 else None
        for terms, side, kind, select in ((come, RowSide.OLD, addition, new), (gone, RowSide.NEW, removal, old)):
            for term in terms:
                why = changed or kind.of(term=_clip(term))
                predicate = _shown_condition(term, old, new) if outermost else ""
                found.add_one_sided_rows(side, why, f"NOT coalesce({predicate}, false)" if predicate else "")
                below = found.grouped and not (outermost and clause == "having")
                if below and not (outermost and predicate and _groups(select)):
                    found.values = found.values or why
    _joins(old, new, found, outermost=outermost)
    for kind, was, now in _regrouping(old, new):
        if was != now:
            why = kind.of(before=_clip(was or "none"), after=_clip(now or "none"))
            if kind is RowCause.LATERAL_VIEW and not found.grouped and (not was or not now):
                found.multiplicity_change = found.multiplicity_change or why
                _drop_empty_explodes(new if now else old, RowSide.OLD if now else RowSide.NEW, why, found)
                continue
            found.unpairable_because = found.unpairable_because or why
            if kind in (RowCause.GROUP_BY, RowCause.GROUPING) and outermost:
                found.regrouped = found.regrouped or why
            if kind is RowCause.GROUP_BY and group_key_texts(old) - group_key_texts(new):
                found.merged_by = found.merged_by or why
    if (old.args.get("distinct") is None) != (new.args.get("distinct") is None):
        added = old.args.get("distinct") is None
        why = (RowCause.DISTINCT_ADDED if added else RowCause.DISTINCT_REMOVED).of()
        if outermost and not found.grouped:
            found.multiplicity_change, found.withheld = why, RowSide.NEW if added else RowSide.OLD
        else:
            found.add_one_sided_rows(RowSide.OLD if added else RowSide.NEW, why)
        found.values = found.values or (why if found.grouped else None)
        found.merged_by = found.merged_by or (None if added else why)


def _outputs(old: Any, new: Any, found: _Effects, *, outermost: bool) -> None:
    before = {each.alias_or_name.lower(): sql_of(each.unalias()) for each in old.expressions}
    after = {each.alias_or_name.lower(): sql_of(each.unalias()) for each in new.expressions}
    for name, text in after.items():
        was = before.get(name, text)
        if was == text:
            continue
        why = RowCause.COLUMN.of(column=name, before=_clip(was), after=_clip(text))
        if outermost:
            found.changed[name] = why
            if makes_nulls(text):
                found.nulls.add(name)
        else:
            found.within.append((name, why))


def _drop_empty_explodes(select: Any, side: RowSide, why: Cause, found: _Effects) -> None:
    """Record that only version `side` has rows for empty collections, which the other version's lateral view drops.

    Nothing is recorded for an OUTER view, or for a collection that is a non-empty literal.
    """
    for lateral in select.args["laterals"]:
        call = lateral.this
        listed = next(call.iter_expressions(), None) if isinstance(call, exp.Anonymous | exp.Func) else None
        if not (lateral.args.get("outer") or (isinstance(listed, exp.Array | exp.Anonymous) and _is_filled(listed))):
            found.add_one_sided_rows(side, why)
            return


def _is_filled(node: Any) -> bool:
    name = "array" if isinstance(node, exp.Array) else str(node.this).lower()
    return name in ("array", "map") and next(node.iter_expressions(), None) is not None


def _joins(old: Any, new: Any, found: _Effects, *, outermost: bool) -> None:
    for was, now in zip_longest(old.args.get("joins") or [], new.args.get("joins") or []):
        if was is None or now is None:
            _join_added_or_removed(was, now, found)
        elif sql_of(was) != sql_of(now):
            if {_side(was), _side(now)} == {"LEFT", "INNER"} and _same_but_side(was, now):
                drops = _side(now) == "INNER"
                kind = RowCause.JOIN_DROPS_UNMATCHED if drops else RowCause.JOIN_KEEPS_UNMATCHED
                why = kind.of(table=now.this.name, before=_side(was), after=_side(now))
                predicate = _unmatched_rows(now.this.name, old, new) if outermost else ""
                found.add_one_sided_rows(RowSide.OLD if drops else RowSide.NEW, why, predicate)
            else:
                why = RowCause.JOIN_CHANGED.of(before=_clip(sql_of(was)), after=_clip(sql_of(now)))
                found.add_one_sided_rows(RowSide.OLD, why)
                found.add_one_sided_rows(RowSide.NEW, why, may_equal_others=False)
            found.values = why if found.grouped else found.values


def _join_added_or_removed(was: Any, now: Any, found: _Effects) -> None:
    join, added = (now, True) if was is None else (was, False)
    why = (RowCause.JOIN_ADDED if added else RowCause.JOIN_REMOVED).of(join=_clip(sql_of(join)))
    side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    if side in ("RIGHT", "FULL"):
        found.add_one_sided_rows(RowSide.NEW if added else RowSide.OLD, why)
    if side in ("", "RIGHT") and kind != "CROSS":
        found.add_one_sided_rows(RowSide.OLD if added else RowSide.NEW, why)
        found.values = why if found.grouped else found.values


def _side(join: Any) -> str:
    side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
    return " ".join(filter(None, (side, kind.replace("OUTER", "").strip()))) or "INNER"


def _same_but_side(was: Any, now: Any) -> bool:
    one, other = was.copy(), now.copy()
    for join in (one, other):
        join.set("side", None)
        join.set("kind", None)
    return isinstance(now.this, exp.Table) and sql_of(one) == sql_of(other)


def _regrouping(old: Any, new: Any) -> Iterator[tuple[RowCause, str, str]]:
    yield RowCause.SOURCE, _source(old), _source(new)
    for key, kind in (
        ("laterals", RowCause.LATERAL_VIEW), ("limit", RowCause.LIMIT), ("qualify", RowCause.QUALIFY)
    ):  # fmt: skip
        was, now = (NUMBERED_ALIAS.sub("", _text(select.args.get(key))) for select in (old, new))
        yield kind, was, now
    was, now = (", ".join(sorted(group_key_texts(select))) for select in (old, new))
    yield RowCause.GROUP_BY, was, now
    if not was and not now:
        yield RowCause.GROUPING, "all rows" if _aggregates(old) else "", "all rows" if _aggregates(new) else ""


def _source(select: Any) -> str:
    from_ = select.args.get("from_")
    return sql_of(from_.this) if from_ is not None and isinstance(from_.this, exp.Table) else ""


def _text(value: Any) -> str:
    return ", ".join(map(sql_of, value)) if isinstance(value, list) else "" if value is None else sql_of(value)


def _groups(select: Any) -> bool:
    return bool(group_key_texts(select)) or _aggregates(select)


def _aggregates(select: Any) -> bool:
    return any(aggregates_in(each) for each in select.expressions)


def _key_columns(select: Any) -> tuple[str, ...]:
    """Return the output columns computed from grouping keys only; empty unless they cover every grouping key."""
    keys = group_key_texts(select)
    if not keys:
        return ()
    columns = [each for each in select.expressions if _is_of_keys(each.unalias(), keys)]
    seen = {key for key in keys for each in columns if any(sql_of(node) == key for node in each.unalias().walk())}
    return tuple(each.alias_or_name.lower() for each in columns) if seen == keys else ()


def _is_of_keys(node: Any, keys: frozenset[str]) -> bool:
    if sql_of(node) in keys:
        return True
    if isinstance(node, exp.Column) or aggregate_function(node) is not None:
        return False
    children = list(node.iter_expressions())
    inner = [child for child in children if not isinstance(child, exp.Literal | exp.Identifier | exp.DataType)]
    return bool(inner) and all(_is_of_keys(child, keys) for child in inner)


def _names(predicate: str) -> set[str]:
    return {name.lower() for name in re.findall(r"`([^`]+)`", predicate)}


def _clip(text: str) -> str:
    return clipped(text, _CLIPPED)


def _shown_condition(term: str, old: Any, new: Any) -> str:
    """Rewrite a condition in terms of output columns; empty if they cannot express it.

    An output column can replace an expression only if it has this expression in both versions.
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
    """Replace each expression with the output column of the same value, outermost expression first.

    Returns False if a column or aggregate remains for which there is no output column.
    """
    for child in list(parent.iter_expressions()):
        if (name := shown.get(sql_of(child))) is not None:
            child.replace(exp.column(exp.to_identifier(name, quoted=True)))
        elif isinstance(child, exp.Column) or aggregate_function(child) is not None or not _show(child, shown):
            return False
    return True


def _unmatched_rows(table: str, old: Any, new: Any) -> str:
    """Return a predicate for rows without a join match, in which all output columns of the joined table are NULL.

    The predicate is empty unless both versions output the same column of the table.
    """
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


def _common_totals(old: Any, new: Any, texts: tuple[str, str]) -> CommonTotals:
    (old_keys, old_totals), (new_keys, new_totals) = _keys_and_totals(old), _keys_and_totals(new)
    keys = tuple(name for name, text in old_keys.items() if new_keys.get(name) == text)
    totals = tuple(
        CommonTotal(text, one[0], new_totals[text][0], (one[1], new_totals[text][1]))
        for text, one in old_totals.items()
        if text in new_totals and {one[1], new_totals[text][1]}.isdisjoint(keys)
    )
    return CommonTotals(keys, totals, _totals_difference_reason((old, new), texts))


def _keys_and_totals(select: Any) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return the grouping keys of a SELECT (name → expression) and its totals.

    Totals map each aggregate expression to the SQL that computes it from output rows, and to the output column that
    this SQL aggregates.
    """
    grouped = group_key_texts(select)
    keys: dict[str, str] = {}
    totals: dict[str, tuple[str, str]] = {}
    ungrouped = not grouped and not _aggregates(select)
    for each in select.expressions:
        node, name = each.unalias(), each.alias_or_name.lower()
        text, column = sql_of(node), quoted_name(name)
        call = aggregate_function(node)
        if ungrouped:
            keys[name] = text
            totals |= {f"{word}({text})": (f"{word}({column})", name) for word in _OVER_ROWS}
        elif grouped and not aggregates_in(node):
            keys[name] = text
        elif call is node and (over := _OVER_GROUPS.get(str(call.this).lower())) and "DISTINCT" not in text:
            totals["count(*)" if text in _COUNTED else text] = (f"{over}({column})", name)
    if ungrouped:
        totals["count(*)"] = ("count(*)", "")
    return keys, totals


def _totals_difference_reason(selects: Sequence[Any], texts: Sequence[str]) -> Fact[TotalsDifferenceReason] | None:
    if any(select.args.get("having") is not None for select in selects):
        return TotalsDifferenceReason.HAVING.of()
    was, now = (_withholding_keys(select, text) for select, text in zip(selects, texts, strict=True))
    if was != now or any("session_window" in key for key in was | now):
        return TotalsDifferenceReason.WITHHELD.of()
    return None


def _withholding_keys(select: Any, text: str) -> frozenset[str]:
    """Return the grouping keys on event time, whose groups are withheld until the watermark has passed them."""
    names = {found.rpartition(".")[2].strip("`") for found in _WATERMARK.findall(text)}
    return frozenset(key for key in group_key_texts(select) if "window(" in key or names & set(re.findall(r"\w+", key)))


def _expand_window_fields(select: Any) -> None:
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
