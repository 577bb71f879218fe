"""Purging what was deleted, once its time is over: only from the trash, only what the deleted version has there."""

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from threading import Lock

from core.model.errors import Busy, LedgerUnavailable, Refused, TryAgain
from core.model.events import EventKind
from core.model.names import whole_number
from core.observed.versions import Deployment
from core.text.wording import long_duration
from pipelines.agent.checked_clock import JUMP_S, check_clock, clock_jump
from pipelines.agent.context import AgentContext
from state.row_types import ClockCheck

log = logging.getLogger(__name__)

_one_at_a_time = Lock()
"""Steps and the house-keeping check the clock: a jump that two of them see is one jump."""

BEFORE_SEAM = "before_seam"
"""In the trash folder of a version: below the time of their purge, checkpoints that it does not go on from any more."""


def purge_trash(agent: AgentContext) -> None:
    """Delete the files of every version in the trash whose recorded deadline has passed, by the checked clock.

    Nothing is written before files are deleted: on a full disk they are what frees it. What the ledger does not take
    then, it takes in a later round, which finds them gone.
    """
    agent.identity.refuse_other_world()
    now, waiting, trash = checked_now(agent), _in_trash(agent), _trash_folder(agent)
    for deployment in waiting:
        folder = os.path.realpath(deployment.trash)
        if deployment.drop_after is None or deployment.drop_after > now:
            continue
        if not folder.startswith(f"{trash}/"):
            log.error("%s is outside the trash folder and is left alone", folder)
            continue
        shared = any(other.trash == deployment.trash for other in waiting if other is not deployment)
        with (
            suppress(Busy, TryAgain),
            agent.locks.holding((deployment.table, deployment.version), by="the purge", wait_s=0),
        ):
            if agent.ledger.deployment(deployment.table, deployment.version) != deployment:
                continue
            if agent.ledger.clones(deployment.table, deployment.version):
                # Its files hold their rows; they go before it.
                continue
            is_whole = _take_back(agent, deployment)
            if _removed(agent, deployment, Path(folder), shared=shared) and is_whole:
                waiting = [other for other in waiting if other is not deployment]
                agent.ledger.purged(deployment.table, deployment.version, agent.clock())
                log.info("purged %s v%s", deployment.table, deployment.version)
    _purge_former(agent)


def _trash_folder(agent: AgentContext) -> Path:
    """Return the trash folder itself, where that is a link to another disk."""
    return Path(os.path.realpath(f"{agent.layout.data}/trash"))


def _purge_former(agent: AgentContext) -> None:
    """Delete the checkpoints from before a seam whose time is over; their version may serve meanwhile."""
    now = unmoved_now(agent)
    for found in _trash_folder(agent).glob(f"*/{BEFORE_SEAM}/*"):
        at = whole_number(found.name)
        if not found.is_symlink() and at is not None and at <= now:
            _remove(agent, sorted(found.glob("*")))


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


def _in_trash(agent: AgentContext) -> list[Deployment]:
    return [d for d in agent.ledger.deployments(include_deleted=True) if d.drop_after is not None and d.trash]


def _take_back(agent: AgentContext, deployment: Deployment) -> bool:
    """Move into the trash again what an undelete that did not end has taken out; returns whether all of it is there."""
    name = agent.layout.catalog_name(deployment.table, deployment.version)
    is_whole = True
    for folder, part in ((deployment.folder, "tables"), (deployment.checkpoint, "checkpoints")):
        try:
            agent.files.set_aside(folder, f"{deployment.trash}/{part}/{name}")
        except Refused:
            continue
        except TryAgain as error:
            log.warning("%s", error.summary)
            is_whole = False
    return is_whole


def _removed(agent: AgentContext, deployment: Deployment, folder: Path, *, shared: bool) -> bool:
    """Delete what a version has in the trash; returns whether nothing of it is left.

    Until one folder for each version, all that a run deleted lay in one, in folders by the versions' names.
    """
    name = agent.layout.catalog_name(deployment.table, deployment.version)
    mine = [found for found in folder.glob("*/*") if not shared or found.name.split(".")[0] == name]
    former = [] if shared else [each for found in mine if found.parent.name == BEFORE_SEAM for each in found.glob("*")]
    left = _remove(agent, [found for found in mine if found.parent.name != BEFORE_SEAM] + former)
    if left:
        log.warning("%s could not be purged and will be tried again", ", ".join(left))
    return not left


def _remove(agent: AgentContext, folders: Iterable[Path]) -> list[str]:
    """Delete folders of the trash that are ours, and each one above them that is empty then; returns what is left.

    What is not ours stays, and so do the folder that it lies in and the trash folder itself.
    """
    left, trash = [], _trash_folder(agent)
    for folder in folders:
        if not agent.files.remove(str(folder)):
            log.warning("%s is not of this ledger and is left alone", folder)
        elif folder.exists():
            left.append(str(folder))
        else:
            log.info("removed %s", folder)
        for above in takewhile(trash.__ne__, folder.parents):
            with suppress(OSError):
                above.rmdir()
    return left
