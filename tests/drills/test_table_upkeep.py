"""OPTIMIZE and VACUUM through all of Headgate, with agent or server killed inside each; no row is lost."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_project import DDL, Tiny, alive, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

AT_ONCE = "USING parquet TBLPROPERTIES ('delta.deletedFileRetentionDuration'='interval 0 hours');"
"""A table format, adapted to Delta, whose files are deleted at once when only older versions contain them."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    ddl = {table: text.replace("USING parquet;", AT_ONCE) for table, text in DDL.items()}
    with tiny_that_runs(tmp_path_factory.mktemp("care"), landed=20, format="delta", ddl=ddl) as found:
        assert found.apply(found.plan("--all")).returncode == 0
        yield found


def small_files(tiny: Tiny, commits: int = 4) -> None:
    """Land `commits` files one after another, and wait for each in both tables."""
    for _ in range(commits):
        tiny.land(5)
        until(lambda: arrived(tiny), 90, "the rows are in both tables")


def arrived(tiny: Tiny) -> bool:
    return all(tiny.ids(table, 1) == list(range(1, tiny.landed + 1)) for table in ("kept", "marked"))


def data_files(tiny: Tiny, table: str) -> int:
    return len(list((tiny.folder / f"data/tables/{table}__v1/delta").glob("part-*.parquet")))


def last_run(tiny: Tiny) -> tuple[str, list[str]]:
    """Return the state of the newest run, and the notes of its steps."""
    ((run, state),) = tiny.ledger("SELECT id, state FROM run ORDER BY started_at DESC LIMIT 1")
    return str(state), [str(note) for (note,) in tiny.ledger("SELECT note FROM step WHERE run_id = ? ORDER BY n", run)]


def last_run_id(tiny: Tiny) -> str:
    return str(tiny.ledger("SELECT id FROM run ORDER BY started_at DESC LIMIT 1")[0][0])


def test_small_files_are_compacted_while_statements_run(tiny: Tiny) -> None:
    small_files(tiny)
    done = tiny.run("optimize", "kept", "marked", "--confirm", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    state, notes = last_run(tiny)
    assert state == "done" and all("written into 1" in note for note in notes), notes
    small_files(tiny, 1)


def test_a_vacuum_names_the_stopped_reader_it_waits_for_and_keeps_unread_files(tiny: Tiny) -> None:
    tiny.done("stop", "marked", "--confirm", "yes")
    tiny.land(5)
    until(lambda: len(tiny.ids("kept", 1)) == tiny.landed, 90, "kept has read them")
    tiny.done("optimize", "kept", "--confirm", "yes")
    plan = tiny.plan("vacuum", "kept", "--retain", "0")
    refused = tiny.apply(plan)
    assert refused.returncode == 1
    state, (note,) = last_run(tiny)
    assert state == "failed" and "have not been read yet: marked@v1 has not read version" in note
    tiny.done("start", "marked", "--confirm", "yes")
    until(lambda: arrived(tiny), 90, "marked has read them")
    before = data_files(tiny, "kept")
    # The rows are visible before their batch is committed, and a vacuum is refused until then.
    again = ("runs", "retry", last_run_id(tiny), "--follow")
    until(lambda: tiny.run(*again).returncode == 0, 60, "the vacuum ended", every_s=1.0)
    assert data_files(tiny, "kept") < before and "deleted" in last_run(tiny)[1][0]
    small_files(tiny, 1)


@pytest.mark.parametrize("verb", ["optimize", "vacuum"])
@pytest.mark.parametrize("point", ["begins", "done"])
def test_the_next_agent_ends_the_run_of_an_agent_killed_during_upkeep(tiny: Tiny, verb: str, point: str) -> None:
    small_files(tiny, 2)
    tiny.done("down", "--confirm", "")
    tiny.done("up", HEADGATE_FAULT_AT=f"{verb} {point}")
    until(lambda: tiny.pool()[0] == "up" and arrived(tiny), 120, "all statements run")
    agent, plan = tiny.agent_pid(), tiny.plan(verb, "kept")
    tiny.run("apply", plan["hash"][:12], "--confirm", tiny.confirmation(plan), "--detach")
    until(lambda: not alive(agent), 60, "the agent died at the point")
    tiny.done("up")
    until(lambda: last_run(tiny)[0] == "done", 120, "the run ended")
    small_files(tiny, 1)


@pytest.mark.parametrize("verb", ["optimize", "vacuum"])
def test_upkeep_is_repeated_after_its_server_was_killed(tiny: Tiny, verb: str) -> None:
    small_files(tiny, 2)
    trace = tiny.root / f"points-{verb}"
    trace.touch()
    tiny.done("down", "--keep-pool", "--confirm", "")
    tiny.done("up", HEADGATE_FAULT_TRACE=str(trace))
    pool, plan = tiny.pool_pid(), tiny.plan(verb, "kept")
    tiny.run("apply", plan["hash"][:12], "--confirm", tiny.confirmation(plan), "--detach")
    until(lambda: f" {verb} begins" in trace.read_text(), 60, "it has begun", every_s=0.005)
    os.kill(pool, signal.SIGKILL)
    assert f" {verb} done" not in trace.read_text(), "it was killed inside"
    until(lambda: last_run(tiny)[0] == "done", 180, "the run ended")
    small_files(tiny, 1)
    shown = json.loads(tiny.done("show", "kept", "--json"))
    assert shown["state"] == "running" and Path(shown["folder"]).is_dir()
