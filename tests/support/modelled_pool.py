"""The agent's ports over a modelled server: the real `Session.call` and `SparkQueries`, without gRPC."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from modelled_server import Handle, Server, progress_of

from core.changes.spark_questions_and_answers import AnalysisAnswer, AnalysisQuestion
from core.model.errors import TryAgain
from core.ports.spark import CatalogTable, FileView, Pointer, QueryStart, ignore_view
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.session import Session
from pipelines.spark_connect.streaming_queries import SparkQueries


class ModelledSession(Session):
    """The real session with its circuit breaker, over a modelled server without gRPC."""

    server: Server

    def __init__(
        self, url: str, token: str, session_id: str, *, conf: Any = None, lost: Any = None, tls: Any = None
    ) -> None:
        self.url, self.session_id, self._lost = url, session_id, lost
        self.generation = self.server.generation
        self.breaker = call_deadlines.CircuitBreaker(self.ping)
        self.spark: Any = SimpleNamespace(streams=_Streams(self))

    def attach(self) -> None:
        """Open the session; an unknown id opens a new session, which also sees all queries."""

        def attached() -> None:
            self.server.session_id = self.session_id

        self._ask("attach", attached)

    def run_test_statement(self) -> None:
        self._ask("prove", lambda: None)

    def ping(self) -> None:
        self._ask("ping", lambda: None)

    def reader(self) -> "Session":
        return self

    def idle_limit_s(self) -> float | None:
        return None

    def close(self) -> None:
        self.breaker.close()

    def _ask(self, kind: str, effect: Callable[[], Any]) -> Any:
        return self.server.remote(self.generation, kind, "", effect)


@dataclass
class _Streams:
    session: ModelledSession

    @property
    def active(self) -> list[Handle]:
        def listed() -> list[Handle]:
            server = self.session.server
            server.settle()
            return [
                Handle(server, server.generation, query.id, query.run_id, query.name)
                for query in server.queries.values()
            ]

        return self.session._ask("list", listed)  # type: ignore[no-any-return]  # What a server answers.


class ModelledEvents:
    """Events of queries, delivered without delay."""

    def __init__(self, spark: Any) -> None:
        self._server: Server = spark.streams.session.server

    def listen(self, *, alone: bool) -> None:
        return

    def progress(self, run_id: str) -> Mapping[str, Any] | None:
        return progress_of(self._server, run_id)

    def put(self, run_id: str, progress: Mapping[str, Any]) -> None:
        return

    def silence_s(self, run_id: str) -> float:
        return 1.0

    def restart_silence(self) -> None:
        return

    def forget_other_runs(self, run_ids: frozenset[str]) -> None:
        return


class NoOpenBatches:
    """Stands in for OpenBatches, because no statement of a life replaces rows by key."""

    def __init__(self, session: Any) -> None:
        return


class ModelledQueries(SparkQueries):
    """The real port, except for the call that submits a query's plan to Spark."""

    def _launched(self, start: QueryStart) -> Any:
        session: Any = self._session
        server: Server = session.server
        lane = server.baton.current.lane
        return server.remote(
            session.generation, "start", start.name, lambda: server.launch(start),
            sending=lambda: server.heard.starting(start, lane),
        )  # fmt: skip


class ModelledTables:
    """The catalog of the modelled server."""

    def __init__(self, session: Any, reader: Any) -> None:
        self._session = session
        self._server: Server = session.server

    def _ask(self, kind: str, subject: str, effect: Callable[[], Any]) -> Any:
        return self._server.remote(self._session.generation, kind, subject, effect)

    def create_views_in(self, session: Any, select: str) -> None:
        raise AssertionError("no statement of a life calls functions of a jar")

    def create(self, name: str, ddl: str, *, exists: bool = False, columns: Mapping[str, str] | None = None) -> None:
        self._ask("create", name, lambda: self._server.tables.add(name))

    def places(self, names: Sequence[str]) -> Mapping[str, str]:
        return {}

    def create_together(self, tables: Sequence[CatalogTable]) -> frozenset[str]:
        names = frozenset(table.name for table in tables)
        self._ask("create", ",".join(sorted(names)), lambda: self._server.tables.update(names))
        return names

    def add_columns(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        self._ask("alter", name, lambda: None)

    widen_columns: Any = add_columns

    def clone(self, name: str, source: str, version: int, location: str) -> None:
        raise AssertionError("nothing is cloned in a life")

    record_batch: Any = clone

    def forget(self, name: str) -> None:
        self._ask("forget", name, lambda: self._server.tables.discard(name))

    def point(self, view: str, targets: tuple[str, ...], columns: tuple[str, ...]) -> None:
        server, lane = self._server, self._server.baton.current.lane
        server.remote(
            self._session.generation, "point", view, lambda: server.point(view, targets),
            sending=lambda: server.heard.pointing(view, targets[-1], lane),
        )  # fmt: skip

    def point_together(self, pointers: Sequence[Pointer]) -> frozenset[str]:
        def pointed() -> frozenset[str]:
            for view, targets, _ in pointers:
                if view not in self._server.views:
                    self._server.point(view, targets)
            return frozenset(view for view, targets, _ in pointers if self._server.views[view] == targets[-1])

        return self._ask("point", ",".join(view for view, _, _ in pointers), pointed)  # type: ignore[no-any-return]  # As above.

    def swap(self, pointers: Sequence[Pointer], before: Callable[[str], object] = ignore_view) -> float:
        self._ask("look", "", lambda: None)
        for view, targets, columns in pointers:
            before(view)
            self.point(view, targets, columns)
        return 0.0

    def has(self, name: str) -> bool:
        return self._ask("look", "", lambda: name in self._server.tables)  # type: ignore[no-any-return]  # As above.

    def existing_pointers(self, pointers: Sequence[Pointer]) -> frozenset[Pointer]:
        def found() -> frozenset[Pointer]:
            views = self._server.views
            return frozenset(each for each in pointers if each[0] in views and views[each[0]] == each[1][-1])

        return self._ask("look", "", found)  # type: ignore[no-any-return]  # As above.

    def unpoint(self, view: str) -> None:
        self._ask("unpoint", view, lambda: self._server.views.pop(view, None))

    def read(self, sql: str, limit: int) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        return self._ask("read", "", lambda: (("n",), ((1,),)))  # type: ignore[no-any-return]  # As above.

    def read_files(
        self, sql: str, limit: int, views: Sequence[FileView], tag: str = ""
    ) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        return self._ask("read", "", lambda: ((), ()))  # type: ignore[no-any-return]  # As above.

    def cancel_reads(self, tag: str) -> None:
        self._ask("end reads", "", lambda: None)


class ModelledAnalysis:
    """A stand-in for Spark's analysis that never finds a problem."""

    def __init__(self, session: Any) -> None:
        return

    def engine(self) -> str:
        return "4.2.0"

    def ask(self, question: AnalysisQuestion) -> AnalysisAnswer:
        raise TryAgain("Spark is silent")

    def clear(self) -> None:
        return


class NoUpkeep:
    """Stands in for table maintenance, because no table of a life has a log."""

    def __init__(self, session: Any) -> None:
        return


class ModelledLocalPool:
    """The modelled server's process, as an agent starts and watches it."""

    server: Server
    starts_s = 6.0
    ui = None

    def __init__(self, home: str, pool: Any, **more: Any) -> None:
        self.url, self.token, self.named, self.connectors = "sc://model", "", "", ()
        self.pid = None

    def alive(self) -> bool:
        return self.server.alive

    def start(self, say: Callable[[str], object]) -> None:
        self.server.baton.sleep(self.starts_s)
        self.server.begin()

    def ready(self, seconds: float) -> None:
        return

    def bound_log(self) -> None:
        return

    def last_words(self) -> str:
        return "killed"

    def end(self) -> None:
        self.server.die()
