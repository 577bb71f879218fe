"""An environment can be ended from its own project folder, but not from a copy of the folder."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import Refused
from tests.tui.agent_client import test_agent_process as processes
from tui.agent_client import agent_process, os_processes
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.services import teardown

start, home = processes.start, processes.home
SLEEPS = "import time; print(flush=True); time.sleep(600)"


def test_a_copy_of_a_project_ends_nothing_of_the_original(
    place: SelectedEnvironment, home: Path, start: Any, tmp_path: Path
) -> None:
    words = (agent_process.AGENT, "--project", place.folder, "--env", place.environment)
    pid = start(processes.HOLDS, place.where.lock, *words)
    Path(place.where.lock).write_text(str(pid))
    copy = str(tmp_path / "copy")
    shutil.copytree(place.folder, copy)
    client = AgentClient(place.where.socket, ledger=1)
    with pytest.raises(Refused, match="is a copy of it with the same id"):
        teardown.end_all(
            replace(place, folder=copy), client, keep_pool=False, confirm="", progress=lambda progress: None
        )
    assert os_processes.identify(pid) is not None


def test_an_agent_ends_from_the_folder_to_which_its_project_was_moved(
    place: SelectedEnvironment, home: Path, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(processes.HOLDS, place.where.lock, agent_process.AGENT, "--project", place.folder)
    Path(place.where.lock).write_text(str(pid))
    moved = shutil.move(place.folder, tmp_path / "moved")
    # This process does not end by itself, so the teardown would wait for it.
    monkeypatch.setattr(agent_process, "END_S", 0.0)
    ended = teardown.end_all(
        replace(place, folder=str(moved)),
        AgentClient(place.where.socket, ledger=1),
        keep_pool=False,
        confirm="",
        progress=lambda progress: None,
    )
    assert ended == [f"agent (pid {pid})"] and os_processes.lock_holder(place.where.lock) is None


def test_the_servers_of_a_scenario_end_last_and_a_process_that_has_taken_over_a_pid_stays(
    place: SelectedEnvironment, home: Path, start: Any
) -> None:
    pid, other = start(SLEEPS), start(SLEEPS)
    found = os_processes.identify(pid)
    assert found is not None
    processes_of = {
        "PostgreSQL": {"pid": pid, "started": found.started, "port": 1, "signal": 15},
        "Kafka": {"pid": other, "started": "before the machine was started again", "port": 2, "signal": 15},
    }
    record = Path(place.folder, teardown.SERVERS_FOLDER, "servers.json")
    record.parent.mkdir()
    record.write_text(json.dumps({"marker": "none has it", "processes": processes_of}))
    assert teardown.still_running(place) == [f"PostgreSQL (pid {pid})"]
    client = AgentClient(place.where.socket, ledger=1)
    kept = teardown.end_all(place, client, keep_pool=True, confirm="", progress=lambda progress: None)
    assert kept == [] and found.alive
    stage = Path(place.where.home).parent / "stage"
    stage.mkdir(parents=True)
    (stage / "ledger.db").write_text("")
    agent = os_processes.identify(start(processes.HOLDS, str(stage / "agent.lock"), agent_process.AGENT))
    kept = teardown.end_all(place, client, keep_pool=False, confirm="", progress=lambda progress: None)
    assert kept == [] and found.alive, "statements of another environment may need them"
    assert agent is not None and os_processes.end_process(agent, patience_s=15.0)
    ended = teardown.end_all(place, client, keep_pool=False, confirm="", progress=lambda progress: None)
    assert ended == [f"PostgreSQL (pid {pid})"] and not found.alive
    assert os_processes.identify(other) is not None
