"""The agent's socket goes on accepting, whatever one connection does."""

import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from core import frames
from pipelines.agent import server
from pipelines.agent.server import Server, receive, send


def test_a_connection_that_cannot_be_accepted_does_not_end_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failing = socket.socket.accept, iter([True])

    def full(listener: socket.socket) -> Any:
        if next(failing, False):
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", full)
    monkeypatch.setattr(server, "ACCEPT_AGAIN_S", 0.0)
    path = str(tmp_path / "agent.sock")
    serving = Server(path, {"protocol": frames.PROTOCOL}, lambda caller, request: {"op": request["op"]})
    serving.open()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(30)
            caller.connect(path)
            send(caller, {"hello": {}})
            assert receive(caller) == {"hello": {"protocol": frames.PROTOCOL}}
            send(caller, {"id": 1, "op": "status"})
            assert receive(caller)["result"] == {"op": "status"}
    finally:
        serving.close()
