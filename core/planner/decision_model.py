"""The decisions that a deploy makes about its tables, before versions, steps and costs are determined."""

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
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.project.model import Table
from core.text.sentence import Fact

BEGINS = frozenset({Action.START, Action.RESUME, Action.RESTART, Action.REBUILD})
"""Actions that start a query."""

NEEDS_TEXTS = frozenset({Action.START, Action.REBUILD, Action.RESTART, Action.RECORD})
"""Actions that deploy the declared SQL and YAML."""

DEFAULT_STRATEGY = {
    Action.START: Strategy.FIRST,
    Action.REBUILD: Strategy.EARLIEST,
    Action.RESTART: Strategy.IN_PLACE,
    Action.RESUME: Strategy.IN_PLACE,
}


class DownstreamOutcome(IntEnum):
    """The effect of a decision on the readers of the table, from mildest to most severe."""

    KEPT = 0
    """The table stays the same: kept, recorded or restarted in place."""
    GROWN = 1
    """The table stays the same, with columns added or widened."""
    REWRITTEN = 2
    """The table stays the same, with all rows upserted again."""
    CHAINED = 3
    """The table gets a new version that contains only new rows."""
    CREATED = 4
    """The table gets a new version, to which the readers' offsets in the old version do not apply."""


@dataclass(frozen=True, slots=True)
class TableDecision:
    """The decision about a table: the action, its reason and the strategy."""

    action: Action
    reason: Reason
    change: Change
    because_of: tuple[TableName, ...] = ()
    chosen_strategy: str = ""
    """Strategy chosen by the operator; empty for the action's default."""
    at: str = ""
    begins_where: tuple[str, ...] = ()
    """Conditions on the input streams, for a start at a time, a partition or a log position."""
    keeps_rows: bool = False
    """True if a rewrite in place may leave rows that would be missing after a rebuild."""
    before_choice: "TableDecision | None" = None
    """The decision that the operator's choice replaced; None if the operator chose nothing."""

    @property
    def strategy(self) -> str:
        """The chosen strategy or, if none was chosen, the action's default; empty if the action starts no query."""
        return self.chosen_strategy or str(DEFAULT_STRATEGY.get(self.action, ""))

    @property
    def default(self) -> "TableDecision":
        """The decision that applies without the operator's choice of strategy."""
        return self.before_choice or self

    @property
    def lowered(self) -> bool:
        """True if the operator chose a strategy that, unlike a rebuild, keeps the table or some of its old rows."""
        return self.keeps_rows or (self.action is Action.RESTART and self.default.action is Action.REBUILD)

    @property
    def makes_version(self) -> bool:
        """True if the decision creates a new physical table."""
        return self.action in (Action.START, Action.REBUILD) and self.strategy != Strategy.KEYED

    @property
    def rebinds_streams(self) -> bool:
        """True if the decision binds the table to the latest versions of its streamed parents."""
        return self.action in (Action.START, Action.REBUILD) or self.strategy == Strategy.SEAM

    @property
    def outcome(self) -> DownstreamOutcome:
        """The effect of the decision on the readers of the table."""
        if self.action is Action.REBUILD:
            return _OUTCOMES.get(self.strategy, DownstreamOutcome.CREATED)
        return (
            DownstreamOutcome.GROWN
            if self.action is Action.RESTART and self.change.kind.definition.alters_table
            else DownstreamOutcome.KEPT
        )


_OUTCOMES = {str(Strategy.KEYED): DownstreamOutcome.REWRITTEN, str(Strategy.CHAIN): DownstreamOutcome.CHAINED}


def recreated_parents(table: Table, decisions: Mapping[TableName, TableDecision]) -> tuple[TableName, ...]:
    """Return the streamed parents that the plan re-creates; the table's offsets in these parents become invalid."""
    streamed = dict.fromkeys(read.table for read in table.parsed.reads if read.streaming) if table.parsed else {}
    known = ((name, decisions[name]) for name in streamed if name in decisions)
    return tuple(name for name, found in known if found.makes_version and found.reason is not Reason.REGISTERED)


@dataclass(slots=True)
class WarningsAndRefusals:
    """Refusals and warnings collected during planning."""

    refusals: list[PlanRefusal] = field(default_factory=list)
    warnings: list[PlanWarning] = field(default_factory=list)

    def refuse(self, table: TableName, why: Fact[PlanRefusalKind]) -> None:
        """Record a refusal of the request; `table` is empty if the refusal does not concern a single table."""
        self.refusals.append(PlanRefusal.of(table, why))

    def warn(
        self, table: TableName, said: Fact[PlanWarningKind], *, multiplies_rows: bool = False, drifts: bool = False
    ) -> None:
        """Record a warning for the reviewer; `table` is empty if the warning concerns the whole plan."""
        self.warnings.append(PlanWarning.of(table, said, multiplies_rows=multiplies_rows, drifts=drifts))


@dataclass(slots=True)
class DeployDecisions(WarningsAndRefusals):
    """The decisions of a deploy so far, with refusals and warnings."""

    by_table: dict[TableName, TableDecision] = field(default_factory=dict)
    left_behind: list[LeftBehind] = field(default_factory=list)
    causes: dict[TableName, dict[TableName, Evidence | None]] = field(default_factory=dict)
    """For each table, the tables that brought it into the plan, each with optional evidence; see `because_of`."""

    def put(self, table: TableName, decision: TableDecision) -> None:
        """Record the decision about a table, replacing any earlier decision."""
        self.by_table[table] = decision

    def add_cause(self, table: TableName, cause: TableName, evidence: Evidence | None = None) -> None:
        """Record that the plan includes `table` because of `cause`, with optional evidence."""
        self.causes.setdefault(table, {})[cause] = evidence

    def settle(self) -> None:
        """Copy all recorded causes, sorted by name, and their evidence into the decisions. Call this last."""
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
    """The state of a walk over the tables of a deploy: the planner's input, and the decisions made so far."""

    context: PlanningContext
    scope: PlanScope
    found: DeployDecisions = field(default_factory=DeployDecisions)
    choices: Mapping[TableName, StrategyChoice] = field(init=False)
    """The operator's strategy choices, by table."""

    def __post_init__(self) -> None:
        self.choices = {choice.table: choice for choice in self.scope.request.choices}

    def may_touch(self, table: TableName) -> bool:
        """True if the plan may change a reader, that is, if the reader is declared, in scope and not external."""
        declared = self.context.declared.tables.get(table)
        return declared is not None and not declared.external and self.scope.may_touch(table, declared.product)
