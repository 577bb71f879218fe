"""The outages of a pool as events of its environment, so that operators see one fault and not one per statement."""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from core.model.errors import LedgerUnavailable
from core.model.events import EventKind
from core.model.states import State, WantedState
from core.observed.cluster import ClusterFault
from core.observed.spark_work import ServerHeap
from core.observed.versions import Deployment
from core.text.sentence import Fact
from core.text.wording import counted, long_duration
from pipelines.agent.context import event_row
from state.ledger import Ledger
from state.row_types import EventRow

UNKNOWN_S = 15.0
"""Seconds without an answer before the states of the pool's statements are considered unknown."""


class PoolEvents:
    """Records the outages of a pool: an event at the start and an event at the end of each outage.

    The first start and a requested end are not outages. Events are kept in memory while the ledger is unavailable.
    """

    def __init__(
        self,
        ledger: Ledger,
        statements: Callable[[], Iterable[Deployment]],
        whose: str,
        monotonic: Callable[[], float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin without an outage. `statements` returns those of the pool; `whose` is its name in the events."""
        self._ledger = ledger
        self._statements = statements
        self._whose = whose
        self._monotonic = monotonic
        self._clock = clock
        self._gone_at: float | None = None
        """Start of the current outage, in monotonic seconds; None if there is no outage."""
        self._silent_at: float | None = None
        self._cluster_fault_at: float | None = None
        """When the cluster's current fault began, in monotonic seconds; None if it has none."""
        self._is_heap_short = False
        self._lost_queries = False
        """True if the pool has a new server or session since it was last up, so that all queries are lost."""
        self._pending_events: list[EventRow] = []
        self._lock = threading.Lock()

    def ended(self, what: str, detail: str = "") -> None:
        """Record that the server has ended, even if an outage is already in progress."""
        with self._lock:
            self._begin_outage(what, detail)

    def begin_outage(self, what: str) -> None:
        """Record the start of an outage, unless one is already in progress."""
        with self._lock:
            if self._gone_at is None:
                self._begin_outage(what, "")

    def record_silence(self) -> None:
        """Record an unanswered call.

        If the pool has not answered for longer than `UNKNOWN_S`, also record an outage.
        """
        with self._lock:
            now = self._monotonic()
            if self._silent_at is None:
                self._silent_at = now
            elif self._gone_at is None and now - self._silent_at > UNKNOWN_S:
                since = f"has not answered for {UNKNOWN_S:.0f} s"
                self._begin_outage(f"{self._whose} {since}: the states of its statements are unknown", "")

    def record_cluster_fault(self, fault: Fact[ClusterFault] | None) -> None:
        """Record that the cluster has another fault or, if `fault` is None, that the last one has ended."""
        with self._lock, suppress(LedgerUnavailable):
            if fault is not None:
                self._cluster_fault_at = self._monotonic() if self._cluster_fault_at is None else self._cluster_fault_at
                stop = "; no statement progresses" if fault.kind.stops_statements else ""
                self._add(f"{fault}{stop}", str(fault.remedy or ""))
            elif self._cluster_fault_at is not None:
                took = long_duration(self._monotonic() - self._cluster_fault_at)
                self._add(f"the cluster of {self._whose} works again after {took}", "")
                self._cluster_fault_at = None
            self._write_pending_events()

    def record_heap(self, heap: ServerHeap | None) -> None:
        """Record that the heap of the server became nearly full, or that it no longer is."""
        shortage = heap.shortage if heap is not None else None
        if (shortage is not None) == self._is_heap_short:
            return
        with self._lock, suppress(LedgerUnavailable):
            self._is_heap_short = shortage is not None
            ended = f"the memory of {self._whose} is no longer nearly full"
            self._add(str(shortage or ended), str(shortage.remedy or "") if shortage is not None else "")
            self._write_pending_events()

    def record_new_session(self) -> None:
        """Record that the server or session is new, so that all statements must be restarted."""
        with self._lock:
            self._lost_queries = True

    def end_outage(self) -> None:
        """Record the end of the current outage and how many statements are being restarted.

        Does nothing unless an outage is in progress.
        """
        with self._lock, suppress(LedgerUnavailable):
            if self._gone_at is not None:
                again = "is up again" if self._lost_queries else "answers again"
                took = long_duration(self._monotonic() - self._gone_at)
                self._add(f"{self._whose} {again} after {took}{self._started()}", "")
            self._gone_at = self._silent_at = None
            self._lost_queries = False
            self._write_pending_events()

    def _begin_outage(self, what: str, detail: str) -> None:
        if self._gone_at is None:
            self._gone_at = self._monotonic() if self._silent_at is None else self._silent_at
        self._add(what, detail)
        with suppress(LedgerUnavailable):
            self._write_pending_events()

    def _started(self) -> str:
        if not self._lost_queries or self._ledger.facts().doubt:
            return ""
        many = sum(
            bool(d.query_id) and d.wanted == WantedState.RUNNING and d.state not in (State.PENDING, State.FAILED)
            for d in self._statements()
        )
        verb = "is started from its checkpoint" if many == 1 else "are started from their checkpoints"
        return f"; {counted(many, 'statement')} {verb}" if many else ""

    def _add(self, what: str, detail: str) -> None:
        self._pending_events.append(event_row(self._clock(), EventKind.POOL, what, detail=detail))

    def _write_pending_events(self) -> None:
        while self._pending_events:
            self._ledger.add_event(self._pending_events[0])
            del self._pending_events[0]
