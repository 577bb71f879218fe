"""What a deploy decides for each table, before versions, steps and costs are known."""

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
from core.planner.remarks import PlanRefusalKind, PlanWarningKind
from core.planner.scope import PlanScope
from core.project.model import Table
from core.text.sentence import Fact

BEGINS = frozenset({Action.START, Action.RESUME, Action.RESTART, Action.REBUILD})
"""Actions that start a query."""

NEEDS_TEXTS = frozenset({Action.START, Action.REBUILD, Action.RESTART, Action.RECORD})
"""Actions that deploy the declared texts."""

DEFAULT_STRATEGY = {
    Action.START: Strategy.FIRST,
    Action.REBUILD: Strategy.EARLIEST,
    Action.RESTART: Strategy.IN_PLACE,
    Action.RESUME: Strategy.IN_PLACE,
}


class DownstreamOutcome(IntEnum):
    """What the readers of a table find after the plan, from mildest to most severe."""

    KEPT = 0
    """The same table: kept, recorded or restarted in place."""
    GROWN = 1
    """The same table, altered in place: columns were added or widened."""
    REWRITTEN = 2
    """The same table with its rows upserted again in bulk."""
    CHAINED = 3
    """A new version that holds only new rows."""
    CREATED = 4
    """A new version that reads from the beginning; offsets of the old version mean nothing in it."""


@dataclass(frozen=True, slots=True)
class TableDecision:
    """What happens to one table."""

    action: Action
    reason: Reason
    change: Change
    because_of: tuple[TableName, ...] = ()
    chosen_strategy: str = ""
    """The strategy that the operator chose; empty for the action's default."""
    at: str = ""
    begins_where: tuple[str, ...] = ()
    """Conditions on the table's streams if the strategy starts at a time, a partition or a position in their logs."""
    keeps_rows: bool = False
    """Whether a rewrite in place may leave rows that a rebuild would not produce."""
    before_choice: "TableDecision | None" = None
    """The default decision if the operator chose a strategy; otherwise None."""

    @property
    def strategy(self) -> str:
        """The chosen strategy or the action's default; empty if nothing is started."""
        return self.chosen_strategy or str(DEFAULT_STRATEGY.get(self.action, ""))

    @property
    def default(self) -> "TableDecision":
        """The decision as it would be without the operator's choice."""
        return self.before_choice or self

    @property
    def lowered(self) -> bool:
        """Return whether the operator's choice does less than the default: it keeps the table, without a rebuild."""
        return self.keeps_rows or (self.action is Action.RESTART and self.default.action is Action.REBUILD)

    @property
    def makes_version(self) -> bool:
        """Return whether the decision creates a new physical table."""
        return self.action in (Action.START, Action.REBUILD) and self.strategy != Strategy.KEYED

    @property
    def moves(self) -> bool:
        """Return whether the table will read the newest versions of its streamed parents."""
        return self.action in (Action.START, Action.REBUILD) or self.strategy == Strategy.SEAM

    @property
    def outcome(self) -> DownstreamOutcome:
        """What the readers of the table find after the plan."""
        if self.action is Action.REBUILD:
            return _OUTCOMES.get(self.strategy, DownstreamOutcome.CREATED)
        return (
            DownstreamOutcome.GROWN
            if self.action is Action.RESTART and self.change.kind.definition.alters_table
            else DownstreamOutcome.KEPT
        )


_OUTCOMES = {str(Strategy.KEYED): DownstreamOutcome.REWRITTEN, str(Strategy.CHAIN): DownstreamOutcome.CHAINED}


def recreated_parents(table: Table, decisions: Mapping[TableName, TableDecision]) -> tuple[TableName, ...]:
    """Return the streamed parents that the same plan re-creates: the table's current offsets mean nothing in them."""
    streamed = dict.fromkeys(read.table for read in table.parsed.reads if read.streaming) if table.parsed else {}
    known = ((name, decisions[name]) for name in streamed if name in decisions)
    return tuple(name for name, found in known if found.makes_version and found.reason is not Reason.REGISTERED)


@dataclass(slots=True)
class PlanRemarks:
    """Refusals and warnings collected while a plan is decided."""

    refusals: list[PlanRefusal] = field(default_factory=list)
    warnings: list[PlanWarning] = field(default_factory=list)

    def refuse(self, table: TableName, why: Fact[PlanRefusalKind]) -> None:
        """Refuse the request because of a table; `table` is empty if the refusal concerns no table."""
        self.refusals.append(PlanRefusal.of(table, why))

    def warn(self, table: TableName, said: Fact[PlanWarningKind], *, multiplies_rows: bool = False) -> None:
        """Warn the reviewer about a table; `table` is empty if the warning concerns the whole plan."""
        self.warnings.append(PlanWarning.of(table, said, multiplies_rows=multiplies_rows))


@dataclass(slots=True)
class DeployDecisions(PlanRemarks):
    """The decisions of a deploy while they are being made."""

    by_table: dict[TableName, TableDecision] = field(default_factory=dict)
    left_behind: list[LeftBehind] = field(default_factory=list)
    causes: dict[TableName, dict[TableName, Evidence | None]] = field(default_factory=dict)
    """For each table, further tables that brought it into the plan, with the evidence; see `because_of`."""

    def put(self, table: TableName, decision: TableDecision) -> None:
        """Record the decision on a table, replacing an earlier one."""
        self.by_table[table] = decision

    def add_cause(self, table: TableName, cause: TableName, evidence: Evidence | None = None) -> None:
        """Record that another table brought a table into the plan, with the evidence."""
        self.causes.setdefault(table, {})[cause] = evidence

    def settle(self) -> None:
        """Write the causes into the decisions, sorted by name, once all causes are known."""
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
    """The input of the walk over the tables of a deploy, and the decisions made so far."""

    context: PlanningContext
    scope: PlanScope
    found: DeployDecisions = field(default_factory=DeployDecisions)
    choices: Mapping[TableName, StrategyChoice] = field(init=False)
    """The operator's choices of strategies, by table."""

    def __post_init__(self) -> None:
        self.choices = {choice.table: choice for choice in self.scope.request.choices}

    def may_touch(self, table: TableName) -> bool:
        """Return whether the walk downstream may change a table that was not requested."""
        declared = self.context.declared.tables.get(table)
        return declared is not None and not declared.external and self.scope.may_touch(table, declared.product)
