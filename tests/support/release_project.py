"""A release over four statements in a diamond, killed at chosen points, with a neighbour that fails and others at work.

landed → base → even, odd → both; aside is stopped and started meanwhile, beside is released meanwhile, broken fails.
"""

import os
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from live_project import Driven, Impatient, alive, until
from tiny_project import Tiny

from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark.session import Session

TABLE = "CREATE TABLE {} (id BIGINT, kind STRING) USING parquet;"
DDL = {
    "landed": "CREATE TABLE landed (id BIGINT, kind STRING) USING json LOCATION 'landing';",
    **{table: TABLE.format(table) for table in ("base", "even", "odd", "both", "aside", "beside", "broken")},
}
DML = {
    "base": "INSERT INTO base SELECT id, concat(kind, '0') AS kind FROM STREAM landed;",
    "even": "INSERT INTO even SELECT id, kind FROM STREAM base WHERE id % 2 = 0;",
    "odd": "INSERT INTO odd SELECT id, kind FROM STREAM base WHERE id % 2 = 1;",
    "both": "INSERT INTO both SELECT id, kind FROM STREAM even UNION ALL SELECT id, kind FROM STREAM odd;",
    "aside": "INSERT INTO aside SELECT id, kind FROM STREAM landed;",
    "beside": "INSERT INTO beside SELECT id, kind FROM STREAM landed;",
    "broken": "INSERT INTO broken SELECT id, CAST(raise_error('as asked') AS STRING) AS kind FROM STREAM landed;",
}
RELEASED = ("base", "even", "odd", "both")
RELEASE, ROLLBACK = ("base", "--rebuild"), ("rollback", "base")
POINTS = (
    "before {n} {do} running", "after {n} {do} running", "effect {n} {do}", "evidence {n} {do}", "before {n} {do} done",
    "after {n} {do} done",
)  # fmt: skip
"""What every step passes; those that wait for a gate pass it as well."""
INSIDE_A_SWAP = ("swap both", "swap odd", "swap even", "swap base", "swap record", "swap commit")
WHOLE = (*RELEASED, "aside", "beside")
ENDED = ("done", "failed", "cancelled")
ENDS_S = 150.0
"""Longest time from a new agent to the end of a run, on a machine that does other things."""


@dataclass(frozen=True)
class Rows:
    """What stands in one table, as its pointer serves it."""

    expected: int
    got: int
    doubled: int
    missed: int

    @property
    def good(self) -> bool:
        return self.doubled == self.missed == 0 and self.got == self.expected

    def __str__(self) -> str:
        return f"{self.expected}/{self.got}/{self.doubled}/{self.missed}"


@dataclass
class Ending:
    """How one run ended in which the agent died at some points."""

    state: str = ""
    died_at: list[str] = field(default_factory=list)
    not_met: list[str] = field(default_factory=list)
    """Points that the run did not pass any more."""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    rows: dict[str, Rows] = field(default_factory=dict)


@dataclass
class Released(Tiny):
    """The project of this module, deployed."""

    releases: int = 0

    def __post_init__(self) -> None:
        self.ddl, self.dml = DDL, DML

    def begin(self) -> None:
        """Start everything; `broken` fails and stays so."""
        self.write()
        self.land(40)
        self.done("up")
        assert self.apply(self.plan("--all", "--exclude", "broken")).returncode == 0
        failed = self.apply(self.plan("broken"))
        assert failed.returncode == 1, failed.stdout + failed.stderr

    def edit(self) -> None:
        """Change the text of what is released, and land more rows."""
        self.releases += 1
        self.write(base=DML["base"].replace("'0'", f"'{self.releases}'"))
        self.land(6)

    def renew_agent(self, **environ: str) -> None:
        """Kill the agent and start another."""
        with suppress(OSError, ValueError):
            pid = self.agent_pid()
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
                until(lambda: not alive(pid), 10, "the agent is dead")
        self.run("up", **environ)

    def died_at(self) -> str:
        """Return the label of the point at which the newest agent that was to die did."""
        log = (self.home() / "agent.log").read_text()
        return str(re.findall(r"dying at fault point \d+ (.+), as asked", log)[-1])

    def newest_run(self, *, other_than: str = "") -> tuple[str, str]:
        """Return id and state of the newest run about the released tables."""
        found = self.ledger(
            "SELECT id, state FROM run WHERE id <> ? AND id IN (SELECT run_id FROM step WHERE \"table\" = 'base') "
            "ORDER BY started_at DESC, rowid DESC LIMIT 1",
            other_than,
        )
        return (str(found[0][0]), str(found[0][1])) if found else ("", "")

    def cancel(self, run_id: str) -> subprocess.CompletedProcess[str]:
        """Cancel a run as an operator does, who types what is asked for."""
        asks = self.run("runs", "cancel", run_id).stderr
        typed = asks.rsplit("--confirm '", 1)[1].split("'")[0] if "--confirm '" in asks else "yes"
        return self.run("runs", "cancel", run_id, "--confirm", typed)

    def open_runs(self) -> int:
        return len(self.ledger("SELECT 1 FROM run WHERE ended_at IS NULL"))

    def all_run(self, *tables: str) -> bool:
        """Return whether what serves of these tables runs."""
        found = self.ledger("SELECT \"table\" FROM deployment WHERE active = 1 AND state = 'running'")
        return {str(table) for (table,) in found} >= set(tables)

    def trace(self, words: Sequence[str], file: Path) -> list[str]:
        """Let one run pass with nobody killed; returns the labels of the points that it passed, each once."""
        self.renew_agent(HEADGATE_FAULT_TRACE=str(file))
        until(lambda: self.all_run(*WHOLE), 60, "the agent has found what runs")
        applied = self.apply(self.plan(*words))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        return list(dict.fromkeys(line.split(" ", 1)[1] for line in file.read_text().splitlines()))


@contextmanager
def released(root: Path) -> Iterator[Released]:
    """Return the project with everything deployed; nothing of it runs afterwards."""
    world = Released(root, {"HEADGATE_MEASURE_S": "1"})
    try:
        world.begin()
        yield world
    finally:
        world.down()


class Others(threading.Thread):
    """Stop, start and restart `aside` until told to end; it runs afterwards."""

    def __init__(self, world: Released) -> None:
        super().__init__(daemon=True)
        self._world, self._over = world, threading.Event()
        self.acts = 0

    def run(self) -> None:
        while not self._over.is_set():
            for act in ("stop", "start", "restart"):
                self.acts += self._world.run(act, "aside", "--confirm", "yes").returncode == 0
                self._over.wait(1.0)

    def end(self) -> None:
        self._over.set()
        self.join(timeout=120)
        self._world.done("start", "aside", "--confirm", "yes")


def killed_at(
    world: Released, words: Sequence[str], points: Sequence[str], *, beside: bool = False, cancel: bool = False
) -> Ending:
    """Carry out one request with the agent dying at each of some points as it comes to it, and look at what is left.

    `beside`: another release is begun once the agent has died first. `cancel`: an operator cancels the run then.
    """
    found, began, left = Ending(), monotonic(), list(points)
    before, _ = world.newest_run()
    world.renew_agent(HEADGATE_FAULT_AT=",".join(left))
    until(lambda: world.all_run(*RELEASED, "beside"), 90, "the agent has found what runs")
    world.apply(world.plan(*words))
    world.land(4)
    while left and _dies(world, before):
        point = world.died_at()
        left.remove(point)
        found.died_at.append(point)
        world.run("up", HEADGATE_FAULT_AT=",".join(left))
        if len(found.died_at) == 1 and beside:
            world.apply(world.plan("beside", "--rebuild"))
        if len(found.died_at) == 1 and cancel:
            said = world.cancel(world.newest_run(other_than=before)[0])
            found.wrong.extend([said.stderr.strip()] if said.returncode else [])
    found.not_met = left
    _look(world, before, found, cancel=cancel)
    found.seconds = monotonic() - began
    return found


def _dies(world: Released, before: str) -> bool:
    """Wait for the agent's death at its point; returns False if its run has ended without it."""
    pid = world.agent_pid()
    ends = monotonic() + ENDS_S
    while alive(pid):
        if world.newest_run(other_than=before)[1] in ENDED:
            with suppress(Impatient):
                # It may die at the very end of its run.
                until(lambda: not alive(pid), 1.0, "it is dead")
            return not alive(pid)
        if monotonic() > ends:
            return False
        with suppress(Impatient):
            until(lambda: not alive(pid), 0.5, "it is dead")
    return True


def _look(world: Released, before: str, found: Ending, *, cancel: bool) -> None:
    """Wait for the end of all runs, and find what is not as it must be."""
    try:
        until(lambda: world.newest_run(other_than=before)[1] in ENDED and not world.open_runs(), ENDS_S, "the run ends")
        found.state = world.newest_run(other_than=before)[1]
        if found.state != ("cancelled" if cancel else "done"):
            notes = world.ledger("SELECT note FROM step WHERE state = 'failed' AND run_id = ?", world.newest_run()[0])
            found.wrong.append(f"the run ended {found.state}: {notes}")
        until(lambda: world.all_run(*RELEASED, "beside"), 90, "what serves runs")
        until(lambda: _right(world, found), 60, "every row is there once", every_s=1.0)
    except Impatient as error:
        found.wrong.append(str(error))
    stray = world.ledger(
        "SELECT \"table\", version FROM deployment WHERE active = 0 AND wanted = 'running' AND \"table\" <> 'broken'"
    )
    if stray:
        found.wrong.append(f"beside what serves are wanted: {stray}")
    failed = world.ledger("SELECT state FROM deployment WHERE \"table\" = 'broken'")
    if failed != [("failed",)]:
        found.wrong.append(f"the neighbour is {failed}")


def _right(world: Released, found: Ending) -> bool:
    found.rows = rows_of(world, *RELEASED, "beside")
    return all(rows.good for rows in found.rows.values())


def rows_of(world: Released, *tables: str) -> dict[str, Rows]:
    """Count what the pointers of tables serve, by SQL in the pool."""
    with asked(world) as session:
        sql = " UNION ALL ".join(f"SELECT '{table}', id FROM {table}" for table in tables)
        found = session.call(60, session.spark.sql(sql).collect)
    return {table: _counted(world.landed, table, [int(id) for of, id in found if of == table]) for table in tables}


def _counted(landed: int, table: str, ids: list[int]) -> Rows:
    wanted = {n for n in range(1, landed + 1) if table not in ("even", "odd") or n % 2 == (table == "odd")}
    once = set(ids)
    return Rows(len(wanted), len(ids), len(ids) - len(once), len(wanted - once))


@contextmanager
def asked(world: Driven) -> Iterator[Session]:
    """Return a session of one's own on the pool, for questions to what the pointers serve."""
    server = LocalPool(world.home(), Pool())
    session = Session(server.url, server.token, str(uuid.uuid4()))
    try:
        yield session
    finally:
        with suppress(Exception):
            session.release()


def one_point_per_step(plan: Mapping[str, Any], seed: int) -> list[str]:
    """Choose a point of each step of a plan by a seed, and one inside the swap."""
    chosen = []
    for step in plan["steps"]:
        n, do = step["n"], step["do"]
        if do == "swap":
            chosen.append(INSIDE_A_SWAP[seed % len(INSIDE_A_SWAP)])
        chosen.append(POINTS[(seed + n) % len(POINTS)].format(n=n, do=do))
    return chosen
