"""Differences between two strings: a unified diff of lines, or a few short fragments of changed words."""

import difflib
import re

from core.text.secret_masking import mask_literals
from core.text.wording import clipped

_WORD = re.compile(r"'(?:[^']|'')*'|[A-Za-z0-9_.`]+|<=>|<>|!=|<=|>=|\|\||::|\S")

MOST_FRAGMENTS = 3
LONGEST_FRAGMENT = 70
"""Maximum length of a fragment in characters."""


def short_diff(old: str, new: str) -> tuple[list[tuple[str, str]], int]:
    """Return at most `MOST_FRAGMENTS` pairs of old and new fragments, and the number of pairs that were left out.

    For an addition, the old fragment is empty; for a removal, the new fragment is.
    """
    before, after = _WORD.findall(old), _WORD.findall(new)
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    pairs = [(_shown(before[a:b]), _shown(after[c:d])) for kind, a, b, c, d in codes if kind != "equal"]
    return pairs[:MOST_FRAGMENTS], max(len(pairs) - MOST_FRAGMENTS, 0)


def changed_lines(old: str, new: str) -> list[tuple[str, str]]:
    """Return the removed and the added lines of each place where two strings differ, joined by `; `."""
    before, after = lines_of(old), lines_of(new)
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [(_on_one_line(before[a:b]), _on_one_line(after[c:d])) for kind, a, b, c, d in codes if kind != "equal"]


def _on_one_line(lines: list[str]) -> str:
    return "; ".join(line.strip() for line in lines if line.strip())


def unified_diff(old: str, new: str) -> tuple[str, ...]:
    """Return the lines of a unified diff without file headers, with secrets masked; empty if the strings are equal."""
    lines = difflib.unified_diff(lines_of(old), lines_of(new), lineterm="")
    return tuple(map(mask_literals, lines))[2:]


def _shown(words: list[str]) -> str:
    text = re.sub(r"\s+([,)])", r"\1", re.sub(r"([(])\s+", r"\1", " ".join(words)))
    return clipped(text, LONGEST_FRAGMENT)


def lines_of(text: str) -> list[str]:
    """Split a string into lines at LF, CR and CRLF, without a byte-order mark or a trailing empty line.

    Spark ends a line, and with it a `--` comment, only there and not at other Unicode separators (`SIMPLE_COMMENT` in
    SqlBaseLexer.g4, Spark 4.2.0).
    """
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    return lines if lines[-1] else lines[:-1]
