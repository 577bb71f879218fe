"""Converts styled lines to Textual's strips, and Textual's styles and updates to cells of `tui.terminal.cell_diff`."""

from collections.abc import Iterable
from functools import lru_cache

from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from tui.presentation.styling.styled_text import Line, Tone, fit
from tui.presentation.styling.theme import Paint, Palette
from tui.terminal.cell_diff import CellStyle, ShadowScreen, colour


class StripPainter:
    """Converts styled lines to Textual's strips in one palette, caching the styles."""

    def __init__(self, palette: Palette) -> None:
        self.palette = palette
        self._styles: dict[tuple[Tone, bool, bool], Style] = {}

    def style(self, tone: Tone, *, chosen: bool = False, band: bool = False) -> Style:
        """Return Rich's style for a tone. `chosen` is the row under the cursor, `band` the first line or a dialog."""
        key = (tone, chosen, band)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = style_of(self.palette.paint(tone, chosen=chosen, band=band))
        return style

    def strip(self, content: Line, width: int, *, chosen: bool = False, band: bool = False) -> Strip:
        """Convert a line to a strip of exactly `width` cells."""
        segments = [Segment(span.text, self.style(span.tone, chosen=chosen, band=band)) for span in fit(content, width)]
        return Strip(segments, width)


def style_of(paint: Paint) -> Style:
    """Convert a paint of the theme to a Rich style."""
    return Style(
        color=_colour(paint.fg),
        bgcolor=_colour(paint.bg),
        bold=paint.bold,
        dim=paint.dim,
        underline=paint.underline,
        reverse=paint.reverse,
    )


def _colour(index: int | None) -> Color:
    return Color.default() if index is None else Color.from_ansi(index)


@lru_cache(maxsize=4096)
def cell_style_of_style(style: Style | None) -> CellStyle:
    """Convert a Rich style to a cell style, as `tui.terminal.cell_diff` does for the same paint."""
    if style is None:
        return CellStyle()
    flags = (("1", style.bold), ("2", style.dim), ("4", style.underline), ("7", style.reverse))
    return CellStyle(
        fg=_codes(style.color, 30),
        bg=_codes(style.bgcolor, 40),
        attributes=tuple(code for code, wanted in flags if wanted),
    )


def _codes(color: Color | None, base: int) -> str:
    if color is None or color.type is ColorType.DEFAULT:
        return str(base + 9)
    if color.number is not None:
        return colour(color.number, base)
    red, green, blue = color.get_truecolor()
    return f"{base + 8};2;{red};{green};{blue}"


def put_update(shadow: ShadowScreen, update: ChopsUpdate | LayoutUpdate) -> None:
    """Write a Textual update into the shadow screen: the cells that `render_segments` would send (textual 8.2.8)."""
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                shadow.put(x, y, _pieces(strip), shadow.width)
                x += strip.cell_length
        return
    for y, start, end in update.spans:
        ends = update.chop_ends[y]
        for chop_end, (x, chop) in zip(ends, update.chops[y].items(), strict=False):
            if chop is None or x > end or chop_end <= start:
                continue
            shadow.put(x, y, _pieces(chop), min(chop_end, end))


def _pieces(strip: Strip) -> Iterable[tuple[str, CellStyle]]:
    return ((segment.text, cell_style_of_style(segment.style)) for segment in strip if not segment.control)
