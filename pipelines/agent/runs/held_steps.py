"""The hold before a swap: every new version goes on running, and nothing is swapped before somebody gives the word."""

from core.model.names import query_name
from core.model.states import State, WantedState
from core.plan.model import Step
from core.run.state_machine import GateOpened, GatePolled, RunEvidence, StepFailed
from pipelines.agent.runs.open_run import OpenRun


def hold(run: OpenRun, step: Step) -> RunEvidence:
    """Wait for the word; a version that an operator has stopped before a retry of the run is started again."""
    for table, version in run.versions(step):
        if (failed := run.begun_again(step, table, version)) is not None:
            return failed
    return GateOpened(step.n, _waits(run))


def look_at_held(run: OpenRun, step: Step) -> RunEvidence:
    """Fail the hold where a version that it keeps has failed or was stopped: it would not be swapped in."""
    for table, version in run.versions(step):
        deployment = run.world.ledger.deployment(table, version)
        if deployment is None:
            return StepFailed(step.n, f"{query_name(table, version)} is not in the registry")
        if run.stopped_by_operator(table, version):
            return StepFailed(step.n, run.stopped_words(table, version))
        if deployment.wanted == WantedState.STOPPED:
            # A start of what serves has ended the stop of its table, and has not started this one.
            again = f"headgate runs retry {run.id} starts it again"
            return StepFailed(step.n, f"{query_name(table, version)} is stopped, and would not be swapped in; {again}")
        if deployment.state == State.FAILED:
            why = f"{deployment.error_class} {deployment.error}".strip()
            return StepFailed(step.n, f"{query_name(table, version)} failed while it was held: {why}")
    return GatePolled(step.n, _waits(run))


def _waits(run: OpenRun) -> str:
    return f"waits for the word: headgate release swap {run.id}"
