"""Immutable snapshots of the ledger for the console and the command line. Only changed rows are read again."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.model.names import TableName
from core.model.states import PoolState
from core.observed.table_statistics import TableStatistics
from core.observed.versions import (
    Deployment,
    Measurement,
    StatementLine,
    heartbeat_age_s,
    is_stale,
    serving_version,
    serving_versions,
)
from core.policy.unlocking import Unlock
from core.run.records import MigrationTicket, RunRow, halted, open_tickets
from state.ledger import LedgerReader
from state.row_types import CommandRow, EnvironmentRow, EventRow, SampleRow, StagedRow

if TYPE_CHECKING:
    from core.plan.model import Plan
    from core.plan.request import PlanRequest
    from core.run.release import Release

NEWEST = 20
"""Number of commands and events in a snapshot."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The state of an environment at one moment; if the ledger could not be read, `problem` explains why."""

    read_at: float
    """When the ledger was read, in epoch seconds."""
    version: int = 0
    """The ledger's data version. Equal versions mean that nothing was written between two snapshots."""
    facts: EnvironmentRow | None = None
    """The row of the environment; None if nothing was ever read."""
    statements: tuple[StatementLine, ...] = ()
    """All versions that are not deleted, sorted by table and version.

    A line without changes is the same object as in the previous snapshot.
    """
    staged: tuple[StagedRow, ...] = ()
    open_runs: tuple[RunRow, ...] = ()
    deleted: tuple[TableName, ...] = ()
    """Tables whose versions are all deleted, by name."""
    releases: "tuple[Release, ...]" = ()
    """Open releases, and releases whose replaced versions still run; newest first."""
    tickets: tuple[MigrationTicket, ...] = ()
    """Open tickets of readers that still read replaced versions."""
    failed_runs: tuple[RunRow, ...] = ()
    """Unacknowledged failed runs, newest first."""
    unlocks: tuple[Unlock, ...] = ()
    """The last unlock of each actor, even if it has ended."""
    read_only: bool = False
    """True if the policy makes the environment read-only for everybody."""
    commands: tuple[CommandRow, ...] = ()
    """The latest commands, newest first."""
    events: tuple[EventRow, ...] = ()
    """The latest events, newest first."""
    problem: str = ""
    remedy: str = ""

    @property
    def age_s(self) -> float | None:
        """Seconds between the agent's last heartbeat and this snapshot; None if there was no heartbeat."""
        return heartbeat_age_s(self.facts.agent_seen_at, self.read_at) if self.facts else None

    @property
    def stale(self) -> bool:
        """True if no agent is updating the data."""
        return self.facts is None or is_stale(self.age_s, self.facts.agent_pid)

    @property
    def pool_state(self) -> PoolState | None:
        """The state of the pool; None if the ledger was never read."""
        return self.facts.pool_state if self.facts else None

    @property
    def serving(self) -> tuple[StatementLine, ...]:
        """The serving version of each table, sorted by table."""
        return tuple(serving_versions(self.statements).values())

    def readers_of(self, table: TableName, version: int | None = None) -> tuple[tuple[str, int], ...]:
        """Return the statements that read a table, or `version` of it, as sorted (table, version) pairs."""
        named = ((line, line.bindings) for line in self.statements if f'"{table}"' in line.bound)
        return tuple(
            (line.table, line.version)
            for line, bindings in named
            if any(b.parent == table and version in (None, b.version) for b in bindings)
        )


def without_agent(snapshot: LedgerSnapshot) -> LedgerSnapshot:
    """Return a snapshot as it is while no agent is alive: without the agent's pid, and with its runs halted."""
    if snapshot.releases:
        from core.run.release import halted_release

        snapshot = replace(snapshot, releases=tuple(map(halted_release, snapshot.releases)))
    facts = replace(snapshot.facts, agent_pid=None) if snapshot.facts else None
    return replace(snapshot, facts=facts, open_runs=tuple(map(halted, snapshot.open_runs)))


@dataclass(frozen=True, slots=True)
class StatementDetails:
    """Details of one table that a LedgerSnapshot does not include."""

    table: TableName
    versions: tuple[Deployment, ...] = ()
    """All versions, newest first, including deleted ones; empty if the table was never deployed."""
    measurement: Measurement | None = None
    """The latest measurement of the version in `shown`."""
    statistics: TableStatistics = field(default_factory=TableStatistics)
    """Statistics of the serving version's table."""
    samples: tuple[SampleRow, ...] = ()
    """Samples of the serving version, oldest first."""
    events: tuple[EventRow, ...] = ()
    """Events of the table, newest first."""
    asked: int | None = None
    """The requested version; None if the serving version was requested."""
    promotion: "PlanRequest | None" = None
    """The request of the promotion that deployed the revision of the version in `shown`; None if no promotion did."""

    @property
    def shown(self) -> Deployment | None:
        """The requested version, or the serving version if none was requested.

        None if that version does not exist.
        """
        named = next((one for one in self.versions if one.version == self.asked), None)
        return self.serving if self.asked is None else named

    @property
    def serving(self) -> Deployment | None:
        """The serving version or, if the table is deleted, the one that served last; None if it was never deployed."""
        return serving_version(self.versions)


class SnapshotCache:
    """Caches the snapshot of a ledger.

    It returns the same snapshot until the ledger is written, and then reads only the changed rows again.
    """

    def __init__(self, reader: LedgerReader, *, clock: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._clock = clock
        self._lock = threading.Lock()
        self._opened = 0
        self._change = 0
        self._lines: dict[tuple[TableName, int], StatementLine] = {}
        self._statements: tuple[StatementLine, ...] = ()
        self._last: LedgerSnapshot | None = None
        self._plans: dict[str, Plan | None] = {}

    def snapshot(self) -> LedgerSnapshot:
        """Return the current snapshot. Raises LedgerUnavailable if the ledger cannot be read."""
        with self._lock:
            version = self._reader.data_version()
            if self._last is None or self._last.version != version:
                self._last = self._read(version)
            return self._last

    def _read(self, version: int) -> LedgerSnapshot:
        reader = self._reader
        with reader.frame():
            if reader.opened != self._opened:
                # The path may now lead to a different file, with a change counter of its own.
                self._opened, self._change, self._lines, self._statements = reader.opened, 0, {}, ()
            facts = reader.facts()
            before = self._change
            self._change, changed = reader.changed_since(before)
            if not before:
                self._statements = changed
            elif changed:
                self._take(changed)
            open_runs = reader.open_runs()
            found = LedgerSnapshot(
                read_at=self._clock(),
                version=version,
                facts=facts,
                statements=self._statements,
                staged=reader.staged(),
                open_runs=open_runs,
                releases=self._releases(open_runs),
                tickets=self._tickets(),
                failed_runs=reader.failed_runs(),
                deleted=reader.deleted_tables(),
                unlocks=reader.unlocks(),
                read_only=reader.is_read_only(),
                commands=reader.commands(NEWEST),
                events=reader.events(limit=NEWEST),
            )
            return without_agent(found) if facts is not None and facts.agent_pid is None else found

    def _tickets(self) -> tuple[MigrationTicket, ...]:
        unclosed = self._reader.unclosed_tickets()
        return open_tickets(unclosed, self._statements) if unclosed else ()

    def _releases(self, open_runs: Sequence[RunRow]) -> "tuple[Release, ...]":
        if not open_runs and not self._reader.runs_with_scheduled_stops():
            return ()
        # This import loads the planner, which readers of a quiet environment do not need.
        from state.releases import open_releases

        return open_releases(self._reader, self._clock(), self._plans)

    def _take(self, changed: Iterable[StatementLine]) -> None:
        # The mapping is created at the second read, because a command that reads once does not need it.
        self._lines = self._lines or {(line.table, line.version): line for line in self._statements}
        for line in changed:
            if line.deleted:
                self._lines.pop((line.table, line.version), None)
            else:
                self._lines[line.table, line.version] = line
        self._statements = tuple([line for _, line in sorted(self._lines.items())])
