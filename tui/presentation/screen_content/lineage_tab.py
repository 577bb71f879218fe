"""The lineage tab: the parents and readers of a statement, and the lineage of one of its columns."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.presentation.reports.column_lineage import BranchKind, LineageTreeRow, gap_line, row_conditions, tree
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import EMPTY, Line, Span, Tone, fit, left, line, width_of, wrap
from tui.presentation.styling.theme import STATE_TONES
from tui.presentation.view.ledger_view import LedgerView, StatementView

if TYPE_CHECKING:
    from core.lineage.column_lineage import ColumnLineage

HEADING = " COLUMNS"
_NARROW = 100


@dataclass(frozen=True, slots=True)
class ColumnDetails:
    """A table's columns as declared in the files, and the lineage of the chosen column."""

    names: tuple[str, ...] = ()
    chosen: str = ""
    up: "ColumnLineage | None" = None
    down: "ColumnLineage | None" = None
    missing: str = ""
    """Why the lineage is unknown; empty if it is known."""


def column_lines(facts: ColumnDetails | None, width: int, *, differs_from: str = "") -> tuple[Line, ...]:
    """Render a table's columns and the lineage of the chosen column, as the files declare them.

    `facts` is None until the files have been read. `differs_from` is the deployed version, such as `v3`, if the files
    have another statement; otherwise it is empty.
    """
    edited = f", which differ from {differs_from}" if differs_from else ""
    head = line((f"{HEADING} in the files", Tone.DIM), (edited, Tone.CHANGING), ("   h and l choose another", Tone.DIM))
    if facts is None:
        return (EMPTY, head, line(("   reading the files", Tone.DIM)))
    if facts.up is None or facts.down is None:
        return (EMPTY, head, *wrap(facts.missing, width - 1, Tone.CHANGING, "   "))
    decided = [
        row
        for each in row_conditions(facts.up)
        for row in _wrapped("   " + left(each.table, 24), f"{each.clause} {each.expression}", Tone.PLAIN, width)
    ]
    gaps = dict.fromkeys(gap_line(gap) for found in (facts.up, facts.down) for gap in found.gaps)
    return (
        EMPTY,
        head,
        *_names(facts, width),
        *_way(facts.up, "STANDS ON", width),
        *_way(facts.down, "FEEDS", width),
        *((EMPTY, line((" ROWS DECIDED BY", Tone.DIM))) if decided else ()),
        *decided,
        *((EMPTY, line((" NOT TRACED", Tone.CHANGING))) if gaps else ()),
        *(each for gap in gaps for each in wrap(gap, width - 1, Tone.CHANGING, "   ")),
    )


def _names(facts: ColumnDetails, width: int) -> tuple[Line, ...]:
    lines: list[Line] = []
    spans: list[Span] = []
    room = width - 3
    for name in facts.names:
        tone = Tone.TITLE if name == facts.chosen else Tone.PLAIN
        text = f"[{name}]" if name == facts.chosen else name
        if spans and width_of(text) + 2 > room:
            lines.append(line(Span("   "), *spans))
            spans, room = [], width - 3
        spans.append(Span(f"{text}  ", tone))
        room -= width_of(text) + 2
    return (*lines, line(Span("   "), *spans))


def _way(found: "ColumnLineage", word: str, width: int) -> tuple[Line, ...]:
    branches = tree(found)
    head = line((f" {found.root.column} {word}", Tone.DIM))
    if len(branches) == 1:
        text = branches[0].expression
        nothing = "no column" if word == "STANDS ON" else "no statement"
        return (EMPTY, head, line(f"   {nothing}", (f"   = {text}" if text and word == "STANDS ON" else "", Tone.DIM)))
    names = [_name(branch) for branch in branches]
    room = min(max(width_of(name) for name in names) + 2, width // 2)
    return (EMPTY, head, *(row for branch in branches for row in _rows(branch, room, width)))


def _rows(branch: LineageTreeRow, room: int, width: int) -> tuple[Line, ...]:
    text = f"= {branch.expression}" if branch.expression else branch.place
    text = "shown above" if branch.kind is BranchKind.AGAIN else text
    if width >= _NARROW:
        place = branch.place if text == branch.place else f"{left(branch.place, 32)} {text}"
        text = f"{left(branch.type, 12)} {place}"
    return _wrapped(left(_name(branch), room), text, Tone.DIM if branch.kind is BranchKind.STEP else Tone.PLAIN, width)


def _wrapped(start: str, text: str, tone: Tone, width: int) -> tuple[Line, ...]:
    if width_of(start) + 1 + width_of(text) <= width:
        return (line((start, tone), (f" {text}", Tone.DIM)),)
    return (fit(line((start, tone)), width), *wrap(text, width - 1, Tone.DIM, "        "))


def _name(branch: LineageTreeRow) -> str:
    return "   " + "  " * branch.depth + branch.mark + branch.name


def lineage_lines(statement: StatementView, view: LedgerView, look: RowContext) -> tuple[Line, ...]:
    """Render the tables upstream and downstream of a statement, two levels in each direction."""
    lines: list[Line] = [line((" READS", Tone.DIM))]
    for one in statement.parents:
        how = "stream" if one.streamed else "static"
        lines.append(
            _relative(one.parent, f"{how}  {'v' + str(one.version) if one.version else 'external'}", view, look, 1)
        )
        parent = view.statement(one.parent)
        for grand in parent.parents if parent else ():
            lines.append(_relative(grand.parent, "stream" if grand.streamed else "static", view, look, 2))
    if not statement.parents:
        lines.append(line(("   nothing", Tone.DIM)))
    lines.extend((EMPTY, line((" READ BY", Tone.DIM))))
    for reader in statement.readers:
        bound = view.statements[reader]
        binding = next(one for one in bound.parents if one.parent == statement.table)
        how = "stream" if binding.streamed else "static"
        note = f"{how}  {f'v{binding.version}' if binding.version else ''}  {bound.line.product}"
        lines.append(_relative(reader, note, view, look, 1))
        for below in bound.readers:
            lines.append(_relative(below, view.statements[below].line.product, view, look, 2))
    if not statement.readers:
        lines.append(line(("   no statement", Tone.DIM)))
    return tuple(lines)


def _relative(table: str, note: str, view: LedgerView, look: RowContext, depth: int) -> Line:
    found = view.statement(table)
    name = "   " * depth + table
    if found is None or found.external:
        return line(
            left(name, 36), (f"{look.glyphs.dot} external   " if found else "? unknown    ", Tone.DIM), (note, Tone.DIM)
        )
    return line(
        left(name, 36),
        (left(f"{look.glyphs.states[found.state]} {found.state}", 13), STATE_TONES[found.state]),
        (note, Tone.DIM),
    )
