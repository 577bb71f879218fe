"""All actions and keys of the console, from which key bindings, footer and help are generated.

A lower-case key never changes anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

LIST_SCREENS = frozenset({"home", "statements"})
RECORD_SCREENS = frozenset({"runs", "audit", "log", "events"})
ALL_SCREENS = LIST_SCREENS | RECORD_SCREENS | {
    "detail", "changes", "review", "run", "rows", "report", "help", "pools",
}  # fmt: skip
STATEMENT_SCREENS = LIST_SCREENS | {"detail"}
ROW_SCREENS = frozenset({"changes", "review", "run", "events", "audit", "log", "rows"})
"""Screens whose rows may be about one statement, several or none."""
VIEW_SCREENS = STATEMENT_SCREENS | ROW_SCREENS


class ConfirmationLevel(StrEnum):
    """How an action is confirmed: LOOK changes nothing, C0 asks nothing, and C1 and C3 require a typed text."""

    LOOK = "look"
    C0 = "C0"
    C1 = "C1"
    C3 = "C3"


class ActionRequirement(StrEnum):
    """A condition, such as a selected table, without which an action is not possible."""

    TARGET = "target"
    """At least one statement is marked or under the cursor."""
    ONE = "one"
    """Exactly one statement is under the cursor, even if other statements are marked; needed to show a statement."""
    IDLE = "idle"
    """At least one target is not running."""
    UNREAD = "unread"
    """No remaining reader depends on the targets."""
    MINE = "mine"
    """At least one target is staged by this user."""
    OURS = "ours"
    """No target is external."""
    LIVE = "live"
    """The data is live, not stale."""
    UNLOCKED = "unlocked"
    """The environment is not read-only for this user."""
    STAGED = "staged"
    PLAN = "plan"
    APPROVAL = "approval"
    """The plan awaits an approval that this user may give."""
    RUN = "run"
    """The run is not over."""
    GOING = "going"
    """The run is running or paused."""
    HELD = "held"
    """The run is held before its swap."""
    SERVED = "served"
    """The run replaced a version and can be rolled back."""
    BROKEN = "broken"
    """The run has a failed step, is not over, and no freeze prevents it from continuing."""
    SKIPPABLE = "skippable"
    """This user may skip the failed step."""
    SEVERAL = "several"
    """Several environments are open."""


@dataclass(frozen=True, slots=True)
class ConsoleAction:
    """An action of the console, with the keys that trigger it and the screens on which it exists."""

    id: str
    keys: tuple[str, ...]
    """The character of each key, or Textual's name for a key that has no character."""
    screens: frozenset[str]
    label: str
    """One or two words for the footer."""
    summary: str
    """One line for the help."""
    level: ConfirmationLevel = ConfirmationLevel.LOOK
    command: str = ""
    """The equivalent CLI line, with placeholders such as `{tables}`, `{hash}` and `{run}`; empty for staging."""
    typed: str = ""
    """Name of the `:` command that performs the action."""
    needs: frozenset[ActionRequirement] = frozenset()
    rank: int = 50
    """Order in the footer, smallest first; 99 is never shown there."""


_ONE = frozenset({ActionRequirement.ONE})
_OURS = frozenset({ActionRequirement.TARGET, ActionRequirement.OURS})
_OURS_AND_LIVE = _OURS | {ActionRequirement.LIVE, ActionRequirement.UNLOCKED}

ACTIONS: tuple[ConsoleAction, ...] = (
    # Anywhere.
    ConsoleAction("command", (":", "ctrl+p"), ALL_SCREENS, "command", "Type a command; tab completes", rank=95),
    ConsoleAction("help", ("?",), ALL_SCREENS - {"help"}, "keys", "Keys that are valid here, and why others are not",
                  typed="help", rank=99),
    ConsoleAction("back", ("escape", "q", "?", "h", "left"), frozenset({"help"}), "back", "Close the help", rank=5),
    ConsoleAction("back", ("escape", "q", "h", "left"), ALL_SCREENS - {"home", "help", "detail"}, "back",
                  "Go back; whatever is running continues", rank=5),
    ConsoleAction("back", ("escape", "q"), frozenset({"detail"}), "back", "Go back", rank=5),
    ConsoleAction("clear", ("escape",), frozenset({"home"}), "clear", "Clear the filter, then the marks", rank=99),
    ConsoleAction("quit", ("q",), frozenset({"home"}), "quit", "Leave the console; agent, statements and runs continue",
                  typed="q", rank=90),
    ConsoleAction("refresh", ("r",), ALL_SCREENS, "refresh", "Reload everything now", rank=99),
    ConsoleAction("freeze", (".",), ALL_SCREENS, "freeze", "Freeze or unfreeze the screen", rank=99),
    ConsoleAction("redraw", ("ctrl+l",), ALL_SCREENS, "redraw", "Redraw the screen", rank=99),
    ConsoleAction("log", ("m",), ALL_SCREENS - {"log"}, "log", "Actions of all sessions as command lines",
                  command="headgate audit", typed="log", rank=80),
    ConsoleAction("changes", ("p",), ALL_SCREENS - {"changes"}, "changes",
                  "Files compared with what is deployed, and what is staged", command="headgate plan --all --offline",
                  typed="changes", rank=40),
    ConsoleAction("next_environment", ("n",), ALL_SCREENS, "env",
                  "Next open environment; each keeps its screens, marks and filters",
                  needs=frozenset({ActionRequirement.SEVERAL}), rank=9),
    ConsoleAction("previous_environment", ("N",), ALL_SCREENS, "previous", "Previous open environment",
                  needs=frozenset({ActionRequirement.SEVERAL}), rank=99),
    ConsoleAction("suspend", ("ctrl+z",), ALL_SCREENS, "suspend", "Back to the shell; `fg` returns here", rank=99),
    ConsoleAction("interrupt", ("ctrl+c",), ALL_SCREENS, "", "Shows how to leave; never affects a run", rank=99),
    # Lists and tree.
    ConsoleAction("down", ("j", "down"), ALL_SCREENS, "down", "One down", rank=99),
    ConsoleAction("up", ("k", "up"), ALL_SCREENS, "up", "One up", rank=99),
    ConsoleAction("top", ("g", "home"), ALL_SCREENS, "top", "First", rank=99),
    ConsoleAction("bottom", ("G", "end"), ALL_SCREENS, "bottom", "Last", rank=99),
    ConsoleAction("page_down", ("pagedown",), ALL_SCREENS, "page", "A page down", rank=99),
    ConsoleAction("page_up", ("pageup",), ALL_SCREENS, "page", "A page up", rank=99),
    ConsoleAction("filter", ("/",), LIST_SCREENS | RECORD_SCREENS | {"changes"}, "filter",
                  "Filter: text, regex, !not, lag>1k, state=failed, -f fuzzy", command="headgate ls", rank=45),
    ConsoleAction("open", ("enter", "l", "right"), frozenset({"home"}), "open", "Open the branch, or the statement",
                  rank=10),
    ConsoleAction("close", ("h", "left"), frozenset({"home"}), "close", "Close the branch, or go to it", rank=99),
    ConsoleAction("open", ("enter", "l", "right"), frozenset({"statements"}), "open", "Open the statement", rank=10),
    ConsoleAction("detail", ("d",), LIST_SCREENS, "detail", "The statement: metrics, SQL, lineage, errors, events",
                  command="headgate show {tables}", typed="show", needs=_ONE, rank=12),
    ConsoleAction("detail", ("d",), frozenset({"detail"}), "overview", "Overview", rank=99),
    ConsoleAction("sql", ("s",), STATEMENT_SCREENS, "sql", "Its SQL, and the diff against what is deployed",
                  command="headgate show {tables} --sql", typed="sql", needs=_ONE, rank=14),
    ConsoleAction("events", ("v",), STATEMENT_SCREENS, "events", "Its events, or those of a whole branch",
                  command="headgate events {tables}", typed="events", rank=16),
    ConsoleAction("detail", ("d",), ROW_SCREENS, "detail", "The statement of the row",
                  command="headgate show {tables}", typed="show", needs=_ONE, rank=54),
    ConsoleAction("sql", ("s",), ROW_SCREENS - {"review", "changes"}, "sql", "Its SQL",
                  command="headgate show {tables} --sql", typed="sql", needs=_ONE, rank=55),
    ConsoleAction("events", ("v",), ROW_SCREENS, "events", "Its events", command="headgate events {tables}",
                  typed="events", needs=_ONE, rank=56),
    ConsoleAction("lineage", ("i",), VIEW_SCREENS, "lineage", "Its inputs and its readers",
                  command="headgate show {tables}", typed="lineage", needs=_ONE, rank=60),
    ConsoleAction("history", ("c",), VIEW_SCREENS, "history", "What changed before: deploys, acts, failures",
                  command="headgate history {tables}", typed="history", needs=_ONE, rank=58),
    ConsoleAction("rows", ("b",), VIEW_SCREENS - {"rows"}, "rows", "Some rows of its table",
                  command="headgate peek {tables}", typed="peek", needs=_ONE | {ActionRequirement.LIVE}, rank=59),
    ConsoleAction("edit", ("e",), VIEW_SCREENS, "edit", "Its SQL in $VISUAL or $EDITOR, then the diff", typed="edit",
                  needs=_ONE, rank=18),
    ConsoleAction("fold", ("z",), frozenset({"home"}), "fold",
                  "Fold quiet branches, open all, or open as many as fit; your own choices stay", rank=63),
    ConsoleAction("mark", ("space",), LIST_SCREENS | {"changes"}, "mark", "Mark, and move down", rank=20),
    ConsoleAction("mark_all", ("*",), LIST_SCREENS | {"changes"}, "mark all", "Mark all rows shown", rank=99),
    ConsoleAction("unmark", ("u",), LIST_SCREENS | {"changes"}, "unmark", "Clear all marks", rank=99),
    ConsoleAction("flip", ("t",), frozenset({"home"}), "flip", "Tree by product, or by lineage", typed="tree", rank=62),
    ConsoleAction("faults", ("f",), LIST_SCREENS, "faults", "Show only what is not healthy",
                  command="headgate ls --state failed,degraded", rank=64),
    ConsoleAction("sort", ("o",), frozenset({"statements"}), "sort", "Sort by the next column", rank=30),
    ConsoleAction("wide", ("w",), LIST_SCREENS, "wide", "Show other metrics, with less room for names", rank=66),
    ConsoleAction("copy", ("y",), ALL_SCREENS - {"help"}, "copy", "Copy the name, or the text on screen", rank=82),
    ConsoleAction("copy_command", ("Y",), ALL_SCREENS - {"help"}, "copy CLI", "Copy the equivalent command line",
                  rank=83),
    ConsoleAction("column", ("h", "l", "left", "right"), frozenset({"detail"}), "column",
                  "Another column's lineage; on other panes h is back", rank=99),
    ConsoleAction("next_tab", ("tab",), frozenset({"detail", "home"}), "next", "Next pane", rank=8),
    ConsoleAction("previous_tab", ("shift+tab",), frozenset({"detail", "home"}), "previous", "Previous pane", rank=99),
    ConsoleAction("tab", tuple("123456789"), frozenset({"detail"}), "tab", "Pane by number", rank=99),
    ConsoleAction("enter_row", ("enter",), frozenset({"changes"}), "review", "Plan what is staged, and review it",
                  command="headgate plan deploy {tables}", typed="review",
                  needs=frozenset({ActionRequirement.STAGED, ActionRequirement.LIVE}), rank=10),
    ConsoleAction("enter_row", ("enter",), frozenset({"review"}), "why", "Why it is done, and what is lost", rank=10),
    ConsoleAction("enter_row", ("enter",), frozenset({"run"}), "follow", "Follow the run with the cursor, or not",
                  rank=16),
    ConsoleAction("enter_row", ("enter",), frozenset({"events"}), "open", "Open the statement at its events", rank=10),
    ConsoleAction("enter_row", ("enter",), frozenset({"runs"}), "open", "Open the run", command="headgate runs {run}",
                  rank=10),
    ConsoleAction("sql", ("s",), frozenset({"review", "changes"}), "full diff",
                  "The full diff of the row's files", rank=14),
    # Acts.
    ConsoleAction("stop", ("T",), STATEMENT_SCREENS, "stop", "Stop now; table and checkpoint are kept",
                  ConfirmationLevel.C1, "headgate stop {tables}", "stop", _OURS, rank=26),
    ConsoleAction("start", ("S",), STATEMENT_SCREENS, "start", "Start the deployed revision on its checkpoint",
                  ConfirmationLevel.C1, "headgate start {tables}", "start", _OURS_AND_LIVE | {ActionRequirement.IDLE},
                  rank=28),
    ConsoleAction("restart", ("R",), STATEMENT_SCREENS, "restart", "Stop, then start on the same checkpoint",
                  ConfirmationLevel.C1, "headgate restart {tables}", "restart", _OURS_AND_LIVE, rank=29),
    ConsoleAction("stage_deploy", ("D",), STATEMENT_SCREENS | {"changes"}, "deploy",
                  "Stage a deploy of the files as they are", ConfirmationLevel.C0, "", "deploy",
                  frozenset({ActionRequirement.TARGET, ActionRequirement.LIVE, ActionRequirement.UNLOCKED}), rank=24),
    ConsoleAction("stage_hold", ("B",), STATEMENT_SCREENS | {"changes"}, "blue/green",
                  "Stage a deploy that is held before its swap", ConfirmationLevel.C0, "", "hold",
                  _OURS_AND_LIVE, rank=25),
    ConsoleAction("stage_delete", ("X",), STATEMENT_SCREENS | {"changes"}, "delete",
                  "Stage a delete; it is reviewed like a deploy", ConfirmationLevel.C0, "", "delete",
                  _OURS_AND_LIVE | {ActionRequirement.UNREAD}, rank=70),
    ConsoleAction("unstage", ("U",), STATEMENT_SCREENS | {"changes"}, "unstage",
                  "Unstage what you staged for it", ConfirmationLevel.C0, "", "unstage",
                  frozenset({ActionRequirement.TARGET, ActionRequirement.LIVE, ActionRequirement.MINE}), rank=72),
    ConsoleAction("execute", ("E",), frozenset({"review"}), "execute", "Execute exactly this plan, once",
                  ConfirmationLevel.C3, "headgate apply {hash}", "apply",
                  frozenset({ActionRequirement.PLAN, ActionRequirement.LIVE, ActionRequirement.UNLOCKED}), rank=12),
    ConsoleAction("approve", ("A",), frozenset({"review"}), "approve", "Approve another login's plan",
                  ConfirmationLevel.C3, "headgate approve {hash}", "approve",
                  frozenset({ActionRequirement.APPROVAL, ActionRequirement.LIVE}), rank=13),
    ConsoleAction("swap", ("W",), frozenset({"run"}), "swap", "Let the held run swap", ConfirmationLevel.C3,
                  "headgate release swap {run}", "swap",
                  frozenset({ActionRequirement.HELD, ActionRequirement.LIVE, ActionRequirement.UNLOCKED}), rank=11),
    ConsoleAction("rollback", ("O",), frozenset({"run"}), "roll back", "Plan a return to the old versions",
                  ConfirmationLevel.C0, "headgate plan rollback {run}", "rollback",
                  frozenset({ActionRequirement.SERVED, ActionRequirement.LIVE}), rank=13),
    ConsoleAction("pause", ("P",), frozenset({"run"}), "pause", "Pause after this step or resume", ConfirmationLevel.C1,
                  "headgate runs pause {run}", "pause", frozenset({ActionRequirement.GOING}), rank=12),
    ConsoleAction("cancel", ("C",), frozenset({"run"}), "cancel", "Cancel steps not yet started; completed ones stay",
                  ConfirmationLevel.C1, "headgate runs cancel {run}", "cancel", frozenset({ActionRequirement.RUN}),
                  rank=14),
    ConsoleAction("retry", (":retry",), frozenset({"run"}), "retry", "Retry the failed steps", ConfirmationLevel.C1,
                  "headgate runs retry {run}", "retry",
                  frozenset({ActionRequirement.BROKEN, ActionRequirement.UNLOCKED}), rank=99),
    ConsoleAction("skip", (":skip",), frozenset({"run"}), "skip", "Skip the first failed step",
                  ConfirmationLevel.C1, "headgate runs skip {run} --step 1", "skip",
                  frozenset({ActionRequirement.BROKEN, ActionRequirement.SKIPPABLE, ActionRequirement.UNLOCKED}),
                  rank=99),
)  # fmt: skip


KNOWN_KEYS = frozenset(key for action in ACTIONS for key in action.keys)
KEY_NAMES = {
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "ctrl+c": "ctrl+c",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


def actions_on_screen(screen: str) -> tuple[ConsoleAction, ...]:
    """Return the actions of a screen, in the order of `ACTIONS`."""
    return tuple(action for action in ACTIONS if screen in action.screens)


def keymap_of(screen: str) -> Mapping[str, ConsoleAction]:
    """Map each key of a screen to its action. Tests ensure that no key has two meanings."""
    return {key: action for action in actions_on_screen(screen) for key in action.keys}


def find_action(action_id: str, screen: str) -> ConsoleAction | None:
    """Return the action with this id on a screen; None if the screen has no such action."""
    return next((action for action in actions_on_screen(screen) if action.id == action_id), None)


def key_names(action: ConsoleAction) -> str:
    """Return the keys of an action as displayed, such as `j ↓` or `1-9`."""
    if action.id == "tab":
        return "1-9"
    return " ".join(KEY_NAMES.get(key, key) for key in action.keys)


def command_of_action(
    action: ConsoleAction,
    *,
    tables: Iterable[str] = (),
    environment: str = "",
    plan: str = "",
    run: str = "",
) -> str:
    """Return the complete CLI command that is equivalent to an action; empty if there is none."""
    line = action.command.format(tables=" ".join(tables), hash=plan[:12], run=run)
    return f"{line.strip()} --env {environment}" if line and environment else line.strip()
