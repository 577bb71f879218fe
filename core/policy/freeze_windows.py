"""Freeze windows, during which no plan is applied, given as days of the week or dates in UTC."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from core.model.errors import UsageError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

EXAMPLE = "write days or dates in UTC, such as Fri 16:00 - Mon 08:00 or 2026-12-24 - 2027-01-02"

_DAY_S = 86400
_WEEK_S = 7 * _DAY_S
_MONDAY_S = 4 * _DAY_S
"""Seconds from the epoch, which was a Thursday, to the first Monday."""
_LAST = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()
"""The last second that a datetime can express; no window ends after it."""
_TIME = r"(?: (?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]))?\Z"
_ON_A_DAY = re.compile(r"(?P<day>[A-Za-z]+)" + _TIME)
_ON_A_DATE = re.compile(r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})" + _TIME)


@dataclass(frozen=True, slots=True)
class FreezeWindow:
    """A half-open interval in epoch seconds; a window given as days of the week recurs every week."""

    text: str
    """The window in normalized notation."""
    start: float
    end: float
    weekly: bool

    def end_after(self, now: float) -> float | None:
        """Return the end of the window, in epoch seconds, if `now` is within the window; otherwise None."""
        since = (now - self.start) % _WEEK_S if self.weekly else now - self.start
        length = self.end - self.start
        return now - since + length if 0 <= since < length else None


def parse_freeze_window(text: str) -> FreezeWindow:
    """Parse a window: `Fri 16:00 - Mon 08:00`, `Sat - Sun`, `2026-12-24 - 2027-01-02`, or a single day or date.

    A day or date without a time stands for the whole day. Raises UsageError, which lists the valid forms, for any other
    text.
    """
    sides = [" ".join(side.split()) for side in re.split(r"\s+-\s+", text.strip())]
    if len(sides) > 2:
        raise UsageError(f"{text!r} is not a freeze window", remedy=EXAMPLE)
    first, last = _side(sides[0], text), _side(sides[-1], text)
    if first.weekly is not last.weekly:
        raise UsageError(f"{text!r} mixes a day of the week and a date", remedy=EXAMPLE)
    start, end = first.start, last.end if last.whole else last.start
    if first.weekly and end < start:
        end += _WEEK_S
    if len(sides) == 1 and not first.whole:
        raise UsageError(f"{text!r} has a start but no end", remedy=EXAMPLE)
    if end <= start:
        raise UsageError(f"{text!r} does not end after it starts", remedy="write the earlier point first")
    return FreezeWindow(" - ".join(side.capitalize() for side in sides), start, end, first.weekly)


def frozen_until(windows: Iterable[str], now: float) -> str | None:
    """Return a sentence with the current freeze window and its end; None if no window is open."""
    found = [
        (end, window.text) for window in map(parse_freeze_window, windows) if (end := window.end_after(now)) is not None
    ]
    if not found:
        return None
    end, text = max(found)
    return f"frozen until {datetime.fromtimestamp(min(end, _LAST), UTC):%a %Y-%m-%d %H:%M} UTC ({text})"


@dataclass(frozen=True, slots=True)
class _Side:
    start: float
    end: float
    """End of the day or date on this side of the window."""
    whole: bool
    weekly: bool


def _side(side: str, text: str) -> _Side:
    if found := _ON_A_DAY.match(side):
        day = found["day"].capitalize()
        if day not in DAYS:
            raise UsageError(f"{found['day']!r} is not a day of the week", remedy=f"days: {', '.join(DAYS)}")
        begins: float = _MONDAY_S + DAYS.index(day) * _DAY_S
    elif found := _ON_A_DATE.match(side):
        try:
            begins = datetime.combine(date.fromisoformat(found["date"]), datetime.min.time(), UTC).timestamp()
        except ValueError as error:
            raise UsageError(f"{found['date']} is not a calendar date", remedy=EXAMPLE) from error
    else:
        raise UsageError(f"{text!r} is not a freeze window", remedy=EXAMPLE)
    ends = begins + _DAY_S
    if found["hour"] is None:
        return _Side(begins, ends, whole=True, weekly="day" in found.groupdict())
    at = begins + timedelta(hours=int(found["hour"]), minutes=int(found["minute"])).total_seconds()
    return _Side(at, ends, whole=False, weekly="day" in found.groupdict())
