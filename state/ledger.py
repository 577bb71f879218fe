"""The ledger as a file: its writer, which the agent uses, and readers, which any process may open.

The writer uses WAL mode. When closed, it leaves a file in rollback-journal mode, which can be read without write access
to the folder. Readers never write, never migrate, and never hold a read transaction for longer than one method.
"""

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

from core.model.errors import LedgerUnavailable, VersionMismatch
from core.observed.versions import Deployment
from state.audit_log import AuditReads, AuditWrites
from state.measurements import MeasurementReads, MeasurementWrites
from state.migrations import APPLICATION_ID, FIRST_VERSION, SCHEMA_VERSION, migrate
from state.operator_commands import OperatorCommandWrites
from state.plans import PlanReads, PlanWrites
from state.registry import PolicyReads, PolicyWrites, RegistryReads
from state.retention import RetentionWrites
from state.row_mapping import values_by_column
from state.row_types import EnvironmentRow
from state.runs import RunReads, RunWrites
from state.transactions import RESTORE_REMEDY, insert, sqlite_errors_translated

FILE_MODE = 0o640
FOLDER_MODE = 0o2750


class Ledger(
    RetentionWrites,
    OperatorCommandWrites,
    MeasurementWrites,
    PlanWrites,
    PolicyWrites,
    RunWrites,
    AuditWrites,
):
    """The only writer of an environment's ledger, used by the agent. Thread-safe."""

    def __init__(self, path: Path, connection: sqlite3.Connection, reading: sqlite3.Connection) -> None:
        super().__init__(path, connection, reading)
        self._file = _identity(path)

    def is_in_place(self) -> bool:
        """True if the path still refers to the file that was opened, or if that cannot be checked."""
        try:
            return _identity(self.path) == self._file
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close the writer, leaving a file that can be read without write access.

        If a reader is connected, the file stays in WAL mode with an empty log, and is also readable.
        """
        with self._writing, self._reading_lock:
            self._reading.close()
            try:
                if not self.is_in_place():
                    # At this path, there is now another ledger, whose log has a matching name: SQLite would delete that
                    # log.
                    return
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._connection.execute("PRAGMA journal_mode = DELETE").fetchall()
            except sqlite3.OperationalError:
                # Nothing is lost: everything committed is in the database or in its log.
                pass
            finally:
                self._connection.close()


def create_or_open(path: Path, facts: EnvironmentRow, *, busy_s: float = 5.0) -> Ledger:
    """Open the environment's ledger for writing, after creating or migrating it if necessary.

    An existing ledger keeps its id and takes the project's name from `facts`; `facts` can add protection but not remove
    it. Raises LedgerUnavailable if the file cannot be used. Raises VersionMismatch if the schema is newer than this
    program or older than the first release, or if the ledger belongs to another project or environment.
    """
    with sqlite_errors_translated(path):
        refuse_network(path)
        if not path.exists():
            _make(path, facts)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=busy_s)
        try:
            _refuse_other(path, connection)
            _refuse_other_schema(path, connection)
            _prepare(connection)
            migrate(connection)
            _identify(path, connection, facts)
            return Ledger(path, connection, _opened(path, path))
        except BaseException:
            connection.close()
            raise


class LedgerReader(
    RegistryReads,
    MeasurementReads,
    PlanReads,
    PolicyReads,
    RunReads,
    AuditReads,
):
    """Reads a ledger whether or not an agent is running, as its owner or a member of its group; thread-safe.

    Raises LedgerUnavailable if the ledger is missing or unreadable, and VersionMismatch if its schema version differs
    from this program's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._snapshot: LedgerCopy | None = None
        self.opened = 0
        """Number of times that the file was opened; the path may have led to a different ledger each time."""
        self._file: tuple[int, int] | None = None
        self._deployed: tuple[int, tuple[Deployment, ...]] | None = None
        """The versions of all tables, including deleted ones, and the data version as of which they were read."""
        with self._connected():
            pass

    def data_version(self) -> int:
        """Return a number that changes with every write to the ledger.

        A call takes microseconds, so it can be repeated in every frame.
        """
        with self._connected() as connection:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
        return self.opened << 32 | int(version)

    def deployments(self, *, include_deleted: bool = False) -> tuple[Deployment, ...]:
        """Return the versions of all tables, as RegistryReads does; they are read again only if the ledger changed.

        A comparison of two environments reads them several times (`tests/bench/speed_tricks.py`).
        """
        # The version is read first, so that a write in between causes another reading next time.
        now, known = self.data_version(), self._deployed
        if known is None or known[0] != now:
            self._deployed = known = now, super().deployments(include_deleted=True)
        return known[1] if include_deleted else tuple([each for each in known[1] if each.drop_after is None])

    def copy_to(self, path: Path) -> None:
        """Copy a consistent snapshot of the ledger into an empty file, without leaving a log file behind."""
        with (
            self._connected() as connection,
            sqlite_errors_translated(path),
            closing(sqlite3.connect(path, isolation_level=None)) as copy,
        ):
            # All pages are copied in one step, which is one read transaction: a write between two steps would restart
            # the copy.
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()

    @contextmanager
    def frame(self) -> Iterator[Self]:
        """Run all reads of a `with` block in one snapshot.

        The block must take no longer than a screen frame, because the write-ahead log grows until the block ends.
        """
        with self._connected() as connection:
            connection.execute("BEGIN")
            try:
                yield self
            finally:
                if self._connection is connection:
                    connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file, and remove its temporary copy if there is one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            if self._snapshot is not None:
                self._snapshot.remove()
            self._connection = self._snapshot = None

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock, sqlite_errors_translated(self.path):
            try:
                yield self._current()
            except sqlite3.OperationalError:
                # The next read opens the ledger again, and copies it if it can no longer be opened.
                self.close()
                raise

    def _current(self) -> sqlite3.Connection:
        file = _identity(self.path)
        if self._connection and self._file == file and (self._snapshot is None or self._snapshot.fresh()):
            return self._connection
        self.close()
        self._file = file
        self.opened += 1
        self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        try:
            return _opened(self.path, self.path)
        except sqlite3.OperationalError as error:
            if not _readable_by_owner_only(error):
                raise
            # A killed agent left the ledger in WAL mode, and we may not write the files with which SQLite would recover
            # it.
            self._snapshot = LedgerCopy(self.path)
            return _opened(self._snapshot.path, self.path)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _opened(path: Path, shown: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if path == shown else 'rw'}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=0.25,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        _refuse_other(shown, connection)
        _refuse_other_schema(shown, connection, oldest=SCHEMA_VERSION)
        return connection
    except BaseException:
        connection.close()
        raise


def says_protected(path: Path) -> bool:
    """True if a ledger of any schema version records its environment as protected.

    Unlike LedgerReader, this accepts every schema version. Raises LedgerUnavailable if the ledger cannot be read.
    """
    return bool(_value_in(path, "SELECT max(protected) FROM facts"))


def ledger_id_of(path: Path) -> str:
    """Return the id of a ledger of any schema version. Raises LedgerUnavailable if it cannot be read."""
    return str(_value_in(path, "SELECT max(ledger_id) FROM facts") or "")


def schema_version_of(path: Path) -> int:
    """Return the schema version of a ledger. Raises LedgerUnavailable if it cannot be read."""
    return int(_value_in(path, "PRAGMA user_version"))


def _value_in(path: Path, sql: str) -> Any:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with sqlite_errors_translated(path), closing(sqlite3.connect(uri, uri=True)) as database:
        return database.execute(sql).fetchone()[0]


def _readable_by_owner_only(error: sqlite3.OperationalError) -> bool:
    return str(error.sqlite_errorname).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))


def _refuse_other_schema(path: Path, connection: sqlite3.Connection, *, oldest: int = FIRST_VERSION) -> None:
    """Raise VersionMismatch for a schema that is newer than this program, older than `oldest`, or never released."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise VersionMismatch(
            f"the ledger {path} has schema version {version}; this program supports versions up to {SCHEMA_VERSION}",
            remedy="upgrade this program to the version of the agent that wrote it",
        )
    if version < FIRST_VERSION:
        raise VersionMismatch(
            f"the ledger {path} has schema version {version}, from before the first release; "
            f"this program reads versions from {FIRST_VERSION} on",
            remedy=f"rebuild it from the data folder's records: headgate down; mv {path} {path}.old; headgate up; "
            "headgate adopt (a demo: delete its folder and run headgate demo again)",
        )
    if version < oldest:
        raise VersionMismatch(
            f"the ledger {path} has schema version {version}, written by an older agent; this program "
            f"reads version {oldest}",
            remedy="start a new agent (statements keep running): headgate down --keep-pool, then headgate up",
        )


def _refuse_other(path: Path, connection: sqlite3.Connection) -> None:
    """Raise LedgerUnavailable if the file is not a ledger. An empty file is reported as truncated."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        what = "is not a ledger" if path.stat().st_size else "is empty: it was truncated"
        raise LedgerUnavailable(f"the ledger {path} {what}", remedy=RESTORE_REMEDY)


def _make(path: Path, facts: EnvironmentRow) -> None:
    """Create a ledger under a temporary name and rename it, so that a kill leaves a complete ledger or none.

    The folder and the file get their modes regardless of the umask; SQLite gives its log files the mode of the file.
    """
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        folder.chmod(FOLDER_MODE)
    unfinished = path.with_name(f"{path.name}.new")
    for left in (unfinished, unfinished.with_name(f"{unfinished.name}-journal")):
        left.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    try:
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)
    connection = sqlite3.connect(unfinished, isolation_level=None)
    try:
        # This must precede the first table, or it would take effect only after a VACUUM.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        migrate(connection)
        _identify(path, connection, facts)
    finally:
        connection.close()
    unfinished.rename(path)


def _prepare(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    except sqlite3.OperationalError as error:
        # A full disk has no room for the write-ahead log. The file can still be read, and once there is space, it can
        # be written with its rollback journal.
        if str(error.sqlite_errorname) != "SQLITE_FULL":
            raise
    # An intent must survive a power cut before its effect is made.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _identify(path: Path, connection: sqlite3.Connection, facts: EnvironmentRow) -> None:
    found = connection.execute("SELECT project_id, environment FROM facts").fetchone()
    if found is None:
        insert(connection, "facts", {"one": 1, **values_by_column(facts, without=("pools",))})
        for pool in facts.pools:
            insert(connection, "pool", values_by_column(pool))
        return
    if found != (facts.project_id, facts.environment):
        raise VersionMismatch(
            f"the ledger {path} belongs to project {found[0]}, environment {found[1]}, "
            f"not to project {facts.project_id}, environment {facts.environment}",
            remedy="give the project its own home, or restore the id in headgate.yml",
        )
    # Files can add protection but never remove it: only a recorded policy can. On a full disk, an unchanged row must
    # not be written again.
    connection.execute(
        "UPDATE facts SET project = ?1, protected = max(protected, ?2) WHERE project <> ?1 OR protected < ?2",
        (facts.project, facts.protected),
    )


_PARTS = ("", "-wal", "-journal")


class LedgerCopy:
    """A copy of a ledger and its SQLite log files in a temporary folder, where SQLite can recover the ledger."""

    def __init__(self, origin: Path) -> None:
        self._origin = origin
        self._stamps = self._stamped()
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-ledger-"))
        self.path = self._folder / origin.name
        try:
            for part in _PARTS:
                if (source := Path(f"{origin}{part}")).exists():
                    shutil.copyfile(source, f"{self.path}{part}")
        except BaseException:
            self.remove()
            raise

    def fresh(self) -> bool:
        """True if the ledger is unchanged since the copy was made."""
        return self._stamps == self._stamped()

    def remove(self) -> None:
        """Delete the temporary folder of the copy."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _stamped(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(_stamp(Path(f"{self._origin}{part}")) for part in _PARTS)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs"}
)
_MOUNTS = Path("/proc/self/mounts")


def refuse_network(path: Path) -> None:
    """Raise LedgerUnavailable if the path is on a network file system. Only Linux can be checked."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    kind = file_system(path.resolve(), lines)
    if is_network(kind):
        raise LedgerUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite locking is unreliable",
            remedy="set HEADGATE_HOME to a folder on a local disk",
        )


def file_system(path: Path, mounts: Iterable[str]) -> str:
    """Return the file system type of an absolute path, found in the lines of /proc/mounts; empty if no line matches."""
    best, kind = -1, ""
    for line in mounts:
        parts = line.split(" ")
        if len(parts) > 2 and path.is_relative_to(place := _unescaped(parts[1])) and len(place) >= best:
            best, kind = len(place), parts[2]
    return kind


def is_network(kind: str) -> bool:
    """True for the type of a network file system, and for a FUSE type that is not known to be local."""
    name = kind.removeprefix("fuse.")
    return name in _NETWORK or (
        kind.startswith("fuse.") and name not in {"fuse-overlayfs", "ntfs-3g", "bindfs", "lxcfs"}
    )


def _unescaped(place: str) -> str:
    # The kernel writes space, tab, newline and backslash as octal.
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        place = place.replace(code, character)
    return place
