"""Applies the operator's `--strategy`, `--from` and `--keep-table` to the decisions of a deploy.

If the chosen strategy is not allowed for a table, the plan is refused, and the refusal lists the allowed strategies.
"""

from collections.abc import Mapping
from dataclasses import replace

from core.changes.kinds import ChangeKind
from core.model.actions import EXECUTABLE, Action, Strategy, typed_strategy
from core.model.evidence import Evidence, Notice
from core.model.names import TableName, whole_number
from core.model.reasons import Reason
from core.observed.table_statistics import history_of
from core.plan.request import COMMITTED, EARLIEST, NOW, SINCE, StrategyChoice
from core.planner.allowed_strategies import (
    REBUILDS,
    StrategyCase,
    strategies_of,
    why_not,
    why_sequence_would_be_forgotten,
)
from core.planner.decision_model import DeployWalk, TableDecision, recreated_parents
from core.planner.requested_tables import rebuild_as_asked
from core.planner.rewrite_in_place import keys_stay, rows_that_stay
from core.planner.start_positions import (
    event_time_of,
    has_arrival_starts,
    is_log_start,
    is_time,
    log_starts,
    streams_of,
    why_log_incomplete,
    why_logs_beside_files,
    why_not_partial,
)
from core.planner.strategy_refusal_kinds import Refusal, StrategyRefusal
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.project.model import Table
from core.text.escaping import quoted_name, quoted_string_literal
from core.text.sentence import Fact


def with_chosen_strategy(walk: DeployWalk, table: TableName, decision: TableDecision) -> TableDecision:
    """Return the decision with the strategy that the operator chose for the table.

    The decision is returned unchanged if the operator chose no strategy, or one that is not allowed.
    """
    choice = walk.choices.get(table)
    if choice is None:
        kept = walk.scope.request.keep_table and table in walk.scope.requested and decision.action is Action.REBUILD
        return _restarted(walk, table, decision, Strategy.IN_PLACE) if kept else decision
    if walk.context.observed.is_external(table):
        return decision
    if decision.action is Action.START:
        return decision if choice.strategy == EARLIEST else _with(decision, choice)
    if choice.strategy in (Strategy.IN_PLACE, Strategy.SEAM):
        return _restarted(walk, table, decision, choice.strategy) if decision.action is Action.REBUILD else decision
    if choice.strategy not in REBUILDS or not _may_make(walk, table, decision, choice.strategy):
        return decision
    if decision.action is not Action.REBUILD:
        decision = rebuild_as_asked(walk, table, decision.change, decision.because_of)
    if choice.strategy == Strategy.KEYED:
        return _in_the_same_table(walk, table, decision, choice)
    return decision if choice.strategy == EARLIEST else _with(decision, choice)


def _in_the_same_table(
    walk: DeployWalk, table: TableName, decision: TableDecision, choice: StrategyChoice
) -> TableDecision:
    declared = walk.context.declared.tables[table]
    kept = replace(_with(decision, choice), keeps_rows=keys_stay(walk.context, declared))
    return _seeing(kept, rows_that_stay(walk.context, declared))


def _with(decision: TableDecision, choice: StrategyChoice) -> TableDecision:
    return replace(decision, chosen_strategy=str(choice.strategy), at=choice.at, before_choice=decision)


def _restarted(walk: DeployWalk, table: TableName, decision: TableDecision, strategy: str) -> TableDecision:
    """Return the decision to restart a table instead of rebuilding it; unchanged if the strategy is not allowed."""
    declared = walk.context.declared.tables.get(table)
    if declared is None:
        return decision
    case = _case(walk, declared, decision)
    if (case.why_not_seamed() if strategy == Strategy.SEAM else case.why_not_in_place()) is not None:
        return decision
    change = replace(decision.change, action=Action.RESTART)
    return replace(
        decision, action=Action.RESTART, change=change, chosen_strategy=str(strategy), before_choice=decision
    )


def _may_make(walk: DeployWalk, table: TableName, decision: TableDecision, strategy: str) -> bool:
    """True if a strategy is allowed. Only CHAIN and KEYED are checked here, because they affect the table's readers.

    `refuse_unmet_choices` checks all other strategies once every decision has been made.
    """
    declared = walk.context.declared.tables.get(table)
    if declared is None:
        return False
    case = _case(walk, declared, decision)
    if strategy == Strategy.CHAIN:
        return case.why_not_chained() is None
    return strategy != Strategy.KEYED or case.why_not_keyed() is None


def _case(walk: DeployWalk, declared: Table, decision: TableDecision) -> StrategyCase:
    return StrategyCase(walk.context, walk.scope, walk.found.by_table, declared, decision)


def apply_start(walk: DeployWalk) -> None:
    """Apply `--from` to requested tables that start or are rebuilt, and align all start positions to windows."""
    start = walk.scope.request.start
    if start.startswith(SINCE):
        _begin_since(walk, start.removeprefix(SINCE))
    else:
        _begin_at(walk, start)
    for table, decision in walk.found.by_table.items():
        if decision.chosen_strategy in (Strategy.PARTIAL, Strategy.SEEDED):
            walk.found.put(table, _positioned(walk, table, decision))


def _begin_at(walk: DeployWalk, start: str) -> None:
    _warn_of_overridden_start(walk, start)
    for table in walk.scope.requested if start not in ("", EARLIEST) else ():
        decision, declared = walk.found.by_table.get(table), walk.context.declared.tables.get(table)
        if decision is None or declared is None or declared.external or table in walk.choices:
            continue
        if decision.action not in (Action.START, Action.REBUILD) or decision.before_choice is not None:
            continue
        if _reads_only_new_versions(walk, declared):
            continue
        positioned = is_time(start) or is_log_start(start)
        if start.startswith(COMMITTED) and has_arrival_starts(walk.context.declared.tables, declared):
            positioned = False
        strategy = Strategy.PARTIAL if positioned else Strategy.SEEDED
        walk.found.put(table, _with(decision, StrategyChoice(table, strategy, start)))


def _begin_since(walk: DeployWalk, time: str) -> None:
    """Start each new statement with what has arrived since a time; warn about those that cannot start there."""
    at = f"{COMMITTED}{time}"
    for table, decision in sorted(walk.found.by_table.items()):
        declared = walk.context.declared.tables.get(table)
        if decision.action is not Action.START or declared is None or table in walk.choices:
            continue
        if _reads_only_new_versions(walk, declared):
            continue
        strategy = Strategy.SEEDED if has_arrival_starts(walk.context.declared.tables, declared) else Strategy.PARTIAL
        why = _why_not_since(walk, declared, decision, StrategyChoice(table, strategy, at))
        if why is not None:
            walk.found.warn(table, PlanWarningKind.NOT_SINCE.of(at=time, why=why))
        else:
            walk.found.put(table, _with(decision, StrategyChoice(table, strategy, at)))


def _why_not_since(
    walk: DeployWalk, declared: Table, decision: TableDecision, choice: StrategyChoice
) -> Refusal | None:
    tables = walk.context.declared.tables
    if recreated := recreated_parents(declared, walk.found.by_table):
        return StrategyRefusal.VERSIONS_BESIDE_TABLES.of(parents=recreated)
    if choice.strategy == Strategy.SEEDED:
        return _case(walk, declared, decision).why_not(Strategy.SEEDED)
    why = why_logs_beside_files(tables, declared) or why_not_partial(tables, declared, choice.at)
    return why or _why_not_from_log(walk, declared, choice.at)


def _reads_only_new_versions(walk: DeployWalk, declared: Table) -> bool:
    """True if the plan re-creates every table that a statement streams, or if it streams none."""
    return set(streams_of(declared)) == set(recreated_parents(declared, walk.found.by_table))


def _warn_of_overridden_start(walk: DeployWalk, start: str) -> None:
    for table, choice in walk.choices.items() if start else ():
        decision = walk.found.by_table.get(table)
        begins = decision is not None and decision.action in (Action.START, Action.REBUILD)
        if begins and table in walk.scope.requested and start not in (choice.at, choice.strategy):
            words = f"{table}={typed_strategy(choice.strategy)}" + (f"@{choice.at}" if choice.at else "")
            walk.found.warn(table, PlanWarningKind.STRATEGY_BEFORE_FROM.of(choice=words, start=start))


def _positioned(walk: DeployWalk, table: TableName, decision: TableDecision) -> TableDecision:
    declared = walk.context.declared.tables.get(table)
    assert declared is not None
    if decision.chosen_strategy == Strategy.SEEDED:
        now = decision.at == NOW
        since = Notice.BEGINS_AT_ARRIVAL.of(at=decision.at.removeprefix(COMMITTED))
        return _begun(decision, declared, Notice.BEGINS_NOW.of() if now else since)
    if why_not_partial(walk.context.declared.tables, declared, decision.at):
        return decision
    if is_log_start(decision.at):
        return _begun_in_log(decision, declared)
    event = event_time_of(declared, walk.context.declared.tables)
    if event is None or not is_time(decision.at):
        column, _, value = decision.at.partition("=")
        streamed = {read.table for read in declared.parsed.reads if read.streaming} if declared.parsed else set()
        condition = f"{quoted_name(column)} >= {quoted_string_literal(value)}"
        where = _conditions(dict.fromkeys(streamed, condition))
        seen = Notice.BEGINS_AT_PARTITION.of(at=decision.at, where=" AND ".join(where))
        return _seeing(replace(decision, begins_where=where), seen)
    at = event.aligned(decision.at)
    where = _conditions(event.conditions(at))
    words = " AND ".join(where)
    moved = Notice.BEGINS_AT_WINDOW.of(at=at, asked=decision.at, where=words)
    seen = moved if at != decision.at else Notice.BEGINS_AT.of(at=at, where=words)
    return _seeing(replace(decision, at=at, begins_where=where), seen)


def _conditions(conditions: Mapping[TableName, str]) -> tuple[str, ...]:
    return tuple(f"{table}.{condition}" for table, condition in sorted(conditions.items()))


def _begun(decision: TableDecision, declared: Table, begins: Fact[Notice]) -> TableDecision:
    return _seeing(decision, Notice.NEWEST_OF_KEY.of(begins=begins) if declared.settings.upserts else begins)


def _begun_in_log(decision: TableDecision, declared: Table) -> TableDecision:
    starts, at = log_starts(declared, decision.at), decision.at
    tables = tuple(start.table for start in starts)
    version = Notice.BEGINS_AT_VERSION.of(at=at, tables=tables)
    commit = Notice.BEGINS_AT_COMMIT.of(at=at.removeprefix(COMMITTED), tables=tables)
    begun = replace(decision, begins_where=tuple(map(str, starts)))
    return _begun(begun, declared, version if whole_number(at) is not None else commit)


def _seeing(decision: TableDecision, seen: Evidence) -> TableDecision:
    return replace(decision, change=replace(decision.change, evidence=(*decision.change.evidence, seen)))


def refuse_unmet_choices(walk: DeployWalk) -> None:
    """Refuse every choice that is not allowed for its table, and list the allowed strategies."""
    for table, choice in sorted(walk.choices.items()):
        decision = walk.found.by_table.get(table)
        if decision is None:
            walk.found.refuse(table, PlanRefusalKind.STRATEGY_FOR_UNTOUCHED.of())
            continue
        _refuse_unmet(walk, table, decision, choice)
    start = walk.scope.request.start
    if start not in ("", EARLIEST) and not start.startswith(SINCE):
        for table in walk.scope.requested:
            decision = walk.found.by_table.get(table)
            if decision is not None and decision.chosen_strategy and table not in walk.choices:
                _refuse_unmet(walk, table, decision, StrategyChoice(table, decision.chosen_strategy, decision.at))
    if walk.scope.request.keep_table:
        _refuse_despite_keep_table(walk)
    for table, decision in walk.found.by_table.items() if walk.scope.holds else ():
        declared = walk.context.declared.tables.get(table)
        if decision.strategy == Strategy.KEYED:
            _report_unheld(walk, table, PlanRefusalKind.CANNOT_BE_HELD, PlanWarningKind.CANNOT_BE_HELD)
        elif decision.action is Action.REBUILD and declared is not None and declared.written_topic():
            _report_unheld(walk, table, PlanRefusalKind.TOPIC_NOT_HELD, PlanWarningKind.TOPIC_NOT_HELD)


def _report_unheld(walk: DeployWalk, table: TableName, refusal: PlanRefusalKind, warning: PlanWarningKind) -> None:
    """Refuse `--hold` if readers see new rows before the swap; if only the policy sets the hold, warn instead."""
    if walk.scope.request.hold:
        walk.found.refuse(table, refusal.of())
    else:
        walk.found.warn(table, warning.of())


def _refuse_unmet(walk: DeployWalk, table: TableName, decision: TableDecision, choice: StrategyChoice) -> None:
    context = walk.context
    had = strategies_of(context, walk.scope, walk.found.by_table, table)
    wrong = _wrong_position(walk, table, decision, choice)
    same = decision.strategy == choice.strategy or (choice.strategy == EARLIEST and decision.strategy == Strategy.FIRST)
    if wrong is None and (not had or not same or (choice.strategy not in had and choice.strategy != EARLIEST)):
        wrong = why_not(context, walk.scope, walk.found.by_table, table, choice.strategy)
        wrong = wrong or StrategyRefusal.NOT_HERE.of()
    if wrong is not None:
        elsewhere = choice.strategy if choice.at and choice.strategy in (Strategy.PARTIAL, Strategy.SEEDED) else None
        allowed = tuple(
            typed_strategy(word) + (" at another position" if word == elsewhere else "")
            for word in had
            if word in EXECUTABLE
        )
        strategy = typed_strategy(choice.strategy)
        if allowed:
            why = PlanRefusalKind.STRATEGY_NOT_ALLOWED.of(strategy=strategy, why=wrong, allowed=allowed)
        else:
            why = PlanRefusalKind.NO_STRATEGY_ALLOWED.of(strategy=strategy, why=wrong)
        walk.found.refuse(table, why)


def _wrong_position(
    walk: DeployWalk, table: TableName, decision: TableDecision, choice: StrategyChoice
) -> Refusal | None:
    """Return why a strategy cannot start at the chosen position or needs a position; None if the choice is valid."""
    declared, at = walk.context.declared.tables.get(table), choice.at
    if choice.strategy == Strategy.PARTIAL and declared is not None and decision.strategy == Strategy.PARTIAL:
        wrong = why_not_partial(walk.context.declared.tables, declared, at)
        return wrong or (_why_not_from_log(walk, declared, at) if is_log_start(at) else None)
    if choice.strategy == Strategy.SEEDED and whole_number(at) is not None:
        return StrategyRefusal.VERSION_IS_PARTIAL.of(at=at)
    if choice.strategy == Strategy.SEEDED and at.startswith(COMMITTED) and declared is not None:
        if has_arrival_starts(walk.context.declared.tables, declared):
            wrong_time = StrategyRefusal.NOT_A_TIME.of(at=at.removeprefix(COMMITTED), committed=COMMITTED)
            return None if is_time(at.removeprefix(COMMITTED)) else wrong_time
        return StrategyRefusal.TIME_IS_PARTIAL.of(at=at)
    if choice.strategy == Strategy.SEEDED and at != NOW:
        return StrategyRefusal.NEEDS_POSITION.of()
    takes_position = choice.strategy in (Strategy.PARTIAL, Strategy.SEEDED)
    return StrategyRefusal.NO_START_AT.of(at=at) if at and not takes_position else None


def _why_not_from_log(walk: DeployWalk, declared: Table, at: str) -> Fact[StrategyRefusal] | None:
    if recreated := recreated_parents(declared, walk.found.by_table):
        return StrategyRefusal.LOG_OF_NEW_VERSION.of(parents=recreated)
    if forgets := why_sequence_would_be_forgotten(walk.context, declared):
        return forgets
    return why_log_incomplete(declared, at, lambda table: history_of(walk.context.observed.statistics(table).log))


def _refuse_despite_keep_table(walk: DeployWalk) -> None:
    """Refuse every table that the plan would create, rebuild or alter despite `--keep-table`."""
    for table, decision in walk.found.by_table.items():
        if walk.context.observed.is_external(table):
            continue
        if decision.reason is Reason.PARENT_REBUILT:
            # The parent itself is refused.
            continue
        if decision.makes_version and decision.action is Action.REBUILD:
            why = _case(walk, walk.context.declared.tables[table], decision).why_not_restarted()
            walk.found.refuse(table, PlanRefusalKind.CANNOT_KEEP_TABLE.of(why=why or StrategyRefusal.NOT_HERE.of()))
        elif decision.makes_version:
            walk.found.refuse(table, PlanRefusalKind.NO_TABLE_TO_KEEP.of())
        elif decision.action is Action.RESTART and decision.change.kind.definition.alters_table:
            widened = decision.change.kind is ChangeKind.COLUMN_WIDENED
            widens, adds = PlanRefusalKind.KEEP_TABLE_WIDENS_COLUMNS, PlanRefusalKind.KEEP_TABLE_ADDS_COLUMNS
            walk.found.refuse(table, (widens if widened else adds).of())
