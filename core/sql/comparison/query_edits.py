"""What was edited between two canonical queries, in words, clause by clause; nothing is decided from these words."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from sqlglot import exp

from core.sql.parsing.canonical_text import and_terms, sql_of
from core.sql.parsing.function_names import plain_function_name
from core.sql.parsing.parser import parse_expression, parse_query
from core.sql.parsing.stream_clauses import extract_stream_clauses
from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of

LONGEST_EDIT = 90
"""Characters of one expression before it is cut."""

NUMBERED_ALIAS = re.compile(r"(?<=\)) _t\d+\b")
"""The alias that a canonical text gives a lateral view in place of its author's."""

_FLIPPED: Mapping[type[Any], type[Any]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.NullSafeEQ: exp.NullSafeEQ,
    exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE,
}  # fmt: skip
"""Each comparison with the one that says the same with its sides exchanged."""


def query_edits(old: str, new: str) -> tuple[str, ...]:
    """Describe what was edited; empty when the texts are equal, are no queries, or their blocks cannot be paired."""
    try:
        before, after = query_blocks(old), query_blocks(new)
    except (SqlDiagnostic, RecursionError):
        return ()
    if len(before) != len(after):
        return tuple(_resized(before, after))
    return tuple(dict.fromkeys(words for pair in zip(before, after, strict=True) for words in _edited(*pair)))


def query_blocks(text: str) -> list[Any]:
    """List the SELECTs of a query, outermost first, in its author's words: plain functions, tables as qualifiers.

    A canonical text has lost how the author named a lateral view: what it explodes qualifies its columns.
    """
    marks = extract_stream_clauses(tokens_of(open_sql(text, "")))
    query = parse_query(marks.tokens, text)
    names: dict[str, str] = {}
    for table in query.find_all(exp.Table):
        mark = marks.by_start.get(table.this.meta.get("start"))
        names[table.alias] = table.name
        table.this.set("this", f"{'STREAM ' if mark is not None and mark.streaming else ''}{table.name}")
    for call in query.find_all(exp.Anonymous):
        call.set("this", plain_function_name(str(call.this)))
    for lateral in query.find_all(exp.Lateral):
        if (alias := lateral.args.get("alias")) is not None and alias.this is not None:
            names[alias.name] = sql_of(lateral.this)
    unique = {alias for alias, name in names.items() if list(names.values()).count(name) == 1}
    for node in list(query.walk()):
        if isinstance(node, exp.Column) and node.table and node.table in unique:
            node.set("table", exp.to_identifier(names[node.table]))
        elif isinstance(node, exp.Table):
            node.set("alias", None)
        elif type(node) in _FLIPPED and isinstance(node.this, exp.Literal):
            _read_from_the_column(node)
    return list(query.find_all(exp.Select))


def parsed_expression(text: str) -> Any:
    """Parse one expression of a block; None where it cannot be read by itself."""
    try:
        tree, _ = parse_expression(tokens_of(open_sql(text, "")))
    except (SqlDiagnostic, RecursionError):
        return None
    for node in list(tree.walk()):
        if isinstance(node, exp.Anonymous):
            node.set("this", plain_function_name(str(node.this)))
    return tree


def _read_from_the_column(comparison: Any) -> None:
    """Turn `5 < amount` into `amount > 5`, as people write it: canonical texts order the sides by their text."""
    literal, other, flipped = comparison.this, comparison.expression, _FLIPPED[type(comparison)]
    if not isinstance(other, exp.Literal):
        comparison.replace(flipped(this=other, expression=literal))


def _resized(before: list[Any], after: list[Any]) -> Iterator[str]:
    """Return the SELECTs that were added or removed as a whole; an edited one is listed on both sides."""
    old, new = Counter(map(_said, before)), Counter(map(_said, after))
    for text in old - new:
        yield f"SELECT removed: {text}"
    for text in new - old:
        yield f"SELECT added: {text}"


def _edited(old: Any, new: Any) -> Iterator[str]:
    yield from _outputs(old, new)
    yield from _set(_sources(old), _sources(new), "source")
    yield from _joins(old, new)
    yield from _set(terms_of(old, "where"), terms_of(new, "where"), "filter")
    yield from _set(_keys(old), _keys(new), "GROUP BY key")
    yield from _set(terms_of(old, "having"), terms_of(new, "having"), "HAVING")
    for key, word in (("limit", "limit"), ("laterals", "lateral view"), ("hint", "hint")):
        yield from _set(_listed(old, key), _listed(new, key), word)
    if (old.args.get("distinct") is None) != (new.args.get("distinct") is None):
        yield f"DISTINCT {'added' if old.args.get('distinct') is None else 'removed'}"


def _outputs(old: Any, new: Any) -> Iterator[str]:
    before = {each.alias_or_name or sql_of(each): sql_of(each.unalias()) for each in old.expressions}
    after = {each.alias_or_name or sql_of(each): sql_of(each.unalias()) for each in new.expressions}
    for name, text in before.items():
        if name not in after:
            yield f"column removed: {_cut(text if text == name else f'{name} = {text}')}"
        elif text != after[name]:
            yield f"column {_cut(name)}: {_cut(text)} → {_cut(after[name])}"
    for name, text in after.items():
        if name not in before:
            yield f"column added: {_cut(text if text == name else f'{name} = {text}')}"
    if before.keys() == after.keys() and list(before) != list(after):
        yield f"columns in another order: {_cut(', '.join(before))} → {_cut(', '.join(after))}"


def _joins(old: Any, new: Any) -> Iterator[str]:
    """Compare joins by position: each is named by what it reads."""
    for was, now in zip_longest(old.args.get("joins") or [], new.args.get("joins") or []):
        if was is None or now is None:
            yield f"join added: {_said(now)}" if was is None else f"join removed: {_said(was)}"
            continue
        name = _source(now.this)
        if _source(was.this) != name:
            yield f"joined: {_source(was.this)} → {name}"
        if _kind(was) != _kind(now):
            yield f"join with {name}: {_kind(was)} → {_kind(now)}"
        yield from _set(_met(was), _met(now), f"condition of the join with {name}")


def _set(old: Counter[str], new: Counter[str], what: str) -> Iterator[str]:
    """Describe what came and what went; one for one is a change."""
    gone, come = list((old - new).elements()), list((new - old).elements())
    if len(gone) == len(come) == 1:
        yield f"{what} changed: {_cut(gone[0])} → {_cut(come[0])}"
        return
    yield from (f"{what} removed: {_cut(text)}" for text in gone)
    yield from (f"{what} added: {_cut(text)}" for text in come)


def _sources(select: Any) -> Counter[str]:
    from_ = select.args.get("from_")
    return Counter([_source(from_.this)] if from_ is not None else [])


def _source(node: Any) -> str:
    """Return the name of a table, or the kind of any other source."""
    if isinstance(node, exp.Table):
        return str(node.name)
    return "a subquery" if isinstance(node, exp.Subquery) else _said(node)


def _kind(join: Any) -> str:
    words = [str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key)]
    return " ".join(words) or "INNER"


def _met(join: Any) -> Counter[str]:
    on = join.args.get("on")
    using = [f"USING {each.name}" for each in join.args.get("using") or []]
    return Counter([*using, *(sql_of(each) for each in (and_terms(on) if on is not None else ()))])


def terms_of(select: Any, clause: str) -> Counter[str]:
    condition = select.args.get(clause)
    return Counter(sql_of(each) for each in (and_terms(condition.this) if condition is not None else ()))


def _keys(select: Any) -> Counter[str]:
    group = select.args.get("group")
    return Counter(sql_of(each) for each in (group.iter_expressions() if group is not None else ()))


def _listed(select: Any, key: str) -> Counter[str]:
    value = select.args.get(key)
    found = value if isinstance(value, list) else [] if value is None else [value]
    return Counter(
        NUMBERED_ALIAS.sub("", sql_of(each.expression if key == "limit" else each).strip()) for each in found
    )


def _said(node: Any) -> str:
    return _cut(sql_of(node))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_EDIT else f"{text[: LONGEST_EDIT - 1]}…"
