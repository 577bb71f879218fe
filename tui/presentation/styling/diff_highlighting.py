"""SQL and its differences as lines: added with +, removed with -, so that no colour is needed to tell them."""

import difflib
import re

from core.text.diff import lines_of
from core.text.secrets import mask_literals
from tui.presentation.styling.styled_text import Line, Span, Tone, clean, line

_WORDS = re.compile(
    r"(?P<comment>--.*\Z)|(?P<text>'[^']*')|(?P<word>\b(?:insert|into|select|from|stream|where|join|on|group|by|as|with|watermark"
    r"|delay|of|interval|create|table|using|partitioned|union|all|left|right|inner|outer|full|having|case|when|then|else|end"
    r"|and|or|not|is|null|in|distinct|lateral|view|identified|location|options|cross|exists|between|cast)\b)",
    re.IGNORECASE,
)


def difference(old: str, new: str, context: int = 3) -> tuple[Line, ...]:
    """Compare two texts by lines; nothing when they are equal but for line endings."""
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
    """Write SQL with its words set off and its secrets masked; reading is left to `core.sql`."""
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
