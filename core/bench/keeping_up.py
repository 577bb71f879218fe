"""Decides whether a statement keeps up with a rate of input, from its batches and from how long each input waited.

An input waits from when it is visible until the batch that read it is visible to readers. One that is unread has waited
until now. So no sample can miss a backlog, whenever it was taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from core.model.names import TableName

LEAST_LEFT, PART_LEFT = 2, 0.05
"""Inputs by which what limited batches leave may grow, as a number and as a part of those that arrived meanwhile."""

MOST_BUSY = 1.1
"""Ratio of the duration of batches to the time whose input they read, above which the next batch is larger again."""


class Keeping(StrEnum):
    """Whether a statement keeps up with its input."""

    KEEPS_UP = "keeps up"
    BEHIND = "behind its objective"
    """An input waited for longer than the objective."""
    RISING = "lag rises"
    """Batches take longer than the input arrived that they read, so each has more to read than the one before, or
    batches of a limited size leave ever more input.
    """
    NO_INPUT = "no input"
    """Nothing arrived, so nothing can be said."""


@dataclass(frozen=True, slots=True)
class InputWait:
    """When an input of a statement arrived, in epoch seconds, and how long it waited or has been waiting."""

    at: float
    wait_s: float
    read: bool


@dataclass(frozen=True, slots=True)
class BatchWork:
    """A batch, with the time whose input it read: that between the start of the batch before it and its own."""

    started_at: float
    """In epoch seconds."""
    span_s: float
    took_s: float
    left: int = 0
    """Number of inputs that were there when it began, and that neither it nor an earlier batch read."""


@dataclass(frozen=True, slots=True)
class LagObjective:
    """What a statement is held to."""

    table: TableName
    objective_s: float


@dataclass(frozen=True, slots=True)
class KeepingUp:
    """The finding about one statement at one rate, and what it rests on."""

    table: TableName
    keeping: Keeping
    longest_s: float
    """The longest wait of an input."""
    objective_s: float
    busy: float
    """Duration of the later batches as a part of the time whose input they read; above 1, each is larger than the one
    before. 0 if there is no batch.
    """
    inputs: int
    unread: int

    @property
    def kept(self) -> bool:
        """True if the statement keeps up, or had no input."""
        return self.keeping in (Keeping.KEEPS_UP, Keeping.NO_INPUT)


def keeping_up(
    waits: Sequence[InputWait], batches: Sequence[BatchWork], against: LagObjective, *, since: float, until: float
) -> KeepingUp:
    """Judge a statement by the inputs that arrived in a window, and by the batches that began in its second half.

    A batch with a fixed cost takes longer than its input arrived until batches are large enough. That is why the first
    half does not count, if there is a batch in the second one.
    """
    mine = [each for each in waits if since <= each.at <= until]
    unread = sum(1 for each in mine if not each.read)
    within = [each for each in batches if since <= each.started_at <= until and each.span_s > 0]
    later = [each for each in within if each.started_at >= (since + until) / 2] or within
    busy = sum(each.took_s for each in later) / sum(each.span_s for each in later) if later else 0.0
    longest = max((each.wait_s for each in mine), default=0.0)
    keeping = Keeping.KEEPS_UP if mine else Keeping.NO_INPUT
    if longest > against.objective_s:
        keeping = Keeping.BEHIND
    elif mine and (busy > MOST_BUSY or _leave_more(later, mine)):
        keeping = Keeping.RISING
    return KeepingUp(
        against.table,
        keeping,
        longest_s=longest,
        objective_s=against.objective_s,
        busy=busy,
        inputs=len(mine),
        unread=unread,
    )


def _leave_more(batches: Sequence[BatchWork], waits: Sequence[InputWait]) -> bool:
    """True if batches of a limited size leave ever more input. All others leave none."""
    if not batches:
        return False
    arrived = sum(1 for each in waits if batches[0].started_at <= each.at <= batches[-1].started_at)
    return batches[-1].left - batches[0].left > max(LEAST_LEFT, PART_LEFT * arrived)
