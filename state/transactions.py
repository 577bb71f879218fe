"""Base classes for reading and writing the ledger, and the conversion of SQLite errors to Headgate errors.

Every writing method is one transaction under one lock; every reading method is one statement whose rows are all
fetched.
"""

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from core.model.errors import LedgerUnavailable
from core.model.states import ALIVE, State
from state.row_mapping import BrokenRow, Row, Value, row_from_values

RESTORE_REMEDY = (
    "headgate restore puts a backup in its place; or move it away to start with an empty ledger, which has no record "
    "of what is deployed"
)
"""What to do about an unreadable ledger, which is never replaced automatically."""

_REMEDIES = (
    (
        "SQLITE_BUSY",
        "is locked by another program",
        "stop the other program that is writing to the ledger, then try again",
    ),
    (
        "SQLITE_LOCKED",
        "is locked by another program",
        "stop the other program that is writing to the ledger, then try again",
    ),
    (
        "SQLITE_FULL",
        "cannot be extended: the disk is full",
        "free space on the disk that holds the ledger, then try again",
    ),
    (
        "SQLITE_READONLY",
        "cannot be written",
        "check that you own the ledger's folder and that the disk is not read-only",
    ),
    (
        "SQLITE_CANTOPEN",
        "cannot be opened",
        "check that the agent has been started at least once and that you can read its folder",
    ),
    ("SQLITE_NOTADB", "is not a database", RESTORE_REMEDY),
    ("SQLITE_CORRUPT", "is damaged", RESTORE_REMEDY),
    ("SQLITE_IOERR", "cannot be read or written: the disk reported an error", "check the disk that holds the ledger"),
)
_OTHERWISE = ("failed", "try again; the agent's log has the details")


@contextmanager
def sqlite_errors_translated(path: Path) -> Iterator[None]:
    """Re-raise SQLite and OS errors from the block as LedgerUnavailable, with the ledger's path and a remedy.

    IntegrityError and ProgrammingError pass unchanged, since they indicate bugs in Headgate.
    """
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except sqlite3.DatabaseError as error:
        raise ledger_unavailable(path, error) from error
    except OSError as error:
        raise LedgerUnavailable(
            f"the ledger {path} cannot be reached: {error.strerror or error}",
            remedy="check the path, its owner and the disk that holds it",
        ) from error


def ledger_unavailable(path: Path, error: sqlite3.DatabaseError) -> LedgerUnavailable:
    """Convert an SQLite error to a LedgerUnavailable error with a remedy."""
    name = str(getattr(error, "sqlite_errorname", ""))
    for prefix, what, remedy in _REMEDIES:
        if name.startswith(prefix):
            return LedgerUnavailable(f"the ledger {path} {what}", remedy=remedy)
    what, remedy = _OTHERWISE
    return LedgerUnavailable(f"the ledger {path} {what}: {error}", remedy=remedy)


NEWEST_CHANGE = """SELECT max((SELECT coalesce(max(changed), 0) FROM deployment),
  (SELECT coalesce(max(changed), 0) FROM measurement))"""
"""SQL for the number of the latest change to deployments or measurements."""

MAY_RUN = ", ".join(f"'{state}'" for state in sorted({*ALIVE, State.STOPPING, State.UNKNOWN}))
"""States in which a query may exist, as an SQL list."""


def while_it_may_run(figure: str) -> str:
    """Return SQL for a column of `measurement`; NULL if no query can be running, because the value is outdated then."""
    return f"CASE WHEN d.state IN ({MAY_RUN}) THEN m.{figure} END AS {figure}"


TREND_OF_STATE = f"""CASE WHEN m.at < d.state_since AND d.state NOT IN ({", ".join(f"'{s}'" for s in sorted(ALIVE))})
  THEN 'unknown' ELSE m.trend END"""
"""SQL for the trend column.

The trend is `unknown` if the query ended after the measurement, for example by `down`.
"""


class LedgerReads(ABC):
    """Base class for readers of a ledger. Subclasses provide the connection."""

    path: Path

    @abstractmethod
    def close(self) -> None:
        """Close the ledger."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _connected(self) -> AbstractContextManager[sqlite3.Connection]:
        """Lend the connection to one thread at a time. SQLite errors are raised as LedgerUnavailable."""

    def check_integrity(self) -> None:
        """Check the integrity of the whole file. Raises LedgerUnavailable if it is damaged."""
        found = [str(line) for (line,) in self._values("PRAGMA integrity_check(1)")]
        if found != ["ok"]:
            raise LedgerUnavailable(f"the ledger {self.path} is damaged: {found[0]}", remedy=RESTORE_REMEDY)

    def _values(self, sql: str, parameters: tuple[Value, ...] = ()) -> list[tuple[Any, ...]]:
        with self._connected() as connection:
            return connection.execute(sql, parameters).fetchall()

    def _rows(self, kind: type[Row], sql: str, parameters: tuple[Value, ...] = ()) -> tuple[Row, ...]:
        with self._connected() as connection:
            cursor = connection.execute(sql, parameters)
            columns = tuple(column[0] for column in cursor.description)
            found = cursor.fetchall()
        try:
            return tuple([row_from_values(kind, columns, values) for values in found])
        except BrokenRow as error:
            raise LedgerUnavailable(f"the ledger {self.path} is damaged: {error}", remedy=RESTORE_REMEDY) from error

    def _row(self, kind: type[Row], sql: str, parameters: tuple[Value, ...] = ()) -> Row | None:
        return next(iter(self._rows(kind, sql, parameters)), None)


class LedgerWrites(LedgerReads):
    """Base class for the writer of a ledger. Its reads use a separate connection and never wait for a write."""

    def __init__(self, path: Path, connection: sqlite3.Connection, reading: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._writing = threading.Lock()
        self._reading = reading
        self._reading_lock = threading.RLock()
        (changed,) = connection.execute(NEWEST_CHANGE).fetchone()
        self._changed = int(changed)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._reading_lock, sqlite_errors_translated(self.path):
            yield self._reading

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction. Transactions cannot be nested."""
        with self._writing, sqlite_errors_translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite itself rolls back on a full disk or an I/O error.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _next_change(self) -> int:
        """Return the next change number, by which consoles find changed rows. Call this within a transaction."""
        self._changed += 1
        return self._changed


def insert(connection: sqlite3.Connection, table: str, record: Mapping[str, Value]) -> int:
    """Insert a record into a table; return its rowid."""
    columns = ", ".join(f'"{name}"' for name in record)
    marks = ", ".join("?" * len(record))
    rowid = connection.execute(f'INSERT INTO "{table}" ({columns}) VALUES ({marks})', tuple(record.values())).lastrowid
    return rowid or 0


def upsert(connection: sqlite3.Connection, table: str, record: Mapping[str, Value], key: tuple[str, ...]) -> None:
    """Insert a record into a table, or update its columns if a record with this key exists."""
    columns = ", ".join(f'"{name}"' for name in record)
    marks = ", ".join("?" * len(record))
    updates = ", ".join(f'"{name}" = excluded."{name}"' for name in record if name not in key)
    target = ", ".join(f'"{name}"' for name in key)
    connection.execute(
        f'INSERT INTO "{table}" ({columns}) VALUES ({marks}) ON CONFLICT ({target}) DO UPDATE SET {updates}',
        tuple(record.values()),
    )
