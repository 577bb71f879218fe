"""Mutations of a text: one token deleted or doubled."""

from sqlglot.dialects.spark import Spark

_DIALECT = Spark()


def pieces(text: str) -> list[tuple[int, int]]:
    """Return the span of each token in a text."""
    shift = len(text) - len(text.removeprefix("\ufeff"))
    tokens = _DIALECT.tokenize(text.removeprefix("\ufeff"))
    return [(token.start + shift, token.end + 1 + shift) for token in tokens]


def edited(text: str, span: tuple[int, int], *, doubled: bool) -> str:
    """Delete the token at a span, or double it."""
    start, end = span
    return f"{text[:end]} {text[start:]}" if doubled else text[:start] + text[end:]
