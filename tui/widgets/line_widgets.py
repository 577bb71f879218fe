"""Widgets that draw lines of styled text: fixed lines, a scrolling pane, and a table of thousands of rows.

A table draws only visible rows. Its cursor is an id, never an index. A vanished row keeps its position for five
seconds, so that a key cannot act on the row that would have moved up.
"""

from collections.abc import Callable, Sequence

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from tui.presentation.styling.styled_text import EMPTY, Line, Span, Tone, wrap_lines
from tui.widgets.textual_strips import StripPainter


class FixedLines(Widget):
    """A widget that shows a few lines, and redraws only changed lines."""

    can_focus = False

    def __init__(self, painter: StripPainter, *, id: str | None = None, band: bool = False) -> None:
        super().__init__(id=id)
        self.painter = painter
        self.band = band
        self.lines: tuple[Line, ...] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines, redrawing lines that differ."""
        old, self.lines = self.lines, tuple(lines)
        for y in range(max(len(old), len(self.lines))):
            if self._at(old, y) != self._at(self.lines, y):
                self.refresh(Region(0, y, self.size.width, 1))

    def seen_lines(self) -> Sequence[object]:
        """Return a value for the visible content. Equal values mean that the widget looks the same."""
        return self.lines

    def render_line(self, y: int) -> Strip:
        return self.painter.strip(self._at(self.lines, y), self.size.width, band=self.band)

    @staticmethod
    def _at(lines: Sequence[Line], y: int) -> Line:
        return lines[y] if 0 <= y < len(lines) else EMPTY


class GrowingLines(FixedLines):
    """A widget that is always as high as the number of its lines."""

    def show(self, lines: Sequence[Line]) -> None:
        self.styles.height = max(len(lines), 1)
        super().show(lines)


class ScrollingLines(FixedLines):
    """A scrolling widget that wraps long lines to its width, so that nothing is cut off."""

    def __init__(self, painter: StripPainter, *, id: str | None = None) -> None:
        super().__init__(painter, id=id)
        self.top = 0

    def show(self, lines: Sequence[Line]) -> None:
        old_top = self.top
        old = self.seen_lines()
        self.lines = wrap_lines(lines, self.size.width) if self.size.width else tuple(lines)
        self.top = min(self.top, self._last_top())
        if old_top != self.top:
            self.refresh()
            return
        for y, (before, after) in enumerate(zip(old, self.seen_lines(), strict=True)):
            if before != after:
                self.refresh(Region(0, y, self.size.width, 1))

    def seen_lines(self) -> Sequence[Line]:
        return [self._at(self.lines, self.top + y) for y in range(self.size.height)]

    def _last_top(self) -> int:
        return max(len(self.lines) - self.size.height, 0)

    def render_line(self, y: int) -> Strip:
        return self.painter.strip(self._at(self.lines, self.top + y), self.size.width)

    @property
    def below(self) -> int:
        """Number of lines below the last visible one."""
        return max(len(self.lines) - self.top - self.size.height, 0)

    def scroll_by(self, lines: int) -> None:
        """Scroll down by a number of lines, or up if the number is negative."""
        top = min(max(self.top + lines, 0), self._last_top())
        if top != self.top:
            self.top = top
            self.refresh()


CACHE = 512
STAYS_S = 5.0


class RowTable(ScrollView):
    """A table whose rows have ids. A function supplies the content of the visible rows."""

    can_focus = False

    def __init__(self, painter: StripPainter, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.painter = painter
        self.ids: Sequence[str] = ()
        self.cursor_id: str | None = None
        self.top = 0
        self.active = True
        """True if the cursor is drawn, which is the case only in the pane that receives keys."""
        self.empty: tuple[Line, ...] = ()
        """Lines shown while there are no rows."""
        self._places: dict[str, int] = {}
        self._line_of: Callable[[str], Line] = lambda _: EMPTY
        self._head: Line = EMPTY
        self._strips: dict[tuple[Line, bool, int], Strip] = {}
        self._drawn: dict[int, tuple[Line, bool]] = {}

    def on_resize(self) -> None:
        self._strips.clear()
        self._reveal()

    def show(self, ids: Sequence[str], line_of: Callable[[str], Line], head: Line) -> None:
        """Replace the rows, redrawing lines that differ.

        If the cursor's row is gone, the cursor moves to a neighbouring row.
        """
        old_place = self._places.get(self.cursor_id or "", 0)
        self._line_of = line_of
        if head != self._head:
            self._head = head
            self.refresh(Region(0, 0, self.size.width, 1))
        if ids is not self.ids:
            self.ids = ids
            self._places = {row: index for index, row in enumerate(ids)}
        if self.cursor_id not in self._places:
            self.cursor_id = ids[min(old_place, len(ids) - 1)] if ids else None
        self._reveal()
        self.repaint_changed()

    def repaint_changed(self) -> None:
        """Redraw the visible lines that have changed since they were last drawn."""
        for y in range(1, self.size.height):
            if self._picture(y) != self._drawn.get(y):
                self.refresh(Region(0, y, self.size.width, 1))

    def seen_lines(self) -> Sequence[object]:
        """Return a value for the visible content. Equal values mean that the table looks the same."""
        return (self._head, *(self._picture(y) for y in range(1, self.size.height)))

    def _picture(self, y: int) -> tuple[Line, bool]:
        index = self.top + y - 1
        if not self.ids:
            return (self.empty[index] if index < len(self.empty) else EMPTY), False
        if not 0 <= index < len(self.ids):
            return EMPTY, False
        row = self.ids[index]
        return self._line_of(row), self.active and row == self.cursor_id

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return self.painter.strip(self._head, width)
        picture = self._picture(y)
        self._drawn[y] = picture
        content, chosen = picture
        key = (content, chosen, width)
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) > CACHE:
                self._strips.clear()
            strip = self._strips[key] = self.painter.strip(content, width, chosen=chosen)
        return strip

    @property
    def cursor(self) -> int:
        """Index of the cursor's row; 0 if there is no cursor."""
        return self._places.get(self.cursor_id or "", 0)

    @property
    def page(self) -> int:
        """Number of rows that fit below the heading."""
        return max(self.size.height - 1, 1)

    @property
    def below(self) -> int:
        """Number of rows below the last visible one."""
        return max(len(self.ids) - self.top - self.page, 0)

    def move_to(self, index: int) -> None:
        """Move the cursor to the row at an index.

        If the index is out of range, the cursor moves to the first or last row.
        """
        if not self.ids:
            return
        self.cursor_id = self.ids[min(max(index, 0), len(self.ids) - 1)]
        self._reveal()
        self.repaint_changed()

    def choose(self, row: str) -> bool:
        """Move the cursor to the row with this id; return False if there is no such row."""
        if row not in self._places:
            return False
        self.move_to(self._places[row])
        return True

    def _reveal(self) -> None:
        """Scroll just far enough to show the cursor, leaving no empty lines at the end while rows remain above."""
        page, place = self.page, self.cursor
        top = min(max(self.top, place - page + 1), place)
        self.top = max(min(top, len(self.ids) - page), 0)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.ids) + 1


class VanishedRows:
    """Remembers how rows were last drawn, and keeps vanished rows on screen for a while."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._lines: dict[str, Line] = {}

    def __contains__(self, row: str) -> bool:
        return row in self._until

    def line(self, row: str) -> Line:
        """Return the line of a vanished row as it was last drawn, in the ghost tone."""
        return tuple(Span(span.text, Tone.GHOST) for span in self._lines.get(row, (Span(f"  {row}"),)))

    def merge(
        self,
        old: Sequence[str],
        new: Sequence[str],
        *,
        gone: Callable[[str], bool],
        line_of: Callable[[str], Line],
        now: float,
    ) -> Sequence[str]:
        """Return the rows `new`, with vanished rows of `old` at their former positions for five seconds.

        A row that is missing in `new` has vanished if `gone` returns True for it. `line_of` must still return the line
        of a vanished row.
        """
        alive = set(new)
        laid = {row for row, until in self._until.items() if until <= now or row in alive}
        for row in laid:
            del self._until[row]
            self._lines.pop(row, None)
        for row in old:
            if row not in alive and row not in laid and row not in self._until and gone(row):
                self._until[row] = now + STAYS_S
                self._lines[row] = line_of(row)
        if not self._until:
            return new
        merged = list(new)
        for index, row in enumerate(old):
            if row in self._until:
                merged.insert(min(index, len(merged)), row)
        return merged


def with_gutter(content: Line, sign: str, tone: Tone) -> Line:
    """Return a row's line with a mark in the two free cells at its left edge."""
    if not content:
        return content
    first, *rest = content
    return (Span(sign, tone), Span(first.text[len(sign) :], first.tone), *rest)
