"""Audit and command log: what was done, by whom; neither can be changed here or anywhere."""

from collections.abc import Sequence

from textual.widget import Widget

from state.rows import Audit, Command
from tui.presentation.changes import rule
from tui.presentation.records import (
    audit_columns,
    audit_row,
    audit_text,
    command_columns,
    command_row,
    command_text,
)
from tui.presentation.text import Line
from tui.screens.desk import Desk
from tui.screens.rows import RowsPage
from tui.widgets.lines import Pane


class RecordsPage(RowsPage):
    """Rows that were written once, newest first, with the whole text of the chosen one below."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.records: dict[str, Audit | Command] = {}
        self.pane = Pane(desk.painter, id="few")

    def body(self) -> Sequence[Widget]:
        return (self.table, self.pane)

    def take(self, fetched: object) -> None:
        if isinstance(fetched, tuple):
            self.records = {str(one.id): one for one in fetched}

    def row_ids(self) -> Sequence[str]:
        needle = self.filter_text.lower()
        return [row for row, one in self.records.items() if needle in self.words(one).lower()]

    def words(self, one: Audit | Command) -> str:
        """Give the text that a filter looks at."""
        if isinstance(one, Command):
            return f"{one.actor} {one.op} {one.line} {one.outcome} {one.detail}"
        return f"{one.actor} {one.action} {one.subject} {one.outcome} {one.plan_hash}"

    def text(self, one: Audit | Command, width: int) -> tuple[Line, ...]:
        """Write the whole of a record."""
        return command_text(one, width) if isinstance(one, Command) else audit_text(one, width)

    def refresh_body(self) -> None:
        super().refresh_body()
        width = self.pane.size.width
        chosen = self.records.get(self.table.cursor_id or "")
        if width and chosen is not None:
            self.pane.show(
                (rule(f"{self.page_name} {self.table.cursor_id}", width, self.desk.glyphs), *self.text(chosen, width))
            )

    def picture(self, row: str, width: int) -> Line:
        one = self.records[row]
        draw = (
            command_row(one, width, self.desk.clock())
            if isinstance(one, Command)
            else audit_row(one, width, self.desk.clock())
        )
        return draw

    def targets(self) -> tuple[str, ...]:
        return ()

    def is_marked(self, row: str) -> bool:
        return False

    def crumb(self) -> tuple[Sequence[str], str]:
        return (self.page_name,), f"{len(self.table.ids)} of {len(self.records)}"

    def copy_text(self) -> str:
        chosen = self.records.get(self.table.cursor_id or "")
        return self.words(chosen) if chosen is not None else ""

    def do_enter_row(self, key: str) -> None:
        self.table.move_to(self.table.cursor)


class AuditPage(RecordsPage):
    """The audit."""

    page_name = "audit"

    def fetch(self) -> object:
        return tuple(self.desk.operations.audits())

    def head(self, width: int) -> Line:
        return audit_columns(width)

    def copy_line(self) -> str:
        return f"headgate audit --env {self.desk.place.environment}"


class LogPage(RecordsPage):
    """The command log."""

    page_name = "log"

    def fetch(self) -> object:
        return tuple(self.desk.operations.commands())

    def head(self, width: int) -> Line:
        return command_columns(width)

    def copy_line(self) -> str:
        chosen = self.records.get(self.table.cursor_id or "")
        return chosen.line if isinstance(chosen, Command) and chosen.line else super().copy_line()
