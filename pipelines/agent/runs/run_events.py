"""Events and audit entries about the end of a run and about words that it has not carried out.

They are rows, written in the transaction that records what they tell (`RunWrites.advance_run`).
"""

from collections.abc import Iterable

from core.model.actions import StepKind
from core.plan.descriptions import act_words
from core.run.model import Run, StepState
from core.run.state_machine import HEARD_IN
from state.row_types import AuditRow, EventRow, RunRow
from state.run_words import RunWordRow


def end_of(run: RunRow, at: float, detail: str) -> tuple[EventRow, AuditRow]:
    """Return the event and the audit entry for the end of a run, in the state of its row."""
    audited = AuditRow(0, at, run.actor, "run", run.id, plan_hash=run.plan_hash, outcome=run.state)
    return _event(at, f"run {run.id} {run.state}", detail), audited


def dropped_word(run_id: str, state: str, word: RunWordRow, at: float, why: str = "") -> EventRow:
    """Return the event for a word that a run was not able to carry out, because it is in `state`."""
    summary = f"the word to {word.act} run {run_id} was not carried out: the run is {state}"
    return _event(at, summary, "; ".join(filter(None, (f"asked for by {word.actor}", why))))


def refused_words(before: Run, after: Run, words: Iterable[RunWordRow], at: float) -> tuple[EventRow, ...]:
    """Return the events for words that have come too late: their authors were told that they were sent."""
    told = []
    for word in words:
        if word.act == "skip":
            if (found := after.step(word.step)).state is not StepState.SKIPPED:
                what = f"{act_words(found.step.do)} {found.step.table}".strip()
                why = "it waits" if found.state is StepState.WAITS else f"it is {found.state}"
                summary = f"step {word.step} of run {after.id}, {what}, was not skipped: {why}"
                told.append(_event(at, summary, f"asked for by {word.actor}"))
        elif before.state not in HEARD_IN[word.act]:
            told.append(dropped_word(after.id, after.state, word, at))
        elif word.act == "swap" and not _has_ended_a_hold(before, after):
            summary = f"the word to swap run {after.id} was not carried out: nothing was held any more"
            told.append(_event(at, summary, f"asked for by {word.actor}"))
    return tuple(told)


def _has_ended_a_hold(before: Run, after: Run) -> bool:
    ended = {p.step.n for p in after.steps if p.step.do is StepKind.HOLD and p.state is StepState.DONE}
    return any(before.step(n).state is not StepState.DONE for n in ended)


def _event(at: float, summary: str, detail: str) -> EventRow:
    return EventRow(0, at, "", 0, "run", summary, detail)
