"""Lays out tables as lines: with fixed column widths on a screen, and with columns as wide as needed in the CLI."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tui.presentation.styling.styled_text import Line, Span, Tone, left, right

_BLANK = Span("")


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table. A column of width 0 takes the remaining space."""

    id: str
    title: str
    width: int
    numeric: bool = False


def header(columns: Sequence[TableColumn], width: int, sort: str = "") -> Line:
    """Render the heading of a table. The column whose id is `sort` is highlighted."""
    spans: list[Span] = [Span("  ")]
    for column, room in zip(columns, widths(columns, width), strict=True):
        tone = Tone.ACCENT if column.id == sort else Tone.DIM
        spans.append(Span((right if column.numeric else left)(column.title, room), tone))
        spans.append(Span(" "))
    return tuple(spans)


def widths(columns: Sequence[TableColumn], width: int) -> tuple[int, ...]:
    """Return the width of each column, excluding the space between columns."""
    fixed = sum(column.width for column in columns) + len(columns) + 2
    return tuple(column.width or max(width - fixed, 8) for column in columns)


def table_row(cells: Mapping[str, Span], columns: Sequence[TableColumn], width: int) -> Line:
    """Lay out one row. `cells` is keyed by column id, and missing cells are blank."""
    spans: list[Span] = [Span("  ")]
    for column, room in zip(columns, widths(columns, width), strict=True):
        text, tone = cells.get(column.id, _BLANK)
        spans += (Span((right if column.numeric else left)(text, room), tone), Span(" "))
    return tuple(spans)


def format_records(columns: Sequence[TableColumn], rows: Iterable[Mapping[str, Span]]) -> list[str]:
    """Format records as a table with a header, without truncating any cell."""
    head = [f"{column.title:{'>' if column.numeric else '<'}{column.width}}" for column in columns]
    aligned = {padded for padded, column in zip(head, columns, strict=True) if column.numeric}
    return format_table(head, [[row[column.id].text for column in columns] for row in rows], right=aligned)


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[str] = ()) -> list[str]:
    """Align a header and rows in columns.

    Columns named in `right` are right-aligned. Trailing spaces are removed.
    """
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    aligned = set(right)
    lines = []
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if name in aligned else cell.ljust(width)
            for cell, width, name in zip(row, widths, head, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
