"""The whole agent without a pool: it ends when its home is removed, and recreates nothing."""

import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_scenarios import wait_until
from ledger_rows import deployment_row, environment_row, pool_row

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable
from core.project.model import Environment
from core.project_reader.manifest import Manifest
from pipelines.agent import daemon as agents
from pipelines.agent.daemon import Agent
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.data_folder_records import read_record
from state.ledger import create_or_open
from state.operator_commands import CommandStamp


class Keeper:
    """A pool that never comes up."""

    is_ready = False
    ended = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.kept = threading.Event()

    def keep(self) -> None:
        self.kept.set()

    def call(self, seconds: float, act: Callable[[Any], Any]) -> Any:
        raise PoolUnreachable("the pool is off")

    def record_answer(self, error: PoolUnreachable | None) -> None:
        return

    def watch_heap(self) -> None:
        return

    def bound_log(self) -> None:
        return

    def spark_ui(self) -> None:
        return

    def cluster_figures(self) -> None:
        return

    def end(self) -> None:
        Keeper.ended += 1


@pytest.mark.parametrize("another_came", [False, True])
def test_an_agent_whose_home_is_removed_ends_with_its_pool(
    another_came: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "PoolSupervisor", Keeper)
    monkeypatch.setattr(agents, "ROUND_S", 0.02)
    monkeypatch.setattr(Keeper, "ended", 0)
    home, places = (
        tmp_path / "home",
        EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a" / "agent.sock"), os.getuid()),
    )
    facts = environment_row(ledger_id="l", pools=(pool_row(state="off", generation=0, session_id=""),))
    manifest = Manifest(id="p-id", name="p", environments=(Environment("dev"),), default_env="dev")
    with create_or_open(Path(places.ledger), facts) as ledger:
        agent = Agent(
            places=places, folder=str(tmp_path), manifest=manifest, ledger=ledger, files=TableCheckpoints("l"),
            layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")),
        )  # fmt: skip
        serving = threading.Thread(target=agent.serve)
        serving.start()
        try:
            assert agent._pools["local"].keeper.kept.wait(60)  # type: ignore[attr-defined]  # The double's.
            assert serving.is_alive() and Keeper.ended == 0
            if another_came:
                os.unlink(places.socket)
                theirs = socket.socket(socket.AF_UNIX)
                theirs.bind(places.socket)
            shutil.rmtree(home)
            serving.join(60)
            assert not serving.is_alive() and Keeper.ended == 1
        finally:
            agent.end(pool=False)
            serving.join(60)
    assert not home.exists() and os.path.exists(places.socket) is another_came


def test_an_agent_removes_the_requests_of_builds_that_a_killed_agent_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "PoolSupervisor", Keeper)
    monkeypatch.setattr(agents, "ROUND_S", 0.02)
    places = EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a" / "agent.sock"), os.getuid())
    manifest = Manifest(id="p-id", name="p", environments=(Environment("dev"),), default_env="dev")
    left = Path(places.job_builds, "tmp1", "request.json")
    left.parent.mkdir(parents=True)
    left.write_text('{"url": "sc://127.0.0.1:1/;headgate-job=token"}')
    with create_or_open(Path(places.ledger), environment_row(ledger_id="l")) as ledger:
        agent = Agent(
            places=places, folder=str(tmp_path), manifest=manifest, ledger=ledger, files=TableCheckpoints("l"),
            layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")),
        )  # fmt: skip
        serving = threading.Thread(target=agent.serve)
        serving.start()
        try:
            assert agent._pools["local"].keeper.kept.wait(60)  # type: ignore[attr-defined]  # The double's.
            assert not os.path.exists(places.job_builds)
        finally:
            agent.end(pool=False)
            serving.join(60)


class Answering(Keeper):
    """A pool that refuses to list its queries and answers everything else."""

    is_ready, is_starting_statements = True, False
    heard_of: HeadgateError | None = None

    def connection(self) -> Any:
        return SimpleNamespace(call=self.refuse, queries=SimpleNamespace(active=None))

    def refuse(self, *_: Any) -> None:
        raise EngineRefused("the pool failed in this call and did not say why")

    def record_answer(self, error: HeadgateError | None) -> None:
        Answering.heard_of = error


def test_statements_of_a_pool_that_refuses_to_list_them_are_not_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "PoolSupervisor", Answering)
    monkeypatch.setattr(agents, "ROUND_S", 0.02)
    monkeypatch.setattr(agents, "UNKNOWN_S", 0.0)
    places = EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a" / "agent.sock"), os.getuid())
    manifest = Manifest(id="p-id", name="p", environments=(Environment("dev"),), default_env="dev")
    with create_or_open(Path(places.ledger), environment_row(ledger_id="l")) as ledger:
        ledger.put_deployment(deployment_row())
        agent = Agent(
            places=places, folder=str(tmp_path), manifest=manifest, ledger=ledger, files=TableCheckpoints("l"),
            layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")),
        )  # fmt: skip
        serving = threading.Thread(target=agent.serve)
        serving.start()
        try:
            wait_until(lambda: ledger.deployments()[0].state == "unknown")
            assert ledger.deployments()[0].error.startswith("the server of the pool local has not answered for ")
        finally:
            agent.end(pool=False)
            serving.join(60)
    assert Answering.heard_of is not None


class StoppedMeanwhile(Answering):
    """A pool that refuses to list its queries, for the first time after an operator has stopped a query."""

    ledger: Any = None
    asked = 0

    def refuse(self, *_: Any) -> None:
        StoppedMeanwhile.asked += 1
        if StoppedMeanwhile.asked == 1:
            self.ledger.stop_statements(["a"], CommandStamp(1, "bob", 1.0))
        raise EngineRefused("the pool failed in this call and did not say why")


def test_a_stop_during_a_query_of_the_pool_is_not_reported_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "PoolSupervisor", StoppedMeanwhile)
    monkeypatch.setattr(agents, "ROUND_S", 0.02)
    monkeypatch.setattr(agents, "UNKNOWN_S", 0.0)
    with create_or_open(tmp_path / "home/ledger.db", environment_row(ledger_id="l")) as ledger:
        ledger.put_deployment(deployment_row())
        monkeypatch.setattr(StoppedMeanwhile, "ledger", ledger)
        agent = Agent(
            places=EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a" / "agent.sock"), os.getuid()),
            folder=str(tmp_path), manifest=Manifest(id="p-id", name="p", environments=(Environment("dev"),)),
            ledger=ledger, files=TableCheckpoints("l"),
            layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")),
        )  # fmt: skip
        serving = threading.Thread(target=agent.serve)
        serving.start()
        try:
            wait_until(lambda: StoppedMeanwhile.asked > 2)
        finally:
            agent.end(pool=False)
            serving.join(60)
        assert ledger.deployments()[0].state == "stopping"


class CountingDown(Keeper):
    """A pool that is still starting, with a countdown of seconds."""

    rounds = 0

    def keep(self) -> None:
        CountingDown.rounds += 1
        raise PoolUnreachable(f"the pool local is started again in {60 - self.rounds} s: it ended")


def test_a_wait_that_counts_down_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agents, "PoolSupervisor", CountingDown)
    monkeypatch.setattr(agents, "ROUND_S", 0.02)
    with create_or_open(tmp_path / "home/ledger.db", environment_row(ledger_id="l")) as ledger:
        agent = Agent(
            places=EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a" / "agent.sock"), os.getuid()),
            folder=str(tmp_path), manifest=Manifest(id="p-id", name="p", environments=(Environment("dev"),)),
            ledger=ledger, files=TableCheckpoints("l"),
            layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")),
        )  # fmt: skip
        serving = threading.Thread(target=agent.serve)
        serving.start()
        try:
            wait_until(lambda: CountingDown.rounds >= 4)
        finally:
            agent.end(pool=False)
            serving.join(60)
    assert sum("started again in" in record.getMessage() for record in caplog.records) == 1


def test_the_last_changes_are_recorded_before_an_agent_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "PoolSupervisor", Keeper)
    monkeypatch.setattr(agents, "ROUND_S", 600.0)
    places = EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a" / "agent.sock"), os.getuid())
    manifest = Manifest(id="p-id", name="p", environments=(Environment("dev"),), default_env="dev")
    data = str(tmp_path / "data")

    def recorded() -> str:
        found = read_record(data, "a@v1")
        return found.row["wanted"] if found else ""

    with create_or_open(Path(places.ledger), environment_row(ledger_id="l")) as ledger:
        ledger.put_deployment(deployment_row())
        agent = Agent(
            places=places, folder=str(tmp_path), manifest=manifest, ledger=ledger, files=TableCheckpoints("l"),
            layout=EnvironmentLayout(data, Environment("dev")),
        )  # fmt: skip
        serving = threading.Thread(target=agent.serve)
        serving.start()
        try:
            wait_until(lambda: recorded() == "running")
            ledger.stop_statements(["a"], CommandStamp(1, "bob", 1.0))
        finally:
            agent.end(pool=False)
            serving.join(60)
    assert recorded() == "stopped"


class OnAFullDisk(Keeper):
    """A pool whose log must be truncated after the trash has been purged."""

    bounded: threading.Event
    acts: list[str]

    def bound_log(self) -> None:
        OnAFullDisk.acts.append("bound the pool's log")
        OnAFullDisk.bounded.set()


def test_housekeeping_purges_first_and_continues_if_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(agent: Any) -> None:
        OnAFullDisk.acts.append("purge")
        raise LedgerUnavailable("the disk is full")

    monkeypatch.setattr(OnAFullDisk, "bounded", threading.Event(), raising=False)
    monkeypatch.setattr(OnAFullDisk, "acts", [], raising=False)
    monkeypatch.setattr(agents, "PoolSupervisor", OnAFullDisk)
    monkeypatch.setattr(agents, "purge_trash", refused)
    with create_or_open(tmp_path / "home/ledger.db", environment_row(ledger_id="l")) as ledger:
        agent = Agent(
            places=EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a" / "agent.sock"), os.getuid()),
            folder=str(tmp_path), manifest=Manifest(id="p-id", name="p", environments=(Environment("dev"),)),
            ledger=ledger, files=TableCheckpoints("l"),
            layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")),
        )  # fmt: skip
        serving = threading.Thread(target=agent.serve)
        serving.start()
        try:
            assert OnAFullDisk.bounded.wait(60)
        finally:
            agent.end(pool=False)
            serving.join(60)
    assert OnAFullDisk.acts == ["purge", "bound the pool's log"]
