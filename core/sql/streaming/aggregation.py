"""Grouping in a SELECT: its keys, its aggregates, its time windows, and the state that Spark keeps for them."""

from dataclasses import replace
from typing import Any

from sqlglot import exp

from core.model.names import whole_number
from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.from_clause import aliases_of
from core.sql.parsing.function_names import AGGREGATES
from core.sql.parsing.star_expansion import is_star
from core.sql.statement import Operator
from core.sql.streaming.relation_properties import (
    RelationProperties,
    StreamFindings,
    first_place,
    is_event_time,
    missing_watermark,
    starred,
    too_many_event_times,
)

TIME_WINDOWS = {"window": "window", "session_window": "session_window"}
"""Maps each time window function in GROUP BY to the kind of its stateful operator."""
_WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_CALLS = (*_WRAPPERS, exp.Anonymous, exp.AggFunc)
WATERMARK_REMEDY = (
    "write WATERMARK <time column> DELAY OF INTERVAL … after the STREAM and group by that column or a window over it"
)


def aggregates_in(node: Any) -> list[Any]:
    """Return the aggregate calls below a node in text order, except those inside a subquery or a window function."""
    calls: list[Any] = []
    if node is None or node.__class__ is exp.Column:
        return calls
    waiting = [node] if isinstance(node, exp.Expression) else []
    while waiting:
        each = waiting.pop()
        if isinstance(each, (exp.Query, exp.Window)):
            continue
        if isinstance(each, _CALLS) and aggregate_function(each) is not None:
            calls.append(each)
            continue
        waiting.extend(reversed(list(each.iter_expressions())))
    return calls


def aggregate_function(node: Any) -> Any:
    """Return the aggregate that a node calls, even inside FILTER, IGNORE NULLS or WITHIN GROUP, or None."""
    while isinstance(node, _WRAPPERS):
        node = node.this
    return node if _is_aggregate(node) else None


def _calls(nodes: list[Any]) -> list[Any]:
    return [call for node in nodes for call in aggregates_in(node)]


def group_keys(select: Any) -> list[Any]:
    """Return the grouping expressions of a SELECT, with ordinals and ALL replaced by the outputs that they denote."""
    group = select.args.get("group")
    if group is None:
        return []
    outputs = select.expressions
    if group.args.get("all") is not None and not group.expressions:
        return [each.unalias() for each in outputs if not aggregates_in(each)]
    keys: list[Any] = []
    for each in group.expressions:
        ordinal = (whole_number(each.name) or 0) if isinstance(each, exp.Literal) else 0
        keys.append(outputs[ordinal - 1].unalias() if 0 < ordinal <= len(outputs) else each)
    for kind in ("grouping_sets", "cube", "rollup"):
        keys += group.args.get(kind) or []
    return keys


def aggregating(select: Any) -> bool:
    """True if a SELECT has GROUP BY, HAVING or an aggregate."""
    return (
        select.args.get("group") is not None
        or select.args.get("having") is not None
        or any(aggregates_in(each) for each in select.expressions)
    )


def aggregated(select: Any, flow: RelationProperties, found: StreamFindings) -> RelationProperties:
    """Return a relation's properties after grouping; violations of Spark's rules are added to `found`."""
    keys = group_keys(select)
    calls: dict[str, Any] = {}
    clauses = (select.expressions, [select.args.get("having")])
    for call in (each for nodes in clauses for each in sorted(_calls(nodes), key=first_place)):
        # In text order, like the buffers in Spark's state; canonical terms are sorted.
        calls.setdefault(sql_of(call), call)
    for call in calls.values():
        if call.find(exp.Distinct) is not None:
            remedy = "use approx_count_distinct, or deduplicate in an upstream statement"
            found.refuse("DISTINCT inside an aggregate cannot be streamed", remedy, call)
    stand_for = [each for key in keys for each in _meanings(key, select)]
    kind = _window_kind(stand_for, select, found)
    # Spark adds the number of the grouping set to the keys of CUBE and ROLLUP.
    constant = all(each.find(exp.Column) is None or _is_session(each) for each in _last_meanings(keys, select))
    constant = constant and not any(isinstance(key, (exp.Rollup, exp.Cube, exp.GroupingSets)) for key in keys)
    if kind == "session_window" and constant:
        remedy = "add a key to GROUP BY"
        found.refuse("a session window without a grouping key cannot be streamed", remedy, select, "")
    if any(_nulls_sessions(key) for key in keys):
        remedy = "group by the session window beside ROLLUP or CUBE: GROUP BY session_window(…), ROLLUP (k)"
        summary = "a session window that a grouping set leaves out fails on the first row"
        found.refuse(summary, remedy, select, "")
    meant = [_with_meaning(key, select) for key in keys]
    times = _event_times(keys, select, flow)
    if len(times) > 1:
        found.diagnostics.append(too_many_event_times(select.args.get("group") or select, "GROUP BY", times))
    if not times:
        found.diagnostics.append(
            missing_watermark(select.args.get("group") or select, "an aggregate", WATERMARK_REMEDY)
        )
    return replace(flow, operators=(*flow.operators, Operator(kind, tuple(meant), ", ".join(calls))))


def deduplicated(select: Any, flow: RelationProperties, found: StreamFindings) -> RelationProperties:
    """Return a stream's properties after DISTINCT; violations of Spark's rules are added to `found`."""
    times = {name for each in select.expressions for name in _times_of_output(each, select, flow)}
    if not flow.event_times:
        found.diagnostics.append(missing_watermark(select, "DISTINCT", WATERMARK_REMEDY.replace("group by", "select")))
    elif not times:
        found.diagnostics.append(
            missing_watermark(select, "DISTINCT", "select the watermarked column, or the window itself")
        )
    elif len(times) > 1:
        found.diagnostics.append(too_many_event_times(select, "DISTINCT", times))
    if aggregating(select):
        outputs = {sql_of(each.unalias()) for each in select.expressions}
        if all(sql_of(key) in outputs or str(key.this) in outputs & set(TIME_WINDOWS) for key in group_keys(select)):
            # Rows grouped by their outputs are distinct already: Spark removes the second aggregate (tested on 4.2.0).
            return flow
    keys = tuple(sql_of(each) for each in select.expressions)
    return replace(flow, operators=(*flow.operators, Operator("deduplicate", keys, "distinct")))


def _times_of_output(node: Any, select: Any, flow: RelationProperties) -> set[str]:
    if is_star(node):
        return starred(flow, node, aliases_of(select))
    inner = node.unalias()
    keys = {str(key.this): key for key in group_keys(select) if isinstance(key, exp.Anonymous)}
    meant = keys.get(inner.name, inner) if isinstance(inner, exp.Column) and inner.name in TIME_WINDOWS else inner
    return {str(node.alias_or_name) or sql_of(inner)} if is_event_time(meant, flow) else set()


def _event_times(keys: list[Any], select: Any, flow: RelationProperties) -> set[str]:
    found: set[str] = set()
    for key in keys:
        if isinstance(key, (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)):
            found |= _event_times(key.expressions, select, flow)
        else:
            found |= {sql_of(each) for each in _meanings(key, select) if is_event_time(each, flow)}
    return found


def _window_kind(meanings: list[Any], select: Any, found: StreamFindings) -> str:
    """Return the kind of stateful operator that the grouping keys imply; report more than one time window."""
    outputs = [each.unalias() for each in select.expressions]
    windows = {sql_of(call): call for node in [*meanings, *outputs] for call in _windows_in(node)}
    if len(windows) > 1:
        remedy = "group by one window, and aggregate its result in an outer SELECT"
        summary = "two time windows are not allowed in one SELECT"
        found.refuse(summary, remedy, select, "_LEGACY_ERROR_TEMP_1039")
    kinds = {TIME_WINDOWS[str(call.this)] for node in meanings for call in _windows_in(node)}
    return next((each for each in ("session_window", "window") if each in kinds), "aggregate")


def _windows_in(node: Any) -> list[Any]:
    return [call for call in node.find_all(exp.Anonymous) if str(call.this) in TIME_WINDOWS]


def _is_session(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this) == "session_window"


def _nulls_sessions(key: Any) -> bool:
    """True if ROLLUP, CUBE or GROUPING SETS has a set without the session window.

    Spark 4.2.0 fails on such a set (tested).
    """
    if isinstance(key, exp.GroupingSets):
        sets = [any(_is_session(each) for each in part.find_all(exp.Anonymous)) for part in key.expressions]
        return any(sets) and not all(sets)
    return isinstance(key, (exp.Rollup, exp.Cube)) and any(_is_session(each) for each in key.find_all(exp.Anonymous))


def _last_meanings(keys: list[Any], select: Any) -> list[Any]:
    return [_meanings(key, select)[-1] for key in keys]


def _with_meaning(key: Any, select: Any) -> str:
    return "=".join(sql_of(each) for each in _meanings(key, select))


def _meanings(key: Any, select: Any) -> list[Any]:
    """Return a grouping key and the output expressions to which its name may refer.

    For ROLLUP, CUBE or a grouping set, this includes its parts and the expressions to which they may refer.
    """
    found = [key]
    if isinstance(key, (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple)):
        return [key, *(each for part in key.expressions for each in _meanings(part, select))]
    for each in select.expressions:
        if isinstance(key, exp.Column) and isinstance(each, exp.Alias) and each.alias == key.name:
            found.append(each.this)
    return found


def _is_aggregate(node: Any) -> bool:
    if isinstance(node, exp.Anonymous):
        return str(node.this) in AGGREGATES
    return isinstance(node, exp.AggFunc)
