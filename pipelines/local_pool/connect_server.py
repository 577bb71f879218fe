"""The local pool: a Spark Connect server that the agent starts as a child process and finds again after a restart.

Its executors run in the server's own process or, if the pool has a master, on the workers of a standalone cluster. The
server keeps running without the agent. It is signalled only by its process id, and only while that process is still
the one that was started.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from core.model.errors import EngineRefused, HeadgateError, PoolUnreachable
from core.project.connectors import Connector
from core.project.data_folder import is_in_hdfs
from core.project.model import Pool
from core.project.server_settings import SERVER_SETTINGS, XML_OPTIONS
from pipelines.local_pool import process_locks
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.detached_servers import free_port
from pipelines.local_pool.java_and_spark import (
    TOKEN,
    JavaCheck,
    find_java,
    spark_environment,
    spark_home,
    write_java_home,
    write_python,
    write_spark_home,
)
from pipelines.local_pool.process_locks import DATA_LOCK, server_locks, write_server_pid
from pipelines.local_pool.standalone_master import address_towards
from pipelines.spark_connect.call_deadlines import call
from pipelines.spark_connect.spark_ui import SparkUi, signed_token, ui_key

# The serial collector needs the least memory and threads.
# Java compiles hot methods a second time, with its optimizing compiler, after four times as many calls as by default: a
# statement over a topic then processes twice as many rows per second as with the first compiler alone, and a server
# with 12 statements takes 22 to 24 s of CPU until all have a batch, instead of 19 to 21 s (Spark 4.2.0, Java 17,
# `tests/bench/kafka_throughput.md`).
# Java runs a full garbage collection whenever its classes exceed a threshold, at first 21 MB. That happened three times
# while a server started and filled its catalog, and took 0.5 s of CPU.
JVM = (
    "-XX:+UseSerialGC", "-XX:Tier4InvocationThreshold=20000", "-XX:Tier4MinInvocationThreshold=2400",
    "-XX:Tier4CompileThreshold=60000", "-XX:Tier4BackEdgeThreshold=160000", "-XX:MetaspaceSize=256m",
    "-XX:-UsePerfData", "-Xss1m",
)  # fmt: skip

UI_FILTER = "org.apache.spark.ui.JWSFilter"
"""Refuses every request without a token that is signed with the server's key."""

UI = {
    "spark.ui.enabled": "true",
    "spark.ui.filters": UI_FILTER,
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "300",
    "spark.ui.retainedTasks": "3000",
    "spark.ui.retainedDeadExecutors": "10",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.connect.ui.session.limit": "5",
    "spark.connect.ui.statement.limit": "5",
    "spark.ui.heapHistogramEnabled": "false",
    "spark.ui.threadDumpsEnabled": "false",
    "spark.ui.timeline.enabled": "false",
    "spark.metrics.conf.driver.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
}
"""Settings of the web interface, of which only the REST API and the metrics of its heap are used."""

LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex{200}
logger.window.name = org.apache.spark.sql.catalyst.optimizer
logger.window.level = error
"""


DRIVER_MEMORY = "2g"
"""Heap of a server whose executors run on a cluster; `spark.driver.memory` in the pool's `conf` replaces it.

A server with the executors of 40 statements in its own process needed 1.5 GB in all (4.2.0).
"""

READY_S = 120.0
"""Longest wait for a server to answer, in seconds. Typical times are 6 to 16 s on two cores."""

END_S = 10.0
"""Seconds between asking the server to terminate and killing it."""

KEPT_LOGS = 5
"""Number of logs of earlier servers to keep, so that the first failure of a pool that keeps crashing can be read."""

LOG_BYTES, KEPT_BYTES = 64 << 20, 8 << 20
"""Bytes at which a running server's log is truncated, and bytes at its end that are kept in `pool.log.1`."""

_PROBE_S = 5.0

_MARKED = "HEADGATE_POOL"
"""Environment variable with the server's marker, which its child processes inherit."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """Record of a started server in `pool.json`. The server's token is in a separate file."""

    marker: str
    """Random string that identifies the server's processes.

    In a command line, it identifies a server whose process id was not recorded; in an environment, it identifies the
    server's child processes.
    """
    port: int
    home: str
    """Home whose agent started the server.

    A copy of this record in another home must not control the server.
    """
    pid: int = 0
    """Process id of the server; 0 until the start is recorded."""
    started: str = ""
    """Start time of the process, which distinguishes it from a later process with the same id."""
    connectors: tuple[str, ...] = ()
    """Names of the connectors with which the server was started."""
    master: str | None = None
    """Address of the standalone master on whose workers its executors run; None if they run in the server."""
    ui_port: int = 0
    """Port of its web interface, which has the REST API; 0 if it has none."""
    address: str = "127.0.0.1"
    """Address of this machine at which its executors, and the agent, reach it."""


class LocalPool:
    """Starts, finds and ends the Spark Connect server of an environment, even one that an earlier agent started."""

    def __init__(
        self,
        home: str | Path,
        pool: Pool,
        *,
        data: str | None = None,
        data_lock: str = DATA_LOCK,
        connectors: tuple[Connector, ...] = (),
        project: str | Path = "/",
    ) -> None:
        """Manage the server of the pool whose home is `home`.

        It locks the file `data_lock` in the folder `data` unless that is None or in HDFS.
        Relative paths of connector jars are resolved against `project`.
        """
        self._home = Path(os.path.realpath(home))
        self._jars = ConnectorJars(self._home, Path(project), connectors, dict(pool.conf))
        # HDFS has no locks; there, only the epochs of ledger and data folder recognize a copy of a home.
        self._data = Path(data, data_lock) if data is not None and not is_in_hdfs(data) else None
        self._pool = pool
        self._child: subprocess.Popen[bytes] | None = None
        self._known: ServerRecord | None = None
        """The server that was started or found, so that it can be ended even if its record was deleted."""

    @property
    def url(self) -> str:
        """URL of the server. Raises PoolUnreachable before the first start."""
        return f"sc://127.0.0.1:{self._recorded().port}"

    @property
    def token(self) -> str:
        """Token of the running server. Raises PoolUnreachable before the first start."""
        try:
            return (self._home / "pool.token").read_text("ascii")
        except OSError as error:
            raise PoolUnreachable("the pool was never started here") from error

    @property
    def pid(self) -> int | None:
        """Process id of the server; None if it is not running."""
        server = self._read()
        return server.pid if server and self._is_ours(server) else None

    @property
    def application(self) -> str | None:
        """The name under which the server registers with the master of a cluster; None if it is not running."""
        server = self._read()
        return _application_of(server) if server and self._is_ours(server) else None

    @property
    def ui(self) -> SparkUi | None:
        """The REST API of the server; None if it does not run, or runs without one."""
        server = self._read()
        if server is None or not server.ui_port or not self._is_ours(server):
            return None
        return SparkUi(f"http://{server.address}:{server.ui_port}", lambda: signed_token(ui_key(self.token)))

    @property
    def named(self) -> str:
        """Suffix for messages, ` (pid N)`, even if the process is gone; empty if no process id is recorded."""
        server = self._read()
        return f" (pid {server.pid})" if server and server.pid else ""

    @property
    def connectors(self) -> tuple[str, ...]:
        """Names of the connectors with which the server was started."""
        server = self._read()
        return tuple(server.connectors) if server else ()

    def check_java(self) -> JavaCheck:
        """Find the Java installation with which the server would be started, and check it."""
        return find_java()

    def start(self, say: Callable[[str], object] = lambda doing: None) -> bool:
        """Start the server unless it is running, without waiting until it is ready; return whether it was started.

        Missing connector jars are downloaded first; `say` is called with a progress message before the download. The
        server keeps the home and the data folder locked for its lifetime (`server_locks`), whatever `pool.json`
        contains. Raises PoolUnreachable if another process holds one of these locks, or if there is no usable Java.
        """
        if self.alive():
            return False
        java = self.check_java()
        if not java.works:
            raise PoolUnreachable(java.summary, remedy=java.remedy)
        spark = spark_home()
        self._work.mkdir(parents=True, exist_ok=True, mode=0o700)
        jars = self._jars.obtain(spark, self._java_home(java), say)
        with server_locks(self._home, self._data) as locks:
            if (earlier := self._read()) is not None:
                self._end_workers(earlier)
            self._start(write_spark_home(self._work / "spark", spark), java, locks, jars)
        return True

    def _start(self, spark: Path, java: JavaCheck, locks: tuple[int, ...], jars: tuple[str, ...]) -> None:
        self._make_room()
        token = secrets.token_hex(24)
        given = tuple(connector.name for connector in self._jars.connectors)
        server = ServerRecord(secrets.token_hex(8), free_port(), home=str(self._home), connectors=given)
        server = replace(server, master=self._pool.master)
        if self._pool.master is not None:
            server = replace(server, address=address_towards(self._pool.master))
        if self._has_ui:
            server = replace(server, ui_port=free_port())
            key = urlsafe_b64encode(ui_key(token)).decode()
            # Not on the command line, which every user of the machine can read.
            _write(self._work / "spark.conf", f"spark.{UI_FILTER}.param.secretKey={key}\n", 0o600)
        _write(self._home / "pool.token", token, 0o600)
        self._write(server)
        command = self._command(spark, server, jars)
        python = write_python(python_of(self._home), sys.executable)
        given_environment = {TOKEN: token, _MARKED: server.marker, "PYSPARK_PYTHON": str(python)}
        # The server, and its web interface, listen on this address only.
        given_environment["SPARK_LOCAL_IP"] = server.address
        # The shell records its id before it becomes the server, so that it is known even if the agent is killed.
        shell = ["/bin/sh", "-c", 'echo $$ >"$0"; exec "$@"', str(self._work / "pid"), *command]
        _write(self._home / "pool.log", "", 0o640)
        with open(self._home / "pool.log", "ab") as output:
            self._child = subprocess.Popen(
                shell,
                env=spark_environment(spark, self._java_home(java)) | given_environment,
                cwd=self._work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o027,
                pass_fds=locks,
            )
        write_server_pid(locks, self._child.pid)
        started = process_locks.process_start(self._child.pid) or ""
        self._write(replace(server, pid=self._child.pid, started=started))

    def alive(self) -> bool:
        """True if the server's process is running, even if the server does not answer yet."""
        if self._child is not None:
            self._child.poll()
        server = self._read()
        return server is not None and self._is_ours(server)

    def ready(self, seconds: float = READY_S) -> None:
        """Wait until the server answers. Raises PoolUnreachable if it exits or does not answer within `seconds`."""
        # Imported here, because it imports Spark's client, which commands that only read the record do not need.
        from pipelines.spark_connect.error_translation import TokenRefused
        from pipelines.spark_connect.session import probe

        ends_at = time.monotonic() + seconds
        url, token = self.url, self.token
        while True:
            left = ends_at - time.monotonic()
            if not self.alive():
                raise PoolUnreachable(
                    f"the server of the pool exited during startup: {self.last_words()}", remedy=self._see()
                )
            if left <= 0:
                raise PoolUnreachable(
                    f"the server of the pool did not answer within {seconds:.0f} s", remedy=self._see()
                )
            if _listens(url):
                try:
                    call(min(_PROBE_S, left), probe, url, token)
                    return
                except (EngineRefused, TokenRefused):
                    raise
                except HeadgateError:
                    pass
            time.sleep(0.1)

    def end(self) -> None:
        """Terminate the server if it is running, wait until it is gone, and kill Python processes that it left behind.

        Raises PoolUnreachable if the server cannot be killed.
        """
        server = self._known if self._known is not None and self._is_ours(self._known) else self._read()
        if server is None:
            return
        if self._is_ours(server):
            self._signal(server, signal.SIGTERM)
            if not self._gone_within(server, END_S):
                self._signal(server, signal.SIGKILL)
                if not self._gone_within(server, END_S):
                    raise PoolUnreachable(f"process {server.pid} of the pool cannot be killed")
        self._end_workers(server)

    def bound_log(self) -> None:
        """Truncate the server's log if it is large, after copying its end to `pool.log.1`.

        The server continues to append to the log.
        """
        log = self._home / "pool.log"
        with suppress(OSError):
            if log.stat().st_size > LOG_BYTES:
                with suppress(OSError), open(log, "rb") as file, open(self._home / "pool.log.1", "wb") as kept:
                    file.seek(-KEPT_BYTES, os.SEEK_END)
                    kept.write(file.read())
                os.truncate(log, 0)

    def last_words(self) -> str:
        """Return the last line of the server's log that reports an error, or its last line if none does.

        Lines of stack traces are ignored. The result is empty if there is no log.
        """
        try:
            with open(self._home / "pool.log", "rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 20_000))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        told = [line for line in lines if line.strip() and not line.startswith(("\t", " "))]
        errors = [line for line in told if "ERROR" in line or "Exception" in line]
        return (errors or told or [""])[-1][:300]

    @property
    def _work(self) -> Path:
        return self._home / "pool"

    def _java_home(self, java: JavaCheck) -> str:
        # For the bundled Java, JAVA_HOME is a folder with a wrapper script.
        return str(write_java_home(self._work / "java", java.path)) if java.bundled else java.home

    def _see(self) -> str:
        return f"see {self._home / 'pool.log'}"

    def _command(self, spark: Path, server: ServerRecord, jars: tuple[str, ...]) -> list[str]:
        conf = {**SERVER_SETTINGS, **self._jars.settings()}
        options = " ".join(
            (
                *JVM,
                *XML_OPTIONS,
                f"-Dheadgate.pool={server.marker}",
                f'-Djava.io.tmpdir="{self._work / "tmp"}"',
                f'-Dlog4j2.configurationFile="{self._work / "log4j2.properties"}"',
                conf.pop("spark.driver.extraJavaOptions", ""),
            )
        )
        conf |= {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(server.port),
            # A running query does not keep its session alive: after an hour without calls, all queries would be
            # stopped.
            "spark.connect.session.manager.defaultSessionTimeout": "-1",
            "spark.ui.enabled": "false",
            **(UI | {"spark.ui.port": str(server.ui_port)} if server.ui_port else {}),
            "spark.local.dir": str(self._work / "tmp"),
            "spark.sql.warehouse.dir": str(self._work / "warehouse"),
        }
        command = [str(spark / "bin" / "spark-submit")]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        name = _application_of(server) if self._pool.master is not None else "headgate"
        command += ["--name", name, "--master", self._pool.master or f"local[{self._pool.cores}]"]
        memory = self._pool.memory
        if self._pool.master is not None:
            memory = conf.pop("spark.driver.memory", DRIVER_MEMORY)
            # Without a limit, one server takes all cores of a cluster.
            conf |= {"spark.cores.max": str(self._pool.cores), "spark.executor.memory": self._pool.memory}
            executor_options = " ".join((*XML_OPTIONS, conf.get("spark.executor.extraJavaOptions", "")))
            conf["spark.executor.extraJavaOptions"] = executor_options.strip()
        command += ["--driver-memory", memory, "--driver-java-options", options.strip()]
        # An empty file keeps the machine's spark-defaults.conf out.
        command += ["--properties-file", str(self._work / "spark.conf")]
        if jars:
            command += ["--jars", ",".join(jars)]
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        return [*command, "spark-internal"]

    @property
    def _has_ui(self) -> bool:
        return self._jars.settings().get("spark.ui.enabled", "true").lower() != "false"

    def _make_room(self) -> None:
        shutil.rmtree(self._work / "tmp", ignore_errors=True)
        (self._work / "tmp").mkdir(parents=True, mode=0o700)
        (self._work / "pid").unlink(missing_ok=True)
        _write(self._work / "log4j2.properties", LOG4J, 0o640)
        _write(self._work / "spark.conf", "", 0o640)
        logs = [self._home / "pool.log", *(self._home / f"pool.log.{n}" for n in range(1, KEPT_LOGS + 1))]
        for newer, older in reversed(list(pairwise(logs))):
            if newer.exists():
                os.replace(newer, older)

    def _recorded(self) -> ServerRecord:
        server = self._read()
        if server is None:
            raise PoolUnreachable("the pool was never started here")
        return server

    def _read(self) -> ServerRecord | None:
        # If the record was deleted, the last known server is used, which would otherwise be started a second time.
        found = self._record()
        if found is not None and (self._known is None or not self._is_ours(self._known)):
            self._known = found
        return found or self._known

    def _record(self) -> ServerRecord | None:
        try:
            server = ServerRecord(**json.loads((self._home / "pool.json").read_text("utf-8")))
            # If the home was moved and a link left behind, the old path leads to the new one.
            server = replace(server, home=os.path.realpath(server.home))
        except (OSError, ValueError, TypeError):
            return None
        if server.pid:
            return server
        try:
            pid = int((self._work / "pid").read_text("ascii"))
        except (OSError, ValueError):
            return server
        return replace(server, pid=pid)

    def _write(self, server: ServerRecord) -> None:
        _write(self._home / "pool.json", json.dumps(asdict(server)), 0o640)

    def _is_ours(self, server: ServerRecord) -> bool:
        if not server.pid or server.home != str(self._home):
            return False
        started = process_locks.process_start(server.pid)
        if started is None:
            return False
        return (
            started == server.started
            if server.started
            else server.marker in process_locks.process_command_line(server.pid)
        )

    def _signal(self, server: ServerRecord, number: signal.Signals) -> None:
        if self._is_ours(server):
            try:
                os.kill(server.pid, number)
            except ProcessLookupError:
                return

    def _end_workers(self, server: ServerRecord) -> None:
        # A writer of a keyed table would otherwise try to reach its ended server for minutes (Spark 4.2.0).
        if server.home == str(self._home) and not self._is_ours(server):
            for pid in process_locks.processes_with(_MARKED, server.marker):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _gone_within(self, server: ServerRecord, seconds: float) -> bool:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            if self._child is not None:
                self._child.poll()
            if not self._is_ours(server):
                return True
            time.sleep(0.05)
        return False


def _application_of(server: ServerRecord) -> str:
    return f"headgate-{server.marker}"


def python_of(home: Path) -> Path:
    """Return the program that a server and its executors run as Python; on a cluster, also each worker has it there."""
    return home / "pool" / "python"


def _listens(url: str) -> bool:
    host, _, port = url.removeprefix("sc://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=0.5).close()
    except OSError:
        return False
    return True


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file atomically. It is never readable by more users than `mode` allows."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
