"""Escapes untrusted strings, so that they can neither control the terminal nor mislead the reader."""

import html
import re
from collections.abc import Callable
from functools import lru_cache

_ACTING = (
    # C0 without tab and line feed, DEL, and C1: terminal sequences begin with ESC or a C1 character (ECMA-48, 5.3).
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    # Direction marks, line and paragraph separators, joiners and all other format characters (Cf).
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    # Variation selectors, tags and other invisible characters (Default_Ignorable_Code_Point, Unicode 15).
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff"
    # Surrogates, with which Python represents bytes of a file name that is not UTF-8 (PEP 383), and noncharacters.
    "\ud800-\udfff\ufffe\uffff"
)
"""Invisible, control and reordering characters, which could hide the true content from a reviewer."""

_IN_A_LINE = re.compile(f"[\n{_ACTING}]")
_IN_LINES = re.compile(f"[{_ACTING}]")
_VISIBLE_ASCII = bytes(code for code in range(128) if not _IN_LINES.match(chr(code)))
_SURROGATE = re.compile("[\ud800-\udfff]")


def escape_control_characters(text: str) -> str:
    r"""Replace invisible and control characters and line ends, but not tabs, with escapes like `\x1b` or `\u202e`."""
    return text if text.isascii() and text.isprintable() else _IN_A_LINE.sub(_escaped, text)


def replace_control_characters(text: str, instead: str = "\ufffd") -> str:
    """Replace each invisible or control character with `instead`, except tabs and line ends."""
    return text if text.isascii() and text.isprintable() else _IN_LINES.sub(instead, text)


def has_control_characters(text: str) -> bool:
    """True if a string contains invisible or control characters other than tabs and line ends."""
    return _IN_LINES.search(text) is not None


def escape_in_document(text: str, *, astral: str) -> str:
    """Escape invisible and control characters in JSON or in double-quoted YAML, whose parsers restore the characters.

    `astral` is the format string for characters beyond U+FFFF: `JSON_ASTRAL` or `YAML_ASTRAL`.
    """

    def escaped(found: re.Match[str]) -> str:
        code = ord(found[0])
        high, low = 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF)
        return f"\\u{code:04x}" if code < 0x10000 else astral.format(code=code, high=high, low=low)

    # A plan of 10,000 tables has 36 MB, which the expression takes 0.34 s to search.
    if text.isascii() and not text.encode().translate(None, _VISIBLE_ASCII):
        return text
    return _IN_LINES.sub(escaped, text)


JSON_ASTRAL, YAML_ASTRAL = r"\u{high:04x}\u{low:04x}", r"\U{code:08x}"


def escape_surrogates(text: str, *, backslash: str = "\\") -> str:
    r"""Replace surrogates, which UTF-8 cannot encode, with escapes such as `\ud800`.

    A surrogate that represents a raw byte of a file name becomes `\xff`.
    """
    return text if text.isascii() else _SURROGATE.sub(lambda found: _escaped(found, backslash), text)


def _escaped(found: re.Match[str], backslash: str = "\\") -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    digits, letter = (2, "x") if code < 0x100 else (4, "u") if code < 0x10000 else (8, "U")
    return f"{backslash}{letter}{code:0{digits}x}"


_LONGEST = 300
"""Maximum length of a cell or sentence in Markdown, in characters."""


_ASIDE = re.compile(r"([\\`*\[\]|~#])")


def escape_markdown(text: str) -> str:
    """Return a string on one line, escaped so that Markdown and HTML show it literally.

    A string of more than 300 characters is shortened.
    """
    one = escape_control_characters(" ".join(text.split()))
    one = one if len(one) <= _LONGEST else f"{one[: _LONGEST - 1]}…"
    return _ASIDE.sub(r"\\\1", html.escape(one, quote=False))


@lru_cache(4096)
def quoted_name(name: str) -> str:
    """Return an SQL name, in backticks unless it is a plain identifier."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and not "0" <= name[:1] <= "9"
    return name if plain else backquoted(name)


def backquoted(name: str) -> str:
    """Return an SQL name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def qualified(name: str, quote: Callable[[str], str] = backquoted) -> str:
    """Return a catalog name, whose catalog, database and table are separated by dots, with each part quoted."""
    return ".".join(map(quote, name.split(".")))


def escape_glob(path: str) -> str:
    """Return a path with Spark's glob characters escaped."""
    return path.translate(_GLOB)


_GLOB = str.maketrans({each: f"\\{each}" for each in "{}[]*?\\"})


def quoted_string_literal(text: str) -> str:
    """Return a string as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
