"""The SQL in a YAML value, with the line of the file on which each of its lines was written.

YAML joins the lines of a folded, plain or quoted value by spaces. They are split again where this does not change the
SQL, so that a query is shown and compared as its author wrote it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import yaml

from core.project.model import TextPart
from core.sql.tokens.lexer import PIECES

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class SqlInYaml:
    """SQL that was written as a YAML value."""

    text: str
    """The SQL without trailing white space."""
    parts: tuple[TextPart, ...]
    """Where its lines were written; they count from 1."""
    line: int
    """The line of the file on which the value begins, which is that of its key for a block."""
    cut_line: int = 0
    """The line of the file with a `--` comment that, in the joined text, hides the lines below it; 0 if there is none.
    """


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    end: int
    line: int
    """Line of the file, counted from 0."""
    column: int


def sql_in_yaml(node: yaml.ScalarNode, lines: Sequence[str], path: str) -> SqlInYaml:
    """Read the SQL in a YAML value; `lines` are those of the file at `path`."""
    value = str(node.value).rstrip()
    first = node.start_mark.line
    if node.style == "|":
        return SqlInYaml(value, tuple(_literal_parts(value, lines, first + 1, path)), first + 1)
    words = _words(value, node, lines)
    if words is None:
        return SqlInYaml(value, (TextPart(1, path, first + 1, follows=False),), first + 1)
    pieces = list(PIECES.finditer(value))
    text = _split_again(value, words, [piece.span() for piece in pieces if piece[0][0] in "'\"`"])
    comments = [piece.span() for piece in pieces if piece[0].startswith("--")]
    return SqlInYaml(text, tuple(_parts(text, words, path)), first + 1, _cut_line(words, comments))


def _literal_parts(value: str, lines: Sequence[str], first: int, path: str) -> Iterator[TextPart]:
    shown = value.split("\n")
    at = next((n for n, line in enumerate(shown) if line.strip()), 0)
    written = lines[first + at] if first + at < len(lines) else ""
    yield TextPart(1, path, first + 1, columns=max(0, len(written.rstrip()) - len(shown[at].rstrip())))


def _words(value: str, node: yaml.ScalarNode, lines: Sequence[str]) -> list[_Word] | None:
    """Return the words of a value with their place in the file; None if escapes make the two differ."""
    start, end = node.start_mark, node.end_mark
    first = start.line + 1 if node.style == ">" else start.line
    written: list[tuple[str, int, int]] = []
    for number in range(first, min(end.line + 1, len(lines))):
        line = lines[number]
        stop = end.column if number == end.line else len(line)
        begin = start.column if number == start.line else 0
        if node.style in ("'", '"'):
            begin += number == start.line
            stop -= number == end.line
        written += ((found[0], number, found.start()) for found in _WORD.finditer(line, begin, max(begin, stop)))
    found = list(_WORD.finditer(value))
    if [each[0] for each in found] != [word for word, _, _ in written]:
        return None
    return [
        _Word(each.start(), each.end(), line, column) for each, (_, line, column) in zip(found, written, strict=True)
    ]


def _split_again(value: str, words: Sequence[_Word], quoted: Sequence[tuple[int, int]]) -> str:
    """Replace the spaces with which YAML has joined lines by line breaks, except inside of quotes."""
    margin = min((word.column for before, word in _line_starts(words) if before is not None), default=0)
    done = [value[: words[0].end]] if words else []
    for before, word in pairwise(words):
        gap = value[before.end : word.start]
        inside = any(start < before.end < end for start, end in quoted)
        if word.line != before.line and gap == " " and not inside:
            gap = "\n" + " " * (word.column - margin)
        done += (gap, value[word.start : word.end])
    return "".join(done)


def _line_starts(words: Sequence[_Word]) -> Iterator[tuple[_Word | None, _Word]]:
    before: _Word | None = None
    for word in words:
        if before is None or before.line != word.line:
            yield before, word
        before = word


def _parts(text: str, words: Sequence[_Word], path: str) -> Iterator[TextPart]:
    at = 0
    for number, line in enumerate(text.split("\n"), start=1):
        found = _WORD.findall(line)
        if found:
            yield TextPart(number, path, words[at].line + 1, columns=words[at].column - _indent(line))
        at += len(found)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _cut_line(words: Sequence[_Word], comments: Sequence[tuple[int, int]]) -> int:
    for start, end in comments:
        inside = [word for word in words if start < word.end <= end]
        if inside and inside[-1].line != inside[0].line:
            return inside[0].line + 1
    return 0
