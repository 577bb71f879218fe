"""Servers of a scenario as processes: started once, found by later commands, ended without harming others."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from core.model.errors import HeadgateError, Refused, UsageError
from pipelines.demo import servers as demo_servers
from pipelines.demo.servers import DemoServer, RunningServers, free_port, require_packages, resolved_jars
from pipelines.local_pool.process_locks import process_start


class Listener(DemoServer):
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


def pid_of(servers: RunningServers) -> int:
    return int(servers.record()["processes"]["Listener"]["pid"])


def test_a_server_is_started_once_and_found_and_ended_by_later_commands(tmp_path: Path) -> None:
    server = Listener(tmp_path / "listener", free_port())
    assert RunningServers(tmp_path).start(server)
    assert not RunningServers(tmp_path).start(server)
    assert RunningServers(tmp_path).running() == ["Listener"]
    pid = pid_of(RunningServers(tmp_path))
    assert RunningServers(tmp_path).end() == [f"Listener (pid {pid})"]
    assert process_start(pid) is None and RunningServers(tmp_path).running() == []
    assert RunningServers(tmp_path).end() == []


def test_a_killed_server_is_started_again(tmp_path: Path) -> None:
    servers, server = RunningServers(tmp_path), Listener(tmp_path / "listener", free_port())
    servers.start(server)
    first = pid_of(servers)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    assert servers.running() == []
    assert servers.start(server) and pid_of(servers) != first
    servers.end()


def test_a_server_whose_record_a_kill_prevented_is_ended_by_its_marker(tmp_path: Path) -> None:
    servers = RunningServers(tmp_path)
    servers.start(Listener(tmp_path / "listener", free_port()))
    pid, record = pid_of(servers), servers.record()
    servers._write({**record, "processes": {}})
    assert servers.end() == []
    os.waitpid(pid, 0)
    assert process_start(pid) is None


def test_a_process_that_only_has_the_recorded_pid_is_not_ended(tmp_path: Path) -> None:
    servers = RunningServers(tmp_path)
    found = {"pid": os.getpid(), "started": "another boot", "port": 1, "signal": int(signal.SIGTERM)}
    servers._write({"marker": "m", "processes": {"Listener": found}})
    assert servers.running() == servers.end() == []


def test_a_port_of_another_process_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Refused, match=f"another process has port {port} of Listener"):
            RunningServers(tmp_path).start(Listener(tmp_path / "listener", port))


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(HeadgateError, match="Listener has ended: no luck"):
        RunningServers(tmp_path).start(Broken(tmp_path / "listener", free_port()))


def test_missing_packages_are_named_with_the_extra_that_installs_them() -> None:
    with pytest.raises(UsageError, match="not installed: embedded-nothing") as refused:
        require_packages("json", "embedded_nothing")
    assert refused.value.remedy == "pip install 'headgate[demo]'"


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("pipelines.local_pool.java_and_spark.bundled_java", lambda: "")
    with pytest.raises(HeadgateError, match="no java"):
        resolved_jars(("a", "b", "1"), tmp_path)


def test_a_dead_process_is_a_zombie_until_its_parent_has_collected_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert demo_servers._is_zombie(child.pid)
    child.wait()
    assert not demo_servers._is_zombie(child.pid) and not demo_servers._is_zombie(os.getpid())
