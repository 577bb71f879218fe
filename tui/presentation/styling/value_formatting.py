"""Short formats for numbers, sizes, times and trends."""

import json
import time
from typing import TYPE_CHECKING

from core.model.states import Trend
from core.text.wording import counted, long_duration, short_duration, short_number, short_size

if TYPE_CHECKING:
    from core.observed.versions import Measurement, StatementLine

__all__ = (
    "age",
    "cell_text",
    "clock",
    "lag_words",
    "long_duration",
    "long_number",
    "moment",
    "rate",
    "short_duration",
    "short_number",
    "short_size",
    "took",
    "trend_words",
)  # fmt: skip


def long_number(value: int | None) -> str:
    """Format a number with thousands separators, such as 18,220; `?` if unknown."""
    return "?" if value is None else f"{value:,}"


def cell_text(value: object) -> str:
    """Format a value of a table's row on one line: text as it is, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("\n", " ")


def age(seconds: float | None) -> str:
    """Format an age; `-` if None.

    Below a minute, it is in steps of ten seconds, so that an idle screen is rarely redrawn.
    """
    if seconds is None:
        return "-"
    if seconds < 10:
        return "now"
    return f"{int(seconds // 10) * 10}s" if seconds < 60 else short_duration(seconds)


def took(seconds: float | None) -> str:
    """Format a duration, such as 0.3 s, 58 s or 2m 3s; empty if None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{round(seconds)} s" if seconds < 60 else long_duration(seconds)


def batch_took(batch_ms: int | None) -> str:
    """Format the duration of a batch, such as 104.7 s; `-` if unknown."""
    return "-" if batch_ms is None else f"{batch_ms / 1000:.1f} s"


def clock(at: float | None) -> str:
    """Format a local time of day, such as 14:02:11; empty if None."""
    return "" if at is None else time.strftime("%H:%M:%S", time.localtime(at))


def moment(at: float | None, now: float) -> str:
    """Format a timestamp as a time of day if within 20 hours of `now`, or with month and day; `-` if None."""
    if at is None:
        return "-"
    if abs(now - at) < 20 * 3600:
        return clock(at)
    return time.strftime("%m-%d %H:%M", time.localtime(at))


def utc_moment(at: float) -> str:
    """Format a timestamp as date and time in UTC, such as `2026-11-25 09:41:07 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def rate(value: float | None, unit: str = "/s") -> str:
    """Format a rate, such as 220/s; `-` if unknown."""
    return "-" if value is None else f"{short_number(value)}{unit}"


def lag_words(known: "Measurement | StatementLine") -> str:
    """Format a lag in rows (`~12k` if estimated) or, if unknown, in files (`3 files`); `?` if neither is known."""
    if known.lag_rows is not None:
        return ("" if known.exact else "~") + short_number(known.lag_rows)
    return "?" if known.lag_files is None else counted(known.lag_files, "file")


def trend_words(trend: Trend, rate_rows_s: float | None, eta_s: float | None, data_age_s: float | None = None) -> str:
    """Format a lag trend for a list: `4m left`, `+900/m`, `starved 3m` (age of the data), or just the trend's name."""
    if trend is Trend.DRAINING and eta_s is not None:
        return f"{short_duration(eta_s)} left"
    if trend is Trend.GROWING and rate_rows_s is not None:
        return f"+{short_number(rate_rows_s * 60)}/m"
    if trend is Trend.STARVED and data_age_s is not None:
        return f"{trend} {short_duration(data_age_s)}"
    return str(trend)
