"""What a log says of one statement: the lines that name it, each with the stack trace below it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from tui.presentation.styling.styled_text import Line, Tone, line

_BEGINS = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
"""How a line of the agent's log and of the pool's begins; what does not goes on with the line before."""


def lines_about(lines: Iterable[str], words: Iterable[str]) -> Iterator[str]:
    """Yield the records of a log that have one of some words, whole."""
    named = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words if word) or r"(?!)")
    record: list[str] = []
    for text in (*lines, None):
        if text is None or _BEGINS.match(text):
            if any(map(named.search, record)):
                yield from record
            record = []
        if text is not None:
            record.append(text)


def log_lines(log: Sequence[str]) -> tuple[Line, ...]:
    """Write what the logs of agent and pool say of a statement, with stack traces."""
    if not log:
        return (line((" the logs of agent and pool do not name it", Tone.DIM)),)
    bad = (" ERROR ", " WARN ", " WARNING ")
    told = (line((f" {each}", Tone.BAD if any(word in each for word in bad) else Tone.DIM)) for each in log)
    return (line((" LOG of agent and pool", Tone.TITLE)), *told)
