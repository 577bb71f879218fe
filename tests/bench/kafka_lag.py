"""Measures the lag of many statements over Kafka topics: `PYTHONPATH=tests/support python -m tests.bench.kafka_lag`.

Each statement reads a topic of its own on one broker. A round is the agent's own: it measures every statement and
writes the results into the ledger. The table shows an agent's first round, rounds in which every statement has read on
and messages have arrived, so that the oldest unread message is another one, rounds without changes, and commits of all
offsets to consumer groups after the rounds in which they have moved.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from agent_scenarios import one_pool
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from kafka_broker import QUIET, Broker, running_broker

from core.ipc.environment_paths import EnvironmentPaths
from core.model.names import TableName
from core.observed.versions import Binding
from core.project.model import Environment
from core.project.revision import RevisionTexts
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.measurements.lag_collector import LagCollector
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.kafka_offsets import REFRESH_S
from state.ledger import create_or_open
from tests.support.delta_files import commit_batch
from tests.support.ledger_rows import deployment_row, environment_row

STATEMENTS = 50
PARTITIONS = 4
MESSAGES = 20
"""Number of messages in each partition at first, half of them unread. Each round adds one message and reads one."""
ROUNDS = 10
BOUND_S = 1.0


class Statements:
    """Statements c0, c1, … over tables p0, p1, … in topics of one broker, and the collector that measures them."""

    def __init__(self, root: Path, count: int, broker: Broker) -> None:
        self.root, self.count, self._broker = root, count, broker
        self._producer = Producer({"bootstrap.servers": broker.servers}, logger=QUIET)
        for done in broker.admin.create_topics([NewTopic(f"t{n}", PARTITIONS, 1) for n in range(count)]).values():
            done.result(60)
        self.send(MESSAGES)
        ledger = create_or_open(root / "ledger.db", environment_row())
        for n in range(count):
            parent = TableName(f"p{n}")
            dml = f"INSERT INTO c{n} SELECT id FROM STREAM p{n}"
            texts = RevisionTexts(f"CREATE TABLE c{n} (id BIGINT) USING parquet", dml, f"mirror_offsets: g{n}\n")
            of_topics = {"format": "kafka", "bindings": (), "wanted": "stopped", "external": True, "version": 0}
            ledger.put_deployment(deployment_row(f"p{n}", folder=f"kafka://{broker.servers}/t{n}", **of_topics))
            reads = {"checkpoint": f"{root}/c{n}", "bindings": (Binding(parent, 0, True),)}
            ledger.put_deployment(deployment_row(f"c{n}", texts=texts, revision=f"r{n}", **reads))
        self.read(MESSAGES // 2, batch=0)
        self.agent = AgentContext(
            places=EnvironmentPaths(str(root), str(root / "a.sock"), os.getuid()),
            folder=str(root),
            project_id="p-id",
            project="p",
            layout=EnvironmentLayout(str(root), Environment("dev")),
            ledger=ledger,
            ledger_id="ledger",
            pools=one_pool(None),  # Nothing is measured by it.
            files=TableCheckpoints("ledger"),
        )
        self.deployments = tuple(ledger.deployments())
        self.collector = LagCollector(self.agent)

    def send(self, count: int) -> None:
        """Send messages to each partition of each topic."""
        for n in range(self.count):
            for partition in range(PARTITIONS):
                for _ in range(count):
                    self._producer.produce(f"t{n}", value="{}", partition=partition)
        assert self._producer.flush(60) == 0

    def read(self, upto: int, *, batch: int) -> None:
        """Commit a batch of each statement, which ends with this offset in each partition."""
        for n in range(self.count):
            partitions = ",".join(f'"{partition}":{upto}' for partition in range(PARTITIONS))
            commit_batch(self.root / f"c{n}", batch, f'{{"t{n}":{{{partitions}}}}}')

    def round(self, waiting: int) -> float:
        """Measure all statements; returns the seconds that this takes."""
        began = time.perf_counter()
        self.collector.round(self.deployments, ())
        took = time.perf_counter() - began
        found = {each.table: each for each in self.agent.ledger.measurements()}
        assert all(
            found[TableName(f"c{n}")].lag_rows == waiting and found[TableName(f"c{n}")].behind_s is not None
            for n in range(self.count)
        ), found[TableName("c0")]
        return took

    def mirror(self, upto: int) -> float:
        """Commit the offsets of all statements to their groups; returns the seconds that this takes."""
        began = time.perf_counter()
        self.collector.mirror.round()
        took = time.perf_counter() - began
        assert all(
            self._broker.committed(f"g{n}") == {(f"t{n}", partition): upto for partition in range(PARTITIONS)}
            for n in range(self.count)
        )
        return took


def main(words: list[str]) -> None:
    """Print the table."""
    count = int(words[0]) if words else STATEMENTS
    waiting = PARTITIONS * MESSAGES // 2
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "kafka") as broker:
        statements = Statements(Path(folder), count, broker)
        first = statements.round(waiting)
        moving, resting, mirrored = [], [], []
        for n in range(1, ROUNDS + 1):
            statements.send(1)
            statements.read(MESSAGES // 2 + n, batch=n)
            time.sleep(REFRESH_S)
            moving.append(statements.round(waiting))
            mirrored.append(statements.mirror(MESSAGES // 2 + n))
        for _ in range(ROUNDS):
            time.sleep(REFRESH_S)
            resting.append(statements.round(waiting))
    print("| statements and topics | partitions | first round | all have moved | the longest | at rest ", end="")
    print("| offsets of all groups | the longest |\n|---|---|---|---|---|---|---|---|")
    figures = (first, statistics.median(moving), max(moving), statistics.median(resting))
    figures = (*figures, statistics.median(mirrored), max(mirrored))
    print(f"| {count} | {count * PARTITIONS} |", " | ".join(f"{each:.3f} s" for each in figures), "|")
    print(f"bound of {BOUND_S} s: {'met' if max(*moving, *resting) <= BOUND_S else 'NOT met'} in later rounds")


if __name__ == "__main__":
    main(sys.argv[1:])
