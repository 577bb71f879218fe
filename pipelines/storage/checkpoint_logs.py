"""The state of checkpoints: owner, batches and positions, of which only what has changed is read again."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from core.ports.storage import CheckpointState
from pipelines.storage.file_sources import SETTLED_S
from pipelines.storage.file_store import FileStatus, FolderEntry, store_of
from pipelines.storage.file_stream_logs import newest_batch
from pipelines.storage.file_system import read_json

OWNER_FILE = "_headgate_owner"


class CheckpointLogs:
    """Reads checkpoints. A repeated call reads only logs and files that have changed, which saves requests in HDFS."""

    def __init__(self) -> None:
        self._offsets: dict[str, tuple[int, Mapping[int, int]]] = {}
        self._batches: dict[str, tuple[int, int | None]] = {}
        self._commit_times: dict[str, tuple[tuple[int, int], float]] = {}
        self._objects: dict[str, tuple[tuple[int, int, int], Mapping[str, Any]]] = {}

    def state(self, folder: str) -> CheckpointState | None:
        """Return the state of a checkpoint; None if the folder does not exist or is not a checkpoint."""
        try:
            entries = {entry.name: entry for entry in store_of(folder).entries(folder)}
            commits = _status(entries, "commits")
            batch = self.newest(f"{folder}/commits", commits)
            planned = self.newest(f"{folder}/offsets", _status(entries, "offsets"))
            owner = self._object(entries, OWNER_FILE)
            return CheckpointState(
                id=str(self._object(entries, "metadata").get("id", "")),
                owner=str(owner.get("ledger", "")),
                epoch=int(owner.get("epoch") or 0),
                machine=str(owner.get("machine") or ""),
                run=str(owner.get("run") or ""),
                batch=batch,
                planned=planned,
                committed_at=None if batch is None else self._committed_at(folder, batch, commits),
                consumed={} if batch is None else self._consumed(folder, batch),
            )
        except (ValueError, FileNotFoundError, NotADirectoryError):
            return None

    def forget(self, folder: str) -> None:
        """Forget a checkpoint that was moved away."""
        self._offsets.pop(folder, None)
        self._commit_times.pop(folder, None)
        for log in ("commits", "offsets"):
            self._batches.pop(f"{folder}/{log}", None)
        for name in (OWNER_FILE, "metadata"):
            self._objects.pop(f"{folder}/{name}", None)

    def committed(self, folder: str) -> Mapping[int, int]:
        batch = self.newest(f"{folder}/commits")
        with suppress(ValueError, FileNotFoundError):
            return {} if batch is None else self._consumed(folder, batch)
        return {}

    def newest(self, folder: str, changed: FileStatus | None = None) -> int | None:
        """Return the latest batch in a log folder, or None. The folder is listed again only if it has changed.

        `changed` is its status if that is known.
        """
        try:
            changed = changed or store_of(folder).stat(folder)
        except FileNotFoundError:
            return None
        known = self._batches.get(folder)
        if known is not None and known[0] == changed.st_mtime_ns:
            return known[1]
        found = newest_batch(folder)
        if time.time() - changed.st_mtime > SETTLED_S:
            self._batches[folder] = (changed.st_mtime_ns, found)
        return found

    def _committed_at(self, folder: str, batch: int, commits: FileStatus | None) -> float:
        key = (batch, commits.st_mtime_ns if commits is not None else 0)
        known = self._commit_times.get(folder)
        if known is None or known[0] != key:
            found = store_of(folder).stat(f"{folder}/commits/{batch}").st_mtime
            known = self._commit_times[folder] = (key, found)
        return known[1]

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

    def _consumed(self, folder: str, batch: int) -> Mapping[int, int]:
        known = self._offsets.get(folder)
        if known is not None and known[0] == batch:
            return known[1]
        consumed = _log_offsets(text_of(f"{folder}/offsets/{batch}"))
        self._offsets[folder] = (batch, consumed)
        return consumed


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
