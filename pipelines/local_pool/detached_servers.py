"""Servers that a command starts on loopback, detached, so that they keep running when it ends.

`servers.json` records each process before it exists and, with its start time, afterwards; a marker in its environment
identifies one whose id was not recorded because a command was killed. No other process is ever signalled.
"""

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from core.model.errors import HeadgateError, Refused, TryAgain
from pipelines.local_pool.process_locks import process_start, processes_with
from pipelines.whole_files import read_object, write_whole

Say = Callable[[str], object]
"""Called with a line of text that describes what a start is waiting for."""

READY_S = 120.0
"""Longest wait for a server, in seconds. Typical times are 0.2 s (PostgreSQL), 3 s (Kafka) and 8 s (Kafka Connect)."""
COLLECTED_S = 10.0
"""Longest wait, in seconds, until a killed server has been collected by its parent."""
END_S = 15.0
_MARKED = "HEADGATE_SERVER"
"""Environment variable with the marker of a folder's servers, which their child processes inherit."""


class DetachedServer(ABC):
    """A server with a folder and a loopback port. Subclasses define how it is configured and started."""

    name: str
    """Distinguishes the servers of a folder."""
    ends_by: ClassVar[signal.Signals] = signal.SIGTERM
    """The signal that ends the server without waiting for its clients."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @abstractmethod
    def prepare(self) -> None:
        """Write the server's configuration, and create its data folder if missing. Raises HeadgateError on failure."""

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """The command line that starts the server."""

    @property
    def user(self) -> dict[str, Any]:
        """The arguments of Popen that select the user of the server's process."""
        return {}

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables of the server."""
        return os.environ

    def answers(self) -> bool:
        """True if the server's port accepts connections."""
        with socket.socket() as found:
            return found.connect_ex(("127.0.0.1", self.port)) == 0

    def spawn(self, *command: str, environ: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
        """Start a command, by default the server's own, as a detached process whose output goes to `log`."""
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                command or self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**self.environment, **(environ or {})},
                start_new_session=True,
                **self.user,
            )

    def last_words(self) -> str:
        """Return the last line of the server's log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")[:300]


class RunningServers:
    """The processes of a folder's servers. They are recorded in `servers.json`, where later commands find them."""

    def __init__(self, folder: Path, *, other_ports: str) -> None:
        """Use the servers of a folder; `other_ports` completes "or …" with what gives them other ports."""
        self.folder = folder
        self._other_ports = other_ports

    def record(self) -> dict[str, Any]:
        """Return the record: `marker`, and `processes`, which maps server names to pid and start time."""
        found = read_object(self.folder / "servers.json") or {}
        return {"marker": found.get("marker") or secrets.token_hex(8), "processes": found.get("processes", {})}

    def start(self, server: DetachedServer, say: Say = lambda text: None) -> bool:
        """Start a server unless it is running, and wait until it answers; return whether it was started.

        Raises HeadgateError if the server exits or does not answer, and Refused if another process uses its port.
        """
        record = self.record()
        if pid := self.pid_in(record, server.name):
            self._note(record, server, pid)
            self._await(server, None, say)
            return False
        if before := record["processes"].get(server.name):
            # PostgreSQL does not start while its killed predecessor is a zombie.
            _gone_within(lambda: not _is_zombie(before["pid"]), COLLECTED_S)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", server.port))
            except OSError as error:
                remedy = f"end that process, or {self._other_ports}"
                raise Refused(f"another process has port {server.port} of {server.name}", remedy=remedy) from error
        server.prepare()
        self._note(record, server, 0)
        process = server.spawn(environ={_MARKED: str(record["marker"])})
        self._note(record, server, process.pid)
        self._await(server, process, say)
        return True

    def running(self) -> list[str]:
        """Return the names of the servers that are running, in the order in which they were started."""
        record = self.record()
        return [name for name in record["processes"] if self.pid_in(record, name)]

    def end(self) -> list[str]:
        """End all servers and their child processes, last started first; return the names of those that were running.

        Raises HeadgateError if a server cannot be ended.
        """
        record, ended = self.record(), []
        for name, found in reversed(list(record["processes"].items())):
            if (pid := self.pid_in(record, name)) is None:
                continue
            for number in (signal.Signals(found["signal"]), signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                if _gone_within(lambda name=name: not self.pid_in(record, name), END_S):  # type: ignore[misc]  # A bound name.
                    break
            else:
                raise HeadgateError(f"{name} (pid {pid}) cannot be ended", remedy="end it as its owner")
            ended.append(f"{name} (pid {pid})")
        # A process that was started just before a kill has no record.
        for pid in processes_with(_MARKED, str(record["marker"])):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return ended

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other commands from starting or ending these servers. Raises TryAgain after waiting for a minute."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "servers.lock", "w") as lock:
            ends_at = time.monotonic() + 60.0
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > ends_at:
                        raise TryAgain("another command starts or ends these servers", remedy="wait for it") from None
                    time.sleep(0.1)
            yield

    def pid_in(self, record: Mapping[str, Any], name: str) -> int | None:
        """Return the process id of a server in a record; None if it is not running.

        If a kill prevented the record of its id, this is the marked process that leads a session and is no other
        server's.
        """
        processes: Mapping[str, Mapping[str, Any]] = record["processes"]
        if (found := processes.get(name)) is None:
            return None
        if pid := found["pid"]:
            is_it = bool(found["started"]) and process_start(pid) == found["started"]
            return int(pid) if is_it else None
        known = {each["pid"] for each in processes.values()}
        marked = processes_with(_MARKED, str(record["marker"]))
        return next((pid for pid in marked if pid not in known and _leads_session(pid)), None)

    def _note(self, record: dict[str, Any], server: DetachedServer, pid: int) -> None:
        """Record a server's process; 0 before it exists, so that a kill leaves something by which it is found."""
        record["processes"][server.name] = {
            "pid": pid, "started": (process_start(pid) or "") if pid else "", "port": server.port,
            "signal": int(server.ends_by),
        }  # fmt: skip
        self._write(record)

    def _await(self, server: DetachedServer, process: "subprocess.Popen[bytes] | None", say: Say) -> None:
        ends_at = time.monotonic() + READY_S
        while not server.answers():
            say(f"{server.name} starts on port {server.port}")
            if process is not None and process.poll() is not None:
                raise HeadgateError(f"{server.name} has ended: {server.last_words()}", remedy=f"see {server.log}")
            if time.monotonic() > ends_at:
                said = f"{server.name} does not answer within {READY_S:.0f} s: {server.last_words()}"
                raise HeadgateError(said, remedy=f"see {server.log}")
            time.sleep(0.1)

    def _write(self, record: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "servers.json", json.dumps(record, indent=1) + "\n")


def free_port() -> int:
    """Return an unused port of the loopback interface."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _is_zombie(pid: int) -> bool:
    return process_start(pid) is None and os.path.exists(f"/proc/{pid}")


def _gone_within(is_gone: Callable[[], bool], seconds: float) -> bool:
    ends_at = time.monotonic() + seconds
    while not is_gone():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.05)
    return True


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
