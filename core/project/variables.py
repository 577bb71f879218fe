"""Variables of a project: their types, what a value of each type must look like, and its form as an SQL literal."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
"""Matches `${name}`. A reference to a secret, such as `${env:NAME}`, contains a colon and is not matched."""

LONGEST_VALUE = 4_000


class VariableType(StrEnum):
    """The type of a variable, which determines its valid values and how it is written outside of quotes."""

    STRING = "string"
    INT = "int"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    INTERVAL = "interval"
    DATE = "date"
    TIMESTAMP = "timestamp"
    IDENTIFIER = "identifier"
    """A plain name, which is inserted unchanged and may be a part of a longer name."""

    @property
    def expected(self) -> str:
        """What a value of the type must be, for messages."""
        return _EXPECTED[self][0]

    @property
    def example(self) -> str:
        """A value of the type."""
        return _EXPECTED[self][1]


_EXPECTED: Mapping[VariableType, tuple[str, str]] = {
    VariableType.STRING: ("a string on one line, of printable characters", "eu"),
    VariableType.INT: ("a whole number", "7"),
    VariableType.DECIMAL: ("a number without an exponent", "0.25"),
    VariableType.BOOLEAN: ("true or false", "true"),
    VariableType.INTERVAL: ("a number and a unit", "10 minutes"),
    VariableType.DATE: ("a date", "2026-01-31"),
    VariableType.TIMESTAMP: ("a time", "2026-01-31 12:00:00"),
    VariableType.IDENTIFIER: ("a name of letters, digits and _", "orders"),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with its value in one environment."""

    name: str
    type: VariableType
    value: str
    """The value as text, without quotes; valid for the type, and without line breaks."""

    @property
    def literal(self) -> str:
        """The value as an SQL literal or, for an identifier, as a name."""
        match self.type:
            case VariableType.STRING:
                return f"'{escaped(self.value, chr(39))}'"
            case VariableType.INT | VariableType.DECIMAL:
                # After a minus sign, the sign of a number would begin a comment.
                return f"({self.value})" if self.value.startswith("-") else self.value
            case VariableType.DATE | VariableType.TIMESTAMP:
                return f"{self.type.upper()}'{self.value}'"
            case VariableType.INTERVAL:
                return f"INTERVAL {self.value}"
            case VariableType.BOOLEAN | VariableType.IDENTIFIER:
                return self.value


def escaped(text: str, quote: str) -> str:
    """Return a text for use inside of quotes in SQL: with backslashes in a string, with doubled backticks in a name."""
    if quote == "`":
        return text.replace("`", "``")
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}")


def is_valid(type: VariableType, value: str) -> bool:
    """True if a text is a value of a type."""
    has_form = len(value) <= LONGEST_VALUE and value.isprintable() and re.fullmatch(_FORMS[type], value)
    return bool(has_form) and (type not in (VariableType.DATE, VariableType.TIMESTAMP) or _is_time(value))


_MONTHS = r"(?:0|[1-9][0-9]{0,6}) (?:month|year)s?"
_TIME = r"(?:0|[1-9][0-9]{0,6}) (?:microsecond|millisecond|second|minute|hour|day|week)s?"
_DAY, _MINUTE, _ZONE = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    r"[0-9]{2}:[0-9]{2}",
    "(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00)?",
)
# Spark 4.2.0 accepts neither a zone without seconds, nor months beside days.
_FORMS: Mapping[VariableType, str] = {
    VariableType.STRING: ".*",
    VariableType.INT: "-?(?:0|[1-9][0-9]{0,17})",
    VariableType.DECIMAL: r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?",
    VariableType.BOOLEAN: "true|false",
    VariableType.INTERVAL: f"{_MONTHS}(?: {_MONTHS})*|{_TIME}(?: {_TIME})*",
    VariableType.DATE: _DAY,
    VariableType.TIMESTAMP: rf"{_DAY}[ T]{_MINUTE}(?::[0-9]{{2}}(?:\.[0-9]{{1,6}})?{_ZONE})?",
    VariableType.IDENTIFIER: "[A-Za-z_][A-Za-z0-9_]{0,127}",
}


def _is_time(value: str) -> bool:
    try:
        return bool(datetime.fromisoformat(value))
    except ValueError:
        return False
