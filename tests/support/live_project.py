"""A project on a real agent and pool, driven through the command line as a user would drive it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote


class Impatient(AssertionError):
    """Raised if a condition has not become true within its time limit."""


@dataclass
class Driven(ABC):
    """A project with a separate folder, and a separate home under `root`."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder of the project."""

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a headgate command in the project's folder; a non-zero exit code does not raise."""
        place = {"HEADGATE_HOME": str(self.root / "home"), **self.environ, **environ}
        return subprocess.run(
            [str(Path(sys.executable).with_name("headgate")), *words],
            cwd=self.folder if self.folder.is_dir() else self.root,
            env={**os.environ, **place},
            capture_output=True,
            text=True,
            timeout=1800,
        )

    def done(self, *words: str, **environ: str) -> str:
        """Run a command that must succeed, and return what it printed."""
        found = self.run(*words, **environ)
        assert found.returncode == 0, f"headgate {' '.join(words)}: {found.returncode}\n{found.stdout}{found.stderr}"
        return found.stdout

    def plan(self, *words: str) -> dict[str, Any]:
        """Make and submit a plan; return it as decoded JSON."""
        found: dict[str, Any] = json.loads(self.done("plan", *words, "--json"))
        return found

    def confirmation(self, plan: dict[str, Any]) -> str:
        """Return the confirmation that is required to apply a plan, as shown by its review; empty if none is."""
        said = self.run("review", plan["hash"][:12]).stderr
        return said.rsplit("--confirm '", 1)[1].split("'")[0] if "--confirm '" in said else ""

    def apply(self, plan: dict[str, Any], **environ: str) -> subprocess.CompletedProcess[str]:
        """Apply a plan, and wait until its run ends or the agent dies."""
        return self.run("apply", plan["hash"][:12], "--confirm", self.confirmation(plan), **environ)

    def statements(self) -> dict[str, dict[str, Any]]:
        """Return the rows of `headgate ls --json`, by table."""
        found = json.loads(self.done("ls", "--json"))
        rows = found["statements"] if isinstance(found, dict) else found
        return {row["table"]: row for row in rows}

    def pool(self) -> tuple[str, str]:
        """Return the pool's state, with its explanation."""
        state, detail = self.ledger("SELECT state, detail FROM pool")[0]
        return str(state), str(detail)

    def ledger(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows that an SQL query selects from the ledger."""
        with closing(sqlite3.connect(f"file:{self.home() / 'ledger.db'}?mode=ro", uri=True)) as ledger:
            return list(ledger.execute(sql, values))

    def home(self) -> Path:
        """Return the environment's folder within the home."""
        return next((self.root / "home").glob("*/dev"))

    def agent_pid(self) -> int:
        """Return the agent's process id, read from its lock file."""
        return int((self.home() / "agent.lock").read_text())

    def pool_pid(self) -> int:
        """Return the process id of the pool's server."""
        return int(json.loads((self.home() / "pool.json").read_text())["pid"])

    def pool_pids(self) -> tuple[int, ...]:
        """Return the process ids of the servers of all pools."""
        records = (*self.home().glob("pool.json"), *self.home().glob("pools/*/pool.json"))
        return tuple(int(json.loads(each.read_text())["pid"]) for each in records)

    def replace_pool(self) -> None:
        """Kill the pool's server, and wait until the agent has noticed this and started another; raises Impatient."""
        killed = self.pool_pid()
        os.kill(killed, signal.SIGKILL)
        until(lambda: self.pool()[0] != "up", 60, "the agent has seen that the server is gone")
        until(lambda: self.pool()[0] == "up", 120, "another server is up")
        assert self.pool_pid() != killed

    def down(self) -> None:
        """Stop everything; if the command fails, kill agent and server."""
        if self.run("down", "--confirm", "").returncode != 0:
            for pid_of in (self.agent_pid, self.pool_pid):
                # Either process may have died before it wrote its process id.
                with suppress(OSError, StopIteration, ValueError):
                    os.kill(pid_of(), signal.SIGKILL)


def committed(folder: Path) -> list[Path]:
    """Return the files of a parquet table that are listed in its `_spark_metadata`."""
    log = folder / "_spark_metadata"
    names = [path.name for path in log.iterdir() if path.name[0].isdigit()] if log.exists() else []
    compacts = [int(name.split(".")[0]) for name in names if name.endswith(".compact")]
    newest = max(compacts, default=-1)
    wanted = [f"{newest}.compact"] if newest >= 0 else []
    wanted += [name for name in names if name.isdigit() and int(name) > newest]
    paths = set()
    for name in wanted:
        for line in (log / name).read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry.get("action", "add") == "add":
                paths.add(folder / Path(unquote(entry["path"])).relative_to(f"file://{folder}"))
    return sorted(paths)


def alive(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def until(condition: Callable[[], object], seconds: float, what: str, *, every_s: float = 0.1) -> None:
    """Wait until a condition is true; raises Impatient after `seconds`.

    The condition is checked every `every_s`, but at most a third of the time is spent on checks: a condition that runs
    a command would otherwise slow down what it waits for.
    """
    ends_at = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return
        if (now := time.monotonic()) > ends_at:
            raise Impatient(f"not within {seconds:.0f} s: {what}")
        time.sleep(max(every_s, 2 * (now - began)))
