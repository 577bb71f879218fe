"""Performing the steps of a run: each probes whether its effect is there, so that doing it twice is doing it once."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core.model.actions import StepKind, Strategy
from core.model.errors import Busy, EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable, TryAgain
from core.model.names import TableName, physical_name, query_name
from core.model.states import State, WantedState
from core.plan.model import Plan, PlanNode, Step
from core.ports.storage import FolderTaken
from core.run.model import StepState
from core.run.state_machine import GateOpened, GatePolled, RunEvidence, StepDone, StepFailed, StepKept
from pipelines.agent.context import WRITE_CALL_S, AgentContext
from pipelines.agent.deployment_compiler import column_types, compile_deployment
from pipelines.agent.deployment_lifecycle import mark_stopped, start, stop
from pipelines.agent.registry_records import serve
from pipelines.agent.runs.catch_up_gate import CatchUpGate
from pipelines.agent.runs.trash_moves import set_aside, take_out
from state.row_types import Deployment

STOPPED_BY_OPERATOR = "an operator has stopped it during this run; headgate runs retry starts it all the same"

log = logging.getLogger(__name__)

PENDING = "started, first batch pending"
"""Of a query that Spark has taken and that has neither committed a batch nor waited through a trigger without input."""


class StepExecutor:
    """Performs the steps of one run. Branches on a step's `do` alone, never on a reason or an evidence of the plan."""

    def __init__(self, world: AgentContext, plan: Plan, run_id: str) -> None:
        self._world = world
        self._plan = plan
        self._run_id = run_id
        self._nodes = {node.table: node for node in plan.nodes}
        self._joined = joined_whole(plan)
        self._gates: dict[int, CatchUpGate] = {}
        self._seams: dict[int, str] = {}
        """Where each restarted statement goes on, in words."""
        self._waiting: dict[int, float] = {}
        """Since when each gate is waited for, by the monotonic clock: a new agent waits the whole time again."""
        self._act_by_do: dict[StepKind, Callable[[Step], RunEvidence]] = {
            StepKind.REGISTER: self._register,
            StepKind.CREATE: self._create,
            StepKind.START: self._start,
            StepKind.RESUME: self._start,
            StepKind.CATCH_UP: self._open_gate,
            StepKind.SWAP: self._swap,
            StepKind.RESTART: self._restart,
            StepKind.ALTER: self._alter,
            StepKind.STOP: self._stop,
            StepKind.RECORD: self._record,
            StepKind.SOAK: self._soak,
            StepKind.UNPOINT: self._unpoint,
            StepKind.TOMBSTONE: self._tombstone,
            StepKind.RESTORE: self._restore,
        }

    def perform(self, step: Step) -> RunEvidence:
        """Do one step and say what came of it.

        Raises PoolUnreachable and LedgerUnavailable when it should simply be tried again.
        """
        try:
            self._world.identity.refuse_doubt()
            with self._world.locks.holding(*self._versions(step), by=f"run {self._run_id}", wait_s=0):
                return self._act_by_do[step.do](step)
        except (PoolUnreachable, LedgerUnavailable, Busy):
            raise
        except HeadgateError as error:
            return StepFailed(step.n, _one_line(error))

    def poll(self, step: Step) -> RunEvidence:
        """Check whether a gate is open: a version has caught up or may be swapped in, a started one has a batch.

        A gate that stays closed, or that nobody can look at, for as long as the environment allows fails its step.
        """
        since = self._waiting.setdefault(step.n, self._world.monotonic())
        ends_h = self._world.layout.environment.gate_ends_h
        over = self._world.monotonic() - since > ends_h * 3600
        try:
            found = self._look(step)
        except (PoolUnreachable, LedgerUnavailable, Busy) as error:
            if not over:
                raise
            found = GatePolled(step.n, error.summary)
        if isinstance(found, GatePolled) and over:
            ended = f"its gate was not open after {ends_h:g} hours; headgate runs retry waits again"
            found = StepFailed(step.n, f"{found.note}; {ended}")
        if not isinstance(found, GatePolled):
            del self._waiting[step.n]
        return found

    def _look(self, step: Step) -> RunEvidence:
        match step.do:
            case StepKind.START | StepKind.RESUME | StepKind.RESTART:
                return self._proven(step)
            case StepKind.SWAP:
                again = self.perform(step)
                return GatePolled(step.n, again.note) if isinstance(again, GateOpened) else again
            case _:
                return self._caught_up(step)

    def _caught_up(self, step: Step) -> RunEvidence:
        deployment = self._world.ledger.deployment(step.table, step.version)
        if deployment is None:
            return StepFailed(step.n, f"{query_name(step.table, step.version)} is not in the registry")
        if self._stopped_by_operator(step.table):
            return StepFailed(step.n, STOPPED_BY_OPERATOR)
        gate = self._gates[step.n]
        look = gate.look(self._world, deployment)
        if look.failed:
            return StepFailed(step.n, f"{look.note}; headgate runs retry waits again")
        return StepDone(step.n, look.note) if look.open else GatePolled(step.n, look.note)

    def _versions(self, step: Step) -> list[tuple[TableName, int]]:
        """Return the versions that a step acts on."""
        return [(table, self._nodes[table].version) for table in step.tables] or [(step.table, step.version)]

    def _stopped_by_operator(self, table: TableName) -> bool:
        """Return whether an operator has stopped a table since this run began: no step starts or serves it then."""
        locks, ledger = self._world.locks, self._world.ledger
        return locks.has_unrecorded_stop(table) or ledger.stopped_during(self._run_id, table)

    def _begun_again(self, step: Step, table: TableName, version: int) -> StepFailed | None:
        """Start a version of this run that an operator has stopped: a retry of the run is the later word."""
        deployment = self._world.ledger.deployment(table, version)
        if deployment is None or deployment.external or deployment.wanted == WantedState.RUNNING:
            return None
        again = self._start_unless_stopped(replace(step, table=table, version=version), lambda found: None)
        return again if isinstance(again, StepFailed) else None

    def _start_unless_stopped(self, step: Step, before: Callable[[Deployment], None]) -> Deployment | StepFailed:
        """Start the step's version after `before`; a stop by an operator during this run wins, whenever it comes."""
        stops = self._world.locks.stops(step.table)
        if self._stopped_by_operator(step.table):
            return StepFailed(step.n, STOPPED_BY_OPERATOR)
        before(self._deployed(step))
        if self._deployed(step).wanted != WantedState.RUNNING:
            self._world.ledger.update_deployment(step.table, step.version, wanted=WantedState.RUNNING)
        start(self._world, self._deployed(step), stops=stops)
        return self._deployed(step)

    def _node(self, step: Step) -> PlanNode:
        return self._nodes[step.table]

    def _built(self, step: Step) -> Deployment:
        """Compile the step's version afresh from the plan, which carries its texts."""
        node = self._node(step)
        return compile_deployment(
            replace(node, version=step.version),
            self._world.layout,
            now=self._world.clock(),
            plan_hash=self._plan.hash,
        )

    def _deployed(self, step: Step) -> Deployment:
        found = self._world.ledger.deployment(step.table, step.version)
        if found is None:
            raise TryAgain(
                f"{query_name(step.table, step.version)} is not in the registry",
                remedy="plan again from the current state",
            )
        return found

    def _register(self, step: Step) -> RunEvidence:
        built = self._built(step)
        name = self._world.layout.catalog_name(step.table, 0)
        pool = self._world.pool.connection()
        pool.call(WRITE_CALL_S, pool.tables.create, name, built.compiled_ddl)
        before = self._world.ledger.deployment(step.table, 0)
        running = replace(built, state=State.RUNNING, recorded=before.recorded if before else 0)
        self._world.ledger.put_deployment(running)
        return StepDone(step.n)

    def _create(self, step: Step) -> RunEvidence:
        if self._stopped_by_operator(step.table):
            return StepFailed(step.n, STOPPED_BY_OPERATOR)
        built = self._built(step)
        note = self._note(built)
        try:
            self._world.files.prepare(built.folder, note)
            self._world.files.prepare(built.checkpoint, note)
        except FolderTaken as error:
            self._world.ledger.take_version(step.table, step.version)
            return StepFailed(step.n, f"{error.summary}; nothing was written there: plan again, under the next number")
        name = self._world.layout.catalog_name(step.table, step.version)
        pool = self._world.pool.connection()
        pool.call(WRITE_CALL_S, pool.tables.create, name, built.compiled_ddl)
        if self._world.ledger.deployment(step.table, step.version) is None:
            self._world.ledger.put_deployment(replace(built, made_by=self._run_id))
        return StepDone(step.n)

    def _start(self, step: Step) -> RunEvidence:
        found = self._start_unless_stopped(step, lambda deployment: None)
        return found if isinstance(found, StepFailed) else GateOpened(step.n, PENDING)

    def _open_gate(self, step: Step) -> RunEvidence:
        whole = (step.table, step.version) in self._joined
        self._gates[step.n] = CatchUpGate(opened_at=self._world.monotonic(), whole=whole)
        return self._begun_again(step, step.table, step.version) or GateOpened(step.n, "waiting for the first batch")

    def _swap(self, step: Step) -> RunEvidence:
        targets = self._versions(step)
        if (not_yet := self._not_servable(step, targets)) is not None:
            return not_yet
        deployed = {d.table: d for d in self._world.ledger.deployments() if (d.table, d.version) in targets}
        layout, pool, faults = self._world.layout, self._world.pool.connection(), self._world.faults
        pointers = [(layout.pointer_name(t), layout.catalog_name(t, v), deployed[t].columns) for t, v in targets]
        s = pool.call(WRITE_CALL_S * len(pointers), pool.tables.swap, pointers, lambda v: faults.pass_by(f"swap {v}"))
        faults.pass_by("swap record")
        served = serve(self._world, dict(targets), self._run_id)
        faults.pass_by("swap commit")
        self._world.ledger.activate(dict(targets), served=served, by=self._run_id, at=self._world.clock())
        moved = ", ".join(f"{t} → {physical_name(t, v)}" for t, v in targets)
        return StepDone(step.n, f"{moved}; within {s * 1000:.0f} ms" if len(targets) > 1 else moved)

    def _not_servable(self, step: Step, targets: list[tuple[TableName, int]]) -> RunEvidence | None:
        """Explain why pointers must not move now, None where they may: a gate that opened long ago is looked at again.

        A gate that an operator skipped is not looked at; a version that failed or was stopped never serves.
        """
        gates = {(s.table, s.version): s.n for s in self._plan.steps if s.do is StepKind.CATCH_UP}
        row = self._world.ledger.run(self._run_id)
        skipped = {s.n for s in row.steps if s.state == StepState.SKIPPED} if row else set()
        for table, version in targets:
            if (table, version) not in gates:
                continue
            name, deployment = query_name(table, version), self._world.ledger.deployment(table, version)
            if deployment is None:
                return StepFailed(step.n, f"{name} is not in the registry")
            if self._stopped_by_operator(table):
                return StepFailed(step.n, f"{name} was stopped after it had caught up; no pointer has moved")
            if deployment.wanted != WantedState.RUNNING:
                return self._begun_again(step, table, version) or GateOpened(step.n, f"{name} was started again")
            if deployment.state == State.FAILED:
                why = f"{deployment.error_class} {deployment.error}".strip()
                return StepFailed(step.n, f"{name} failed after it had caught up: {why}; no pointer has moved")
            if gates[table, version] not in skipped and (behind := CatchUpGate.why_closed(self._world, deployment)):
                return GateOpened(step.n, f"{name} is behind again: {behind}")
        return None

    def _restart(self, step: Step) -> RunEvidence:
        def take_over(deployment: Deployment) -> None:
            stop(self._world, deployment)
            self._take_over_texts(step)

        deployment = self._start_unless_stopped(step, take_over)
        if isinstance(deployment, StepFailed):
            return deployment
        checkpoint = self._world.files.read(deployment.checkpoint)
        seam = f"seam after batch {checkpoint.batch}" if checkpoint and checkpoint.batch is not None else "no batch yet"
        self._seams[step.n] = f"{seam}; "
        return GateOpened(step.n, f"{seam}; {PENDING}")

    def _proven(self, step: Step) -> RunEvidence:
        """A start is done once the text works: a batch is committed, or a trigger has found no input."""
        deployment, seam = self._deployed(step), self._seams.get(step.n, "")
        if deployment.state == State.FAILED:
            return StepFailed(step.n, f"{deployment.error_class}: {deployment.error}")
        if deployment.state == State.RUNNING:
            return StepDone(step.n, seam.removesuffix("; "))
        if self._stopped_by_operator(step.table):
            return StepFailed(step.n, STOPPED_BY_OPERATOR)
        late = f": {deployment.error}" if deployment.state == State.DEGRADED else ""
        return GatePolled(step.n, f"{seam}{PENDING}{late}")

    def _alter(self, step: Step) -> RunEvidence:
        node = self._node(step)
        name = self._world.layout.catalog_name(step.table, step.version)
        columns = column_types(node.texts, step.table)
        built = self._built(step)
        pool = self._world.pool.connection()
        pool.call(WRITE_CALL_S, pool.tables.add_columns, name, columns)
        self._world.files.note(built.folder, self._note(built))
        self._world.ledger.update_deployment(
            step.table, step.version, compiled_ddl=built.compiled_ddl, columns=built.columns
        )
        return StepDone(step.n)

    def _take_over_texts(self, step: Step) -> None:
        """Write the new revision into the deployment: from here on a restart means the new text."""
        built = self._built(step)
        self._world.ledger.update_deployment(
            step.table,
            step.version,
            revision=built.revision,
            texts=built.texts,
            compiled=built.compiled,
            trigger=built.trigger,
            bindings=built.bindings,
            plan_hash=self._plan.hash,
        )

    def _stop(self, step: Step) -> RunEvidence:
        deployment = self._deployed(step)
        if readers := self._running_readers(step):
            self._world.ledger.update_deployment(step.table, step.version, stops_at=self._world.clock())
            return StepKept(step.n, f"keeps running: {readers} reads it")
        starts_over = self._node(step).strategy in (Strategy.KEYED, Strategy.CHAIN)
        if deployment.active and self._plan.request.verb != "delete" and not starts_over:
            return StepKept(step.n, "keeps running: it serves")
        self._world.ledger.update_deployment(step.table, step.version, wanted=WantedState.STOPPED, state=State.STOPPING)
        stop(self._world, deployment)
        mark_stopped(self._world, deployment)
        about = (step.table, step.version)
        self._world.event("state", f"{deployment.state} → {State.STOPPED}, by run {self._run_id}", about=about)
        return StepDone(step.n)

    def _running_readers(self, step: Step) -> str:
        """Return the versions that are wanted running and read the step's version, in words; empty where none does."""
        return ", ".join(
            sorted(
                query_name(d.table, d.version)
                for d in self._world.ledger.deployments()
                if d.wanted == WantedState.RUNNING
                and (d.table, d.version) != (step.table, step.version)
                and any(b.parent == step.table and b.version == step.version for b in d.bindings)
            )
        )

    def _soak(self, step: Step) -> RunEvidence:
        found = self._deployed(step)
        if found.wanted != WantedState.RUNNING:
            return StepDone(step.n, "it does not run")
        if found.stops_at is not None:
            return StepDone(step.n, "it runs on already, and stops when its time is over")
        minutes = self._world.layout.environment.soak_min
        self._world.ledger.update_deployment(step.table, step.version, stops_at=self._world.clock() + minutes * 60)
        return StepDone(step.n, f"runs on for {minutes:g} min, then it stops")

    def _record(self, step: Step) -> RunEvidence:
        node = self._node(step)
        self._world.ledger.update_deployment(
            step.table,
            step.version,
            revision=node.revision,
            texts=node.texts,
            plan_hash=self._plan.hash,
            owner=node.owner,
        )
        return StepDone(step.n)

    def _unpoint(self, step: Step) -> RunEvidence:
        pointer = self._world.layout.pointer_name(step.table)
        pool = self._world.pool.connection()
        pool.call(WRITE_CALL_S, pool.tables.unpoint, pointer)
        return StepDone(step.n)

    def _tombstone(self, step: Step) -> RunEvidence:
        deployment = self._deployed(step)
        if deployment.wanted == WantedState.RUNNING and not deployment.external:
            return StepFailed(step.n, "it keeps running because something reads it; plan again from the current state")
        with self._world.locks.deleting((step.table, step.version)):
            if readers := self._running_readers(step):
                return StepFailed(step.n, f"{readers} reads it again; stop the reader, or plan again")
            set_aside(self._world, deployment)
            days = self._world.layout.environment.drop_after_d
            return StepDone(step.n, f"files kept until {days:g} days from now")

    def _restore(self, step: Step) -> RunEvidence:
        take_out(self._world, self._deployed(step))
        return StepDone(step.n)

    def _note(self, built: Deployment) -> dict[str, Any]:
        """Return what lies beside each table and checkpoint, so that a restart or an adoption needs no catalog."""
        return {
            "table": built.table,
            "version": built.version,
            "ddl": built.compiled_ddl,
            "revision": built.revision,
            "run": self._run_id,
            "plan": self._plan.hash,
            "checkpoint": built.checkpoint,
        }


def joined_whole(plan: Plan) -> frozenset[tuple[TableName, int]]:
    """Return the versions that nodes of a plan join as static sides, and those that fill them."""
    bindings = {(node.table, node.version): node.bindings for node in plan.nodes}
    open_ = [(b.parent, b.version) for found in bindings.values() for b in found if not b.streamed]
    joined: set[tuple[TableName, int]] = set()
    while open_:
        key = open_.pop()
        if key not in joined:
            joined.add(key)
            open_ += [(b.parent, b.version) for b in bindings.get(key, ())]
    return frozenset(joined)


def _one_line(error: HeadgateError) -> str:
    summary = " ".join(error.summary.split())
    if isinstance(error, EngineRefused) and error.error_class:
        summary = f"{error.error_class}: {summary}"
    return f"{summary}; {error.remedy}" if error.remedy else summary
