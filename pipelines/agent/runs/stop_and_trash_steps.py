"""Steps that stop versions, let them soak, move them to the trash, or restore them from it."""

from functools import partial

from core.model.errors import HeadgateError, Refused
from core.model.events import EventCause
from core.model.names import physical_name
from core.model.states import State, WantedState
from core.observed.versions import Deployment
from core.plan.model import Step
from core.project.naming import Naming
from core.run.state_machine import RunEvidence, StepDone, StepFailed, StepKept
from pipelines.agent.checked_clock import checked_now, record_deadline, unmoved_now
from pipelines.agent.context import AgentContext
from pipelines.agent.housekeeping import BEFORE_SEAM
from pipelines.agent.runs.run_context import RunContext
from pipelines.agent.statements.deployment_lifecycle import mark_stopped
from pipelines.agent.statements.deployment_lifecycle import stop as stop_query
from pipelines.agent.tables.table_identities import forget, register_again
from state.overlay_files import overlays_reading


def stop(run: RunContext, step: Step) -> RunEvidence:
    """Stop a version, unless it serves or has readers that should be running."""
    deployment = run.deployed(step)
    if readers := run.running_readers(step):
        _stop_in(run, step, 0.0)
        return StepKept(step.n, f"keeps running: {readers} reads it")
    if deployment.active and run.plan.request.verb != "delete":
        return StepKept(step.n, "keeps running: it serves")
    # A version that cannot be moved to the trash keeps running.
    removes = run.plan.request.verb in ("delete", "retire")
    if removes and (failed := _fail_under_new_overlays(run, step, deployment)) is not None:
        return failed
    run.agent.ledger.update_deployment(step.table, step.version, wanted=WantedState.STOPPED, state=State.STOPPING)
    stop_query(run.agent, deployment)
    mark_stopped(run.agent, deployment)
    run.agent.state_event(deployment, State.STOPPED, cause=EventCause.RUN, by=run.id)
    return StepDone(step.n, _left_there(run, deployment))


def _left_there(run: RunContext, deployment: Deployment) -> str:
    if run.plan.request.verb != "rollback" or deployment.served_at is None:
        return ""
    try:
        rows = run.agent.files.rows_since(deployment.folder, deployment.format, deployment.served_at)
    except HeadgateError:
        rows = None
    name, counted = physical_name(deployment.table, deployment.version), "not counted" if rows is None else f"{rows:,}"
    return f"rows emitted by v{deployment.version} since the swap stay in {name}: {counted}"


def soak(run: RunContext, step: Step) -> RunEvidence:
    """Schedule a replaced version to be stopped after the environment's soak time."""
    found = run.deployed(step)
    if found.wanted != WantedState.RUNNING:
        return StepDone(step.n, "it does not run")
    if found.stops_at is not None:
        return StepDone(step.n, "it already runs on, and stops at the end of its soak")
    minutes = run.agent.layout.environment.soak_min
    _stop_in(run, step, minutes * 60)
    return StepDone(step.n, f"runs on for {minutes:g} min, then stops")


def _stop_in(run: RunContext, step: Step, seconds: float) -> None:
    def record(stops_at: float) -> None:
        run.agent.ledger.update_deployment(step.table, step.version, stops_at=stops_at)

    record_deadline(run.agent, seconds, record)


def move_to_trash(run: RunContext, step: Step) -> RunEvidence:
    """Stop a version and move its files to the trash.

    The step fails if a statement reads the version, if a clone uses its files, or if an overlay reads it of which the
    plan does not warn.
    """
    deployment = run.deployed(step)
    if deployment.wanted == WantedState.RUNNING and not deployment.external:
        return StepFailed(step.n, "it keeps running because something reads it; plan again from the current state")
    with run.agent.locks.deleting((step.table, step.version)):
        if readers := run.running_readers(step):
            return StepFailed(step.n, f"{readers} reads it again; stop the reader, or plan again")
        if clones := [d for d in run.agent.ledger.clones(step.table, step.version) if not d.deleted]:
            names = ", ".join(physical_name(d.table, d.version) for d in clones)
            return StepFailed(step.n, f"its files hold rows of {names}, a clone of it; rebuild {step.table} first")
        if (failed := _fail_under_new_overlays(run, step, deployment)) is not None:
            return failed
        if not deployment.external:
            # After an unconfirmed stop or the end of a soak, the desired state is stopped while the query may still
            # run.
            stop_query(run.agent, deployment)
        set_aside(run.agent, deployment)
        days = run.agent.layout.environment.drop_after_d
        return StepDone(step.n, f"files kept until {days:g} days from now")


def _fail_under_new_overlays(run: RunContext, step: Step, deployment: Deployment) -> StepFailed | None:
    """Return a failure if overlays read the version of which the plan does not warn, and None if there are none."""
    if deployment.external:
        return None
    key = deployment.table, deployment.version
    named, name = run.plan.overlays_named(*key), physical_name(*key)
    overlays = [each for each in overlays_reading(run.agent.places.home, *key) if each not in named]
    if not overlays:
        return None
    now = f"{', '.join(overlays)} now {'reads' if len(overlays) == 1 else 'read'} {name}"
    purge = f"headgate down --env {overlays[0]} --purge"
    return StepFailed(step.n, f"{now}, of which this plan does not warn: plan again, or first {purge}")


def restore(run: RunContext, step: Step) -> RunEvidence:
    """Move a version's files back from the trash, without starting the version."""
    restore_from_trash(run.agent, run.deployed(step))
    return StepDone(step.n)


DAY_S = 86400.0


def set_aside(agent: AgentContext, deployment: Deployment) -> None:
    """Remove a version's table from the catalog, and move its files to the trash for the retention period.

    The ledger is checked to be writable before anything moves; the deletion is recorded last.
    """
    layout, files = agent.layout, agent.files
    agent.ledger.heartbeat(agent.clock())
    name = layout.naming.folder(deployment.table, deployment.version)
    trash = layout.trash_folder(deployment.table, deployment.version)
    agent.pools.in_every_catalog(lambda pool: forget(pool, layout, deployment))
    files.set_aside(deployment.checkpoint, _checkpoint_in(trash, name))
    try:
        files.set_aside(deployment.folder, _table_in(trash, name))
    except HeadgateError:
        # The table stays in its folder, and the version can continue from its checkpoint.
        files.put_back(_checkpoint_in(trash, name), deployment.checkpoint)
        raise

    def record(drop_after: float) -> None:
        agent.ledger.tombstone(deployment.table, deployment.version, drop_after=drop_after, trash=trash)

    record_deadline(agent, layout.environment.drop_after_d * DAY_S, record)


def _register_everywhere(agent: AgentContext, deployment: Deployment) -> None:
    agent.pools.add_to_catalogs(lambda pool: register_again(agent, pool, deployment), needed=agent.pools.of(deployment))


def back_from_trash(agent: AgentContext, deployment: Deployment) -> None:
    """Undo a `set_aside` that the ledger does not record.

    Files that `set_aside` had not moved yet are not touched.
    """
    name = agent.layout.naming.folder(deployment.table, deployment.version)
    trash = agent.layout.trash_folder(deployment.table, deployment.version)
    agent.files.put_back(_table_in(trash, name), deployment.folder)
    agent.files.put_back(_checkpoint_in(trash, name), deployment.checkpoint)
    _register_everywhere(agent, deployment)


def back_into_trash(agent: AgentContext, deployment: Deployment) -> None:
    """Undo a `restore_from_trash` that the ledger does not record.

    Files that `restore_from_trash` had not moved yet are not touched.
    """
    for each in reversed(_with_bases(agent, deployment)):
        name = agent.layout.naming.folder(each.table, each.version)
        agent.pools.in_every_catalog(partial(forget, layout=agent.layout, deployment=each))
        agent.files.set_aside(each.checkpoint, _checkpoint_in(each.trash, name))
        agent.files.set_aside(each.folder, _table_in(each.trash, name))


def restore_from_trash(agent: AgentContext, deployment: Deployment) -> None:
    """Move a version's files back from the trash and register its table, without starting the version.

    For a clone, the versions that contain its rows are also restored. Raises Refused if the retention of any of these
    versions has expired. The ledger is written last, in one transaction, so an interrupted undelete can be repeated.
    """
    if deployment.drop_after is None:
        return
    now = checked_now(agent)
    # The rows are read after the clock check, which may have shifted their deadlines.
    taken = _with_bases(agent, deployment)
    for each in taken:
        if not each.trash or each.drop_after is None or each.drop_after <= now:
            raise Refused(
                f"the retention of {each.table} v{each.version} in the trash has expired",
                remedy=f"headgate plan {each.table} starts over",
            )
    for each in taken:
        name = agent.layout.naming.folder(each.table, each.version)
        agent.files.put_back(_table_in(each.trash, name), each.folder)
        agent.files.put_back(_checkpoint_in(each.trash, name), each.checkpoint)
        _register_everywhere(agent, each)
    agent.ledger.restore(deployment.table, [each.version for each in taken], at=agent.clock())


def _with_bases(agent: AgentContext, deployment: Deployment) -> list[Deployment]:
    """Return a version in the trash, preceded by the versions in the trash from which it was cloned."""
    found = agent.ledger.deployment(deployment.table, deployment.version)
    if found is None or found.drop_after is None:
        return []
    base = agent.ledger.deployment(found.table, found.clone_of) if found.clone_of else None
    return [*(_with_bases(agent, base) if base is not None else ()), found]


def archive_former(agent: AgentContext, deployment: Deployment) -> None:
    """Move to the trash the checkpoints that a version no longer uses after a seam or a rewrite.

    In the version's trash folder, they get a subfolder whose name is their purge time.
    """
    layout, files = agent.layout, agent.files
    beside = files.checkpoints_of_version(layout.checkpoint_folder(deployment.table, deployment.version))
    former = [found for found in beside if found != deployment.checkpoint]
    if not former:
        return
    until = unmoved_now(agent) + layout.environment.drop_after_d * DAY_S
    trash = layout.trash_folder(deployment.table, deployment.version)
    for found in former:
        files.set_aside(found, f"{trash}/{BEFORE_SEAM}/{until:.0f}/{found.rpartition('/')[2]}")


def places_of(naming: Naming, deployment: Deployment) -> tuple[str, ...]:
    """Return the current folders of a version's table and checkpoint; empty if the version is external or purged.

    `naming` is that of the version's environment.
    """
    if deployment.external or (deployment.deleted and not deployment.trash):
        return ()
    if not deployment.deleted:
        return deployment.folder, deployment.checkpoint
    name = naming.folder(deployment.table, deployment.version)
    return _table_in(deployment.trash, name), _checkpoint_in(deployment.trash, name)


def _table_in(trash: str, name: str) -> str:
    return f"{trash}/tables/{name}"


def _checkpoint_in(trash: str, name: str) -> str:
    return f"{trash}/checkpoints/{name}"
