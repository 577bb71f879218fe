"""What a log says of one statement: the lines that name it, each with the stack trace below it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from core.text.secrets import mask_secrets
from core.text.wording import counted
from tui.presentation.styling.styled_text import Line, Tone, clean, line

MOST_LINES, MOST_CHARACTERS = 200, 32_000
"""Of a failure that are shown, with its whole chain of causes."""
TAB = "\t"
FRAMES = 8
"""Frames that stay of each cause where a failure is longer than that."""
_BEGINS = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
"""How a line of the agent's log and of the pool's begins; what does not goes on with the line before."""


def lines_about(lines: Iterable[str], words: Iterable[str]) -> Iterator[str]:
    """Yield the records of a log that have one of some words: whole, or with every cause; secrets are masked."""
    named = re.compile("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in words if word) or r"(?!)")
    record: list[str] = []
    for text in (*lines, None):
        if text is None or _BEGINS.match(text):
            if any(map(named.search, record)):
                yield from map(mask_secrets, bounded(record))
            record = []
        if text is not None:
            record.append(text)


def bounded(record: Sequence[str]) -> Sequence[str]:
    """Shorten a record that is too long: first frames of its causes, which all stay, then its end; say what is gone."""
    if _fits(record):
        return record
    kept: list[str] = []
    frames = 0
    for text in record:
        frames = frames + 1 if text.lstrip().startswith("at ") else 0
        if frames <= FRAMES:
            kept.append(text[: MOST_CHARACTERS // 8])
    while not _fits(kept):
        kept.pop()
    gone = len(record) - len(kept)
    return [*kept, f"\t… {counted(gone, 'more line')}: headgate logs pool has them"] if gone else kept


def _fits(record: Sequence[str]) -> bool:
    return len(record) <= MOST_LINES and sum(map(len, record)) <= MOST_CHARACTERS


def log_lines(log: Sequence[str]) -> tuple[Line, ...]:
    """Write what the logs of agent and pool say of a statement, with stack traces."""
    if not log:
        return (line((" the logs of agent and pool do not name it", Tone.DIM)),)
    bad = (" ERROR ", " WARN ", " WARNING ")
    told = (
        line((f" {clean(each.replace(TAB, '    '))}", Tone.BAD if any(word in each for word in bad) else Tone.DIM))
        for each in log
    )
    return (line((" LOG of agent and pool", Tone.TITLE)), *told)
