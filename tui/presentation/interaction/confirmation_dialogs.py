"""Confirmation dialogs: an action runs only after the expected text is typed and confirmed with Enter.

A dialog keeps the ids of its targets, so that a change on the screen behind it cannot redirect the action.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.text.wording import counted
from tui.presentation.styling.styled_text import (
    Line,
    Span,
    Tone,
    fit,
    line,
    line_width,
    right,
    shorten,
    width_of,
    wrap_line,
)
from tui.presentation.styling.theme import Glyphs

TITLE_WIDTH = 72
"""Maximum width of a dialog's title, in cells. A longer title moves into the body."""
ARMS_AFTER_S = 0.4
"""Seconds after opening for which a dialog ignores keys, because they were meant for the screen behind it."""
TYPED_BESIDE = 12
"""Minimum width of the typed text next to the hint about Enter.

With less space, the hint is on a separate line.
"""
LOSSES = 8
"""Maximum number of a plan's losses that a dialog lists. All others are only counted."""
BURST_S = 0.03
"""Seconds after a character within which Enter is ignored, because the text was pasted or scripted."""


@dataclass(frozen=True, slots=True)
class ConfirmationDialog:
    """A dialog that confirms an action only after the user has typed `expected`."""

    title: str
    body: tuple[Line, ...]
    """Lines of any length. They are wrapped to the width of the box."""
    expected: str
    verb: str
    """The verb of the action, as `stop` in `type yes and Enter to stop`."""
    safe: str
    """Effect if the action is not confirmed, such as `keep running`."""
    escape: str = ""
    """Effect of the key esc; empty if it equals the effect of Enter alone."""
    place: str = ""
    """Project and environment, such as `pizzeria PROD protected`; shown after the title, in its own colour."""

    @property
    def heading(self) -> str:
        """Title and place."""
        return f"{self.title} {self.place}".rstrip()


@dataclass(frozen=True, slots=True)
class OpenDialog:
    """A confirmation dialog on screen, with the text typed so far. Its times are read from one monotonic clock."""

    question: ConfirmationDialog
    opened_at: float
    typed: str = ""
    typed_at: float = 0.0
    note: str = ""
    outcome: str = ""
    """`yes`, `no` (esc) or `safe` (Enter alone); empty until answered. Only `yes` changes anything."""


def answer_key(state: OpenDialog, key: str, character: str | None, now: float) -> OpenDialog:
    """Return the dialog after a key press.

    Only the expected text followed by Enter confirms the action.
    """
    if now - state.opened_at < ARMS_AFTER_S:
        return state
    if key in ("escape", "ctrl+c"):
        return replace(state, outcome="no")
    if key == "enter":
        return _answer_enter(state, now)
    if key in ("backspace", "ctrl+h"):
        return replace(state, typed=state.typed[:-1], note="")
    if key in ("ctrl+u", "ctrl+w"):
        return replace(state, typed="", note="")
    if character is not None and len(character) == 1 and character.isprintable():
        return replace(state, typed=(state.typed + character)[:60], typed_at=now, note="")
    return state


def _answer_enter(state: OpenDialog, now: float) -> OpenDialog:
    typed = " ".join(state.typed.split())
    if not typed:
        return replace(state, outcome="safe")
    if typed != state.question.expected:
        return replace(state, note=f"this is not `{state.question.expected}`: nothing was done")
    if now - state.typed_at < BURST_S:
        return replace(state, note="these characters arrived all at once: press Enter again")
    return replace(state, outcome="yes")


def answer_paste(state: OpenDialog) -> OpenDialog:
    """Reject pasted text with a note: it never confirms an action."""
    return replace(state, note="pasted text is not accepted: type it")


def dialog_lines(state: OpenDialog, width: int, glyphs: Glyphs, *, tone: Tone = Tone.TITLE) -> tuple[Line, ...]:
    """Render the dialog as a box `width` cells wide; `tone` is that of the environment's name."""
    top_left, top_right, bottom_left, bottom_right, flat, side = tuple(glyphs.box)
    inner = width - 4
    question = state.question
    title, place = f" {question.title} ", question.place
    if width_of(title + place) >= inner:
        title, place = f" {shorten(question.heading, inner - 2, glyphs.ellipsis)} ", ""
    rows: list[Line] = [
        line(
            (top_left + flat, Tone.DIM),
            (title, Tone.TITLE),
            (place, tone),
            (" " if place else "", Tone.TITLE),
            (flat * (width - 3 - width_of(title + place) - bool(place)) + top_right, Tone.DIM),
        ),
    ]
    body = [row for content in question.body for row in wrap_line(content, inner)]
    body.extend(_field(state, inner, glyphs))
    if state.note:
        body.extend(wrap_line(line((state.note, Tone.CHANGING)), inner))
    for content in body:
        rows.append((Span(side + " ", Tone.DIM), *fit(content, inner), Span(" " + side, Tone.DIM)))
    rows.append(line((bottom_left + flat * (width - 2) + bottom_right, Tone.DIM)))
    return tuple(rows)


def _field(state: OpenDialog, inner: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """Render the prompt, the typed text and the hint about Enter. Only the typed text may be cut, at its start."""
    question = state.question
    prompt = f"type {question.expected} and Enter to {question.verb}:  "
    safe = f"Enter alone: {question.safe}; esc: {question.escape}"
    if not question.escape:
        safe = f"Enter alone, esc: {question.safe}"
    room = inner - 1
    if width_of(prompt) + len(question.expected) + 1 <= inner:
        room -= width_of(prompt)
        before: tuple[Line, ...] = ()
        start = line(prompt)
    else:
        before, start = wrap_line(line(prompt.rstrip()), inner), ()
    field = (*start, *line((state.typed[-room:], Tone.FIELD), (glyphs.cursor, Tone.KEY)))
    space = inner - line_width(field) - width_of(safe)
    if space > 0 and room - width_of(safe) >= TYPED_BESIDE:
        return (*before, (*field, Span(" " * space), Span(safe, Tone.DIM)))
    return (*before, field, *wrap_line(line((right(safe, inner), Tone.DIM)), inner))


@dataclass(frozen=True, slots=True)
class ActionSummary:
    """The facts that a confirmation dialog shows about an action on statements."""

    verb: str
    targets: tuple[str, ...]
    hidden: frozenset[str]
    """Targets that the filter hides."""
    downstream: tuple[str, ...]
    """Downstream statements that are not targets themselves."""
    environment: str
    """Project and environment, such as `pizzeria PROD protected`."""
    command: str
    data: str
    """The age of the data, such as `data 2 s old`."""
    expected: str
    besides: tuple[str, ...] = ()
    """Additional effects: other versions that will be stopped, runs that will wait."""


_EFFECTS = {
    "stop": ("will get no new rows", "keep running"),
    "start": ("will get rows again", "leave it stopped"),
    "restart": ("get no rows until it is back", "do not restart it"),
}


def dialog_for_statements(facts: ActionSummary) -> ConfirmationDialog:
    """Return the dialog that confirms stopping, starting or restarting statements."""
    effect, safe = _EFFECTS[facts.verb]
    one = len(facts.targets) == 1
    what = facts.targets[0] if one else counted(len(facts.targets), "statement")
    title = f"{facts.verb.upper()} {what} in"
    body: list[Line] = []
    if width_of(f"{title} {facts.environment}") > TITLE_WIDTH:
        title = f"{facts.verb.upper()} in"
        body.append(line((what, Tone.ACCENT)))
    if not one:
        body.append(_names(facts.targets, facts.hidden))
    elif facts.targets[0] in facts.hidden:
        body.append(line(("hidden by your filter", Tone.CHANGING)))
    if facts.downstream:
        names = ", ".join(facts.downstream[:4]) + (" …" if len(facts.downstream) > 4 else "")
        body.append(line(f"downstream: {counted(len(facts.downstream), 'statement')} {effect}: {names}"))
    else:
        words = "no statement reads it" if one else "no other statement reads them"
        body.append(line((f"downstream: {words}", Tone.DIM)))
    body += [line((words, Tone.CHANGING)) for words in facts.besides]
    body.append(line((f"same as: {facts.command}", Tone.DIM)))
    body.append(line((f"{facts.data}, checked again when sent", Tone.DIM)))
    return ConfirmationDialog(title, tuple(body), facts.expected, facts.verb, safe, place=facts.environment)


def _names(targets: Sequence[str], hidden: frozenset[str]) -> Line:
    shown = [f"{name} (hidden by your filter)" if name in hidden else name for name in targets[:24]]
    more = f"  and {len(targets) - 24} more" if len(targets) > 24 else ""
    return line(("  ".join(shown) + more, Tone.ACCENT))


def dialog_for_stage(verb: str, tables: Sequence[str], environment: str) -> ConfirmationDialog:
    """Return the dialog that confirms staging many tables at once. It lists the names of all tables."""
    body = (line(", ".join(tables)), line(("nothing is executed: the stage is your own list", Tone.DIM)))
    title = f"STAGE {verb} of {counted(len(tables), 'table')} in"
    return ConfirmationDialog(title, body, "yes", "stage", "stage nothing", place=environment)


def dialog_for_plan(
    *, hash4: str, summary: str, losses: Sequence[str], environment: str, command: str, expected: str
) -> ConfirmationDialog:
    """Return the dialog that confirms the execution of a plan.

    It shows the plan's summary and what would be lost.
    """
    lost = [line(("LOST", Tone.BAD)), *_losses(losses, "  ")] if losses else [line(("nothing is lost", Tone.GOOD))]
    body = (line(summary), *lost, line((f"same as: {command}", Tone.DIM)))
    return ConfirmationDialog(
        f"EXECUTE plan {hash4} in", body, expected, "execute", "change nothing", place=environment
    )


def _losses(losses: Sequence[str], lead: str) -> list[Line]:
    more = len(losses) - LOSSES
    counts = [line((f"  and {more} more: press esc and read the plan", Tone.BAD))] if more > 0 else []
    return [*(line((f"{lead}{loss}", Tone.BAD)) for loss in losses[:LOSSES]), *counts]


def dialog_for_approval(
    *, hash4: str, author: str, summary: str, losses: Sequence[str], environment: str, command: str, expected: str
) -> ConfirmationDialog:
    """Return the dialog that confirms the approval of another user's plan."""
    by = line(f"by {author}, who can then execute it")
    body = (line(summary), by, *_losses(losses, "LOSES "), line((f"same as: {command}", Tone.DIM)))
    return ConfirmationDialog(
        f"APPROVE plan {hash4} in", body, expected, "approve", "change nothing", place=environment
    )


def dialog_for_run(
    *,
    verb: str,
    run: str,
    effect: str,
    environment: str,
    command: str,
    expected: str,
    safe: str = "let it continue",
) -> ConfirmationDialog:
    """Return the dialog that confirms an action on a run: pause, resume, cancel, retry, swap, or skip a step."""
    body = (line(effect), line((f"same as: {command}", Tone.DIM)))
    return ConfirmationDialog(f"{verb.upper()} run {run[:10]} in", body, expected, verb, safe, place=environment)
