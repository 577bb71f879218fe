"""Decodes messages of PostgreSQL's output plugin pgoutput (protocol version 1), without any I/O.

The format is documented in the PostgreSQL 18 manual, "Logical Replication Message Formats". Values are text in
PostgreSQL's notation.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

EPOCH_US = 946_684_800_000_000
"""PostgreSQL's timestamp epoch (2000-01-01), in microseconds since 1970."""


class Unchanged:
    """Marks a large column value that an UPDATE did not change, and which the log therefore omits."""


UNCHANGED = Unchanged()
Value = str | None | Unchanged
Values = tuple[Value, ...]


class BeginMessage(NamedTuple):
    """The start of a transaction. Transactions are ordered by their commits."""

    commit_lsn: int
    """Position at which the commit record begins."""
    committed_us: int
    """Commit time, in microseconds since 1970."""
    xid: int


class CommitMessage(NamedTuple):
    """The end of a transaction."""

    commit_lsn: int
    end_lsn: int
    """Position at which the commit record ends. Every later transaction commits at or after this position."""


class LogicalMessage(NamedTuple):
    """A message written by `pg_logical_emit_message`. A non-transactional message is not part of a transaction."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


class RelationMessage(NamedTuple):
    """The name and columns of a table, sent before its first change and after each change of its columns."""

    oid: int
    name: str
    """Schema and table, separated by a dot."""
    columns: tuple[str, ...]
    in_key: tuple[bool, ...]
    """Whether each column is part of the replica identity; with REPLICA IDENTITY FULL, all columns are."""


class RowMessage(NamedTuple):
    """An INSERT, UPDATE or DELETE of one row."""

    kind: str
    """`I`, `U` or `D`."""
    oid: int
    old: Values | None
    """The old row: complete with REPLICA IDENTITY FULL; otherwise only its key, for a DELETE or a changed key."""
    old_is_complete: bool
    new: Values | None


class TruncateMessage(NamedTuple):
    """A TRUNCATE of one or more tables."""

    oids: tuple[int, ...]


Decoded = BeginMessage | CommitMessage | LogicalMessage | RelationMessage | RowMessage | TruncateMessage


def decode(data: bytes) -> Decoded | None:
    """Decode one message; return None if it describes an origin or a type. Raises ValueError for unknown bytes."""
    read = _Reader(data)
    match read.letter():
        case "B":
            return BeginMessage(read.int64(), read.int64() + EPOCH_US, read.uint32())
        case "C":
            read.int8()
            return CommitMessage(read.int64(), read.int64())
        case "M":
            return LogicalMessage(bool(read.int8() & 1), read.int64(), read.text(), read.bytes(read.uint32()))
        case "R":
            return _relation(read)
        case "I":
            oid, _ = read.uint32(), read.letter()
            return RowMessage("I", oid, None, False, read.values())
        case "U":
            oid, part, old = read.uint32(), read.letter(), None
            is_complete = part == "O"
            if part in ("K", "O"):
                old, part = read.values(), read.letter()
            return RowMessage("U", oid, old, is_complete, read.values())
        case "D":
            oid, part = read.uint32(), read.letter()
            return RowMessage("D", oid, read.values(), part == "O", None)
        case "T":
            count, _ = read.uint32(), read.int8()
            return TruncateMessage(tuple(read.uint32() for _ in range(count)))
        case "O" | "Y":
            return None
        case kind:
            raise ValueError(f"pgoutput sent a message of the unknown kind {kind!r}")


def _relation(read: "_Reader") -> RelationMessage:
    oid, schema, table = read.uint32(), read.text() or "pg_catalog", read.text()
    read.int8()
    columns, in_key = [], []
    for _ in range(read.int16()):
        in_key.append(bool(read.int8() & 1))
        columns.append(read.text())
        read.bytes(8)
    return RelationMessage(oid, f"{schema}.{table}", tuple(columns), tuple(in_key))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def bytes(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise ValueError("a message of pgoutput is too short")
        self._at += count
        return part

    def letter(self) -> str:
        return self.bytes(1).decode("ascii")

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode("utf-8")
        self._at = end + 1
        return found

    def int8(self) -> int:
        return self.bytes(1)[0]

    def int16(self) -> int:
        return int(struct.unpack(">h", self.bytes(2))[0])

    def uint32(self) -> int:
        return int(struct.unpack(">I", self.bytes(4))[0])

    def int64(self) -> int:
        return int(struct.unpack(">q", self.bytes(8))[0])

    def values(self) -> Values:
        return tuple(self._value() for _ in range(self.int16()))

    def _value(self) -> Value:
        match self.letter():
            case "n":
                return None
            case "u":
                return UNCHANGED
            case "t":
                return self.bytes(self.uint32()).decode("utf-8")
            case kind:
                raise ValueError(f"pgoutput sent a value of the unknown kind {kind!r}")


class StreamedChange(NamedTuple):
    """A row of the change stream."""

    op: str
    """`c`, `u`, `d`, `t` (TRUNCATE), or `r` for a row of the initial snapshot."""
    values: dict[str, str | None]
    """Values by column; for a deleted row, only those that the log contains."""
    lsn: int
    """Position of the change; several rows of one statement can share it."""
    begin: BeginMessage
    content: bytes | None = None
    """The content of a logical message."""
    prefix: str = ""


class UnchangedValue(Exception):
    """Raised if the log lacks a declared column that an UPDATE left unchanged; the arguments are column and LSN."""


class ColumnGone(Exception):
    """Raised if a change lacks a declared column that the table no longer has; the arguments are column and LSN."""


class ChangeDecoder:
    """Converts pgoutput messages into the changes of one table, or into the logical messages of one prefix.

    Only changes of transactions that commit at or after `start`, and before `end`, are returned. Positions are those of
    commits: a transaction that began earlier can commit later.
    """

    def __init__(
        self,
        start: int,
        end: int,
        *,
        table: str = "",
        oid: int = 0,
        prefix: str = "",
        columns: tuple[str, ...],
        key: tuple[str, ...],
        lost: tuple[str, ...] = (),
    ) -> None:
        """Decode changes of `table`, given as `schema.name`, or logical messages with the prefix `prefix`.

        `oid` identifies the table that has this name now; its changes under a former name are included. `columns` are
        the declared columns. `key` is the primary key, which the log lacks if REPLICA IDENTITY is FULL. `lost` are the
        declared columns that the table no longer has: a change without them raises ColumnGone. Any other declared
        column is NULL in changes from before it was added.
        """
        self._start, self._end, self._prefix = start, end, prefix
        self._table, self._oid = table, oid
        self._columns, self._key, self._lost = columns, key, lost
        self._relations: dict[int, RelationMessage] = {}
        self._begin: BeginMessage | None = None

    def changes(self, lsn: int, data: bytes) -> Iterator[StreamedChange]:
        """Yield the changes in one message, which is at position `lsn` of the log."""
        match decode(data):
            case BeginMessage() as begin:
                self._begin = begin
            case CommitMessage():
                self._begin = None
            case RelationMessage() as relation:
                self._relations[relation.oid] = relation
            case LogicalMessage() as message if message.prefix == self._prefix != "":
                within = self._begin if message.transactional else BeginMessage(message.lsn, 0, 0)
                if self._is_between(within):
                    yield StreamedChange("m", {}, lsn, within, content=message.content, prefix=message.prefix)
            case TruncateMessage(oids) if self._is_between(self._begin) and any(map(self._is_table, oids)):
                yield StreamedChange("t", {}, lsn, self._begin)
            case RowMessage() as change if self._is_between(self._begin) and self._is_table(change.oid):
                yield from self._of_row(change, lsn, self._begin)

    def _is_table(self, oid: int) -> bool:
        known = self._relations.get(oid) if self._table else None
        return known is not None and (known.oid == self._oid or known.name == self._table)

    def _is_between(self, begin: BeginMessage | None) -> TypeGuard[BeginMessage]:
        return begin is not None and self._start <= begin.commit_lsn < self._end

    def _of_row(self, change: RowMessage, lsn: int, begin: BeginMessage) -> Iterator[StreamedChange]:
        relation = self._relations[change.oid]
        if gone := next((name for name in self._lost if name not in relation.columns), ""):
            raise ColumnGone(gone, lsn)
        old = dict(zip(relation.columns, change.old, strict=True)) if change.old is not None else {}
        new = dict(zip(relation.columns, change.new, strict=True)) if change.new is not None else {}
        if change.kind == "D":
            yield StreamedChange("d", self._known(old, {}, lsn), lsn, begin)
            return
        row = self._known(new, old if change.old_is_complete else {}, lsn)
        in_log = tuple(name for name, is_key in zip(relation.columns, relation.in_key, strict=True) if is_key)
        key = self._key if change.old_is_complete else in_log
        if old and any(new.get(name) not in (UNCHANGED, old.get(name)) for name in key):
            # The row has a new key, so the row with its old key is gone.
            yield StreamedChange("d", self._known(old, {}, lsn), lsn, begin)
            yield StreamedChange("c", row, lsn, begin)
            return
        yield StreamedChange("c" if change.kind == "I" else "u", row, lsn, begin)

    def _known(self, values: dict[str, Value], before: dict[str, Value], lsn: int) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name, value in values.items():
            if name not in self._columns:
                continue
            if isinstance(value, Unchanged):
                value = before.get(name, value)
            if isinstance(value, Unchanged):
                raise UnchangedValue(name, lsn)
            found[name] = value
        return found


def position_after(data: bytes) -> int:
    """Return the position after a commit, or after a message outside of any transaction; it can serve as an offset.

    The first 18 bytes are enough.
    """
    read = _Reader(data)
    match read.letter(), read.int8():
        case "C", _:
            read.int64()
            return read.int64()
        case "M", 0:
            return read.int64() + 1
        case other:
            raise ValueError(f"no position follows {other!r}")
