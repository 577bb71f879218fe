"""The edits between two canonical queries, clause by clause."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from core.model.evidence import Edit, EditKind, reading_order
from core.sql.parsing.canonical_text import and_terms, normalise, sql_of
from core.sql.parsing.function_names import plain_function_name
from core.sql.parsing.parser import parse_expression, parse_query
from core.sql.parsing.stream_clauses import extract_stream_clauses
from core.sql.parsing.table_names import resolve_table_names
from core.sql.statement import ParsedStatement
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of

NUMBERED_ALIAS = re.compile(r"(?<=\)) _t\d+\b")
"""Matches a lateral view's alias in canonical SQL."""

_FLIPPED: Mapping[type[Any], type[Any]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.NullSafeEQ: exp.NullSafeEQ,
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE,
}  # fmt: skip
"""Maps the class of each comparison to the class of the comparison that has its sides exchanged."""


Aliases = Mapping[str, str]
"""Maps each alias in canonical SQL to the alias in the SQL file (see `written_aliases`)."""
_NO_ALIASES: Aliases = MappingProxyType({})
NO_ALIASES = (_NO_ALIASES, _NO_ALIASES)
"""Alias mappings for two queries whose SQL files are unknown."""


def query_edits(old: str, new: str, aliases: tuple[Aliases, Aliases] = NO_ALIASES) -> tuple[Edit, ...]:
    """Return the edits between two canonical queries, most consequential first.

    The result is empty if the queries are equal or cannot be parsed.
    """
    try:
        before, after = compared_selects(old, new, aliases)
    except (SqlDiagnostic, RecursionError):
        return ()
    if len(before) != len(after):
        found = tuple(_resized(before, after))
    else:
        found = tuple(edit for pair in zip(before, after, strict=True) for edit in _edited(*pair))
    return tuple(sorted(dict.fromkeys((*_unions(before, after), *found)), key=reading_order))


def compared_selects(old: str, new: str, aliases: tuple[Aliases, Aliases] = NO_ALIASES) -> tuple[list[Any], list[Any]]:
    """Return all SELECTs of the old and of the new query, outermost first, with names as written in the SQL file.

    `old` and `new` are canonical SQL; raises SqlDiagnostic if either cannot be parsed. A table that is read twice
    appears under its alias or, without an alias, under its canonical alias. A lateral view appears as the expression
    that it explodes, so its alias does not matter.
    """
    both = [_Reading(text) for text in (old, new)]
    twice = both[0].read_twice() | both[1].read_twice()
    found = [each.selects(written, twice) for each, written in zip(both, aliases, strict=True)]
    return found[0], found[1]


def selects_of(text: str, aliases: Aliases = _NO_ALIASES) -> list[Any]:
    """Return all SELECTs of a canonical query, outermost first, with names as in `compared_selects`."""
    reading = _Reading(text)
    return reading.selects(aliases, reading.read_twice())


class _Reading:
    def __init__(self, text: str) -> None:
        self._marks = extract_stream_clauses(tokens_of(open_sql(text, "")))
        self._query = parse_query(self._marks.tokens, text)

    def read_twice(self) -> set[str]:
        """Return the names of tables that are read twice within reach of the same SELECT and therefore need aliases."""
        seen: Counter[tuple[int, str]] = Counter()
        for table in self._query.find_all(exp.Table):
            seen.update((id(select), table.name) for select in _seen_from(table))
        return {name for (_, name), number in seen.items() if number > 1}

    def selects(self, written: Aliases, twice: set[str]) -> list[Any]:
        """Restore the names that the SQL file uses for tables, qualifiers and functions, and return all SELECTs.

        `twice` contains the tables that need aliases.
        """
        query, names = self._query, dict(written)
        for table in query.find_all(exp.Table):
            mark, shown = self._marks.by_start.get(table.this.meta.get("start")), written.get(table.name, table.name)
            called = written.get(table.alias, table.alias) if table.name in twice else shown
            names[table.alias] = called
            table.set("alias", exp.TableAlias(this=exp.to_identifier(called)) if called != shown else None)
            table.this.set("this", f"{'STREAM ' if mark is not None and mark.streaming else ''}{shown}")
        for call in query.find_all(exp.Anonymous):
            call.set("this", plain_function_name(str(call.this)))
        through = {each.this.alias: name for each in query.find_all(exp.From) if (name := _only_table(each.this))}
        names |= through
        laterals = [each for each in query.find_all(exp.Lateral) if each.alias]
        for lateral in laterals:
            _qualify(lateral.this, names)
        exploded = [sql_of(lateral.this) for lateral in laterals]
        for lateral, text in zip(laterals, exploded, strict=True):
            names[lateral.alias] = text if exploded.count(text) == 1 else written.get(lateral.alias, lateral.alias)
        _qualify(query, names)
        for node in list(query.walk()):
            if isinstance(node, exp.Subquery) and node.alias and names.get(node.alias):
                node.args["alias"].set("this", exp.to_identifier(names[node.alias]))
            elif type(node) in _FLIPPED and isinstance(node.this, exp.Literal):
                _read_from_the_column(node)
        return list(query.find_all(exp.Select))


def _only_table(source: Any) -> str:
    """Return the alias or name of a subquery's only table; empty for a join, a lateral view or any other source."""
    select = source.this if isinstance(source, exp.Subquery) and source.alias else None
    from_ = select.args.get("from_") if isinstance(select, exp.Select) and not _several(select) else None
    read = from_.this if from_ is not None else None
    return (read.alias or str(read.name).removeprefix("STREAM ")) if isinstance(read, exp.Table) else ""


def _seen_from(table: Any) -> Iterator[Any]:
    node = table
    while node is not None and not isinstance(node, exp.CTE):
        if isinstance(node, exp.Select):
            yield node
        if isinstance(node, exp.Subquery) and isinstance(node.parent, (exp.From, exp.Join)):
            return
        node = node.parent


def _qualify(node: Any, names: Mapping[str, str]) -> None:
    for column in list(node.find_all(exp.Column)):
        if column.table and names.get(column.table):
            column.set("table", exp.to_identifier(names[column.table]))


def parsed_expression(text: str) -> Any:
    """Parse a single expression, such as an output of a SELECT; return None if it cannot be parsed."""
    try:
        tree, _ = parse_expression(tokens_of(open_sql(text, "")))
    except (SqlDiagnostic, RecursionError):
        return None
    for node in list(tree.walk()):
        if isinstance(node, exp.Anonymous):
            node.set("this", plain_function_name(str(node.this)))
    return tree


def _read_from_the_column(comparison: Any) -> None:
    """Turn `5 < amount` into `amount > 5`, because canonical SQL sorts the sides of a comparison alphabetically."""
    literal, other, flipped = comparison.this, comparison.expression, _FLIPPED[type(comparison)]
    if not isinstance(other, exp.Literal):
        comparison.replace(flipped(this=other, expression=literal))


def _resized(before: list[Any], after: list[Any]) -> Iterator[Edit]:
    """Yield the edits between two queries with different numbers of SELECTs.

    Outermost queries and UNION branches are compared in pairs. Any other subquery in FROM or WITH counts as removed or
    added.
    """
    gone, come = _without(before, after), _without(after, before)
    whole = [[each for each in side if _is_branch(each) or each.parent is None] for side in (gone, come)]
    pairs = list(zip(*whole, strict=False))
    for pair in pairs:
        yield from _edited(*pair)
    paired = {id(one) for pair in pairs for one in pair}
    for side, came in ((gone, False), (come, True)):
        for each in side:
            if _is_source(each) and id(each) not in paired:
                kind = EditKind.UNION_BRANCH if _is_branch(each) else EditKind.SELECT
                yield Edit(kind, after=sql_of(each)) if came else Edit(kind, sql_of(each))


def _without(blocks: list[Any], others: list[Any]) -> list[Any]:
    known, left = Counter(map(sql_of, others)), []
    for each in blocks:
        text = sql_of(each)
        known[text] -= 1
        left += [each] if known[text] < 0 else []
    return left


def _is_source(select: Any) -> bool:
    """True if a SELECT is the whole query, or a query in WITH or FROM, rather than part of an expression."""
    around = select.parent
    while isinstance(around, (exp.Subquery, exp.Union)):
        around = around.parent
    return around is None or isinstance(around, (exp.CTE, exp.From, exp.Join, exp.Lateral))


def _is_branch(select: Any) -> bool:
    return isinstance(select.parent, exp.Union)


def _unions(before: list[Any], after: list[Any]) -> Iterator[Edit]:
    old, new = (list(blocks[0].root().find_all(exp.Union)) if blocks else [] for blocks in (before, after))
    for was, now in zip(old, new, strict=False) if len(old) == len(new) else ():
        gone, come = ("UNION" if each.args.get("distinct") else "UNION ALL" for each in (was, now))
        if gone != come:
            yield Edit(EditKind.UNION, gone, come)


def _edited(old: Any, new: Any) -> Iterator[Edit]:
    yield from _set(_sources(old), _sources(new), EditKind.SOURCE)
    yield from _joins(old, new)
    if _several(old) != _several(new):
        for select in (old, new):
            drop_first_qualifier(select)
    yield from _outputs(old, new)
    yield from _set(terms_of(old, "where"), terms_of(new, "where"), EditKind.FILTER)
    yield from _set(Counter(sorted(group_key_texts(old))), Counter(sorted(group_key_texts(new))), EditKind.GROUP_KEY)
    yield from _set(terms_of(old, "having"), terms_of(new, "having"), EditKind.HAVING)
    for key, kind in (("limit", EditKind.LIMIT), ("laterals", EditKind.LATERAL_VIEW), ("hint", EditKind.HINT)):
        yield from _set(_listed(old, key), _listed(new, key), kind)
    before, after = ("" if each.args.get("distinct") is None else "DISTINCT" for each in (old, new))
    if before != after:
        yield Edit(EditKind.DISTINCT, before, after)


def _several(select: Any) -> bool:
    return bool(select.args.get("joins") or select.args.get("laterals"))


def drop_first_qualifier(select: Any) -> None:
    """Remove the first source's qualifier from the columns of a SELECT.

    Canonical SQL has a qualifier for the first source only if the SELECT has another source.
    """
    from_ = select.args.get("from_")
    source = from_.this.alias_or_name if from_ is not None else ""
    name = source.removeprefix("STREAM ")
    for key, part in select.args.items():
        for each in part if isinstance(part, list) else [part]:
            if key in ("from_", "joins") or not isinstance(each, exp.Expression):
                continue
            for column in each.find_all(exp.Column):
                if name and column.table == name:
                    column.set("table", None)


def _outputs(old: Any, new: Any) -> Iterator[Edit]:
    before = {each.alias_or_name or sql_of(each): sql_of(each.unalias()) for each in old.expressions}
    after = {each.alias_or_name or sql_of(each): sql_of(each.unalias()) for each in new.expressions}
    for name, text in before.items():
        if text != after.get(name):
            yield Edit(EditKind.EXPRESSION, text, after.get(name, ""), columns=(name,))
    for name, text in after.items():
        if name not in before:
            yield Edit(EditKind.EXPRESSION, after=text, columns=(name,))
    if before.keys() == after.keys() and list(before) != list(after):
        yield Edit(EditKind.EXPRESSION_ORDER, ", ".join(before), ", ".join(after))


def _joins(old: Any, new: Any) -> Iterator[Edit]:
    """Yield the edits to joins, which are paired by position."""
    for was, now in zip_longest(old.args.get("joins") or [], new.args.get("joins") or []):
        if was is None or now is None:
            yield Edit(EditKind.JOIN, after=_joined(now)) if was is None else Edit(EditKind.JOIN, _joined(was))
            continue
        name = _source(now.this)
        if _source(was.this) != name:
            yield Edit(EditKind.JOINED, _source(was.this), name)
        if _kind(was) != _kind(now):
            yield Edit(EditKind.JOIN_TYPE, _kind(was), _kind(now), name)
        yield from _set(_met(was), _met(now), EditKind.JOIN_CONDITION, name)


def _joined(join: Any) -> str:
    short = join.copy()
    if isinstance(short.this, exp.Subquery):
        short.this.set("this", exp.to_identifier("…"))
    return str(sql_of(short)).replace("`…`", "…")


def _set(old: Counter[str], new: Counter[str], kind: EditKind, of: str = "") -> Iterator[Edit]:
    """Yield an edit for each removed or added term; a single removal and a single addition become a change."""
    gone, come = list((old - new).elements()), list((new - old).elements())
    if len(gone) == len(come) == 1:
        yield Edit(kind, gone[0], come[0], of)
        return
    yield from (Edit(kind, text, of=of) for text in gone)
    yield from (Edit(kind, after=text, of=of) for text in come)


def _sources(select: Any) -> Counter[str]:
    from_ = select.args.get("from_")
    return Counter([_source(from_.this)] if from_ is not None else [])


def _source(node: Any) -> str:
    if isinstance(node, exp.Table):
        return f"{node.name} AS {node.alias}" if node.alias else str(node.name)
    return "a subquery" if isinstance(node, exp.Subquery) else sql_of(node)


def _kind(join: Any) -> str:
    words = [str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key)]
    return " ".join(words) or "INNER"


def _met(join: Any) -> Counter[str]:
    on = join.args.get("on")
    using = [f"USING {each.name}" for each in join.args.get("using") or []]
    return Counter([*using, *(sql_of(each) for each in and_terms(on))])


def terms_of(select: Any, clause: str) -> Counter[str]:
    condition = select.args.get(clause)
    return Counter(sql_of(each) for each in (and_terms(condition.this) if condition is not None else ()))


def group_key_texts(select: Any) -> frozenset[str]:
    """Return the grouping expressions of a SELECT as canonical SQL."""
    group = select.args.get("group")
    return frozenset(sql_of(each) for each in (group.iter_expressions() if group is not None else ()))


def _listed(select: Any, key: str) -> Counter[str]:
    value = select.args.get(key)
    found = value if isinstance(value, list) else [] if value is None else [value]
    return Counter(
        NUMBERED_ALIAS.sub("", sql_of(each.expression if key == "limit" else each).strip()) for each in found
    )


def written_aliases(select: str) -> dict[str, str]:
    """Map the canonical aliases of a SELECT to the aliases in its SQL file; empty if the SELECT cannot be parsed.

    A table without an alias maps to its own name, and a subquery without an alias maps to an empty string.
    """
    try:
        marks = extract_stream_clauses(tokens_of(open_sql(select, "")))
        query = parse_query(marks.tokens, select)
        resolve_table_names(query, marks)
        found = normalise(query).find_all(exp.TableAlias)
        return {each.name: str(each.meta.get("written", "")) for each in found if each.this is not None}
    except (SqlDiagnostic, RecursionError):
        return {}


def aliases_of_both(old: ParsedStatement, new: ParsedStatement) -> tuple[dict[str, str], dict[str, str]]:
    """Return the alias mappings of the old and the new statement (see `written_aliases`).

    If both statements read the same tables in the same order, both mappings are those of the new statement.
    """
    same = [read.table for read in old.reads] == [read.table for read in new.reads]
    after = written_aliases(new.select)
    return (after if same else written_aliases(old.select)), after
