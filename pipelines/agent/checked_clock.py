"""The wall clock, checked against the machine's uptime: what it was set by is no time that has passed."""

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
"""Steps and the house-keeping check the clock: a jump that two of them see is one jump."""

JUMP_S = 3600.0
"""How far the wall clock may get ahead of the uptime between two looks, by drift and by being set right."""

OFF_S = 30 * 86400.0
"""How long a machine may have been off: a clock that is further ahead after a boot was set."""

SET_S = 1.0
"""What the wall clock was set by at least: less than that between two looks is drift."""


def clock_jump(before: ClockCheck | None, wall: float, up: Uptime) -> float:
    """Return by how many seconds the clock has gone ahead of the uptime since `before`; negative: it was set back.

    Before a boot the machine was off for a time that nobody can tell: that counts as a jump as well.
    """
    return wall - before.wall - _passed(before, up) if before is not None else 0.0


def _passed(before: ClockCheck, up: Uptime) -> float:
    return up.seconds - before.uptime_s if _is_same(before, up) else up.seconds


def _is_same(before: ClockCheck, up: Uptime) -> bool:
    return before.boot == up.boot and before.uptime_s <= up.seconds


def check_clock(before: ClockCheck | None, wall: float, up: Uptime) -> tuple[ClockCheck, float]:
    """Return the check of this moment, and by how many seconds deadlines that are recorded move along with the clock.

    What is left until a deadline is the same before and after, whichever way the clock was set, and however wrong.
    What is forgotten by its age is compared without the way forward from the lowest clock of the last `FORGETS_S`.
    """
    if before is None:
        return ClockCheck(wall, up.boot, up.seconds), 0.0
    jump = clock_jump(before, wall, up)
    hold_s = max(0.0, before.hold_s - _passed(before, up))
    debt_s = before.debt_s if hold_s else 0.0
    # Rows grow old while a machine is off. Deadlines wait for it: nothing is lost by that.
    if abs(jump) > JUMP_S and (_is_same(before, up) or not 0 < jump < OFF_S):
        debt_s, hold_s = max(0.0, debt_s + jump), FORGETS_S
    moved_s = jump if abs(jump) >= SET_S else 0.0
    return ClockCheck(
        wall, up.boot, uptime_s=up.seconds, debt_s=debt_s, hold_s=hold_s, moved_s=before.moved_s + moved_s
    ), moved_s


def forgetting_time(check: ClockCheck | None, wall: float, kept_s: float) -> float:
    """Return the time to compare with, for what is forgotten once it is so old: at most `FORGETS_S`."""
    has_jumped = check is not None and check.hold_s > 0 and FORGETS_S - check.hold_s < kept_s
    return wall - check.debt_s if check is not None and has_jumped else wall


def checked_now(agent: AgentContext) -> float:
    """Check the wall clock, and return the time that deadlines in the ledger are compared with."""
    with _one_at_a_time:
        return _checked(agent)[0]


def unmoved_now(agent: AgentContext) -> float:
    """Return a time that no setting of the clock changes, for a deadline that cannot move along: one in a name."""
    with _one_at_a_time:
        now, check = _checked(agent)
        return now - check.moved_s


def record_deadline(agent: AgentContext, seconds: float, record: Callable[[float], object]) -> None:
    """Give `record` the time that is so far away; once it is in the ledger, it moves along with the clock."""
    with _one_at_a_time:
        record(_checked(agent)[0] + seconds)


def _checked(agent: AgentContext) -> tuple[float, ClockCheck]:
    """Check the clock; where the ledger does not take that, time goes on by the last check that it has.

    Raises LedgerUnavailable where it has none: nobody knows the time, and a deadline of then would be over at once.
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
