"""A master as it is reached from this machine: its address, and what its web interface reports or fails to report."""

import socket
import threading
from collections.abc import Iterator

import pytest
from fake_master import FakeMaster, fake_master, worker

from core.model.errors import PoolUnreachable
from core.observed.cluster import ClusterApplication, ClusterView, ClusterWorker
from pipelines.local_pool import standalone_master
from pipelines.local_pool.standalone_master import address_towards, is_this_machine, read_master, require_master


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as found:
        yield found


def test_a_master_reports_its_workers_and_applications(master: FakeMaster) -> None:
    master.workers = [worker(), worker("h2", "DEAD", cores=8)]
    master.applications = [{"id": "app-1", "name": "headgate", "state": "RUNNING", "cores": 2, "user": "root"}]
    found = read_master(master.page)
    known = {"cores": 2, "memory_mib": 1024, "port": 7078, "free_cores": 2, "free_memory_mib": 1024}
    workers = (
        ClusterWorker("127.0.0.1", "ALIVE", **known),
        ClusterWorker("h2", "DEAD", **{**known, "cores": 8, "free_cores": 8}),
    )
    application = ClusterApplication("app-1", "headgate", "RUNNING", 2)
    assert found == ClusterView(master.master, "ALIVE", workers, (application,))
    assert found.alive == workers[:1]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"url": "u", "status": "ALIVE", "workers": [1]}'])
def test_a_page_that_is_no_master_is_named(body: bytes, master: FakeMaster) -> None:
    master.body = body
    with pytest.raises(PoolUnreachable, match=f"{master.page} is not the web interface of a standalone") as raised:
        read_master(master.page)
    assert raised.value.remedy.startswith("correct master_ui in headgate.yml")


def test_a_page_that_does_not_answer_is_given_up(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone_master, "ANSWERS_S", 0.05)
    master.hangs = threading.Event()
    with pytest.raises(PoolUnreachable, match=f"the web interface of the master, {master.page}, gave no answer within"):
        read_master(master.page)


def test_a_master_that_is_not_there_is_named_with_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(PoolUnreachable) as raised:
        require_master(f"spark://127.0.0.1:{port}")
    assert raised.value.summary == f"the master spark://127.0.0.1:{port} cannot be reached: connection refused"
    assert raised.value.remedy.startswith("start it (one on this machine: headgate cluster up)")
    with pytest.raises(PoolUnreachable, match=f"http://127.0.0.1:{port}, cannot be read: connection refused"):
        read_master(f"http://127.0.0.1:{port}")


def test_a_server_has_the_address_from_which_its_master_is_reached(master: FakeMaster) -> None:
    assert address_towards(master.master) == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("192.0.2.7", False), ("no-such-host.invalid", False), ("?", False)],
)
def test_this_machine_is_told_from_others(host: str, expected: bool) -> None:
    assert is_this_machine(host) is expected
