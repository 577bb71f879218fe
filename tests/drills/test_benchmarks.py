"""Benchmarks on real Spark: traces by position against the rows themselves, and commands that leave nothing behind."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from live_project import Driven

from core.bench.batch_trace import Arrival, BatchTracer, Injected
from core.bench.replayed_load import ReplayedLoad, SourceSample
from core.bench.request import BenchKind, BenchRequest, BenchSource
from core.model.names import TableName
from pipelines.bench.load_writer import LoadWriter
from pipelines.bench.measurement import RunningBenchmark
from pipelines.storage.file_stream_logs import batch_files, local_path
from tui.project_folder.environment_selection import select_environment
from tui.services.benchmarks import deployed_statements
from tui.services.environment_service import EnvironmentService

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

LANDED = TableName("landed")
COLUMNS = "id BIGINT, kind STRING, at TIMESTAMP"
DML = {
    "kept": "SELECT id, kind, at FROM STREAM landed WHERE kind <> 'x'",
    "once": "SELECT DISTINCT id, kind, at FROM STREAM kept WATERMARK at DELAY OF INTERVAL 2 SECONDS",
    "copied": "SELECT id, upper(kind) AS kind, at FROM STREAM once",
}
MANIFEST = """project: benched
id: 3f0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    pool: {cores: 2, memory: 1g, conf: {spark.sql.shuffle.partitions: "2"}}
defaults: {trigger: 1 second}
"""


@dataclass
class Benched(Driven):
    """Three statements over landing files; their ids pass unchanged."""

    @property
    def folder(self) -> Path:
        return self.root / "benched"

    def write(self) -> None:
        (self.folder / "data/landing").mkdir(parents=True)
        (self.folder / "headgate.yml").write_text(MANIFEST)
        self._table("sources", "landed", f"CREATE TABLE landed ({COLUMNS}) USING json LOCATION 'landing';", "")
        for table, select in DML.items():
            self._table("facts", table, f"CREATE TABLE {table} ({COLUMNS}) USING parquet;", select)

    def _table(self, layer: str, table: str, ddl: str, select: str) -> None:
        scripts = self.folder / f"pipelines/{layer}/p/{table}/sql-scripts"
        scripts.mkdir(parents=True)
        (scripts / f"ddl.{table}.sql").write_text(ddl)
        if select:
            (scripts / f"dml.{table}.sql").write_text(f"INSERT INTO {table} {select};")

    def appeared(self, table: str) -> dict[int, float]:
        """Return when each id was visible in a table: when the log of the batch that wrote it was."""
        folder = self.folder / f"data/tables/{table}__v1/_spark_metadata"
        found: dict[int, float] = {}
        for _, name in sorted(batch_files(str(folder)).items()):
            at = (folder / name).stat().st_mtime
            for line in (folder / name).read_text().splitlines()[1:]:
                for row in parquet.read_table(local_path(json.loads(line)["path"])).to_pylist():
                    found.setdefault(row["id"], at)
        return found


@pytest.fixture
def benched(tmp_path: Path) -> Iterator[Benched]:
    project = Benched(tmp_path)
    project.write()
    yield project
    project.down()


def test_what_positions_say_is_what_the_rows_say(benched: Benched) -> None:
    benched.done("up")
    applied = benched.apply(benched.plan("--all"))
    assert applied.returncode == 0, applied.stdout + applied.stderr
    environ = {**os.environ, "HEADGATE_HOME": str(benched.root / "home")}
    place = select_environment(environ, str(benched.folder), project=str(benched.folder), environment="dev")
    statements = deployed_statements(EnvironmentService(place, environ))
    kinds = (("id", "bigint"), ("kind", "string"), ("at", "timestamp"))
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = tuple({"id": n, "kind": "abx"[n % 3], "at": begin + timedelta(milliseconds=n)} for n in range(1, 200))
    sample = SourceSample(LANDED, kinds, rows, "at")
    source = BenchSource(LANDED, str(benched.folder / "data/landing"), "json", kinds)
    load = ReplayedLoad({LANDED: sample}, frozenset({(LANDED, "id")}))
    request = BenchRequest(BenchKind.LATENCY, statements, (source,), probes=4, probe_rows=30, rate=60.0, window_s=5.0)
    running = RunningBenchmark(request, LoadWriter(load, {LANDED: source}), {0: load})
    (result,) = [answer["result"] for answer in running.answers() if "result" in answer]
    tracer = BatchTracer(
        [each.traced for each in request.in_order], {name: each.batches for name, each in running.readers.items()}
    )
    appeared = {table: benched.appeared(table) for table in DML}
    compared = 0
    for each in running.injected:
        ids = [row["id"] for row in _rows(each) if row["kind"] != "x"]
        for table, end in tracer.trace(each).items():
            if isinstance(end, Arrival):
                assert max(appeared[table][id] for id in ids) == end.visible_at, (table, each)
                compared += 1
    assert compared > 3 * (4 + 5)
    phases = {(figure["phase"], figure["table"]) for figure in result["figures"] if figure["kind"] == "latency"}
    assert phases == {(phase, table) for phase in ("idle", "load") for table in DML}
    waits = {figure["table"]: figure["value"] for figure in result["figures"] if figure["kind"] == "watermark"}
    assert waits["once"] > 1.0 and waits["kept"] == waits["copied"] == 0


def test_commands_measure_compare_and_leave_nothing(benched: Benched) -> None:
    found = json.loads(
        benched.done("bench", "throughput", "kept", "--rate", "50", "--most", "50", "--window", "8", "--json")
    )
    assert [(each["rate"], each["sustained"]) for each in found["trials"]] == [(50.0, True)]
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=benched.folder, check=True)
    dml = benched.folder / "pipelines/facts/p/kept/sql-scripts/dml.kept.sql"
    slow = "WHERE length(sha2(repeat(cast(id AS STRING), 200000), 512)) > 0 AND"
    dml.write_text(dml.read_text().replace("WHERE", slow))
    compared = benched.run("bench", "compare", "--since", "HEAD", "--pairs", "4", "--rows", "2000", "--json")
    assert compared.returncode == 1, compared.stdout + compared.stderr
    changes = {each["table"]: each["change"] for each in json.loads(compared.stdout)["figures"]}
    assert changes["kept"] == "worse"
    assert "is gone: no process, no folder, no socket" in compared.stderr
    assert not (benched.root / "home/ephemeral").exists()


def test_scalability_measures_each_point_in_an_environment_of_its_own(benched: Benched) -> None:
    found = json.loads(
        benched.done("bench", "scale", "kept", "--axis", "chain", "--points", "1,2", "--window", "8", "--json")
    )
    values = {(each["kind"], each["phase"], each["table"]): each for each in found["figures"]}
    for point in ("1", "2"):
        whole, last = values["latency", point, ""], values["latency", point, f"kept_chain{point}"]
        assert whole["missing"] == 0 and whole["spread"] == last["spread"], found["notes"]
        assert last["value"] > values["latency", point, "kept"]["value"]
        assert 0 < values["server cpu", point, ""]["value"] <= (os.cpu_count() or 1) + 0.5
        assert values["server memory", point, ""]["value"] > values["agent memory", point, ""]["value"] > 1e7
    assert found["parameters"]["statements"] == {"1": 2, "2": 3}
    assert not (benched.root / "home/ephemeral").exists()


def test_load_for_a_delta_source_is_committed_and_followed(benched: Benched) -> None:
    scripts = benched.folder / "pipelines/sources/p/landed/sql-scripts"
    (scripts / "ddl.landed.sql").write_text(f"CREATE TABLE landed ({COLUMNS}) USING delta LOCATION 'landing';")
    manifest = benched.folder / "headgate.yml"
    manifest.write_text(f"{MANIFEST}connectors: {{delta: {{}}}}\n")
    found = json.loads(benched.done("bench", "latency", "kept", "--window", "8", "--probes", "3", "--json"))
    latencies = {each["phase"]: each for each in found["figures"] if each["kind"] == "latency"}
    assert {phase: each["spread"]["count"] for phase, each in latencies.items()} == {"idle": 3, "load": 8}
    assert not any(each["missing"] for each in latencies.values())
    assert not (benched.root / "home/ephemeral").exists()


def _rows(injected: Injected) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(injected.input).read_text().splitlines()]
