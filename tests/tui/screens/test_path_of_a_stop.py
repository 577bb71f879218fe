"""The number of our functions on the path of a stop: from its key to the dialog, and from Enter to the socket."""

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.terminal.in_memory_backend import FakeBackend
from tests.tui.console_harness import Console, in_console
from tui.agent_client import socket_client
from tui.agent_client.agent_commands import AgentCommands
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.screens.console_state import QuestionBox

TO_DIALOG, TO_SOCKET = 4, 7
OURS = tuple(str(Path(__file__).parents[3] / package) for package in ("tui", "core", "state"))


def callers() -> list[str]:
    """Return our functions on this thread's stack, outermost first."""
    found, frame = [], sys._getframe()
    while isinstance(frame, FrameType):
        if frame.f_code.co_filename.startswith(OURS):
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found[::-1]


def test_a_stop_takes_few_functions_from_its_key_to_the_socket(
    place: SelectedEnvironment, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: dict[str, list[str]] = {}

    def recorded(name: str, call: Any) -> Any:
        def record(*args: Any, **kwargs: Any) -> Any:
            # The test's agent and the poller also start threads; a greeting is answered before the stop.
            if name != "thread" or "EnvironmentTab.run_in_thread" in callers():
                walks[name] = callers()
            return call(*args, **kwargs)

        return record

    monkeypatch.setattr(QuestionBox, "ask", recorded("dialog", QuestionBox.ask))
    # This function is called right after the bytes of the stop were sent.
    monkeypatch.setattr(socket_client, "_receive", recorded("socket", socket_client._receive))
    monkeypatch.setattr(threading.Thread, "start", recorded("thread", threading.Thread.start))
    backend = FakeBackend()
    backend.agent = AgentCommands(place, socket_client.AgentClient(place.where.socket, ledger=agent.hello["ledger"]))

    async def scenario(console: Console) -> None:
        assert console.screen.table.choose("till")
        await console.press("T")
        await console.type("yes")
        await console.press("enter")
        await console.until(lambda: bool(agent.heard), "the stop")

    in_console(scenario, backend=backend)
    assert agent.heard[0]["op"] == "stop"
    # Add 1 for the recorded function itself, which is not in `callers()`.
    assert len(walks["dialog"]) + 1 <= TO_DIALOG, walks["dialog"]
    assert len(walks["thread"]) + len(walks["socket"]) + 1 <= TO_SOCKET, (walks["thread"], walks["socket"])
