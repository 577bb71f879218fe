"""Derives stateful operators and other streaming properties of a query, from the scans upwards.

In a test, Spark 4.2.0 rejected everything that is rejected here, with one exception: LATERAL (SELECT … FROM …), whose
state is not modelled.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from core.sql.parsing.canonical_text import sql_of
from core.sql.parsing.from_clause import aliases_of, is_group
from core.sql.parsing.function_names import GENERATORS
from core.sql.parsing.star_expansion import LeftOut, is_star, left_out
from core.sql.parsing.stream_clauses import StreamClauses
from core.sql.parsing.table_names import NamedRead
from core.sql.statement import Operator
from core.sql.streaming.aggregation import (
    TIME_WINDOWS,
    WATERMARK_REMEDY,
    aggregated,
    aggregating,
    deduplicated,
    group_keys,
)
from core.sql.streaming.joins import check_laterals, joined_relations
from core.sql.streaming.relation_properties import (
    AS_PLANNED,
    UNSUPPORTED,
    RelationProperties,
    StreamFindings,
    is_event_time,
    missing_watermark,
    refused_by_spark,
    starred,
    too_many_event_times,
    under_alias,
    with_column_names,
)

_LEAVES = frozenset((exp.Column, exp.Identifier, exp.Literal))


def relation_properties_of(found: StreamFindings) -> RelationProperties:
    """Return a query's streaming properties; violations of Spark's rules are added to `found.diagnostics`."""
    flow = _query(found.query, {}, found)
    if flow.streaming:
        found.diagnostics += found.numbering
    return flow


def _query(query: Any, ctes: dict[str, RelationProperties], found: StreamFindings) -> RelationProperties:
    with_ = query.args.get("with_")
    if with_ is not None:
        ctes = dict(ctes)
        for cte in with_.expressions:
            known = len(found.diagnostics)
            ctes[cte.alias] = with_column_names(_query(cte.this, ctes, found), cte.args.get("alias"), found)
            if len(found.diagnostics) > known and not _is_read(cte, query):
                for each in found.diagnostics[known:]:
                    each.summary += f", in {cte.meta['written']}, a WITH query that nothing reads"
                    if each.condition not in AS_PLANNED:
                        each.summary += ": Spark checks it anyway"
    if isinstance(query, exp.Subquery):
        return _ends(query, _query(query.this, ctes, found), found)
    if isinstance(query, exp.SetOperation):
        flow = _set_operation(query, ctes, found)
    elif isinstance(query, exp.Select):
        flow = _select(query, ctes, found)
    else:
        return RelationProperties()
    if with_ is not None and query is not found.query and not flow.streaming:
        _check_unread_streams(with_, ctes, found)
    return _ends(query, flow, found)


def _check_unread_streams(with_: Any, ctes: dict[str, RelationProperties], found: StreamFindings) -> None:
    """Report an unused WITH query that makes Spark treat a subquery over tables as a stream (tested on Spark 4.2.0)."""
    for cte in with_.expressions:
        if ctes[cte.alias].streaming:
            name = cte.meta["written"]
            summary = f"{name}, a WITH query that nothing reads, makes Spark treat a subquery over tables as a stream"
            found.refuse(summary, f"remove {name}", cte)


def _is_read(cte: Any, query: Any) -> bool:
    return any(table.meta.get("cte") == cte.alias for table in query.find_all(exp.Table))


def _ends(query: Any, flow: RelationProperties, found: StreamFindings) -> RelationProperties:
    if not flow.streaming:
        return flow
    for key, words in (("order", "ORDER BY"), ("sort", "SORT BY"), ("cluster", "CLUSTER BY")):
        if query.args.get(key) is not None:
            remedy = f"remove {words}"
            found.refuse(f"{words} cannot be streamed", remedy, query.args[key], subject=words)
    if query.args.get("offset") is not None:
        offset = query.args["offset"]
        found.refuse("OFFSET cannot be streamed", "remove OFFSET", offset, subject="OFFSET")
    limit = query.args.get("limit")
    if limit is not None:
        flow = _limited(query, flow, sql_of(limit.expression).lower())
    return flow


def _limited(query: Any, flow: RelationProperties, limit: str) -> RelationProperties:
    """Return a query's properties after its LIMIT, which is a stateful operator.

    Spark has no operator for LIMIT ALL and LIMIT 0, and a single operator for two adjacent limits (Spark 4.2.0).
    """
    if limit in ("all", "0"):
        return flow
    below = flow.operators
    between = ("where", "group", "having", "distinct", "joins", "laterals")
    if below and below[-1].kind == "limit" and not any(query.args.get(key) for key in between):
        limit, below = f"least({below[-1].detail}, {limit})", below[:-1]
    return replace(flow, operators=(*below, Operator("limit", (), limit)))


def _set_operation(query: Any, ctes: dict[str, RelationProperties], found: StreamFindings) -> RelationProperties:
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


def _combined(
    query: Any, left: RelationProperties, right: RelationProperties, found: StreamFindings, *, distinct: bool
) -> RelationProperties:
    word = type(query).__name__.upper()
    if left.outputs is not None and right.outputs is not None and len(left.outputs) != len(right.outputs):
        summary = f"the sides of {word} have {len(left.outputs)} and {len(right.outputs)} columns"
        found.refuse(summary, "select the same number of columns on both sides", query, "NUM_COLUMNS_MISMATCH")
    if not (left.streaming or right.streaming):
        return RelationProperties(outputs=left.outputs)
    union = isinstance(query, exp.Union)
    # EXCEPT is an anti join, stateless with a table, followed by DISTINCT (optimized plan of 4.2.0).
    anti = isinstance(query, exp.Except) and distinct and not right.streaming
    if not (union or anti):
        remedy = "write a join with a static table, or EXISTS over one"
        condition = "" if isinstance(query, exp.Except) and not right.streaming else UNSUPPORTED
        found.refuse(f"{word} with a stream is not supported", remedy, query, condition, subject=word)
    elif query.args.get("by_name"):
        remedy = "write UNION ALL, with the columns in the same order"
        found.refuse("UNION BY NAME is not Spark SQL", remedy, query, "PARSE_SYNTAX_ERROR")
    elif union and left.streaming != right.streaming:
        remedy = "read both sides with STREAM, or neither"
        found.refuse("Spark rejects a UNION of a stream and a batch table", remedy, query)
    # A union has the columns of its first side, including their watermarks (tested on 4.2.0).
    watermarked = left.watermarked or right.watermarked
    flow = RelationProperties(True, (*left.operators, *right.operators), left.event_times, left.outputs, watermarked)
    if distinct or not union:
        if (union or anti) and not flow.event_times:
            remedy = f"write UNION ALL, or {WATERMARK_REMEDY}"
            what = "UNION without ALL" if union else word
            found.diagnostics.append(missing_watermark(query, what, remedy))
        elif (union or anti) and len(flow.event_times) > 1:
            found.diagnostics.append(too_many_event_times(query, word, flow.event_times))
        if union and left.operators and left.operators[-1] == Operator("deduplicate", (), "union"):
            # Spark merges nested UNIONs (tested on 4.2.0).
            flow = replace(flow, operators=(*left.operators[:-1], *right.operators))
        flow = replace(flow, operators=(*flow.operators, Operator("deduplicate", (), word.lower())))
    return flow


def _select(select: Any, ctes: dict[str, RelationProperties], found: StreamFindings) -> RelationProperties:
    flow = RelationProperties()
    from_ = select.args.get("from_")
    if from_ is not None:
        flow = _source(from_.this, ctes, found)
    for join in select.args.get("joins") or []:
        flow = joined_relations(join, flow, _source(join.this, ctes, found), select, found)
    _check_subqueries(select, ctes, found)
    if flow.streaming:
        _check_windows(select, found)
        check_laterals(select, found)
        if aggregating(select):
            flow = aggregated(select, flow, found)
        if select.args.get("distinct") is not None:
            flow = deduplicated(select, flow, found)
    return _projected(select, flow)


def _source(source: Any, ctes: dict[str, RelationProperties], found: StreamFindings) -> RelationProperties:
    # In the result, event-time columns are qualified by the alias of their source.
    if is_group(source):
        flow = _source(source.this, ctes, found)
        for join in source.this.args["joins"]:
            flow = joined_relations(join, flow, _source(join.this, ctes, found), None, found)
        return flow
    mark: StreamClauses | None = source.meta.get("mark")
    if isinstance(source, exp.Table):
        entry: NamedRead | None = source.meta.get("entry")
        if entry is not None:
            flow = _watermarked(RelationProperties(entry.mark.streaming), entry.mark, source, found)
        else:
            flow = ctes.get(str(source.meta.get("cte", "")), RelationProperties())
    elif isinstance(source, exp.Subquery):
        flow = _query(source, ctes, found)
    elif isinstance(source, exp.Lateral) and isinstance(source.this, exp.Query):
        flow = _query(source.this, ctes, found)
    else:
        flow = RelationProperties()
    if flow.streaming and source.args.get("sample") is not None:
        found.refuse("TABLESAMPLE cannot be used on a stream", "write WHERE rand() < 0.1", source)
    flow = _pivoted(source, _watermarked(flow, mark, source, found), found)
    return under_alias(with_column_names(flow, source.args.get("alias"), found), source.alias)


def _pivoted(source: Any, flow: RelationProperties, found: StreamFindings) -> RelationProperties:
    """Return a source's properties after its PIVOTs.

    Each PIVOT groups by all columns that the PIVOT does not mention, and keeps the state of two aggregates (Spark
    4.2.0).
    """
    for pivot in source.args.get("pivots") or []:
        if pivot.args.get("unpivot") or not flow.streaming:
            flow = replace(flow, outputs=None)
            continue
        named = {column.name for column in pivot.find_all(exp.Column)}
        events = frozenset(name for name in flow.event_times if name.rpartition(".")[2] not in named)
        if not events:
            found.diagnostics.append(
                missing_watermark(source, "PIVOT", "keep the watermarked column among those it groups by")
            )
        elif len(events) > 1:
            found.diagnostics.append(too_many_event_times(source, "PIVOT", events))
        keys = tuple(name for name in flow.outputs or ("*",) if name not in named)
        calls = ", ".join(sql_of(each) for each in pivot.expressions)
        fields = ", ".join(sql_of(each) for each in pivot.args.get("fields") or [])
        pivoting = (Operator("aggregate", keys, f"{calls} FOR {fields}"), Operator("aggregate", keys, "pivot"))
        flow = RelationProperties(True, (*flow.operators, *pivoting), events, watermarked=flow.watermarked)
        if not events:
            # Later pivots lack the watermark too.
            break
    return flow


def _watermarked(
    flow: RelationProperties, mark: StreamClauses | None, source: Any, found: StreamFindings
) -> RelationProperties:
    if mark is None or mark.watermark is None:
        return flow
    if not flow.streaming:
        # Spark drops a watermark on a relation that does not stream (4.2.0, EliminateEventTimeWatermark).
        source.meta.pop("mark", None)
        return flow
    if flow.watermarked:
        remedy = "write only one WATERMARK, after the STREAM or here"
        found.refuse("a watermark cannot be set on top of another", remedy, source, "")
    name = mark.watermark.name
    if not name:
        remedy = "name it: WATERMARK <expression> AS <name> DELAY OF …"
        condition = "REQUIRES_EXPLICIT_NAME_IN_WATERMARK_CLAUSE"
        found.refuse("the watermark's expression has no name", remedy, source, condition)
        return flow
    added = mark.watermark.text.endswith(f" AS {name}")
    outputs = None if added else flow.outputs
    return replace(flow, event_times=flow.event_times | {name}, outputs=outputs, watermarked=True)


def _projected(select: Any, flow: RelationProperties) -> RelationProperties:
    names: set[str] = set()
    outputs: list[str] = []
    aliases = aliases_of(select)
    for each in select.expressions:
        if isinstance(each, exp.Aliases):
            outputs += [alias.name for alias in each.args.get("expressions") or []]
            continue
        inner = each.unalias()
        windows = isinstance(inner, exp.Anonymous) and str(inner.this) in (*TIME_WINDOWS, "window_time")
        name = each.alias_or_name or (str(inner.this) if windows else "")
        generates = isinstance(inner, exp.Anonymous) and str(inner.this) in GENERATORS
        if type(inner) is exp.Star and flow.outputs is not None and not select.args.get("laterals"):
            outputs += _starred_outputs(flow.outputs, left_out(inner, aliases))
        else:
            outputs.append("*" if is_star(inner) or generates else name)
        if is_star(inner):
            names |= starred(flow, inner, aliases)
        elif is_event_time(inner, flow):
            names.add(name)
    if any(isinstance(inner, exp.Column) and inner.name in TIME_WINDOWS for inner in select.expressions):
        names |= _windows_of_keys(select, flow)
    named = None if "*" in outputs else tuple(outputs)
    return RelationProperties(flow.streaming, flow.operators, frozenset(names), named, flow.watermarked)


def _windows_of_keys(select: Any, flow: RelationProperties) -> set[str]:
    return {str(key.this) for key in group_keys(select) if isinstance(key, exp.Anonymous) and is_event_time(key, flow)}


def _starred_outputs(outputs: Sequence[str], gone: Sequence[LeftOut]) -> list[str]:
    """Return the columns of `*` in order; only `*` if EXCEPT removes one of several columns of the same name."""
    names = {each.column for each in gone if not each.fields}
    shared = {each.column for each in gone if each.alias and outputs.count(each.column) > 1}
    return ["*"] if shared else [each for each in outputs if each not in names]


def _check_subqueries(select: Any, ctes: dict[str, RelationProperties], found: StreamFindings) -> None:
    """Report streams in subquery expressions, and row-numbering functions, because Spark rejects both."""
    waiting = [each for key, each in _clauses(select) if key not in ("from_", "with_")]
    while waiting:
        each = waiting.pop()
        if each.__class__ in _LEAVES:
            continue
        if isinstance(each, exp.Join):
            waiting.extend(each.args[key] for key in ("on",) if each.args.get(key) is not None)
        elif isinstance(each, exp.Query):
            if _query(each, ctes, found).streaming:
                remedy = "write a join of the two streams instead of IN, EXISTS or a scalar subquery"
                condition = "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY"
                summary = "a stream is not allowed in a subquery expression"
                found.refuse(summary, remedy, each, condition)
        else:
            if isinstance(each, exp.Anonymous) and each.this == "monotonically_increasing_id":
                remedy = "use uuid(), or a key of the row"
                found.numbering.append(
                    refused_by_spark(f"{each.this} is not allowed in a query with a stream", remedy, select)
                )
            waiting.extend(each.iter_expressions())


def _clauses(select: Any) -> list[tuple[str, Any]]:
    return [
        (key, each)
        for key, value in select.args.items()
        for each in (value if isinstance(value, list) else [value])
        if isinstance(each, exp.Expression)
    ]


def _check_windows(select: Any, found: StreamFindings) -> None:
    for each in [*select.expressions, *(select.args[key] for key in ("qualify",) if select.args.get(key) is not None)]:
        window = each.find(exp.Window)
        if window is not None and window.find_ancestor(exp.Select) is select:
            remedy = "group by window(…) instead: only time windows can be streamed"
            condition = "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING"
            found.refuse("OVER cannot be streamed", remedy, window, condition)
