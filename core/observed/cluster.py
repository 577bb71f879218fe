"""A standalone cluster as its master describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ClusterApplication:
    """An application that the master has registered and that has not ended."""

    id: str
    name: str
    state: str
    """`WAITING` without an executor; `RUNNING` once it has had one, even if all its workers are dead (4.2.0)."""
    cores: int
    """Cores of the executors that it has."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What the master of a cluster reported at one moment."""

    master: str
    """The address by which applications reach the master, `spark://host:port`."""
    status: str
    """`ALIVE`; `STANDBY`, `RECOVERING` or `COMPLETING_RECOVERY` while the master accepts nothing."""
    workers: tuple[ClusterWorker, ...] = ()
    applications: tuple[ClusterApplication, ...] = ()

    @property
    def alive(self) -> tuple[ClusterWorker, ...]:
        """The workers that are alive."""
        return tuple(worker for worker in self.workers if worker.state == ALIVE)


class ClusterFault(FactKind):
    """Why the statements of a pool do not progress, although its server answers."""

    NO_WORKER = (
        "no worker of the cluster is alive: its master {master} says so",
        "start a worker; the statements then go on by themselves",
    )
    NO_MEMORY = (
        "no worker of the cluster has the {memory} of an executor: its master {master} says {most}m at most",
        "write memory: {most}m in headgate.yml and restart the pool, or start workers with more memory",
    )


def fault_of_cluster(pool: Pool, view: ClusterView) -> Fact[ClusterFault] | None:
    """Return why nothing can run on a pool's cluster, as its master describes it; None if executors can."""
    if not view.alive:
        return ClusterFault.NO_WORKER.of(master=pool.master)
    most = max(worker.memory_mib for worker in view.alive)
    if most < mebibytes(pool.memory):
        return ClusterFault.NO_MEMORY.of(master=pool.master, memory=pool.memory, most=most)
    return None


def cluster_view(document: Mapping[str, Any]) -> ClusterView:
    """Read the JSON object at `/json/` of a master's web interface. Raises ValueError if it is something else."""
    try:
        return ClusterView(
            master=str(document["url"]),
            status=str(document["status"]),
            workers=tuple(
                ClusterWorker(
                    str(each["host"]), str(each["state"]), int(each["cores"]), int(each["memory"]), int(each["port"])
                )
                for each in document["workers"]
            ),
            applications=tuple(
                ClusterApplication(str(each["id"]), str(each["name"]), str(each["state"]), int(each["cores"]))
                for each in document["activeapps"]
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("not the document of a master") from error
