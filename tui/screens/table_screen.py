"""Screens that are one table of rows: cursor and marks go by id, and data never moves a row under the hand.

One that has a text for the chosen row shows it below the table, or beside it on a wide terminal.
"""

from collections.abc import Hashable, Sequence

from textual import events
from textual.containers import Container
from textual.widget import Widget

from tui.presentation.styling.styled_text import EMPTY, Line, Tone, line
from tui.screens.console_state import ConsoleState
from tui.screens.statement_actions import StatementActionsScreen
from tui.widgets.line_widgets import ScrollingLines
from tui.widgets.row_table import RowTable, VanishedRows, with_gutter


class TableScreen(StatementActionsScreen):
    """A screen with one table that has the keys; a subclass says which rows there are and how each looks."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.table = RowTable(state.painter, id="rows")
        self.vanished = VanishedRows()
        self._shape: Hashable = None
        self._pictures: dict[str, Line] = {}
        self._old_pictures: dict[str, Line] = {}

    def body(self) -> Sequence[Widget]:
        return (self.table,)

    # What a subclass says.

    def row_ids(self) -> Sequence[str]:
        """Return the rows in order."""
        return ()

    def shape(self) -> Hashable:
        """Return what the person chose (filter, sort, open branches): a change of it may move rows at once."""
        return self.typed.filter_text

    def picture(self, row: str, width: int) -> Line:
        """Draw a row; asked for visible rows alone."""
        return EMPTY

    def head(self, width: int) -> Line:
        """Draw the heading."""
        return EMPTY

    def empty_lines(self, width: int) -> tuple[Line, ...]:
        """Explain why there are no rows, and what to do."""
        return (line((" nothing here yet", Tone.DIM)),)

    def is_gone(self, row: str) -> bool:
        """Return whether what a row stood for exists no more (not merely filtered)."""
        return False

    def last_line(self, row: str) -> Line:
        """Draw a row that has vanished: as it was drawn last."""
        return self._old_pictures.get(row, EMPTY)

    def is_marked(self, row: str) -> bool:
        """Return whether a row is drawn with a mark."""
        return False

    # What they share.

    def refresh_body(self) -> None:
        # Rows are there before they are drawn: a key typed ahead must find them.
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
        self.table.show(self.table.ids if list(self.table.ids) == list(ids) else ids, self.line_of, self.head(width))

    def line_of(self, row: str) -> Line:
        """Draw a row with its mark; a ghost is drawn as it was."""
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

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the row under the pointer; a click acts on nothing."""
        row = self.table.top + event.y - 1
        if event.widget is self.table and event.y and row < len(self.table.ids) and self.is_free:
            self.table.move_to(row)
            self.redraw()

    def do_down(self, key: str) -> None:
        self.table.move_to(self.table.cursor + 1)

    def do_up(self, key: str) -> None:
        self.table.move_to(self.table.cursor - 1)

    def do_top(self, key: str) -> None:
        self.table.move_to(0)

    def do_bottom(self, key: str) -> None:
        self.table.move_to(len(self.table.ids) - 1)

    def do_page_down(self, key: str) -> None:
        self.table.move_to(self.table.cursor + self.table.page)

    def do_page_up(self, key: str) -> None:
        self.table.move_to(self.table.cursor - self.table.page)


class SplitScreen(TableScreen):
    """A table and a text on its chosen row, which the page keys scroll."""

    def __init__(self, state: ConsoleState) -> None:
        super().__init__(state)
        self.pane = ScrollingLines(state.painter, id="under")

    def body(self) -> Sequence[Widget]:
        return (Container(self.table, self.pane, id="split"),)

    def share(self, rows: int, most: int) -> None:
        """Return the table the lines of its rows, `most` at most, where the text stands below it; beside it, all."""
        self.table.styles.height = "1fr" if self.has_class("-wide") else min(rows + 1, most)

    def do_page_down(self, key: str) -> None:
        self.pane.scroll_by(max(self.pane.size.height - 2, 1))

    def do_page_up(self, key: str) -> None:
        self.pane.scroll_by(-max(self.pane.size.height - 2, 1))
