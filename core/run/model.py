"""The run: one execution of a plan, as values and two tables of what may follow what."""

from dataclasses import dataclass, replace
from enum import StrEnum

from core.model.actions import StepKind
from core.plan.model import Step


class StepState(StrEnum):
    """Where a step stands."""

    WAITS = "waits"
    RUNNING = "running"
    GATE = "gate"
    """Its effect is under way and is polled until a condition holds."""
    DONE = "done"
    KEPT = "kept"
    """Deliberately not done: something left behind still needs what it would stop."""
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


def step_word(state: str) -> str:
    """Return what people read of a step's state: one that is polled until a condition holds is running."""
    return str(StepState.RUNNING if state == StepState.GATE else state)


NOT_COMPARED = "rows were not compared"
"""How a comparison's step begins that has ended without one."""

_SKIPPED = "skipped by an operator"


def skipped_note(do: str, note: str) -> str:
    """Return the note of a step that is skipped, by the one that it had: of a comparison whether there was one."""
    if do != StepKind.VALIDATE:
        return _SKIPPED
    if RELEASE_DIFF in note:
        return f"{_SKIPPED}, over what was found: {note.partition('; ' + RELEASE_DIFF)[0]}"
    return f"{NOT_COMPARED}: {_SKIPPED}"


RELEASE_DIFF = "headgate release diff"
"""Named in the note of a comparison that has found what blocks a release, after it."""


class RunState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class IllegalTransition(AssertionError):
    """A state was asked to become one that cannot follow it: our bug, with both printed."""


STEP_TRANSITIONS: dict[StepState, frozenset[StepState]] = {
    StepState.WAITS: frozenset({StepState.RUNNING, StepState.BLOCKED, StepState.SKIPPED, StepState.CANCELLED}),
    StepState.RUNNING: frozenset({StepState.GATE, StepState.DONE, StepState.KEPT, StepState.FAILED, StepState.WAITS}),
    StepState.GATE: frozenset({StepState.DONE, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED}),
    StepState.FAILED: frozenset({StepState.WAITS, StepState.SKIPPED, StepState.CANCELLED}),
    StepState.BLOCKED: frozenset({StepState.WAITS, StepState.CANCELLED}),
    StepState.DONE: frozenset(),
    StepState.KEPT: frozenset(),
    StepState.SKIPPED: frozenset(),
    StepState.CANCELLED: frozenset(),
}
"""What a step may become; an empty set is an end."""

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.DONE, RunState.FAILED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.DONE, RunState.FAILED, RunState.CANCELLED}),
    RunState.FAILED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.DONE: frozenset(),
    RunState.CANCELLED: frozenset(),
}
"""What a run may become; a failed run can be retried."""

SATISFIED = frozenset({StepState.DONE, StepState.KEPT, StepState.SKIPPED})
"""States of a step that let the steps after it go on."""

FINISHED = SATISFIED | {StepState.FAILED, StepState.BLOCKED, StepState.CANCELLED}
"""States in which a step asks for nothing more in this run."""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A step with where it stands; `tries` counts how often it was begun."""

    step: Step
    state: StepState = StepState.WAITS
    tries: int = 0
    note: str = ""

    def become(self, state: StepState, note: str = "") -> "StepProgress":
        """Return the step in its next state; raises IllegalTransition."""
        if state not in STEP_TRANSITIONS[self.state]:
            raise IllegalTransition(f"step {self.step.n}: {self.state} → {state}")
        return replace(self, state=state, note=note, tries=self.tries + (state is StepState.RUNNING))


@dataclass(frozen=True, slots=True)
class Run:
    """One execution; steps in the plan's order."""

    id: str
    state: RunState
    steps: tuple[StepProgress, ...]

    def become(self, state: RunState) -> "Run":
        """Return the run in its next state; itself when it is there already; raises IllegalTransition."""
        if state is self.state:
            return self
        if state not in RUN_TRANSITIONS[self.state]:
            raise IllegalTransition(f"run {self.id}: {self.state} → {state}")
        return replace(self, state=state)

    def step(self, n: int) -> StepProgress:
        """Find a step by its number; raises KeyError."""
        for progress in self.steps:
            if progress.step.n == n:
                return progress
        raise KeyError(n)

    def put(self, changed: StepProgress) -> "Run":
        """Return the run with one step replaced."""
        steps = tuple(changed if progress.step.n == changed.step.n else progress for progress in self.steps)
        return replace(self, steps=steps)
