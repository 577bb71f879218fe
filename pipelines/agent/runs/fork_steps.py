"""The steps `fork` and `seed`, which let a new version begin after rows that were already processed.

If the table has a transaction log, a fork makes a shallow clone of the earlier version's rows, and finally records the
batch number in the clone's log. A start compares this number with the checkpoint, and a repeated step concludes from it
that the clone is complete.
"""

from collections.abc import Mapping
from typing import Any

from core.changes.pinned_settings import pool_at_start
from core.model.actions import Strategy
from core.model.errors import Refused
from core.model.names import physical_name, query_name
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.plan.model import Step
from core.plan.request import COMMITTED
from core.planner.start_positions import epoch_of
from core.ports.storage import FolderTaken, OriginRows, SeenLog, SeenMessages, StartPosition, VersionFolders
from core.project.model import Pool
from core.run.state_machine import RunEvidence, StepDone, StepFailed
from core.text.wording import counted
from pipelines.agent.context import WRITE_CALL_S, AgentContext
from pipelines.agent.deployment_compiler import column_types, compile_before, streamed_reads, streamed_sources
from pipelines.agent.runs.run_context import RunContext
from pipelines.agent.statements.deployment_lifecycle import query_of, refuse_other_checkpoint

_ROWS: Mapping[str, OriginRows] = {
    Strategy.FORK: OriginRows.INSIDE,
    Strategy.CARRY_OVER: OriginRows.LEFT,
    Strategy.CHAIN: OriginRows.BEFORE,
}


def fork(run: RunContext, step: Step) -> RunEvidence:
    """Let the step's version continue after the last batch of the serving version, which may keep running."""
    made, node, agent = run.deployed(step), run.node(step), run.agent
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    origin = agent.ledger.deployment(step.table, node.from_version)
    if origin is None or origin.deleted:
        gone = physical_name(step.table, node.from_version)
        return StepFailed(step.n, f"{gone} no longer exists; plan again from the current state")
    refuse_other_checkpoint(agent, origin)
    note, rows = run.folder_note(run.compiled_version(step)), _ROWS[node.strategy]
    if origin.before_ddl and rows is not OriginRows.LEFT:
        name = physical_name(step.table, node.from_version)
        return StepFailed(step.n, f"{name} has rows from before its first; plan again with another strategy")
    try:
        start = agent.files.fork(_folders(origin), _folders(made), note, rows=rows)
    except FolderTaken as error:
        return StepFailed(step.n, f"{error.summary}; plan again, under the next number")
    agent.faults.pass_by("fork record")
    logged = table_format(made.format).transaction_log
    taken = clone_inherited_rows(run, origin, made, start, rows) if logged else {}
    before = _before(run, origin, made) if rows is OriginRows.BEFORE else ""
    # A copied checkpoint has the same pinned settings.
    came_of = query_name(origin.table, origin.version)
    place = f"batch {start.batch} of {came_of}" if start.batch is not None else ""
    begins = (place, origin.version if place else 0, start.batch)
    if rows is OriginRows.INSIDE:
        begins = (origin.begins_after, origin.begins_after_version, origin.begins_after_batch)
    agent.ledger.update_deployment(
        step.table,
        step.version,
        checkpoint_id=start.id,
        pool=_pool_of(agent, made, origin),
        before_ddl=before,
        begins_after=begins[0],
        begins_after_version=begins[1],
        begins_after_batch=begins[2],
        older_rows=f"rows from {came_of}" if rows is OriginRows.INSIDE and place else "",
        **taken,
    )
    run.register(run.deployed(step), logs=agent.files if taken else None)
    none = f"{came_of} has no batch yet: begins with the first row"
    return StepDone(step.n, f"continues after {place}" if place else none)


def _pool_of(agent: AgentContext, made: Deployment, origin: Deployment) -> Pool | None:
    """Return the pool of a fork: where it was created, with the settings that its checkpoint has from the origin."""
    if made.pool is None or origin.pool is None:
        return made.pool or origin.pool
    return pool_at_start(agent.pools.of(made).declared, origin.pool)


def seed(run: RunContext, step: Step) -> RunEvidence:
    """Create a checkpoint with which the step's version skips everything that its sources contain now."""
    made, agent = run.deployed(step), run.agent
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    by_version = {(d.table, d.version): d for d in agent.ledger.deployments()}
    sources = streamed_sources(made, streamed_reads(made), by_version)
    at = run.node(step).at
    since = epoch_of(at.removeprefix(COMMITTED)) if at.startswith(COMMITTED) else None
    if since is not None and since > agent.clock():
        return StepFailed(step.n, f"{at.removeprefix(COMMITTED)} is in the future; plan again with an earlier time")
    seen = tuple(
        agent.files.source_position(folder, format=format, since=since) if folder else ()
        for _, _, folder, format in sources
    )
    # Rows of a table with a log are read by a batch, so the batch number also covers the files of other sources.
    batch = 0 if any(isinstance(files, SeenLog) for files in seen) else None
    try:
        start = agent.files.create_checkpoint_after(
            _folders(made), seen, run.folder_note(run.compiled_version(step)), batch=batch
        )
    except FolderTaken as error:
        return StepFailed(step.n, f"{error.summary}; plan again, under the next number")
    agent.faults.pass_by("seed record")
    if table_format(made.format).transaction_log:
        record_start_position(run, made, start)
    files = [found for found in seen if isinstance(found, tuple)]
    before = "" if since is None else f" written before {at.removeprefix(COMMITTED)}"
    after = [f"{counted(sum(map(len, files)), 'file')}{before}"] if files else []
    for (_, table, _, _), found in zip(sources, seen, strict=True):
        after += [f"version {found.version - 1} of {table}"] if isinstance(found, SeenLog) else []
        until = "the newest message" if since is None else f"the messages before {at.removeprefix(COMMITTED)}"
        after += [f"{until} of {table}"] if isinstance(found, SeenMessages) else []
    agent.ledger.update_deployment(step.table, step.version, checkpoint_id=start.id, begins_after=" and ".join(after))
    return StepDone(step.n, f"begins after {' and '.join(after)}")


def _before(run: RunContext, origin: Deployment, made: Deployment) -> str:
    name = run.agent.layout.before_name(made.table, made.version)
    return compile_before(origin.texts, made.table, name, inherited_rows_location(made))


def _folders(deployment: Deployment) -> VersionFolders:
    return VersionFolders("" if deployment.writes_topic else deployment.folder, deployment.checkpoint)


CLONE_CALL_S = 120.0
"""Deadline of a clone, in seconds. The single commit of a clone lists all data files."""


def clone_inherited_rows(
    run: RunContext, origin: Deployment, made: Deployment, start: StartPosition, rows: OriginRows
) -> dict[str, Any]:
    """Clone the older rows that a version inherits, and return the registry fields to record. Idempotent."""
    if start.batch is None:
        return {}
    if _recorded(run, made, start) is None:
        if rows is not OriginRows.LEFT:
            _clone(run, origin, made, start.batch, rows)
        run.agent.faults.pass_by("fork clone")
        record_start_position(run, made, start)
    clone_of = 0 if rows is OriginRows.LEFT else origin.version
    return {"clone_of": clone_of, "table_id": run.agent.files.identity(made.folder, made.format)}


def record_start_position(run: RunContext, made: Deployment, start: StartPosition) -> None:
    """Record in the transaction log of a version's table the batch after which the version's checkpoint continues."""
    if start.batch is None or _recorded(run, made, start) is not None:
        return
    pool, place = run.agent.pools.of(made).connection(), table_format(made.format).place_in(made.folder)
    pool.call(WRITE_CALL_S, pool.tables.record_batch, place, start.id, start.batch)


def inherited_rows_location(made: Deployment) -> str:
    """Return the location of a version's second table, whose older rows are served together with the version's own."""
    return table_format(made.format).place_in(VersionFolders(made.folder, made.checkpoint).before)


def _recorded(run: RunContext, made: Deployment, start: StartPosition) -> int | None:
    return run.agent.files.sink_batch(made.folder, format=made.format, query=start.id)


def _clone(run: RunContext, origin: Deployment, made: Deployment, batch: int, rows: OriginRows) -> None:
    agent, layout, format = run.agent, run.agent.layout, table_format(origin.format)
    name = query_name(origin.table, origin.version)
    version = agent.files.written_version(origin.folder, query_of(agent, origin), batch)
    if version is None:
        raise Refused(
            f"the log of {name} no longer distinguishes batch {batch} from later ones", remedy="choose another strategy"
        )
    if lost := agent.files.lost_files(origin.folder, version):
        # Delta clones file names without checking the files (4.4.0): reading the clone would fail.
        raise Refused(
            f"{counted(len(lost), 'file')} of {name} {'is' if len(lost) == 1 else 'are'} not there, such as "
            f"{lost[0]}: neither it nor a clone of it can be read",
            remedy=f"restore them, or headgate plan {origin.table} --rebuild",
        )
    pool, source = agent.pools.of(made).connection(), format.place_in(origin.folder)
    if rows is OriginRows.BEFORE:
        name, place = layout.before_name(made.table, made.version), inherited_rows_location(made)
    else:
        name, place = layout.catalog_name(made.table, made.version), table_format(made.format).place_in(made.folder)
    pool.call(CLONE_CALL_S, pool.tables.clone, name, source, version, place)
    # A catalog that was filled after the clone was created lacks the clone, whose table id differs from that of the
    # empty table.
    pool.call(
        WRITE_CALL_S, pool.tables.create, name, compile_before(origin.texts, made.table, name, place), exists=True
    )
    if rows is OriginRows.INSIDE:
        columns = column_types(made.texts, made.table)
        pool.call(WRITE_CALL_S, pool.tables.add_columns, name, columns)
        pool.call(WRITE_CALL_S, pool.tables.widen_columns, name, columns, format.widening_property)
