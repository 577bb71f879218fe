"""Human-readable phrases, numbers, sizes and durations, with `?` for unknown. Decisions never use these strings."""

import difflib
import math
import re
import textwrap
from collections.abc import Iterable

_NUMBER = re.compile(r"\d+(?:,\d+)*")
_ENDS = re.compile(r"(?<=[.;])\s+|\n")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a suggestion of the known word that is most similar to `word`; empty if none is similar."""
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def clipped(text: str, most: int) -> str:
    """Shorten a string to at most `most` characters; a shortened string ends in an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, noun: str) -> str:
    """Return a number and a noun, in the plural unless the number is 1: `1 table`, `2,000 tables`."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def without_numbers(text: str) -> str:
    """Remove the digits from a message, so that messages that differ only in a countdown are equal."""
    return _NUMBER.sub("", text)


def first_sentence(text: str, most: int = 100) -> str:
    """Return a string up to its first full stop, semicolon or line end, shortened to at most `most` characters."""
    begins = _ENDS.split(text.strip(), maxsplit=1)[0].rstrip(".;")
    return textwrap.shorten(begins, most, placeholder=" …") if len(begins) > most else begins


_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short_number(value: float | None) -> str:
    """Format a number in short form, like 12, 1.2k, 41k or 3.1M."""
    if value is None:
        return "?"
    for size, unit in _UNITS:
        if abs(value) >= size:
            return _scaled(value / size) + unit
    return str(round(value)) if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def short_size(value: float | None) -> str:
    """Format a number of bytes like 512 B, 2.4 MB or 1.3 GB (powers of 1,000)."""
    if value is None:
        return "?"
    for step, unit in _UNITS:
        if value >= step:
            return f"{_scaled(value / step)} {unit if unit != 'k' else 'k'}B"
    return f"{round(value)} B"


def short_duration(seconds: float | None) -> str:
    """Format a duration in its largest unit only, like 4s, 11m, 1h or 3d."""
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


def long_duration(seconds: float | None) -> str:
    """Format a duration in its two largest units, like 1m 12s, 1h 12m or 3d 4h."""
    if seconds is None:
        return "?"
    value = max(int(seconds), 0)
    for step, big, small_step, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if value >= step:
            rest = value % step // small_step
            return f"{value // step}{big} {rest}{small}" if rest else f"{value // step}{big}"
    return f"{value}s"


def duration_range(low_s: float, high_s: float) -> str:
    """Format a range of durations in a single unit, like `up to 5 s` or `2 min`; a dash separates different bounds."""
    size, unit = (1, "s") if high_s < 100 else (60, "min") if high_s < 6000 else (3600, "h")
    low, high = int(low_s // size), max(1, math.ceil(high_s / size))
    if low == 0:
        return f"up to {high} {unit}"
    return f"{low}\N{EN DASH}{high} {unit}" if low < high else f"{high} {unit}"


def _scaled(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if abs(value) < 9.95 else str(round(value))
