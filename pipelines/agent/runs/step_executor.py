"""Performs the steps of a run. Each step first checks whether its effect exists, so that repeating it is safe."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from core.model.actions import MOVES_POINTERS, StepKind
from core.model.errors import OUTAGES, Busy, EngineRefused, HeadgateError, LedgerUnavailable, TryAgain
from core.model.names import TableName, query_name
from core.plan.model import Plan, Step
from core.run.state_machine import GateOpened, GatePolled, RunEvidence, StepDone, StepFailed, StepPutOff
from pipelines.agent.context import AgentContext
from pipelines.agent.identity.foreign_names import refuse_names_of_others
from pipelines.agent.runs import (
    fork_steps,
    new_checkpoint_steps,
    pointer_steps,
    starting_steps,
    stop_and_trash_steps,
    upkeep_steps,
    validation_step,
)
from pipelines.agent.runs.catch_up_gate import CatchUpGate
from pipelines.agent.runs.run_context import RunContext
from pipelines.agent.statements.transient_failures import disk_error
from pipelines.storage.file_system import is_denied

_EFFECTS: Mapping[StepKind, Callable[[RunContext, Step], RunEvidence]] = {
    StepKind.REGISTER: starting_steps.register,
    StepKind.CREATE: starting_steps.create,
    StepKind.FORK: fork_steps.fork,
    StepKind.SEED: fork_steps.seed,
    StepKind.START: starting_steps.start,
    StepKind.RESUME: starting_steps.start,
    StepKind.VALIDATE: validation_step.validate,
    StepKind.HOLD: pointer_steps.hold,
    StepKind.SWAP: pointer_steps.swap,
    StepKind.RESTART: starting_steps.restart,
    StepKind.REWRITE: new_checkpoint_steps.rewrite,
    StepKind.SEAM: new_checkpoint_steps.seam,
    StepKind.ALTER: starting_steps.alter,
    StepKind.STOP: stop_and_trash_steps.stop,
    StepKind.RECORD: starting_steps.record,
    StepKind.SOAK: stop_and_trash_steps.soak,
    StepKind.UNPOINT: pointer_steps.unpoint,
    StepKind.TOMBSTONE: stop_and_trash_steps.move_to_trash,
    StepKind.RESTORE: stop_and_trash_steps.restore,
    StepKind.OPTIMIZE: upkeep_steps.start_upkeep,
    StepKind.VACUUM: upkeep_steps.start_upkeep,
}
"""The function that performs each kind of step. The executor itself handles CATCH_UP gates."""


class StepExecutor:
    """Performs the steps of one run.

    A step's effect depends on its `do`, never on a reason or evidence in the plan.
    """

    def __init__(self, agent: AgentContext, plan: Plan, run_id: str) -> None:
        self._agent = agent
        self._run = RunContext(agent, plan, run_id)
        self._joined = joined_whole(plan)
        self._plan = plan
        self._owns_names = False
        """True once the names that the plan creates are known to be free or of this environment."""
        self._gates: dict[int, CatchUpGate] = {}
        self._waiting: dict[int, float] = {}
        """When each gate began to wait, in seconds of `AgentContext.monotonic`; a new agent starts the wait again."""

    def perform(self, step: Step) -> RunEvidence:
        """Perform a step and return its result.

        Raises one of OUTAGES if the step should be performed again later.
        """
        try:
            self._refuse_doubt()
            with self._agent.locks.holding(*self._run.versions(step), by=f"run {self._run.id}", wait_s=0):
                # Ending a run requires the locks of its versions, so no step of an ended run begins.
                row = self._agent.ledger.run(self._run.id)
                if row is not None and row.ended_at is not None:
                    return StepPutOff(step.n, f"the run is {row.state}")
                return self._perform(step)
        except OUTAGES:
            raise
        except HeadgateError as error:
            return StepFailed(step.n, _one_line(self._run, step, error))

    def _refuse_doubt(self) -> None:
        """Raise NotAdopted or Busy if the identity is in doubt, or TryAgain if the data folder is not writable."""
        try:
            self._agent.identity.refuse_doubt()
        except Busy:
            if (fault := self._agent.identity.fault) is not None and is_denied(fault):
                raise TryAgain(fault.summary, remedy=fault.remedy) from fault
            raise

    def _perform(self, step: Step) -> RunEvidence:
        if not self._owns_names:
            refuse_names_of_others(self._agent, self._plan)
            self._owns_names = True
        if step.do is StepKind.CATCH_UP:
            return self._open_gate(step)
        return self.recorded(step) or _EFFECTS[step.do](self._run, step)

    def abandon(self, step: Step) -> StepDone | None:
        """Abandon a step: undo a partial swap, or a start command that had no effect.

        If the ledger records the step's swap, return the evidence of the swap, which counts as done despite later
        failures.
        """
        self._run.take_back(step)
        done = self.recorded(step)
        if done is None and step.do is StepKind.SWAP:
            pointer_steps.abandon_swap(self._run, step)
        return done

    def recorded(self, step: Step) -> StepDone | None:
        """Return the evidence of a swap that the ledger records although its step is unfinished, or None."""
        if step.do is not StepKind.SWAP or not pointer_steps.has_swapped(self._run, step):
            return None
        skipped = pointer_steps.skipped_comparisons(self._run, {table for table, _ in self._run.versions(step)})
        return StepDone(step.n, pointer_steps.moves_in_words(self._run, step) + skipped)

    def poll(self, step: Step) -> RunEvidence:
        """Check a waiting step, for example whether its version has caught up or has committed its first batch.

        A step fails if its gate is closed, or cannot be checked, for longer than the environment's `gate_ends_h`. Time
        during a freeze is not counted.
        """
        if step.do in MOVES_POINTERS | {StepKind.HOLD} and self._is_frozen():
            self._waiting[step.n] = self._agent.monotonic()
        since = self._waiting.setdefault(step.n, self._agent.monotonic())
        ends_h = self._agent.layout.environment.gate_ends_h
        over = self._agent.monotonic() - since > ends_h * 3600
        try:
            found = self._check_gate(step)
        except OUTAGES as error:
            if not over:
                raise
            found = GatePolled(step.n, error.summary)
        if isinstance(found, GatePolled) and over:
            closed = "no command was given" if step.do is StepKind.HOLD else "its gate did not open"
            ended = f"{closed} within {ends_h:g} hours; headgate runs retry waits again"
            found = self.abandon(step) or StepFailed(step.n, f"{found.note}; {ended}")
        if not isinstance(found, GatePolled):
            del self._waiting[step.n]
        return found

    def _is_frozen(self) -> bool:
        with suppress(LedgerUnavailable):
            return self._run.frozen() is not None
        return False

    def end_waits(self, waiting: Collection[int] = ()) -> None:
        """End the background work of all steps except those whose numbers are in `waiting`."""
        validation_step.end_comparisons(self._run, waiting)
        upkeep_steps.end_upkeep(self._run, waiting)

    def _check_gate(self, step: Step) -> RunEvidence:
        match step.do:
            case StepKind.START | StepKind.RESUME | StepKind.RESTART | StepKind.REWRITE:
                return starting_steps.check_started(self._run, step)
            case StepKind.VALIDATE:
                return validation_step.look_for_verdict(self._run, step)
            case StepKind.HOLD:
                return pointer_steps.check_held_versions(self._run, step)
            case StepKind.OPTIMIZE | StepKind.VACUUM:
                return upkeep_steps.poll_upkeep(self._run, step)
            case StepKind.SEAM if new_checkpoint_steps.is_bound_as_planned(self._run, step):
                return starting_steps.check_started(self._run, step)
            case StepKind.SWAP | StepKind.UNPOINT | StepKind.SEAM:
                again = self.perform(step)
                return GatePolled(step.n, again.note) if isinstance(again, GateOpened | StepPutOff) else again
            case _:
                return self._caught_up(step)

    def _caught_up(self, step: Step) -> RunEvidence:
        deployment = self._agent.ledger.deployment(step.table, step.version)
        if deployment is None:
            return StepFailed(step.n, f"{query_name(step.table, step.version)} is not in the registry")
        if self._run.stopped_by_operator(step.table, step.version):
            return StepFailed(step.n, self._run.stopped_words(step.table, step.version))
        if (failed := self._run.restart_stopped_version(step, step.table, step.version)) is not None:
            return failed
        gate = self._gates[step.n]
        reading = gate.check(self._agent, deployment)
        if reading.failed:
            return StepFailed(step.n, f"{reading.note}; headgate runs retry waits again")
        return StepDone(step.n, reading.note) if reading.open else GatePolled(step.n, reading.note)

    def _open_gate(self, step: Step) -> RunEvidence:
        joined = (step.table, step.version) in self._joined
        self._gates[step.n] = CatchUpGate(opened_at=self._agent.monotonic(), must_read_all_input=joined)
        return self._run.restart_stopped_version(step, step.table, step.version) or GateOpened(
            step.n, "waiting for the first batch"
        )


def joined_whole(plan: Plan) -> frozenset[tuple[TableName, int]]:
    """Return the versions that are static sides of joins in a plan, and everything upstream of them in that plan."""
    bindings = {(node.table, node.version): node.bindings for node in plan.nodes}
    open_ = [(b.parent, b.version) for found in bindings.values() for b in found if not b.streamed]
    joined: set[tuple[TableName, int]] = set()
    while open_:
        key = open_.pop()
        if key not in joined:
            joined.add(key)
            open_ += [(b.parent, b.version) for b in bindings.get(key, ())]
    return frozenset(joined)


def _one_line(run: RunContext, step: Step, error: HeadgateError) -> str:
    summary = " ".join(error.summary.split())
    if isinstance(error, EngineRefused) and error.error_class:
        name = error.error_class
        if (deployment := run.agent.ledger.deployment(step.table, step.version)) is not None:
            retry = f"headgate runs retry {run.id[:12]}"
            name, summary = disk_error(deployment, name, retry) or (name, summary)
        summary = f"{name}: {summary}"
    return f"{summary}; {error.remedy}" if error.remedy else summary
