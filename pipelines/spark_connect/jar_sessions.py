"""Runs statements that call functions of a jar in a session of that jar, beside the operating session.

Each query of a session copies all jars of the session when it begins (Spark 4.2.0), so each jar has a session of its
own. The jars are relocated, because sessions do not keep two contents of one class apart (`core.sql.jar_relocation`).
The ids of the sessions are recorded before they are used, so that a new agent finds all queries again.
"""

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from pyspark.sql.connect.streaming.query import StreamingQuery

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable
from core.ports.spark import AnotherQuery, FunctionFault, QueryStart, ReportedQuery, ignore_stop_request
from core.sql.jar_relocation import UnusableJar, relocated_jar, relocated_package
from core.sql.registered_functions import JarClass, RegisteredFunction
from core.text.sentence import Fact, Sentence
from pipelines.spark_connect.error_translation import SessionLost, newer_java
from pipelines.spark_connect.session import Session, spark_errors
from pipelines.spark_connect.streaming_queries import SparkQueries, runs_writer

IDLE_S = 600.0
"""Seconds after the last start in a session without queries before the session is released."""


class Jars(Protocol):
    """Where the jars of functions are stored."""

    def path(self, sha256: str, name: str) -> str:
        """Return the file with this content. Raises EngineRefused if there is none; `name` is the jar's for people."""


class SessionRecord(Protocol):
    """Remembers the ids of the sessions of jars, by the hash of the jar, beyond the life of this process."""

    def read(self) -> dict[str, str]:
        """Return the ids that were written last. Raises TryAgain if they cannot be read."""

    def write(self, ids: Mapping[str, str]) -> None:
        """Replace the ids, which are on the disk before this returns. Raises TryAgain if that fails."""


class _NoJars:
    def path(self, sha256: str, name: str) -> str:
        raise EngineRefused(f"{name} is not stored here")


def no_views(session: Session, select: str) -> None:
    """Create no views; this is the default of `StatementQueries`."""


class _JarSession:
    """The session of one jar."""

    def __init__(self, session: Session, whose: str) -> None:
        self.session = session
        self.queries = SparkQueries(session, whose)
        self.used_at = time.monotonic()
        self.starting = 0
        """Number of starts that are under way."""
        self.has_jar = False
        self.adding = threading.Lock()


class StatementQueries:
    """Implements `core.ports.spark.Queries` over the operating session and the sessions of jars. Thread-safe."""

    def __init__(
        self,
        session: Session,
        whose: str = "",
        *,
        jars: Jars | None = None,
        record: SessionRecord | None = None,
        views: Callable[[Session, str], None] = no_views,
    ) -> None:
        """Use an operating session.

        `record` has the ids of the sessions of jars; without it, those of an earlier client are not found.
        `views` creates the temporary views that a statement reads in another session.
        """
        self._session = session
        self._whose = whose
        self._main = SparkQueries(session, whose)
        self._jars: Jars = jars or _NoJars()
        self._record = record
        self._views = views
        self._lock = threading.Lock()
        self._ids = record.read() if record is not None else {}
        """Session ids by the hash of the jar, as recorded."""
        self._open: dict[str, _JarSession] = {}
        self._loaded: set[str] = set()
        self._by_run: dict[str, SparkQueries] = {}

    def start(self, start: QueryStart, run_id: str = "") -> ReportedQuery:
        """Implement `Queries.start` in the session of the jar whose functions the statement calls, if there is one.

        Raises AnotherQuery also if a query of that name runs in another session, with functions of another jar or none.
        """
        with self._starting_in(start) as queries:
            self._refuse_elsewhere(start, queries)
            found = queries.start(start, run_id)
        with self._lock:
            self._by_run[found.run_id] = queries
        return found

    def launch(self, start: QueryStart) -> StreamingQuery:
        """Start a query as `SparkQueries.launch`, in the session of its jar."""
        with self._starting_in(start) as queries:
            return queries.launch(start)

    def stop(self, name: str, calling: Callable[[], object] = ignore_stop_request, *, upserts: bool = False) -> None:
        """Implement `Queries.stop` in all sessions, because a name does not reveal the session."""
        for queries in self._all():
            queries.stop(name, calling, upserts=upserts)

    def active(self) -> tuple[ReportedQuery, ...]:
        """List the active queries of all sessions. Costs one remote call for each, and keeps the sessions alive."""
        found = list(self._main.active())
        by_run = dict.fromkeys((query.run_id for query in found), self._main)
        for sha256 in tuple(self._ids):
            each = self._opened(sha256)
            with self._lost_is_forgotten(sha256):
                listed = each.queries.active()
            found += listed
            by_run |= dict.fromkeys((query.run_id for query in listed), each.queries)
            if not listed:
                self._release_if_idle(sha256, each)
        with self._lock:
            self._by_run = by_run
        return tuple(found)

    def refresh(self, query: ReportedQuery) -> ReportedQuery:
        """Implement `Queries.refresh`."""
        with self._lock:
            queries = self._by_run.get(query.run_id, self._main)
        return queries.refresh(query)

    def ended(self) -> tuple[ReportedQuery, ...]:
        """Implement `Queries.ended` for all sessions that are open."""
        return tuple(query for queries in self._all(opening=False) for query in queries.ended())

    def register_running(self, name: str, id: str, run_id: str, jar: str = "") -> None:
        """Implement `Queries.register_running`. The query of a session that is not recorded any more has ended."""
        if not jar:
            self._main.register_running(name, id, run_id)
        elif jar in self._ids:
            self._opened(jar).queries.register_running(name, id, run_id)

    def load_functions(self, functions: Sequence[RegisteredFunction]) -> Fact[FunctionFault] | None:
        """Implement `Queries.load_functions`."""
        in_python = [each for each in functions if each.java is None]
        if in_python and (fault := self._main.load_functions(in_python)):
            return fault
        for each in functions:
            if each.java is not None and each.name not in self._loaded:
                if fault := self._load(each, each.java):
                    return fault
                self._loaded.add(each.name)
        return None

    def register_functions(self, functions: Sequence[RegisteredFunction]) -> Session:
        """Register functions for a statement that is analysed, and return the session in which they are."""
        jar = _jar_of(functions)
        if jar is None:
            self._main.register_functions(functions)
            return self._session
        found = self._with_jar(jar)
        found.queries.register_functions(functions)
        return found.session

    def python_mismatch(self) -> Sentence | None:
        """Implement `Queries.python_mismatch`."""
        return self._main.python_mismatch()

    def close(self) -> None:
        """Disconnect from the sessions of jars, whose queries keep running."""
        with self._lock:
            opened = tuple(self._open.values())
        for each in opened:
            each.session.close()

    def _all(self, *, opening: bool = True) -> Iterator[SparkQueries]:
        yield self._main
        for sha256 in tuple(self._ids):
            with self._lock:
                is_open = sha256 in self._open
            if is_open or opening:
                found = self._opened(sha256)
                with self._lost_is_forgotten(sha256):
                    yield found.queries

    @contextmanager
    def _starting_in(self, start: QueryStart) -> Iterator[SparkQueries]:
        jar = _jar_of(start.functions)
        if jar is None:
            yield self._main
            return
        found = self._with_jar(jar, starting=True)
        try:
            with spark_errors():
                self._views(found.session, start.select)
            with self._lost_is_forgotten(jar.sha256):
                yield found.queries
        finally:
            with self._lock:
                found.starting -= 1
                found.used_at = time.monotonic()

    def _refuse_elsewhere(self, start: QueryStart, where: SparkQueries) -> None:
        """Raise AnotherQuery if a query of a statement runs in another session; Spark compares names in one only.

        If such a query begins later, Spark refuses one of the two, because they have one checkpoint (4.2.0).
        """
        for queries in self._all():
            if queries is where:
                continue
            if queries.is_running(start.name):
                raise AnotherQuery(f"{start.name} is running with functions of another jar, or without functions")
            if runs_writer(start):
                with spark_errors():
                    queries.end_batches(start.name)

    def _with_jar(self, jar: JarClass, *, starting: bool = False) -> _JarSession:
        """Return the session of a jar, in which its classes can be loaded."""
        path = self._jars.path(jar.sha256, jar.jar)
        found = self._opened(jar.sha256, starting=starting)
        try:
            with found.adding, self._lost_is_forgotten(jar.sha256), spark_errors():
                if not found.has_jar:
                    with _relocated(path, jar) as place:
                        # The same content may be added again; other content under this name is refused (4.2.0).
                        found.session.spark.addArtifacts(str(place))
                    found.has_jar = True
        except BaseException:
            if starting:
                with self._lock:
                    found.starting -= 1
            raise
        return found

    def _opened(self, sha256: str, *, starting: bool = False) -> _JarSession:
        """Return the session of a jar, attached. A new one is recorded before anything can run in it."""
        with self._lock:
            found = self._open.get(sha256)
            if found is None:
                if sha256 not in self._ids:
                    self._write({**self._ids, sha256: str(uuid.uuid4())})
                session = self._session.another_session(self._ids[sha256])
                with self._lost_is_forgotten(sha256, locked=True):
                    session.attach()
                found = self._open[sha256] = _JarSession(session, self._whose)
            found.starting += starting
            return found

    @contextmanager
    def _lost_is_forgotten(self, sha256: str, *, locked: bool = False) -> Iterator[None]:
        """Forget the session of a jar that the server has closed, with its queries: its id can never be used again.

        SessionLost is raised anyway, so that the agent attaches again and compares all statements with the pool.
        """
        try:
            yield
        except SessionLost:
            if locked:
                self._forget(sha256)
            else:
                with self._lock:
                    self._forget(sha256)
            raise

    def _forget(self, sha256: str) -> None:
        self._open.pop(sha256, None)
        self._write({key: id for key, id in self._ids.items() if key != sha256})

    def _release_if_idle(self, sha256: str, found: _JarSession) -> None:
        with self._lock:
            if found.starting or time.monotonic() - found.used_at < IDLE_S or self._open.get(sha256) is not found:
                return
            # The next start gets another session, so no query begins in this one any more.
            self._forget(sha256)
        with suppress(HeadgateError):
            found.session.release()

    def _write(self, ids: dict[str, str]) -> None:
        if self._record is not None:
            self._record.write(ids)
        self._ids = ids

    def _load(self, function: RegisteredFunction, java: JarClass) -> Fact[FunctionFault] | None:
        """Load a class of a jar, and create one object of it, before a running statement is stopped."""
        try:
            self._jars.path(java.sha256, java.jar)
        except EngineRefused as error:
            return FunctionFault.JAR_MISSING.of(error=error.summary, sha256=java.sha256)
        try:
            self._with_jar(java).queries.register_functions((function,))
        except PoolUnreachable:
            raise
        except EngineRefused as error:
            if versions := newer_java(error.__cause__):
                needed, found = versions
                return FunctionFault.NEWER_JAVA.of(cls=java.name, jar=java.jar, needed=needed, found=found)
            return FunctionFault.CLASS_NOT_LOADED.of(cls=java.name, jar=java.jar, error=error.summary)
        return None


@contextmanager
def _relocated(path: str, jar: JarClass) -> Iterator[Path]:
    """Write the relocated jar to a temporary file. Raises EngineRefused for a jar that cannot be relocated."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"{relocated_package(jar.sha256)}.jar"
        try:
            place.write_bytes(relocated_jar(Path(path).read_bytes(), jar.sha256))
        except UnusableJar as error:
            raise EngineRefused(f"{jar.jar} {error.reason}", remedy=error.remedy) from error
        except OSError as error:
            raise EngineRefused(f"{jar.jar} cannot be relocated: {error}") from error
        yield place


def _jar_of(functions: Sequence[RegisteredFunction]) -> JarClass | None:
    """Return a class of the only jar whose functions a statement calls; None if it calls none."""
    classes = [each.java for each in functions if each.java is not None]
    assert len({each.sha256 for each in classes}) < 2, "a statement calls functions of one jar"
    return classes[0] if classes else None
