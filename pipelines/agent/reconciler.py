"""Compares desired and actual states every second, records ended statements, and restarts lost statements."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from core.lag.liveness import LivenessSigns, allowed_silence_s, is_catch_up_batch, usual_batch_s, why_not_live
from core.model.errors import (
    Busy,
    EngineRefused,
    HeadgateError,
    LedgerUnavailable,
    NotAdopted,
    Overtaken,
    PoolUnreachable,
    Refused,
    SparkFailure,
    TryAgain,
)
from core.model.events import EventCause, EventKind
from core.model.names import TableName, query_name, split_query, trigger_s
from core.model.states import ALIVE, State, TableFaultKind, WantedState
from core.observed.cluster import ClusterFault, WhyUnknown
from core.observed.versions import Deployment
from core.ports.spark import ReportedQuery
from core.ports.storage import CheckpointState
from core.project.revision import raising_functions
from core.sql.registered_functions import REGISTERED
from core.text.sentence import Fact, Sentence
from pipelines.agent.context import READ_CALL_S, AgentContext, AgentPool, PoolConnection
from pipelines.agent.deployment_compiler import jar_of, writes_in_python
from pipelines.agent.pool.pool_catalog import ACTS_AT_ONCE, PoolCatalog
from pipelines.agent.statement_locks import stops_of
from pipelines.agent.statements.changed_tables import fault_that_ended
from pipelines.agent.statements.deployment_lifecycle import (
    ended_to_track_columns,
    fail,
    mark_stopped,
    record_why_not_as_wanted,
    refuse_other_checkpoint,
    start,
    stop,
)
from pipelines.agent.statements.statement_control import apply_journal
from pipelines.agent.statements.transient_failures import TransientFailures, has_space
from pipelines.agent.tables.external_inputs import fault_of_base, note_schema
from pipelines.agent.tables.table_identities import NotInCatalog, fault_of_folder, fault_of_tables, keep_deleted_keys
from pipelines.spark_connect.call_deadlines import in_threads
from state.emergency_journal import EmergencyJournal

log = logging.getLogger(__name__)

UNKNOWN_TOLD = 10
"""Maximum number of unknown queries reported per round."""

_LONGEST_NAME = 140
"""Maximum length of a displayed query name. Names of Headgate's queries are shorter."""


@dataclass(frozen=True, slots=True)
class BeforeRound:
    """Snapshot of the registry, the locks and the stop requests from before the pool was queried.

    A comparison with it shows which versions have changed during a round.
    """

    deployments: tuple[Deployment, ...]
    held: frozenset[tuple[TableName, int]]
    """Versions that were locked when the snapshot was taken."""
    stops: Mapping[str, int]
    """Serial number of the latest stop request, by table or query name."""

    @classmethod
    def of(cls, agent: AgentContext) -> "BeforeRound":
        """Take a snapshot.

        Locks are read before the registry, so the snapshot includes every change whose lock was already released.
        """
        held = agent.locks.held()
        stops = agent.locks.all_stops()
        return cls(tuple(agent.ledger.deployments()), held, stops)


@dataclass(slots=True)
class Reconciler:
    """Reconciles the registry with the queries of one pool, round by round."""

    agent: AgentContext
    emergency: EmergencyJournal
    of: AgentPool | None = None
    """The pool; None for the default pool."""
    _ended: dict[str, ReportedQuery] = field(default_factory=dict)
    """Ended queries that no round has handled yet, by name.

    They are kept because the pool reports each end only once.
    """
    _transient_failures: TransientFailures = field(default_factory=TransientFailures)
    _batches_before: dict[str, object] = field(default_factory=dict)
    """The last batch of each query, by run id, from when its executors were last known to exist."""
    pool: AgentPool = field(init=False)
    catalog: PoolCatalog = field(init=False)

    def __post_init__(self) -> None:
        self.pool = self.of or self.agent.pools.default
        self.catalog = PoolCatalog(self.agent, self.pool)

    def restore(self, pool: PoolConnection) -> None:
        """Fill the pool's catalog from the registry, and register running queries so that their ends are noticed."""
        for deployment in self.agent.ledger.deployments():
            if deployment.run_id and self._is_here(deployment):
                name = query_name(deployment.table, deployment.version)
                jar = jar_of(deployment)
                pool.queries.register_running(name, deployment.query_id, deployment.run_id, jar)
        self.catalog.restore(pool)

    def apply_emergencies(self) -> None:
        """Copy stop requests from the emergency journal to the ledger, before a round compares anything."""
        apply_journal(self.agent, self.emergency)

    def round(
        self,
        before: BeforeRound,
        queries: tuple[ReportedQuery, ...],
        ended: tuple[ReportedQuery, ...],
        *,
        fault: Fact[ClusterFault] | None = None,
    ) -> None:
        """Compare the registry with the pool's queries, and correct the differences.

        `before` is the registry from before the pool was queried; versions that were started or stopped since then are
        left to the next round. `fault` is that of the pool's cluster. `ended` are queries that have ended since the
        last round. An error in one statement does not affect other statements. Starts and stops run in parallel.
        """
        deployments = tuple(filter(self._is_here, before.deployments))
        active = {query.name: query for query in queries if query.active}
        self._ended.update((query.name, query) for query in ended)
        self.catalog.try_again(before.deployments)
        differing: list[Deployment] = []
        for deployment in deployments:
            key = (deployment.table, deployment.version)
            if deployment.external or key in before.held:
                continue
            query = active.get(query_name(*key))
            if query is None or query.run_id != deployment.run_id or deployment.wanted == WantedState.STOPPED:
                differing.append(deployment)
            else:
                self._with_lock(deployment, partial(self._running, deployment, query, fault))
        in_threads(ACTS_AT_ONCE, partial(self._differs, active, before.stops), differing)
        self._unknown(active, before.deployments)
        runs = {query.run_id for query in queries}
        self._batches_before = {run: batch for run, batch in self._batches_before.items() if run in runs}
        known = {query_name(d.table, d.version) for d in deployments}
        self._ended = {name: query for name, query in self._ended.items() if name in known}

    def _is_here(self, deployment: Deployment) -> bool:
        return self.agent.pools.of(deployment) is self.pool

    def _differs(self, active: Mapping[str, ReportedQuery], stops: Mapping[str, int], deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        query, end = active.get(query_name(*key)), self._ended.get(query_name(*key))
        if query is not None and deployment.wanted == WantedState.STOPPED:
            act = partial(self._stop_again, deployment)
        elif query is not None:
            act = partial(self._unrecorded, deployment, query, stops_of(stops, key))
        else:
            end = end if end is not None and end.run_id == deployment.run_id else None
            act = partial(self._absent, deployment, end, stops_of(stops, key))
        self._with_lock(deployment, act)

    def _with_lock(self, deployment: Deployment, act: Callable[[], None]) -> None:
        # A statement that is locked, or whose row has changed since the pool was queried, is left to the next round.
        key = (deployment.table, deployment.version)
        try:
            with self.agent.locks.holding(key, by="the reconciler", wait_s=0):
                if self.agent.ledger.deployment(*key) == deployment:
                    self._tried(deployment, act)
                self._ended.pop(query_name(*key), None)
        except Busy:
            # It is locked: left to the next round.
            return

    def _tried(self, deployment: Deployment, act: Callable[[], None]) -> None:
        try:
            act()
        except (Busy, PoolUnreachable, LedgerUnavailable):
            raise
        except NotAdopted as error:
            record_why_not_as_wanted(self.agent, deployment, error.sentence)
        except HeadgateError as error:
            record_why_not_as_wanted(self.agent, deployment, error.summary)
        except Exception as error:
            name = query_name(deployment.table, deployment.version)
            log.exception("%s could not be reconciled", name)
            record_why_not_as_wanted(
                self.agent,
                deployment,
                f"the agent failed unexpectedly on it ({type(error).__name__}); see headgate logs agent",
            )

    def _running(self, deployment: Deployment, query: ReportedQuery, fault: Fact[ClusterFault] | None) -> None:
        # Without workers, Spark reports the query as active, and as processing data.
        stuck = fault is not None and fault.kind.stops_statements
        late = fault.sentence if fault is not None and stuck else why_late(self.agent, deployment, query)
        state = State.RUNNING if query.progress is not None or query.waits else State.STARTING
        state = State.DEGRADED if late else state
        if not late and (unknown := self._why_unproven(query, fault)) is not None:
            state, late = State.UNKNOWN, unknown.sentence
        changes: dict[str, object] = {}
        if deployment.state != state and not (deployment.state == State.RUNNING and state == State.STARTING):
            # The query ran on while nobody observed it: under an agent that was replaced, or in a silent pool.
            went_on = deployment.state == State.UNKNOWN and not late and deployment.started_at is not None
            since = deployment.started_at if went_on else self.agent.clock()
            changes = {"state": state, "state_since": since, "error": late or "", "error_class": ""}
            self.agent.state_event(deployment, state, detail=late)
        if not deployment.checkpoint_id and (found := checkpoint_state(self.agent, deployment)) and found.id:
            changes |= {"checkpoint_id": found.id}
        if deployment.error and state == State.RUNNING:
            changes |= {"error": "", "error_class": ""}
        if changes:
            self.agent.ledger.update_deployment(deployment.table, deployment.version, **changes)

    def _why_unproven(self, query: ReportedQuery, fault: Fact[ClusterFault] | None) -> Fact[WhyUnknown] | None:
        """Return why a query that Spark shows as healthy may have no executors; None if it has them, as far as known.

        An idle query runs no task, so only a batch that ended after the fault proves that executors are left.
        """
        batch = (query.progress or {}).get("batchId")
        if fault is None or not fault.kind.hides_executors:
            self._batches_before[query.run_id] = batch
            return None
        if self._batches_before.setdefault(query.run_id, batch) != batch:
            return None
        return WhyUnknown.MASTER_LOST.of(master=fault.fields["master"])

    def _unrecorded(self, deployment: Deployment, query: ReportedQuery, stops: int) -> None:
        """Stop a query whose run id is not in the registry, and restart its statement.

        The query's start was interrupted or answered too late, so its SQL or checkpoint may be outdated. A query that
        this agent started for the current row continues, and its run id is recorded. The query of a failed statement is
        stopped without a restart.
        """
        said = "a query was active under a run id that was not recorded"
        if deployment.state == State.FAILED and query.run_id not in self.agent.unrecorded_run_ids:
            stop(self.agent, deployment)
            about = (deployment.table, deployment.version)
            self.agent.event(EventKind.STATE, f"{said}: it was stopped", about=about)
            return
        self._start_again(deployment, stops, f"{said}: stopped, and started from its checkpoint", late=query.run_id)

    def _absent(self, deployment: Deployment, end: ReportedQuery | None, stops: int) -> None:
        """Record that a statement without a query stopped or failed, or restart it if its query was lost."""
        if deployment.wanted == WantedState.STOPPED:
            if deployment.state in ALIVE | {State.STOPPING, State.UNKNOWN}:
                if writes_in_python(deployment):
                    # An unconfirmed stop may have ended the query but not its last batch.
                    stop(self.agent, deployment)
                mark_stopped(self.agent, deployment)
                self.agent.state_event(deployment, State.STOPPED)
            self._look_at_checkpoint(deployment)
            return
        if deployment.state in (State.PENDING, State.FAILED):
            if deployment.state == State.FAILED and not self._is_started_with_space(deployment, stops):
                self._look_at_checkpoint(deployment)
            return
        if end is not None and end.error:
            end = replace(end, error=_with_function(deployment, end))
        if end is not None and end.error and not self._may_go_on(deployment, end):
            fault = fault_that_ended(self.agent, deployment, end.error_class)
            ended = (fault.kind, fault.sentence) if fault else (end.error_class, end.error)
            fail(self.agent, deployment, *ended)
            return
        key = (deployment.table, deployment.version)
        if ended_so_often := self._transient_failures.why_not_yet(key, deployment.run_id, self.agent.monotonic()):
            what, why = ended_so_often
            record_why_not_as_wanted(self.agent, deployment, str(why), error_class=what)
            return
        if deployment.query_id or self._was_cut_off(deployment):
            self._start_again(deployment, stops)
            return
        if deployment.state == State.STOPPED and self.agent.ledger.call_off_start(*key):
            self.agent.event(EventKind.STATE, "stays stopped: the run that was to start it has ended", about=key)

    def _was_cut_off(self, deployment: Deployment) -> bool:
        """True if an agent was killed between recording an operator's start request and performing it.

        Starts requested by a run are left to that run, and are cancelled if the run has finished.
        """
        is_asked = self.agent.ledger.is_started_by_operator
        return deployment.state == State.STOPPED and is_asked(deployment.table, deployment.version)

    def _is_started_with_space(self, deployment: Deployment, stops: int) -> bool:
        key, now = (deployment.table, deployment.version), self.agent.monotonic()
        if not (deployment.active and has_space(deployment) and self._transient_failures.is_left(key, now)):
            return False
        try:
            self._start_again(deployment, stops, "there is space on its disk again: started again from its checkpoint")
        except (PoolUnreachable, LedgerUnavailable):
            raise
        except (TryAgain, NotAdopted):
            # The error that is already recorded says more, and the next round tries again.
            return False
        self._transient_failures.count(key, now)
        return True

    def _may_go_on(self, deployment: Deployment, over: ReportedQuery) -> bool:
        key = (deployment.table, deployment.version)
        if over.schema is not None:
            note_schema(self.agent, deployment, over.schema)
        if ended_to_track_columns(deployment, over.error_class):
            self.agent.state_event(deployment, State.STARTING, detail=over.error)
            return True
        if what := self._transient_failures.count_restart(key, over, self.agent.monotonic()):
            self.agent.event(EventKind.EXCEPTION, what, about=key, detail=over.error, fingerprint=what)
        return bool(what)

    def _start_again(
        self, deployment: Deployment, stops: int, said: str = "restarted from its checkpoint", late: str = ""
    ) -> None:
        """Restart a statement from its checkpoint and record why.

        After `headgate down`, the restart is recorded as a resumption. `late` is the run id of an active query of the
        statement; if the start returns this query, it continues. Raises TryAgain if the next round may succeed, and
        NotAdopted if `headgate adopt` is needed first.
        """
        if self.agent.locks.has_unrecorded_stop((deployment.table, deployment.version)):
            # The desired state in the ledger is older than that stop request.
            return
        told = late in self.agent.unrecorded_run_ids
        try:
            self._refuse_without_tables(deployment)
            if start(self.agent, deployment, stops=stops).run_id == late:
                how = "its start could not be recorded before" if told else "the pool has answered its start late"
                self.agent.state_event(deployment, State.STARTING, detail=how)
                return
            if deployment.state == State.STOPPED or deployment.run_id in self.agent.paused_run_ids:
                again = ": the environment is up again" if deployment.state == State.STOPPED else ""
                if not deployment.query_id:
                    command = self.agent.ledger.latest_command(query_name(deployment.table, deployment.version))
                    asked = f"{command.actor} had asked for it" if command else "it was wanted running"
                    again = f": {asked}, and its start had not been carried out"
                self.agent.paused_run_ids.discard(deployment.run_id)
                self.agent.state_event(deployment, State.STARTING, detail=f"resumed from its checkpoint{again}")
                return
            self.agent.ledger.update_deployment(deployment.table, deployment.version, restarts=deployment.restarts + 1)
            self.agent.state_event(deployment, State.STARTING, detail=said)
        except (TryAgain, NotAdopted):
            raise
        except NotInCatalog as error:
            raise TryAgain(error.summary, remedy=error.remedy) from error
        except Overtaken:
            return
        except EngineRefused as error:
            log.warning("%s could not be started: %s", query_name(deployment.table, deployment.version), error)
        except HeadgateError as error:
            fail(self.agent, deployment, type(error).__name__, error.sentence)

    def _refuse_without_tables(self, deployment: Deployment) -> None:
        for key in ((deployment.table, deployment.version), *((b.parent, b.version) for b in deployment.bindings)):
            if lacking := self.catalog.lacking(key):
                if fault := fault_of_base(self.agent, deployment):
                    raise fault.refused()
                name = self.agent.layout.catalog_name(*key)
                raise TryAgain(f"it waits for {name}, {lacking}")

    def _stop_again(self, deployment: Deployment) -> None:
        """Stop a query whose earlier stop was not confirmed or was overtaken by a restart."""
        stop(self.agent, deployment)
        mark_stopped(self.agent, deployment)
        if deployment.error:
            self.agent.ledger.update_deployment(deployment.table, deployment.version, error="", error_class="")
        self.agent.state_event(deployment, State.STOPPED, detail="stopped as wanted", cause=EventCause.WANTED)

    def _look_at_checkpoint(self, deployment: Deployment) -> None:
        lost, kind = "", ""
        try:
            fault = fault_of_tables(self.agent, deployment)
            if fault and fault.kind != TableFaultKind.STREAM_COLUMNS_CHANGED:
                kind = fault.kind
                raise fault.refused()
            # A statement that tracks schemas continues after a change of columns, but not on another checkpoint.
            refuse_other_checkpoint(self.agent, deployment)
            keep_deleted_keys(self.agent, deployment)
            if fault:
                kind = fault.kind
                raise fault.refused()
        except Refused as error:
            lost = error.summary
            if deployment.checkpoint_ok:
                about = (deployment.table, deployment.version)
                self.agent.event(EventKind.STATE, "it could not be started now", about=about, detail=error.sentence)
        except TryAgain:
            if deployment.state == State.FAILED:
                # The error that is already recorded says more.
                return
            raise
        found: dict[str, object] = {"checkpoint_ok": not lost, "lost": lost, "lost_kind": kind}
        before = (deployment.checkpoint_ok, deployment.lost, deployment.lost_kind)
        changes = found if (not lost, lost, kind) != before else {}
        fault = None if deployment.external else fault_of_folder(self.agent, deployment)
        why = fault.sentence if fault else ""
        if deployment.state == State.STOPPED and deployment.error != why and not deployment.error_class:
            changes |= {"error": why}
        if changes:
            self.agent.ledger.update_deployment(deployment.table, deployment.version, **changes)

    def _unknown(self, active: dict[str, ReportedQuery], deployments: tuple[Deployment, ...]) -> None:
        if self.agent.pools.are_several:
            for deployment in deployments:
                if query_name(deployment.table, deployment.version) in active and not self._is_here(deployment):
                    self._end_elsewhere(deployment)
        unknown = sorted(set(active) - {query_name(d.table, d.version) for d in deployments})
        if not unknown:
            return
        registered = {query_name(d.table, d.version): d for d in self.agent.ledger.deployments(include_deleted=True)}
        for name in unknown:
            if name in registered and registered[name].deleted:
                self._end_deleted(registered[name])
        for name in [name for name in unknown if name not in registered][:UNKNOWN_TOLD]:
            shown = name[:_LONGEST_NAME]
            where = f" in the pool {self.pool.name}" if self.agent.pools.are_several else ""
            summary = f"query {shown!r} is running in our session{where} but is not in the registry"
            self.agent.event(
                EventKind.POOL, summary, about=split_query(name) or ("", 0), fingerprint=f"unknown {shown}"
            )

    def _end_elsewhere(self, deployment: Deployment) -> None:
        """Stop a query of a statement that the ledger has in another pool, where it may run as well.

        A delayed start call can create it after the statement has moved.
        """
        key, name = (deployment.table, deployment.version), query_name(deployment.table, deployment.version)
        try:
            with self.agent.locks.holding(key, by="the reconciler", wait_s=0):
                now = self.agent.ledger.deployment(*key)
                pool = self.pool.connection()
                # The list of this round may be older than the move.
                queries = pool.call(READ_CALL_S, pool.queries.active)
                if now is None or self._is_here(now) or not any(each.name == name and each.active for each in queries):
                    return
                stop(self.agent, now, of=self.pool)
                here, there = self.pool.name, self.agent.pools.of(now).name
                said = (
                    f"a query of it was active in the pool {here}, but it belongs to {there}: it was stopped in {here}"
                )
                self.agent.event(EventKind.STATE, said, about=key)
        except (PoolUnreachable, LedgerUnavailable):
            raise
        except HeadgateError as error:
            log.warning("%s is not stopped in the pool %s: %s", name, self.pool.name, error.summary)

    def _end_deleted(self, deployment: Deployment) -> None:
        # A delayed start call can create a query for a version that is already deleted.
        key = (deployment.table, deployment.version)
        try:
            with self.agent.locks.holding(key, by="the reconciler", wait_s=0):
                now = self.agent.ledger.deployment(*key)
                if now is not None and now.deleted:
                    stop(self.agent, now, of=self.pool)
                    said = "a query of a deleted version was active: it was stopped"
                    self.agent.event(EventKind.STATE, said, about=key)
        except (PoolUnreachable, LedgerUnavailable):
            raise
        except HeadgateError as error:
            log.warning("%s, which was deleted, is not stopped: %s", query_name(*key), error.summary)


USUAL_S = 900.0
"""Period, in seconds, whose batches determine a statement's typical batch duration."""


def why_late(agent: AgentContext, deployment: Deployment, query: ReportedQuery) -> Sentence | None:
    """Return why an active query's progress report is overdue, or None if it is not."""
    trigger = trigger_s(deployment.trigger)
    if query.silent_s is None or query.silent_s <= allowed_silence_s(trigger):
        return None
    first = query.progress is None
    in_batch = first or _has_planned(agent, deployment)
    if not in_batch:
        try:
            pool = agent.pools.of(deployment).connection()
            query = pool.call(READ_CALL_S, pool.queries.refresh, query)
        except EngineRefused:
            return None
        in_batch = query.trigger_active
    silent_s = query.silent_s or 0.0
    now = agent.clock()
    samples = agent.ledger.samples(deployment.table, deployment.version, since=now - silent_s - USUAL_S)
    return why_not_live(
        LivenessSigns(
            silent_s=silent_s,
            trigger_s=trigger,
            in_batch=in_batch,
            waits=query.waits,
            usual_s=usual_batch_s(samples),
            patient=first or is_catch_up_batch(samples, now - silent_s),
        )
    )


def checkpoint_state(agent: AgentContext, deployment: Deployment) -> CheckpointState | None:
    """Return the state of a version's checkpoint; None if there is no checkpoint or its folder is unreachable."""
    try:
        return agent.files.read(deployment.checkpoint)
    except TryAgain:
        return None


def _has_planned(agent: AgentContext, deployment: Deployment) -> bool:
    found = checkpoint_state(agent, deployment)
    return found is not None and found.planned is not None and found.planned != found.batch


def _with_function(deployment: Deployment, end: ReportedQuery) -> str:
    """Return the error that ended a query; an error that Spark does not place in the SQL names the functions."""
    if end.failure is SparkFailure.WORKER_DIED:
        called = REGISTERED.finditer(deployment.texts.dml)
        files = sorted({f"{found['function']}.py" for found in called if found["language"] != "jar_"})
        error = end.error.rstrip(".")
        return f"{error}; the statement calls {' and '.join(files)}, which may have ended it" if files else end.error
    names = raising_functions(deployment.texts) if end.error_class == _RAISED else ()
    return f"{end.error}, raised in {' or '.join(names)}" if names else end.error


_RAISED = "USER_RAISED_EXCEPTION"
