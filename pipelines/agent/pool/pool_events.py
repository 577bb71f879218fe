"""What is told of a pool that went away and came back: one event when that is found, one when it is up again.

A first start is no event, nor is an end that somebody asked for.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from core.model.errors import LedgerUnavailable
from core.model.events import EventKind
from core.model.states import State, WantedState
from core.text.sentence import Sentence
from core.text.wording import counted, long_duration
from state.ledger import Ledger
from state.row_types import EventRow

UNKNOWN_S = 15.0
"""A pool that has not answered for this long leaves its statements' states unknown."""


class PoolEvents:
    """Tells of one pool's outages. What a ledger does not take is kept, and told the next time."""

    def __init__(
        self, ledger: Ledger, whose: str, monotonic: Callable[[], float], clock: Callable[[], float] = time.time
    ) -> None:
        """Record no outage yet of the pool that a sentence names as `whose`."""
        self._ledger = ledger
        self._whose = whose
        self._monotonic = monotonic
        self._clock = clock
        self._gone_at: float | None = None
        """Since when it is away; None while it is not."""
        self._silent_at: float | None = None
        self._lost_queries = False
        """Whether its server or its session is a new one since it was up."""
        self._untold: list[EventRow] = []
        self._lock = threading.Lock()

    def ended(self, what: str, detail: str = "") -> None:
        """Record an end, also one that follows another."""
        with self._lock:
            self._away(what, detail)

    def away(self, what: str) -> None:
        """Record that it is away, unless that is known."""
        with self._lock:
            if self._gone_at is None:
                self._away(what, "")

    def silent(self) -> None:
        """Count a call without an answer; a silence that has lasted is an event."""
        with self._lock:
            now = self._monotonic()
            if self._silent_at is None:
                self._silent_at = now
            elif self._gone_at is None and now - self._silent_at > UNKNOWN_S:
                since = f"has not answered for {UNKNOWN_S:.0f} s"
                self._away(f"{self._whose} {since}: the states of its statements are unknown", "")

    def nothing_runs(self) -> None:
        """Note that its server or its session is a new one: what ran in the one before is started again."""
        with self._lock:
            self._lost_queries = True

    def up(self) -> None:
        """Record that it is up again, where it was away, with what is started again now."""
        with self._lock, suppress(LedgerUnavailable):
            if self._gone_at is not None:
                again = "is up again" if self._lost_queries else "answers again"
                took = long_duration(self._monotonic() - self._gone_at)
                self._add(f"{self._whose} {again} after {took}{self._started()}", "")
            self._gone_at = self._silent_at = None
            self._lost_queries = False
            self._tell()

    def _away(self, what: str, detail: str) -> None:
        if self._gone_at is None:
            self._gone_at = self._monotonic() if self._silent_at is None else self._silent_at
        self._add(what, detail)
        with suppress(LedgerUnavailable):
            self._tell()

    def _started(self) -> str:
        """Return how many statements the reconciler starts now, as a clause; empty where it starts none."""
        if not self._lost_queries or self._ledger.facts().doubt:
            return ""
        many = sum(
            bool(d.query_id) and d.wanted == WantedState.RUNNING and d.state not in (State.PENDING, State.FAILED)
            for d in self._ledger.deployments()
            if not d.external
        )
        verb = "is started from its checkpoint" if many == 1 else "are started from their checkpoints"
        return f"; {counted(many, 'statement')} {verb}" if many else ""

    def _add(self, what: str, detail: str) -> None:
        self._untold.append(
            EventRow(0, self._clock(), table="", version=0, kind=EventKind.POOL, summary=Sentence(what), detail=detail)
        )

    def _tell(self) -> None:
        while self._untold:
            self._ledger.add_event(self._untold[0])
            del self._untold[0]
