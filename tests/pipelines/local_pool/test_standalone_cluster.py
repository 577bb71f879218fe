"""A cluster's processes over servers that only listen: started once, found again, started again, ended, described."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import Refused
from core.observed.cluster import ClusterApplication, ClusterView, ClusterWorker
from pipelines.local_pool import standalone_cluster
from pipelines.local_pool.detached_servers import DetachedServer
from pipelines.local_pool.process_locks import process_start
from pipelines.local_pool.standalone_cluster import SparkMaster, SparkWorker, StandaloneCluster


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandaloneCluster]:
    for kind in (SparkMaster, SparkWorker):
        monkeypatch.setattr(kind, "answers", DetachedServer.answers)
        monkeypatch.setattr(kind, "environment", os.environ)
    listens = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]
    monkeypatch.setattr(standalone_cluster._Daemon, "_spark", lambda self, program, *words: [*listens, str(self.port)])
    found = StandaloneCluster(tmp_path / "cluster")
    yield found
    found.down()


def up(cluster: StandaloneCluster, **wanted: Any) -> dict[str, Any]:
    return cluster.up(wanted, lambda text: None)


def pids(status: Mapping[str, Any]) -> dict[str, int | None]:
    return {each["name"]: each["pid"] for each in status["processes"]}


def test_a_cluster_is_started_once_and_keeps_its_ports(cluster: StandaloneCluster, tmp_path: Path) -> None:
    assert cluster.status() == {"size": None, "processes": []}
    first = up(cluster, workers=2, memory="1g")
    assert first["started"] == ["master", "worker 1", "worker 2"]
    assert first["size"] == {"workers": 2, "cores": 2, "memory": "1g"}
    assert up(cluster) == {**first, "started": []}
    assert cluster.down()["ended"] == [f"{name} (pid {pid})" for name, pid in reversed(pids(first).items())]
    assert pids(cluster.status()) == dict.fromkeys(pids(first)) and cluster.down()["ended"] == []
    again = up(cluster, workers=1)
    assert (again["master"], again["started"]) == (first["master"], ["master", "worker 1"])
    assert again["processes"][1]["port"] == first["processes"][1]["port"]


def test_another_size_needs_another_start(cluster: StandaloneCluster) -> None:
    up(cluster)
    with pytest.raises(Refused, match="the cluster runs with --workers 1 --cores 2 --memory 2g") as raised:
        up(cluster, cores=4)
    assert "headgate cluster up --workers 1 --cores 4 --memory 2g" in raised.value.remedy


def test_a_dead_worker_alone_is_started_again(cluster: StandaloneCluster) -> None:
    before = pids(up(cluster))
    os.kill(before["worker 1"] or 0, signal.SIGKILL)
    os.waitpid(before["worker 1"] or 0, 0)
    assert pids(cluster.status()) == {"master": before["master"], "worker 1": None}
    after = up(cluster)
    assert after["started"] == ["worker 1"] and pids(after)["master"] == before["master"]


def test_a_kill_just_after_a_process_began_leaves_one_that_is_found(cluster: StandaloneCluster) -> None:
    status = up(cluster)
    file = Path(status["processes"][0]["log"]).parents[1] / "servers.json"
    record = json.loads(file.read_text())
    record["processes"]["worker 1"] |= {"pid": 0, "started": ""}
    file.write_text(json.dumps(record))
    assert pids(cluster.status()) == pids(status) and up(cluster)["started"] == []
    file.write_text(json.dumps(record))
    cluster.down()
    assert not [pid for pid in pids(status).values() if pid and process_start(pid)]


def test_up_waits_until_a_restarted_master_has_recovered(
    cluster: StandaloneCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = ["RECOVERING", "RECOVERING", "ALIVE"]
    monkeypatch.setattr(standalone_cluster, "RECOVERY_POLL_S", 0.0)
    monkeypatch.setattr(standalone_cluster, "_view", lambda page: ClusterView("", states.pop(0) if states else "ALIVE"))
    said: list[str] = []
    cluster.up({}, said.append)
    assert [text for text in said if "recovers" in text] == ["the master recovers: 0 s of at most 40 s"] * 2


def test_the_master_speaks_for_each_process(cluster: StandaloneCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    status = up(cluster)
    assert [each["master_says"] for each in status["processes"]] == [None, None] and status["applications"] is None
    dead = ClusterWorker("127.0.0.1", "DEAD", 2, 2048, status["processes"][1]["port"])
    view = ClusterView(status["master"], "ALIVE", (dead,), (ClusterApplication("app-1", "headgate", "RUNNING", 0),))
    monkeypatch.setattr(standalone_cluster, "_view", lambda page: view)
    status = cluster.status()
    assert [each["master_says"] for each in status["processes"]] == ["ALIVE", "DEAD"]
    # The master lists a worker that was started again beside its dead predecessor, in any order.
    both = replace(view, workers=(replace(dead, state="ALIVE"), dead))
    monkeypatch.setattr(standalone_cluster, "_view", lambda page: both)
    assert [each["master_says"] for each in cluster.status()["processes"]] == ["ALIVE", "ALIVE"]
    assert cluster.down()["applications"] == ["app-1"]
