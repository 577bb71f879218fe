"""Deletes expired trash, unused packages and jars, stops replaced versions, and records overdue tickets."""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shlex import quote

from core.ipc.environment_paths import job_packages
from core.model.errors import Busy, Refused, TryAgain
from core.model.events import EventKind
from core.model.names import query_name, whole_number
from core.model.states import WantedState
from core.observed.versions import Deployment
from core.run.records import open_tickets, overdue_tickets
from core.sql.python_jobs import python_job_of
from pipelines.agent.checked_clock import checked_now, unmoved_now
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import jar_of
from pipelines.python_jobs.job_environments import JobEnvironments
from pipelines.storage.file_store import store_of
from pipelines.storage.jar_store import JARS, JarStore

log = logging.getLogger(__name__)

BEFORE_SEAM = "before_seam"
"""Subfolder of a version's trash folder for former checkpoints.

The name of each checkpoint's folder is the time at which the checkpoint is purged, in epoch seconds.
"""


def purge_trash(agent: AgentContext) -> None:
    """Delete the files of trashed versions whose purge deadline has passed according to the checked clock.

    The ledger is updated only after the files are deleted, because a full disk may have no space for the ledger before
    that. If the update fails, a later call finds the files gone and records the purge.
    """
    agent.identity.refuse_other_environment()
    now, waiting, trash = checked_now(agent), _in_trash(agent), _trash_folder(agent)
    for deployment in waiting:
        folder = store_of(deployment.trash).real_path(deployment.trash)
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
                # The version's files contain rows of its clones, so the clones are purged first.
                continue
            is_whole = _take_back(agent, deployment)
            if _removed(agent, deployment, folder, shared=shared) and is_whole:
                waiting = [other for other in waiting if other is not deployment]
                agent.ledger.purged(deployment.table, deployment.version, agent.clock())
                log.info("purged %s v%s", deployment.table, deployment.version)
    _purge_former(agent)


class UnusedJars:
    """Removes jars of functions that neither a version, nor a plan that may be undone, needs."""

    def __init__(self, agent: AgentContext) -> None:
        """Remove jars in the environment's home."""
        self._agent = agent
        self._unused: frozenset[str] = frozenset()

    def remove(self) -> None:
        """Remove the jars that the previous call has found unused, and that still are.

        A jar is stored just before its plan.
        """
        found = JarStore(Path(self._agent.places.home, JARS))
        if not (stored := found.hashes()):
            return
        used = {jar_of(deployment) for deployment in self._agent.ledger.deployments(include_deleted=True)}
        unused = frozenset(each for each in stored - used if not self._agent.ledger.is_in_plans(each))
        for sha256 in sorted(unused & self._unused):
            found.remove(sha256)
            log.info("removed the jar %s, which nothing deployed and no plan names", sha256)
        self._unused = unused


def _trash_folder(agent: AgentContext) -> str:
    # The trash may be a symbolic link to another disk.
    return store_of(agent.layout.data).real_path(f"{agent.layout.data}/trash")


def _purge_former(agent: AgentContext) -> None:
    now, trash = unmoved_now(agent), _trash_folder(agent)
    for version in _paths_in(trash):
        for found in _paths_in(f"{version}/{BEFORE_SEAM}"):
            at = whole_number(os.path.basename(found))
            if not store_of(found).is_link(found) and at is not None and at <= now:
                _remove(agent, _paths_in(found))


def _in_trash(agent: AgentContext) -> list[Deployment]:
    return [d for d in agent.ledger.deployments(include_deleted=True) if d.drop_after is not None and d.trash]


def _take_back(agent: AgentContext, deployment: Deployment) -> bool:
    name = agent.layout.naming.folder(deployment.table, deployment.version)
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


def _removed(agent: AgentContext, deployment: Deployment, folder: str, *, shared: bool) -> bool:
    # In a trash folder that several versions share, only the subfolders named after this version are deleted.
    name = agent.layout.naming.folder(deployment.table, deployment.version)
    parts: list[str] = []
    for kind in _paths_in(folder):
        for found in _paths_in(kind):
            if os.path.basename(kind) != BEFORE_SEAM:
                parts += [found] if not shared or os.path.basename(found).split(".")[0] == name else []
            elif not shared:
                parts += _paths_in(found)
    left = _remove(agent, parts)
    if left:
        log.warning("%s could not be purged and will be tried again", ", ".join(left))
    return not left


def _remove(agent: AgentContext, folders: Iterable[str]) -> list[str]:
    left, trash = [], _trash_folder(agent)
    for folder in folders:
        files = store_of(folder)
        if not agent.files.remove(folder):
            log.warning("%s is not of this ledger and is left alone", folder)
        elif files.exists(folder):
            left.append(folder)
        else:
            log.info("removed %s", folder)
        while (folder := os.path.dirname(folder)) != trash:
            with suppress(OSError):
                files.rmdir(folder)
    return left


def _paths_in(folder: str) -> list[str]:
    """Return the paths in a folder, sorted; none if it does not exist, or if the store cannot be reached now."""
    try:
        return sorted(entry.path for entry in store_of(folder).entries(folder))
    except OSError:
        return []


def stop_soaked(agent: AgentContext) -> None:
    """Set the desired state of replaced versions to stopped once their soak period is over.

    The soak period is measured with the checked clock. A version keeps running while it has readers, or while its table
    is part of an open run.
    """
    agent.identity.refuse_doubt()
    now = checked_now(agent)
    # Versions whose readers are stopped in this round wait for the next one.
    before = agent.ledger.deployments()
    for version in (d for d in before if _is_due(d, now) and not _is_read(d, before)):
        key = (version.table, version.version)
        with suppress(Busy), agent.locks.holding(key, by="the end of a soak", wait_s=0):
            # Since the first check, a run may have started to read this version or put it into service again.
            every = agent.ledger.deployments()
            found = next((d for d in every if (d.table, d.version) == key), None)
            if found is not None and _is_due(found, now) and not _is_read(found, every) and not _in_a_run(agent, found):
                agent.ledger.update_deployment(*key, wanted=WantedState.STOPPED, stops_at=None)
                agent.event(EventKind.STATE, "stops: it was replaced, and its soak is over", about=key)
                log.info("%s was replaced and has run on for long enough", query_name(*key))


def remove_packages(agent: AgentContext, before: float) -> None:
    """Remove environments of packages that no job of any environment on this machine has used since `before`.

    A version that is stopped or in the trash counts as using its packages, as it can be started again.
    """
    environments = JobEnvironments(Path(job_packages(agent.places.home)))
    if not environments.folder.is_dir():
        return
    agent.identity.refuse_doubt()
    found = (d for d in agent.ledger.deployments(include_deleted=True) if not d.deleted or d.trash)
    jobs = (python_job_of(d.compiled) for d in found if d.in_python)
    for name in environments.remove_unused({job.requirements for job in jobs if job and job.requirements}, before):
        log.info("removed the environment of packages %s, which no job has used lately", name)


def _in_a_run(agent: AgentContext, version: Deployment) -> bool:
    return any(step.table == version.table for run in agent.ledger.open_runs() for step in run.steps)


def _is_read(deployment: Deployment, every: Iterable[Deployment]) -> bool:
    # Serving readers count even while stopped, because they will resume.
    key = (deployment.table, deployment.version)
    readers = (d for d in every if not d.deleted and (d.active or d.wanted == WantedState.RUNNING))
    return any((b.parent, b.version) == key for d in readers for b in d.bindings)


def _is_due(deployment: Deployment, now: float) -> bool:
    return (
        deployment.stops_at is not None
        and deployment.stops_at <= now
        and not deployment.active
        and not deployment.deleted
        and deployment.wanted == WantedState.RUNNING
    )


def record_overdue_tickets(agent: AgentContext) -> None:
    """Record an event, once per ticket, for each reader that missed its deadline for moving to a new version."""
    agent.identity.refuse_doubt()
    unclosed = agent.ledger.unclosed_tickets()
    if not unclosed:
        return
    late = overdue_tickets(open_tickets(unclosed, agent.ledger.deployments()), checked_now(agent))
    for ticket in late:
        mark = f"{ticket.run_id} {ticket.reader} {ticket.old}"
        if not any(event.fingerprint == mark for event in agent.ledger.events_of(ticket.table, EventKind.TICKET)):
            summary = f"{ticket.reader} still reads {ticket.old}, and its deadline to move to {ticket.new} is over"
            closes = f"headgate release close {ticket.run_id} {quote(ticket.reader)}"
            remedy = f"headgate release show {ticket.run_id}; {closes}"
            agent.event(
                EventKind.TICKET, summary, about=(ticket.table, ticket.version), detail=remedy, fingerprint=mark
            )
