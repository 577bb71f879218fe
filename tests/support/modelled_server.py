"""A model of a Spark server in virtual time: as strict as a real one, with arbitrarily delayed effects and answers.

A request takes effect when it arrives, even if its sender no longer waits or is dead. The real `PoolSupervisor`,
`Session.call` and `SparkQueries` run over it; only the gRPC layer is replaced.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from virtual_primitives import VirtualFuture
from virtual_threads import Baton

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable
from core.ports.spark import QueryStart
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.session import UNTIMED_S

VERSIONED = re.compile(r"\b\w+__v\d+\b")


@dataclass(frozen=True)
class Manner:
    """How a request fares: seconds until its effect, from effect to answer, and until the effect is repeated."""

    effect_s: float = 0.02
    answer_s: float | None = 0.01
    """Seconds from the effect to the answer; None if the answer is lost."""
    again_s: float | None = None
    lost: bool = False
    """True if the request never arrives."""
    early: bool = False
    """True if the answer, which contains no data, arrives before the effect."""


@dataclass
class RunningQuery:
    """A query running on the server."""

    start: QueryStart
    id: str
    run_id: str
    began_at: float
    works_at: float
    """When its first batch is committed."""
    batch_before: int | None
    trigger_s: float
    dies: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        return self.start.name


@dataclass
class Server:
    """The modelled server and the effects of requests on it; `heard` is notified of everything that happens."""

    baton: Baton
    manners: Callable[[str, str], Manner]
    """Returns how a request fares, given its kind and subject."""
    files: Any = None
    heard: Any = None
    generation: int = 0
    alive: bool = False
    frozen_until: float = 0.0
    session_id: str = ""
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    """Queries by name."""
    gone: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Error class and message of failed queries, by run id."""
    tables: set[str] = field(default_factory=set)
    views: dict[str, str] = field(default_factory=dict)
    in_flight: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests that may still take effect, by kind and subject."""
    first_batch_s: Callable[[str], float] = field(default=lambda name: 1.5)
    refuses: dict[str, float] = field(default_factory=dict)
    """By name: the time until which starts are refused."""
    runs_begun: int = 0

    # The process.

    def begin(self) -> None:
        """Start the server, with no queries and an empty catalog."""
        self.generation += 1
        self.alive, self.session_id = True, ""
        self.queries.clear()
        self.gone.clear()
        self.tables.clear()
        self.views.clear()

    def die(self) -> None:
        """End the server's process with all its queries; pending requests can no longer succeed."""
        self.settle()
        for query in tuple(self.queries.values()):
            self._fold(query)
        self.queries.clear()
        self.alive = False
        self.heard.effect("pool dies", "", None)

    def end_query(self, name: str, error_class: str, error: str) -> None:
        """Make the query with this name fail with an error."""
        if (query := self.queries.get(name)) is not None:
            self._fold(query)
            del self.queries[name]
            self.gone[query.run_id] = (error_class, error)
            self.heard.meets("query fails")

    # Requests.

    def remote(
        self, generation: int, kind: str, subject: str, effect: Callable[[], Any], *, sending: Any = None
    ) -> Any:
        """Send a request, and wait for its answer until the deadline of the enclosing call.

        `sending` is called at the moment when the request is sent.
        """
        self.baton.point()
        self.heard.send(kind, subject, self.baton.current.lane)
        if call_deadlines.is_given_up():
            raise PoolUnreachable("the deadline passed before the call was sent")
        if not self.alive or generation != self.generation:
            self.baton.sleep(0.01)
            raise PoolUnreachable("the server refuses the connection")
        self.heard.sent(kind, subject, self.baton.current.lane)
        if sending is not None:
            sending()
        manner, answer = self.manners(kind, subject), VirtualFuture(self.baton)
        lane = self.baton.current.lane
        if not manner.lost:
            self.in_flight[kind, subject] += 1
            times = [manner.effect_s] + ([manner.effect_s + manner.again_s] if manner.again_s is not None else [])
            self.in_flight[kind, subject] += len(times) - 1
            for n, wait_s in enumerate(times):
                deliver = manner.answer_s if n == 0 else None
                self._arrive_at(self.baton.now + wait_s, (generation, kind, subject, lane), effect, answer, deliver)
        if manner.early:
            self.baton.at(self.baton.now + 0.01, lambda: answer.set_result(None))
        left = call_deadlines.remaining()
        if not answer.wait(UNTIMED_S if left is None else left):
            raise call_deadlines.MissedDeadline("the pool did not answer in time")
        self.heard.hears(kind, self.baton.current.lane)
        self.baton.point()
        return answer.result()

    def _arrive_at(
        self, moment: float, of: tuple[int, str, str, str], effect: Callable[[], Any], answer: VirtualFuture,
        answer_s: float | None,
    ) -> None:  # fmt: skip
        generation, kind, subject, lane = of

        def arrive() -> None:
            if self.alive and generation == self.generation and self.baton.now < self.frozen_until:
                self.baton.at(self.frozen_until + 0.001, arrive)
                self.heard.meets("pool is frozen")
                return
            self.in_flight[kind, subject] -= 1
            try:
                if not self.alive or generation != self.generation:
                    raise PoolUnreachable("the connection was reset")
                result, error = effect(), None
                self.heard.effect(kind, subject, lane)
            except HeadgateError as raised:
                result, error = None, raised
            if answer_s is None or answer.done_now:
                return
            tell = (lambda: answer.set_result(result)) if error is None else (lambda: answer.set_exception(error))
            self.baton.at(self.baton.now + answer_s, tell)

        self.baton.at(moment, arrive)

    # Effects; none of them blocks.

    def launch(self, start: QueryStart) -> "Handle":
        """Start a query as Spark does; refused if its name or checkpoint is in use, or if a table is missing."""
        self.settle()
        if start.name in self.queries:
            raise EngineRefused(f"a query named {start.name} is active", error_class="QUERY_NAME_TAKEN")
        if any(query.start.checkpoint == start.checkpoint for query in self.queries.values()):
            raise EngineRefused("its checkpoint is in use", error_class="CONCURRENT_QUERY")
        if self.refuses.get(start.name, 0.0) > self.baton.now:
            self.heard.meets("a start is refused")
            raise EngineRefused("cannot be resolved", error_class="UNRESOLVED_COLUMN")
        for name in sorted({start.target, *VERSIONED.findall(start.select)}):
            if name not in self.tables:
                raise EngineRefused(f"{name} cannot be found", error_class="TABLE_OR_VIEW_NOT_FOUND")
        checkpoint = self.files.opened(start.checkpoint)
        self.runs_begun += 1
        run_id = f"run-{self.runs_begun:04}"
        query = RunningQuery(
            start=start,
            id=checkpoint.id,
            run_id=run_id,
            began_at=self.baton.now,
            works_at=self.baton.now + self.first_batch_s(start.name),
            batch_before=checkpoint.batch,
            trigger_s=10.0,
        )
        self.queries[start.name] = query
        return Handle(self, self.generation, query.id, run_id, start.name)

    def stop(self, run_id: str) -> None:
        """Stop the query with this run id."""
        self.settle()
        for query in tuple(self.queries.values()):
            if query.run_id == run_id:
                del self.queries[query.name]

    def settle(self) -> None:
        """Commit all batches that have ended by now."""
        for query in self.queries.values():
            self._fold(query)

    def _fold(self, query: RunningQuery) -> None:
        if self.baton.now >= query.works_at:
            batches = int((self.baton.now - query.works_at) / query.trigger_s)
            before = -1 if query.batch_before is None else query.batch_before
            self.files.committed(query.start.checkpoint, query.start.target, before + 1 + batches, self.baton.now)

    def point(self, view: str, targets: tuple[str, ...]) -> None:
        """Point a view at tables; refused if one of them is missing."""
        for target in targets:
            if target not in self.tables:
                raise EngineRefused(f"{target} cannot be found", error_class="TABLE_OR_VIEW_NOT_FOUND")
        self.views[view] = targets[-1]


@dataclass
class Handle:
    """The part of PySpark's StreamingQuery that the agent uses."""

    server: Server
    generation: int
    id: str
    runId: str  # PySpark uses this name.
    name: str

    def stop(self) -> None:
        self.server.remote(self.generation, "stop", self.name, lambda: self.server.stop(self.runId))

    @property
    def status(self) -> Mapping[str, Any]:
        said = {"message": "Processing new data", "isTriggerActive": True}
        return self.server.remote(self.generation, "status", self.name, lambda: said)  # type: ignore[no-any-return]  # Any.

    @property
    def lastProgress(self) -> Any:  # PySpark uses this name.
        return self.server.remote(self.generation, "progress", self.name, self._progress)

    def exception(self) -> Any:
        found = self.server.remote(self.generation, "exception", self.name, lambda: self.server.gone.get(self.runId))
        return None if found is None else f"[{found[0]}] {found[1]}"

    def _progress(self) -> Any:
        found = progress_of(self.server, self.runId)
        return None if found is None else SimpleNamespace(json=json.dumps(found))


def progress_of(server: Server, run_id: str) -> Mapping[str, Any] | None:
    """Return the latest progress of a query; None before its first batch."""
    server.settle()
    found = next((query for query in server.queries.values() if query.run_id == run_id), None)
    if found is None or server.baton.now < found.works_at:
        return None
    batch = server.files.checkpoints[found.start.checkpoint].batch
    return {"batchId": batch, "timestamp": f"{server.baton.now:017.3f}", "batchDuration": 100, "sources": []}
