"""All runs that small plans can reach, whatever steps report, operators command, and wherever agents die."""

import functools
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pytest

from core.model.actions import NEEDS_PROOF, StepKind
from core.model.names import TableName
from core.plan.model import Step
from core.run.model import RUN_TRANSITIONS, STEP_TRANSITIONS, OperatorControl, Run, RunState, StepProgress, StepState
from core.run.state_machine import (
    AbortVersions,
    GateOpened,
    GatePolled,
    PerformStep,
    PollGate,
    RunEvidence,
    RunIntent,
    StepDone,
    StepFailed,
    StepKept,
    StepPutOff,
    advance_run,
    recover_run,
)

K = StepKind
ENDED = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)
GRAPHS: dict[str, tuple[tuple[StepKind, tuple[int, ...]], ...]] = {
    "a start and the stop behind it": ((K.START, ()), (K.STOP, (1,))),
    "a gate that can be skipped before its start is proved": ((K.START, ()), (K.CATCH_UP, (1,)), (K.SWAP, (2,))),
    "a stop behind two starts": ((K.START, ()), (K.START, ()), (K.STOP, (1, 2))),
    "a hold": ((K.CATCH_UP, ()), (K.HOLD, (1,)), (K.SWAP, (2,))),
    "two that need nothing of each other": ((K.SEAM, ()), (K.OPTIMIZE, ())),
    "a delete": ((K.STOP, ()), (K.UNPOINT, (1,)), (K.TOMBSTONE, (2,))),
}
GATED = frozenset({K.START, K.CATCH_UP, K.HOLD, K.SWAP, K.SEAM, K.OPTIMIZE})


@dataclass(frozen=True)
class Reached:
    """A run, with the requests that have not been answered yet."""

    run: Run
    asked: tuple[RunIntent, ...] = ()


def begun(graph: str) -> Run:
    steps = (Step(n, do, TableName("a"), 2, after, why="") for n, (do, after) in enumerate(GRAPHS[graph], 1))
    return Run("r", RunState.RUNNING, tuple(StepProgress(step) for step in steps))


def answers(intent: RunIntent) -> tuple[RunEvidence, ...]:
    match intent:
        case PerformStep(step):
            kept = (StepKept(step.n, ""),) if step.do is K.STOP else ()
            gate = (GateOpened(step.n),) if step.do in GATED else ()
            return (StepDone(step.n), StepFailed(step.n, ""), StepPutOff(step.n, ""), *kept, *gate)
        case PollGate(step):
            return StepDone(step.n), StepFailed(step.n, ""), GatePolled(step.n, "")
        case AbortVersions():
            return ()


def spoken(run: Run) -> Iterator[tuple[OperatorControl, ...]]:
    """Yield no command, each command, and each pair of commands in both orders."""
    plain = [OperatorControl(act) for act in ("pause", "resume", "cancel", "retry", "swap")]
    words = [*plain, *(OperatorControl("skip", progress.step.n) for progress in run.steps)]
    yield ()
    yield from itertools.product(words)
    yield from itertools.permutations(words, 2)


def heard(asked: Iterable[RunIntent]) -> Iterator[tuple[RunEvidence, ...]]:
    """Yield every possible evidence for the requests, in every order."""
    every = [found for intent in asked if (found := answers(intent))]
    for combined in itertools.product(*every):
        yield from itertools.permutations(combined)


def bounded(run: Run) -> Run:
    """Normalize values that have no influence on a run's future."""
    return replace(run, steps=tuple(replace(p, tries=min(p.tries, 1), note="") for p in run.steps))


def following(found: Reached) -> Iterator[tuple[Reached, tuple[RunEvidence, ...]]]:
    """Yield the states that can follow a run: after answers and commands, or under a new agent."""
    for words in spoken(found.run):
        again = recover_run(found.run) if found.run.state not in ENDED else found.run
        for run, evidence in [(again, words), *((found.run, (*said, *words)) for said in heard(found.asked))]:
            after, asked = advance_run(run, evidence)
            yield Reached(bounded(after), tuple(i for i in asked if not isinstance(i, AbortVersions))), evidence


@functools.cache
def reachable(graph: str) -> tuple[tuple[Reached, tuple[RunEvidence, ...]], ...]:
    """Return every run that can be reached with a graph's plan, and the evidence that led to it."""
    return tuple(explored(graph))


def explored(graph: str) -> Iterator[tuple[Reached, tuple[RunEvidence, ...]]]:
    first = Reached(begun(graph))
    seen, open_ = {first}, deque([first])
    while open_:
        found = open_.popleft()
        for after, evidence in following(found):
            yield after, evidence
            if after not in seen:
                seen.add(after)
                open_.append(after)


@pytest.mark.sampled
@pytest.mark.parametrize("graph", GRAPHS)
def test_no_evidence_raises_and_an_ended_run_requests_nothing(graph: str) -> None:
    for after, evidence in reachable(graph):
        assert after.run.state not in ENDED or not after.asked, (after, evidence)


@pytest.mark.sampled
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_run_that_waits_for_nobody_has_something_to_do_or_has_ended(graph: str) -> None:
    for after, evidence in reachable(graph):
        assert after.run.state in (*ENDED, RunState.PAUSED) or after.asked, (after, evidence)


@pytest.mark.sampled
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_paused_run_is_asked_for_nothing_that_has_an_effect(graph: str) -> None:
    for after, evidence in reachable(graph):
        if after.run.state is RunState.PAUSED:
            harmless = {K.START, K.CATCH_UP, K.HOLD}
            assert all(isinstance(one, PollGate) and one.step.do in harmless for one in after.asked), (after, evidence)


@pytest.mark.sampled
@pytest.mark.parametrize("graph", GRAPHS)
def test_nothing_that_cannot_be_undone_begins_before_the_start_is_proved(graph: str) -> None:
    replaces = K.CATCH_UP in {do for do, _ in GRAPHS[graph]}
    for after, evidence in reachable(graph):
        starts = [p for p in after.run.steps if p.step.do is K.START]
        for intent in (one for one in after.asked if isinstance(one, PerformStep)):
            if intent.step.do in NEEDS_PROOF or (replaces and intent.step.do is K.SWAP):
                assert all(p.state is StepState.DONE for p in starts), (after, evidence)


@pytest.mark.drill
def test_every_transition_of_the_tables_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, runs = set(), set()
    step_become, run_become = StepProgress.become, Run.become

    def step_moves(progress: StepProgress, state: StepState, note: str = "") -> StepProgress:
        steps.add((progress.state, state))
        return step_become(progress, state, note)

    def run_moves(run: Run, state: RunState) -> Run:
        runs.add((run.state, state))
        return run_become(run, state)

    monkeypatch.setattr(StepProgress, "become", step_moves)
    monkeypatch.setattr(Run, "become", run_moves)
    for graph in GRAPHS:
        for _ in explored(graph):
            pass
    assert steps == {(before, after) for before, every in STEP_TRANSITIONS.items() for after in every}
    assert {move for move in runs if move[0] is not move[1]} == {
        (before, after) for before, every in RUN_TRANSITIONS.items() for after in every
    }
