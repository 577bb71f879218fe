"""A pool, its files, a registry and a journal as plain values, with an agent that applies plans to them and may die.

Every change calls `Agent.passes`, which checks the rules that must hold at all times, and which can end a run as `kill
-9` would. The steps mirror those of `pipelines.agent.runs`, change by change.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from core.model.actions import UPKEEP, StepKind
from core.model.names import TableName as T
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding, Deployment
from core.plan.model import Plan, PlanNode, Step
from core.run.model import OperatorControl, Run, RunState, StepProgress, StepState
from core.run.state_machine import (
    AbortVersions,
    GateOpened,
    GatePolled,
    PerformStep,
    PollGate,
    RunEvidence,
    StepDone,
    StepFailed,
    StepKept,
    advance_run,
    recover_run,
)
from state.planner_input_from_registry import observe

Version = tuple[T, int]


class Died(Exception):
    """Raised at the point at which the agent is killed."""


class Refused(Exception):
    """Raised if a port refuses a call."""


@dataclass
class Simulated:
    """Everything that outlives an agent: files on disk, queries in the pool, and the ledger."""

    catalog: set[Version] = field(default_factory=set)
    """Readable tables; version 0 is external."""
    pointers: dict[T, int] = field(default_factory=dict)
    checkpoints: dict[Version, str] = field(default_factory=dict)
    queries: dict[Version, tuple[Binding, ...]] = field(default_factory=dict)
    """Running queries, with the parent versions that each has read since its start."""
    written_by: dict[Version, str] = field(default_factory=dict)
    """The checkpoint with which each table was first written."""
    ledger: dict[Version, Deployment] = field(default_factory=dict)
    journal: dict[str, dict[int, StepProgress]] = field(default_factory=dict)
    runs: dict[str, RunState] = field(default_factory=dict)
    began_cold: list[tuple[T, T]] = field(default_factory=list)
    """Statements started while a parent was not running, with that parent."""
    going: frozenset[T] = frozenset()
    """Tables being deleted."""
    stopped: set[T] = field(default_factory=set)
    """Tables that an operator has stopped since the run began or was retried."""
    served: int = 0
    """Number of pointer moves, used to order versions by when they served."""
    trash: dict[Version, str] = field(default_factory=dict)
    """The checkpoints of deleted versions."""
    stops: int = 0
    """Number of stops by operators; a start compares the number before and after."""

    def copy(self) -> "Simulated":
        """Return an independent copy."""
        return replace(
            self,
            catalog=set(self.catalog),
            pointers=dict(self.pointers),
            checkpoints=dict(self.checkpoints),
            queries=dict(self.queries),
            trash=dict(self.trash),
            written_by=dict(self.written_by),
            ledger=dict(self.ledger),
            journal={run: dict(steps) for run, steps in self.journal.items()},
            runs=dict(self.runs),
            began_cold=list(self.began_cold),
            stopped=set(self.stopped),
        )

    def things(self) -> list[object]:
        """Return the lasting results of a run, without times and run ids."""
        rows = {
            key: replace(row, served_at=None if row.served_at is None else 0.0, served_by="")
            for key, row in self.ledger.items()
        }
        return [self.catalog, self.pointers, self.checkpoints, self.queries, self.trash, rows]

    def observed(self) -> dict[T, ObservedDeployment]:
        """Observe the deployments as the console and the agent do."""
        return observe(self.ledger.values())

    def check(self) -> None:
        """Assert the rules that must hold at all times, even in the middle of a step."""
        for version, bindings in self.queries.items():
            assert version in self.catalog, f"{version} writes a table that is gone"
            for binding in bindings:
                parent = (binding.parent, binding.version)
                assert parent in self.catalog, f"{version} reads {parent}, which is gone"
        for table, version in self.pointers.items():
            assert (table, version) in self.catalog, f"readers of {table} find no table"
        for (table, version), row in self.ledger.items():
            if row.active and not row.external and table not in self.going:
                assert table in self.pointers, f"readers of {table} find no pointer (v{version})"
        running = [self.checkpoints[version] for version in self.queries]
        assert len(running) == len(set(running)), "two queries write one checkpoint"

    def update(self, version: Version, **known: object) -> None:
        """Update fields of a version's row in the registry."""
        self.ledger[version] = replace(self.ledger[version], **known)  # type: ignore[arg-type]  # Fields by name.

    def stop_by_operator(self, table: T) -> None:
        """Stop all versions of a table immediately, as `StatementControl.stop` does."""
        self.stopped.add(table)
        self.stops += 1
        for version in [version for version, row in self.ledger.items() if version[0] == table and not row.deleted]:
            if self.queries.pop(version, None) is not None:
                self.update(version, state=State.STOPPED)
            self.update(version, wanted=WantedState.STOPPED)

    def start_by_operator(self, table: T) -> None:
        """Start the serving version of a table, unless its checkpoint or parents are missing."""
        for version, row in self.ledger.items():
            parents = {(binding.parent, binding.version) for binding in row.bindings}
            whole = self.checkpoints.get(version) == row.checkpoint_id and parents <= self.catalog
            if version[0] == table and row.active and not row.external and not row.deleted and whole:
                self.stopped.discard(table)
                self.queries[version] = row.bindings
                self.update(version, wanted=WantedState.RUNNING, state=State.STARTING, error="")

    def fail(self, table: T) -> None:
        """Make the running queries of a table fail."""
        for version in [version for version in self.queries if version[0] == table]:
            del self.queries[version]
            self.update(version, state=State.FAILED)

    def settle(self) -> None:
        """Let every query that is starting commit its first batch."""
        for version, row in self.ledger.items():
            if version in self.queries and row.state == State.STARTING:
                self.update(version, state=State.RUNNING)


@dataclass
class Agent:
    """An agent that drives one run; it dies at the `dies_at`th point, and can fail a step on its first try."""

    world: Simulated
    plan: Plan
    run_id: str
    dies_at: int = 0
    fails: int = 0
    passed: int = 0
    meanwhile: "Callable[[frozenset[Version]], None]" = lambda held: None
    """Called at every point with the versions held by the current step, to simulate other actors."""
    held: frozenset[Version] = frozenset()

    def __post_init__(self) -> None:
        self._nodes = {node.table: node for node in self.plan.nodes}

    def apply(self, *words: OperatorControl) -> RunState:
        """Begin or resume the run, drive it to its end, and return its state."""
        found = self.world.journal.setdefault(self.run_id, {})
        steps = tuple(found.get(step.n, StepProgress(step)) for step in self.plan.steps)
        self._run = Run(self.run_id, self.world.runs.get(self.run_id, RunState.RUNNING), steps)
        if self.plan.request.verb == "delete":
            self.world.going |= {node.table for node in self.plan.nodes if node.action == "delete"}
        self._put(recover_run(self._run))
        evidence: list[RunEvidence] = list(words)
        if any(word.act == "retry" for word in words):
            self.world.stopped.clear()
        while True:
            run, intents = advance_run(self._run, evidence)
            if run.state is RunState.CANCELLED:
                self._undo(run)
            self._put(run)
            evidence = [said for intent in intents if (said := self._answer(intent)) is not None]
            if run.state in (RunState.DONE, RunState.FAILED, RunState.CANCELLED):
                return run.state

    def _undo(self, run: Run) -> None:
        """Undo what a cancelled run began but did not record in the ledger, as `undo_cancelled` does."""
        world = self.world
        cut_off = [p.step for p in run.steps if p.tries and p.state is StepState.CANCELLED]
        for step in reversed(cut_off):
            version, row = (step.table, step.version), world.ledger.get((step.table, step.version))
            if step.do is StepKind.TOMBSTONE and row is not None and not row.deleted:
                if version in world.trash:
                    world.checkpoints[version] = world.trash.pop(version)
                world.catalog.add(version)
            elif step.do is StepKind.RESTORE and row is not None and row.deleted:
                world.catalog.discard(version)
                if version in world.checkpoints:
                    world.trash[version] = world.checkpoints.pop(version)
        moved = {table for step in cut_off if step.do is StepKind.SWAP for table in (step.tables or (step.table,))}
        moved |= {p.step.table for p in run.steps if p.step.do is StepKind.UNPOINT and p.tries}
        serving = {table: version for (table, version), row in world.ledger.items() if row.active and not row.deleted}
        for table in sorted(moved):
            if table in serving:
                world.pointers[table] = serving[table]
            else:
                world.pointers.pop(table, None)

    def passes(self) -> None:
        """Pass the point between two changes: check the rules, and die here if this is the chosen point."""
        self.world.check()
        self.passed += 1
        if self.passed == self.dies_at:
            raise Died
        self.meanwhile(self.held)
        self.world.check()

    def _put(self, run: Run) -> None:
        for progress in run.steps:
            if self.world.journal[self.run_id].get(progress.step.n) != progress:
                self.passes()
                self.world.journal[self.run_id][progress.step.n] = progress
                self.passes()
        self.world.runs[run.id] = run.state
        self._run = run

    def _answer(self, intent: PerformStep | PollGate | AbortVersions) -> RunEvidence | None:
        match intent:
            case PerformStep(step):
                return self._perform(step)
            case PollGate(step):
                return self._poll(step)
            case AbortVersions(versions):
                self.abort(versions)
        return None

    def abort(self, versions: tuple[tuple[str, int], ...]) -> None:
        """Stop those versions that the run started and that do not serve."""
        for key in ((T(table), version) for table, version in reversed(versions)):
            row = self.world.ledger.get(key)
            if row is None or row.active or row.deleted:
                continue
            if self._running_readers(key):
                self.world.update(key, stops_at=1.0)
            else:
                self._end(key)

    def perform(self, step: Step) -> RunEvidence:
        swapped = [(table, self._nodes[table].version) for table in step.tables]
        self.held = frozenset(swapped or [(step.table, step.version)])
        try:
            return self._acts[step.do](self, step)
        except Refused as error:
            return StepFailed(step.n, str(error))
        finally:
            self.held = frozenset()

    def _perform(self, step: Step) -> RunEvidence:
        self.passes()
        if step.n == self.fails and self.world.journal[self.run_id][step.n].tries == 1:
            return StepFailed(step.n, "as asked")
        evidence = self.perform(step)
        self.passes()
        return evidence

    def _poll(self, step: Step) -> RunEvidence:
        progress = self._run.step(step.n)
        if not progress.note:
            return GatePolled(step.n, "waits")
        self.world.settle()
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        if step.do is StepKind.HOLD:
            bad = [key for key in self._targets(step) if key not in self.world.queries or key[0] in self.world.stopped]
            return StepFailed(step.n, f"{bad} do not run") if bad else StepDone(step.n, "the word was given")
        if step.do in UPKEEP:
            return StepDone(step.n)
        if step.do is StepKind.SWAP:
            again = self.perform(step)
            return GatePolled(step.n, again.note) if isinstance(again, GateOpened) else again
        if (step.table, step.version) not in self.world.queries:
            return StepFailed(step.n, f"{step.table}@v{step.version} does not run")
        return StepDone(step.n)

    def _register(self, step: Step) -> RunEvidence:
        self.world.catalog.add((step.table, 0))
        self.passes()
        row = deployment_of(self._nodes[step.table], 0)
        self.world.ledger[step.table, 0] = replace(row, state=State.RUNNING, active=True, external=True)
        return StepDone(step.n)

    def _create(self, step: Step) -> RunEvidence:
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        version = (step.table, step.version)
        row = self.world.ledger.get(version)
        assert row is None or row.drop_after is None, f"{version} was used before"
        self.world.checkpoints.setdefault(version, f"{step.table}-{step.version}")
        self.passes()
        self.world.catalog.add(version)
        self.passes()
        if row is None:
            made = deployment_of(self._nodes[step.table], step.version)
            self.world.ledger[version] = replace(made, plan_hash=self.plan.hash)
        return StepDone(step.n)

    def _fork(self, step: Step) -> RunEvidence:
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        version, origin = (step.table, step.version), (step.table, self._nodes[step.table].from_version)
        row = self.world.ledger.get(origin)
        if row is None or row.deleted or self.world.checkpoints.get(origin) is None:
            return StepFailed(step.n, f"{origin} is not there any more")
        self._deployed(step)
        return self._seed_from(version, f"{self.world.checkpoints[origin]} → {step.version}", step)

    def _seed(self, step: Step) -> RunEvidence:
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        self._deployed(step)
        return self._seed_from((step.table, step.version), f"{step.table}-{step.version} from now", step)

    def _seed_from(self, version: Version, checkpoint: str, step: Step) -> RunEvidence:
        """Replace the empty checkpoint of a version with another one; no query may have written with it yet."""
        if self.world.checkpoints[version] != checkpoint:
            assert version not in self.world.written_by, f"{version} began from nothing"
            self.world.checkpoints[version] = checkpoint
        self.passes()
        self.world.update(version, checkpoint_id=checkpoint)
        return StepDone(step.n)

    def _start(self, step: Step) -> RunEvidence:
        version, stops = (step.table, step.version), self.world.stops
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        if self._deployed(step).wanted != WantedState.RUNNING:
            self.world.update(version, wanted=WantedState.RUNNING)
            self.passes()
        self._begin(version, stops)
        return GateOpened(step.n)

    def _deployed(self, step: Step) -> Deployment:
        found = self.world.ledger.get((step.table, step.version))
        if found is None:
            raise Refused(f"{step.table}@v{step.version} is not in the registry")
        return found

    def _begin(self, version: Version, stops: int) -> None:
        """Start a version's query unless it is running, as `deployment_lifecycle.start` does."""
        world, row = self.world, self.world.ledger[version]
        found = world.checkpoints.get(version)
        if found is None or (row.checkpoint_id and found != row.checkpoint_id):
            raise Refused(f"{version} has no checkpoint of its own")
        if version not in world.queries:
            for binding in row.bindings:
                parent = (binding.parent, binding.version)
                assert parent in world.catalog, f"{version} is started over {parent}, which is not there"
                if binding.version and parent not in world.queries:
                    world.began_cold.append((version[0], binding.parent))
            assert version in world.catalog, f"{version} is started without a table"
            first = world.written_by.setdefault(version, found)
            assert first == found, f"a new checkpoint on {version}, which has rows"
            world.queries[version] = row.bindings
            self.passes()
        if world.stops != stops and version[0] in world.stopped:
            self._end(version)
            raise Refused(f"{version} was stopped by an operator while it was starting")
        world.update(version, state=State.STARTING, checkpoint_id=found, started_at=1.0, error="")

    def _open(self, step: Step) -> RunEvidence:
        return self._begin_again(step, (step.table, step.version)) or GateOpened(step.n)

    def _begin_again(self, step: Step, version: Version) -> StepFailed | None:
        """Start a version that an operator stopped before the run was retried; return the failure, if any."""
        row = self.world.ledger.get(version)
        if row is None or row.external or row.wanted == WantedState.RUNNING:
            return None
        again = self._start(replace(step, table=version[0], version=version[1]))
        return again if isinstance(again, StepFailed) else None

    def _targets(self, step: Step) -> list[Version]:
        return [(table, self._nodes[table].version) for table in step.tables or (step.table,)]

    def _hold(self, step: Step) -> RunEvidence:
        for version in self._targets(step):
            if (failed := self._begin_again(step, version)) is not None:
                return failed
        return GateOpened(step.n)

    def _swap(self, step: Step) -> RunEvidence:
        targets = dict(self._targets(step))
        gates = {(s.table, s.version) for s in self.plan.steps if s.do is StepKind.CATCH_UP}
        for key in sorted(gates & targets.items()):
            if key[0] in self.world.stopped:
                return StepFailed(step.n, f"{key} was stopped by an operator")
            if self.world.ledger[key].wanted != WantedState.RUNNING:
                return self._begin_again(step, key) or GateOpened(step.n, f"{key} was started again")
            if key not in self.world.queries:
                return StepFailed(step.n, f"{key} does not run")
        for table, version in targets.items():
            self.passes()
            self.world.pointers[table] = version
        self.passes()
        before_by_table = {table: version for (table, version), row in self.world.ledger.items() if row.active}
        for key, row in self.world.ledger.items():
            if key[0] in targets and row.drop_after is None:
                serves = key[1] == targets[key[0]]
                if serves and not row.active:
                    self.world.served += 1
                    before = before_by_table.get(key[0], row.served_before)
                    by = {
                        "served_at": float(self.world.served),
                        "served_by": self.run_id,
                        "served_before": before,
                        "stops_at": None,
                    }
                    self.world.update(key, **by)
                self.world.update(key, active=serves)
        return StepDone(step.n)

    def _restart(self, step: Step) -> RunEvidence:
        version, node, stops = (step.table, step.version), self._nodes[step.table], self.world.stops
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        self.world.queries.pop(version, None)
        self.passes()
        self.world.update(version, revision=node.revision, texts=node.texts, bindings=node.bindings)
        self.world.update(version, plan_hash=self.plan.hash)
        self.passes()
        self.world.update(version, wanted=WantedState.RUNNING)
        self.passes()
        self._begin(version, stops)
        return GateOpened(step.n)

    def _seam(self, step: Step) -> RunEvidence:
        """Move a statement to its new parents; here, both versions of a parent have always read the same input."""
        version, node = (step.table, step.version), self._nodes[step.table]
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        if {*self._deployed(step).bindings} != {*node.bindings}:
            self.world.queries.pop(version, None)
            self.passes()
            made = f"{self.world.checkpoints[version]}.{step.n}"
            self.world.checkpoints[version] = self.world.written_by[version] = made
            known = {"revision": node.revision, "texts": node.texts, "bindings": node.bindings}
            self.world.update(version, checkpoint_id=made, plan_hash=self.plan.hash, **known)
            self.passes()
        return self._start(step)

    def _rewrite(self, step: Step) -> RunEvidence:
        version, node = (step.table, step.version), self._nodes[step.table]
        if step.table in self.world.stopped:
            return StepFailed(step.n, "stopped by an operator during this run")
        made = f"rewrite {self.plan.hash}.{step.n}"
        if self.world.checkpoints[version] != made:
            self.world.queries.pop(version, None)
            self.passes()
            self.world.checkpoints[version] = self.world.written_by[version] = made
            known = {"revision": node.revision, "texts": node.texts, "bindings": node.bindings}
            self.world.update(version, checkpoint_id=made, plan_hash=self.plan.hash, **known)
            self.passes()
        return self._start(step)

    def _alter(self, step: Step) -> RunEvidence:
        assert (step.table, step.version) in self.world.catalog
        return StepDone(step.n)

    def _stop(self, step: Step) -> RunEvidence:
        version = (step.table, step.version)
        self._deployed(step)
        if readers := self._running_readers(version):
            return StepKept(step.n, f"{readers} read it")
        if step.table not in self.world.going and self.world.ledger[version].active:
            return StepKept(step.n, f"{version} serves")
        self._end(version)
        return StepDone(step.n)

    def _running_readers(self, version: Version) -> list[Version]:
        return [
            key
            for key, row in self.world.ledger.items()
            if row.wanted == WantedState.RUNNING
            and key != version
            and any((binding.parent, binding.version) == version for binding in row.bindings)
        ]

    def _end(self, version: Version) -> None:
        self.world.update(version, wanted=WantedState.STOPPED, state=State.STOPPING)
        self.passes()
        self.world.queries.pop(version, None)
        self.passes()
        self.world.update(version, state=State.STOPPED)

    def _soak(self, step: Step) -> RunEvidence:
        if self._deployed(step).wanted == WantedState.RUNNING:
            self.world.update((step.table, step.version), stops_at=1.0)
        return StepDone(step.n)

    def _record(self, step: Step) -> RunEvidence:
        node = self._nodes[step.table]
        self.world.update((step.table, step.version), revision=node.revision, texts=node.texts)
        return StepDone(step.n)

    def _unpoint(self, step: Step) -> RunEvidence:
        self.world.pointers.pop(step.table, None)
        return StepDone(step.n)

    def _tombstone(self, step: Step) -> RunEvidence:
        version = (step.table, step.version)
        row = self._deployed(step)
        if row.wanted == WantedState.RUNNING and not row.external:
            return StepFailed(step.n, f"{version} is wanted")
        if readers := self._running_readers(version):
            return StepFailed(step.n, f"{readers} read it again")
        assert version not in self.world.queries, f"{version} is set aside while it runs"
        self.world.catalog.discard(version)
        self.passes()
        if version in self.world.checkpoints:
            self.world.trash[version] = self.world.checkpoints.pop(version)
        self.passes()
        gone = {"state": State.ABSENT, "drop_after": 7.0, "trash": "trash"}
        self.world.update(version, active=False, wanted=WantedState.STOPPED, **gone)
        return StepDone(step.n)

    def _restore(self, step: Step) -> RunEvidence:
        version = (step.table, step.version)
        if self._deployed(step).drop_after is None:
            return StepDone(step.n)
        if version in self.world.trash:
            self.world.checkpoints[version] = self.world.trash.pop(version)
        self.passes()
        self.world.catalog.add(version)
        self.passes()
        self.world.update(version, wanted=WantedState.STOPPED, state=State.STOPPED, drop_after=None, trash="")
        return StepDone(step.n)

    def _look_after(self, step: Step) -> RunEvidence:
        self._deployed(step)
        return GateOpened(step.n)

    _acts: "dict[StepKind, Callable[[Agent, Step], RunEvidence]]" = field(
        init=False,
        repr=False,
        default_factory=lambda: {
            StepKind.REGISTER: Agent._register,
            StepKind.CREATE: Agent._create,
            StepKind.FORK: Agent._fork,
            StepKind.SEED: Agent._seed,
            StepKind.START: Agent._start,
            StepKind.RESUME: Agent._start,
            StepKind.CATCH_UP: Agent._open,
            StepKind.VALIDATE: Agent._open,
            StepKind.HOLD: Agent._hold,
            StepKind.SWAP: Agent._swap,
            StepKind.RESTART: Agent._restart,
            StepKind.REWRITE: Agent._rewrite,
            StepKind.SEAM: Agent._seam,
            StepKind.ALTER: Agent._alter,
            StepKind.STOP: Agent._stop,
            StepKind.RECORD: Agent._record,
            StepKind.SOAK: Agent._soak,
            StepKind.UNPOINT: Agent._unpoint,
            StepKind.TOMBSTONE: Agent._tombstone,
            StepKind.RESTORE: Agent._restore,
            StepKind.OPTIMIZE: Agent._look_after,
            StepKind.VACUUM: Agent._look_after,
        },
    )


def deployment_of(node: PlanNode, version: int) -> Deployment:
    """Return the row of a node's new version, without the fields that only Spark needs."""
    return Deployment(
        table=node.table,
        version=version,
        product=node.product,
        layer=node.layer,
        owner=node.owner,
        revision=node.revision,
        texts=node.texts,
        compiled="",
        compiled_ddl="",
        columns=(),
        format="parquet",
        folder="",
        checkpoint="",
        checkpoint_id="",
        trigger=node.trigger,
        mode="append",
        stateful=node.stateful,
        wanted=WantedState.RUNNING,
        state=State.PENDING,
        state_since=0.0,
        active=False,
        bindings=node.bindings,
        begins_where=node.begins_where,
    )


def journalled(world: Simulated, run_id: str, state: StepState) -> list[int]:
    """Return the numbers of a run's steps that are in the given state."""
    return [n for n, progress in world.journal[run_id].items() if progress.state is state]
