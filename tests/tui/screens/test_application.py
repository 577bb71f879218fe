"""Every screen opened by a key or a `:` command is in the table of screens, and accepts keys."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tui.presentation.interaction.keymap import ALL_SCREENS, keymap_of
from tui.screens.console_screen import ConsoleScreen
from tui.screens.environment_tab import SCREENS

SOURCES = Path(__file__).parents[3] / "tui" / "screens"


def opened() -> set[str]:
    """Return the screens that are opened by name; screens named like a `:` command are found in its `case`."""
    texts = [path.read_text() for path in SOURCES.glob("*.py")]
    named = {name for text in texts for name in re.findall(r'\b(?:open_screen|open_when_free)\(\s*"(\w+)"', text)}
    (cases,) = re.findall(r"case ([^:]+):\n\s+host\.open_screen\(word\)", (SOURCES / "colon_commands.py").read_text())
    return named | set(re.findall(r'"(\w+)"', cases))


def test_every_screen_that_is_opened_is_in_the_table_and_the_other_way_round() -> None:
    assert opened() == set(SCREENS)


@pytest.mark.parametrize("name", SCREENS)
def test_every_screen_of_the_table_exists_and_accepts_keys(name: str) -> None:
    module, kind = SCREENS[name]
    screen = getattr(import_module(f"tui.screens.{module}"), kind)
    assert issubclass(screen, ConsoleScreen)
    assert screen.screen_name in ALL_SCREENS
    assert {"q", ":"} <= set(keymap_of(screen.screen_name))
