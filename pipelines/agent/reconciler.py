"""Wanted against actual: what ended is recorded, what was lost with its pool is started again, and nothing else."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from core.model.errors import Busy, EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable, Refused, TryAgain
from core.model.names import TableName, query_name, split_query
from core.model.states import ALIVE, State, WantedState
from core.ports.spark import ReportedQuery
from pipelines.agent.bounded_threads import in_threads
from pipelines.agent.context import WRITE_CALL_S, AgentContext, PoolConnection
from pipelines.agent.deleted_keys import keep_deleted_keys
from pipelines.agent.deployment_compiler import upserts
from pipelines.agent.deployment_lifecycle import fail, mark_stopped, refuse_other_checkpoint, start, state_change, stop
from pipelines.agent.filled_catalogs import fill, point_together, register_together
from pipelines.agent.full_disks import has_space
from pipelines.agent.late_queries import readable, waits, why_late
from pipelines.agent.passing_ends import PassingEnds
from pipelines.agent.replaced_tables import NOT_IN_CATALOG, why_ended
from pipelines.agent.schema_tracking import goes_on
from pipelines.agent.statement_locks import stops_of
from pipelines.agent.table_identities import refuse_other_tables, register_again, why_folder_gone
from pipelines.agent.version_tables import pointer_of
from state.emergency_journal import EmergencyJournal
from state.row_types import Deployment
from state.table_acts import TableAct

log = logging.getLogger(__name__)

ACTS_AT_ONCE = 8
"""Starts, stops and tables of a catalog at one time: a pool of two cores is busy with so many."""

UNKNOWN_TOLD = 10
"""Queries that the registry does not know of which one round tells."""

_LONGEST_NAME = 140
"""Characters of a query's name, more than one of ours has."""

REGISTER_EVERY_S = 10.0
"""Between two tries of a table that the catalog has refused."""


@dataclass(frozen=True, slots=True)
class BeforeRound:
    """What was known when the pool was asked."""

    deployments: tuple[Deployment, ...]
    held: frozenset[tuple[TableName, int]]
    """Versions that somebody was acting on."""
    stops: Mapping[str, int]
    """How often operators had stopped each table, or one version of it."""

    @classmethod
    def of(cls, world: AgentContext) -> "BeforeRound":
        """Read what is known now. Locks come first: what is released meanwhile is in the registry that is read."""
        held = world.locks.held()
        stops = world.locks.all_stops()
        return cls(tuple(world.ledger.deployments()), held, stops)


@dataclass(slots=True)
class Reconciler:
    """Compares the registry with the pool, round by round."""

    world: AgentContext
    emergency: EmergencyJournal
    _over: dict[str, ReportedQuery] = field(default_factory=dict)
    """Queries that have ended, until a round has acted on it: the pool reports each end once."""
    _unregistered: dict[tuple[TableName, int], str] = field(default_factory=dict)
    """Versions whose table the pool's catalog has refused, with the reason."""
    _unpointed: set[tuple[TableName, int]] = field(default_factory=set)
    """Versions whose pointer it has refused."""
    _register_at: float = 0.0
    _passing_ends: PassingEnds = field(default_factory=PassingEnds)

    def restore(self, pool: PoolConnection) -> None:
        """Return the pool the catalog of the registry: tables, then pointers. Idempotent; what is there stays.

        A table that is refused is marked with the error and tried again by later rounds.
        """
        deployments = self.world.ledger.deployments()
        for deployment in deployments:
            if deployment.run_id:
                name = query_name(deployment.table, deployment.version)
                pool.queries.expect(name, deployment.query_id, deployment.run_id)
        self._unregistered.clear()
        self._unpointed.clear()
        fill(ACTS_AT_ONCE, deployments, partial(register_together, self.world, pool), partial(self._register, pool))
        pointed = [deployment for deployment in deployments if self._has_pointer(deployment)]
        fill(ACTS_AT_ONCE, pointed, partial(point_together, self.world, pool), partial(self._point, pool))
        self._register_at = self.world.monotonic() + REGISTER_EVERY_S

    def _register(self, pool: PoolConnection, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        try:
            register_again(self.world, pool, deployment)
        except PoolUnreachable:
            raise
        except HeadgateError as error:
            self._unregistered[key] = error.summary
            self._say_why(deployment, f"{NOT_IN_CATALOG}: {error.summary}")
        else:
            if self._unregistered.pop(key, ""):
                self.world.ledger.observe_deployment(deployment, error="", error_class="")

    def _has_pointer(self, deployment: Deployment) -> bool:
        # In doubt an older ledger would point readers of a pool that others use as well to an older version.
        served = deployment.active and not deployment.external and not self.world.identity.doubt
        return served and (deployment.table, deployment.version) not in self._unregistered

    def _point(self, pool: PoolConnection, deployment: Deployment) -> None:
        key = (deployment.table, deployment.version)
        if not self._has_pointer(deployment):
            return
        try:
            pool.call(WRITE_CALL_S, pool.tables.point, *pointer_of(self.world.layout, deployment))
        except EngineRefused as error:
            self._unpointed.add(key)
            self._say_why(deployment, f"its pointer is not in the pool's catalog: {error.summary}")
        else:
            self._unpointed.discard(key)

    def _register_again(self, deployments: tuple[Deployment, ...]) -> None:
        """Try the tables once more that the catalog has refused, and pointers that a swap has left anywhere."""
        adrift = {(d.table, d.version) for d in deployments if d.active and d.table in self.world.adrift}
        self.world.adrift.difference_update(table for table, _ in adrift)
        self._unpointed |= adrift
        lacking = self._unpointed | self._unregistered.keys()
        if not lacking or self.world.monotonic() < self._register_at:
            return
        self._register_at = self.world.monotonic() + REGISTER_EVERY_S
        refused = [d for d in deployments if (d.table, d.version) in lacking]
        in_threads(ACTS_AT_ONCE, partial(self._register_once_more, self.world.pool.connection()), refused)

    def _register_once_more(self, pool: PoolConnection, deployment: Deployment) -> None:
        """Try one table, unless somebody acts on any version of it: a swap moves the same pointer."""
        versions = [(found.table, found.version) for found in self.world.ledger.versions(deployment.table)]
        try:
            with self.world.locks.holding(*versions, by="the reconciler", wait_s=0):
                now = self.world.ledger.deployment(deployment.table, deployment.version)
                if now is not None and not now.deleted:
                    self._register(pool, now)
                    self._point(pool, now)
        except Busy:
            return

    def apply_emergencies(self) -> None:
        """Apply the intents that the ledger could not record, before anything is reconciled."""
        if not self.emergency.waits():
            return
        # A ledger that takes nothing is met here, while no stop has to wait for the journal.
        self.world.ledger.heartbeat(self.world.clock())
        with self.emergency.taking() as entries:
            for entry in entries:
                names = [str(name) for name in entry.get("tables") or ()]
                act = TableAct(f"a stop by {entry.get('by') or 'an operator'}", self.world.clock())
                self.world.ledger.stop_statements(names, act)
                self.world.locks.recorded(names)
                log.info("applied the stop of %s from the emergency journal", ", ".join(names))

    def round(self, before: BeforeRound, queries: tuple[ReportedQuery, ...], ended: tuple[ReportedQuery, ...]) -> None:
        """Reconcile once: the registry as it was before the pool was asked, with what the pool answered.

        A version that was started or stopped meanwhile is left to the next round. What fails is said of its statement
        alone. Starts and stops are a few at a time.
        """
        deployments = before.deployments
        active = {query.name: query for query in queries if query.active}
        self._over.update((query.name, query) for query in ended)
        self._register_again(deployments)
        differing: list[Deployment] = []
        for deployment in deployments:
            key = (deployment.table, deployment.version)
            if deployment.external or key in before.held:
                continue
            query = active.get(query_name(*key))
            if query is None or deployment.wanted == WantedState.STOPPED:
                differing.append(deployment)
            else:
                self._apart(deployment, partial(self._running, deployment, query))
        in_threads(ACTS_AT_ONCE, partial(self._differs, active, before.stops), differing)
        self._unknown(active, deployments)
        known = {query_name(d.table, d.version) for d in deployments}
        self._over = {name: query for name, query in self._over.items() if name in known}

    def _differs(self, active: Mapping[str, ReportedQuery], stops: Mapping[str, int], deployment: Deployment) -> None:
        name = query_name(deployment.table, deployment.version)
        if name in active:
            self._apart(deployment, partial(self._stop_again, deployment))
            return
        over = self._over.get(name)
        if over is not None and over.run_id != deployment.run_id:
            over = None
        self._apart(
            deployment, partial(self._absent, deployment, over, stops_of(stops, (deployment.table, deployment.version)))
        )

    def _apart(self, deployment: Deployment, act: Callable[[], None]) -> None:
        """Carry out what a round does about one statement; what fails is said of that statement.

        One whose row has changed since the pool was asked is left to the next round: what was decided rests on it.
        """
        key = (deployment.table, deployment.version)
        try:
            with self.world.locks.holding(key, by="the reconciler", wait_s=0):
                if self.world.ledger.deployment(*key) == deployment:
                    self._tried(deployment, act)
                self._over.pop(query_name(*key), None)
        except Busy:
            # Somebody acts on it: left to the next round.
            return

    def _tried(self, deployment: Deployment, act: Callable[[], None]) -> None:
        try:
            act()
        except (Busy, PoolUnreachable, LedgerUnavailable):
            raise
        except HeadgateError as error:
            self._say_why(deployment, error.summary)
        except Exception as error:
            name = query_name(deployment.table, deployment.version)
            log.exception("%s could not be reconciled", name)
            self._say_why(
                deployment, f"the agent failed unexpectedly on it ({type(error).__name__}); see headgate logs agent"
            )

    def _say_why(self, deployment: Deployment, why: str) -> None:
        """Record why a statement is not as it is wanted; it is tried again."""
        key = (deployment.table, deployment.version)
        wanted = deployment.wanted == WantedState.RUNNING and not deployment.external
        lost = wanted and deployment.state in ALIVE | {State.UNKNOWN}
        state = State.DEGRADED if lost else State(deployment.state)
        if (deployment.state, deployment.error) == (state, why):
            return
        since = deployment.state_since if deployment.state == state else self.world.clock()
        changes = {"state": state, "state_since": since, "error": why, "error_class": ""}
        if self.world.ledger.observe_deployment(deployment, **changes):
            log.warning("%s: %s", query_name(*key), why)
            self._event(deployment, state, why)

    def _running(self, deployment: Deployment, query: ReportedQuery) -> None:
        late = why_late(self.world, deployment, query)
        state = State.RUNNING if query.progress is not None or waits(query) else State.STARTING
        state = State.DEGRADED if late else state
        changes: dict[str, object] = {}
        if deployment.state != state and not (deployment.state == State.RUNNING and state == State.STARTING):
            changes = {"state": state, "state_since": self.world.clock(), "error": late, "error_class": ""}
            self._event(deployment, state, late)
        if deployment.query_id != query.id or deployment.run_id != query.run_id:
            changes |= {"query_id": query.id, "run_id": query.run_id}
        if not deployment.checkpoint_id and (found := readable(self.world, deployment)) and found.id:
            changes |= {"checkpoint_id": found.id}
        if deployment.error and state == State.RUNNING:
            changes |= {"error": "", "error_class": ""}
        if changes:
            self.world.ledger.update_deployment(deployment.table, deployment.version, **changes)

    def _absent(self, deployment: Deployment, over: ReportedQuery | None, stops: int) -> None:
        """A query that should be there and is not: failed with its error, or lost with its session: started again."""
        if deployment.wanted == WantedState.STOPPED:
            if deployment.state in ALIVE | {State.STOPPING, State.UNKNOWN}:
                if upserts(deployment):
                    # A stop that was not confirmed may have ended the query and not yet its last batch.
                    stop(self.world, deployment)
                mark_stopped(self.world, deployment)
                self._event(deployment, State.STOPPED, "")
            self._look_at_checkpoint(deployment)
            return
        if deployment.state in (State.PENDING, State.FAILED):
            if deployment.state == State.FAILED and not self._is_started_with_space(deployment, stops):
                self._look_at_checkpoint(deployment)
            return
        if over is not None and over.error and not self._may_go_on(deployment, over):
            changed = why_ended(self.world, deployment, over.error_class)
            fail(self.world, deployment, *(changed or (over.error_class, over.error)))
            return
        if deployment.query_id:
            self._start_again(deployment, stops)

    def _is_started_with_space(self, deployment: Deployment, stops: int) -> bool:
        """Start what serves and ended on a full disk that has space again; returns whether it was started."""
        key, now = (deployment.table, deployment.version), self.world.monotonic()
        if not (deployment.active and has_space(deployment) and self._passing_ends.is_left(key, now)):
            return False
        try:
            self._start_again(deployment, stops, "there is space on its disk again: started again from its checkpoint")
        except (PoolUnreachable, LedgerUnavailable):
            raise
        except TryAgain:
            # What it failed with says more, and has it tried again.
            return False
        self._passing_ends.count(key, now)
        return True

    def _may_go_on(self, deployment: Deployment, over: ReportedQuery) -> bool:
        """Return whether a statement ended with what passes, or has only kept other columns than before, and say so."""
        key = (deployment.table, deployment.version)
        if goes_on(deployment, over.error_class):
            self._event(deployment, State.STARTING, over.error)
            return True
        if what := self._passing_ends.again(key, over.error_class, over.error, self.world.monotonic()):
            self.world.event("exception", what, about=key, detail=over.error, fingerprint=what)
        return bool(what)

    def _start_again(self, deployment: Deployment, stops: int, said: str = "restarted from its checkpoint") -> None:
        """Its session is gone: go on from the checkpoint. One that ended with `headgate down` has lost nothing.

        Raises TryAgain for what the next round may reach.
        """
        self._refuse_without_tables(deployment)
        try:
            start(self.world, deployment, stops=stops)
            if deployment.state == State.STOPPED or deployment.run_id in self.world.paused:
                again = ": the environment is up again" if deployment.state == State.STOPPED else ""
                self.world.paused.discard(deployment.run_id)
                self._event(deployment, State.STARTING, f"resumed from its checkpoint{again}")
                return
            self.world.ledger.update_deployment(deployment.table, deployment.version, restarts=deployment.restarts + 1)
            self._event(deployment, State.STARTING, said)
        except TryAgain:
            raise
        except EngineRefused as error:
            log.warning("%s could not be started: %s", query_name(deployment.table, deployment.version), error)
        except HeadgateError as error:
            fail(self.world, deployment, type(error).__name__, error.sentence)

    def _refuse_without_tables(self, deployment: Deployment) -> None:
        """Raise TryAgain while the catalog lacks a table that a statement writes or reads."""
        for key in ((deployment.table, deployment.version), *((b.parent, b.version) for b in deployment.bindings)):
            if why := self._unregistered.get(key):
                name = self.world.layout.catalog_name(*key)
                raise TryAgain(f"it waits for {name}, which is not in the pool's catalog: {why}")

    def _stop_again(self, deployment: Deployment) -> None:
        """A stop that was sent and not confirmed, or one that a restart of the pool overtook."""
        stop(self.world, deployment)
        mark_stopped(self.world, deployment)
        if deployment.error:
            self.world.ledger.update_deployment(deployment.table, deployment.version, error="", error_class="")
        self._event(deployment, State.STOPPED, "stopped as wanted")

    def _look_at_checkpoint(self, deployment: Deployment) -> None:
        try:
            refuse_other_tables(self.world, deployment)
            refuse_other_checkpoint(self.world, deployment)
            keep_deleted_keys(self.world, deployment)
            lost = ""
        except Refused as error:
            lost = error.summary
            if deployment.checkpoint_ok:
                about = (deployment.table, deployment.version)
                self.world.event("state", "it could not be started now", about=about, detail=error.sentence)
        except TryAgain:
            if deployment.state == State.FAILED:
                # What it failed with says more.
                return
            raise
        found: dict[str, object] = {"checkpoint_ok": not lost, "lost": lost}
        changes = found if (not lost, lost) != (deployment.checkpoint_ok, deployment.lost) else {}
        why = "" if deployment.external else why_folder_gone(self.world, deployment)
        if deployment.state == State.STOPPED and deployment.error != why and not deployment.error_class:
            changes |= {"error": why}
        if changes:
            self.world.ledger.update_deployment(deployment.table, deployment.version, **changes)

    def _unknown(self, active: dict[str, ReportedQuery], deployments: tuple[Deployment, ...]) -> None:
        """Queries in our session that the registry does not know are said, never stopped."""
        known = {query_name(d.table, d.version) for d in deployments}
        for name in sorted(set(active) - known)[:UNKNOWN_TOLD]:
            shown = name[:_LONGEST_NAME]
            summary = f"query {shown!r} is running in our session but is not in the registry"
            self.world.event("pool", summary, about=split_query(name) or ("", 0), fingerprint=f"unknown {shown}")

    def _event(self, deployment: Deployment, state: State, detail: str) -> None:
        about = (deployment.table, deployment.version)
        self.world.event("state", state_change(deployment.state, state), about=about, detail=detail)
