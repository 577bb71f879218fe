"""Renders the home screen as lines, without widgets, so that it can be shown before Textual is imported.

With 1,000 statements, this reduces the time to the first content to 55 % (`tests/bench/speed_tricks.py`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from core.text.wording import counted
from tui.presentation.interaction.action_availability import action_context_of
from tui.presentation.screen_content.inspector import changes_lines, event_lines, inspector_lines
from tui.presentation.screen_content.screen_frame import (
    STANDING_LINES,
    WIDE,
    ConsoleIdentity,
    KeyHint,
    banner_line,
    breadcrumb_line,
    footer,
    hints,
    message_lines,
    nothing_lines,
    standing_message,
    too_small,
)
from tui.presentation.screen_content.statement_rows import (
    NARROW_TREE_COLUMNS,
    RowContext,
    columns_for,
    statement_row,
    tree_row,
)
from tui.presentation.styling.styled_text import EMPTY, Line, fit, line, wrap_lines
from tui.presentation.styling.table_layout import header
from tui.presentation.styling.theme import Glyphs
from tui.presentation.view.ledger_view import Access, Freshness, LedgerView, access_of, freshness
from tui.presentation.view.statement_tree import TreeRow, by_product, folded_to_fit, tables_of

TREE, INSPECTOR, LOWER = 56, 58, 12
"""Width of tree and inspector, in cells, and height of the lower panes, in lines, as in console.tcss."""


class FrameLine(NamedTuple):
    """A line of the home screen, and whether it has the background of the cursor's row or of a band."""

    line: Line
    chosen: bool = False
    band: bool = False


def first_frame_lines(
    identity: ConsoleIdentity, view: LedgerView, *, width: int, height: int, glyphs: Glyphs, now: float
) -> tuple[FrameLine, ...]:
    """Render the home screen as it first appears, with the cursor on the first row."""
    if width < 80 or height < 24:
        return (FrameLine(fit(too_small(width, height, 80, 24), width)),)
    fresh = freshness(view.snapshot, now)
    access = access_of(view.snapshot, identity.user, now)
    look = RowContext(glyphs, now, stale=fresh.stale)
    entries = by_product(view, folded_to_fit(view, tree_page(width, height)), None, force_open=False)
    text, at, tone = standing_message(view, fresh, now)
    said = message_lines(text, at, tone, width, most=STANDING_LINES)
    body = height - 3 - len(said)
    page = body - 1 if width < WIDE else body - LOWER - 1
    counts = counted(len(view.statements), "table")
    if len(entries) > page:
        counts += f", {counted(len(entries) - page, 'more row')} below"
    rows: list[FrameLine] = [
        FrameLine(fit(banner_line(identity, view, fresh, width, access=access), width), band=True),
        FrameLine(breadcrumb_line((entries[0].name,) if entries else ("all",), "", counts, width)),
    ]
    if width >= WIDE:
        rows.extend(FrameLine(content) for content in _wide(entries, view, look, width, body))
    else:
        columns = columns_for(width, wide=False)
        rows.append(FrameLine(fit(header(columns, width), width)))
        for index in range(body - 1):
            entry = entries[index] if index < len(entries) else None
            content = tree_row(entry, columns, width, look, view) if entry else EMPTY
            if not entries:
                content = _at(nothing_lines(view, identity, "", width), index)
            rows.append(FrameLine(fit(content, width), chosen=index == 0 and entry is not None))
    rows.extend(FrameLine(content) for content in said)
    rows.append(
        FrameLine(hints(first_hints(view, fresh, access, entries[0] if entries else None, identity.user), width))
    )
    return tuple(rows)


def tree_page(width: int, height: int) -> int:
    """Return how many tree rows fit below the heading while the status message occupies one line."""
    return height - 5 - (LOWER if width >= WIDE else 0)


def first_hints(
    view: LedgerView, fresh: Freshness, access: Access, entry: TreeRow | None, user: str
) -> tuple[KeyHint, ...]:
    """Return the footer of the home screen while the cursor is on the first row."""
    tables = tables_of(entry, view) if entry else ()
    now = action_context_of(view, tables, viewed=tables, user=user, fresh=fresh, access=access)
    return footer("home", now)


def _wide(entries: Sequence[TreeRow], view: LedgerView, look: RowContext, width: int, body: int) -> tuple[Line, ...]:
    middle = width - TREE - INSPECTOR
    columns = columns_for(middle, wide=False)
    tree = [
        header(NARROW_TREE_COLUMNS, TREE),
        *(tree_row(entry, NARROW_TREE_COLUMNS, TREE, look, view) for entry in entries[:body]),
    ]
    names = list(view.statements.values())[:body]
    listed = [header(columns, middle), *(statement_row(one, columns, middle, look) for one in names)]
    upper = body - LOWER
    first = entries[0] if entries else None
    inspector = wrap_lines(inspector_lines(first, None, view, look, width=INSPECTOR, height=upper), INSPECTOR)
    rows = [
        (*fit(_at(tree, y), TREE), *fit(_at(listed, y), middle), *fit(_at(inspector, y), INSPECTOR))
        for y in range(upper)
    ]
    commands = wrap_lines(event_lines(view, look, width - INSPECTOR), width - INSPECTOR)
    changes = wrap_lines(changes_lines(view, look, INSPECTOR), INSPECTOR)
    rows.extend((*fit(_at(commands, y), width - INSPECTOR), *fit(_at(changes, y), INSPECTOR)) for y in range(LOWER))
    return tuple(rows)


def _at(lines: Sequence[Line], y: int) -> Line:
    return lines[y] if y < len(lines) else line()
