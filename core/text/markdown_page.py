"""A Markdown page of limited size, for a comment on a change ticket or pull request."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from core.text.escaping import escape_control_characters

COMMENT_LIMIT = 60_000
"""Maximum size in bytes of UTF-8; GitHub accepts comments of up to 65,536 characters."""

NOTE_BYTES = 1_200
"""Bytes reserved for the note on omitted content, including the command that the note suggests."""

_TICKS = re.compile(r"`+")


@dataclass(slots=True)
class MarkdownPage:
    """A Markdown page of limited size; `free` is the number of bytes that remain."""

    free: int
    lines: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> bool:
        """Add all of the lines, or none if they do not fit; return True if they were added."""
        size = size_in_bytes(lines)
        if size > self.free:
            return False
        self.lines += lines
        self.free -= size
        return True

    def add_each(self, lines: Sequence[str], most: int, what: str, head: Sequence[str]) -> None:
        """Add a heading, the lines that fit into `most` bytes, and a note on how many lines were left out."""
        if not lines:
            return
        room, shown = min(most, self.free) - size_in_bytes(head) - NOTE_BYTES, 0
        for line in lines:
            room -= size_in_bytes((line,))
            if room < 0:
                break
            shown += 1
        left = len(lines) - shown
        note = ("", f"_{left} more {what} left out_") if left else ()
        self.add(*head, *lines[:shown], *note, "")


def fenced(language: str, lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines in a code block, whose fence is longer than any run of backticks in them."""
    inside = tuple(map(escape_control_characters, lines))
    longest = max((len(run) for line in inside for run in _TICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return (f"{fence}{language}", *inside, fence)


def size_in_bytes(lines: Iterable[str]) -> int:
    """Return the size of lines in UTF-8, with their line ends."""
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
