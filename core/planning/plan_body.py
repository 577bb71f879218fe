"""What a deploy or a delete comes to, before it is judged: versions, bindings, nodes and steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.lineage.table_graph import levels
from core.model.actions import Action, Strategy
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.model.states import AT_REST
from core.observed.deployment import Binding, ObservedDeployment, OrphanVersion
from core.plan.model import LeftBehind, PlanNode, PlanRefusal, PlanWarning, Step
from core.planning.context import PlanningContext
from core.planning.decisions import DeployDecisions, TableDecision
from core.planning.declared_tables import DeclaredTables
from core.planning.delete import decide_delete
from core.planning.deploy import decide_deploy
from core.planning.nodes import changed_node, deleted_node, kept_node
from core.planning.observed_tables import ObservedTables
from core.planning.orphan_versions import unused_orphans, upstream_first, usable_orphan
from core.planning.retired_versions import RetiredVersion, retired_versions
from core.planning.scope import PlanScope
from core.planning.steps import StepBuilder
from core.planning.strategy_prices import StrategyPrices
from core.planning.table_bindings import TableBindings
from core.text.wording import reader_phrase


@dataclass(slots=True)
class PlanBody:
    """A plan without guards, preconditions and hash."""

    nodes: tuple[PlanNode, ...]
    steps: Sequence[Step]
    left_behind: Sequence[LeftBehind]
    refusals: list[PlanRefusal]
    warnings: list[PlanWarning]


def deploy_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft what a deploy does to every table it meets."""
    found = decide_deploy(context, scope)
    rebuilt = {t for t, d in found.by_table.items() if d.action is Action.REBUILD and d.makes_version}
    versions = {
        table: context.observed.next_version(table)
        if decision.makes_version
        else context.observed.deployment(table).version
        for table, decision in found.by_table.items()
    }
    used = _use_orphan_versions(context, scope, found.by_table, versions) if scope.request.continues else {}
    bindings = {table: _bindings_then(context, table, decision, versions) for table, decision in found.by_table.items()}
    moves = rebuilt or any(
        bindings[t] != context.bindings.of(t) for t, d in found.by_table.items() if d.change.kind is not ChangeKind.NONE
    )
    every = retired_versions(context.observed, context.bindings, rebuilt, frozenset(), bindings) if moves else ()
    old = tuple(version for version in every if version.version != versions.get(version.table))
    for version in old:
        if version.readers:
            # Of a table outside of the plan that is nobody's news, and must not make the plan another one.
            if version.table in found.by_table:
                found.warn(version.table, _why_it_stays(context.observed, version))
        elif version.table not in found.by_table:
            _keep(context, version.table, found.by_table, versions, bindings)
    aside = _set_aside(context, scope, found, used, old=old, versions=versions, bindings=bindings)
    levels = _levels(context.declared, bindings, versions, every_version=False)
    prices = StrategyPrices(context, scope, found.by_table)
    nodes = tuple(
        changed_node(
            context,
            table,
            found.by_table[table],
            level=levels[table],
            version=versions[table],
            bindings=bindings[table],
            priced=prices.of(table, bindings[table]),
        )
        for table in sorted(found.by_table, key=lambda table: (levels[table], table))
    )
    steps = _deploy_steps(context, nodes, old, used, aside)
    return PlanBody(nodes, steps, found.left_behind, found.refusals, found.warnings)


def _use_orphan_versions(
    context: PlanningContext,
    scope: PlanScope,
    decisions: dict[TableName, TableDecision],
    versions: dict[TableName, int],
) -> dict[TableName, OrphanVersion]:
    """Take for each rebuild the version that the failed run has made, where it is what this plan would make."""
    used: dict[TableName, OrphanVersion] = {}
    rebuilt = [t for t, d in decisions.items() if d.action is Action.REBUILD and d.by == Strategy.EARLIEST]
    for table in upstream_first(context.declared, rebuilt):
        decision = decisions[table]
        orphan = usable_orphan(
            context.observed, context.revisions, table, _bindings_then(context, table, decision, versions)
        )
        if orphan is not None:
            used[table], versions[table] = orphan, orphan.version
            words = f"{physical_name(table, orphan.version)} of run {scope.request.continues} already exists"
            change = replace(decision.change, evidence=(*decision.change.evidence, words))
            decisions[table] = replace(decision, change=change)
    return used


def _set_aside(
    context: PlanningContext,
    scope: PlanScope,
    found: DeployDecisions,
    used: Mapping[TableName, OrphanVersion],
    *,
    old: Sequence[RetiredVersion],
    versions: dict[TableName, int],
    bindings: dict[TableName, tuple[Binding, ...]],
) -> tuple[RetiredVersion, ...]:
    """Find the versions that never served and have no use any more; what someone reads stays, with what that reads."""
    stays = {(version.table, version.version) for version in old if version.readers}
    fresh = [table for table, decision in found.by_table.items() if decision.action is Action.START]
    tables = tuple(found.by_table) if scope.request.continues else fresh
    aside = []
    for version in unused_orphans(context, tables, used, fresh, bindings):
        if version.readers:
            found.warn(
                version.table, f"v{version.version} is an orphan version and is kept: {reader_phrase(version.readers)}"
            )
        if version.readers or (version.table, version.version) in stays:
            kept = (
                s.bindings
                for s in context.observed.deployment(version.table).orphan_versions
                if s.version == version.version
            )
            stays |= {(binding.parent, binding.version) for bound in kept for binding in bound}
            continue
        aside.append(version)
        found.warn(version.table, f"v{version.version} is an orphan version; it is stopped and moved to the trash")
        if version.table not in found.by_table:
            _keep(context, version.table, found.by_table, versions, bindings)
    return tuple(aside)


def _why_it_stays(observed: ObservedTables, old: RetiredVersion) -> str:
    """Return who keeps an old version, and whether that gives them anything."""
    seen, readers = observed.deployment(old.table), reader_phrase(old.readers)
    if old.version == seen.version and seen.state in AT_REST:
        return f"v{old.version} stays {seen.state} and gets no new rows: {readers}"
    return f"v{old.version} keeps running: {readers}"


def _keep(
    context: PlanningContext,
    table: TableName,
    decisions: dict[TableName, TableDecision],
    versions: dict[TableName, int],
    bindings: dict[TableName, tuple[Binding, ...]],
) -> None:
    """Show a table of which nothing changes but that an old version of it ends."""
    decisions[table] = TableDecision(Action.KEEP, Reason.SERVES, Change(ChangeKind.NONE, Action.KEEP))
    versions[table], bindings[table] = context.observed.deployment(table).version, context.bindings.of(table)


def _deploy_steps(
    context: PlanningContext,
    nodes: tuple[PlanNode, ...],
    old: Sequence[RetiredVersion],
    used: Mapping[TableName, OrphanVersion],
    aside: Sequence[RetiredVersion],
) -> list[Step]:
    steps = StepBuilder()
    unread, read = _read_until_the_swap(context.observed, context.bindings, aside)
    children = context.declared.graph.children if aside else None
    for version in unread:
        steps.stop(version, children(version.table) if children else (), (), why=_UNUSED)
    for node in nodes:
        needs_pointer = node.version > 0 and not context.observed.deployment(node.table).pointer
        steps.deploy(node, needs_pointer=needs_pointer, orphan=used.get(node.table))
    swap = steps.swap(nodes)
    chained = {(node.table, node.from_version) for node in nodes if node.strategy == Strategy.CHAIN}
    after = (swap,) if swap else ()
    stops_aside = {(version.table, version.version) for version in aside}
    for version in old:
        if not version.readers and (version.table, version.version) not in chained | stops_aside:
            steps.stop(version, context.bindings.readers(version.table), after, why="its readers have moved")
    for version in read:
        steps.stop(version, children(version.table) if children else (), after, why=_UNUSED)
    for version in aside:
        steps.set_aside(version.table, version.version, swap)
    return steps.all


_UNUSED = "it is an orphan version, and this plan does not use it"


def _read_until_the_swap(
    observed: ObservedTables, bindings: TableBindings, aside: Sequence[RetiredVersion]
) -> tuple[tuple[RetiredVersion, ...], tuple[RetiredVersion, ...]]:
    """Part versions that never served in those that nothing reads, and those that a serving one does, at any depth."""
    reads = {
        (v.table, orphan.version): orphan.bindings
        for v in aside
        for orphan in observed.deployment(v.table).orphan_versions
    }
    readers = {reader for version in aside for reader in bindings.readers(version.table)}
    waiting = [b for reader in sorted(readers) for b in bindings.of(reader) if observed.deployment(reader).begun]
    read: set[tuple[TableName, int]] = set()
    for binding in waiting:
        key = (binding.parent, binding.version)
        if key not in read:
            read.add(key)
            waiting.extend(reads.get(key, ()))
    parts = {True: [v for v in aside if (v.table, v.version) in read]}
    parts[False] = [v for v in aside if v not in parts[True]]
    return tuple(parts[False]), tuple(parts[True])


def delete_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft a delete: stops from the sinks, then pointers, then what is set aside."""
    found = decide_delete(context, scope)
    versions = {table: context.observed.deployment(table).version for table in found.tables}
    bindings = {table: context.bindings.of(table) for table in found.tables}
    levels = _levels(context.declared, bindings, versions, every_version=True)
    order = sorted(found.tables, key=lambda table: (-levels[table], table))
    old = retired_versions(context.observed, context.bindings, frozenset(), found.tables, {}) if found.tables else ()
    nodes = tuple(deleted_node(context, table, levels[table]) for table in order)
    running = {table: _newest_first(context.observed.deployment(table), rest=()) for table in order}
    existing = {
        table: _newest_first(context.observed.deployment(table), rest=context.observed.deployment(table).kept)
        for table in order
    }
    steps = StepBuilder()
    steps.delete(nodes, running, existing, {table: context.bindings.readers(table) for table in order})
    for version in old:
        if not version.readers:
            steps.stop(version, context.bindings.readers(version.table), (), why="only deleted tables read it")
            found.warnings.append(PlanWarning(version.table, f"v{version.version} stops: only deleted tables read it"))
    kept = tuple(kept_node(context, t, 0) for t in sorted({v.table for v in old if not v.readers}))
    return PlanBody((*nodes, *kept), steps.all, (), found.refusals, found.warnings)


def _newest_first(seen: ObservedDeployment, *, rest: tuple[int, ...]) -> tuple[int, ...]:
    """Return the serving version, those that still run for others, and the rest; external tables have none."""
    return tuple(sorted({seen.version, *seen.retained, *rest} - {0}, reverse=True))


def _bindings_then(
    context: PlanningContext, table: TableName, decision: TableDecision, versions: Mapping[TableName, int]
) -> tuple[Binding, ...]:
    """Return what a table reads after the plan: fresh versions the newest, others what they are bound to."""
    if decision.action is Action.KEEP and not context.observed.is_deployed(table):
        return ()
    if decision.action in (Action.KEEP, Action.RESUME, Action.RECORD):
        return context.bindings.of(table)
    then = {
        replace(binding, version=versions.get(binding.parent, binding.version))
        for binding in context.bindings.bind(context.revisions.declared(table))
    }
    if decision.action is Action.RESTART and not decision.moves:
        streamed = {b.parent: b.version for b in context.bindings.of(table) if b.streamed}
        then = {replace(b, version=streamed.get(b.parent, b.version)) if b.streamed else b for b in then}
    return tuple(sorted(then, key=lambda b: (b.parent, b.version, not b.streamed)))


def _levels(
    declared: DeclaredTables,
    bindings: Mapping[TableName, tuple[Binding, ...]],
    versions: Mapping[TableName, int],
    *,
    every_version: bool,
) -> dict[TableName, int]:
    """Return each table its topological generation among the tables of the plan.

    A deploy orders by what will serve, a delete by every binding. Where old bindings and new ones contradict each
    other, the declared order decides: it has no cycle.
    """
    parents = {
        table: [b.parent for b in found if b.parent in versions and (every_version or b.version == versions[b.parent])]
        for table, found in bindings.items()
    }
    found = levels(parents)
    if found is None:
        graph = declared.graph
        found = levels({t: [e.parent for e in graph.parents(t) if e.parent in versions] for t in versions})
    assert found is not None
    return found
