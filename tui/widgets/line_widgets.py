"""Widgets that show given lines: fixed ones for the frame, and a pane that scrolls."""

from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.presentation.styling.styled_text import EMPTY, Line, fold_all
from tui.widgets.textual_strips import StripPainter


class FixedLines(Widget):
    """A few lines; only those that change are drawn again."""

    can_focus = False

    def __init__(self, painter: StripPainter, *, id: str | None = None, band: bool = False) -> None:
        super().__init__(id=id)
        self.painter = painter
        self.band = band
        self.lines: tuple[Line, ...] = ()

    def show(self, lines: Sequence[Line]) -> None:
        """Take new lines."""
        old, self.lines = self.lines, tuple(lines)
        for y in range(max(len(old), len(self.lines))):
            if self._at(old, y) != self._at(self.lines, y):
                self.refresh(Region(0, y, self.size.width, 1))

    def seen_lines(self) -> Sequence[object]:
        """Return what is seen now; equal means that nothing looks otherwise."""
        return self.lines

    def render_line(self, y: int) -> Strip:
        return self.painter.strip(self._at(self.lines, y), self.size.width, band=self.band)

    @staticmethod
    def _at(lines: Sequence[Line], y: int) -> Line:
        return lines[y] if 0 <= y < len(lines) else EMPTY


class GrowingLines(FixedLines):
    """Lines that take the height that they need."""

    def show(self, lines: Sequence[Line]) -> None:
        self.styles.height = max(len(lines), 1)
        super().show(lines)


class ScrollingLines(FixedLines):
    """Lines that scroll, folded to its width: nothing is cut."""

    def __init__(self, painter: StripPainter, *, id: str | None = None) -> None:
        super().__init__(painter, id=id)
        self.top = 0

    def show(self, lines: Sequence[Line]) -> None:
        old_top = self.top
        old = self.seen_lines()
        self.lines = fold_all(lines, self.size.width) if self.size.width else tuple(lines)
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
        """Lines below the edge."""
        return max(len(self.lines) - self.top - self.size.height, 0)

    def scroll_by(self, lines: int) -> None:
        """Scroll by lines, positive down."""
        top = min(max(self.top + lines, 0), self._last_top())
        if top != self.top:
            self.top = top
            self.refresh()
