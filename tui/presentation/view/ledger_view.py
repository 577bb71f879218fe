"""One reading of the ledger, and the world that the screens show: statements with figures, parents and readers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from core.model.names import TableName
from core.model.states import ALIVE, State, Trend
from core.observed.deployment import Binding
from core.observed.serving import INTERVAL_S, heartbeat_age_s, is_stale, serving_versions
from core.project.model import layer_place
from state.row_types import CommandRow, Deployment, EnvironmentRow, EventRow, Measurement, RunRow, StagedRow
from tui.presentation.styling.glyphs import parse_state, parse_trend


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """What one reading of the ledger gave; `problem` is a sentence when it gave nothing or not all."""

    read_at: float
    facts: EnvironmentRow | None = None
    deployments: tuple[Deployment, ...] = ()
    measurements: Mapping[tuple[str, int], Measurement] = field(default_factory=dict)
    staged: tuple[StagedRow, ...] = ()
    open_runs: tuple[RunRow, ...] = ()
    commands: tuple[CommandRow, ...] = ()
    """Newest first."""
    events: tuple[EventRow, ...] = ()
    """Newest first."""
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class StatementView:
    """A table as the screens show it: the version that serves with its latest figures."""

    table: TableName
    version: int
    product: str
    layer: str
    owner: str
    state: State
    since: float
    trend: Trend
    external: bool
    deployment: Deployment
    measurement: Measurement | None
    parents: tuple[Binding, ...]
    readers: tuple[TableName, ...]
    """Tables whose serving version reads this one, sorted."""
    reader_products: int
    staged: tuple[StagedRow, ...]

    @property
    def lag_rows(self) -> int | None:
        """Rows behind; None when it is not known, 0 for an external table."""
        if self.external:
            return 0
        return self.measurement.lag_rows if self.measurement else None

    @property
    def errors(self) -> int:
        """Restarts, and one more while it has failed."""
        return self.deployment.restarts + (self.state is State.FAILED)

    @property
    def runs(self) -> bool:
        """Return whether it runs and is wanted to, as far as is known."""
        return self.deployment.wanted == "running" and self.state in ALIVE

    @property
    def faulty(self) -> bool:
        """Return whether the faults-only view (`f`) shows it."""
        return self.state in (State.FAILED, State.DEGRADED) or self.trend in (
            Trend.GROWING,
            Trend.STALLED,
            Trend.STARVED,
        )


@dataclass(frozen=True, slots=True)
class LedgerView:
    """Everything on screen, computed once per reading."""

    snapshot: LedgerSnapshot
    statements: Mapping[TableName, StatementView]
    """Sorted by name."""
    others: Mapping[TableName, tuple[Deployment, ...]]
    """Versions that run or wait beside the one that serves, by table."""
    faults: int = 0
    """Statements that are not well."""
    families: Mapping[str, Mapping[str, tuple[TableName, ...]]] = field(default_factory=dict)
    """Tables by product and layer, products and tables sorted, layers from sources to views."""

    def statement(self, table: str) -> StatementView | None:
        """Find a table; None when it is not deployed."""
        return self.statements.get(TableName(table))


def make_ledger_view(snapshot: LedgerSnapshot, previous: LedgerView | None = None) -> LedgerView:
    """Join deployments, figures and staged marks; after `previous`, what did not change is taken from it."""
    if (
        previous is not None
        and previous.snapshot.deployments is snapshot.deployments
        and previous.snapshot.staged == snapshot.staged
    ):
        return _with_figures(snapshot, previous)
    serving = serving_versions(snapshot.deployments)
    others: dict[TableName, tuple[Deployment, ...]] = {}
    for row in snapshot.deployments:
        if row is not serving[row.table] and row.state not in ("stopped", "absent", "completed"):
            others[row.table] = (*others.get(row.table, ()), row)
    readers: dict[TableName, set[TableName]] = {}
    for row in serving.values():
        for binding in row.bindings:
            readers.setdefault(binding.parent, set()).add(row.table)
    staged: dict[TableName, tuple[StagedRow, ...]] = {}
    for mark in snapshot.staged:
        staged[mark.table] = (*staged.get(mark.table, ()), mark)
    statements = {
        table: _statement(row, snapshot, readers.get(table, set()), serving, staged.get(table, ()))
        for table, row in serving.items()
    }
    faults = sum(one.faulty for one in statements.values())
    return LedgerView(snapshot, statements, others, faults, _families(statements.values()))


def _families(statements: Iterable[StatementView]) -> Mapping[str, Mapping[str, tuple[TableName, ...]]]:
    found: dict[str, dict[str, list[TableName]]] = {}
    for one in statements:
        found.setdefault(one.product, {}).setdefault(one.layer, []).append(one.table)
    return {
        product: {layer: tuple(found[product][layer]) for layer in sorted(found[product], key=layer_place)}
        for product in sorted(found)
    }


def _with_figures(snapshot: LedgerSnapshot, previous: LedgerView) -> LedgerView:
    """Take new figures into a world whose deployments are the same."""
    statements = dict(previous.statements)
    faults = previous.faults
    for table, old in previous.statements.items():
        figures = snapshot.measurements.get((table, old.version))
        if figures is not old.measurement and figures is not None:
            new = statements[table] = replace(old, measurement=figures, trend=parse_trend(figures.trend))
            faults += new.faulty - old.faulty
    return LedgerView(snapshot, statements, previous.others, faults, previous.families)


def _statement(
    row: Deployment,
    snapshot: LedgerSnapshot,
    readers: set[TableName],
    serving: Mapping[TableName, Deployment],
    staged: tuple[StagedRow, ...],
) -> StatementView:
    measurement = snapshot.measurements.get((row.table, row.version))
    return StatementView(
        table=row.table,
        version=row.version,
        product=row.product,
        layer=row.layer,
        owner=row.owner,
        state=parse_state(row.state),
        since=row.state_since,
        trend=parse_trend(measurement.trend) if measurement else Trend.IDLE if row.external else Trend.UNKNOWN,
        external=row.external,
        deployment=row,
        measurement=measurement,
        parents=row.bindings,
        readers=tuple(sorted(readers)),
        reader_products=len({serving[reader].product for reader in readers}),
        staged=staged,
    )


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the data is and whether an agent writes it."""

    age_s: float | None
    stale: bool
    agent: bool
    words: str
    """`live 2s`, `STALE 42s`, `NO AGENT 3h`, `NO LEDGER`."""
    reason: str
    """Why staging and executing are not possible; empty when they are."""


def freshness(snapshot: LedgerSnapshot, now: float) -> Freshness:
    """Judge a reading; the words change rarely, so that a quiet screen sends nothing."""
    facts = snapshot.facts
    if facts is None:
        reason = snapshot.problem or "the ledger has not been read yet"
        return Freshness(None, True, False, "NO LEDGER" if snapshot.problem else "reading", reason)
    seen = heartbeat_age_s(facts.agent_seen_at, now)
    if seen is None:
        return Freshness(None, True, False, "NO AGENT", "no agent has run here yet: start one with `headgate up`")
    if facts.agent_pid is None:
        return Freshness(seen, True, False, f"NO AGENT {_bucket(seen)}", _last_known(seen))
    if is_stale(seen, facts.agent_pid):
        reason = (
            f"the data is {_bucket(seen)} old: staging and executing need live data; stopping and cancelling do not"
        )
        return Freshness(seen, True, True, f"STALE {_bucket(seen)}", reason)
    return Freshness(seen, False, True, f"live {int(INTERVAL_S)}s", "")


def _last_known(seen: float) -> str:
    return f"no agent is running; this is the last known state, {_bucket(seen)} old. Start one with `headgate up`"


def _bucket(seconds: float) -> str:
    if seconds < 60:
        return f"{max(int(seconds // 5) * 5, 5)}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m"
    return f"{int(seconds // 3600)}h" if seconds < 86400 else f"{int(seconds // 86400)}d"
