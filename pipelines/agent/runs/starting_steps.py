"""Steps `register`, `create`, `start`, `restart`, `alter` and `record`, and the check that a start has succeeded."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from core.changes.pinned_settings import pool_at_start
from core.model.errors import HeadgateError, LedgerUnavailable, PoolUnreachable, TryAgain
from core.model.events import EventKind
from core.model.names import query_name
from core.model.states import AT_REST, State, WantedState
from core.model.table_formats import table_format
from core.observed.cluster import PoolGone
from core.observed.cluster_manager import ManagerWord
from core.observed.versions import Deployment
from core.plan.model import Step
from core.ports.storage import FolderTaken
from core.run.state_machine import GateOpened, GatePolled, RunEvidence, StepDone, StepFailed
from core.sql.statement import read_log_start
from core.text.sentence import Fact, Sentence
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext, AgentPool, PoolConnection
from pipelines.agent.deployment_compiler import column_types, streamed_reads, tracks_schemas
from pipelines.agent.runs.run_context import RunContext
from pipelines.agent.runs.stop_and_trash_steps import archive_former
from pipelines.agent.statements.deployment_lifecycle import pause, refuse_start, stop
from pipelines.agent.tables.database_copies import first_copy
from pipelines.agent.tables.external_inputs import note_on_columns, refuse_input_unlike, refuse_unlike_schemas
from pipelines.agent.tables.replication_slots import create_slots
from pipelines.agent.tables.table_identities import refuse_missing_topic, takes_changes
from pipelines.spark_connect.call_deadlines import in_threads

PENDING = "started, first batch pending"
"""Note of a started query that has neither committed a batch nor completed a trigger without input."""


def register(run: RunContext, step: Step) -> RunEvidence:
    """Add an external table to the catalog and to the registry."""
    planned = run.compiled_version(step)
    logs, id, format = None, "", table_format(planned.format)
    # Not before the pool answers, because a database or a registry may be asked in vain.
    run.agent.pools.default.connection()
    if format.database or format.changes:
        refuse_input_unlike(run.agent, planned)
    if format.topics:
        refuse_unlike_schemas(run.agent, planned)
    if format.transaction_log:
        # If the DDL lists columns, or the log is missing, Spark would create a table in a folder that others own (Delta
        # 4.4.0).
        refuse_input_unlike(run.agent, planned)
        logs, id = run.agent.files, run.agent.files.identity(planned.folder, planned.stored_as)
    before = run.agent.ledger.deployment(step.table, 0)
    if format.topics and before is not None and before.table_id:
        id = run.agent.files.identity(planned.folder, planned.format)
        if id != before.table_id:
            why = f"{step.table} has other topics than those that are registered: {id or 'one does not exist'}"
            return StepFailed(step.n, f"{why}, not {before.table_id}; declare them under another name")
    running = replace(planned, state=State.RUNNING, recorded=before.recorded if before else 0, table_id=id)
    if format.database:
        running = replace(running, started_at=first_copy(run.agent, running, run.folder_note(planned)))
    run.register(planned, logs=logs)
    run.agent.ledger.put_deployment(running)
    return StepDone(step.n, note_on_columns(planned))


def create(run: RunContext, step: Step) -> RunEvidence:
    """Create a version's table and its empty checkpoint."""
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    planned = run.compiled_version(step)
    if why := _why_not_begun(run, planned):
        return StepFailed(step.n, f"{why}; nothing was created: plan again")
    refuse_missing_topic(run.agent, planned)
    note = run.folder_note(planned)
    try:
        run.agent.files.prepare(planned.folder, note)
        run.agent.files.prepare(planned.checkpoint, note)
    except FolderTaken as error:
        run.agent.ledger.block_version_number(step.table, step.version)
        return StepFailed(step.n, f"{error.summary}; nothing was written there: plan again, under the next number")
    run.register(planned)
    if run.agent.ledger.deployment(step.table, step.version) is None:
        made = "" if planned.writes_topic else run.agent.files.identity(planned.folder, planned.format)
        # The id is recorded before the first start, so that a kill in between cannot give the version two ids.
        row = replace(planned, made_by=run.id, table_id=made, version_id=str(uuid.uuid4()))
        run.agent.ledger.put_deployment(row)
    create_slots(run.agent, planned)
    return StepDone(step.n)


def _why_not_begun(run: RunContext, planned: Deployment) -> Sentence | None:
    starts = [start for start in map(read_log_start, planned.begins_where) if start is not None]
    if not starts or run.agent.ledger.deployment(planned.table, planned.version) is not None:
        return None
    versions = {b.parent: b.version for b in planned.bindings if b.streamed}
    reads = {read.table: read for read in streamed_reads(planned)}
    for start in starts:
        parent = run.agent.ledger.deployment(start.table, versions[start.table])
        if parent is None:
            return Sentence(f"{start.table} is not there")
        takes = {"takes_changes": takes_changes(reads[start.table]), "tracked": tracks_schemas(planned)}
        if why := run.agent.files.why_not_from(parent.folder, parent.stored_as, start, **takes):
            return why
    return None


def start(run: RunContext, step: Step) -> RunEvidence:
    """Start a version, unless an operator has stopped it during this run."""
    found = run.start_unless_stopped(step)
    return found if isinstance(found, StepFailed) else GateOpened(step.n, PENDING)


def restart(run: RunContext, step: Step) -> RunEvidence:
    """Restart a version with the new SQL from the same checkpoint."""

    def take_over(deployment: Deployment) -> bool:
        planned = run.compiled_version(step)
        to = _other_pool(run.agent, deployment, planned)
        moved: dict[str, Any] = {} if to is None else {"pool": pool_at_start(to.declared, deployment.pool)}
        after = replace(deployment, **_texts(planned), **moved)
        stops = run.agent.locks.stops((step.table, step.version))
        refuse_start(run.agent, after, stops=stops, cancelled=run.is_cancelled)
        if to is None:
            stop(run.agent, deployment)
        else:
            _leave_pool(run, deployment, to)
        take_over_texts(run, step, **moved)
        if to is not None:
            run.agent.faults.pass_by(f"move record {step.table}")
        return deployment.state not in AT_REST

    deployment = run.start_unless_stopped(step, take_over)
    if isinstance(deployment, StepFailed):
        return deployment
    # An unreadable checkpoint only leaves out the note, because the version is already running.
    with suppress(TryAgain):
        checkpoint = run.agent.files.read(deployment.checkpoint)
        seam = f"seam after batch {checkpoint.batch}" if checkpoint and checkpoint.batch is not None else "no batch yet"
        run.continuation_notes[step.n] = f"{seam}; "
    return GateOpened(step.n, f"{run.continuation_notes.get(step.n, '')}{PENDING}")


def _other_pool(agent: AgentContext, deployment: Deployment, planned: Deployment) -> AgentPool | None:
    """Return the pool to which a version moves; None if it stays where it is. A single pool takes all statements."""
    if planned.pool is None or agent.pools.of(deployment) is agent.pools.of(planned):
        return None
    return agent.pools.of(planned)


def _leave_pool(run: RunContext, deployment: Deployment, to: AgentPool) -> None:
    """Stop a version that moves to another pool, and prove that its query is gone from the old one.

    Until the ledger names the new pool, in one write after this, whoever starts the version starts it in the old one.
    Raises PoolUnreachable if the old pool does not answer and is not known to be gone, and TryAgain if the query is
    still there.
    """
    agent, old, name = run.agent, run.agent.pools.of(deployment), query_name(deployment.table, deployment.version)
    agent.faults.pass_by(f"move begins {deployment.table}")
    stays = f"{name} does not move to {to.name}: its query in the pool {old.name} must be proved to be gone first"
    try:
        stop(agent, deployment)
        agent.faults.pass_by(f"move stopped {deployment.table}")
        pool = old.connection_for_stops()
        queries = pool.call(READ_CALL_S, pool.queries.active)
    except PoolUnreachable as error:
        gone = why_gone(run, old, stays)
        if gone is None:
            remedy = f"headgate pool show {old.name}; cancel the run to leave it there"
            raise PoolUnreachable(f"{stays}, and {error.summary}", remedy=remedy) from error
        _refuse_commits(run, deployment, stays)
        agent.faults.pass_by(f"move proved {deployment.table}")
        summary = f"taken from the pool {old.name}, of which nothing runs: {gone}; it continues in {to.name}, by run"
        agent.event(EventKind.STATE, f"{summary} {run.id}", about=(deployment.table, deployment.version), run=run.id)
        return
    if any(each.active and (each.name == name or each.run_id == deployment.run_id) for each in queries):
        raise TryAgain(f"{stays}, and it still runs after its stop", remedy=f"headgate logs pool {old.name}")
    agent.faults.pass_by(f"move proved {deployment.table}")
    summary = f"stopped in the pool {old.name}, where its query is gone; it continues in {to.name}, by run {run.id}"
    agent.event(EventKind.STATE, summary, about=(deployment.table, deployment.version), run=run.id)


def why_gone(run: RunContext, pool: AgentPool, stays: str) -> Fact[PoolGone] | None:
    """Return why nothing of a pool that cannot be asked runs any more; None if nobody knows.

    Raises TryAgain, which begins with `stays`, if the manager of its cluster contradicts whoever stated that.
    """
    if not pool.client.holds_catalog:
        return PoolGone.ENDED.of()
    row, asked = run.agent.ledger.run(run.id), run.plan.request
    if asked.lost and asked.drains == pool.name and row is not None:
        word = pool.client.manager_word()
        if word is not None and word.kind is ManagerWord.RUNS:
            raise TryAgain(f"{stays}, and {word}", remedy=str(word.remedy))
        if word is not None and word.kind is ManagerWord.ENDED:
            return PoolGone.CONFIRMED.of(by=row.actor, word=word)
        return PoolGone.STATED.of(by=row.actor)
    return None


def _refuse_commits(run: RunContext, deployment: Deployment, stays: str) -> None:
    """Raise TryAgain if the checkpoint shows a batch from after the run began, so that a query goes on somewhere."""
    found, row = run.agent.files.read(deployment.checkpoint), run.agent.ledger.run(run.id)
    if found is None or found.committed_at is None or row is None:
        return
    # Commits are dated by the clock of their store, which may differ from the agent's.
    began_at = row.started_at + run.agent.files.file_clock(deployment.checkpoint) - run.agent.clock()
    if found.committed_at <= began_at:
        return
    raise TryAgain(
        f"{stays}, but batch {found.batch} was committed after the run began: a query goes on",
        remedy="end the server of that pool where it runs, or cancel the run to leave the statement there",
    )


def begin_moved(run: RunContext, step: Step) -> Deployment | StepFailed:
    """Start a version from its recorded checkpoint, then move its former checkpoints to the trash.

    The start comes first: while the version's query is running, Spark refuses a delayed start with the same name on a
    former checkpoint. If checkpoints cannot be moved, an event is recorded and the step does not fail.
    """
    begun = run.start_unless_stopped(step, after_stop=True)
    try:
        archive_former(run.agent, run.deployed(step))
    except LedgerUnavailable:
        raise
    except HeadgateError as error:
        about = (step.table, step.version)
        summary = f"the former checkpoints of {query_name(*about)} are not in the trash"
        run.agent.event(EventKind.STATE, summary, about=about, detail=error.sentence)
    return begun


def check_started(run: RunContext, step: Step) -> RunEvidence:
    """Check whether a start has succeeded, as shown by a committed batch or by a trigger without input."""
    deployment, note = run.deployed(step), run.continuation_notes.get(step.n, "")
    if deployment.state == State.FAILED:
        return StepFailed(step.n, f"{deployment.error_class}: {deployment.error}".removeprefix(": "))
    if deployment.state == State.RUNNING:
        return StepDone(step.n, note.removesuffix("; "))
    if run.stopped_by_operator(step.table, step.version):
        return StepFailed(step.n, run.stopped_words(step.table, step.version))
    # A retry, or a start of the serving version, has ended the stop without starting this version.
    if (failed := run.restart_stopped_version(step, step.table, step.version)) is not None:
        return failed
    late = f": {deployment.error}" if deployment.state == State.DEGRADED else ""
    return GatePolled(step.n, f"{note}{PENDING}{late}")


def alter(run: RunContext, step: Step) -> RunEvidence:
    """Add new columns and wider types to a table, its folder note and its registry row.

    Affected queries are paused for the change. Changes that have already been made are not repeated.
    """
    node = run.node(step)
    name = run.agent.layout.catalog_name(step.table, step.version)
    columns = column_types(node.texts, step.table)
    planned = run.compiled_version(step)
    format = table_format(planned.format)
    before = dict(column_types(node.old, step.table)) if node.old.ddl else {}
    retyped = any(before.get(column, kind) != kind for column, kind in columns)
    pauses = format.added_column_stops_readers
    with paused_readers(run, step, static_too=retyped) if pauses else nullcontext(()) as stopped:
        run.agent.faults.pass_by("alter stopped")
        run.agent.pools.in_every_catalog(partial(_add_columns, name, columns, format.widening_property))
        run.agent.faults.pass_by("alter done")
        if not planned.external:
            run.agent.files.note(planned.folder, run.folder_note(planned))
        changes = {"compiled_ddl": planned.compiled_ddl, "columns": planned.columns}
        run.agent.ledger.update_deployment(step.table, step.version, **changes)
    return StepDone(step.n, f"stopped for it: {', '.join(stopped)}" if stopped else "")


def _add_columns(name: str, columns: tuple[tuple[str, str], ...], widening_property: str, pool: PoolConnection) -> None:
    pool.call(WRITE_CALL_S, pool.tables.add_columns, name, columns)
    if widening_property:
        pool.call(WRITE_CALL_S, pool.tables.widen_columns, name, columns, widening_property)


def take_over_texts(run: RunContext, step: Step, **more: Any) -> None:
    """Write the step's new SQL and YAML, and the fields in `more`, to the registry for all later restarts."""
    texts = _texts(run.compiled_version(step))
    run.agent.ledger.update_deployment(step.table, step.version, **texts, plan_hash=run.plan.hash, **more)


def _texts(planned: Deployment) -> dict[str, Any]:
    names = ("revision", "texts", "compiled", "trigger", "bindings")
    return {name: getattr(planned, name) for name in names}


def record(run: RunContext, step: Step) -> RunEvidence:
    """Write the declared revision and owner to the registry while the statement keeps running."""
    node = run.node(step)
    run.agent.ledger.update_deployment(
        step.table,
        step.version,
        revision=node.revision,
        texts=node.texts,
        plan_hash=run.plan.hash,
        owner=node.owner,
    )
    return StepDone(step.n)


STOPS_AT_ONCE = 8


@contextmanager
def paused_readers(run: RunContext, step: Step, *, static_too: bool) -> Iterator[tuple[str, ...]]:
    """Lock and pause the step's version and its streaming readers; yield the names of the paused statements.

    With `static_too`, readers that join the version as a static side are included, because they fail if a type becomes
    wider, though not if a column is added. Raises Busy if a version is locked, or the error of a refused restart or
    failed stop; the table is unchanged in these cases.
    """
    agent, here = run.agent, (step.table, step.version)
    reads = {
        (d.table, d.version): d
        for d in agent.ledger.deployments()
        if (d.table, d.version) == here
        or any((b.parent, b.version) == here and (b.streamed or static_too) for b in d.bindings)
    }
    with agent.locks.holding(*reads, by=f"run {run.id}", wait_s=0):
        now = [found for key in sorted(reads) if (found := agent.ledger.deployment(*key)) is not None]
        running = [found for found in now if found.wanted == WantedState.RUNNING and found.query_id]
        for found in running:
            # A statement is stopped only if it can be restarted afterwards.
            stops = agent.locks.stops((found.table, found.version))
            refuse_start(agent, found, stops=stops, cancelled=run.is_cancelled)
        in_threads(STOPS_AT_ONCE, partial(pause, agent), running)
        for found in running:
            altered = "it" if found.table == step.table else step.table
            summary = f"stopped while {altered} is altered; it continues from its checkpoint"
            agent.event(EventKind.STATE, summary, about=(found.table, found.version))
        yield tuple(query_name(found.table, found.version) for found in running)
