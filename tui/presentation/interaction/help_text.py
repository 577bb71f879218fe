"""Builds help pages: for a screen, for a file of `tui/help`, and for the kinds of change."""

import textwrap
from collections.abc import Iterator

from core.changes.kinds import CHANGE_KINDS, KIND_EXAMPLES, ChangeKind, ChangeKindDefinition, example_lines
from core.model.actions import EXECUTABLE, strategy_lines, typed_strategy
from tui.presentation.interaction.action_availability import ActionContext, action_label, why_not_possible
from tui.presentation.interaction.input_line import names
from tui.presentation.interaction.keymap import ConfirmationLevel, actions_on_screen, key_names
from tui.presentation.styling.styled_text import EMPTY, Line, Tone, left, line, wrap

ASKS = {ConfirmationLevel.C0: "no question", ConfirmationLevel.C1: "asks first", ConfirmationLevel.C3: "asks first"}
"""The help's description of each confirmation level."""
GROUPS = (("ACTIONS: upper case, or typed", True), ("VIEWS: they never change anything", False))


def help_lines(screen: str, now: ActionContext, width: int) -> tuple[Line, ...]:
    """Return the help page of a screen: its keys, its `:` commands, and how to confirm an action."""
    lines: list[Line] = [line((f" KEYS on {screen}", Tone.TITLE)), EMPTY]
    for title, acts in GROUPS:
        rows = [action for action in actions_on_screen(screen) if (action.level is not ConfirmationLevel.LOOK) == acts]
        if not rows:
            continue
        lines.append(line((f" {title}", Tone.DIM)))
        for action in rows:
            reason = why_not_possible(action, now)
            level = f" ({ASKS[action.level]})" if acts else ""
            lines.append(
                line(
                    (f"   {left(key_names(action), 14)}", Tone.GHOST if reason else Tone.KEY),
                    (left(action_label(action, now), 12), Tone.GHOST if reason else Tone.PLAIN),
                    (action.summary + level, Tone.DIM),
                )
            )
            if reason:
                lines.extend(wrap(f"not now: {reason}", width - 2, Tone.CHANGING, " " * 29))
            if acts:
                words = action.command or f":{action.typed} {{tables}}"
                words = words.replace("{tables}", "TABLE…").replace("{hash}", "PLAN").replace("{run}", "RUN")
                lines.append(line((" " * 29 + f"same as: {words}", Tone.GHOST)))
        lines.append(EMPTY)
    lines.append(line((" COMMANDS: type : first; tab completes", Tone.DIM)))
    lines.extend(line((f"   :{left(name, 13)}", Tone.KEY), (summary, Tone.DIM)) for name, summary in names(screen))
    lines.append(EMPTY)
    lines.append(line((" CONFIRMING", Tone.DIM)))
    lines.extend(
        wrap(
            "A dialog asks for a typed text and Enter, and shows which: yes for one statement; for a plan that "
            "rebuilds, deletes or takes back, and for a swap, the environment and four characters, as in dev 7f3a; "
            "to cancel or skip, four characters of the run. :help console has the whole rule. Enter alone and esc are "
            "always safe. It accepts keys after 0.4 s, and never pasted text.",
            width - 3,
            Tone.PLAIN,
            "   ",
        )
    )
    return tuple(lines)


def topic_lines(text: str, width: int) -> tuple[Line, ...]:
    """Format a page of `tui/help`: headings, paragraphs and indented examples."""
    lines: list[Line] = []
    for paragraph in text.split("\n\n"):
        rows = paragraph.strip("\n").splitlines()
        if not rows:
            continue
        if rows[0].startswith("#"):
            lines.append(line((f" {rows[0].lstrip('# ')}", Tone.TITLE)))
            rows = rows[1:]
        if rows and rows[0].startswith(("    ", "|", "- ", "```")):
            lines.extend(
                line((f"   {row.removeprefix('    ')}", Tone.PLAIN))
                for row in rows
                if not row.startswith(("```", "|--"))
            )
        elif rows:
            lines.extend(wrap(" ".join(rows), width - 2, Tone.PLAIN, " "))
        lines.append(EMPTY)
    return tuple(lines)


WIDTH = 80
_INDENT, _NAMES = 4, 12
_INTRODUCTION = """\
# Kinds of change

Headgate compares what is declared with what is deployed, and gives each difference a kind, which decides what a plan
does by default. The CHANGE column of a plan and `headgate diff OLD NEW` name it; plan documents hold its code (`row`)
and its name (`change`). The kinds stand here from mild to severe: of several in one edit the most severe counts, and
what cannot be told counts as `{worst}`.

Instead of the default, `--strategy T=WORD` takes another way where the plan offers it, and the plan says what it costs:

{strategies}

What is not executable yet ("not yet" below) can be planned with `--offline`; an agent refuses it."""


def changes_topic() -> str:
    """Return the help page on kinds of change: an introduction, then one block per kind, least severe first."""
    blocks = (_block(facts) for facts in sorted(CHANGE_KINDS, key=lambda facts: facts.severity))
    strategies = textwrap.indent("\n".join(strategy_lines(WIDTH - _INDENT)), " " * _INDENT)
    introduction = _INTRODUCTION.format(worst=ChangeKind.STATE_CHANGED.definition.label, strategies=strategies)
    return "\n\n".join((introduction, *blocks)) + "\n"


def _block(facts: ChangeKindDefinition) -> str:
    rows = [f"{facts.label} ({facts.code})"]
    for name, words in _parts(facts):
        first, *others = textwrap.wrap(words, WIDTH - _INDENT - _NAMES - 2)
        rows += [f"  {name:<{_NAMES}}{first}", *(" " * (_NAMES + 2) + other for other in others)]
    for place, row in enumerate(example_lines(facts.kind) if facts.kind in KIND_EXAMPLES else ()):
        rows.append(f"  {'' if place else 'example':<{_NAMES}}{row}")
    return textwrap.indent("\n".join(rows), " " * _INDENT)


def _parts(facts: ChangeKindDefinition) -> Iterator[tuple[str, str]]:
    yield "by default", str(facts.action)
    yield "because", facts.why
    yield "loses", str(facts.loss_words)
    yield "instead", _instead(facts) or "nothing"
    if facts.note is not None:
        yield "note", str(facts.note.of())


def _instead(facts: ChangeKindDefinition) -> str:
    able, planned = (
        ", ".join(typed_strategy(each) for each in facts.instead if (each in EXECUTABLE) is now)
        for now in (True, False)
    )
    return "; ".join(filter(None, (able, f"not yet: {planned}" if planned else "")))
