"""The changes screen: tables whose files differ from what is deployed, and staged tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.model.problems import Problem
from core.project.revision import RevisionTexts
from core.text.wording import counted
from state.row_types import StagedRow
from tui.presentation.styling.styled_text import EMPTY, Line, Span, Tone, difference, fit, line, wrap
from tui.presentation.styling.table_layout import TableColumn, table_row
from tui.presentation.styling.theme import Glyphs

DELETED = "deleted, files still there"
"""The change shown for a deleted table whose files still exist. It is not counted as a difference."""


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A row of the changes screen: a table that is staged, or whose files differ from what is deployed."""

    table: str
    change: str
    would: str
    """The action that a plan would take on the table."""
    reason: str = ""
    old: RevisionTexts = field(default_factory=RevisionTexts)
    new: RevisionTexts = field(default_factory=RevisionTexts)
    folder: str = ""
    staged: tuple[StagedRow, ...] = ()
    compared: bool = True
    """True if the files could be compared with what is deployed."""
    problems: tuple[Problem, ...] = ()
    """The errors in the table's files."""
    files: tuple[str, ...] = ()
    """What is shown above the diffs of SQL, DDL and settings; empty for the files in `folder`."""


def summary(changes: Sequence[ChangeRow], user: str, *, compared: bool = True) -> str:
    """Summarize how many tables differ, are deleted and are staged.

    Unless `compared`, only the staged tables are counted.
    """
    differ = sum(1 for one in changes if one.change and one.change != DELETED)
    deleted = sum(1 for one in changes if one.change == DELETED)
    mine = sum(1 for one in changes for mark in one.staged if mark.actor == user)
    others = sum(1 for one in changes for mark in one.staged if mark.actor != user)
    theirs = f"   {others} by others" if others else ""
    found = counted(differ, "difference") + (f", {deleted} deleted" if deleted else "")
    return f"{found if compared else 'not compared'}   {mine} staged by you{theirs}"


def columns(width: int) -> tuple[TableColumn, ...]:
    """Return the columns of a changes screen that is `width` cells wide."""
    name, other = (21, 13) if width < 120 else (39, 23)
    return (
        TableColumn("table", "TABLE", name),
        TableColumn("change", "CHANGE", 0),
        TableColumn("would", "WOULD", other),
        TableColumn("staged", "STAGED", other),
    )


STAGE_KEYS = {"deploy": "D", "hold": "B", "delete": "X"}
"""Maps a staged verb to the key that stages it."""


def row(one: ChangeRow, width: int, user: str) -> Line:
    """Format one row of the changes screen. Each staged mark shows the user who set it."""
    marks = ", ".join(f"{STAGE_KEYS.get(mark.verb, 'D')} by {mark.actor}" for mark in one.staged)
    same = "the files match what is deployed" if one.compared else "not compared"
    cells = {
        "table": Span(one.table),
        "change": Span(one.change or same, Tone.PLAIN if one.change else Tone.DIM),
        "would": Span(one.would, would_tone(one.would)),
        "staged": Span(marks, Tone.MARK if any(mark.actor == user for mark in one.staged) else Tone.DIM),
    }
    return table_row(cells, columns(width), width)


def would_tone(would: str) -> Tone:
    """Return the tone in which a planned action is shown."""
    if would.startswith(("delete", "refused")):
        return Tone.BAD
    return Tone.CHANGING if would.startswith(("rebuild", "restart")) else Tone.PLAIN


def detail(one: ChangeRow, width: int, glyphs: Glyphs, *, full: bool) -> tuple[Line, ...]:
    """Format a table's problems, the diffs of its files, and the reason for the planned action. `full` adds context."""
    lines: list[Line] = [rule(one.table, width, glyphs), *problem_lines(one.problems, "")]
    context = 50 if full else 1
    below = (f"sql-scripts/dml.{one.table}.sql", f"sql-scripts/ddl.{one.table}.sql", f"{one.table}.yml")
    paths = one.files or tuple(f"{one.folder + '/' if one.folder else ''}{path}" for path in below)
    pairs = zip(one.old.shown.values(), one.new.shown.values(), strict=True)
    for path, (old, new) in zip(paths, pairs, strict=True):
        changes = difference(old, new, context)
        if changes:
            lines.append(line((f"   {path}", Tone.DIM)))
            lines.extend(changes)
    if one.reason:
        lines.append(EMPTY)
        lines.extend(wrap(one.reason, width - 4, Tone.PLAIN, "   "))
    return tuple(lines)


def rule(title: str, width: int, glyphs: Glyphs) -> Line:
    """Draw a horizontal rule that contains a title."""
    start = f" {glyphs.rule} "
    return fit(line((start, Tone.DIM), (title, Tone.TITLE), (" " + glyphs.rule * width, Tone.DIM)), width)


LISTED = 20
"""Maximum number of problems that are listed."""


def problem_lines(problems: Sequence[Problem], missing: str) -> tuple[Line, ...]:
    """List the first problems in the project's files with their remedies, then the number of other problems."""
    lines = [line((f" {missing}", Tone.BAD))] if missing else []
    for problem in problems[:LISTED]:
        place = f"{problem.where}: " if problem.where else ""
        tone = Tone.BAD if problem.severity == "error" else Tone.CHANGING
        lines += [line((f" {place}{problem.summary}", tone)), line((f"   {problem.remedy}", Tone.DIM))]
    if more := len(problems[LISTED:]):
        lines.append(line((f" {counted(more, 'more problem')}: headgate plan lists all", Tone.DIM)))
    return tuple(lines)


def merge(
    drift: Mapping[str, ChangeRow], staged: Sequence[StagedRow], *, compared: bool = True
) -> tuple[ChangeRow, ...]:
    """Join file differences and staged marks, sorted by table. `compared` is False if the files are unreadable."""
    marks: dict[str, tuple[StagedRow, ...]] = {}
    for mark in staged:
        marks[mark.table] = (*marks.get(mark.table, ()), mark)
    rows: list[ChangeRow] = []
    for table in sorted({*drift, *marks}):
        mine = marks.get(table, ())
        row = drift.get(table) or ChangeRow(table, "", "keep" if compared else "?", compared=compared)
        would = "delete" if any(mark.verb == "delete" for mark in mine) else row.would
        rows.append(replace(row, would=would, staged=mine))
    return tuple(rows)
