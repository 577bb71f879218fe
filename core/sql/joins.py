"""Joins of streams with streams and with tables: what they keep as state, and which of them Spark refuses.

A join of a stream with a table keeps nothing; refusals are those of Spark 4.2.0 (run).
"""

from dataclasses import replace
from typing import Any

from sqlglot import exp

from core.sql.canonical import sql_of, terms
from core.sql.flows import Flow, Found, refused
from core.sql.values import Operator


def joined(join: Any, left: Flow, right: Flow, select: Any, found: Found) -> Flow:
    """Join two flows; `select` is the SELECT whose WHERE meets the join, None inside brackets."""
    if not (left.streaming or right.streaming):
        return Flow()
    words = " ".join(str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key))
    if isinstance(join.this, exp.Lateral) and isinstance(join.this.this, exp.Query):
        remedy = "write a join with ON, or a subquery that names its columns"
        found.misread.append(refused("LATERAL (SELECT …) beside a stream keeps state unseen", remedy, join, "LATERAL"))
    both_known = left.event_times is not None and right.event_times is not None
    events = (left.event_times or frozenset()) | (right.event_times or frozenset()) if both_known else None
    flow = Flow(True, (*left.operators, *right.operators), events, left.watermarked or right.watermarked)
    if not (left.streaming and right.streaming):
        _check_static_join(join, words, found, stream_left=left.streaming)
        return flow
    using = tuple(each.name for each in join.args.get("using") or [])
    on, where = join.args.get("on"), select.args.get("where") if select is not None else None
    met = terms(on) if on is not None else []
    if where is not None and not join.side:
        # Spark pushes the WHERE of an inner join into its condition.
        met += terms(where.this)
    keys = [each for each in met if _is_join_key(each)]
    _check_stream_join(join, words, flow, met, found, keyed=bool(keys or using or "NATURAL" in words))
    detail = words or "INNER"
    if met:
        detail += f" ON {' AND '.join(sorted({sql_of(each) for each in met}))}"
    operator = Operator("stream_join", (*using, *(sql_of(each) for each in keys)), detail)
    return replace(flow, operators=(*flow.operators, operator))


def _is_join_key(term: Any) -> bool:
    """Whether a term equates columns of two sources, as far as the qualifiers tell."""
    if not isinstance(term, (exp.EQ, exp.NullSafeEQ)):
        return False
    left, right = ({column.table for column in side.find_all(exp.Column)} for side in (term.this, term.expression))
    return bool(left and right) and (left != right or left == {""})


def _check_stream_join(join: Any, words: str, flow: Flow, met: list[Any], found: Found, *, keyed: bool) -> None:
    if not keyed:
        remedy = "write ON left.key = right.key"
        found.misread.append(refused("a join of two streams needs an equality", remedy, join, "JOIN"))
    if "ANTI" in words:
        remedy = "write LEFT JOIN … WHERE right.key IS NULL"
        found.misread.append(refused("an anti join of two streams is refused by Spark", remedy, join, "JOIN"))
    elif join.side and not flow.watermarked:
        summary = f"{words} JOIN of two streams needs a watermark"
        found.misread.append(refused(summary, "write WATERMARK … DELAY OF … on both sides", join, "JOIN"))
    elif join.side and flow.event_times is not None and not join.args.get("using"):
        events = flow.event_times
        if not any(column.name in events for term in met for column in term.find_all(exp.Column)):
            remedy = "add to ON: equal event times, or a range between them"
            summary = f"{words} JOIN of two streams needs a condition on event time"
            found.misread.append(refused(summary, remedy, join, "JOIN"))


def _check_static_join(join: Any, words: str, found: Found, *, stream_left: bool) -> None:
    wrong = "FULL" in words or ("RIGHT" in words if stream_left else "LEFT" in words)
    if wrong:
        kept = "left" if stream_left else "right"
        summary = f"{words} JOIN of a stream and a batch table is refused by Spark"
        remedy = f"only the stream's side may be kept: write {kept.upper()} JOIN, with the stream on the {kept}"
        found.misread.append(refused(summary, remedy, join, "JOIN"))
