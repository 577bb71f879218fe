"""Numbers, sizes and times as people read them: short, right-aligned, never more exact than what is known."""

import time

from core.vocabulary import Trend

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short_number(value: float | None) -> str:
    """Write 12, 1.2k, 41k, 3.1M; `?` when it is not known."""
    if value is None:
        return "?"
    for size, unit in _UNITS:
        if abs(value) >= size:
            return _scaled(value / size) + unit
    return str(round(value)) if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def _scaled(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if abs(value) < 9.95 else str(round(value))


def long_number(value: int | None) -> str:
    """Write 18,220; `?` when it is not known."""
    return "?" if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Write bytes as 512 B, 2.4 MB, 1.3 GB."""
    if value is None:
        return "?"
    for step, unit in _UNITS:
        if value >= step:
            return f"{_scaled(value / step)} {unit if unit != 'k' else 'k'}B"
    return f"{round(value)} B"


def span(seconds: float | None) -> str:
    """Write a duration in its largest unit: 4s, 11m, 1h, 3d."""
    if seconds is None:
        return "?"
    value = max(seconds, 0.0)
    if value < 60:
        return f"{int(value)}s"
    if value < 3600:
        return f"{int(value // 60)}m"
    if value < 86400:
        return f"{int(value // 3600)}h"
    return f"{int(value // 86400)}d"


def age(seconds: float | None) -> str:
    """Write an age for a list: steps of ten seconds below a minute, so that a quiet screen sends nothing."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return "now"
    return f"{int(seconds // 10) * 10}s" if seconds < 60 else span(seconds)


def long_span(seconds: float | None) -> str:
    """Write a duration in two units: 1m 12s, 1h 12m, 3d 4h."""
    if seconds is None:
        return "?"
    value = max(int(seconds), 0)
    for step, big, small_step, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if value >= step:
            rest = value % step // small_step
            return f"{value // step}{big} {rest}{small}" if rest else f"{value // step}{big}"
    return f"{value}s"


def took(seconds: float | None) -> str:
    """Write how long something took: 0.3 s, 58 s, 2m 3s."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{round(seconds)} s" if seconds < 60 else long_span(seconds)


def clock(at: float | None) -> str:
    """Write a moment of today as 14:02:11 in local time."""
    return "" if at is None else time.strftime("%H:%M:%S", time.localtime(at))


def moment(at: float | None, now: float) -> str:
    """Write a moment: the time of day within 20 hours of `now`, else month, day and time."""
    if at is None:
        return "-"
    if abs(now - at) < 20 * 3600:
        return clock(at)
    return time.strftime("%m-%d %H:%M", time.localtime(at))


def rate(value: float | None, unit: str = "/s") -> str:
    """Write a rate: 220/s; `-` when it is not known."""
    return "-" if value is None else f"{short_number(value)}{unit}"


def verdict(trend: Trend, rate_rows_s: float | None, eta_s: float | None) -> str:
    """Write a trend for a list: `4m left`, `+900/m`, or the trend's own word."""
    if trend is Trend.DRAINING and eta_s is not None:
        return f"{span(eta_s)} left"
    if trend is Trend.GROWING and rate_rows_s is not None:
        return f"+{short_number(rate_rows_s * 60)}/m"
    return str(trend)
