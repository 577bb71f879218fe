"""The flat list of statements, sorted and filtered, and its base class, which it shares with the tree on Home."""

from collections.abc import Hashable, Sequence

from tui.presentation.interaction.filters import Filter, parse_filter
from tui.presentation.screen_content.screen_frame import nothing_lines
from tui.presentation.screen_content.statement_rows import SORTS, RowContext, columns_for, sort_key, statement_row
from tui.presentation.styling.styled_text import Line
from tui.presentation.styling.table_layout import TableColumn, header
from tui.presentation.view.ledger_view import StatementView
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import StatementTableScreen


class StatementListScreen(StatementTableScreen):
    """The base of the tree and of the flat list of statements, which share the filter and the marks."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.marks = state.marks
        self._filter = parse_filter("")
        self.faults = False
        self.wide = False

    @property
    def filter(self) -> Filter:
        """The filter typed after `/`; it is parsed again only after a change."""
        if self._filter.text != self.typed.filter_text:
            self._filter = parse_filter(self.typed.filter_text)
        return self._filter

    def shows(self, statement: StatementView) -> bool:
        """True if a statement passes the filter and, in faults-only mode, is faulty."""
        return self.filter.match(statement) and (not self.faults or statement.faulty)

    def wrong_filter(self) -> str:
        return self.filter.problem

    def row_context(self) -> RowContext:
        """Return the context for rendering rows: glyphs, current time, and whether the data is stale."""
        return RowContext(self.state.glyphs, self.state.clock(), stale=self.state.freshness.stale)

    def empty_lines(self, width: int) -> tuple[Line, ...]:
        about = (self.state.view, self.state.identity, self.typed.filter_text, width)
        return nothing_lines(*about, faults_only=self.faults)

    def marks_and_faults(self) -> str:
        """Return the breadcrumb's text about marked tables and faults-only mode; empty if neither applies."""
        return self.marked_words() + ("faults only   " if self.faults else "")

    def do_faults(self, key: str) -> None:
        self.faults = not self.faults

    def do_wide(self, key: str) -> None:
        self.wide = not self.wide


class StatementsScreen(StatementListScreen):
    """The screen with the flat list of statements."""

    screen_name = "statements"

    def __init__(self, state: ConsoleState, *, filter_text: str = "") -> None:
        super().__init__(state)
        self.typed.filter_text = filter_text
        self.sort = "name"

    def row_ids(self) -> Sequence[str]:
        shown = [one for one in self.state.view.statements.values() if self.shows(one)]
        if self.sort != "name":
            shown.sort(key=sort_key(self.sort))
        return [one.table for one in shown]

    def shape(self) -> Hashable:
        return (self.typed.filter_text, self.sort, self.faults)

    def columns(self, width: int) -> tuple[TableColumn, ...]:
        """Return the columns that fit into a width."""
        return columns_for(width, wide=self.wide)

    def head(self, width: int) -> Line:
        return header(self.columns(width), width, self.sort)

    def picture(self, row: str, width: int) -> Line:
        statement = self.state.view.statement(row)
        assert statement is not None
        return statement_row(statement, self.columns(width), width, self.row_context())

    def is_gone(self, row: str) -> bool:
        return self.state.view.statement(row) is None

    def path_and_counts(self) -> tuple[Sequence[str], str]:
        total = len(self.state.view.statements)
        place = f"{min(self.table.cursor + 1, len(self.table.ids))}/{len(self.table.ids)}"
        return ("statements", f"by {self.sort}"), self.with_below(f"{self.marks_and_faults()}{place} of {total}")

    def do_open(self, key: str) -> None:
        if self.table.cursor_id is not None:
            self.state.host.open_screen("detail", table=self.table.cursor_id)

    def do_sort(self, key: str) -> None:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
