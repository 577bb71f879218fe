"""Measures a statement over a Kafka topic against the same query written by hand in PySpark.

`PYTHONPATH=tests/support python -m tests.bench.kafka_throughput [PAIRS]`, about two minutes for each pair and format.

Both read the same backlog from a broker on the same two cores, in batches of the same size, and write Parquet files.
The statement runs in an environment of its own, with agent and pool. The query by hand runs in a `SparkSession` with
the pool's cores, memory and Spark settings, and Java's defaults. Each run has a new Java process and ends when the
backlog is drained. Rows per second are the rows in Spark's progress events, divided by the time from the start of the
first batch to the end of the last one; so they include the warming up of Java. Rows per CPU second of the Java process
are counted after the first batch, and depend less on the load of the machine.
"""

import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
from confluent_kafka import Producer
from kafka_broker import QUIET, Broker, running_broker
from live_project import Driven, until
from pool_jars import kafka_jars

from core.project.model import Pool
from core.project.server_settings import SERVER_SETTINGS
from pipelines.local_pool.connect_server import LocalPool
from pipelines.local_pool.java_and_spark import find_java
from pipelines.spark_connect.session import Session

ROWS = {"json": 2_000_000, "avro": 3_000_000}
"""Messages of the backlog by format of the value: at least 20 s of work on two cores."""
PARTITIONS, BATCHES, PAIRS = 4, 8, 3
BOUND = 0.95
DRAINED_S = 400.0
MEMORY = "2g"

_LINE = [{"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}]
_CUSTOMER = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": {"type": "record", "name": "Customer", "fields": _CUSTOMER}},
        {"name": "amount", "type": "double"},
        {"name": "currency", "type": "string"},
        {"name": "status", "type": "string"},
        {"name": "created_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": _LINE}}},
        {"name": "note", "type": "string"},
    ],
}
COLUMNS = (
    "id BIGINT, customer STRUCT<id: BIGINT, name: STRING>, amount DOUBLE, currency STRING, status STRING, "
    "created_at TIMESTAMP, lines ARRAY<STRUCT<sku: STRING, qty: INT>>, note STRING"
)
KEPT = "id BIGINT, customer STRING, amount DOUBLE, status STRING, created_at TIMESTAMP, lines INT"
SELECT = ("id", "customer.name AS customer", "amount", "status", "created_at", "size(lines) AS lines")
WHERE = "status <> 'cancelled'"

HEAD = f"""project: throughput
id: 7c0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3d
default_env: dev
environments:
  dev:
    pool: {{cores: 2, memory: {MEMORY}}}
defaults: {{trigger: 1 second}}
"""


class Rates(NamedTuple):
    """Rows per second, and rows per CPU second of the Java process after the first batch."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Backlog:
    """A topic full of messages, and the options with which both queries read it."""

    format: str
    options: Mapping[str, str]

    @property
    def rows(self) -> int:
        """Number of messages."""
        return ROWS[self.format]


def backlog(broker: Broker, format: str) -> Backlog:
    """Write the messages of a topic: a thousand different values, again and again."""
    broker.create(format, PARTITIONS)
    values = [_message(format, n) for n in range(1000)]
    settings = {"bootstrap.servers": broker.servers, "compression.type": "lz4", "linger.ms": 50}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000}, logger=QUIET)
    for n in range(ROWS[format]):
        if n % 100_000 == 0:
            producer.flush(120)
        producer.produce(format, value=values[n % 1000], partition=n % PARTITIONS)
    assert producer.flush(120) == 0
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": format, "startingOffsets": "earliest"}
    return Backlog(format, {**options, "maxOffsetsPerTrigger": str(ROWS[format] // BATCHES)})


def _message(format: str, n: int) -> bytes:
    at = f"2026-01-{n % 28 + 1:02}T10:{n % 60:02}:00.123456+00:00"
    order = {
        "id": n, "customer": {"id": n * 7, "name": f"customer {n % 97}"}, "amount": round(n * 1.37, 2),
        "currency": "EUR", "status": ("paid", "open", "sent", "cancelled")[n % 4], "created_at": at,
        "lines": [{"sku": f"sku-{n % 31}-{k}", "qty": k + 1} for k in range(n % 3 + 1)], "note": "as discussed " * 3,
    }  # fmt: skip
    if format == "json":
        return json.dumps(order).encode()
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {**order, "created_at": datetime.fromisoformat(at)})
    return out.getvalue()


class Throughput(Driven):
    """A project with one statement over a topic."""

    @property
    def folder(self) -> Path:
        return self.root / "throughput"

    def write(self, of: Backlog) -> None:
        """Write the files of the project."""
        self.folder.mkdir(parents=True)
        (self.folder / "headgate.yml").write_text(f"{HEAD}connectors: {{kafka: {{jars: ['{kafka_jars()}']}}}}\n")
        avro = {"value.format": "avro", "avro.schema": json.dumps(SCHEMA)} if of.format == "avro" else {}
        listed = ", ".join(f"'{name}'='{value}'" for name, value in {**of.options, **avro}.items())
        select = f"SELECT {', '.join(SELECT)} FROM STREAM orders WHERE {WHERE}"
        self._table("sources", "orders", f"CREATE TABLE orders ({COLUMNS}) USING kafka OPTIONS ({listed});", "")
        self._table("facts", "kept", f"CREATE TABLE kept ({KEPT}) USING parquet;", f"INSERT INTO kept {select};")

    def _table(self, layer: str, table: str, ddl: str, dml: str) -> None:
        scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{table}.sql").write_text(ddl)
        if dml:
            (scripts / f"dml.{table}.sql").write_text(dml)


def of_statement(root: Path, of: Backlog) -> Rates:
    """Drain the backlog by a statement of a project."""
    project = Throughput(root)
    project.write(of)
    try:
        project.done("up")
        applied = project.apply(project.plan("kept"))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        server = LocalPool(project.home(), Pool())
        ((id,),) = project.ledger("SELECT session_id FROM pool")
        session = Session(server.url, server.token, str(id))
        (query,) = session.spark.streams.active
        rates = _drained(query, of.rows, project.pool_pid())
        session.close()
        return rates
    finally:
        project.down()


def of_hand(root: Path, of: Backlog) -> Rates:
    """Drain the backlog by the query by hand, in a process of its own."""
    words = [sys.executable, "-m", "tests.bench.kafka_throughput", "by-hand", str(root), of.format]
    environ = {**os.environ, "JAVA_HOME": find_java().home}
    done = subprocess.run(
        [*words, json.dumps(of.options)], env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Rates(*json.loads(done.stdout.splitlines()[-1]))


def by_hand(root: str, format: str, options: str) -> None:
    """Run the query as an engineer would write it, and print its `Rates`."""
    from pyspark.sql import SparkSession
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import col, from_json

    building = SparkSession.builder.master("local[2]").config("spark.driver.memory", MEMORY)
    building = building.config("spark.jars", ",".join(map(str, sorted(kafka_jars().glob("*.jar")))))
    spark: Any = building.config(map={**SERVER_SETTINGS, "spark.ui.enabled": "false"}).getOrCreate()

    messages = spark.readStream.format("kafka").options(**json.loads(options)).load()
    value = col("value")
    order = from_json(value.cast("string"), COLUMNS) if format == "json" else from_avro(value, json.dumps(SCHEMA))
    orders = messages.select(order.alias("order")).select("order.*")
    kept = orders.where(WHERE).selectExpr(*SELECT)
    writer = kept.writeStream.format("parquet").option("path", f"{root}/kept")
    query = writer.option("checkpointLocation", f"{root}/checkpoint").trigger(processingTime="1 second").start()

    print(json.dumps(_drained(query, ROWS[format], spark.sparkContext._gateway.proc.pid)))
    query.stop()


def _drained(query: Any, rows: int, pid: int) -> Rates:
    """Wait until a query has read all rows, and return its rates; `pid` is that of its Java process."""
    found: dict[int, Mapping[str, Any]] = {}
    after_first: list[tuple[int, float]] = []

    def is_drained() -> bool:
        found.update({each["batchId"]: json.loads(each.json) for each in query.recentProgress})
        read = sum(map(_rows, found.values()))
        if read and not after_first:
            after_first.append((read, _cpu_s(pid)))
        return read == rows

    until(is_drained, DRAINED_S, "the backlog is drained", every_s=0.5)
    busy = [each for each in found.values() if _rows(each)]
    begins = [datetime.fromisoformat(each["timestamp"]).timestamp() for each in busy]
    ends = [at + each["durationMs"]["triggerExecution"] / 1000 for at, each in zip(begins, busy, strict=True)]
    ((read, cpu_s),) = after_first
    return Rates(rows / (max(ends) - min(begins)), (rows - read) / (_cpu_s(pid) - cpu_s))


def _rows(progress: Mapping[str, Any]) -> int:
    return sum(source["numInputRows"] for source in progress["sources"])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pair(of: Backlog, *, statement_first: bool) -> tuple[Rates, Rates]:
    """Measure the statement and the query by hand, one after the other."""
    runs: Sequence[Callable[[Path, Backlog], Rates]] = (of_statement, of_hand)
    found = {}
    for run in runs if statement_first else reversed(runs):
        with tempfile.TemporaryDirectory(prefix="headgate-bench-") as root:
            found[run] = run(Path(root), of)
        print(of.format, run.__name__, found[run], f"load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return found[of_statement], found[of_hand]


def main(words: list[str]) -> None:
    """Print the table."""
    if words[:1] == ["by-hand"]:
        by_hand(*words[1:])
        return
    pairs = int(words[0]) if words else PAIRS
    print("| value | rows per | statement | by hand | statement : by hand | of each pair |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, running_broker(Path(folder) / "k") as broker:
        for format in ROWS:
            of = backlog(broker, format)
            found = [_pair(of, statement_first=n % 2 == 0) for n in range(pairs)]
            for name, unit in (("wall", "second"), ("cpu", "CPU second")):
                rates = [tuple(getattr(each, name) for each in pair) for pair in found]
                ours, hand = (statistics.median(column) for column in zip(*rates, strict=True))
                ratios = [ours / hand for ours, hand in rates]
                listed = ", ".join(f"{each:.2f}" for each in ratios)
                ratio = statistics.median(ratios)
                holds = "" if ratio >= BOUND else f" (bound {BOUND})"
                print(f"| {format} | {unit} | {ours:,.0f} | {hand:,.0f} | {ratio:.2f}{holds} | {listed} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
