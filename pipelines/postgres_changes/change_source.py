"""A streaming data source that reads a logical replication slot. It is registered in a pool session, pickled by value.

An offset is a position in the database's log that lies after one transaction and before the next. This module never
advances the slot itself. Therefore, any number of queries can read one slot, two given offsets always yield the same
rows, and the owner of the slot decides which part of its log the database may delete.

With an initial snapshot, the first batch contains the rows of the table as of one database transaction. Later batches
omit the changes that this snapshot already contains. Offsets include the snapshot until all of these changes have been
read. If the first batch is repeated, it reads the rows again, but later batches omit only the changes in the first
attempt's snapshot. A change may therefore be read twice, but no change is missing.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipelines.postgres_changes.pgoutput import (
    BeginMessage,
    ChangeDecoder,
    ColumnGone,
    RelationMessage,
    StreamedChange,
    UnchangedValue,
    decode,
    position_after,
)
from pipelines.postgres_changes.replication_slot import (
    COLUMN_GONE,
    PLUGIN,
    REPLACED,
    TRUNCATED,
    UNCHANGED_VALUE,
    ChangeStreamError,
    DatabaseLost,
    confirmed_position,
    connected,
    log_end,
    lsn_text,
    rows_of_table,
    temporary_copy,
)

NAME = "headgate_postgres_changes"
MAX_CHANGES = 100_000
"""Maximum number of pgoutput messages per batch, unless the option maxChanges is set; a transaction is never split."""

FEW, SHORT_B = 500, 2000
"""A batch of fewer messages, each of which has fewer bytes, is read when its end is determined, and not again."""

IDLE_S = 60.0
"""Longest time, in seconds, that a connection is kept without use; firewalls drop idle connections silently."""

PATIENCE_S = 20.0
"""Longest wait, in seconds, for the database to come back while a batch is being read."""

# Each reading ends with empty catalog caches, so that arithmetic with positions alone would read 100 blocks (PostgreSQL
# 18). In binary form, a position is a big-endian number.
_CHANGES = f"""SELECT lsn, data
FROM pg_logical_slot_peek_binary_changes(%(copy)s, %(until)s::text::pg_lsn, NULL, {PLUGIN})"""
_NEXT = f"""SELECT lsn, substr(data, 1, %(short)s)
FROM pg_logical_slot_peek_binary_changes(%(copy)s, %(until)s::text::pg_lsn, %(limit)s, {PLUGIN})
WITH ORDINALITY AS found(lsn, xid, data, n)
WHERE n <= %(few)s OR get_byte(data, 0) = 67 OR (get_byte(data, 0) = 77 AND get_byte(data, 1) = 0)"""
"""Query for the first pgoutput messages, and for all later commits (`C`) and non-transactional messages (`M`, 0).
"""
_KEY = """SELECT attname::text FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = to_regclass(%s) AND indisprimary"""
_PRESENT = """SELECT attname::text, attrelid::int8 FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""
_IDENTITY = """SELECT concat_ws(' ', coalesce(to_regclass(%(table)s)::oid, 0), publication.oid, member.oid,
    pubinsert AND pubupdate AND pubdelete AND pubtruncate)
FROM pg_publication AS publication
LEFT JOIN pg_publication_rel AS member ON prpubid = publication.oid AND prrelid = to_regclass(%(table)s)
WHERE pubname = %(publication)s"""
"""Query for the oids of the table, its publication and its membership; they change if one of these is replaced, or if
the publication has other columns or rows of the table."""
_EXPORT = """SELECT pg_export_snapshot(), pg_current_snapshot()::text,
(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8"""
"""Query for the name of a new snapshot, the transactions that it sees, and a position after all of their commits."""

INITIAL = "initial"
"""Value of `snapshot` in an offset before the first batch."""
Offset = dict[str, Any]
"""Entries: `lsn`, a position in the log; `of`, the identity of the table in its publication; `snapshot`, the snapshot
of the first batch as text (`pg_current_snapshot`); `until`, a position. Changes before `until` may already be in the
first batch."""


Catalog = tuple[int, tuple[str, ...], tuple[str, ...]]
"""The table's oid and primary key, and the declared columns that the table no longer has."""
Ahead = tuple[Catalog, list[tuple[bytes, bytes]]]
"""What the catalog contained when pgoutput's messages were read, and these messages with their positions in the log."""


class Between(InputPartition):
    """The changes between two offsets, except those of transactions that are visible in the snapshot `seen`.

    `ahead` contains the messages of these changes, if they have already been read.
    """

    def __init__(self, start: int, end: int, seen: str = "", ahead: Ahead | None = None) -> None:
        self.start, self.end, self.seen, self.ahead = start, end, seen, ahead


class Rows(InputPartition):
    """All rows of the table as the exported snapshot sees them, or its current rows if that snapshot is gone."""

    def __init__(self, exported: str) -> None:
        self.exported = exported


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the changes of a table, or logical messages, from a replication slot."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._dsn, self._slot, self._publication = options["dsn"], options["slot"], options["publication"]
        self._table, self._prefix = options.get("table", ""), options.get("prefix", "")
        self._limit = int(options.get("maxchanges") or MAX_CHANGES)
        self._begin: Offset = {"snapshot": options["snapshot"]} if options.get("snapshot") else {}
        self._columns = tuple(schema.names)
        self._target: int | None = None
        self._idle = (-1, -1)
        """An offset with no change after it, and the end of the log at that time."""
        self._exported, self._exporting = "", ExitStack()
        """The name of the first batch's snapshot, and the open transaction that keeps this snapshot alive."""
        self._database: Any = None
        self._kept, self._used_at = ExitStack(), 0.0
        """The connection of the last `latestOffset`, what closes it, and when it was used (monotonic seconds)."""
        self._ahead: dict[tuple[int, int], Ahead] = {}
        """Messages of the batch found by the last `latestOffset`, if they are few, by start and end of the batch."""

    def initialOffset(self) -> Offset:
        with connected(self._dsn) as database:
            return {"lsn": confirmed_position(database, self._slot), **self._identity(database), **self._begin}

    def prepareForTriggerAvailableNow(self) -> None:
        with connected(self._dsn) as database:
            self._target = log_end(database)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the last transaction within maxChanges, or `start` if there is none.

        Also returns `start` if the database does not answer, so that a query survives a restart of the database. The
        agent reports a database that does not answer. Raises ChangeStreamError if changes since `start` may be missing:
        pgoutput leaves out changes of a table that was not in the publication at that time, and a table that takes the
        name of another one already has rows.
        """
        at = start["lsn"]
        self._end_snapshot()
        try:
            if start.get("snapshot") == INITIAL:
                return {"lsn": at, **self._take_snapshot(start)}
            with self._kept_connection() as database:
                end = log_end(database)
                if self._idle == (at, end):
                    return start
                with temporary_copy(database, self._slot, at) as copy:
                    values = self._values(copy, until=self._target, limit=self._limit)
                    found = database.execute(_NEXT, values | {"few": FEW, "short": SHORT_B}, binary=True).fetchall()
                reached, identity = position_after(found[-1][1]) if found else at, dict[str, str]()
                if found:
                    # Asked after the log was read, so that nothing up to the new offset has another identity.
                    identity = self._same_identity(database, start)
                if found and len(found) < FEW and all(len(data) < SHORT_B for _, data in found):
                    oid = int((identity.get("of") or "0").partition(" ")[0])
                    self._ahead = {(at, reached): (self._catalog_for(database, oid, found), found)}
        except DatabaseLost:
            return start
        if len(found) < min(FEW, self._limit):
            self._idle = (reached, end)  # All messages were found, so nothing follows the last one.
        if not found:
            return start
        return ({} if reached >= start.get("until", 0) else start) | identity | {"lsn": reached}

    def _identity(self, database: Any) -> dict[str, str]:
        """Return the identity of the table as a part of an offset; empty for messages, which need no publication."""
        if not self._table:
            return {}
        found = database.execute(_IDENTITY, {"table": self._table, "publication": self._publication}).fetchone()
        return {"of": found[0] if found else ""}

    def _same_identity(self, database: Any, start: Offset) -> dict[str, str]:
        identity = self._identity(database)
        if start.get("of", identity.get("of")) != identity.get("of"):
            what = f"{self._table}, its columns or its rows in the publication {self._publication}"
            raise ChangeStreamError(REPLACED, f"{what} were replaced, and changes may be missing")
        return identity

    @contextmanager
    def _kept_connection(self) -> Iterator[Any]:
        """Yield a connection, which is kept for the next batch unless an error occurs."""
        if time.monotonic() - self._used_at > IDLE_S:
            self._close()
        opened, database = self._kept, self._database
        self._kept, self._database = ExitStack(), None
        with opened:
            database = database or opened.enter_context(connected(self._dsn))
            yield database
            self._kept, self._database, self._used_at = opened.pop_all(), database, time.monotonic()

    def _take_snapshot(self, start: Offset) -> Offset:
        with ExitStack() as opened:
            database = opened.enter_context(connected(self._dsn))
            database.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            database.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            self._exported, seen, until = database.execute(_EXPORT).fetchone()
            identity = self._same_identity(database, start)
            self._exporting = opened.pop_all()
        return {**identity, "snapshot": seen, "until": until}

    def _end_snapshot(self) -> None:
        self._exported = ""
        self._exporting.close()

    def _close(self) -> None:
        self._database = None
        self._kept.close()

    def stop(self) -> None:
        """Close the connections, and thereby end the transaction that keeps the snapshot of the first batch alive."""
        self._end_snapshot()
        self._close()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        seen = start.get("snapshot", "")
        if seen == INITIAL:
            return [Rows(self._exported)]
        return [Between(start["lsn"], end["lsn"], seen, self._ahead.get((start["lsn"], end["lsn"])))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows between two offsets. If the connection is lost, reconnect and continue with the next row.

        The rows of an initial snapshot have no order, so the first batch fails if the connection is lost.
        """
        if isinstance(partition, Rows):
            yield from self._rows_of_table(partition.exported)
            return
        assert isinstance(partition, Between)
        done, ends_at = 0, time.monotonic() + PATIENCE_S
        while True:
            try:
                for number, row in enumerate(self._rows(partition)):
                    if number >= done:
                        yield row
                        done, ends_at = number + 1, time.monotonic() + PATIENCE_S
                return
            except DatabaseLost:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(0.5)

    def commit(self, end: Offset) -> None:
        """Do nothing, because the owner of the slot advances it once every reader has committed."""

    def _rows_of_table(self, exported: str) -> Iterator[tuple[Any, ...]]:
        names = self._declared()
        with connected(self._dsn) as database:
            of = {"slot": self._slot, "publication": self._publication, "table": self._table}
            lsn, rows = rows_of_table(database, **of, columns=names, exported=exported)
            before = BeginMessage(lsn, 0, 0)
            for row in rows:
                change = StreamedChange("r", dict(zip(names, row, strict=True)), lsn, before)
                yield tuple(_value(change, column) for column in self._columns)

    def _rows(self, part: Between) -> Iterator[tuple[Any, ...]]:
        if part.ahead is not None:
            yield from self._decoded(part, *part.ahead)
            return
        with connected(self._dsn) as database, temporary_copy(database, self._slot, part.start) as copy:
            catalog, values = self._catalog(database), self._values(copy, until=part.end)
            yield from self._decoded(part, catalog, database.cursor(binary=True).stream(_CHANGES, values))

    def _declared(self) -> tuple[str, ...]:
        return tuple(name for name in self._columns if not name.startswith("_"))

    def _catalog_for(self, database: Any, oid: int, messages: list[tuple[bytes, bytes]]) -> Catalog:
        """Return the catalog information needed to decode the messages; the catalog is queried only if any is needed.

        A table's primary key is needed if the log has complete old rows, and its lost columns if the log lacks a
        declared column.
        """
        decoded = (decode(data) for _, data in messages if data[:1] == b"R")
        relations = [each for each in decoded if isinstance(each, RelationMessage)]
        found = [each for each in relations if self._table and (each.oid == oid or each.name == self._table)]
        if any(all(each.in_key) or not {*self._declared()} <= {*each.columns} for each in found):
            return self._catalog(database)
        return oid, (), ()

    def _catalog(self, database: Any) -> Catalog:
        if not self._table:
            return 0, (), ()
        key = tuple(name for (name,) in database.execute(_KEY, (self._table,)).fetchall())
        present = dict(database.execute(_PRESENT, (self._table,)).fetchall())
        return next(iter(present.values()), 0), key, tuple(name for name in self._declared() if name not in present)

    def _decoded(
        self, part: Between, catalog: Catalog, messages: Iterable[tuple[bytes, bytes]]
    ) -> Iterator[tuple[Any, ...]]:
        (oid, key, lost), has_seen = catalog, _seen_by(part.seen)
        of = {"table": self._table, "prefix": self._prefix}
        decoder = ChangeDecoder(part.start, part.end, **of, oid=oid, columns=self._declared(), key=key, lost=lost)
        try:
            for at, data in messages:
                lsn = int.from_bytes(at)
                for change in decoder.changes(lsn, data):
                    if has_seen(change.begin.xid):
                        continue
                    if change.op == "t" and "_op" not in self._columns:
                        raise ChangeStreamError(TRUNCATED, f"{self._table} was truncated at {lsn_text(lsn)}")
                    yield tuple(_value(change, column) for column in self._columns)
        except ColumnGone as error:
            column, lsn = error.args
            what = f"{self._table} was changed at {lsn_text(lsn)}, and has no column {column} any more"
            raise ChangeStreamError(COLUMN_GONE, what) from None
        except UnchangedValue as error:
            column, lsn = error.args
            what = f"the UPDATE of {self._table} at {lsn_text(lsn)} left the large value of {column} unchanged"
            raise ChangeStreamError(UNCHANGED_VALUE, f"{what}, and the log does not contain it") from None

    def _values(self, copy: str, *, until: int | None, limit: int | None = None) -> dict[str, Any]:
        end = None if until is None else lsn_text(until)
        return {"copy": copy, "until": end, "limit": limit, "publication": f'"{self._publication}"'}


class ChangeSource(DataSource):
    """The data source `headgate_postgres_changes`. The stream's schema determines its columns."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ChangeReader(dict(self.options), schema)


def _seen_by(snapshot: str) -> Callable[[int], bool]:
    """Return a function that checks whether a snapshot sees a transaction, given its 32-bit transaction id.

    The snapshot is `xmin:xmax:xip_list`, with 64-bit ids (PostgreSQL 18 manual, "pg_snapshot"). An empty snapshot sees
    no transaction.
    """
    if not snapshot:
        return lambda xid: False
    low, high, running = snapshot.split(":")
    first, last, open = int(low), int(high), {int(each) for each in running.split(",") if each}

    def has_seen(xid: int) -> bool:
        whole = last + (xid - last + (1 << 31)) % (1 << 32) - (1 << 31)
        return whole < first or (whole < last and whole not in open)

    return has_seen


def _value(change: StreamedChange, column: str) -> Any:
    match column:
        case "_op":
            return change.op
        case "_commit_lsn":
            return change.begin.commit_lsn
        case "_lsn":
            return change.lsn
        case "_xid":
            return change.begin.xid or None
        case "_committed_us":
            return change.begin.committed_us or None
        case "_prefix":
            return change.prefix
        case "_content":
            return change.content
        case _:
            return change.values.get(column)
