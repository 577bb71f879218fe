"""What commands print of statements: JSON, cells of lag and state, the age of the data, the result of `--fail-on`."""

from collections.abc import Iterable, Sequence
from typing import Any

from core.model.states import State
from core.text.wording import counted
from state.ledger_snapshot import LedgerSnapshot
from state.registry import StatementLine
from state.row_types import EnvironmentRow
from tui.command_line.context import CommandContext
from tui.command_line.fail_on import matching_conditions
from tui.presentation.styling.value_formatting import long_duration, short_duration, short_number, trend_words

RIGHT = ("VER", "LAG", "ROWS", "ERR", "AGE", "IN", "OUT", "FILES", "BYTES", "BEHIND")


_FIELDS = (
    "table", "version", "product", "layer", "owner", "state", "state_since", "wanted", "external", "active", "fault",
    "behind_s", "data_age_s", "lag_rows", "lag_files", "lag_bytes", "lag_exact", "trend", "rate_rows_s", "eta_s",
    "in_rows_s", "out_rows_s", "rows", "batch", "batch_ms", "restarts", "error_class", "error", "measured_at",
)  # fmt: skip
_NAMED_OTHERWISE = {"lag_exact": "exact", "rows": "rows_total", "measured_at": "at"}


def statement_as_json(line: StatementLine) -> dict[str, Any]:
    """Return a line of `ls` as a JSON object; what is not known is null."""
    found = {name: getattr(line, _NAMED_OTHERWISE.get(name, name)) for name in _FIELDS}
    return found | {
        "state": line.state_word,
        "state_since": line.state_since or None,
        "wanted": None if line.external else str(line.wanted),
        "trend": line.trend or "unknown",
        "fault": line.fault_word or None,
    }


def behind_text(line: StatementLine) -> str:
    """Write how old the oldest input is that is not committed; `?` when it is not known."""
    return "" if line.state == State.ABSENT else short_duration(line.behind_s)


def lag_text(line: StatementLine) -> str:
    """Write a lag: rows when they are known (`~` when estimated), else files; `?` when nothing is."""
    if line.state == State.ABSENT:
        return ""
    if line.lag_rows is not None:
        return ("" if line.exact else "~") + short_number(line.lag_rows)
    return counted(line.lag_files, "file") if line.lag_files is not None else "?"


def short_or_dash(value: int | None) -> str:
    """Write a count, `-` when it is not known."""
    return "-" if value is None else short_number(value)


def trend_text(line: StatementLine) -> str:
    """Write a trend with what it means in figures; empty for what is not deployed."""
    from core.model.states import Trend

    if line.state == State.ABSENT:
        return ""
    trend = Trend(line.trend) if line.trend in set(Trend) else Trend.UNKNOWN
    text = trend_words(trend, line.rate_rows_s, line.eta_s, line.data_age_s)
    return text if text.startswith(str(trend)) else f"{trend} {text}"


def data_age_line(context: CommandContext, snapshot: LedgerSnapshot, lines: Sequence[StatementLine]) -> str:
    """Describe how many of these statements run, on what, and how old that is."""
    if snapshot.facts is None:
        return f"{context.place.title}: {counted(len(lines), 'table')} declared, nothing deployed yet"
    age = snapshot.age_s
    if age is None:
        fresh = "no agent has ever run here"
    elif snapshot.stale:
        fresh = f"STALE: last update {long_duration(age)} ago, no agent is writing (headgate up)"
    else:
        fresh = f"live, {age:.0f} s old"
    running = sum(line.state == State.RUNNING for line in lines if not line.external)
    mine = sum(not line.external for line in lines)
    words = f"{running} of {counted(mine, 'statement')} running"
    return f"{context.place.title}: {words}; {_pool(snapshot.facts)}; {fresh}"


def _pool(facts: EnvironmentRow) -> str:
    return f"pool {facts.pool} {facts.pool_state}" + (f" ({facts.pool_detail})" if facts.pool_detail else "")


def check_fail_on(context: CommandContext, conditions: Any, lines: Iterable[StatementLine]) -> int:
    """Return which conditions hold for which statement; 1 where one does."""
    hits = [(line, word) for line in lines if not line.external for word in matching_conditions(conditions, line)]
    for line, word in hits:
        context.voice.say(f"fail-on {word}: {line.table} is {line.state}, lag {lag_text(line) or '-'}")
    return 1 if hits else 0
