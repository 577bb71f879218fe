"""Screens with one table. The cursor and marks refer to row ids; new data never moves a row while a key is pressed.

The text about the selected row is shown below the table, or next to it on a wide terminal.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.containers import Container
from textual.widget import Widget

from core.text.sentence import sentence_of
from core.text.wording import counted
from tui.presentation.interaction.action_availability import ActionContext
from tui.presentation.styling.styled_text import EMPTY, Line, Tone, line
from tui.screens.console_state import ConsoleState
from tui.screens.statement_actions import StatementActionsScreen
from tui.widgets.line_widgets import RowTable, ScrollingLines, VanishedRows, with_gutter


class TableScreen(StatementActionsScreen):
    """A screen with one table. A subclass provides the rows and renders them."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.table = RowTable(state.painter, id="rows")
        self.vanished = VanishedRows()
        self._shape: Hashable = None
        self._pictures: dict[str, Line] = {}
        self._old_pictures: dict[str, Line] = {}

    def body(self) -> Sequence[Widget]:
        return (self.table,)

    # For subclasses to override.

    def row_ids(self) -> Sequence[str]:
        """Return the ids of the rows, in order."""
        return ()

    def shape(self) -> Hashable:
        """Return the user's choices (filter, sort, expanded branches). If these change, rows may move immediately."""
        return self.typed.filter_text

    def picture(self, row: str, width: int) -> Line:
        """Render a row. This is called for visible rows only."""
        return EMPTY

    def head(self, width: int) -> Line:
        """Render the heading of the table."""
        return EMPTY

    def empty_lines(self, width: int) -> tuple[Line, ...]:
        """Explain why there are no rows, and what to do."""
        hidden = f"nothing matches /{self.typed.filter_text}" if self.typed.filter_text else "nothing here yet"
        return (line((f" {hidden if self.was_read else 'reading'}", Tone.DIM)),)

    def is_gone(self, row: str) -> bool:
        """True if the object that a row shows no longer exists, rather than just being filtered out."""
        return False

    def successor(self, row: str) -> str:
        """Return the row to which the cursor moves if `row` disappears.

        If this is `row` itself, the cursor moves to the nearest row.
        """
        return row

    def last_line(self, row: str) -> Line:
        """Return the line of a vanished row as it was last drawn."""
        return self._old_pictures.get(row, EMPTY)

    def is_marked(self, row: str) -> bool:
        """True if the user has marked the row."""
        return False

    # Shared by all tables.

    def refresh_body(self) -> None:
        # Rows exist before they are drawn, so that a key typed ahead finds them.
        width = self.table.size.width
        old = self.table.ids
        shape = self.shape()
        new = list(self.row_ids())
        self._old_pictures, self._pictures = {**self._old_pictures, **self._pictures}, {}
        held = shape == self._shape and self.holds_order and bool(old)
        if held:
            new = list(old)
        self._shape = shape
        now = self.state.monotonic()
        ids = self.vanished.merge(
            old,
            [row for row in new if not self.is_gone(row)],
            gone=self.is_gone,
            now=self.key_at if held else now,
            line_of=self.last_line,
        )
        if len(self._old_pictures) > 2000:
            self._old_pictures.clear()
        self.table.empty = () if ids else self.empty_lines(width)
        if self.table.cursor_id is not None and self.table.cursor_id not in ids:
            successor = self.successor(self.table.cursor_id)
            self.table.cursor_id = successor if successor in ids else self.table.cursor_id
        self.table.show(self.table.ids if list(self.table.ids) == list(ids) else ids, self.line_of, self.head(width))

    def line_of(self, row: str) -> Line:
        """Return the line of a row, with the mark of a marked row; for a vanished row, the line as last drawn."""
        picture = self._pictures.get(row)
        if picture is None:
            if row in self.vanished or self.is_gone(row):
                picture = self.vanished.line(row)
            else:
                picture = self.picture(row, self.table.size.width)
                if self.is_marked(row):
                    picture = with_gutter(picture, self.state.glyphs.mark, Tone.MARK)
            self._pictures[row] = picture
        return picture

    def on_screen_resume(self) -> None:
        """Drop rows that vanished while another screen was in front, because no key press was meant for them."""
        self.table.ids, self._shape = (), None

    def with_below(self, counts: str = "") -> str:
        """Return the breadcrumb's counts, followed by the number of rows below the visible part unless that is 0."""
        return ", ".join(filter(None, (counts, f"{self.table.below} more below" if self.table.below else "")))

    def move_cursor(self, place: int) -> None:
        """Move the cursor to the row at this index, as the user requested."""
        self.table.move_to(place)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row. A click performs no other action."""
        row = self.table.top + event.y - 1
        if event.widget is self.table and event.y and row < len(self.table.ids) and self.is_free:
            self.move_cursor(row)
            self.redraw()

    def do_down(self, key: str) -> None:
        self.move_cursor(self.table.cursor + 1)

    def do_up(self, key: str) -> None:
        self.move_cursor(self.table.cursor - 1)

    def do_top(self, key: str) -> None:
        self.move_cursor(0)

    def do_bottom(self, key: str) -> None:
        self.move_cursor(len(self.table.ids) - 1)

    def do_page_down(self, key: str) -> None:
        self.move_cursor(self.table.cursor + self.table.page)

    def do_page_up(self, key: str) -> None:
        self.move_cursor(self.table.cursor - self.table.page)


class SplitScreen(TableScreen):
    """A screen with a table and, for the selected row, a pane that the page keys scroll."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.pane = ScrollingLines(state.painter, id="under")

    def body(self) -> Sequence[Widget]:
        return (Container(self.table, self.pane, id="split"),)

    def fit_table_height(self, rows: int, most: int) -> None:
        """Fit the table's height to its rows, up to `most` lines.

        If the pane is next to the table, the table is as high as the screen.
        """
        self.table.styles.height = "1fr" if self.has_class("-wide") else min(rows + 1, most)

    def with_below(self, counts: str = "") -> str:
        text = f"{counted(self.pane.below, 'more line')} (pgdn)" if self.pane.below else ""
        return ", ".join(filter(None, (super().with_below(counts), text)))

    def do_page_down(self, key: str) -> None:
        self.pane.scroll_by(max(self.pane.size.height - 2, 1))

    def do_page_up(self, key: str) -> None:
        self.pane.scroll_by(-max(self.pane.size.height - 2, 1))


class StatementTableScreen(TableScreen):
    """A screen with a table of statements that can be marked."""

    vanished_because: ClassVar[str] = "this statement was deleted"
    """Why a row has vanished: shown when a key is pressed on it."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.marks: set[str] = set()
        """Tables marked on this screen; actions apply to them instead of the row under the cursor."""

    def tables_of(self, row: str) -> tuple[str, ...]:
        """Return the tables that an action on a row applies to."""
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
        return replace(super().action_context(), vanished=sentence_of(self.vanished_because if on_ghost else ""))

    def marked_words(self) -> str:
        """Return the breadcrumb's text about marked tables: their number, and how many of them are hidden."""
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
