"""The same steps on the executor with ports in memory, and on the simulation with which planning is tested.

Each script runs on both and must leave the same registry, catalog and pool, with the same evidence.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
import small_project
from ledger_rows import create_run, run_row

from core.model.actions import StepKind
from core.model.names import TableName as T
from core.model.states import State
from core.plan.model import Plan, Step
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.run.model import OperatorControl
from core.run.state_machine import RunEvidence
from pipelines.agent.context import AgentContext
from pipelines.agent.runs import pointer_steps, run_driver, step_executor
from pipelines.agent.runs.cancelled_run_cleanup import abort, give_up
from pipelines.agent.runs.step_executor import StepExecutor
from pipelines.agent.statements.statement_control import StatementControl
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.runs import test_run_driver as lane
from tests.pipelines.agent.runs.test_rewrite_steps import REWRITE_A, keyed
from tests.support.simulated_agent import Agent, Simulated

EVERYTHING = PlanRequest(everything=True, children="all")
REBUILD_A = PlanRequest(tables=(T("a"),), rebuild=True)
UPPER = "SELECT id, upper(kind) AS kind FROM STREAM landed"
Picture = dict[str, Any]


class Side(Protocol):
    """An implementation that carries out plans: the executor or the simulation."""

    def plan(self, files: dict[str, str], request: PlanRequest) -> Plan: ...
    def apply(self, plan: Plan, *words: OperatorControl) -> str: ...
    def perform(self, plan: Plan, step: Step) -> RunEvidence:
        """Perform a step, once the queries started before have committed a batch."""

    def abort(self, plan: Plan, *versions: tuple[str, int]) -> None: ...
    def steps(self, plan: Plan) -> list[str]: ...
    def update(self, table: str, version: int, **known: Any) -> None: ...
    def end_query(self, table: str, version: int) -> None: ...
    def stop_by_operator(self, table: str) -> None: ...
    def lose_checkpoint(self, table: str, version: int) -> None: ...
    def picture(self) -> Picture: ...


class Simulation:
    """The simulation of `tests.support.simulated_agent`."""

    def __init__(self) -> None:
        self.agent = Simulated()

    def plan(self, files: dict[str, str], request: PlanRequest) -> Plan:
        return make_plan(small_project.project(files), "dev", self.agent.observed(), request)

    def apply(self, plan: Plan, *words: OperatorControl) -> str:
        state = Agent(self.agent, plan, plan.hash).apply(*words)
        self.agent.settle()
        self.agent.going = frozenset()
        return state.value

    def perform(self, plan: Plan, step: Step) -> RunEvidence:
        self.agent.settle()
        self.agent.going = frozenset(n.table for n in plan.nodes if n.action == "delete")
        return Agent(self.agent, plan, plan.hash).perform(step)

    def abort(self, plan: Plan, *versions: tuple[str, int]) -> None:
        Agent(self.agent, plan, plan.hash).abort(versions)

    def steps(self, plan: Plan) -> list[str]:
        return [found.state.value for _, found in sorted(self.agent.journal[plan.hash].items())]

    def update(self, table: str, version: int, **known: Any) -> None:
        self.agent.update((T(table), version), **known)

    def stop_by_operator(self, table: str) -> None:
        self.agent.stop_by_operator(T(table))

    def end_query(self, table: str, version: int) -> None:
        self.agent.queries.pop((T(table), version))

    def lose_checkpoint(self, table: str, version: int) -> None:
        del self.agent.checkpoints[T(table), version]

    def picture(self) -> Picture:
        return {
            "running": sorted(f"{table}@v{version}" for table, version in self.agent.queries),
            "tables": sorted(
                f"{table}__v{version}" if version else str(table) for table, version in self.agent.catalog
            ),
            "views": {str(table): f"{table}__v{version}" for table, version in self.agent.pointers.items()},
            "checkpoints": sorted(f"{table}__v{version}" for table, version in self.agent.checkpoints),
            "registry": registry(self.agent.ledger.values()),
        }


class Real:
    """The executor and its lane over `ScriptedPool`, `ScriptedFiles` and a ledger."""

    def __init__(self, agent: AgentContext, pool: Any) -> None:
        # Nothing reports a first batch here, so the check of a restart ends after some attempts.
        self.agent, self.pool = replace(agent, monotonic=partial(next, count(0.0, 50.0))), pool
        self.runs: dict[str, str] = {}
        ids: dict[str, str] = agent.files.ids  # type: ignore[attr-defined]  # A double's.
        ids[agent.layout.table_folder(T("a"), 1)] = "id-a"

    def plan(self, files: dict[str, str], request: PlanRequest) -> Plan:
        return lane.plan(self.agent, files, request)

    def apply(self, plan: Plan, *words: OperatorControl) -> str:
        if plan.hash not in self.runs:
            self.runs[plan.hash] = lane.submit(self.agent, plan)
        state = lane.drive(self.agent, self.runs[plan.hash], *words)
        lane.settle(self.agent, self.pool)
        return state

    def perform(self, plan: Plan, step: Step) -> RunEvidence:
        if plan.hash not in self.runs:
            # A run without steps holds no lease, because a script performs the steps of several plans.
            ledger, run_id = self.agent.ledger, f"run-{plan.hash[:6]}"
            serial = self.agent.locks.announce_start()
            create_run(ledger, run_row(plan.hash, id=run_id, serial=serial))
            self.runs[plan.hash] = run_id
        lane.settle(self.agent, self.pool)
        return StepExecutor(self.agent, plan, self.runs[plan.hash]).perform(step)

    def abort(self, plan: Plan, *versions: tuple[str, int]) -> None:
        abort(self.agent, "run", give_up(self.agent, versions, since=self.agent.ledger.newest_serial()))

    def steps(self, plan: Plan) -> list[str]:
        row = self.agent.ledger.run(self.runs[plan.hash])
        assert row is not None
        return [step.state for step in sorted(row.steps, key=lambda step: step.n)]

    def update(self, table: str, version: int, **known: Any) -> None:
        self.agent.ledger.update_deployment(T(table), version, **known)

    def stop_by_operator(self, table: str) -> None:
        StatementControl(self.agent, EmergencyJournal(Path(self.agent.folder, "e"))).stop((T(table),), 0.0, by="alice")

    def end_query(self, table: str, version: int) -> None:
        del self.pool.running[f"{table}@v{version}"]

    def lose_checkpoint(self, table: str, version: int) -> None:
        found = self.agent.ledger.deployment(T(table), version)
        assert found is not None
        del self.agent.files.folders[found.checkpoint]  # type: ignore[attr-defined]  # Scripted.

    def picture(self) -> Picture:
        folders = map(Path, self.agent.files.folders)  # type: ignore[attr-defined]  # Scripted.
        return {
            "running": sorted(self.pool.running),
            "tables": sorted(self.pool.tables),
            "views": dict(self.pool.views),
            "checkpoints": sorted(
                folder.name.partition(".")[0] for folder in folders if folder.parent.name == "checkpoints"
            ),
            "registry": registry(self.agent.ledger.deployments(include_deleted=True)),
        }


def registry(rows: Any) -> list[tuple[Any, ...]]:
    """Return what both implementations record about each version; only the driver records intermediate states."""
    return sorted(
        (str(d.table), d.version, str(d.wanted), str(d.state), d.active, d.external, d.revision, d.texts.dml,
         d.bindings, d.drop_after is not None, bool(d.started_at), d.begins_where)
        for d in rows
    )  # fmt: skip


Script = Callable[[Side], list[Any]]


def step_of(plan: Plan, do: StepKind, table: str) -> Step:
    return next(step for step in plan.steps if step.do is do and step.table == table)


def said(evidence: RunEvidence) -> str:
    return type(evidence).__name__


def deployed(side: Side, *more: tuple[dict[str, str], PlanRequest]) -> list[Any]:
    """Deploy everything, then the further plans, and return the result of each."""
    found: list[Any] = []
    for files, request in ((small_project.texts(), EVERYTHING), *more):
        plan = side.plan(files, request)
        kinds = [(str(step.do), str(step.table), step.version) for step in plan.steps]
        found.append((kinds, side.apply(plan), side.steps(plan), side.picture()))
    return found


CHANGES = {
    "nothing": (small_project.texts(), EVERYTHING),
    "a rebuild": (small_project.texts(a=UPPER), REBUILD_A),
    "a rebuild with children": (small_project.texts(a=UPPER), replace(REBUILD_A, children="all")),
    "another text": (small_project.texts(b="SELECT id, upper(kind) AS kind FROM STREAM a"), EVERYTHING),
    "another source": (small_project.texts(b="SELECT id, kind FROM STREAM landed"), EVERYTHING),
    "a filter": (small_project.texts(c="SELECT id, kind FROM STREAM a WHERE id > 1"), EVERYTHING),
    "a comment": (small_project.texts(b="SELECT id, kind /* as it is */ FROM STREAM a"), EVERYTHING),
    "a delete of a leaf": (small_project.texts(), PlanRequest(verb="delete", tables=(T("b"),))),
    "a delete of everything": (small_project.texts(), PlanRequest(verb="delete", everything=True)),
}  # fmt: skip


CARRIED_OVER = PlanRequest(tables=(T("c"),), choices=(StrategyChoice(T("c"), "carry_over"),))
CHANGES |= {
    "a carry-over": (CHANGES["a filter"][0], CARRIED_OVER),
    "a start from now": (
        CHANGES["a filter"][0],
        replace(CARRIED_OVER, choices=(StrategyChoice(T("c"), "seeded", "now"),)),
    ),
}
ROLLBACK_A = PlanRequest(verb="rollback", tables=(T("a"),))
A_REBUILD = CHANGES["a rebuild with children"]


def a_rollback(side: Side) -> list[Any]:
    return deployed(side, A_REBUILD, (small_project.texts(), ROLLBACK_A), (small_project.texts(), ROLLBACK_A))


def soaking(files: dict[str, str]) -> dict[str, str]:
    return files | {"headgate.yml": files["headgate.yml"].replace("dev: {}", "dev: {policy: {soak_min: 30}}")}


def a_rollback_to_what_runs_on(side: Side) -> list[Any]:
    files, request = A_REBUILD
    return deployed(side, (soaking(files), request), (soaking(small_project.texts()), ROLLBACK_A))


def a_rollback_step_by_step_twice(side: Side) -> list[Any]:
    deployed(side, A_REBUILD)
    plan = side.plan(small_project.texts(), ROLLBACK_A)
    steps = [step for step in plan.steps for _ in range(2) if step.do is not StepKind.SWAP]
    return [(step.do, step.table, said(side.perform(plan, step)), side.picture()) for step in steps]


def a_hold_step_by_step_twice(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(A_REBUILD[0], replace(A_REBUILD[1], hold=True))
    steps = [step for step in plan.steps for _ in range(2) if step.do is not StepKind.SWAP]
    return [(step.do, step.table, said(side.perform(plan, step)), side.picture()) for step in steps]


def a_hold_after_an_operators_stop_and_a_retry(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(A_REBUILD[0], replace(A_REBUILD[1], hold=True))
    hold = next(step for step in plan.steps if step.do is StepKind.HOLD)
    for step in plan.steps[: plan.steps.index(hold)]:
        side.perform(plan, step)
    side.end_query("c", 2)
    side.update("c", 2, state=State.STOPPED, wanted="stopped")
    return [said(side.perform(plan, hold)), side.picture()]


SEAM_B = replace(REBUILD_A, choices=(StrategyChoice(T("b"), "seam"),))


def a_seam(side: Side) -> list[Any]:
    return deployed(side, (small_project.texts(a=UPPER), SEAM_B), CHANGES["a filter"])


def a_seam_step_by_step_twice(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(small_project.texts(a=UPPER), SEAM_B)
    steps = [step for step in plan.steps for _ in range(2) if step.do is not StepKind.SWAP]
    return [(step.do, step.table, said(side.perform(plan, step)), side.picture()) for step in steps]


def a_rewrite(side: Side) -> list[Any]:
    found = [side.apply(side.plan(keyed(), EVERYTHING))]
    plan = side.plan(keyed(UPPER), REWRITE_A)
    return [*found, side.apply(plan), side.steps(plan), side.picture()]


def a_rewrite_step_by_step_twice(side: Side) -> list[Any]:
    side.apply(side.plan(keyed(), EVERYTHING))
    plan = side.plan(keyed(UPPER), REWRITE_A)
    steps = [step for step in plan.steps for _ in range(2)]
    return [(step.do, step.table, said(side.perform(plan, step)), side.picture()) for step in steps]


def an_undelete(side: Side) -> list[Any]:
    gone = PlanRequest(verb="delete", everything=True)
    back = PlanRequest(verb="undelete", tables=tuple(map(T, "abc")))
    twice = (gone, back, replace(gone, nonce="again"), replace(back, nonce="again"))
    return deployed(side, *((small_project.texts(), request) for request in twice))


def an_undelete_step_by_step_twice(side: Side) -> list[Any]:
    deployed(side, CHANGES["a delete of a leaf"])
    plan = side.plan(small_project.texts(), PlanRequest(verb="undelete", tables=(T("b"),)))
    steps = [step for step in plan.steps for _ in range(2)]
    return [(step.do, step.table, said(side.perform(plan, step)), side.picture()) for step in steps]


def with_more_columns() -> dict[str, str]:
    files = small_project.texts(b="SELECT id, kind, upper(kind) AS loud FROM STREAM a")
    path = "pipelines/facts/p/b/sql-scripts/ddl.b.sql"
    return files | {path: files[path].replace("kind STRING", "kind STRING, loud STRING")}


def looked_after(verb: str) -> tuple[dict[str, str], PlanRequest]:
    return small_project.on_delta(small_project.texts()), PlanRequest(verb=verb, tables=(T("a"), T("b")))


def upkeep(side: Side) -> list[Any]:
    files, request = looked_after("optimize")
    found = [side.apply(side.plan(files, EVERYTHING))]
    for verb in ("optimize", "vacuum"):
        plan = side.plan(files, replace(request, verb=verb))
        found += [(step.do, step.table, said(side.perform(plan, step))) for step in plan.steps for _ in range(2)]
        again = side.plan(files, replace(request, verb=verb, nonce="again"))
        found += [side.apply(again), side.steps(again), side.picture()]
    return found


def upkeep_beside_an_operators_stop(side: Side) -> list[Any]:
    files, request = looked_after("vacuum")
    side.apply(side.plan(files, EVERYTHING))
    plan = side.plan(files, request)
    side.stop_by_operator("a")
    return [[said(side.perform(plan, step)) for step in plan.steps], side.picture()]


def another_column(side: Side) -> list[Any]:
    return deployed(side, (with_more_columns(), EVERYTHING))


def every_step_twice(side: Side) -> list[Any]:
    found: list[Any] = []
    for files, request in (
        (small_project.texts(), EVERYTHING),
        CHANGES["a comment"],
        CHANGES["a carry-over"],
        CHANGES["a rebuild with children"],
    ):
        plan = side.plan(files, request)
        for step in plan.steps:
            for _ in range(2):
                found.append((step.do, step.table, said(side.perform(plan, step)), side.picture()))
    return found


def a_start_after_an_operators_stop(side: Side) -> list[Any]:
    plan = side.plan(small_project.texts(), EVERYTHING)
    start = step_of(plan, StepKind.START, "a")
    for step in plan.steps[: plan.steps.index(start) + 1]:
        side.perform(plan, step)
    side.stop_by_operator("a")
    return [said(side.perform(plan, start)), side.picture()]


def a_restart_after_an_operators_stop(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(*CHANGES["a filter"])
    side.perform(plan, plan.steps[0])
    side.stop_by_operator("c")
    return [[(step.do, said(side.perform(plan, step))) for step in plan.steps], side.picture()]


def a_swap_after_an_operators_stop(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(*CHANGES["a rebuild"])
    swap, stop = (next(step for step in plan.steps if step.do is do) for do in (StepKind.SWAP, StepKind.STOP))
    for step in plan.steps[: plan.steps.index(swap)]:
        side.perform(plan, step)
    side.stop_by_operator("a")
    return [said(side.perform(plan, swap)), said(side.perform(plan, stop)), side.picture()]


def stopped_before(side: Side, do: StepKind, change: str) -> list[Any]:
    deployed(side)
    plan = side.plan(*CHANGES[change])
    side.perform(plan, step_of(plan, StepKind.CREATE, "c"))
    step = step_of(plan, do, "c")
    found = [said(side.perform(plan, replace(step, version=9)))]
    side.stop_by_operator("c")
    return [*found, said(side.perform(plan, step)), side.picture()["checkpoints"]]


def a_fork_after_an_operators_stop(side: Side) -> list[Any]:
    return stopped_before(side, StepKind.FORK, "a carry-over")


def a_seed_after_an_operators_stop(side: Side) -> list[Any]:
    return stopped_before(side, StepKind.SEED, "a start from now")


def a_start_on_a_lost_checkpoint(side: Side) -> list[Any]:
    deployed(side)
    plan = over_a_stopped_parent(side)
    resume = step_of(plan, StepKind.RESUME, "a")
    side.lose_checkpoint("a", 1)
    return [said(side.perform(plan, resume)), side.picture()["running"]]


def over_a_stopped_parent(side: Side) -> Plan:
    side.end_query("a", 1)
    side.update("a", 1, state=State.STOPPED, wanted="stopped")
    return side.plan(*CHANGES["another text"])


def a_resumed_parent(side: Side) -> list[Any]:
    deployed(side)
    plan = over_a_stopped_parent(side)
    return [side.apply(plan), side.steps(plan), side.picture()]


def a_stop_under_a_reader(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(small_project.texts(), PlanRequest(verb="delete", everything=True))
    found = [said(side.perform(plan, step_of(plan, StepKind.STOP, "a")))]
    return [*found, said(side.perform(plan, step_of(plan, StepKind.TOMBSTONE, "a"))), side.picture()]


def a_delete_of_an_external_table(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(small_project.texts(), PlanRequest(verb="delete", everything=True))
    tombstone = replace(step_of(plan, StepKind.TOMBSTONE, "a"), table=T("landed"), version=0)
    for table in ("b", "c", "a"):
        side.perform(plan, step_of(plan, StepKind.STOP, table))
    return [said(side.perform(plan, tombstone)), side.picture()]


def an_abort(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(*CHANGES["a rebuild"])
    for step in plan.steps[:2]:
        side.perform(plan, step)
    side.abort(plan, ("a", 2), ("a", 1))
    return [side.picture()]


def an_abort_of_what_another_version_reads(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(*CHANGES["a rebuild with children"])
    for step in plan.steps:
        if step.do in (StepKind.CREATE, StepKind.START):
            side.perform(plan, step)
    side.abort(plan, ("a", 2))
    return [side.picture()]


def a_step_of_a_version_that_is_not_there(side: Side) -> list[Any]:
    deployed(side)
    plan = side.plan(*CHANGES["a rebuild with children"])
    kinds = (StepKind.START, StepKind.STOP)
    return [said(side.perform(plan, replace(step_of(plan, do, "a"), version=9))) for do in kinds]


SCRIPTS: dict[str, Script] = {
    name: (lambda side, change=change: deployed(side, change)) for name, change in CHANGES.items()  # type: ignore[misc]
} | {
    script.__name__: script
    for script in (
        another_column,
        a_rollback,
        a_rollback_to_what_runs_on,
        a_rollback_step_by_step_twice,
        a_hold_step_by_step_twice,
        a_hold_after_an_operators_stop_and_a_retry,
        a_seam,
        a_seam_step_by_step_twice,
        a_rewrite,
        a_rewrite_step_by_step_twice,
        an_undelete,
        an_undelete_step_by_step_twice,
        upkeep,
        upkeep_beside_an_operators_stop,
        every_step_twice,
        a_start_after_an_operators_stop,
        a_restart_after_an_operators_stop,
        a_swap_after_an_operators_stop,
        a_fork_after_an_operators_stop,
        a_seed_after_an_operators_stop,
        a_start_on_a_lost_checkpoint,
        a_resumed_parent,
        a_stop_under_a_reader,
        a_delete_of_an_external_table,
        an_abort,
        an_abort_of_what_another_version_reads,
        a_step_of_a_version_that_is_not_there,
    )
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", SCRIPTS)
def test_simulation_and_executor_do_the_same(
    name: str, agent: AgentContext, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_executor, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(pointer_steps, "CatchUpGate", lane.OpenGate)
    monkeypatch.setattr(run_driver, "POLL_S", 0.001)
    monkeypatch.setattr(agent.files, "identity", lambda folder, format: f"id of {folder}")
    simulated, real = SCRIPTS[name](Simulation()), SCRIPTS[name](Real(agent, pool))
    for number, (one, other) in enumerate(zip(simulated, real, strict=True)):
        assert one == other, number


def test_the_scripts_perform_every_kind_of_step() -> None:
    side = Simulation()
    plans = [side.plan(small_project.texts(), EVERYTHING)]
    deployed(side)
    plans += [side.plan(*change) for change in (*CHANGES.values(), (with_more_columns(), EVERYTHING))]
    plans.append(over_a_stopped_parent(side))
    plans.append(side.plan(soaking(A_REBUILD[0]), replace(A_REBUILD[1], hold=True)))
    plans.append(side.plan(small_project.texts(a=UPPER), SEAM_B))
    with_keys = Simulation()
    with_keys.apply(with_keys.plan(keyed(), EVERYTHING))
    plans.append(with_keys.plan(keyed(UPPER), REWRITE_A))
    deployed(side, CHANGES["a delete of a leaf"])
    plans.append(side.plan(small_project.texts(), PlanRequest(verb="undelete", tables=(T("b"),))))
    lake = Simulation()
    for files, request in ((looked_after("optimize")[0], EVERYTHING), looked_after("optimize"), looked_after("vacuum")):
        plans.append(lake.plan(files, request))
        lake.apply(plans[-1])
    assert {step.do for plan in plans for step in plan.steps} == set(StepKind)
