"""One life of an environment in virtual time: the real agent with modelled server and disk, operators and faults.

Everything inside the agent's process is product code: `daemon.Agent` with its loops, drivers of runs, reconciler,
journal, ledger and adoption. The server, the folders and what survives a kill are models. The same script always yields
the same life.

`tests/support/simulated_agent.py` is different: it models only the steps of a plan, as a pure function.
"""

import logging
import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import small_project
from ledger_rows import environment_row
from life_operators import Operators
from life_rules import Rules, Violation
from life_script import Event, Script
from modelled_files import Disk, LedgerLock, LivedLedger, ModelledFiles
from modelled_server import Manner, Server
from virtual_modules import refresh_locks
from virtual_primitives import VirtualModules
from virtual_threads import Baton, Process, StuckLife

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import HeadgateError, LedgerUnavailable
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import Environment
from core.project_reader.manifest import read_manifest
from pipelines.agent import daemon
from pipelines.agent.context import Uptime
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.storage.data_folder_records import read_mark, read_record, write_mark, write_record
from state.ledger import create_or_open

PROJECT = small_project.project(small_project.texts())
MANIFEST = read_manifest(small_project.texts()[MANIFEST_PATH], [])
ENVIRONMENT = Environment("dev")
SETTLES_S = 240.0
"""Virtual seconds within which an environment must settle after the last fault."""
LOOKS = 3
"""Rounds of the director between two checks of whether the environment has settled."""
STEPS = 400_000
"""Switches of the baton after which a life is considered endless."""


@dataclass
class LifeEnd:
    """The results of a life."""

    violations: list[Violation]
    trace: list[str]
    passed: Counter[str]
    came: Counter[str]
    """Events that happened, by kind."""
    met: Counter[str]
    """Requests, calls and threads affected by a fault, by its kind."""
    virtual_s: float
    steps: int
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def rule(self) -> str:
        """The first rule that was broken; empty if none was."""
        return self.violations[0].rule if self.violations else ""


class Unexpected(logging.Handler):
    """A log handler that reports exceptions raised by our own code as violations."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(logging.WARNING)
        self._rules = rules

    def emit(self, record: logging.LogRecord) -> None:
        self._rules.say(f"log: {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, HeadgateError):
            self._rules.wrong("an unexpected exception", f"{record.getMessage()}: {error!r}")


class _Points:
    """Fault points that pass each point of a life to the director, who can inject faults there."""

    def __init__(self, life: "Life") -> None:
        self._life = life

    def pass_by(self, label: str) -> None:
        self._life.pass_by(re.sub(r"\d+", "#", label, count=1))


class Life:
    """A life: an environment, and the director who triggers events in it."""

    def __init__(self, script: Script, root: Path) -> None:
        self.script, self.root = script, root
        self.baton = Baton(
            f"{script.seed} schedule", switches=script.switches, stalls=script.stalls, stall_s=script.stall_s
        )
        self.modules = VirtualModules(self.baton)
        self.rules = Rules(self.baton)
        self.disk = Disk(self.baton, heard=self.rules)
        self.server = Server(self.baton, self.manner, files=self.disk, heard=self.rules)
        self.server.first_batch_s = self.first_batch_s
        self.rules.server, self.rules.passing = self.server, self.pass_by
        self.rules.arrived = self.arrive
        self.lock = LedgerLock()
        self.late_until = self.slow_until = self.lost_until = self.repeat_until = 0.0
        self.early_until = 0.0
        self.slow: dict[str, float] = {}
        self.late_starts: dict[str, list[float]] = {}
        """For each version, the delays in seconds after which its next starts take effect."""
        self.operators = Operators(self.baton, self.rules)
        self.named = self.operators.named
        self.armed: list[list[Any]] = []
        self.kill_wanted = False
        self.came: Counter[str] = Counter()
        self.agents = self.looks = 0
        self.run_numbers = count(1)

    # Faults.

    def manner(self, kind: str, subject: str) -> Manner:
        """Draw how a request fares: its delays, and whether it is lost, repeated or takes effect early."""
        now, chance = self.baton.now, self.baton.chance
        made = Manner(0.005 + chance.random() * 0.03, 0.005 + chance.random() * 0.03)
        acts = kind in ("start", "stop", "point", "create", "forget", "unpoint")
        late = (kind == "start" and now < self.late_until) or (acts and now < self.slow_until)
        if late and chance.random() < 0.5:
            made = replace(made, effect_s=chance.uniform(5.0, 40.0))
            self.rules.meets("effects are late" if now < self.slow_until else "starts are late")
        if kind == "start" and self.late_starts.get(subject):
            made = replace(made, effect_s=self.late_starts[subject].pop(0))
            self.rules.meets("a start is late")
        if acts and now < self.lost_until and chance.random() < 0.3:
            made = replace(made, lost=True) if chance.random() < 0.3 else replace(made, answer_s=None)
            self.rules.meets("answers are lost")
        if kind in ("start", "stop") and now < self.repeat_until and chance.random() < 0.3:
            made = replace(made, again_s=chance.uniform(0.1, 30.0))
            self.rules.meets("effects repeat")
        if kind == "stop" and now < self.early_until and chance.random() < 0.5:
            made = replace(made, effect_s=chance.uniform(0.1, 3.0), early=True)
            self.rules.meets("stops are early")
        return made

    def first_batch_s(self, name: str) -> float:
        if name in self.slow:
            self.rules.meets("first batch is late")
        return self.slow.get(name, self.baton.chance.uniform(0.2, 3.0))

    @property
    def calm(self) -> bool:
        """True if no fault is active or still has effects."""
        now = self.baton.now
        until = (self.server.frozen_until, self.lock.locked_until, self.lock.full_until, self.disk.full_until,
            self.disk.away_until, self.late_until, self.slow_until, self.lost_until, self.repeat_until,
            self.early_until)  # fmt: skip
        served = (
            self.operators.agent is not None
            and self.operators.agent._pools["local"].keeper.is_ready
            and self.server.alive
        )
        return served and max(until) + 41.0 < now and not self.operators.agent._context.identity.doubt

    def fault(self, event: Event) -> None:
        """Inject the fault of an event."""
        now, until = self.baton.now, self.baton.now + event.lasts_s
        match event.kind:
            case "kill":
                self.kill_wanted = True
                if self.operators.process is not None:
                    self.operators.process.dead = True
            case "pool dies" if self.server.alive:
                self.rules.meets(event.kind)
                self.server.die()
            case "pool is frozen":
                self.server.frozen_until = until
            case "ledger is locked":
                self.lock.locked_until = until
            case "ledger is full":
                self.lock.full_until = until
            case "disk is full":
                self.disk.full_until = self.lock.full_until = until
            case "disk is away":
                self.disk.away_until = until
            case "clock jumps":
                self.rules.meets(event.kind)
                self.baton.wall_offset += event.lasts_s
            case "starts are late":
                self.late_until = until + 5.0
            case "effects are late":
                self.slow_until = until + 5.0
            case "answers are lost":
                self.lost_until = until
            case "effects repeat":
                self.repeat_until = until
            case "stops are early":
                self.early_until = until
            case "a start is late":
                if name := self.named(event.subject):
                    self.late_starts.setdefault(name, []).append(event.lasts_s)
            case "query fails":
                if name := self.named(event.subject):
                    self.server.end_query(name, "ARITHMETIC", "division by zero")
            case "first batch is late":
                if name := self.named(event.subject, to_come=True):
                    self.slow[name] = 5.0 + 2 * event.lasts_s
            case "a start is refused":
                if name := self.named(event.subject, to_come=True):
                    self.server.refuses[name] = now + 2 * event.lasts_s
            case "another hand":
                self.another_hand()

    def another_hand(self) -> None:
        """Write counts to the data folder that are higher than the ledger's, as another agent would."""
        data, self.rules.touched = str(self.root / "data"), True
        mark = read_mark(data)
        if mark is not None:
            write_mark(data, replace(mark, count=mark.count + 5))
        record = read_record(data, "b@v1")
        if record is not None:
            self.rules.meets("another hand")
            self.rules.of_another_hand.add("b@v1")
            write_record(data, "b@v1", replace(record, count=record.count + 1))

    def pass_by(self, label: str) -> None:
        """Pass a point: trigger the events drawn for it, and stall the passing thread if one of them requires that."""
        if stalls := self.arrive(label):
            self.rules.meets("stands still")
            if label.startswith("socket"):
                self.rules.stood_at = self.baton.now
            self.baton.sleep(stalls)
        if label == "effect # swap":
            self.rules.swap_begins()

    def arrive(self, label: str) -> float:
        """Trigger the events drawn for a point; return how many seconds the passing thread must stall."""
        self.rules.passed[label] += 1
        stalls = 0.0
        for armed in tuple(self.armed):
            event, left, fire = armed
            if event.label == label:
                armed[1] = left - 1
                if armed[1] <= 0:
                    self.armed.remove(armed)
                    self.rules.say(f"at {label}: {event.kind} {event.subject}")
                    fire()
                    stalls = max(stalls, event.stalls_s)
        return stalls

    # The agent.

    def begin_agent(self) -> None:
        """Start an agent in the current environment."""
        self.agents += 1
        process = self.operators.process = Process(f"agent {self.agents}")
        refresh_locks(self.modules)

        def main() -> None:
            base: Any = create_or_open(self.root / "home" / "ledger.db", environment_row(project_id=PROJECT.id))
            base.__class__ = LivedLedger
            ledger = base.taken_into(self.baton, self.lock, _Written(self))
            known = ledger.facts()
            layout = EnvironmentLayout(str(self.root / "data"), ENVIRONMENT)
            agent = daemon.Agent(
                places=EnvironmentPaths(str(self.root / "home"), str(self.root / "a.sock"), os.getuid()),
                folder=str(self.root),
                manifest=MANIFEST,
                layout=layout,
                ledger=ledger,
                files=ModelledFiles(self.disk, self.server, known.ledger_id, epoch=known.epoch),
            )
            self.rules.ledger, self.operators.agent = ledger, agent
            agent.serve()

        def begin() -> None:
            try:
                main()
            except LedgerUnavailable as error:
                # A service manager would also notice that the agent has ended, and start it again.
                self.rules.say(f"the agent ends: {error.summary}")
                self.fault(Event("kill", 0.0))

        self.baton.spawn(begin, "agent", process=process, lane="agent")

    def kill_agent(self) -> None:
        """Kill the agent as SIGKILL would do."""
        self.rules.say("the agent is killed")
        self.rules.met["kill"] += self.kill_wanted
        process, self.kill_wanted = self.operators.process, False
        ledger, self.operators.agent, self.rules.ledger, self.operators.process = self.rules.ledger, None, None, None
        if process is not None:
            self.baton.kill(process)
        self.operators.hang_up()
        if ledger is not None:
            ledger._connection.close()
            ledger._reading.close()

    def world_changes(self) -> dict[str, Any]:
        """Return replacements for the clocks, ids and fault points in the agent's context."""
        return {
            "clock": self.modules.time.time,
            "monotonic": self.modules.time.monotonic,
            "uptime": lambda: Uptime("boot", self.baton.now),
            "run_id": lambda plan_hash: f"{plan_hash[:4]}-{next(self.run_numbers):05d}",
            "stopping": self.modules.threading.Event(),
            "faults": _Points(self),
        }

    # The director.

    def live(self) -> LifeEnd:
        """Play the script to its end, or until the first rule is broken."""
        began = self.baton.now
        operators = Process("operators")
        for event in self.script.events:
            self._arm(event, operators, began)
        self.begin_agent()
        try:
            self._direct(began + self.script.lasts_s)
            if self.script.calms and not self.rules.violations:
                self._calm_down()
        except StuckLife as stuck:
            self.rules.wrong("a life is stuck", str(stuck))
        finally:
            self._end(operators)
        return LifeEnd(
            self.rules.violations, self.rules.trace, self.rules.passed, self.came, self.rules.met,
            self.baton.now - began, self.baton.steps, self.operators.notes,
        )  # fmt: skip

    def _arm(self, event: Event, operators: Process, began: float) -> None:
        def fire() -> None:
            self.came[event.kind] += 1
            if event.by:
                self.baton.spawn(lambda: self.operators.say(event), event.by, process=operators, lane=event.by)
            else:
                self.rules.faulted_at = self.baton.now
                self.rules.say(f"fault: {event.kind} {event.subject} {event.lasts_s or ''}".rstrip())
                self.fault(event)

        if event.label:
            self.baton.at(began + event.at, lambda: self.armed.append([event, event.nth, fire]))
        else:
            self.baton.at(began + event.at, fire)

    def _direct(self, until: float) -> None:
        back_at = 0.0
        while self.baton.now < until and not self.rules.violations:
            self.baton.sleep(min(1.0, until - self.baton.now))
            if self.kill_wanted and self.operators.process is not None:
                self.kill_agent()
                back_at = self.baton.now + self.baton.chance.uniform(0.1, 4.0)
            if self.operators.process is None and self.baton.now >= back_at:
                self.begin_agent()
            self.looks += 1
            if self.looks % LOOKS == 0 or not self.calm:
                self.rules.look(calm=self.calm)
            for name, error in self.baton.crashed:
                self.rules.wrong("a thread died", f"{name}: {error!r}")
            if self.baton.steps > STEPS:
                raise StuckLife("it does not end")

    def _calm_down(self) -> None:
        """End all faults, and let the environment settle."""
        self.rules.say("faults stop")
        self.armed.clear()
        now = self.baton.now
        self.server.frozen_until = min(now, self.server.frozen_until)
        self.lock.locked_until = self.lock.full_until = self.lock.unreadable_until = now
        self.disk.full_until = self.disk.away_until = now
        self.late_until, self.slow_until = min(now, self.late_until), min(now, self.slow_until)
        self.lost_until, self.repeat_until = min(now, self.lost_until), min(now, self.repeat_until)
        self.early_until = min(now, self.early_until)
        self.late_starts.clear()
        self.baton.stalls = 0.0
        if self.operators.process is None:
            self.begin_agent()
        until, left = now + SETTLES_S, ["the agent does not serve"]
        while left and self.baton.now < until and not self.rules.violations:
            self._direct(min(until, self.baton.now + 5.0))
            settled = self.operators.agent is not None and self.rules.ledger is not None
            if settled and self.operators.agent._context.identity.doubt:
                return
            self.rules.look(calm=self.calm)
            left = self.rules.unsettled() if settled and self.calm else ["it is not calm yet"]
        if left and not self.rules.violations:
            self.rules.wrong("a world without faults does not settle", "; ".join(left))

    def _end(self, operators: Process) -> None:
        self.baton.stalls = 0.0
        with suppress(StuckLife):
            self.kill_agent()
            self.baton.kill(operators)


class _Written:
    """Notifies the life of one ledger's transactions."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def meets(self, fault: str) -> None:
        self._life.rules.meets(fault)

    def wrote(self, ledger: LivedLedger) -> None:
        life = self._life
        if life.rules.ledger is ledger:
            life.rules.wrote(ledger)
            lane = life.baton.current.lane
            kind = lane.partition(" ")[0]
            if kind in ("run", "socket", "reconcile"):
                life.pass_by(f"{kind} wrote")
