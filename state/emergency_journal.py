"""The emergency journal: stop requests that could not be recorded in the ledger, as JSON lines.

The agent applies them before anything else. The journal never raises: requests that cannot be written to disk are kept
in memory until the agent exits. Its lock is never held during ledger access, so that new requests do not wait until
others have been applied. Each request has a serial number, so applying it twice is harmless.
"""

import json
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from core.model.errors import BadName
from core.model.names import parse_statement_name


@dataclass(frozen=True, slots=True)
class JournalledStop:
    """An operator's request to stop tables, or individual versions such as `orders@v2`."""

    serial: int
    """Serial number of the command, as in `state.operator_commands.CommandStamp`."""
    actor: str
    at: float
    names: tuple[str, ...]

    def as_line(self) -> bytes:
        entry = {"serial": self.serial, "at": self.at, "act": "stop", "by": self.actor, "tables": self.names}
        return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def request_key(self) -> tuple[str, tuple[str, ...]]:
        """The actor and the names to stop, which are equal for repetitions of the same request."""
        return self.actor, self.names


class PendingEntries(NamedTuple):
    """The pending stop requests and the unreadable lines of the journal, oldest first."""

    stops: tuple[JournalledStop, ...]
    unreadable: tuple[bytes, ...]
    """Lines that are not stop requests: torn by a power cut or edited by hand."""


class _PendingStop(NamedTuple):
    serial: int
    """Serial number of the latest repetition of the request."""
    on_disk: bool


class EmergencyJournal:
    """A file of stop requests next to the ledger; safe to use from several threads of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.unreadable_path = Path(f"{path}.unreadable")
        self._lock = threading.Lock()
        self._kept: list[JournalledStop] = []
        self._done = 0
        """Number of applied bytes that could not be removed from the file yet."""
        self.logged: set[tuple[float, str, str, str]] = set()
        """Pending stop requests that are already in the command or audit log: time, actor, name, and kind of row."""
        self._pending: dict[tuple[str, tuple[str, ...]], _PendingStop] = {}
        """Stop requests appended since the last call of `consume`."""

    def append(self, stop: JournalledStop, *, after: int) -> bool:
        """Record a stop request; return True if it is on disk, False if it would be lost when this process exits.

        A repetition of a pending request is not written again, so that repetitions do not fill the disk. A repetition
        after a start is written: `after` is the serial number of the last start.
        """
        with self._lock:
            before = self._pending.get(stop.request_key)
            repeats = before is not None and before.serial > after
            on_disk = bool(repeats and before and before.on_disk)
            if not on_disk:
                try:
                    # A line break also precedes the line, because the previous line may be torn.
                    self._write(b"\n" + stop.as_line() + b"\n")
                    on_disk = True
                except OSError:
                    if not repeats:
                        self._kept.append(stop)
            self._pending[stop.request_key] = _PendingStop(stop.serial, on_disk)
            return on_disk

    def has_pending(self) -> bool:
        """True if stop requests may be pending. This is cheap enough to call in every round of the agent."""
        with suppress(OSError):
            return bool(self._kept) or self._path.stat().st_size > self._done
        return bool(self._kept)

    def pending(self) -> PendingEntries:
        """Return the pending contents of the journal without removing them."""
        with self._lock:
            return self._read()[0]

    @contextmanager
    def consume(self) -> Iterator[PendingEntries]:
        """Yield the pending contents, and remove them if the block succeeds.

        Requests may be appended during the block.
        """
        with self._lock:
            entries, size = self._read()
            kept, pending, self._pending = len(self._kept), self._pending, {}
        try:
            yield entries
        except BaseException:
            with self._lock:
                self._pending = pending | self._pending
            raise
        with self._lock:
            del self._kept[:kept]
            self._remove(size)

    def set_aside(self, lines: tuple[bytes, ...]) -> None:
        """Append unreadable lines to a separate file, `unreadable_path`, ignoring disk errors."""
        with suppress(OSError):
            descriptor = os.open(self.unreadable_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(line + b"\n" for line in lines)

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

    def _read(self) -> tuple[PendingEntries, int]:
        """Return the pending contents of the journal, and the length of its file when it was read."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return PendingEntries(tuple(map(self._repeated, self._kept)), ()), self._done
        if len(content) < self._done:
            # Another process has truncated the file.
            self._done = 0
        lines = [line for line in content[self._done :].split(b"\n") if line.strip()]
        found = [(line, _stop(line)) for line in lines]
        stops = [stop for _, stop in found if stop is not None]
        unreadable = tuple(line for line, stop in found if stop is None)
        return PendingEntries(tuple(map(self._repeated, [*stops, *self._kept])), unreadable), len(content)

    def _repeated(self, stop: JournalledStop) -> JournalledStop:
        """Return a stop request with the serial number of its latest repetition.

        Repetitions are not written to the file.
        """
        pending = self._pending.get(stop.request_key)
        return replace(stop, serial=max(stop.serial, pending.serial)) if pending else stop

    def _remove(self, size: int) -> None:
        """Mark the first `size` bytes of the file as applied; delete the file if nothing follows them."""
        try:
            if self._path.stat().st_size > size:
                self._done = size
                return
            self._path.unlink()
            self._done = 0
        except FileNotFoundError:
            self._done = 0
        except OSError:
            # The disk has become read-only: the consumed requests must not be applied again.
            self._done = size


def _stop(line: bytes) -> JournalledStop | None:
    """Parse a line of the journal. Returns None unless `as_line` could have written exactly this line."""
    try:
        found = json.loads(line)
        match found:
            case {
                "act": "stop",
                "serial": int(serial),
                "at": int(at) | float(at),
                "by": str(actor),
                "tables": [*names],
            }:
                stop = JournalledStop(serial, actor, float(at), tuple(parse_statement_name(name) for name in names))
                whole = bool(names) and stop.serial > 0 and math.isfinite(stop.at) and bool(actor.encode())
                return stop if whole and not isinstance(serial, bool) and stop.names == tuple(names) else None
    except (BadName, ValueError, AttributeError, OverflowError, RecursionError):
        return None
    return None
