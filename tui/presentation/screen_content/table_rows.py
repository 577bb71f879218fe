"""Some rows of a table, aligned in columns."""

from collections.abc import Sequence

from tui.presentation.styling.styled_text import Line, Tone, left, line, width_of

CELL = 40
"""Cells that one value takes at most."""


def row_lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[Line, ...]:
    """Write a heading and the rows; what has no value is null."""
    if not rows:
        return (line((" no rows yet", Tone.DIM)),)
    cells = [["null" if one is None else str(one).replace("\n", " ") for one in row] for row in rows]
    widths = [min(max(width_of(row[at]) for row in (columns, *cells)), CELL) for at in range(len(columns))]

    def written(row: Sequence[str]) -> str:
        return " " + "  ".join(left(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()

    return (line((written(columns), Tone.DIM)), *(line(written(row)) for row in cells))
