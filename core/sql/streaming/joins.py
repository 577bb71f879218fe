"""Stream-stream and stream-table joins: the state that Spark keeps for them, and the joins that it rejects.

A stream-table join keeps no state. All rejections were observed on Spark 4.2.0.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sqlglot import exp

from core.sql.parsing.canonical_text import and_terms, sql_of
from core.sql.parsing.from_clause import is_group, join_words, sources_of
from core.sql.statement import Operator
from core.sql.streaming.relation_properties import (
    NO_EQUALITY,
    RelationProperties,
    StreamFindings,
    first_place,
    has_watermark,
    is_event_time,
    too_many_event_times,
)

_WITHOUT_WATERMARK = "UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK"


def joined_relations(
    join: Any, left: RelationProperties, right: RelationProperties, select: Any, found: StreamFindings
) -> RelationProperties:
    """Return a join's properties; `select` is the SELECT whose WHERE follows the join, None for a join in brackets."""
    words = join_words(join)
    outputs = _outputs(join, words, left, right)
    static = left.static | right.static
    if not (left.streaming or right.streaming):
        return RelationProperties(outputs=outputs, static=static)
    _check_lateral(join, found)
    using = tuple(each.name for each in join.args.get("using") or [])
    operators = (*left.operators, *right.operators)
    if words.endswith(("SEMI", "ANTI")):
        flow = replace(left, streaming=True, operators=operators, outputs=outputs)
    else:
        merged = {**left.merged, **right.merged, **_merged(words, using, left, right)}
        events, watermarked = left.event_times | right.event_times, left.watermarked or right.watermarked
        bare = not (using or join.args.get("on") is not None or "NATURAL" in words)
        crossed = left.crossed or right.crossed or (bare and left.streaming != right.streaming)
        flow = RelationProperties(
            True, operators, events, outputs, watermarked=watermarked, static=static, crossed=crossed, merged=merged
        )
    if not (left.streaming and right.streaming):
        _check_static_join(join, words, found, stream_left=left.streaming)
        return flow
    on, where = join.args.get("on"), select.args.get("where") if select is not None else None
    met = [each for term in and_terms(on) for each in _with_common(term)] if on is not None else []
    if where is not None and not join.side:
        # Spark pushes the WHERE of an inner join into its condition.
        met += [each for term in and_terms(where.this) for each in _with_common(term)]
    aliases = _aliases_of(join)
    # In text order, which is the column order of Spark's state key; canonical terms are sorted.
    keys = sorted((each for each in met if _is_join_key(each, aliases)), key=first_place)
    if not (keys or using or "NATURAL" in words):
        remedy = "write ON left.key = right.key"
        found.refuse("a join of two streams needs an equality condition", remedy, join, NO_EQUALITY)
    elif "CROSS" in words and not join.meta.get("comma"):
        found.refuse("Spark rejects a CROSS JOIN of two streams", "write JOIN … ON …", join, "")
    for side, name in ((left, "left"), (right, "right")):
        times = event_times_needed(side, needed_at(join, found.query)) if len(side.event_times) > 1 else set()
        if len(times) > 1:
            found.diagnostics.append(too_many_event_times(join, f"the {name} side of a join of streams", times))
    named = [{column.table for column in each.find_all(exp.Column)} for each in met]
    met_in = {table for tables in named if tables & aliases for table in tables - aliases}
    if "SEMI" in words and met_in and met_in <= left.static:
        remedy = "name a column of the stream on the left in ON, or join the table after the semi join"
        summary = "if ON of a semi join names no stream on the left, Spark compares only the table with each batch"
        found.refuse(summary, remedy, join, "")
    elif left.crossed and met_in & left.static:
        remedy = "join the table with a condition of its own, or after the join of the streams"
        summary = "Spark joins the table first, without a condition, to the stream on the left"
        found.refuse(summary, remedy, join, "")
    _Sides(join, left, right).check(words, met, keys, using, found)
    detail = words or "INNER"
    if met:
        detail += f" ON {' AND '.join(sorted({sql_of(each) for each in met}))}"
    operator = Operator("stream_join", (*using, *(sql_of(each) for each in keys)), detail)
    return replace(flow, operators=(*flow.operators, operator))


def _outputs(join: Any, words: str, left: RelationProperties, right: RelationProperties) -> tuple[str, ...] | None:
    if "SEMI" in words or "ANTI" in words:
        return left.outputs
    if left.outputs is None or right.outputs is None or join.args.get("using") or "NATURAL" in words:
        return None
    return (*left.outputs, *right.outputs)


def _merged(words: str, using: tuple[str, ...], left: RelationProperties, right: RelationProperties) -> dict[str, bool]:
    """Map each column merged by USING or NATURAL to True if it is watermarked (tested on Spark 4.2.0).

    The merged column is the left column, in a RIGHT JOIN the right column, and in a FULL JOIN a new column. Of the
    columns that NATURAL merges, only event-time columns are included. A side whose columns are unknown is assumed to
    have all event-time columns of the other side.
    """
    kept, other = (right, left) if "RIGHT" in words else (left, right)
    names = list(using)
    if "NATURAL" in words:
        times = {name.rpartition(".")[2] for name in left.event_times | right.event_times}
        names += [name for name in times if all(each.outputs is None or name in each.outputs for each in (kept, other))]
    return {name: "FULL" not in words and has_watermark(kept, name) for name in names}


def check_laterals(select: Any, found: StreamFindings) -> None:
    """Report a LATERAL VIEW with named arguments, which Spark's parser rejects."""
    for lateral in select.args.get("laterals") or []:
        if any(isinstance(each, (exp.Kwarg, exp.PropertyEQ)) for each in lateral.this.iter_expressions()):
            remedy = "use positional arguments, or LATERAL in FROM"
            summary = "LATERAL VIEW does not take named arguments"
            found.refuse(summary, remedy, lateral, "PARSE_SYNTAX_ERROR")


class _Sides:
    def __init__(self, join: Any, left: RelationProperties, right: RelationProperties) -> None:
        self._join = join
        self._left = left
        self._right = right
        self._aliases = _aliases_of(join)

    def check(self, words: str, met: list[Any], keys: list[Any], using: tuple[str, ...], found: StreamFindings) -> None:
        """Report a join that Spark rejects: an anti join, or an outer or semi join whose state would be unbounded."""
        join = self._join
        if "ANTI" in words:
            remedy = "write LEFT JOIN … WHERE right.key IS NULL"
            found.refuse("Spark rejects an anti join of two streams", remedy, join)
            return
        if not join.side and "SEMI" not in words:
            return
        name = words if "JOIN" in words else f"{words} JOIN"
        if not (self._left.event_times or self._right.event_times):
            summary = f"{name} of two streams needs a watermark"
            found.refuse(summary, "write WATERMARK … DELAY OF … on both sides", join)
        elif not (self._by_key(keys, using) or self._by_range(words, met)):
            remedy = "add to ON: equal event times, or a time range that bounds how long the preserved side waits"
            summary = f"{name} of two streams needs a condition on event time"
            found.refuse(summary, remedy, join)

    def _by_key(self, keys: list[Any], using: tuple[str, ...]) -> bool:
        if any(has_watermark(side, name) for side in (self._left, self._right) for name in using):
            return True
        return any(self._is_event(side) for term in keys for side in (term.this, term.expression))

    def _by_range(self, words: str, met: list[Any]) -> bool:
        """True if a time range bounds how long a row of the preserved side waits for a match."""
        bounds = [pair for term in met for pair in _inequalities(term)]
        left_ends = any(self._bounds(low, high, right_is_low=True) for low, high in bounds)
        right_ends = any(self._bounds(low, high, right_is_low=False) for low, high in bounds)
        if "FULL" in words:
            return left_ends or right_ends
        return right_ends if "RIGHT" in words else left_ends

    def _bounds(self, low: Any, high: Any, *, right_is_low: bool) -> bool:
        """True if `low <= high` bounds a watermarked column of one side by a column of the other side."""
        low, high = _time_in(low), _time_in(high)
        if low is None or high is None or not self._is_event(low):
            return False
        return self._is_right(low) is right_is_low and self._is_right(high) is not right_is_low

    def _is_event(self, node: Any) -> bool:
        return isinstance(node, exp.Column) and (is_event_time(node, self._left) or is_event_time(node, self._right))

    def _is_right(self, column: Any) -> bool:
        if column.table:
            return column.table in self._aliases
        return has_watermark(self._right, column.name)


def _inequalities(term: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs (low, high) for which a condition implies `low <= high`; canonical SQL has no > or >=."""
    if isinstance(term, (exp.LT, exp.LTE)):
        yield term.this, term.expression
    elif isinstance(term, exp.Between):
        yield term.args["low"], term.this
        yield term.this, term.args["high"]


def _time_in(node: Any) -> Any:
    """Return the column in `column` or `column ± interval`; None for any other expression."""
    node = node.unnest()
    if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression.unnest(), exp.Interval):
        node = node.this.unnest()
    elif isinstance(node, exp.Add) and isinstance(node.this.unnest(), exp.Interval):
        node = node.expression.unnest()
    return node if isinstance(node, exp.Column) else None


def _with_common(term: Any) -> list[Any]:
    """Return a term; for an OR, also return the terms that all its branches share, because Spark extracts them."""
    if not isinstance(term, exp.Or):
        return [term]
    arms: list[Any] = []
    waiting = [term]
    while waiting:
        each = waiting.pop().unnest()
        if isinstance(each, exp.Or):
            waiting += [each.this, each.expression]
        else:
            arms.append({sql_of(part): part for part in and_terms(each)})
    return [term, *(part for text, part in arms[0].items() if all(text in arm for arm in arms))]


def _aliases_of(join: Any) -> set[str]:
    return {each.alias for each in sources_of(join.this)}


def _is_join_key(term: Any, joined: set[str]) -> bool:
    if not isinstance(term, (exp.EQ, exp.NullSafeEQ)):
        return False
    left, right = ({column.table for column in side.find_all(exp.Column)} for side in (term.this, term.expression))
    if "" in left | right:
        return bool(left and right) and (not left & right or left == {""})
    return any(one and other and one <= joined and not other & joined for one, other in ((left, right), (right, left)))


def _check_lateral(join: Any, found: StreamFindings) -> None:
    lateral = join.this
    if not isinstance(lateral, exp.Lateral):
        return
    if join.meta.get("on"):
        remedy = "move the condition to WHERE"
        summary = "LATERAL with ON next to a stream is a join that keeps state"
        found.refuse(summary, remedy, join, _WITHOUT_WATERMARK, subject="LATERAL")
    elif isinstance(lateral.this, exp.Query) and lateral.this.find(exp.From) is not None:
        remedy = "write a join with ON, or a subquery that names its columns"
        summary = "LATERAL (SELECT …) next to a stream keeps state that Headgate does not see"
        found.refuse(summary, remedy, join, "", subject="LATERAL")


def _check_static_join(join: Any, words: str, found: StreamFindings, *, stream_left: bool) -> None:
    one_sided = "RIGHT" if stream_left else "LEFT"
    if "FULL" not in words and one_sided not in words and (stream_left or not words.endswith(("SEMI", "ANTI"))):
        return
    kept = "left" if stream_left else "right"
    summary = f"Spark rejects a {words} JOIN of a stream and a batch table"
    remedy = f"only the stream side may be preserved: write {kept.upper()} JOIN, with the stream on the {kept}"
    found.refuse(summary, remedy, join)


# Columns that are still needed at a join and above it: Spark prunes the others before it plans (tested on 4.2.0).
# A name is `alias.name`, or `name` without a qualifier; `*` and `alias.*` stand for all columns. Where it is uncertain
# how far down Spark pushes a condition, the columns of the condition count as needed.

ALL = "*"
Names = frozenset[str]
_OF_SELECT = ("group", "having", "qualify", "laterals", "order", "sort", "cluster")


def needed_at(join: Any, query: Any) -> Names:
    """Return the column names that Spark needs at a join or above it; `*` stands for all columns.

    The first call computes the column names for all joins of the query.
    """
    if "needed" not in join.meta:
        _query(query, frozenset((ALL,)), {})
    return join.meta.get("needed", frozenset())  # type: ignore[no-any-return]  # The values in `meta` have no type.


def event_times_needed(flow: RelationProperties, needed: Names) -> set[str]:
    """Return the watermarked columns of one side of a join that Spark needs at the join or above it.

    `needed` is the result of `needed_at` for that join.
    """
    found = set()
    for each in flow.event_times:
        alias, _, name = each.rpartition(".")
        if each in needed or f"{alias}.*" in needed:
            found.add(each)
        elif flow.merged.get(name, True) and (ALL in needed or name in needed):
            # A bare name is one column: the one merged by USING, or that of the only side that has it.
            found.add(name if name in flow.merged or ALL not in needed else each)
    return found - {name for name in found if any(other.endswith(f".{name}") for other in found)}


def _query(query: Any, needed: Names, parts: dict[str, set[str]]) -> None:
    with_ = query.args.get("with_")
    own = with_.expressions if with_ is not None else []
    parts = parts | {part.alias: set() for part in own}
    if isinstance(query, exp.Subquery):
        _query(query.this, needed, parts)
    elif isinstance(query, exp.SetOperation):
        for side in (query.this, query.expression):
            _query(side, _of_side(query, side, needed), parts)
    elif isinstance(query, exp.Select):
        _select(query, needed, parts)
    for part in reversed(own):
        listed = isinstance(part.args.get("alias"), exp.TableAlias) and part.args["alias"].columns
        _query(part.this, frozenset((ALL,) if listed else parts[part.alias]), parts)


def _of_side(query: Any, side: Any, needed: Names) -> Names:
    """Return the column names that a query needs from one branch of a set operation; `*` if it needs whole rows."""
    first, own = _output_names(query.this), _output_names(side)
    if query.args.get("distinct") or ALL in needed or first is None or own is None or len(first) != len(own):
        return frozenset((ALL,))
    return frozenset(name for name, said in zip(own, first, strict=True) if said in needed)


def _output_names(query: Any) -> list[str] | None:
    while isinstance(query, (exp.SetOperation, exp.Subquery)):
        query = query.this
    names = [str(each.alias_or_name) for each in query.expressions] if isinstance(query, exp.Select) else []
    return None if not names or ALL in names or "" in names else names


def _select(select: Any, needed: Names, parts: dict[str, set[str]]) -> None:
    whole = ALL in needed or select.args.get("distinct") is not None
    names: set[str] = set()
    for each in select.expressions:
        inner = each.unalias()
        if isinstance(inner, exp.Star):
            names |= {ALL} if whole else needed
        elif isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            names |= {f"{inner.table}.*"} if whole else {f"{inner.table}.{name}" for name in needed}
        elif whole or each.alias_or_name in needed or not each.alias_or_name:
            names |= _named([inner])
    names |= _named(each for key in _OF_SELECT for each in _as_list(select.args.get(key)))
    where, from_ = select.args.get("where"), select.args.get("from_")
    if from_ is not None:
        conditions = and_terms(where.this) if where is not None else []
        _joined(from_.this, select.args.get("joins") or [], frozenset(names), conditions, parts)


def _joined(first: Any, joins: list[Any], needed: Names, conditions: list[Any], parts: dict[str, set[str]]) -> None:
    """Record the column names that are needed at each join of a chain, starting with the last join.

    `conditions` apply after the chain. Spark pushes a condition below a join if one side of the join has all its
    columns.
    """
    if any(_is_outer(join) for join in joins):
        needed, conditions = needed | _named(conditions), []
    for index in range(len(joins) - 1, -1, -1):
        join = joins[index]
        left = {each.alias for source in (first, *(other.this for other in joins[:index])) for each in _sources(source)}
        right = {each.alias for each in _sources(join.this)}
        on = join.args.get("on")
        met = [*conditions, *(and_terms(on))]
        # ON of an outer join is pushed to the nullable side, ON of a semi join to both.
        kept = "" if _is_semi(join) else str(join.side)
        to_left = [each for each in met if kept not in ("LEFT", "FULL") and _only(each, left)]
        to_right = [each for each in met if kept not in ("RIGHT", "FULL") and _only(each, right)]
        staying = [each for each in met if each not in to_left and each not in to_right]
        needed |= _named(staying)
        needed |= {each.name for each in join.args.get("using") or []}
        join.meta["needed"] = needed
        _source(join.this, needed, to_right, parts)
        conditions = to_left
    _source(first, needed, conditions, parts)


def _source(source: Any, needed: Names, conditions: list[Any], parts: dict[str, set[str]]) -> None:
    if is_group(source):
        _joined(source.this, source.this.args["joins"], needed, conditions, parts)
        return
    alias = source.alias
    names = needed | _named(conditions)
    own = {each.removeprefix(f"{alias}.") for each in names if each.startswith(f"{alias}.") or "." not in each}
    if source.args.get("pivots") or (source.args.get("alias") is not None and source.args["alias"].args.get("columns")):
        own = {ALL}
    part = str(source.meta.get("cte", ""))
    if part in parts:
        parts[part] |= own
    elif isinstance(source, exp.Subquery):
        _query(source, frozenset(own), parts)
    elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Query):
        _query(source.this, frozenset((ALL,)), parts)


def _sources(source: Any) -> list[Any]:
    return list(sources_of(source))


def _is_outer(join: Any) -> bool:
    """True for an outer, semi or anti join, below which conditions cannot be pushed freely."""
    return bool(join.side) or _is_semi(join)


def _is_semi(join: Any) -> bool:
    return str(join.args.get("kind") or "").upper() in ("SEMI", "ANTI")


def _only(term: Any, aliases: set[str]) -> bool:
    columns = list(term.find_all(exp.Column))
    return bool(columns) and all(column.table in aliases for column in columns) and term.find(exp.Query) is None


def _named(nodes: Iterable[Any]) -> set[str]:
    columns = (column for node in nodes for column in node.find_all(exp.Column))
    return {f"{column.table}.{column.name}" if column.table else str(column.name) for column in columns}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, exp.Expression) else []
