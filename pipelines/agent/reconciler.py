"""Wanted against actual: what ended is recorded, what was lost with its pool is started again, and nothing else."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from core.lag.liveness import LivenessSigns, allowed_silence_s, is_catch_up_batch, usual_batch_s, why_not_live
from core.lag.triggers import trigger_s
from core.model.errors import Busy, EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable, Refused, TryAgain
from core.model.names import TableName, query_name, split_query
from core.model.states import State, WantedState
from core.ports.spark import ReportedQuery
from pipelines.agent.context import READ_CALL_S, WRITE_CALL_S, AgentContext, PoolConnection
from pipelines.agent.deployment_lifecycle import fail, mark_stopped, refuse_other_checkpoint, start, stop
from state.emergency_journal import EmergencyJournal
from state.row_types import Deployment

log = logging.getLogger(__name__)

USUAL_S = 900.0
"""How far back batches tell what is usual."""


@dataclass(frozen=True, slots=True)
class BeforeRound:
    """What was known when the pool was asked."""

    deployments: tuple[Deployment, ...]
    held: frozenset[tuple[TableName, int]]
    """Versions that somebody was acting on."""
    stops: Mapping[TableName, int]
    """How often operators had stopped each table."""

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

    def restore(self, pool: PoolConnection) -> None:
        """Return the pool the catalog of the registry: tables, then pointers. Idempotent; what is there stays."""
        ground = self.world.ground
        for deployment in self.world.ledger.deployments():
            table, version = deployment.table, deployment.version
            if deployment.run_id:
                known = (query_name(table, version), deployment.query_id, deployment.run_id)
                pool.call(READ_CALL_S, pool.queries.expect, *known)
            name = ground.catalog_name(table, version)
            pool.call(WRITE_CALL_S, pool.tables.create, name, deployment.compiled_ddl)
            # An older ledger would point readers of a pool that others use as well to an older version.
            if deployment.active and not deployment.external and not self.world.identity.doubt:
                pool.call(WRITE_CALL_S, pool.tables.point, ground.pointer_name(table), name, deployment.columns)

    def apply_emergencies(self) -> None:
        """Apply the intents that the ledger could not record, before anything is reconciled."""
        if not self.emergency.waits():
            return
        # A ledger that takes nothing is met here, while no stop has to wait for the journal.
        self.world.ledger.heartbeat(self.world.clock())
        with self.emergency.taking() as entries:
            for entry in entries:
                tables = [TableName(str(table)) for table in entry.get("tables") or ()]
                self.world.ledger.stop_statements(tables)
                self.world.locks.recorded(tables)
                log.info("applied the stop of %s from the emergency journal", ", ".join(tables))

    def round(self, before: BeforeRound, queries: tuple[ReportedQuery, ...], ended: tuple[ReportedQuery, ...]) -> None:
        """Reconcile once: the registry as it was before the pool was asked, with what the pool answered.

        A version that was started or stopped meanwhile is left to the next round.
        """
        deployments = before.deployments
        active = {query.name: query for query in queries if query.active}
        over = {query.name: query for query in ended}
        for deployment in deployments:
            key = (deployment.table, deployment.version)
            if deployment.external or key in before.held:
                continue
            name = query_name(*key)
            with suppress(Busy), self.world.locks.holding(key, by="the reconciler", wait_s=0):
                now = self.world.ledger.deployment(*key)
                if now is None or (now.run_id, now.wanted) != (deployment.run_id, deployment.wanted):
                    continue
                if name in active:
                    self._running(deployment, active[name])
                else:
                    self._absent(deployment, over.get(name), before.stops.get(key[0], 0))
        self._unknown(active, deployments)

    def _running(self, deployment: Deployment, query: ReportedQuery) -> None:
        if deployment.wanted == WantedState.STOPPED:
            self._stop_again(deployment)
            return
        late = self._lateness(deployment, query)
        state = State.RUNNING if query.progress is not None or _waits(query) else State.STARTING
        state = State.DEGRADED if late else state
        changes: dict[str, object] = {}
        if deployment.state != state and not (deployment.state == State.RUNNING and state == State.STARTING):
            changes = {"state": state, "state_since": self.world.clock(), "error": late, "error_class": ""}
            self._event(deployment, state, late)
        if deployment.query_id != query.id or deployment.run_id != query.run_id:
            changes |= {"query_id": query.id, "run_id": query.run_id}
        if not deployment.checkpoint_id and (found := self.world.files.read(deployment.checkpoint)) and found.id:
            changes |= {"checkpoint_id": found.id}
        if deployment.error and state == State.RUNNING:
            changes |= {"error": "", "error_class": ""}
        if changes:
            self.world.ledger.update_deployment(deployment.table, deployment.version, **changes)

    def _lateness(self, deployment: Deployment, query: ReportedQuery) -> str:
        """Explain why an active query is not running; one that was heard of lately is, and costs nothing to judge."""
        trigger = trigger_s(deployment.trigger)
        if query.silent_s is None or query.silent_s <= allowed_silence_s(trigger):
            return ""
        first = query.progress is None
        in_batch = first or self._has_planned(deployment)
        if not in_batch:
            try:
                pool = self.world.pool.connection()
                query = pool.call(READ_CALL_S, pool.queries.look, query)
            except EngineRefused:
                return ""
            in_batch = query.trigger_active
        silent_s = query.silent_s or 0.0
        now = self.world.clock()
        samples = self.world.ledger.samples(deployment.table, deployment.version, since=now - silent_s - USUAL_S)
        return why_not_live(
            LivenessSigns(
                silent_s=silent_s,
                trigger_s=trigger,
                in_batch=in_batch,
                waits=_waits(query),
                usual_s=usual_batch_s(samples),
                patient=first or is_catch_up_batch(samples, now - silent_s),
            )
        )

    def _has_planned(self, deployment: Deployment) -> bool:
        """Return whether a batch is planned and not committed; a place that cannot be reached says nothing."""
        try:
            found = self.world.files.read(deployment.checkpoint)
        except TryAgain:
            return False
        return found is not None and found.planned is not None and found.planned != found.batch

    def _absent(self, deployment: Deployment, over: ReportedQuery | None, stops: int) -> None:
        """A query that should be there and is not: failed with its error, or lost with its session: started again."""
        if deployment.wanted == WantedState.STOPPED:
            if deployment.state in (State.STOPPING, State.RUNNING, State.DEGRADED, State.STARTING):
                mark_stopped(self.world, deployment)
                self._event(deployment, State.STOPPED, "")
            self._look_at_checkpoint(deployment)
            return
        if deployment.state in (State.PENDING, State.FAILED):
            if deployment.state == State.FAILED:
                self._look_at_checkpoint(deployment)
            return
        if over is not None and over.error:
            fail(self.world, deployment, over.error_class, over.error)
            return
        if deployment.query_id:
            self._start_again(deployment, stops)

    def _start_again(self, deployment: Deployment, stops: int) -> None:
        """Its session is gone: go on from the checkpoint. One that ended with `headgate down` has lost nothing."""
        try:
            start(self.world, deployment, stops=stops)
            if deployment.state == State.STOPPED:
                self._event(deployment, State.STARTING, "resumed from its checkpoint: the environment is up again")
                return
            self.world.ledger.update_deployment(deployment.table, deployment.version, restarts=deployment.restarts + 1)
            self._event(deployment, State.STARTING, "restarted from its checkpoint")
        except PoolUnreachable:
            raise
        except LedgerUnavailable:
            raise
        except EngineRefused as error:
            log.warning("%s could not be started: %s", query_name(deployment.table, deployment.version), error)
        except HeadgateError as error:
            fail(self.world, deployment, type(error).__name__, error.summary)

    def _stop_again(self, deployment: Deployment) -> None:
        """A stop that was sent and not confirmed, or one that a restart of the pool overtook."""
        stop(self.world, deployment)
        mark_stopped(self.world, deployment)
        self._event(deployment, State.STOPPED, "stopped as wanted")

    def _look_at_checkpoint(self, deployment: Deployment) -> None:
        try:
            refuse_other_checkpoint(self.world, deployment)
            good = True
        except Refused:
            good = False
        if good != deployment.checkpoint_ok:
            self.world.ledger.update_deployment(deployment.table, deployment.version, checkpoint_ok=good)

    def _unknown(self, active: dict[str, ReportedQuery], deployments: tuple[Deployment, ...]) -> None:
        """Queries in our session that the registry does not know are said, never stopped."""
        known = {query_name(d.table, d.version) for d in deployments}
        for name in sorted(set(active) - known):
            parts = split_query(name)
            summary = f"query {name!r} is running in our session but is not in the registry"
            self.world.event("pool", summary, about=parts or ("", 0), fingerprint=f"unknown {name}")

    def _event(self, deployment: Deployment, state: State, detail: str) -> None:
        about = (deployment.table, deployment.version)
        self.world.event("state", f"{deployment.state} → {state}", about=about, detail=detail)


def _waits(query: ReportedQuery) -> bool:
    """Nothing is reported before a first batch: a query without input never commits one (seen on 4.2.0)."""
    return "waiting for data" in query.message.lower() or "waiting for next trigger" in query.message.lower()
