"""Runs against a scripted pool: to the end, failed and retried, overtaken, and killed at every point."""

import json
import queue
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import declared
import pytest

from core.drive import Control
from core.errors import EngineRefused
from core.names import TableName
from core.plan import Plan, Request
from core.plan_json import canonical, plan_as_json
from core.planner import make_plan
from pipelines.agent import executor, runs
from pipelines.agent.gate import Look
from pipelines.agent.runs import Driver
from pipelines.agent.world import World
from state.observed import observe
from state.rows import PlanRow, RunRow, StepRow

EVERYTHING = Request(everything=True, children="all")


class Killed(BaseException):
    """The agent died here."""


@dataclass
class KillAt:
    """Fault points that die at the n-th pass, or only count."""

    at: int = 0
    passed: int = 0

    def pass_by(self, label: str) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise Killed(label)


@dataclass
class OpenGate:
    """A gate that opens at the second look."""

    opened_at: float
    looks: int = 0

    def look(self, world: World, deployment: Any) -> Look:
        self.looks += 1
        return Look(self.looks > 1, "lag 0")


@pytest.fixture(autouse=True)
def fast_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "Gate", OpenGate)
    monkeypatch.setattr(runs, "POLL_S", 0.001)


def plan(world: World, files: dict[str, str], request: Request) -> Plan:
    seen = observe(world.ledger.deployments(include_deleted=True))
    made = make_plan(declared.project(files), "dev", seen, request)
    assert not made.refusals, made.refusals
    return made


def submit(world: World, made: Plan) -> str:
    run_id = f"run-{made.hash[:6]}"
    world.ledger.put_plan(PlanRow(made.hash, canonical(plan_as_json(made)), "alice", 1.0, 9e9, "open"))
    steps = tuple(StepRow(s.n, s.do.value, s.table, s.version, "waits") for s in made.steps)
    world.ledger.take_plan(made.hash, RunRow(run_id, made.hash, "alice", "running", 1.0, None, steps), now=2.0)
    return run_id


def drive(world: World, run_id: str, *words: Control) -> str:
    heard: queue.Queue[Control] = queue.Queue()
    for word in words:
        heard.put(word)
    Driver(world, run_id, heard).drive()
    row = world.ledger.run(run_id)
    assert row is not None
    return row.state


def settle(world: World, pool: Any) -> None:
    """What the reconciler writes of running queries."""
    for deployment in world.ledger.deployments():
        if f"{deployment.table}@v{deployment.version}" in pool.running:
            world.ledger.update_deployment(deployment.table, deployment.version, state="running")


def deploy(world: World, pool: Any, files: dict[str, str], request: Request = EVERYTHING) -> str:
    state = drive(world, submit(world, plan(world, files, request)))
    settle(world, pool)
    return state


def picture(world: World, pool: Any) -> dict[str, Any]:
    """All that the world shows of what was done."""
    return {
        "running": sorted(pool.running),
        "views": dict(pool.views),
        "tables": sorted(pool.tables),
        "folders": sorted(Path(folder).name for folder in world.files.folders),  # type: ignore[attr-defined]  # Scripted.
        "deployments": sorted(
            (d.table, d.version, d.wanted, d.active, d.revision[:6]) for d in world.ledger.deployments()
        ),
    }


def test_a_first_deploy_starts_everything_and_points_to_it(world: World, pool: Any) -> None:
    assert deploy(world, pool, declared.texts()) == "done"
    assert pool.starts == ["a@v1", "b@v1", "c@v1"]
    assert pool.views == {"a": "a__v1", "b": "b__v1", "c": "c__v1"}
    assert plan(world, declared.texts(), EVERYTHING).empty


def test_a_rebuild_stands_beside_and_keeps_what_a_left_behind_child_reads(world: World, pool: Any) -> None:
    deploy(world, pool, declared.texts())
    changed = declared.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    assert deploy(world, pool, changed, Request(tables=(TableName("a"),), rebuild=True)) == "done"
    assert sorted(pool.running) == ["a@v1", "a@v2", "b@v2", "c@v1"]
    assert pool.views == {"a": "a__v2", "b": "b__v2", "c": "c__v1"}


def test_a_refused_start_blocks_below_and_the_run_goes_on_after_the_fix(world: World, pool: Any) -> None:
    pool.refuse["a@v1"] = EngineRefused("no such column", error_class="UNRESOLVED_COLUMN")
    run_id = submit(world, plan(world, declared.texts(), EVERYTHING))
    assert drive(world, run_id) == "failed"
    row = world.ledger.run(run_id)
    assert row is not None
    assert {s.table for s in row.steps if s.state == "blocked"} == {"a", "b", "c"}
    assert pool.running == {}
    del pool.refuse["a@v1"]
    assert drive(world, run_id, Control("retry")) == "done"
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def test_a_stop_that_overtakes_a_start_wins(world: World, pool: Any) -> None:
    run_id = submit(world, plan(world, declared.texts(), EVERYTHING))
    real = world.files.read

    def stopped_meanwhile(folder: str) -> Any:
        if world.deployment(TableName("b"), 1) and folder.endswith("b__v1"):
            world.ledger.update_deployment(TableName("b"), 1, wanted="stopped")
        return real(folder)

    world.files.read = stopped_meanwhile  # type: ignore[method-assign]  # An operator's stop at the worst moment.
    assert drive(world, run_id) == "failed"
    assert "b@v1" not in pool.running
    assert "c@v1" in pool.running


def test_cancel_leaves_what_serves_as_it_was(world: World, pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(world, pool, declared.texts())
    before = dict(pool.views)
    monkeypatch.setattr(OpenGate, "look", lambda *_: Look(False, "lost rows", failed=True))
    changed = declared.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a")
    run_id = submit(world, plan(world, changed, Request(tables=(TableName("b"),), rebuild=True)))
    assert drive(world, run_id) == "failed"
    assert drive(world, run_id, Control("cancel")) == "cancelled"
    assert (pool.views, "b@v1" in pool.running, "b@v2" in pool.running) == (before, True, False)


def sequence(world: World, pool: Any, faults: KillAt) -> int:
    """A first deploy, a rebuild and a delete; a kill is followed by a new agent that takes the open run up."""
    kills = 0
    changed = declared.texts(a="SELECT id, upper(kind) AS kind FROM STREAM landed")
    requests = (
        (declared.texts(), EVERYTHING),
        (changed, Request(tables=(TableName("a"),), rebuild=True)),
        (changed, Request(verb="delete", tables=(TableName("b"),))),
    )
    for files, request in requests:
        run_id = submit(world, plan(world, files, request))
        try:
            state = drive(replace(world, faults=faults), run_id)  # type: ignore[arg-type]  # Counts and kills.
        except Killed:
            kills += 1
            state = drive(world, run_id)
        assert state == "done"
        settle(world, pool)
    return kills


def test_a_kill_at_any_point_ends_in_the_same_world(
    tmp_path: Path, world: World, pool: Any, request: pytest.FixtureRequest
) -> None:
    counting = KillAt()
    sequence(world, pool, counting)
    expected = picture(world, pool)
    assert counting.passed > 100
    for point in range(1, counting.passed + 1):
        fresh_pool = type(pool)()
        fresh = make_world(world, fresh_pool, tmp_path / str(point))
        assert sequence(fresh, fresh_pool, KillAt(point)) == 1, point
        assert picture(fresh, fresh_pool) == expected, point
        fresh.ledger.close()


def make_world(like: World, pool: Any, folder: Path) -> World:
    from state.store import create_or_open

    ledger = create_or_open(folder / "ledger.db", like.ledger.facts())
    files = type(like.files)(pool, "ledger")  # type: ignore[call-arg]  # Scripted.
    return replace(like, ledger=ledger, pool=pool, files=files)


def test_the_plan_in_the_ledger_is_the_plan_that_runs(world: World) -> None:
    made = plan(world, declared.texts(), EVERYTHING)
    submit(world, made)
    row = world.ledger.plan(made.hash)
    assert row is not None
    assert json.loads(row.body)["hash"] == made.hash
