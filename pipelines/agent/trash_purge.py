"""Purging what was deleted, once its time is over: only from the trash, only what the deleted version has there."""

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Lock

from core.model.errors import Busy, Refused, TryAgain
from core.model.names import whole_number
from core.text.units import long_duration
from pipelines.agent.checked_clock import JUMP_S, SET_S, check_clock, clock_jump
from pipelines.agent.context import AgentContext
from state.row_types import ClockCheck, Deployment

log = logging.getLogger(__name__)

_one_at_a_time = Lock()
"""Steps and the house-keeping check the clock: a jump that two of them see is one jump."""

BEFORE_SEAM = "before_seam"
"""In the trash folder of a version: below the time of their purge, checkpoints that it does not go on from any more."""


def purge_trash(world: AgentContext) -> None:
    """Delete the files of every version in the trash whose recorded deadline has passed, by the checked clock."""
    now, waiting = checked_now(world), _in_trash(world)
    trash = os.path.realpath(f"{world.layout.data}/trash")
    for deployment in waiting:
        folder = os.path.realpath(deployment.trash)
        if deployment.drop_after is None or deployment.drop_after > now:
            continue
        if not folder.startswith(trash + os.sep):
            log.error("%s is outside the trash folder and is left alone", folder)
            continue
        shared = any(other.trash == deployment.trash for other in waiting if other is not deployment)
        with (
            suppress(Busy, TryAgain),
            world.locks.holding((deployment.table, deployment.version), by="the purge", wait_s=0),
        ):
            if world.ledger.deployment(deployment.table, deployment.version) != deployment:
                continue
            if world.ledger.clones(deployment.table, deployment.version):
                # Its files hold their rows; they go before it.
                continue
            _take_back(world, deployment)
            if _removed(world, deployment, Path(folder), shared=shared):
                waiting = [other for other in waiting if other is not deployment]
                world.ledger.purged(deployment.table, deployment.version, world.clock())
                log.info("purged %s v%s", deployment.table, deployment.version)
    _purge_former(trash, now)


def _purge_former(trash: str, now: float) -> None:
    """Delete the checkpoints from before a seam whose time is over; their version may serve meanwhile."""
    for found in Path(trash).glob(f"*/{BEFORE_SEAM}/*"):
        at = whole_number(found.name)
        if found.is_symlink() or at is None or at > now:
            continue
        shutil.rmtree(found, ignore_errors=True)
        if found.exists():
            log.warning("%s could not be purged and will be tried again", found)
            continue
        log.info("purged %s", found)
        for empty in (found.parent, found.parent.parent):
            with suppress(OSError):
                empty.rmdir()


def checked_now(world: AgentContext) -> float:
    """Check the wall clock, and return the time that deadlines in the trash, and ends of soaks, are compared with.

    Also called before a deadline is recorded: one that was recorded by a clock that had jumped would hold the others.
    """
    with _one_at_a_time:
        return _checked_now(world)


def _checked_now(world: AgentContext) -> float:
    wall, up, before = world.clock(), world.uptime(), world.ledger.clock_check()
    _move_soaks(world, before, clock_jump(before, wall, up))
    deadlines = [d.drop_after for d in _in_trash(world)] + [d.stops_at for d in world.ledger.deployments()]
    last_deadline = max((deadline for deadline in deadlines if deadline is not None), default=0.0)
    check, jump_s = check_clock(before, wall, up, last_deadline)
    world.ledger.put_clock_check(check)
    if jump_s:
        kept = "deleted files and replaced versions are kept as if it had not"
        summary = f"the clock jumped forward by {long_duration(jump_s)}; {kept}"
        log.warning("%s", summary)
        world.event("clock", summary)
    return wall - check.debt_s


def _move_soaks(world: AgentContext, before: ClockCheck | None, jump_s: float) -> None:
    """Have ends of soaks go along with a clock that was set: minutes would be over by less than what makes a debt."""
    if before is None or not (jump_s <= -SET_S or SET_S <= jump_s <= JUMP_S):
        return
    for one in world.ledger.deployments():
        if one.stops_at is not None and one.stops_at > before.wall:
            world.ledger.update_deployment(one.table, one.version, stops_at=one.stops_at + jump_s)


def _in_trash(world: AgentContext) -> list[Deployment]:
    return [d for d in world.ledger.deployments(include_deleted=True) if d.drop_after is not None and d.trash]


def _take_back(world: AgentContext, deployment: Deployment) -> None:
    """Move into the trash again what an undelete that did not end has taken out of it."""
    name = world.layout.catalog_name(deployment.table, deployment.version)
    for folder, part in ((deployment.folder, "tables"), (deployment.checkpoint, "checkpoints")):
        with suppress(Refused):
            world.files.set_aside(folder, f"{deployment.trash}/{part}/{name}")


def _removed(world: AgentContext, deployment: Deployment, folder: Path, *, shared: bool) -> bool:
    """Delete what a version has in the trash; returns whether nothing of it is left.

    Until one folder for each version, all that a run deleted lay in one, in folders by the versions' names.
    """
    name = world.layout.catalog_name(deployment.table, deployment.version)
    mine = [found for found in folder.glob("*/*") if found.name.split(".")[0] == name] if shared else [folder]
    for found in mine:
        shutil.rmtree(found, ignore_errors=True)
    left = [str(found) for found in mine if found.exists()]
    if left:
        log.warning("%s could not be purged and will be tried again", ", ".join(left))
    return not left
