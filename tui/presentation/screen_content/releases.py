"""The pairs of a release above the steps of its run: both versions of each table, and what is waited for."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from core.model.names import TableName
from core.run.release import Release, ReleasePair, ReleaseSide, ReleaseState
from core.text.wording import counted
from tui.presentation.reports.releases import (
    lag_words,
    left_words,
    state_words,
    ticket_words,
    trend_of,
    verdict,
    way_words,
)
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.glyphs import STATE_TONES, TREND_TONES, parse_state, parse_trend, sparkline
from tui.presentation.styling.styled_text import Line, Span, Tone, fit, left, line, right, shorten, wrap
from tui.presentation.styling.value_formatting import rate

WIDE, WIDEST = 110, 150
"""From so many columns on, rates and what limits a version stand beside it, then how its lag went."""

SPARK = 24
"""Cells of how a lag went."""

TICKETS = 3
"""Tickets that are shown; the others are counted."""

_SAY_ALL = frozenset({ReleaseState.HELD, ReleaseState.OBSERVING})
"""States whose verdict says the state and its time."""

NO_LAGS: Mapping[TableName, Sequence[int | None]] = MappingProxyType({})

_GATES = {"done": "open", "skipped": "skipped", "failed": "failed", "waits": "waits", "blocked": "waits"}
_CHECKS = {"done": "checked", "running": "checking", "gate": "checking", "failed": "differs", "skipped": "skipped"}
"""What a comparison says of a version whose gate is open."""

_TONES = {
    ReleaseState.HELD: Tone.CHANGING,
    ReleaseState.NEEDS_YOU: Tone.BAD,
    ReleaseState.DONE: Tone.GOOD,
    ReleaseState.OBSERVING: Tone.GOOD,
}


def pairs_lines(
    release: Release, width: int, rows: int, look: RowContext, lags: Mapping[TableName, Sequence[int | None]] = NO_LAGS
) -> tuple[Line, ...]:
    """Write state and verdict, then `rows` pairs at most, those that are behind furthest first, and the way back.

    `lags` are the last ones of new versions, oldest first.
    """
    tone = _TONES.get(release.state, Tone.CHANGING if release.is_open else Tone.DIM)
    said = verdict(release, look.now)
    lines = list(wrap(said, width - 2, tone if release.state in _SAY_ALL else Tone.PLAIN, " ")) if said else []
    if release.state not in _SAY_ALL or not said:
        lines.insert(0, line((f" {state_words(release, look.now)}{left_words(release)}", tone)))
    shown = _by_lag(release.pairs)[:rows]
    lines.append(_head(width))
    lines += [_row(pair, width, look, lags.get(pair.table, ())) for pair in shown]
    if more := len(release.pairs) - len(shown):
        lines.append(line((f" and {counted(more, 'more pair')}: headgate release show {release.run}", Tone.DIM)))
    if release.serves and not (release.rollback and release.rollback in said):
        lines += wrap(way_words(release, look.now), width - 2, Tone.DIM, " ")
    for ticket in release.tickets[:TICKETS]:
        late = ticket.deadline < look.now
        lines += wrap(ticket_words(ticket, look.now), width - 2, Tone.BAD if late else Tone.DIM, " ")
    if (more := len(release.tickets) - TICKETS) > 0:
        lines.append(line((f" and {counted(more, 'more open ticket')}", Tone.DIM)))
    return tuple(lines)


def _by_lag(pairs: Iterable[ReleasePair]) -> list[ReleasePair]:
    return sorted(pairs, key=lambda pair: (pair.gate in ("done", "skipped"), -(pair.new.lag_rows or 0), pair.table))


def _head(width: int) -> Line:
    side = left("VER", 4) + left("STATE", 11) + right("LAG", 6)
    more = right("IN", 8) + right("OUT", 8) + "  " + left("SLOW", 11) if width >= WIDE else ""
    table = left("OLD (* serves)" if width >= WIDE else "* serves", _table_width(width))
    words = f" {table}{side}  {left('NEW', 4)}{side[4:]}{more}  "
    gone = left("LAG OF NEW", SPARK + 2) if width >= WIDEST else ""
    return fit(line((words + left("TREND", 12) + gone + "GATE", Tone.DIM)), width)


def _table_width(width: int) -> int:
    return 13 if width < WIDE else 28


def _row(pair: ReleasePair, width: int, look: RowContext, lags: Sequence[int | None]) -> Line:
    new, cells = pair.new, _table_width(width)
    name = left(shorten(pair.table, cells - 1, look.glyphs.ellipsis), cells)
    spans = [Span(f" {name}"), *_side(pair, pair.old, look), Span("  "), *_side(pair, new, look)]
    if width >= WIDE:
        limits = right(rate(new.in_rows_s), 8) + right(rate(new.out_rows_s), 8) + "  " + left(new.slowest or "-", 11)
        spans.append(Span(limits, Tone.DIM))
    gate = _GATES.get(pair.gate, "closed" if pair.gate else "-")
    gate = _CHECKS.get(pair.checks, gate) if gate in ("open", "skipped") else gate
    tone = Tone.GOOD if gate in ("open", "checked") else Tone.BAD if gate in ("failed", "differs") else Tone.CHANGING
    trend = parse_trend(new.trend or "unknown")
    words = f"{look.glyphs.trends[trend]} {trend_of(new)}" if new.trend and new.runs else "-"
    spans.append(Span("  " + left(words, 12), TREND_TONES[trend]))
    if width >= WIDEST:
        spans.append(Span(sparkline(lags, SPARK, look.glyphs.levels) + "  ", Tone.ACCENT))
    return fit((*spans, Span(gate, tone)), width)


def _side(pair: ReleasePair, side: ReleaseSide, look: RowContext) -> tuple[Span, ...]:
    state = parse_state(side.state)
    serves = side.version == pair.serves
    return (
        Span(left(f"v{side.version}{'*' if serves else ''}", 4), Tone.ACCENT if serves else Tone.PLAIN),
        Span(left(f"{look.glyphs.states[state]} {state}", 11), STATE_TONES[state]),
        Span(right(lag_words(side).partition(" ")[0], 6)),
    )
