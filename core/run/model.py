"""The values of a run, which is one execution of a plan, and the allowed transitions between states."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from core.model.actions import StepKind

if TYPE_CHECKING:
    from core.plan.model import Step


class StepState(StrEnum):
    """The state of a step."""

    WAITS = "waits"
    RUNNING = "running"
    GATE = "gate"
    """The step's effect is in progress, and the step's gate is polled until its condition holds."""
    DONE = "done"
    KEPT = "kept"
    """The step was deliberately not performed, because another statement still needs the version to be stopped."""
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


def step_word(state: str) -> str:
    """Return a step's state for display; a step in state `gate` is shown as running."""
    return str(StepState.RUNNING if state == StepState.GATE else state)


NOT_COMPARED = "rows were not compared"
"""Start of the note of a comparison step that compared nothing."""


def skipped_note(do: str, note: str) -> str:
    """Return the note for a step that an operator skips; a comparison's previous note becomes part of it."""
    skipped = "skipped by an operator"
    return f"{skipped}; before that: {note}" if do == StepKind.VALIDATE and note else skipped


class RunState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


HALTED = "halted"
"""State shown for a running run and its open steps while no agent is alive; the ledger never records it."""


class IllegalTransition(AssertionError):
    """Raised for a disallowed state transition, which is a bug in Headgate; the message names both states."""


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
"""The allowed next states by step state; final states have none."""

RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.DONE, RunState.FAILED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.RUNNING, RunState.DONE, RunState.FAILED, RunState.CANCELLED}),
    RunState.FAILED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.DONE: frozenset(),
    RunState.CANCELLED: frozenset(),
}
"""The allowed next states by run state; a failed run can be retried."""

_OPEN = frozenset({RunState.RUNNING, RunState.PAUSED})

ACCEPTED_IN: dict[str, frozenset[RunState]] = {
    "pause": _OPEN,
    "resume": _OPEN,
    "swap": _OPEN,
    "skip": _OPEN | {RunState.FAILED},
    "retry": _OPEN | {RunState.FAILED},
    "cancel": _OPEN | {RunState.FAILED},
}
"""The run states in which each command is accepted."""

SATISFIED = frozenset({StepState.DONE, StepState.KEPT, StepState.SKIPPED})
"""Step states in which dependent steps may proceed."""

FINISHED = SATISFIED | {StepState.FAILED, StepState.BLOCKED, StepState.CANCELLED}
"""Step states in which a run takes no further action on the step."""


@dataclass(frozen=True, slots=True)
class OperatorControl:
    """Evidence: an operator's command to pause, resume, cancel, retry or swap (end a hold), or to skip step `n`."""

    act: str
    n: int = 0
    by: str = ""


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A step with its state; `tries` counts how often the step was started."""

    step: "Step"
    state: StepState = StepState.WAITS
    tries: int = 0
    note: str = ""

    def become(self, state: StepState, note: str = "") -> "StepProgress":
        """Return the step in another state; raise IllegalTransition if the transition is not allowed."""
        if state not in STEP_TRANSITIONS[self.state]:
            raise IllegalTransition(f"step {self.step.n}: {self.state} → {state}")
        return replace(self, state=state, note=note, tries=self.tries + (state is StepState.RUNNING))


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a plan; steps are in plan order."""

    id: str
    state: RunState
    steps: tuple[StepProgress, ...]

    def become(self, state: RunState) -> "Run":
        """Return the run in another state; raise IllegalTransition if the transition is not allowed.

        A transition to the current state is always allowed, and changes nothing.
        """
        if state is self.state:
            return self
        if state not in RUN_TRANSITIONS[self.state]:
            raise IllegalTransition(f"run {self.id}: {self.state} → {state}")
        return replace(self, state=state)

    def step(self, n: int) -> StepProgress:
        """Return a step by its number; raises KeyError for an unknown number."""
        for progress in self.steps:
            if progress.step.n == n:
                return progress
        raise KeyError(n)

    def put(self, changed: StepProgress) -> "Run":
        """Return the run with one step replaced."""
        steps = tuple(changed if progress.step.n == changed.step.n else progress for progress in self.steps)
        return replace(self, steps=steps)
