"""The first picture as lines: the same as Home draws, made without any widget."""

from collections.abc import Sequence
from typing import NamedTuple

from core.differences import counted
from tui.presentation.banner import (
    STANDING_LINES,
    Hint,
    Place,
    banner,
    crumb,
    flash,
    footer,
    hints,
    nothing_lines,
    standing,
    too_small,
)
from tui.presentation.forest import Entry, by_product, initially_closed, tables_of
from tui.presentation.glyphs import Glyphs
from tui.presentation.inspector import changes_lines, event_lines, inspector_lines
from tui.presentation.possible import circumstances_of
from tui.presentation.rows import NARROW_TREE_COLUMNS, Look, columns_for, header, statement_row, tree_row
from tui.presentation.snapshot import Freshness, World, freshness
from tui.presentation.text import EMPTY, Line, fit, fold_all, line

TREE, INSPECTOR, LOWER = 56, 58, 12
"""Cells and lines of the panes of a wide terminal, as in console.tcss."""


class Row(NamedTuple):
    """A line of the picture and its ground."""

    line: Line
    chosen: bool = False
    band: bool = False


def first_frame(place: Place, world: World, *, width: int, height: int, glyphs: Glyphs, now: float) -> tuple[Row, ...]:
    """Draw Home before there is an application."""
    if width < 80 or height < 24:
        return (Row(fit(too_small(width, height, 80, 24), width)),)
    fresh = freshness(world.snapshot, now)
    look = Look(glyphs, now, stale=fresh.stale)
    entries = by_product(world, initially_closed(world), None, force_open=False)
    text, at, tone = standing(world, fresh)
    said = flash(text, at, tone, width, most=STANDING_LINES)
    rows: list[Row] = [
        Row(fit(banner(place, world, fresh, width), width), band=True),
        Row(crumb((entries[0].name,) if entries else ("all",), "", counted(len(world.statements), "table"), width)),
    ]
    body = height - 3 - len(said)
    if width >= 160:
        rows.extend(Row(content) for content in _wide(entries, world, look, width, body))
    else:
        columns = columns_for(width, wide=False)
        rows.append(Row(fit(header(columns, width), width)))
        for index in range(body - 1):
            entry = entries[index] if index < len(entries) else None
            content = tree_row(entry, columns, width, look, world) if entry else EMPTY
            if not entries:
                content = _at(nothing_lines(world, place, "", width), index)
            rows.append(Row(fit(content, width), chosen=index == 0 and entry is not None))
    rows.extend(Row(content) for content in said)
    rows.append(Row(hints(first_hints(world, fresh, entries[0] if entries else None, place.user), width)))
    return tuple(rows)


def first_hints(world: World, fresh: Freshness, entry: Entry | None, user: str) -> tuple[Hint, ...]:
    """Give the footer of Home with the cursor on its first row."""
    tables = tables_of(entry, world) if entry else ()
    now = circumstances_of(world, tables, looked=tables, user=user, stale=fresh.reason)
    return footer("home", now)


def _wide(entries: Sequence[Entry], world: World, look: Look, width: int, body: int) -> tuple[Line, ...]:
    middle = width - TREE - INSPECTOR
    columns = columns_for(middle, wide=False)
    tree = [
        header(NARROW_TREE_COLUMNS, TREE),
        *(tree_row(entry, NARROW_TREE_COLUMNS, TREE, look, world) for entry in entries[:body]),
    ]
    names = list(world.statements.values())[:body]
    listed = [header(columns, middle), *(statement_row(one, columns, middle, look) for one in names)]
    inspector = fold_all(inspector_lines(entries[0] if entries else None, None, world, look, INSPECTOR), INSPECTOR)
    upper = body - LOWER
    rows = [
        (*fit(_at(tree, y), TREE), *fit(_at(listed, y), middle), *fit(_at(inspector, y), INSPECTOR))
        for y in range(upper)
    ]
    commands = fold_all(event_lines(world, look, width - INSPECTOR), width - INSPECTOR)
    changes = fold_all(changes_lines(world, look, INSPECTOR), INSPECTOR)
    rows.extend((*fit(_at(commands, y), width - INSPECTOR), *fit(_at(changes, y), INSPECTOR)) for y in range(LOWER))
    return tuple(rows)


def _at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else line()
