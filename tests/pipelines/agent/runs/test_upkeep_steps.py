"""OPTIMIZE and VACUUM as steps: done once, recognized after a kill, refused while rows are unread, and ended."""

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import wait_until
from overlay_ledgers import overlay_of

from core.model.errors import Busy, EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable, TryAgain
from core.model.names import TableName as T
from core.plan.request import PlanRequest
from core.ports.storage import FolderContents, Upkeep
from core.run.model import OperatorControl
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import upkeep_steps
from pipelines.agent.runs.run_driver import OpenRuns
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_paused_readers import reconcile
from tests.pipelines.agent.runs.test_run_driver import KillAt, Killed

FILES = small_project.on_delta(small_project.texts())


@pytest.fixture(autouse=True)
def fast_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.agent.runs.run_driver.POLL_S", 0.001)
    monkeypatch.setattr("pipelines.agent.runs.step_executor.CatchUpGate", lane.OpenGate)
    monkeypatch.setattr("pipelines.agent.runs.pointer_steps.CatchUpGate", lane.OpenGate)


@pytest.fixture(autouse=True)
def made_on_delta(agent: AgentContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every table an id of its own."""
    monkeypatch.setattr(agent.files, "identity", lambda folder, format: f"id of {folder}")


@pytest.fixture
def lake(agent: AgentContext, pool: Any) -> AgentContext:
    """An environment with landed → a → b and a → c, in which all tables except landed are on Delta."""
    assert lane.deploy(agent, pool, FILES) == "done"
    pool.starts.clear()
    return agent


def run_of(agent: AgentContext, verb: str, *tables: str, files: dict[str, str] = FILES, **more: Any) -> str:
    request = PlanRequest(verb=verb, tables=tuple(map(T, tables)), **more)
    return lane.submit(agent, lane.plan(agent, files, request))


def notes(agent: AgentContext, run_id: str) -> list[tuple[str, str]]:
    row = agent.ledger.run(run_id)
    assert row is not None
    return [(step.state, step.note) for step in row.steps]


def test_each_table_is_optimized_once_and_the_log_records_the_result(lake: AgentContext, pool: Any) -> None:
    def written(what: str) -> None:
        if what == "optimize a__v1":
            lake.files.upkept["a__v1"] = Upkeep(12, 1)  # type: ignore[attr-defined]  # Scripted.

    pool.looks_after = written
    lake.files.held = FolderContents(1, 900, 12, True, 5.0, small_files=1, log_entries=3)  # type: ignore[attr-defined]  # Scripted.
    run_id = run_of(lake, "optimize", "a", "b")
    assert lane.drive(lake, run_id) == "done"
    assert sorted(pool.looked_after) == ["optimize a__v1", "optimize b__v1"]
    assert notes(lake, run_id) == [("done", "12 files written into 1"), ("done", "there was nothing to do")]
    assert not pool.stops, "a stream that appends goes on"
    figures = lake.ledger.table_statistics(T("a"))[T("a"), 1]
    assert (figures.files, figures.small_files, figures.log_entries) == (1, 1, 3), "the detail is not of before"


def test_a_vacuum_is_given_what_it_retains(lake: AgentContext, pool: Any) -> None:
    assert lane.drive(lake, run_of(lake, "vacuum", "a", retain_h="720")) == "done"
    assert lane.drive(lake, run_of(lake, "vacuum", "a")) == "done"
    assert pool.looked_after == ["vacuum a__v1 720", "vacuum a__v1"]


@pytest.mark.parametrize("state", ["running", "stopped", "replaced", "in the trash"])
def test_no_vacuum_deletes_what_a_reader_has_still_to_read(lake: AgentContext, pool: Any, state: str) -> None:
    files, b = lake.files, T("b")
    files.unread["b__v1"] = 7  # type: ignore[attr-defined]  # Scripted.
    if state == "stopped":
        del pool.running["b@v1"]
        lake.ledger.update_deployment(b, 1, state="stopped", wanted="stopped")
    if state == "replaced":
        found = lake.ledger.deployment(b, 1)
        assert found is not None
        lake.ledger.put_deployment(replace(found, version=2, active=False, checkpoint="/c/b__v2"))
        lake.ledger.activate({b: 2}, by="run-2", at=5.0)
    if state == "in the trash":
        lake.ledger.tombstone(b, 1, drop_after=9e9, trash="trash/b__v1")
    run_id = run_of(lake, "vacuum", "a")
    assert lane.drive(lake, run_id) == "failed" and not pool.looked_after
    ((_, said),) = notes(lake, run_id)
    on = " and is stopped: headgate start b lets it continue" if state == "stopped" else ""
    assert said.startswith(
        f"files that it would delete have not been read yet: b@v1 has not read version 7{on}; headgate runs"
    )
    files.unread.clear()  # type: ignore[attr-defined]  # Scripted.
    assert lane.drive(lake, run_id, OperatorControl("retry")) == "done"


@pytest.mark.parametrize("state", ["running", "stopped", "in the trash"])
def test_no_vacuum_deletes_what_a_statement_of_an_overlay_has_still_to_read(
    lake: AgentContext, pool: Any, state: str
) -> None:
    lake.files.unread["pr_1_mine__v1"] = 7  # type: ignore[attr-defined]  # Scripted.
    run_id = run_of(lake, "vacuum", "a")
    ledger = overlay_of(lake, {"a": 1})
    if state == "stopped":
        ledger.update_deployment(T("mine"), 1, state="stopped", wanted="stopped")
    if state == "in the trash":
        ledger.tombstone(T("mine"), 1, drop_after=9e9, trash="trash/mine__v1")
    assert lane.drive(lake, run_id) == "failed" and not pool.looked_after
    ((_, said),) = notes(lake, run_id)
    on = " and is stopped: headgate start mine --env pr-1 lets it continue" if state == "stopped" else ""
    assert said.startswith(
        f"files that it would delete have not been read yet: mine@v1 of pr-1 has not read version 7{on}; headgate runs"
    )
    lake.files.unread.clear()  # type: ignore[attr-defined]  # Scripted.
    assert lane.drive(lake, run_id, OperatorControl("retry")) == "done"


def test_a_vacuum_of_another_version_than_an_overlay_reads_is_no_concern_of_it(lake: AgentContext, pool: Any) -> None:
    lake.files.unread["pr_1_mine__v1"] = 7  # type: ignore[attr-defined]  # Scripted.
    overlay_of(lake, {"a": 2})
    overlay_of(lake, {"a": 1}, base_home="/elsewhere", name="pr-2")
    assert lane.drive(lake, run_of(lake, "vacuum", "a")) == "done"


@pytest.mark.parametrize("damaged", ["overlay.json", "ledger.db"])
def test_a_vacuum_waits_until_it_is_known_what_an_overlay_reads(lake: AgentContext, pool: Any, damaged: str) -> None:
    overlay_of(lake, {"a": 1}).close()
    file = Path(lake.places.home).parent / "pr-1" / damaged
    whole = file.read_bytes()
    file.write_bytes(b"?" * 200)
    run_id = run_of(lake, "vacuum", "a")
    assert lane.drive(lake, run_id) == "failed" and not pool.looked_after
    ((_, said),) = notes(lake, run_id)
    assert said.startswith(f"what the overlay pr-1 reads cannot be determined: {'the ledger ' * ('db' in damaged)}")
    assert "; repair it, or delete it: headgate down --env pr-1 --purge; headgate runs retry" in said
    file.write_bytes(whole)
    assert lane.drive(lake, run_id, OperatorControl("retry")) == "done"


def test_purged_versions_are_no_readers(lake: AgentContext, pool: Any) -> None:
    lake.files.unread["b__v1"] = 7  # type: ignore[attr-defined]  # Scripted.
    lake.ledger.tombstone(T("b"), 1, drop_after=1.0, trash="")
    assert lane.drive(lake, run_of(lake, "vacuum", "a")) == "done"


@pytest.mark.parametrize(
    ("kept", "retain_h", "said"),
    [(None, "", "cannot be read from its log"), (720.0, "168", "its log says that it retains files for 720 h")],
)
def test_the_log_decides_how_long_files_are_retained(
    lake: AgentContext, pool: Any, kept: float | None, retain_h: str, said: str
) -> None:
    lake.files.kept = kept  # type: ignore[attr-defined]  # Scripted.
    run_id = run_of(lake, "vacuum", "a", retain_h=retain_h)
    assert lane.drive(lake, run_id) == "failed" and not pool.looked_after
    assert said in notes(lake, run_id)[0][1]


@pytest.mark.parametrize("verb", ["optimize", "vacuum"])
def test_an_agent_killed_at_any_point_leaves_what_the_next_one_ends(
    lake: AgentContext, pool: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_steps, "Thread", AtOnce)

    def written(what: str) -> None:
        lake.files.upkept["a__v1"] = Upkeep(3, 1)  # type: ignore[attr-defined]  # Scripted.

    pool.looks_after = written
    for at in range(1, 40):
        lake.files.upkept.clear()  # type: ignore[attr-defined]  # Scripted.
        pool.looked_after.clear()
        run_id = run_of(lake, verb, "a", nonce=str(at))
        dying = KillAt(at)
        try:
            assert lane.drive(replace(lake, faults=dying), run_id) == "done"  # type: ignore[arg-type]  # A stand-in.
        except Killed:
            assert lane.drive(lake, run_id) == "done"
        else:
            assert at > 8, "it passes so many points"
            return
        assert len(pool.looked_after) == 1, "what the log says is not done again"
    raise AssertionError("it never ended by itself")


class AtOnce:
    """A thread that runs when it is started, so that a kill of the agent also happens inside it."""

    def __init__(self, target: Any, args: tuple[Any, ...] = (), **_: Any) -> None:
        self._work = partial(target, *args)

    def start(self) -> None:
        self._work()


def test_upkeep_that_met_different_files_was_done_by_an_earlier_agent(lake: AgentContext, pool: Any) -> None:
    def conflict(what: str) -> None:
        lake.files.upkept["a__v1"] = Upkeep(3, 1)  # type: ignore[attr-defined]  # Scripted.
        raise EngineRefused("files were deleted by a concurrent OPTIMIZE", error_class="DELTA_CONCURRENT_DELETE_DELETE")

    pool.looks_after = conflict
    run_id = run_of(lake, "optimize", "a")
    assert lane.drive(lake, run_id) == "done"
    assert notes(lake, run_id) == [("done", "3 files written into 1")]


def test_a_refusal_by_spark_fails_the_step_with_its_message_and_can_be_retried(lake: AgentContext, pool: Any) -> None:
    def refuse(what: str) -> None:
        raise EngineRefused("no space left on\ndevice")

    pool.looks_after = refuse
    run_id = run_of(lake, "optimize", "a")
    assert lane.drive(lake, run_id) == "failed"
    assert notes(lake, run_id)[0][1].startswith("no space left on device; headgate runs retry")
    pool.looks_after = lambda what: None
    assert lane.drive(lake, run_id, OperatorControl("retry")) == "done"


def test_a_pool_that_is_lost_meanwhile_is_asked_again(lake: AgentContext, pool: Any) -> None:
    lost = iter([PoolUnreachable("the pool died")])

    def once(what: str) -> None:
        for error in lost:
            raise error

    pool.looks_after = once
    assert lane.drive(lake, run_of(lake, "optimize", "a")) == "done"
    assert pool.looked_after == ["optimize a__v1"] * 2


@pytest.mark.parametrize("error", [Busy("a@v1 is held by the reconciler"), LedgerUnavailable("the ledger is locked")])
def test_a_held_version_and_a_locked_ledger_are_waited_for(
    error: HeadgateError, lake: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, work = iter([error]), upkeep_steps._look_after_now

    def once(*args: Any) -> None:
        for unavailable in waited:
            raise unavailable
        work(*args)

    monkeypatch.setattr(upkeep_steps, "_look_after_now", once)
    assert lane.drive(lake, run_of(lake, "optimize", "a")) == "done"
    assert pool.looked_after == ["optimize a__v1"]


def test_a_log_that_cannot_be_reached_at_the_end_is_waited_for(
    lake: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = type(lake.files).upkeep

    def away(*_: Any) -> None:
        monkeypatch.setattr(type(lake.files), "upkeep", upkeep)
        raise TryAgain("the data folder cannot be reached")

    pool.looks_after = lambda what: monkeypatch.setattr(type(lake.files), "upkeep", away)
    run_id = run_of(lake, "optimize", "a")
    assert lane.drive(lake, run_id) == "done", notes(lake, run_id)


def test_a_keyed_statement_is_stopped_meanwhile_and_stays_wanted_running(agent: AgentContext, pool: Any) -> None:
    files = FILES | {"pipelines/facts/p/a/a.yml": "mode: upsert\nkey: [id]\n"}
    files = {path: text for path, text in files.items() if "/b/" not in path and "/c/" not in path}
    assert lane.deploy(agent, pool, files) == "done"
    seen = []

    def looked(what: str) -> None:
        seen.append(("a@v1" in pool.running, agent.locks.held()))

    pool.looks_after = looked
    assert lane.drive(agent, run_of(agent, "optimize", "a", files=files)) == "done"
    found = agent.ledger.deployment(T("a"), 1)
    assert seen == [(False, frozenset({("a", 1)}))]
    assert found is not None and found.wanted == "running", "the reconciler starts it again"
    assert agent.locks.held() == frozenset()
    reconcile(agent, pool)
    found = agent.ledger.deployment(T("a"), 1)
    assert found is not None and "a@v1" in pool.running and found.restarts == 0
    last = next(event for event in agent.ledger.events() if event.summary.endswith("→ starting"))
    assert last.detail == "resumed from its checkpoint"


def test_a_keyed_statement_that_could_not_resume_is_not_stopped(agent: AgentContext, pool: Any) -> None:
    files = FILES | {"pipelines/facts/p/a/a.yml": "mode: upsert\nkey: [id]\n"}
    files = {path: text for path, text in files.items() if "/b/" not in path and "/c/" not in path}
    assert lane.deploy(agent, pool, files) == "done"
    agent.files.told, agent.files.machine = {"machine": "another"}, "this"  # type: ignore[attr-defined]  # Scripted.
    assert lane.drive(agent, run_of(agent, "optimize", "a", files=files)) == "failed"
    assert pool.stops == [] and "a@v1" in pool.running and pool.looked_after == []


@pytest.mark.parametrize(("verb", "more"), [("optimize", {}), ("vacuum", {"retain_h": "720"})])
def test_the_keys_that_were_deleted_are_looked_after_before_their_table(
    verb: str, more: dict[str, str], agent: AgentContext, pool: Any
) -> None:
    yml = "mode: upsert\nkey: [id]\nsequence: seq\ndeletes: kind = 'x'\n"
    ddl = "CREATE TABLE a (id BIGINT, kind STRING, seq BIGINT) USING delta;"
    dml = "INSERT INTO a SELECT id, kind, id AS seq FROM STREAM landed;"
    scripts = "pipelines/facts/p/a/sql-scripts"
    files = FILES | {
        "pipelines/facts/p/a/a.yml": yml, f"{scripts}/ddl.a.sql": ddl, f"{scripts}/dml.a.sql": dml,
    }  # fmt: skip
    files = {path: text for path, text in files.items() if "/b/" not in path and "/c/" not in path}
    assert lane.deploy(agent, pool, files) == "done"
    found = agent.ledger.deployment(T("a"), 1)
    assert found is not None
    deleted = f"{found.folder}/deleted"

    def looked(what: str) -> None:
        agent.files.upkept["deleted" if deleted in what else "a__v1"] = Upkeep(3, 1)  # type: ignore[attr-defined]  # Scripted.

    pool.looks_after = looked
    run_id = run_of(agent, verb, "a", files=files, **more)
    assert lane.drive(agent, run_id) == "done"
    hours = " 720" if more else ""
    assert pool.looked_after == [f"{verb} {deleted}", f"{verb} a__v1{hours}"], "as their own log says"
    said = "6 files written into 2" if verb == "optimize" else "6 files deleted"
    assert notes(agent, run_id) == [("done", said)]
    pool.looked_after.clear()
    agent.files.removed.add(f"{deleted}/_delta_log")  # type: ignore[attr-defined]  # Scripted.
    agent.files.upkept.clear()  # type: ignore[attr-defined]  # Scripted.
    # A running statement has such a table once it has begun.
    agent.ledger.update_deployment(T("a"), 1, wanted="stopped", state="stopped", query_id="")
    assert lane.drive(agent, run_of(agent, verb, "a", files=files, nonce="2", **more)) == "done"
    assert pool.looked_after == [f"{verb} a__v1{hours}"], "no key was deleted yet"


def test_a_cancelled_run_ends_its_upkeep(lake: AgentContext, pool: Any) -> None:
    until = threading.Event()
    pool.looks_after = lambda what: until.wait(20)
    run_id = run_of(lake, "optimize", "a")
    runs = OpenRuns(lake)
    runs.drive(run_id)
    wait_until(lambda: bool(pool.looked_after))
    runs.submit_command(run_id, OperatorControl("cancel"))
    wait_until(lambda: bool(pool.ended_reads))
    until.set()
    wait_until(lambda: (row := lake.ledger.run(run_id)) is not None and row.state == "cancelled")
    assert pool.ended_reads == {f"headgate-{run_id}-1"}


def test_upkeep_cancelled_during_its_check_of_readers_does_not_begin_on_the_pool(
    lake: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, until = threading.Event(), threading.Event()

    def look(run: Any, deployment: Any) -> str:
        looked.set()
        assert until.wait(20)
        return ""

    monkeypatch.setattr(upkeep_steps, "why_needed", look)
    run_id = run_of(lake, "vacuum", "a")
    runs = OpenRuns(lake)
    runs.drive(run_id)
    assert looked.wait(20)
    runs.submit_command(run_id, OperatorControl("cancel"))
    wait_until(lambda: (row := lake.ledger.run(run_id)) is not None and row.state == "cancelled")
    until.set()
    with upkeep_steps._one_at_a_time:
        assert pool.looked_after == []


def test_a_vacuum_that_is_refused_may_be_skipped_because_nothing_relies_on_it(lake: AgentContext, pool: Any) -> None:
    lake.files.unread["b__v1"] = 7  # type: ignore[attr-defined]  # Scripted.
    run_id = run_of(lake, "vacuum", "a")
    assert lane.drive(lake, run_id) == "failed"
    assert lane.drive(lake, run_id, OperatorControl("skip", 1)) == "done" and not pool.looked_after


def test_a_version_that_a_clone_refers_to_is_not_vacuumed(lake: AgentContext, pool: Any) -> None:
    found = lake.ledger.deployment(T("a"), 1)
    assert found is not None
    lake.ledger.put_deployment(replace(found, version=2, active=False, clone_of=1, checkpoint="/c/a__v2"))
    run_id = run_of(lake, "vacuum", "a")
    assert lane.drive(lake, run_id) == "failed" and not pool.looked_after
    holds = "a__v2 holds rows in files of this version"
    assert notes(lake, run_id)[0][1].startswith(f"{holds}; headgate plan retire a sets it aside; ")
    in_trash = {"drop_after": lake.clock() + 6.5 * 86400, "trash": "/trash/a__v2"}
    lake.ledger.update_deployment(T("a"), 2, **in_trash)
    assert lane.drive(lake, run_id, OperatorControl("retry")) == "failed" and not pool.looked_after
    assert notes(lake, run_id)[0][1].startswith(f"{holds}: it is in the trash, and purged in 6d 1")
