"""A session with the pool and the interfaces that use it.

Importing this module loads Spark's client, which takes 0.7 s.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from core.ipc.environment_paths import JOB_LOGS, job_packages
from core.ports.spark import Analysis, Jobs, Queries, Tables, TableUpkeep
from core.project.model import Pool
from pipelines.python_jobs.job_builder import JobBuilder
from pipelines.python_jobs.job_environments import JobEnvironments
from pipelines.spark_connect.analysis_over_empty_tables import SparkAnalysis
from pipelines.spark_connect.catalog import SparkTables, SparkUpkeep
from pipelines.spark_connect.jar_sessions import StatementQueries
from pipelines.spark_connect.pool_token import PoolToken
from pipelines.spark_connect.session import UNTIMED_S, Session, Tls
from pipelines.storage.jar_store import JARS, JarSessionsFile, JarStore


class SparkConnection:
    """Implements `PoolConnection` for one operating session of the pool."""

    def __init__(
        self, session: Session, whose: str, home: str, *, is_local: bool, jar_sessions: str | None = None
    ) -> None:
        """Use an attached session. `whose` names the environment in Spark's user interface and logs.

        `home` is the folder of the environment, with the logs of jobs and the jars of functions. `jar_sessions` is the
        folder of the pool, with the record of its sessions of jars; None for `home`. `is_local` says
        whether the pool runs on this machine, so that it can use environments of jobs.
        """
        self.session = session
        self.call = session.call
        self._reader = session.reader()
        tables = SparkTables(session, self._reader)
        self._statements = StatementQueries(
            session,
            whose,
            jars=JarStore(Path(home) / JARS),
            record=JarSessionsFile(Path(jar_sessions or home)),
            views=tables.create_views_in,
        )
        self.queries: Queries = self._statements
        self.tables: Tables = tables
        self.analysis: Analysis = SparkAnalysis(session)
        self.upkeep: TableUpkeep = SparkUpkeep(session)
        environments = JobEnvironments(Path(job_packages(home))) if is_local else None
        self.jobs: Jobs = JobBuilder(session, Path(home) / JOB_LOGS, environments)

    def write_from_executors(self, folder: str, files: int, *, seconds: float) -> None:
        """Have tasks of the pool write `files` files to a folder, one each, which is not the operating session's work.

        Raises EngineRefused if Spark cannot write them, and PoolUnreachable if they are not written within `seconds`.
        """
        self._reader.call(seconds, self._reader.write_files, folder, files)

    def close(self) -> None:
        """Close the sessions of this connection without waiting for the server, which may not respond."""
        for session in (self.session, self._reader):
            close(session)
        threading.Thread(target=self._statements.close, daemon=True).start()


def token_of(pool: Pool, given: str) -> str | PoolToken:
    """Return the token for a declared server: where its reference says, else the one that was `given`."""
    return PoolToken(pool.token) if pool.token is not None else given


def tls_of(pool: Pool) -> Tls | None:
    """Return how connections to a declared server are encrypted; None if they are not."""
    return Tls(pool.ca) if pool.tls else None


def attached(
    url: str, token: str | PoolToken, session_id: str, lost: Callable[[Session], None], *, tls: Tls | None = None
) -> Session:
    """Open a new session or reconnect to an existing one.

    If that fails, the session is closed, so that no connection leaks.
    """
    session = Session(url, token, session_id, lost=lost, tls=tls)
    try:
        session.call(UNTIMED_S, session.attach)
    except BaseException:
        close(session)
        raise
    return session


def close(session: Session) -> None:
    # Closing calls the server, which may be frozen, so it must not block.
    threading.Thread(target=session.close, daemon=True).start()
