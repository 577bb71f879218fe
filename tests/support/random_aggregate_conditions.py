"""Random pairs of statements that have the same aggregates, but differ in one choice in an expression over them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

CALLS = ("sum(v)", "count(*)", "max(id)", "min(w)")
"""Aggregates over the columns of `COLUMNS`, each with a different function so that its name identifies it."""
COLUMNS = "id BIGINT, k STRING, v BIGINT, w BIGINT, ts TIMESTAMP"
_NUMBERS = (*map(str, range(24)), "-3", "2.5", "3000000000", "NULL")
_COMPARISONS = (">", ">", "<", "<=", ">=", "=", "<>", "<=>")
_SOURCE = "STREAM a WATERMARK ts DELAY OF INTERVAL 10 MINUTES"


@dataclass(slots=True)
class Choices:
    """A sequence of random choices, recorded so that it can be replayed with one choice changed."""

    random: Random
    made: list[int] = field(default_factory=list)
    again: Sequence[int] = ()

    def of(self, options: Sequence[str]) -> str:
        """Choose one of the options, replaying a recorded choice if there is one."""
        place = len(self.made)
        chosen = self.again[place] if place < len(self.again) else self.random.randrange(len(options))
        self.made.append(chosen % len(options))
        return options[self.made[-1]]


def pair(random: Random) -> tuple[str, str]:
    """Return two statements with the same aggregates in the same order that differ in a single choice."""
    while True:
        first = Choices(Random(random.random()))
        old = _statement(first)
        place = random.randrange(len(first.made))
        again = [*first.made[:place], first.made[place] + random.randrange(1, 20), *first.made[place + 1 :]]
        new = _statement(Choices(Random(random.random()), again=again))
        if old != new and _calls(old) == _calls(new):
            return old, new


def _calls(text: str) -> list[str]:
    return sorted((call for call in CALLS if call in text), key=text.index)


def _statement(choices: Choices) -> str:
    depth = int(choices.of("000112"))
    outputs = ", ".join(f"CAST({_value(choices, depth)} AS BIGINT) AS n{number}" for number in range(2))
    having = f" HAVING {_condition(choices, depth)}" if choices.of("yyn") == "y" else ""
    inner = f"SELECT k, {outputs} FROM {_SOURCE} GROUP BY k, window(ts, '5 minutes'){having}"
    if choices.of("iiio") == "i":
        return f"INSERT INTO t {inner}"
    calls = ", ".join(f"{call} AS {call[:3]}" for call in CALLS)
    outer = f"SELECT k, {outputs} FROM (SELECT k, {calls}, 1 AS n FROM {_SOURCE} GROUP BY k, window(ts, '5 minutes'))"
    text = f"{outer} AS q{having.replace('HAVING', 'WHERE')}"
    head, _, tail = text.partition("(SELECT k, sum(v) AS sum")
    for call in CALLS:
        head, tail = (part.replace(call, call[:3]) if part is head else part for part in (head, tail))
    before, _, after = tail.partition("AS q")
    for call in CALLS:
        after = after.replace(call, call[:3])
    return f"INSERT INTO t {head}(SELECT k, sum(v) AS sum{before}AS q{after}"


def _value(choices: Choices, depth: int) -> str:
    if depth <= 0:
        return choices.of((*CALLS * 4, "1", "5", "7", "NULL"))
    one, other = (lambda: _value(choices, depth - 1)), (lambda: _value(choices, depth - 1))
    kind = choices.of(("+", "-", "*", "CASE", "CASE", "if", "coalesce", "nullif", "cast", "abs", "greatest", "plain"))
    if kind in "+-*":
        return f"({one()} {kind} {other()})"
    if kind == "CASE":
        last = f" ELSE {other()}" if choices.of("yn") == "y" else ""
        return f"CASE WHEN {_condition(choices, depth - 1)} THEN {one()}{last} END"
    if kind == "if":
        return f"if({_condition(choices, depth - 1)}, {one()}, {other()})"
    if kind in ("coalesce", "nullif", "greatest"):
        return f"{kind}({one()}, {other()})"
    if kind == "cast":
        return f"CAST({one()} AS {choices.of(('INT', 'BIGINT', 'TINYINT', 'STRING', 'DOUBLE'))})"
    return f"abs({one()})" if kind == "abs" else one()


def _condition(choices: Choices, depth: int) -> str:
    kind = choices.of(("compare", "compare", "compare", "AND", "AND", "OR", "NOT", "IN", "BETWEEN", "IS", "word"))
    if kind in ("AND", "OR"):
        return f"({_condition(choices, depth - 1)} {kind} {_condition(choices, depth - 1)})"
    if kind == "NOT":
        return f"NOT ({_condition(choices, depth - 1)})"
    value = _value(choices, depth - 1)
    if kind == "IN":
        return f"{value} IN ({choices.of(_NUMBERS[:5])}, {choices.of(_NUMBERS)})"
    if kind == "BETWEEN":
        return f"{value} BETWEEN {choices.of(_NUMBERS[:4])} AND {choices.of(_NUMBERS)}"
    if kind == "IS":
        return f"{value} IS {choices.of(('NULL', 'NOT NULL'))}"
    if kind == "word" and choices.of("nnny") == "y":
        return choices.of(("true", "false", "count(*) > 0"))
    other = _value(choices, depth - 1) if choices.of("nv") == "v" else choices.of(_NUMBERS)
    return f"{value} {choices.of(_COMPARISONS)} {other}"
