"""Plans applied to a simulated pool: after any crash, a run reaches the declared state, and the next plan is empty.

A life begins with nothing deployed. In each round, people edit the project, statements are stopped, fail and lose
checkpoints, and then a plan is made and applied.
"""

import random
from dataclasses import dataclass, field, replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from core.model.actions import Action
from core.model.names import TableName as T
from core.model.states import State, WantedState
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.strategy_costs import not_executable_yet
from core.project.model import Table
from core.run.model import OperatorControl, RunState, StepState
from tests.support.declared_edits import EDITS
from tests.support.random_worlds import World, Written, request_of, times, world_of
from tests.support.simulated_agent import Agent, Died, Simulated, journalled

POINTS = 40
"""Maximum number of crashes tried per plan."""


@dataclass
class Life:
    """A project under change, and its deployments."""

    chance: random.Random
    tables: dict[T, Table]
    world: World
    pool: Simulated = field(default_factory=Simulated)
    round: int = 0

    def look(self) -> World:
        """Return the current world."""
        facts = self.world.facts
        for made in self.tables.values():
            facts.take(made)
        declared = replace(self.world.declared, tables=dict(sorted(self.tables.items())))
        return World(declared, self.pool.observed(), facts)

    def live(self) -> None:
        """Let people edit, stop and lose things."""
        chance = self.chance
        for name in chance.sample(sorted(self.tables), min(len(self.tables), chance.choice((0, 1, 3)))):
            if self.tables[name].parsed is not None:
                self.tables[name] = chance.choice(EDITS)(self.tables[name])
        serving = sorted(key for key, row in self.pool.ledger.items() if row.active and not row.external)
        for key in chance.sample(serving, min(len(serving), chance.choice((0, 0, 1, 3)))):
            what = chance.choice(("stopped", "failed", "lost"))
            wanted = WantedState.STOPPED if what == "stopped" else WantedState.RUNNING
            state = State.STOPPED if what == "stopped" else State.FAILED
            self.pool.queries.pop(key, None)
            self.pool.update(key, wanted=wanted, state=state)
            if what == "lost":
                self.pool.update(key, checkpoint_ok=False)
                self.pool.checkpoints[key] = "another's"

    def next_plan(self) -> Plan:
        """Return a plan that an agent can carry out in the present world; the first plan starts everything."""
        self.round += 1
        if self.round == 1:
            return self.look().plan(PlanRequest(everything=True, children="all"))
        self.live()
        world = self.look()
        verb = self.chance.choice(("deploy", "deploy", "delete", "rollback", "undelete", "retire"))
        request = back_of(self.chance, world, verb) or request_of(
            self.chance, world, verb if verb == "delete" else "deploy"
        )
        plan = world.plan(request)
        if request.verb == "deploy" and self.chance.random() < 0.3:
            request = replace(request, hold=True)
            plan = world.plan(request)
        return world.plan(replace(request, choices=(), start="")) if not_executable_yet(plan) else plan


def born(seed: int, size: int) -> Life:
    declared = world_of(seed, size).declared
    return Life(random.Random(seed), dict(declared.tables), World(declared, {}, Written()))


def back_of(chance: random.Random, world: World, verb: str) -> PlanRequest | None:
    """Return a request to restore a former version or something from the trash; None if there is none."""
    seen = world.observed
    known = [t for t, found in sorted(seen.items()) if (found.in_trash if verb == "undelete" else found.former)]
    if verb not in ("rollback", "undelete", "retire") or not known:
        return None
    return PlanRequest(verb=verb, tables=tuple(chance.sample(known, chance.randint(1, len(known)))))


lives = st.builds(born, st.integers(0, 2**32), st.integers(2, 9))
large = st.builds(born, st.integers(0, 2**32), st.integers(10, 60))


@given(lives)
@settings(max_examples=times(2))
def test_a_run_reaches_the_same_end_from_a_crash_at_any_point(life: Life) -> None:
    for _ in range(4):
        plan = life.next_plan()
        if plan.refusals:
            continue
        before, whole = life.pool.copy(), Agent(life.pool, plan, f"r{life.round}")
        assert whole.apply() is RunState.DONE, steps_that(life, StepState.FAILED)
        reaches_what_is_declared(life, plan)
        points = range(1, whole.passed + 1)
        for point in life.chance.sample(points, min(len(points), POINTS)):
            event("crash")
            assert crashed(before.copy(), plan, f"r{life.round}", point).things() == life.pool.things(), point
        life.pool.going = frozenset()


@given(lives | large)
@settings(max_examples=times(6))
def test_after_a_plan_is_executed_nothing_is_left_to_do(life: Life) -> None:
    for _ in range(6):
        plan = life.next_plan()
        event(f"refused {plan.request.verb}" if plan.refusals else f"applied {plan.request.verb}")
        if not plan.refusals:
            assert Agent(life.pool, plan, f"r{life.round}").apply() is RunState.DONE, steps_that(life, StepState.FAILED)
            reaches_what_is_declared(life, plan)
            life.pool.going = frozenset()


@given(lives | large)
@settings(max_examples=times(3))
def test_the_version_that_a_plan_promises_to_serve_again_does(life: Life) -> None:
    for _ in range(5):
        plan, served = life.next_plan(), dict(life.pool.pointers)
        if plan.refusals:
            continue
        assert Agent(life.pool, plan, f"r{life.round}").apply() is RunState.DONE
        life.pool.settle()
        life.pool.going, life.pool.began_cold = frozenset(), []
        for way in plan.undo:
            if way.act in ("rollback", "undelete"):
                event(way.act)
                tables = way.tables[:1] if way.act == "rollback" else way.tables
                twin, world = life.pool.copy(), life.look()
                back = world.plan(PlanRequest(verb=way.act, tables=tables))
                assert not back.refusals
                assert Agent(twin, back, "back").apply() is RunState.DONE
                assert {t: twin.pointers.get(t) for t in way.tables} == {t: served[t] for t in way.tables}


@given(lives, st.randoms())
@settings(max_examples=times(3))
def test_a_failed_step_blocks_its_dependents_and_a_retry_continues(life: Life, chance: random.Random) -> None:
    for _ in range(4):
        plan = life.next_plan()
        if plan.refusals or not plan.steps:
            continue
        twin = life.pool.copy()
        assert Agent(twin, plan, "twin").apply() is RunState.DONE
        fails = chance.choice(plan.steps)
        agent = Agent(life.pool, plan, f"r{life.round}", fails=fails.n)
        assert agent.apply() is RunState.FAILED
        blocked = journalled(life.pool, agent.run_id, StepState.BLOCKED)
        assert set(blocked) == {step.n for step in plan.steps if fails.n in behind(plan, step.n)}
        assert agent.apply(OperatorControl("retry")) is RunState.DONE
        twin.settle()
        life.pool.settle()
        assert life.pool.things() == twin.things()
        life.pool.going = frozenset()


@given(lives, st.randoms())
@settings(max_examples=times(3))
def test_a_plan_that_continues_a_failed_run_reaches_what_is_declared(life: Life, chance: random.Random) -> None:
    for _ in range(4):
        plan = life.next_plan()
        if plan.refusals or not plan.steps or plan.request.verb == "delete":
            continue
        agent = Agent(life.pool, plan, f"r{life.round}", fails=chance.choice(plan.steps).n)
        assert agent.apply() is RunState.FAILED
        life.pool.settle()
        life.pool.began_cold = []
        if chance.random() < 0.5:
            life.live()
        again = life.look().plan(replace(plan.request, continues=agent.run_id))
        event("continued" if not again.refusals else "not continued")
        if not again.refusals:
            assert Agent(life.pool, again, f"{agent.run_id}b").apply() is RunState.DONE
            reaches_what_is_declared(life, again)


def crashed(pool: Simulated, plan: Plan, run_id: str, point: int) -> Simulated:
    """Let the agent die at a point, and the next agent three points after it took over; then let the run end."""
    for dies_at in (point, 3):
        try:
            Agent(pool, plan, run_id, dies_at=dies_at).apply()
        except Died:
            pool.check()
    assert Agent(pool, plan, run_id).apply() is RunState.DONE
    pool.settle()
    return pool


def reaches_what_is_declared(life: Life, plan: Plan) -> None:
    """Check the result of a finished run: as planned, everything warm, and nothing left to plan."""
    life.pool.settle()
    life.pool.check()
    observed = life.pool.observed()
    warned = {warned.table for warned in plan.warnings}
    assert all(warned.intersection(pair) for pair in life.pool.began_cold), (life.pool.began_cold, plan.warnings)
    life.pool.began_cold = []
    for node in plan.nodes:
        now = observed.get(node.table)
        if node.action is Action.DELETE:
            assert now is not None and now.state == State.ABSENT
            assert not any(table == node.table for table, _ in life.pool.catalog)
        elif node.action is Action.RETIRE:
            assert now is not None and now.former is None
            never_served = {orphan.version for orphan in now.orphan_versions}
            left = {v for table, v in life.pool.catalog if table == node.table}
            assert left - never_served == {node.version}, "what a failed run has left is no replaced version"
        elif node.action is not Action.KEEP:
            assert now is not None and (now.version, now.bindings) == (node.version, node.bindings)
            assert now.deployed == node.texts
            assert now.state == State.RUNNING or node.action is Action.RECORD
    if plan.request.verb == "deploy":
        again = life.look().plan(
            replace(plan.request, rebuild=False, keep_table=False, choices=(), start="", continues="")
        )
        assert not again.steps and not again.refusals, (again.steps, again.refusals)


def behind(plan: Plan, n: int) -> set[int]:
    found: set[int] = set()
    waiting = [n]
    while waiting:
        after = plan.steps[waiting.pop() - 1].after
        waiting.extend(set(after) - found)
        found.update(after)
    return found


def steps_that(life: Life, state: StepState) -> list[str]:
    return [str(p) for p in life.pool.journal[f"r{life.round}"].values() if p.state is state]
