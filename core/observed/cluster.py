"""A standalone cluster as its master describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.project.model import Pool, mebibytes
from core.text.sentence import Fact, FactKind

ALIVE = "ALIVE"
"""State of a worker that sends heartbeats, and of a master that is the leader."""


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    """A worker in the master's list, which keeps dead ones for some time."""

    host: str
    state: str
    """`ALIVE`, `DEAD`, `DECOMMISSIONED` or `UNKNOWN`."""
    cores: int
    memory_mib: int
    """Memory that the worker offers to executors."""
    port: int = 0
    free_cores: int = 0
    free_memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class ClusterApplication:
    """An application that the master has registered."""

    id: str
    name: str
    state: str
    """`WAITING` without an executor; `RUNNING` once it has had one, even if all its workers are dead (4.2.0).

    One that has ended is `FINISHED`, also if its server was killed, `FAILED` or `KILLED`.
    """
    cores: int
    """Cores of the executors that it has."""
    memory_mib: int = 0
    """Memory of each of its executors."""
    ended_at: float | None = None
    """When it ended, in epoch seconds of the master's clock; None if it has not."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What the master of a cluster reported at one moment."""

    master: str
    """The address by which applications reach the master, `spark://host:port`."""
    status: str
    """`ALIVE`; `STANDBY`, `RECOVERING` or `COMPLETING_RECOVERY` while the master accepts nothing."""
    workers: tuple[ClusterWorker, ...] = ()
    applications: tuple[ClusterApplication, ...] = ()
    """Those that have not ended."""
    ended: tuple[ClusterApplication, ...] = ()
    """Those that have ended, of which the master remembers the newest."""

    @property
    def alive(self) -> tuple[ClusterWorker, ...]:
        """The workers that are alive."""
        return tuple(worker for worker in self.workers if worker.state == ALIVE)


class ClusterFault(FactKind):
    """What a pool cannot do although its server answers, as the master of its cluster says or fails to say."""

    NO_WORKER = (
        "no worker of the cluster is alive: its master {master} says so",
        "start a worker (headgate cluster up, if the cluster is that of this machine); the statements then go on by "
        "themselves",
    )
    NO_MEMORY = (
        "no worker of the cluster has the {memory} of an executor: its master {master} says {most}m at most",
        "write memory: {most}m in headgate.yml and restart the pool, or start workers with more memory",
    )
    NO_CORES = (
        "the pool has no executor: its master {master} says that no worker has a free core and {memory}",
        "start more workers, or end another application; the statements then go on by themselves",
    )
    FORGOTTEN = (
        "the master {master} does not know the pool's server: it has lost its record, or removed the server",
        "headgate down, then headgate up: the statements go on from their checkpoints",
    )
    UNKNOWN_SERVER = (
        "the master {master} does not know the pool's server, {application}: it has lost its record, or removed it",
        "restart the server: the statements go on from their checkpoints",
    )
    RECOVERING = (
        "the master {master} is {status}: executors go on, but it starts none until it is ALIVE",
        "it recovers by itself within a minute, unless {master} is the standby of another one",
    )
    LOST = (
        "the master {master} cannot be reached: executors that are left go on, and none that is lost is replaced",
        "start the master (headgate cluster up, if the cluster is that of this machine)",
    )

    @property
    def stops_statements(self) -> bool:
        """True if no statement of the pool can progress; False if they go on until an executor is lost."""
        return self not in (ClusterFault.RECOVERING, ClusterFault.LOST)

    @property
    def hides_executors(self) -> bool:
        """True if nobody says whether executors are left, so that only an ended batch proves that a statement runs."""
        return self is ClusterFault.LOST


class PoolGone(FactKind):
    """Why nothing of a pool runs any more although it cannot be asked."""

    ENDED = "its server on this machine has ended"
    STATED = "{by} has stated that nothing runs there any more"
    CONFIRMED = "{by} has stated that nothing runs there any more, and {word}"


class WhyUnknown(FactKind):
    """Why nobody knows whether a statement runs, with the one who fails to say it."""

    MASTER_LOST = (
        "the master {master} cannot be reached, and no batch has ended since: nobody says whether executors are left"
    )
    NO_CONNECTION = "{error}: nobody says whether the query runs"
    SILENT = "the server of the pool {pool} has not answered for {seconds:duration}: {error}"


def fault_of_cluster(pool: Pool, view: ClusterView, application: str | None = None) -> Fact[ClusterFault] | None:
    """Return what is wrong with a pool's cluster, as its master describes it; None if the pool's executors can run.

    `application` is the name under which the pool's server has registered; None if it has not, or nobody knows.
    """
    if view.status != ALIVE:
        return ClusterFault.RECOVERING.of(master=pool.master, status=view.status)
    if not view.alive:
        return ClusterFault.NO_WORKER.of(master=pool.master)
    needed, most = mebibytes(pool.memory), max(worker.memory_mib for worker in view.alive)
    if most < needed:
        return ClusterFault.NO_MEMORY.of(master=pool.master, memory=pool.memory, most=most)
    if application is None:
        return None
    ours = [each for each in view.applications if each.name == application]
    if not ours:
        return ClusterFault.FORGOTTEN.of(master=pool.master)
    if _starts_no_executor(view, ours, needed):
        return ClusterFault.NO_CORES.of(master=pool.master, memory=pool.memory)
    return None


def fault_of_others_server(view: ClusterView, application: str) -> Fact[ClusterFault] | None:
    """Return what is wrong with the cluster of a server that others manage; None if its executors can run.

    `application` is the id of the server's application; empty if it is not known.
    """
    if view.status != ALIVE:
        return ClusterFault.RECOVERING.of(master=view.master, status=view.status)
    if not view.alive:
        return ClusterFault.NO_WORKER.of(master=view.master)
    if not application:
        return None
    ours = [each for each in view.applications if each.id == application]
    if not ours:
        return ClusterFault.UNKNOWN_SERVER.of(master=view.master, application=application)
    if _starts_no_executor(view, ours, ours[0].memory_mib):
        return ClusterFault.NO_CORES.of(master=view.master, memory=f"{ours[0].memory_mib}m")
    return None


def _starts_no_executor(view: ClusterView, ours: Sequence[ClusterApplication], needed_mib: int) -> bool:
    has_room = any(worker.free_cores and worker.free_memory_mib >= needed_mib for worker in view.alive)
    return not has_room and not any(each.cores for each in ours)


def cluster_view(document: Mapping[str, Any]) -> ClusterView:
    """Read the JSON object at `/json/` of a master's web interface. Raises ValueError if it is something else."""
    try:
        return ClusterView(
            master=str(document["url"]),
            status=str(document["status"]),
            workers=tuple(
                ClusterWorker(
                    host=str(each["host"]),
                    state=str(each["state"]),
                    cores=int(each["cores"]),
                    memory_mib=int(each["memory"]),
                    port=int(each["port"]),
                    free_cores=int(each["coresfree"]),
                    free_memory_mib=int(each["memoryfree"]),
                )
                for each in document["workers"]
            ),
            applications=tuple(map(_application, document["activeapps"])),
            ended=tuple(
                replace(_application(each), ended_at=(each["starttime"] + each["duration"]) / 1000)
                for each in document.get("completedapps", ())
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("not the document of a master") from error


def _application(each: Mapping[str, Any]) -> ClusterApplication:
    memory = int(each.get("memoryperexecutor") or 0)
    return ClusterApplication(str(each["id"]), str(each["name"]), str(each["state"]), int(each["cores"]), memory)
