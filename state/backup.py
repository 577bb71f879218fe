"""Backs up a ledger, even while the agent is writing, and restores a backup while no agent is running."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from core.model.errors import FREE_SPACE, HeadgateError, LedgerUnavailable, Refused, VersionMismatch
from core.model.events import EventKind
from core.text.sentence import Sentence
from state.audit_chain import sync_to_disk
from state.ledger import FILE_MODE, LedgerReader, create_or_open, schema_version_of
from state.migrations import FIRST_VERSION, SCHEMA_VERSION
from state.row_types import AuditRow, EnvironmentRow, EventRow
from state.transactions import sqlite_errors_translated

_LOGS = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a restore: the new epoch, and where the replaced ledger is kept."""

    epoch: int
    """The epoch of the restored ledger."""
    kept: Path | None
    """Path of the replaced ledger; None if there was none."""


def back_up(ledger: Path, into: Path) -> int:
    """Write a verified, consistent copy of a ledger to the new file `into`; return its size in bytes.

    The agent may keep writing. Raises Refused if the file exists, and LedgerUnavailable if the ledger cannot be read or
    the copy is incomplete.
    """
    if into.exists():
        raise Refused(f"{into} exists already", remedy="name a file that does not exist")
    unfinished = into.with_name(f"{into.name}.unfinished")
    with sqlite_errors_translated(into):
        try:
            _remove(unfinished)
            os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
            with LedgerReader(ledger) as reader, _full_disk_named(into):
                reader.copy_to(unfinished)
            with LedgerReader(unfinished) as copy:
                copy.check_integrity()
            sync_to_disk(unfinished)
            unfinished.rename(into)
            sync_to_disk(into.parent)
        finally:
            _remove(unfinished)
    return into.stat().st_size


def restore(
    backup: Path, ledger: Path, *, project_id: str, project: str, environment: str, actor: str, now: float
) -> Restored:
    """Replace a ledger with a backup, and keep the replaced ledger next to it; the caller must hold the agent's lock.

    The copy is migrated, verified and given a new epoch before anything is moved. Raises Refused if the file is not a
    complete ledger of this environment, and LedgerUnavailable if the disk is full or reports an error.
    """
    fresh = ledger.with_name(f"{ledger.name}.restoring")
    facts = EnvironmentRow(
        ledger_id="", project_id=project_id, project=project, environment=environment, protected=False, agent_pid=None,
        agent_started_at=None, agent_seen_at=None,
    )  # fmt: skip
    if any(Path(f"{backup}{log}").exists() for log in _LOGS):
        raise Refused(f"{backup} is open in another program", remedy="restore a file that headgate backup wrote")
    with sqlite_errors_translated(backup):
        try:
            _remove(fresh)
            # Work on a copy, because opening a file may write to it, and a refusal must change nothing.
            shutil.copyfile(backup, fresh)
            fresh.chmod(FILE_MODE)
            with create_or_open(fresh, facts) as restored:
                restored.check_integrity()
                epoch = restored.begin_epoch(above=_epoch_of(ledger))
                restored.put_agent(None, None)
                restored.add_event(
                    EventRow(
                        0,
                        now,
                        table="",
                        version=0,
                        kind=EventKind.AGENT,
                        summary=Sentence(f"restored from {backup.name}, epoch {epoch}"),
                    )
                )
                restored.add_audit(AuditRow(0, now, actor, "restore", backup.name, outcome="done"))
            sync_to_disk(fresh)
            _settle(ledger)
            kept = _keep(ledger, now) if ledger.exists() else None
            fresh.replace(ledger)
            sync_to_disk(ledger.parent)
        except HeadgateError as error:
            if _is_disk_error(error.__cause__):
                raise
            summary = error.summary.replace(str(fresh), str(backup))
            raise Refused(summary, remedy=_remedy(error, fresh, ledger)) from error
        finally:
            _remove(fresh)
    return Restored(epoch, kept)


@contextmanager
def _full_disk_named(backup: Path) -> Iterator[None]:
    """If the backup's disk is full, raise the block's error with the backup's path instead of the ledger's."""
    try:
        yield
    except LedgerUnavailable as error:
        if getattr(error.__cause__, "sqlite_errorname", "") != "SQLITE_FULL":
            raise
        raise LedgerUnavailable(f"{backup} cannot be written: the disk is full", remedy=FREE_SPACE) from error


def _is_disk_error(error: BaseException | None) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_FULL", "SQLITE_IOERR"))


def _remedy(error: HeadgateError, copy: Path, ledger: Path) -> str:
    version = schema_version_of(copy) if isinstance(error, VersionMismatch) else SCHEMA_VERSION
    if version > SCHEMA_VERSION:
        return error.remedy
    if version < FIRST_VERSION:
        return (
            "restore a newer backup, or rebuild the ledger from the data folder's records: headgate down; "
            f"mv {ledger} {ledger}.old; headgate up; headgate adopt"
        )
    return "restore a backup that headgate backup made of this environment"


def _epoch_of(ledger: Path) -> int:
    """Return the epoch of the ledger to be replaced; 0 if it is missing or cannot be read."""
    try:
        with LedgerReader(ledger) as reader:
            return reader.facts().epoch
    except HeadgateError:
        return 0


def _settle(ledger: Path) -> None:
    """Merge SQLite's log files into the ledger's file, which is then complete even if the restore is killed.

    The log files of a damaged ledger are not touched. A hard link that a killed restore left behind is removed.
    """
    for former in ledger.parent.glob(f"{ledger.name}.*.replaced"):
        if ledger.exists() and former.samefile(ledger):
            former.unlink()
    if ledger.exists():
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(ledger, isolation_level=None)) as settled:
            settled.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            settled.execute("PRAGMA journal_mode = DELETE").fetchall()


def _keep(ledger: Path, now: float) -> Path:
    """Hard-link a ledger to a second path, rename its log files to match, and return that path.

    The log files must be renamed, because SQLite applies them to any database file with the matching name.
    """
    stem = f"{ledger.name}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
    names = (ledger.with_name(f"{stem}{n}.replaced") for n in chain([""], (f".{n}" for n in count(2))))
    kept = next(name for name in names if not name.exists())
    os.link(ledger, kept)
    for log in _LOGS:
        if (found := Path(f"{ledger}{log}")).exists():
            found.rename(f"{kept}{log}")
    return kept


def _remove(path: Path) -> None:
    for part in ("", *_LOGS):
        Path(f"{path}{part}").unlink(missing_ok=True)
