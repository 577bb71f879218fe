"""The processes of an environment's agent, pool and generator, identified by the locks that they hold."""

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_project import until

from core.model.errors import AgentUnreachable
from tui.agent_client import agent_process, os_processes
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.services import teardown

IDLE = "import sys; print(flush=True); sys.stdin.read()"
HOLDS = "import fcntl, sys; f = open(sys.argv[1], 'a+'); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program with arguments, and return its pid once the program has done its work."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(program: str, *words: str) -> int:
        command = [sys.executable, "-c", program, *words]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child.pid

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def home(place: SelectedEnvironment) -> Path:
    made = Path(place.where.home)
    made.mkdir(parents=True)
    Path(place.data).mkdir()
    return made


@pytest.mark.parametrize("other", [("", "2"), ("-old", ""), ("/sub", "")])
def test_the_agent_of_an_environment_whose_name_begins_alike_is_not_ours(
    place: SelectedEnvironment, home: Path, start: Start, other: tuple[str, str]
) -> None:
    """The pid was reused: the lock file contains it, but its process holds a different lock."""
    folder, name = place.folder + other[0], place.environment + other[1]
    pid = start(HOLDS, str(home / "another.lock"), agent_process.AGENT, "--project", folder, "--env", name)
    Path(place.where.lock).write_text(str(pid))
    assert agent_process.find_agent_process(place) is None


def test_the_agent_is_the_process_that_holds_the_lock_of_its_home(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    pid = start(HOLDS, place.where.lock, agent_process.AGENT)
    Path(place.where.lock).write_text(str(pid))
    found = agent_process.find_agent_process(place)
    assert found is not None and found.pid == pid


def test_the_agent_of_a_project_that_was_moved_is_found_by_its_home(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    words = (agent_process.AGENT, "--project", place.folder, "--env", place.environment)
    pid = start(HOLDS, place.where.lock, *words)
    Path(place.where.lock).write_text(str(pid))
    found = agent_process.find_agent_process(replace(place, folder=f"{place.folder}-moved"))
    assert found is not None and found.pid == pid


def test_an_agent_whose_pid_the_disk_did_not_take_is_found(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    pid = start(HOLDS, place.where.lock, agent_process.AGENT)
    found = agent_process.find_agent_process(place)
    assert found is not None and found.pid == pid


def test_a_process_that_only_opens_a_lock_is_not_the_agent(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    Path(place.where.lock).write_text("")
    opened = "import sys; f = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    pid = start(opened, place.where.lock, agent_process.AGENT, "--project", place.folder, "--env", place.environment)
    Path(place.where.lock).write_text(str(pid))
    assert agent_process.find_agent_process(place) is None


def test_a_lock_that_a_restore_holds_does_not_make_the_last_pid_the_agent(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    pid = start(IDLE, agent_process.AGENT, "--project", place.folder, "--env", place.environment)
    Path(place.where.lock).write_text(str(pid))
    with open(place.where.lock, "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert agent_process.find_agent_process(place) is None


@pytest.mark.parametrize("other", ["2", "/sub"])
def test_the_generator_over_a_data_folder_whose_name_begins_alike_is_not_ours(
    place: SelectedEnvironment, home: Path, start: Start, other: str
) -> None:
    pid = start(IDLE, teardown.GENERATOR, "--data", place.data + other)
    Path(place.data, "generator.lock").write_text(str(pid))
    assert teardown.find_generator(place) is None


def test_the_generator_is_the_process_that_holds_the_lock_of_its_data_folder(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    lock = Path(place.data, "generator.lock")
    pid = start(HOLDS, str(lock), teardown.GENERATOR, "--data", place.data)
    lock.write_text(str(pid))
    found = teardown.find_generator(place)
    assert found is not None and found.pid == pid


def test_the_events_of_a_demo_with_tables_in_hdfs_are_in_its_own_folder(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    place = replace(place, data="hdfs://one:8020/demo")
    folder = Path(place.folder, "data")
    assert teardown.event_folder(place) == str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pid = start(HOLDS, str(folder / "generator.lock"), teardown.GENERATOR, "--data", str(folder))
    (folder / "generator.lock").write_text(str(pid))
    found = teardown.find_generator(place)
    assert found is not None and found.pid == pid


def test_a_pool_is_known_by_its_start_where_that_was_recorded(
    place: SelectedEnvironment, home: Path, start: Start
) -> None:
    pid = start(IDLE, "-Dheadgate.pool=feed")
    found = os_processes.identify(pid)
    assert found is not None
    record = {"pid": pid, "marker": "feed", "home": place.where.home}
    until(lambda: "-Dheadgate.pool=feed" in os_processes.arguments_of(pid), 10, "the kernel shows its arguments")
    Path(place.where.pool_file).write_text(json.dumps(record | {"started": found.started}))
    assert agent_process.find_pool_process(place) == found
    Path(place.where.pool_file).write_text(json.dumps(record | {"started": f"{found.started}0"}))
    assert agent_process.find_pool_process(place) is None


def test_an_agent_that_is_alive_but_slow_is_waited_for_and_not_started_again(
    place: SelectedEnvironment, home: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(HOLDS, place.where.lock, agent_process.AGENT)
    answers, waited = iter((False, False, True)), list[agent_process.WaitProgress]()
    monkeypatch.setattr(agent_process, "is_listening", lambda client: next(answers))
    monkeypatch.setattr(agent_process, "wait_for_pool", lambda place, progress: None)
    client = AgentClient(place.where.socket, ledger=1)
    assert not agent_process.ensure_running(place, client, {}, progress=waited.append)
    assert [each.what for each in waited] == [f"agent (pid {pid})"] * 2
    monkeypatch.setattr(agent_process, "is_listening", lambda client: False)
    monkeypatch.setattr(agent_process, "AGENT_S", 0.0)
    with pytest.raises(AgentUnreachable, match=rf"\(pid {pid}\) of .* is alive but has not answered") as raised:
        agent_process.ensure_running(place, client, {}, progress=waited.append)
    assert "down" not in raised.value.remedy
