"""Faults of a statement: failed, stalled, starved, or behind for longer than its objective.

*Behind* is the age of the oldest uncommitted input. The number of pending rows is no criterion, since a statement may
process millions per batch. The direction of the lag is a trend, never a fault.
"""

from dataclasses import dataclass, replace

from core.lag.lag_samples import Lag
from core.lag.trend import LagTrend
from core.model.names import trigger_s
from core.model.states import MAY_WORK, Fault, State, Trend, WantedState
from core.text.wording import long_duration

SUSTAINED_S = 10.0
"""How long a sign must persist to become a fault, and be absent to clear it: three measurements."""

MET_S = 60.0
"""How long an objective must be met before that is recorded, to avoid an entry every minute."""

LEAST_OBJECTIVE_S = 60.0
_TRIGGERS = 6


@dataclass(frozen=True, slots=True)
class FaultSign:
    """The fault that one measurement indicates."""

    fault: Fault = Fault.NONE
    why: str = ""
    """One clause for people."""
    at_once: bool = False
    """Whether it counts immediately: a failure, or a pool that has not answered for a while."""


@dataclass(frozen=True, slots=True)
class FaultWatch:
    """The reported fault of a statement, and for how long measurements have contradicted it."""

    said: FaultSign = FaultSign()
    contrary_since: float | None = None
    """When the contradiction began, epoch seconds; None without one."""

    def heard(self, sign: FaultSign, at: float) -> "FaultWatch":
        """Return the watch after one more measurement; a sign counts once it persisted, or at once."""
        if bool(sign.fault) == bool(self.said.fault) or sign.at_once:
            return FaultWatch(sign)
        since = at if self.contrary_since is None else self.contrary_since
        return FaultWatch(sign) if at - since >= SUSTAINED_S else replace(self, contrary_since=since)


@dataclass(frozen=True, slots=True)
class ObjectiveWatch:
    """Whether a table misses its objective, and for how long measurements have contradicted that."""

    missed: bool = False
    since: float = 0.0
    """When this began, epoch seconds."""
    contrary_since: float | None = None

    def heard(self, behind_s: float | None, objective_s: float, at: float) -> "ObjectiveWatch":
        """Return the watch after one more measurement; a change must persist, for a minute to count as met again."""
        if behind_s is None:
            return self
        missed = behind_s > objective_s
        if missed == self.missed:
            return replace(self, contrary_since=None)
        since = at if self.contrary_since is None else self.contrary_since
        if at - since >= (SUSTAINED_S if missed else MET_S):
            return ObjectiveWatch(missed, since)
        return replace(self, contrary_since=since)


def objective_s(objective: str, trigger: str) -> float:
    """Return the lag objective in seconds: as declared, else a minute or six triggers, whichever is longer."""
    return trigger_s(objective) if objective else max(LEAST_OBJECTIVE_S, _TRIGGERS * trigger_s(trigger))


def fault_sign(lag: Lag, judged: LagTrend, *, state: str, wanted: str, objective_s: float) -> FaultSign:
    """Judge one measurement of a statement; none is a fault if the statement is wanted stopped or not running."""
    if state == State.FAILED:
        return FaultSign(Fault.FAILED, "it has failed", at_once=True)
    if wanted == WantedState.STOPPED or state not in MAY_WORK:
        return FaultSign()
    if judged.trend in (Trend.STARVED, Trend.STALLED):
        return FaultSign(Fault(judged.trend), judged.reason, at_once=state == State.UNKNOWN)
    if lag.behind_s is not None and lag.behind_s > objective_s:
        known, bound = long_duration(lag.behind_s), long_duration(objective_s)
        return FaultSign(Fault.BEHIND, f"{known} behind, the objective is {bound}")
    return FaultSign()
