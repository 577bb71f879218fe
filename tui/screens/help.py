"""Help: keys and reasons of the screen below, or a page by name."""

from collections.abc import Sequence

from core.text.wording import counted
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.help_text import help_lines, topic_lines
from tui.presentation.styling.styled_text import Line, Tone, line
from tui.screens.console_state import ConsoleState
from tui.screens.text_screen import TextScreen
from tui.services.help_topics import help_topic, help_topics


class HelpScreen(TextScreen):
    """Help."""

    screen_name = "help"

    def __init__(
        self, state: ConsoleState, *, about: str = "home", now: ActionContext | None = None, topic: str = ""
    ) -> None:
        super().__init__(state)
        self.about = about
        self.now = now or ActionContext()
        self.topic = topic

    def content(self, width: int) -> Sequence[Line]:
        if not self.topic:
            return help_lines(self.about, self.now, width)
        if self.topic not in help_topics():
            return (line((f" no page {self.topic}: {', '.join(help_topics())}", Tone.CHANGING)),)
        return topic_lines(help_topic(self.topic), width)

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        below = counted(self.pane.below, "more line") if self.pane.below else ""
        return ("help", self.topic or self.about), below
