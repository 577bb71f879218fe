"""Kafka Connect with Debezium for tests: one standalone worker, which can be killed and started again."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from kafka_broker import Broker, free_port, resolved_jars
from live_project import until
from postgres_server import PostgresServer

from pipelines.local_pool.java_and_spark import find_java

CONNECT = ("org.apache.kafka", "connect-runtime", "4.1.2")
"""The artifact of the worker; with its dependencies it is 56 jars of 33 MB."""
DEBEZIUM = ("io.debezium", "debezium-connector-postgres", "3.5.0.Final")
"""The artifact of the connector; with its dependencies it is 21 jars of 27 MB."""


class KafkaConnect:
    """A worker that runs connectors; its offsets are in `folder`."""

    def __init__(self, folder: Path, broker: Broker, connectors: Mapping[str, Mapping[str, str]]) -> None:
        self.folder, self._port, self._connectors = folder, free_port(), connectors
        self._process: subprocess.Popen[bytes] | None = None
        plugins = folder / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "debezium").symlink_to(resolved_jars(*DEBEZIUM))
        converter = "org.apache.kafka.connect.json.JsonConverter"
        worker = {
            "bootstrap.servers": broker.servers, "key.converter": converter, "value.converter": converter,
            "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": f"{folder}/offsets", "offset.flush.interval.ms": "2000",
            "plugin.path": str(plugins), "plugin.discovery": "only_scan",
            "listeners": f"http://127.0.0.1:{self._port}",
        }  # fmt: skip
        files = {"worker": worker, **{name: {"name": name, **config} for name, config in connectors.items()}}
        for name, config in files.items():
            (folder / f"{name}.properties").write_text("".join(f"{key}={value}\n" for key, value in config.items()))

    def start(self) -> None:
        """Start the worker, and wait until the tasks of all connectors run."""
        files = [str(self.folder / f"{name}.properties") for name in ("worker", *self._connectors)]
        java = [str(Path(find_java().home) / "bin" / "java"), "-Xmx256m", "-XX:+UseSerialGC"]
        java += ["-cp", f"{resolved_jars(*CONNECT)}/*", "org.apache.kafka.connect.cli.ConnectStandalone", *files]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(java, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        until(self._runs, 120, "all connectors run")

    def kill(self) -> None:
        """Kill the worker; its offsets stay."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)

    def _runs(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            found = [self._asked(f"connectors/{name}/status") for name in self._connectors]
        except (URLError, ConnectionError):
            return False
        tasks = [task for status in found for task in status["tasks"]]
        assert all(task["state"] != "FAILED" for task in tasks), tasks
        return len(tasks) >= len(found) and all(task["state"] == "RUNNING" for task in tasks)

    def _asked(self, path: str) -> "dict[str, list[dict[str, str]]]":
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=5) as answer:
            return json.load(answer)  # type: ignore[no-any-return]


def debezium(postgres: PostgresServer, name: str, **settings: str) -> dict[str, str]:
    """Return the configuration of a connector with a slot and a publication called `name`.

    Underscores in the names of settings stand for dots.
    """
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1", "database.port": str(postgres.port), "database.user": "postgres",
        "database.password": "", "database.dbname": "postgres", "topic.prefix": name, "slot.name": name,
        "publication.name": name, "publication.autocreate.mode": "filtered",
        "topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "2",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }  # fmt: skip


@contextmanager
def running_connect(
    folder: Path, broker: Broker, connectors: Mapping[str, Mapping[str, str]]
) -> Iterator[KafkaConnect]:
    """Yield a worker that runs, and kill it at the end."""
    worker = KafkaConnect(folder, broker, connectors)
    try:
        worker.start()
        yield worker
    finally:
        worker.kill()
