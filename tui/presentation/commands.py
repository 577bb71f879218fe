"""The `:` line: which commands there are on a screen, and how one that is begun may go on."""

from collections.abc import Sequence
from dataclasses import dataclass

from tui.actions import Level, on_screen


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
    Command("runs", ":runs", "All runs"),
    Command("run", ":run [id]", "A run; without an id the open or the last one"),
    Command("plan", ":plan HASH", "A plan that was submitted"),
    Command("env", ":env NAME", "Another environment of the project; marks are dropped"),
    Command("quit", ":quit", "Leave the console"),
)


TAKES_TABLES = frozenset(
    {"show", "sql", "events", "lineage", "stop", "start", "restart", "deploy", "delete", "unstage"}
)


def names(screen: str) -> tuple[tuple[str, str], ...]:
    """List (name, summary) of the commands of a screen, sorted by name."""
    known = {command.name: command.summary for command in COMMANDS}
    for action in on_screen(screen):
        if action.typed:
            known.setdefault(action.typed, action.summary)
    return tuple(sorted(known.items()))


def complete_command(text: str, screen: str, tables: Sequence[str]) -> tuple[str, ...]:
    """Suggest complete lines: command names first, then table names."""
    word, space, rest = text.partition(" ")
    if not space:
        return tuple(name for name, _ in names(screen) if name.startswith(word))
    if word == "st":
        return ()
    if word not in TAKES_TABLES:
        return ()
    head, _, last = rest.rpartition(" ")
    prefix = f"{word} {head} " if head else f"{word} "
    return tuple(prefix + table for table in tables if table.startswith(last))[:40]


def acts() -> tuple[str, ...]:
    """List the commands that act, so that help can set them apart."""
    return tuple(
        sorted(
            {
                action.typed
                for name in ("home", "review", "run")
                for action in on_screen(name)
                if action.level is not Level.LOOK and action.typed
            }
        )
    )
