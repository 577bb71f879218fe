"""Releases as lines and as JSON: version pairs with their metrics and gates, the next action, and the rollback."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from core.model.names import TableName
from core.model.states import State, Trend
from core.observed.planner_input import Seconds
from core.observed.versions import Measurement
from core.run.model import StepState
from core.run.records import MigrationTicket, overdue_tickets
from core.run.release import Release, ReleasePair, ReleaseSide, ReleaseState
from core.run.stopped_statement_sentences import stopped_serving_words
from core.text.wording import counted, duration_range, first_sentence
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Line, Span, Tone, fit, line, wrap
from tui.presentation.styling.table_layout import TableColumn, format_records, header, table_row
from tui.presentation.styling.theme import STATE_TONES, TREND_TONES, WORDS_ALONE, parse_state, parse_trend, sparkline
from tui.presentation.styling.value_formatting import lag_words, moment, rate, trend_words

WIDE, WIDEST = 110, 150
"""Minimum widths: from `WIDE` on, rates and the slowest phase are shown; from `WIDEST` on, the curve of lag as well."""

SPARK = 24
"""Width of the curve of recent lag, in cells."""

TICKETS = 3
"""Maximum number of tickets shown. All others are only counted."""

_SAY_ALL = frozenset({ReleaseState.HELD, ReleaseState.OBSERVING})
"""States without a separate line, because the verdict already contains the state and its time."""

NO_LAGS: Mapping[TableName, Sequence[int | None]] = MappingProxyType({})

_GATES = {"done": "open", "skipped": "skipped", "failed": "failed", "waits": "waits", "blocked": "waits"}
_CHECKS = {"done": "checked", "running": "checking", "gate": "checking", "failed": "differs", "skipped": "skipped"}
"""Maps the state of the comparison step to the word shown once the gate is open."""

_TONES = {
    ReleaseState.HELD: Tone.CHANGING,
    ReleaseState.NEEDS_YOU: Tone.BAD,
    ReleaseState.HALTED: Tone.BAD,
    ReleaseState.DONE: Tone.GOOD,
    ReleaseState.OBSERVING: Tone.GOOD,
}


def pairs_lines(
    release: Release, width: int, rows: int, look: RowContext, lags: Mapping[TableName, Sequence[int | None]] = NO_LAGS
) -> tuple[Line, ...]:
    """Render a release: state and verdict, up to `rows` version pairs (largest lag first), rollback, and tickets.

    `lags` contains the recent lags of each table's new version, oldest first.
    """
    tone = _TONES.get(release.state, Tone.CHANGING if release.is_open else Tone.DIM)
    said = verdict(release, look.now)
    lines = list(wrap(said, width - 2, tone if release.state in _SAY_ALL else Tone.PLAIN, " ")) if said else []
    if release.state not in _SAY_ALL or not said:
        lines.insert(0, line((f" {state_words(release, look.now)}{release_time_left_words(release)}", tone)))
    shown = _by_lag(release.pairs)[:rows]
    columns = _pair_columns(width)
    lines.append(fit(header(columns, width), width))
    lines += [
        fit(table_row(_pair_cells(pair, look, lags.get(pair.table, ())), columns, width), width) for pair in shown
    ]
    if more := len(release.pairs) - len(shown):
        lines.append(line((f" and {counted(more, 'more pair')}: headgate release show {release.run}", Tone.DIM)))
    if release.serves and not (release.rollback and release.rollback in said):
        lines += wrap(rollback_words(release, look.now), width - 2, Tone.DIM, " ")
    for ticket in release.tickets[:TICKETS]:
        late = ticket.deadline < look.now
        lines += wrap(ticket_words(ticket, look.now), width - 2, Tone.BAD if late else Tone.DIM, " ")
    if (more := len(release.tickets) - TICKETS) > 0:
        lines.append(line((f" and {counted(more, 'more open ticket')}", Tone.DIM)))
    return tuple(lines)


def _by_lag(pairs: Iterable[ReleasePair]) -> list[ReleasePair]:
    return sorted(
        pairs, key=lambda pair: (pair.gate in ("done", "skipped"), -(pair.new.figures.lag_rows or 0), pair.table)
    )


_VERSION = TableColumn("version", "VER", 4)
_STATE = TableColumn("state", "STATE", 10)
_LAG = TableColumn("lag", "LAG", 5, numeric=True)
_RATES = (TableColumn("in", "IN", 7, numeric=True), TableColumn("out", "OUT", 7, numeric=True))
_SLOW = TableColumn("slow", "SLOW", 10)
_TREND = TableColumn("trend", "TREND", 12)
SIDES = (TableColumn("table", "TABLE", 5), _VERSION, _STATE, _LAG, *_RATES, _TREND, _SLOW)
"""Columns of a release's versions as the command line prints them. A table's old version comes first."""


def _pair_columns(width: int) -> tuple[TableColumn, ...]:
    wide = width >= WIDE
    table = TableColumn("table", "OLD (* serves)" if wide else "* serves", 27 if wide else 12)
    old = (replace(column, id=f"old {column.id}") for column in (_VERSION, _STATE, _LAG))
    more = (*_RATES, _SLOW) if wide else ()
    curve = (TableColumn("curve", "LAG OF NEW", SPARK),) if width >= WIDEST else ()
    new = (replace(_VERSION, title="NEW"), _STATE, _LAG, *more, _TREND, *curve)
    return (table, *old, *new, TableColumn("gate", "GATE", 0))


def _pair_cells(pair: ReleasePair, look: RowContext, lags: Sequence[int | None]) -> dict[str, Span]:
    gate = _GATES.get(pair.gate, "closed" if pair.gate else "-")
    gate = _CHECKS.get(pair.checks, gate) if gate in ("open", "skipped") else gate
    tone = Tone.GOOD if gate in ("open", "checked") else Tone.BAD if gate in ("failed", "differs") else Tone.CHANGING
    old, new = (_side_cells(pair, side, look) for side in (pair.old, pair.new))
    return {
        "table": Span(pair.table),
        **{f"old {name}": cell for name, cell in old.items()},
        **new,
        "curve": Span(sparkline(lags, SPARK, look.glyphs.levels), Tone.ACCENT),
        "gate": Span(gate, tone),
    }


def _side_cells(pair: ReleasePair, side: ReleaseSide, look: RowContext) -> dict[str, Span]:
    figures, state, serves = side.figures, parse_state(side.state), side.version == pair.serves
    trend = parse_trend(figures.trend or "unknown")
    glyph = look.glyphs.trends[trend] if figures.trend and side.runs else ""
    return {
        "version": Span(f"v{side.version}{'*' if serves else ''}", Tone.ACCENT if serves else Tone.PLAIN),
        "state": Span(f"{look.glyphs.states[state]} {state}".strip(), STATE_TONES[state]),
        "lag": Span(lag_words(figures).partition(" ")[0]),
        "in": Span(rate(figures.in_rows_s), Tone.DIM),
        "out": Span(rate(figures.out_rows_s), Tone.DIM),
        "trend": Span(f"{glyph} {trend_of(side)}".strip(), TREND_TONES[trend]),
        "slow": Span(side.slowest or "-", Tone.DIM),
    }


DETAIL = 98
"""Width at which a note is wrapped when it is shown in full, in cells."""

CAUGHT_UP = "caught up: "
"""Prefix of a gate's note once the gate has opened."""


def state_words(release: Release, now: float) -> str:
    """Return a release's state with a time, such as `held since 14:02:11` or `observing until 14:32:11`."""
    if release.state is ReleaseState.OBSERVING and release.old_until is not None:
        return f"{release.state} until {moment(release.old_until, now)}"
    if release.state is ReleaseState.DONE:
        # The time at which the soak ended is not recorded.
        return str(release.state)
    return f"{release.state} since {moment(release.since, now)}"


def verdict(release: Release, now: float) -> str:
    """Explain a release's state (what it waits for, how it ended) and what to do; empty if self-explanatory."""
    match release.state:
        case ReleaseState.HELD:
            swap = f"headgate release swap {release.run}"
            return f"Held since {moment(release.since, now)}: {swap} moves the pointers."
        case ReleaseState.HYDRATING | ReleaseState.ROLLING_BACK | ReleaseState.PREPARING:
            return _catching_up(release)
        case ReleaseState.HALTED:
            return f"No agent is running: headgate up continues run {release.run}."
        case ReleaseState.VALIDATING:
            return "Comparing the rows of both versions, as of batches that have read the same input."
        case ReleaseState.SWAPPING:
            moved = ", ".join(f"{pair.table} to v{pair.new.version}" for pair in release.pairs)
            again = f" {release.note[:1].upper()}{release.note[1:]}." if release.note else ""
            return f"Moving the pointers: {moved}.{again}"
        case ReleaseState.NEEDS_YOU:
            retry = f"headgate runs retry {release.run}, or headgate runs cancel {release.run}"
            return f"Its run has failed: {first_sentence(release.note)}. Next: {retry}.{_stopped(release)}"
        case ReleaseState.OBSERVING if release.old_until is not None and release.rollback:
            until = moment(release.old_until, now)
            return f"The replaced versions keep running until {until}; {release.rollback} takes seconds until then."
        case ReleaseState.ABORTED:
            return f"{release.note[:1].upper()}{release.note[1:]}; the old versions still serve.{_stopped(release)}"
        case ReleaseState.ROLLED_BACK:
            return f"The old versions serve again.{_stopped(release)}"
        case ReleaseState.REPLACED:
            return "Its versions have since been replaced."
        case ReleaseState.DONE if release.note:
            return f"Its run was cancelled after the swap: {release.note}."
        case _:
            return ""


def _stopped(release: Release) -> str:
    sides = (
        (pair.table, side) for pair in release.pairs for side in (pair.old, pair.new) if side.version == pair.serves
    )
    rests = [(table, side.version) for table, side in sides if not side.runs and side.state != State.ABSENT]
    words = stopped_serving_words(rests)
    return f" {words}." if words else ""


def _catching_up(release: Release) -> str:
    behind = [pair for pair in release.pairs if pair.gate in ("running", "gate") and pair.new.figures.trend]
    if not behind and release.state is ReleaseState.ROLLING_BACK:
        return "The old versions continue from their checkpoints and catch up before the pointers move."
    if not behind:
        return "The new versions are being created and started."
    last = max(behind, key=lambda pair: _last_to_catch_up(pair.new.figures))
    new = last.new.figures
    if new.lag_files == 0 or new.lag_rows == 0:
        return f"{last.table} v{last.new.version} has caught up, which is measured three times before its gate opens."
    limit = f"; most of a batch is {last.new.slowest}" if last.new.slowest else ""
    trend = "" if new.trend == Trend.UNKNOWN else f", {trend_of(last.new)}"
    words = f"{last.table} v{last.new.version} is behind by {_lag_with_unit(new)}{trend}{limit}."
    if new.in_rows_s is not None and new.out_rows_s is not None and new.out_rows_s < new.in_rows_s:
        words += " It receives more rows than it processes."
    return words


def _last_to_catch_up(figures: Measurement) -> tuple[bool, float, int]:
    return figures.eta_s is None, figures.eta_s or 0.0, figures.lag_rows or 0


def _lag_with_unit(figures: Measurement) -> str:
    return lag_words(figures) + (" rows" if figures.lag_rows is not None else "")


def trend_of(side: ReleaseSide) -> str:
    """Format the trend of a version's lag; `-` if the version is not running or its lag was never measured."""
    figures = side.figures
    if not (figures.trend and side.runs):
        return "-"
    return trend_words(parse_trend(figures.trend), figures.rate_rows_s, figures.eta_s)


def rollback_words(release: Release, now: float) -> str:
    """Return the command that rolls a release back, or why a rollback is impossible."""
    if not release.rollback:
        return f"no rollback: {release.blocked}"
    return release.rollback + (f", in seconds until {moment(release.old_until, now)}" if release.old_until else "")


def old_words(side: ReleaseSide, now: float) -> str:
    """Return an old version's state and, if it is still running, when it will be stopped."""
    if side.runs and side.stops_at is not None:
        return f"{side.state}, stops {moment(side.stops_at, now)}"
    return {"absent": "deleted"}.get(side.state, side.state)


def release_lines(releases: Iterable[Release], now: float) -> tuple[str, ...]:
    """Format each release with its verdict and rollback, then one line per table with the lags of both versions."""
    lines: list[str] = []
    for release in releases:
        left = release_time_left_words(release)
        lines.append(f"{release.run}  {state_words(release, now)}{left}  {counted(len(release.pairs), 'table')}")
        said = verdict(release, now)
        # A verdict that contains the rollback command is omitted, because the command follows.
        lines += [f"  {said}"] if said and not (release.rollback and release.rollback in said) else []
        lines.append(f"  {rollback_words(release, now)}")
        lines += [f"  ticket: {ticket_words(one, now)}" for one in overdue_tickets(release.tickets, now)]
        width = max(len(pair.table) for pair in release.pairs)
        for pair in release.pairs:
            versions = f"v{pair.old.version} → v{pair.new.version}"
            sides = (f"v{side.version} is {old_words(side, now)}{_behind(side)}" for side in (pair.old, pair.new))
            lines.append(f"  {pair.table:{width}}  {versions}  serves v{pair.serves}  {'; '.join(sides)}")
    return tuple(lines)


def _behind(side: ReleaseSide) -> str:
    """Return a version's lag, to be appended to its state; empty for a stopped version, whose lag is outdated."""
    return f", lag {_lag_with_unit(side.figures)}" if side.runs else ""


def release_details(release: Release, now: float) -> tuple[str, ...]:
    """Format one release in full. Each pair lists the old version first."""
    head = f"release {release.run}  {state_words(release, now)}{release_time_left_words(release)}  by {release.actor}"
    lines = [head, *(f"  {words}" for words in (verdict(release, now),) if words)]
    if release.state is ReleaseState.NEEDS_YOU and first_sentence(release.note) != release.note:
        lines += textwrap.wrap(
            release.note, DETAIL, initial_indent="  ", subsequent_indent="  ", break_long_words=False
        )
    lines.append("")
    look = RowContext(WORDS_ALONE, now)
    sides = [_side_cells(pair, side, look) for pair in release.pairs for side in (pair.old, pair.new)]
    names = (name for pair in release.pairs for name in (str(pair.table), ""))
    head, *rows = format_records(
        SIDES, [{**cells, "table": Span(name)} for cells, name in zip(sides, names, strict=True)]
    )
    lines.append(head)
    for pair in release.pairs:
        lines += (rows.pop(0), rows.pop(0))
        gate = first_sentence(pair.note) if pair.gate == StepState.FAILED else pair.note
        lines += [f"  gate: {gate_words(gate, pair.gate_at, now)}"] if gate else []
        found = first_sentence(pair.found) if pair.checks == StepState.FAILED else pair.found
        lines += [f"  checks: {found}"] if found else []
    lines += ["* serves", "", f"rollback  {rollback_words(release, now)}"]
    lines += [f"ticket    {ticket_words(ticket, now)}" for ticket in release.tickets]
    return tuple(line.rstrip() for line in lines)


def gate_words(note: str, opened_at: float | None, now: float) -> str:
    """Return a gate's note, including the time if the gate has opened: `caught up at 02:11:04: lag 0 rows`."""
    said = note.removeprefix(CAUGHT_UP)
    return note if opened_at is None or said == note else f"caught up at {moment(opened_at, now)}: {said}"


def release_time_left_words(release: Release) -> str:
    """Return a release's remaining time, as a suffix of its state; empty for a held release, or if it is unknown."""
    return "" if release.state is ReleaseState.HELD else time_left_words(release.left)


def time_left_words(left: Seconds | None) -> str:
    """Return a run's remaining time, as a suffix of its duration; empty if it is unknown."""
    if left is None:
        return ""
    return f", {duration_range(left.low, left.high)} left" if left.high > 0 else ", longer than predicted"


def ticket_words(ticket: MigrationTicket, now: float) -> str:
    """Describe a migration ticket: the reader, the table it must move to, where to cut over, and the deadline."""
    late = " (overdue)" if ticket.deadline < now else ""
    owner = f" ({ticket.owner})" if ticket.owner else ""
    cut = f"batch {ticket.cut_batch}, " if ticket.cut_batch is not None else ""
    return (
        f"{ticket.reader}{owner} reads {ticket.old}: move to {ticket.new}, cut at {cut}{moment(ticket.cut_at, now)}, "
        f"until {moment(ticket.deadline, now)}{late}"
    )


def release_as_json(release: Release) -> dict[str, Any]:
    """Return a release as a JSON object. `rollback` is the command that rolls it back, or null."""
    left = release.left
    return {
        "run": release.run,
        "plan": release.plan,
        "actor": release.actor,
        "state": str(release.state),
        "since": release.since,
        "open": release.is_open,
        "note": release.note or None,
        "left_low_s": left.low if left else None,
        "left_high_s": left.high if left else None,
        "pairs": [_pair_as_json(pair) for pair in release.pairs],
        "old_until": release.old_until,
        "rollback": release.rollback or None,
        "no_rollback": release.blocked or None,
        "tickets": [ticket_as_json(ticket) for ticket in release.tickets],
    }


_FIGURES = (
    "lag_rows", "lag_files", "exact", "trend", "rate_rows_s", "eta_s", "in_rows_s", "out_rows_s", "batch", "watermark",
)  # fmt: skip


def _pair_as_json(pair: ReleasePair) -> dict[str, Any]:
    body = {each.name: getattr(pair, each.name) for each in fields(pair)}
    return body | {"old": _side_as_json(pair.old), "new": _side_as_json(pair.new)}


def _side_as_json(side: ReleaseSide) -> dict[str, Any]:
    own = {name: getattr(side, name) for name in ("version", "state", "runs", "stops_at", "slowest")}
    return own | {name: getattr(side.figures, name) for name in _FIGURES}


_OF_A_TICKET = ("table", "reader", "product", "owner", "is_statement", "old", "new", "cut_batch", "cut_at", "deadline")


def ticket_as_json(ticket: MigrationTicket) -> dict[str, Any]:
    """Return an open ticket as a JSON object. Times are in epoch seconds."""
    return {name: getattr(ticket, name) for name in _OF_A_TICKET}
