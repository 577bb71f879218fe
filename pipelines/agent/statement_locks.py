"""Locks of versions, and serial numbers that order the commands of operators.

A lock is held by one thread at a time. A command receives its serial number when it is accepted, before anything is
written, so that no stop waits for a disk.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.model.errors import Busy
from core.model.names import TableName, query_name
from core.text.sentence import Sentence
from pipelines.spark_connect.call_deadlines import MissedDeadline

Version = tuple[TableName, int]

HOLD_S = 30.0
"""Longest time, in seconds, that an action waits for the lock of a version.

It exceeds the duration of any start or stop.
"""


@dataclass(slots=True)
class _Hold:
    thread: int
    by: str
    depth: int = 1


class StatementLocks:
    """Locks of versions, and the commands that operators have given since this agent started."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holds: dict[Version, _Hold] = {}
        self._unfinished_calls: dict[Version, set[Future[Any]]] = {}
        """Pool calls that missed their deadline but may still take effect, by version."""
        self._deleting: set[Version] = set()
        self._starting: set[Version] = set()
        self._serial = 0
        self._newest_start = 0
        self._stops: dict[str, int] = {}
        """Serial number of the latest stop request, by table or, for a single version, by query name."""
        self._recorded: dict[str, int] = {}
        """Serial number of the latest stop request recorded in the ledger, by table or query name."""
        self._started: dict[str, int] = {}
        """Serial number of the latest start that was carried out, by table or query name."""

    @contextmanager
    def holding(self, *versions: Version, by: str, wait_s: float = HOLD_S) -> Iterator[None]:
        """Lock versions for a block that starts, stops or moves them; the same thread may lock them again.

        Raises Busy, with the name of the holder, after `wait_s` seconds. Versions are locked in a fixed order, so that
        threads that lock several versions never deadlock. If a call in the block misses its deadline, the versions stay
        locked until that call ends.
        """
        with ExitStack() as held:
            for version in sorted(set(versions)):
                self._take(version, by, wait_s)
                held.callback(self._release, version)
            try:
                yield
            except MissedDeadline as error:
                if error.work is not None:
                    self._block_until_done(versions, error.work)
                raise

    @contextmanager
    def deleting(self, version: Version) -> Iterator[None]:
        """Announce, for the duration of a block, that a version is being deleted.

        The block looks up the version's readers after the announcement. A start records that its reader should be
        running, and only then checks for announcements. Therefore, the delete notices the start, or the start notices
        the delete.
        """
        with self._changed:
            self._deleting.add(version)
        try:
            yield
        finally:
            with self._changed:
                self._deleting.discard(version)

    def is_being_deleted(self, version: Version) -> bool:
        """True if a step is deleting the version now."""
        with self._changed:
            return version in self._deleting

    @contextmanager
    def starting(self, version: Version) -> Iterator[None]:
        """Announce, for the duration of a block, that a locked version is being started.

        The block must contain the first and the last check for stop requests.
        """
        with self._changed:
            self._starting.add(version)
        try:
            yield
        finally:
            with self._changed:
                self._starting.discard(version)

    def is_starting(self, version: Version) -> bool:
        """True if a start is in progress that may have missed a stop, or if the outcome of a pool call is unknown."""
        with self._changed:
            return version in self._starting or version in self._unfinished_calls

    def held(self) -> frozenset[Version]:
        """Return the versions that are currently locked."""
        with self._changed:
            return frozenset(self._holds) | self._unfinished_calls.keys()

    def count_above(self, serial: int) -> None:
        """Make all future serial numbers higher than `serial`, the highest in the ledger or the emergency journal."""
        with self._changed:
            self._serial = max(self._serial, serial)

    def newest_serial(self) -> int:
        """Return the serial number of the latest command of any kind."""
        with self._changed:
            return self._serial

    def announce_stop(self, names: Iterable[str]) -> int:
        """Announce an operator's request to stop tables or versions, and return its serial number.

        This is called before the request is recorded. Starts check for announced requests.
        """
        with self._changed:
            self._serial += 1
            self._stops.update(dict.fromkeys(names, self._serial))
            return self._serial

    def announce_pending_stop(self, names: Iterable[str], serial: int) -> None:
        """Announce a stop request that an earlier agent could not record in the ledger."""
        with self._changed:
            self._stops.update({name: max(serial, self._stops.get(name, 0)) for name in names})

    def mark_stop_recorded(self, names: Iterable[str], serial: int) -> None:
        """Mark an announced stop request as recorded in the ledger."""
        with self._changed:
            self._recorded.update({name: max(serial, self._recorded.get(name, 0)) for name in names})

    def announce_start(self) -> int:
        """Return a new serial number for a command that starts statements: a start, a restart, a run or a retry."""
        with self._changed:
            self._serial += 1
            self._newest_start = self._serial
            return self._serial

    def newest_start(self) -> int:
        """Return the serial number of the latest command that starts statements."""
        with self._changed:
            return self._newest_start

    def mark_started(self, names: Iterable[str], serial: int) -> None:
        """Record that a start command for versions or whole tables was carried out.

        The start of a table ends the table's stop request.
        """
        with self._changed:
            self._started.update({name: max(serial, self._started.get(name, 0)) for name in names})

    def stops(self, version: Version) -> int:
        """Return the serial number of a version's latest stop request, to compare before and after an action."""
        with self._changed:
            return stops_of(self._stops, version)

    def all_stops(self) -> dict[str, int]:
        """Return the serial numbers of the latest stop requests, by table or query name, for `stops_of`."""
        with self._changed:
            return dict(self._stops)

    def has_unrecorded_stop(self, version: Version, *, after: int = 0) -> bool:
        """True if a stop request for the version is neither recorded in the ledger nor ended by a later start.

        Stop requests with serial numbers up to `after` are ignored.
        """
        table, name = version[0], query_name(*version)
        with self._changed:
            begun = self._started.get(name, 0)
            ended = {name: begun, table: max(begun, self._started.get(table, 0))}
            return any(
                self._stops.get(subject, 0) > max(after, since, self._recorded.get(subject, 0))
                for subject, since in ended.items()
            )

    def was_started_since(self, version: Version, serial: int) -> bool:
        """True if a version was started by a command with a serial number higher than `serial`."""
        with self._changed:
            return self._started.get(query_name(*version), 0) > serial

    def _take(self, version: Version, by: str, wait_s: float) -> None:
        me, ends_at = threading.get_ident(), time.monotonic() + wait_s
        with self._changed:
            while (why := self._why_taken(version, me)) is not None:
                left = ends_at - time.monotonic()
                if left <= 0:
                    raise Busy(f"{query_name(*version)} {why}", remedy="try again in a moment")
                self._changed.wait(left)
            hold = self._holds.get(version)
            if hold is None:
                self._holds[version] = _Hold(me, by)
            else:
                hold.depth += 1

    def _why_taken(self, version: Version, me: int) -> Sentence | None:
        if version in self._unfinished_calls:
            return Sentence("waits for the end of a call that the pool has not answered in time")
        hold = self._holds.get(version)
        return None if hold is None or hold.thread == me else Sentence(f"is held by {hold.by}")

    def _block_until_done(self, versions: Iterable[Version], work: Future[Any]) -> None:
        with self._changed:
            for version in versions:
                self._unfinished_calls.setdefault(version, set()).add(work)
        work.add_done_callback(partial(self._unblock, frozenset(versions)))

    def _unblock(self, versions: Iterable[Version], work: Future[Any]) -> None:
        with self._changed:
            left = {version: self._unfinished_calls.pop(version, set()) - {work} for version in versions}
            self._unfinished_calls.update((version, works) for version, works in left.items() if works)
            self._changed.notify_all()

    def _release(self, version: Version) -> None:
        with self._changed:
            hold = self._holds[version]
            hold.depth -= 1
            if not hold.depth:
                del self._holds[version]
                self._changed.notify_all()


def stops_of(stops: Mapping[str, int], version: Version) -> int:
    """Return the serial number of the latest stop request for a version or its table; 0 if there is none."""
    return max(stops.get(version[0], 0), stops.get(query_name(*version), 0))
