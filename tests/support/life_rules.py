"""The rules of every life: operators' requests take effect in order, and whatever is sent or written obeys them.

Rules about a single moment are checked when something is sent or written. Rules about where an environment settles are
checked every few seconds, and count only time without an active fault.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from modelled_files import LivedLedger
from modelled_server import Server
from virtual_threads import Baton

from core.model.act_outcomes import ActOutcome, ActResult
from core.model.actions import StepKind
from core.model.names import TableName, physical_name, query_name, split_query
from core.model.states import State, WantedState
from core.observed.versions import Deployment, serving_versions
from core.plan.model import Plan
from core.ports.spark import QueryStart
from core.run.model import RunState

Version = tuple[TableName, int]

GONE = frozenset({ActResult.STOPPED, ActResult.ALREADY_STOPPED})
OF_RUNS = frozenset({"apply", "cancel", "retry", "skip", "resume", "swap"})
"""Requests that allow a run to stop a version that an operator has started."""
PAUSED_S = 35.0
"""Seconds for which a step that began before a pause may continue; longer than a call and a hold."""
ENDED_S = 3.0
UNCONFIRMED_S = 45.0
"""Seconds after which a start may overtake a stop that was sent and never confirmed."""
SETTLES_S = 60.0
"""Seconds without a fault within which every unwanted state must be gone."""


@dataclass(eq=False)
class OperatorRequest:
    """An operator's request, and the agent's answer."""

    by: str
    act: str
    """stop, start, restart, apply, adopt, or an operation on a run."""
    names: tuple[str, ...]
    called_at: float
    taken_at: float | None = None
    """When a stop was first sent, which fixes its order among the requests; None before that."""
    answered_at: float | None = None
    outcomes: dict[Version, ActOutcome] = field(default_factory=dict)
    refused: str = ""
    lost: bool = False
    """True if the agent died before it answered the request."""
    stands: bool = False
    """True if the request was refused with the remark that it may still be carried out."""
    tables: frozenset[str] = frozenset()
    """The tables of a plan, or of a run's plan."""
    meant: frozenset[Version] = frozenset()
    """The versions to which the named tables referred at the time of the request."""
    run: str = ""
    step: int = 0
    accepted: bool = False

    def covers(self, version: Version) -> bool:
        return str(version[0]) in self.names or query_name(*version) in self.names

    def permits(self, version: Version, stop: "OperatorRequest") -> bool:
        """Return whether, because of this request, a version that was stopped by `stop` may run again."""
        if self.refused and not self.lost and not self.stands:
            return False
        if self.act in ("start", "restart"):
            whole = str(version[0]) in self.names and str(version[0]) in stop.names
            named = query_name(*version) in self.names or version in self.meant
            return whole or named or version in self.outcomes
        return self.act == "adopt" or (self.act in ("apply", "retry") and str(version[0]) in self.tables)


@dataclass(frozen=True)
class Violation:
    """A rule that was broken in a life, with the details and the time."""

    rule: str
    detail: str
    at: float


@dataclass
class Rules:
    """Observes everything that happens in one life, and checks it against the rules."""

    baton: Baton
    server: Server = field(init=False)
    ledger: LivedLedger | None = None
    words: list[OperatorRequest] = field(default_factory=list)
    plans: dict[str, Plan] = field(default_factory=dict)
    """Plans by hash."""
    violations: list[Violation] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    """How often each kind of fault had an effect."""
    touched: bool = False
    """True once another agent's counts were written into the data folder."""
    of_another_hand: set[str] = field(default_factory=set)
    """Versions that another agent has recorded; an adoption trusts that record, whatever happened to their files."""
    run_states: dict[str, str] = field(default_factory=dict)
    """The last seen state of each run that has ended."""
    passing: Callable[[str], None] = field(default=lambda label: None)
    since: dict[str, float] = field(default_factory=dict)
    good_since: float = 0.0
    faulted_at: float = 0.0
    """Time at which the last fault was injected."""
    stood_at: float = 0.0
    """Time at which a thread that carries out a request last stalled."""
    stops_by: list[tuple[float, str, OperatorRequest]] = field(default_factory=list)
    """Queries that were stopped by a request other than a stop: time, query, and the request."""
    started: dict[Version, OperatorRequest] = field(default_factory=dict)
    """Versions whose newest request is an answered start, and which are not part of a run."""
    arrived: Callable[[str], object] = field(default=lambda label: None)
    swaps: dict[str, float] = field(default_factory=dict)
    """By run: the time at which it last checked whether the versions of its swap may serve; all pointers move after
    that."""

    def wrong(self, rule: str, detail: str) -> None:
        """Record a violation."""
        self.say(f"WRONG {rule}: {detail}")
        self.violations.append(Violation(rule, detail, self.baton.now))

    def say(self, line: str) -> None:
        self.trace.append(f"{self.baton.now:12.3f} {self.baton.current.name[:18]:18} {line}")

    # What is heard.

    def send(self, kind: str, subject: str, lane: str) -> None:
        """Called before a thread sends a request. The thread may stall here."""
        self.passing(f"{_kind(lane)} sends {kind}")

    def sent(self, kind: str, subject: str, lane: str) -> None:
        if kind in ("list", "progress", "status", "ping", "prove", "attach", "read", "look", "exception"):
            return
        self.say(f"sends {kind} {subject}")
        if kind == "stop" and lane.startswith("socket"):
            word = self.words[int(lane.partition(" ")[2])]
            word.taken_at = word.taken_at or self.baton.now
            self.stops_by.append((self.baton.now, subject, self.words[int(lane.partition(" ")[2])]))
        if lane.startswith("run ") and kind in ("start", "stop", "unpoint", "forget", "create"):
            self._of_a_run(kind, subject, lane.removeprefix("run "))

    def hears(self, kind: str, lane: str) -> None:
        """Called when an answer has arrived, before the thread that asked acts on it."""
        self.passing(f"{_kind(lane)} hears {kind}")

    def effect(self, kind: str, subject: str, lane: str | None) -> None:
        if lane is not None:
            self.arrived(f"{_kind(lane)} effects {kind}")
        if kind not in ("list", "progress", "status", "ping", "prove", "attach", "read", "look", "exception"):
            self.say(f"  {kind} {subject} takes effect")

    def meets(self, fault: str) -> None:
        """Called when a fault has affected a request, a call or a thread."""
        self.met[fault] += 1

    def moved(self, folder: str) -> None:
        self.say(f"{folder} is set aside")
        for name, query in self.server.queries.items():
            if query.start.checkpoint == folder:
                self.wrong("a checkpoint is set aside below its query", f"{name}: {folder}")

    def starting(self, start: QueryStart, lane: str) -> None:
        """Check a start before it is sent: its text must be the ledger's, and its version must be allowed to run."""
        key = split_query(start.name)
        if key is None or (row := self._row(*key)) is None:
            self.wrong("a version that the ledger does not know is started", start.name)
            return
        if row.deleted:
            self.wrong("a deleted version is started", f"{start.name} by {lane}")
        if (start.select, start.checkpoint) != (row.compiled, row.checkpoint):
            self.wrong("a start has another text or checkpoint than the ledger", f"{start.name} by {lane}")
        if (stop := self.forbids((row.table, row.version))) is not None:
            self.wrong("a version starts after its stop was answered", f"{start.name} by {lane}: {_told(stop)}")

    def swap_begins(self) -> None:
        self.swaps[self.baton.current.name] = self.baton.now

    def pointing(self, view: str, target: str, lane: str) -> None:
        """Check a pointer that is about to move; a move back to the serving version is always allowed."""
        found = re.fullmatch(r"(\w+)__v(\d+)", target)
        row = self._row(TableName(found[1]), int(found[2])) if found else None
        if row is None or row.active or not lane.startswith("run "):
            return
        self._of_a_run("point", view, lane.removeprefix("run "))
        name, now = query_name(row.table, row.version), self.baton.now
        if row.deleted:
            self.wrong("a pointer moves to a deleted version", name)
        if row.state == State.FAILED and now - (row.state_since - self.baton.wall_offset) > ENDED_S:
            self.wrong("a pointer moves to a version that has failed", name)
        stop, looked_at = self.forbids((row.table, row.version)), self.swaps.get(lane, now)
        if stop is not None and stop.answered_at is not None and looked_at - stop.answered_at > ENDED_S:
            self.wrong("a pointer moves to a version that was stopped", f"{name}: {_told(stop)}")
        replaces = any(other.active for other in self._versions(row.table))
        if replaces and not self._proved(row, or_skipped=(StepKind.CATCH_UP,)):
            self.wrong("a pointer moves to a version that is not proved", name)

    def wrote(self, ledger: LivedLedger) -> None:
        """Check a committed transaction: an answered start must remain desired, and queries must not be confused."""
        self._taken(ledger)
        for version, word in tuple(self.started.items()):
            row = self._row(*version)
            if row is not None and not row.deleted and row.wanted == WantedState.STOPPED:
                del self.started[version]
                self.wrong("a start that was answered is undone", f"{query_name(*version)}: {_told(word)}")

    def _taken(self, ledger: LivedLedger) -> None:
        with ledger.looked_at():
            rows = ledger.deployments()
        for row in rows:
            query = self.server.queries.get(query_name(row.table, row.version))
            if query is None or not row.run_id or query.run_id != row.run_id:
                continue
            if (query.start.select, query.start.checkpoint) != (row.compiled, row.checkpoint):
                self.wrong("a query is taken for one of another text or checkpoint", query.name)

    # Words.

    def call(self, word: OperatorRequest) -> OperatorRequest:
        self.words.append(word)
        if self.ledger is not None and word.act in ("start", "restart"):
            with self.ledger.looked_at():
                serving = serving_versions(self.ledger.deployments())
            word.meant = frozenset((d.table, d.version) for t, d in serving.items() if str(t) in word.names)
        self.say(f"{word.by} asks: {word.act} {' '.join(word.names) or word.run}")
        if word.act == "stop":
            self.started = {v: w for v, w in self.started.items() if not word.covers(v)}
        elif word.act in OF_RUNS or word.act == "adopt":
            gone = word.tables
            self.started = {} if word.act == "adopt" else {
                v: w for v, w in self.started.items() if str(v[0]) not in gone
            }  # fmt: skip
        return word

    def answer(self, word: OperatorRequest) -> None:
        """Called when an operator's request has been answered."""
        word.answered_at = self.baton.now
        said = word.refused or ", ".join(f"{query_name(*v)} {o.outcome}" for v, o in word.outcomes.items()) or "yes"
        self.say(f"{word.by} hears of {word.act} {' '.join(word.names) or word.run}: {said}")
        if word.act == "stop" and not word.refused:
            self._stopped(word)
        if word.act in ("start", "restart") and not word.refused:
            self._started(word)
        if word.act == "restart" and word.refused:
            self._refused(word)

    def forbids(self, version: Version) -> OperatorRequest | None:
        """Return the answered stop that keeps a version from running, unless a later request permits it; else None."""
        for stop in reversed(self.words):
            if stop.act != "stop" or not stop.covers(version) or stop.lost or stop.refused:
                continue
            said = stop.outcomes.get(version)
            if stop.answered_at is None or (said is not None and not said.recorded):
                continue
            if said is not None and said.result not in GONE and self.baton.now - stop.answered_at < UNCONFIRMED_S:
                continue
            later = (w for w in self.words if w.answered_at is None or w.answered_at >= stop.called_at)
            return None if any(w.permits(version, stop) for w in later) else stop
        return None

    def _stopped(self, word: OperatorRequest) -> None:
        for version, outcome in word.outcomes.items():
            name = query_name(*version)
            later = [w for w in self.words if w is not word and (w.answered_at or self.baton.now) >= word.called_at]
            if outcome.result not in GONE or any(w.permits(version, word) for w in later):
                continue
            if name in self.server.queries and not self.server.in_flight["start", name]:
                began = self.server.queries[name].began_at
                if began < word.called_at or began > self.baton.now - 0.05:
                    self.wrong("a stop is answered while the query runs", f"{name} {outcome.outcome}")

    def _started(self, word: OperatorRequest) -> None:
        about = {step.table for run in self._open_runs() for step in run.steps}
        for version in word.outcomes:
            stops = [w for w in self.words if w.act == "stop" and w.covers(version)]
            stops = [w for w in stops if w.taken_at is None or w.taken_at >= word.called_at]
            runs = [w for w in self.words if w.act in OF_RUNS and str(version[0]) in w.tables]
            overlaps = any((w.answered_at or self.baton.now) >= word.called_at for w in stops + runs)
            if not overlaps and str(version[0]) not in about:
                row = self._row(*version)
                if row is not None and row.stops_at is None:
                    self.started[version] = word
                    if row.wanted == WantedState.STOPPED:
                        self.wrong("a start that was answered is undone", f"{query_name(*version)}: {_told(word)}")

    def _refused(self, word: OperatorRequest) -> None:
        """Check that a refused restart left the old query running, as all grounds for refusal are checked before it.

        Exempt are grounds that cannot be checked before: a refusal by Spark, a server that dies meanwhile, and whatever
        happens while the restart is stalled between its last check and its stop.
        """
        kind = word.refused.partition(":")[0]
        others = [w for w in self.words if w is not word and w.act == "stop" and w.answered_at is None]
        others += [w for w in self.words if w.act == "stop" and (w.answered_at or 0.0) >= word.called_at - 1.0]
        if kind not in ("Refused", "TryAgain", "UsageError") or others:
            return
        if max(self.faulted_at, self.stood_at) > word.called_at - 0.1:
            return
        for at, name, by in self.stops_by:
            if by is word and at >= word.called_at:
                self.wrong("a restart that was refused has stopped what ran", f"{name}: {word.refused}")

    # Effects of runs.

    def _of_a_run(self, kind: str, subject: str, run_id: str) -> None:
        ledger = self.ledger
        assert ledger is not None
        with ledger.looked_at():
            row = ledger.run(run_id)
        if row is None:
            return
        plan = self.plans.get(row.plan_hash)
        now = self.baton.now
        ended = row.ended_at is not None and now - (row.ended_at - self.baton.wall_offset) > ENDED_S
        # A cancel first ends what runs and undoes what was begun, and only then closes a failed run.
        cancels = any(w.run == run_id and w.act == "cancel" and not w.refused for w in self.words)
        if ended and not (cancels and kind in ("stop", "point", "unpoint", "create", "forget")):
            self.wrong("a run that has ended acts", f"run {run_id}, {row.state}, sends {kind} {subject}")
        if self._is_paused(run_id) and row.state not in (RunState.FAILED, RunState.CANCELLED):
            self.wrong("a paused run acts", f"run {run_id} sends {kind} {subject}")
        version = split_query(subject)
        if kind == "stop" and version is not None:
            self._stop_by_run(version, row, plan)

    def _is_paused(self, run_id: str) -> bool:
        """Return whether a run was paused so long ago that the step in progress at that time must have ended."""
        acts = ("pause", "resume", "retry", "cancel", "skip")
        said = (w for w in reversed(self.words) if w.run == run_id and w.act in acts)
        last = next((w for w in said if w.accepted or w.answered_at is None), None)
        if last is None or last.act != "pause" or last.answered_at is None:
            return False
        return self.baton.now - last.answered_at > PAUSED_S

    def _stop_by_run(self, version: Version, run: Any, plan: Plan | None) -> None:
        stopped, ledger = self._row(*version), self.ledger
        if ledger is None or stopped is None or stopped.wanted != WantedState.STOPPED or plan is None:
            return
        with ledger.looked_at():
            running = [row for row in ledger.deployments() if row.wanted == WantedState.RUNNING]
        cancels = run.state == RunState.CANCELLED or any(w.run == run.id and w.act == "cancel" for w in self.words)
        name, mine = query_name(*version), {(step.table, step.version) for step in plan.steps}
        for row in running:
            other = query_name(row.table, row.version)
            made = row.table == version[0] and row.version != version[1] and row.made_by == run.id
            if not cancels and made and not self._proved(row):
                self.wrong("an old version stops behind one that is not proved", f"{name}, while {other} has no batch")
            reads = any((b.parent, b.version) == version for b in row.bindings)
            if cancels and reads and (row.table, row.version) not in mine and self.forbids(version) is None:
                self.wrong("a cancel stops what somebody reads", f"{name}, which {other} reads")

    def _proved(self, row: Deployment, *, or_skipped: tuple[StepKind, ...] = ()) -> bool:
        self.server.settle()
        found = self.server.files.checkpoints.get(row.checkpoint)
        if found is None or found.batch is not None:
            return True
        return any(
            w.act == "skip" and (step := self._step(w)) is not None
            and (step.table, step.version) == (row.table, row.version)
            and step.do in (StepKind.START, StepKind.RESUME, *or_skipped)
            for w in self.words
        )  # fmt: skip

    def _step(self, word: OperatorRequest) -> Any:
        run = self.ledger.run(word.run) if self.ledger is not None else None
        plan = self.plans.get(run.plan_hash) if run is not None else None
        return next((step for step in plan.steps if step.n == word.step), None) if plan is not None else None

    # Where a world settles.

    def look(self, *, calm: bool) -> None:
        """Compare the environment with the ledger; `calm` means that no fault is active."""
        self._look_at_ended_runs()
        self._look_at_doubt()
        if not calm or self.ledger is None:
            self.good_since = self.baton.now
            self.since.clear()
            return
        with self.ledger.looked_at():
            every = {(d.table, d.version): d for d in self.ledger.deployments(include_deleted=True)}
            runs = self.ledger.runs(10)
        busy = {str(step.table) for run in runs if run.ended_at is None for step in run.steps}
        left: set[str] = set()
        for name, query in self.server.queries.items():
            version = split_query(name)
            row = every.get(version) if version else None
            if row is None:
                continue
            if (query.start.select, query.start.checkpoint) != (row.compiled, row.checkpoint):
                left.add(f"a query runs another text or checkpoint than the ledger has: {name}")
            if row.wanted == WantedState.STOPPED or row.deleted:
                left.add(f"a query runs that is wanted stopped: {name}")
        for row in every.values():
            name = query_name(row.table, row.version)
            newest = next((run for run in runs if any(step.table == row.table for step in run.steps)), None)
            gone = row.folder not in self.server.files.tables or row.checkpoint not in self.server.files.checkpoints
            undone = newest is None or newest.state in (RunState.CANCELLED, RunState.DONE)
            undone = undone and name not in self.of_another_hand
            if not row.external and not row.deleted and gone and undone and row.state != State.PENDING:
                left.add(f"a version is deployed and its files are not there: {name}")
            if row.active and not row.external and str(row.table) not in busy:
                leads = self.server.views.get(str(row.table), "")
                if leads != physical_name(row.table, row.version) and self.server.alive:
                    left.add(f"a pointer leads elsewhere than the ledger says: {row.table} → {leads or 'nothing'}")
        self.since = {what: self.since.get(what, self.baton.now) for what in left}
        for what, at in self.since.items():
            if self.baton.now - max(at, self.good_since) > SETTLES_S:
                rule, _, detail = what.partition(": ")
                self.wrong(rule, detail)

    def _look_at_ended_runs(self) -> None:
        """Check that an ended run changes its state only at an operator's request."""
        if self.ledger is None:
            return
        with self.ledger.looked_at():
            runs = self.ledger.runs(5)
        for run in runs:
            before = self.run_states.get(run.id, run.state)
            if before != run.state and not any(w.run == run.id and w.act in OF_RUNS for w in self.words):
                self.wrong("a run that has ended goes on", f"run {run.id}: {before}, then {run.state}")
            if run.ended_at is not None:
                self.run_states[run.id] = run.state

    def _look_at_doubt(self) -> None:
        """Check that an environment is never in doubt unless it was tampered with or an adoption was requested."""
        if self.ledger is None or self.touched or any(word.act == "adopt" for word in self.words):
            return
        with self.ledger.looked_at():
            doubt = self.ledger.facts().doubt
        if doubt:
            self.wrong("a world is in doubt that nobody has touched", doubt)

    def unsettled(self) -> list[str]:
        """Return how an environment without faults still differs from its desired state."""
        ledger = self.ledger
        assert ledger is not None
        found = list(self.since)
        with ledger.looked_at():
            not_begun = {
                (step.table, step.version)
                for run in ledger.runs(10)
                if run.state == RunState.FAILED
                for step in run.steps
                if step.state == "failed" and step.do in (StepKind.START, StepKind.RESUME)
            }
            for row in ledger.deployments():
                name = query_name(row.table, row.version)
                if row.external or row.state in (State.FAILED, State.PENDING):
                    continue
                if (row.table, row.version) in not_begun and not row.query_id:
                    continue
                if row.wanted == WantedState.RUNNING and name not in self.server.queries:
                    found.append(f"{name} is wanted running, is {row.state} and does not run: {row.error}")
                if row.wanted == WantedState.RUNNING and row.state in (State.UNKNOWN, State.STOPPING):
                    found.append(f"{name} runs, and the ledger says {row.state}")
                if row.wanted == WantedState.STOPPED and row.state not in (State.STOPPED, State.ABSENT):
                    found.append(f"{name} is wanted stopped and is {row.state}")
            for run in ledger.open_runs():
                held = any(step.do == "hold" and step.state == "gate" for step in run.steps)
                if run.state == RunState.RUNNING and not held:
                    steps = ", ".join(f"{s.n} {s.do} {s.table} {s.state} {s.note}" for s in run.steps if s.state in (
                        "running", "gate"))  # fmt: skip
                    found.append(f"run {run.id} is open: {steps}")
        return found

    def _open_runs(self) -> Iterable[Any]:
        assert self.ledger is not None
        with self.ledger.looked_at():
            return self.ledger.open_runs()

    def _versions(self, table: TableName) -> tuple[Deployment, ...]:
        assert self.ledger is not None
        with self.ledger.looked_at():
            return self.ledger.versions(table)

    def _row(self, table: TableName, version: int) -> Deployment | None:
        if self.ledger is None:
            return None
        with self.ledger.looked_at():
            return self.ledger.deployment(table, version)


def _told(word: OperatorRequest) -> str:
    asked = f"{word.act} {' '.join(word.names)} by {word.by}, asked {word.called_at:.1f}"
    return f"{asked}, answered {word.answered_at or 0:.1f}"


def _kind(lane: str) -> str:
    return lane.partition(" ")[0]
