"""Differences and numbers in a few words for people; nothing is decided from these words."""

import difflib
import re
import textwrap
from collections.abc import Iterable, Sequence

_NUMBER = re.compile(r"\d+")
_ENDS = re.compile(r"(?<=[.;])\s+|\n")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 table`, `2 tables`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def reader_phrase(tables: Sequence[str]) -> str:
    """Return who reads something: `a reads it`, `a, b read it`."""
    return f"{', '.join(tables)} {'reads' if len(tables) == 1 else 'read'} it"


def without_numbers(text: str) -> str:
    """Return a text to be compared with what was said before: seconds that count down are no news."""
    return _NUMBER.sub("", text)


def first_sentence(text: str, most: int = 100) -> str:
    """Return what a text begins with, up to its first full stop, semicolon or line end; cut at `most` characters."""
    begins = _ENDS.split(text.strip(), maxsplit=1)[0].rstrip(".;")
    return textwrap.shorten(begins, most, placeholder=" …") if len(begins) > most else begins
