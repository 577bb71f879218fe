"""The wall clock, checked against the machine's uptime: what it jumped forward is no time that has passed."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from state.row_types import ClockCheck

JUMP_S = 3600.0
"""How far the wall clock may get ahead of the uptime between two looks, by drift and by being set right."""

SET_S = 1.0
"""What the wall clock was set by at least: less than that between two looks is drift."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while a Linux machine sleeps."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """How long the machine has been up."""

    boot: str
    """Which start of the machine; empty where it does not say."""
    seconds: float


def machine_uptime() -> Uptime:
    """Return for how long this machine has been up."""
    try:
        boot = _BOOT_ID.read_text("ascii").strip()
    except OSError:
        boot = ""
    return Uptime(boot, time.clock_gettime(_CLOCK))


def clock_jump(before: ClockCheck | None, wall: float, up: Uptime) -> float:
    """Return by how many seconds the clock has gone ahead of the uptime since `before`; negative: it was set back."""
    if before is None:
        return 0.0
    jump = wall - before.wall - _passed(before, up)
    return jump if _is_same(before, up) else max(0.0, jump)


def _is_same(before: ClockCheck, up: Uptime) -> bool:
    return before.boot == up.boot and before.uptime_s <= up.seconds


def _passed(before: ClockCheck, up: Uptime) -> float:
    # Before a boot the machine was off for a time that nobody can tell; since then it was up.
    return up.seconds - before.uptime_s if _is_same(before, up) else up.seconds


def check_clock(before: ClockCheck | None, wall: float, up: Uptime, last_deadline: float) -> tuple[ClockCheck, float]:
    """Return the check of this moment, and by how many seconds the clock has jumped forward since `before`, else 0.

    What it jumped is a debt, until as much time has really passed as was left until `last_deadline` when it jumped.
    """
    if before is None:
        return ClockCheck(wall, up.boot, up.seconds), 0.0
    passed, jump = _passed(before, up), clock_jump(before, wall, up)
    hold_s = max(0.0, before.hold_s - passed)
    now = ClockCheck(wall, up.boot, up.seconds, before.debt_s if hold_s else 0.0, hold_s)
    if jump <= JUMP_S:
        return now, 0.0
    return replace(now, debt_s=now.debt_s + jump, hold_s=max(hold_s, last_deadline - before.wall - passed)), jump
