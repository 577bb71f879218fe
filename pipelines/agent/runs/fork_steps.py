"""Step effects that have a new version begin elsewhere than with the earliest row: fork, seed."""

from collections.abc import Mapping

from core.model.actions import Strategy
from core.model.names import physical_name, query_name
from core.model.table_formats import table_format
from core.plan.model import Step
from core.ports.storage import FolderTaken, OriginRows, SeenLog, VersionFolders
from core.run.state_machine import RunEvidence, StepDone, StepFailed
from core.text.wording import counted
from pipelines.agent.deployment_compiler import compile_before, streamed_reads, streamed_sources
from pipelines.agent.deployment_lifecycle import refuse_other_checkpoint
from pipelines.agent.runs.cloned_tables import place_before, record_cut, take_rows
from pipelines.agent.runs.open_run import OpenRun
from pipelines.agent.version_tables import register
from state.row_types import Deployment

_ROWS: Mapping[str, OriginRows] = {
    Strategy.FORK: OriginRows.INSIDE,
    Strategy.CARRY_OVER: OriginRows.LEFT,
    Strategy.CHAIN: OriginRows.BEFORE,
}


def fork(run: OpenRun, step: Step) -> RunEvidence:
    """Have the step's version go on after the newest batch of the one that serves, which may run on."""
    made, node, world = run.deployed(step), run.node(step), run.world
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    origin = world.ledger.deployment(step.table, node.from_version)
    if origin is None or origin.deleted:
        gone = physical_name(step.table, node.from_version)
        return StepFailed(step.n, f"{gone} is not there any more; plan again from the current state")
    refuse_other_checkpoint(world, origin)
    note, rows = run.folder_note(run.built(step)), _ROWS[node.strategy]
    if origin.before_ddl and rows is not OriginRows.LEFT:
        name = physical_name(step.table, node.from_version)
        return StepFailed(step.n, f"{name} has rows from before its first; plan again with another strategy")
    try:
        cut = world.files.fork(_folders(origin), _folders(made), note, rows=rows)
    except FolderTaken as error:
        return StepFailed(step.n, f"{error.summary}; plan again, under the next number")
    world.faults.pass_by("fork record")
    logged = table_format(made.format).transaction_log
    taken = take_rows(run, origin, made, cut, rows) if logged else {}
    before = _before(run, origin, made) if rows is OriginRows.BEFORE else ""
    # What the origin's checkpoint has pinned, the copy has pinned as well.
    came_of = query_name(origin.table, origin.version)
    place = f"batch {cut.batch} of {came_of}" if cut.batch is not None else ""
    world.ledger.update_deployment(
        step.table,
        step.version,
        checkpoint_id=cut.id,
        pool=origin.pool,
        before_ddl=before,
        begins_after=origin.begins_after if rows is OriginRows.INSIDE else place,
        older_rows=f"rows that came of {came_of}" if rows is OriginRows.INSIDE and place else "",
        **taken,
    )
    register(world.pool.connection(), world.layout, run.deployed(step), logs=world.files if taken else None)
    none = f"{came_of} has no batch yet: begins with the first row"
    return StepDone(step.n, f"goes on after {place}" if place else none)


def seed(run: OpenRun, step: Step) -> RunEvidence:
    """Have the step's version count every file that its sources hold now as read."""
    made, world = run.deployed(step), run.world
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    by_version = {(d.table, d.version): d for d in world.ledger.deployments()}
    sources = streamed_sources(made, streamed_reads(made), by_version)
    seen = tuple(world.files.seen(folder, format=format) if folder else () for _, _, folder, format in sources)
    # What a table with a log holds is read by a batch, and what such a batch has read is said of files as well.
    batch = 0 if any(isinstance(files, SeenLog) for files in seen) else None
    try:
        cut = world.files.seed(_folders(made), seen, run.folder_note(run.built(step)), batch=batch)
    except FolderTaken as error:
        return StepFailed(step.n, f"{error.summary}; plan again, under the next number")
    world.faults.pass_by("seed record")
    if table_format(made.format).transaction_log:
        record_cut(run, made, cut)
    files = [found for found in seen if not isinstance(found, SeenLog)]
    after = [counted(sum(map(len, files)), "file")] if files else []
    for (_, table, _, _), found in zip(sources, seen, strict=True):
        after += [f"version {found.version - 1} of {table}"] if isinstance(found, SeenLog) else []
    world.ledger.update_deployment(step.table, step.version, checkpoint_id=cut.id, begins_after=" and ".join(after))
    return StepDone(step.n, f"begins after {' and '.join(after)}")


def _before(run: OpenRun, origin: Deployment, made: Deployment) -> str:
    """Return the registration of the rows from before a version, as the version before it stores them."""
    name = run.world.layout.before_name(made.table, made.version)
    return compile_before(origin.texts, made.table, name, place_before(made))


def _folders(deployment: Deployment) -> VersionFolders:
    return VersionFolders(deployment.folder, deployment.checkpoint)
