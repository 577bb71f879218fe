"""Mutations of a text, in which one token is deleted or doubled."""

from sqlglot.dialects.spark import Spark

_DIALECT = Spark()


def pieces(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) position of each token in a text."""
    shift = len(text) - len(text.removeprefix("\ufeff"))
    tokens = _DIALECT.tokenize(text.removeprefix("\ufeff"))
    return [(token.start + shift, token.end + 1 + shift) for token in tokens]


def edited(text: str, span: tuple[int, int], *, doubled: bool) -> str:
    """Return the text with the token at a span deleted or doubled."""
    start, end = span
    return f"{text[:end]} {text[start:]}" if doubled else text[:start] + text[end:]
