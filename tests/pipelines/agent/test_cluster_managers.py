"""What the managers of clusters say about a server that others manage, over HTTP without a cluster."""

import threading
from collections.abc import Iterator

import pytest
from fake_master import FakeMaster, application, ended_application, fake_master
from fake_resource_manager import FINISHED, ID, KILLED, FakeResourceManager, fake_resource_manager

from core.model.errors import PoolUnreachable
from core.observed.cluster_manager import ManagerWord
from core.observed.spark_work import ClusterFigures, ManagedApplication
from core.project.model import Pool
from pipelines.agent.pool import cluster_managers
from pipelines.agent.pool.cluster_managers import ClusterManager, StandaloneManager, YarnManager, manager_of
from pipelines.local_pool import standalone_master


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as found:
        yield found


@pytest.fixture
def yarn() -> Iterator[FakeResourceManager]:
    with fake_resource_manager() as found:
        yield found


def said(manager: ClusterManager, id: str) -> tuple[ManagerWord, str]:
    word = manager.word(id)
    return word.kind, str(word)


def test_a_pool_has_the_manager_that_it_declares() -> None:
    found = [
        manager_of(pool)
        for pool in (
            Pool("a", "sc://a"), Pool("b", "sc://b", master_ui="http://m"), Pool("c", "sc://c", yarn_ui="http://r"),
            Pool("d"), Pool("e", master="spark://m:7077"),
        )
    ]  # fmt: skip
    assert [type(each).__name__ for each in found] == [
        "NoneType", "StandaloneManager", "YarnManager", "NoneType", "StandaloneManager",
    ]  # fmt: skip


def test_a_master_says_whether_an_application_runs_has_ended_or_is_unknown(master: FakeMaster) -> None:
    manager, who = StandaloneManager(master.page), f"the master {master.master}"
    master.applications = [application()]
    assert said(manager, "app-1") == (ManagerWord.RUNS, f"{who} says that its application app-1 is RUNNING")
    assert f"with the link (kill) on {master.page}" in str(manager.word("app-1").remedy)
    master.applications, master.ended = [], [ended_application("app-1", "KILLED")]
    when = "2026-11-29 10:00:05 UTC"
    assert said(manager, "app-1") == (
        ManagerWord.ENDED, f"{who} says that its application app-1 is KILLED since {when}"
    )  # fmt: skip
    assert said(manager, "app-2")[0] is ManagerWord.UNKNOWN


def test_a_resource_manager_says_whether_an_application_runs_has_ended_or_is_unknown(yarn: FakeResourceManager) -> None:
    manager, who = YarnManager(yarn.page), f"the ResourceManager {yarn.page}"
    assert said(manager, ID) == (ManagerWord.RUNS, f"{who} says that its application {ID} is RUNNING")
    assert f"with yarn application -kill {ID}" in str(manager.word(ID).remedy)
    for ended in (FINISHED, KILLED):
        yarn.applications = [ended]
        since = "2026-11-28 21:10:02 UTC"
        words = f"{who} says that its application {ID} is {ended['state']} since {since}"
        assert said(manager, ID) == (ManagerWord.ENDED, words)
    assert said(manager, "application_1_0001")[0] is ManagerWord.UNKNOWN


def test_managers_count_what_the_cluster_and_the_application_have(
    master: FakeMaster, yarn: FakeResourceManager
) -> None:
    master.applications = [application()]
    of = ManagedApplication("app-1", "RUNNING", cores=2, memory_mib=768)
    assert StandaloneManager(master.page).figures("app-1") == ClusterFigures("ALIVE", 1, 0, 2, 2, 1, of)
    assert StandaloneManager(master.page).figures("") == ClusterFigures("ALIVE", 1, 0, 2, 2, 1)
    of = ManagedApplication(ID, "RUNNING", None, 3, 3, 3840)
    assert YarnManager(yarn.page).figures(ID) == ClusterFigures("", 2, 1, 16, 13, 1, of, on_yarn=True)
    assert YarnManager(yarn.page).figures("application_1_0001").application is None


def test_a_manager_that_does_not_answer_in_time_is_not_taken_for_one_that_knows_nothing(
    master: FakeMaster, yarn: FakeResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone_master, "ANSWERS_S", 0.05)
    monkeypatch.setattr(cluster_managers, "ANSWERS_S", 0.05)
    master.hangs, yarn.hangs = threading.Event(), threading.Event()
    silent = "nobody says whether its application app-1 runs: "
    assert said(StandaloneManager(master.page), "app-1") == (
        ManagerWord.SILENT,
        f"{silent}the web interface of the master, {master.page}, gave no answer within 0.05 s",
    )
    assert said(YarnManager(yarn.page), "app-1") == (
        ManagerWord.SILENT, f"{silent}the ResourceManager {yarn.page} gave no answer within 0.05 s"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "is not the web interface of a ResourceManager"),
        (200, b"[]", "is not the web interface of a ResourceManager"),
        (200, b'{"app": {}}', "is not the web interface of a ResourceManager"),
        (404, b"<html>", "is not the web interface of a ResourceManager"),
        (404, b"{}", "answers with status 404"),
        (401, b"", "answers with status 401"),
        (307, b"This is standby RM", "answers with status 307"),
    ],
)
def test_an_answer_of_something_else_says_nothing_about_the_application(
    status: int, body: bytes, words: str, yarn: FakeResourceManager
) -> None:
    yarn.status, yarn.body = status, body
    kind, sentence = said(YarnManager(yarn.page), ID)
    assert kind is ManagerWord.SILENT and words in sentence
    with pytest.raises(PoolUnreachable):
        YarnManager(yarn.page).figures(ID)


def test_a_manager_that_nobody_runs_cannot_be_read() -> None:
    with fake_resource_manager() as gone:
        pass
    kind, sentence = said(YarnManager(gone.page), ID)
    assert kind is ManagerWord.SILENT and sentence.endswith("cannot be read: connection refused")
    kind, sentence = said(StandaloneManager(gone.page), "app-1")
    assert kind is ManagerWord.SILENT and sentence.endswith("cannot be read: connection refused")
