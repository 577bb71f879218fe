"""Runs as lines: the list of runs, and one run with its steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from core.model.actions import StepKind
from core.plan.descriptions import act_words
from core.plan.model import Plan, Step
from core.run.model import HALTED, SATISFIED, StepState, step_word
from core.run.records import RunRow, StepRow
from core.run.release import time_left
from core.run.state_machine import moves_pointers, overrides_approved_plan
from core.text.sentence import Sentence
from core.text.wording import counted, duration_range, first_sentence
from state.row_types import PlanRow
from tui.presentation.screen_content.changes import rule
from tui.presentation.screen_content.releases import gate_words, time_left_words
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Line, Span, Tone, fit, line, shorten, wrap, wrap_line
from tui.presentation.styling.table_layout import TableColumn, table_row, widths
from tui.presentation.styling.theme import STEP_TONES, Glyphs, bar
from tui.presentation.styling.value_formatting import long_duration, moment, took

OPEN_STEPS = ("running", "gate")
RUN_TONES = {
    "running": Tone.CHANGING,
    "halted": Tone.BAD,
    "paused": Tone.CHANGING,
    "failed": Tone.BAD,
    "done": Tone.GOOD,
}


CONTINUES_WITH = "nothing continues until `headgate up`"


def heading(
    run: RunRow,
    environment: str,
    now: float,
    width: int,
    glyphs: Glyphs,
    *,
    planned: Sequence[Step] = (),
    no_agent: bool = False,
) -> tuple[Line, ...]:
    """Render the heading above a run's steps: summary, progress bar, and the outcome or how to leave the screen.

    Without an agent, `run` is already the result of `core.run.records.halted`.
    """
    words = "continues without this screen (q leaves)" if run.state in ("running", "paused") else ending(run)
    if run.state == HALTED or (no_agent and run.state == "paused"):
        words = f"no agent is running: {CONTINUES_WITH}"
    room = max(width - len(words) - 4, 10)
    done = _finished(run) / (len(run.steps) or 1)
    second = line((f" {bar(done, room, glyphs)}  ", RUN_TONES.get(run.state, Tone.DIM)), (words, Tone.DIM))
    first = run_summary(run, environment, now, planned=planned)
    return (*wrap_line(first, width), *wrap_line(second, width))


def run_summary(run: RunRow, environment: str, now: float, *, planned: Sequence[Step] = ()) -> Line:
    """Format a run on one line.

    It shows id, environment, state, progress, duration, remaining or predicted time, and user.
    """
    waits = run.state != "running" or is_held(run)
    left = "" if waits else time_left_words(time_left(planned, run.steps, now))
    cells = run_cells(run, now)
    if not left and cells["predicted"].text:
        left = f", predicted {cells['predicted'].text}"
    # No cell shows the hash of the plan, because the run's id begins with it.
    return line(
        (f" RUN {run.id[:10]}", Tone.TITLE),
        f"   {environment}   ",
        cells["state"],
        (f"   {finished_steps_words(run)}   {cells['lasted'].text}{left}   by {cells['by'].text}", Tone.DIM),
    )


def finished_steps_words(run: RunRow) -> str:
    """Return the progress of a run, such as `2 of 3 steps`."""
    return f"{_finished(run)} of {counted(len(run.steps), 'step')}"


def _finished(run: RunRow) -> int:
    return sum(step.state in SATISFIED for step in run.steps)


def is_held(run: RunRow) -> bool:
    """True if a run is held before its swap, waiting for an operator."""
    return run.state == "running" and any(step.do == StepKind.HOLD and step.state == "gate" for step in run.steps)


def ending(run: RunRow) -> str:
    """Describe how a run ended and, if it failed, what to do next."""
    match run.state:
        case "failed" if run.continued_by:
            return f"failed: continued by run {run.continued_by[:10]}"
        case "failed":
            return "failed: fix the cause, then :retry, or :skip"
        case "cancelled":
            return "cancelled: completed steps stay"
        case _:
            return "all steps are done"


STEPS = (
    TableColumn("n", "#", 3, numeric=True),
    TableColumn("what", "STEP", 40),
    TableColumn("state", "STATE", 11),
    TableColumn("took", "TOOK", 8, numeric=True),
    TableColumn("predicted", "PREDICTED", 9),
    TableColumn("note", "NOTE", 0),
)
"""Columns of the steps of a run as the command line prints them."""


def step_columns(width: int, cells: int = 0) -> tuple[TableColumn, ...]:
    """Return the columns of a run's steps. `cells` is the width of the step column, or 0 for the widest that fits."""
    number, what, state, took, _, note = STEPS
    return number, replace(what, width=(cells or _step_width(width)) - 1), state, took, replace(note, title=" NOTE")


def _step_width(width: int) -> int:
    return 31 if width < 96 else 40 if width < 120 else 52


def step_width(steps: Iterable[StepRow], pointers: Mapping[int, Sequence[str]], width: int) -> int:
    """Return the width of the step column, limited so that there is room for the notes."""
    longest = max((len(_what(step, pointers.get(step.n, ()))) for step in steps), default=0)
    return max(min(longest + 2, _step_width(width)), len("STEP") + 2)


def _what(step: StepRow, names: Sequence[str]) -> str:
    on = " ".join(names) if names else step.table + (f" v{step.version}" if step.version else "")
    return f"{act_words(step.do):9} {on}"


def step_cells(
    step: StepRow, look: RowContext, *, names: Sequence[str] = (), needs: Sequence[int] = ()
) -> dict[str, Span]:
    """Return a step's cells by column id.

    `names` are the tables that the step swaps, `needs` the steps that it waits for.
    """
    waits, bad = step.state == "waits", step.state in ("failed", "blocked")
    note = step.note if step.do == StepKind.SWAP else note_of(step, look.now)
    note = first_sentence(note) if step.state == StepState.FAILED else note
    note = note or (f"needs {', '.join(map(str, needs))}" if waits and needs else "")
    return {
        "n": Span(str(step.n), Tone.DIM),
        "what": Span(_what(step, names), Tone.DIM if waits else Tone.PLAIN),
        "state": Span(f"{look.glyphs.steps.get(step.state, '?')} {step_word(step.state)}".strip(),
                      STEP_TONES.get(step.state, Tone.DIM)),
        "took": Span(_lasted(step, look.now), Tone.DIM),
        "predicted": Span(_predicted(step), Tone.DIM),
        "note": Span(note, Tone.BAD if bad else Tone.DIM),
    }  # fmt: skip


def _lasted(step: StepRow, now: float) -> str:
    if step.started_at is None:
        return ""
    if step.state in (*OPEN_STEPS, HALTED):
        return long_duration(int(now - step.started_at))
    end = step.ended_at or (now if step.state == StepState.FAILED else None)
    return "" if end is None else took(end - step.started_at)


def _predicted(row: RunRow | StepRow) -> str:
    if row.predicted_low_s is None or row.predicted_high_s is None:
        return ""
    if isinstance(row, StepRow) and row.do == StepKind.HOLD:
        return ""
    return duration_range(row.predicted_low_s, row.predicted_high_s)


def step_row(
    step: StepRow, needs: Sequence[int], names: Sequence[str], width: int, look: RowContext, *, cells: int = 0
) -> Line:
    """Format one step as a line of `width` cells. A step that has not started shows its predicted duration."""
    columns = step_columns(width, cells)
    row = step_cells(step, look, names=names, needs=needs)
    if step.state == "waits":
        row["took"] = Span(row["predicted"].text.replace("up to ", "< "), Tone.DIM)
    room, (note, tone) = max(widths(columns, width + 1)[-1] - 1, 8), row["note"]
    # An error starts with its class; if the message does not fit, it is written in full below the steps.
    note = shorten(note if len(note) <= room else note.partition(": ")[0], room, look.glyphs.ellipsis)
    # The cell that separates columns is not needed after the last one.
    return fit(table_row(row | {"note": Span(f" {note}", tone)}, columns, width + 1), width)


def note_of(step: StepRow, now: float) -> str:
    """Return a step's note. If the step is a gate that has opened, the note includes the time."""
    opened = step.ended_at if step.do == StepKind.CATCH_UP and step.state == StepState.DONE else None
    return gate_words(step.note, opened, now)


def step_detail(step: StepRow, why: str, width: int, look: RowContext) -> tuple[Line, ...]:
    """Render a step in full: its reason, note, predicted duration and number of tries."""
    tone = Tone.BAD if step.state in ("failed", "blocked") else Tone.PLAIN
    lines: list[Line] = [rule(f"step {step.n}", width, look.glyphs)]
    lines += wrap(why, width - 4, Tone.DIM, "   ") if why else ()
    lines += wrap(note_of(step, look.now), width - 4, tone, "   ") if step.note else ()
    if predicted := _predicted(step):
        lines.append(line(("   predicted ", Tone.DIM), predicted))
    if step.tries > 1:
        lines.append(line((f"   tried {step.tries} times", Tone.CHANGING)))
    return tuple(lines)


RUNS = (
    TableColumn("run", "RUN", 10),
    TableColumn("state", "STATE", 9),
    TableColumn("steps", "STEPS", 9),
    TableColumn("at", "STARTED", 11),
    TableColumn("lasted", "LASTED", 7),
    TableColumn("by", "BY", 0),
)
"""Columns of the list of runs. No column shows the plan, because a run's id begins with the hash of its plan."""
PRINTED_RUNS = (
    RUNS[0], TableColumn("plan", "PLAN", 7), *RUNS[1:-1], TableColumn("predicted", "PREDICTED", 9), RUNS[-1],
)  # fmt: skip
"""Columns of the list of runs on the command line."""


def run_cells(run: RunRow, now: float) -> dict[str, Span]:
    """Return the cells of a run by column id."""
    hold = " and its hold" if any(step.do == StepKind.HOLD for step in run.steps) else ""
    predicted = _predicted(run)
    others = f", continues {run.continues[:10]}" if run.continues else ""
    others += f", continued by {run.continued_by[:10]}" if run.continued_by else ""
    return {
        "run": Span(run.id[:10]),
        "plan": Span(run.plan_hash[:4], Tone.DIM),
        "state": Span("held" if is_held(run) else run.state, RUN_TONES.get(run.state, Tone.PLAIN)),
        "steps": Span(f"{_finished(run)} of {len(run.steps)}"),
        "at": Span(moment(run.started_at, now), Tone.DIM),
        "lasted": Span(took((run.ended_at or now) - run.started_at), Tone.DIM),
        "predicted": Span(predicted and predicted + hold, Tone.DIM),
        "by": Span(run.actor + others, Tone.DIM),
    }


def run_row(run: RunRow, width: int, now: float) -> Line:
    """Format one run of the list as a line of `width` cells."""
    # The cell that separates columns is not needed after the last one.
    return fit(table_row(run_cells(run, now), RUNS, width + 1), width)


def first_open(run: RunRow) -> StepRow | None:
    """Return the step to select first: the running, failed, next or last one, in this order; None without steps."""
    for states in ((*OPEN_STEPS, HALTED), ("failed",), ("waits",)):
        for step in run.steps:
            if step.state in states:
                return step
    return run.steps[-1] if run.steps else None


def why_frozen(plan: Plan, run: RunRow, frozen: str | None) -> Sentence | None:
    """Explain why a freeze prevents a run from continuing; None if the run can continue.

    `frozen` describes the freeze; None without a freeze.
    """
    moves = frozen is not None and moves_pointers(plan, {step.n: StepState(step.state) for step in run.steps})
    return Sentence(f"{plan.environment} is {frozen}: the run would move a pointer") if moves else None


def why_author_may_not_override(plan: Plan, row: PlanRow, act: str, do: str, *, user: str) -> Sentence | None:
    """Explain why this user may not swap a run, or skip a step of kind `do`; None if this user may."""
    if row.author != user or not overrides_approved_plan(plan, act, StepKind(do) if do else None):
        return None
    return Sentence("its plan needed an approval, so its author cannot do this; another login must")


EFFECTS = {
    "pause": "The current step finishes; no further step starts until you resume.",
    "resume": "The next step starts.",
    "cancel": (
        "Steps that have not started are cancelled; completed ones stay. Versions that the run has started but not "
        "swapped in are stopped; tables are kept."
    ),
    "retry": "The failed steps and those that depend on them are tried again.",
    "skip": "The first failed step is skipped; steps that depend on it continue as if it were done.",
}
