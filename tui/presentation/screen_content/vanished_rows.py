"""Ghosts: a row whose statement is gone stays in its place for five seconds.

No key hits the row that would have moved up.
"""

from collections.abc import Callable, Sequence

from tui.presentation.styling.styled_text import Line, Span, Tone

STAYS_S = 5.0


class VanishedRows:
    """Remembers rows as they were drawn last, and keeps the vanished ones for a while."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._lines: dict[str, Line] = {}

    def __contains__(self, row: str) -> bool:
        return row in self._until

    def line(self, row: str) -> Line:
        """Return a ghost's last picture in the tone of ghosts."""
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
        """Put rows of `old` that are `gone` back into `new` at their places; `line_of` still knows them."""
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

    @property
    def any(self) -> bool:
        """Return whether a ghost is on screen."""
        return bool(self._until)
