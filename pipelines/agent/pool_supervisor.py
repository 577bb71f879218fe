"""Keeping the pool: started when it is ours, attached to, probed, and started again when it died."""

import logging
import threading
import time
import uuid
from collections.abc import Callable

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import HeadgateError, PoolUnreachable
from core.ports.spark import Analysis, Queries, Tables
from core.project.model import Pool
from pipelines.agent.context import PoolConnection
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark.catalog import SparkTables
from pipelines.spark.error_translation import SessionLost
from pipelines.spark.session import Session
from pipelines.spark.streaming_queries import SparkQueries
from pipelines.spark_analysis.analyzer import SparkAnalysis
from state.ledger import Ledger
from state.row_types import EventRow

log = logging.getLogger(__name__)

START_S = 90.0
"""How long a local pool may take until it answers."""


class SparkConnection:
    """Implements `PoolConnection`: one session generation with its ports."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.call = session.call
        self.queries: Queries = SparkQueries(session)
        self.tables: Tables = SparkTables(session, session.reader())
        self.analysis: Analysis = SparkAnalysis(session)


class PoolSupervisor:
    """One pool; its connection is the only road to it, with a deadline on each call and behind a circuit breaker."""

    def __init__(
        self, places: EnvironmentPaths, pool: Pool, ledger: Ledger, restore: Callable[[PoolConnection], None]
    ) -> None:
        """Keep one pool; `restore` fills the catalog of each new attachment before anyone else may call it."""
        self._restore = restore
        self._pool = pool
        self._ledger = ledger
        self._local = LocalPool(places.home, pool) if pool.url is None else None
        self._open: SparkConnection | None = None
        self._lock = threading.Lock()
        self._said = ("", "")

    def connection(self) -> PoolConnection:
        """Return the open connection; raises PoolUnreachable when the pool is not up."""
        current = self._open
        if current is None:
            state = self._said[0] or "off"
            state = "being attached to again" if state in ("up", "silent") else state
            raise PoolUnreachable(f"the pool {self._pool.name} is {state}", remedy="headgate doctor")
        return current

    def keep(self) -> None:
        """Start the pool and attach to it, unless that is done; raises PoolUnreachable if it is impossible now."""
        with self._lock:
            lost = self._open is None
            if not lost and (self._local is None or self._local.alive()):
                return
            if not lost:
                log.warning("the pool %s died", self._pool.name)
                self._drop()
                self._say("down", "its process ended; it is being restarted")
            self._bring_up()

    @property
    def up(self) -> bool:
        """Return whether a session is open; it may not answer all the same."""
        return self._open is not None

    def heard(self, error: PoolUnreachable | None) -> None:
        """Return whether the pool answered just now; one that is frozen is silent, and is left to come back."""
        if self._open is not None:
            self._say("silent" if error else "up", error.summary if error else "")

    def end(self) -> None:
        """End a pool of ours, queries and all; their checkpoints stay. Nothing may keep the pool any more."""
        self._drop()
        if self._local is not None:
            self._local.end()
        self._say("off", "")

    def _bring_up(self) -> None:
        try:
            adopted = self._local is None or self._local.alive()
            if self._local is not None and not adopted:
                self._say("starting", "a Spark Connect server takes 6 to 10 s")
                self._local.start()
                self._local.ready(START_S)
            self._attach(new=not adopted)
        except HeadgateError as error:
            self._say("down", error.summary)
            raise PoolUnreachable(error.summary, remedy=error.remedy) from error

    def _attach(self, *, new: bool) -> None:
        """Attach by the session id in the ledger; a session that the server does not know starts a new generation."""
        facts = self._ledger.facts()
        session_id = facts.session_id if facts.session_id and not new else ""
        fresh = not session_id
        try:
            session = self._attached(session_id or str(uuid.uuid4()))
        except SessionLost as error:
            # Its id is refused for ever.
            log.warning("session %s was lost; opening a new one: %s", session_id, error.summary)
            fresh = True
            session = self._attached(str(uuid.uuid4()))
        try:
            if fresh:
                self._ledger.put_pool(session_id=session.session_id, pool_generation=facts.pool_generation + 1)
            if self._local is None and (limit := session.idle_limit_s()) is not None:
                self._warn_of_idle_limit(limit)
            attached = SparkConnection(session)
            self._restore(attached)
        except BaseException:
            _close(session)
            raise
        self._open = attached
        self._say("up", "")

    def _attached(self, session_id: str) -> Session:
        """Open a session or find it; one that cannot be is closed, so that no try leaves a connection behind."""
        session = self._session(session_id)
        try:
            session.attach()
        except BaseException:
            _close(session)
            raise
        return session

    def _warn_of_idle_limit(self, limit_s: float) -> None:
        """A session that is idle for so long is closed with all its queries; our rounds keep it alive."""
        summary = (
            f"the pool closes sessions that are idle for {limit_s / 60:.0f} min, and stops every statement in them"
        )
        remedy = "set spark.connect.session.manager.defaultSessionTimeout=-1 on the server"
        event = EventRow(0, time.time(), "", 0, "pool", summary, remedy, fingerprint="idle limit")
        self._ledger.add_event(event)

    def _session(self, session_id: str) -> Session:
        if self._local is not None:
            return Session(self._local.url, self._local.token, session_id, lost=self._drop)
        return Session(str(self._pool.url), "", session_id, lost=self._drop)

    def _drop(self, session: Session | None = None) -> None:
        """Drop the session, or only this one: another thread may have opened a new one."""
        current = self._open
        if current is not None and session in (None, current.session):
            self._open = None
            _close(current.session)

    def _say(self, state: str, detail: str) -> None:
        if (state, detail) != self._said:
            self._ledger.put_pool(pool=self._pool.name, pool_state=state, pool_detail=detail)
            self._said = (state, detail)


def _close(session: Session) -> None:
    # Closing speaks to the server, which may be frozen: nobody waits for it.
    threading.Thread(target=session.close, daemon=True).start()
