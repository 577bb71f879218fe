"""Keeps the pool running: starts a server, connects to it, fills its catalog, and restarts it if it dies."""

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from core.ipc.environment_paths import GIVEN_TOKEN, EnvironmentPaths
from core.model.errors import EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable
from core.model.events import EventKind
from core.model.states import PoolState, State
from core.observed.cluster import ClusterFault
from core.observed.cluster_manager import ManagerWord
from core.observed.spark_work import ClusterFigures
from core.observed.versions import Deployment
from core.project.connectors import Connector
from core.project.model import Pool
from core.text.sentence import Fact
from pipelines.agent.context import READ_CALL_S, PoolConnection, event_row
from pipelines.agent.pool.cluster_managers import manager_of
from pipelines.agent.pool.cluster_watch import ClusterWatch, require_shared_data
from pipelines.agent.pool.pool_events import PoolEvents
from pipelines.local_pool.connect_server import LocalPool
from pipelines.local_pool.process_locks import data_lock_name
from pipelines.local_pool.standalone_master import require_master
from pipelines.spark_connect.error_translation import EngineStopped, SessionLost, TokenRefused
from pipelines.spark_connect.pool_token import PoolToken, TokenUnavailable
from pipelines.spark_connect.spark_ui import SparkUi
from state.ledger import Ledger
from state.row_mapping import Value, sqlite_value
from state.row_types import PoolRow

if TYPE_CHECKING:
    from pipelines.agent.pool.spark_connection import SparkConnection
    from pipelines.spark_connect.session import Session

log = logging.getLogger(__name__)

START_S = 90.0
"""Longest time, in seconds, that a local pool may take to start."""

TEST_EVERY_S = 10.0
"""Seconds between two tests of whether the server can run a statement.

A server that can list queries cannot necessarily run a statement.
"""

HEAP_EVERY_S = 30.0
"""Seconds between two looks at the heap of a local server."""

DATA_TEST_EVERY_S = 30.0
"""Seconds between two tests of whether the workers of a cluster share the data folder, until they do."""

TESTS_BEFORE_END = 2
"""Number of consecutive tests that must find the SparkContext stopped before the agent ends the server.

There is one test per round.
"""

SETTLES_S = 120.0
"""Seconds after opening a session during which an unresponsive pool is tolerated, because statements are starting."""

_LOST = frozenset({PoolState.SILENT, PoolState.DOWN})
"""States of a server that others manage in which it does not answer."""

MANAGED = "whoever manages the pool has to restart it"


class _Waits(PoolUnreachable):
    """Raised while the pool must not be started yet. The state of the pool in the ledger is not changed."""


class PoolSupervisor:
    """Keeps a Spark pool running, and provides connections whose calls have deadlines and a circuit breaker."""

    def __init__(
        self,
        places: EnvironmentPaths,
        pool: Pool,
        ledger: Ledger,
        restore: Callable[[PoolConnection], None],
        *,
        place: str = "",
        data: str | None = None,
        connectors: tuple[Connector, ...] = (),
        project: str = "/",
        whose: str = "",
        recorded_session: Callable[[], str] = lambda: "",
        runs_here: Callable[[Deployment], bool] = lambda found: True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Configure the pool.

        `place` is where the pool has its files, as in `Environment.place_of`. `restore` fills the catalog of a new
        connection; until then, statements can only be stopped. A local server
        writes to the folder `data` and locks it. The server is started with `connectors`, whose jars may be in the
        folder `project`. If the ledger has no session id, the result of `recorded_session` is used, unless it is empty.
        `whose` names the environment in Spark's user interface and logs. `runs_here` is True for the statements of this
        pool.
        """
        self._recorded_session, self._whose = recorded_session, whose
        self._place, self._runs_here = place, runs_here
        self._environment_home, self._home = places.home, places.of_pool(place).home
        self._restore = restore
        self._pool = pool
        self._ledger = ledger
        self._local: LocalPool | None = None
        if pool.url is None:
            lock = data_lock_name(place)
            self._local = LocalPool(self._home, pool, data=data, data_lock=lock, connectors=connectors, project=project)
        self._server = f"the server of pool {pool.name}" if place else "the pool's server"
        """How sentences name the local server: with the name of the pool if there are several."""
        whose_outages = f"the pool {pool.name}" if pool.url else self._server
        self._events = PoolEvents(ledger, self._statements_here, whose_outages, monotonic)
        self._backoff = StartBackoff(monotonic)
        self._monotonic = monotonic
        self._test_at = self._settles_at = 0.0
        self._failed_tests = 0
        """Number of consecutive tests that found the server's SparkContext stopped."""
        self._open: SparkConnection | None = None
        self._restored: SparkConnection | None = None
        """The open connection once its catalog is filled; None before that."""
        self._lock = threading.Lock()
        self._said = (PoolState.OFF, "")
        self._is_recorded = False
        self._last_words = ""
        self._data = data
        self._is_data_shared = False
        """True once the workers of the current server's cluster have been found to share the data folder."""
        self._data_test_at = 0.0
        watch = ClusterWatch(pool, self._registered_application, self._events.record_cluster_fault)
        self._cluster = watch if pool.master_page else None
        self._manager = manager_of(pool)
        self._manager_says: Fact[ManagerWord] | None = None

    def connection(self) -> PoolConnection:
        """Return the open connection, or raise PoolUnreachable if there is none or its catalog is incomplete."""
        current = self._restored
        if current is None:
            raise self._unreachable()
        return current

    def connection_for_stops(self) -> PoolConnection:
        """Return the open connection even if its catalog is incomplete, or raise PoolUnreachable if there is none."""
        current = self._open
        if current is None:
            raise self._unreachable()
        return current

    def keep(self) -> None:
        """Start the pool, connect to it and fill its catalog, skipping steps that are already done.

        Raises PoolUnreachable if the pool cannot be started or reached now.
        """
        with self._lock:
            if self._open is not None and self._local is not None and not self._local.alive():
                self._last_words = self._local.last_words()
                log.warning("the pool %s died: %s", self._pool.name, self._last_words)
                self._drop()
                self._events.ended(
                    f"{self._server}{self._local.named} ended; it is started again",
                    _sentence("", self._last_words),
                )
                self._record_state(
                    PoolState.DOWN, _sentence("its process ended; it is being restarted", self._last_words)
                )
            self._run_test_statement()
            if self._open is None:
                self._bring_up()
            if self._restored is None:
                self._fill_catalog()

    def start_again(self) -> bool:
        """Let the next `keep` restart a pool that died too often.

        Returns whether the agent had given up on the pool.
        """
        given_up = self._said[0] == PoolState.FAILED
        if given_up:
            self._backoff.forget()
            self._record_state(PoolState.STARTING, "somebody asked for it again")
        return given_up

    def connectors(self) -> tuple[str, ...] | None:
        """Return the connectors with which the local pool was started, or None if no local pool is running."""
        return self._local.connectors if self._local is not None and self._local.alive() else None

    @property
    def holds_catalog(self) -> bool:
        """False if the pool is a local server that does not run, so that its next catalog is filled anew."""
        return self._open is not None or self._local is None or self._local.alive()

    @property
    def name(self) -> str:
        return self._pool.name

    @property
    def is_ready(self) -> bool:
        """True if the connection is open and its catalog is filled, even if the pool does not answer."""
        return self._restored is not None

    @property
    def is_starting_statements(self) -> bool:
        """True while statements are starting in a new session.

        A pool that does not answer during that time is not considered failed.
        """
        return self._monotonic() < self._settles_at and any(d.state == State.STARTING for d in self._statements_here())

    def record_answer(self, error: HeadgateError | None) -> None:
        """Record the result of the latest call to the pool; `error` is None if the pool answered.

        A pool that does not answer is not restarted, because it may recover.
        """
        if isinstance(error, EngineStopped):
            self._test_at = self._monotonic()
        elif self._restored is not None and not self._failed_tests:
            if error is None:
                self._record_answering()
                self._events.end_outage()
            elif isinstance(error, TokenRefused | TokenUnavailable):
                self._record_state(PoolState.DOWN, error.sentence)
            elif self.is_starting_statements:
                self._record_state(PoolState.STARTING, f"its statements are being started: {error.summary}")
            else:
                self._record_state(PoolState.SILENT, error.summary)
                self._events.record_silence()

    def watch_cluster(self) -> None:
        """Ask the manager of the pool's cluster what the pool can really do; nothing if the pool has none.

        While a server that others manage does not answer, record what the manager says about it.
        """
        if self._cluster is not None:
            self._cluster.round()
        if self._pool.url is not None and self._said[0] in _LOST:
            word = self.manager_word()
            if word != self._manager_says and self._said[0] in _LOST:
                self._put(manager_says=sqlite_value(word))
                self._manager_says = word

    def manager_word(self) -> Fact[ManagerWord] | None:
        """Ask the manager of the pool's cluster whether the application of its server runs.

        Returns None if the agent starts the server itself, or no manager is declared.
        """
        if self._manager is None or self._pool.url is None:
            return None
        application = self._row().application
        return self._manager.word(application) if application else ManagerWord.UNLEARNED.of()

    def cluster_figures(self) -> ClusterFigures | None:
        """Return what the manager of the pool's cluster counts; None if it has none.

        Raises PoolUnreachable if the manager does not answer.
        """
        return self._manager.figures(self._row().application) if self._manager is not None else None

    @property
    def cluster_fault(self) -> Fact[ClusterFault] | None:
        """What is wrong with the pool's cluster; None if nothing is, or if the pool has none."""
        return self._cluster.fault if self._cluster is not None else None

    def watch_heap(self) -> None:
        """Record an event when the memory of a local server becomes nearly full, and when it no longer is."""
        ui = self._local.ui if self._local is not None and self._restored is not None else None
        if ui is not None:
            with suppress(PoolUnreachable):
                self._events.record_heap(ui.heap())

    def spark_ui(self) -> SparkUi | None:
        """Return the REST API of the pool's server; None if it has none, or if none is declared."""
        if self._local is not None:
            return self._local.ui
        if not self._pool.ui:
            return None
        token = PoolToken(self._pool.token) if self._pool.token is not None and self._pool.sends_token_to_ui else None
        return SparkUi(self._pool.ui, token or (lambda: ""), ca=self._pool.ca)

    def bound_log(self) -> None:
        """Truncate the local pool's log file if it has grown large."""
        if self._local is not None:
            self._local.bound_log()

    def end(self) -> None:
        """End a local pool and all its queries, but keep checkpoints. Do not call `keep` afterwards."""
        self._drop()
        if self._local is not None:
            self._local.end()
        self._record_state(PoolState.OFF, "")

    def _run_test_statement(self) -> None:
        """Test whether the server can run a statement, and end a local server whose SparkContext has stopped.

        A server that does not answer is kept, because it may recover.
        """
        if self._open is None or self._monotonic() < self._test_at:
            return
        self._test_at = self._monotonic() + TEST_EVERY_S
        session = self._open.session
        try:
            # A refusal for any other reason proves that the server works.
            with suppress(EngineRefused):
                session.call(READ_CALL_S, session.run_test_statement)
        except EngineStopped as error:
            self._found_stopped(error)
            return
        except PoolUnreachable:
            if self._failed_tests:
                raise
            return
        self._failed_tests = 0

    def _found_stopped(self, error: EngineStopped) -> None:
        self._failed_tests += 1
        self._test_at = self._monotonic()
        confirmed = self._failed_tests >= TESTS_BEFORE_END
        if confirmed and self._local is not None:
            self._last_words = error.summary
            log.warning("the pool %s is ended: %s", self._pool.name, error.summary)
            self._drop()
            why = "its SparkContext has stopped"
            self._events.ended(f"{self._server}{self._local.named} is ended: {why}; it is started again")
            self._record_state(PoolState.DOWN, f"{error.summary}; it is being restarted")
            self._local.end()
            return
        if confirmed:
            self._restored = None
            self._events.begin_outage(f"{error.summary}; {MANAGED}")
        self._record_state(PoolState.DOWN, error.summary if self._local is not None else f"{error.summary}; {MANAGED}")
        raise error

    def _bring_up(self) -> None:
        try:
            adopted = self._local is None or self._local.alive()
            if self._local is not None and not adopted:
                self._start(self._local)
            self._attach(new=not adopted)
        except _Waits:
            raise
        except EngineStopped as error:
            self._found_stopped(error)
        except HeadgateError as error:
            self._last_words = error.summary
            self._record_state(PoolState.DOWN, error.sentence)
            raise PoolUnreachable(error.summary, remedy=error.remedy) from error

    def _start(self, server: LocalPool) -> None:
        if self._said[0] != PoolState.FAILED and self._backoff.exhausted:
            last = f"; the last one: {self._last_words}" if self._last_words else ""
            why = f"{LIMIT} starts within {WINDOW_S / 60:.0f} min failed{last}"
            self._events.ended(f"{self._server} is not started again until headgate up: {why}")
            self._record_state(PoolState.FAILED, why)
        if self._said[0] == PoolState.FAILED:
            raise _Waits(
                f"the pool {self._pool.name} is given up: {self._said[1]}", remedy="headgate up starts it again"
            )
        if (pause := self._backoff.pause_s) > 0:
            raise _Waits(f"the pool {self._pool.name} is started again in {pause:.0f} s: {self._last_words}")
        if self._pool.master is not None:
            # A master that is down is no failed start, so the agent waits for it however long it takes.
            require_master(self._pool.master, f"pools.{self._place}.master" if self._place else "pool.master")
        self._backoff.started()
        self._failed_tests = 0
        takes = "a Spark Connect server takes 6 to 10 s"
        self._record_state(PoolState.STARTING, takes)
        server.start(lambda doing: self._record_state(PoolState.STARTING, doing))
        self._events.record_new_session()
        self._is_data_shared, self._data_test_at = False, 0.0
        self._record_state(PoolState.STARTING, takes)
        server.ready(START_S)

    def _attach(self, *, new: bool) -> None:
        """Connect with the session id of the ledger or, if the ledger was lost, of the data folder.

        If the server does not know the session, open a new one. Statements can be stopped as soon as this returns.
        """
        try:
            # Not at the top of this module: without Spark's client, a new agent answers 0.7 s sooner.
            from pipelines.agent.pool import spark_connection
        except ImportError as error:
            remedy = "install headgate again, and restart the agent with headgate down and headgate up"
            raise PoolUnreachable(f"Spark's client cannot be loaded: {error}", remedy=remedy) from error
        known = self._row()
        session_id = "" if new else known.session_id or self._recorded_session()
        try:
            session = self._attached(session_id or str(uuid.uuid4()))
        except SessionLost as error:
            # The server refuses this session id forever.
            log.warning("session %s was lost; opening a new one: %s", session_id, error.summary)
            session = self._attached(str(uuid.uuid4()))
        try:
            if self._local is None:
                self._learn_application(session, known)
            if session.session_id != known.session_id:
                self._put(session_id=session.session_id, generation=known.generation + 1, began_at=time.time())
                self._settles_at = self._monotonic() + SETTLES_S
                self._events.record_new_session()
            if self._local is None and (limit := session.idle_limit_s()) is not None:
                self._warn_of_idle_limit(limit)
            self._record_state(PoolState.STARTING, "attached; its catalog is being filled, statements can be stopped")
        except BaseException:
            spark_connection.close(session)
            raise
        self._test_at = self._monotonic() + TEST_EVERY_S
        self._open = spark_connection.SparkConnection(
            session,
            self._whose,
            self._environment_home,
            jar_sessions=self._home,
            is_local=self._local is not None,
        )

    def _learn_application(self, session: "Session", known: PoolRow) -> None:
        """Record the id of the server's application, before anything starts there.

        Once the server does not answer, the manager of its cluster is asked about this id.
        """
        application = ""
        with suppress(EngineRefused):
            application = session.call(READ_CALL_S, session.application)
        if application != known.application:
            self._put(application=application)

    def _fill_catalog(self) -> None:
        attached = self._open
        if attached is None:
            # Meanwhile another thread has found the session lost.
            return
        if self._pool.master is not None and not self._is_data_shared:
            self._require_shared_data(attached)
        try:
            self._restore(attached)
        except EngineStopped:
            self._test_at = self._monotonic()
            raise
        except PoolUnreachable as error:
            if self._open is attached:
                state = PoolState.STARTING if self._monotonic() < self._settles_at else PoolState.SILENT
                self._record_state(state, f"{error.summary}; its catalog is not filled yet")
            raise
        except EngineRefused as error:
            # For example, the server has no catalog of the name that the environment declares.
            if self._open is attached:
                self._record_state(PoolState.STARTING, f"the server refuses its catalog: {error.summary}")
            raise
        if self._open is attached:
            self._restored = attached
            self._events.end_outage()
            self._record_answering()
            self._record_engine(attached)

    def _record_engine(self, attached: "SparkConnection") -> None:
        # Plans of a move compare the versions of both pools, and doctor names one that is not ours. If it cannot be
        # recorded now, the old one stays.
        with suppress(HeadgateError):
            if self._place or self._pool.url is not None:
                self._put(engine=attached.call(READ_CALL_S, attached.analysis.engine))

    def _registered_application(self) -> str | None:
        # Without a filled catalog, the server may still be starting.
        if self._restored is None:
            return None
        return self._local.application if self._local is not None else self._row().application or None

    def _record_answering(self) -> None:
        fault = self.cluster_fault
        self._record_state(PoolState.UP if fault is None else PoolState.DEGRADED, str(fault or ""))

    def _require_shared_data(self, attached: "SparkConnection") -> None:
        if self._monotonic() < self._data_test_at:
            raise self._unreachable()
        try:
            require_shared_data(self._pool, attached, str(self._data))
        except PoolUnreachable as error:
            self._data_test_at = self._monotonic() + DATA_TEST_EVERY_S
            self._record_state(PoolState.DOWN, error.sentence)
            raise
        self._is_data_shared = True

    def _attached(self, session_id: str) -> "Session":
        from pipelines.agent.pool import spark_connection

        if self._local is not None:
            return spark_connection.attached(self._local.url, self._local.token, session_id, self._on_session_lost)
        return spark_connection.attached(
            str(self._pool.url),
            spark_connection.token_of(self._pool, given_token(self._home)),
            session_id,
            self._on_session_lost,
            tls=spark_connection.tls_of(self._pool),
        )

    def _unreachable(self) -> PoolUnreachable:
        lost = self._said[0] in (PoolState.UP, PoolState.SILENT)
        state = "being attached to again" if lost else self._said[0]
        return PoolUnreachable(f"the pool {self._pool.name} is {state}", remedy="headgate doctor")

    def _warn_of_idle_limit(self, limit_s: float) -> None:
        summary = (
            f"the pool closes sessions that are idle for {limit_s / 60:.0f} min, and stops every statement in them"
        )
        remedy = "set spark.connect.session.manager.defaultSessionTimeout=-1 on the server"
        event = event_row(time.time(), EventKind.POOL, summary, detail=remedy, fingerprint="idle limit")
        with suppress(LedgerUnavailable):
            self._ledger.add_event(event)

    def _on_session_lost(self, session: "Session") -> None:
        current = self._open
        if current is not None and session is current.session:
            self._events.begin_outage(f"the session on the pool {self._pool.name} was closed; another one is opened")
        self._drop(session)

    def _drop(self, session: "Session | None" = None) -> None:
        current = self._open
        if current is not None and session in (None, current.session):
            self._open = self._restored = None
            current.close()

    def _record_state(self, state: PoolState, detail: str) -> None:
        # If the ledger is unavailable, the next call records the state.
        if (state, detail) != self._said or not self._is_recorded:
            self._said, self._is_recorded = (state, detail), False
            with suppress(LedgerUnavailable):
                self._put(name=self._pool.name, state=state, detail=detail, **self._silence(state))
                self._is_recorded = True

    def _silence(self, state: PoolState) -> dict[str, float | None]:
        """Return since when a server that others manage does not answer, to be recorded with its state."""
        if self._pool.url is not None and state in _LOST and self._row().silent_since is None:
            return {"silent_since": time.time()}
        if self._pool.url is not None and state in (PoolState.UP, PoolState.DEGRADED):
            self._manager_says = None
            return {"silent_since": None, "manager_says": None}
        return {}

    def _put(self, **fields: Value) -> None:
        self._ledger.put_pool(self._place, **fields)

    def _row(self) -> PoolRow:
        return next(row for row in self._ledger.facts().pools if row.place == self._place)

    def _statements_here(self) -> list[Deployment]:
        return [each for each in self._ledger.deployments() if not each.external and self._runs_here(each)]


def given_token(home: str) -> str:
    """Return the token for a server that the agent does not manage; empty if it was given none."""
    try:
        return Path(home, GIVEN_TOKEN).read_text("ascii")
    except OSError:
        return ""


def _sentence(what: str, last_words: str) -> str:
    return "; ".join(part for part in (what, f"its log ends: {last_words}" if last_words else "") if part)


WINDOW_S = 600.0
"""Period, in seconds, in which starts of a pool are counted."""

AT_ONCE = 3
"""Number of starts within `WINDOW_S` before pauses begin."""

LIMIT = 8
"""Maximum number of starts within `WINDOW_S`. After that, only an operator can start the pool again."""

FIRST_PAUSE_S = 2.0
"""Pause, in seconds, before the first delayed start of a pool. It doubles with each later start."""


class StartBackoff:
    """Limits how often a pool is started."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._starts: deque[float] = deque(maxlen=LIMIT)

    @property
    def exhausted(self) -> bool:
        """True if the pool was started too often to be started again automatically."""
        return self._count() >= LIMIT

    @property
    def pause_s(self) -> float:
        """Return the number of seconds to wait before the next start; 0 if the pool may be started now."""
        count = self._count()
        if count < AT_ONCE:
            return 0.0
        pause: float = FIRST_PAUSE_S * 2 ** (count - AT_ONCE)
        return max(0.0, self._starts[-1] + pause - self._monotonic())

    def started(self) -> None:
        """Record a start attempt, before it is known whether it succeeds."""
        self._starts.append(self._monotonic())

    def forget(self) -> None:
        """Forget all earlier starts, because an operator has asked for the pool."""
        self._starts.clear()

    def _count(self) -> int:
        return sum(self._monotonic() - at <= WINDOW_S for at in self._starts)
