"""Runs: one execution of a plan with its steps, and the list of them."""

from collections.abc import Iterable, Mapping, Sequence

from core.model.actions import StepKind
from core.plan.descriptions import act_words
from core.plan.model import Plan, Step
from core.run.model import StepState, step_word
from core.run.records import RunRow, StepRow
from core.run.release import time_left
from core.run.state_machine import moves_pointers, overrules
from core.text.sentence import Sentence
from core.text.wording import counted, duration_range, first_sentence
from state.row_types import PlanRow
from tui.presentation.screen_content.changes import rule
from tui.presentation.screen_content.releases import gate_words, time_left_words
from tui.presentation.screen_content.statement_rows import RowContext, TableColumn, table_row
from tui.presentation.styling.styled_text import Line, Span, Tone, fit, fold, left, line, right, shorten, wrap
from tui.presentation.styling.theme import Glyphs, bar
from tui.presentation.styling.value_formatting import long_duration, moment, took

FINISHED = ("done", "kept", "skipped")
STEP_TONES = {
    "running": Tone.CHANGING,
    "gate": Tone.CHANGING,
    "failed": Tone.BAD,
    "blocked": Tone.BAD,
    "done": Tone.GOOD,
}
RUN_TONES = {"running": Tone.CHANGING, "paused": Tone.CHANGING, "failed": Tone.BAD, "done": Tone.GOOD}


def heading(
    run: RunRow, environment: str, now: float, width: int, glyphs: Glyphs, *, planned: Sequence[Step] = ()
) -> tuple[Line, ...]:
    """Write the heading above the steps: the run and its progress. A run's id begins with its plan's hash."""
    done = sum(1 for step in run.steps if step.state in FINISHED)
    lasted = long_duration((run.ended_at or now) - run.started_at)
    first = line(
        (f" RUN {run.id[:10]}", Tone.TITLE),
        f"   {environment}   ",
        ("held" if is_held(run) else run.state, RUN_TONES.get(run.state, Tone.PLAIN)),
        (
            f"   {done} of {counted(len(run.steps), 'step')}   {lasted}{_left(run, planned, now)}   by {run.actor}",
            Tone.DIM,
        ),
    )
    words = "continues without this screen (q leaves)" if run.state in ("running", "paused") else ending(run)
    room = max(width - len(words) - 4, 10)
    second = line(
        (f" {bar(done / (len(run.steps) or 1), room, glyphs)}  ", RUN_TONES.get(run.state, Tone.DIM)), (words, Tone.DIM)
    )
    return (*fold(first, width), *fold(second, width))


def _left(run: RunRow, planned: Sequence[Step], now: float) -> str:
    waits = run.state != "running" or is_held(run)
    return "" if waits else time_left_words(time_left(planned, run.steps, now))


def is_held(run: RunRow) -> bool:
    """Return whether a run is held before its swap."""
    return run.state == "running" and any(step.do == StepKind.HOLD and step.state == "gate" for step in run.steps)


def ending(run: RunRow) -> str:
    """Describe how a run ended and what can be done."""
    match run.state:
        case "failed" if run.continued_by:
            return f"failed: continued by run {run.continued_by[:10]}"
        case "failed":
            return "failed: fix the cause, then :retry, or :skip"
        case "cancelled":
            return "cancelled: completed steps stay"
        case _:
            return "all steps are done"


def columns(width: int, cells: int = 0) -> Line:
    """Write the heading of the steps; `cells` as in `step_row`."""
    return line(
        (
            " " * 2
            + right("#", 3)
            + " "
            + left("STEP", cells or _step_width(width))
            + left("STATE", 11)
            + right("TOOK", 9)
            + "  NOTE",
            Tone.DIM,
        )
    )


def _step_width(width: int) -> int:
    return 31 if width < 96 else 40 if width < 120 else 52


def step_cells(steps: Iterable[StepRow], pointers: Mapping[int, Sequence[str]], width: int) -> int:
    """Return the width of the step column, bounded so that notes have room."""
    longest = max((len(_what(step, pointers.get(step.n, ()))) for step in steps), default=0)
    return max(min(longest + 2, _step_width(width)), len("STEP") + 2)


def _what(step: StepRow, names: Sequence[str]) -> str:
    on = " ".join(names) if names else step.table + (f" v{step.version}" if step.version else "")
    return f"{act_words(step.do):9} {on}"


def step_row(
    step: StepRow, needs: Sequence[int], names: Sequence[str], width: int, look: RowContext, *, cells: int = 0
) -> Line:
    """Write one step in `width` cells, `cells` of them for what it does (0: as many as it may have at most).

    `names` are the pointers that a swap moves.
    """
    cells = cells or _step_width(width)
    now, glyphs = look.now, look.glyphs
    end = step.ended_at or (now if step.state in ("running", "gate", "failed") and step.started_at else None)
    lasted = took(end - step.started_at) if end is not None and step.started_at is not None else ""
    if step.state in ("running", "gate") and step.started_at is not None:
        lasted = long_duration(int(now - step.started_at))
    if (
        step.state == "waits"
        and step.do != StepKind.HOLD
        and step.predicted_low_s is not None
        and step.predicted_high_s is not None
    ):
        lasted = duration_range(step.predicted_low_s, step.predicted_high_s).replace("up to ", "< ")
    # A pointer is named in the step already: where it points to is what the note adds.
    note = step.note.removeprefix(f"{step.table} →").lstrip() if step.do == "swap" else _told(step, now)
    note = note or (f"needs {', '.join(map(str, needs))}" if step.state == "waits" and needs else "")
    room = max(width - cells - 28, 8)
    if step.state == StepState.FAILED:
        note = first_sentence(note)
    # The class of an error before its message: what has no room stands below the steps.
    note = shorten(note if len(note) <= room else note.partition(": ")[0], room, glyphs.ellipsis)
    tone = STEP_TONES.get(step.state, Tone.DIM)
    return fit(
        (
            Span("  "),
            Span(right(str(step.n), 3) + " ", Tone.DIM),
            Span(left(_what(step, names), cells - 1) + " ", Tone.DIM if step.state == "waits" else Tone.PLAIN),
            Span(left(f"{glyphs.steps.get(step.state, '?')} {step_word(step.state)}", 11), tone),
            Span(right(lasted, 9), Tone.DIM),
            Span("  " + note, Tone.BAD if step.state in ("failed", "blocked") else Tone.DIM),
        ),
        width,
    )


def _told(step: StepRow, now: float) -> str:
    """Return a step's note; a gate that has opened includes the time."""
    opened = step.ended_at if step.do == StepKind.CATCH_UP and step.state == StepState.DONE else None
    return gate_words(step.note, opened, now)


def step_detail(step: StepRow, why: str, width: int, look: RowContext) -> tuple[Line, ...]:
    """Write the details of a step: reason, note, evidence."""
    lines: list[Line] = [rule(f"step {step.n}", width, look.glyphs)]
    if why:
        lines.extend(wrap(why, width - 4, Tone.DIM, "   "))
    if step.note:
        tone = Tone.BAD if step.state in ("failed", "blocked") else Tone.PLAIN
        lines.extend(wrap(_told(step, look.now), width - 4, tone, "   "))
    if step.do != StepKind.HOLD and step.predicted_low_s is not None and step.predicted_high_s is not None:
        lines.append(line(("   predicted ", Tone.DIM), duration_range(step.predicted_low_s, step.predicted_high_s)))
    if step.tries > 1:
        lines.append(line((f"   tried {step.tries} times", Tone.CHANGING)))
    for name, value in _evidence(step.evidence):
        lines.append(line((f"   {left(name, 24)}", Tone.DIM), str(value)))
    return tuple(lines)


def _evidence(values: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(
        (name.replace("_", " "), value) for name, value in values.items() if value not in ("", None, (), [], {})
    )[:12]


RUNS = (
    TableColumn("run", "RUN", 11),
    TableColumn("plan", "PLAN", 7),
    TableColumn("state", "STATE", 11),
    TableColumn("steps", "STEPS", 9),
    TableColumn("at", "STARTED", 15),
    TableColumn("lasted", "LASTED", 9),
    TableColumn("by", "BY", 0),
)
"""Columns of the list of runs."""


def run_row(run: RunRow, width: int, now: float) -> Line:
    """Write one run of the list."""
    done = sum(1 for step in run.steps if step.state in FINISHED)
    cells = {
        "run": Span(run.id[:10]),
        "plan": Span(run.plan_hash[:4], Tone.DIM),
        "state": Span("held" if is_held(run) else run.state, RUN_TONES.get(run.state, Tone.PLAIN)),
        "steps": Span(f"{done} of {len(run.steps)}"),
        "at": Span(moment(run.started_at, now), Tone.DIM),
        "lasted": Span(long_duration((run.ended_at or now) - run.started_at), Tone.DIM),
        "by": Span(run.actor, Tone.DIM),
    }
    return fit(table_row(cells, RUNS, width), width)


def first_open(run: RunRow) -> StepRow | None:
    """Return the step that the screen should look at: running, else failed, else the next."""
    for states in (("gate", "running"), ("failed",), ("waits",)):
        for step in run.steps:
            if step.state in states:
                return step
    return run.steps[-1] if run.steps else None


def why_frozen(plan: Plan, run: RunRow, frozen: str | None) -> Sentence | None:
    """Explain why no word lets a run go on until the freeze ends, at `frozen` in words; None where one may."""
    moves = frozen is not None and moves_pointers(plan, {step.n: StepState(step.state) for step in run.steps})
    return Sentence(f"{plan.environment} is {frozen}: the run would move a pointer") if moves else None


def why_not_overruled(plan: Plan, row: PlanRow, act: str, do: str, *, user: str) -> Sentence | None:
    """Explain why this user cannot give the word to swap, or skip a step that is to `do` it; None where they can."""
    if row.author != user or not overrules(plan, act, StepKind(do) if do else None):
        return None
    return Sentence("it needed an approval, and its author cannot overrule it; another login must")


EFFECTS = {
    "pause": "The current step finishes; no further step starts until you resume.",
    "resume": "The next step starts.",
    "cancel": (
        "Steps that have not started are cancelled, completed ones stay. Versions that the run has started and not "
        "swapped in are stopped; tables are kept."
    ),
    "retry": "The failed steps and those that depend on them are tried again.",
    "skip": "The first failed step is skipped; steps that depend on it continue as if it were done.",
}
