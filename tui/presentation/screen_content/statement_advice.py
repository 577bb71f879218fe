"""The verdict on a statement: its condition and the recommended action, in one or two sentences."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from core.model.errors import JOB_ERRORS
from core.model.names import TableName, query_name, trigger_s
from core.model.states import ALIVE, Fault, State, TableFaultKind, Trend, WantedState
from core.observed.versions import Measurement, StatementLine
from core.project.model import Pool
from core.text.secret_masking import mask_secrets
from core.text.wording import counted
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.styled_text import Tone
from tui.presentation.styling.value_formatting import (
    long_duration,
    long_number,
    short_duration,
    short_number,
    short_size,
)
from tui.presentation.view.ledger_view import LedgerView, StatementView, uncommitted


def advise(
    statement: StatementView,
    measurement: Measurement | None,
    view: LedgerView,
    look: RowContext,
    *,
    by_key: bool = True,
) -> tuple[str, Tone]:
    """Return the verdict on a statement, with its tone.

    With `by_key`, the recommended action is given as a key; otherwise, as a command.
    """
    bad = [
        f"{one.parent} is {parent.state}"
        for one in statement.parents
        if (parent := view.statement(one.parent)) is not None
        and not parent.external
        and str(parent.state) in ("failed", "stopped", "absent")
    ]
    table = statement.table if statement.line.active else query_name(statement.line.table, statement.version)
    position = _position(statement, measurement, look.now)
    if statement.state is State.FAILED:
        restart = "press R" if by_key else f"run headgate restart {table}"
        plan = "stage it with D and plan again" if by_key else f"run headgate plan deploy {statement.table}"
        failed = f"It failed {long_duration(look.now - statement.line.state_since)} ago. Fix the cause and {restart}"
        where = "its code" if statement.line.error_class.startswith(JOB_ERRORS) else "the SQL"
        return f"{failed}; if the cause is in {where}, correct the file and {plan}.{position}", Tone.BAD
    if statement.state is State.STOPPED and statement.line.wanted == WantedState.RUNNING:
        return "It is wanted running: it starts where it left off as soon as the pool is up.", Tone.CHANGING
    if statement.state is State.STOPPED:
        start, left = "S" if by_key else f"headgate start {table}", statement.time_left(look.now)
        words = "It was stopped on purpose; table and checkpoint are kept."
        if left is not None and left.is_lost:
            return f"{words}{position}", Tone.BAD
        return f"{words} {start} starts it where it left off.{position}", Tone.CHANGING if position else Tone.PLAIN
    if statement.state is State.UNKNOWN and statement.line.error:
        since = long_duration(look.now - statement.line.state_since)
        return f"Unknown for {since} whether it runs: {statement.line.error}.{position}", Tone.CHANGING
    if bad and statement.trend in (Trend.STARVED, Trend.STALLED, Trend.IDLE):
        return f"It is running but gets no rows, because {' and '.join(bad)}.", Tone.BAD
    has_ended = statement.state is State.DEGRADED and bool(statement.line.error_class)
    no_movement = statement.trend in (Trend.STEADY, Trend.IDLE, Trend.UNKNOWN, Trend.STALLED)
    if has_ended or (statement.state is State.DEGRADED and no_movement):
        return f"It does not run as wanted: {statement.line.error or 'see its events'}.", Tone.BAD
    lacking, flaws = _inputs_at_fault(statement, view)
    if lacking and statement.state is not State.UNKNOWN:
        return f"{lacking}{position}", Tone.BAD
    late = ""
    if statement.line.fault_word == Fault.BEHIND and not statement.starting:
        late = f"{_lateness(measurement)}. "
    has_not_begun = _has_not_begun(statement)
    words, tone = (
        _beginning(statement, measurement, look.now)
        if has_not_begun
        else _by_trend(statement, measurement, calm=not (position or flaws))
    )
    position = f" {flaws}{position}" if flaws else position
    if position and tone in (Tone.GOOD, Tone.PLAIN):
        tone = Tone.CHANGING
    return f"{late}{words}{position}", Tone.BAD if late else tone


def _lateness(measurement: Measurement | None) -> str:
    """Describe a missed objective. If the reason for the fault is older than the measurement, the text says so."""
    late = "Behind for longer than its objective"
    if measurement is None or not measurement.fault_why:
        return late
    behind_s, objective_s = measurement.behind_s, measurement.objective_s
    if behind_s is None:
        return f"{late} when last measured: {measurement.fault_why}"
    if objective_s is None or behind_s > objective_s:
        return f"{late}: {measurement.fault_why}"
    was = f"Until a moment ago, it was behind for longer than its objective: {measurement.fault_why}"
    return f"{was}. Now it is {long_duration(behind_s)} behind"


def _inputs_at_fault(statement: StatementView, view: LedgerView) -> tuple[str, str]:
    """Describe the external inputs that cannot be read or are not filled, and those with other faults.

    Both may be empty.
    """
    parents = (view.statement(one.parent) for one in statement.parents)
    faulty = [parent.line for parent in parents if parent is not None and parent.external and parent.line.error]
    unfed = [line for line in faulty if line.error_class == TableFaultKind.NOT_FED]
    unread = [line for line in faulty if line.is_unusable_input and line not in unfed]
    others = [line for line in faulty if not line.is_unusable_input]
    lacking = (
        _fault_words(unread, "cannot be read"),
        _fault_words(unfed, "is not filled" if len(unfed) == 1 else "are not filled"),
    )
    return " ".join(filter(None, lacking)), _fault_words(others, "has a fault" if len(others) == 1 else "have faults")


def _fault_words(lines: Sequence[StatementLine], what: str) -> str:
    if not lines:
        return ""
    first, more = lines[0], len(lines) - 1
    names = f"{first.table} and {counted(more, 'more input')}" if more else f"Its input {first.table}"
    return f"{names} {what}: {mask_secrets(first.error)}."


def _position(statement: StatementView, measurement: Measurement | None, now: float) -> str:
    """Describe the risk to a statement's position, and which version holds its database's log; empty if none."""
    left = statement.time_left(now)
    if left is None:
        return ""
    if left.is_lost:
        rebuild = f"headgate plan {statement.table} --rebuild"
        return f" It cannot continue: {left.bound}. {rebuild} shows what a rebuild still reads."
    said = ""
    catches_up = statement.runs and statement.trend is Trend.DRAINING
    eta_s = measurement.eta_s if measurement is not None and catches_up else None
    if left.is_short and not (eta_s is not None and left.seconds is not None and eta_s < left.seconds):
        said = f" Its position is kept for {left.amount}: {left.advice}."
        if left.seconds is not None and left.seconds < 1:
            said = f" Its position may be lost {left.amount}: {left.advice}."
    if left.is_held:
        size, holder = short_size(left.held_bytes), query_name(TableName(left.held_by), left.held_version)
        own = left.held_by == statement.table
        if own and left.held_version == statement.version:
            return f"{said} The database keeps {size} of its log for it."
        act = f"headgate plan retire {statement.table}" if own else f"headgate show {left.held_by}"
        said += f" The database keeps {size} of its log for {holder}, which does not run ({act})."
    return said


def _has_not_begun(statement: StatementView) -> bool:
    """True if a statement has processed nothing since its start, so that it has no trend yet."""
    if statement.starting or not uncommitted(statement.line):
        return statement.starting
    if statement.trend in (Trend.STALLED, Trend.STARVED):
        return False
    return statement.state is State.STARTING or statement.trend not in (Trend.STEADY, Trend.IDLE)


def _beginning(statement: StatementView, measurement: Measurement | None, now: float) -> tuple[str, Tone]:
    row = statement.line
    rows, files = (
        (row.lag_rows, row.lag_files) if measurement is None else (measurement.lag_rows, measurement.lag_files)
    )
    is_starting = "It is starting: it" if statement.starting or statement.state is State.STARTING else "It"
    since = long_duration(now - (row.started_at or now))
    begun = f"{is_starting} was started {since} ago and has processed nothing yet"
    amount, unit = (rows, "row") if rows is not None else (files, "file")
    if amount is None:
        why = measurement.why_unmeasured if measurement is not None else None
        return f"{begun}; its pending input is unknown{f', because {why}' if why else ''}.", Tone.PLAIN
    if not amount:
        return f"{begun}; nothing waits in its input.", Tone.PLAIN
    waiting = f"1 {unit} waits" if amount == 1 else f"{long_number(amount)} {unit}s wait"
    if statement.starting:
        return f"{begun}, while {waiting}.", Tone.PLAIN
    return (
        f"{begun}, while {waiting}. A first batch may take minutes; look at its errors if it takes longer.",
        Tone.CHANGING,
    )


def _by_trend(statement: StatementView, measurement: Measurement | None, *, calm: bool) -> tuple[str, Tone]:
    nothing = " Nothing to do." if calm else ""
    match statement.trend:
        case Trend.DRAINING:
            eta = (
                f": about {short_duration(measurement.eta_s)} left"
                if measurement and measurement.eta_s is not None
                else ""
            )
            return f"It is catching up{eta}.{nothing}", Tone.PLAIN
        case Trend.GROWING:
            rows = f" by {short_number((measurement.rate_rows_s or 0) * 60)} rows a minute" if measurement else ""
            return (
                f"Input arrives faster than it is processed: the lag grows{rows}.{_limit(statement, measurement)}",
                Tone.CHANGING,
            )
        case Trend.STALLED:
            return (
                "Input arrives, but its output or watermark does not advance. Look at its errors and its last batch.",
                Tone.BAD,
            )
        case Trend.STARVED:
            age_s = measurement.data_age_s if measurement else None
            old = f" Its newest data is {long_duration(age_s)} old." if age_s is not None else ""
            return (
                f"An upstream table was dropped, was replaced or is silent: no rows arrive until that is fixed.{old}",
                Tone.BAD,
            )
        case Trend.STEADY:
            return _steady(statement, measurement, nothing)
        case Trend.IDLE:
            return f"Nothing waits in its input, and nothing arrives.{nothing}", Tone.GOOD
        case _ if statement.state in ALIVE and measurement is not None and measurement.why_unmeasured:
            return f"Its lag is unknown, because {measurement.why_unmeasured}.", Tone.CHANGING
        case _ if statement.state is State.UNKNOWN:
            return "The pool does not answer, so it is unknown whether the statement runs.", Tone.CHANGING
        case _:
            return "Too few samples or batches yet for a trend.", Tone.DIM


def _steady(statement: StatementView, measurement: Measurement | None, nothing: str) -> tuple[str, Tone]:
    from core.lag.trend import keeps_up_s

    bound_s, behind_s = keeps_up_s(trigger_s(statement.line.trigger)), statement.line.behind_s
    if statement.line.fault_word or behind_s is None or behind_s > bound_s:
        return f"Its input waits, and the backlog neither falls nor rises.{_limit(statement, measurement)}", Tone.PLAIN
    waited = f"no input has waited for more than {long_duration(bound_s)}"
    if took := _slow_batch(statement, measurement):
        return f"It keeps up although its newest batch took {took}: {waited}.{nothing}", Tone.PLAIN
    return f"It keeps up: {waited}.{nothing}", Tone.GOOD


def _slow_batch(statement: StatementView, measurement: Measurement | None) -> str:
    trigger_ms = trigger_s(statement.line.trigger) * 1000
    if measurement and measurement.batch_ms and trigger_ms and measurement.batch_ms > 1.5 * trigger_ms:
        return f"{measurement.batch_ms / 1000:.0f} s on a trigger of {statement.line.trigger}"
    return ""


def _limit(statement: StatementView, measurement: Measurement | None) -> str:
    if took := _slow_batch(statement, measurement):
        # Another line gives the reason if it is known.
        why = "" if measurement and measurement.slow else ": the statement is too expensive, or the pool is saturated"
        return f" Its newest batch took {took}{why}."
    return " Its SQL limits it (maxFilesPerTrigger)." if statement.line.limited else ""


def error_text(row: StatementLine) -> str:
    """Return a statement's error, preceded by its class if it has one. Secrets are masked."""
    return mask_secrets(f"{row.error_class}  {row.error}" if row.error_class else row.error)


def spark_ui_words(pool: Pool) -> str:
    """Describe where to find a pool's Spark UI, without revealing more of the pool's URL than the host."""
    if pool.master is not None:
        return f"no Spark UI for browsers; its executors at {pool.master_page}"
    host = urlsplit(pool.url).hostname if pool.url else None
    return f"Spark UI of its server on {host}, port 4040 by default" if host else "no Spark UI for browsers"
