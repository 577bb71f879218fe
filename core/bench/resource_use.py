"""CPU and memory that the agent and the Spark server used, from readings of their processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.bench.result import Figure, FigureKind

LEAST_S = 1.0
"""Least time, in seconds, over which CPU is measured: within less, a process may happen to have used none."""


class Part(StrEnum):
    """A part of an environment whose processes are read."""

    SERVER = "server"
    AGENT = "agent"


FIGURES = {
    Part.SERVER: (FigureKind.SERVER_CPU, FigureKind.SERVER_MEMORY),
    Part.AGENT: (FigureKind.AGENT_CPU, FigureKind.AGENT_MEMORY),
}
"""The kinds of figures for CPU and memory of each part."""


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """What a process and its children had used at a moment. Times are in epoch seconds."""

    part: Part
    at: float
    process: str
    """Identifies the process, so that another one with the same pid is not confused with it."""
    started_at: float
    cpu_s: float
    """CPU seconds since its start, with those of its children."""
    memory: int
    """Resident bytes, with those of its children; pages that they share count for each of them."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a part used in a time."""

    cpu: float | None
    """CPU seconds per second; None if the time is too short."""
    memory: int
    """The highest of the readings, in bytes."""


def use_of(part: Part, readings: Sequence[ProcessReading], *, since: float) -> Use | None:
    """Return what a part used from a moment until the last reading; None if it was not read twice.

    CPU of a process that started after the moment counts from its start, that of others from the first reading. A part
    may have had several processes one after another.
    """
    mine = [each for each in readings if each.part is part and each.at >= since]
    known = {each.process: each for each in mine}
    first = {each.process: each for each in reversed(mine)}
    fresh = {name for name, each in first.items() if each.started_at >= since}
    begin = since if fresh else mine[0].at if mine else since
    if not mine or mine[-1].at <= begin:
        return None
    spent = sum(last.cpu_s - (0.0 if name in fresh else first[name].cpu_s) for name, last in known.items())
    took = mine[-1].at - begin
    return Use(max(0.0, spent) / took if took >= LEAST_S else None, max(each.memory for each in mine))


def use_figures(readings: Sequence[ProcessReading], phase: str, repetition: int, *, since: float) -> Iterator[Figure]:
    """Yield the figures of both parts in a phase that began at `since`; none for a part whose process is not found."""
    for part, (cpu, memory) in FIGURES.items():
        if (found := use_of(part, readings, since=since)) is not None:
            if found.cpu is not None:
                yield Figure(cpu, phase, "", repetition, found.cpu)
            yield Figure(memory, phase, "", repetition, float(found.memory))
