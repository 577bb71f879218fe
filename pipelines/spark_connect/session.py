"""A Spark Connect session whose queries keep running after the client disconnects.

Never call `SparkSession.stop()` on it: that kills all its queries and makes its id unusable (Spark 4.2.0).
"""

import atexit
import logging
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import RetryPolicy
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import SQL
from pyspark.sql.connect.session import SparkSession

from core.model.errors import EngineRefused, PoolUnreachable
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.call_deadlines import CircuitBreaker, is_given_up, remaining
from pipelines.spark_connect.error_translation import (
    EngineStopped,
    MaybeStopped,
    SessionLost,
    TokenRefused,
    translate_error,
)
from pipelines.spark_connect.pool_token import PoolToken

P = ParamSpec("P")
R = TypeVar("R")

USER = "headgate"
"""User id of all sessions. The token does not depend on it (Spark 4.2.0)."""

UNTIMED_S = 60.0
"""Time limit, in seconds, of remote calls without a deadline."""

PROOF_S = 3.0
"""Longest wait, in seconds, for the statement that tests whether a server can run anything."""

_CONF = {
    # Without it a second start on one checkpoint silently stops the first query (seen with Spark 4.2.0).
    "spark.sql.streaming.stopActiveRunOnRestart": "false",
    # `stop()` waits without limit by default.
    "spark.sql.streaming.stopTimeout": "15s",
    "spark.sql.streaming.minBatchesToRetain": "100",
    # How often an idle query reports itself; a longer silence would count as a fault.
    "spark.sql.streaming.noDataProgressEventInterval": "10s",
    # By default, Spark replaces `${x}`, even in strings, comments and paths, with a setting, an environment variable of
    # the server, or nothing (4.2.0).
    "spark.sql.variable.substitute": "false",
    # Progress is kept in our ledger, so the server need not hold a hundred events of each query.
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    # With Java stack traces, error messages take megabytes that help nobody.
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
    # With it, a Python function that reads columns directly from Parquet files never returns: server and worker wait
    # for each other (4.2.0).
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
}

_READER_CONF = {
    # With this setting, Spark submits a stage from another thread, and a cancellation just before that finds nothing to
    # cancel: 8 of 40 queries cancelled within their first second kept using all cores; without the setting, none of 40
    # did (4.2.0).
    "spark.sql.adaptive.enabled": "false",
}

# PySpark writes each refused statement as a JSON object with a stack trace to stderr; we raise and record it instead.
logging.getLogger("SQLQueryContextLogger").disabled = True

_endless = threading.local()


@dataclass(frozen=True, slots=True)
class Tls:
    """Encryption of the connections to a server, whose certificate is checked."""

    ca: str = ""
    """Path of the trusted certificates, as PEM; empty for those that gRPC trusts by itself."""

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a channel. Raises PoolUnreachable if the certificates cannot be read."""
        try:
            trusted = Path(self.ca).read_bytes() if self.ca else None
        except OSError as error:
            why = f"the trusted certificates in {self.ca} cannot be read: {error.strerror}"
            raise PoolUnreachable(why, remedy="correct ca in headgate.yml, or let the agent read the file") from error
        return grpc.ssl_channel_credentials(root_certificates=trusted)


class Session:
    """One session generation on one pool. If the server loses the session, open a new generation."""

    def __init__(
        self,
        url: str,
        token: str | PoolToken,
        session_id: str,
        *,
        conf: Mapping[str, str] | None = None,
        lost: "Callable[[Session], None] | None" = None,
        tls: Tls | None = None,
    ) -> None:
        """Prepare a session without a remote call.

        A PoolToken is asked before each call, so that a renewed token is used at once; an empty token is not sent.
        Without `tls`, connections are not encrypted. `session_id` is a UUID, with which a later client finds the same
        queries. `lost` is called if the server no longer knows the session, before SessionLost is raised. Raises
        PoolUnreachable if the trusted certificates cannot be read.
        """
        self.url = url
        self.session_id = session_id
        self._token, self._tls = token, tls
        self._conf: dict[str, str | int | bool] = {**_CONF, **(conf or {})}
        self.spark = _connect(_Builder(url, token, session_id, tls))
        self.breaker = CircuitBreaker(self.ping)
        self._lost = lost

    def attach(self) -> None:
        """Set the session's configuration. This opens the session, or finds the existing one with its queries."""
        with spark_errors():
            self.spark.conf._set_all(configs=self._conf, silent=False)

    def call(self, seconds: float, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn` with a deadline and through the circuit breaker, and translate Spark's errors.

        If the server refuses `fn` with an error that may mean a stopped server, a test statement is run. Raises
        EngineStopped if the server refuses the test in the same way, and PoolUnreachable if it does not answer the
        test. If the test succeeds, the error of `fn` is raised.
        """
        try:
            with self.breaker.guard(), spark_errors():
                return call_deadlines.call(seconds, fn, *args, **kwargs)
        except TokenRefused as error:
            if isinstance(self._token, PoolToken):
                self._token.refused()
                remedy = "renew it; the next call uses the new one"
                raise TokenRefused(
                    f"the pool refuses the token of {self._token.reference.text}", remedy=remedy
                ) from error
            raise
        except SessionLost:
            if self._lost is not None:
                self._lost(self)
            raise
        except MaybeStopped as error:
            self._refuse_if_stopped(error)
            raise

    def run_test_statement(self) -> None:
        """Run a minimal statement. If Spark cannot run it, Spark's error is raised.

        Unlike `ping`, this needs a SparkContext, but no free core.
        """
        DataFrame(SQL("SELECT 1"), self.spark).collect()

    def write_files(self, folder: str, files: int) -> None:
        """Have as many tasks as `files` write a file each, `part-…`, to a folder, which is replaced."""
        rows = self.spark.range(0, files, 1, files).selectExpr("cast(id AS STRING) AS id")
        rows.write.mode("overwrite").text(Path(folder).as_uri())

    def _refuse_if_stopped(self, refusal: MaybeStopped) -> None:
        # Without this check, a server that is shutting down or overloaded would make a valid statement fail.
        try:
            with spark_errors():
                call_deadlines.call(PROOF_S, self.run_test_statement)
        except MaybeStopped:
            raise EngineStopped(
                "the pool answers but cannot run anything: its SparkContext has stopped",
                remedy="the agent restarts a local pool; any other is restarted by whoever manages it",
            ) from refusal
        except PoolUnreachable as silent:
            raise PoolUnreachable(f"{refusal.summary} ({silent.summary})", remedy=silent.remedy) from refusal
        except EngineRefused:
            # Any other refusal shows that the server works.
            return

    def reader(self) -> "Session":
        """Return a second session for batch reads, so that a heavy read cannot disturb the operating session."""
        session_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.session_id}/reader"))
        return self.another_session(session_id, conf=_READER_CONF)

    def another_session(self, session_id: str, *, conf: Mapping[str, str] | None = None) -> "Session":
        """Return another session on the same pool, with a separate connection and circuit breaker."""
        return Session(self.url, self._token, session_id, conf=conf, tls=self._tls)

    def idle_limit_s(self) -> float | None:
        """Return the seconds after which the server closes an idle session; None if never, as in a local pool."""
        with spark_errors():
            text = self.spark.conf.get("spark.connect.session.manager.defaultSessionTimeout", "60m")
        return None if text is None or text.startswith("-1") else _seconds(text)

    def application(self) -> str:
        """Return the id by which the manager of the server's cluster knows it; empty if the server does not say it."""
        with spark_errors():
            return self.spark.conf.get("spark.app.id", "") or ""

    def close(self) -> None:
        """Disconnect from the server. The session's queries keep running."""
        self.breaker.close()
        self.spark.client.close()

    def release(self) -> None:
        """Release this session on the server, which stops its queries. Never release the operating session."""
        with spark_errors():
            self.spark.client.release_session()
        self.close()

    def ping(self) -> None:
        """Make a minimal remote call; the circuit breaker uses it to probe the server."""
        # `SparkSession.version` sends a request only once and caches the result (PySpark 4.2.0).
        self.spark.client._analyze(method="spark_version")


@contextmanager
def spark_errors() -> Iterator[None]:
    """Translate errors of Spark and gRPC into Headgate errors: EngineRefused, PoolUnreachable, SessionLost, …"""
    try:
        yield
    except Exception as error:
        ours = translate_error(error)
        if ours is error:
            raise
        raise ours from error


@contextmanager
def endless() -> Iterator[None]:
    """Send the calls within the block without a deadline, for a stream of events that never ends."""
    _endless.on = True
    try:
        yield
    finally:
        _endless.on = False


def probe(url: str, token: str) -> None:
    """Check, in a separate session, that a server answers. Raises PoolUnreachable or EngineRefused."""
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{url}/probe"))
    spark = _connect(_Builder(url, token, name, None))
    try:
        with spark_errors():
            spark.client._analyze(method="spark_version")
    finally:
        spark.client.close()


def _seconds(text: str) -> float:
    """Convert a duration of Spark's configuration (`60m`, `3600s`, `1h`) to seconds. A bare number is milliseconds."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    return float(digits) * units.get(text[len(digits) :].strip(), 0.001)


def _connect(builder: "_Builder") -> SparkSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = SparkSession(connection=builder, userId=USER)
    client = spark.client
    # Headgate repeats failed calls itself, because it knows which are safe; Spark's policy retries for ten minutes.
    client.set_retry_policies([_Never()])
    # Abandoned reattachable executions continue for minutes on the server, and their release calls run in threads that
    # delay the exit of the process. A plain execution ends with its call.
    client.disable_reattachable_execute()
    # PySpark's exit hook makes a remote call, possibly to a server that is dead.
    atexit.unregister(client._on_exit)
    return spark


class _Never(RetryPolicy):
    def __init__(self) -> None:
        super().__init__(max_retries=0)

    def can_retry(self, exception: BaseException) -> bool:
        return False


class _Builder(DefaultChannelBuilder):
    """Builds a channel that sends the token as metadata, which needs no TLS."""

    def __init__(self, url: str, token: str | PoolToken, session_id: str, tls: Tls | None) -> None:
        host = urlsplit(url).hostname or ""
        super().__init__(url)
        self.set(self.PARAM_SESSION_ID, session_id)
        self._current_token = (lambda: token) if isinstance(token, str) else token
        self._credentials = tls.credentials() if tls is not None else None
        # By default, channels to one address share a connection and its back-off of up to two minutes.
        self.setChannelOption("grpc.use_local_subchannel_pool", 1)
        self.setChannelOption("grpc.initial_reconnect_backoff_ms", 200)
        self.setChannelOption("grpc.max_reconnect_backoff_ms", 2000)
        if host in ("127.0.0.1", "localhost", "::1"):
            self.setChannelOption("grpc.enable_http_proxy", 0)
        self.add_interceptor(_Deadline())

    @property
    def token(self) -> None:
        """Return None: if a token were set, even from the environment, PySpark would require TLS."""
        return None

    def metadata(self) -> "_Metadata":
        """Return the metadata of calls with the token of the moment; PySpark keeps the value for uploads of files."""
        return _Metadata(super().metadata, self._current_token)

    def toChannel(self) -> grpc.Channel:
        """Create the channel, encrypted if that was asked for."""
        if self._credentials is None:
            return super().toChannel()
        return self._secure_channel(self.endpoint, self._credentials)


@dataclass(frozen=True, slots=True)
class _Metadata:
    parameters: Callable[[], Iterable[tuple[str, str]]]
    token: Callable[[], str]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        yield from self.parameters()
        if token := self.token():
            yield "authorization", f"Bearer {token}"


class _Details(grpc.ClientCallDetails):  # type: ignore[misc]  # grpc has no stubs for us to see.
    def __init__(self, details: Any, timeout: float | None) -> None:
        self.method = details.method
        self.timeout = timeout
        self.metadata = details.metadata
        self.credentials = details.credentials
        self.wait_for_ready = getattr(details, "wait_for_ready", None)
        self.compression = getattr(details, "compression", None)


class _Deadline(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]  # As above.
    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._timed(details), request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._timed(details), request)

    def _timed(self, details: Any) -> Any:
        if getattr(_endless, "on", False):
            return details
        if is_given_up():
            raise PoolUnreachable("the deadline passed before the call was sent")
        left = remaining()
        return _Details(details, UNTIMED_S if left is None else left)
