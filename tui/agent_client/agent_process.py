"""Finds, starts and stops the agent's process. A protected environment's agent never starts automatically.

The local pool is the process recorded in pool.json, as long as it is still the same process.
"""

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.ipc.environment_paths import POOLS
from core.model.errors import (
    AgentUnreachable,
    HeadgateError,
    InvalidProject,
    LedgerUnavailable,
    PoolUnreachable,
    Refused,
    TryAgain,
    VersionMismatch,
)
from tui.agent_client import os_processes
from tui.agent_client.os_processes import OsProcess
from tui.agent_client.socket_client import AgentClient
from tui.project_folder.environment_selection import SelectedEnvironment

if TYPE_CHECKING:
    from state.row_types import EnvironmentRow


def find_pool_process(place: SelectedEnvironment, of: str = "") -> OsProcess | None:
    """Return a local pool's process, as recorded in pool.json; None if it has exited.

    `of` is where the pool has its files, as in `Environment.place_of`. A pool.json that was copied from another home
    names the pool of that home, which is not returned.
    """
    paths = place.where.of_pool(of)
    return find_server(paths.home, paths.record)


def find_pool_processes(place: SelectedEnvironment) -> dict[str, OsProcess]:
    """Return the running processes of all local pools by name, even of pools that are no longer declared.

    The one pool of an environment is called `pool`.
    """
    folder = Path(place.where.home, POOLS)
    named = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    found = {f"pool {of}" if of else "pool": find_pool_process(place, of) for of in ("", *named)}
    return {name: process for name, process in found.items() if process is not None}


def find_server(home: str, pool_file: str) -> OsProcess | None:
    """Return the Spark server's process that a home records; None if it has exited.

    The process is identified by its start time or, if none was recorded, by the marker in its arguments.
    """
    try:
        server = json.loads(Path(pool_file).read_text("utf-8"))
        pid, marker = int(server["pid"]), str(server["marker"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if (started_by := server.get("home")) and os.path.realpath(started_by) != os.path.realpath(home):
        return None
    if not pid:
        pid = os_processes.written_pid(Path(home, "pool", "pid")) or 0
    found = os_processes.identify(pid)
    if found is None:
        return None
    if started := server.get("started"):
        return found if found.started == started else None
    marked = bool(marker) and any(marker in word for word in os_processes.arguments_of(found.pid))
    return found if marked else None


def is_pool_gone(place: SelectedEnvironment, of: str = "") -> bool:
    """True if this environment has started a local pool whose process no longer exists; `of` is its place."""
    return Path(place.where.of_pool(of).record).exists() and find_pool_process(place, of) is None


AGENT = "pipelines.agent"

AGENT_USUAL_S = 3.0
POOL_USUAL_S = 15.0
"""Typical start times of agent and pool on 2 cores, in seconds, displayed with the elapsed time."""

AGENT_S = 60.0
POOL_S = 240.0
"""Timeouts for the start of agent and pool, in seconds. Spark's first start from a cold disk is slow."""

LOOKS_S = 10.0
"""Longest time, in seconds, that a new agent should need to check its pool."""

END_S = 60.0


@dataclass(frozen=True, slots=True)
class WaitProgress:
    """Progress of an operation that the user is waiting for."""

    what: str
    elapsed_s: float
    usual_s: float
    detail: str = ""


ProgressCallback = Callable[[WaitProgress], None]


def is_listening(client: AgentClient) -> bool:
    """True if an agent of any version answers on the client's socket."""
    try:
        client.hello()
    except AgentUnreachable:
        return False
    except VersionMismatch:
        return True
    return True


@contextmanager
def no_agent(place: SelectedEnvironment) -> Iterator[None]:
    """Prevent agent and pool from starting within the block. Raises Refused if either is running."""
    make_home(place)
    with open(place.where.lock, "a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise Refused(
                f"the agent (pid {lock.read().strip()}) is running", remedy="headgate down stops it"
            ) from error
        for name, pool in find_pool_processes(place).items():
            raise Refused(f"the {name} (pid {pool.pid}) is running", remedy="headgate down stops it")
        yield


def ensure_running(
    place: SelectedEnvironment,
    client: AgentClient,
    environ: Mapping[str, str],
    *,
    progress: ProgressCallback,
) -> bool:
    """Start the agent if none is running, and wait for the pool. Returns True if this call started the agent.

    Raises Refused if an agent would have to be started in a protected environment, HeadgateError with the agent's last
    message if it exits, AgentUnreachable if a living agent does not answer, and PoolUnreachable
    if the pool cannot be started.
    """
    if _answers_in_time(place, client, progress):
        wait_for_pool(place, progress)
        return False
    if not place.declared:
        raise Refused(
            f"no agent is running for {place.title}, and headgate.yml no longer declares {place.environment}",
            remedy=f"declare it again; to delete what it left: headgate down --purge --env {place.environment}",
        )
    if place.protected:
        raise Refused(
            f"no agent is running for {place.title}, and no command starts the agent of a protected environment in the "
            "background",
            remedy=f"run it as a service: headgate up --foreground {place.options}",
        )
    make_home(place)
    mark = _size(place.where.agent_log)
    child = os_processes.start_detached(agent_command(place), environ, place.where.agent_log)
    _wait_for_socket(place, client, child, mark, progress)
    wait_for_pool(place, progress)
    return True


def _answers_in_time(place: SelectedEnvironment, client: AgentClient, progress: ProgressCallback) -> bool:
    """Return whether an agent answers, after waiting for one that is alive; False if there is none, or if it exits.

    Raises AgentUnreachable if a living agent does not answer within AGENT_S.
    """
    began = time.monotonic()
    while not is_listening(client):
        if (found := find_agent_process(place)) is None:
            return False
        if (elapsed := time.monotonic() - began) > AGENT_S:
            raise AgentUnreachable(
                f"the agent (pid {found.pid}) of {place.title} is alive but has not answered for {AGENT_S:.0f} s",
                remedy="headgate logs agent shows what it does; try again when the machine is less busy",
            )
        progress(WaitProgress(f"agent (pid {found.pid})", elapsed, AGENT_USUAL_S))
        os_processes.wait_gone(found, 0.25)
    return True


def agent_command(place: SelectedEnvironment) -> list[str]:
    return os_processes.module_command(AGENT, "--project", place.folder, "--env", place.environment)


def make_home(place: SelectedEnvironment) -> None:
    """Create the environment's home folder with its permissions. Raises HeadgateError if that fails."""
    try:
        os.makedirs(place.where.home, mode=0o2750, exist_ok=True)
    except OSError as error:
        raise HeadgateError(
            f"the home {place.where.home} cannot be created: {error.strerror}",
            remedy="set HEADGATE_HOME to a folder that you own on a local disk",
        ) from error


def wait_for_pool(place: SelectedEnvironment, progress: ProgressCallback, *, seconds: float = POOL_S) -> None:
    """Wait until every pool is up. Raises PoolUnreachable with the reason if one fails, or after `seconds`."""
    began = time.monotonic()
    while True:
        facts = read_environment_row(place)
        elapsed = time.monotonic() - began
        missing = facts.worst_pool if facts is not None else None
        if facts is not None and missing is not None and missing.state == "up":
            # The ledger of a killed agent still says `up` until the new agent has checked.
            left_over = (pool for pool in facts.pools if elapsed < LOOKS_S and is_pool_gone(place, pool.place))
            missing = next(left_over, None)
            if missing is None:
                return
        of = f" {missing.name}" if facts is not None and missing is not None and len(facts.pools) > 1 else ""
        down = missing is not None and missing.state in ("down", "failed", "degraded")
        if (down and elapsed > 5) or elapsed > seconds:
            raise PoolUnreachable(
                f"the pool{of} of {place.title} is {missing.state if missing else 'not known'}"
                + (f": {missing.detail}" if missing and missing.detail else ""),
                remedy=f"headgate doctor checks Java, jars and disk; headgate logs pool{of} shows what Spark said",
            )
        progress(WaitProgress(f"pool{of} (Spark Connect)", elapsed, POOL_USUAL_S, missing.detail if missing else ""))
        time.sleep(0.2)


def read_environment_row(place: SelectedEnvironment) -> "EnvironmentRow | None":
    """Return the environment's row of the ledger; None if the ledger cannot be read."""
    from state.ledger import LedgerReader

    try:
        with LedgerReader(Path(place.where.ledger)) as reader:
            return reader.facts()
    except LedgerUnavailable:
        return None


def find_agent_process(place: SelectedEnvironment) -> OsProcess | None:
    """Return the process that holds the home's lock file if that process is an agent; otherwise None.

    A restore holds the same lock, but is not returned. This works even if the project folder was moved.
    """
    found = os_processes.lock_holder(place.where.lock)
    return found if found is not None and AGENT in os_processes.arguments_of(found.pid) else None


def end_agent(
    place: SelectedEnvironment,
    client: AgentClient,
    *,
    pool: bool,
    purge: bool = False,
    confirm: str,
    line: str,
    progress: ProgressCallback,
) -> bool:
    """Stop the agent and, with `pool`, its pool. Returns True if an agent was running.

    With `purge`, the agent removes its names from the catalog of a server that it does not manage.

    Raises HeadgateError if the agent refuses or cannot be stopped.
    """
    found = find_agent_process(place)
    if is_listening(client):
        client.call("exit", {"pool": pool, "purge": purge}, confirm=confirm, line=line)
    elif found is None:
        return False
    began = time.monotonic()
    while found is not None and found.alive:
        elapsed = time.monotonic() - began
        if elapsed > END_S:
            # The agent hangs. Its work is recorded in the ledger and will be resumed by the next agent.
            if not os_processes.end_process(found, patience_s=5.0):
                raise HeadgateError(
                    f"the agent (pid {found.pid}) does not stop", remedy="stop it as its owner or as root"
                )
            break
        progress(WaitProgress("agent and statements stop", elapsed, 5.0))
        os_processes.wait_gone(found, 0.25)
    return True


def log_tail(path: str, lines: int, *, start: int = 0) -> list[str]:
    """Return the last `lines` lines of a log after byte `start`, at most 256 kB. Empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A rotated log is shorter than before.
            file.seek(max(start if start <= size else 0, size - 256 * 1024))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _wait_for_socket(
    place: SelectedEnvironment,
    client: AgentClient,
    child: "subprocess.Popen[bytes]",
    mark: int,
    progress: ProgressCallback,
) -> None:
    began = time.monotonic()
    while not is_listening(client):
        elapsed = time.monotonic() - began
        code = child.poll()
        if code is not None and not is_listening(client):
            said = next(
                (line for line in reversed(log_tail(place.where.agent_log, 40, start=mark)) if line.strip()), ""
            )
            kind = _KIND_BY_CODE.get(code, HeadgateError)
            raise kind(
                f"the agent exited immediately (code {code}): {said.strip() or 'no output'}",
                remedy="headgate doctor checks what it needs; headgate logs agent shows its full output",
            )
        if elapsed > AGENT_S:
            raise AgentUnreachable(
                f"the agent of {place.title} does not answer after {AGENT_S:.0f} s", remedy="headgate logs agent"
            )
        progress(WaitProgress("agent", elapsed, AGENT_USUAL_S))
        time.sleep(0.05)


_KIND_BY_CODE: dict[int, type[HeadgateError]] = {2: InvalidProject, 3: Refused, 4: TryAgain}
"""Error to raise if an agent exits at its start, by the agent's exit code. The command exits with the same code."""


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
