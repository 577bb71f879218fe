"""Statements: all of them as one list, sorted and filtered."""

from collections.abc import Hashable, Sequence

from tui.presentation.interaction.filters import Filter, parse_filter
from tui.presentation.screen_content.banner_footer import nothing_lines
from tui.presentation.screen_content.statement_rows import (
    SORTS,
    RowContext,
    TableColumn,
    columns_for,
    header,
    sort_key,
    statement_row,
)
from tui.presentation.styling.styled_text import Line
from tui.presentation.view.ledger_view import StatementView
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import TableScreen


class StatementsScreen(TableScreen):
    """The flat list."""

    page_name = "statements"

    def __init__(self, desk: ConsoleState, *, filter_text: str = "") -> None:
        super().__init__(desk)
        self.filter_text = filter_text
        self.filter: Filter = parse_filter(filter_text)
        self.sort = "name"
        self.faults = False
        self.wide = False

    def row_ids(self) -> Sequence[str]:
        if self.filter.text != self.filter_text:
            self.filter = parse_filter(self.filter_text)
        shown = [one for one in self.desk.world.statements.values() if self._shows(one)]
        if self.sort != "name":
            shown.sort(key=sort_key(self.sort))
        return [one.table for one in shown]

    def _shows(self, statement: StatementView) -> bool:
        return self.filter.match(statement) and (not self.faults or statement.faulty)

    def wrong_filter(self) -> str:
        return self.filter.problem

    def shape(self) -> Hashable:
        return (self.filter_text, self.sort, self.faults)

    def columns(self, width: int) -> tuple[TableColumn, ...]:
        """Choose the columns."""
        return columns_for(width, wide=self.wide)

    def head(self, width: int) -> Line:
        return header(self.columns(width), width, self.sort)

    def picture(self, row: str, width: int) -> Line:
        look = RowContext(self.desk.glyphs, self.desk.clock(), stale=self.desk.fresh.stale)
        statement = self.desk.world.statement(row)
        assert statement is not None
        return statement_row(statement, self.columns(width), width, look)

    def empty_lines(self, width: int) -> tuple[Line, ...]:
        return nothing_lines(self.desk.world, self.desk.place, self.filter_text, width)

    def is_gone(self, row: str) -> bool:
        return self.desk.world.statement(row) is None

    def crumb(self) -> tuple[Sequence[str], str]:
        total = len(self.desk.world.statements)
        marked = f"{len(self.desk.marks)} marked   " if self.desk.marks else ""
        faults = "faults only   " if self.faults else ""
        counts = f"{marked}{faults}{min(self.table.cursor + 1, len(self.table.ids))}/{len(self.table.ids)} of {total}"
        return ("statements", f"by {self.sort}"), counts

    def do_open(self, key: str) -> None:
        if self.table.cursor_id is not None:
            self.desk.host.go("detail", table=self.table.cursor_id)

    def do_sort(self, key: str) -> None:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]

    def do_faults(self, key: str) -> None:
        self.faults = not self.faults

    def do_wide(self, key: str) -> None:
        self.wide = not self.wide
