"""The complete agent, which runs the socket server, the reconciler and the measurements in one process."""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from core.ipc import framing
from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import EngineRefused, HeadgateError, LedgerUnavailable, PoolUnreachable
from core.model.names import TableName
from core.model.states import ALIVE, PoolState, State
from core.observed.cluster import WhyUnknown
from core.observed.versions import Deployment
from core.ports.spark import ReportedQuery
from core.ports.storage import Checkpoints
from core.project.model import Pool
from core.project_reader.manifest import Manifest
from core.text.wording import without_numbers
from pipelines.agent import overlay_expiry, pool_work
from pipelines.agent.checked_clock import checked_now, forgetting_time
from pipelines.agent.context import READ_CALL_S, AgentContext, AgentPool, FaultPoints, Pools
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.housekeeping import (
    UnusedJars,
    purge_trash,
    record_overdue_tickets,
    remove_packages,
    stop_soaked,
)
from pipelines.agent.identity.environment_identity import MARK_S, EnvironmentIdentity
from pipelines.agent.identity.registry_records import RegistryRecords, recorded_session
from pipelines.agent.measurements.lag_collector import EVERY_S, EVERY_VARIABLE, LagCollector
from pipelines.agent.measurements.table_statistics_collector import TICK_S, TableStatisticsCollector
from pipelines.agent.overlay_expiry import OverlayExpiry
from pipelines.agent.pool import cluster_watch, pointers
from pipelines.agent.pool.cluster_managers import manager_of
from pipelines.agent.pool.pointers import PointerCheck
from pipelines.agent.pool.pool_catalog import leave_server
from pipelines.agent.pool.pool_events import UNKNOWN_S
from pipelines.agent.pool.pool_supervisor import HEAP_EVERY_S, PoolSupervisor
from pipelines.agent.pool_work import PoolWork
from pipelines.agent.reconciler import BeforeRound, Reconciler
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import SocketServer
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.statements import changed_tables
from pipelines.agent.statements.changed_tables import ChangedTables
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.agent.tables import database_copies, offset_mirror, replication_slots
from pipelines.agent.tables.database_copies import DatabaseCopies
from pipelines.agent.tables.replication_slots import SlotUpkeep
from pipelines.spark_connect.call_deadlines import in_threads
from state.emergency_journal import EmergencyJournal
from state.ledger import Ledger
from state.measurements import SAMPLES_S
from state.migrations import SCHEMA_VERSION
from state.retention import FORGETS_S

log = logging.getLogger(__name__)

BEAT_S = 2.0
ROUND_S = 1.0
THIN_S = 300.0
PACKAGES_S = 30 * 86400.0
"""Seconds after which unused packages of jobs are removed."""
LAST_ROUNDS_S = 0.5
"""Longest time, in seconds, that a stopping agent waits for its loops to end.

The next agent completes whatever the loops leave unfinished.
"""


_Loop = tuple[str, float, Callable[[], None]]
"""The name of a loop, the seconds between two rounds, and what a round does."""


@dataclass(slots=True)
class KeptPool:
    """One pool, and what keeps it and its statements running."""

    pool: AgentPool
    keeper: PoolSupervisor
    reconciler: Reconciler
    pointers: PointerCheck
    answered: float = field(default_factory=time.monotonic)
    """When the pool has last listed its queries."""
    seen: tuple[ReportedQuery, ...] = ()
    """The queries that it listed in the last round; empty if it did not answer."""


class Agent:
    """The daemon that serves one environment."""

    def __init__(
        self,
        *,
        places: EnvironmentPaths,
        folder: str,
        manifest: Manifest,
        layout: EnvironmentLayout,
        ledger: Ledger,
        files: Checkpoints,
    ) -> None:
        self._places = places
        self._ledger = ledger
        self._identity = EnvironmentIdentity(
            ledger,
            data=layout.data,
            home=places.home,
            machine=files.machine,
            clock=time.time,
            may_move=lambda: self._context.machine_may_move,
        )
        keepers = {pool.name: self._supervisor(pool, manifest, folder, layout) for pool in layout.environment.pools}
        self._context = AgentContext(
            places=places,
            folder=folder,
            project_id=manifest.id,
            project=manifest.name,
            layout=layout,
            ledger=ledger,
            ledger_id=ledger.facts().ledger_id,
            pools=Pools(layout.environment, keepers),
            files=files,
            faults=FaultPoints.from_environment(),
            identity=self._identity,
            work=PoolWork(
                {name: keeper.spark_ui for name, keeper in keepers.items()},
                clusters={name: keeper.cluster_figures for name, keeper in keepers.items()},
            ),
        )
        emergency = EmergencyJournal(Path(places.emergency))
        self._acts = StatementControl(self._context, emergency)
        self._runs = OpenRuns(self._context)
        self._pools = {
            pool.name: KeptPool(
                pool, keepers[pool.name], Reconciler(self._context, emergency, pool), PointerCheck(self._context, pool)
            )
            for pool in self._context.pools.every()
        }
        self._records = RegistryRecords(self._context)
        self._measurer = LagCollector(self._context)
        self._table_statistics = TableStatisticsCollector(self._context, self._measurer.load)
        self._commands = CommandHandler(self._context, self._acts, self._runs, self._table_statistics, self.end)
        self._end_pool = self._purges = False
        self._is_announced = False
        self._every_s = float(os.environ.get(EVERY_VARIABLE, EVERY_S))

    def _supervisor(self, pool: Pool, manifest: Manifest, folder: str, layout: EnvironmentLayout) -> PoolSupervisor:
        environment, name = layout.environment, pool.name
        place = environment.place_of(pool)
        return PoolSupervisor(
            self._places,
            pool,
            self._ledger,
            lambda attached: self._pools[name].reconciler.restore(attached),
            place=place,
            data=layout.data,
            connectors=manifest.connectors,
            project=folder,
            whose=f"{manifest.name}/{environment.name}",
            recorded_session=lambda: recorded_session(layout.data, place),
            runs_here=lambda found: environment.pool_holding(found.pool).name == name,
        )

    def serve(self) -> None:
        """Answer requests and keep the pool and its statements running until the agent is asked to stop."""
        hello = {
            "program": framing.PROGRAM_VERSION,
            "protocol": framing.PROTOCOL,
            "ledger": SCHEMA_VERSION,
            "pid": os.getpid(),
        }
        server = SocketServer(self._places.socket, hello, self._commands.handle)
        # A killed agent leaves requests there, with the code of jobs and a token. Their processes died with it.
        shutil.rmtree(self._places.job_builds, ignore_errors=True)
        # Writing to the ledger fails on a full disk, but a stop does not need the ledger.
        with suppress(LedgerUnavailable):
            # What a killed agent recorded about the pool may no longer be true.
            for pool in self._context.pools.every():
                self._ledger.put_pool(pool.place, state=PoolState.STARTING, detail="the agent looks for it")
            self._announce_agent()
        with suppress(HeadgateError):
            # The identity is checked before attaching to a pool. If the data folder is unreachable, the loop checks it
            # again.
            self._identity.keep()
        server.open()
        loops = self._loops()
        for loop in loops:
            loop.start()
        self._context.stopping.wait()
        server.close()
        ends_at = time.monotonic() + LAST_ROUNDS_S
        for loop in loops:
            loop.join(max(0.0, ends_at - time.monotonic()))
        for last in (self._identity.keep, self._records.round):
            with suppress(HeadgateError):
                last()
        try:
            if self._end_pool:
                self._leave_pool()
            self._ledger.put_agent(None, None)
        except LedgerUnavailable as error:
            if self._ledger.is_in_place():
                raise
            log.info("the shutdown could not be recorded: %s", error.summary)

    def _loops(self) -> list[threading.Thread]:
        slot_every_s = min(replication_slots.EVERY_S, self._every_s)
        pools = tuple(self._pools.values())

        def of_each(name: str, seconds: float, act: Callable[[KeptPool], Callable[[], None]]) -> Iterator[_Loop]:
            # A loop for each pool, because one that does not answer must not delay another.
            return ((f"{name} {kept.pool.name}" if len(pools) > 1 else name, seconds, act(kept)) for kept in pools)

        loops = [
            threading.Thread(target=self._loop, args=(name, seconds, act), name=name, daemon=True)
            for name, seconds, act in (
                ("beat", BEAT_S, self._write_heartbeat),
                # Separate from the beat, because the data folder may be a network folder that hangs.
                ("identity", MARK_S, self._identity.keep),
                *of_each("pool", ROUND_S, lambda kept: kept.keeper.keep),
                *of_each("reconcile", ROUND_S, lambda kept: partial(self._round, kept)),
                # Separate from the reconciler, which waits for starts: a gap in the samples makes every lag unknown.
                ("measure", self._every_s, self._measure),
                # Separate from the measurements, because a server under load answers late.
                ("work of slow statements", pool_work.EVERY_S, self._context.work.round),
                ("table statistics", TICK_S, lambda: self._table_statistics.round(self._deployments())),
                # A separate loop, for the same reason as the identity.
                ("records", ROUND_S, self._records.round),
                ("slots", slot_every_s, SlotUpkeep(self._context).round),
                ("mirrored offsets", offset_mirror.EVERY_S, self._measurer.mirror.round),
                ("copies", database_copies.TICK_S, DatabaseCopies(self._context).round),
                ("replaced tables", changed_tables.EVERY_S, ChangedTables(self._context).round),
                *of_each("pointers", pointers.EVERY_S, lambda kept: kept.pointers.round),
                ("expiry", overlay_expiry.EVERY_S, OverlayExpiry(self._context).round),
            )
        ]
        for kept in pools:
            if kept.pool.declared.url is None:
                name = f"heap {kept.pool.name}" if len(pools) > 1 else "heap"
                args = (name, HEAP_EVERY_S, kept.keeper.watch_heap)
                loops.append(threading.Thread(target=self._loop, args=args, name=name, daemon=True))
            if manager_of(kept.pool.declared) is not None:
                # A loop of its own, because a manager that does not answer must delay nothing.
                name = f"cluster {kept.pool.name}" if len(pools) > 1 else "cluster"
                args = (name, cluster_watch.EVERY_S, kept.keeper.watch_cluster)
                loops.append(threading.Thread(target=self._loop, args=args, name=name, daemon=True))
        # Actions that free disk space come first. Each one is tried, whatever fails before it.
        house: tuple[Callable[[], None], ...] = (
            partial(purge_trash, self._context),
            UnusedJars(self._context).remove,
            *(kept.keeper.bound_log for kept in pools),
            partial(stop_soaked, self._context),
            partial(record_overdue_tickets, self._context),
            lambda: remove_packages(self._context, self._forgetting_time(PACKAGES_S)),
            lambda: self._ledger.thin_samples(self._forgetting_time(SAMPLES_S)),
            lambda: self._ledger.forget_old(self._forgetting_time(FORGETS_S)),
            lambda: self._ledger.archive_audit(self._forgetting_time(FORGETS_S)),
        )
        loops.append(
            threading.Thread(target=self._loop, args=("housekeeping", THIN_S, *house), name="housekeeping", daemon=True)
        )
        return loops

    def end(self, *, pool: bool, purge: bool = False) -> None:
        """Ask the agent to stop and, if `pool` is true, to stop its local pool or its queries on another server.

        With `purge`, also remove the environment's names from that server's catalog. Desired states do not change.
        """
        self._end_pool, self._purges = self._end_pool or pool, self._purges or purge
        self._context.stopping.set()

    def _leave_pool(self) -> None:
        """End the local pools, and the environment's queries on servers that the agent does not manage.

        What stays on such a server is recorded as the detail of the pool. Desired states do not change, so the next
        agent restarts the statements.
        """
        deployments = tuple(self._ledger.deployments(include_deleted=self._purges))
        running = frozenset[tuple[TableName, int]]().union(
            *in_threads(len(self._pools), partial(self._leave, deployments), tuple(self._pools.values()))
        )
        ended = (each for each in deployments if (each.table, each.version) not in running and not each.deleted)
        self._set_state(ended, (*ALIVE, State.UNKNOWN), State.STOPPED)

    def _leave(self, deployments: Sequence[Deployment], kept: KeptPool) -> frozenset[tuple[TableName, int]]:
        """End one pool, or leave its server; return the versions that may still run there."""
        stay, running = "", frozenset[tuple[TableName, int]]()
        if kept.pool.declared.url:
            running, stay = leave_server(self._context, kept.pool, deployments, purge=self._purges)
        kept.keeper.end()
        if stay:
            log.warning("%s", stay)
            self._ledger.put_pool(kept.pool.place, state=PoolState.OFF, detail=stay)
        return running

    def _loop(self, name: str, seconds: float, *acts: Callable[[], None]) -> None:
        said = [""] * len(acts)
        while not self._context.stopping.is_set():
            if not self._ledger.is_in_place():
                # The session id is lost with the ledger, so the next agent could not find the running queries.
                log.error("the ledger %s was deleted or replaced: this agent and its pool stop", self._ledger.path)
                self.end(pool=True)
                return
            said = [self._attempt(name, act, before) for act, before in zip(acts, said, strict=True)]
            self._context.stopping.wait(seconds)

    def _attempt(self, name: str, act: Callable[[], None], said: str) -> str:
        """Run `act`; return its error message without numbers, or an empty string on success.

        An error whose message equals `said`, the message of the previous failure, is not logged again.
        """
        try:
            act()
        except HeadgateError as error:
            if (news := without_numbers(error.summary)) != said:
                log.warning("%s: %s", name, error.summary)
            return news
        except Exception:
            log.exception("%s failed; it continues with the next round", name)
            return said
        return ""

    def _announce_agent(self) -> None:
        self._ledger.put_agent(os.getpid(), self._context.clock(), serves=self._context.layout.served)
        self._ledger.heartbeat(self._context.clock())
        self._is_announced = True

    def _write_heartbeat(self) -> None:
        if not self._is_announced:
            self._announce_agent()
        self._ledger.heartbeat(self._context.clock())
        self._commands.record_repeated()

    def _forgetting_time(self, kept_s: float) -> float:
        now = checked_now(self._context)
        return forgetting_time(self._ledger.clock_check(), now, kept_s)

    def _deployments(self) -> tuple[Deployment, ...]:
        return tuple(self._ledger.deployments())

    def _measure(self) -> None:
        seen = tuple(query for kept in self._pools.values() for query in kept.seen)
        self._measurer.round(self._deployments(), seen)

    def _round(self, kept: KeptPool) -> None:
        kept.reconciler.apply_emergencies()
        before = BeforeRound.of(self._context)
        deployments = before.deployments
        self._acts.remember(deployments)
        queries: tuple[ReportedQuery, ...] = ()
        try:
            pool = kept.pool.connection()
            queries = pool.call(READ_CALL_S, pool.queries.active)
            kept.keeper.record_answer(None)
            kept.answered = time.monotonic()
            kept.seen = queries
            # An outdated ledger would make the reconciler stop running statements and start stopped ones.
            self._context.identity.refuse_doubt()
            ended = pool.call(READ_CALL_S, pool.queries.ended)
            kept.reconciler.round(before, queries, ended, fault=kept.keeper.cluster_fault)
            self._runs.resume_open()
        except (PoolUnreachable, EngineRefused) as error:
            kept.keeper.record_answer(error)
            silent_s = time.monotonic() - kept.answered
            is_late = silent_s > UNKNOWN_S and not kept.keeper.is_starting_statements
            if not kept.keeper.is_ready or is_late:
                # The states of statements are unknown if their pool is gone or does not answer.
                here = (each for each in deployments if self._context.pools.of(each) is kept.pool)
                why = WhyUnknown.NO_CONNECTION.of(error=error.summary)
                if kept.keeper.is_ready:
                    why = WhyUnknown.SILENT.of(pool=kept.pool.name, seconds=silent_s, error=error.summary)
                self._set_state(here, ALIVE, State.UNKNOWN, error=str(why))
        kept.seen = queries

    def _set_state(
        self, deployments: Iterable[Deployment], before: Collection[State], state: State, *, error: str = ""
    ) -> None:
        for deployment in deployments:
            if deployment.state in before and not deployment.external:
                changes = {"state": state, "state_since": self._context.clock(), "error": error, "error_class": ""}
                self._ledger.observe_deployment(deployment, **changes)
