"""Creates, measures, advances and drops the replication slots for external tables of database changes.

One slot serves all readers of an external table. It is created for the first reader, advanced to the position that its
slowest reader has committed, and dropped after its last reader is gone. Checkpoints contain positions as `{"lsn": N}`.
"""

import json
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.observed.time_left import Bound, Growth, SlotState, TimeLeft, lost, time_left_in_slot
from core.ports.storage import SourceLag, TableFault
from core.sql.postgres_changes import NEW_SLOT, ChangeAddress, change_address, read_address, with_slot
from core.sql.statement import TableDdl
from core.text.wording import short_size
from pipelines.postgres_changes.pgoutput import EPOCH_US
from pipelines.postgres_changes.replication_slot import (
    NO_CLIENT,
    PLUGIN,
    SLOT_AHEAD,
    SLOT_LOST,
    SLOT_MISSING,
    ChangeStreamError,
    DatabaseLost,
    confirmed_position,
    connected,
    log_end,
    lsn_text,
    temporary_copy,
)
from pipelines.storage.postgres_tables import database_fault

COUNTED = 10_000
"""Maximum lag, in pgoutput messages, that is counted exactly; a longer lag is estimated from the size of the log."""

CREATED_S = 20
"""Longest wait for the creation of a slot, in seconds."""

HEARTBEAT_B = 16 << 20
"""Bytes of log without a change of the table after which a heartbeat is written, so that readers and slots advance."""
HEARTBEAT_PREFIX = "headgate"
FAILOVER_SINCE = 170_000
"""Oldest PostgreSQL version that can copy slots to standbys."""

_SETTINGS = "-c statement_timeout=5s -c timezone=UTC"
_MESSAGES = f"""FROM pg_logical_slot_peek_binary_changes(%(copy)s, NULL, {COUNTED}, {PLUGIN})
WITH ORDINALITY AS found(lsn, xid, data, n)"""
_STATE = """SELECT extract(epoch FROM clock_timestamp())::float8 AS now,
    (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8 AS "end", (restart_lsn - '0/0'::pg_lsn)::int8 AS begins,
    nullif(pg_size_bytes(current_setting('max_slot_wal_keep_size')), -1) AS kept, safe_wal_size AS free,
    coalesce(extract(epoch FROM current_setting('idle_replication_slot_timeout', true)::interval), 0)::float8
        AS idle_limit_s,
    extract(epoch FROM (to_jsonb(slot)->>'inactive_since')::timestamptz)::float8 AS idle_since
FROM pg_get_replication_slots() AS slot WHERE slot_name = %s AND wal_status <> 'lost'"""
"""Query for the fields of `SlotState`. PostgreSQL 18 added the timeout, and 17 `inactive_since`."""

_OF_TABLE = "get_byte(data, 0) IN (68, 73, 85) AND substr(data, 2, 4) = int4send(to_regclass(%(table)s)::oid::int4)"
_OF_PREFIX = """get_byte(data, 0) = 77
AND substr(data, 11, length(%(prefix)s) + 1) = convert_to(%(prefix)s, 'UTF8') || '\\x00'::bytea"""
_PENDING = """SELECT count(*) FILTER (WHERE {mine}), count(*), (max(lsn) - '0/0'::pg_lsn)::int8,
    (array_agg(substr(data, 10, 8) ORDER BY n) FILTER (WHERE get_byte(data, 0) = 66))[1]
{messages}"""
"""Query for the number of pending changes of the table, the number of all pending messages, the last position, and the
time of the first transaction."""


class SlotFault(Refused):
    """Raised if a slot is missing, lost, or begins too late."""

    def __init__(self, error_class: str) -> None:
        kind, why, self.bound = _SLOT_FAULTS[error_class]
        super().__init__(why)
        self.fault = TableFault(kind, why, NEW_SLOT)


class ChangeSlots:
    """Measures positions in slots, and advances slots. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[int, SourceLag]] = {}
        """The last computed lag of each position, preceded by the end of the log at that time."""
        self._beats: dict[str, int] = {}
        """The end of the log at the last heartbeat for each slot."""
        self._growth: dict[str, Growth] = {}
        """Growth of the log of each database, by connection string."""

    def lag(self, position: int | None, table: TableName, url: str) -> SourceLag:
        """Return a statement's lag behind the end of the database's log. `position` is None before the first batch.

        Raises TryAgain if the database does not answer, and Refused if the client library is not installed.
        """
        address = read_address(url)
        try:
            with _asked(table), connected(address.dsn, _SETTINGS) as database:
                (end, left), start = self._state(database, address), position
                if start is None:
                    start = confirmed_position(database, address.slot)
                known = self._known.get((url, start))
                if left is not None and known is not None and known[0] == end and known[1].rows == 0:
                    return replace(known[1], time_left=left)
                found = _lag(database, address, table, start, end)
                if position is None and address.snapshot:
                    return replace(found, **_rows_pending(database, address.table), time_left=left)
        except SlotFault as fault:
            gone = lost(fault.bound, slot=address.slot)
            return SourceLag(
                table, 0, 0, rows=None, exact=False, oldest_s=None, missing=True, topics=True, time_left=gone
            )
        self._known = {key: each for key, each in tuple(self._known.items()) if key[0] != url or each[0] == end}
        self._known[url, start] = (end, found)
        return replace(found, time_left=left)

    def _state(self, database: Any, address: ChangeAddress) -> tuple[int, TimeLeft | None]:
        """Return the end of the log, and the time left for positions in a slot; None if the slot is missing or lost."""
        if (state := _state_of(database, address.slot)) is None:
            return log_end(database), None
        per_s = self._growth.setdefault(address.dsn, Growth()).add(state.now, state.end)
        return state.end, time_left_in_slot(state, per_s)

    def fault_behind(self, position: int | None, url: str) -> TableFault | None:
        """Return why a statement that has read up to `position` cannot continue; None if it can.

        Raises the errors of `lag`.
        """
        address = read_address(url)
        try:
            with _asked(address.slot), connected(address.dsn, _SETTINGS) as database:
                confirmed = confirmed_position(database, address.slot)
        except SlotFault as found:
            return found.fault
        if position is None or confirmed <= position:
            return None
        begins = f"its replication slot {address.slot} begins at {lsn_text(confirmed)}"
        read = f"and the statement has read up to {lsn_text(position)}"
        why = f"has lost changes in {short_size(confirmed - position)} of the database's log: {begins}, {read}"
        return TableFault(TableFaultKind.LOG_GONE, why, NEW_SLOT)

    def advance(self, table: TableName, url: str, positions: Collection[int | None], *, in_use: bool) -> None:
        """Advance a slot to the lowest committed position of its readers, so that the database can delete older log.

        `positions` are the readers' committed positions. If one is None, the slot is not advanced. Positions before the
        slot are ignored, because such readers can never continue. A heartbeat is written once per `HEARTBEAT_B` of log,
        so that readers advance even without changes. If a running reader uses the slot (`in_use`), the slot is advanced
        before its idle timeout, even if only to its current position, because PostgreSQL 18 does not count reading a
        copy as use. Raises SlotFault, and TryAgain if the database does not answer.
        """
        address = read_address(url)
        with _asked(table), connected(address.dsn, _SETTINGS) as database:
            confirmed, state = confirmed_position(database, address.slot), _state_of(database, address.slot)
            end = state.end if state is not None else log_end(database)
            lowest = min((each for each in positions if each is not None and each >= confirmed), default=confirmed)
            if (None not in positions and lowest > confirmed) or (in_use and state is not None and _is_idle(state)):
                to = confirmed if None in positions else lowest
                values = (address.slot, lsn_text(to))
                database.execute("SELECT pg_replication_slot_advance(%s, %s::text::pg_lsn)", values)
            if end - max(lowest, self._beats.get(address.slot, 0)) > HEARTBEAT_B:
                database.execute("SELECT pg_logical_emit_message(true, %s, '')", (HEARTBEAT_PREFIX,))
                self._beats[address.slot] = end


def _state_of(database: Any, slot: str) -> SlotState | None:
    """Return the state of a slot; None if it is missing or lost."""
    found = database.execute(_STATE, (slot,))
    row = found.fetchone()
    return None if row is None else SlotState(slot, **dict(zip([c.name for c in found.description], row, strict=True)))


def _is_idle(state: SlotState) -> bool:
    idle_s = 0.0 if state.idle_since is None else state.now - state.idle_since
    return bool(state.idle_limit_s) and idle_s > state.idle_limit_s / 4


def position_of(text: str, ordinal: int) -> int | None:
    """Return the position of a source from an offsets file; None if the source has no position."""
    lines = text.split("\n")[2:]
    found = json.loads(lines[ordinal]) if ordinal < len(lines) and lines[ordinal].startswith("{") else {}
    return int(found["lsn"]) if "lsn" in found else None


def create_slot(table: TableName, url: str) -> bool:
    """Create a slot unless it exists; return whether it was created. A slot that the database has lost is replaced.

    PostgreSQL first waits until all open transactions have ended. Raises TryAgain if that takes too long.
    """
    address = read_address(url)
    with _asked(table), connected(address.dsn, f"-c statement_timeout={CREATED_S}s") as database:
        try:
            confirmed_position(database, address.slot)
            return False
        except ChangeStreamError as error:
            if error.error_class == SLOT_LOST:
                database.execute("SELECT pg_drop_replication_slot(%s)", (address.slot,))
            elif error.error_class != SLOT_MISSING:
                raise
        if not _created(database, address):
            why = f"the slot of {table} was not created within {CREATED_S} s: a transaction in the database is open"
            raise TryAgain(why, remedy="end it (SELECT pid, xact_start, query FROM pg_stat_activity), and try again")
    return True


def _created(database: Any, address: ChangeAddress) -> bool:
    from psycopg.errors import QueryCanceled

    # The first two `false`: neither temporary nor for two-phase commits. Before PostgreSQL 17, there is no argument for
    # failover.
    more = ", false, false, true" if address.failover else ""
    try:
        database.execute(f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{more})", (address.slot,))
    except QueryCanceled:
        return False
    return True


def drop_slot(table: TableName, url: str) -> bool:
    """Drop a slot, and return whether it existed. Raises TryAgain while it is in use."""
    address = read_address(url)
    sql = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
    with _asked(table), connected(address.dsn, _SETTINGS) as database:
        return bool(database.execute(sql, (address.slot,)).fetchall())


def drop_command(dsn: str, slot: str) -> str:
    """Return the command with which an operator drops a slot."""
    return f"psql '{dsn}' -c \"SELECT pg_drop_replication_slot('{slot}')\""


_STRAY = """SELECT slot_name::text, (pg_current_wal_lsn() - restart_lsn)::int8 FROM pg_replication_slots
WHERE slot_name LIKE 'headgate\\_%%' AND slot_name <> ALL (%s) AND NOT temporary
AND database = current_database() AND pg_current_wal_lsn() - restart_lsn > %s ORDER BY slot_name"""


def stray_slots(ddl: TableDdl, known: Collection[str]) -> tuple[tuple[str, str, int], ...]:
    """Return other environments' slots in a table's database as (connection string, name, bytes of log kept).

    Only slots that keep much log are returned; heartbeats advance every slot that an agent maintains. Raises the errors
    of `drop_slot`.
    """
    address = read_address(change_address(with_slot(ddl, "none")))
    with _asked(ddl.table), connected(address.dsn, _SETTINGS) as database:
        found = database.execute(_STRAY, (list(known), 4 * HEARTBEAT_B)).fetchall()
    return tuple((address.dsn, name, kept) for name, kept in found)


def fault_of_changes(ddl: TableDdl) -> TableFault | None:
    """Return why a declared table's changes cannot be read; None if they can. The table's slot is not checked.

    Raises TryAgain if the database does not answer, and Refused if the client library is not installed.
    """
    address = read_address(change_address(with_slot(ddl, "none")))
    with _asked(ddl.table), connected(address.dsn, _SETTINGS) as database:
        fault = _fault_of_server(ddl.table, database) or _fault_of_publication(ddl, address, database)
        version = database.info.server_version
    if fault is None and address.failover and version < FAILOVER_SINCE:
        why = f"{ddl.table} has failover, and the database is PostgreSQL {version // 10_000}"
        return TableFault(TableFaultKind.GONE, why, f"remove failover, or use PostgreSQL {FAILOVER_SINCE // 10_000}")
    if fault is None and address.snapshot:
        return database_fault(replace(ddl, columns=tuple(c for c in ddl.columns if not c.name.startswith("_"))))
    return fault


_SERVER = """SELECT current_setting('wal_level'), current_user, rolreplication OR rolsuper
FROM pg_roles WHERE rolname = current_user"""
_PUBLICATION = """SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = %s"""
_PUBLISHED = """SELECT attnames::text[] FROM pg_publication_tables
WHERE pubname = %s AND schemaname || '.' || tablename = %s"""
_LARGE = """SELECT attname::text FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND relreplident <> 'f'
AND attstorage IN ('x', 'e') AND atttypid <> 'numeric'::regtype AND (atttypmod < 0 OR atttypmod > 500)"""


def _fault_of_server(table: TableName, database: Any) -> TableFault | None:
    level, user, may_replicate = database.execute(_SERVER).fetchone()
    if level != "logical":
        why = f"{table}: the database has wal_level = {level}"
        return TableFault(TableFaultKind.GONE, why, "ALTER SYSTEM SET wal_level = logical, and restart the database")
    if not may_replicate:
        why = f"{table}: {user} may not read the log of the database"
        return TableFault(TableFaultKind.GONE, why, f"ALTER ROLE {user} REPLICATION")
    return None


def _fault_of_publication(ddl: TableDdl, address: ChangeAddress, database: Any) -> TableFault | None:
    name, table = address.publication, address.table
    found = database.execute(_PUBLICATION, (name,)).fetchone()
    if found is None:
        made = f"CREATE PUBLICATION {name}{f' FOR TABLE {table}' if table else ''}"
        why = f"{ddl.table}: the database has no publication {name}"
        return TableFault(TableFaultKind.GONE, why, f"{made}; changes from before it cannot be read")
    if not table:
        return None
    if not found[0]:
        why = f"{ddl.table}: the publication {name} leaves out some kinds of changes"
        remedy = f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
        return TableFault(TableFaultKind.COLUMNS_CHANGED, why, remedy)
    published = database.execute(_PUBLISHED, (name, table)).fetchone()
    if published is None:
        why = f"{ddl.table}: the publication {name} does not contain {table}"
        return TableFault(TableFaultKind.GONE, why, f"ALTER PUBLICATION {name} ADD TABLE {table}, if it exists")
    declared = [column.name.lower() for column in ddl.columns if not column.name.startswith("_")]
    if lacks := [column for column in declared if column not in published[0]]:
        why = f"{ddl.table}: {table} has no published column {lacks[0]}"
        return TableFault(TableFaultKind.COLUMNS_CHANGED, why, f"remove it from the DDL, or add it to {table}")
    return None


def large_columns(ddl: TableDdl) -> tuple[str, ...]:
    """Return the declared columns that the log can lack after an UPDATE of other columns.

    PostgreSQL stores large values of these columns separately. There are none with REPLICA IDENTITY FULL.
    """
    address = read_address(change_address(with_slot(ddl, "none")))
    declared = {column.name.lower() for column in ddl.columns}
    with _asked(ddl.table), connected(address.dsn, _SETTINGS) as database:
        return tuple(name for (name,) in database.execute(_LARGE, (address.table,)).fetchall() if name in declared)


_KEY_NOT_LOGGED = """SELECT relreplident = 'f' AND NOT EXISTS (
    SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary
), ARRAY(
    SELECT attname::text FROM pg_attribute JOIN pg_index ON indrelid = attrelid AND indisprimary
    WHERE attrelid = pg_class.oid AND attnum = ANY (indkey) AND relreplident = 'i' AND NOT EXISTS (
        SELECT FROM pg_index AS logged WHERE logged.indrelid = attrelid AND logged.indisreplident
        AND attnum = ANY (logged.indkey)
    ) ORDER BY attnum
) FROM pg_class WHERE pg_class.oid = to_regclass(%s)"""


def risk_of_key(ddl: TableDdl) -> tuple[str, str] | None:
    """Return why changes do not show which row had a key before, and a remedy; None if they do."""
    address = read_address(change_address(with_slot(ddl, "none")))
    with _asked(ddl.table), connected(address.dsn, _SETTINGS) as database:
        found = database.execute(_KEY_NOT_LOGGED, (address.table,)).fetchone()
    if found is None or not any(found):
        return None
    if found[1]:
        lacks = f"the replica identity of {address.table} lacks {', '.join(found[1])}, which is NULL in a DELETE"
        remedy = f"ALTER TABLE {address.table} REPLICA IDENTITY DEFAULT"
    else:
        lacks, remedy = f"{address.table} has no primary key", f"ALTER TABLE {address.table} ADD PRIMARY KEY (…)"
    return f"{ddl.table}: {lacks}, and a keyed table keeps the row of a key that an UPDATE changes", remedy


@dataclass(slots=True)
class _Count:
    mine: int
    all: int
    last: int | None
    first_us: int | None


def _lag(database: Any, address: ChangeAddress, table: TableName, start: int, end: int) -> SourceLag:
    count = _pending(database, address, start)
    rows, exact = count.mine, count.all < COUNTED
    if not exact and count.last is not None and count.last > start:
        rows = int(count.mine * (end - start) / (count.last - start))
    now = time.time()
    return SourceLag(
        table=table,
        files=rows,
        bytes=0,
        rows=rows,
        exact=exact,
        oldest_s=max(0.0, now - count.first_us / 1e6) if rows and count.first_us is not None else None,
        topics=True,
        wal_bytes=max(0, end - start),
    )


def _rows_pending(database: Any, table: str) -> dict[str, Any]:
    (rows,) = database.execute("SELECT reltuples::int8 FROM pg_class WHERE oid = to_regclass(%s)", (table,)).fetchone()
    return {"files": max(rows, 0), "rows": None if rows < 0 else rows, "exact": False, "oldest_s": None}


def _pending(database: Any, address: ChangeAddress, start: int) -> _Count:
    sql = _PENDING.format(mine=_OF_TABLE if address.table else _OF_PREFIX, messages=_MESSAGES)
    with temporary_copy(database, address.slot, start) as copy:
        values = {"copy": copy, "publication": f'"{address.publication}"'}
        values |= {"table": address.table} if address.table else {"prefix": address.prefix}
        mine, all, last, first = database.execute(sql, values).fetchone()
    first_us = None if first is None else struct.unpack(">q", bytes(first))[0] + EPOCH_US
    return _Count(mine, all, last, first_us)


@contextmanager
def _asked(who: str) -> Iterator[None]:
    try:
        yield
    except DatabaseLost as error:
        remedy = "check that it runs, its address, user and dbname, and ~/.pgpass"
        raise TryAgain(f"{who}: {error.why}", remedy=remedy) from error
    except ChangeStreamError as error:
        if error.error_class == NO_CLIENT:
            remedy = "pip install 'headgate[postgres]', then headgate down --keep-pool and headgate up"
            raise Refused(f"{who} cannot be checked: {error.why}", remedy=remedy) from error
        if error.error_class in _SLOT_FAULTS:
            raise SlotFault(error.error_class) from error
        raise TryAgain(f"{who}: {error.why}", remedy="correct that in the database") from error


_SLOT_FAULTS = {
    SLOT_MISSING: (
        TableFaultKind.GONE, "has no replication slot any more: it was dropped after its last reader, or by hand",
        Bound.SLOT_GONE,
    ),
    SLOT_LOST: (
        TableFaultKind.LOG_GONE, "has lost changes: the database has deleted log that they were in", Bound.LOG_GONE,
    ),
    SLOT_AHEAD: (
        TableFaultKind.LOG_GONE, "has lost changes: its replication slot begins after them", Bound.SLOT_MOVED,
    ),
}  # fmt: skip
"""By error class: the kind of fault, a clause that follows the name of the external table, and what lost the position.
"""
