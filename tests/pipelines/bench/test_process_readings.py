"""Readings of processes: whose children count for whom, and what a real process uses."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.bench.result import FigureKind
from pipelines.bench.process_readings import ProcessReadings

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
BOOTED_AT = 900.0
AGENT, SERVER, WORKER, CHECK = 10, 20, 30, 40


@dataclass
class Machine:
    """A folder such as /proc, and the home of an environment."""

    root: Path
    now: float = 1000.0
    started_s: dict[int, float] = field(default_factory=dict)
    """When a process started, in seconds after the boot; 5 for all others."""
    parents: dict[int, int] = field(default_factory=lambda: {AGENT: 1, SERVER: AGENT, WORKER: SERVER, CHECK: AGENT})
    cpu_s: dict[int, float] = field(default_factory=dict)
    readings: ProcessReadings = field(init=False)

    def __post_init__(self) -> None:
        self.readings = ProcessReadings(str(self.root / "home"), AGENT, lambda: self.now, str(self.root / "proc"))
        (self.root / "home").mkdir()
        (self.root / "home/pool.json").write_text(json.dumps({"pid": SERVER}))

    def show(self) -> None:
        proc = self.root / "proc"
        for pid, parent in self.parents.items():
            (proc / str(pid)).mkdir(parents=True, exist_ok=True)
            fields = ["S", str(parent), *"0" * 9, str(int(self.cpu_s.get(pid, 0.0) * TICKS)), "0"]
            fields += ["0"] * 6 + [str(int(self.started_s.get(pid, 5) * TICKS)), "0", str(pid)]
            (proc / str(pid) / "stat").write_text(f"{pid} (a name) with) {' '.join(fields)}\n")
        (proc / "uptime").write_text(f"{self.now - BOOTED_AT} 1.0\n")

    def passes(self, seconds: float, **spent: float) -> None:
        self.now += seconds
        for name, value in spent.items():
            pid = {"agent": AGENT, "server": SERVER, "worker": WORKER, "check": CHECK}[name]
            self.cpu_s[pid] = self.cpu_s.get(pid, 0.0) + value
        self.show()
        self.readings.read()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.show()
    return made


def figures(machine: Machine, since: float) -> dict[FigureKind, float]:
    return {each.kind: each.value for each in machine.readings.figures("load", 1, since=since)}


def test_workers_count_for_the_server_and_the_server_does_not_count_for_the_agent(machine: Machine) -> None:
    since = machine.readings.begin()
    machine.passes(10, agent=1, server=5, worker=3, check=1)
    assert figures(machine, since) == {
        FigureKind.SERVER_CPU: 0.8, FigureKind.SERVER_MEMORY: (SERVER + WORKER) * PAGE,
        FigureKind.AGENT_CPU: 0.2, FigureKind.AGENT_MEMORY: (AGENT + CHECK) * PAGE,
    }  # fmt: skip


def test_a_child_that_has_ended_is_not_forgotten(machine: Machine) -> None:
    since = machine.readings.begin()
    machine.passes(5, check=2)
    (machine.root / "proc" / str(CHECK) / "stat").unlink()
    del machine.parents[CHECK]
    machine.passes(5, agent=1)
    assert figures(machine, since)[FigureKind.AGENT_CPU] == 0.3


def test_a_child_that_has_just_been_forked_does_not_double_the_memory_of_its_parent(machine: Machine) -> None:
    since = machine.readings.begin()
    machine.started_s[WORKER] = machine.now + 10 - BOOTED_AT
    machine.passes(10)
    assert machine.readings.readings[-2].memory == SERVER * PAGE
    machine.passes(10)
    assert figures(machine, since)[FigureKind.SERVER_MEMORY] == (SERVER + WORKER) * PAGE


def test_without_a_server_only_the_agent_is_read(machine: Machine) -> None:
    (machine.root / "home/pool.json").write_text("{")
    since = machine.readings.begin()
    machine.passes(10, agent=1)
    assert figures(machine, since).keys() == {FigureKind.AGENT_CPU, FigureKind.AGENT_MEMORY}


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc")
def test_the_cpu_of_a_real_process_is_measured(tmp_path: Path) -> None:
    code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        readings = ProcessReadings(str(tmp_path), child.pid)
        since = readings.begin()
        spent = 0.0
        while spent < 0.25:
            found = {each.kind: each.value for each in readings.figures("", 1, since=since)}
            elapsed = readings.readings[-1].at - since
            spent = found.get(FigureKind.AGENT_CPU, 0.0) * elapsed
        assert found[FigureKind.AGENT_MEMORY] > 1_000_000
    finally:
        child.communicate(b"\n")
