"""What a deploy does to each table, as it is being decided: before versions, steps and prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from core.changes.classification import Change
from core.model.actions import Action, Strategy
from core.model.evidence import Evidence
from core.model.names import TableName
from core.model.reasons import Reason
from core.plan.model import LeftBehind, PlanRefusal, PlanWarning
from core.plan.request import StrategyChoice
from core.planner.context import PlanningContext
from core.planner.scope import PlanScope
from core.project.model import Table

BEGINS = frozenset({Action.START, Action.RESUME, Action.RESTART, Action.REBUILD})
"""Actions that start a query."""

NEEDS_TEXTS = frozenset({Action.START, Action.REBUILD, Action.RESTART, Action.RECORD})
"""Actions after which the declared texts are the deployed ones."""

DEFAULT_STRATEGY = {
    Action.START: Strategy.FIRST,
    Action.REBUILD: Strategy.EARLIEST,
    Action.RESTART: Strategy.IN_PLACE,
    Action.RESUME: Strategy.IN_PLACE,
}


class DownstreamOutcome(IntEnum):
    """What a table's readers meet after the plan, mildest first."""

    KEPT = 0
    """The same table: kept, recorded, restarted in place."""
    GROWN = 1
    """The same table, altered in place: with new columns, or wider types of columns."""
    REWRITTEN = 2
    """The same table, its rows upserted again in bulk."""
    CHAINED = 3
    """A new version that holds only new rows."""
    CREATED = 4
    """A new version from the beginning: positions in the old one mean nothing in it."""


@dataclass(frozen=True, slots=True)
class TableDecision:
    """What happens to one table."""

    action: Action
    reason: Reason
    change: Change
    because_of: tuple[TableName, ...] = ()
    chosen_strategy: str = ""
    """Empty is the action's own one."""
    at: str = ""
    begins_where: tuple[str, ...] = ()
    """Conditions of its streams, where its strategy begins at a time or a partition."""
    keeps_rows: bool = False
    """Whether its table, written again in place, may keep rows that no rebuild would have."""
    before_choice: "TableDecision | None" = None
    """What it would be by default, where the operator chose a strategy."""

    @property
    def strategy(self) -> str:
        """Its strategy, the action's own one filled in; empty where nothing is started."""
        return self.chosen_strategy or str(DEFAULT_STRATEGY.get(self.action, ""))

    @property
    def default(self) -> "TableDecision":
        """What it is without the operator's choice."""
        return self.before_choice or self

    @property
    def lowered(self) -> bool:
        """Return whether less is done than by default: the table is kept where it would be made anew."""
        return self.keeps_rows or (self.action is Action.RESTART and self.default.action is Action.REBUILD)

    @property
    def makes_version(self) -> bool:
        """Return whether a new physical table comes of it."""
        return self.action in (Action.START, Action.REBUILD) and self.strategy != Strategy.KEYED

    @property
    def moves(self) -> bool:
        """Return whether it reads the newest versions of its streamed parents afterwards."""
        return self.action in (Action.START, Action.REBUILD) or self.strategy == Strategy.SEAM

    @property
    def outcome(self) -> DownstreamOutcome:
        """What its readers meet."""
        if self.action is Action.REBUILD:
            return _OUTCOMES.get(self.strategy, DownstreamOutcome.CREATED)
        return (
            DownstreamOutcome.GROWN
            if self.action is Action.RESTART and self.change.kind.definition.alters_table
            else DownstreamOutcome.KEPT
        )


_OUTCOMES = {str(Strategy.KEYED): DownstreamOutcome.REWRITTEN, str(Strategy.CHAIN): DownstreamOutcome.CHAINED}


def recreated_parents(table: Table, decisions: Mapping[TableName, TableDecision]) -> tuple[TableName, ...]:
    """Return what it streams that is made anew in the same plan: positions of now mean nothing there."""
    streamed = dict.fromkeys(read.table for read in table.parsed.reads if read.streaming) if table.parsed else {}
    known = ((name, decisions[name]) for name in streamed if name in decisions)
    return tuple(name for name, found in known if found.makes_version and found.reason is not Reason.REGISTERED)


@dataclass(slots=True)
class PlanRemarks:
    """What is refused while a plan is decided, and what its reviewer is told."""

    refusals: list[PlanRefusal] = field(default_factory=list)
    warnings: list[PlanWarning] = field(default_factory=list)

    def refuse(self, table: TableName, summary: str, remedy: str) -> None:
        """Refuse the request because of a table."""
        self.refusals.append(PlanRefusal.of(table, summary, remedy))

    def warn(self, table: TableName, summary: str, *, multiplies_rows: bool = False) -> None:
        """Add a warning about a table, for the reviewer."""
        self.warnings.append(PlanWarning.of(table, summary, multiplies_rows=multiplies_rows))


@dataclass(slots=True)
class DeployDecisions(PlanRemarks):
    """A deploy as it is being decided."""

    by_table: dict[TableName, TableDecision] = field(default_factory=dict)
    left_behind: list[LeftBehind] = field(default_factory=list)
    causes: dict[TableName, dict[TableName, Evidence | None]] = field(default_factory=dict)
    """Tables that brought another one along, besides what its decision names, with the evidence of each."""

    def put(self, table: TableName, decision: TableDecision) -> None:
        """Decide a table, or decide it again."""
        self.by_table[table] = decision

    def add_cause(self, table: TableName, cause: TableName, evidence: Evidence | None = None) -> None:
        """Add a table to those that brought another one along, with what was seen there."""
        self.causes.setdefault(table, {})[cause] = evidence

    def settle(self) -> None:
        """Write the causes into the decisions, by name, once all are known."""
        for table, causes in self.causes.items():
            known = self.by_table[table]
            seen = (causes[cause] for cause in sorted(causes))
            evidence = dict.fromkeys((*known.change.evidence, *(each for each in seen if each is not None)))
            self.by_table[table] = replace(
                known,
                because_of=tuple(sorted({*known.because_of, *causes})),
                change=replace(known.change, evidence=tuple(evidence)),
            )
        self.causes.clear()


@dataclass(slots=True)
class DeployWalk:
    """What every part of the walk looks at, and what it has decided."""

    context: PlanningContext
    scope: PlanScope
    found: DeployDecisions = field(default_factory=DeployDecisions)
    choices: Mapping[TableName, StrategyChoice] = field(init=False)
    """The operator's strategies."""

    def __post_init__(self) -> None:
        self.choices = {choice.table: choice for choice in self.scope.request.choices}

    def may_touch(self, table: TableName) -> bool:
        """Return whether the walk down may change a table that nobody asked for."""
        declared = self.context.declared.tables.get(table)
        return declared is not None and not declared.external and self.scope.may_touch(table, declared.product)
