"""Plans applied while others act: operators stop and start, a neighbour fails, at any point of any step."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

from core.model.actions import StepKind
from core.model.names import TableName as T
from core.model.states import State, WantedState
from core.plan.request import PlanRequest
from core.run.model import OperatorControl, Run, RunState, StepState
from core.run.state_machine import why_not_skipped
from tests.core.planner.test_planner_simulated import Life, back_of, born
from tests.support.random_worlds import times
from tests.support.simulated_agent import Agent, Simulated, Version

OFTEN = 0.15
"""Probability that another actor acts at a point between two changes."""


class Others:
    """An operator and a failing neighbour. Remembers the last command for each table."""

    def __init__(self, pool: Simulated, chance: random.Random) -> None:
        self._pool, self._chance = pool, chance
        self.stopped: set[T] = set()

    def act(self, held: frozenset[Version]) -> None:
        """Perhaps act. A stop waits for no lock; a start that would have to wait for a locked version is dropped."""
        if self._chance.random() > OFTEN:
            return
        tables = sorted({table for (table, version), row in self._pool.ledger.items() if version and not row.deleted})
        if not tables:
            return
        table, what = self._chance.choice(tables), self._chance.choice(("stop", "stop", "start", "fail"))
        if what == "stop":
            self._pool.stop_by_operator(table)
            self.stopped.add(table)
        elif what == "start" and not self._waits(table, held):
            self._pool.start_by_operator(table)
            self.stopped &= self._pool.stopped
        elif what == "fail" and table not in {version[0] for version in held}:
            self._pool.fail(table)

    def _waits(self, table: T, held: frozenset[Version]) -> bool:
        """Return whether a step holds a table, or deletes something that the table reads, which forbids a start."""
        rows = [row for (name, _), row in self._pool.ledger.items() if name == table]
        reads = {(binding.parent, binding.version) for row in rows for binding in row.bindings}
        return bool(held & reads) or table in {name for name, _ in held}


def test_a_stop_always_wins_and_nothing_unwanted_runs() -> None:
    ends = Counter(end for seed in range(times(30)) for end in ends_of_a_life(seed))
    assert {("deploy", "done"), ("deploy", "failed"), ("delete", "done"), ("delete", "failed")} <= set(ends), ends


def test_versions_replaced_by_a_rollback_are_stopped_as_well() -> None:
    ends = Counter(end for seed in range(times(20)) for end in ends_of_undos(seed))
    assert set(ends) >= {(verb, end) for verb in ("rollback", "undelete") for end in ("done", "failed")}, ends


def ends_of_undos(seed: int) -> Iterator[tuple[str, str]]:
    """Repeatedly release or delete undisturbed, and roll back while others act; yield how each run ended."""
    life, chance = born(seed, 2 + seed % 7), random.Random(seed)
    for request in (PlanRequest(everything=True, children="all"), *(_ahead(chance, life) for _ in range(3))):
        ahead = life.look().plan(request)
        if not ahead.refusals:
            life.round += 1
            Agent(life.pool, ahead, f"r{life.round}").apply()
            life.pool.settle()
        life.pool.going = frozenset()
        asked = back_of(chance, life.look(), chance.choice(("rollback", "undelete")))
        back = life.look().plan(asked) if asked is not None else ahead
        if back.refusals or back is ahead:
            continue
        others, run = Others(life.pool, chance), f"r{life.round} back"
        state, words = Agent(life.pool, back, run, meanwhile=others.act).apply(), 3
        yield back.request.verb, state.value
        holds(life.pool, others.stopped)
        while state is RunState.FAILED and words:
            again, words = Agent(life.pool, back, run, meanwhile=others.act), words - 1
            word = a_word(life.pool, again, chance)
            others.stopped -= others.stopped if word.act == "retry" else set()
            state = again.apply(word)
            holds(life.pool, others.stopped)
        life.pool.stopped.clear()
        life.pool.began_cold = []


def _ahead(chance: random.Random, life: Life) -> PlanRequest:
    """Return a request for a release, or for a delete of everything."""
    if chance.random() < 0.4:
        return PlanRequest(verb="delete", everything=True)
    table = chance.choice(sorted(life.tables))
    return PlanRequest(tables=(table,), rebuild=True, children="all", nonce=str(chance.random()))


def ends_of_a_life(seed: int) -> Iterator[tuple[str, str]]:
    """Play a life and check the rules between its runs; yield how each run ended."""
    life, chance = born(seed, 2 + seed % 8), random.Random(seed)
    for _ in range(4):
        plan = life.next_plan()
        if plan.refusals:
            continue
        served = dict(life.pool.pointers)
        others = Others(life.pool, chance)
        agent = Agent(life.pool, plan, f"r{life.round}", meanwhile=others.act)
        state = agent.apply()
        yield plan.request.verb, state.value
        holds(life.pool, others.stopped)
        for _ in range(3):
            if state is not RunState.FAILED:
                break
            word = a_word(life.pool, agent, chance)
            if word.act == "retry":
                others.stopped.clear()
            again = Agent(life.pool, plan, agent.run_id, meanwhile=others.act)
            state = again.apply(word)
            yield word.act, state.value
            holds(life.pool, others.stopped)
        if state in (RunState.FAILED, RunState.CANCELLED) and not swapped(life.pool, agent):
            assert {t: v for t, v in life.pool.pointers.items() if t in served} == served or life.pool.going
        if life.pool.going and state is not RunState.DONE:
            # A delete stays half done: its table has no pointer, and an operator has to plan the delete again.
            return
        life.pool.going = frozenset()
        life.pool.stopped.clear()
        life.pool.began_cold = []


def a_word(pool: Simulated, agent: Agent, chance: random.Random) -> OperatorControl:
    """Return an operator's reaction to a failed run: retry, cancel, or skip a skippable step."""
    steps = pool.journal[agent.run_id]
    run = Run(agent.run_id, pool.runs[agent.run_id], tuple(steps.values()))
    skippable = [n for n in steps if why_not_skipped(run, n) is None]
    words: list[Callable[[], OperatorControl]] = [lambda: OperatorControl("retry"), lambda: OperatorControl("cancel")]
    if skippable:
        words.append(lambda: OperatorControl("skip", chance.choice(skippable)))
    return chance.choice(words)()


def swapped(pool: Simulated, agent: Agent) -> bool:
    """Return whether a run has moved a pointer, or may have moved one; a retry continues a swap that has begun."""
    steps = pool.journal[agent.run_id].values()
    return any(p.step.do in (StepKind.SWAP, StepKind.UNPOINT) and p.state is not StepState.WAITS for p in steps)


def holds(pool: Simulated, stopped: set[T]) -> None:
    """Assert the rules that hold between two runs, whoever has acted during them."""
    pool.check()
    for version, bindings in pool.queries.items():
        row = pool.ledger[version]
        assert version[0] not in stopped, f"{version} runs after an operator stopped it"
        assert row.wanted == WantedState.RUNNING, f"{version} runs and is not wanted"
        assert bindings == row.bindings, f"{version} runs another text than is recorded"
    for version, row in pool.ledger.items():
        if row.wanted == WantedState.RUNNING and not row.external and not row.deleted:
            known = version in pool.queries or row.state in (State.FAILED, State.PENDING)
            assert known, f"{version} is wanted, does not run, and nothing says why ({row.state})"
    for table, version in pool.pointers.items():
        assert pool.ledger[table, version].active or pool.going, f"the pointer of {table} leads to v{version}"
