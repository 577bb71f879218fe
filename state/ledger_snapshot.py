"""The view of the ledger that console and command line share: immutable values, of which only what changed is read."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.model.names import TableName
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
from core.run.records import MigrationTicket, RunRow, open_tickets
from state.ledger import LedgerReader
from state.row_types import CommandRow, EnvironmentRow, EventRow, SampleRow, StagedRow

if TYPE_CHECKING:
    from core.plan.model import Plan
    from core.run.release import Release

NEWEST = 20
"""Commands and events that a snapshot holds."""


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """One moment of an environment; `problem` is a sentence when it could not be read, or not again."""

    read_at: float
    """Epoch seconds."""
    version: int = 0
    """The ledger's data version: equal means nothing was written in between."""
    facts: EnvironmentRow | None = None
    """None where nothing was ever read."""
    statements: tuple[StatementLine, ...] = ()
    """Every version that is not deleted, by table and version; one that did not change is the same object again."""
    staged: tuple[StagedRow, ...] = ()
    open_runs: tuple[RunRow, ...] = ()
    deleted: tuple[TableName, ...] = ()
    """Tables of which every version was deleted, by name."""
    releases: "tuple[Release, ...]" = ()
    """Those that go on or wait, and those of which what they replaced still runs; newest first."""
    tickets: tuple[MigrationTicket, ...] = ()
    """Open ones: readers that stay on what a release has replaced."""
    failed_runs: tuple[RunRow, ...] = ()
    """Those that nobody has acknowledged, newest first."""
    commands: tuple[CommandRow, ...] = ()
    """The last ones, newest first."""
    events: tuple[EventRow, ...] = ()
    """The last ones, newest first."""
    problem: str = ""
    remedy: str = ""

    @property
    def age_s(self) -> float | None:
        """Age of the data when it was read: seconds since the agent's heartbeat; None when no agent ever wrote."""
        return heartbeat_age_s(self.facts.agent_seen_at, self.read_at) if self.facts else None

    @property
    def stale(self) -> bool:
        """Return whether nobody keeps the data fresh."""
        return self.facts is None or is_stale(self.age_s, self.facts.agent_pid)

    @property
    def pool_state(self) -> str | None:
        """State of the pool; None where nothing was ever read."""
        return self.facts.pool_state if self.facts else None

    @property
    def serving(self) -> tuple[StatementLine, ...]:
        """One line a table, that of what serves; sorted by table."""
        return tuple(serving_versions(self.statements).values())

    def readers_of(self, table: TableName, version: int | None = None) -> tuple[tuple[str, int], ...]:
        """List (table, version) of what is bound to a version of a table, or to any, sorted."""
        named = ((line, line.bindings) for line in self.statements if f'"{table}"' in line.bound)
        return tuple(
            (line.table, line.version)
            for line, bindings in named
            if any(b.parent == table and version in (None, b.version) for b in bindings)
        )


@dataclass(frozen=True, slots=True)
class StatementDetails:
    """What the ledger knows of one statement beside the snapshot."""

    table: TableName
    versions: tuple[Deployment, ...] = ()
    """Newest first, deleted ones included; empty where it never was deployed."""
    measurement: Measurement | None = None
    """All latest figures of what is shown, the serving version where none was asked for."""
    statistics: TableStatistics = field(default_factory=TableStatistics)
    """What was measured of the serving version's table."""
    samples: tuple[SampleRow, ...] = ()
    """Of the serving version, oldest first."""
    events: tuple[EventRow, ...] = ()
    """Newest first."""
    asked: int | None = None
    """The version that it is about; None: what serves."""

    @property
    def shown(self) -> Deployment | None:
        """The version that it is about; None where it never was deployed."""
        named = next((one for one in self.versions if one.version == self.asked), None)
        return self.serving if self.asked is None else named

    @property
    def serving(self) -> Deployment | None:
        """What its name means: a deleted version where all are, None where it never was deployed."""
        return serving_version(self.versions)


class SnapshotCache:
    """Snapshots of one ledger; the same object again while nothing is written, and only changed lines are read."""

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
        """Read the ledger as it is now; raises LedgerUnavailable."""
        with self._lock:
            version = self._reader.data_version()
            if self._last is None or self._last.version != version:
                self._last = self._read(version)
            return self._last

    def _read(self, version: int) -> LedgerSnapshot:
        reader = self._reader
        with reader.frame():
            if reader.opened != self._opened:
                # Another file may lie there now, with a count of changes of its own.
                self._opened, self._change, self._lines, self._statements = reader.opened, 0, {}, ()
            facts = reader.facts()
            before = self._change
            self._change, changed = reader.changed_since(before)
            if not before:
                self._statements = changed
            elif changed:
                self._take(changed)
            open_runs = reader.open_runs()
            return LedgerSnapshot(
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
                commands=reader.commands(NEWEST),
                events=reader.events(limit=NEWEST),
            )

    def _tickets(self) -> tuple[MigrationTicket, ...]:
        unclosed = self._reader.unclosed_tickets()
        return open_tickets(unclosed, self._statements) if unclosed else ()

    def _releases(self, open_runs: Sequence[RunRow]) -> "tuple[Release, ...]":
        if not open_runs and not self._reader.observed_runs():
            return ()
        # Planning comes with it: a reader of a quiet environment does without.
        from state.releases import open_releases

        return open_releases(self._reader, self._clock(), self._plans)

    def _take(self, changed: Iterable[StatementLine]) -> None:
        # Made for the second reading: a command that reads once does without.
        self._lines = self._lines or {(line.table, line.version): line for line in self._statements}
        for line in changed:
            if line.deleted:
                self._lines.pop((line.table, line.version), None)
            else:
                self._lines[line.table, line.version] = line
        self._statements = tuple([line for _, line in sorted(self._lines.items())])
