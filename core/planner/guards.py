"""Guards: checks of a plan's checkpoints, lost rows, replay, disk space, pool load and required approvals.

A guard that denies a plan causes a refusal of the plan. An unknown measurement never satisfies a limit.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from core.changes.revision_diff import RATE_LIMITS
from core.model.actions import FORKS, Action, StepKind, Strategy
from core.model.names import TableName, physical_name
from core.model.table_formats import table_format
from core.observed.planner_input import ObservedPool, SourceTable
from core.observed.table_statistics import Headroom
from core.plan.model import Guard, PlanNode, PlanRefusal, Retention, RetentionKind, Step
from core.plan.request import EARLIEST, PlanRequest
from core.planner.context import DeclaredTables, ObservedTables
from core.planner.folder_guard import judge_folders
from core.planner.placement import STARTS
from core.planner.pool_load import loads_after, loads_of
from core.planner.promotion import source_conditions
from core.planner.topic_guard import BEGINS_READING, judge_topics
from core.planner.warning_and_refusal_kinds import GuardFinding
from core.policy.roles_and_rules import ALLOW, ASK, DISK_FACTOR, Policy
from core.project.model import Table
from core.project.resources import UNLIMITED, over_capacity
from core.text.sentence import Fact, Sentence

OK, WARN, DENY = "ok", "warn", "deny"
UNKNOWN, NEEDS_APPROVAL = "unknown", "approve"

Finding = Fact[GuardFinding]

WHOLE_HISTORY = frozenset({"", Strategy.EARLIEST, Strategy.KEYED})
"""Rebuild strategies that read the whole history."""


@dataclass(frozen=True)
class GuardInput:
    """Input of the guards: the nodes and steps of a plan, and the state of the environment."""

    declared: DeclaredTables
    observed: ObservedTables
    request: PlanRequest
    nodes: Sequence[PlanNode]
    steps: Sequence[Step]
    policy: Policy
    """The recorded policy or, without one, the declared policy; in both cases with the declared protections."""
    headroom: Headroom
    source: Mapping[TableName, SourceTable] = field(default_factory=dict)
    """For a promotion, the serving tables of its source."""
    topics_rewritten: tuple[TableName, ...] = ()
    """Tables whose rebuild writes the messages of an existing topic again, sorted."""
    pools: Mapping[str, ObservedPool] = field(default_factory=dict)
    """What is known of each of several pools, by name."""
    unplaced: tuple[Finding, ...] = ()
    """Why statements of the plan are in no pool."""

    @cached_property
    def rebuilt(self) -> tuple[PlanNode, ...]:
        """Nodes of tables that are rebuilt as a new version next to the old one."""
        return tuple(n for n in self.nodes if n.action is Action.REBUILD and n.version != n.from_version)

    @cached_property
    def replaying(self) -> tuple[PlanNode, ...]:
        """Nodes that read existing input: rebuilt tables and new statements."""
        begun = (Action.REBUILD, Action.START)
        return tuple(node for node in self.nodes if node.action in begun and node.version)

    @cached_property
    def running(self) -> frozenset[TableName]:
        """Statements that are running now, anywhere in the environment."""
        observed = self.observed
        return frozenset(t for t in observed.tables() if observed.is_running(t) and not observed.is_external(t))

    @cached_property
    def queries(self) -> int:
        """Number of queries in the pool: running statements and older versions that are kept running."""
        observed = self.observed
        return len(self.running) + sum(len(observed.deployment(table).retained) for table in observed.tables())

    def pool_now(self, table: TableName) -> str:
        """Return the name of the pool in which a table's serving version runs or was last started."""
        return self.declared.environment.pool_holding(self.observed.deployment(table).pool).name

    def pool_then(self, node: PlanNode) -> str:
        """Return the name of the pool in which the version of a node runs after the plan."""
        return node.pool or self.pool_now(node.table)

    def protects(self, table: TableName) -> bool:
        """True if the table or the whole environment is protected against changes in place."""
        return self.policy.protected or table in self.policy.protected_tables


@dataclass(frozen=True, slots=True)
class GuardVerdicts:
    """The guards of a plan, the refusals that result from them, and the number of approvals required."""

    guards: tuple[Guard, ...]

    @property
    def refusals(self) -> tuple[PlanRefusal, ...]:
        """One refusal, with its remedy, for each guard that denies the plan."""
        return tuple(
            PlanRefusal("", g.summary, g.remedy or Sentence(""), g.name, kind=g.kind, fields=g.fields)
            for g in self.guards
            if g.verdict == DENY
        )

    @property
    def approvals(self) -> int:
        """Number of approvals required from logins other than the author: 0 or 1."""
        return int(any(guard.verdict == NEEDS_APPROVAL for guard in self.guards))


def judge_plan(
    declared: DeclaredTables,
    observed: ObservedTables,
    request: PlanRequest,
    nodes: Sequence[PlanNode],
    steps: Sequence[Step],
    *,
    policy: Policy,
    headroom: Headroom,
    source: Mapping[TableName, SourceTable] = MappingProxyType({}),
    answers: Mapping[str, str] = MappingProxyType({}),
    topics_rewritten: Iterable[TableName] = (),
    pools: Mapping[str, ObservedPool] = MappingProxyType({}),
    unplaced: tuple[Finding, ...] = (),
) -> GuardVerdicts:
    """Apply all guards to a plan's nodes and steps, under the policy and the declared protections."""
    case = GuardInput(
        declared,
        observed,
        request,
        nodes,
        steps,
        policy=_protecting(declared, policy),
        headroom=headroom,
        source=source,
        topics_rewritten=tuple(sorted(topics_rewritten)),
        pools=pools,
        unplaced=unplaced,
    )
    inputs = judge_topics(declared, nodes, answers), judge_folders(declared, nodes, answers)
    found = (_checkpoints(case), _views(case), _readers(case), _rates(case), *_in_place(case), *_promotion(case))
    return GuardVerdicts((*found, *(guard for guard in inputs if guard), *policy_guards(case)))


def _protecting(declared: DeclaredTables, policy: Policy) -> Policy:
    """Add the declared protections to the policy; a declaration never removes protection."""
    protected = {table for table, found in declared.tables.items() if found.settings.protect}
    return replace(
        policy,
        protected=policy.protected or declared.environment.protected,
        protected_tables=tuple(sorted({*policy.protected_tables, *protected})),
    )


def _checkpoints(case: GuardInput) -> Guard:
    created = {(step.table, step.version) for step in case.steps if step.do is StepKind.CREATE}
    used = {(node.table, node.from_version) for node in case.nodes if node.from_version}
    wrong = sorted(
        (step.table, step.version)
        for step in case.steps
        if step.do is StepKind.START
        and ((step.table, step.version) not in created or (step.table, step.version) in used)
    )
    if not wrong:
        return Guard.of("checkpoint", OK, GuardFinding.CHECKPOINTS_NEW.of())
    names = tuple(physical_name(table, version) for table, version in wrong)
    harm = _harm(case, {table for table, _ in wrong})
    return Guard.of("checkpoint", DENY, GuardFinding.CHECKPOINT_ON_OLD_TABLE.of(harm=harm, tables=names))


def _harm(case: GuardInput, tables: Iterable[TableName]) -> tuple[str, ...]:
    declared = map(case.declared.tables.get, tables)
    repeated = {
        table is not None and table_format(table.parsed_ddl.format).repeated_by_new_checkpoint for table in declared
    }
    return tuple(what for what, said in (("lose rows", False), ("write rows twice", True)) if said in repeated)


def _views(case: GuardInput) -> Guard:
    wrong = sorted(
        f"{node.table} reads {binding.parent}"
        for node in case.nodes
        for binding in node.bindings
        if not binding.version and not case.observed.is_external(binding.parent)
    )
    if wrong:
        return Guard.of("views", DENY, GuardFinding.STREAM_READS_POINTER.of(reads=tuple(wrong)))
    return Guard.of("views", OK, GuardFinding.STREAMS_READ_TABLES.of())


def _readers(case: GuardInput) -> Guard:
    deleted = {node.table for node in case.nodes if node.action is Action.DELETE}
    left = sorted(
        node.table
        for node in case.nodes
        if node.table not in deleted and any(binding.parent in deleted for binding in node.bindings)
    )
    if left:
        return Guard.of("readers", DENY, GuardFinding.DROPPED_WHILE_READ.of(readers=tuple(left)))
    return Guard.of("readers", OK, GuardFinding.NOTHING_READ_IS_DROPPED.of())


def _rates(case: GuardInput) -> Guard:
    """Deny the rebuild of a statement with a rate limit and a watermark: history read in small batches loses rows.

    A start or resume only gets a warning, because rows are dropped only if the backlog is large.
    """
    begun = (node for node in case.nodes if node.action in BEGINS_READING)
    limited = [node for node in begun if _is_limited(case.declared.tables.get(node.table))]
    replayed = (node for node in limited if node.action is Action.REBUILD and node.strategy not in _NO_REPLAY)
    rebuilt = sorted(node.table for node in replayed)
    if rebuilt:
        return Guard.of("rates", DENY, GuardFinding.RATES_DROP_ROWS.of(tables=tuple(rebuilt)))
    if limited:
        tables = tuple(sorted(node.table for node in limited))
        return Guard.of("rates", WARN, GuardFinding.RATES_MAY_DROP_ROWS.of(tables=tables))
    return Guard.of("rates", OK, GuardFinding.RATES_HARMLESS.of())


_NO_REPLAY = FORKS | {Strategy.SEEDED}


def _is_limited(table: Table | None) -> bool:
    if table is None or table.parsed is None:
        return False
    reads = table.parsed.reads
    has_rate = any(key.lower() in RATE_LIMITS for read in reads if read.streaming for key, _ in read.options)
    return has_rate and any(read.watermark for read in reads)


def _in_place(case: GuardInput) -> Iterator[Guard]:
    wrong = sorted(node.table for node in case.nodes if _is_in_place(node) and case.protects(node.table))
    if wrong:
        yield Guard.of("in place", DENY, GuardFinding.PROTECTED_IN_PLACE.of(tables=tuple(wrong)))


def _is_in_place(node: PlanNode) -> bool:
    return node.strategy == Strategy.KEYED or (node.lowered and node.strategy == Strategy.IN_PLACE)


def _promotion(case: GuardInput) -> Iterator[Guard]:
    """Deny a promotion if the policy denies a condition in which promoted tables are in their source.

    A condition that needs an approval is a reason of the guard `approval`. A plan without steps is not judged.
    """
    if not case.steps:
        return
    source, found = case.request.promoted_from, tuple(source_conditions(case.request, case.source))
    by_decision: dict[str, list[Finding]] = {}
    for condition, finding in found:
        by_decision.setdefault(case.policy.of_promotion(condition), []).append(finding)
    yield from (Guard.of("source", DENY, finding) for finding in by_decision.get(DENY, ()))
    if source and by_decision.keys() <= {ALLOW}:
        accepted = tuple(by_decision.get(ALLOW, ()))
        sound = (
            GuardFinding.SOURCE_ACCEPTED.of(found=accepted) if accepted else GuardFinding.SOURCE_SOUND.of(source=source)
        )
        yield Guard.of("source", OK, sound)


def policy_guards(case: GuardInput) -> tuple[Guard, ...]:
    """Return the guards that depend on measurements or the policy, in a fixed order.

    A rule that the policy does not set has no guard.
    """
    found = (
        _history(case),
        _replay(case),
        _time(case),
        _disk(case),
        _pool(case),
        _stopped(case),
        _approval(case),
        _freeze(case),
    )
    return tuple(guard for guard in found if guard is not None)


def _history(case: GuardInput) -> Guard:
    """Deny a replay if input files are gone, because rows would be lost; `--from earliest` accepts that loss."""
    replayed = [node for node in case.nodes if node.action is Action.REBUILD]
    if not replayed:
        return Guard.of("history", OK, GuardFinding.NOTHING_REPLAYED.of())
    gone = tuple(_gone(node.table, found) for node in case.nodes if (found := node.retention) and _is_short(found))
    gone += tuple(
        GuardFinding.CHANGES_NOT_KEPT.of(table=node.table, source=source)
        for node in replayed
        if node.strategy in WHOLE_HISTORY | {Strategy.PARTIAL}
        for source in _changes_read(case, node)
    )
    if gone and case.request.start == EARLIEST:
        return Guard.of("history", WARN, GuardFinding.HISTORY_SHORT_ACCEPTED.of(gone=gone))
    if gone:
        return Guard.of("history", DENY, GuardFinding.HISTORY_SHORT.of(gone=gone))
    whole = [node for node in replayed if node.strategy in WHOLE_HISTORY]
    if not whole:
        late = tuple(node.table for node in replayed if node.retention is not None and not _is_kept(node.retention))
        if late:
            return Guard.of("history", UNKNOWN, GuardFinding.HISTORY_SINCE_UNKNOWN.of(tables=late))
        return Guard.of("history", OK, GuardFinding.HISTORY_AVAILABLE.of())
    unknown = sum(node.retention is None or not _is_kept(node.retention) for node in whole)
    if unknown:
        return Guard.of("history", UNKNOWN, GuardFinding.HISTORY_UNKNOWN.of(rebuilds=unknown))
    return Guard.of("history", OK, GuardFinding.HISTORY_COMPLETE.of(rebuilds=len(whole)))


def _changes_read(case: GuardInput, node: PlanNode) -> tuple[TableName, ...]:
    """Return the streamed sources whose earlier changes a rebuild cannot read.

    A keyed table needs only the rows that result from the changes, so a source is omitted if its readers begin with
    these rows.
    """
    tables, found = case.declared.tables, case.declared.streamed_changes(node.bindings)
    if found and node.table in tables and tables[node.table].settings.upserts:
        from core.sql.postgres_changes import begins_with_rows

        return tuple(source for source in found if not begins_with_rows(tables[source].parsed_ddl))
    return found


def _is_kept(retention: Retention) -> bool:
    return retention.kind is RetentionKind.OK


def _is_short(retention: Retention) -> bool:
    return retention.kind is RetentionKind.SHORT


def _gone(table: TableName, retention: Retention) -> Finding:
    if since := retention.earliest:
        return GuardFinding.FILES_GONE_SINCE.of(table=table, files=retention.files_gone, earliest=since)
    return GuardFinding.FILES_GONE.of(table=table, files=retention.files_gone)


def _replay(case: GuardInput) -> Guard | None:
    most = case.policy.max_replay_rows
    if most is None:
        return None
    rows, unknown = _sum(case.replaying, lambda node: node.replay_rows)
    return _bounded(
        "replay",
        _known(GuardFinding.ROWS.of(rows=rows), rows, unknown),
        unknown=bool(unknown),
        denial=GuardFinding.TOO_MANY_ROWS if rows > most else None,
        limit=GuardFinding.ALLOWS_ROWS.of(rows=most),
    )


def _time(case: GuardInput) -> Guard | None:
    """Check the longest replay against the policy's time limit, if any; a table is replayed after its parents."""
    if case.policy.max_replay_h is None:
        return None
    seconds = max((node.eta_s for node in case.replaying if node.eta_s is not None), default=0.0)
    unknown = [node.table for node in case.replaying if node.eta_s is None]
    most = case.policy.max_replay_h * 3600
    return _bounded(
        "time",
        _known(GuardFinding.TIME.of(seconds=seconds), seconds, unknown),
        unknown=bool(unknown),
        denial=GuardFinding.TOO_LONG if seconds > most else None,
        limit=GuardFinding.ALLOWS_TIME.of(seconds=most),
    )


def _disk(case: GuardInput) -> Guard:
    if any(node.action is Action.OPTIMIZE for node in case.nodes):
        return Guard.of("disk", OK, GuardFinding.SMALL_FILES_TWICE.of())
    declared = case.declared.tables
    stored = [n for n in case.rebuilt if n.table not in declared or not declared[n.table].written_topic()]
    if not stored:
        return Guard.of("disk", OK, GuardFinding.NOTHING_TWICE.of())
    needed, unknown = _sum(stored, _disk_bytes)
    factor, free = case.policy.disk_factor or DISK_FACTOR, case.headroom.disk_free
    limit = GuardFinding.NEEDS_FREE.of(factor=factor)
    tables, size = len(stored), _known(GuardFinding.SIZE.of(bytes=needed), needed, unknown)
    if not needed:
        size = GuardFinding.SIZE_UNKNOWN.of() if unknown else size
        found = GuardFinding.STORED_TWICE.of(tables=tables, size=size)
    elif free is None:
        found = GuardFinding.STORED_TWICE_FREE_UNKNOWN.of(tables=tables, size=size)
    else:
        found = GuardFinding.STORED_TWICE_BESIDE.of(tables=tables, size=size, free=free)
    if free is not None and needed * factor > free:
        return Guard.of("disk", DENY, GuardFinding.TOO_LITTLE_DISK.of(found=found, limit=limit))
    return _bounded(
        "disk", found, unknown=bool(unknown) or free is None, limit=limit if case.policy.disk_factor else None
    )


def _pool(case: GuardInput) -> Guard:
    # While a table is rebuilt, both of its versions run.
    begun = [node for node in case.nodes if node.version and _begins(node, case)]
    if case.declared.environment.named_pools:
        return _pools(case, begun)
    name = case.declared.environment.pool.name
    grows = GuardFinding.POOL_GROWS_FOR_BOTH if case.rebuilt else GuardFinding.POOL_GROWS
    found = grows.of(statements=len(begun), pool=name) if begun else GuardFinding.POOL_UNCHANGED.of(pool=name)
    if denied := _overfull(case, {name: found}):
        return Guard.of("pool", DENY, denied[0])
    if not begun:
        return Guard.of("pool", OK, found)
    most, most_busy, busy = case.policy.max_statements, case.policy.max_busy_percent, case.headroom.busy
    after = case.queries + len(begun)
    if most is not None and after > most:
        return Guard.of("pool", DENY, GuardFinding.POOL_FULL.of(found=found, statements=after, most=most))
    cores = case.headroom.cores
    if busy is None or cores is None or not case.running:
        if most_busy is None:
            return Guard.of("pool", OK, found)
        limit = GuardFinding.ALLOWS_PERCENT.of(percent=round(most_busy))
        return _bounded("pool", GuardFinding.POOL_LOAD_UNKNOWN.of(found=found), unknown=True, limit=limit)
    then = busy * after / case.queries
    load = GuardFinding.POOL_LOAD if then <= 1 else GuardFinding.POOL_OVERLOADED
    found = load.of(found=found, before=f"{busy * cores:.1f}", after=f"{then * cores:.1f}", cores=cores)
    if most_busy is not None and 100 * then > most_busy:
        limit = GuardFinding.ALLOWS_CORES.of(percent=round(most_busy))
        return Guard.of("pool", DENY, GuardFinding.TOO_BUSY.of(found=found, limit=limit))
    return Guard.of("pool", OK if then <= 1 else WARN, found)


def _overfull(case: GuardInput, found: Mapping[str, Finding]) -> list[Finding]:
    """Return a finding for each pool in `found` that would get more than its capacity.

    `found` maps pools to what grows there.
    """
    environment = case.declared.environment
    if all(pool.capacity == UNLIMITED for pool in environment.pools):
        return []
    deployments = case.observed.deployments
    before = loads_of(environment, deployments.values())
    nodes = [node for node in case.nodes if node.pool or node.action not in STARTS or not environment.named_pools]
    after = loads_after(
        environment, before, observed=deployments, nodes=nodes, steps=case.steps, pool_then=case.pool_then
    )
    return [
        GuardFinding.POOL_AT_CAPACITY.of(found=found[pool.name], pool=pool.name, over=over)
        for pool in environment.pools
        if (over := over_capacity(pool.capacity, after[pool.name], before[pool.name])) and pool.name in found
    ]


def _pools(case: GuardInput, begun: Sequence[PlanNode]) -> Guard:
    """Judge each pool that gets additional statements by its own capacity, and all together by the policy."""
    grown, pools = [*begun, *(node for node in case.nodes if _moves(node, case))], case.declared.environment.pools
    grown = [node for node in grown if node.pool]
    more = Counter(node.pool for node in grown)
    where = tuple(_places(case))
    grows = GuardFinding.POOL_GROWS_FOR_BOTH if case.rebuilt else GuardFinding.POOL_GROWS
    found = {
        pool.name: grows.of(statements=more[pool.name], pool=pool.name)
        if more[pool.name]
        else GuardFinding.POOL_UNCHANGED.of(pool=pool.name)
        for pool in pools
    }
    denied = [*case.unplaced, *_into_cordoned(case, grown), *_overfull(case, found)]
    if denied:
        all_of_them = GuardFinding.POOLS_REFUSE.of(reasons=tuple(denied))
        return Guard.of("pool", DENY, denied[0] if len(denied) == 1 else all_of_them)
    if not more and where:
        return Guard.of("pool", OK, GuardFinding.POOLS_GROW.of(pools=where))
    if not more:
        names = ", ".join(pool.name for pool in pools)
        return Guard.of("pool", OK, GuardFinding.POOL_UNCHANGED.of(pool=names))
    all_grown = tuple(found[pool.name] for pool in pools if more[pool.name])
    together, most = GuardFinding.POOLS_GROW.of(pools=all_grown), case.policy.max_statements
    after = case.queries + len(begun)
    if most is not None and after > most:
        return Guard.of("pool", DENY, GuardFinding.POOL_FULL.of(found=together, statements=after, most=most))
    if case.policy.max_busy_percent is None:
        return Guard.of("pool", OK, GuardFinding.POOLS_GROW.of(pools=where))
    limit = GuardFinding.ALLOWS_PERCENT.of(percent=round(case.policy.max_busy_percent))
    return _bounded("pool", GuardFinding.POOL_LOAD_UNKNOWN.of(found=together), unknown=True, limit=limit)


def _into_cordoned(case: GuardInput, nodes: Sequence[PlanNode]) -> Iterator[Finding]:
    for name, seen in case.pools.items():
        # A version that served before goes back to where it was.
        new = [each.table for each in nodes if each.action is not Action.ROLLBACK and each.pool == name]
        if seen.cordoned and new:
            yield GuardFinding.POOL_CORDONED.of(tables=tuple(new), pool=name)


def _places(case: GuardInput) -> Iterator[Finding]:
    """Yield for each pool which statements the plan starts there, because their texts may name none."""
    tables: dict[str, list[TableName]] = {pool.name: [] for pool in case.declared.environment.pools}
    for node in case.nodes:
        if node.action in STARTS and node.pool:
            tables[node.pool].append(node.table)
    return (GuardFinding.RUN_IN.of(tables=tuple(each), pool=pool) for pool, each in tables.items() if each)


def _moves(node: PlanNode, case: GuardInput) -> bool:
    """True if a running statement is restarted in another pool."""
    if node.action is not Action.RESTART or node.table not in case.running:
        return False
    return case.pool_now(node.table) != case.pool_then(node)


def _stopped(case: GuardInput) -> Guard | None:
    most = case.policy.max_stopped_percent
    if most is None:
        return None
    ends = (Action.RESTART, Action.STOP, Action.DELETE)
    stopped = sum(node.action in ends and node.table in case.running for node in case.nodes)
    share = 100 * stopped / max(len(case.running), 1)
    found = GuardFinding.STOPPED.of(statements=stopped)
    if share <= most:
        return Guard.of("stopped", OK, found)
    limit = GuardFinding.ALLOWS_STOPPED.of(share=round(share), percent=round(most))
    return Guard.of("stopped", DENY, GuardFinding.TOO_MANY_STOPPED.of(found=found, limit=limit))


def _approval(case: GuardInput) -> Guard | None:
    reasons = tuple(_reasons_to_approve(case))
    if not reasons:
        return None
    conditions = [each for each, _ in source_conditions(case.request, case.source)]
    asked = [each for each in conditions if case.policy.of_promotion(each) == ASK]
    if len(asked) < len(reasons):
        return Guard.of("approval", NEEDS_APPROVAL, GuardFinding.APPROVAL.of(reasons=reasons))
    # The policy can accept all that the approval is for.
    accepts = ", ".join(f"{each}: {ALLOW}" for each in asked)
    of_source = GuardFinding.APPROVAL_OF_PROMOTION.of(
        reasons=reasons, accepts=accepts, environment=case.declared.environment.name
    )
    return Guard.of("approval", NEEDS_APPROVAL, of_source)


def _reasons_to_approve(case: GuardInput) -> Iterator[Finding]:
    asked, policy = frozenset(case.policy.approve), case.policy
    deleted, rebuilt = _acted_on(case, Action.DELETE), _acted_on(case, Action.REBUILD)
    retired, vacuumed, back = (_acted_on(case, each) for each in (Action.RETIRE, Action.VACUUM, Action.ROLLBACK))
    if "all" in asked and case.steps:
        yield GuardFinding.EVERY_PLAN.of()
    if "delete" in asked and deleted:
        yield GuardFinding.DELETES.of(tables=deleted)
    if "delete" in asked and retired:
        yield GuardFinding.RETIRES.of(tables=retired)
    if "delete" in asked and vacuumed:
        yield GuardFinding.VACUUMS.of(tables=vacuumed)
    if "rebuild" in asked and rebuilt:
        yield GuardFinding.REBUILDS.of(tables=rebuilt)
    if "swap" in asked and any(step.do is StepKind.SWAP for step in case.steps):
        yield GuardFinding.SWAPS.of()
    if protected := {*deleted, *rebuilt, *back, *retired, *vacuumed}.intersection(policy.protected_tables):
        yield GuardFinding.PROTECTED.of(tables=tuple(sorted(protected)))
    for condition, finding in source_conditions(case.request, case.source) if case.steps else ():
        if policy.of_promotion(condition) == ASK:
            yield finding
    keeping = tuple(node.table for node in case.nodes if node.lowered and node.strategy == Strategy.KEYED)
    if keeping:
        yield GuardFinding.KEEPS_ROWS.of(tables=keeping)
    if lowered := tuple(node.table for node in case.nodes if node.lowered and node.table not in keeping):
        yield GuardFinding.LOWERED.of(tables=lowered)
    if again := tuple(table for table in case.topics_rewritten if case.protects(table)):
        yield GuardFinding.TOPICS_REWRITTEN.of(tables=again)
    if policy.approve_rows is not None and case.replaying:
        rows, unknown = _sum(case.replaying, lambda node: node.replay_rows)
        if rows > policy.approve_rows:
            yield GuardFinding.MANY_ROWS.of(rows=policy.approve_rows)
        elif unknown:
            yield GuardFinding.ROWS_UNKNOWN.of()


def _acted_on(case: GuardInput, action: Action) -> tuple[TableName, ...]:
    return tuple(node.table for node in case.nodes if node.action is action)


def _freeze(case: GuardInput) -> Guard | None:
    # Whether a window is active is checked when the plan is applied.
    windows = case.policy.freeze
    return Guard.of("freeze", OK, GuardFinding.FROZEN.of(windows=tuple(windows))) if windows else None


def _bounded(
    name: str, found: Finding, *, unknown: bool, limit: Finding | None, denial: GuardFinding | None = None
) -> Guard:
    """Return the guard `name`, which compares a value with a limit.

    `limit` is None if the policy sets no limit, and `denial` is given only if the value exceeds the limit.
    """
    if denial is not None:
        return Guard.of(name, DENY, denial.of(found=found, limit=limit))
    if unknown and limit is not None:
        return Guard.of(name, NEEDS_APPROVAL, GuardFinding.UNKNOWN_NEEDS_APPROVAL.of(found=found, limit=limit))
    return Guard.of(name, UNKNOWN if unknown else OK, found)


def _begins(node: PlanNode, case: GuardInput) -> bool:
    if node.action is Action.ROLLBACK:
        # A former version may still run.
        return any(step.do is StepKind.RESUME and step.table == node.table for step in case.steps)
    if node.action is Action.UNDELETE or (node.action is Action.REBUILD and node.version != node.from_version):
        return True
    goes_on = (Action.START, Action.RESUME, Action.RESTART, Action.REBUILD)
    return node.action in goes_on and node.table not in case.running


def _disk_bytes(node: PlanNode) -> int | None:
    return node.offers[0].disk_bytes if node.offers else None


def _sum(nodes: Iterable[PlanNode], cost: Callable[[PlanNode], int | None]) -> tuple[int, list[TableName]]:
    total, unknown = 0, []
    for node in nodes:
        value = cost(node)
        if value is None:
            unknown.append(node.table)
        else:
            total += value
    return total, unknown


def _known(amount: Finding, value: float, unknown: Sequence[TableName]) -> Finding:
    if not unknown:
        return amount
    if not value:
        return GuardFinding.AMOUNT_UNKNOWN.of(tables=tuple(unknown))
    return GuardFinding.AT_LEAST.of(amount=amount, tables=tuple(unknown))
