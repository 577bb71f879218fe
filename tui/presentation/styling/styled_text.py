"""Lines of styled text, their widths, SQL and diffs. Widths are counted in terminal cells, never in characters."""

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from core.text.diff import lines_of
from core.text.escaping import has_control_characters
from core.text.secret_masking import mask_literals


class Tone(StrEnum):
    """The meaning of a piece of text, from which the palette derives its colours."""

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
    RED = "red"
    """An environment that declares this colour, as `AMBER`, `GREEN` and `BLUE` are."""
    AMBER = "amber"
    GREEN = "green"
    BLUE = "blue"
    FIELD = "field"


class Span(NamedTuple):
    """A piece of text in a single tone. A line consists of spans."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]

EMPTY: Line = ()


def line(*parts: str | Span | tuple[str, Tone]) -> Line:
    """Build a line from strings, spans and (text, tone) pairs; empty parts are left out."""
    spans = (Span(part) if isinstance(part, str) else Span(*part) for part in parts)
    return tuple(span for span in spans if span.text)


@lru_cache(maxsize=65536)
def width_of(text: str) -> int:
    """Return the width of a string in terminal cells, after cleaning (see `clean`)."""
    drawn = clean(text)
    return len(drawn) if drawn.isascii() else sum(map(_char_width, drawn))


@lru_cache(maxsize=4096)
def _char_width(char: str) -> int:
    """Return a character's width as in Textual. Rich's table, whose import takes 30 ms, is used only if needed."""
    if _ONE_CELL.match(char):
        return 1
    from rich.cells import get_character_cell_size

    return get_character_cell_size(char)


_ONE_CELL = re.compile(
    "[ -~\u00a1-\u00ac\u00ae-\u02ff\u0391-\u03a1\u03a3-\u0482\u2010-\u2027\u2190-\u22ff\u2500-\u25fc\u2714\u2716]"
)
"""Characters drawn in one cell by every terminal: European letters, punctuation, arrows, box drawing, ✔ and ✖."""

_ONE_CELL_EACH = re.compile(f"{_ONE_CELL.pattern}*")


def clean(text: str) -> str:
    """Return a string as it will be drawn: without control characters, and equally wide on every terminal.

    Control characters, including escape sequences in a file, become spaces. Variation selectors, joiners and skin tones
    are dropped, flags become letters, and characters whose width depends on the terminal become \ufffd.
    """
    if text.isascii() and text.isprintable():
        return text
    return _clean(text)


@lru_cache(maxsize=65536)
def _clean(text: str) -> str:
    if _ONE_CELL_EACH.fullmatch(text):
        return text
    return "".join(map(_clean_char, unicodedata.normalize("NFC", text)))


@lru_cache(maxsize=4096)
def _clean_char(char: str) -> str:
    if _ONE_CELL.match(char):
        return char
    if _DROPPED.match(char):
        return ""
    if not char.isprintable() or has_control_characters(char):
        return " "
    if "\U0001f1e6" <= char <= "\U0001f1ff":
        return chr(ord(char) - 0x1F1E6 + ord("A"))
    return char if _char_width(char) == _unicode_width(char) else "\ufffd"


_DROPPED = re.compile("[\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]")
"""Joiner, variation selectors and skin tones, which some terminals draw as additional characters."""


def _unicode_width(char: str) -> int:
    """Return the width that wcwidth(3) gives a character on most systems, derived from its Unicode properties."""
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@lru_cache(maxsize=8192)
def cells_of(text: str) -> tuple[str, ...]:
    """Split a string into terminal cells as Textual counts them. Each item contains the characters of one cell.

    The second cell of a wide character is empty. Blanks fill cells that are counted but not drawn.
    """
    if _ONE_CELL_EACH.fullmatch(text):
        return tuple(text)
    from rich.cells import split_graphemes

    cells: list[str] = []
    for start, end, count in split_graphemes(text)[0]:
        drawn: list[str] = []
        for char in crop(text[start:end], count):
            width = _char_width(char)
            if width:
                drawn.extend((char, "") if width == 2 else (char,))
            elif drawn:
                base = -1 if drawn[-1] else -2
                drawn[base] += char
        cells.extend(drawn + [" "] * (count - len(drawn)))
    return tuple(cells)


def crop(text: str, width: int) -> str:
    """Clean a string, and cut it to at most `width` cells."""
    text = clean(text)
    if width_of(text) <= width:
        return text
    cells = 0
    for index, char in enumerate(text):
        cells += _char_width(char)
        if cells > width:
            return text[:index]
    return text


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Clean a string. If it is wider than `width` cells, cut it and end it with an ellipsis."""
    if width_of(text) <= width:
        return clean(text)
    if width <= len(ellipsis):
        return crop(text, max(width, 0))
    return crop(text, width - len(ellipsis)) + ellipsis


def left(text: str, width: int) -> str:
    """Clean a string, and cut or pad it to exactly `width` cells, left-aligned."""
    short = shorten(text, width)
    return short + " " * (width - width_of(short))


def right(text: str, width: int) -> str:
    """Clean a string, and cut or pad it to exactly `width` cells, right-aligned."""
    short = shorten(text, width)
    return " " * (width - width_of(short)) + short


def line_width(content: Line) -> int:
    """Return the width of a line in terminal cells."""
    return sum(width_of(span.text) for span in content)


def fit(content: Line, width: int) -> Line:
    """Cut or pad a line to exactly `width` cells."""
    spans: list[Span] = []
    room = width
    for span in content:
        if room <= 0:
            break
        text = crop(span.text, room)
        spans.append(Span(text, span.tone))
        room -= width_of(text)
    if room > 0:
        spans.append(Span(" " * room))
    return tuple(spans)


def ends(start: Line, end: Line, width: int) -> Line:
    """Combine a left-aligned and a right-aligned line into one.

    If there is too little room, the left-aligned line is cut.
    """
    room = width - line_width(end)
    if room <= 0:
        return fit(end, width)
    return (*fit(start, room), *end)


def plain(content: Line) -> str:
    """Return the text of a styled line, without its tones."""
    return "".join(span.text for span in content)


def wrap(text: str, width: int, tone: Tone = Tone.PLAIN, indent: str = "") -> tuple[Line, ...]:
    """Break a string at spaces into lines of at most `width` cells. A word that is too long is cut."""
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


def wrap_line(content: Line, width: int) -> tuple[Line, ...]:
    """Break a line at spaces into lines of at most `width` cells.

    A word that is too long is also broken. Tones are kept, and continuation lines are indented.
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


def wrap_lines(lines: Iterable[Line], width: int) -> tuple[Line, ...]:
    """Wrap every line to at most `width` cells."""
    return tuple(row for content in lines for row in wrap_line(content, width))


_WORDS = re.compile(
    r"(?P<comment>--.*\Z)|(?P<text>'[^']*')|(?P<word>\b(?:insert|into|select|from|stream|where|join|on|group|by|as|with|watermark"
    r"|delay|of|interval|create|table|using|partitioned|union|all|left|right|inner|outer|full|having|case|when|then|else|end"
    r"|and|or|not|is|null|in|distinct|lateral|view|identified|location|options|cross|exists|between|cast)\b)",
    re.IGNORECASE,
)


def difference(old: str, new: str, context: int = 3) -> tuple[Line, ...]:
    """Return the diff of two texts with secrets masked; empty if only line endings or outer whitespace differ."""
    import difflib

    before, after = lines_of(old.strip()), lines_of(new.strip())
    if before == after:
        return ()
    lines: list[Line] = []
    for index, text in enumerate(difflib.unified_diff(before, after, lineterm="", n=context)):
        if index < 2:
            continue
        if text.startswith("@@"):
            if lines:
                lines.append(line(("   …", Tone.DIM)))
            continue
        tone = Tone.ADDED if text[0] == "+" else Tone.REMOVED if text[0] == "-" else Tone.DIM
        lines.append(line((f"   {text[0]} {clean(mask_literals(text[1:]))}", tone)))
    return tuple(lines)


def colour_sql(text: str, indent: str = "   ") -> tuple[Line, ...]:
    """Highlight keywords and mask secrets in SQL, without parsing it."""
    return tuple(_coloured(row, indent) for row in lines_of(text.strip("\n")))


def _coloured(row: str, indent: str) -> Line:
    row = mask_literals(clean(row.replace("\t", "  ").rstrip()))
    spans: list[Span] = [Span(indent)]
    place = 0
    for found in _WORDS.finditer(row):
        if found.start() > place:
            spans.append(Span(row[place : found.start()]))
        tone = Tone.DIM if found["comment"] else Tone.GOOD if found["text"] else Tone.ACCENT
        spans.append(Span(found[0], tone))
        place = found.end()
    spans.append(Span(row[place:]))
    return tuple(span for span in spans if span.text)
