"""Edits to joins, lateral views, windows, UNION or DISTINCT that may yield more rows from the same input."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from core.model.names import TableName
from core.sql.comparison.qualified_columns import ColumnsOf
from core.sql.comparison.query_edits import aliases_of_both, compared_selects, terms_of
from core.sql.parsing.canonical_text import and_terms, sql_of
from core.sql.parsing.from_clause import join_words
from core.sql.parsing.function_names import GENERATORS
from core.sql.statement import ParsedStatement
from core.sql.streaming.aggregation import aggregates_in
from core.sql.tokens.lexer import SqlDiagnostic

_STREAM = "STREAM "
_ONE_ROW = ("json_tuple", "parse_url_tuple")
"""Generator functions that yield one row per input row."""

_SLIDES = re.compile(r"\bwindow\([^']+, '([^']+)', '([^']+)'")
"""Matches a call of `window` with a slide; the groups are the window's length and its slide."""


@dataclass(frozen=True, slots=True)
class RowMultiplier:
    """An edit to a statement that may multiply its output rows."""

    edit: str
    """Kind of the edit, such as `join added` or `lateral view changed`."""
    detail: str
    """The join with its condition; for any other clause, the whole SQL of the clause."""
    table: str = ""
    """The joined table; the number of its matches per row decides how many rows result. Empty for other edits."""
    equated: frozenset[str] = frozenset()
    """Columns of `table`, in lower case, that the join condition equates with expressions over other sources."""
    outcome: str = "each matching row adds a row"
    certain: bool = False
    """Whether the edit certainly adds rows, rather than possibly multiplying them."""


def row_multipliers(old: ParsedStatement, new: ParsedStatement, columns: ColumnsOf) -> tuple[RowMultiplier, ...]:
    """Return the edits that may multiply output rows; empty if either statement cannot be parsed.

    `columns` is used to resolve unqualified columns.
    """
    try:
        before, after = compared_selects(old.canonical, new.canonical, aliases_of_both(old, new))
    except (SqlDiagnostic, RecursionError):
        return ()
    joins = _joins(before, after, columns)
    return (*joins, *_laterals(before, after), *_windows(before, after), *_equal_rows(before, after))


@dataclass(frozen=True, slots=True)
class _Join:
    node: Any
    side: Any
    """The joined source or, if a stream is joined to a table, that table; its matches determine the number of rows."""
    kind: str
    terms: frozenset[str]

    @property
    def name(self) -> str:
        return sql_of(self.side) if isinstance(self.side, exp.Table) else self.side.alias_or_name


def _joins(before: list[Any], after: list[Any], columns: ColumnsOf) -> Iterator[RowMultiplier]:
    old, new = ([join for block in blocks for join in _joins_of(block)] for blocks in (before, after))
    known = Counter((join.name, join.kind, join.terms) for join in old)
    for join in new:
        same = (join.name, join.kind, join.terms)
        if known[same]:
            known[same] -= 1
            continue
        was = next((each for each in old if each.name == join.name), None)
        if was is not None and was.terms and was.terms <= join.terms:
            # The condition became stricter.
            continue
        equated = _equated(join, columns)
        if isinstance(join.side, exp.Subquery) and _is_once(join.side.this, equated):
            continue
        detail = (
            f"{join.name} ON {' AND '.join(sorted(join.terms))}" if join.terms else f"{join.name} without condition"
        )
        yield RowMultiplier(
            f"join {'added' if was is None else 'changed'}",
            detail.replace(_STREAM, ""),
            join.side.name.removeprefix(_STREAM) if isinstance(join.side, exp.Table) else "",
            equated,
        )


def _joins_of(select: Any) -> Iterator[_Join]:
    from_ = select.args.get("from_")
    earlier = [from_.this] if from_ is not None else []
    for join in select.args.get("joins") or []:
        kind = join_words(join)
        source = join.this
        if not (kind.endswith(("SEMI", "ANTI")) or isinstance(source, exp.Lateral)):
            streams = [isinstance(each, exp.Table) and each.name.startswith(_STREAM) for each in (*earlier, source)]
            side = earlier[0] if streams == [False, True] else source
            on = join.args.get("on")
            terms = [sql_of(each) for each in and_terms(on)] if on is not None else []
            terms += [f"USING {each.name}" for each in join.args.get("using") or []]
            if not join.args.get("side"):
                called = side.alias_or_name.removeprefix(_STREAM)
                terms += [term for term in terms_of(select, "where") if _links(term, select, called)]
            yield _Join(join, side, kind.replace("CROSS", "").strip(), frozenset(terms))
        earlier.append(source)


def _links(term: str, select: Any, called: str) -> bool:
    where = select.args["where"]
    node = next(each for each in and_terms(where.this) if sql_of(each) == term)
    tables = {column.table for column in node.find_all(exp.Column)}
    return called in tables and len(tables) > 1


def _equated(join: _Join, columns: ColumnsOf) -> frozenset[str]:
    called, table = (str(name).removeprefix(_STREAM) for name in (join.side.alias_or_name, join.side.name))
    others = {name for other, names in columns.items() if other != table for name in names}
    own = {*columns.get(TableName(table), ())} - others

    def is_own(column: Any) -> bool:
        return bool(column.table == called if column.table else column.name.lower() in own)

    on, where = join.node.args.get("on"), join.node.parent.args.get("where")
    terms = [*and_terms(on), *(and_terms(where.this) if where is not None else ())]
    found = {each.name.lower() for each in join.node.args.get("using") or []}
    for term in terms:
        if sql_of(term) not in join.terms or not isinstance(term, (exp.EQ, exp.NullSafeEQ)):
            continue
        for one, other in ((term.this.unnest(), term.expression), (term.expression.unnest(), term.this)):
            if isinstance(one, exp.Column) and is_own(one) and not any(map(is_own, other.find_all(exp.Column))):
                found.add(one.name.lower())
    return frozenset(found)


def _is_once(query: Any, equated: frozenset[str]) -> bool:
    """True if a subquery yields at most one row for each combination of values in the columns `equated`."""
    if not isinstance(query, exp.Select):
        return False
    named = {each.alias_or_name.lower(): sql_of(each.unalias()) for each in query.expressions}
    if query.args.get("distinct") is not None:
        return named.keys() <= equated
    group = query.args.get("group")
    if group is None:
        return any(aggregates_in(each) for each in query.expressions)
    keys = {sql_of(each) for each in group.iter_expressions()}
    return bool(keys) and keys <= {text for name, text in named.items() if name in equated}


def _laterals(before: list[Any], after: list[Any]) -> Iterator[RowMultiplier]:
    old, new = (Counter(text for block in blocks for text in _generators(block)) for blocks in (before, after))
    verb = "changed" if old - new else "added"
    for text in (new - old).elements():
        yield RowMultiplier(f"lateral view {verb}", text, outcome="each element adds a row")


def _generators(select: Any) -> Iterator[str]:
    joined = [join.this for join in select.args.get("joins") or [] if isinstance(join.this, exp.Lateral)]
    called = [lateral.this for lateral in (*(select.args.get("laterals") or []), *joined)]
    selected = [each.this if isinstance(each, (exp.Alias, exp.Aliases)) else each for each in select.expressions]
    called += [each for each in selected if isinstance(each, exp.Anonymous) and str(each.this).lower() in GENERATORS]
    # OUTER adds a row only for an empty collection.
    yield from (sql_of(each).replace("_outer(", "(") for each in called if str(each.this).lower() not in _ONE_ROW)


def _windows(before: list[Any], after: list[Any]) -> Iterator[RowMultiplier]:
    old, new = ({key for block in blocks for key in _sliding(block)} for blocks in (before, after))
    for key in sorted(new - old):
        yield RowMultiplier("sliding window", key, outcome="a row counts in each window that it falls into")


def _sliding(select: Any) -> Iterator[str]:
    group = select.args.get("group")
    for each in group.iter_expressions() if group is not None else ():
        text = sql_of(each)
        found = _SLIDES.search(text)
        if found is not None and found[1] != found[2]:
            yield text


def _equal_rows(before: list[Any], after: list[Any]) -> Iterator[RowMultiplier]:
    unions = [[*blocks[0].root().find_all(exp.Union)] if blocks else [] for blocks in (before, after)]
    if len(unions[0]) < len(unions[1]):
        yield RowMultiplier("UNION branch added", "", outcome="its rows are added", certain=True)
    for sides, edit in ((unions, "UNION → UNION ALL"), ((before, after), "DISTINCT removed")):
        old, new = (sum(each.args.get("distinct") not in (None, False) for each in side) for side in sides)
        if new < old and len(sides[0]) == len(sides[1]):
            yield RowMultiplier(edit, "", outcome="equal rows are kept")
