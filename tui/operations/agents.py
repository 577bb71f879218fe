"""The agent as seen from outside: found, started detached, waited for, ended; a protected one is never started here."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import (
    AgentUnreachable,
    HeadgateError,
    InvalidProject,
    LedgerUnavailable,
    PoolUnreachable,
    Refused,
    TryAgain,
    VersionMismatch,
)
from state.rows import Facts
from state.store import Reader
from tui.client import Client
from tui.operations import pools, processes
from tui.operations.environments import Place
from tui.operations.processes import Process

AGENT = "pipelines.agent"

AGENT_USUAL_S = 3.0
POOL_USUAL_S = 15.0
"""Usual times on 2 cores, shown beside the elapsed ones."""

AGENT_S = 60.0
POOL_S = 240.0
"""How long to wait for each; the first start of Spark on a cold disk is slow."""

LOOKS_S = 10.0
"""Within this time an agent has looked at its pool."""

END_S = 60.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Something is waited for: for a line of progress."""

    what: str
    elapsed_s: float
    usual_s: float
    detail: str = ""


Progress = Callable[[Wait], None]


def answers(client: Client) -> bool:
    """Whether an agent listens now, of whatever version."""
    try:
        client.hello()
    except AgentUnreachable:
        return False
    except VersionMismatch:
        return True
    return True


def ensure(
    place: Place, client: Client, environ: Mapping[str, str], *, progress: Progress, by_hand: bool = False
) -> bool:
    """Start the agent unless one answers, then wait for its pool; returns whether it was started here.

    Raises Refused where the environment is protected, HeadgateError with the agent's own last words when it ended,
    PoolUnreachable when the pool cannot be started.
    """
    if answers(client):
        wait_for_pool(place, progress)
        return False
    if place.protected and not by_hand:
        raise Refused(
            f"no agent serves {place.title}, and the agent of a protected environment is never started from here",
            remedy=f"run it as a service: headgate up --foreground {place.options}",
        )
    make_home(place)
    mark = _size(place.where.agent_log)
    child = processes.start_detached(command(place), environ, place.where.agent_log)
    _wait_for_socket(place, client, child, mark, progress)
    wait_for_pool(place, progress)
    return True


def command(place: Place) -> list[str]:
    """Write the agent's own command."""
    return processes.module_command(AGENT, "--project", place.folder, "--env", place.environment)


def make_home(place: Place) -> None:
    """Make the environment's home with its modes; raises HeadgateError."""
    try:
        os.makedirs(place.where.home, mode=0o2750, exist_ok=True)
    except OSError as error:
        raise HeadgateError(
            f"the home {place.where.home} cannot be made: {error.strerror}",
            remedy="set HEADGATE_HOME to a folder of yours on a local disk",
        ) from error


def wait_for_pool(place: Place, progress: Progress, *, seconds: float = POOL_S) -> None:
    """Wait until the pool is up; raises PoolUnreachable with what it said."""
    began = time.monotonic()
    while True:
        facts = read_facts(place)
        elapsed = time.monotonic() - began
        # A ledger left by an agent that was killed still says `up`, until the new one has looked.
        left_over = elapsed < LOOKS_S and pools.is_gone(place)
        if facts is not None and facts.pool_state == "up" and not left_over:
            return
        down = facts is not None and facts.pool_state == "down"
        if (down and elapsed > 5) or elapsed > seconds:
            raise PoolUnreachable(
                f"the pool of {place.title} is {facts.pool_state if facts else 'not known'}"
                + (f": {facts.pool_detail}" if facts and facts.pool_detail else ""),
                remedy="headgate doctor checks Java and disk; headgate logs pool shows what Spark said",
            )
        detail = facts.pool_detail if facts else ""
        progress(Wait("pool (Spark Connect)", elapsed, POOL_USUAL_S, detail))
        time.sleep(0.2)


def read_facts(place: Place) -> Facts | None:
    """Read the environment's own row; None while there is no ledger."""
    try:
        with Reader(Path(place.where.ledger)) as reader:
            return reader.facts()
    except LedgerUnavailable:
        return None


def process(place: Place) -> Process | None:
    """Find the agent's process: the pid in its lock, or in the ledger, if its command line says that it is ours."""
    for pid in (processes.written_pid(Path(place.where.lock)), _pid_in_ledger(place)):
        found = processes.identify(pid)
        if found and _is_agent_of(place, processes.command_of(found.pid)):
            return found
    return None


def end(place: Place, client: Client, *, pool: bool, confirm: str, line: str, progress: Progress) -> bool:
    """End the agent, and its pool if told to; returns whether there was one. Raises HeadgateError if it stays."""
    found = process(place)
    if answers(client):
        client.call("exit", {"pool": pool}, confirm=confirm, line=line)
    elif found is None:
        return False
    began = time.monotonic()
    while found is not None and found.alive:
        elapsed = time.monotonic() - began
        if elapsed > END_S:
            # It answers nobody and does not end: whatever it was doing is in its ledger, and is resumed from there.
            if not processes.end(found, patience_s=5.0):
                raise HeadgateError(
                    f"the agent (pid {found.pid}) does not end", remedy="end it as its owner or as root"
                )
            break
        progress(Wait("agent and its statements end", elapsed, 5.0))
        processes.wait_gone(found, 0.25)
    return True


def tail(path: str, lines: int, *, start: int = 0) -> list[str]:
    """Give the last lines of a log, at most 256 kB back; empty when there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 256 * 1024))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _wait_for_socket(
    place: Place, client: Client, child: "subprocess.Popen[bytes]", mark: int, progress: Progress
) -> None:
    began = time.monotonic()
    while not answers(client):
        elapsed = time.monotonic() - began
        code = child.poll()
        if code is not None and not answers(client):
            said = next((line for line in reversed(tail(place.where.agent_log, 40, start=mark)) if line.strip()), "")
            kind = _KIND_BY_CODE.get(code, HeadgateError)
            raise kind(
                f"the agent ended at once (code {code}): {said.strip() or 'it said nothing'}",
                remedy="headgate doctor checks what it needs; headgate logs agent shows all it said",
            )
        if elapsed > AGENT_S:
            raise AgentUnreachable(
                f"the agent of {place.title} does not answer after {AGENT_S:.0f} s", remedy="headgate logs agent"
            )
        progress(Wait("agent", elapsed, AGENT_USUAL_S))
        time.sleep(0.05)


_KIND_BY_CODE: dict[int, type[HeadgateError]] = {2: InvalidProject, 3: Refused, 4: TryAgain}
"""What the agent's exit code means; the command ends with the same."""


def _is_agent_of(place: Place, command_line: str) -> bool:
    return AGENT in command_line and place.folder in command_line and f"--env {place.environment}" in command_line


def _pid_in_ledger(place: Place) -> int | None:
    try:
        facts = read_facts(place)
    except VersionMismatch:
        return None
    return facts.agent_pid if facts else None


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
