"""Step effects that end versions or bring them back: stop, soak, into the trash, out of it."""

from core.model.errors import HeadgateError
from core.model.events import EventCause
from core.model.names import physical_name
from core.model.states import State, WantedState
from core.observed.versions import Deployment
from core.plan.model import Step
from core.run.state_machine import RunEvidence, StepDone, StepFailed, StepKept
from pipelines.agent.housekeeping.trash_purge import record_deadline
from pipelines.agent.runs.run_context import RunContext
from pipelines.agent.runs.trash_moves import set_aside, take_out
from pipelines.agent.statements.deployment_lifecycle import mark_stopped
from pipelines.agent.statements.deployment_lifecycle import stop as stop_query


def stop(run: RunContext, step: Step) -> RunEvidence:
    """Stop a version that nothing needs any more."""
    deployment = run.deployed(step)
    if readers := run.running_readers(step):
        _stop_in(run, step, 0.0)
        return StepKept(step.n, f"keeps running: {readers} reads it")
    if deployment.active and run.plan.request.verb != "delete":
        return StepKept(step.n, "keeps running: it serves")
    run.agent.ledger.update_deployment(step.table, step.version, wanted=WantedState.STOPPED, state=State.STOPPING)
    stop_query(run.agent, deployment)
    mark_stopped(run.agent, deployment)
    run.agent.state_event(deployment, State.STOPPED, cause=EventCause.RUN, by=run.id)
    return StepDone(step.n, _left_there(run, deployment))


def _left_there(run: RunContext, deployment: Deployment) -> str:
    """Return how many rows stay in a version that a rollback takes out of service; empty for any other stop."""
    if run.plan.request.verb != "rollback" or deployment.served_at is None:
        return ""
    try:
        rows = run.agent.files.rows_since(deployment.folder, deployment.format, deployment.served_at)
    except HeadgateError:
        rows = None
    name, counted = physical_name(deployment.table, deployment.version), "not counted" if rows is None else f"{rows:,}"
    return f"rows emitted by v{deployment.version} since the swap stay in {name}: {counted}"


def soak(run: RunContext, step: Step) -> RunEvidence:
    """Have a version that was replaced run on for a while."""
    found = run.deployed(step)
    if found.wanted != WantedState.RUNNING:
        return StepDone(step.n, "it does not run")
    if found.stops_at is not None:
        return StepDone(step.n, "it runs on already, and stops when its time is over")
    minutes = run.agent.layout.environment.soak_min
    _stop_in(run, step, minutes * 60)
    return StepDone(step.n, f"runs on for {minutes:g} min, then it stops")


def _stop_in(run: RunContext, step: Step, seconds: float) -> None:
    def record(stops_at: float) -> None:
        run.agent.ledger.update_deployment(step.table, step.version, stops_at=stops_at)

    record_deadline(run.agent, seconds, record)


def tombstone(run: RunContext, step: Step) -> RunEvidence:
    """Move a version that nothing reads into the trash."""
    deployment = run.deployed(step)
    if deployment.wanted == WantedState.RUNNING and not deployment.external:
        return StepFailed(step.n, "it keeps running because something reads it; plan again from the current state")
    with run.agent.locks.deleting((step.table, step.version)):
        if readers := run.running_readers(step):
            return StepFailed(step.n, f"{readers} reads it again; stop the reader, or plan again")
        if clones := [d for d in run.agent.ledger.clones(step.table, step.version) if not d.deleted]:
            names = ", ".join(physical_name(d.table, d.version) for d in clones)
            return StepFailed(step.n, f"its files hold rows of {names}, a clone of it; rebuild {step.table} first")
        if not deployment.external:
            # A stop that was sent, or the end of a soak, is wanted before the query is gone.
            stop_query(run.agent, deployment)
        set_aside(run.agent, deployment)
        days = run.agent.layout.environment.drop_after_d
        return StepDone(step.n, f"files kept until {days:g} days from now")


def restore(run: RunContext, step: Step) -> RunEvidence:
    """Take a version out of the trash."""
    take_out(run.agent, run.deployed(step))
    return StepDone(step.n)
