"""Files of tables and checkpoints: whose they are, how far a query has come, and how far it is behind.

Spark fences nobody: a folder without our owner file, or with another's, is never moved and never started on.
"""

import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.ports.storage import CheckpointState, FolderContents, SourceLag
from pipelines.storage import table_contents
from pipelines.storage.file_sources import TABLE_NOTE_FILE
from pipelines.storage.source_lag import SourceLags

OWNER_FILE = "_headgate_owner"


class FileCheckpoints:
    """Implements `core.ports.storage.Checkpoints` for folders that this machine can reach; used by several threads."""

    def __init__(self, ledger: str, *, host: str = "", epoch: int = 1) -> None:
        """Act in the name of one ledger; `epoch` counts take-overs."""
        self._owner = {"ledger": ledger, "host": host or socket.gethostname(), "epoch": epoch}
        self._lags = SourceLags()
        self._tables = table_contents.TableFolders()
        self._offsets: dict[str, tuple[int, Mapping[int, int]]] = {}

    def prepare(self, folder: str, note: Mapping[str, Any]) -> None:
        """Create an empty folder with the owner file and note in one rename; a folder of this ledger is left as it is.

        Raises Refused when somebody else's folder, or one without an owner, is in that place.
        """
        place = Path(folder)
        with _reachable(folder):
            if place.exists():
                self._check_ours(place)
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = place.parent / f".{place.name}.{secrets.token_hex(4)}"
            temporary.mkdir()
            _write(temporary / OWNER_FILE, self._owner)
            _write(temporary / TABLE_NOTE_FILE, note)
            os.rename(temporary, place)
            _sync_folder(place.parent)

    def read(self, folder: str) -> CheckpointState | None:
        """None when there is no such folder or it cannot be read as a checkpoint."""
        with _reachable(folder):
            if not os.path.isdir(folder):
                return None
            batch, planned = _newest(f"{folder}/commits"), _newest(f"{folder}/offsets")
            try:
                return CheckpointState(
                    id=str(_json_of(f"{folder}/metadata").get("id", "")),
                    owner=str(_json_of(f"{folder}/{OWNER_FILE}").get("ledger", "")),
                    batch=batch,
                    planned=planned,
                    committed_at=None if batch is None else os.stat(f"{folder}/commits/{batch}").st_mtime,
                    consumed={} if batch is None else self._consumed(folder, batch),
                )
            except (ValueError, FileNotFoundError):
                return None

    def note(self, folder: str, note: Mapping[str, Any]) -> None:
        """Write `_headgate.json` of a table folder, whole or not at all."""
        with _reachable(folder):
            _write(Path(folder) / TABLE_NOTE_FILE, note)

    def set_aside(self, folder: str, into: str) -> None:
        """Rename a folder of ours into the trash; nothing when it is gone already.

        `into` is the new path; when something lies there already, the folder is put beside it.
        """
        place, target = Path(folder), Path(into)
        with _reachable(folder):
            if not place.exists():
                return
            self._check_ours(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                target = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
            os.rename(place, target)
            _sync_folder(place.parent)

    def lag(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> tuple[SourceLag, ...]:
        """Measure sources given as (ordinal, table, folder, format); works for stopped statements."""
        found = self.read(checkpoint)
        consumed = found.consumed if found else {}
        with _reachable(checkpoint):
            return self._lags.measure(checkpoint, consumed, sources)

    def rows(self, folder: str, format: str) -> int | None:
        """Count the rows of all files of a table; None while some are not counted, and where they never are."""
        with _reachable(folder):
            return self._lags.rows(folder, format)

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
        with _reachable(folder):
            try:
                return self._tables.contents(folder, format)
            except ValueError as error:
                summary = f"the log of {folder} cannot be read: {error}"
                raise TryAgain(summary, remedy="check what wrote it") from error

    def gone(self, checkpoint: str, sources: tuple[tuple[int, TableName, str, str], ...]) -> int | None:
        """Count the files that a statement has read, and that are no longer there; None where nobody can say."""
        found = self.read(checkpoint)
        if found is None:
            return None
        with _reachable(checkpoint):
            try:
                return table_contents.missing_files(checkpoint, found.consumed, sources)
            except (FileNotFoundError, ValueError):
                return None

    def _check_ours(self, place: Path) -> None:
        try:
            owner = _json_of(str(place / OWNER_FILE)).get("ledger", "")
        except ValueError:
            owner = ""
        if owner != self._owner["ledger"]:
            raise Refused(
                f"{place} belongs to another ledger" if owner else f"{place} exists and has no owner file",
                remedy="move it away",
            )

    def _consumed(self, folder: str, batch: int) -> Mapping[int, int]:
        """Return the log position of each source at a batch; the file of a batch never changes."""
        known = self._offsets.get(folder)
        if known is not None and known[0] == batch:
            return known[1]
        consumed = _log_offsets(Path(f"{folder}/offsets/{batch}").read_text("utf-8"))
        self._offsets[folder] = (batch, consumed)
        return consumed


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
    try:
        with os.scandir(folder) as entries:
            return max((int(entry.name) for entry in entries if entry.name.isdigit()), default=None)
    except FileNotFoundError:
        return None


def _json_of(path: str) -> dict[str, Any]:
    """Read a JSON object; empty when there is no such file, ValueError when it holds something else."""
    try:
        text = Path(path).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def _write(path: Path, value: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _reachable(folder: str) -> Iterator[None]:
    """Raise what the file system refuses as TryAgain: a stop, a start or a figure may work a moment later."""
    try:
        yield
    except OSError as error:
        summary = f"{folder} cannot be reached: {error.strerror or error}"
        raise TryAgain(summary, remedy="mount it, or check its permissions") from error
