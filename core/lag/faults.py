"""Whether a statement is at fault, judged in time: failed, stalled, starved, or behind for longer than its objective.

*Behind* is the age of the oldest input that is not committed. Rows say how much work waits, and say nothing of whether
that is bad: a statement may take in millions with each batch. Where lag is going is a trend, and never a fault.
"""

from dataclasses import dataclass, replace

from core.lag.lag_samples import Lag
from core.lag.trend import LagTrend
from core.model.names import trigger_s
from core.model.states import MAY_WORK, Fault, State, Trend, WantedState
from core.text.wording import long_duration

SUSTAINED_S = 10.0
"""How long a sign must stand until it is a fault, and be gone until it is none: three measurements in a row."""

MET_S = 60.0
"""How long an objective must be met again until that is recorded: one that is just missed makes no entry a minute."""

LEAST_OBJECTIVE_S = 60.0
_TRIGGERS = 6


@dataclass(frozen=True, slots=True)
class FaultSign:
    """What one measurement shows."""

    fault: Fault = Fault.NONE
    why: str = ""
    """One clause for people."""
    at_once: bool = False
    """Whether it counts without having stood: one that failed, and where the pool has not answered for a while."""


@dataclass(frozen=True, slots=True)
class FaultWatch:
    """What is said of a statement, and for how long its measurements have shown the contrary."""

    said: FaultSign = FaultSign()
    contrary_since: float | None = None
    """When they began to, epoch seconds; None while they agree on whether there is a fault."""

    def heard(self, sign: FaultSign, at: float) -> "FaultWatch":
        """Return what is said after one more measurement: a sign counts once it has stood, or at once."""
        if bool(sign.fault) == bool(self.said.fault) or sign.at_once:
            return FaultWatch(sign)
        since = at if self.contrary_since is None else self.contrary_since
        return FaultWatch(sign) if at - since >= SUSTAINED_S else replace(self, contrary_since=since)


@dataclass(frozen=True, slots=True)
class ObjectiveWatch:
    """Whether a table misses its objective, and for how long its measurements have shown the contrary."""

    missed: bool = False
    since: float = 0.0
    """When it began to be so."""
    contrary_since: float | None = None

    def heard(self, behind_s: float | None, objective_s: float, at: float) -> "ObjectiveWatch":
        """Return what is so after one more measurement: it must have stood, and to meet it again for a minute."""
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
    """Return what a statement may be behind, in seconds: as declared, else the longer of a minute and six triggers."""
    return trigger_s(objective) if objective else max(LEAST_OBJECTIVE_S, _TRIGGERS * trigger_s(trigger))


def fault_sign(lag: Lag, judged: LagTrend, *, state: str, wanted: str, objective_s: float) -> FaultSign:
    """Judge one measurement of a statement; what is wanted stopped, or not measured yet, shows nothing."""
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
