"""Detail: one statement by id, in tabs; what it alone needs is read beside the world."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from core.model.names import TableName
from core.text.wording import counted
from state.ledger_snapshot import StatementDetails
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.screen_content.lineage_tab import HEADING
from tui.presentation.screen_content.statement_detail import TABS, DeclaredDetails, tab_lines, tabs_line
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.screen_content.vanished_rows import STAYS_S
from tui.presentation.styling.styled_text import Line, Tone, line, plain
from tui.presentation.view.ledger_view import StatementView
from tui.presentation.view.statement_tree import LAYER_NAMES
from tui.screens.console_state import ConsoleState
from tui.screens.text_screen import TextScreen


class DetailScreen(TextScreen):
    """One statement."""

    page_name = "detail"

    def __init__(self, desk: ConsoleState, *, table: str, tab: str = "overview") -> None:
        super().__init__(desk)
        self.table_name = table
        self.tab = tab
        self.column = ""
        self.facts = StatementDetails(TableName(table))
        self.declared = DeclaredDetails()
        self.statement: StatementView | None = desk.world.statement(table)
        self.gone_at: float | None = None

    def fetch(self) -> object:
        asked = self.desk.operations
        column = self.column if self.tab == "lineage" else None
        declared = asked.declared(self.table_name, column) if self.tab in ("sql", "lineage") else None
        return asked.detail(self.table_name), declared

    def take(self, fetched: object) -> None:
        assert isinstance(fetched, tuple)
        self.facts, declared = fetched
        self.declared = declared or self.declared

    def refresh_body(self) -> None:
        found = self.desk.world.statement(self.table_name)
        if found is not None:
            self.statement, self.gone_at = found, None
        elif self.gone_at is None:
            self.gone_at = self.desk.tick()
        super().refresh_body()

    def content(self, width: int) -> Sequence[Line]:
        statement = self.statement
        if statement is None:
            words = f" {self.table_name} is not deployed in {self.desk.place.environment}"
            return (line((words, Tone.CHANGING)), line((" D stages a deploy of its files; q goes back", Tone.DIM)))
        look = RowContext(self.desk.glyphs, self.desk.clock(), stale=self.desk.fresh.stale)
        gone = (
            (line((" it has been deleted: this is the last known state", Tone.CHANGING)),)
            if self.gone_at is not None
            else ()
        )
        head = tabs_line(self.tab, width)
        return (head, *gone, *self._tab(statement, look, width))

    def _tab(self, statement: StatementView, look: RowContext, width: int) -> Sequence[Line]:
        facts, declared = self.facts, self.declared
        return tab_lines(self.tab, statement, facts, self.desk.world, declared=declared, look=look, width=width)

    def targets(self) -> tuple[str, ...]:
        return (self.table_name,)

    def circumstances(self) -> ActionContext:
        ghost = self.gone_at is not None and self.desk.tick() - self.gone_at < STAYS_S
        return replace(super().circumstances(), ghost=ghost)

    def crumb(self) -> tuple[Sequence[str], str]:
        if self.statement is None:
            return (self.table_name,), ""
        below = counted(self.pane.below, "more line") if self.pane.below else ""
        version = f" v{self.statement.version}" if self.statement.version else ""
        return (self.statement.product, LAYER_NAMES.get(self.statement.layer, ""), self.table_name + version), below

    def choose(self, tab: str) -> None:
        """Show a tab from its beginning."""
        if tab != self.tab:
            self.tab = tab
            self.desk.host.kick()
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
        """Choose the next column, or the one before, and bring its lineage into view."""
        known = self.declared.columns
        if self.tab != "lineage" or known is None or not known.names:
            self.desk.say("columns can be chosen on the lineage pane once the files have been read")
            return
        step = 1 if key in ("l", "right") else -1
        at = known.names.index(self.column) if self.column in known.names else known.names.index(known.chosen)
        self.column = known.names[(at + step) % len(known.names)]
        heading = next((at for at, each in enumerate(self.pane.lines) if plain(each).startswith(HEADING)), 0)
        self.pane.scroll_by(heading - self.pane.top)
        self.desk.host.kick()

    def do_detail(self, key: str) -> None:
        self._show("overview", super().do_detail, key)

    def do_sql(self, key: str) -> None:
        self._show("sql", super().do_sql, key)

    def do_events(self, key: str) -> None:
        self._show("events", super().do_events, key)

    def do_lineage(self, key: str) -> None:
        self._show("lineage", super().do_lineage, key)

    def _show(self, tab: str, of_named: Callable[[str], None], key: str) -> None:
        """Show a tab of this statement, or open that of the one that was named after `:`."""
        if self.named and self.named != (self.table_name,):
            of_named(key)
        else:
            self.choose(tab)
