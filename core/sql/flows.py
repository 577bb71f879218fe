"""What flows out of a relation, and how it is said that Spark would refuse it."""

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from core.sql.lexing import Misread
from core.sql.naming import TableRead
from core.sql.values import Operator


@dataclass(frozen=True, slots=True)
class Flow:
    """What comes out of a relation."""

    streaming: bool = False
    operators: tuple[Operator, ...] = ()
    event_times: frozenset[str] | None = frozenset()
    """Names of the columns that carry a watermark; None when we cannot tell."""
    watermarked: bool = False


@dataclass(slots=True)
class Found:
    """What the walk collects besides the flow."""

    reads: list[TableRead] = field(default_factory=list)
    misread: list[Misread] = field(default_factory=list)


def no_watermark(node: Any, what: str, remedy: str) -> Misread:
    """Say that append mode needs a watermark where `what` stands."""
    summary = f"{what} over a stream needs a watermark in append mode"
    return refused(summary, remedy, node, "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION")


def refused(summary: str, remedy: str, node: Any, subject: str = "") -> Misread:
    """Say that Spark would refuse a node; the place is its first name, or the statement's start."""
    places = [each.meta["start"] for each in node.find_all(exp.Identifier) if "start" in each.meta]
    return Misread(summary, remedy, min(places, default=-1), subject=subject)
