"""How long steps took that were done before, as ranges: without the shortest and the longest tenth, and with room."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

OWN_LEAST = 2
"""Steps of one kind on one table from which on only those count for it, not what other tables took."""

ROOM, ROOM_S = 1.5, 1.0
"""A step may take half as long again as those before and a second more, because of what is done beside it, or less."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """A range of durations."""

    low: float
    high: float

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(self.low + other.low, self.high + other.high)

    def less(self, elapsed_s: float) -> "Seconds":
        """Return what is left after some of it has passed, never below 0."""
        return Seconds(max(0.0, self.low - elapsed_s), max(0.0, self.high - elapsed_s))


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """How long a step took that was done at the first try."""

    do: str
    table: str
    took_s: float


StepDurations = Mapping[str, Seconds]
"""By kind of step, `start`, and by kind and table, `start orders`, where that is known of itself."""


def step_durations(measured: Iterable[MeasuredStep]) -> StepDurations:
    """Return the range of each kind of step, and of each table that has at least OWN_LEAST of one kind."""
    found: dict[str, list[float]] = {}
    for step in measured:
        found.setdefault(step.do, []).append(step.took_s)
        found.setdefault(f"{step.do} {step.table}", []).append(step.took_s)
    return {words: _usual(took) for words, took in found.items() if " " not in words or len(took) >= OWN_LEAST}


def _usual(took: list[float]) -> Seconds:
    took = sorted(took)
    tenth = len(took) // 10
    return Seconds(max(0.0, took[tenth] / ROOM - ROOM_S), took[-1 - tenth] * ROOM + ROOM_S)
