"""A standalone cluster on this machine: `python -I -m pipelines.local_pool.standalone_cluster FOLDER up|down|status`.

Master and workers come from the PySpark package, listen on loopback, and keep running when the command ends. The last
line of the output is the answer, a JSON object; `{"waiting": …}` on lines before it describes what a start waits for.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.model.errors import HeadgateError, PoolUnreachable, Refused
from core.observed.cluster import ALIVE, ClusterView
from core.project.model import MASTER_SCHEME
from pipelines.local_pool.detached_servers import DetachedServer, RunningServers, Say, free_port
from pipelines.local_pool.java_and_spark import find_java, spark_environment, spark_home, write_java_home
from pipelines.local_pool.standalone_master import read_master
from pipelines.whole_files import read_object, write_whole

DAEMON_MEMORY = "256m"
"""Heap of a master or worker; each has about 220 MB in memory (4.2.0)."""

SILENT_S = 20
"""Seconds after which a master gives up a worker that sends no heartbeat, and a started master those that it had.

Spark's default is 60 s, for which a restarted master gives no executors to anybody.
"""

RECOVERY_POLL_S = 0.5

KEPT_S = 86_400
"""Seconds for which a worker keeps the logs and jars of an ended application."""


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """What the workers of a cluster offer."""

    workers: int = 1
    cores: int = 2
    """Cores of each worker."""
    memory: str = "2g"
    """Memory that each worker offers to executors."""

    def __str__(self) -> str:
        return f"--workers {self.workers} --cores {self.cores} --memory {self.memory}"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster as it was first started, with ports that are chosen once because headgate.yml contains them."""

    size: ClusterSize
    master_port: int
    page_port: int
    worker_ports: tuple[int, ...]
    """For each worker, its own port and then that of its web interface."""

    @property
    def master(self) -> str:
        return f"{MASTER_SCHEME}127.0.0.1:{self.master_port}"

    @property
    def page(self) -> str:
        """URL of the master's web interface."""
        return f"http://127.0.0.1:{self.page_port}"


class _Daemon(DetachedServer):
    """A master or worker of Spark."""

    def __init__(self, folder: Path, port: int, page_port: int) -> None:
        super().__init__(folder, port)
        self.page_port = page_port

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def environment(self) -> Mapping[str, str]:
        java = find_java()
        if not java.works:
            raise HeadgateError(java.summary, remedy=java.remedy)
        home = str(write_java_home(self.folder / "java", java.path)) if java.bundled else java.home
        return spark_environment(spark_home(), home) | {"SPARK_DAEMON_MEMORY": DAEMON_MEMORY}

    def _spark(self, program: str, *words: str) -> list[str]:
        listens = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.page_port)]
        return [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", *listens, *words]


# Spark would otherwise take the next free port, which nobody else would know.
_OPTIONS = f"-XX:+UseSerialGC -XX:-UsePerfData -Dspark.port.maxRetries=0 -Dspark.worker.timeout={SILENT_S}"


class SparkMaster(_Daemon):
    """The master of a cluster. It keeps its workers and applications in its folder, so that pools survive a restart."""

    name = "master"

    @property
    def command(self) -> list[str]:
        return self._spark("master.Master")

    @property
    def environment(self) -> Mapping[str, str]:
        kept = f'-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory="{self.folder}/recovery"'
        # Its REST server would listen on port 6066, and if that is taken, the master stays STANDBY forever (4.2.0).
        return {**super().environment, "SPARK_MASTER_OPTS": f"{_OPTIONS} {kept} -Dspark.master.rest.enabled=false"}

    def answers(self) -> bool:
        """True if the master answers; one that recovers waits for its workers."""
        return _view(f"http://127.0.0.1:{self.page_port}") is not None


class SparkWorker(_Daemon):
    """A worker of a cluster."""

    def __init__(self, folder: Path, plan: ClusterPlan, number: int) -> None:
        """Describe worker `number`, from 1."""
        self.name = f"worker {number}"
        port, page_port = plan.worker_ports[2 * number - 2 : 2 * number]
        super().__init__(folder / f"worker-{number}", port, page_port)
        self._plan = plan

    @property
    def command(self) -> list[str]:
        offered = ["--cores", str(self._plan.size.cores), "--memory", self._plan.size.memory]
        return self._spark("worker.Worker", *offered, "--work-dir", str(self.folder / "work"), self._plan.master)

    @property
    def environment(self) -> Mapping[str, str]:
        kept = f"-Dspark.worker.cleanup.enabled=true -Dspark.worker.cleanup.appDataTtl={KEPT_S}"
        local = str(self.folder / "tmp")
        return {**super().environment, "SPARK_WORKER_OPTS": f"{_OPTIONS} {kept}", "SPARK_LOCAL_DIRS": local}

    def answers(self) -> bool:
        """True if the master says that this worker is alive."""
        view = _view(self._plan.page)
        return view is not None and any(each.port == self.port for each in view.alive)


class StandaloneCluster:
    """The cluster in a folder; there is at most one in each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        again = "headgate cluster down, then remove cluster.json in its folder to have other ports chosen"
        self._servers = RunningServers(folder, other_ports=again)

    def up(self, wanted: Mapping[str, Any], say: Say) -> dict[str, Any]:
        """Start what is not running, and return the status with the names of what was `started`.

        `wanted` has some of the fields of `ClusterSize`; the others are as before. Raises Refused if the cluster runs
        with another size, and HeadgateError if a process does not start.
        """
        with self._servers.locked():
            before, running = self._plan(), self._servers.running()
            known = before.size if before is not None else ClusterSize()
            size = ClusterSize(**{**asdict(known), **wanted})
            if running and size != known:
                again = f"headgate cluster down, then headgate cluster up {size}"
                raise Refused(f"the cluster runs with {known}", remedy=f"{again}: pools on it go on by themselves")
            plan = before if before is not None and size == known else _planned(size, before)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._folder / "cluster.json", json.dumps(asdict(plan), indent=1) + "\n")
            started = [each.name for each in self._daemons(plan) if self._servers.start(each, say)]
            _wait_for_recovery(plan, say)
        return {**self.status(), "started": started}

    def down(self) -> dict[str, Any]:
        """End all processes; return the names of those that were running, and of the applications that used them."""
        if not self._folder.is_dir():
            return {"ended": [], "applications": []}
        with self._servers.locked():
            plan = self._plan()
            view = _view(plan.page) if plan is not None else None
            ended = self._servers.end()
        return {"ended": ended, "applications": [each.id for each in view.applications] if view is not None else []}

    def status(self) -> dict[str, Any]:
        """Return the size, the addresses, and each process with its pid and what the master says about it.

        The pid is null if the process is not running. What the master says, and the applications, are null if it does
        not answer. The size is null if the cluster was never started.
        """
        plan, record = self._plan(), self._servers.record()
        if plan is None:
            return {"size": None, "processes": []}
        view = _view(plan.page)
        pids = {each.name: self._servers.pid_in(record, each.name) for each in self._daemons(plan)}
        # The master keeps the dead predecessor of a worker that was started again on its port.
        states = {each.port: each.state for each in (*view.workers, *view.alive)} if view is not None else {}
        if view is not None:
            states[plan.master_port] = view.status
        processes = [
            {"name": each.name, "pid": pids[each.name], "port": each.port, "page": f"http://127.0.0.1:{each.page_port}",
             "master_says": states.get(each.port), "log": str(each.log)}
            for each in self._daemons(plan)
        ]  # fmt: skip
        applications = [asdict(each) for each in view.applications] if view is not None else None
        return {
            "size": asdict(plan.size), "master": plan.master, "master_ui": plan.page, "processes": processes,
            "applications": applications,
        }  # fmt: skip

    def _plan(self) -> ClusterPlan | None:
        found = read_object(self._folder / "cluster.json")
        if found is None:
            return None
        return ClusterPlan(**{
            **found, "size": ClusterSize(**found["size"]), "worker_ports": tuple(found["worker_ports"])
        })  # fmt: skip

    def _daemons(self, plan: ClusterPlan) -> list[_Daemon]:
        workers = [SparkWorker(self._folder, plan, number + 1) for number in range(plan.size.workers)]
        return [SparkMaster(self._folder / "master", plan.master_port, plan.page_port), *workers]


def _planned(size: ClusterSize, before: ClusterPlan | None) -> ClusterPlan:
    """Return a cluster of a size, with the ports that it has had before."""
    had = before.worker_ports if before is not None else ()
    ports = tuple(had[n] if n < len(had) else free_port() for n in range(2 * size.workers))
    if before is not None:
        return ClusterPlan(size, before.master_port, before.page_port, ports)
    return ClusterPlan(size, free_port(), free_port(), ports)


def _wait_for_recovery(plan: ClusterPlan, say: Say) -> None:
    """Wait until a master that was started again has heard from its workers and applications, or has given them up."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < 2 * SILENT_S:
        view = _view(plan.page)
        if view is None or view.status == ALIVE:
            return
        say(f"the master recovers: {elapsed:.0f} s of at most {2 * SILENT_S} s")
        time.sleep(RECOVERY_POLL_S)


def _view(page: str) -> ClusterView | None:
    try:
        return read_master(page)
    except PoolUnreachable:
        return None


def _say(text: str) -> None:
    print(json.dumps({"waiting": text}), flush=True)


def main(words: Sequence[str]) -> int:
    """Perform the action that the arguments name, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("action", choices=("up", "down", "status"))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--cores", type=int)
    parser.add_argument("--memory")
    args = parser.parse_args(words)
    cluster = StandaloneCluster(args.folder)
    try:
        if args.action == "up":
            wanted = {name: getattr(args, name) for name in ("workers", "cores", "memory")}
            found = cluster.up({name: value for name, value in wanted.items() if value is not None}, _say)
        else:
            found = cluster.down() if args.action == "down" else cluster.status()
        print(json.dumps(found))
        return 0
    except HeadgateError as error:
        print(json.dumps({"error": error.as_json()}))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
