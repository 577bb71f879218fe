"""Screens that are one text that scrolls."""

from collections.abc import Sequence

from textual.widget import Widget

from tui.presentation.styling.styled_text import Line, plain
from tui.screens.console_state import ConsoleState
from tui.screens.statement_actions import StatementActionsScreen
from tui.widgets.line_widgets import ScrollingLines


class TextScreen(StatementActionsScreen):
    """A screen whose body is a pane of lines."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.pane = ScrollingLines(state.painter, id="pane")

    def body(self) -> Sequence[Widget]:
        return (self.pane,)

    def content(self, width: int) -> Sequence[Line]:
        """Return all lines of the body."""
        return ()

    def refresh_body(self) -> None:
        width = self.pane.size.width
        if width:
            self.pane.show(self.content(width))

    def copy_text(self) -> str:
        return "\n".join(plain(one).rstrip() for one in self.pane.lines)

    def do_down(self, key: str) -> None:
        self.pane.scroll_by(1)

    def do_up(self, key: str) -> None:
        self.pane.scroll_by(-1)

    def do_page_down(self, key: str) -> None:
        self.pane.scroll_by(max(self.pane.size.height - 2, 1))

    def do_page_up(self, key: str) -> None:
        self.pane.scroll_by(-max(self.pane.size.height - 2, 1))

    def do_top(self, key: str) -> None:
        self.pane.scroll_by(-len(self.pane.lines))

    def do_bottom(self, key: str) -> None:
        self.pane.scroll_by(len(self.pane.lines))
