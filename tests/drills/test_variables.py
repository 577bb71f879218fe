"""Variables on real Spark: two environments with other values write other rows, and a changed value is deployed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import tiny_project
from tiny_project import Tiny, committed, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

HEAD = tiny_project.HEAD.split("environments:")[0]
POOL = tiny_project.HEAD.split("  dev:\n")[1].split("\n")[0]
MANIFEST = f"""{HEAD}
variables:
  landing: {{type: string}}
  modulo: {{type: int, default: 2}}
  label: {{type: string}}
  source: {{type: identifier, default: kept}}
  pace: {{type: interval, default: 1 second}}
environments:
  dev:
{POOL}
    data: data
    variables: {{landing: "%s", label: "it's", modulo: 2}}
  prod:
{POOL}
    data: prod
    variables: {{landing: "%s", label: "back\\\\slash", modulo: 3, pace: 2 seconds}}
"""
DDL = {**tiny_project.DDL, "landed": "CREATE TABLE landed (id BIGINT, kind STRING) USING json LOCATION '${landing}';"}
DML = {
    "kept": "INSERT INTO kept SELECT id, ${label} AS kind FROM STREAM landed WHERE id % ${modulo} = 0; -- ${none}",
    "marked": "INSERT INTO marked SELECT id, '<${label}>' AS kind FROM STREAM ${source};",
}


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Tiny]:
    found = Tiny(tmp_path, {"HEADGATE_MEASURE_S": "1"}, ddl=DDL, dml=DML, yml={"kept": "trigger: ${pace}\n"})
    found.write()
    manifest = found.folder / "headgate.yml"
    landing = str(found.folder / "data/landing")
    manifest.write_text(MANIFEST % (landing, landing))
    found.land(12)
    yield found
    for environment in ("dev", "prod"):
        found.run("down", "--confirm", "" if environment == "dev" else environment, HEADGATE_ENV=environment)


def rows(tiny: Tiny, data: str, table: str, version: int = 1) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for file in committed(tiny.folder / f"{data}/tables/{table}__v{version}"):
        read = parquet.read_table(file, columns=["id", "kind"]).to_pydict()
        found += zip(read["id"], read["kind"], strict=True)
    return sorted(found)


def deploy(tiny: Tiny, environment: str, *words: str) -> dict[str, dict[str, object]]:
    """Plan and apply in an environment; return the nodes by table."""
    tiny.environ["HEADGATE_ENV"] = environment
    plan = tiny.plan(*words)
    done = tiny.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    return {node["table"]: node for node in plan["nodes"]}


def test_each_environment_writes_the_rows_of_its_values_and_a_changed_value_is_an_edit(tiny: Tiny) -> None:
    tiny.done("up")
    tiny.done("up", HEADGATE_ENV="prod")
    for environment in ("dev", "prod"):
        deploy(tiny, environment, "--all")
    until(lambda: len(rows(tiny, "data", "kept")) == 6 and len(rows(tiny, "prod", "kept")) == 4, 60, "all rows")
    assert rows(tiny, "data", "kept") == [(n, "it's") for n in (2, 4, 6, 8, 10, 12)]
    assert rows(tiny, "prod", "kept") == [(n, "back\\slash") for n in (3, 6, 9, 12)]
    until(lambda: len(rows(tiny, "data", "marked")) == 6, 60, "the rows downstream")

    # The ledger can give back the files, and the same files have one identity in both environments.
    (texts,) = tiny.ledger("SELECT r.texts FROM deployment JOIN revision r USING (revision) WHERE \"table\" = 'kept'")[
        0
    ]
    known = json.loads(str(texts))
    assert known["written"]["dml"] == DML["kept"] and known["variables"]["modulo"] == "2"
    assert json.loads(tiny.done("show", "kept", "--json", HEADGATE_ENV="prod"))["variables"]["modulo"] == "3"

    manifest = tiny.folder / "headgate.yml"
    manifest.write_text(manifest.read_text().replace("modulo: 2}", "modulo: 5}"))
    nodes = deploy(tiny, "dev", "kept")
    assert (nodes["kept"]["action"], nodes["kept"]["change"]) == ("restart", "filter_or_projection")
    said = [str(each["sentence"]) for each in nodes["kept"]["evidence"]]  # type: ignore[attr-defined]  # JSON
    assert said[-1] == "variable modulo: 2 → 5"
    tiny.land(8)
    until(lambda: len(rows(tiny, "data", "kept")) == 8, 60, "the rows of the new value")
    assert [id for id, _ in rows(tiny, "data", "kept")] == [2, 4, 6, 8, 10, 12, 15, 20]

    # The checkpoint cannot continue with another table.
    manifest.write_text(manifest.read_text().replace("default: kept}", "default: landed}"))
    nodes = deploy(tiny, "dev", "marked")
    assert (nodes["marked"]["action"], nodes["marked"]["version"]) == ("rebuild", 2)
    until(lambda: len(rows(tiny, "data", "marked", 2)) == 20, 60, "the rebuilt rows")
    assert rows(tiny, "data", "marked", 2) == [(n, "<it's>") for n in range(1, 21)]
    assert json.loads(tiny.done("plan", "--all", "--json", HEADGATE_ENV="dev"))["steps"] == []
