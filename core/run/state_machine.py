"""The state machine of a run, without I/O: turns evidence into the run's next state and intents for the executor."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from core.model.actions import (
    BEGINS,
    MOVES_POINTERS,
    NEEDS_PROOF,
    POLLED_WITH_EFFECT,
    READABLE_ONCE_STARTED,
    UPKEEP,
    StepKind,
)
from core.plan.model import Plan, Step
from core.run.model import FINISHED, SATISFIED, OperatorControl, Run, RunState, StepProgress, StepState, skipped_note
from core.text.sentence import Sentence


@dataclass(frozen=True, slots=True)
class StepDone:
    """Evidence: a probe found that the effect of a step is in place."""

    n: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class StepKept:
    """Evidence: a step was deliberately not performed, for the reason in `note`."""

    n: int
    note: str


@dataclass(frozen=True, slots=True)
class GateOpened:
    """Evidence: the effect of a step is in progress, and its gate must be polled."""

    n: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class GatePolled:
    """Evidence: a gate was polled and is not open yet."""

    n: int
    note: str


@dataclass(frozen=True, slots=True)
class StepFailed:
    """Evidence: a step failed; `note` gives the error and its remedy in one line."""

    n: int
    note: str


@dataclass(frozen=True, slots=True)
class StepPutOff:
    """Evidence: a step could not be performed now, and must be started again later."""

    n: int
    note: str


RunEvidence = StepDone | StepKept | GateOpened | GatePolled | StepFailed | StepPutOff | OperatorControl


@dataclass(frozen=True, slots=True)
class PerformStep:
    """Intent: perform a step, unless a probe shows that it is done; repeating the intent is harmless."""

    step: Step


@dataclass(frozen=True, slots=True)
class PollGate:
    """Intent: check whether the step's gate is open."""

    step: Step


@dataclass(frozen=True, slots=True)
class AbortVersions:
    """Intent: stop the versions that this run has started but not swapped in."""

    versions: tuple[tuple[str, int], ...]


RunIntent = PerformStep | PollGate | AbortVersions

_FORWARD = "resumed after the agent stopped: the remaining pointers are moved"
"""Note of an interrupted swap; a swap is always completed."""


def recover_run(run: Run) -> Run:
    """Return a run as a new agent resumes it: interrupted steps wait again, and are probed before they start.

    A hold keeps its state, so that a swap command is not lost if it was accepted before the run continues.
    """
    held = held_steps(run)
    for progress in run.steps:
        if progress not in held and progress.state in (StepState.RUNNING, StepState.GATE):
            words = _FORWARD if progress.step.do is StepKind.SWAP else "resumed after the agent stopped"
            run = run.put(StepProgress(progress.step, StepState.WAITS, progress.tries, words))
    return run


def advance_run(run: Run, evidence: Iterable[RunEvidence]) -> tuple[Run, tuple[RunIntent, ...]]:
    """Apply evidence to a run; return the next run and the resulting intents for the executor.

    A run that was already done or cancelled yields no intents.
    """
    intents: list[RunIntent] = []
    for item in evidence:
        run, more = _absorb(run, item)
        intents.extend(more)
    run = _block(run)
    if run.state is RunState.RUNNING:
        run, begun = _begin(run)
        intents.extend(begun)
    if run.state in (RunState.RUNNING, RunState.PAUSED):
        unseen = POLLED_WITH_EFFECT if run.state is RunState.PAUSED else frozenset()
        intents.extend(PollGate(p.step) for p in run.steps if p.state is StepState.GATE and p.step.do not in unseen)
        run = _end(run)
    return run, tuple(intents)


def _absorb(run: Run, item: RunEvidence) -> tuple[Run, tuple[RunIntent, ...]]:
    match item:
        case StepDone(n, note):
            return run.put(run.step(n).become(StepState.DONE, note)), ()
        case StepKept(n, note):
            return run.put(run.step(n).become(StepState.KEPT, note)), ()
        case GateOpened(n, note):
            return run.put(run.step(n).become(StepState.GATE, note)), ()
        case GatePolled(n, note):
            progress = run.step(n)
            return run.put(StepProgress(progress.step, progress.state, progress.tries, note)), ()
        case StepFailed(n, note):
            return run.put(run.step(n).become(StepState.FAILED, note)), ()
        case StepPutOff(n, note):
            return run.put(run.step(n).become(StepState.WAITS, note)), ()
        case OperatorControl():
            return _control(run, item)
        case _:
            assert_never(item)


def _control(run: Run, control: OperatorControl) -> tuple[Run, tuple[RunIntent, ...]]:
    match control.act:
        case "pause" if run.state is RunState.RUNNING:
            return run.become(RunState.PAUSED), ()
        case "resume" if run.state is RunState.PAUSED:
            return run.become(RunState.RUNNING), ()
        case "retry" if run.state in (RunState.FAILED, RunState.RUNNING, RunState.PAUSED):
            return _retry(run), ()
        case "skip":
            progress = run.step(control.n)
            if why_not_skipped(run, control.n) is None:
                run = run.put(progress.become(StepState.SKIPPED, skipped_note(progress.step.do, progress.note)))
                return _retry(run), ()
        case "swap":
            for progress in held_steps(run):
                run = run.put(progress.become(StepState.DONE, f"the swap was released by {control.by}"))
            return run, ()
        case "cancel" if run.state not in (RunState.DONE, RunState.CANCELLED):
            return _cancel(run)
    return run, ()


def held_steps(run: Run) -> tuple[StepProgress, ...]:
    """Return the hold steps that are waiting for an operator to release the swap."""
    return tuple(p for p in run.steps if p.step.do is StepKind.HOLD and p.state is StepState.GATE)


def why_not_skipped(run: Run, n: int) -> Sentence | None:
    """Explain why a step cannot be skipped; None if it can. Raises KeyError for an unknown step.

    Later steps rely on the effect of earlier steps: after a skipped swap, the run would stop the serving version; after
    a skipped stop, two versions would write; a skipped tombstone would leave a table without a pointer. Only waits,
    table maintenance and comparisons can be skipped. The wait for a first batch cannot be skipped if a later step
    replaces or ends an old version.
    """
    progress = run.step(n)
    do, state = progress.step.do, progress.state
    if state not in (StepState.GATE, StepState.FAILED, StepState.WAITS):
        return Sentence(f"it is {state}")
    if do in UPKEEP | {StepKind.CATCH_UP, StepKind.VALIDATE}:
        return None
    if do in BEGINS and state is StepState.GATE:
        # A failed or blocked step waits again after a retry.
        open_ = (p.step for p in run.steps if p.state not in SATISFIED | {StepState.CANCELLED})
        behind = next((step for step in open_ if n in _proofs(run, step)), None)
        return (
            Sentence(f"step {behind.n}, {behind.do} {behind.table}, must wait for its first batch") if behind else None
        )
    if do is StepKind.HOLD:
        return Sentence("it waits for an operator: headgate release swap ends the wait")
    return Sentence(f"later steps rely on a {do} step")


def skip_must_wait(run: Run, control: OperatorControl) -> bool:
    """True if a command to skip a step that starts a query must wait until the step's gate is polled.

    A new agent starts interrupted steps again before it polls their gates. A finished run starts nothing, and accepts
    every command at once.
    """
    if control.act != "skip" or run.state not in (RunState.RUNNING, RunState.PAUSED):
        return False
    progress = run.step(control.n)
    return progress.step.do in BEGINS and progress.state in (StepState.WAITS, StepState.RUNNING)


def _retry(run: Run) -> Run:
    for progress in run.steps:
        if progress.state in (StepState.FAILED, StepState.BLOCKED):
            run = run.put(progress.become(StepState.WAITS))
    return run.become(RunState.RUNNING) if run.state is RunState.FAILED else run


def _cancel(run: Run) -> tuple[Run, tuple[RunIntent, ...]]:
    serving = {
        table
        for p in run.steps
        if p.step.do is StepKind.SWAP and p.state is StepState.DONE
        for table in (p.step.tables or (p.step.table,))
    }
    begun = dict.fromkeys(
        (str(p.step.table), p.step.version)
        for p in run.steps
        # A created version also has the desired state `running`, and would count as a reader of its inputs.
        if p.step.do in READABLE_ONCE_STARTED | {StepKind.CREATE}
        # A waiting step may have been started by an agent that was killed, or before a retry.
        and (p.state is not StepState.WAITS or p.tries)
        and p.step.table not in serving
        and _awaits_swap(run, p.step)
    )
    for progress in run.steps:
        if progress.state in (StepState.WAITS, StepState.GATE, StepState.FAILED, StepState.BLOCKED):
            run = run.put(progress.become(StepState.CANCELLED, "cancelled by an operator"))
    run = run.become(RunState.CANCELLED)
    return run, (AbortVersions(tuple(begun)),) if begun else ()


def _awaits_swap(run: Run, start: Step) -> bool:
    """True if a version runs next to a serving version until the swap; a cancel stops only these versions."""
    return any(p.step.do is StepKind.CATCH_UP and p.step.table == start.table for p in run.steps)


def _block(run: Run) -> Run:
    bad = {p.step.n: p for p in run.steps if p.state in (StepState.FAILED, StepState.BLOCKED)}
    for progress in run.steps if bad else ():
        if progress.state is not StepState.WAITS:
            continue
        cause = next((n for n in (*progress.step.after, *sorted(_proofs(run, progress.step))) if n in bad), None)
        if cause is not None:
            blocked = progress.become(StepState.BLOCKED, f"depends on step {cause}, which is {bad[cause].state}")
            bad[progress.step.n] = blocked
            run = run.put(blocked)
    return run


def _begin(run: Run) -> tuple[Run, list[RunIntent]]:
    """Start the first ready step and no other, so that each intent is recorded before its effect."""
    by_n = {p.step.n: p for p in run.steps}
    for progress in run.steps:
        ready = progress.state is StepState.WAITS and all(_lets_begin(by_n[n]) for n in progress.step.after)
        if ready and all(by_n[n].state is StepState.DONE for n in _proofs(run, progress.step)):
            return run.put(progress.become(StepState.RUNNING)), [PerformStep(progress.step)]
    return run, []


def _lets_begin(before: StepProgress) -> bool:
    """True if a step may begin, given its prerequisite `before`.

    A reader may begin once its upstream query has started.
    """
    started = before.state is StepState.GATE and before.step.do in READABLE_ONCE_STARTED
    return before.state in SATISFIED or started


def _proofs(run: Run, step: Step) -> frozenset[int]:
    """Return the steps whose queries must complete a first batch before `step` ends or replaces an old version.

    Indirect prerequisites of `step` are included, because an operator may have skipped direct ones. A swap that creates
    the first pointer of a table waits for no first batch, because no version has to catch up before it.
    """
    if step.do in NEEDS_PROOF:
        before = _before(run, (step.n,))
    elif step.do is StepKind.SWAP:
        gates = [p.step.n for p in _before(run, (step.n,)) if p.step.do is StepKind.CATCH_UP]
        before = _before(run, gates)
    else:
        return frozenset()
    return frozenset(p.step.n for p in before if p.step.do in BEGINS)


def _before(run: Run, numbers: Iterable[int]) -> tuple[StepProgress, ...]:
    by_n = {p.step.n: p for p in run.steps}
    found: set[int] = set()
    open_ = list(numbers)
    while open_:
        new = [n for n in by_n[open_.pop()].step.after if n not in found]
        found.update(new)
        open_ += new
    return tuple(by_n[n] for n in sorted(found))


def _end(run: Run) -> Run:
    if not all(p.state in FINISHED for p in run.steps):
        return run
    failed = any(p.state in (StepState.FAILED, StepState.BLOCKED) for p in run.steps)
    return run.become(RunState.FAILED if failed else RunState.DONE)


GOES_ON = frozenset(("resume", "retry", "skip", "swap"))
"""Commands after which a run continues with its next steps; pause and cancel are always allowed."""


def moves_pointers(plan: Plan, states: Mapping[int, StepState]) -> bool:
    """True if a run still has to move a pointer, given the states of its steps.

    Always False for a rollback, which may move pointers during a freeze window.
    """
    to_move = (step.n for step in plan.steps if step.do in MOVES_POINTERS)
    return plan.request.verb != "rollback" and any(states.get(n) not in SATISFIED for n in to_move)


def overrides_approved_plan(plan: Plan, act: str, do: StepKind | None) -> bool:
    """True if a command overrides a check of a plan that needs an approval.

    Such commands are a swap and the skip of a comparison; `do` is the kind of the step to skip. A user other
    than the author of the plan must give them.
    """
    return plan.approvals > 0 and (act == "swap" or (act == "skip" and do is StepKind.VALIDATE))
