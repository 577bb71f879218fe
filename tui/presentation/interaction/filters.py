"""Filters typed after `/`: text, /regex/, !not, lag>1k, state=failed, -f fuzzy. Statements must match every word."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.model.states import State, Trend
from tui.presentation.view.ledger_view import StatementView

FIELDS = ("state", "trend", "product", "layer", "owner", "version", "behind", "lag", "errors", "staged", "fault")
_TERM = re.compile(r"(?P<field>[a-z]+)(?P<op>>=|<=|!=|=|>|<)(?P<value>.+)\Z")
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[kMGmg]?)\Z")
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[smhd]?)\Z")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_FACTOR = {"": 1, "k": 1_000, "m": 1_000_000, "M": 1_000_000, "g": 1_000_000_000, "G": 1_000_000_000}
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
Match = Callable[[StatementView], bool]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as typed. An invalid filter has a `problem` and matches everything."""

    text: str
    match: Match
    problem: str = ""


def parse_filter(text: str) -> Filter:
    """Parse a filter. An invalid filter is returned with its `problem`, and no error is raised."""
    words = text.split()
    if words and words[0] == "-f":
        needle = "".join(words[1:]).lower()
        return Filter(text, lambda statement: _fuzzy(needle, statement.table))
    terms: list[Match] = []
    for word in words:
        term = _parse_word(word)
        if isinstance(term, str):
            return Filter(text, lambda _: True, problem=term)
        terms.append(term)
    return Filter(text, lambda statement: all(term(statement) for term in terms))


def _parse_word(word: str) -> Match | str:
    if word.startswith("!"):
        if len(word) == 1:
            return "! needs a term to exclude, as in !crm"
        inner = _parse_word(word[1:])
        return inner if isinstance(inner, str) else lambda statement: not inner(statement)
    found = _TERM.match(word)
    if found:
        return _parse_term(found["field"], found["op"], found["value"])
    try:
        pattern = re.compile(word.strip("/") if word.startswith("/") else word, re.IGNORECASE)
    except re.error as error:
        return f"{word} is not a pattern: {error}"
    return lambda statement: bool(pattern.search(statement.table) or pattern.search(statement.line.product))


def _parse_term(field: str, op: str, value: str) -> Match | str:
    if field in ("behind", "lag", "errors", "version"):
        number = _duration(value) if field == "behind" else _number(value)
        if number is None:
            return (
                f"{value} is not a duration, as in behind>5m"
                if field == "behind"
                else f"{value} is not a number, as in {field}>1k"
            )
        compare = _COMPARE[op]
        return lambda statement: _compare_known(compare, _figure(statement, field), number)
    if field not in FIELDS:
        return f"{field} is not a field; the fields are {', '.join(FIELDS)}"
    if op not in ("=", "!="):
        return f"{field} cannot be compared by size: write {field}=… or {field}!=…"
    known: tuple[str, ...] = ("external", *State) if field == "state" else tuple(Trend) if field == "trend" else ()
    wanted = frozenset(value.lower().split(","))
    if known and not wanted <= set(known):
        return f"{value} is not a {field}; use {', '.join(known)}"
    same = op == "="
    return lambda statement: bool(_words(statement, field) & wanted) == same


def _number(text: str) -> float | None:
    found = _SIZE.match(text)
    return float(found["number"]) * _FACTOR[found["unit"]] if found else None


def _duration(text: str) -> float | None:
    found = _DURATION.match(text)
    return float(found["number"]) * _SECONDS[found["unit"]] if found else None


def _compare_known(compare: Callable[[float, float], bool], value: float | None, wanted: float) -> bool:
    return value is not None and compare(value, wanted)


def _figure(statement: StatementView, field: str) -> float | None:
    match field:
        case "behind":
            return statement.line.behind_s
        case "lag":
            return statement.lag_rows
        case "version":
            return statement.version
        case _:
            return statement.errors


def _words(statement: StatementView, field: str) -> set[str]:
    if field == "staged":
        return {mark.verb for mark in statement.staged} or {"no"}
    if field in ("state", "fault"):
        return {(statement.line.state_word if field == "state" else statement.line.fault_word) or "none"}
    of = statement if field == "trend" else statement.line
    return {str(getattr(of, field)).lower()}


def _fuzzy(needle: str, name: str) -> bool:
    letters = iter(name)
    return all(letter in letters for letter in needle)


def completions(text: str) -> tuple[str, ...]:
    """Return the filters that complete the last word of `text`. Each filter includes the preceding words."""
    head, _, last = text.rpartition(" ")
    prefix = f"{head} " if head else ""
    field, equals, value = last.partition("=")
    if equals and field in ("state", "trend"):
        words: tuple[str, ...] = tuple(State) if field == "state" else tuple(Trend)
        return tuple(f"{prefix}{field}={word}" for word in words if word.startswith(value))
    return tuple(f"{prefix}{name}" for name in FIELDS if last and name.startswith(last))
