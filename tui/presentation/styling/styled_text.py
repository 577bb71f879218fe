"""Lines of text with tones: what every presentation function returns. Widths are terminal cells, never characters."""

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple


class Tone(StrEnum):
    """What a piece of text means; the palette decides how it looks."""

    PLAIN = "plain"
    DIM = "dim"
    BAD = "bad"
    CHANGING = "changing"
    GOOD = "good"
    ACCENT = "accent"
    TITLE = "title"
    KEY = "key"
    ADDED = "added"
    REMOVED = "removed"
    GHOST = "ghost"
    MARK = "mark"
    PROTECTED = "protected"
    OPEN = "open"
    """An environment that is not protected."""
    FIELD = "field"


class Span(NamedTuple):
    """A piece of a line in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]

EMPTY: Line = ()


def line(*parts: str | Span | tuple[str, Tone]) -> Line:
    """Build a line from texts and (text, tone) pairs; empty texts are left out."""
    spans = (Span(part) if isinstance(part, str) else Span(*part) for part in parts)
    return tuple(span for span in spans if span.text)


@lru_cache(maxsize=65536)
def width_of(text: str) -> int:
    """Count the terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    return sum(char_width(char) for char in text)


@lru_cache(maxsize=4096)
def char_width(char: str) -> int:
    """Count the cells of one character: 0 for combining and control characters, 2 for wide ones."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cc", "Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clean(text: str) -> str:
    """Make a text safe to draw: control characters (a file's own escape sequences too) become spaces."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def crop(text: str, width: int) -> str:
    """Cut a text to at most `width` cells."""
    if width_of(text) <= width:
        return text
    cells = 0
    for index, char in enumerate(text):
        cells += char_width(char)
        if cells > width:
            return text[:index]
    return text


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Cut a text to `width` cells, saying with an ellipsis that something is missing."""
    if width_of(text) <= width:
        return text
    if width <= len(ellipsis):
        return crop(text, max(width, 0))
    return crop(text, width - len(ellipsis)) + ellipsis


def left(text: str, width: int) -> str:
    """Fit a text into exactly `width` cells, aligned left."""
    short = shorten(text, width)
    return short + " " * (width - width_of(short))


def right(text: str, width: int) -> str:
    """Fit a text into exactly `width` cells, aligned right."""
    short = shorten(text, width)
    return " " * (width - width_of(short)) + short


def line_width(content: Line) -> int:
    """Count the cells of a line."""
    return sum(width_of(span.text) for span in content)


def fit(content: Line, width: int) -> Line:
    """Cut or pad a line to exactly `width` cells."""
    spans: list[Span] = []
    room = width
    for span in content:
        if room <= 0:
            break
        text = crop(clean(span.text), room)
        spans.append(Span(text, span.tone))
        room -= width_of(text)
    if room > 0:
        spans.append(Span(" " * room))
    return tuple(spans)


def ends(start: Line, end: Line, width: int) -> Line:
    """Put one line at the left and one at the right edge; the left one gives way."""
    room = width - line_width(end)
    if room <= 0:
        return fit(end, width)
    return (*fit(start, room), *end)


def plain(content: Line) -> str:
    """Return a line's text without its tones."""
    return "".join(span.text for span in content)


def wrap(text: str, width: int, tone: Tone = Tone.PLAIN, indent: str = "") -> tuple[Line, ...]:
    """Break a text at spaces into lines of at most `width` cells; an unbreakable word is cut."""
    lines: list[Line] = []
    for paragraph in text.splitlines() or [""]:
        current = ""
        for word in clean(paragraph).split():
            candidate = f"{current} {word}" if current else word
            if width_of(indent + candidate) <= width or not current:
                current = shorten(candidate, max(width - len(indent), 1))
            else:
                lines.append(line((indent + current, tone)))
                current = shorten(word, max(width - len(indent), 1))
        lines.append(line((indent + current, tone)))
    return tuple(lines)


def fold(content: Line, width: int) -> tuple[Line, ...]:
    """Break a line at spaces into lines of at most `width` cells, tones kept, what goes on two cells further in.

    A word that is longer than a line is broken.
    """
    if line_width(content) <= width:
        return (content,)
    text = plain(content)
    indent = min(len(text) - len(text.lstrip()) + 2, width // 3)
    rows: list[list[Span]] = [[]]
    room = width
    for span in content:
        for word in re.findall(r"\s+|\S+", clean(span.text)):
            while width_of(word) > room:
                if not rows[-1] or width_of(word) > width - indent:
                    head = crop(word, room)
                    rows[-1].append(Span(head, span.tone))
                    word = word[len(head) :]
                word = word.lstrip()
                rows.append([Span(" " * indent)] if indent else [])
                room = width - indent
            if word:
                rows[-1].append(Span(word, span.tone))
                room -= width_of(word)
    return tuple(tuple(row) for row in rows if plain(tuple(row)).strip())


def fold_all(lines: Iterable[Line], width: int) -> tuple[Line, ...]:
    """Fold every line of a text."""
    return tuple(row for content in lines for row in fold(content, width))
