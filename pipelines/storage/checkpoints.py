"""Files of tables and checkpoints: whose they are, how far a query has come, and how far it is behind.

Spark fences nobody: a folder without our owner file, or with another's, is never moved and never started on.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.model.errors import Refused, TryAgain
from core.model.names import TableName, whole_number
from core.observed.aligned_positions import BatchHistory
from core.ports.storage import (
    CheckpointState,
    Cut,
    FolderContents,
    FolderTaken,
    OriginRows,
    SeenFile,
    SeenLog,
    SourceLag,
    VersionFolders,
)
from core.sql.log_starts import LogStart
from pipelines.storage import checkpoint_forks, table_contents
from pipelines.storage.batch_histories import BatchHistories
from pipelines.storage.file_sources import SETTLED_S, TABLE_LOG_FOLDER, TABLE_NOTE_FILE
from pipelines.storage.file_stream_logs import first_gap, local_path
from pipelines.storage.folder_moves import move_folder, remove_folder
from pipelines.storage.json_files import reachable, read_json, sync_folder, write_json
from pipelines.storage.source_lag import SourceLags

Sources = tuple[tuple[int, TableName, str, str], ...]
"""(ordinal, table, folder, format) of each."""
OWNER_FILE = "_headgate_owner"


class FileCheckpoints:
    """Implements `core.ports.storage.Checkpoints` for folders that this machine can reach; used by several threads."""

    def __init__(self, ledger: str, *, machine: str = "", epoch: int = 1) -> None:
        """Act in the name of one ledger, on one machine by its id; `epoch` counts adoptions."""
        self.ledger, self.machine, self.epoch = ledger, machine, epoch
        self._lags = SourceLags()
        self._histories = BatchHistories()
        self._tables = table_contents.TableFolders()
        self._offsets: dict[str, tuple[int, Mapping[int, int]]] = {}
        self._batches: dict[str, tuple[int, int | None]] = {}

    def prepare(self, folder: str, note: Mapping[str, Any]) -> None:
        """Create an empty folder with the owner file and note in one rename; a folder of the same run is left as it is.

        `note` names the run. A folder that another run has made and nobody has used is taken over. Raises FolderTaken
        when it was used, and Refused when somebody else's folder, or one without an owner, is in that place.
        """
        place, run = Path(folder), str(note.get("run", ""))
        with reachable(folder):
            if place.exists():
                self._check_ours(place)
                if (made_by := _made_by(place)) == run:
                    return
                if not _is_unused(place):
                    raise FolderTaken(f"{place} holds what run {made_by or 'unknown'} has written, not this one")
                write_json(place / TABLE_NOTE_FILE, note)
                write_json(place / OWNER_FILE, self._owner(run))
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = place.parent / f".{place.name}.{secrets.token_hex(4)}"
            temporary.mkdir()
            try:
                write_json(temporary / OWNER_FILE, self._owner(run))
                write_json(temporary / TABLE_NOTE_FILE, note)
                os.rename(temporary, place)
            except OSError:
                # On a full disk each try would leave one.
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            sync_folder(place.parent)

    def read(self, folder: str) -> CheckpointState | None:
        """None when there is no such folder or it cannot be read as a checkpoint."""
        with reachable(folder):
            if not os.path.isdir(folder):
                return None
            batch, planned = self._newest(f"{folder}/commits"), self._newest(f"{folder}/offsets")
            try:
                owner = read_json(f"{folder}/{OWNER_FILE}")
                return CheckpointState(
                    id=str(read_json(f"{folder}/metadata").get("id", "")),
                    owner=str(owner.get("ledger", "")),
                    epoch=int(owner.get("epoch") or 0),
                    machine=str(owner.get("machine") or ""),
                    run=str(owner.get("run") or ""),
                    batch=batch,
                    planned=planned,
                    committed_at=None if batch is None else os.stat(f"{folder}/commits/{batch}").st_mtime,
                    consumed={} if batch is None else self._consumed(folder, batch),
                )
            except (ValueError, FileNotFoundError):
                return None

    def lacks(self, folder: str) -> str:
        """Return which file of a checkpoint is missing without which Spark does not start; empty where none is."""
        with reachable(folder):
            try:
                sources = sorted(
                    entry.name for entry in os.scandir(f"{folder}/sources") if whole_number(entry.name) is not None
                )
            except FileNotFoundError:
                return ""
            for source in sources:
                if (batch := first_gap(f"{folder}/sources/{source}")) is not None:
                    return f"sources/{source}/{batch}"
            return ""

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        """Return the newest batch in a table's own record of batches (`_spark_metadata`); None where it has none."""
        with reachable(folder):
            return _newest(f"{folder}/{TABLE_LOG_FOLDER}")

    def take_over(self, folder: str, former: str = "") -> None:
        """Write this ledger, its epoch and machine into the owner file of a folder of its own or of a former ledger.

        The run stays. Raises Refused where the folder is of another.
        """
        place = Path(folder)
        with reachable(folder):
            self._check_ours(place, former)
            write_json(place / OWNER_FILE, self._owner(_made_by(place)))

    def note(self, folder: str, note: Mapping[str, Any]) -> None:
        """Write `_headgate.json` of a table folder, whole or not at all."""
        with reachable(folder):
            write_json(Path(folder) / TABLE_NOTE_FILE, note)

    def set_aside(self, folder: str, into: str) -> None:
        """Move a folder of ours into the trash; nothing when it is gone already.

        `into` is the new path; when something lies there already, the folder is put beside it. What lies on another
        file system is copied, and deleted once the copy is whole.
        """
        place, target = Path(folder), Path(into)
        with reachable(folder):
            if not place.exists():
                return
            self._check_ours(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                target = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
            move_folder(place, target)
            self._offsets.pop(folder, None)
            for log in ("commits", "offsets"):
                self._batches.pop(f"{folder}/{log}", None)

    def remove(self, folder: str) -> bool:
        """Delete a folder of ours with all below it; returns whether it was ours, also where it is gone by now.

        Its owner file goes last, so that what cannot be deleted still carries the proof. Links are not followed.
        """
        place = Path(folder)
        if place.is_symlink():
            return False
        with reachable(folder):
            if not place.exists():
                return True
            try:
                self._check_ours(place)
            except Refused:
                return False
            remove_folder(place, last=OWNER_FILE)
            return True

    def put_back(self, aside: str, folder: str) -> None:
        """Move what was set aside to where it was; nothing when it is there again already.

        Raises Refused where it is in neither place, or something else has taken its own.
        """
        place, target = Path(aside), Path(folder)
        with reachable(folder):
            if not place.exists():
                if not target.exists():
                    raise Refused(f"{place} is no longer in the trash", remedy="nothing was changed")
                self._check_ours(target)
                return
            if target.exists():
                raise Refused(f"{target} exists, and {place} would take its place", remedy="move one of them away")
            self._check_ours(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            move_folder(place, target)
            with suppress(OSError):
                # Folders of its kind and version, and the trash: an empty one carries no proof that it is ours.
                for left in place.parents[:3]:
                    left.rmdir()

    def made_beside(self, checkpoint: str) -> tuple[str, ...]:
        """List a version's first checkpoint, where it is there, and those of seams beside it, `<first>.…`, by path."""
        first = Path(checkpoint)
        with reachable(checkpoint):
            beside = first.parent.glob(f"{first.name}*") if first.parent.is_dir() else ()
            return tuple(
                sorted(str(p) for p in beside if p.is_dir() and (p == first or p.name.startswith(f"{first.name}.")))
            )

    def lag(self, checkpoint: str, sources: Sources) -> tuple[SourceLag, ...]:
        """Measure sources given as (ordinal, table, folder, format); works for stopped statements."""
        with reachable(checkpoint):
            return self._lags.measure(checkpoint, self._committed(checkpoint), sources)

    def rows(self, folder: str, format: str) -> int | None:
        """Count the rows of all files of a table; None while some are not counted, and where they never are."""
        with reachable(folder):
            return self._lags.rows(folder, format)

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        """Count the rows of the files that a written table has got since a moment.

        None where they are too many to be counted at once, or cannot be.
        """
        with reachable(folder):
            try:
                return table_contents.rows_since(folder, format, moment)
            except (FileNotFoundError, NotADirectoryError, ValueError):
                return None

    def folded_lag(self) -> dict[str, str]:
        """Return positions in logs and sums over them as JSON by key, for `unfold_lag` in the next process."""
        return self._lags.folded()

    def unfold_lag(self, folded: Mapping[str, str]) -> None:
        """Go on from what `folded_lag` gave before anything is measured."""
        self._lags.unfold(folded)

    def contents(self, folder: str, format: str) -> FolderContents | None:
        """Return size and range of all files of a table; slow for many files.

        None if the folder does not exist on this machine.
        """
        with reachable(folder):
            try:
                return self._tables.contents(folder, format)
            except ValueError as error:
                summary = f"the log of {folder} cannot be read: {error}"
                raise TryAgain(summary, remedy="check what wrote it") from error

    def gone(self, checkpoint: str, sources: Sources) -> int | None:
        """Count the files that a statement has read, and that are no longer there; None where nobody can say."""
        found = self.read(checkpoint)
        if found is None:
            return None
        with reachable(checkpoint):
            try:
                return table_contents.missing_files(checkpoint, found.consumed, sources)
            except (FileNotFoundError, ValueError):
                return None

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return what each known batch had read of so many sources, and what the table held; empty where unreadable."""
        with reachable(checkpoint):
            try:
                return self._histories.history(checkpoint, sources, local_path(folder))
            except (FileNotFoundError, ValueError):
                return BatchHistory({}, {})

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        """Return the files of batches up to `upto`, oldest first; None where the log does not say it any more."""
        with reachable(folder):
            try:
                return self._histories.files(local_path(folder), upto)
            except (FileNotFoundError, ValueError):
                return None

    def fork(self, origin: VersionFolders, copy: VersionFolders, note: Mapping[str, Any], *, rows: OriginRows) -> Cut:
        """Have a version begin after the newest committed batch of another, which may be running."""
        with reachable(copy.checkpoint):
            logged = self._has_log(copy.table)
            return checkpoint_forks.fork(self.prepare, origin, copy, note, rows, logged=logged)

    def seed(
        self,
        version: VersionFolders,
        seen: Sequence[Sequence[SeenFile] | SeenLog],
        note: Mapping[str, Any],
        *,
        batch: int | None = None,
        like: str = "",
    ) -> Cut:
        """Have a version begin as if the files of each of its sources had been read, with a batch or before all."""
        with reachable(version.checkpoint):
            query, logged = self._known_to_table(version.table, like), self._has_log(version.table)
            return checkpoint_forks.seed(
                self.prepare, version, seen, note, batch=batch, like=like, query=query, logged=logged
            )

    def why_not_from(
        self, folder: str, format: str, start: LogStart, *, takes_changes: bool, tracked: bool = False
    ) -> str:
        """Explain why a stream of a table cannot begin at a place in its log: files have no versions."""
        return f"{start.table} has no versions"

    def _has_log(self, table: str) -> bool:
        """Return whether a version's folder holds a table with a transaction log."""
        return False

    def _known_to_table(self, table: str, like: str) -> str:
        """Return the query under which a table's own record goes on; empty where it names none."""
        return ""

    def seen(self, folder: str, upto: int | None = None, *, format: str = "") -> tuple[SeenFile, ...] | SeenLog:
        """Return the files of a source, those of a table up to batch `upto` of its own record."""
        with reachable(folder):
            return checkpoint_forks.seen_files(folder, upto)

    def _owner(self, run: str) -> dict[str, Any]:
        return {"ledger": self.ledger, "machine": self.machine, "epoch": self.epoch, "run": run}

    def _check_ours(self, place: Path, former: str = "") -> None:
        try:
            owner = read_json(str(place / OWNER_FILE)).get("ledger", "")
        except ValueError:
            owner = ""
        if owner not in (self.ledger, former or self.ledger):
            raise Refused(
                f"{place} belongs to another ledger" if owner else f"{place} exists and has no owner file",
                remedy="move it away",
            )

    def _committed(self, folder: str) -> Mapping[int, int]:
        """Return the log position of each source at the newest committed batch; empty before the first."""
        batch = self._newest(f"{folder}/commits")
        with suppress(ValueError, FileNotFoundError):
            return {} if batch is None else self._consumed(folder, batch)
        return {}

    def _newest(self, folder: str) -> int | None:
        """Return the newest batch of a log, which is listed only where the folder has changed."""
        try:
            changed = os.stat(folder)
        except FileNotFoundError:
            return None
        known = self._batches.get(folder)
        if known is not None and known[0] == changed.st_mtime_ns:
            return known[1]
        found = _newest(folder)
        if time.time() - changed.st_mtime > SETTLED_S:
            self._batches[folder] = (changed.st_mtime_ns, found)
        return found

    def _consumed(self, folder: str, batch: int) -> Mapping[int, int]:
        """Return the log position of each source at a batch; the file of a batch never changes."""
        known = self._offsets.get(folder)
        if known is not None and known[0] == batch:
            return known[1]
        consumed = _log_offsets(Path(f"{folder}/offsets/{batch}").read_text("utf-8"))
        self._offsets[folder] = (batch, consumed)
        return consumed


def _made_by(place: Path) -> str:
    """Return the run that has made a folder of ours; before the owner file named it, the note did."""
    return str(
        read_json(f"{place}/{OWNER_FILE}").get("run") or read_json(f"{place}/{TABLE_NOTE_FILE}").get("run") or ""
    )


def _is_unused(place: Path) -> bool:
    """Return whether nothing but our own files lies in a folder."""
    return all(path.name in (OWNER_FILE, TABLE_NOTE_FILE) for path in place.iterdir())


def _log_offsets(text: str) -> Mapping[int, int]:
    """Read an offsets file: version, then the metadata of the batch, then one line per source, `-` for none yet."""
    lines = text.split("\n")
    if not lines[0].startswith("v"):
        raise ValueError(f"not an offset log: {lines[0][:20]!r}")
    found: dict[int, int] = {}
    for ordinal, line in enumerate(lines[2:]):
        if line.startswith("{"):
            offset = json.loads(line)
            if isinstance(offset, dict) and isinstance(offset.get("logOffset"), int):
                found[ordinal] = offset["logOffset"]
    return found


def _newest(folder: str) -> int | None:
    """Return the highest number among the batches of a log, compacted ones included."""
    try:
        with os.scandir(folder) as entries:
            found = [whole_number(entry.name.removesuffix(".compact")) for entry in entries]
    except FileNotFoundError:
        return None
    return max((number for number in found if number is not None), default=None)
