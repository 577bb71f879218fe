"""What flows out of a relation, and how it is said that Spark would refuse it."""

from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from core.sql.lexing import Misread
from core.sql.naming import TableRead
from core.sql.values import Operator

UNSUPPORTED = "_LEGACY_ERROR_TEMP_3102"
"""Error class of Spark's streaming check where it has no name; Spark then says only what is not supported (4.2.0)."""
OUTPUT_MODE = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"


@dataclass(frozen=True, slots=True)
class Flow:
    """What comes out of a relation."""

    streaming: bool = False
    operators: tuple[Operator, ...] = ()
    event_times: frozenset[str] = frozenset()
    """Columns that carry a watermark: bare names out of a query, `alias.name` inside the SELECT that reads it."""
    outputs: tuple[str, ...] | None = None
    """Names of the columns in order; None where a star or a table stands for them."""


@dataclass(slots=True)
class Found:
    """What the walk collects besides the flow."""

    reads: list[TableRead] = field(default_factory=list)
    misread: list[Misread] = field(default_factory=list)
    numbering: list[Misread] = field(default_factory=list)
    """Calls that number rows, which Spark refuses anywhere in a statement that streams."""


def qualified(flow: Flow, alias: str) -> Flow:
    """Put a relation under its alias."""
    names = frozenset(f"{alias}.{name.rpartition('.')[2]}" for name in flow.event_times)
    return replace(flow, event_times=names)


def renamed(flow: Flow, alias: Any, found: Found) -> Flow:
    """Give the columns the names of a list behind an alias; where their order is unknown, no event time is known."""
    columns = [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not columns:
        return flow
    old = flow.outputs or ()
    if flow.outputs is not None and len(columns) != len(old):
        summary = f"{len(columns)} names stand behind {len(old)} columns"
        found.misread.append(refused(summary, "name each column once", alias, "ASSIGNMENT_ARITY_MISMATCH"))
    events = frozenset(new for new, name in zip(columns, old, strict=False) if name in flow.event_times)
    return replace(flow, event_times=events, outputs=tuple(columns))


def is_event_time(node: Any, flow: Flow) -> bool:
    """Whether an expression still carries the watermark: the column itself or a window over it, nothing computed."""
    if isinstance(node, exp.Anonymous) and str(node.this) in ("window", "session_window", "window_time"):
        return bool(node.expressions) and is_event_time(node.expressions[0], flow)
    if not isinstance(node, exp.Column):
        return False
    if node.table:
        return f"{node.table}.{node.name}" in flow.event_times
    return any(name.rpartition(".")[2] == node.name for name in flow.event_times)


def no_watermark(node: Any, what: str, remedy: str) -> Misread:
    """Say that append mode needs a watermark where `what` stands."""
    return refused(f"{what} over a stream needs a watermark in append mode", remedy, node, OUTPUT_MODE)


def refused(summary: str, remedy: str, node: Any, condition: str = UNSUPPORTED, *, subject: str = "") -> Misread:
    """Say that Spark would refuse a node; the place is its first name, or the statement's start."""
    places = [each.meta["start"] for each in node.find_all(exp.Identifier) if "start" in each.meta]
    return Misread(summary, remedy, min(places, default=-1), subject=subject, condition=condition)
