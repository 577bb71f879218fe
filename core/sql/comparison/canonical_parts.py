"""Splits a statement's canonical SQL into its stateful operators and the parts below and above them.

A clause belongs to the part above (`post`) only if Spark's optimizer cannot move it below the stateful operators: the
optimizer pushes filters on grouping keys through an aggregate, and drops unused aggregates (seen in optimized plans of
Spark 4.2.0). Every uncertain clause belongs to the part below (`pre`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from core.sql.comparison.optimizer_folding import condition_is_whole, is_read_in_comparisons, output_is_whole
from core.sql.parsing.canonical_text import and_terms, is_plain, sql_of
from core.sql.parsing.stream_clauses import StreamClauses
from core.sql.parsing.table_names import NamedRead
from core.sql.statement import SIMPLIFIED, Operator
from core.sql.streaming.aggregation import aggregates_in, aggregating, group_keys
from core.text.escaping import quoted_name, quoted_string_literal

_HIDDEN = re.compile(r" AS \0([^\0]*)\0([^\0]*)\0")
"""Matches an alias with its encoded streaming clauses, because sqlglot cannot write clauses before an alias."""
_ABOVE_ONLY = ("distinct", "limit", "offset", "order", "sort", "cluster", "distribute", "qualify")


@dataclass(frozen=True, slots=True)
class CanonicalParts:
    """A statement's canonical SQL and its parts; `core.sql.statement.ParsedStatement` documents the fields."""

    canonical: str
    state: str
    pre: str
    post: str


def canonical_parts_of(query: Any, sources: Iterable[Any], operators: tuple[Operator, ...]) -> CanonicalParts:
    """Split the canonical SQL of a query into parts. The query is modified.

    The query must be normalised and its table names resolved. `sources` are all tables and subqueries in its FROM
    clauses, at any depth.
    """
    marked = [node for node in sources if "entry" in node.meta or "mark" in node.meta]
    for node in marked:
        if "entry" in node.meta:
            _name(node)
    waters: list[str] = []
    for node in marked:
        _label(node, waters, full=True)
    canonical = _HIDDEN.sub(r"\2 AS \1", sql_of(query))
    with_clauses = any(_has_clauses(node) for node in marked)
    if with_clauses:
        for node in marked:
            _label(node, [], full=False)
    if not operators:
        return CanonicalParts(canonical, "", sql_of(query) if with_clauses else canonical, "")
    state = "; ".join([*(_operator_text(each) for each in operators), *waters])
    unsure = not _reads_all(query)
    post = _lift(query, operators)
    if post and unsure:
        # Simplifying these parts decides which aggregates Spark keeps, so they belong to the state.
        state = f"{state}{SIMPLIFIED}{post}"
    return CanonicalParts(canonical, state, sql_of(query), post)


def _operator_text(operator: Operator) -> str:
    return f"{operator.kind}({', '.join(operator.keys)}) {operator.detail}".rstrip()


def _name(table: Any) -> None:
    parts = [table.args.get(key) for key in ("catalog", "db", "this")]
    table.meta["name"] = ".".join(_quoted(str(part.name).lower()) for part in parts if part is not None)
    table.set("catalog", None)
    table.set("db", None)


def _quoted(name: str) -> str:
    return name if is_plain(name) else "`" + name.replace("`", "``") + "`"


def _label(node: Any, waters: list[str], *, full: bool) -> None:
    entry: NamedRead | None = node.meta.get("entry")
    mark: StreamClauses | None = node.meta.get("mark")
    if entry is not None:
        text = str(node.meta["name"])
        if entry.mark.streaming:
            text = f"STREAM {text}"
        if full:
            text += _clauses(entry.mark, waters, text)
        node.set("this", exp.Var(this=text))
    if mark is not None:
        alias = node.args["alias"]
        name = str(alias.this.this).strip("\0").partition("\0")[0]
        clauses = _clauses(mark, waters, "(…)") if full else ""
        alias.set("this", exp.Var(this=f"\0{name}\0{clauses}\0" if clauses else name))


def _has_clauses(node: Any) -> bool:
    entry: NamedRead | None = node.meta.get("entry")
    mark: StreamClauses | None = entry.mark if entry is not None else node.meta.get("mark")
    return mark is not None and bool(mark.options or mark.source_name or mark.watermark)


def _clauses(mark: StreamClauses, waters: list[str], name: str) -> str:
    text = ""
    if mark.options:
        options = sorted((key.lower(), value) for key, value in mark.options)
        pairs = (f"{quoted_string_literal(key)}={quoted_string_literal(value)}" for key, value in options)
        text += f" WITH ({', '.join(pairs)})"
    if mark.source_name:
        text += f" IDENTIFIED BY {quoted_name(mark.source_name)}"
    if mark.watermark is not None:
        delay = mark.watermark
        text += f" WATERMARK {delay.text} DELAY OF INTERVAL {delay.delay}"
        waters.append(f"watermark {name} {delay.text} {delay.delay}")
    return text


def _lift(query: Any, operators: tuple[Operator, ...]) -> str:
    """Remove the clauses that are certain to be applied after the stateful operators, and return them as SQL."""
    if not isinstance(query, exp.Select) or any(query.args.get(key) is not None for key in _ABOVE_ONLY):
        return ""
    if operators[-1].kind not in ("aggregate", "window", "session_window"):
        return ""
    if aggregating(query):
        return _lift_aggregate(query)
    inner = _only_source(query)
    if inner is None or not aggregating(inner) or any(inner.args.get(key) is not None for key in _ABOVE_ONLY):
        return ""
    used = {column.parts[0].name for column in query.find_all(exp.Column) if column.parent_select is query}
    if any(each.find(exp.Star) is not None for each in query.expressions):
        used |= {each.alias_or_name for each in inner.expressions}
    computed = {each.alias_or_name for each in inner.expressions if aggregates_in(each)}
    above = _lift_terms(query, "where", computed)
    outputs = ", ".join(sql_of(each) for each in query.expressions)
    query.set("expressions", [exp.column(name) for name in sorted(used)])
    # Spark drops unused aggregates, and pushes the remaining WHERE below the state.
    kept = [call for each in inner.expressions if each.alias_or_name in used for call in aggregates_in(each)]
    kept += _named_in(query.args.get("where"), inner.expressions)
    return f"SELECT {outputs} FROM ({_lift_aggregate(inner, kept)})" + _conditions("WHERE", above)


def _lift_aggregate(select: Any, kept: Sequence[Any] = ()) -> str:
    """Remove the outputs and HAVING terms that do not affect an aggregation's state, and return them as SQL.

    The SELECT keeps the expressions in `kept`, and all outputs to which its remaining HAVING terms refer.
    """
    above = _lift_terms(select, "having", _named_aggregates(select))
    below = {sql_of(each): each.copy() for each in (*kept, *_named_in(select.args.get("having"), select.expressions))}
    outputs = ", ".join(sql_of(each) for each in select.expressions)
    select.set("expressions", [below[text] for text in sorted(below)] or [exp.Star()])
    return f"SELECT {outputs} FROM state" + _conditions("HAVING", above)


def _reads_all(query: Any) -> bool:
    if not isinstance(query, exp.Select):
        return True
    if aggregating(query):
        return _outputs_read(query, "having")
    inner = _only_source(query)
    if inner is None:
        return True
    values = [each.unalias() for each in inner.expressions if aggregates_in(each)]
    plain = all(is_read_in_comparisons(each) for each in values)
    return plain and _outputs_read(query, "where") and _outputs_read(inner, "having")


def _outputs_read(select: Any, clause: str) -> bool:
    condition = select.args.get(clause)
    if condition is not None and not condition_is_whole(condition.this):
        return False
    return all(output_is_whole(each) for each in select.expressions)


def _named_in(condition: Any, outputs: Sequence[Any]) -> list[Any]:
    columns = condition.find_all(exp.Column) if condition is not None else ()
    names = {column.parts[0].name for column in columns}
    return [each for each in outputs if isinstance(each, exp.Alias) and each.alias in names]


def _conditions(word: str, lifted: list[str]) -> str:
    return f" {word} {' AND '.join(f'({text})' for text in lifted)}" if lifted else ""


def _named_aggregates(select: Any) -> set[str]:
    named = {each.alias for each in select.expressions if isinstance(each, exp.Alias) and aggregates_in(each)}
    return named - {column.name for key in group_keys(select) for column in key.find_all(exp.Column)}


def _lift_terms(select: Any, clause: str, computed: set[str]) -> list[str]:
    """Remove the WHERE or HAVING terms that Spark cannot push below the aggregation, and return them as SQL.

    If any term relates an aggregate to a grouping key, no term is removed: from `sum(v) = k AND sum(v) > 5`, Spark
    infers `k > 5` and pushes it below the aggregation.
    """
    condition = select.args.get(clause)
    if condition is None:
        return []
    above: list[str] = []
    below: list[Any] = []
    for term in and_terms(condition.this):
        inside = {id(column) for call in aggregates_in(term) for column in call.find_all(exp.Column)}
        outside = {column.name for column in term.find_all(exp.Column) if id(column) not in inside}
        is_above = bool(inside or aggregates_in(term) or outside & computed)
        if is_above and (outside - computed or term.find(exp.Query) is not None):
            return []
        if is_above:
            above.append(sql_of(term))
        else:
            below.append(term.copy())
    kept = below[0] if below else None
    for term in below[1:]:
        kept = exp.And(this=kept, expression=term)
    select.set(clause, type(condition)(this=kept) if below else None)
    return above


def _only_source(query: Any) -> Any:
    from_ = query.args.get("from_")
    if from_ is None or query.args.get("joins") or query.args.get("laterals"):
        return None
    source = from_.this
    if source.args.get("joins") or source.args.get("laterals"):
        return None
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        return source.this
    return None
