"""The emergency journal: intents that the ledger could not take, one JSON object a line, applied before anything else.

It never raises: what the disk does not take either is kept in memory until the agent ends.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Appended(NamedTuple):
    """What became of an entry."""

    on_disk: bool
    """One that is only in memory is lost with this process."""
    is_new: bool
    """False where the same waits already, and is taken once for both."""


class EmergencyJournal:
    """An append-only file beside the ledger; safe to use from several threads of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._kept: list[dict[str, Any]] = []
        self._done = 0
        self._waiting: dict[str, bool] = {}
        """What waits since the last taking, without its time, and whether it is on disk."""

    def append(self, entry: Mapping[str, Any]) -> Appended:
        """Record an entry.

        What waits already, apart from its time, is not recorded again: a stop that is repeated fills no disk.
        """
        line = json.dumps(dict(entry), ensure_ascii=False, separators=(",", ":")).encode()
        same = json.dumps({**entry, "at": None}, sort_keys=True)
        with self._lock:
            if self._waiting.get(same):
                return Appended(on_disk=True, is_new=False)
            try:
                # The line break comes first too: the line before may be torn.
                self._write(b"\n" + line + b"\n")
            except OSError:
                is_new = same not in self._waiting
                if is_new:
                    self._kept.append(json.loads(line))
                self._waiting[same] = False
                return Appended(on_disk=False, is_new=is_new)
            self._waiting[same] = True
            return Appended(on_disk=True, is_new=True)

    def waits(self) -> bool:
        """Return whether there may be entries to take; cheap enough for every round."""
        return bool(self._kept) or self._path.exists()

    @contextmanager
    def taking(self) -> Iterator[list[dict[str, Any]]]:
        """Yield all entries, oldest first, and remove them once the block has ended without an exception.

        An append waits for the block. A line torn by a power cut is left out.
        """
        with self._lock:
            taken, size = self._read()
            yield [*taken, *self._kept]
            self._kept.clear()
            self._waiting.clear()
            try:
                self._path.unlink(missing_ok=True)
                self._done = 0
            except OSError:
                # A disk that has become read-only: what was taken must at least not come a second time.
                self._done = size

    def _write(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            size = os.fstat(descriptor).st_size
            try:
                if os.write(descriptor, line) != len(line):
                    raise OSError("only part of the line could be written to disk")
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    def _read(self) -> tuple[list[dict[str, Any]], int]:
        try:
            content = self._path.read_bytes()
        except OSError:
            return [], self._done
        lines = content[self._done :].split(b"\n")
        return [entry for line in lines if (entry := _entry(line)) is not None], len(content)


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
