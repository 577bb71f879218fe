"""The `:` line: which commands there are on a screen, and how one that is begun may go on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tui.presentation.interaction.action_availability import ActionContext, why_not_possible
from tui.presentation.interaction.keymap import actions_on_screen


@dataclass(frozen=True, slots=True)
class ColonCommand:
    """A `:` command that is not the twin of a key, at least not on every screen."""

    name: str
    usage: str
    summary: str


COMMANDS: tuple[ColonCommand, ...] = (
    ColonCommand("home", ":home", "The tree"),
    ColonCommand("st", ":st [filter]", "All statements as a list"),
    ColonCommand("audit", ":audit", "Audit log: who did what, when, and what they typed to confirm"),
    ColonCommand("events", ":events [TABLE…]", "Events, newest first: of all tables, or of those named"),
    ColonCommand("runs", ":runs", "All runs"),
    ColonCommand("run", ":run [id]", "A run; by default the open or the last one"),
    ColonCommand("ack", ":ack [id]", "Acknowledge failed runs, so that the head names them no more"),
    ColonCommand("retry", ":retry [id]", "Retry the failed steps of a run; also :skip, :pause, :cancel [id]"),
    ColonCommand("skip", ":skip [id]", "Skip the first failed step of a run"),
    ColonCommand("pause", ":pause [id]", "Pause a run after this step, or resume it"),
    ColonCommand("cancel", ":cancel [id]", "Cancel what has not started of a run; completed steps stay"),
    ColonCommand("plan", ":plan HASH", "A submitted plan"),
    ColonCommand("review", ":review [PLAN]", "Review a submitted plan; without a name, plan what you staged"),
    ColonCommand("logs", ":logs", "Which command prints the log of the agent, and of the pool"),
    ColonCommand("undo", ":undo [PLAN|RUN]", "Plan the texts from before an executed plan, and review them"),
    ColonCommand("rollback", ":rollback [TABLE|RUN]", "Plan what served before a release, and review it"),
    ColonCommand("retire", ":retire [TABLE|RUN]", "Plan every replaced version into the trash, and review it"),
    ColonCommand("optimize", ":optimize [TABLE…]", "Plan small files of Delta tables into large ones, and review it"),
    ColonCommand(
        "vacuum",
        ":vacuum [TABLE…] [--retain H]",
        "Plan away files of versions of Delta tables older than each retains, or --retain hours, and review it",
    ),
    ColonCommand("release", ":release [RUN]", "A release; by default the held or the newest open one"),
    ColonCommand("close", ":close RUN READER", "Close the ticket of a reader that has moved"),
    ColonCommand("undelete", ":undelete TABLE…", "Plan deleted tables out of the trash, and review it"),
    ColonCommand("env", ":env NAME", "Switch to another environment of the project; clears marks"),
    ColonCommand("quit", ":quit", "Leave the console"),
)


TAKES_TABLES = frozenset(
    {
        "show",
        "sql",
        "events",
        "lineage",
        "history",
        "peek",
        "edit",
        "stop",
        "start",
        "restart",
        "deploy",
        "hold",
        "delete",
        "unstage",
        "rollback",
        "undelete",
        "retire",
        "optimize",
        "vacuum",
    }
)


_UPSTREAM = re.compile(r"[0-9]*\+")
"""How a selector begins that takes what is upstream as well."""


def names(screen: str, now: ActionContext | None = None) -> tuple[tuple[str, str], ...]:
    """List (name, summary) of the commands of a screen, sorted by name; with `now` those that are possible alone."""
    twins = {action.typed for action in actions_on_screen(screen)}
    known = {command.name: command.summary for command in COMMANDS if command.name not in twins}
    for action in actions_on_screen(screen):
        # What takes tables may be about others than those under the cursor.
        if action.typed and (now is None or action.typed in TAKES_TABLES or not why_not_possible(action, now)):
            known.setdefault(action.typed, action.summary)
    return tuple(sorted(known.items()))


def complete_command(
    text: str, screen: str, tables: Sequence[str], now: ActionContext | None = None
) -> tuple[str, ...]:
    """Suggest complete lines: names of possible commands first, then table names."""
    word, space, rest = text.partition(" ")
    if not space:
        return tuple(name for name, _ in names(screen, now) if name.startswith(word))
    if word == "st":
        return ()
    if word not in TAKES_TABLES:
        return ()
    head, _, last = rest.rpartition(" ")
    up = _UPSTREAM.match(last)
    begun = up[0] if up else ""
    prefix = (f"{word} {head} " if head else f"{word} ") + begun
    return tuple(prefix + table for table in tables if table.startswith(last.removeprefix(begun)))[:40]
