"""Texts of others as one line that does nothing to a terminal."""

import html
import re

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
"""C0 but the tab, DEL and C1: sequences of a terminal begin with ESC or with one of C1 (ECMA-48, 5.3)."""


def escape_control_characters(text: str) -> str:
    r"""Write control characters, ends of lines among them, as `\x1b` is written; tabs and all else stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


_SURROGATE = re.compile(r"[\ud800-\udfff]")


def escape_surrogates(text: str, *, backslash: str = "\\") -> str:
    r"""Write what UTF-8 cannot hold in ASCII: bytes of a file name as `\xff`, other halves of a pair as `\ud800`.

    Python reads a name that is not UTF-8 with such halves in place of its bytes (PEP 383).
    """

    def escaped(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"{backslash}x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"{backslash}u{code:04x}"

    return text if text.isascii() else _SURROGATE.sub(escaped, text)


_LONGEST = 300
"""Characters of one cell or sentence."""


_ASIDE = re.compile(r"([\\`*\[\]|~#])")


def escape_markdown(text: str) -> str:
    """Write a text so that Markdown and HTML take it for nothing but text, on one line; a long one is cut."""
    one = escape_control_characters(" ".join(text.split()))
    one = one if len(one) <= _LONGEST else f"{one[: _LONGEST - 1]}…"
    return _ASIDE.sub(r"\\\1", html.escape(one, quote=False))
