"""Ending an environment from the folder that it belongs to, and from no copy of it."""

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
