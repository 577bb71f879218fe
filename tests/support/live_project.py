"""A project on a real agent and a real pool, driven through the command line as a person would."""

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
    """A condition did not come true within its bound."""


@dataclass
class Driven(ABC):
    """A project in a folder and a home of its own, below `root`."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The project's folder."""

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command of headgate in the project's folder; never raises for its exit code."""
        place = {"HEADGATE_HOME": str(self.root / "home"), **self.environ, **environ}
        return subprocess.run(
            [str(Path(sys.executable).with_name("headgate")), *words],
            cwd=self.folder if self.folder.is_dir() else self.root,
            env={**os.environ, **place},
            capture_output=True,
            text=True,
            timeout=900,
        )

    def done(self, *words: str, **environ: str) -> str:
        """Run a command that must succeed."""
        found = self.run(*words, **environ)
        assert found.returncode == 0, f"headgate {' '.join(words)}: {found.returncode}\n{found.stdout}{found.stderr}"
        return found.stdout

    def plan(self, *words: str) -> dict[str, Any]:
        """Make and submit a plan."""
        found: dict[str, Any] = json.loads(self.done("plan", *words, "--json"))
        return found

    def confirmation(self, plan: dict[str, Any]) -> str:
        """Return what applying a plan asks for, as the review says it."""
        said = self.run("review", plan["hash"][:12]).stderr
        return said.rsplit("--confirm '", 1)[1].split("'")[0]

    def apply(self, plan: dict[str, Any], **environ: str) -> subprocess.CompletedProcess[str]:
        """Apply a plan and wait for its run, as far as the agent lives."""
        return self.run("apply", plan["hash"][:12], "--confirm", self.confirmation(plan), **environ)

    def statements(self) -> dict[str, dict[str, Any]]:
        """Return what `headgate ls --json` says, by table."""
        found = json.loads(self.done("ls", "--json"))
        rows = found["statements"] if isinstance(found, dict) else found
        return {row["table"]: row for row in rows}

    def pool(self) -> tuple[str, str]:
        """Return the pool's state and what is said of it."""
        state, detail = self.ledger("SELECT pool_state, pool_detail FROM facts")[0]
        return str(state), str(detail)

    def ledger(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query of the ledger."""
        with closing(sqlite3.connect(f"file:{self.home() / 'ledger.db'}?mode=ro", uri=True)) as ledger:
            return list(ledger.execute(sql, values))

    def home(self) -> Path:
        """The environment's home."""
        return next((self.root / "home").glob("*/dev"))

    def agent_pid(self) -> int:
        """Process id of the agent, from its lock."""
        return int((self.home() / "agent.lock").read_text())

    def pool_pid(self) -> int:
        """Process id of the pool's server."""
        return int(json.loads((self.home() / "pool.json").read_text())["pid"])

    def replace_pool(self) -> None:
        """Kill the pool's server, and wait until the agent has seen it gone and another is up; raises Impatient."""
        killed = self.pool_pid()
        os.kill(killed, signal.SIGKILL)
        until(lambda: self.pool()[0] != "up", 60, "the agent has seen that the server is gone")
        until(lambda: self.pool()[0] == "up", 120, "another server is up")
        assert self.pool_pid() != killed

    def down(self) -> None:
        """End everything; what does not answer is killed by its id."""
        if self.run("down", "--confirm", "").returncode != 0:
            for pid_of in (self.agent_pid, self.pool_pid):
                # Neither need have come so far as to write down its id.
                with suppress(OSError, StopIteration, ValueError):
                    os.kill(pid_of(), signal.SIGKILL)


def committed(folder: Path) -> list[Path]:
    """List the files of a parquet table that its `_spark_metadata` names."""
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
    """Return whether a process runs, zombies not counted."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def until(condition: Callable[[], object], seconds: float, what: str, *, every_s: float = 0.1) -> None:
    """Wait until a condition holds, which is looked at every so often; raises Impatient."""
    ends_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends_at:
            raise Impatient(f"not within {seconds:.0f} s: {what}")
        time.sleep(every_s)
