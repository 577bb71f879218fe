"""Where a query streams and what Spark keeps as state for it, from the scans upwards.

Most of what is refused here Spark 4.2.0 refuses too (run). It accepts PIVOT, EXCEPT with a batch table and LATERAL
(SELECT …): these are refused because we do not follow their state.
"""

from dataclasses import replace
from typing import Any

from sqlglot import exp

from core.sql.canonical import sql_of
from core.sql.flows import Flow, Found, no_watermark, refused
from core.sql.functions import AGGREGATES
from core.sql.joins import joined
from core.sql.naming import TableRead
from core.sql.streams import Mark
from core.sql.values import Operator

TIME_WINDOWS = {"window": "window", "session_window": "session_window"}
"""Function in GROUP BY to the kind of operator."""
_WATERMARK_REMEDY = (
    "write WATERMARK <time column> DELAY OF INTERVAL … after the STREAM and group by that column or a window over it"
)


def flow_of(query: Any, found: Found) -> Flow:
    """Follow a resolved and normalised query; what Spark would refuse is added to `found.misread`."""
    return _query(query, {}, found)


def aggregates_in(node: Any) -> list[Any]:
    """List the aggregate calls below a node, in order of appearance, not those inside queries or OVER."""
    calls: list[Any] = []
    waiting = [node] if isinstance(node, exp.Expression) else []
    while waiting:
        each = waiting.pop()
        if isinstance(each, (exp.Query, exp.Window)):
            continue
        core = each
        while isinstance(core, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
            core = core.this
        if _is_aggregate(core):
            calls.append(each)
            continue
        waiting.extend(reversed(list(each.iter_expressions())))
    return calls


def group_keys(select: Any) -> list[Any]:
    """List the grouping expressions of a SELECT; ordinals and ALL are followed to what they stand for."""
    group = select.args.get("group")
    if group is None:
        return []
    outputs = select.expressions
    if group.args.get("all") is not None and not group.expressions:
        return [each.unalias() for each in outputs if not aggregates_in(each)]
    keys: list[Any] = []
    for each in group.expressions:
        ordinal = int(each.name) if isinstance(each, exp.Literal) and each.name.isdigit() else 0
        keys.append(outputs[ordinal - 1].unalias() if 0 < ordinal <= len(outputs) else each)
    for kind in ("grouping_sets", "cube", "rollup"):
        keys += group.args.get(kind) or []
    return keys


def aggregating(select: Any) -> bool:
    """Whether a SELECT groups or aggregates."""
    return (
        select.args.get("group") is not None
        or select.args.get("having") is not None
        or any(aggregates_in(each) for each in select.expressions)
    )


def _query(query: Any, ctes: dict[str, Flow], found: Found) -> Flow:
    with_ = query.args.get("with_")
    if with_ is not None:
        ctes = dict(ctes)
        for cte in with_.expressions:
            # Spark checks a part of WITH even where nothing reads it.
            ctes[cte.alias] = _query(cte.this, ctes, found)
    if isinstance(query, exp.Subquery):
        return _marked(_query(query.this, ctes, found), query.meta.get("mark"))
    if isinstance(query, exp.SetOperation):
        flow = _set_operation(query, ctes, found)
    elif isinstance(query, exp.Select):
        flow = _select(query, ctes, found)
    elif isinstance(query, exp.Table):
        return _source(query, ctes, found)
    else:
        return Flow()
    return _ends(query, flow, found)


def _ends(query: Any, flow: Flow, found: Found) -> Flow:
    """ORDER BY, LIMIT and their like, which stand above everything else of a query."""
    if not flow.streaming:
        return flow
    for key, words in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY")):
        if query.args.get(key) is not None:
            found.misread.append(refused(f"{words} cannot be streamed", f"remove {words}", query.args[key], words))
    if query.args.get("offset") is not None:
        found.misread.append(refused("OFFSET cannot be streamed", "remove OFFSET", query.args["offset"], "OFFSET"))
    limit = query.args.get("limit")
    if limit is not None:
        flow = replace(flow, operators=(*flow.operators, Operator("limit", (), sql_of(limit.expression))))
    return flow


def _set_operation(query: Any, ctes: dict[str, Flow], found: Found) -> Flow:
    sides: list[tuple[Any, bool]] = []
    node = query
    while isinstance(node, exp.SetOperation) and (node is query or not node.args.get("with_")):
        sides.append((node.expression, bool(node.args.get("distinct"))))
        kind = type(node)
        node = node.this
        if isinstance(node, exp.SetOperation) and type(node) is not kind:
            break
    flow = _query(node, ctes, found)
    for side, distinct in reversed(sides):
        flow = _combined(query, flow, _query(side, ctes, found), found, distinct=distinct)
    return flow


def _combined(query: Any, left: Flow, right: Flow, found: Found, *, distinct: bool) -> Flow:
    if not (left.streaming or right.streaming):
        return Flow()
    word = type(query).__name__.upper()
    union = isinstance(query, exp.Union)
    if not union:
        remedy = "write a join with a static table, or EXISTS over one"
        found.misread.append(refused(f"{word} with a stream is not supported", remedy, query, word))
    elif query.args.get("by_name"):
        remedy = "write UNION ALL, with the columns in one order"
        found.misread.append(refused("UNION BY NAME is no SQL of Spark", remedy, query, word))
    elif left.streaming != right.streaming:
        remedy = "read both sides with STREAM, or none"
        found.misread.append(refused("UNION of a stream and a batch table is refused by Spark", remedy, query, word))
    both = left.event_times is None or right.event_times is None
    events = None if both else (left.event_times or frozenset()) | (right.event_times or frozenset())
    watermarked = left.watermarked or right.watermarked
    flow = Flow(True, (*left.operators, *right.operators), events, watermarked)
    if distinct or not union:
        if union and (not watermarked or (events is not None and not events)):
            remedy = f"write UNION ALL, or {_WATERMARK_REMEDY}"
            found.misread.append(no_watermark(query, "UNION without ALL", remedy))
        flow = replace(flow, operators=(*flow.operators, Operator("deduplicate", (), word.lower())))
    return flow


def _select(select: Any, ctes: dict[str, Flow], found: Found) -> Flow:
    flow = Flow()
    from_ = select.args.get("from_")
    if from_ is not None:
        flow = _source(from_.this, ctes, found)
    for join in select.args.get("joins") or []:
        flow = joined(join, flow, _source(join.this, ctes, found), select, found)
    _check_subqueries(select, flow, ctes, found)
    if flow.streaming:
        _check_windows(select, found)
        if aggregating(select):
            flow = _aggregated(select, flow, found)
        if select.args.get("distinct") is not None:
            flow = _deduplicated(select, flow, found)
    return replace(flow, event_times=_projected(select, flow))


def _source(source: Any, ctes: dict[str, Flow], found: Found) -> Flow:
    """Follow one thing in FROM, with the joins that stand in its brackets."""
    mark: Mark | None = source.meta.get("mark")
    if isinstance(source, exp.Table):
        entry: TableRead | None = source.meta.get("entry")
        if entry is not None:
            flow = _marked(Flow(entry.mark.streaming), entry.mark)
        else:
            flow = ctes.get(str(source.meta.get("cte", "")), Flow())
    elif isinstance(source, exp.Subquery):
        inner = source.this
        flow = _source(inner, ctes, found) if _is_table(inner) else _query(source, ctes, found)
    elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Query):
        flow = _query(source.this, ctes, found)
    else:
        flow = Flow()
    flow = _marked(flow, mark)
    _check_pivot(source, flow, found)
    for join in source.args.get("joins") or []:
        flow = joined(join, flow, _source(join.this, ctes, found), None, found)
    return flow


def _check_pivot(source: Any, flow: Flow, found: Found) -> None:
    for pivot in source.args.get("pivots") or []:
        if flow.streaming and not pivot.args.get("unpivot"):
            remedy = "write GROUP BY with sum(…) FILTER (WHERE …), one for each column"
            found.misread.append(refused("PIVOT of a stream cannot be followed", remedy, source, "PIVOT"))


def _is_table(node: Any) -> bool:
    while isinstance(node, exp.Subquery):
        node = node.this
    return isinstance(node, exp.Table)


def _marked(flow: Flow, mark: Mark | None) -> Flow:
    """Add the watermark that stands behind a source."""
    if mark is None or mark.watermark is None:
        return flow
    name = mark.watermark.name
    events = None if flow.event_times is None or not name else flow.event_times | {name}
    return replace(flow, event_times=events, watermarked=True)


def _aggregated(select: Any, flow: Flow, found: Found) -> Flow:
    keys = group_keys(select)
    calls: dict[str, Any] = {}
    for node in [*select.expressions, select.args.get("having")]:
        for call in aggregates_in(node):
            calls.setdefault(sql_of(call), call)
    for call in calls.values():
        if call.find(exp.Distinct) is not None:
            remedy = "use approx_count_distinct, or deduplicate in a statement before"
            found.misread.append(refused("DISTINCT inside an aggregate cannot be streamed", remedy, call, "DISTINCT"))
    kinds = {TIME_WINDOWS.get(str(call.this), "") for key in keys for call in key.find_all(exp.Anonymous)}
    kind = next((each for each in ("session_window", "window") if each in kinds), "aggregate")
    if kind == "session_window" and len(keys) == 1:
        remedy = "add a key to GROUP BY"
        found.misread.append(refused("a session window over all rows cannot be streamed", remedy, select, kind))
    meant = [_with_meaning(key, select) for key in keys]
    stand_for = [each for key in keys for each in _meanings(key, select)]
    if not flow.watermarked or not any(_is_event_time(each, flow) for each in stand_for):
        found.misread.append(no_watermark(select.args.get("group") or select, "an aggregate", _WATERMARK_REMEDY))
    return replace(flow, operators=(*flow.operators, Operator(kind, tuple(meant), ", ".join(calls))))


def _with_meaning(key: Any, select: Any) -> str:
    """Write a key, with what it stands for where it may be the name of an output."""
    return "=".join(sql_of(each) for each in _meanings(key, select))


def _meanings(key: Any, select: Any) -> list[Any]:
    """Give a key, the parts of a grouping set, and what a key may stand for as the name of an output."""
    found = [key]
    if isinstance(key, (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)):
        return [key, *(each for part in key.expressions for each in _meanings(part, select))]
    for each in select.expressions:
        if isinstance(key, exp.Column) and isinstance(each, exp.Alias) and each.alias == key.name:
            found.append(each.this)
    return found


def _is_event_time(node: Any, flow: Flow) -> bool:
    """Whether an expression still carries the watermark: the column itself or a window, nothing computed from them."""
    if flow.event_times is None:
        return True
    if isinstance(node, exp.Anonymous):
        return str(node.this) in TIME_WINDOWS
    return isinstance(node, exp.Column) and node.name in flow.event_times


def _deduplicated(select: Any, flow: Flow, found: Found) -> Flow:
    keys = tuple(sql_of(each) for each in select.expressions)
    if not flow.watermarked:
        found.misread.append(no_watermark(select, "DISTINCT", _WATERMARK_REMEDY.replace("group by", "select")))
    elif not any(_is_event_time(each.unalias(), flow) or each.is_star for each in select.expressions):
        found.misread.append(no_watermark(select, "DISTINCT", "select the watermarked column too"))
    return replace(flow, operators=(*flow.operators, Operator("deduplicate", keys, "distinct")))


def _projected(select: Any, flow: Flow) -> frozenset[str] | None:
    """Follow the event-time columns through the output of a SELECT."""
    if not flow.streaming or flow.event_times is None:
        return flow.event_times
    names: set[str] = set()
    for each in select.expressions:
        inner = each.unalias()
        if each.find(exp.Star) is not None and not aggregates_in(each):
            names |= flow.event_times
        windows = isinstance(inner, exp.Anonymous) and str(inner.this) in (*TIME_WINDOWS, "window_time")
        if windows or (isinstance(inner, exp.Column) and inner.name in flow.event_times):
            names.add(each.alias_or_name or (str(inner.this) if windows else ""))
    return frozenset(names)


def _check_subqueries(select: Any, flow: Flow, ctes: dict[str, Flow], found: Found) -> None:
    """Spark refuses a stream in any subquery of an expression (INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY)."""
    waiting = [each for key, each in _clauses(select) if key not in ("from_", "with_")]
    while waiting:
        each = waiting.pop()
        if isinstance(each, exp.Join):
            waiting.extend(each.args[key] for key in ("on",) if each.args.get(key) is not None)
        elif isinstance(each, exp.Query):
            if _query(each, ctes, found).streaming:
                remedy = "write a join of the two streams instead of IN, EXISTS or a scalar subquery"
                found.misread.append(refused("a stream cannot stand in a subquery of an expression", remedy, each))
        else:
            waiting.extend(each.iter_expressions())


def _clauses(select: Any) -> list[tuple[str, Any]]:
    return [
        (key, each)
        for key, value in select.args.items()
        for each in (value if isinstance(value, list) else [value])
        if isinstance(each, exp.Expression)
    ]


def _check_windows(select: Any, found: Found) -> None:
    for each in [*select.expressions, *(select.args[key] for key in ("qualify",) if select.args.get(key) is not None)]:
        window = each.find(exp.Window)
        if window is not None and window.find_ancestor(exp.Select) is select:
            remedy = "group by window(…) instead: only windows over time can be streamed"
            found.misread.append(refused("OVER cannot be streamed", remedy, window, "NON_TIME_WINDOW_NOT_SUPPORTED"))


def _is_aggregate(node: Any) -> bool:
    if isinstance(node, exp.Anonymous):
        return str(node.this) in AGGREGATES
    return isinstance(node, exp.AggFunc)
