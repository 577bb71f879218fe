"""Exclusion per statement: one holder of each version at a time, and stops by operators, which nothing overtakes."""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from core.model.errors import Busy
from core.model.names import TableName, query_name

Version = tuple[TableName, int]

HOLD_S = 30.0
"""How long an act waits for another one on the same version: longer than a start or a stop may take."""


@dataclass(slots=True)
class _Hold:
    thread: int
    by: str
    depth: int = 1


class StatementLocks:
    """Who acts on which version, and how often operators have stopped each table, or one version of it, since this
    agent started."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holds: dict[Version, _Hold] = {}
        self._deleting: set[Version] = set()
        self._starting: set[Version] = set()
        self._stops: Counter[str] = Counter()
        self._unrecorded: Counter[str] = Counter()
        """By table, or by the name of a query where only that version is meant."""

    @contextmanager
    def holding(self, *versions: Version, by: str, wait_s: float = HOLD_S) -> Iterator[None]:
        """Hold versions for a block that starts, stops or moves them; a thread may hold one again inside.

        Raises Busy, naming who holds the version, after `wait_s`. Versions are taken in order, so that two holders of
        several never wait for each other.
        """
        with ExitStack() as held:
            for version in sorted(set(versions)):
                self._take(version, by, wait_s)
                held.callback(self._release, version)
            yield

    @contextmanager
    def deleting(self, version: Version) -> Iterator[None]:
        """Announce that a version is being deleted, before its readers are looked for.

        Who starts a reader records first that it is wanted, and looks here then: one of the two sees the other.
        """
        with self._changed:
            self._deleting.add(version)
        try:
            yield
        finally:
            with self._changed:
                self._deleting.discard(version)

    def is_being_deleted(self, version: Version) -> bool:
        """Return whether a step is deleting a version right now."""
        with self._changed:
            return version in self._deleting

    @contextmanager
    def starting(self, version: Version) -> Iterator[None]:
        """Announce that a held version is being started, from before the look for stops until after the last one."""
        with self._changed:
            self._starting.add(version)
        try:
            yield
        finally:
            with self._changed:
                self._starting.discard(version)

    def is_starting(self, version: Version) -> bool:
        """Return whether a start is under way that may not have seen a stop yet."""
        with self._changed:
            return version in self._starting

    def held(self) -> frozenset[Version]:
        """Return the versions that somebody acts on right now."""
        with self._changed:
            return frozenset(self._holds)

    def stop(self, names: Iterable[str]) -> None:
        """Announce an operator's stop, before anything is written: whoever starts a version looks here afterwards."""
        with self._changed:
            self._stops.update(names)
            self._unrecorded.update(names)

    def recorded(self, names: Iterable[str]) -> None:
        """Report that the ledger has an announced stop, or that one which waits for it stands for this one too."""
        with self._changed:
            for name in names:
                # An entry of the emergency journal that was applied in part is applied again.
                self._unrecorded[name] = max(0, self._unrecorded[name] - 1)

    def stops(self, version: Version) -> int:
        """Return how often operators have stopped a version; an act compares it before and after its effect."""
        with self._changed:
            return stops_of(self._stops, version)

    def all_stops(self) -> dict[str, int]:
        """Return how often each table, and each version by itself, was stopped, for `stops_of`."""
        with self._changed:
            return dict(self._stops)

    def has_unrecorded_stop(self, version: Version) -> bool:
        """Return whether a stop was announced that the ledger does not have yet."""
        with self._changed:
            return stops_of(self._unrecorded, version) > 0

    def _take(self, version: Version, by: str, wait_s: float) -> None:
        me, ends_at = threading.get_ident(), time.monotonic() + wait_s
        with self._changed:
            while (hold := self._holds.get(version)) is not None and hold.thread != me:
                left = ends_at - time.monotonic()
                if left <= 0:
                    raise Busy(f"{query_name(*version)} is held by {hold.by}", remedy="try again in a moment")
                self._changed.wait(left)
            if hold is None:
                self._holds[version] = _Hold(me, by)
            else:
                hold.depth += 1

    def _release(self, version: Version) -> None:
        with self._changed:
            hold = self._holds[version]
            hold.depth -= 1
            if not hold.depth:
                del self._holds[version]
                self._changed.notify_all()


def stops_of(stops: Mapping[str, int], version: Version) -> int:
    """Return how often a version was stopped: with its table, or by itself."""
    return stops.get(version[0], 0) + stops.get(query_name(*version), 0)
