"""Formats statements as JSON and table cells, and evaluates the conditions of `--fail-on`."""

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

from core.model.errors import UsageError
from core.model.names import TableName
from core.model.states import ALIVE, Fault, State, Trend
from core.observed.versions import StatementLine
from core.text.secret_masking import mask_secrets
from core.text.wording import counted
from state.ledger_snapshot import LedgerSnapshot
from state.row_types import EnvironmentRow
from tui.command_line.context import CommandContext
from tui.command_line.parser import COLUMNS
from tui.presentation.styling.value_formatting import (
    lag_words,
    long_duration,
    moment,
    short_duration,
    short_number,
    trend_words,
)
from tui.presentation.view.pools import pools_in_words

RIGHT = ("VER", "LAG", "ROWS", "ERR", "AGE", "IN", "OUT", "FILES", "BYTES", "BEHIND")


_FIELDS = (
    "table", "version", "product", "layer", "owner", "state", "state_since", "wanted", "external", "active", "fault",
    "behind_s", "data_age_s", "lag_rows", "lag_files", "lag_bytes", "lag_exact", "trend", "rate_rows_s", "eta_s",
    "in_rows_s", "out_rows_s", "rows", "batch", "batch_ms", "restarts", "error_class", "error", "measured_at",
)  # fmt: skip
_NAMED_OTHERWISE = {"lag_exact": "exact", "rows": "rows_total", "measured_at": "at"}


def statement_as_json(line: StatementLine) -> dict[str, Any]:
    """Return a statement as a JSON object, as in `ls --json`. Unknown values are null."""
    found = {name: getattr(line, _NAMED_OTHERWISE.get(name, name)) for name in _FIELDS}
    return found | {
        "state": line.state_word,
        "state_since": line.state_since or None,
        "wanted": None if line.external else str(line.wanted),
        "copied_at": line.copied_at,
        "trend": line.trend or "unknown",
        "fault": line.fault_word or None,
        "time_left": json.loads(line.time_left) if line.time_left else None,
    }


def behind_text(line: StatementLine) -> str:
    """Format the age of the oldest uncommitted input. `?` if unknown, empty if the table is not deployed."""
    return "" if line.state == State.ABSENT else short_duration(line.behind_s)


def lag_text(line: StatementLine) -> str:
    """Format a lag in rows (`~` if estimated) or, if unknown, in files. `?` if unknown, empty if not deployed."""
    return "" if line.state == State.ABSENT else lag_words(line)


def short_or_dash(value: int | None) -> str:
    """Format a count in short form, such as `1.2k`, or `-` if unknown."""
    return "-" if value is None else short_number(value)


def trend_text(line: StatementLine) -> str:
    """Format a trend with its name and figures. Empty if the table is not deployed."""
    text, trend = short_trend_text(line), _trend(line)
    return text if not text or text.startswith(trend) else f"{trend} {text}"


def short_trend_text(line: StatementLine) -> str:
    """Format a trend by its figures or, if it has none, by its name. Empty if the table is not deployed."""
    if line.state == State.ABSENT:
        return ""
    return trend_words(_trend(line), line.rate_rows_s, line.eta_s, line.data_age_s)


def _trend(line: StatementLine) -> Trend:
    return Trend(line.trend) if line.trend in set(Trend) else Trend.UNKNOWN


def data_age_line(context: CommandContext, snapshot: LedgerSnapshot, lines: Sequence[StatementLine]) -> str:
    """Return the number of running statements, the state of the pools, and the age of the data, in a line.

    Further lines say what is wrong with a pool, and since when and why it is unknown whether statements run. No line is
    longer than 80 columns, as far as its words allow.
    """
    if snapshot.facts is None:
        return f"{context.place.title}: {counted(len(lines), 'table')} declared, nothing deployed yet"
    age = snapshot.age_s
    if age is None:
        fresh = "no agent has ever run here"
    elif snapshot.stale:
        late = (
            "the agent is late" if snapshot.facts.agent_pid is not None else f"no agent is writing ({context.place.up})"
        )
        fresh = f"STALE: last update {long_duration(age)} ago, {late}"
    else:
        fresh = f"live, {age:.0f} s old"
    running = sum(line.state == State.RUNNING for line in lines if not line.external)
    mine = sum(not line.external for line in lines)
    words = f"{running} of {counted(mine, 'statement')} running"
    first = f"{context.place.title}: {words}; {pools_in_words(snapshot.facts)}; {fresh}"
    return "\n".join(
        chain.from_iterable(map(_wrapped, (first, *_pool_faults(snapshot.facts), *_unknown(lines, snapshot.read_at))))
    )


def _pool_faults(facts: EnvironmentRow) -> Iterator[str]:
    for pool in facts.pools:
        if pool.detail:
            yield f"pool {pool.name} {pool.state}: {pool.detail}"
        if pool.loss is not None:
            yield f"pool {pool.name}: {pool.loss}"


def _unknown(lines: Sequence[StatementLine], now: float) -> Iterator[str]:
    found: dict[tuple[str, str], list[TableName]] = {}
    for line in lines:
        if line.state == State.UNKNOWN and not line.external:
            found.setdefault((moment(line.state_since, now), line.error), []).append(line.table)
    for (since, why), tables in found.items():
        few = ", ".join(tables[:_FEW]) + (f" and {len(tables) - _FEW} more" if len(tables) > _FEW else "")
        yield f"unknown since {since}: {few}" + (f"; {mask_secrets(why)}" if why else "")


_FEW = 3


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def check_fail_on(
    context: CommandContext,
    conditions: "tuple[FailOnCondition, ...]",
    lines: Iterable[StatementLine],
    every: Iterable[StatementLine],
) -> int:
    """Print each statement that matches a `--fail-on` condition. Returns 1 if a statement matches; otherwise 0.

    `every` contains all tables of the environment, among them the inputs of `lines`.
    """
    errors = {line.table: line.error for line in every if line.is_unusable_input} if conditions else {}
    hits = [
        (line, word)
        for line in lines
        if not line.external
        for word in matching_conditions(conditions, line, errors.keys())
    ]
    for line, word in hits:
        inputs: dict[str, list[TableName]] = {}
        for name in sorted({b.parent for b in line.bindings} & errors.keys()) if word.lower() == INPUT else ():
            inputs.setdefault(errors[name], []).append(name)
        said = "".join(f"; input {', '.join(names)}: {mask_secrets(error)}" for error, names in inputs.items())
        context.output.say(f"fail-on {word}: {line.table} is {line.state}, lag {lag_text(line) or '-'}{said}")
    return 1 if hits else 0


INPUT = "input"
"""Condition of `--fail-on` for running statements with an input that cannot be read or is not filled."""


_LAG = re.compile(r"lag\s*(?P<op>>=|>)\s*(?P<bound>[\d.]+[kmg]?)\Z", re.IGNORECASE)
_SIZE_BY_UNIT = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class FailOnCondition:
    """A condition of `--fail-on`, as typed, with the function that tests a statement for it."""

    word: str
    holds: Callable[[StatementLine, Set[TableName]], bool]
    """Whether a statement meets the condition; the second argument contains the unusable inputs of the environment."""


def parse_conditions(text: str | None) -> tuple[FailOnCondition, ...]:
    """Parse the value of `--fail-on`, such as `failed,lag>1k`. Raises UsageError for an unknown condition."""
    return tuple(_parse(word.strip()) for word in (text or "").split(",") if word.strip())


def matching_conditions(
    conditions: tuple[FailOnCondition, ...], line: StatementLine, unusable: Set[TableName] = frozenset()
) -> list[str]:
    """List the conditions that a statement meets, as typed; `unusable` are the inputs that cannot be used."""
    return [condition.word for condition in conditions if condition.holds(line, unusable)]


def parse_count(text: str) -> int:
    """Parse a number such as 0, 250, 1k or 1.5m. Raises UsageError for anything else."""
    found = re.fullmatch(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)(?P<unit>[kmg]?)", text.strip().lower())
    if not found:
        raise UsageError(f"{text!r} is not a number of rows", remedy="write 0, 250, 1k or 1.5m")
    return int(float(found["number"]) * _SIZE_BY_UNIT.get(found["unit"], 1))


def _parse(word: str) -> FailOnCondition:
    found = _LAG.match(word)
    if found:
        bound = parse_count(found["bound"])
        strict = found["op"] == ">"
        return FailOnCondition(word, lambda line, _: _lag_exceeds(line, bound, strict=strict))
    lowered = word.lower()
    if lowered == Fault.BEHIND:
        return FailOnCondition(word, lambda line, _: line.fault_word == lowered)
    if lowered == INPUT:
        return FailOnCondition(word, _lacks_input)
    if lowered in set(State):
        return FailOnCondition(word, lambda line, _: str(line.state) == lowered)
    if lowered in set(Trend):
        return FailOnCondition(word, lambda line, _: line.trend == lowered)
    words = ", ".join(dict.fromkeys((*State, *Trend, Fault.BEHIND, INPUT)))
    raise UsageError(f"{word!r} is not a condition for --fail-on", remedy=f"use lag>N, or one of {words}")


def _lacks_input(line: StatementLine, unusable: Set[TableName]) -> bool:
    return bool(unusable) and line.state in ALIVE and any(bound.parent in unusable for bound in line.bindings)


def _lag_exceeds(line: StatementLine, bound: int, *, strict: bool) -> bool:
    if line.lag_rows is None:
        return False
    return line.lag_rows > bound if strict else line.lag_rows >= bound
