"""Help of a screen: what an act asks is said in words, and the manual names every way on."""

import pytest

from core.plan.confirmation import LARGEST_SET
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.help_text import help_lines
from tui.presentation.interaction.keymap import ALL_SCREENS, ConfirmationLevel
from tui.presentation.styling.styled_text import plain
from tui.services.help_topics import help_topic


@pytest.mark.parametrize("screen", sorted(ALL_SCREENS))
def test_no_help_speaks_in_codes(screen: str) -> None:
    told = "\n".join(plain(row) for row in help_lines(screen, ActionContext(), 100))
    assert not [level for level in ConfirmationLevel if f"[{level}]" in told]


def test_help_says_which_act_asks_and_which_does_not() -> None:
    told = "\n".join(plain(row) for row in help_lines("home", ActionContext(), 100))
    assert "Stage a deploy of the files as they are (no question)" in told
    assert "Stop now; table and checkpoint are kept (asks first)" in told


def test_the_page_on_the_console_tells_which_plans_ask_for_their_hash() -> None:
    told = " ".join(help_topic("console").split())
    assert f"the environment and four characters for more than {LARGEST_SET}." in told
    assert "Executing a plan asks the same by the statements in it" in told
    assert f"has more than {LARGEST_SET} statements asks for the environment and the first four characters" in told


@pytest.mark.parametrize(
    "words", [":ack", "headgate runs ack", "superseded", ":undo", "headgate plan undo", "headgate history"]
)
def test_the_page_on_the_console_names_every_way_on(words: str) -> None:
    assert words in help_topic("console")
