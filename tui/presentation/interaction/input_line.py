"""Editing of the line typed after `/` or `:`, the `:` commands of a screen, and their completion.

Pasted text is inserted literally; a line break in it never acts as Enter.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tui.presentation.interaction.action_availability import ActionContext, why_not_possible
from tui.presentation.interaction.keymap import ACTIONS, ActionRequirement, actions_on_screen
from tui.presentation.styling.styled_text import Line, Tone, line, line_width, width_of
from tui.presentation.styling.theme import Glyphs


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line being typed. `done` is "accept" after Enter, "leave" after esc, and empty until then."""

    sign: str
    text: str = ""
    place: int = 0
    done: str = ""
    history: tuple[str, ...] = ()
    """Lines entered before, oldest first."""
    back: int = 0
    """Position of the displayed line in the history, counted from 1 for the newest; 0 for the line being typed."""


def type_key(entry: InputLine, key: str, character: str | None) -> InputLine:
    """Apply one key to the line being typed."""
    text, place = entry.text, entry.place
    match key:
        case "escape" | "ctrl+c":
            return replace(entry, done="leave")
        case "enter":
            return replace(entry, done="accept")
        case "backspace" | "ctrl+h":
            if not text:
                return replace(entry, done="leave")
            return replace(entry, text=text[: max(place - 1, 0)] + text[place:], place=max(place - 1, 0))
        case "delete":
            return replace(entry, text=text[:place] + text[place + 1 :])
        case "left":
            return replace(entry, place=max(place - 1, 0))
        case "right":
            return replace(entry, place=min(place + 1, len(text)))
        case "home" | "ctrl+a":
            return replace(entry, place=0)
        case "end" | "ctrl+e":
            return replace(entry, place=len(text))
        case "ctrl+u":
            return replace(entry, text=text[place:], place=0)
        case "ctrl+w":
            kept = text[:place].rstrip().rpartition(" ")[0]
            kept = f"{kept} " if kept else ""
            return replace(entry, text=kept + text[place:], place=len(kept))
        case "up" | "down":
            return _recall(entry, 1 if key == "up" else -1)
    if character is not None and len(character) == 1 and character.isprintable():
        return insert(entry, character)
    return entry


def insert(entry: InputLine, text: str) -> InputLine:
    """Insert the printable characters of a string's first line at the cursor. A line has at most 400 characters."""
    first = next(iter(text.splitlines()), "")
    printable = "".join(character for character in first if character.isprintable())
    joined = entry.text[: entry.place] + printable + entry.text[entry.place :]
    return replace(entry, text=joined[:400], place=min(entry.place + len(printable), 400))


def _recall(entry: InputLine, step: int) -> InputLine:
    back = min(max(entry.back + step, 0), len(entry.history))
    text = entry.history[-back] if back else ""
    return replace(entry, text=text, place=len(text), back=back)


def complete(entry: InputLine, choices: tuple[str, ...]) -> InputLine:
    """Complete the line to the longest common prefix of `choices` or, if that adds nothing, to the first choice."""
    if not choices:
        return entry
    common = choices[0]
    for choice in choices[1:]:
        while not choice.startswith(common):
            common = common[:-1]
    text = common if len(common) > len(entry.text) else choices[0]
    return replace(entry, text=text, place=len(text))


def input_line_cells(entry: InputLine, glyphs: Glyphs, width: int, prompt: Line = ()) -> Line:
    """Render the line being typed, after a `prompt` that names the environment if several are open.

    If it is too long, its start is cut off, so that the cursor is always visible.
    """
    before, after = entry.text[: entry.place], entry.text[entry.place :]
    room = max(width - 4 - line_width(prompt), 1)
    while width_of(before) > room:
        before = before[1:]
    return line(" ", *prompt, (entry.sign, Tone.KEY), before, (glyphs.cursor, Tone.KEY), after)


@dataclass(frozen=True, slots=True)
class ColonCommand:
    """A command that can be typed after `:` but has no key on some or all screens."""

    name: str
    usage: str
    summary: str


COMMANDS: tuple[ColonCommand, ...] = (
    ColonCommand("home", ":home", "The tree"),
    ColonCommand("st", ":st [filter]", "All statements as a list"),
    ColonCommand("audit", ":audit", "Audit log: who did what, when, and what they typed to confirm"),
    ColonCommand("events", ":events [TABLE…]", "Events, newest first: of all tables, or of those named"),
    ColonCommand("runs", ":runs", "All runs"),
    ColonCommand("pools", ":pools", "The pools, and what each of them really does"),
    ColonCommand("run", ":run [id]", "A run; by default the open or the last one"),
    ColonCommand("ack", ":ack [id]", "Acknowledge failed runs, which removes them from the first line"),
    ColonCommand("retry", ":retry [id]", "Retry the failed steps of a run; also :skip, :pause, :cancel [id]"),
    ColonCommand("skip", ":skip [id]", "Skip the first failed step of a run"),
    ColonCommand("pause", ":pause [id]", "Pause a run after this step, or resume it"),
    ColonCommand("cancel", ":cancel [id]", "Cancel the steps of a run that have not started; completed steps stay"),
    ColonCommand("plan", ":plan TABLE…|HASH", "Plan a deploy of tables and review it, or show a submitted plan"),
    ColonCommand("review", ":review [PLAN]", "Review a submitted plan; without a name, plan what you staged"),
    ColonCommand("logs", ":logs", "Show the commands that print the logs of agent and pool"),
    ColonCommand("undo", ":undo [PLAN|RUN]", "Plan the texts from before an executed plan, and review them"),
    ColonCommand(
        "rollback", ":rollback [TABLE|RUN]", "Plan the return to the versions before a release, and review it"
    ),
    ColonCommand("retire", ":retire [TABLE|RUN]", "Plan to move replaced versions to the trash, and review it"),
    ColonCommand("optimize", ":optimize [TABLE…]", "Plan to compact small files of Delta tables, and review it"),
    ColonCommand(
        "vacuum",
        ":vacuum [TABLE…] [--retain H]",
        "Plan to delete old files of Delta tables beyond their retention, or --retain hours, and review it",
    ),
    ColonCommand("release", ":release [RUN]", "A release; by default the held or the newest open one"),
    ColonCommand("close", ":close RUN READER", "Close the ticket of a reader that has migrated"),
    ColonCommand("undelete", ":undelete TABLE…", "Plan to restore deleted tables from the trash, and review it"),
    ColonCommand("unlock", ":unlock 30m TICKET", "Unlock a protected environment for you, for at most 8h"),
    ColonCommand("lock", ":lock", "End your unlock"),
    ColonCommand("env", ":env [NAME]", "Open an environment, or show it; `:env --close [NAME]` closes it here"),
    ColonCommand("diff", ":diff ENV [TABLE…]", "Compare an environment with this one: revisions, lag, promotion"),
    ColonCommand("promote", ":promote TABLE…|--all --from ENV", "Plan the revisions that run in ENV, and review it"),
    ColonCommand("drain", ":drain POOL [--to POOL]", "Plan to move every statement of a pool to others, and review it"),
    ColonCommand("schema", ":schema [TABLE]", "Columns of a table in each version, their readers, what is compatible"),
    ColonCommand("quit", ":quit", "Leave the console"),
)


TAKES_TABLES = frozenset(
    (
        *(command.name for command in COMMANDS if "TABLE" in command.usage),
        *(action.typed for action in ACTIONS if action.needs & {ActionRequirement.TARGET, ActionRequirement.ONE}),
    )
)
"""Names of the `:` commands that accept table names as arguments."""

_UPSTREAM = re.compile(r"[0-9]*\+")
"""The prefix of a selector that includes upstream tables."""


def names(screen: str, now: ActionContext | None = None) -> tuple[tuple[str, str], ...]:
    """Return a screen's `:` commands as (name, summary), sorted by name.

    Unless `now` is None, actions that are impossible now are omitted, unless they accept table names.
    """
    twins = {action.typed for action in actions_on_screen(screen)}
    known = {command.name: command.summary for command in COMMANDS if command.name not in twins}
    for action in actions_on_screen(screen):
        if action.typed and (now is None or action.typed in TAKES_TABLES or not why_not_possible(action, now)):
            known.setdefault(action.typed, action.summary)
    return tuple(sorted(known.items()))


def _names_environment(word: str, head: str) -> bool:
    """True if the next argument of a command, after `head`, is the name of an environment."""
    return word == "env" or (word == "diff" and not head) or (word == "promote" and head.endswith("--from"))


def complete_command(
    text: str,
    screen: str,
    tables: Sequence[str],
    now: ActionContext | None = None,
    environments: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return at most 40 completions of a `:` line.

    The first word is completed to the name of a command, all others to names of tables or environments.
    """
    word, space, rest = text.partition(" ")
    if not space:
        return tuple(name for name, _ in names(screen, now) if name.startswith(word))
    head, _, last = rest.rpartition(" ")
    if _names_environment(word, head):
        return tuple(" ".join(filter(None, (word, head, name))) for name in environments if name.startswith(last))
    if word not in TAKES_TABLES:
        return ()
    up = _UPSTREAM.match(last)
    begun = up[0] if up else ""
    prefix = (f"{word} {head} " if head else f"{word} ") + begun
    return tuple(prefix + table for table in tables if table.startswith(last.removeprefix(begun)))[:40]
