"""Servers as detached processes: started once, found by later commands, ended without harming others."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from core.model.errors import HeadgateError, Refused
from pipelines.local_pool import detached_servers
from pipelines.local_pool.detached_servers import DetachedServer, RunningServers, free_port
from pipelines.local_pool.process_locks import process_start


class Listener(DetachedServer):
    """A server that listens on its port, and does nothing."""

    name = "Listener"

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(self.port)]


class Broken(Listener):
    """A server that exits immediately."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('no luck')"]


def servers_in(folder: Path) -> RunningServers:
    return RunningServers(folder, other_ports="choose another folder")


def pid_of(servers: RunningServers) -> int:
    return int(servers.record()["processes"]["Listener"]["pid"])


def test_a_server_is_started_once_and_found_and_ended_by_later_commands(tmp_path: Path) -> None:
    server = Listener(tmp_path / "listener", free_port())
    assert servers_in(tmp_path).start(server)
    assert not servers_in(tmp_path).start(server)
    assert servers_in(tmp_path).running() == ["Listener"]
    pid = pid_of(servers_in(tmp_path))
    assert servers_in(tmp_path).end() == [f"Listener (pid {pid})"]
    assert process_start(pid) is None and servers_in(tmp_path).running() == []
    assert servers_in(tmp_path).end() == []


def test_a_killed_server_is_started_again(tmp_path: Path) -> None:
    servers, server = servers_in(tmp_path), Listener(tmp_path / "listener", free_port())
    servers.start(server)
    first = pid_of(servers)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    assert servers.running() == []
    assert servers.start(server) and pid_of(servers) != first
    servers.end()


def test_a_server_whose_record_a_kill_prevented_is_ended_by_its_marker(tmp_path: Path) -> None:
    servers = servers_in(tmp_path)
    servers.start(Listener(tmp_path / "listener", free_port()))
    pid, record = pid_of(servers), servers.record()
    servers._write({**record, "processes": {}})
    assert servers.end() == []
    os.waitpid(pid, 0)
    assert process_start(pid) is None


def test_a_server_whose_process_id_a_kill_prevented_is_found_and_not_started_twice(tmp_path: Path) -> None:
    servers, server = servers_in(tmp_path), Listener(tmp_path / "listener", free_port())
    servers.start(server)
    pid, record = pid_of(servers), servers.record()
    unknown = {**record, "processes": {"Listener": {**record["processes"]["Listener"], "pid": 0, "started": ""}}}
    servers._write(unknown)
    assert servers_in(tmp_path).running() == ["Listener"]
    assert not servers_in(tmp_path).start(server)
    assert servers.record() == record
    servers._write(unknown)
    assert servers_in(tmp_path).end() == [f"Listener (pid {pid})"]


def test_a_server_is_recorded_before_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers, found = servers_in(tmp_path), []

    def killed(server: DetachedServer, *command: str, environ: object = None) -> None:
        found.append(servers.record()["processes"]["Listener"]["pid"])
        raise KeyboardInterrupt

    monkeypatch.setattr(Listener, "spawn", killed)
    with pytest.raises(KeyboardInterrupt):
        servers.start(Listener(tmp_path / "listener", free_port()))
    assert found == [0] and servers.running() == servers.end() == []


def test_a_process_that_only_has_the_recorded_pid_is_not_ended(tmp_path: Path) -> None:
    servers = servers_in(tmp_path)
    found = {"pid": os.getpid(), "started": "another boot", "port": 1, "signal": int(signal.SIGTERM)}
    servers._write({"marker": "m", "processes": {"Listener": found}})
    assert servers.running() == servers.end() == []


def test_a_port_of_another_process_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Refused, match=f"another process has port {port} of Listener"):
            servers_in(tmp_path).start(Listener(tmp_path / "listener", port))


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError, match="Listener has ended: no luck"):
        servers_in(tmp_path).start(Broken(tmp_path / "listener", free_port()))


def test_a_dead_process_is_a_zombie_until_its_parent_has_collected_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert detached_servers._is_zombie(child.pid)
    child.wait()
    assert not detached_servers._is_zombie(child.pid) and not detached_servers._is_zombie(os.getpid())
