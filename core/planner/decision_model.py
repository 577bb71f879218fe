"""The decisions of a deploy on each table, before versions, steps and costs are determined."""

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
    """The condition in which a plan leaves a table for its readers, from mildest to most severe."""

    KEPT = 0
    """The same table, which was kept, recorded or restarted in place."""
    GROWN = 1
    """The same table with columns added or widened in place."""
    REWRITTEN = 2
    """The same table with its rows upserted again in bulk."""
    CHAINED = 3
    """A new version that holds only new rows."""
    CREATED = 4
    """A new version that reads from the beginning; offsets of the old version are not valid in it."""


@dataclass(frozen=True, slots=True)
class TableDecision:
    """The decision on one table: the action, its reason and the strategy."""

    action: Action
    reason: Reason
    change: Change
    because_of: tuple[TableName, ...] = ()
    chosen_strategy: str = ""
    """The strategy that the operator chose; empty for the action's default."""
    at: str = ""
    begins_where: tuple[str, ...] = ()
    """Conditions on the table's input streams if the strategy starts at a time, a partition or a log position."""
    keeps_rows: bool = False
    """Whether a rewrite in place may leave rows that a rebuild would not produce."""
    before_choice: "TableDecision | None" = None
    """The default decision if the operator chose a strategy; otherwise None."""

    @property
    def strategy(self) -> str:
        """The operator's strategy, or else the action's default; empty if the action starts no query."""
        return self.chosen_strategy or str(DEFAULT_STRATEGY.get(self.action, ""))

    @property
    def default(self) -> "TableDecision":
        """The decision that the plan would make without the operator's choice."""
        return self.before_choice or self

    @property
    def lowered(self) -> bool:
        """Return whether the operator's choice does less than a rebuild: it keeps the table or some of its old rows."""
        return self.keeps_rows or (self.action is Action.RESTART and self.default.action is Action.REBUILD)

    @property
    def makes_version(self) -> bool:
        """Return whether the decision creates a new physical table."""
        return self.action in (Action.START, Action.REBUILD) and self.strategy != Strategy.KEYED

    @property
    def moves(self) -> bool:
        """Return whether the decision binds the table to the latest versions of its streamed parents."""
        return self.action in (Action.START, Action.REBUILD) or self.strategy == Strategy.SEAM

    @property
    def outcome(self) -> DownstreamOutcome:
        """The condition in which the plan leaves the table for its readers."""
        if self.action is Action.REBUILD:
            return _OUTCOMES.get(self.strategy, DownstreamOutcome.CREATED)
        return (
            DownstreamOutcome.GROWN
            if self.action is Action.RESTART and self.change.kind.definition.alters_table
            else DownstreamOutcome.KEPT
        )


_OUTCOMES = {str(Strategy.KEYED): DownstreamOutcome.REWRITTEN, str(Strategy.CHAIN): DownstreamOutcome.CHAINED}


def recreated_parents(table: Table, decisions: Mapping[TableName, TableDecision]) -> tuple[TableName, ...]:
    """Return the streamed parents that the same plan re-creates; the table's current offsets do not apply to these."""
    streamed = dict.fromkeys(read.table for read in table.parsed.reads if read.streaming) if table.parsed else {}
    known = ((name, decisions[name]) for name in streamed if name in decisions)
    return tuple(name for name, found in known if found.makes_version and found.reason is not Reason.REGISTERED)


@dataclass(slots=True)
class WarningsAndRefusals:
    """The refusals and warnings collected while a plan is being decided."""

    refusals: list[PlanRefusal] = field(default_factory=list)
    warnings: list[PlanWarning] = field(default_factory=list)

    def refuse(self, table: TableName, why: Fact[PlanRefusalKind]) -> None:
        """Record a refusal of the request because of a table; `table` is empty if no single table is the reason."""
        self.refusals.append(PlanRefusal.of(table, why))

    def warn(self, table: TableName, said: Fact[PlanWarningKind], *, multiplies_rows: bool = False) -> None:
        """Record a warning about a table for the plan's reviewer; `table` is empty if it concerns the whole plan."""
        self.warnings.append(PlanWarning.of(table, said, multiplies_rows=multiplies_rows))


@dataclass(slots=True)
class DeployDecisions(WarningsAndRefusals):
    """The decisions made so far in planning a deploy, with refusals and warnings."""

    by_table: dict[TableName, TableDecision] = field(default_factory=dict)
    left_behind: list[LeftBehind] = field(default_factory=list)
    causes: dict[TableName, dict[TableName, Evidence | None]] = field(default_factory=dict)
    """For each table, the other tables that bring it into the plan, each with the evidence; see `because_of`."""

    def put(self, table: TableName, decision: TableDecision) -> None:
        """Record the decision on a table, replacing any earlier decision."""
        self.by_table[table] = decision

    def add_cause(self, table: TableName, cause: TableName, evidence: Evidence | None = None) -> None:
        """Record that the plan includes `table` because of `cause`, with the evidence if there is any."""
        self.causes.setdefault(table, {})[cause] = evidence

    def settle(self) -> None:
        """Copy all recorded causes, sorted by name, and their evidence into the decisions; call this last."""
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
    """The state of a walk over the tables of a deploy: its input, and the decisions made so far."""

    context: PlanningContext
    scope: PlanScope
    found: DeployDecisions = field(default_factory=DeployDecisions)
    choices: Mapping[TableName, StrategyChoice] = field(init=False)
    """The operator's choices of strategies, by table."""

    def __post_init__(self) -> None:
        self.choices = {choice.table: choice for choice in self.scope.request.choices}

    def may_touch(self, table: TableName) -> bool:
        """Return whether the plan may change a reader: it must be declared, not external, and in scope."""
        declared = self.context.declared.tables.get(table)
        return declared is not None and not declared.external and self.scope.may_touch(table, declared.product)
