"""The wall clock, checked against the machine's uptime, so that setting the clock does not expire any deadline."""

import logging
from collections.abc import Callable
from threading import Lock

from core.model.errors import LedgerUnavailable
from core.model.events import EventKind
from core.text.wording import long_duration
from pipelines.agent.context import AgentContext, Uptime
from state.retention import FORGETS_S
from state.row_types import ClockCheck

log = logging.getLogger(__name__)

_one_at_a_time = Lock()
"""Held during a check: steps and housekeeping both check the clock, and a jump must be counted only once."""

JUMP_S = 3600.0
"""If the wall clock gains more seconds than this on the uptime between two checks, it has jumped."""

OFF_S = 30 * 86400.0
"""Longest time a machine is assumed to have been off; a larger gap across a boot means that the clock was set."""

SET_S = 1.0
"""Smallest difference, in seconds, that means that the clock was set; anything smaller is drift."""


def clock_jump(before: ClockCheck | None, wall: float, up: Uptime) -> float:
    """Return how many seconds the clock has gained on the uptime since `before`; negative if it was set back.

    After a reboot, the result includes the time for which the machine was off, because that time is unknown.
    """
    return wall - before.wall - _passed(before, up) if before is not None else 0.0


def _passed(before: ClockCheck, up: Uptime) -> float:
    return up.seconds - before.uptime_s if _is_same(before, up) else up.seconds


def _is_same(before: ClockCheck, up: Uptime) -> bool:
    return before.boot == up.boot and before.uptime_s <= up.seconds


def check_clock(before: ClockCheck | None, wall: float, up: Uptime) -> tuple[ClockCheck, float]:
    """Check the clock; returns the check, and the number of seconds by which recorded deadlines must be shifted.

    Shifting keeps the remaining time of a deadline constant, however the clock was set. Data that expires by age is
    judged by the lowest clock of the last `FORGETS_S` seconds.
    """
    if before is None:
        return ClockCheck(wall, up.boot, up.seconds), 0.0
    jump = clock_jump(before, wall, up)
    hold_s = max(0.0, before.hold_s - _passed(before, up))
    debt_s = before.debt_s if hold_s else 0.0
    # Rows age while a machine is off. Deadlines are postponed instead, which loses nothing.
    if abs(jump) > JUMP_S and (_is_same(before, up) or not 0 < jump < OFF_S):
        debt_s, hold_s = max(0.0, debt_s + jump), FORGETS_S
    moved_s = jump if abs(jump) >= SET_S else 0.0
    return ClockCheck(
        wall, up.boot, uptime_s=up.seconds, debt_s=debt_s, hold_s=hold_s, moved_s=before.moved_s + moved_s
    ), moved_s


def forgetting_time(check: ClockCheck | None, wall: float, kept_s: float) -> float:
    """Return the time at which to judge whether data that is kept for `kept_s` (at most `FORGETS_S`) has expired."""
    has_jumped = check is not None and check.hold_s > 0 and FORGETS_S - check.hold_s < kept_s
    return wall - check.debt_s if check is not None and has_jumped else wall


def checked_now(agent: AgentContext) -> float:
    """Check the wall clock, and return the current time to compare with deadlines in the ledger."""
    with _one_at_a_time:
        return _checked(agent)[0]


def unmoved_now(agent: AgentContext) -> float:
    """Return a time that does not change when the clock is set.

    It is used for deadlines in folder names, which cannot be shifted.
    """
    with _one_at_a_time:
        now, check = _checked(agent)
        return now - check.moved_s


def record_deadline(agent: AgentContext, seconds: float, record: Callable[[float], object]) -> None:
    """Call `record` with the deadline `seconds` from now; recorded deadlines are shifted whenever the clock is set."""
    with _one_at_a_time:
        record(_checked(agent)[0] + seconds)


def _checked(agent: AgentContext) -> tuple[float, ClockCheck]:
    """Check the clock and record the check; if the ledger cannot be written, extrapolate from the last recorded check.

    Raises LedgerUnavailable if there is no earlier check, because a deadline might then expire at once.
    """
    wall, up, before = agent.clock(), agent.uptime(), agent.ledger.clock_check()
    check, moved_s = check_clock(before, wall, up)
    try:
        agent.ledger.put_clock_check(check, moved_s)
    except LedgerUnavailable as error:
        if before is None:
            raise
        log.warning("the check of the clock could not be recorded: %s", error.summary)
        return wall - clock_jump(before, wall, up), before
    if abs(moved_s) > JUMP_S:
        how = "jumped forward by" if moved_s > 0 else "was set back by"
        kept = "deleted files and replaced versions are kept as if it had not"
        summary = f"the clock {how} {long_duration(abs(moved_s))}; {kept}"
        log.warning("%s", summary)
        agent.event(EventKind.CLOCK, summary)
    return wall, check
