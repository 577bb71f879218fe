"""The table of actions: every action has a key and a command, and no key has two meanings on one screen."""

import pytest

from tui.command_line.parser import parse_line
from tui.presentation.interaction.action_availability import ActionContext, why_not_possible
from tui.presentation.interaction.input_line import complete_command, names
from tui.presentation.interaction.keymap import (
    ACTIONS,
    ALL_SCREENS,
    ConfirmationLevel,
    actions_on_screen,
    command_of_action,
    find_action,
    keymap_of,
)
from tui.screens.environment_tab import SCREENS

ACTS = [action for action in ACTIONS if action.level is not ConfirmationLevel.LOOK]


@pytest.mark.parametrize("screen", sorted(ALL_SCREENS))
def test_no_key_has_two_meanings_on_one_screen(screen: str) -> None:
    keys = [key for action in actions_on_screen(screen) for key in action.keys]
    assert sorted(keys) == sorted(set(keys))


@pytest.mark.parametrize("action", ACTS, ids=lambda action: action.id)
def test_every_act_has_a_key_a_command_and_a_typed_form(action) -> None:
    assert action.keys
    assert action.typed
    # Staging exists only in the console, so no command line stages anything.
    assert action.command or action.level is ConfirmationLevel.C0


@pytest.mark.parametrize("action", [one for one in ACTIONS if one.command], ids=lambda one: f"{one.id} {one.command}")
def test_every_command_is_one_that_the_command_line_understands(action) -> None:
    line = command_of_action(action, tables=("till",), environment="dev", plan="7f3a" * 16, run="7f3a-01c2f")
    words = line.split()
    assert words[0] == "headgate"
    parse_line(words[1:])


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_actions_are_upper_case_and_views_are_not(action) -> None:
    letters = [key for key in action.keys if len(key) == 1 and key.isalpha()]
    if action.level is ConfirmationLevel.LOOK:
        assert all(key.islower() or key in "GNY" for key in letters)
    else:
        assert all(key.isupper() for key in letters)


def test_brackets_and_the_terminal_s_own_control_keys_are_not_bound() -> None:
    keys = {key for action in ACTIONS for key in action.keys}
    assert not keys & {"[", "]", "ctrl+s", "ctrl+b", "ctrl+q"}


@pytest.mark.parametrize("screen", sorted(SCREENS | {"home": ("home", "HomeScreen")}))
def test_every_action_of_a_screen_has_a_handler(screen: str) -> None:
    from importlib import import_module

    module, kind = (SCREENS | {"home": ("home", "HomeScreen")})[screen]
    page = getattr(import_module(f"tui.screens.{module}"), kind)
    missing = [action.id for action in actions_on_screen(screen) if not hasattr(page, f"do_{action.id}")]
    assert missing == []


@pytest.mark.parametrize("screen", sorted(ALL_SCREENS))
def test_every_screen_has_a_way_out_and_help(screen: str) -> None:
    keys = keymap_of(screen)
    assert "q" in keys
    assert screen == "help" or keys["?"].id == "help"


def test_stale_data_never_stops_a_stop_or_a_cancel() -> None:
    gone = ActionContext(targets=("till",), stale="old", no_agent="no agent", run_state="running", run_failed=True)
    assert {why_not_possible(action, gone) for action in ACTS} == {"no agent"}
    stale = ActionContext(targets=("till",), stale="old", run_state="running", run_failed=True, has_plan=True)
    allowed = {action.id for action in ACTS if not why_not_possible(action, stale)}
    assert allowed == {"stop", "pause", "cancel", "retry", "skip"}


def test_a_read_only_console_still_stops_and_cancels() -> None:
    looking = ActionContext(targets=("till",), read_only="read-only", run_state="running", has_plan=True, staged=1)
    assert {action.id for action in ACTS if not why_not_possible(action, looking)} == {"stop", "cancel"}


def test_every_action_is_refused_with_the_reason_on_a_ghost_row() -> None:
    for action in actions_on_screen("home"):
        if action.level is not ConfirmationLevel.LOOK:
            assert "was deleted" in why_not_possible(
                action, ActionContext(targets=("till",), vanished="it was deleted")
            )


def test_commands_complete_to_names_and_tables() -> None:
    assert complete_command("au", "home", ()) == ("audit",)
    assert complete_command("stop ti", "home", ("till", "payments")) == ("stop till",)
    assert {"stop", "audit", "runs", "quit", "review", "st"} <= {name for name, _ in names("home")} | {"review"}


def test_a_command_line_names_everything_and_the_environment() -> None:
    action = find_action("stop", "home")
    assert command_of_action(action, tables=("a", "b"), environment="prod") == "headgate stop a b --env prod"


def test_a_selector_completes_behind_what_it_takes_from_upstream() -> None:
    assert complete_command("stop 2+oven", "home", ("oven_load", "till")) == ("stop 2+oven_load",)
    assert complete_command("stop till +ov", "home", ("oven_load", "till")) == ("stop till +oven_load",)
