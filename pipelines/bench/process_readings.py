"""Readings of CPU and memory of an environment's agent and Spark server, from /proc; elsewhere there are none."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from core.bench.resource_use import Part, ProcessReading, use_figures
from core.bench.result import Figure
from core.model.names import whole_number

EVERY_S = 0.5
"""Least time between two readings, in seconds."""

LEAST_AGE_S = 2.0
"""Age in seconds from which the memory of a child counts: between fork and exec, it has all pages of its parent."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    cpu_s: float
    started: float
    """In seconds since the boot."""
    memory: int


@dataclass(slots=True)
class ProcessReadings:
    """Readings of one environment, of which the server may be replaced by another one."""

    home: str
    """The environment's home, which records its server; empty to read nothing."""
    agent: int
    """Process id of the agent."""
    clock: Callable[[], float] = time.time
    proc: str = "/proc"
    readings: list[ProcessReading] = field(default_factory=list)
    _spent: dict[Part, dict[str, float]] = field(default_factory=lambda: {each: {} for each in Part})
    """CPU seconds of every process that was seen, so that those of a child that has ended are not forgotten."""
    _read_at: float = 0.0

    def read(self) -> None:
        """Read both parts, unless they have just been read."""
        now = self.clock()
        if self.home and now - self._read_at >= EVERY_S:
            self._read_at = now
            self.readings += self._now(now)

    def begin(self) -> float:
        """Begin a phase, and return its moment."""
        now, self.readings, self._read_at = self.clock(), [], 0.0
        self.read()
        return now

    def figures(self, phase: str, repetition: int, *, since: float) -> tuple[Figure, ...]:
        """Return the figures of a phase from its begin until now."""
        self._read_at = 0.0
        self.read()
        return tuple(use_figures(self.readings, phase, repetition, since=since))

    def _now(self, now: float) -> Iterator[ProcessReading]:
        every = {each.pid: each for each in self._processes()}
        server = _server(Path(self.home))
        uptime = self._uptime_s()
        for part, root in ((Part.SERVER, server), (Part.AGENT, self.agent)):
            if root in every:
                # The agent starts the server as its child.
                found = list(_below(every, root, without=server))
                spent = self._spent[part]
                mine = f"{root}:{every[root].started}"
                spent.update((f"{mine}/{each.pid}:{each.started}", each.cpu_s) for each in found)
                cpu_s = sum(each for name, each in spent.items() if name.startswith(f"{mine}/"))
                started_at = now - (uptime - every[root].started)
                memory = sum(each.memory for each in found if each.pid == root or uptime - each.started >= LEAST_AGE_S)
                yield ProcessReading(part, now, mine, started_at=started_at, cpu_s=cpu_s, memory=memory)

    def _processes(self) -> Iterator[_Process]:
        with suppress(OSError):
            for name in os.listdir(self.proc):
                if (pid := whole_number(name)) is not None:
                    # A process may end meanwhile.
                    with suppress(OSError, ValueError, IndexError):
                        yield _process(pid, Path(self.proc, name, "stat").read_text("utf-8", "replace"))

    def _uptime_s(self) -> float:
        return float(Path(self.proc, "uptime").read_text("ascii").split()[0])


def _process(pid: int, stat: str) -> _Process:
    # proc(5): the name in brackets may contain blanks; fields are counted from the state, which is field 3.
    fields = stat.rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    started, memory = int(fields[19]) / _TICKS, int(fields[21]) * _PAGE
    return _Process(pid, int(fields[1]), cpu_s=cpu_s, started=started, memory=memory)


def _below(every: dict[int, _Process], root: int, *, without: int) -> Iterator[_Process]:
    """Yield a process and its descendants, but not those of `without`."""
    yield every[root]
    for each in every.values():
        if each.parent == root and each.pid not in (root, without):
            yield from _below(every, each.pid, without=without)


def _server(home: Path) -> int:
    """Return the process id of the server that a home records; 0 if there is none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads((home / "pool.json").read_text("utf-8"))
        return int(record["pid"]) or int((home / "pool/pid").read_text("ascii"))
    return 0
