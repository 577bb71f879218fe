"""The timeline of one table in the console: what changed, newest first."""

from collections.abc import Sequence

from state.audit_log import op_words
from tui.presentation.reports.table_history import HistoryEntry, entry_words
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Line, Tone, left, line, wrap
from tui.presentation.styling.value_formatting import moment

INDENT = " " * 24
_KIND_TONES = {"deploy": Tone.ACCENT, "serves": Tone.ACCENT, "schema": Tone.CHANGING, "stop": Tone.CHANGING}


def timeline_lines(history: Sequence[HistoryEntry] | None, look: RowContext, width: int) -> tuple[Line, ...]:
    """Write a timeline, newest first, each entry with what explains it below; None is not read yet."""
    if history is None:
        return (line((" reading", Tone.DIM)),)
    lines: list[Line] = []
    for entry in reversed(history):
        tone = Tone.BAD if entry.bad else Tone.PLAIN
        kind_tone = Tone.BAD if entry.bad else _KIND_TONES.get(entry.kind, Tone.PLAIN)
        first, *more = wrap(entry_words(entry), width - len(INDENT) - 1, tone)
        when = line((f" {left(moment(entry.at, look.now), 13)}", Tone.DIM), (left(op_words(entry.kind), 10), kind_tone))
        lines.append((*when, *first))
        lines += [(*line(INDENT), *rest) for rest in more]
        for words in entry.detail.splitlines()[:1]:
            lines += wrap(words, width - 1, Tone.DIM, INDENT)[:2]
    return tuple(lines) or (line((" nothing has changed since it was registered", Tone.DIM)),)
