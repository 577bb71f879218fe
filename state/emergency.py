"""The emergency journal: intents that the ledger could not take, one JSON object a line, applied before anything else.

It never raises: what the disk does not take either is kept in memory until the agent ends.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EmergencyJournal:
    """An append-only file beside the ledger; safe to use from several threads of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._kept: list[dict[str, Any]] = []

    def append(self, entry: Mapping[str, Any]) -> None:
        """Keep an entry, on disk before it returns where the disk takes it."""
        line = json.dumps(dict(entry), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                self._write(line)
            except OSError:
                self._kept.append(json.loads(line))

    def drain(self) -> list[dict[str, Any]]:
        """Take all entries, oldest first; they are forgotten once this returns.

        A line that was torn by a full disk or a power cut is left out: its writer was told nothing was kept.
        """
        with self._lock:
            entries = [*self._read(), *self._kept]
            self._kept.clear()
            self._path.unlink(missing_ok=True)
            return entries

    def _write(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            size = os.fstat(descriptor).st_size
            try:
                if os.write(descriptor, line) != len(line):
                    raise OSError("the disk took a part of the line")
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    def _read(self) -> list[dict[str, Any]]:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
