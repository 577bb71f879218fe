"""Plans of random worlds: whatever operators skip, no version is replaced or ended before its successor is proved."""

from collections.abc import Iterable

from hypothesis import event, given, settings

from core.model.actions import BEGINS, NEEDS_PROOF, StepKind
from core.plan.model import Plan, Step
from core.plan.request import PlanRequest
from core.run.model import OperatorControl, Run, RunState, StepProgress, StepState
from core.run.state_machine import (
    GateOpened,
    GatePolled,
    PerformStep,
    PollGate,
    RunEvidence,
    RunIntent,
    StepDone,
    advance_run,
)
from tests.support.random_worlds import World, cases

GATED = BEGINS | {StepKind.CATCH_UP, StepKind.VALIDATE, StepKind.HOLD}


def answered(intents: Iterable[RunIntent], *, proved: bool) -> list[RunEvidence]:
    """Answer steps with success, starts with proof only if `proved`, and leave gates closed."""
    found: list[RunEvidence] = []
    for intent in intents:
        match intent:
            case PerformStep(step):
                found.append(GateOpened(step.n) if step.do in GATED else StepDone(step.n))
            case PollGate(step):
                shut = step.do not in BEGINS or not proved
                found.append(GatePolled(step.n, "waits") if shut else StepDone(step.n))
    return found


def driven(run: Run, *, proved: bool) -> tuple[Run, list[Step]]:
    """Skip every step that can be skipped and confirm every swap; return the run and the steps that were begun."""
    words = [OperatorControl("swap"), *(OperatorControl("skip", p.step.n) for p in run.steps)]
    evidence: list[RunEvidence] = []
    begun: list[Step] = []
    while True:
        before = run, evidence
        run, intents = advance_run(run, [*evidence, *words])
        begun += [intent.step for intent in intents if isinstance(intent, PerformStep)]
        evidence = answered(intents, proved=proved)
        if (run, evidence) == before:
            return run, begun


def unproved(plan: Plan, run: Run, step: Step) -> list[int]:
    """Return the unproved starts of versions that replace what a step replaces or ends."""
    nodes = {node.table: node for node in plan.nodes}
    tables = step.tables or (step.table,)
    # A first pointer, or one to the same version, replaces nothing.
    news = [nodes[t] for t in tables if t in nodes and nodes[t].from_version not in (0, nodes[t].version)]
    if step.do not in NEEDS_PROOF | {StepKind.SWAP}:
        return []
    starts = {(p.step.table, p.step.version): p for p in run.steps if p.step.do in BEGINS}
    found = (starts.get((node.table, node.version)) for node in news)
    return [p.step.n for p in found if p is not None and p.state is not StepState.DONE]


def holds(world: World, request: PlanRequest) -> None:
    plan = world.plan(request)
    run = Run("r", RunState.RUNNING, tuple(StepProgress(step) for step in plan.steps))
    run, begun = driven(run, proved=False)
    for step in begun:
        assert not unproved(plan, run, step), (step, plan.steps)
    ends = any(p.step.do in NEEDS_PROOF and p.state is StepState.WAITS for p in run.steps)
    event(f"an end waits: {ends}")
    run, _ = driven(run, proved=True)
    assert run.state is RunState.DONE, run


@settings(deadline=None)
@given(cases("deploy", largest=40))
def test_a_deploy_ends_nothing_behind_a_start_without_a_proof_and_ends_once_it_has_one(
    case: tuple[World, PlanRequest],
) -> None:
    holds(*case)


@settings(deadline=None)
@given(cases("delete", largest=40))
def test_a_delete_has_nothing_to_wait_for(case: tuple[World, PlanRequest]) -> None:
    holds(*case)
