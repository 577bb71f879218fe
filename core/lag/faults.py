"""Faults of a statement: failed, stalled, starved, or behind its objective.

A statement is *behind* if its oldest uncommitted input is too old. The number of pending rows does not matter, since a
statement may process millions per batch. Whether the lag rises or falls is its trend, never a fault.
"""

from dataclasses import dataclass, replace

from core.lag.lag_samples import Lag
from core.lag.trend import LagTrend
from core.model.names import trigger_s
from core.model.states import ALIVE, Fault, State, Trend, WantedState
from core.text.wording import long_duration

SUSTAINED_S = 10.0
"""Seconds for which measurements must agree before a fault is reported or cleared: about three measurements."""

MET_S = 60.0
"""Seconds for which an objective must be met before this is recorded, so that a table's status does not flap."""

LEAST_OBJECTIVE_S = 60.0
_TRIGGERS = 6


@dataclass(frozen=True, slots=True)
class FaultSign:
    """The fault that a measurement suggests; it is reported only if it lasts."""

    fault: Fault = Fault.NONE
    why: str = ""
    """The reason, as one human-readable clause."""
    at_once: bool = False
    """True to apply the sign without delay: after a failure, at a start, or once the pool does not answer."""


@dataclass(frozen=True, slots=True)
class FaultWatch:
    """The reported fault of a statement, and since when measurements contradict it."""

    said: FaultSign = FaultSign()
    contrary_since: float | None = None
    """When measurements began to contradict the reported fault, in epoch seconds; None if they agree with it."""

    def updated(self, sign: FaultSign, at: float) -> "FaultWatch":
        """Return the watch after one more measurement.

        A fault is reported or cleared once measurements have contradicted the report for `SUSTAINED_S`, or immediately
        if the sign is `at_once`.
        """
        if bool(sign.fault) == bool(self.said.fault) or sign.at_once:
            return FaultWatch(sign)
        since = at if self.contrary_since is None else self.contrary_since
        return FaultWatch(sign) if at - since >= SUSTAINED_S else replace(self, contrary_since=since)


@dataclass(frozen=True, slots=True)
class ObjectiveWatch:
    """Whether a table is reported as missing its lag objective, and since when measurements contradict the report."""

    missed: bool = False
    since: float = 0.0
    """When the state in `missed` began, in epoch seconds."""
    contrary_since: float | None = None

    def updated(self, behind_s: float | None, objective_s: float, at: float) -> "ObjectiveWatch":
        """Return the watch after a measurement: missed after `SUSTAINED_S`, met again after `MET_S`.

        If `behind_s` is None, the lag is unknown, and the time in which the objective is met again starts anew.
        """
        if behind_s is None:
            return replace(self, contrary_since=None) if self.missed else self
        missed = behind_s > objective_s
        if missed == self.missed:
            return replace(self, contrary_since=None)
        since = at if self.contrary_since is None else self.contrary_since
        if at - since >= (SUSTAINED_S if missed else MET_S):
            return ObjectiveWatch(missed, since)
        return replace(self, contrary_since=since)


def objective_s(objective: str, trigger: str) -> float:
    """Return a table's lag objective in seconds; by default, the longer of a minute and six trigger intervals."""
    return trigger_s(objective) if objective else max(LEAST_OBJECTIVE_S, _TRIGGERS * trigger_s(trigger))


def fault_sign(lag: Lag, judged: LagTrend, *, state: str, wanted: str, objective_s: float) -> FaultSign:
    """Return the fault that a measurement suggests; for a statement that should be stopped, only a failure counts.

    A start clears any fault at once, because the age of unread input is not meaningful until the first batch. A pool
    that does not answer also clears a fault: the fault is then the pool's, and the condition of its statements is
    unknown.
    """
    if state == State.FAILED:
        return FaultSign(Fault.FAILED, "it has failed", at_once=True)
    if wanted == WantedState.STOPPED or state not in ALIVE or state == State.STARTING:
        return FaultSign(at_once=state in (State.STARTING, State.UNKNOWN))
    if judged.trend in (Trend.STARVED, Trend.STALLED):
        return FaultSign(Fault(judged.trend), judged.reason)
    if lag.behind_s is not None and lag.behind_s > objective_s:
        known, bound = long_duration(lag.behind_s), long_duration(objective_s)
        return FaultSign(Fault.BEHIND, f"{known} behind, the objective is {bound}")
    return FaultSign()
