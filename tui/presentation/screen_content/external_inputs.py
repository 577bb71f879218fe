"""What screens show of a table that others write: where it lies, what it holds, its newest version, what is wrong."""

from state.ledger_snapshot import StatementDetails
from tui.presentation.screen_content.statement_advice import error_text
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import EMPTY, Line, Tone, left, line, wrap
from tui.presentation.view.ledger_view import StatementView
from tui.presentation.view.table_files import input_facts


def input_overview_lines(
    statement: StatementView, facts: StatementDetails, look: RowContext, width: int
) -> tuple[Line, ...]:
    """Write the first tab of an input; its `facts` may not have been read yet."""
    lines: list[Line] = [line((" external", Tone.DIM), "  an external input: Headgate only reads it")]
    lines.extend(input_lines(facts, look, width))
    lines.extend(_labelled("read by", ", ".join(statement.readers) or "nobody", width))
    if statement.line.error:
        lines.append(EMPTY)
        lines.extend(wrap(error_text(statement.line), width - 2, Tone.BAD, " "))
    return tuple(lines)


def input_lines(facts: StatementDetails, look: RowContext, width: int) -> tuple[Line, ...]:
    """Write what is known of an input, each fact behind its name; nothing before it was read."""
    if facts.serving is None:
        return ()
    rows = facts.measurement.rows_total if facts.measurement else None
    known = input_facts(facts.serving, facts.statistics, rows, look.now)
    return tuple(each for name, words in known for each in _labelled(name, words, width))


def _labelled(name: str, words: str, width: int) -> tuple[Line, ...]:
    """Write words behind their name; what does not fit goes below them."""
    first, *more = wrap(words, width - 11)
    return (line((f" {left(name, 9)}", Tone.DIM), *first), *(line(" " * 10, *each) for each in more))
