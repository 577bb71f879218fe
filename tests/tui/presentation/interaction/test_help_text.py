"""The help of a screen explains which confirmation each action requires, and the manual covers every continuation."""

import pytest

from core.plan.confirmation import LARGEST_SET, confirmation_for_act, confirmation_for_plan, confirmation_for_swap
from core.run.release import ReleaseState
from tests.support.domain_builders import deployed, plan, project
from tui.command_line.command_table import RELEASE_SUBCOMMANDS
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.help_text import help_lines
from tui.presentation.interaction.keymap import ALL_SCREENS, ConfirmationLevel
from tui.presentation.styling.styled_text import plain
from tui.services.help_topics import help_topic


@pytest.mark.parametrize("screen", sorted(ALL_SCREENS))
def test_no_help_speaks_in_codes(screen: str) -> None:
    told = "\n".join(plain(row) for row in help_lines(screen, ActionContext(), 100))
    assert not [level for level in ConfirmationLevel if f"[{level}]" in told]


def test_help_shows_which_actions_ask() -> None:
    told = "\n".join(plain(row) for row in help_lines("home", ActionContext(), 100))
    assert "Stage a deploy of the files as they are (no question)" in told
    assert "Stop now; table and checkpoint are kept (asks first)" in told


def test_the_page_on_the_console_gives_the_same_confirmations_as_the_agent() -> None:
    told = " ".join(help_topic("console").split())
    known = project(src="", a="src", b="a")
    world = {name: deployed(table) for name, table in known.tables.items()}
    rebuilt = plan(known, world, "b", rebuild=True)
    assert confirmation_for_plan(rebuilt).text == f"dev {rebuilt.hash[:4]}"
    assert "if it rebuilds, rolls back, retires, deletes or loses something" in told
    assert confirmation_for_swap("7f3a-1", environment="dev").text == "dev 7f3a"
    assert "swap a held run the environment and the first four characters of the run's id, `dev 7f3a`" in told
    assert {confirmation_for_act(act, ("7f3a-1",), False).text for act in ("cancel", "skip")} == {"7f3a"}
    assert "cancel a run, skip the first four characters of the run's id" in told
    assert confirmation_for_act("approve", ("7f3a" * 16,), False).text == "7f3a"
    assert "approve a plan the first four characters of its hash" in told
    assert f"for more than {LARGEST_SET} the environment and four characters" in told
    assert confirmation_for_act("restart", ("7f3a-1",), True).text == "7f3a-1"
    assert "pause, resume, retry `yes`; in a protected environment the run's id" in told


def test_the_help_of_a_screen_gives_the_confirmations_of_a_rebuild_and_a_swap() -> None:
    told = " ".join("\n".join(plain(row) for row in help_lines("run", ActionContext(), 100)).split())
    assert (
        "for a plan that rebuilds, deletes or takes back, and for a swap, the environment and four characters" in told
    )


@pytest.mark.parametrize(
    "words",
    [
        "checks:", "validate: false", "hold: true", "soak_min", "gate_ends_h", "headgate release diff", "retire",
        "close", "OUT the rows per second that its batches process",
    ],
)  # fmt: skip
def test_the_page_on_releases_has_checks_policy_and_commands(words: str) -> None:
    assert words in " ".join(help_topic("releases").split())


def test_the_page_on_releases_names_every_command_and_state_of_a_release() -> None:
    told = help_topic("releases")
    assert [sub.name for sub in RELEASE_SUBCOMMANDS if sub.name != "list" and f"release {sub.name}" not in told] == []
    assert [state for state in ReleaseState if str(state) not in told] == []
    for policy in ("validate:", "hold:"):
        assert policy in help_topic("policy")


@pytest.mark.parametrize(
    "words", [":ack", "headgate runs ack", "superseded", ":undo", "headgate plan undo", "headgate history"]
)
def test_the_page_on_the_console_names_every_way_on(words: str) -> None:
    assert words in help_topic("console")
