"""Statements on a standalone cluster with real processes: what a killed worker, executor, server or master does.

Takes three minutes on two idle cores.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tiny_project
from tiny_project import Tiny, tiny_that_runs, until

from core.ipc.environment_paths import cluster_root
from pipelines.local_pool.process_locks import process_start
from pipelines.local_pool.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

NOTICED_S = 30.0
"""Seconds within which a killed process must be seen: two questions to the master, and a round of the agent."""

RESUMED_S = 180.0
"""Seconds within which statements must go on: a worker and an executor start, and a master gives up lost workers."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    found = StandaloneCluster(Path(cluster_root({"HEADGATE_HOME": str(tmp_path_factory.mktemp("cluster"))})))
    try:
        up(found)
        yield found
    finally:
        found.down()


@pytest.fixture(scope="module")
def tiny(cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    status = cluster.status()
    pool = f"master: '{status['master']}', master_ui: '{status['master_ui']}', cores: 2, memory: 768m"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_project, "HEAD", tiny_project.HEAD.replace("cores: 2, memory: 1g", pool))
        with tiny_that_runs(tmp_path_factory.mktemp("headgate"), landed=50) as found:
            assert found.apply(found.plan("--all")).returncode == 0
            until(lambda: found.ids("marked", 1) == list(range(1, 51)), 120, "the first rows are there")
            yield found


def up(cluster: StandaloneCluster) -> list[str]:
    return list(cluster.up({"workers": 1, "cores": 2, "memory": "1g"}, lambda text: None)["started"])


def pid_of(cluster: StandaloneCluster, name: str) -> int:
    return next(int(each["pid"]) for each in cluster.status()["processes"] if each["name"] == name)


def executor_of(cluster: StandaloneCluster) -> int:
    """Return the process id of the executor on the only worker."""
    worker, found = pid_of(cluster, "worker 1"), []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((place / "stat").read_text().rpartition(")")[2].split()[1]) == worker:
                found.append(int(place.name))
    (pid,) = found
    return pid


def facts(tiny: Tiny) -> dict[str, tuple[str, str]]:
    """Return state and error of each statement."""
    rows = tiny.ledger('SELECT "table", state, error FROM deployment WHERE external = 0')
    return {str(table): (str(state), str(error)) for table, state, error in rows}


def goes_on(tiny: Tiny) -> None:
    """Land rows, and wait until every table has all of them, once, and nothing has a fault."""
    tiny.land(50)
    expected = list(range(1, tiny.landed + 1))
    until(lambda: tiny.ids("marked", 1) == expected, RESUMED_S, "the newest rows are there")
    until(lambda: tiny.pool() == ("up", ""), NOTICED_S, "the pool is up again")
    until(lambda: {state for state, _ in facts(tiny).values()} == {"running"}, NOTICED_S, "both run")
    assert tiny.ids("kept", 1) == expected


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    # Master and workers are children of this process, executors are not.
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
    until(lambda: process_start(pid) is None, 30, "it is gone")


def told(tiny: Tiny) -> list[str]:
    return [str(row[0]) for row in tiny.ledger("SELECT summary FROM event WHERE kind = 'pool' ORDER BY id")]


def test_a_pool_is_shown_with_its_executors_beside_what_the_master_counts(tiny: Tiny) -> None:
    def work() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(tiny.run("pool", "show", "cluster", "--json").stdout)["work"]
        return found

    # The first answers of a server may be late.
    until(lambda: work()["unread"] == "", 60, "Spark's REST API answers")
    found = work()
    assert [(each["id"], each["cores"]) for each in found["executors"]] == [("0", 2), ("driver", 0)]
    assert {name: found["cluster"][name] for name in ("status", "alive", "gone", "cores", "free_cores")} == {
        "status": "ALIVE", "alive": 1, "gone": 0, "cores": 2, "free_cores": 0,
    }  # fmt: skip


def test_statements_without_a_worker_are_shown_as_degraded_until_one_is_back(
    tiny: Tiny, cluster: StandaloneCluster
) -> None:
    kill(pid_of(cluster, "worker 1"))
    tiny.land(50)
    why = f"no worker of the cluster is alive: its master {cluster.status()['master']} says so"
    until(lambda: set(facts(tiny).values()) == {("degraded", why)}, NOTICED_S, "both statements are degraded")
    assert tiny.pool() == ("degraded", why)
    shown: dict[str, Any] = json.loads(tiny.run("ls", "--json").stdout)
    assert shown["pool_state"] == "degraded"
    failed = tiny.run("doctor")
    assert why in failed.stdout and failed.returncode != 0
    assert f"the pool of tiny dev is degraded: {why}" in tiny.run("up").stderr
    assert up(cluster) == ["worker 1"]
    goes_on(tiny)
    assert f"{why}; no statement progresses" in told(tiny)
    assert any("works again after" in each for each in told(tiny))


def test_a_killed_executor_is_replaced_without_a_restart(tiny: Tiny, cluster: StandaloneCluster) -> None:
    before = tiny.ledger('SELECT "table", run_id, restarts FROM deployment')
    killed = executor_of(cluster)
    kill(killed)
    goes_on(tiny)
    assert executor_of(cluster) != killed
    assert tiny.ledger('SELECT "table", run_id, restarts FROM deployment') == before


def test_a_killed_server_is_started_again_on_the_cluster(tiny: Tiny, cluster: StandaloneCluster) -> None:
    tiny.land(50)
    tiny.replace_pool()
    goes_on(tiny)
    (application,) = cluster.status()["applications"]
    marker = json.loads((tiny.home() / "pool.json").read_text())["marker"]
    assert application["name"] == f"headgate-{marker}"


def test_statements_go_on_without_their_master_and_with_the_next_one(tiny: Tiny, cluster: StandaloneCluster) -> None:
    kill(pid_of(cluster, "master"))
    until(lambda: tiny.pool()[0] == "degraded", NOTICED_S, "the master is missed")
    assert tiny.pool()[1].startswith("the master ") and "executors go on" in tiny.pool()[1]
    tiny.land(50)
    expected = list(range(1, tiny.landed + 1))
    until(lambda: tiny.ids("marked", 1) == expected, RESUMED_S, "the executors go on")
    assert {state for state, _ in facts(tiny).values()} == {"running"}
    assert up(cluster) == ["master"]
    goes_on(tiny)


def test_a_pool_moves_to_the_cores_of_its_own_machine_and_keeps_its_rows(tiny: Tiny) -> None:
    file = tiny.folder / "headgate.yml"
    text = file.read_text()
    tiny.done("down", "--confirm", "")
    begin, end = text.index("master:"), text.index("cores:")
    file.write_text(text[:begin] + text[end:])
    tiny.done("up")
    goes_on(tiny)
