"""The agent's socket goes on accepting, whatever one connection does."""

import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from core.ipc import framing
from pipelines.agent.requests import socket_server
from pipelines.agent.requests.socket_server import SocketServer, receive_frame, send_frame


def test_a_connection_that_cannot_be_accepted_does_not_end_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failing = socket.socket.accept, iter([True])

    def full(listener: socket.socket) -> Any:
        if next(failing, False):
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", full)
    monkeypatch.setattr(socket_server, "ACCEPT_AGAIN_S", 0.0)
    path = str(tmp_path / "agent.sock")
    serving = SocketServer(path, {"protocol": framing.PROTOCOL}, lambda caller, request: {"op": request["op"]})
    serving.open()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(60)
            caller.connect(path)
            send_frame(caller, {"hello": {}})
            assert receive_frame(caller) == {"hello": {"protocol": framing.PROTOCOL}}
            send_frame(caller, {"id": 1, "op": "status"})
            assert receive_frame(caller)["result"] == {"op": "status"}
    finally:
        serving.close()
