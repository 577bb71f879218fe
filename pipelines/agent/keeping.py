"""Keeping the pool: started when it is ours, attached to, probed, and started again when it died."""

import logging
import threading
import uuid
from collections.abc import Callable
from typing import TypeVar

from core.errors import HeadgateError, PoolUnreachable
from core.home import Locations
from core.project import Pool
from pipelines.agent.world import LOOK_S, Engine
from pipelines.engine.analysis import SparkAnalysis
from pipelines.engine.failures import SessionLost
from pipelines.engine.queries import SparkQueries
from pipelines.engine.tables import SparkTables
from pipelines.pool import LocalPool
from pipelines.session import Session
from state.store import Ledger

log = logging.getLogger(__name__)

T = TypeVar("T")

START_S = 90.0
"""How long a local pool may take until it answers."""


class PoolKeeper:
    """One pool; `call` is the only road to it, with a deadline and behind a circuit breaker."""

    def __init__(self, places: Locations, pool: Pool, ledger: Ledger) -> None:
        self._pool = pool
        self._ledger = ledger
        self._local = LocalPool(places.home, pool) if pool.url is None else None
        self._open: tuple[Session, Engine] | None = None
        self._lock = threading.Lock()
        self._said = ("", "")

    def call(self, seconds: float, act: Callable[[Engine], T]) -> T:
        """Call the pool; raises PoolUnreachable when it is not up or misses the deadline."""
        current = self._open
        if current is None:
            raise PoolUnreachable(f"the pool {self._pool.name} is {self._said[0] or 'off'}", remedy="headgate doctor")
        session, engine = current
        try:
            return session.call(seconds, act, engine)
        except SessionLost:
            self._drop(session)
            raise

    def keep(self) -> bool:
        """Bring the pool up and attach if it is not; gives whether it attached: then restore the catalog."""
        with self._lock:
            lost = self._open is None
            if not lost and (self._local is None or self._local.alive()):
                return False
            if not lost:
                log.warning("the pool %s died", self._pool.name)
                self._drop(None)
                self._say("down", "its process is gone; it is started again")
            return self._bring_up()

    def probe(self) -> None:
        """Say whether the pool answers; a pool that is frozen is silent, and is left to come back."""
        try:
            self.call(LOOK_S, lambda engine: engine.queries.active())
            self._say("up", "")
        except PoolUnreachable as error:
            if self._open is not None:
                self._say("silent", error.summary)

    def end(self) -> None:
        """End a pool of ours, queries and all; their checkpoints stay."""
        with self._lock:
            self._drop(None)
            if self._local is not None:
                self._local.end()
            self._say("off", "")

    def _bring_up(self) -> bool:
        try:
            adopted = self._local is None or self._local.alive()
            if self._local is not None and not adopted:
                self._say("starting", "a Spark Connect server takes 6 to 10 s")
                self._local.start()
                self._local.ready(START_S)
            self._attach(new=not adopted)
            return True
        except HeadgateError as error:
            self._say("down", error.summary)
            raise PoolUnreachable(error.summary, remedy=error.remedy) from error

    def _attach(self, *, new: bool) -> None:
        """Attach by the session id in the ledger; a session that the server does not know starts a new generation."""
        facts = self._ledger.facts()
        session_id = facts.session_id if facts.session_id and not new else ""
        fresh = not session_id
        session = self._session(session_id or str(uuid.uuid4()))
        try:
            session.attach()
        except SessionLost as error:
            # Its id is refused for ever (spark.md §1).
            log.warning("session %s is lost, a new one is opened: %s", session_id, error.summary)
            fresh = True
            session = self._session(str(uuid.uuid4()))
            session.attach()
        if fresh:
            self._ledger.put_pool(session_id=session.session_id, pool_generation=facts.pool_generation + 1)
        self._open = (
            session,
            Engine(SparkQueries(session), SparkTables(session, session.reader()), SparkAnalysis(session)),
        )
        self._say("up", "")

    def _session(self, session_id: str) -> Session:
        if self._local is not None:
            return Session(self._local.url, self._local.token, session_id)
        return Session(str(self._pool.url), "", session_id)

    def _drop(self, session: Session | None) -> None:
        """Let go of the session, or of this one only: another thread may have opened a new one."""
        current = self._open
        if current is not None and session in (None, current[0]):
            self._open = None

    def _say(self, state: str, detail: str) -> None:
        if (state, detail) != self._said:
            self._said = (state, detail)
            self._ledger.put_pool(pool=self._pool.name, pool_state=state, pool_detail=detail)
