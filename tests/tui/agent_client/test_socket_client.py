"""The client against a scripted agent: framing, versions, refusals, deadlines."""

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from core.ipc import framing
from core.model.errors import AgentUnreachable, ConfirmationNeeded, TryAgain, VersionMismatch
from state.migrations import SCHEMA_VERSION
from tui.agent_client import socket_client as module
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment


@pytest.fixture
def client(place: SelectedEnvironment) -> AgentClient:
    return AgentClient(place.where.socket, ledger=SCHEMA_VERSION, title=place.title)


def test_a_call_carries_op_arguments_confirmation_and_line_and_gives_the_result(
    client: AgentClient, agent: Any
) -> None:
    agent.script["stop"] = {"statements": []}
    assert client.call("stop", {"tables": ["a"]}, confirm="yes", line="headgate stop a") == {"statements": []}
    assert agent.heard == [
        {"id": 1, "op": "stop", "args": {"tables": ["a"]}, "confirm": "yes", "line": "headgate stop a"}
    ]


def test_an_answer_larger_than_one_read_arrives_completely(client: AgentClient, agent: Any) -> None:
    agent.script["peek"] = {"rows": [["x" * 3_000_000]]}
    assert len(client.call("peek")["rows"][0][0]) == 3_000_000


def test_a_refusal_is_raised_as_the_class_that_the_agent_refused_with(client: AgentClient, agent: Any) -> None:
    agent.script["stop"] = ConfirmationNeeded("this needs 'yes'", remedy="--confirm 'yes'")
    with pytest.raises(ConfirmationNeeded) as refused:
        client.call("stop")
    assert (refused.value.summary, refused.value.remedy, refused.value.exit_code) == (
        "this needs 'yes'", "--confirm 'yes'", 3,
    )  # fmt: skip


def test_without_an_agent_the_remedy_is_to_start_it(client: AgentClient) -> None:
    with pytest.raises(AgentUnreachable) as refused:
        client.call("status")
    assert "headgate up" in refused.value.remedy


def test_a_socket_in_a_folder_of_another_user_is_not_connected_to(place: SelectedEnvironment, agent: Any) -> None:
    mine = os.getuid()
    squatted = AgentClient(place.where.socket, ledger=SCHEMA_VERSION, title=place.title, owner=mine + 1)
    with pytest.raises(AgentUnreachable, match=f"belongs to user {mine}, the agent of shop dev to user {mine + 1}"):
        squatted.call("stop", {"tables": ["a"]})
    assert agent.heard == []


def test_an_agent_run_by_another_user_in_our_folder_gets_no_request(
    place: SelectedEnvironment, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.lstat(os.path.dirname(place.where.socket))
    others = os.stat_result((*folder[:4], folder.st_uid + 1, *folder[5:]))
    monkeypatch.setattr(module.os, "lstat", lambda path: others)
    client = AgentClient(place.where.socket, ledger=SCHEMA_VERSION, owner=folder.st_uid + 1)
    with pytest.raises(AgentUnreachable, match=f"user {folder.st_uid} listens at"):
        client.call("stop", {"tables": ["a"]})
    assert agent.heard == []


def test_a_link_in_place_of_the_sockets_folder_is_not_followed(
    place: SelectedEnvironment, agent: Any, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(os.path.dirname(place.where.socket))
    path = tmp_path / "link" / os.path.basename(place.where.socket)
    with pytest.raises(AgentUnreachable, match="is not a folder"):
        AgentClient(str(path), ledger=SCHEMA_VERSION).hello()


def test_an_agent_that_does_not_answer_is_left_after_the_deadline(
    client: AgentClient, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.silent = frozenset({"submit_plan"})
    monkeypatch.setitem(module.DEADLINES_S, "submit_plan", 0.2)
    with pytest.raises(TryAgain) as refused:
        client.call("submit_plan")
    assert refused.value.summary.endswith("did not answer within 0 s (plan)")


def test_a_newer_ledger_is_refused_and_both_versions_are_named(client: AgentClient, agent: Any) -> None:
    agent.hello = agent.hello | {"program": "0.9.0", "ledger": SCHEMA_VERSION + 1}
    with pytest.raises(VersionMismatch) as refused:
        client.call("status")
    assert "0.9.0" in refused.value.summary and module.PROGRAM_VERSION in refused.value.summary


@pytest.mark.parametrize("op", sorted(module.DEADLINES_S))
def test_an_older_agent_gets_only_reads_and_stops(client: AgentClient, agent: Any, op: str) -> None:
    agent.hello = agent.hello | {"program": "0.0.9", "protocol": framing.PROTOCOL - 1}
    if op in module.WITH_AN_OLDER_AGENT:
        assert client.call(op) == {}
    else:
        with pytest.raises(VersionMismatch) as refused:
            client.call(op)
        assert "restart the agent" in refused.value.remedy
        assert agent.heard == []


def test_a_newer_agent_is_refused(client: AgentClient, agent: Any) -> None:
    agent.hello = agent.hello | {"protocol": framing.PROTOCOL + 1}
    with pytest.raises(VersionMismatch):
        client.call("stop")


def test_the_greeting_contains_the_agents_versions(client: AgentClient, agent: Any) -> None:
    assert client.hello() == module.AgentVersions(program="0.1.0", protocol=framing.PROTOCOL, ledger=SCHEMA_VERSION)


def test_with_too_many_callers_a_connection_is_retried_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.05)
    path = str(tmp_path / "agent.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, ExitStack() as callers:
        listener.bind(path)
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                caller = callers.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                caller.setblocking(False)
                caller.connect(path)
        with pytest.raises(TryAgain, match="too many callers") as raised:
            AgentClient(path, ledger=1).call("stop")
        assert type(raised.value) is TryAgain
