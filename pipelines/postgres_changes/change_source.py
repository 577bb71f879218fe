"""A streaming data source over a logical replication slot, registered in a session of the pool and pickled by value.

An offset is a position of the database's log that lies after one transaction and before the next. The slot itself is
never moved here. So any number of queries read one slot, the same two offsets always give the same rows, and the owner
of the slot decides which part of its log the database may delete.
"""

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipelines.postgres_changes.pgoutput import ChangeDecoder, StreamedChange, UnchangedValue, position_after
from pipelines.postgres_changes.replication_slot import (
    PLUGIN,
    TRUNCATED,
    UNCHANGED_VALUE,
    ChangeStreamError,
    DatabaseLost,
    confirmed_position,
    connected,
    log_end,
    lsn_text,
    temporary_copy,
)

NAME = "headgate_postgres_changes"
MAX_CHANGES = 100_000
"""Messages of the plugin in one batch, unless the option maxChanges differs; a transaction is never split."""

PATIENCE_S = 20.0
"""Longest wait for the database to come back while a batch is read, in seconds."""

_CHANGES = f"""SELECT (lsn - '0/0'::pg_lsn)::int8, data
FROM pg_logical_slot_peek_binary_changes(%(copy)s, %(until)s::text::pg_lsn, NULL, {PLUGIN})"""
_LAST = f"""SELECT data
FROM pg_logical_slot_peek_binary_changes(%(copy)s, %(until)s::text::pg_lsn, %(limit)s, {PLUGIN})
WITH ORDINALITY AS found(lsn, xid, data, n)
WHERE get_byte(data, 0) = 67 OR (get_byte(data, 0) = 77 AND get_byte(data, 1) = 0) ORDER BY n DESC LIMIT 1"""
"""The last commit (`C`), or message outside of a transaction (`M`, 0), within a number of messages of the plugin."""
_KEY = """SELECT attname::text FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = to_regclass(%s) AND indisprimary"""


class Between(InputPartition):
    """The changes between two offsets."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads changes of a table, or logical messages, from a slot."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._dsn, self._slot, self._publication = options["dsn"], options["slot"], options["publication"]
        self._table, self._prefix = options.get("table", ""), options.get("prefix", "")
        self._limit = int(options.get("maxchanges") or MAX_CHANGES)
        self._columns = tuple(schema.names)
        self._target: int | None = None
        self._idle = (-1, -1)
        """An offset after which there was no change, and the end of the log at that time."""

    def initialOffset(self) -> dict[str, int]:
        with connected(self._dsn) as database:
            return {"lsn": confirmed_position(database, self._slot)}

    def prepareForTriggerAvailableNow(self) -> None:
        with connected(self._dsn) as database:
            self._target = log_end(database)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the last transaction within maxChanges; `start` if there is none or no answer.

        So a query survives a restart of the database. The agent reports that the database does not answer.
        """
        at = start["lsn"]
        try:
            with connected(self._dsn) as database:
                end = log_end(database)
                if self._idle == (at, end):
                    return start
                with temporary_copy(database, self._slot, at) as copy:
                    values = self._values(copy, until=self._target, limit=self._limit)
                    found = database.execute(_LAST, values, binary=True).fetchone()
        except DatabaseLost:
            return start
        if found is None:
            self._idle = (at, end)
        return {"lsn": position_after(found[0])} if found else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Between(start["lsn"], end["lsn"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the rows between two offsets. If the connection is lost, another one continues at the same row."""
        assert isinstance(partition, Between)
        done, ends_at = 0, time.monotonic() + PATIENCE_S
        while True:
            try:
                for number, row in enumerate(self._rows(partition.start, partition.end)):
                    if number >= done:
                        yield row
                        done, ends_at = number + 1, time.monotonic() + PATIENCE_S
                return
            except DatabaseLost:
                if time.monotonic() > ends_at:
                    raise
                time.sleep(0.5)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the owner of the slot advances it once every reader has committed."""

    def _rows(self, start: int, end: int) -> Iterator[tuple[Any, ...]]:
        with connected(self._dsn) as database, temporary_copy(database, self._slot, start) as copy:
            key = tuple(name for (name,) in database.execute(_KEY, (self._table,)).fetchall()) if self._table else ()
            names = tuple(name for name in self._columns if not name.startswith("_"))
            decoder = ChangeDecoder(start, end, table=self._table, prefix=self._prefix, columns=names, key=key)
            try:
                for lsn, data in database.cursor(binary=True).stream(_CHANGES, self._values(copy, until=end)):
                    for change in decoder.changes(lsn, data):
                        if change.op == "t" and "_op" not in self._columns:
                            raise ChangeStreamError(TRUNCATED, f"{self._table} was truncated at {lsn_text(lsn)}")
                        yield tuple(_value(change, column) for column in self._columns)
            except UnchangedValue as error:
                column, lsn = error.args
                what = f"the UPDATE of {self._table} at {lsn_text(lsn)} left the large value of {column} unchanged"
                raise ChangeStreamError(UNCHANGED_VALUE, f"{what}, and the log does not contain it") from None

    def _values(self, copy: str, *, until: int | None, limit: int | None = None) -> dict[str, Any]:
        end = None if until is None else lsn_text(until)
        return {"copy": copy, "until": end, "limit": limit, "publication": f'"{self._publication}"'}


class ChangeSource(DataSource):
    """The data source `headgate_postgres_changes`, whose columns are given with the stream."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ChangeReader(dict(self.options), schema)


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
