"""Audit, command log and events as rows and texts: who, when, what, confirmed by what, with which outcome."""

from core.model.states import MISSED
from state.audit_log import op_words
from state.row_types import AuditRow, CommandRow, EventRow
from tui.presentation.reports.agent_answers import detail_words
from tui.presentation.styling.styled_text import Line, Span, Tone, fit, left, line, shorten, wrap
from tui.presentation.styling.value_formatting import moment

BAD = ("refused", "failed", "partly", "error")


def audit_columns(width: int) -> Line:
    """Write the heading of the audit."""
    return line(
        (
            "  "
            + left("WHEN", 13)
            + left("WHO", 12)
            + left("DID", 11)
            + left("TO", max(width - 70, 12))
            + left("PLAN", 6)
            + left("TYPED", 14)
            + "OUTCOME",
            Tone.DIM,
        )
    )


def audit_row(one: AuditRow, width: int, now: float) -> Line:
    """Write one entry of the audit."""
    return fit(
        (
            Span("  "),
            Span(left(moment(one.at, now), 13), Tone.DIM),
            Span(left(one.actor + " ", 12)),
            Span(left(op_words(one.action) + " ", 11), Tone.ACCENT),
            Span(left(one.subject + " ", max(width - 70, 12))),
            Span(left(one.plan_hash[:4], 6), Tone.DIM),
            Span(left(one.confirmation + " ", 14), Tone.DIM),
            Span(one.outcome, outcome_tone(one.outcome)),
        ),
        width,
    )


def command_columns(width: int) -> Line:
    """Write the heading of the command log."""
    return line(
        ("  " + left("WHEN", 13) + left("WHO", 12) + left("OUTCOME", 10) + left("TOOK", 8) + "COMMAND", Tone.DIM)
    )


def command_row(one: CommandRow, width: int, now: float) -> Line:
    """Write one command as the line that does the same."""
    took = "" if one.took_ms is None else f"{one.took_ms} ms" if one.took_ms < 1000 else f"{one.took_ms / 1000:.1f} s"
    return fit(
        (
            Span("  "),
            Span(left(moment(one.at, now), 13), Tone.DIM),
            Span(left(one.actor + " ", 12)),
            Span(left(one.outcome, 10), outcome_tone(one.outcome)),
            Span(left(took, 8), Tone.DIM),
            Span(one.line or f"{op_words(one.op)} {one.subject}"),
        ),
        width,
    )


def outcome_tone(outcome: str) -> Tone:
    """Return the tone of an outcome."""
    return Tone.BAD if outcome.startswith(BAD) else Tone.GOOD if outcome == "done" else Tone.PLAIN


def command_text(one: CommandRow, width: int) -> tuple[Line, ...]:
    """Write the whole of a command."""
    lines = list(wrap(one.line or f"{op_words(one.op)} {one.subject}", width - 4, Tone.PLAIN, "   "))
    if one.op == "stage":
        words = (
            f"staging exists only in the console; `headgate plan {one.line.removeprefix(':')}` plans the same directly"
        )
        lines.extend(wrap(words, width - 4, Tone.DIM, "   "))
    if said := detail_words(one.detail):
        lines.extend(wrap(said, width - 4, outcome_tone(one.outcome), "   "))
    return tuple(lines)


def audit_text(one: AuditRow, width: int) -> tuple[Line, ...]:
    """Write the whole of an entry."""
    text = f"{one.actor}: {op_words(one.action)} {one.subject}"
    if one.confirmation:
        text += f", confirmed by typing `{one.confirmation}`"
    if one.plan_hash:
        text += f", plan {one.plan_hash[:12]}"
    return wrap(f"{text}: {one.outcome or 'no outcome yet'}", width - 4, Tone.PLAIN, "   ")


def event_columns(width: int) -> Line:
    """Write the heading of the events."""
    return line(("  " + left("WHEN", 13) + left("TABLE", _table_width(width)) + left("KIND", 10) + "WHAT", Tone.DIM))


def _table_width(width: int) -> int:
    return 22 if width < 120 else 40


def event_row(one: EventRow, width: int, now: float) -> Line:
    """Write one event."""
    return fit(
        (
            Span("  "),
            Span(left(moment(one.at, now), 13), Tone.DIM),
            Span(left(one.about or "-", _table_width(width) - 1) + " "),
            Span(left(one.kind, 10), Tone.DIM),
            Span(shorten(event_words(one), width - _table_width(width) - 25), event_tone(one)),
        ),
        width,
    )


def event_words(one: EventRow) -> str:
    """Write what happened, and how often where that is known."""
    return one.summary + (f" ({one.count}x)" if one.count > 1 else "")


def event_tone(one: EventRow) -> Tone:
    """Return the tone of an event: what ended with an error is bad."""
    return Tone.BAD if one.kind in ("exception", MISSED) or one.summary.endswith("failed") else Tone.PLAIN


def event_text(one: EventRow, width: int, now: float) -> tuple[Line, ...]:
    """Write the whole of an event."""
    since = f", first {moment(one.first_at, now)}" if one.count > 1 else ""
    lines = list(wrap(event_words(one) + since, width - 4, event_tone(one), "   "))
    if one.detail:
        lines.extend(wrap(one.detail, width - 4, Tone.PLAIN, "   "))
    return tuple(lines)
