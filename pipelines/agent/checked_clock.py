"""The wall clock, checked against the machine's uptime, so that setting the clock cannot expire deadlines early."""

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
"""Serializes clock checks: steps and housekeeping both check the clock, and a jump must be handled only once."""

JUMP_S = 3600.0
"""Smallest deviation of the wall clock from the uptime between two checks, in seconds, that counts as a jump."""

OFF_S = 30 * 86400.0
"""Longest time, in seconds, that a machine is assumed to have been off.

A larger gap across a boot means that the clock was set.
"""

SET_S = 1.0
"""Smallest clock change, in seconds, that is treated as deliberate. Smaller changes are treated as drift."""


def clock_jump(before: ClockCheck | None, wall: float, up: Uptime) -> float:
    """Return the seconds by which the wall clock has gained on the uptime since the check `before`.

    The result is negative if the clock lost time, and 0 if `before` is None. After a reboot, the result includes the
    time that the machine was off, because that time cannot be measured.
    """
    return wall - before.wall - _passed(before, up) if before is not None else 0.0


def _passed(before: ClockCheck, up: Uptime) -> float:
    return up.seconds - before.uptime_s if _is_same(before, up) else up.seconds


def _is_same(before: ClockCheck, up: Uptime) -> bool:
    return before.boot == up.boot and before.uptime_s <= up.seconds


def check_clock(before: ClockCheck | None, wall: float, up: Uptime) -> tuple[ClockCheck, float]:
    """Return a new clock check, and the seconds by which to shift all deadlines in the ledger.

    The shift preserves each deadline's remaining time. After a large forward jump, the new check also delays the
    deletion of data by age; see `forgetting_time`.
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
    """Return the time to use as "now" when deleting data that is kept for `kept_s` seconds (at most `FORGETS_S`).

    If the clock jumped forward within that period, the jump is subtracted, so that no data is deleted too early.
    """
    has_jumped = check is not None and check.hold_s > 0 and FORGETS_S - check.hold_s < kept_s
    return wall - check.debt_s if check is not None and has_jumped else wall


def checked_now(agent: AgentContext) -> float:
    """Check the wall clock for jumps, and return the current time for comparison with deadlines in the ledger."""
    with _one_at_a_time:
        return _checked(agent)[0]


def unmoved_now(agent: AgentContext) -> float:
    """Return the current time, unaffected by changes to the machine's clock.

    Use it for deadlines that are part of folder names, because those cannot be shifted.
    """
    with _one_at_a_time:
        now, check = _checked(agent)
        return now - check.moved_s


def record_deadline(agent: AgentContext, seconds: float, record: Callable[[float], object]) -> None:
    """Pass the deadline `seconds` from now to `record`, which must write it to the ledger.

    The clock cannot be checked until `record` returns, so every later clock change shifts the deadline.
    """
    with _one_at_a_time:
        record(_checked(agent)[0] + seconds)


def _checked(agent: AgentContext) -> tuple[float, ClockCheck]:
    # If the ledger is not writable, the time is extrapolated from the last check.
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
