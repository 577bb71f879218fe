"""Conditions of `--fail-on`: a state, a trend, behind its objective, or a lag with its bound."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from core.model.errors import UsageError
from core.model.states import Fault, State, Trend
from state.registry import StatementLine

_LAG = re.compile(r"lag\s*(?P<op>>=|>)\s*(?P<bound>[\d.]+[kmg]?)\Z", re.IGNORECASE)
_SIZE_BY_UNIT = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class FailOnCondition:
    """One word of `--fail-on`."""

    word: str
    holds: Callable[[StatementLine], bool]


def parse_conditions(text: str | None) -> tuple[FailOnCondition, ...]:
    """Read `failed,lag>1k`; raises UsageError for a word that is neither a state, a trend, behind nor a lag."""
    return tuple(_parse(word.strip()) for word in (text or "").split(",") if word.strip())


def matching_conditions(conditions: tuple[FailOnCondition, ...], line: StatementLine) -> list[str]:
    """List the conditions that hold for a statement, as they were written."""
    return [condition.word for condition in conditions if condition.holds(line)]


def parse_count(text: str) -> int:
    """Read 0, 250, 1k, 1.5m; raises UsageError."""
    found = re.fullmatch(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)(?P<unit>[kmg]?)", text.strip().lower())
    if not found:
        raise UsageError(f"{text!r} is not a number of rows", remedy="write 0, 250, 1k or 1.5m")
    return int(float(found["number"]) * _SIZE_BY_UNIT.get(found["unit"], 1))


def _parse(word: str) -> FailOnCondition:
    found = _LAG.match(word)
    if found:
        bound = parse_count(found["bound"])
        strict = found["op"] == ">"
        return FailOnCondition(word, lambda line: _lag_exceeds(line, bound, strict=strict))
    lowered = word.lower()
    if lowered == Fault.BEHIND:
        return FailOnCondition(word, lambda line: line.fault_word == lowered)
    if lowered in set(State):
        return FailOnCondition(word, lambda line: str(line.state) == lowered)
    if lowered in set(Trend):
        return FailOnCondition(word, lambda line: line.trend == lowered)
    words = ", ".join(dict.fromkeys((*State, *Trend, Fault.BEHIND)))
    raise UsageError(f"{word!r} is not a condition for --fail-on", remedy=f"use lag>N, or one of {words}")


def _lag_exceeds(line: StatementLine, bound: int, *, strict: bool) -> bool:
    if line.lag_rows is None:
        return False
    return line.lag_rows > bound if strict else line.lag_rows >= bound
