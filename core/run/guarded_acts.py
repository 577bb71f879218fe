"""Which acts on a run a freeze or an approval is about: facts of its plan and of where its steps stand."""

from collections.abc import Mapping

from core.model.actions import MOVES_POINTERS, StepKind
from core.plan.model import Plan
from core.run.model import SATISFIED, StepState

GOES_ON = frozenset(("resume", "retry", "skip", "swap"))
"""Acts after which a run goes on to its next steps; a pause and a cancel are let at any time."""


def moves_pointers(plan: Plan, states: Mapping[int, StepState]) -> bool:
    """Return whether a run has a pointer to move yet, by the state of each step; a rollback counts as none.

    What takes a release back is let in a freeze too.
    """
    to_move = (step.n for step in plan.steps if step.do in MOVES_POINTERS)
    return plan.request.verb != "rollback" and any(states.get(n) not in SATISFIED for n in to_move)


def overrules(plan: Plan, act: str, do: StepKind | None) -> bool:
    """Return whether an act stands in for a check of a plan that needed an approval: its author alone is not enough.

    Such are the word to swap, and the skip of a comparison of rows, the step that is to `do` it.
    """
    return plan.approvals > 0 and (act == "swap" or (act == "skip" and do is StepKind.VALIDATE))
