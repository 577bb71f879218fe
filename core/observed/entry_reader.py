"""One mapping of an `--observed` document, read key by key: what is wrong is collected."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem
from core.text.wording import did_you_mean

_MOST = 2**63
"""Above every number that is counted or measured; a longer one is no figure."""
_SHOWN = 80
"""Letters of a value in a sentence."""

_LONGEST_NAME = 200
"""Above the longest name of a table: what is cut is none."""


def cut(value: Any, most: int = _SHOWN) -> str:
    """Return a value as text of at most `most` characters; a mapping or a list only by its kind."""
    if isinstance(value, Mapping | list | tuple | set):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    said = str(value)
    return said if len(said) <= most else f"{said[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class EntryReader:
    """One mapping of a document, its getters report a wrong value and give the default instead."""

    subject: str
    label: str
    """Said before each key: `orders`, `orders: pool`."""
    values: Mapping[str, Any]
    problems: list[Problem]

    def only(self, known: tuple[str, ...]) -> None:
        """Report unknown keys."""
        for key in self.values:
            if key not in known:
                word = cut(key)
                self.wrong(f"{word} is not a known key", did_you_mean(word, known) or f"known: {', '.join(known[:4])}")

    def wrong(self, summary: str, remedy: str) -> None:
        """Report what is wrong."""
        self.problems.append(Problem(f"{self.label}: {summary}", remedy, None, self.subject))

    def word(self, key: str, known: tuple[str, ...], default: str) -> str:
        """Read one of a closed list."""
        value = self.values.get(key, default)
        if isinstance(value, str) and value in known:
            return str(value)
        word = cut(value)
        self.wrong(f"{word} is not a {key}", did_you_mean(word, known) or f"one of {', '.join(known)}")
        return default

    def moment(self, key: str) -> str:
        """Read a time: as a text, or as YAML reads one that is not in quotes."""
        value = self.values.get(key)
        return value.isoformat() if isinstance(value, (date, datetime)) else self.text(key)

    def text(self, key: str, default: str = "") -> str:
        """Read a text."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.wrong(f"{key} must be a string", "put it in quotes")
            return default
        return value

    def whole(self, key: str, default: int = 0) -> int:
        """Read a whole number of 0 or above."""
        value = self.values.get(key, default)
        if type(value) is not int or not 0 <= value < _MOST:
            self.wrong(f"{key} must be a whole number", f"write {key}: 1")
            return default
        return value

    def number(self, key: str, *, whole: bool) -> Any:
        """Read a number of 0 or above, or nothing."""
        value = self.values.get(key)
        kinds = (int,) if whole else (int, float)
        if value is not None and (type(value) not in kinds or not 0 <= value < (_MOST if whole else float("inf"))):
            what = "a whole number" if whole else "a number"
            self.wrong(f"{key} must be {what}, 0 or greater", f"write {key}: 1, or leave it out")
            return None
        return value

    def wholes(self, key: str) -> tuple[int, ...]:
        """Read a list of versions."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(item) is int and 0 < item < _MOST for item in value):
            self.wrong(f"{key} must be a list of versions", f"write {key}: [1]")
            return ()
        return tuple(sorted(set(value)))

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of texts."""
        return tuple(map(str, self.values.get(key) or ()))

    def flag(self, key: str, default: bool = True) -> bool:
        """Read true or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.wrong(f"{key} must be true or false", f"write {key}: {'true' if default else 'false'}")
            return default
        return value

    def part(self, key: str, what: str) -> "EntryReader | None":
        """Read a mapping; None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.wrong(f"{key} must be {what}", f"write {key}: {{}}, or leave it out")
            return None
        return EntryReader(self.subject, f"{self.label}: {key}", value, self.problems)


def read_name(name: Any, problems: list[Problem]) -> TableName | None:
    """Read the name of a table."""
    try:
        return parse_table_name(cut(name, _LONGEST_NAME))
    except BadName as error:
        problems.append(Problem(f"{cut(name)!r} is not a table name", error.remedy, None, cut(name)))
        return None
