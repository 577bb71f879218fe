"""The position of each statement in its inputs, and whether every statement has read everything upstream of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.model.names import TableName
from core.text.sentence import Fact, FactKind


class Unread(FactKind):
    """Why a statement has not read everything yet."""

    PENDING = "{table} has {files:file} to read"
    MESSAGES = "{table} has {messages:message} to read"
    BOTH = "{table} has {files:file} and {messages:message} to read"
    OPEN = "{table} is in batch {batch}"
    UNKNOWN = "{table} has not begun"
    WATERMARK = "{table} writes what its watermark has closed"
    MOVED = "{table} has just finished batch {batch}"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a statement, as its checkpoint and the logs of its inputs show it."""

    table: TableName
    version: int
    batch: int | None
    """The last batch that is complete; None if there is none."""
    planned: int | None
    """The last batch that has begun; None if there is none."""
    pending: int
    """Number of files, or of messages or changes, that are not read."""
    watermark_ms: int
    """The watermark of the last complete batch, in epoch milliseconds; 0 if there is none."""
    next_watermark_ms: int
    """The watermark of the next batch."""
    stateful: bool
    batch_s: float = 0.0
    """How long the last complete batch took, in seconds."""
    messages: int = 0
    """How many of the pending ones are messages of topics."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Positions = Mapping[TableName, Position]


def unread(before: Positions, now: Positions, *, idle_s: float) -> tuple[Fact[Unread], ...]:
    """Return why statements have not read everything upstream of them; empty if all have.

    `before` and `now` were read one after the other, and their reading took time. If no statement has begun or finished
    a batch between the two, all of `now` was true at the moment between them. `idle_s` is how long nothing has changed,
    in seconds: a watermark that has advanced makes most stateful statements run one more batch, but not all. The slower
    the batches of a statement are, as on a busy machine, the more time it is given to begin that one.
    """
    found = []
    for table, position in now.items():
        if (fact := _unread(before.get(table), position, idle_s)) is not None:
            found.append(fact)
    return tuple(found)


WATERMARK_S = 5.0
"""Seconds after which no batch follows an advanced watermark. Spark begins it at the next trigger, without input."""

WATERMARK_BATCHES = 3.0
"""The same time as a multiple of the last batch's duration; the longer of the two counts."""


def _unread(before: Position | None, now: Position, idle_s: float) -> Fact[Unread] | None:
    if now.planned is not None and now.planned != now.batch:
        return Unread.OPEN.of(table=now.table, batch=now.planned)
    if now.pending:
        return _pending(now)
    if before is None or (before.version, before.batch, before.pending) != (now.version, now.batch, now.pending):
        return Unread.MOVED.of(table=now.table, batch=-1 if now.batch is None else now.batch)
    longest_s = max(WATERMARK_S, WATERMARK_BATCHES * now.batch_s)
    if now.stateful and now.next_watermark_ms > now.watermark_ms and idle_s < longest_s:
        return Unread.WATERMARK.of(table=now.table)
    return None


def _pending(now: Position) -> Fact[Unread]:
    if not now.messages:
        return Unread.PENDING.of(table=now.table, files=now.pending)
    if now.messages == now.pending:
        return Unread.MESSAGES.of(table=now.table, messages=now.messages)
    return Unread.BOTH.of(table=now.table, files=now.pending - now.messages, messages=now.messages)
