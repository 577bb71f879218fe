"""The cost of each strategy: rows to reread, time, disk space and losses.

Costs are based on measurements. A cost is None if a measurement that it requires is unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from core.changes.kinds import ChangeKind
from core.model.actions import EXECUTABLE, Action, Strategy, typed_strategy
from core.model.errors import Refused
from core.model.evidence import Notice
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.table_statistics import LogHistory, TableStatistics, history_of
from core.observed.versions import Binding
from core.plan.model import Plan, PlanNode, PlanWarning, Retention, RetentionKind, StrategyOffer
from core.plan.request import NOW
from core.planner.allowed_strategies import strategies_of
from core.planner.context import PlanningContext
from core.planner.decision_model import TableDecision, recreated_parents
from core.planner.scope import PlanScope
from core.planner.start_positions import epoch_of, is_log_start, rows_from
from core.planner.strategy_refusal_kinds import StrategyNote
from core.planner.warning_and_refusal_kinds import PlanWarningKind
from core.sql.statement import TableRead
from core.text.sentence import Fact

_COSTED = frozenset({Action.START, Action.RESTART, Action.REBUILD})
_WHOLE = frozenset({Strategy.FIRST, Strategy.EARLIEST, Strategy.KEYED, Strategy.PARTIAL})
"""Strategies that scan the whole input; PARTIAL then filters the rows."""
_COMPLETE = frozenset({Strategy.EARLIEST, Strategy.KEYED, Strategy.FORK})
"""Rebuild strategies that leave the table with all of its rows."""
_READS_NOTHING = frozenset({Strategy.IN_PLACE, Strategy.FORK, Strategy.CARRY_OVER, Strategy.CHAIN, Strategy.SEAM})
_NEW_ROWS_ONLY = frozenset({Strategy.CARRY_OVER, Strategy.CHAIN, Strategy.IN_PLACE, Strategy.SEAM})
_UNKNOWN = TableStatistics()
_AVAILABLE, _UNCERTAIN = Retention(RetentionKind.OK), Retention(RetentionKind.UNKNOWN)

_CUT = ("rows from before its start position",)
_REWRITTEN = ("the current rows: each is written again under its key",)
_BEGINS_LATER = frozenset({Strategy.CARRY_OVER, Strategy.PARTIAL, Strategy.SEEDED})


def not_executable_yet(plan: Plan) -> tuple[tuple[TableName, str], ...]:
    """Return the changes that no agent can execute yet, as sorted (table, strategy) pairs.

    For a move from a pool that is not declared, the strategy is replaced by the string `another pool`.
    """
    return _not_executable(plan.nodes)


def refuse_not_executable(plan: Plan) -> None:
    """Raise Refused if a plan contains a change that no agent can execute yet."""
    found = not_executable_yet(plan)
    if found:
        named = ", ".join(f"{what} for {table}" for table, what in found)
        them = "it" if len(found) == 1 else "them"
        raise Refused(
            f"the plan uses {named}, which this version cannot execute yet",
            remedy=f"plan again without {them}; headgate review shows the options that can be executed",
        )


def not_executable_warnings(nodes: Iterable[PlanNode]) -> tuple[PlanWarning, ...]:
    """Return a warning for each table with a change that no agent can execute yet."""
    kind = PlanWarningKind.NOT_EXECUTABLE
    return tuple(PlanWarning.of(table, kind.of(what=what)) for table, what in _not_executable(nodes))


def _not_executable(nodes: Iterable[PlanNode]) -> tuple[tuple[TableName, str], ...]:
    found = []
    for node in nodes:
        if node.strategy not in EXECUTABLE:
            found.append((node.table, typed_strategy(node.strategy)))
        elif node.action is Action.RESTART and node.change is ChangeKind.POOL and _is_old_pool_gone(node):
            found.append((node.table, "another pool"))
    return tuple(sorted(found))


def _is_old_pool_gone(node: PlanNode) -> bool:
    return any(isinstance(each, Fact) and each.kind is Notice.OLD_POOL_GONE for each in node.evidence)


@dataclass(frozen=True, slots=True)
class CostedOffers:
    """The costs of a statement's allowed strategies, with the chosen one first, and whether its input still exists."""

    offers: tuple[StrategyOffer, ...]
    retention: Retention | None


@dataclass(frozen=True, slots=True)
class _CostedStatement:
    table: TableName
    decision: TableDecision
    bindings: tuple[Binding, ...]
    stateful: bool
    rows: int | None
    bytes: int | None
    wait_s: float | None
    """Seconds until the slowest parent in the plan has caught up; None if unknown."""


class StrategyCosts:
    """Computes the costs of the statements of one plan; call `of` for a parent before its readers."""

    def __init__(
        self, context: PlanningContext, scope: PlanScope, decisions: Mapping[TableName, TableDecision]
    ) -> None:
        self._context = context
        self._scope = scope
        self._decisions = decisions
        self._eta: dict[TableName, float | None] = {}
        self._other: set[TableName] = set()
        """Tables whose rows will differ from the current rows."""
        self._cut: set[TableName] = set()
        """Tables that lose their earliest rows, including tables rebuilt from such tables."""

    def of(self, table: TableName, bindings: tuple[Binding, ...]) -> CostedOffers | None:
        """Return the costs of the strategies allowed for a table.

        None if the table is external, or if the plan does not start, restart or rebuild it.
        """
        decision = self._decisions[table]
        notes = strategies_of(self._context, self._scope, self._decisions, table)
        if decision.action not in _COSTED or not notes:
            return None
        statement = self._statement(table, decision, bindings)
        if decision.action is not Action.RESTART and (
            decision.strategy not in _COMPLETE or not self._other.isdisjoint(binding.parent for binding in bindings)
        ):
            self._other.add(table)
        words = dict.fromkeys((decision.strategy, *notes))
        offers = tuple(self._offer(statement, strategy, notes.get(strategy)) for strategy in words)
        if decision.action is not Action.RESTART:
            self._eta[table] = offers[0].eta_s
        if decision.action is Action.REBUILD and self._is_cut(bindings, decision.strategy):
            self._cut.add(table)
        return CostedOffers(offers, self._retention(statement))

    def _statement(self, table: TableName, decision: TableDecision, bindings: tuple[Binding, ...]) -> _CostedStatement:
        declared = self._context.declared.tables.get(table)
        streamed = dict.fromkeys(binding.parent for binding in bindings if binding.streamed)
        known = [
            self._context.observed.statistics(parent) if parent not in self._other else _UNKNOWN for parent in streamed
        ]
        waits = [self._eta[binding.parent] for binding in bindings if binding.parent in self._eta]
        return _CostedStatement(
            table,
            decision,
            bindings,
            stateful=declared is not None and declared.parsed is not None and declared.parsed.stateful,
            rows=_sum(statistics.rows for statistics in known),
            bytes=_sum(statistics.bytes for statistics in known),
            wait_s=None if None in waits else max((wait for wait in waits if wait is not None), default=0.0),
        )

    def _offer(self, statement: _CostedStatement, strategy: str, note: Fact[StrategyNote] | None) -> StrategyOffer:
        rows, size = self._to_read(statement, strategy)
        begins = statement.decision.action is Action.START
        loses = () if begins else self._loses(statement, strategy)
        return StrategyOffer(
            str(strategy),
            replay_rows=rows,
            eta_s=self._eta_of(statement, strategy, rows),
            replay_bytes=size,
            disk_bytes=self._disk(statement, strategy),
            loses=loses,
            note=note.sentence if note is not None else None,
        )

    def _loses(self, statement: _CostedStatement, strategy: str) -> tuple[str, ...]:
        if self._is_cut(statement.bindings, strategy):
            return _CUT
        return _REWRITTEN if strategy == Strategy.KEYED else self._lost_changes(statement, strategy)

    def _is_cut(self, bindings: tuple[Binding, ...], strategy: str) -> bool:
        """True if a strategy omits the earliest rows, because it starts later or a parent lacks its earliest rows."""
        if strategy in _BEGINS_LATER:
            return True
        return strategy == Strategy.EARLIEST and not self._cut.isdisjoint(binding.parent for binding in bindings)

    def _lost_changes(self, statement: _CostedStatement, strategy: str) -> tuple[str, ...]:
        """Return the changes that a rebuild cannot reread, because its first batch reads a snapshot of the source.

        The result is empty for a table with one row per key, because the rebuild produces the same rows.
        """
        declared = self._context.declared.tables.get(statement.table)
        if strategy != Strategy.EARLIEST or declared is None or declared.parsed is None or declared.settings.upserts:
            return ()
        made = recreated_parents(declared, self._decisions)
        names = sorted(
            {
                read.table
                for read in declared.parsed.reads
                if read.takes_changes and (read.table in made or not _begins_in_log(read))
            }
        )
        return tuple(f"changes of {name} from before: it begins with the rows that {name} has then" for name in names)

    def _to_read(self, statement: _CostedStatement, strategy: str) -> tuple[int | None, int | None]:
        if strategy == Strategy.PARTIAL == statement.decision.strategy and is_log_start(statement.decision.at):
            return self._rows_in_log(statement), None
        if strategy in _WHOLE:
            return statement.rows, statement.bytes
        if strategy in _READS_NOTHING or (strategy == Strategy.SEEDED and statement.decision.at in ("", NOW)):
            return 0, 0
        return None, None

    def _rows_in_log(self, statement: _CostedStatement) -> int | None:
        declared = self._context.declared.tables.get(statement.table)
        if declared is None or recreated_parents(declared, self._decisions):
            return None
        return rows_from(declared, statement.decision.at, self._history)

    def _history(self, table: TableName) -> LogHistory | None:
        return history_of(self._context.observed.statistics(table).log)

    def _eta_of(self, statement: _CostedStatement, strategy: str, rows: int | None) -> float | None:
        if strategy in (Strategy.IN_PLACE, Strategy.SEAM) or rows is None or statement.wait_s is None:
            return None
        rate = self._context.observed.statistics(statement.table).rate_rows_s
        own = rows / rate if rate else 0.0 if rows == 0 else None
        return statement.wait_s + own if own is not None else None

    def _disk(self, statement: _CostedStatement, strategy: str) -> int | None:
        statistics = self._context.observed.statistics(statement.table)
        state = statistics.state_bytes if statement.stateful else 0
        if strategy in _NEW_ROWS_ONLY:
            return 0
        if strategy in (Strategy.FORK, Strategy.KEYED):
            return state
        return _sum((statistics.bytes, state)) if strategy in (Strategy.EARLIEST, Strategy.PARTIAL) else None

    def _retention(self, statement: _CostedStatement) -> Retention | None:
        decision = statement.decision
        if decision.strategy in _READS_NOTHING:
            return None
        sources = [
            binding.parent for binding in statement.bindings if binding.streamed and not self._is_new(binding.parent)
        ]
        if decision.action is Action.START or not sources or (decision.strategy, decision.at) == (Strategy.SEEDED, NOW):
            return _AVAILABLE
        if decision.strategy == Strategy.PARTIAL and is_log_start(decision.at):
            return _AVAILABLE if all(self._history(source) is not None for source in sources) else _UNCERTAIN
        earliest = [self._context.observed.statistics(source).earliest for source in sources]
        begins = epoch_of(decision.at)
        if begins is not None and all(each is not None and each <= begins for each in earliest):
            return _AVAILABLE
        gone = self._context.observed.statistics(statement.table).gone
        if not gone:
            return _AVAILABLE if gone == 0 and not any(map(self._is_topics, sources)) else _UNCERTAIN
        known = [each for each in earliest if each is not None]
        return Retention(RetentionKind.SHORT, gone, _day(max(known)) if known else "")

    def _is_topics(self, source: TableName) -> bool:
        """True if a source consists of topics, whose deleted messages are not counted as files are."""
        declared = self._context.declared.tables.get(source)
        return declared is not None and table_format(declared.parsed_ddl.format).topics

    def _is_new(self, parent: TableName) -> bool:
        known = self._decisions.get(parent)
        return known is not None and known.makes_version and not self._context.observed.is_external(parent)


def _begins_in_log(read: TableRead) -> bool:
    return any(name.lower() in ("startingversion", "startingtimestamp") for name, _ in read.options)


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _day(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M")
