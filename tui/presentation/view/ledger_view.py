"""A view of a ledger snapshot for the screens: statements joined with parents, readers and staged marks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from core.lineage.table_graph import distances
from core.model.names import TableName, trigger_s, up_command
from core.model.states import ALIVE, State, Trend
from core.observed.versions import (
    INTERVAL_S,
    Binding,
    Measurement,
    StatementLine,
    bindings_of,
    heartbeat_age_s,
    is_stale,
    serving_versions,
)
from core.project.model import layer_place
from core.text.sentence import Sentence
from core.text.wording import long_duration
from state.ledger_snapshot import LedgerSnapshot
from state.row_types import StagedRow
from tui.presentation.styling.theme import parse_state, parse_trend
from tui.presentation.styling.value_formatting import trend_words

if TYPE_CHECKING:
    from core.observed.time_left import TimeLeft


@dataclass(frozen=True, slots=True)
class StatementView:
    """A table's serving version, with its latest measurement, parents and readers."""

    line: StatementLine
    state: State
    trend: Trend
    """Trend of the lag. It is unknown while the statement starts, and idle for an external table."""
    starting: bool
    """True if the statement was started too recently for a verdict on its lag."""
    parents: tuple[Binding, ...]
    readers: tuple[TableName, ...]
    """Tables whose serving version reads this table, sorted."""
    reader_products: int
    staged: tuple[StagedRow, ...]
    lacks_input: bool = False
    """Whether an external table that the statement reads cannot be read, is gone, or is no longer filled."""

    @property
    def table(self) -> TableName:
        return self.line.table

    @property
    def version(self) -> int:
        """The table's serving version; 0 for an external table."""
        return self.line.version

    @property
    def external(self) -> bool:
        """True if the table is written outside Headgate."""
        return self.line.external

    def trend_words(self, measurement: Measurement | StatementLine) -> str:
        """Describe the trend of the lag, or return `starting`. `measurement` provides rate and ETA."""
        if self.starting:
            return "starting"
        return trend_words(self.trend, measurement.rate_rows_s, measurement.eta_s, measurement.data_age_s)

    def time_left(self, now: float) -> "TimeLeft | None":
        """Return how long the most endangered position of the statement stays readable; None if it is not known."""
        if not self.line.time_left:
            return None
        from core.observed.time_left import time_left_of

        found = time_left_of(self.line.time_left)
        return found.as_of(now) if found is not None else None

    @property
    def lag_rows(self) -> int | None:
        """Number of pending rows; None if unknown, 0 for an external table."""
        if self.external:
            return 0
        return self.line.lag_rows

    @property
    def errors(self) -> int:
        """Number of restarts, plus one if the statement has failed."""
        return self.line.restarts + (self.state is State.FAILED)

    @property
    def runs(self) -> bool:
        """True if the statement is meant to run and is known to be running."""
        return self.line.wanted == "running" and self.state in ALIVE

    @property
    def faulty(self) -> bool:
        """True if the table has a fault, or if its running statement lacks an input.

        False while its statement starts, and for external tables without readers.
        """
        if self.external:
            return bool(self.line.error and self.readers)
        lacks_input = self.lacks_input and self.runs
        return (bool(self.line.fault_word) or lacks_input) and not self.starting


@dataclass(frozen=True, slots=True)
class LedgerView:
    """All statements of an environment, joined with related data once per ledger snapshot."""

    snapshot: LedgerSnapshot
    statements: Mapping[TableName, StatementView]
    """Statements and external tables by table name, sorted."""
    others: Mapping[TableName, tuple[StatementLine, ...]]
    """Versions other than the serving one that are not stopped, absent or completed, by table."""
    faults: int = 0
    """Number of faulty statements."""
    families: Mapping[str, Mapping[str, tuple[TableName, ...]]] = field(default_factory=dict)
    """Tables by product and layer. Products and tables are sorted by name, and layers from sources to views."""

    def statement(self, table: str) -> StatementView | None:
        """Return the view of a table; None if the table is not deployed."""
        return self.statements.get(TableName(table))


def downstream_of(view: LedgerView, targets: Sequence[str]) -> tuple[str, ...]:
    """Return all direct and indirect readers of the targets, nearest first, without the targets themselves."""
    below = distances(
        map(TableName, targets), lambda name: view.statements[name].readers if view.statement(name) else ()
    )
    return tuple(name for name in below if name not in targets)


def make_ledger_view(snapshot: LedgerSnapshot, previous: LedgerView | None = None) -> LedgerView:
    """Join a snapshot's statements with readers and staged marks, reusing what is unchanged from `previous`."""
    if previous is not None:
        if previous.snapshot is snapshot:
            return previous
        changed = _changed_figures(snapshot, previous.snapshot)
        if changed is not None:
            return _with_figures(snapshot, changed, previous)
    serving = serving_versions(snapshot.statements)
    others: dict[TableName, tuple[StatementLine, ...]] = {}
    for line in snapshot.statements:
        if line is not serving[line.table] and line.state not in ("stopped", "absent", "completed"):
            others[line.table] = (*others.get(line.table, ()), line)
    parents = dict(zip(serving, bindings_of(serving.values()), strict=True))
    readers: dict[TableName, set[TableName]] = {}
    for table, bindings in parents.items():
        for binding in bindings:
            readers.setdefault(binding.parent, set()).add(table)
    staged: dict[TableName, tuple[StagedRow, ...]] = {}
    for mark in snapshot.staged:
        staged[mark.table] = (*staged.get(mark.table, ()), mark)
    statements = {}
    unusable = {table for table, line in serving.items() if line.is_unusable_input}
    for table, line in serving.items():
        reading = tuple(sorted(readers.get(table, ())))
        products = len({serving[reader].product for reader in reading})
        lacks_input = any(binding.parent in unusable for binding in parents[table]) if unusable else False
        statements[table] = statement_view(
            line, parents[table], reading, products, staged.get(table, ()), lacks_input=lacks_input
        )
    faults = sum(one.faulty for one in statements.values())
    return LedgerView(snapshot, statements, others, faults, _families(statements.values()))


_STRUCTURE = attrgetter("table", "version", "product", "layer", "state", "active", "started_at", "bound")
"""Fields that decide which version serves, who reads whom, and the position in the tree."""


def _changed_figures(
    snapshot: LedgerSnapshot, previous: LedgerSnapshot
) -> tuple[tuple[StatementLine, StatementLine], ...] | None:
    """Return changed statement lines as (old, new); None if the structure changed, so the view must be rebuilt."""
    if len(previous.statements) != len(snapshot.statements) or previous.staged != snapshot.staged:
        return None
    pairs = zip(previous.statements, snapshot.statements, strict=True)
    changed = tuple((old, new) for old, new in pairs if old is not new)
    same = all(
        _STRUCTURE(old) == _STRUCTURE(new) and old.is_unusable_input == new.is_unusable_input for old, new in changed
    )
    return changed if same else None


def _families(statements: Iterable[StatementView]) -> Mapping[str, Mapping[str, tuple[TableName, ...]]]:
    found: dict[str, dict[str, list[TableName]]] = {}
    for one in statements:
        found.setdefault(one.line.product, {}).setdefault(one.line.layer, []).append(one.table)
    return {
        product: {layer: tuple(found[product][layer]) for layer in sorted(found[product], key=layer_place)}
        for product in sorted(found)
    }


def _with_figures(
    snapshot: LedgerSnapshot, changed: Iterable[tuple[StatementLine, StatementLine]], previous: LedgerView
) -> LedgerView:
    """Replace the changed lines of the previous view, whose structure must be unchanged."""
    statements, others = dict(previous.statements), dict(previous.others)
    faults = previous.faults
    for line, newer in changed:
        old = statements[line.table]
        if line is old.line:
            new = statements[line.table] = statement_view(
                newer, old.parents, old.readers, old.reader_products, old.staged, lacks_input=old.lacks_input
            )
            faults += new.faulty - old.faulty
        elif line.table in others:
            others[line.table] = tuple(newer if one is line else one for one in others[line.table])
    return LedgerView(snapshot, statements, others, faults, previous.families)


def statement_view(
    line: StatementLine,
    parents: tuple[Binding, ...],
    readers: tuple[TableName, ...] = (),
    reader_products: int = 0,
    staged: tuple[StagedRow, ...] = (),
    *,
    lacks_input: bool = False,
) -> StatementView:
    """Join a statement's line from the ledger with its parents, readers and staged marks."""
    starting = is_starting(line)
    trend = Trend.IDLE if line.external else Trend.UNKNOWN if starting else parse_trend(line.trend or "unknown")
    return StatementView(
        line, parse_state(line.state), trend, starting, parents, readers, reader_products, staged, lacks_input
    )


def is_starting(line: StatementLine) -> bool:
    """True if a running statement has neither committed a batch nor been measured since it was started.

    A measurement within one trigger interval of the start still reflects the time before, so it does not count.
    """
    if line.started_at is None or not uncommitted(line):
        return False
    return line.at is None or line.at - line.started_at < trigger_s(line.trigger)


def uncommitted(line: StatementLine) -> bool:
    """True if a statement is running and has committed nothing since it was started."""
    return line.started_at is not None and line.state in ALIVE and (line.committed_at or 0.0) < line.started_at


def pool_fault(snapshot: LedgerSnapshot) -> str:
    """Describe what is wrong with the worst pool; empty if all are up, starting or switched off.

    It counts as a single fault, because the states of the pool's statements are unknown.
    """
    facts = snapshot.facts
    if facts is None or not facts.pool_state.is_fault:
        return ""
    worst = facts.worst_pool
    detail = f" ({worst.detail})" if worst.detail else ""
    of = f" {worst.name}" if len(facts.pools) > 1 else ""
    return f"the pool {worst.name} is {worst.state}{detail}; headgate logs pool{of}"


@dataclass(frozen=True, slots=True)
class Access:
    """Whether a user may change anything in the environment, as far as policy and unlocks decide it."""

    words: str = ""
    """`read-only`, or the time left of an unlock, such as `unlocked 28m`; empty if no unlock is needed."""
    locked: Sentence | None = None
    """Why the user may only look, stop and cancel; None if the user may do more."""


OPEN_TO_ALL = Access()
"""Access to an environment that is not protected."""


def access_of(snapshot: LedgerSnapshot, user: str, now: float) -> Access:
    """Return what the recorded policy and unlocks let a user do. The agent decides again, by its own clocks.

    The words change at most once a minute, so that an idle screen is rarely redrawn.
    """
    facts = snapshot.facts
    if snapshot.read_only:
        return Access("read-only by policy", Sentence("the policy makes the environment read-only"))
    if facts is None or not facts.protected:
        return OPEN_TO_ALL
    left = max((one.until - now for one in snapshot.unlocks if one.actor == user), default=0.0)
    if left > 0:
        return Access(f"unlocked {long_duration(left // 60 * 60) if left >= 60 else '<1m'}")
    return Access("read-only", Sentence(f"{facts.environment} is read-only: `:unlock 30m TICKET` unlocks it"))


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of the data on screen, and whether an agent keeps it up to date."""

    age_s: float | None
    stale: bool
    agent: bool
    words: str
    """The freshness in words: `live 2s`, `STALE 42s`, `NO AGENT 3h`, `NO LEDGER`."""
    reason: str
    """Why staging and executing are impossible; empty if they are possible."""
    no_agent: bool = False
    """True if no agent is running, so that nothing can be sent to it."""


def freshness(snapshot: LedgerSnapshot, now: float) -> Freshness:
    """Return the freshness of a snapshot.

    Its `words` change rarely, so that an idle screen is rarely redrawn.
    """
    facts = snapshot.facts
    if facts is None:
        reason = snapshot.problem or "the ledger has not been read yet"
        return Freshness(None, True, False, "NO LEDGER" if snapshot.problem else "reading", reason)
    seen, up = heartbeat_age_s(facts.agent_seen_at, now), up_command(facts.environment, protected=facts.protected)
    if seen is None:
        return Freshness(None, True, False, "NO AGENT", f"no agent has run here yet: start one with `{up}`", True)
    if facts.agent_pid is None:
        return Freshness(seen, True, False, f"NO AGENT {_bucket(seen)}", _last_known(seen, up), True)
    if is_stale(seen, facts.agent_pid):
        reason = (
            f"the data is {_bucket(seen)} old: staging and executing need live data; stopping and cancelling do not"
        )
        return Freshness(seen, True, True, f"STALE {_bucket(seen)}", reason)
    return Freshness(seen, False, True, f"live {int(INTERVAL_S)}s", "")


def _last_known(seen: float, up: str) -> str:
    return f"no agent is running; this is the last known state, {_bucket(seen)} old. Start one with `{up}`"


def _bucket(seconds: float) -> str:
    if seconds < 60:
        return f"{max(int(seconds // 5) * 5, 5)}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m"
    return f"{int(seconds // 3600)}h" if seconds < 86400 else f"{int(seconds // 86400)}d"
