"""Leaving a console that may stop everything behind it: leaving it running is the answer of Enter alone."""

from collections.abc import Callable

from tui.presentation.dialogs import Question
from tui.presentation.text import Tone, line
from tui.screens.page import Page

STOP_ALL = 7001
"""What the application returns when everything is to be stopped."""


def ask_to_leave(page: Page, leave: Callable[[int], None]) -> None:
    """Ask whether everything goes on without the console; Enter alone leaves it running, esc stays here."""
    question = Question(
        title="LEAVE: everything runs on without this console",
        body=(
            line("statements, agent and the feeds of the demo go on; `headgate` opens the console again"),
            line(("to stop them later: headgate down", Tone.DIM)),
        ),
        expected="stop",
        verb="stop everything",
        safe="leave it running",
    )
    page.ask(question, lambda _: leave(STOP_ALL), lambda: leave(0))
