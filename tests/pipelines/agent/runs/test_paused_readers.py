"""A new column would end every reader in Spark: readers are paused meanwhile, and resume whichever process dies."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from agent_scenarios import held_elsewhere

from core.model.errors import Busy, EngineRefused
from core.model.names import TableName as T
from core.plan.model import Plan, Step
from pipelines.agent.context import AgentContext, FaultPoints
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.runs.starting_steps import paused_readers
from pipelines.agent.runs.step_executor import StepExecutor
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_run_driver import EVERYTHING, KillAt, Killed, fast_gates  # noqa: F401  # A fixture.


def on_delta(columns: str = "kind STRING") -> dict[str, str]:
    """Return the small project with its tables on Delta; `a` has these columns."""
    files = small_project.texts()
    for path, text in files.items():
        if "/ddl." in path:
            files[path] = text.replace("USING parquet", "USING delta")
        if path.endswith("/ddl.a.sql"):
            files[path] = files[path].replace("kind STRING", columns)
        if path.endswith("/dml.a.sql") and columns != "kind STRING":
            files[path] = text.replace("SELECT id, kind", "SELECT id, kind, 1 AS more")
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    return files


WIDER = on_delta("kind STRING, more INT")


@pytest.fixture
def deployed(agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch) -> AgentContext:
    monkeypatch.setattr(type(agent.files), "identity", lambda *_: "id-1")
    assert lane.deploy(agent, pool, on_delta()) == "done"
    pool.starts.clear()
    return agent


@dataclass
class Looks(FaultPoints):
    """Code that runs at each fault point of the alteration."""

    pool: Any
    seen: list[list[str]] = field(default_factory=list)

    def pass_by(self, label: str) -> None:
        if label.startswith("alter "):
            self.seen.append([label, *sorted(self.pool.running)])


def test_nothing_that_streams_a_table_runs_while_it_gets_a_column(deployed: AgentContext, pool: Any) -> None:
    looks = Looks(pool)
    assert lane.deploy(replace(deployed, faults=looks), pool, WIDER) == "done"
    assert looks.seen == [["alter stopped"], ["alter done"]]
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"] == sorted(pool.starts)
    assert pool.tables["a__v1"].endswith("+ (('id', 'bigint'), ('kind', 'string'), ('more', 'int'))")
    said = [(e.table, e.summary) for e in deployed.ledger.events() if "is altered" in e.summary]
    words = "stopped while {} is altered; it continues from its checkpoint"
    assert sorted(said) == [(t, words.format("it" if t == "a" else "a")) for t in "abc"]


def test_a_wider_type_is_handled_in_the_same_way(deployed: AgentContext, pool: Any) -> None:
    short, wide = (_typed(kind) for kind in ("INT", "BIGINT"))
    assert lane.deploy(deployed, pool, short) == "done"
    pool.starts.clear()
    looks = Looks(pool)
    assert lane.deploy(replace(deployed, faults=looks), pool, wide) == "done"
    assert looks.seen == [["alter stopped"], ["alter done"]]
    assert pool.widened == {"a__v2": (("id", "bigint"), ("kind", "bigint"))}
    changed = deployed.ledger.deployment(T("a"), 2)
    assert changed is not None and "kind bigint" in changed.compiled_ddl
    assert sorted(pool.starts) == ["a@v2", "b@v2", "c@v2"]


def test_a_static_side_stops_its_readers_for_a_wider_type_alone(deployed: AgentContext, pool: Any) -> None:
    found = deployed.ledger.deployment(T("b"), 1)
    assert found is not None
    static = tuple(replace(binding, streamed=False) for binding in found.bindings)
    run_id = lane.submit(deployed, made := lane.plan(deployed, WIDER, EVERYTHING))
    deployed.ledger.update_deployment(T("b"), 1, bindings=static)
    run = StepExecutor(deployed, made, run_id)._run
    for static_too, stopped in ((False, ("a@v1", "c@v1")), (True, ("a@v1", "b@v1", "c@v1"))):
        with paused_readers(run, alteration(made), static_too=static_too) as found_running:
            assert found_running == stopped


def _typed(kind: str) -> dict[str, str]:
    files = on_delta()
    ddl = next(path for path in files if path.endswith("/ddl.a.sql"))
    return files | {ddl: files[ddl].replace("kind STRING", f"kind {kind}")}


def test_a_reader_outside_the_plan_continues_with_its_own_text(deployed: AgentContext, pool: Any) -> None:
    before = deployed.ledger.deployment(T("c"), 1)
    files = WIDER | {path: text for path, text in WIDER.items() if "/c/" not in path}
    made = lane.plan(deployed, files, replace(EVERYTHING, everything=False, tables=(T("a"),), children="product"))
    assert [node.table for node in made.nodes] == ["landed", "a", "b"]
    assert lane.drive(deployed, lane.submit(deployed, made)) == "done"
    assert sorted(pool.running) == ["a@v1", "b@v1"]
    reconcile(deployed, pool)
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]
    after = deployed.ledger.deployment(T("c"), 1)
    assert before is not None and after is not None and (after.texts, after.wanted) == (before.texts, "running")
    assert after.restarts == 0, "it did not end by itself"
    pool.running.pop("c@v1")
    reconcile(deployed, pool)
    lost = deployed.ledger.deployment(T("c"), 1)
    assert lost is not None and lost.restarts == 1


def reconcile(agent: AgentContext, pool: Any) -> None:
    reconciler = Reconciler(agent, EmergencyJournal(Path(agent.folder, "emergency.jsonl")))
    before = BeforeRound.of(agent)
    reconciler.round(before, pool.connection().queries.active(), ())


def test_a_statement_stopped_by_an_operator_stays_stopped(deployed: AgentContext, pool: Any) -> None:
    deployed.ledger.update_deployment(T("b"), 1, wanted="stopped", state="stopped", query_id="", run_id="")
    pool.running.pop("b@v1")
    assert lane.deploy(deployed, pool, WIDER) == "done"
    reconcile(deployed, pool)
    assert sorted(pool.running) == ["a@v1", "c@v1"]


@pytest.mark.parametrize("refused", ["column", "stop"])
def test_after_a_refused_column_every_reader_continues(
    deployed: AgentContext, pool: Any, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = EngineRefused("no", error_class="SOME_CLASS")
    if refused == "stop":
        pool.refuse_stop["b@v1"] = error
    else:

        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(type(pool.connection().tables), "add_columns", refuse)
    before = pool.tables["a__v1"]
    assert lane.deploy(deployed, pool, WIDER) == "failed"
    reconcile(deployed, pool)
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"] and pool.tables["a__v1"] == before
    assert {row.wanted for row in deployed.ledger.deployments() if not row.external} == {"running"}


def test_an_act_on_a_reader_is_waited_for(deployed: AgentContext, pool: Any) -> None:
    made = lane.plan(deployed, WIDER, EVERYTHING)
    with held_elsewhere(deployed, (T("c"), 1), by="a start"), pytest.raises(Busy, match="c@v1 is held by a start"):
        StepExecutor(deployed, made, lane.submit(deployed, made)).perform(alteration(made))
    assert sorted(pool.running) == ["a@v1", "b@v1", "c@v1"]


def alteration(made: Plan) -> Step:
    (found,) = [step for step in made.steps if step.do == "alter"]
    return found


@pytest.mark.drill
def test_an_agent_that_dies_anywhere_leaves_a_run_that_ends_the_same(deployed: AgentContext, pool: Any) -> None:
    # Each round adds a column in a new run, and the agent dies one point later than in the preceding round.
    for point in range(1, 100):
        added = [f"more{n}" for n in range(1, point + 1)]
        files = on_delta(", ".join(["kind STRING", *(f"{name} INT" for name in added)]))
        dml = next(path for path in files if path.endswith("/dml.a.sql"))
        files[dml] = files[dml].replace("1 AS more", ", ".join(f"1 AS {name}" for name in added))
        run_id = lane.submit(deployed, lane.plan(deployed, files, EVERYTHING))
        dying = KillAt(point)
        try:
            ended = lane.drive(replace(deployed, faults=dying), run_id)  # type: ignore[arg-type]  # It counts.
        except Killed:
            if point % 2:
                # The pool has died with the agent.
                pool.running.clear()
            reconcile(deployed, pool)
            ended = lane.drive(deployed, run_id)
        lane.settle(deployed, pool)
        assert (ended, sorted(pool.running)) == ("done", ["a@v1", "b@v1", "c@v1"]), point
        assert added[-1] in pool.tables["a__v1"], point
        if dying.passed < point:
            assert point > 10, "every point was met"
            return
    raise AssertionError("the points of the run never end")


def test_no_reader_is_stopped_for_a_table_whose_readers_could_not_resume(deployed: AgentContext, pool: Any) -> None:
    run_id, stops = lane.submit(deployed, lane.plan(deployed, WIDER, EVERYTHING)), list(pool.stops)
    deployed.files.told = {"machine": "another"}  # type: ignore[attr-defined]  # Scripted.
    deployed.files.machine = "this"  # type: ignore[attr-defined]  # Scripted.
    assert lane.drive(deployed, run_id) == "failed"
    assert pool.stops == stops and {"a@v1", "b@v1", "c@v1"} <= pool.running.keys()
