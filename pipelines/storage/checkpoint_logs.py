"""The state of checkpoints: owner, batches and positions, of which only what has changed is read again."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from core.ports.storage import CheckpointState
from pipelines.storage.file_sources import SETTLED_S
from pipelines.storage.file_store import FileStatus, FolderEntry, store_of
from pipelines.storage.file_stream_logs import newest_entry
from pipelines.storage.file_system import read_json

OWNER_FILE = "_headgate_owner"


class CheckpointLogs:
    """Reads checkpoints. A repeated call reads only logs and files that have changed, which saves requests in HDFS."""

    def __init__(self) -> None:
        self._offsets: dict[str, tuple[int, str]] = {}
        self._newest: dict[str, tuple[int, tuple[int, FolderEntry] | None]] = {}
        self._objects: dict[str, tuple[tuple[int, int, int], Mapping[str, Any]]] = {}

    def state(self, folder: str) -> CheckpointState | None:
        """Return the state of a checkpoint; None if the folder does not exist or is not a checkpoint."""
        try:
            entries = {entry.name: entry for entry in store_of(folder).entries(folder)}
            committed = self._newest_entry(f"{folder}/commits", _status(entries, "commits"))
            planned = self._newest_entry(f"{folder}/offsets", _status(entries, "offsets"))
            batch = committed[0] if committed is not None else None
            owner = self._object(entries, OWNER_FILE)
            return CheckpointState(
                id=str(self._object(entries, "metadata").get("id", "")),
                owner=str(owner.get("ledger", "")),
                epoch=int(owner.get("epoch") or 0),
                machine=str(owner.get("machine") or ""),
                run=str(owner.get("run") or ""),
                batch=batch,
                planned=planned[0] if planned is not None else None,
                committed_at=committed[1].stat().st_mtime if committed is not None else None,
                consumed={} if batch is None else _log_offsets(self.offsets(folder, batch)),
            )
        except (ValueError, FileNotFoundError, NotADirectoryError):
            return None

    def forget(self, folder: str) -> None:
        """Forget a checkpoint that was moved away."""
        self._offsets.pop(folder, None)
        for log in ("commits", "offsets"):
            self._newest.pop(f"{folder}/{log}", None)
        for name in (OWNER_FILE, "metadata"):
            self._objects.pop(f"{folder}/{name}", None)

    def consumed(self, folder: str, batch: int | None) -> Mapping[int, int]:
        """Return the log position of each source at a committed batch, by ordinal; empty if it is not readable."""
        with suppress(ValueError, FileNotFoundError):
            return {} if batch is None else _log_offsets(self.offsets(folder, batch))
        return {}

    def offsets(self, folder: str, batch: int) -> str:
        """Return the offsets file of the newest committed batch, which is read once."""
        known = self._offsets.get(folder)
        if known is None or known[0] != batch:
            known = self._offsets[folder] = (batch, text_of(f"{folder}/offsets/{batch}"))
        return known[1]

    def newest(self, folder: str) -> int | None:
        """Return the latest batch in a log folder, or None. The folder is listed again only if it has changed."""
        found = self._newest_entry(folder)
        return found[0] if found is not None else None

    def _newest_entry(self, folder: str, changed: FileStatus | None = None) -> tuple[int, FolderEntry] | None:
        """Return the latest batch with its file. `changed` is the status of the folder if that is known."""
        try:
            changed = changed or store_of(folder).stat(folder)
        except FileNotFoundError:
            return None
        known = self._newest.get(folder)
        if known is not None and known[0] == changed.st_mtime_ns:
            return known[1]
        found = newest_entry(folder)
        if time.time() - changed.st_mtime > SETTLED_S:
            self._newest[folder] = (changed.st_mtime_ns, found)
        return found

    def _object(self, entries: Mapping[str, FolderEntry], name: str) -> Mapping[str, Any]:
        """Return the JSON object in a file of a checkpoint, which is read again only if the file was replaced."""
        if (entry := entries.get(name)) is None:
            return {}
        about = entry.stat()
        mark = (about.st_ino, about.st_size, about.st_mtime_ns)
        known = self._objects.get(entry.path)
        if known is None or known[0] != mark:
            known = self._objects[entry.path] = (mark, read_json(entry.path))
        return known[1]


def text_of(path: str) -> str:
    """Read a text file."""
    return store_of(path).read(path).decode()


def _status(entries: Mapping[str, FolderEntry], name: str) -> FileStatus | None:
    entry = entries.get(name)
    return None if entry is None else entry.stat()


def _log_offsets(text: str) -> Mapping[int, int]:
    """Parse an offsets file into the log position (`logOffset`) of each source, by ordinal.

    The file has a version line, the batch's metadata, and one line per source (`-` if the source has no offset yet).
    """
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
