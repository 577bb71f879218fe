"""Benchmarks of a project over Kafka topics, on a real broker: traces against the messages, and nothing left behind."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from kafka_broker import Broker, free_port
from tiny_project import Tiny, until

from core.bench.batch_trace import Arrival, BatchTracer, Injected
from core.bench.replayed_load import ReplayedLoad, Row, SourceSample
from core.bench.request import BenchKind, BenchRequest, BenchSource
from core.bench.topic_inputs import TopicInputs
from core.model.names import TableName
from pipelines.bench.load_writer import LoadWriter
from pipelines.bench.measurement import RunningBenchmark
from pipelines.bench.topic_load import TopicLoad
from tui.project_folder.environment_selection import select_environment
from tui.services.benchmarks import deployed_statements
from tui.services.environment_service import EnvironmentService

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

IN = TableName("orders_in")
DML = {
    "orders": "INSERT INTO orders SELECT id, kind, _timestamp AS at FROM STREAM orders_in WHERE kind <> 'x';",
    "orders_out": "INSERT INTO orders_out SELECT CAST(id AS STRING) AS _key, id, kind FROM STREAM orders;",
    "returned": "INSERT INTO returned SELECT id, upper(kind) AS kind FROM STREAM returned_in;",
}
TABLES = tuple(DML)


def ddl(servers: str) -> dict[str, str]:
    def over(topic: str, kind: str = "subscribe") -> str:
        return f"USING kafka OPTIONS ('kafka.bootstrap.servers'='{servers}', {kind}='{topic}');"

    columns = "id BIGINT, kind STRING, note STRING, _timestamp TIMESTAMP"
    return {
        "orders_in": f"CREATE TABLE orders_in ({columns}) {over('orders')}",
        "returned_in": f"CREATE TABLE returned_in (id BIGINT, kind STRING) {over('orders-out')}",
        "orders": "CREATE TABLE orders (id BIGINT, kind STRING, at TIMESTAMP) USING parquet;",
        "orders_out": f"CREATE TABLE orders_out (_key STRING, id BIGINT, kind STRING) {over('orders-out', 'topic')}",
        "returned": "CREATE TABLE returned (id BIGINT, kind STRING) USING parquet;",
    }


@pytest.fixture
def tiny(tmp_path: Path, broker: Broker) -> Iterator[Tiny]:
    broker.create("orders", 3)
    broker.create("orders-out", 2)
    found = Tiny(tmp_path, ddl=ddl(broker.servers), dml=DML, yml={"orders_out": "key: [id]\n"})
    found.write()
    yield found
    found.down()
    for topic in ("orders", "orders-out"):
        broker.delete(topic)


def own_topics(broker: Broker) -> list[str]:
    return [topic for topic in broker.admin.list_topics(timeout=10).topics if topic.startswith("it_")]


def left(tiny: Tiny) -> list[Path]:
    return sorted((tiny.root / "home").glob("ephemeral/*"))


def sampled(broker: Broker) -> None:
    """Write messages to the project's own topic, whose keys are the ids."""
    values = [json.dumps({"id": n, "kind": "abx"[n % 3], "note": "few", "more": [n]}) for n in range(300)]
    broker.produce("orders", values)


@dataclass(slots=True)
class Recorded(TopicLoad):
    """Load whose rows are remembered by input."""

    ids: dict[str, list[int]] = field(default_factory=dict)

    def send(self, source: BenchSource, path: str) -> tuple[str, float]:
        values = [json.loads(each) for each in parquet.read_table(path)["value"].to_pylist()]
        input, at = TopicLoad.send(self, source, path)
        self.ids[input] = [row["id"] for row in values if row["kind"] != "x"]
        return input, at


def measured(tiny: Tiny, servers: str, folder: Path) -> tuple[RunningBenchmark, Recorded]:
    environ = {**os.environ, "HEADGATE_HOME": str(tiny.root / "home")}
    place = select_environment(environ, str(tiny.folder), project=str(tiny.folder), environment="dev")
    statements = deployed_statements(EnvironmentService(place, environ))
    rows: Sequence[Row] = [{"id": n, "kind": "abx"[n % 3]} for n in range(1, 200)]
    kinds = (("id", "bigint"), ("kind", "string"))
    samples = {IN: SourceSample(IN, kinds, tuple(rows))}
    source = BenchSource(IN, f"kafka://{servers}/orders", "kafka", kinds)
    load = ReplayedLoad(samples, frozenset({(IN, "id")}))
    request = BenchRequest(BenchKind.LATENCY, statements, (source,), probes=4, probe_rows=30, rate=60.0, window_s=5.0)
    topics = Recorded(str(folder), samples, TopicInputs(frozenset({"orders-out"})))
    return RunningBenchmark(request, LoadWriter(load, {IN: source}, topics=topics), {0: load}), topics


def test_what_offsets_say_is_what_the_messages_say(tiny: Tiny, broker: Broker, tmp_path: Path) -> None:
    tiny.done("up")
    applied = tiny.apply(tiny.plan("--all"))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    running, topics = measured(tiny, broker.servers, tmp_path / "load")
    (result,) = [answer["result"] for answer in running.answers() if "result" in answer]
    tracer = BatchTracer(
        [each.traced for each in running.request.in_order],
        {name: each.batches for name, each in running.readers.items()},
    )
    sent = {json.loads(each.value())["id"]: each.timestamp()[1] / 1000 for each in broker.messages("orders-out")}
    compared = sum(as_sent(tracer, each, topics.ids, sent) for each in running.injected)
    assert compared > 4 + 5
    phases = {(figure["phase"], figure["table"]) for figure in result["figures"] if figure["kind"] == "latency"}
    assert phases == {(phase, table) for phase in ("idle", "load") for table in TABLES}
    assert not result["notes"] and not any(each["missing"] for each in result["figures"])


def as_sent(tracer: BatchTracer, each: Injected, ids: Mapping[str, list[int]], sent: Mapping[int, float]) -> bool:
    """Compare when an input had arrived in the topic with the messages there; return False if it had not arrived."""
    ends = tracer.trace(each)
    end, after = ends[TableName("orders_out")], ends[TableName("returned")]
    if not isinstance(end, Arrival):
        return False
    # The batch may have read more inputs, which count as a whole.
    assert max(sent[id] for id in ids[each.input]) <= end.visible_at
    assert end.visible_at in sent.values()
    assert not isinstance(after, Arrival) or (after.visible_at > end.visible_at and after.source == "orders_out")
    return True


def test_commands_measure_and_leave_nothing(tiny: Tiny, broker: Broker) -> None:
    sampled(broker)
    done = tiny.run("bench", "latency", "--window", "8", "--probes", "3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"it creates topics at {broker.servers}: it_*_orders, it_*_orders-out, with as many" in done.stderr
    assert f"no topic at {broker.servers}" in done.stderr
    found = json.loads(done.stdout)
    latencies = {(each["phase"], each["table"]): each for each in found["figures"] if each["kind"] == "latency"}
    assert latencies.keys() == {(phase, table) for phase in ("idle", "load") for table in TABLES}
    assert not any(each["missing"] for each in latencies.values())
    assert {each["source"] for each in latencies.values()} == {"orders_in"}
    for phase in ("idle", "load"):
        values = [latencies[phase, table]["value"] for table in TABLES]
        assert values == sorted(values) and values[0] > 0, values
    assert found["parameters"]["partitions"] == {"orders_in": 3} and not found["notes"]
    rates = json.loads(
        tiny.done(
            "bench", "throughput", "--rate", "50", "--most", "50", "--window", "8", "--record-bytes", "200", "--json"
        )
    )
    tried = [each["rate"] for each in rates["trials"]]
    assert tried[0] == max(tried) == 50.0 and all(each["written_rows"] for each in rates["trials"])
    nothing_left(tiny, broker)


def test_starts_and_kills_are_measured_over_topics(tiny: Tiny, broker: Broker) -> None:
    found = json.loads(tiny.done("bench", "startup", "--json"))
    values: dict[Any, float] = {
        (each["phase"], each["table"]): each["value"] for each in found["figures"] if each["kind"] == "startup"
    }
    for phase in ("start", "server killed"):
        assert all(values[phase, table] > 0 for table in TABLES)
    assert found["notes"] == ["rows of orders_in were made up from the declaration: --sample gives real ones"]
    nothing_left(tiny, broker)


def nothing_left(tiny: Tiny, broker: Broker) -> None:
    assert not left(tiny) and own_topics(broker) == []
    assert broker.size("orders-out") == 0 and broker.size("orders") in (0, 300), "only its own topics were written"
    assert not broker.admin.list_consumer_groups().result(30).valid


def test_without_a_broker_nothing_starts(tiny: Tiny, broker: Broker) -> None:
    folder = tiny.folder / "pipelines/facts/p/orders_in/sql-scripts/ddl.orders_in.sql"
    folder.write_text(folder.read_text().replace(broker.servers, f"127.0.0.1:{free_port()}"))
    refused = tiny.run("bench", "latency")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "no broker of 127.0.0.1:" in refused.stderr and "check that Kafka runs" in refused.stderr
    assert not left(tiny) and own_topics(broker) == []


def test_a_killed_benchmark_leaves_topics_that_the_next_one_deletes(tiny: Tiny, broker: Broker) -> None:
    program = str(Path(sys.executable).with_name("headgate"))
    command = subprocess.Popen(
        [program, "bench", "latency", "orders"],
        cwd=tiny.folder, env={**os.environ, "HEADGATE_HOME": str(tiny.root / "home")}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: bool(own_topics(broker)), 120, "its topics exist")
    command.kill()
    command.wait(30)
    assert own_topics(broker) and left(tiny)
    done = tiny.run("bench", "throughput", "orders", "--rate", "20", "--most", "20", "--window", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left by a benchmark or test that was killed" in done.stderr and own_topics(broker) == []
    assert not left(tiny)


def test_files_stand_for_a_database(tmp_path: Path) -> None:
    url = "url 'jdbc:postgresql://127.0.0.1:1/none', user 'nobody', dbtable 'public.x'"
    tables = {
        "changes_in": f"CREATE TABLE changes_in (id BIGINT, _op STRING, _lsn BIGINT) "
        f"USING postgres_changes OPTIONS ({url}, publication 'p');",
        "products": f"CREATE TABLE products (number BIGINT, price DECIMAL(9,2)) USING jdbc OPTIONS ({url});",
        "priced": "CREATE TABLE priced (id BIGINT, price DECIMAL(9,2)) USING parquet;",
    }
    join = "FROM STREAM changes_in AS c JOIN products AS p ON p.number = c.id WHERE c._op <> 'd'"
    tiny = Tiny(tmp_path, ddl=tables, dml={"priced": f"INSERT INTO priced SELECT c.id, p.price {join};"})
    tiny.write()
    done = tiny.run("bench", "latency", "--window", "5", "--probes", "3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files stand for changes_in, products: no database is connected to or measured" in done.stderr
    found = json.loads(done.stdout)
    assert found["notes"][0] == "files stood for changes_in, products, so the figures do not contain the database"
    assert found["parameters"]["stand_ins"] == ["changes_in", "products"]
    latencies = {each["phase"]: each for each in found["figures"] if each["kind"] == "latency"}
    assert all(latencies[phase]["spread"]["count"] >= 3 for phase in ("idle", "load")), latencies
    assert not any(each["missing"] for each in latencies.values()), "keys of every cycle are those of the static side"
    assert not left(tiny)
