"""The `:` line: which commands there are on a screen, and how one that is begun may go on."""

from collections.abc import Sequence
from dataclasses import dataclass

from tui.actions import on_screen
from tui.presentation.possible import Circumstances, reason_against


@dataclass(frozen=True, slots=True)
class Command:
    """A `:` command that is not the twin of a key."""

    name: str
    usage: str
    summary: str


COMMANDS: tuple[Command, ...] = (
    Command("home", ":home", "The tree"),
    Command("st", ":st [filter]", "All statements as a list"),
    Command("audit", ":audit", "Who did what, when, confirmed by what"),
    Command("events", ":events [TABLE…]", "What happened, newest first: to all tables, or to those that are named"),
    Command("runs", ":runs", "All runs"),
    Command("run", ":run [id]", "A run; without an id the open or the last one"),
    Command("plan", ":plan HASH", "A plan that was submitted"),
    Command("env", ":env NAME", "Another environment of the project; marks are dropped"),
    Command("quit", ":quit", "Leave the console"),
)


TAKES_TABLES = frozenset(
    {"show", "sql", "events", "lineage", "stop", "start", "restart", "deploy", "delete", "unstage"}
)


def names(screen: str, now: Circumstances | None = None) -> tuple[tuple[str, str], ...]:
    """List (name, summary) of the commands of a screen, sorted by name; with `now` those that are possible alone."""
    known = {command.name: command.summary for command in COMMANDS}
    for action in on_screen(screen):
        # What takes tables may be about others than those under the cursor.
        if action.typed and (now is None or action.typed in TAKES_TABLES or not reason_against(action, now)):
            known.setdefault(action.typed, action.summary)
    return tuple(sorted(known.items()))


def complete_command(
    text: str, screen: str, tables: Sequence[str], now: Circumstances | None = None
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
    prefix = f"{word} {head} " if head else f"{word} "
    return tuple(prefix + table for table in tables if table.startswith(last))[:40]
