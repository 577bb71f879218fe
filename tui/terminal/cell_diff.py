"""A shadow copy of the terminal's cells, through which every frame is output so that only changes are sent."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tui.presentation.styling.styled_text import Line, cells_of
from tui.presentation.styling.theme import Paint, Palette

GAP = 6
"""Maximum number of unchanged cells that are sent again to avoid moving the cursor past them."""

BLANKS = 3
"""Maximum number of blanks written to skip blank cells. Moving the cursor takes 3 or 4 bytes."""

SMALL_FRAME = 6_000
"""Maximum length of a frame, in characters, for which a shorter order of its cells is tried. Longer frames would take
too long.
"""


class CellStyle(NamedTuple):
    """A cell's style as SGR parameters (ECMA-48 8.3.117). An empty `fg` keeps the current colour."""

    fg: str = "39"
    bg: str = "49"
    attributes: tuple[str, ...] = ()


PLAIN = CellStyle()
Cell = tuple[str, CellStyle]
"""A character and its style. The second cell of a wide character is empty."""

_UNKNOWN: Cell = ("\0", PLAIN)


def cell_style_of_paint(paint: Paint) -> CellStyle:
    """Convert a paint of the theme to a terminal cell's style."""
    flags = (("1", paint.bold), ("2", paint.dim), ("4", paint.underline), ("7", paint.reverse))
    return CellStyle(
        fg="39" if paint.fg is None else colour(paint.fg, 30),
        bg="49" if paint.bg is None else colour(paint.bg, 40),
        attributes=tuple(code for code, wanted in flags if wanted),
    )


def painted(text: str, paint: Paint) -> str:
    """Return a string with the SGR codes that paint it on a terminal, and those that end this paint."""
    style = cell_style_of_paint(paint)
    return f"\x1b[{';'.join((*style.attributes, style.fg, style.bg))}m{text}\x1b[m"


def colour(index: int, base: int) -> str:
    """Return the SGR code of one of the 256 colours, in short form for the first 16.

    `base` is 30 for a text colour and 40 for a background colour.
    """
    if index < 8:
        return str(base + index)
    return str(base + 60 + index - 8) if index < 16 else f"{base + 8};5;{index}"


@dataclass(slots=True)
class ShadowScreen:
    """The cells that the terminal shows now, and the cells that it should show."""

    width: int
    height: int
    cells: list[list[Cell]] = field(default_factory=list)
    wanted: list[list[Cell]] = field(default_factory=list)
    dirty: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.forget()
        self.wanted = [[(" ", PLAIN)] * self.width for _ in range(self.height)]

    def forget(self) -> None:
        """Forget what the terminal shows, so that the next frame sends every cell."""
        self.cells = [[_UNKNOWN] * self.width for _ in range(self.height)]
        self.dirty = set(range(self.height))

    def put(self, x: int, y: int, pieces: Iterable[tuple[str, CellStyle]], end: int) -> None:
        """Write styled strings into row `y`, from column `x` up to but not including column `end`."""
        if not 0 <= y < self.height:
            return
        row = self.wanted[y]
        limit = min(end, self.width)
        if 0 < x < self.width and row[x][0] == "":
            # Otherwise the first half of a wide character would remain.
            row[x - 1] = (" ", CellStyle("", row[x - 1][1].bg))
        for text, look in pieces:
            if text.isascii():
                blank = _blank(look)
                for char in text:
                    if x >= limit:
                        break
                    row[x] = blank if char == " " else (char, look)
                    x += 1
                continue
            for cell in _cut(cells_of(text), max(limit - x, 0)):
                row[x] = _blank(look) if cell == " " else (cell, look)
                x += 1
        if x < self.width and row[x][0] == "":
            row[x] = (" ", CellStyle("", row[x][1].bg))
        self.dirty.add(y)

    def flush(self) -> str:
        """Return the output that updates the terminal. Empty if nothing has changed.

        A small frame is grouped by style if that is shorter than row by row, because changing the colour takes more
        bytes than moving the cursor.
        """
        changed = [y for y in sorted(self.dirty) if self.cells[y] != self.wanted[y]]
        by_row = self._written(
            _Piece(y, start, end) for y in changed for start, end in _changed_runs(self.cells[y], self.wanted[y], GAP)
        )
        by_look = by_row
        if len(by_row) <= SMALL_FRAME:
            runs = ((y, run) for y in changed for run in _changed_runs(self.cells[y], self.wanted[y], 0))
            pieces = [piece for y, run in runs for piece in _pieces_of_one_look(self.wanted[y], y, run)]
            first = {piece.look: at for at, piece in reversed(list(enumerate(pieces)))}
            by_look = self._written(sorted(pieces, key=lambda piece: first[piece.look]))
        for y in changed:
            self.cells[y] = list(self.wanted[y])
        self.dirty.clear()
        return min(by_row, by_look, key=len)

    def _written(self, pieces: Iterable["_Piece"]) -> str:
        out: list[str] = []
        pen = _Pen()
        for y, start, end, _ in pieces:
            row = self.wanted[y]
            if y == pen.y and pen.known and pen.leaves_blank(row[pen.x : start]):
                out.append(" " * (start - pen.x))
            else:
                pen.move(out, start, y)
            for x in range(start, end):
                if row[x][0]:
                    if not pen.known:
                        pen.move(out, x, y)
                    pen.draw(out, row[x])
                    # Some terminals do not combine a mark with its letter, so the cursor may be elsewhere.
                    pen.known = len(row[x][0]) < 2
            pen.x = end
            # At the right edge a terminal may delay the wrap, so the column of the cursor is unknown.
            pen.known = pen.known and end < self.width
        if out and pen.look != PLAIN:
            out.append("\x1b[m")
        return "".join(out)


class _Piece(NamedTuple):
    """A range of cells in one row that are written together. `end` is exclusive."""

    y: int
    start: int
    end: int
    look: CellStyle = PLAIN


def _pieces_of_one_look(row: list[Cell], y: int, run: tuple[int, int]) -> Iterable[_Piece]:
    """Split a run of cells where the style changes. Blanks on the same background join the preceding piece."""
    start, end = run
    look = row[start][1]
    for x in range(start, end):
        text, own = row[x]
        if not text or own == look or (not own.fg and own.bg == look.bg and not own.attributes):
            continue
        if not look.fg and own.bg == look.bg and not look.attributes:
            look = own
            continue
        yield _Piece(y, start, x, look)
        start, look = x, own
    yield _Piece(y, start, end, look)


def _cut(cells: tuple[str, ...], room: int) -> tuple[str, ...]:
    """Truncate cells to `room`. A wide character that would be cut in half becomes a blank."""
    if len(cells) <= room:
        return cells
    return (*cells[: room - 1], " ") if room and cells[room] == "" else cells[:room]


def _blank(look: CellStyle) -> Cell:
    """Return a styled space. Only its background is kept, unless an underline or reversed colours would show."""
    return (" ", look) if _SEEN & set(look.attributes) else (" ", CellStyle("", look.bg))


_SEEN = {"4", "7"}


def _changed_runs(shown: list[Cell], wanted: list[Cell], gap: int) -> list[tuple[int, int]]:
    """Return runs of changed cells as (start, end). Runs that are at most `gap` equal cells apart are joined."""
    runs: list[tuple[int, int]] = []
    for x, (old, new) in enumerate(zip(shown, wanted, strict=True)):
        if old == new:
            continue
        start = x - 1 if x and wanted[x][0] == "" else x
        end = x + 2 if x + 1 < len(wanted) and wanted[x + 1][0] == "" else x + 1
        if runs and start - runs[-1][1] <= gap:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


@dataclass(slots=True)
class _Pen:
    x: int = 0
    y: int = -1
    known: bool = False
    look: CellStyle = PLAIN

    def move(self, out: list[str], x: int, y: int) -> None:
        if self.known and y == self.y:
            if x < self.x:
                out.append(f"\x1b[{x + 1}G")
            elif x > self.x:
                out.append(f"\x1b[{x - self.x}C" if x - self.x > 1 else "\x1b[C")
        else:
            out.append(f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H")
        self.x, self.y, self.known = x, y, True

    def leaves_blank(self, cells: list[Cell]) -> bool:
        """True if writing at most BLANKS spaces in the current style produces these cells."""
        blank = (" ", CellStyle("", self.look.bg))
        return 0 < len(cells) <= BLANKS and not _SEEN & set(self.look.attributes) and all(c == blank for c in cells)

    def draw(self, out: list[str], cell: Cell) -> None:
        text, look = cell
        if not look.fg and not _SEEN & set(self.look.attributes):
            look = self.look._replace(bg=look.bg)
        if look != self.look:
            out.append(_change(self.look, look))
            self.look = look
        out.append(text)


def _change(old: CellStyle, new: CellStyle) -> str:
    """Return the SGR sequence that changes one style into another. Removing any attribute requires resetting all."""
    if old.attributes != new.attributes and not set(old.attributes) <= set(new.attributes):
        codes = ["", *new.attributes]
        old = PLAIN
    else:
        codes = [code for code in new.attributes if code not in old.attributes]
    if new.fg and old.fg != new.fg:
        codes.append(new.fg)
    if old.bg != new.bg:
        codes.append(new.bg)
    return f"\x1b[{';'.join(codes)}m"


def put_line(
    shadow: ShadowScreen, palette: Palette, y: int, content: Line, *, chosen: bool = False, band: bool = False
) -> None:
    """Write a styled line into the shadow copy, for the first frame before Textual is loaded."""
    looks = ((span.text, cell_style_of_paint(palette.paint(span.tone, chosen=chosen, band=band))) for span in content)
    shadow.put(0, y, looks, shadow.width)
