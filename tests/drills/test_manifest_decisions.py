"""The decision tree of flink-sql-runner on real Spark: its sample manifest through plan and apply in each branch."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from live_project import Driven, committed, until
from tiny_project import FIRST_COMPILER

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

HEADGATE = f"""project: seed
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    pool: {{cores: 2, memory: 1g, conf: {{spark.driver.extraJavaOptions: '{FIRST_COMPILER}'}}}}
layout: manifests
manifests:
  folder: queries
  tables: [schemas/kafka-input-tables.sql, schemas/kafka-output-tables.sql]
"""
TEMPLATE = "---\ntrigger: 1 second\nreads: stream\nsparkProperties: {}\n"
INPUT = """create table some_kafka_input_table (
    column_a STRING, column_b INT, column_c STRING, column_d STRING, record_time TIMESTAMP
) using json location 'landing';
"""
OUTPUT = """create table some_kafka_table_name (
    `column_a` STRING,
    `column_b` INT,
    `column_c` STRING,
    `record_time` TIMESTAMP
) using parquet
;
create table copied (column_b INT) using parquet;
create table odd (column_b INT) using parquet;
create table even (column_b INT) using parquet;
"""
SAMPLE = """---
name: query-unique-name
description: "Some description."
target-table: "`some_kafka_table_name`"
sql: >-
  SELECT
      `column_a`,
      `column_b`,
      `column_c`,
      `record_time`
  FROM
      `some_kafka_input_table`
  WHERE
      `column_d` = 'SOME_VALUE'
flinkProperties: { }
"""
COPY = "name: copy\ntarget-table: copied\nsql: SELECT column_b FROM some_kafka_table_name\n"
SET = """name: split
statements:
  - target-table: odd
    sql: SELECT column_b FROM some_kafka_input_table WHERE column_b % 2 = 1
  - target-table: even
    trigger: 2 seconds
    sql: |
      SELECT column_b
      FROM some_kafka_input_table
      WHERE column_b % 2 = 0
"""
TABLE = "some_kafka_table_name"


@dataclass
class Seed(Driven):
    """The seed's sample, a reader of its table, and a statement set."""

    landed: int = 0

    @property
    def folder(self) -> Path:
        return self.root / "seed"

    def write(self, path: str, text: str) -> None:
        """Write a file of the project."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text that a file contains."""
        text = (self.folder / path).read_text()
        assert old in text
        self.write(path, text.replace(old, new))

    def land(self, count: int) -> None:
        """Land rows, numbered by `column_b`; each third has another value in `column_d`."""
        numbers = range(self.landed + 1, self.landed + count + 1)
        self.landed += count
        rows = [{"column_a": "a", "column_b": n, "column_d": "OTHER" if n % 3 == 0 else "SOME_VALUE"} for n in numbers]
        self.write("data/landing/.part", "".join(json.dumps(row) + "\n" for row in rows))
        (self.folder / "data/landing/.part").rename(self.folder / f"data/landing/{self.landed:09}.json")

    def rows(self, table: str, version: int = 1) -> list[int]:
        """Return `column_b` of all rows that a version has written."""
        files = committed(self.folder / f"data/tables/{table}__v{version}")
        found = (parquet.read_table(file, columns=["column_b"])["column_b"].to_pylist() for file in files)
        return sorted(value for values in found for value in values)

    def checkpoint(self, table: str, version: int = 1) -> str:
        """Return the id that Spark gave the checkpoint of a version when it was created."""
        path = self.folder / f"data/checkpoints/{table}__v{version}/metadata"
        return str(json.loads(path.read_text())["id"])

    def deploy(self, *words: str) -> dict[str, dict[str, Any]]:
        """Plan and apply; return the nodes of the plan by table."""
        plan = self.plan(*words)
        done = self.apply(plan)
        assert done.returncode == 0, done.stdout + done.stderr
        return {node["table"]: node for node in plan["nodes"]}

    def wanted(self) -> list[int]:
        """Return the numbers of the landed rows that the sample selects."""
        return [n for n in range(1, self.landed + 1) if n % 3]


@pytest.fixture
def seed(tmp_path: Path) -> Iterator[Seed]:
    found = Seed(tmp_path, {"HEADGATE_MEASURE_S": "1"})
    found.write("headgate.yml", HEADGATE)
    found.write("job-template.yaml", TEMPLATE)
    found.write("schemas/kafka-input-tables.sql", INPUT)
    found.write("schemas/kafka-output-tables.sql", OUTPUT)
    found.write("queries/some-query-name.yaml", SAMPLE)
    found.write("queries/copy.yaml", COPY)
    found.write("queries/split.yaml", SET)
    found.land(6)
    found.done("up")
    yield found
    found.down()


def report(branch: str, node: dict[str, Any], happened: str) -> None:
    print(f"{branch:34} {node['change']:22} {node['action']:8} v{node['version']}  {happened}")


def test_every_branch_of_the_decision_tree_does_what_its_plan_says(seed: Seed) -> None:
    nodes = seed.deploy("--all")
    until(lambda: seed.rows(TABLE) == [1, 2, 4, 5] == seed.rows("copied"), 60, "the first rows")
    until(lambda: (seed.rows("odd"), seed.rows("even")) == ([1, 3, 5], [2, 4, 6]), 60, "the rows of the statement set")
    assert [(nodes[each]["action"], nodes[each]["version"]) for each in (TABLE, "odd", "even")] == [("start", 1)] * 3
    first = seed.checkpoint(TABLE)
    report("new", nodes[TABLE], "empty checkpoint, all rows")

    again = seed.plan("--all")
    assert again["steps"] == [] and seed.checkpoint(TABLE) == first
    print("running, unchanged                 nothing to do")

    seed.edit("queries/some-query-name.yaml", "flinkProperties", "trigger: 2 seconds\nflinkProperties")
    node = seed.deploy("--all")[TABLE]
    assert (node["change"], node["action"], node["version"]) == ("trigger_or_rate", "restart", 1)
    seed.land(3)
    until(lambda: seed.rows(TABLE) == seed.wanted() == seed.rows("copied"), 60, "the rows after a restart")
    assert seed.checkpoint(TABLE) == first
    report("running, configuration changed", node, "same checkpoint, no row twice")

    seed.edit("queries/some-query-name.yaml", "= 'SOME_VALUE'", "IN ('SOME_VALUE', 'NEW')")
    node = seed.deploy("--all")[TABLE]
    assert (node["change"], node["action"], node["version"]) == ("filter_or_projection", "restart", 1)
    seed.land(3)
    until(lambda: seed.rows(TABLE) == seed.wanted() == seed.rows("copied"), 60, "the rows of the new filter")
    assert seed.checkpoint(TABLE) == first
    report("running, query changed, compatible", node, "same checkpoint, no row twice")

    old = seed.checkpoint("copied")
    seed.edit("queries/copy.yaml", "FROM some_kafka_table_name", "FROM some_kafka_input_table")
    node = seed.deploy("--all")["copied"]
    assert (node["action"], node["version"]) == ("rebuild", 2)
    until(lambda: seed.rows("copied", 2) == list(range(1, seed.landed + 1)), 60, "the rebuilt rows")
    assert seed.checkpoint("copied", 2) != old and seed.statements()["copied"]["version"] == 2
    report("running, query changed", node, "empty checkpoint, all rows again in v2, which serves")

    seed.done("stop", TABLE, "--confirm", "yes")
    seed.land(3)
    assert seed.plan("--all")["steps"] == [], "an operator's stop holds unless the table is named"
    node = seed.deploy(TABLE)[TABLE]
    assert (node["action"], node["version"]) == ("resume", 1)
    until(lambda: seed.rows(TABLE) == seed.wanted(), 60, "the rows that arrived while it was stopped")
    assert seed.checkpoint(TABLE) == first
    report("stopped, unchanged, state found", node, "same checkpoint, no row lost or twice")

    seed.done("stop", TABLE, "--confirm", "yes")
    seed.edit("queries/some-query-name.yaml", "trigger: 2 seconds", "trigger: 1 second")
    seed.land(3)
    node = seed.deploy(TABLE)[TABLE]
    assert (node["change"], node["action"], node["version"]) == ("trigger_or_rate", "restart", 1)
    until(lambda: seed.rows(TABLE) == seed.wanted(), 60, "the rows after a stop and an edit")
    assert seed.checkpoint(TABLE) == first
    report("stopped, configuration changed", node, "same checkpoint, no row lost or twice")

    seed.done("stop", "copied", "--confirm", "yes")
    seed.edit("queries/copy.yaml", "FROM some_kafka_input_table", "FROM some_kafka_table_name")
    node = seed.deploy("copied")["copied"]
    assert (node["action"], node["version"]) == ("rebuild", 3)
    until(lambda: seed.rows("copied", 3) == seed.wanted(), 60, "the rows of the third version")
    report("stopped, query changed", node, "empty checkpoint, all rows again in v3, which serves")

    assert_refused_without_checkpoint(seed)


def assert_refused_without_checkpoint(seed: Seed) -> None:
    """Assert that a stopped job without its checkpoint is refused, and that the command in the refusal rebuilds it."""
    seed.done("stop", TABLE, "--confirm", "yes")
    before = seed.rows(TABLE)
    shutil.move(seed.folder / f"data/checkpoints/{TABLE}__v1", seed.root / "lost")
    # Until the agent has looked again, a plan is accepted, and its run fails with the same words.
    until(lambda: seed.run("plan", TABLE, "--json").returncode == 3, 30, "the plan is refused")
    refused = seed.run("plan", TABLE, "--json")
    plan = json.loads(refused.stdout)
    (refusal,) = plan["refusals"]
    assert "has no readable checkpoint" in refusal["summary"] and plan["steps"] == []
    assert f"headgate plan {TABLE} --rebuild" in refusal["remedy"]
    assert seed.rows(TABLE) == before and seed.statements()[TABLE]["state"] == "stopped"
    print("stopped, unchanged, state not found  refused: ", refusal["summary"])
    node = seed.deploy(TABLE, "--rebuild")[TABLE]
    assert (node["action"], node["version"]) == ("rebuild", 2)
    until(lambda: seed.rows(TABLE, 2) == seed.wanted(), 60, "the rebuilt rows")
