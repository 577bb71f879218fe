"""Panes beside and below the tree on a wide terminal: the inspector, events and commands, staged tables and runs."""

from core.model.act_outcomes import NOT_DONE
from core.model.states import State
from core.text.wording import counted
from state.audit_log import op_words
from state.ledger_snapshot import StatementDetails
from tui.presentation.screen_content.audit_log_events import event_tone, event_words
from tui.presentation.screen_content.releases import state_words
from tui.presentation.screen_content.statement_advice import advise, error_text
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.screen_content.statement_sheet import sheet_lines, statement_sheet
from tui.presentation.styling.styled_text import EMPTY, Line, Tone, colour_sql, line, shorten, wrap
from tui.presentation.styling.theme import STATE_TONES
from tui.presentation.styling.value_formatting import moment
from tui.presentation.view.ledger_view import LedgerView, StatementView
from tui.presentation.view.statement_tree import TreeRow, tables_of

HEAD_LINES, TALL = 7, 40
"""Lines reserved for state, verdict and error, which rarely need more, in a pane of at least `TALL` lines."""
SQL_LINES = 16
"""Maximum number of SQL lines shown below a statement's sheet."""


def inspector_lines(
    entry: TreeRow | None,
    details: StatementDetails | None,
    view: LedgerView,
    look: RowContext,
    *,
    width: int,
    height: int = 0,
) -> tuple[Line, ...]:
    """Render the fact sheet and the SQL of the row under the cursor.

    `details` of another statement are ignored. In a pane of at least `TALL` lines, the facts below the verdict and the
    error always begin on the same line, so that moving to another statement redraws only the lines that differ.
    """
    if entry is None:
        return ()
    if entry.statement is None:
        return branch_lines(entry, view, look, width)
    statement = entry.statement
    deployed = details.shown if details else None
    read = deployed is not None and (deployed.table, deployed.version) == (statement.table, statement.version)
    known = details if details is not None and read else StatementDetails(statement.table)
    sql = colour_sql(known.shown.texts.shown["dml"], " ")[:SQL_LINES] if known.shown is not None else ()
    facts = statement_sheet(statement, known, view, look)
    body = [fact.name for fact in facts].index("product")
    head = sheet_lines(facts[:body], look, width)
    space = (EMPTY,) * (HEAD_LINES - len(head) if height >= TALL else 0)
    return (*head, *space, *sheet_lines(facts[body:], look, width), EMPTY, *sql)


def branch_lines(entry: TreeRow, view: LedgerView, look: RowContext, width: int) -> tuple[Line, ...]:
    """Render a tree branch's name and size, followed by the verdict on each of its faulty statements."""
    own = len(tables_of(entry, view))
    lines: list[Line] = [
        line((f" {entry.name}", Tone.TITLE), (f"  {counted(own, 'statement') if own else 'external'}", Tone.DIM)),
    ]
    below = entry.tables or entry.below
    faults = [found for name in below if (found := view.statement(name)) is not None and _is_bad(found, look.now)]
    if not faults:
        return (*lines, line((" all healthy", Tone.GOOD))) if own else tuple(lines)
    for found in faults:
        if found.external:
            lines.append(line((f" {look.glyphs.states[State.FAILED]} {found.table}", Tone.BAD)))
            lines.extend(wrap(error_text(found.line), width - 4, Tone.BAD, "   "))
            continue
        lines.append(line((f" {look.glyphs.states[found.state]} {found.table}", STATE_TONES[found.state])))
        words, tone = advise(found, found.line.measurement, view, look)
        lines.extend(wrap(words, width - 4, tone, "   "))
    return tuple(lines)


def _is_bad(found: StatementView, now: float) -> bool:
    """True if a statement has a fault, or if it is not running and its position is lost or about to be lost."""
    left = None if found.faulty or found.runs else found.time_left(now)
    return found.faulty or (left is not None and left.at_risk)


def event_lines(view: LedgerView, look: RowContext, width: int) -> tuple[Line, ...]:
    """List the latest events and commands. A failed command includes the agent's answer."""
    found: list[tuple[float, str, Tone]] = []
    for command in view.snapshot.commands:
        bad = command.outcome in NOT_DONE
        words = f"{op_words(command.op)} {command.subject}: {command.outcome} by {command.actor}"
        found.append((command.at, f"{words}  {command.detail}" if bad else words, Tone.BAD if bad else Tone.PLAIN))
    for event in view.snapshot.events:
        about = f"{event.about}: " if event.table else ""
        found.append((event.at, about + event_words(event), event_tone(event)))
    newest = sorted(found, key=lambda one: -one[0])[:20]
    return (
        line((" EVENTS AND COMMANDS", Tone.DIM), ("   :events  m", Tone.GHOST)),
        *(
            line((f" {moment(at, look.now)} ", Tone.DIM), (shorten(text, width - 16), tone))
            for at, text, tone in newest
        ),
    )


def changes_lines(view: LedgerView, look: RowContext, width: int) -> tuple[Line, ...]:
    """List the open runs and releases, followed by the staged tables."""
    lines: list[Line] = [line((" STAGED AND RUNNING", Tone.DIM))]
    for run in view.snapshot.open_runs:
        done = sum(1 for step in run.steps if step.state in ("done", "kept", "skipped"))
        lines.append(
            line(
                (f" run {run.id[:10]} {run.state}", Tone.CHANGING),
                f"  {done} of {counted(len(run.steps), 'step')}",
                (f"  by {run.actor}", Tone.DIM),
            )
        )
    for release in view.snapshot.releases:
        words = f" run {release.run[:10]} {state_words(release, look.now)}"
        lines.append(line((words, Tone.CHANGING)))
    for mark in view.snapshot.staged:
        lines.append(
            line((f" {mark.verb:7}", Tone.MARK), shorten(mark.table, width - 24), (f"  by {mark.actor}", Tone.DIM))
        )
    if len(lines) == 1:
        lines.append(line((" nothing is staged, no run is open", Tone.DIM)))
    return tuple(lines)
