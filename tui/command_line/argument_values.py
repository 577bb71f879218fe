"""A parser that raises what is wrong, and the values that it reads: counts, seconds, rates and closed sets of words."""

import argparse
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from core.model.errors import UsageError
from core.model.names import whole_number
from core.text.wording import did_you_mean

YEAR_S = 365 * 86400.0
"""The longest wait."""
MOST_RATE = 400.0
"""Orders a second; the feeds write five times as many in a burst."""
MOST_LINES = 1_000_000
"""Lines or rows that one command shows."""


class CommandParser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print and exit, so that `--json` prints errors as JSON."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"{self.prog} --help shows an example")

    def options(self) -> Iterator[tuple[str, bool]]:
        """Return each option that help tells of or not, and whether a value follows it."""
        return ((option, action.nargs != 0) for option, action in self._option_string_actions.items())


def word(
    parser: CommandParser, name: str, words: tuple[str, ...], *, metavar: str, what: str, default: str = ""
) -> None:
    """Add an argument that is one of a few words; where it is none of them, the nearest is named."""

    def read(text: str) -> str:
        if text in words:
            return text
        near = did_you_mean(text, words)
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(words)}" + (f": {near}" if near else ""))

    many: dict[str, Any] = {"nargs": "?", "default": default} if default else {}
    parser.add_argument(name, type=read, metavar=metavar, help=f"{', '.join(words)}: {what}", **many)


def number(text: str, least: float, most: float, what: str) -> float:
    """Read a number within bounds; raises what argparse prints behind the option's name. NaN is in no bounds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least:g} to {most:.0f}")
    return value


def seconds(text: str) -> float:
    return number(text, 0, YEAR_S, "a number of seconds")


def rate(text: str) -> float:
    return number(text, 0, MOST_RATE, "a number of orders per second")


def count(text: str) -> int:
    if whole_number(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(number(text, 1, MOST_LINES, "a whole number"))
