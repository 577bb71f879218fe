"""What is wrong with a cluster, from what its master reports about workers and applications."""

from typing import Any

import pytest
from fake_master import application, worker

from core.observed.cluster import ClusterFault, cluster_view, fault_of_cluster
from core.project.model import Pool

POOL = Pool("cluster", cores=2, memory="768m", master="spark://h:7077")
NAME = "headgate-1"
BUSY = {**worker(), "coresfree": 0, "memoryfree": 256}


def kind(*workers: dict[str, Any], status: str = "ALIVE", applications: tuple[dict[str, Any], ...] = (application(),),
         name: str | None = NAME) -> ClusterFault | None:  # fmt: skip
    document = {"url": "spark://h:7077", "status": status, "workers": workers, "activeapps": applications}
    found = fault_of_cluster(POOL, cluster_view(document), name)
    return found.kind if found is not None else None


def test_a_pool_with_executors_has_no_fault() -> None:
    assert kind(BUSY) is None
    assert kind(worker(), applications=(application(cores=0),)) is None, "the master is about to start one"
    assert kind(worker(state="DEAD"), BUSY) is None


def test_dead_workers_are_no_workers() -> None:
    assert kind(worker(state="DEAD")) is kind(name=None) is ClusterFault.NO_WORKER


def test_a_worker_must_have_room_for_an_executor() -> None:
    assert kind({**worker(), "memory": 512}) is ClusterFault.NO_MEMORY
    full = {**worker(), "memoryfree": 512}
    for busy in (BUSY, full):
        assert kind(busy, applications=(application(cores=0),)) is ClusterFault.NO_CORES
        assert kind(busy, full, applications=(application("other", cores=4),), name=None) is None


def test_a_master_that_does_not_know_the_server_is_reported_only_for_a_server_that_has_registered() -> None:
    assert kind(BUSY, applications=(application("other"),)) is ClusterFault.FORGOTTEN
    assert kind(BUSY, applications=(), name=None) is None


@pytest.mark.parametrize("status", ["STANDBY", "RECOVERING", "COMPLETING_RECOVERY"])
def test_a_master_that_recovers_says_nothing_about_workers(status: str) -> None:
    assert kind(worker(state="UNKNOWN"), status=status) is ClusterFault.RECOVERING


def test_statements_go_on_without_a_master_and_stop_without_workers() -> None:
    go_on = {each for each in ClusterFault if not each.stops_statements}
    assert go_on == {ClusterFault.LOST, ClusterFault.RECOVERING}
    assert str(ClusterFault.NO_WORKER.of(master="spark://h:7077")) == (
        "no worker of the cluster is alive: its master spark://h:7077 says so"
    )
