"""What SQLite and the file system say, as errors that callers can decide on."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.model.errors import LedgerUnavailable

RESTORE_REMEDY = (
    "headgate restore puts a backup in its place; or move it away to start with an empty ledger, which has no record "
    "of what is deployed"
)
"""What to do about a ledger that cannot be read; none is ever made in the place of one that is there."""

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
    """Raise sqlite3 and OS errors of the block as LedgerUnavailable, naming the ledger and what to do.

    An IntegrityError or ProgrammingError is our bug and passes unchanged.
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
    """Describe what SQLite's error means for the ledger and what to do."""
    name = str(getattr(error, "sqlite_errorname", ""))
    for prefix, what, remedy in _REMEDIES:
        if name.startswith(prefix):
            return LedgerUnavailable(f"the ledger {path} {what}", remedy=remedy)
    what, remedy = _OTHERWISE
    return LedgerUnavailable(f"the ledger {path} {what}: {error}", remedy=remedy)
