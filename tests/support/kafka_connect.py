"""Kafka Connect with Debezium for tests: the demo's worker, which can be killed and started again."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafka_broker import Broker, jars_of
from live_project import until
from postgres_server import PostgresServer

from pipelines.demo import servers
from pipelines.demo.servers import CONNECT, DEBEZIUM
from pipelines.local_pool.detached_servers import free_port


class KafkaConnect(servers.KafkaConnect):
    """A worker that runs connectors and stores its offsets in `folder`."""

    def __init__(self, folder: Path, broker: Broker, connectors: Mapping[str, Mapping[str, str]]) -> None:
        jars = jars_of(CONNECT), jars_of(DEBEZIUM)
        super().__init__(folder, free_port(), brokers=broker.servers, jars=jars, connectors=connectors)
        self._process: subprocess.Popen[bytes] | None = None
        self.prepare()

    def start(self) -> None:
        """Start the worker, and wait until the tasks of all connectors are running."""
        self._process = process = self.spawn()

        def runs() -> bool:
            assert process.poll() is None, self.last_words()
            return self.answers()

        until(runs, 120, "all connectors run")

    def kill(self) -> None:
        """Kill the worker; its offsets are kept."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)


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
    """Yield a running worker, and kill it at the end."""
    worker = KafkaConnect(folder, broker, connectors)
    try:
        worker.start()
        yield worker
    finally:
        worker.kill()
