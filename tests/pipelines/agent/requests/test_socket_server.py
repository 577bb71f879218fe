"""The agent's socket: it keeps accepting connections, is in a private folder, and identifies callers correctly."""

import errno
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.ipc import framing
from core.model.errors import PROBLEM_TEXT_LIMIT, PROBLEMS_SENT, InvalidProject, Refused
from core.model.problems import Problem, Where
from pipelines.agent.requests import socket_server
from pipelines.agent.requests.socket_server import Caller, SocketServer, receive_frame, send_frame
from state.migrations import SCHEMA_VERSION
from tui.agent_client.socket_client import AgentClient


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


def test_problems_of_a_refused_project_reach_the_caller_bounded(tmp_path: Path) -> None:
    problem = Problem("k" * 10_000, "remove it", Where("headgate.yml", 2)).as_json()

    def refuse(caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
        raise InvalidProject("the project has 50 problems", problems=(problem,) * 50)

    path = str(tmp_path / "agent.sock")
    hello = {"program": "0.1.0", "protocol": framing.PROTOCOL, "ledger": SCHEMA_VERSION, "pid": 1}
    serving = SocketServer(path, hello, refuse)
    serving.open()
    try:
        with pytest.raises(InvalidProject, match="50 problems") as refused:
            AgentClient(path, ledger=SCHEMA_VERSION).call("submit_plan", {})
    finally:
        serving.close()
    assert refused.value.problems == ({**problem, "summary": "k" * PROBLEM_TEXT_LIMIT},) * PROBLEMS_SENT


def opened(path: Path) -> SocketServer:
    server = SocketServer(str(path), {}, lambda caller, request: {})
    server.open()
    return server


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(Refused, match="link is a link, or another user's") as refused:
        opened(tmp_path / "link" / "agent.sock")
    assert refused.value.remedy == f"remove {tmp_path / 'link'}"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    theirs = os.getuid()
    monkeypatch.setattr(socket_server.os, "getuid", lambda: theirs + 1)
    with pytest.raises(Refused, match=f"theirs belongs to user {theirs}"):
        opened(tmp_path / "theirs" / "agent.sock")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_our_folder_that_others_can_write_is_closed_and_its_contents_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "agent.sock").symlink_to("nowhere")
    server = opened(folder / "agent.sock")
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "agent.sock").is_socket() and not (folder / "agent.sock").is_symlink()
    server.close()


CONNECTS = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"


@pytest.mark.parametrize("lives", [True, False])
def test_login_is_read_only_while_the_process_that_connected_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    # This simulates that the process id belongs to another login by the time it is read.
    monkeypatch.setattr(socket_server, "_login_uid", lambda pid: 70001)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    child = subprocess.Popen([sys.executable, "-c", CONNECTS, str(tmp_path / "s")], stdin=subprocess.PIPE)
    connection, _ = listener.accept()
    if not lives:
        child.communicate()
    caller = socket_server._caller(connection)
    assert (caller.pid, caller.uid) == (child.pid, os.getuid())
    assert caller.login_uid == (70001 if lives else None)
    assert caller.person == (70001 if lives else os.getuid())
    child.communicate()
    connection.close()
    listener.close()


def test_login_is_not_known_where_the_kernel_holds_on_to_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_server, "_login_uid", lambda pid: 70001)
    monkeypatch.setattr(socket_server, "_PEER_PIDFD", 9999)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        caller = socket_server._caller(ours)
        assert (caller.login_uid, caller.person) == (None, os.getuid())
        assert set(os.getgroups()) <= set(caller.gids)


CHOOSES = """
import ctypes, os, socket, sys
uid, login = map(int, sys.argv[2:])
os.setgid(uid), os.setuid(uid)
# The files of its own process in /proc are its own again, as after an exec.
ctypes.CDLL(None).prctl(4, 1)
with open("/proc/self/loginuid", "w") as file:
    file.write(str(login))
s = socket.socket(socket.AF_UNIX)
s.connect(chr(0) + sys.argv[1])
sys.stdin.read()
"""


def _login_can_be_written() -> bool:
    """Return whether the kernel supports login uids and this process, whose children inherit it, has none."""
    try:
        return os.getuid() == 0 and Path("/proc/self/loginuid").read_text() == str(2**32 - 1)
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not _login_can_be_written(), reason="only root can start processes that write a login uid")
@pytest.mark.parametrize(("uid", "person"), [(12345, 12345), (0, 4242)], ids=["a user", "root, as sudo"])
def test_a_process_that_writes_its_login_uid_keeps_its_identity(uid: int, person: int, tmp_path: Path) -> None:
    # That user needs no access to a folder, because the name of the socket is abstract.
    name = f"headgate-{tmp_path}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(chr(0) + name)
        listener.listen()
        command = [sys.executable, "-I", "-c", CHOOSES, name, str(uid), "4242"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert select.select([listener, child.stderr], [], [], 60)[0] == [listener]
            connection, _ = listener.accept()
            assert socket_server._login_uid(child.pid) == 4242
            with connection:
                caller = socket_server._caller(connection)
            assert (caller.uid, caller.person, caller.name) == (uid, person, str(person))
        finally:
            child.communicate()
