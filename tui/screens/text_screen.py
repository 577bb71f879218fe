"""Screens that show scrolling text: rows of a table, answers of commands, and help."""

from collections.abc import Callable, Sequence

from textual.widget import Widget

from core.model.errors import HeadgateError
from core.text.wording import counted
from tui.agent_client.agent_commands import PeekedRows
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.interaction.help_text import help_lines, topic_lines
from tui.presentation.screen_content.statement_detail import row_lines
from tui.presentation.styling.styled_text import Line, Tone, line, plain, wrap_line
from tui.screens.console_state import ConsoleState
from tui.screens.statement_actions import StatementActionsScreen
from tui.services.help_topics import help_topic, help_topics
from tui.widgets.line_widgets import ScrollingLines


class TextScreen(StatementActionsScreen):
    """A screen that shows scrolling text."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.pane = ScrollingLines(state.painter, id="pane")

    def body(self) -> Sequence[Widget]:
        return (self.pane,)

    def content(self, width: int) -> Sequence[Line]:
        """Return all lines of this screen's scrolling text."""
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


ROWS = 100


class ReadOnceScreen(TextScreen):
    """A screen whose content is read when it opens and when it is reloaded, not in every interval of the poller.

    Each read is work for the pool, or computes a plan.
    """

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self._asked = False

    def read(self) -> object:
        """Return the content; called in the poller's thread."""
        raise NotImplementedError

    def fetch(self) -> object:
        if self._asked:
            return None
        self._asked = True
        return self.read()

    def do_refresh(self, key: str) -> None:
        self._asked = False
        super().do_refresh(key)


class RowsScreen(ReadOnceScreen):
    """The screen that shows some rows of a table, in no particular order."""

    screen_name = "rows"

    def __init__(self, state: ConsoleState, *, table: str) -> None:
        super().__init__(state)
        self.table_name = table
        self.rows: PeekedRows | None = None

    def read(self) -> object:
        return self.state.backend.agent.peek(self.table_name, version=None, limit=ROWS)

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, PeekedRows):
            self.rows = fetched

    def content(self, width: int) -> Sequence[Line]:
        if self.rows is None:
            return (line((" reading rows", Tone.DIM)),)
        return row_lines(self.rows.columns, self.rows.rows, width)

    def targets(self) -> tuple[str, ...]:
        return (self.table_name,)

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        if self.rows is None:
            return ("rows", self.table_name), ""
        below = self.pane.below
        # A row that is wider than the screen takes several lines, below the line with the names.
        more = f"{below} more" if len(self.pane.lines) == len(self.rows.rows) + 1 else counted(below, "more line")
        return ("rows", self.table_name), f"{self.rows.counted}, {more} below" if below else self.rows.counted

    def copy_line(self) -> str:
        return f"headgate peek {self.table_name} -n {ROWS} --env {self.state.identity.environment}"


class ReportScreen(ReadOnceScreen):
    """The screen that shows the answer of a command, which is computed when it opens and when it is reloaded."""

    screen_name = "report"

    def __init__(
        self, state: ConsoleState, *, path: tuple[str, ...], read: Callable[[], Sequence[str]], command: str
    ) -> None:
        super().__init__(state)
        self.path = path
        """The breadcrumb."""
        self._read = read
        self._command = command
        """The equivalent command line."""
        self.rows: Sequence[str] | None = None

    def read(self) -> object:
        try:
            return tuple(self._read())
        except HeadgateError as error:
            return (str(error.sentence),)

    def receive(self, fetched: object) -> None:
        if isinstance(fetched, tuple):
            self.rows = fetched

    def content(self, width: int) -> Sequence[Line]:
        if self.rows is None:
            return (line((f" computing {self._command}", Tone.DIM)),)
        return tuple(part for row in self.rows for part in wrap_line(line(f" {row}"), width))

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        return self.path, counted(self.pane.below, "more line") if self.pane.below else ""

    def copy_line(self) -> str:
        return self._command


class HelpScreen(TextScreen):
    """The screen that shows a help page, or the keys and actions of another screen."""

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
