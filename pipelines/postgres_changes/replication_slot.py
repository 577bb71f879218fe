"""Reads a logical replication slot through a temporary copy, without advancing the slot itself.

Reading a slot directly would lock it, and could only begin at the slot's own position. A copy is created in 2 ms, locks
nothing, can begin at any later position, and is dropped with its connection (PostgreSQL 18).
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

CONNECT_S = 5
"""Longest wait for a connection, in seconds."""

UNANSWERED_MS = 20_000
"""Time, in milliseconds, after which a connection whose data the database's machine does not acknowledge is lost."""

SLOT_MISSING, SLOT_LOST, SLOT_AHEAD = "HEADGATE_SLOT_MISSING", "HEADGATE_SLOT_LOST", "HEADGATE_SLOT_AHEAD"
UNCHANGED_VALUE, NO_FREE_SLOT = "HEADGATE_UNCHANGED_VALUE", "HEADGATE_NO_FREE_SLOT"
TRUNCATED, COLUMN_GONE, REPLACED = "HEADGATE_TRUNCATED", "HEADGATE_COLUMN_GONE", "HEADGATE_CHANGES_REPLACED"
NO_CLIENT, REFUSED, LOST = "HEADGATE_NO_PSYCOPG", "HEADGATE_CHANGES_REFUSED", "HEADGATE_DATABASE_LOST"

SESSION = (
    "-c datestyle=ISO -c intervalstyle=iso_8601 -c timezone=UTC -c bytea_output=hex -c extra_float_digits=1"
    " -c xmlbinary=base64"
)
"""Settings that determine how values are formatted, so that a repeated batch returns the same text."""

# The numbers are the letters B, C, D, I, M and U, the first bytes of pgoutput messages.
PLUGIN = "'proto_version', '1', 'publication_names', %(publication)s, 'messages', 'true'"
_SLOT = """SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::int8, coalesce(wal_status, ''),
    datoid = (SELECT oid FROM pg_database WHERE datname = current_database())
FROM pg_get_replication_slots() WHERE slot_name = %s"""
"""Query for the state of a slot. It calls a function, because a new session reads 250 blocks of the catalog to plan the
view pg_replication_slots, and only 40 to plan the function (PostgreSQL 18)."""


class ChangeStreamError(Exception):
    """An error whose message begins with an error class in brackets, for which Headgate knows a remedy."""

    def __init__(self, error_class: str, why: str) -> None:
        super().__init__(f"[{error_class}] {why}")
        self.error_class, self.why = error_class, why


class DatabaseLost(ChangeStreamError):
    """Raised if the database cannot be reached or closes the connection."""


@contextmanager
def connected(dsn: str, settings: str = SESSION) -> Iterator[Any]:
    """Yield a connection in autocommit mode. Raises ChangeStreamError for errors of the database."""
    try:
        import psycopg
    except ImportError as error:
        raise ChangeStreamError(NO_CLIENT, "the package psycopg is not installed") from error
    try:
        given: dict[str, Any] = {"connect_timeout": CONNECT_S, "client_encoding": "utf8", "options": settings}
        given["tcp_user_timeout"] = UNANSWERED_MS
        with closing(psycopg.connect(dsn, autocommit=True, **given)) as database:
            yield database
    except psycopg.Error as error:
        why = str(error).strip().partition("\n")[0] or "it gave no reason"
        # SQLSTATE classes: 08 is a connection error, 57P a shutdown. A connection that could not be opened has no code.
        if isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08").startswith(("08", "57P")):
            raise DatabaseLost(LOST, f"the database does not answer: {why}") from error
        raise ChangeStreamError(REFUSED, f"the database refuses: {why}") from error


def log_end(database: Any) -> int:
    """Return the end of the database's log."""
    return int(database.execute("SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()[0])


def confirmed_position(database: Any, slot: str) -> int:
    """Return a slot's confirmed position, before which it has no changes.

    Raises ChangeStreamError if the slot is missing or was lost.
    """
    found = database.execute(_SLOT, (slot,)).fetchone()
    if found is None or not found[2]:
        raise ChangeStreamError(SLOT_MISSING, f"the replication slot {slot} does not exist")
    if found[1] == "lost":
        raise ChangeStreamError(SLOT_LOST, f"the database has deleted a part of its log that the slot {slot} needed")
    return int(found[0])


@contextmanager
def temporary_copy(database: Any, slot: str, start: int | None = None) -> Iterator[str]:
    """Yield the name of a temporary copy of a slot, which begins at `start` or, by default, at the slot's position.

    Raises ChangeStreamError if the slot begins after `start`, because it was recreated or advanced by another program.
    """
    import psycopg

    confirmed = confirmed_position(database, slot)
    if start is not None and confirmed > start:
        begins = f"the replication slot {slot} begins at {lsn_text(confirmed)}"
        raise ChangeStreamError(SLOT_AHEAD, f"{begins}, and the changes since {lsn_text(start)} were not read")
    copy = f"{slot[:40]}_{os.getpid()}_{secrets.token_hex(4)}"
    try:
        database.execute("SELECT pg_copy_logical_replication_slot(%s, %s, true)", (slot, copy))
    except psycopg.errors.ConfigurationLimitExceeded as error:
        raise ChangeStreamError(NO_FREE_SLOT, "the database has no free replication slot for a reader") from error
    if start is not None and confirmed < start:
        database.execute("SELECT pg_replication_slot_advance(%s, %s::text::pg_lsn)", (copy, lsn_text(start)))
    yield copy
    database.execute("SELECT pg_drop_replication_slot(%s)", (copy,))


_FILTER = """SELECT to_jsonb(published) ->> 'rowfilter' FROM pg_publication_tables published
WHERE pubname = %s AND schemaname || '.' || tablename = %s"""
"""Query for a publication's row filter for a table; NULL before PostgreSQL 15, which has no row filters."""
_OLDEST = """SELECT (restart_lsn - '0/0'::pg_lsn)::int8,
(SELECT relkind = 'p' FROM pg_class WHERE pg_class.oid = to_regclass(%s))
FROM pg_replication_slots WHERE slot_name = %s"""


def rows_of_table(
    database: Any, *, slot: str, publication: str, table: str, columns: tuple[str, ...], exported: str
) -> tuple[int, Iterator[tuple[str | None, ...]]]:
    """Return a position before all changes in a slot, and the published rows of a table as PostgreSQL's text.

    The rows are those that the exported snapshot sees, or the current rows if that snapshot no longer exists. Rows of
    tables that inherit from the table are left out, because the log records their changes under their own names.
    """
    from psycopg import errors
    from psycopg.sql import SQL, Identifier

    lsn, is_partitioned = database.execute(_OLDEST, (table, slot)).fetchone()
    published = database.execute(_FILTER, (publication, table)).fetchone()
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    database.execute(begin)
    if exported:
        try:
            database.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(exported))
        except (errors.UndefinedObject, errors.InvalidParameterValue, errors.ObjectNotInPrerequisiteState):
            database.execute("ROLLBACK")
            database.execute(begin)
    text = SQL("COPY (SELECT {} FROM {} {} WHERE {}) TO STDOUT").format(
        SQL(", ").join(map(Identifier, columns)),
        SQL("" if is_partitioned else "ONLY"),
        SQL(".").join(map(Identifier, table.split("."))),
        SQL((published and published[0]) or "true"),
    )

    def rows() -> Iterator[tuple[str | None, ...]]:
        with database.cursor().copy(text) as copied:
            yield from copied.rows()

    return int(lsn), rows()


def lsn_text(position: int) -> str:
    """Return a position in PostgreSQL's notation, such as `0/16B3748`."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
