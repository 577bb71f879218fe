"""Drives open runs step by step, each in its own thread. A new agent resumes open runs.

`core.run.state_machine` derives the next step from the ledger and the result of the last step.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar, assert_never

from core.model.actions import StepKind
from core.model.errors import OUTAGES, HeadgateError, LedgerUnavailable, TryAgain, UsageError
from core.model.events import EventKind
from core.observed.versions import Deployment
from core.plan.codec import plan_from_json
from core.plan.descriptions import act_words
from core.plan.model import Plan, Step
from core.run.model import OperatorControl, Run, RunState, StepProgress, StepState
from core.run.records import RunRow, StepRow
from core.run.release import replaced_nodes
from core.run.state_machine import (
    AbortVersions,
    GatePolled,
    PerformStep,
    PollGate,
    RunEvidence,
    StepFailed,
    StepPutOff,
    advance_run,
    recover_run,
    skip_must_wait,
)
from core.run.stopped_statement_sentences import staying_words
from core.text.wording import without_numbers
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.cancelled_run_cleanup import abort, call_off_starts, give_up, stop_failed, undo_cancelled
from pipelines.agent.runs.run_ends import end_of, end_unexecutable, late_command_events
from pipelines.agent.runs.step_executor import StepExecutor
from state.row_types import AuditRow, EventRow
from state.runs import RunCommandRow, control_of

log = logging.getLogger(__name__)

T = TypeVar("T")

_ENDED = (RunState.DONE, RunState.FAILED, RunState.CANCELLED)

POLL_S = 1.0
"""Seconds between two checks of a run's gates."""

POOL_WAIT_S = 900.0
"""Longest time, in seconds, that a step is retried while pool or store are unreachable. After that, it fails."""


class OpenRuns:
    """Drives all open runs.

    Commands reach a run through the ledger, even while the run waits at a gate.
    """

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._woken: dict[str, threading.Event] = {}
        """Events by run id, set when the ledger may contain commands that the run has not read."""
        self._broken: set[str] = set()
        """Runs that are stuck on an internal error; a new command or a new agent resumes them."""
        self._lock = threading.Lock()

    def resume_open(self) -> None:
        """Resume runs that are open or have pending commands, unless they are stuck on an internal error."""
        left = [row.id for row in self._agent.ledger.open_runs()]
        for run_id in (*left, *self._agent.ledger.runs_with_commands()):
            if run_id not in self._broken:
                self.drive(run_id)

    def drive(self, run_id: str) -> None:
        """Start a thread that executes a run, unless the run has one."""
        with self._lock:
            if run_id not in self._woken:
                self._begin(run_id, threading.Event())

    def submit_command(self, run_id: str, command: OperatorControl) -> None:
        """Record an operator's command, then wake the run.

        If the command cannot be recorded, it has no effect, and the error is raised.
        """
        self._agent.ledger.put_run_command(
            run_id, command, at=self._agent.clock(), drawn=self._agent.locks.newest_serial()
        )
        self.wake(run_id)

    def wake(self, run_id: str) -> None:
        """Make a run read new commands from the ledger; resume the run if it has no thread."""
        with self._lock:
            self._broken.discard(run_id)
            woken = self._woken.get(run_id) or threading.Event()
            woken.set()
            if run_id not in self._woken:
                self._begin(run_id, woken)

    def _begin(self, run_id: str, woken: threading.Event) -> None:
        self._woken[run_id] = woken
        threading.Thread(target=self._drive, args=(run_id, woken), name=f"run {run_id}", daemon=True).start()

    def _drive(self, run_id: str, woken: threading.Event) -> None:
        try:
            while not self._agent.stopping.is_set():
                # The commands that woke the run are in the ledger, which is read below.
                woken.clear()
                try:
                    self._drive_or_end(run_id, woken)
                    break
                except TryAgain as error:
                    log.warning("run %s waits: %s", run_id, error.summary)
                    self._agent.stopping.wait(POLL_S)
        except Exception as error:
            log.exception("run %s ended early", run_id)
            self._stand_still(run_id, woken, error)
        finally:
            with self._lock:
                del self._woken[run_id]
                if woken.is_set() and not self._agent.stopping.is_set():
                    # A command that arrived while the run was ending resumes it once more.
                    self._begin(run_id, woken)

    def _stand_still(self, run_id: str, woken: threading.Event, error: Exception) -> None:
        """Record that a run is stuck on an internal error, and prevent later rounds from resuming it.

        If a command has arrived since the error, the run is resumed once more. If the ledger is unavailable, the run is
        resumed in the next round.
        """
        if woken.is_set():
            return
        summary = f"run {run_id} is stuck: the agent failed unexpectedly on it ({type(error).__name__})"
        helps = f"headgate runs cancel {run_id} resumes it, and so does a new agent"
        try:
            self._agent.event(EventKind.RUN, summary, detail=f"{helps}; headgate logs agent has the error")
        except LedgerUnavailable as unavailable:
            log.warning("it is recorded later that run %s is stuck: %s", run_id, unavailable.summary)
            return
        with self._lock:
            if not woken.is_set():
                self._broken.add(run_id)

    def _drive_or_end(self, run_id: str, woken: threading.Event) -> None:
        """Drive a run, or end it if this Headgate version cannot execute it, so that it is not resumed every second."""
        row = self._agent.ledger.run(run_id)
        assert row is not None, f"run {run_id} is not in the ledger"
        try:
            RunDriver(self._agent, row, woken).drive()
        except TryAgain:
            raise
        except Exception as error:
            why = error.summary if isinstance(error, HeadgateError) else f"unexpectedly ({type(error).__name__})"
            log.error("run %s cannot be executed", run_id, exc_info=error)
            commands = self._agent.ledger.run_commands(run_id)
            end_unexecutable(self._agent, row, f"the agent cannot execute this run: {why}", commands)


class RunDriver:
    """The main loop of a run: performs steps, derives the next steps from their results, and records both."""

    def __init__(self, agent: AgentContext, row: RunRow, woken: threading.Event) -> None:
        """Load a run and its plan. Raises UsageError if the plan is missing or this Headgate version cannot read it."""
        self._agent = agent
        self._woken = woken
        self._row = row
        found = self._agent.ledger.plan(row.plan_hash)
        if found is None:
            raise UsageError("its plan is not in the ledger", remedy=f"headgate runs cancel {row.id}")
        self._plan: Plan = plan_from_json(json.loads(found.body))
        self._executor = StepExecutor(agent, self._plan, row.id)
        self._run = run_of(row, self._plan)

    def drive(self) -> None:
        try:
            self._drive()
        finally:
            self._executor.end_waits()

    def _drive(self) -> None:
        self._put(recover_run(self._with_recorded_swaps()))
        evidence: list[RunEvidence] = []
        while not self._agent.stopping.is_set() and self._goes_on():
            self._woken.clear()
            waiting = self._retrying(self._waiting)
            # Commands that must wait stay pending until they can be carried out.
            heard = tuple(command for command in waiting if not skip_must_wait(self._run, control_of(command)))
            if any(command.act == "retry" for command in heard):
                self._retrying(partial(stop_failed, self._agent, self._row))
            run, intents = advance_run(self._run, [*evidence, *map(control_of, heard)])
            given_up: tuple[Deployment, ...] = ()
            if run.state is RunState.CANCELLED and self._run.state is not RunState.CANCELLED:
                # Recorded before the run is closed, so that the reconciler finds these versions if the agent dies in
                # between.
                since = next(command.statement_serial for command in heard if command.act == "cancel")
                for intent in intents:
                    if isinstance(intent, AbortVersions):
                        given_up += self._retrying(partial(give_up, self._agent, intent.versions, since=since))
                self._retrying(partial(call_off_starts, self._agent, self._row))
                self._retrying(partial(undo_cancelled, self._agent, run))
            if not self._put(run, heard):
                continue
            self._executor.end_waits({p.step.n for p in run.steps if p.state is StepState.GATE})
            evidence = []
            for intent in intents:
                match intent:
                    case PerformStep(step):
                        evidence.append(self._perform(step))
                    case PollGate(step):
                        evidence.append(self._poll(step))
                    case AbortVersions():
                        abort(self._agent, self._run.id, given_up)
                    case _:
                        assert_never(intent)
            if self._run.state in _ENDED and heard == waiting and not self._woken.is_set():
                return
            has_performed = any(isinstance(intent, PerformStep) for intent in intents)
            if heard != waiting if self._run.state in _ENDED else not has_performed:
                self._wait()

    def _goes_on(self) -> bool:
        """True if the run may continue according to the ledger. A run that was retried is reloaded first.

        A run may have been ended, for example by an adoption because its tables had changed.
        """
        row = self._read()
        if row.state != self._row.state:
            if row.ended_at is not None:
                log.warning("run %s was ended meanwhile: it is %s", row.id, row.state)
                if self._retrying(self._waiting):
                    # The pending commands were sent to the run after it had ended; it is resumed to handle them.
                    self._woken.set()
                return False
            # A retry is recorded before its command is read, so nothing that this driver started is in progress.
            self._run = run_of(row, self._plan)
        self._row = row
        return True

    def _read(self) -> RunRow:
        found = self._retrying(lambda: self._agent.ledger.run(self._row.id))
        assert found is not None, "a run is forgotten long after it has ended"
        return found

    def _with_recorded_swaps(self) -> Run:
        """Mark as done the swaps that are recorded in the ledger, so that a cancel does not undo them."""
        run = self._run
        for progress in (p for p in run.steps if p.state in (StepState.RUNNING, StepState.GATE)):
            if (found := self._executor.recorded(progress.step)) is not None:
                run = run.put(progress.become(StepState.DONE, found.note))
        return run

    def _waiting(self) -> tuple[RunCommandRow, ...]:
        return self._agent.ledger.run_commands(self._row.id)

    def _wait(self) -> None:
        self._woken.wait(POLL_S)

    def _perform(self, step: Step) -> RunEvidence:
        """Perform a step. While pool or store are unreachable, retry for `POOL_WAIT_S` seconds, then fail the step.

        The step's note gives the reason for the wait. A pause or cancel that arrives between attempts postpones the
        step. Waiting for the ledger has no time limit, because even a failure must be recorded in the ledger; after the
        wait, the step gets one more attempt.
        """
        until, said, last = self._agent.monotonic() + POOL_WAIT_S, "", False
        while True:
            if self._agent.stopping.is_set():
                return StepPutOff(step.n, said)
            try:
                if any(command.act in ("pause", "cancel") for command in self._waiting()):
                    return self._left(step, StepPutOff(step.n, f"not done yet: {said}" if said else ""))
                self._agent.faults.pass_by(f"effect {step.n} {step.do}")
                evidence = self._executor.perform(step)
                self._agent.faults.pass_by(f"evidence {step.n} {step.do}")
                return evidence
            except OUTAGES as error:
                if last:
                    return self._left(step, StepFailed(step.n, error.summary))
                if (news := without_numbers(error.summary)) != said:
                    log.info("step %s waits: %s", step.n, error.summary)
                    if not isinstance(error, LedgerUnavailable):
                        self._note(step, f"waits: {error.sentence}")
                said = news
                if self._agent.monotonic() > until:
                    self._retrying(lambda: self._agent.ledger.heartbeat(self._agent.clock()))
                    last = True
                else:
                    self._agent.stopping.wait(POLL_S)
            except Exception as error:
                return self._left(step, _unforeseen(step, error))

    def _note(self, step: Step, note: str) -> None:
        progress = next(p for p in self._run.steps if p.step.n == step.n)
        self._put(self._run.put(replace(progress, note=note)))

    def _left(self, step: Step, found: RunEvidence) -> RunEvidence:
        """Abandon a step; return the evidence of its swap if the ledger records the swap, and otherwise `found`."""
        return self._retrying(partial(self._executor.abandon, step)) or found

    def _poll(self, step: Step) -> RunEvidence:
        # If pool, store or ledger are unreachable, the gate keeps waiting until the next check.
        try:
            return self._executor.poll(step)
        except OUTAGES as error:
            found = self._retrying(partial(self._executor.recorded, step))
            return found or GatePolled(step.n, f"waits: {error.summary}")
        except Exception as error:
            return self._left(step, _unforeseen(step, error))

    def _put(self, run: Run, heard: Iterable[RunCommandRow] = ()) -> bool:
        """Record changed steps, executed commands and their events before acting on the changes.

        Waits for the ledger. Returns False, without writing, if the run was ended or retried in the meantime.
        """
        before = {step.n: step for step in self._row.steps}
        changed = [p for p in run.steps if _differs(p, before.get(p.step.n))]
        rows = [self._row_of(progress, before.get(progress.step.n)) for progress in changed]
        moved = [
            f"{row.n} {row.do} {row.state}" for row in rows if row.n not in before or before[row.n].state != row.state
        ]
        now, after = self._agent.clock(), replace(self._row, state=run.state.value)
        told: list[EventRow | AuditRow] = [*late_command_events(self._run, run, heard, now)]
        if after.state != self._row.state:
            after = replace(after, ended_at=now if run.state in _ENDED else None)
            told += end_of(after, now, self._how_it_ended(run)) if run.state in _ENDED else ()
        for label in moved:
            self._agent.faults.pass_by(f"before {label}")
        written = True
        serials = tuple(command.serial for command in heard)
        if rows or serials or after.state != self._row.state:
            written = self._retrying(
                lambda: self._agent.ledger.advance_run(
                    run.id,
                    was=self._row.state,
                    state=after.state,
                    ended_at=after.ended_at,
                    steps=rows,
                    heard=serials,
                    told=told,
                )
            )
        if not written:
            return False
        for label in moved:
            self._agent.faults.pass_by(f"after {label}")
        steps = {**before, **{row.n: row for row in rows}}
        self._row = replace(after, steps=tuple(steps.values()))
        self._run = run
        return True

    def _row_of(self, progress: StepProgress, before: StepRow | None) -> StepRow:
        now = self._agent.clock()
        runs = progress.state is StepState.RUNNING
        begun = runs and (before is None or (before.state, before.tries) != (progress.state.value, progress.tries))
        ended = progress.state not in (StepState.RUNNING, StepState.GATE, StepState.WAITS)
        return StepRow(
            n=progress.step.n,
            do=progress.step.do.value,
            table=progress.step.table,
            version=progress.step.version,
            state=progress.state.value,
            tries=progress.tries,
            note=progress.note,
            started_at=now if begun else (before.started_at if before else None),
            ended_at=now if ended else None,
            intent_at=now if begun else (before.intent_at if before else None),
        )

    def _retrying(self, act: Callable[[], T]) -> T:
        while True:
            try:
                return act()
            except LedgerUnavailable as error:
                log.warning("the run is waiting for the ledger: %s", error.summary)
                if self._agent.stopping.wait(POLL_S):
                    raise

    def _how_it_ended(self, run: Run) -> str:
        if run.state is not RunState.CANCELLED:
            failed = [p for p in run.steps if p.state is StepState.FAILED]
            return "; ".join(f"{act_words(p.step.do)} {p.step.table}: {p.note}" for p in failed)
        # Versions given up by the cancel are already recorded as to be stopped.
        every = self._retrying(self._agent.ledger.deployments)
        swapped = any(p.step.do is StepKind.SWAP and p.state is StepState.DONE for p in run.steps)
        replaced = {(node.table, node.from_version) for node in replaced_nodes(self._plan)} if swapped else set()
        return staying_words(every, {p.step.table for p in run.steps}, replaced)


def run_of(row: RunRow, plan: Plan) -> Run:
    """Build a `Run` from its row and the steps of its plan."""
    rows = {step.n: step for step in row.steps}
    steps = tuple(
        StepProgress(step, StepState(rows[step.n].state), rows[step.n].tries, rows[step.n].note)
        if step.n in rows
        else StepProgress(step)
        for step in plan.steps
    )
    return Run(row.id, RunState(row.state), steps)


def _unforeseen(step: Step, error: Exception) -> StepFailed:
    # If the error ended the thread instead, the run would be resumed forever.
    log.error("step %s %s failed unexpectedly", step.n, step.do, exc_info=error)
    return StepFailed(
        step.n, f"the agent failed unexpectedly on this step ({type(error).__name__}); see headgate logs agent"
    )


def _differs(progress: StepProgress, row: StepRow | None) -> bool:
    if row is None:
        return True
    return (progress.state.value, progress.tries, progress.note) != (row.state, row.tries, row.note)
