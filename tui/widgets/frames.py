"""Textual's updates of the screen, written into the shadow of the terminal."""

from collections.abc import Iterable

from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from tui.display import Look, Shadow
from tui.widgets.strips import look_of_style


def put_update(shadow: Shadow, update: ChopsUpdate | LayoutUpdate) -> None:
    """Write an update into the shadow; the same cells as `render_segments` would have sent (textual 8.2.8)."""
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


def _pieces(strip: Strip) -> Iterable[tuple[str, Look]]:
    return ((segment.text, look_of_style(segment.style)) for segment in strip if not segment.control)
