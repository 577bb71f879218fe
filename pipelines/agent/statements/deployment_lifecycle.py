"""Starts and stops single deployments, for steps, operators and the reconciler.

If a stream tracks schemas, Spark ends it at each change of columns and expects a restart (Delta 4.4.0).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from core.changes.pinned_settings import pool_at_start
from core.model.errors import (
    Busy,
    EngineRefused,
    HeadgateError,
    LedgerUnavailable,
    NotAdopted,
    NotRecorded,
    Overtaken,
    Refused,
    TryAgain,
)
from core.model.events import EventKind
from core.model.names import query_name
from core.model.states import ALIVE, State, WantedState
from core.model.table_formats import table_format
from core.observed.versions import Deployment
from core.ports.spark import AnotherQuery, BuiltJob, QueryStart, ReportedQuery, ignore_stop_request, never
from core.ports.storage import CheckpointState
from core.sql.compiler import tracking_options, with_stream_options
from core.sql.python_jobs import is_python_job, python_job_of
from core.sql.written_topics import message_expressions, sink_options
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext, AgentPool
from pipelines.agent.deployment_compiler import (
    added_columns,
    column_types,
    functions_of,
    parsed_ddl,
    streamed_reads,
    topic_of,
    tracks_schemas,
    upsert_of,
    upserts,
    writes_in_python,
)
from pipelines.agent.identity.registry_records import keep_record
from pipelines.agent.statement_locks import Version
from pipelines.agent.statements.transient_failures import with_disk
from pipelines.agent.tables.table_identities import (
    refuse_gone,
    refuse_other_tables,
    register_if_missing,
    register_new_schemas,
)

log = logging.getLogger(__name__)

REPEATED = "HEADGATE_MESSAGES_REPEATED"
"""Error class of the event recorded when a statement rewrites a batch that its topic may already contain."""

PYTHON_CALL_S = 60.0
"""Deadline, in seconds, of a call that may have to start the pool's first Python process."""


def start(
    agent: AgentContext,
    deployment: Deployment,
    *,
    stops: int,
    after_stop: bool = False,
    cancelled: Callable[[], bool] = never,
) -> ReportedQuery:
    """Start a deployment from its checkpoint, and return the new or existing query.

    The deployment is locked, and its current row is used. Raises Refused, EngineRefused, PoolUnreachable or
    LedgerUnavailable if it was not started, and NotRecorded if its query runs but could not be recorded.

    `stops` is the serial number of the start command, or the value of `StatementLocks.stops` when the caller decided to
    start; a later stop request takes precedence. `after_stop` means that the caller has stopped a running query for
    this start; errors then mention this. Once `cancelled` returns True, the build of a job ends with Busy. The owner
    file is read before every start, because Spark does not fence checkpoints.
    """
    try:
        return _start(agent, deployment, stops, cancelled)
    except (Overtaken, NotRecorded):
        raise
    except HeadgateError as error:
        if after_stop:
            name = query_name(deployment.table, deployment.version)
            error.add(f"{name} was stopped for this start, and does not run")
        raise


def refuse_start(
    agent: AgentContext, deployment: Deployment, *, stops: int, cancelled: Callable[[], bool] = never
) -> None:
    """Raise the error that a start would raise now, so that no running query is stopped in vain.

    A refusal by Spark itself is not predicted. A table that is missing from the catalog is registered here, because the
    catalog may refuse it, and the plan of a job in Python is built.
    """
    _refuse_unregistered(agent, deployment, stops)
    built_job(agent, deployment, stops, cancelled)


def _refuse_batches(deployment: Deployment, added: set[str]) -> None:
    """Raise Refused if a deployment cannot write what the function `each_batch` of its job returns."""
    name = query_name(deployment.table, deployment.version)
    if not table_format(deployment.format).transaction_log or upserts(deployment):
        why, remedy = "it does not append to a Delta table", "write USING delta in its DDL, without mode: upsert"
    elif added:
        why, remedy = "metadata columns are added to the stream, not to its result", "remove metadata: from its yml"
    else:
        return
    raise Refused(f"{name} cannot use each_batch: {why}", remedy=f"{remedy}, or remove each_batch from its job")


def _refuse_unregistered(agent: AgentContext, deployment: Deployment, stops: int) -> None:
    refuse_unready(agent, deployment, stops=stops)
    check_checkpoint(agent, deployment)
    pool = agent.pools.of(deployment).connection()
    register_if_missing(agent, pool, deployment)
    if agent.pools.are_several:
        # A pool that could not be reached when a table was created lacks it.
        for each in deployment.bindings:
            parent = agent.ledger.deployment(each.parent, each.version)
            if parent is not None and table_format(parent.format).has_files:
                register_if_missing(agent, pool, parent)
    register_new_schemas(agent, deployment)


def built_job(
    agent: AgentContext, deployment: Deployment, stops: int, cancelled: Callable[[], bool]
) -> BuiltJob | None:
    """Return the checked plan of a deployment's job in Python; None if the deployment is SQL.

    Building takes seconds and must not happen under a lock for which a stop waits. Raises EngineRefused if the job is
    wrong, Overtaken as soon as a stop is requested, and Busy once `cancelled` returns True.
    """
    if not is_python_job(deployment.compiled):
        return None
    job = python_job_of(select_of(agent, deployment))
    if job is None:
        return None
    added = {name for name, _ in added_columns(deployment)}
    if job.writes_batches:
        _refuse_batches(deployment, added)
    declared = column_types(deployment.texts, deployment.table)
    key = (deployment.table, deployment.version)
    try:
        return (
            agent.pools.of(deployment)
            .connection()
            .jobs.build(
                job,
                name=query_name(*key),
                table=deployment.table,
                columns=tuple((name, type) for name, type in declared if name not in added),
                cancelled=lambda: agent.locks.stops(key) > stops or cancelled(),
            )
        )
    except Busy:
        _refuse_stopped(agent, deployment, stops)
        raise


def refuse_unready(agent: AgentContext, deployment: Deployment, *, stops: int) -> None:
    """Raise the error that a start would raise now, except errors of the deployment's checkpoint or catalog entry."""
    agent.identity.refuse_doubt()
    _refuse_stopped(agent, deployment, stops)
    # `connection_for_stops` would not do: it allows stops while the catalog is incomplete, but a restart would then
    # fail.
    agent.pools.of(deployment).connection()
    _refuse_other_python(agent, deployment)
    _refuse_functions(agent, deployment)


def _start(agent: AgentContext, deployment: Deployment, stops: int, cancelled: Callable[[], bool]) -> ReportedQuery:
    key = (deployment.table, deployment.version)
    with agent.locks.holding(key, by="a start"):
        deployment = _as_held(agent, key)
        _refuse_unregistered(agent, deployment, stops)
        repeated = _repeated_batch(agent, deployment)
        # The record is written before the first batch with new SQL: if the ledger were lost, the old SQL would continue
        # the checkpoint.
        keep_record(agent, *key)
        try:
            query = _started(agent, deployment, stops, built_job(agent, deployment, stops, cancelled))
        except EngineRefused as error:
            if agent.locks.stops(key) <= stops:
                with _recorded_later(deployment):
                    fail(agent, deployment, error.error_class, error.sentence)
            raise
        if query is None:
            with _recorded_later(deployment):
                mark_stopped(agent, deployment)
            raise overtaken(deployment)
        try:
            _record_start(agent, deployment, query)
        except LedgerUnavailable as error:
            agent.unrecorded_run_ids.add(query.run_id)
            raise NotRecorded(error.summary, remedy=error.remedy) from error
        agent.unrecorded_run_ids.discard(query.run_id)
        if repeated is not None:
            words = f"{query_name(*key)} writes batch {repeated} again: messages of it may be in its topic twice"
            agent.event(EventKind.EXCEPTION, REPEATED, about=key, detail=words, fingerprint=REPEATED)
        return query


def _repeated_batch(agent: AgentContext, deployment: Deployment) -> int | None:
    """Return the planned but uncommitted batch that a start writes to a topic again; None if there is none."""
    found = agent.files.read(deployment.checkpoint) if deployment.writes_topic else None
    return found.planned if found and found.planned is not None and found.planned != found.batch else None


def _record_start(agent: AgentContext, deployment: Deployment, query: ReportedQuery) -> None:
    found, now = None, agent.clock()
    with suppress(TryAgain):
        # The query runs even if its checkpoint cannot be read now.
        found = agent.files.read(deployment.checkpoint)
    agent.ledger.update_deployment(
        deployment.table,
        deployment.version,
        state=State.STARTING,
        state_since=now,
        query_id=query.id,
        run_id=query.run_id,
        checkpoint_id=found.id if found and found.id else deployment.checkpoint_id,
        started_at=now,
        error="",
        error_class="",
        **_runs_on(agent, deployment),
    )


@contextmanager
def _recorded_later(deployment: Deployment) -> Iterator[None]:
    """Log LedgerUnavailable instead of raising it, so that the caller can raise another error."""
    try:
        yield
    except LedgerUnavailable as error:
        log.warning("%s: recorded later: %s", query_name(deployment.table, deployment.version), error.summary)


def _as_held(agent: AgentContext, key: Version) -> Deployment:
    found = agent.ledger.deployment(*key)
    if found is None or found.deleted:
        raise Refused(f"{query_name(*key)} was deleted in the meantime", remedy="headgate ls shows what is deployed")
    return found


def stop(
    agent: AgentContext,
    deployment: Deployment,
    *,
    seconds: float = WRITE_CALL_S,
    calling: Callable[[], object] = ignore_stop_request,
    of: AgentPool | None = None,
) -> None:
    """Stop a deployment's query; return once it has ended and its last batch is written.

    The query is in the pool `of`; None means the pool in which the deployment is by the ledger.
    `calling` is called just before each call of Spark's stop. No lock is taken, because an operator's stop must not
    wait for one; starts check for stop requests afterwards.
    """
    pool = (of or agent.pools.of(deployment)).connection_for_stops()
    name = query_name(deployment.table, deployment.version)
    pool.call(seconds, pool.queries.stop, name, calling, upserts=writes_in_python(deployment))


def pause(agent: AgentContext, deployment: Deployment) -> None:
    """Stop a deployment's query temporarily. The start that ends the pause is not counted as a restart."""
    agent.paused_run_ids.add(deployment.run_id)
    stop(agent, deployment)


def _started(agent: AgentContext, deployment: Deployment, stops: int, job: BuiltJob | None) -> ReportedQuery | None:
    """Start the query and return it; None if it was stopped again because an operator has requested a stop.

    This must not wait for the ledger, because a stop may be waiting for this start.
    """
    with agent.locks.starting((deployment.table, deployment.version)):
        _refuse_stopped(agent, deployment, stops)
        pool, asked = agent.pools.of(deployment).connection(), (_start_of(agent, deployment, job), deployment.run_id)
        try:
            query = pool.call(WRITE_CALL_S, pool.queries.start, *asked)
        except AnotherQuery as error:
            log.warning("%s: it is stopped", error.summary)
            stop(agent, deployment)
            # The other query may have written a batch since checkpoint and table were compared.
            check_checkpoint(agent, deployment)
            query = pool.call(WRITE_CALL_S, pool.queries.start, *asked)
        if agent.locks.stops((deployment.table, deployment.version)) <= stops:
            return query
        stop(agent, deployment)
        return None


def _refuse_stopped(agent: AgentContext, deployment: Deployment, stops: int) -> None:
    if agent.locks.stops((deployment.table, deployment.version)) > stops:
        raise overtaken(deployment)


def overtaken(deployment: Deployment) -> Overtaken:
    """Return the error for a start that was overtaken by an operator's stop."""
    name = query_name(deployment.table, deployment.version)
    return Overtaken(
        f"{name} was stopped by an operator while it was starting", remedy=f"headgate start {deployment.table}"
    )


def mark_stopped(agent: AgentContext, deployment: Deployment) -> bool:
    """Record that a deployment's query has ended; return False if a later start has overtaken this stop.

    The desired state does not change.
    """
    # Why its state was unknown is no longer true.
    forgets = deployment.state == State.UNKNOWN
    about = (deployment.table, deployment.version, deployment.run_id)
    return agent.ledger.put_stopped(*about, agent.clock(), forgets_error=forgets)


def fail(agent: AgentContext, deployment: Deployment, error_class: str, error: str) -> None:
    """Record in the registry and as an event that a deployment ended with an error or could not be started."""
    about = (deployment.table, deployment.version)
    error_class, error = with_disk(deployment, error_class, error)
    agent.ledger.update_deployment(
        *about,
        state=State.FAILED,
        state_since=agent.clock(),
        error_class=error_class,
        error=error,
        query_id="",
        run_id="",
    )
    agent.event(EventKind.EXCEPTION, error_class or "failed", about=about, detail=error, fingerprint=error_class)
    if deployment.state != State.FAILED:
        agent.state_event(deployment, State.FAILED)


def record_why_not_as_wanted(agent: AgentContext, deployment: Deployment, why: str, *, error_class: str = "") -> None:
    """Record why a statement is not in its desired state, unless its row has changed since it was read."""
    about = (deployment.table, deployment.version)
    wanted = deployment.wanted == WantedState.RUNNING and not deployment.external
    lost = wanted and deployment.state in ALIVE | {State.UNKNOWN}
    state = State.DEGRADED if lost else State(deployment.state)
    if (deployment.state, deployment.error) == (state, why):
        return
    since = deployment.state_since if deployment.state == state else agent.clock()
    changes = {"state": state, "state_since": since, "error": why, "error_class": error_class}
    if agent.ledger.observe_deployment(deployment, **changes):
        log.warning("%s: %s", query_name(*about), why)
        agent.state_event(deployment, state, detail=why)


def refuse_cordoned(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused if a statement that does not run is in a cordoned pool, which takes no new statements."""
    if not agent.pools.are_several:
        return
    pool = agent.pools.of(deployment).name
    row = agent.ledger.facts().pool_named(pool)
    if row is not None and row.cordoned_at is not None:
        raise Refused(
            f"{query_name(deployment.table, deployment.version)} is in the pool {pool}, which takes no new statements: "
            f"it was cordoned by {row.cordoned_by}",
            remedy=f"name another pool in its yml and plan it, or headgate pool uncordon {pool}",
        )


def _refuse_other_python(agent: AgentContext, deployment: Deployment) -> None:
    # Local pools use the agent's Python, so only external pools are checked.
    runs_python = upsert_of(deployment) is not None or is_python_job(deployment.compiled)
    if not runs_python or agent.pools.of(deployment).declared.url is None:
        return
    pool = agent.pools.of(deployment).connection()
    if why := pool.call(PYTHON_CALL_S, pool.queries.python_mismatch):
        name = query_name(deployment.table, deployment.version)
        raise Refused(f"{name} cannot run: {why}", remedy="set PYSPARK_PYTHON where the pool's server starts")


def _refuse_functions(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused if the pool cannot execute the modules of Python functions that a statement calls."""
    functions = functions_of(deployment)
    if not functions:
        return
    pool = agent.pools.of(deployment).connection()
    if why := pool.call(PYTHON_CALL_S, pool.queries.load_functions, functions):
        name = query_name(deployment.table, deployment.version)
        raise Refused(f"{name} cannot call its functions: {why}", remedy=str(why.remedy))


def check_checkpoint(agent: AgentContext, deployment: Deployment) -> None:
    """Raise Refused or NotAdopted if the checkpoint or tables belong to another version or environment."""
    refuse_other_tables(agent, deployment)
    refuse_other_checkpoint(agent, deployment)
    _refuse_other_environment(agent, deployment)


def written_batch(agent: AgentContext, deployment: Deployment) -> int | None:
    """Return the latest batch that a statement has written to its table, or None if there is none."""
    query = query_of(agent, deployment)
    return agent.files.sink_batch(deployment.folder, format=deployment.format, query=query)


def refuse_other_checkpoint(agent: AgentContext, deployment: Deployment, *, owners: tuple[str, ...] = ()) -> int | None:
    """Return the last committed batch. Raises Refused unless the checkpoint, table and deployment match.

    With any other checkpoint, Spark would start over. The checkpoint's owner must be this ledger or one of `owners`.
    The sink is read before the checkpoint, because a running query writes the checkpoint last.
    """
    name = query_name(deployment.table, deployment.version)
    sink = written_batch(agent, deployment)
    found = agent.files.read(deployment.checkpoint)
    if found is None:
        raise Refused(
            f"{name} has no readable checkpoint; starting over on the same table would lose or duplicate rows",
            remedy=f"headgate plan {deployment.table} --rebuild",
        )
    if found.owner not in (agent.ledger_id, *owners):
        raise Refused(
            f"the checkpoint of {name} belongs to another ledger ({_owner(found)})",
            remedy="find out what else is running it; nothing was started",
        )
    if (deployment.checkpoint_id and found.id != deployment.checkpoint_id) or _made_by_another(found, deployment):
        raise Refused(
            f"the checkpoint of {name} is not the one it had before",
            remedy=f"restore it, or headgate plan {deployment.table} --rebuild",
        )
    if lacks := agent.files.missing_checkpoint_file(deployment.checkpoint):
        raise Refused(
            f"the checkpoint of {name} lacks {lacks}, without which Spark does not start: part of it is missing, or it "
            "was mixed from two copies",
            remedy=f"restore checkpoint and table from one moment, or headgate plan {deployment.table} --rebuild",
        )
    if deployment.writes_topic:
        # A topic does not record batches, so a batch that it may already contain is written again.
        return found.batch
    if found.batch is not None and (sink is None or sink < found.batch):
        sink = written_batch(agent, deployment)
        if sink is None:
            refuse_gone(agent, deployment)
    refuse_mismatched_batches(name, found.planned, found.batch, sink)
    return found.batch


def query_of(agent: AgentContext, deployment: Deployment) -> str:
    """Return the query id in a version's checkpoint, or an empty string before the version's first start."""
    if deployment.checkpoint_id:
        return deployment.checkpoint_id
    found = agent.files.read(deployment.checkpoint)
    return found.id if found else ""


def _refuse_other_environment(agent: AgentContext, deployment: Deployment) -> None:
    name, here = query_name(deployment.table, deployment.version), agent.files
    found = here.read(deployment.checkpoint)
    if found is None:
        return
    if found.epoch and found.epoch != here.epoch:
        where = f", on machine {found.machine}" if found.machine not in ("", here.machine) else ""
        summary = f"the checkpoint of {name} has epoch {found.epoch}{where}, but the ledger has epoch {here.epoch}"
        raise NotAdopted(f"{summary}: one of them is an older copy", remedy="headgate adopt")
    if found.machine and here.machine and found.machine != here.machine:
        if agent.machine_may_move:
            here.take_over(deployment.checkpoint)
            return
        raise NotAdopted(
            f"the checkpoint of {name} was written on machine {found.machine}, and this is machine {here.machine}",
            remedy="headgate adopt, if nothing runs there any more",
        )


def _owner(found: CheckpointState) -> str:
    if not found.owner:
        return "no owner file"
    epoch = f", epoch {found.epoch}" if found.epoch else ""
    return f"{found.owner}{epoch}" + (f", on machine {found.machine}" if found.machine else "")


def _made_by_another(found: CheckpointState, deployment: Deployment) -> bool:
    return bool(found.run and deployment.made_by and found.run != deployment.made_by)


def refuse_mismatched_batches(name: str, planned: int | None, committed: int | None, sink: int | None) -> None:
    """Raise Refused if a checkpoint does not match the batches that its table records.

    `planned` and `committed` are the checkpoint's last batches, `sink` is the table's; each is None if there is no
    batch. Spark's file sink (4.2.0) and Delta (4.4.0) skip batches that they already have, and report success, so rows
    would be lost with a checkpoint that is behind its table. A table that lacks committed batches would never receive
    them.
    """
    ways_out = f"restore both from one moment, or headgate plan {name.partition('@')[0]} --rebuild".format(
        table=name.partition("@")[0]
    )
    if sink is not None and sink > (-1 if planned is None else planned):
        at = "before its first batch" if planned is None else f"at batch {planned}"
        raise Refused(
            f"the checkpoint of {name} is {at} and its table at batch {sink}: it is an older copy, and the rows "
            "of the batches between would be lost silently",
            remedy=ways_out,
        )
    if committed is not None and (sink is None or sink < committed):
        ends = "has none" if sink is None else f"ends with batch {sink}"
        raise Refused(
            f"the checkpoint of {name} has committed batch {committed} and its table {ends}: the table is an older "
            "copy, and lacks what came after it",
            remedy=ways_out,
        )


def _runs_on(agent: AgentContext, deployment: Deployment) -> dict[str, Any]:
    # Versions that were first started before Headgate recorded pool settings have none.
    found: dict[str, Any] = {}
    with suppress(HeadgateError):
        pool = agent.pools.of(deployment).connection()
        found["engine"] = pool.call(READ_CALL_S, pool.analysis.engine)
    declared = agent.pools.of(deployment).declared
    if deployment.started_at is None:
        # A version that was never started records only where it is to start, and no settings of a checkpoint.
        found["pool"] = pool_at_start(declared, deployment.pool if deployment.checkpoint_id else None)
    elif deployment.pool is not None:
        found["pool"] = pool_at_start(declared, deployment.pool)
    return found


def _start_of(agent: AgentContext, deployment: Deployment, job: BuiltJob | None) -> QueryStart:
    topic = topic_of(deployment, agent.layout)
    return QueryStart(
        name=query_name(deployment.table, deployment.version),
        select=select_of(agent, deployment),
        target=agent.layout.catalog_name(deployment.table, deployment.version),
        format=deployment.format,
        checkpoint=deployment.checkpoint,
        trigger=deployment.trigger,
        upsert=upsert_of(deployment),
        partitioned_by=parsed_ddl(deployment).partitioning if "PARTITIONED BY" in deployment.compiled_ddl else (),
        messages=message_expressions(topic) if topic else (),
        options=tuple(sorted(sink_options(topic).items())) if topic else (),
        added=added_columns(deployment),
        functions=functions_of(deployment),
        job=job,
        place=table_format(deployment.format).place_in(deployment.folder) if job is not None and job.each_batch else "",
        columns=deployment.columns if job is not None and job.each_batch else (),
    )


COLUMNS_KEPT = "DELTA_STREAMING_METADATA_EVOLUTION"
"""Error class of a stream that ended after recording changed columns."""


def select_of(agent: AgentContext, deployment: Deployment) -> str:
    """Return the SELECT to start: the compiled one, with schema tracking locations in the current checkpoint.

    It is computed at each start, because a version may move to another checkpoint.
    """
    if not tracks_schemas(deployment):
        return deployment.compiled
    versions = {binding.parent: binding.version for binding in deployment.bindings if binding.streamed}
    options = {}
    for ordinal, read in enumerate(streamed_reads(deployment)):
        parent = agent.ledger.deployment(read.table, versions.get(read.table, 0))
        if parent is not None and table_format(parent.format).transaction_log:
            options[ordinal] = tracking_options(deployment.checkpoint, ordinal)
    return with_stream_options(deployment.compiled, options)


def ended_to_track_columns(deployment: Deployment, error_class: str) -> bool:
    """True if a statement ended only to record changed columns, so that its next start will succeed."""
    return error_class == COLUMNS_KEPT and tracks_schemas(deployment)
