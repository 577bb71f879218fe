"""A model of table and checkpoint folders, with a real ledger and journal that fail when the life requires it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from virtual_primitives import VirtualLock
from virtual_threads import EPOCH, Baton

from core.model.errors import LedgerUnavailable, Refused, TryAgain
from core.observed.aligned_positions import BatchHistory, BatchPosition
from core.ports.storage import (
    CheckpointState,
    FolderContents,
    FolderTaken,
    OriginRows,
    SeenFile,
    SourceLag,
    StartPosition,
    VersionFolders,
)
from state.emergency_journal import EmergencyJournal
from state.ledger import Ledger

BUSY_S = 5.0
"""Seconds that SQLite waits for a lock."""


@dataclass
class ModelledCheckpoint:
    """The content of a checkpoint folder."""

    owner: str
    run: str
    epoch: int
    id: str = ""
    batch: int | None = None
    committed_at: float | None = None


@dataclass
class Disk:
    """What survives every process: folders, and the periods in which the file system refuses reads or writes."""

    baton: Baton
    checkpoints: dict[str, ModelledCheckpoint] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    """For each folder, the run that created it."""
    sink: dict[str, int] = field(default_factory=dict)
    """For each table's catalog name, the newest batch in its sink log."""
    aside: dict[str, Any] = field(default_factory=dict)
    full_until: float = 0.0
    away_until: float = 0.0
    ids: int = 0
    heard: Any = None

    def opened(self, folder: str) -> ModelledCheckpoint:
        """Open a checkpoint for a query; as in Spark, a missing one begins empty."""
        if folder not in self.checkpoints:
            self.heard.wrong("a query begins on a checkpoint that is not there", folder)
        found = self.checkpoints.setdefault(folder, ModelledCheckpoint("", "", 0))
        if not found.id:
            self.ids += 1
            found.id = f"query-{self.ids:04}"
        return found

    def committed(self, folder: str, target: str, batch: int, at: float) -> None:
        """Commit a batch in a checkpoint and in the sink log of its table."""
        found = self.checkpoints.get(folder)
        if found is not None and (found.batch is None or batch > found.batch):
            found.batch, found.committed_at = batch, at
            self.sink[target] = max(batch, self.sink.get(target, -1))


class ModelledFiles:
    """Implements `core.ports.storage.Checkpoints` for one agent; each call is a fault point, and the disk may fail."""

    def __init__(self, disk: Disk, server: Any, owner: str, *, epoch: int = 1) -> None:
        self._disk, self._server, self._owner = disk, server, owner
        self.epoch, self.machine = epoch, "machine"

    def _look(self) -> None:
        self._disk.baton.point()
        if self._disk.away_until > self._disk.baton.now:
            self._disk.heard.meets("disk is away")
            raise TryAgain("the data folder cannot be reached: Input/output error")

    def _write(self) -> None:
        self._look()
        if self._disk.full_until > self._disk.baton.now:
            self._disk.heard.meets("disk is full")
            raise TryAgain("the disk is full: No space left on device")

    def prepare(self, folder: str, note: Mapping[str, Any]) -> None:
        self._write()
        run, disk = str(note.get("run")), self._disk
        made = disk.checkpoints[folder].run if folder in disk.checkpoints else disk.tables.get(folder, run)
        if made != run:
            raise FolderTaken(f"{folder} contains data written by run {made}, not by this run")
        if "/checkpoints/" in folder:
            disk.checkpoints.setdefault(folder, ModelledCheckpoint(self._owner, run, self.epoch))
        else:
            disk.tables[folder] = run

    def read(self, folder: str) -> CheckpointState | None:
        self._look()
        self._server.settle()
        found = self._disk.checkpoints.get(folder)
        if found is None:
            return None
        batches = (found.batch, found.batch, found.committed_at)
        return CheckpointState(found.id, found.owner, *batches, {}, found.epoch, self.machine, found.run)

    def missing_checkpoint_file(self, folder: str) -> str:
        self._look()
        return ""

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        self._look()
        self._server.settle()
        return self._disk.sink.get(Path(folder).name)

    def identity(self, folder: str, format: str) -> str:
        return ""

    def columns(self, folder: str, format: str) -> None:
        return None

    def properties(self, folder: str, format: str) -> Mapping[str, str]:
        return {}

    def written_by_hand(self, folder: str, format: str) -> None:
        return None

    def source_fault(self, checkpoint: str, sources: Any, **more: Any) -> None:
        return None

    def missing_topics(self, locations: Any) -> dict[str, Any]:
        return dict.fromkeys(locations, ())

    def missing_folders(self, folders: Any) -> tuple[str, ...]:
        return ()

    def newest_message(self, location: str) -> tuple[int, float | None]:
        return 0, None

    def take_over(self, folder: str, former: str = "") -> None:
        self._write()
        if (found := self._disk.checkpoints.get(folder)) is not None:
            found.owner, found.epoch = self._owner, self.epoch

    def note(self, folder: str, note: Mapping[str, Any]) -> None:
        self._write()

    def set_aside(self, folder: str, into: str) -> None:
        self._write()
        for place in (self._disk.checkpoints, self._disk.tables):
            if folder in place:
                self._disk.aside[into] = place.pop(folder)  # type: ignore[attr-defined]  # Either of two kinds.
                self._disk.heard.moved(folder)

    def put_back(self, aside: str, folder: str) -> None:
        self._write()
        disk = self._disk
        place: dict[str, Any] = disk.checkpoints if "/checkpoints/" in folder else disk.tables
        if aside in disk.aside:
            place[folder] = disk.aside.pop(aside)
        elif folder not in place:
            raise Refused(f"{aside} is no longer in the trash")

    def checkpoints_of_version(self, checkpoint: str) -> tuple[str, ...]:
        self._look()
        there = self._disk.checkpoints
        return tuple(sorted(f for f in there if f == checkpoint or f.startswith(f"{checkpoint}.")))

    def lag(self, checkpoint: str, sources: Any) -> tuple[SourceLag, ...]:
        """Return a lag of three files per source before the first batch is committed, and of no files after that."""
        found = self.read(checkpoint)
        files = 0 if found is not None and found.batch is not None else 3
        return tuple(SourceLag(table, files, files * 100, files * 1000, True, None) for _, table, _, _ in sources)

    def rows(self, folder: str, format: str) -> int | None:
        return None

    def encoded_lag(self) -> Mapping[str, str]:
        return {}

    def restore_lag(self, encoded: Mapping[str, str]) -> None:
        return

    def is_there(self, folder: str) -> bool:
        self._look()
        return folder in self._disk.tables or folder in self._disk.checkpoints

    def has_owner(self, folder: str) -> bool:
        return self.is_there(folder)

    def file_clock(self, folder: str) -> float:
        self._write()
        return float(self._disk.baton.now)

    def contents(self, folder: str, format: str) -> FolderContents | None:
        self._look()
        there = folder in self._disk.tables or "/landing" in folder
        return FolderContents(1, 10, 10, True, EPOCH) if there else None

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        return 0

    def log_mark(self, place: str, version: int | None = None) -> None:
        return None

    def log_history(self, folder: str, format: str) -> None:
        return None

    def count_missing_inputs(self, checkpoint: str, sources: Any) -> int | None:
        return 0

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return a history in which every version has read the same input up to its newest batch."""
        found = self.read(checkpoint)
        if found is None or found.batch is None:
            return BatchHistory({}, {})
        marks = ("1:a",) * sources
        return BatchHistory({found.batch: BatchPosition(marks)}, {"1:a": (0, found.batch)})

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        self._look()
        return (f"{folder}/part-0.parquet",)

    def source_position(
        self, folder: str, upto: int | None = None, *, format: str = "", since: float | None = None
    ) -> tuple[SeenFile, ...]:
        self._look()
        return (SeenFile(f"file://{folder}/part-0.parquet", 1),)

    def create_checkpoint_after(
        self,
        version: VersionFolders,
        seen: Sequence[Any],
        note: Mapping[str, Any],
        *,
        batch: int | None = None,
        like: str = "",
    ) -> StartPosition:
        self._write()
        disk = self._disk
        found = disk.checkpoints.get(version.checkpoint)
        if found is None or not found.id:
            disk.ids += 1
            made = ModelledCheckpoint(self._owner, str(note.get("run")), self.epoch, f"query-{disk.ids:04}", batch)
            found = disk.checkpoints[version.checkpoint] = made
        return StartPosition(batch, found.id)

    def fork(
        self, origin: VersionFolders, copy: VersionFolders, note: Mapping[str, Any], *, rows: OriginRows
    ) -> StartPosition:
        self._write()
        self._server.settle()
        disk = self._disk
        if (before := disk.checkpoints.get(origin.checkpoint)) is None:
            raise Refused(f"{origin.checkpoint} is not there")
        made = disk.checkpoints.get(copy.checkpoint)
        if made is None or not made.id:
            disk.ids += 1
            made = replace(before, run=str(note.get("run")), id=f"query-{disk.ids:04}")
            disk.checkpoints[copy.checkpoint] = made
            if made.batch is not None:
                disk.sink[Path(copy.table).name] = made.batch
        return StartPosition(made.batch, made.id)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the files of a life do not model {name}")


@dataclass
class LedgerLock:
    """The periods in which the ledger's file refuses access, whichever process writes or reads it."""

    locked_until: float = 0.0
    full_until: float = 0.0
    unreadable_until: float = 0.0


class LivedLedger(Ledger):
    """A real ledger that lets other threads run before and after each transaction, and before each read."""

    baton: Baton
    lock: LedgerLock
    heard: Any
    quiet = 0

    def taken_into(self, baton: Baton, lock: LedgerLock, heard: Any) -> "LivedLedger":
        """Attach an opened ledger to a life, and return the ledger."""
        self.baton, self.lock, self.heard = baton, lock, heard
        self._writing: Any = VirtualLock(baton)
        self._reading_lock: Any = VirtualLock(baton, again=True)
        self._turn = VirtualLock(baton)
        return self

    @contextmanager
    def looked_at(self) -> Iterator["LivedLedger"]:
        """Read without switching to other threads, so that checking the rules takes no virtual time."""
        self.quiet += 1
        try:
            yield self
        finally:
            self.quiet -= 1

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        if self.quiet:
            yield self._reading
            return
        self.baton.point()
        if self.lock.unreadable_until > self.baton.now:
            raise LedgerUnavailable("the ledger cannot be read: disk I/O error")
        with super()._connected() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._turn:
            waits = min(BUSY_S, self.lock.locked_until - self.baton.now)
            if waits > 0:
                self.baton.sleep(waits)
            if self.lock.locked_until > self.baton.now:
                self.heard.meets("ledger is locked")
                raise LedgerUnavailable("the ledger is locked: database is locked")
            if self.lock.full_until > self.baton.now:
                self.heard.meets("ledger is full")
                raise LedgerUnavailable("the ledger cannot be written: database or disk is full")
            with super()._transaction() as connection:
                yield connection
        self.heard.wrote(self)
        self.baton.point()


class LivedJournal(EmergencyJournal):
    """The real journal, on a disk that can be full."""

    disk: Disk

    def _write(self, line: bytes) -> None:
        self.disk.baton.point()
        if self.disk.full_until > self.disk.baton.now:
            self.disk.heard.meets("disk is full")
            raise OSError(28, "No space left on device")
        super()._write(line)
        self.disk.baton.point()
