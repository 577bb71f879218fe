"""Tables whose rows are statements: what an act is about, and marks, which belong to the screen that shows them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tui.presentation.interaction.action_availability import ActionContext
from tui.screens.console_state import ConsoleState
from tui.screens.table_screen import TableScreen


class StatementTableScreen(TableScreen):
    """A table of statements that can be marked."""

    vanished_because: ClassVar[str] = "this statement was deleted"
    """Why a row is there no more: said to who presses a key on what is left of it."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.marks: set[str] = set()
        """Tables that are marked on this screen; acts are about them instead of the row under the cursor."""

    def tables_of(self, row: str) -> tuple[str, ...]:
        """Return the tables that an act on a row is about."""
        return (row,)

    def is_marked(self, row: str) -> bool:
        tables = self.tables_of(row)
        return bool(tables) and self.marks.issuperset(tables)

    def targets(self) -> tuple[str, ...]:
        return tuple(sorted(self.marks)) if self.marks else self.under_cursor()

    def under_cursor(self) -> tuple[str, ...]:
        row = self.table.cursor_id
        return self.tables_of(row) if row is not None and row not in self.vanished else ()

    def hidden(self, targets: Sequence[str]) -> frozenset[str]:
        shown = {table for row in self.table.ids for table in self.tables_of(row)}
        return frozenset(targets) - shown

    def action_context(self) -> ActionContext:
        row = self.table.cursor_id
        on_ghost = not self.named and not self.marks and row is not None and row in self.vanished
        return replace(super().action_context(), vanished=self.vanished_because if on_ghost else "")

    def marked_words(self) -> str:
        """Return how many tables are marked, and how many of them no row shows, for the breadcrumb."""
        if not self.marks:
            return ""
        hidden = len(self.hidden(tuple(self.marks)))
        return f"{len(self.marks)} marked" + (f", {hidden} of them hidden   " if hidden else "   ")

    def do_mark(self, key: str) -> None:
        row = self.table.cursor_id
        tables = set(self.tables_of(row)) if row is not None and row not in self.vanished else set()
        if tables <= self.marks:
            self.marks -= tables
        else:
            self.marks |= tables
        self.table.move_to(self.table.cursor + 1)

    def do_mark_all(self, key: str) -> None:
        rows = [row for row in self.table.ids if row not in self.vanished]
        self.marks |= {table for row in rows for table in self.tables_of(row)}

    def do_unmark(self, key: str) -> None:
        self.marks.clear()
