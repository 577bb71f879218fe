"""The screen of one statement, in tabs.

It reads the statement's details in addition to the view.
"""

from collections.abc import Sequence
from dataclasses import replace

from core.model.names import TableName
from core.text.sentence import Sentence
from core.text.wording import counted
from state.ledger_snapshot import StatementDetails
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.reports.table_history import HistoryEntry
from tui.presentation.screen_content.lineage_tab import HEADING
from tui.presentation.screen_content.statement_detail import (
    TABS,
    DeclaredDetails,
    tab_lines,
    tabs_line,
)
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Line, Tone, line, plain
from tui.presentation.view.ledger_view import StatementView
from tui.presentation.view.statement_tree import LAYER_NAMES
from tui.screens.console_state import ConsoleState
from tui.screens.text_screen import TextScreen
from tui.widgets.line_widgets import STAYS_S


class DetailScreen(TextScreen):
    """The screen of one statement, with its tabs."""

    screen_name = "detail"

    def __init__(self, state: ConsoleState, *, table: str, tab: str = "overview") -> None:
        super().__init__(state)
        self.table_name = table
        self.tab = tab
        self.column = ""
        self.facts = StatementDetails(TableName(table))
        self.declared = DeclaredDetails()
        self.log_said: Sequence[str] = ()
        """Log lines about the statement, oldest first."""
        self.history: Sequence[HistoryEntry] | None = None
        self.statement: StatementView | None = state.view.statement(table)
        self.gone_at: float | None = None

    def fetch(self) -> object:
        asked = self.state.backend
        column = self.column if self.tab == "lineage" else None
        declared = asked.declared(self.table_name, column) if self.tab in ("sql", "lineage") else None
        log = asked.log_lines(self.table_name) if self.tab == "errors" else None
        history = asked.history(self.table_name) if self.tab == "history" else None
        return asked.detail(self.table_name), declared, history, log

    def receive(self, fetched: object) -> None:
        assert isinstance(fetched, tuple)
        self.facts, declared, history, log = fetched
        self.log_said = self.log_said if log is None else log
        self.declared = declared or self.declared
        self.history = self.history if history is None else history

    def refresh_body(self) -> None:
        found = self.state.view.statement(self.table_name)
        if found is not None:
            self.statement, self.gone_at = found, None
        elif self.gone_at is None:
            self.gone_at = self.state.monotonic()
        super().refresh_body()

    def content(self, width: int) -> Sequence[Line]:
        statement = self.statement
        if statement is None:
            words = f" {self.table_name} is not deployed in {self.state.identity.environment}"
            return (line((words, Tone.CHANGING)), line((" D stages a deploy of its files; q goes back", Tone.DIM)))
        look = RowContext(self.state.glyphs, self.state.clock(), stale=self.state.freshness.stale)
        gone = (
            (line((" it has been deleted: this is the last known state", Tone.CHANGING)),)
            if self.gone_at is not None
            else ()
        )
        head = tabs_line(self.tab, width)
        return (head, *gone, *self._tab(statement, look, width))

    def _tab(self, statement: StatementView, look: RowContext, width: int) -> Sequence[Line]:
        return tab_lines(
            self.tab,
            statement,
            self.facts,
            self.state.view,
            declared=self.declared,
            history=self.history,
            log=self.log_said,
            look=look,
            width=width,
        )

    def targets(self) -> tuple[str, ...]:
        return (self.table_name,)

    def action_context(self) -> ActionContext:
        just_deleted = self.gone_at is not None and self.state.monotonic() - self.gone_at < STAYS_S
        return replace(
            super().action_context(), vanished=Sentence("this statement was deleted") if just_deleted else None
        )

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        if self.statement is None:
            return (self.table_name,), ""
        below = counted(self.pane.below, "more line") if self.pane.below else ""
        version = f" v{self.statement.version}" if self.statement.version else ""
        line = self.statement.line
        return (line.product, LAYER_NAMES.get(line.layer, ""), self.table_name + version), below

    def choose(self, tab: str) -> None:
        """Switch to a tab, scrolled to its top."""
        if tab != self.tab:
            self.tab = tab
            self.state.host.read_now()
            self.pane.scroll_by(-len(self.pane.lines))

    def do_next_tab(self, key: str) -> None:
        self.choose(TABS[(TABS.index(self.tab) + 1) % len(TABS)])

    def do_previous_tab(self, key: str) -> None:
        self.choose(TABS[(TABS.index(self.tab) - 1) % len(TABS)])

    def do_tab(self, key: str) -> None:
        index = int(key) - 1
        if index < len(TABS):
            self.choose(TABS[index])

    def do_column(self, key: str) -> None:
        """On the lineage pane, select the next or previous column and scroll to its lineage.

        On all other panes, `h` goes back.
        """
        known = self.declared.columns
        if self.tab != "lineage" and key in ("h", "left"):
            self.do_back(key)
            return
        if self.tab != "lineage":
            self.state.notify(f"columns are on pane {TABS.index('lineage') + 1}, lineage")
            return
        if known is None or not known.names:
            self.state.notify("no columns to choose from: the files are still being read, or declare none")
            return
        step = 1 if key in ("l", "right") else -1
        at = known.names.index(self.column) if self.column in known.names else known.names.index(known.chosen)
        self.column = known.names[(at + step) % len(known.names)]
        heading = next((at for at, each in enumerate(self.pane.lines) if plain(each).startswith(HEADING)), 0)
        self.pane.scroll_by(heading - self.pane.top)
        self.state.notify(f"lineage of {self.column}", Tone.DIM)
        self.state.host.read_now()

    def open_tab(self, tab: str) -> None:
        if self.named and self.named != (self.table_name,):
            super().open_tab(tab)
        else:
            self.choose(tab)
