"""All of Headgate on real Spark, through the command line: started, changed, broken, killed, deleted."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import DML, Tiny, alive, tiny_that_runs, until

from state.migrations import SCHEMA_VERSION
from tui.agent_client.socket_client import AgentClient

pytestmark = [pytest.mark.spark, pytest.mark.drill]


@pytest.fixture(scope="module", params=["parquet", pytest.param("delta", marks=pytest.mark.long)])
def tiny(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Tiny]:
    with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=50, format=request.param) as found:
        yield found


def running(tiny: Tiny, *tables: str) -> bool:
    rows = tiny.statements()
    return all(rows[table]["state"] == "running" for table in tables)


def arrived(tiny: Tiny, table: str, version: int) -> bool:
    return tiny.ids(table, version) == list(range(1, tiny.landed + 1))


def test_a_first_deploy_delivers_each_row_once(tiny: Tiny) -> None:
    plan = tiny.plan("--all")
    assert plan["order"] == ["landed", "kept", "marked"]
    found = tiny.apply(plan)
    assert found.returncode == 0, found.stderr
    until(lambda: arrived(tiny, "marked", 1), 90, "all landed rows are in marked")
    until(lambda: running(tiny, "kept", "marked"), 30, "both run")


def test_a_plan_is_applied_once(tiny: Tiny) -> None:
    tiny.write(marked=DML["marked"] + "\n-- a comment")
    plan = tiny.plan("marked")
    assert [(node["action"], node["row"]) for node in plan["nodes"] if node["table"] == "marked"] == [("record", "1")]
    words = ("apply", plan["hash"][:12], "--confirm", tiny.confirmation(plan))
    assert tiny.run(*words).returncode == 0
    assert tiny.run(*words).returncode == 3


def test_a_stop_is_confirmed_and_a_start_continues_from_the_checkpoint(tiny: Tiny) -> None:
    refused = tiny.run("stop", "kept", "--confirm", "no")
    assert (refused.returncode, running(tiny, "kept")) == (3, True)
    tiny.done("stop", "kept", "--confirm", "yes")
    assert tiny.statements()["kept"]["state"] == "stopped"
    tiny.land(10)
    tiny.done("start", "kept", "--confirm", "yes")
    until(lambda: arrived(tiny, "marked", 1), 60, "what landed meanwhile is in marked")


def test_sql_that_spark_rejects_blocks_its_readers_until_it_is_fixed(tiny: Tiny) -> None:
    tiny.write(marked=DML["marked"].replace("upper(kind)", "upper(kind, kind)"))
    found = tiny.apply(tiny.plan("kept", "--rebuild"))
    assert found.returncode == 1
    failed = json.loads(tiny.done("runs", "--json"))[0]
    states = {(step["table"], step["do"]): step["state"] for step in failed["steps"]}
    assert states["marked", "start"] == "failed"
    assert (states["marked", "catch_up"], states["marked", "swap"]) == ("blocked", "blocked")
    assert "WRONG_NUM_ARGS" in json.dumps(failed)
    assert running(tiny, "kept", "marked"), "the serving versions go on"
    tiny.write()
    asked = tiny.run("runs", "retry", failed["id"])
    assert asked.returncode == 3
    assert "+INSERT INTO marked SELECT id, upper(kind)" in asked.stderr
    text = asked.stderr.rsplit("--confirm '", 1)[1].split("'")[0]
    tiny.done("runs", "retry", failed["id"], "--confirm", text, "--follow")
    done, before = json.loads(tiny.done("runs", "--json"))[:2]
    assert (done["continues"], before["continued_by"]) == (failed["id"], done["id"])
    acts = {(step["table"], step["version"]): step["do"] for step in done["steps"] if step["do"] in ("create", "start")}
    assert set(acts) == {("marked", 3)}, "kept v2 was running and is not made again"
    assert arrived(tiny, "kept", 2)
    assert arrived(tiny, "marked", 3)
    assert not (tiny.folder / "data/tables/marked__v2").exists()
    assert tiny.run("runs", "retry", failed["id"]).returncode == 3, "a run is continued once"


def test_statements_survive_a_killed_agent_and_the_next_one_finds_them(tiny: Tiny) -> None:
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    until(lambda: not alive(tiny.agent_pid()), 10, "the agent is dead")
    assert tiny.run("stop", "kept", "--confirm", "yes").returncode == 4
    tiny.land(10)
    until(lambda: arrived(tiny, "marked", 3), 60, "rows arrive without an agent")
    tiny.done("up")
    until(lambda: running(tiny, "kept", "marked"), 30, "both are found running")


def test_a_killed_server_is_restarted_and_every_statement_continues(tiny: Tiny) -> None:
    os.kill(tiny.pool_pid(), signal.SIGKILL)
    tiny.land(10)
    until(lambda: arrived(tiny, "marked", 3), 120, "rows arrive through a new server")
    until(lambda: running(tiny, "kept", "marked"), 30, "both run")


def test_a_rebuild_has_the_same_rows_as_the_old_version(tiny: Tiny) -> None:
    tiny.write(kept=DML["kept"].replace("kind FROM", "concat(kind, '!') AS kind FROM"))
    plan = tiny.plan("kept", "--rebuild")
    found = tiny.apply(plan)
    assert found.returncode == 0, found.stdout + found.stderr
    assert arrived(tiny, "kept", 3)
    # The second version never ran and was moved to the trash above; its number is not reused.
    assert arrived(tiny, "marked", 4)
    peeked = json.loads(tiny.done("peek", "kept", "-n", "1", "--json"))
    assert "!" in json.dumps(peeked)


def test_a_plan_names_the_deleted_files_that_a_rebuild_would_miss(tiny: Tiny) -> None:
    first, *_ = sorted((tiny.folder / "data/landing").glob("*.json"))
    first.unlink()
    agent = AgentClient(json.loads(tiny.done("doctor", "--paths", "--json"))["socket"], ledger=SCHEMA_VERSION)
    assert agent.call("measure", {"tables": ["kept", "marked"]})["unmeasured"] == []
    shown = (json.loads(tiny.done("show", table, "--json")) for table in ("kept", "marked"))
    kept, marked = ({**found["figures"], "rows": found["rows"]} for found in shown)
    assert (kept["rows"], kept["exact"], kept["gone"]) == (tiny.landed, True, 1)
    assert (marked["rows"], marked["exact"], marked["gone"]) == (tiny.landed, True, 0)
    assert kept["rate_rows_s"] > 0


def test_a_delete_moves_files_to_the_trash_and_is_refused_while_a_reader_exists(tiny: Tiny) -> None:
    refused = tiny.run("plan", "delete", "kept", "--json")
    assert refused.returncode == 3
    assert tiny.apply(tiny.plan("delete", "marked")).returncode == 0
    assert not list((tiny.folder / "data/tables").glob("marked__v*"))
    aside = {path.name for path in (tiny.folder / "data/trash").glob("*/tables/*")}
    assert aside == {"marked__v1", "marked__v2", "marked__v3", "marked__v4"}
    assert "marked" not in {t for t, row in tiny.statements().items() if row["state"] != "absent"}


def test_a_second_agent_is_refused_with_the_first_ones_pid(tiny: Tiny) -> None:
    found = tiny.run("up", "--foreground")
    assert found.returncode == 3
    assert str(tiny.agent_pid()) in found.stderr


def test_no_file_is_written_outside_the_project_and_home(tiny: Tiny) -> None:
    assert {path.name for path in tiny.root.iterdir()} == {"home", "tiny"}
    assert not Path("/spark-warehouse").exists()
