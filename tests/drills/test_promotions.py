"""Promotion from dev to stage on one Spark server, while the files have moved on and the agent of stage is killed."""

import json
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as parquet
import pytest
from tiny_project import alive, committed, until
from two_environments import TwoEnvironments

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

TO_STAGE = ("--from", "dev", "--to", "stage")
NARROW = "INSERT INTO kept SELECT id, kind FROM STREAM landed WHERE id > 5;"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoEnvironments]:
    found = TwoEnvironments(tmp_path_factory.mktemp("two"), {"HEADGATE_MEASURE_S": "1"})
    found.write()
    found.land(20)
    found.done("up")
    agents = [found.agent_pid()]
    try:
        found.share_server()
        shutil.copytree(found.folder / "data/landing", found.folder / "staged/landing")
        found.done("up", "--env", "stage")
        agents.append(found.stage_pid())
        assert found.apply(found.plan("--all")).returncode == 0
        until(lambda: found.ids("marked", 1) == list(range(1, 21)), 90, "dev has every row")
        yield found
    finally:
        found.run("down", "--env", "stage", "--confirm", "")
        found.down()
        assert not any(map(alive, agents))


def staged_ids(two: TwoEnvironments, table: str, version: int) -> list[int]:
    files = committed(two.folder / f"staged/tables/stage_{table}__v{version}")
    return sorted(int(v) for file in files for v in parquet.read_table(file, columns=["id"])["id"].to_pylist())


def promoted(two: TwoEnvironments, *words: str) -> tuple[dict[str, Any], list[str]]:
    """Plan a promotion; return the plan, and the words of the command that applies it."""
    plan: dict[str, Any] = json.loads(two.done("promote", *words, *TO_STAGE, "--json"))
    said = two.run("review", plan["hash"][:12], "--env", "stage").stderr
    return plan, shlex.split(said.split("headgate apply ", 1)[1])


def state_of(two: TwoEnvironments, run: str) -> str:
    return str(json.loads(two.run("runs", run, "--env", "stage", "--json").stdout)["state"])


def of_dev(two: TwoEnvironments) -> list[tuple[object, ...]]:
    columns = '"table", version, revision, checkpoint_id, active, wanted, query_id, run_id, plan_hash'
    return two.ledger(f'SELECT {columns} FROM deployment ORDER BY "table", version')


def test_what_runs_in_dev_reaches_stage_by_hash_although_files_moved_on_and_its_agent_dies(
    two: TwoEnvironments,
) -> None:
    before = of_dev(two)
    two.write(kept=NARROW)
    assert two.run("diff", "--env", "dev", "--env", "stage").returncode == 10
    _, words = promoted(two, "--all")
    run = two.done("apply", *words, "--detach").strip()
    rows = lambda: json.loads(two.run("runs", run, "--env", "stage", "--json").stdout)["steps"]  # noqa: E731  # Short.
    until(lambda: any(step["state"] == "done" for step in rows()), 60, "the run has begun")
    os.kill(two.stage_pid(), signal.SIGKILL)
    two.done("up", "--env", "stage")
    until(lambda: state_of(two, run) == "done", 120, "a new agent ends the run")
    assert two.revisions("stage") == two.revisions("dev")
    until(lambda: staged_ids(two, "marked", 1) == list(range(1, 21)), 90, "stage has every row once")
    assert of_dev(two) == before, "nothing of dev was touched"
    assert two.run("diff", "--env", "dev", "--env", "stage").returncode == 0
    history = two.done("history", "marked", "--env", "stage")
    assert f"promoted from dev: revision {two.revisions('dev')['marked'][:8]}, plan" in history
    changed = json.loads(two.done("plan", "--all", "--env", "stage", "--offline", "--json"))
    edited = {node["table"] for node in changed["nodes"] if node["texts"] != node["old"] and node["action"] != "keep"}
    assert "kept" in edited, "the files differ from what was promoted, and the next plan says so"


def test_a_reader_is_promoted_only_with_the_parent_that_it_was_tested_with(two: TwoEnvironments) -> None:
    two.write(kept=NARROW, marked="INSERT INTO marked SELECT id, lower(kind) AS kind FROM STREAM kept;")
    assert two.apply(two.plan("kept", "marked", "--rebuild")).returncode == 0
    two.write()
    refused = two.run("promote", "marked", *TO_STAGE)
    assert refused.returncode == 3 and "--with-parents" in refused.stderr, refused.stderr
    plan, words = promoted(two, "marked", "--with-parents")
    assert {each["table"] for each in plan["request"]["promotes"]} == {"kept", "marked"}
    two.done("apply", *words)
    assert two.revisions("stage") == two.revisions("dev")
    versions = {table: version for table, (version, _) in two.serving("stage").items()}
    expected = list(range(6, 21))
    until(lambda: staged_ids(two, "kept", versions["kept"])[-15:] == expected, 90, "stage keeps what dev keeps")
