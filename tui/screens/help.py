"""Help: keys and reasons of the screen below, or a page of `tui/help`."""

from collections.abc import Sequence
from pathlib import Path

from core.text.wording import counted
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.help_text import help_lines, topic_lines
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.console_state import ConsoleState
from tui.screens.text_screen import TextScreen

FOLDER = Path(__file__).parent.parent / "help"


def topics() -> tuple[str, ...]:
    """List the pages of help."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.md")))


class HelpScreen(TextScreen):
    """Help."""

    page_name = "help"

    def __init__(
        self, desk: ConsoleState, *, about: str = "home", now: ActionContext | None = None, topic: str = ""
    ) -> None:
        super().__init__(desk)
        self.about = about
        self.now = now or ActionContext()
        self.topic = topic

    def content(self, width: int) -> Sequence[Line]:
        if not self.topic:
            return help_lines(self.about, self.now, width)
        path = FOLDER / f"{self.topic}.md"
        if self.topic not in topics():
            return (line((f" no page {self.topic}: {', '.join(topics())}", Tone.CHANGING)),)
        return topic_lines(path.read_text(encoding="utf-8"), width)

    def targets(self) -> tuple[str, ...]:
        return ()

    def crumb(self) -> tuple[Sequence[str], str]:
        below = counted(self.pane.below, "more line") if self.pane.below else ""
        return ("help", self.topic or self.about), below
