"""Stops, starts and restarts statements in the caller's thread, without waiting for runs."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from threading import Lock

from core.lineage.table_graph import depths
from core.model.act_outcomes import ActOutcome, ActResult, CommandOutcome
from core.model.errors import (
    Busy,
    EngineRefused,
    HeadgateError,
    LedgerUnavailable,
    NotRecorded,
    NotTakenBack,
    PoolUnreachable,
    Refused,
    TryAgain,
    UsageError,
)
from core.model.events import EventCause, EventKind
from core.model.names import physical_name, query_name, whole_number
from core.model.states import AT_REST, State, WantedState
from core.observed.versions import Deployment, serving_versions
from core.text.wording import counted
from pipelines.agent.context import AgentContext
from pipelines.agent.identity.registry_records import keep_record
from pipelines.agent.statement_locks import Version
from pipelines.agent.statements.deployment_lifecycle import (
    mark_stopped,
    overtaken,
    refuse_cordoned,
    refuse_start,
    start,
    stop,
)
from pipelines.spark_connect import call_deadlines
from pipelines.spark_connect.call_deadlines import in_threads
from state.emergency_journal import EmergencyJournal, JournalledStop
from state.operator_commands import CommandStamp, LatestCommandRow
from state.registry import TableAct

log = logging.getLogger(__name__)

LEDGER_S = 0.15
"""Longest time, in seconds, that a stop waits for the ledger. After that, the emergency journal records the stop."""

STOP_S = 8.0
"""Deadline of a stop, in seconds. A stop that takes longer is reported as unconfirmed and repeated later."""

STOPS_AT_ONCE = 8
"""Number of parallel calls of Spark's stop: enough for forty statements to stop within three seconds."""

HOLDER_S = 1.0
"""Longest time, in seconds, that a stop waits for a lock whose holder is not starting the version."""

RECORD_S = 1.0
"""Longest time, in seconds, for recording completed stops in the ledger."""


class Recorded(Enum):
    """Where a stop request was recorded. NOWHERE is falsy."""

    LEDGER = "ledger"
    JOURNAL = "emergency journal"
    NOWHERE = ""

    def __bool__(self) -> bool:
        return self is not Recorded.NOWHERE


class StatementControl:
    """Executes stop, start and restart commands at once.

    The registry is cached, so that stops work without the ledger.
    """

    def __init__(self, agent: AgentContext, emergency: EmergencyJournal) -> None:
        self._agent = agent
        self._emergency = emergency
        self._remembered: tuple[Deployment, ...] = ()
        announce_journal(agent, emergency)

    def remember(self, deployments: tuple[Deployment, ...]) -> None:
        """Cache the registry, for stops that are requested while the ledger cannot be read."""
        self._remembered = deployments

    def stop(self, names: tuple[str, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Stop individual versions such as `a@v2`, or all versions of a table that may be running; readers first.

        The request is recorded for all of them before the first call to Spark. `arrived` is the monotonic time of the
        request, in seconds.
        """
        found = self._stoppable(names)
        stamp = CommandStamp(self._agent.locks.announce_stop(names), by, self._agent.clock())
        recorded = self._intend(names, stamp)
        outcomes = in_threads(STOPS_AT_ONCE, partial(self._stop_one, stamp, arrived=arrived), found)
        if recorded is Recorded.LEDGER:
            self._record(found, outcomes, by)
        return tuple(replace(outcome, recorded=bool(recorded)) for outcome in outcomes)

    def start(self, names: tuple[str, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Start stopped or failed statements from their checkpoints, sources first.

        If only one version is to be started, its error is raised; otherwise, errors are part of the outcomes. `arrived`
        is the monotonic time of the request, in seconds.
        """
        return self._each(names, tuple(reversed(self._find(names))), ActResult.STARTED, arrived, by)

    def restart(self, names: tuple[str, ...], arrived: float, *, by: str) -> tuple[ActOutcome, ...]:
        """Restart statements from their checkpoints with their deployed revision, readers first.

        If only one version is to be restarted, its error is raised; otherwise, errors are part of the outcomes.
        `arrived` is the monotonic time of the request, in seconds.
        """
        return self._each(names, self._find(names), ActResult.RESTARTED, arrived, by)

    def _each(
        self, names: tuple[str, ...], found: tuple[Deployment, ...], done: ActResult, arrived: float, by: str
    ) -> tuple[ActOutcome, ...]:
        stamp = CommandStamp(self._agent.locks.announce_start(), by, self._agent.clock())
        outcomes: list[ActOutcome] = []
        for deployment in found:
            try:
                started = self._start_one(deployment, stamp, done=done, whole=deployment.table in names)
                outcomes.append(replace(started, took_ms=_since(arrived)))
            except HeadgateError as error:
                if len(found) == 1:
                    raise
                not_done = ActResult.NOT_STARTED if done is ActResult.STARTED else ActResult.NOT_RESTARTED
                took_ms = _since(arrived)
                outcomes.append(ActOutcome(deployment.table, deployment.version, not_done, None, took_ms, error=error))
        return tuple(outcomes)

    def _start_one(self, found: Deployment, stamp: CommandStamp, *, done: ActResult, whole: bool) -> ActOutcome:
        """Start one version, after stopping it if `done` is RESTARTED.

        With `whole`, the stop request for the whole table also ends. Everything that may refuse the start is checked
        before the running query is stopped. Once Spark has accepted the start, it is reported as done, even if it
        cannot be recorded. The caller measures the time.
        """
        agent, key, name = self._agent, (found.table, found.version), query_name(found.table, found.version)
        verb = "start" if done is ActResult.STARTED else "restart"
        with self._held(found, f"what {stamp.actor} has {done}") as deployment:
            runs = done is ActResult.STARTED and self._runs(deployment)
            rests = deployment.wanted == WantedState.STOPPED or agent.locks.has_unrecorded_stop(key)
            if not runs and deployment.state in AT_REST:
                refuse_cordoned(agent, deployment)
            before = agent.ledger.latest_command(name)
            if not agent.ledger.want_running(*key, stamp, TableAct(f"a {verb} by {stamp.actor}", stamp.at)):
                raise overtaken(deployment)
            try:
                if not runs:
                    self._begin(deployment, stamp, done=done)
            except NotRecorded as error:
                log.warning("%s was %s; it is recorded later: %s", name, done, error.summary)
            except (Refused, TryAgain) as error:
                if rests:
                    # Without this, a refused start would be performed later, once the pool is back.
                    self._take_back(key, stamp, before, error)
                raise
            recorded = not whole or self._written(partial(agent.ledger.end_stop, found.table, stamp))
            agent.locks.mark_started((name, found.table) if whole and recorded else (name,), stamp.serial)
        if runs:
            self._written(partial(self._say_unchanged, deployment, f"was already running: start by {stamp.actor}"))
            return ActOutcome(*key, ActResult.ALREADY_RUNNING, None, 0.0, recorded)
        cause = EventCause.START if done is ActResult.STARTED else EventCause.RESTART
        self._written(partial(self._agent.state_event, deployment, State.STARTING, cause=cause, by=stamp.actor))
        return ActOutcome(*key, done, None, 0.0, recorded)

    def _take_back(
        self, key: Version, stamp: CommandStamp, before: LatestCommandRow | None, error: HeadgateError
    ) -> None:
        if not self._written(partial(self._agent.ledger.take_back, *key, stamp, before)):
            name = query_name(*key)
            raise NotTakenBack(
                f"{error.summary}; the ledger still has {name} as wanted running: the agent starts it when possible",
                remedy=f"headgate stop {name}, if it should not run",
            ) from error

    def _written(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except LedgerUnavailable as error:
            log.warning("the ledger lacks a part of an operator's start: %s", error.summary)
            return False
        return True

    def _begin(self, deployment: Deployment, stamp: CommandStamp, *, done: ActResult) -> None:
        agent, key = self._agent, (deployment.table, deployment.version)
        self._fail_without_parents(deployment)
        stops_first = done is ActResult.RESTARTED and deployment.state not in AT_REST
        if done is ActResult.RESTARTED:
            refuse_start(agent, deployment, stops=stamp.serial)
            # Writing the record may fail on a full disk, so it is written before the query is stopped.
            keep_record(agent, *key)
            if stops_first:
                agent.ledger.update_deployment(*key, state=State.STOPPING)
            stop(agent, deployment)
        start(agent, deployment, stops=stamp.serial, after_stop=stops_first)

    def _runs(self, deployment: Deployment) -> bool:
        there = deployment.state in (State.STARTING, State.RUNNING) and deployment.query_id
        stopping = self._agent.locks.has_unrecorded_stop((deployment.table, deployment.version))
        return bool(there) and deployment.wanted == WantedState.RUNNING and not stopping

    @contextmanager
    def _held(self, found: Deployment, by: str) -> Iterator[Deployment]:
        key = (found.table, found.version)
        with self._agent.locks.holding(key, by=by):
            deployment = self._agent.ledger.deployment(*key)
            if deployment is None or deployment.deleted:
                raise UsageError(
                    f"{query_name(*key)} was deleted in the meantime", remedy="headgate ls shows what is deployed"
                )
            yield deployment

    def _find(self, names: tuple[str, ...]) -> tuple[Deployment, ...]:
        deployments = self._registry()
        return _sinks_first(deployments, _named(names, deployments))

    def _stoppable(self, names: tuple[str, ...]) -> tuple[Deployment, ...]:
        deployments = self._registry()
        found = _named(names, deployments)
        others = [d for d in deployments if d.table in names and d not in found and not d.deleted and _may_run(d)]
        return _sinks_first(deployments, [*found, *others])

    def _registry(self) -> tuple[Deployment, ...]:
        # If the ledger does not answer in time, the cached rows are used.
        try:
            return tuple(call_deadlines.call(LEDGER_S, self._agent.ledger.deployments))
        except (LedgerUnavailable, PoolUnreachable):
            return self._remembered

    def _intend(self, names: tuple[str, ...], stamp: CommandStamp) -> Recorded:
        try:
            call_deadlines.call(LEDGER_S, self._agent.ledger.stop_statements, names, stamp)
        except (LedgerUnavailable, PoolUnreachable) as error:
            log.warning(
                "the ledger did not record a stop in time; it is written to the emergency journal: %s", error.summary
            )
            entry = JournalledStop(stamp.serial, stamp.actor, stamp.at, names)
            on_disk = self._emergency.append(entry, after=self._agent.locks.newest_start())
            return Recorded.JOURNAL if on_disk else Recorded.NOWHERE
        self._agent.locks.mark_stop_recorded(names, stamp.serial)
        return Recorded.LEDGER

    def _say_unchanged(self, deployment: Deployment, words: str) -> None:
        # Repetitions by the same caller are counted in one event.
        about = (deployment.table, deployment.version)
        self._agent.event(EventKind.STATE, words, about=about, fingerprint=words)

    def _stop_one(self, stamp: CommandStamp, deployment: Deployment, arrived: float) -> ActOutcome:
        calls: list[float] = []
        key, ends_at = (deployment.table, deployment.version), arrived + STOP_S

        def called() -> None:
            calls.append(_since(arrived))

        def outcome(result: ActResult, error: HeadgateError | None = None) -> ActOutcome:
            return ActOutcome(*key, result, calls[0] if calls else None, _since(arrived), error=error)

        try:
            held = key in self._agent.locks.held()
            stop(self._agent, deployment, seconds=STOP_S, calling=called)
            if held:
                self._stop_after_holder(stamp, deployment, ends_at, called)
        except (PoolUnreachable, Busy) as error:
            log.warning("stop of %s not confirmed: %s", query_name(*key), error.summary)
            return outcome(ActResult.SENT if calls else ActResult.NOT_SENT)
        except EngineRefused as error:
            log.warning("stop of %s refused: %s", query_name(*key), error.summary)
            return outcome(ActResult.NOT_STOPPED, error)
        # Spark's stop is called even if the ledger says that nothing runs: the ledger may be wrong.
        rested = (deployment.wanted, deployment.state) == (WantedState.STOPPED, State.STOPPED)
        return outcome(ActResult.ALREADY_STOPPED if rested else ActResult.STOPPED)

    def _stop_after_holder(
        self, stamp: CommandStamp, deployment: Deployment, ends_at: float, called: Callable[[], None]
    ) -> None:
        """Stop a version again after its lock is released, because the lock's holder may have started it.

        A holder that is starting the version is waited for until the deadline; then Busy is raised. Any other holder is
        waited for only briefly, because it may be waiting for a locked ledger. A version that was started by a later
        command is not stopped.
        """
        key = (deployment.table, deployment.version)

        def stop_within(seconds: float) -> None:
            with self._agent.locks.holding(key, by="a stop", wait_s=seconds):
                if not self._agent.locks.was_started_since(key, stamp.serial):
                    stop(self._agent, deployment, seconds=STOP_S, calling=called)

        try:
            stop_within(HOLDER_S)
        except Busy:
            if self._agent.locks.is_starting(key):
                stop_within(max(0.0, ends_at - time.monotonic()))

    def _record(self, found: tuple[Deployment, ...], outcomes: tuple[ActOutcome, ...], by: str) -> None:
        # The reconciler later records stops that cannot be recorded in time.

        def write() -> None:
            for deployment, outcome in zip(found, outcomes, strict=True):
                if outcome.result is ActResult.ALREADY_STOPPED:
                    self._say_unchanged(deployment, f"was already stopped: stop by {by}")
                # A version that has been started again in the meantime is not marked as stopped.
                gone = outcome.result is ActResult.STOPPED and mark_stopped(self._agent, deployment)
                if gone and deployment.state != State.STOPPED:
                    self._agent.state_event(deployment, State.STOPPED, cause=EventCause.STOP, by=by)

        try:
            call_deadlines.call(RECORD_S, write)
        except (LedgerUnavailable, PoolUnreachable) as error:
            log.warning("statements are stopped; the ledger will be updated later: %s", error.summary)

    def _fail_without_parents(self, deployment: Deployment) -> None:
        # Without a parent version, the statement would run without input and without an error.
        versions = {(d.table, d.version) for d in self._agent.ledger.deployments()}
        gone = [
            physical_name(b.parent, b.version) if b.version else str(b.parent)
            for b in deployment.bindings
            if (b.parent, b.version) not in versions or self._agent.locks.is_being_deleted((b.parent, b.version))
        ]
        if gone:
            raise Refused(
                f"{deployment.table} reads {', '.join(gone)}, which does not exist",
                remedy=f"headgate plan {deployment.table} --rebuild",
            )


def _named(names: tuple[str, ...], registry: tuple[Deployment, ...]) -> list[Deployment]:
    every: dict[str, Deployment] = {query_name(d.table, d.version): d for d in registry if not d.deleted}
    every |= {str(table): found for table, found in serving_versions(registry).items()}
    for name in names:
        if name not in every or every[name].external:
            why = "is an external table: Headgate runs no statement for it" if name in every else "is not deployed"
            raise UsageError(f"{name} {why}", remedy="headgate ls shows what is deployed")
    return list({(found.table, found.version): found for found in map(every.__getitem__, names)}.values())


def _sinks_first(registry: tuple[Deployment, ...], found: list[Deployment]) -> tuple[Deployment, ...]:
    depth = depths((d.table, [b.parent for b in d.bindings]) for d in registry)
    return tuple(sorted(found, key=lambda d: (-depth[d.table], d.table, d.version)))


def _may_run(deployment: Deployment) -> bool:
    return deployment.wanted == WantedState.RUNNING or deployment.state not in AT_REST | {State.ABSENT, State.PENDING}


def _since(arrived: float) -> float:
    return (time.monotonic() - arrived) * 1000


SERIALS_AHEAD = 1_000_000
"""Maximum lead of the journal's serial numbers over the ledger's, due to stops that only the journal records."""


def announce_journal(agent: AgentContext, journal: EmergencyJournal) -> None:
    """Announce the stop requests in the emergency journal.

    This must precede any new request, to keep commands in order.
    """
    recorded = agent.locks.newest_serial()
    for each in journal.pending().stops:
        if each.serial <= recorded + SERIALS_AHEAD:
            agent.locks.count_above(each.serial)
            agent.locks.announce_pending_stop(each.names, each.serial)


def apply_journal(agent: AgentContext, journal: EmergencyJournal) -> None:
    """Record the stop requests from the emergency journal in the ledger; later commands take precedence.

    Raises LedgerUnavailable, and keeps the requests, if the ledger cannot be written. Lines that are not valid requests
    are moved to a file next to the journal, and reported once.
    """
    if not journal.has_pending():
        return
    # The rounds of several pools apply it.
    with _APPLYING:
        _apply_journal(agent, journal)


_APPLYING = Lock()


def _apply_journal(agent: AgentContext, journal: EmergencyJournal) -> None:
    # If the ledger cannot be written, this call fails before any entry is read.
    agent.ledger.heartbeat(agent.clock())
    with journal.consume() as entries:
        unreadable = entries.unreadable
        for each in entries.stops:
            if each.serial > agent.locks.newest_serial():
                # This serial number was never issued. If it were applied, no later command could ever have a higher
                # one.
                unreadable += (each.as_line(),)
                continue
            agent.ledger.stop_statements(each.names, CommandStamp(each.serial, each.actor, each.at))
            agent.locks.mark_stop_recorded(each.names, each.serial)
            _record_journalled_stop(agent, journal, each)
            log.info("applied the stop of %s from the emergency journal", ", ".join(each.names))
        if unreadable:
            _set_aside(agent, journal, unreadable)
        journal.logged.clear()


def _record_journalled_stop(agent: AgentContext, journal: EmergencyJournal, stop: JournalledStop) -> None:
    # If the ledger fails halfway, the stops are applied again later, and nothing is recorded twice.
    for name in stop.names:
        table, _, version = name.partition("@v")
        about = (table, whole_number(version) or 0)
        late = f"the stop by {stop.actor} was recorded late: the ledger could not be written then"
        for row, record in (
            ("event", partial(agent.event, EventKind.STATE, late, about=about)),
            ("audit", partial(agent.audit, stop.actor, "stop", name, outcome=CommandOutcome.RECORDED_LATE)),
        ):
            key = (stop.at, stop.actor, name, row)
            if key not in journal.logged:
                record()
                journal.logged.add(key)


def _set_aside(agent: AgentContext, journal: EmergencyJournal, lines: tuple[bytes, ...]) -> None:
    kept = journal.unreadable_path.name
    summary = f"{counted(len(lines), 'line')} of the emergency journal cannot be applied: {kept} keeps what was there"
    log.warning("%s", summary)
    agent.event(EventKind.EXCEPTION, summary, detail=repr(lines[0][:200].decode(errors="replace")))
    journal.set_aside(lines)
