"""Drafts a deploy before guards are applied: decisions about all affected tables, and the resulting steps."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from core.changes.classification import Change
from core.changes.kinds import ChangeKind
from core.model.actions import Action, StepKind, Strategy
from core.model.evidence import Notice
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.model.states import AT_REST
from core.model.table_formats import table_format
from core.observed.planner_input import OtherVersion
from core.observed.versions import Binding
from core.plan.model import PlanNode, Step
from core.planner.context import ObservedTables, PlanningContext, TableBindings, by_parent
from core.planner.decision_model import DeployDecisions, DeployWalk, TableDecision
from core.planner.deploy_warnings import add_warnings, warn_of_old_inputs
from core.planner.left_behind_and_exposures import find_left_behind
from core.planner.operator_choices import apply_start, refuse_unmet_choices, with_chosen_strategy
from core.planner.orphans_to_reuse_or_trash import unused_orphans, upstream_first, usable_orphan
from core.planner.plan_nodes import PlanBody, changed_node, plan_levels
from core.planner.plan_steps import StepBuilder
from core.planner.requested_tables import decide_table
from core.planner.retired_versions import RetiredVersion, retired_versions
from core.planner.scope import PlanScope
from core.planner.strategy_costs import StrategyCosts
from core.planner.upstream_and_downstream import decide_downstream, decide_upstream
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.sql.statement import Column, ParsedStatement
from core.text.sentence import Fact

_STARTS = frozenset({Action.START, Action.RESTART, Action.REBUILD})


def deploy_body(context: PlanningContext, scope: PlanScope, *, with_steps: bool = True) -> PlanBody:
    """Draft a deploy: nodes of all affected tables, steps, readers left behind, refusals and warnings."""
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
    _refuse_missing_columns(context, found, bindings)
    moves = rebuilt or any(
        bindings[t] != context.bindings.of(t) for t, d in found.by_table.items() if d.change.kind is not ChangeKind.NONE
    )
    every = retired_versions(context, rebuilt=rebuilt, bindings_then=bindings) if moves else ()
    old = tuple(version for version in every if version.version != versions.get(version.table))
    for version in old:
        if version.readers:
            # A table outside the plan gets no warning, because that would change the hash of the plan.
            if version.table in found.by_table:
                found.warn(version.table, _old_version_stays(context.observed, version))
            continue
        if version.table not in found.by_table:
            _keep(context, version.table, found.by_table, versions, bindings)
        for overlay, read in context.observed.deployment(version.table).overlays:
            if read == version.version:
                name = physical_name(version.table, read)
                found.warn(version.table, PlanWarningKind.STOPPED_UNDER_OVERLAY.of(overlay=overlay, version=name))
    aside = _orphans_to_trash(context, scope, found, used, old=old, versions=versions, bindings=bindings)
    levels = plan_levels(context.declared, bindings, versions, every_version=False)
    costs = StrategyCosts(context, scope, found.by_table)
    nodes = tuple(
        changed_node(
            context,
            table,
            found.by_table[table],
            level=levels[table],
            version=versions[table],
            bindings=bindings[table],
            costed=costs.of(table, bindings[table]),
        )
        for table in sorted(found.by_table, key=lambda table: (levels[table], table))
    )
    steps = _deploy_steps(context, nodes, old, used, aside, hold=scope.holds) if with_steps else []
    if any(step.do is StepKind.HOLD for step in steps):
        found.warn(TableName(""), PlanWarningKind.HELD.of())
    if any(step.do is StepKind.SOAK for step in steps):
        found.warn(TableName(""), PlanWarningKind.SOAKS.of(minutes=context.declared.environment.soak_min))
    return PlanBody(nodes, steps, found.left_behind, found.refusals, found.warnings)


def _refuse_missing_columns(
    context: PlanningContext, found: DeployDecisions, bindings: Mapping[TableName, tuple[Binding, ...]]
) -> None:
    """Refuse statements that read a declared column missing from the parent version that they read.

    Unless the plan deploys the parent's declaration, such a statement could not start.
    """
    tables = context.declared.tables
    for table, decision in found.by_table.items():
        statement = tables[table].parsed if table in tables else None
        if statement is None or decision.action not in _STARTS:
            continue
        for parent, serving in ((each.parent, each.version) for each in bindings[table] if each.parent in tables):
            above = found.by_table.get(parent)
            if above is not None and above.action in _STARTS:
                continue
            deployed = context.revisions.deployed(parent) if context.observed.is_deployed(parent) else None
            if deployed is None or serving != context.observed.deployment(parent).version:
                continue
            there = {column.name.lower() for column in deployed.ddl.columns}
            added = {c.name.lower() for c in tables[parent].parsed_ddl.columns if c.name.lower() not in there}
            if added and (lacks := _unresolved(statement, context, parent, deployed.ddl.columns, added)):
                version = physical_name(parent, serving) if serving else str(parent)
                fact = PlanRefusalKind.BOUND_VERSION_LACKS.of(columns=lacks, parent=parent, version=version)
                found.refuse(table, fact)


def _unresolved(
    statement: ParsedStatement,
    context: PlanningContext,
    parent: TableName,
    columns: tuple[Column, ...],
    names: Set[str],
) -> tuple[str, ...]:
    """Return the elements of `names` that a statement cannot resolve if `parent` has only `columns`, ignoring stars."""
    from core.sql.lineage.statement_lineage import lineage_of

    tables = context.declared.tables
    others = {read.table: tables[read.table].parsed_ddl.columns for read in statement.reads if read.table in tables}
    found = lineage_of(statement, {**others, parent: columns}.get)
    parts = {part for each in found.unresolved for part in each.name.lower().split(".")}
    return tuple(sorted(names & parts))


def _use_orphan_versions(
    context: PlanningContext,
    scope: PlanScope,
    decisions: dict[TableName, TableDecision],
    versions: dict[TableName, int],
) -> dict[TableName, OtherVersion]:
    """For each rebuild from the earliest row, reuse an orphan of a failed run if it equals the version to create.

    Updates `decisions` and `versions`, and returns the reused orphans by table.
    """
    used: dict[TableName, OtherVersion] = {}
    rebuilt = [t for t, d in decisions.items() if d.action is Action.REBUILD and d.strategy == Strategy.EARLIEST]
    for table in upstream_first(context.declared, rebuilt):
        decision = decisions[table]
        orphan = usable_orphan(
            context.observed, context.revisions, table, _bindings_then(context, table, decision, versions)
        )
        if orphan is not None:
            used[table], versions[table] = orphan, orphan.version
            version = physical_name(table, orphan.version)
            seen = Notice.ORPHAN_EXISTS.of(version=version, run=scope.request.continues)
            change = replace(decision.change, evidence=(*decision.change.evidence, seen))
            decisions[table] = replace(decision, change=change)
    return used


def _orphans_to_trash(
    context: PlanningContext,
    scope: PlanScope,
    found: DeployDecisions,
    used: Mapping[TableName, OtherVersion],
    *,
    old: Sequence[RetiredVersion],
    versions: dict[TableName, int],
    bindings: dict[TableName, tuple[Binding, ...]],
) -> tuple[RetiredVersion, ...]:
    """Return the orphans to move to the trash; orphans with readers are kept, with the versions that they read."""
    stays = {(version.table, version.version) for version in old if version.readers}
    fresh = [table for table, decision in found.by_table.items() if decision.action is Action.START]
    tables = tuple(found.by_table) if scope.request.continues else fresh
    aside = []
    for version in unused_orphans(context, tables, used, fresh, bindings):
        if version.readers:
            kept = PlanWarningKind.ORPHAN_KEPT.of(version=version.version, readers=version.readers)
            found.warn(version.table, kept)
        if version.readers or (version.table, version.version) in stays:
            bound_by = (
                s.bindings
                for s in context.observed.deployment(version.table).orphan_versions
                if s.version == version.version
            )
            stays |= {(binding.parent, binding.version) for bound in bound_by for binding in bound}
            continue
        aside.append(version)
        found.warn(version.table, PlanWarningKind.ORPHAN_TRASHED.of(version=version.version))
        if version.table not in found.by_table:
            _keep(context, version.table, found.by_table, versions, bindings)
    return tuple(aside)


def _old_version_stays(observed: ObservedTables, old: RetiredVersion) -> Fact[PlanWarningKind]:
    seen = observed.deployment(old.table)
    if old.version == seen.version and seen.state in AT_REST:
        return PlanWarningKind.OLD_VERSION_RESTS.of(version=old.version, state=seen.state, readers=old.readers)
    return PlanWarningKind.OLD_VERSION_RUNS.of(version=old.version, readers=old.readers)


def _keep(
    context: PlanningContext,
    table: TableName,
    decisions: dict[TableName, TableDecision],
    versions: dict[TableName, int],
    bindings: dict[TableName, tuple[Binding, ...]],
) -> None:
    """Add a table as kept; the plan only stops one of its old versions or moves one of its orphans to the trash."""
    decisions[table] = TableDecision(Action.KEEP, Reason.SERVES, Change(ChangeKind.NONE, Action.KEEP))
    versions[table], bindings[table] = context.observed.deployment(table).version, context.bindings.of(table)


def _deploy_steps(
    context: PlanningContext,
    nodes: tuple[PlanNode, ...],
    old: Sequence[RetiredVersion],
    used: Mapping[TableName, OtherVersion],
    aside: Sequence[RetiredVersion],
    *,
    hold: bool,
) -> list[Step]:
    steps = StepBuilder()
    unread, read = _read_until_the_swap(context.observed, context.bindings, aside)
    children = context.declared.graph.children if aside else None
    for version in unread:
        steps.stop(version, children(version.table) if children else (), (), why=_UNUSED)
    for node in nodes:
        needs_pointer = node.version > 0 and not context.observed.deployment(node.table).pointer
        ddl = context.declared.tables[node.table].parsed_ddl if node.table in context.declared.tables else None
        pauses = ddl is not None and table_format(ddl.format).added_column_stops_readers
        steps.deploy(
            node,
            needs_pointer=needs_pointer,
            existing=used.get(node.table),
            pauses_readers=pauses,
            to_topic=ddl is not None and bool(node.texts.dml) and table_format(ddl.format).topics,
            readers_first=context.declared.compatibility(node.table).readers_first,
        )
    steps.restart_after_readers()
    if context.declared.environment.validate:
        steps.validate(nodes)
    swap = steps.swap(nodes, hold=hold)
    steps.seams(swap)
    after = (swap,) if swap else ()
    stops_aside = {(version.table, version.version) for version in aside}
    for version in old:
        if version.readers or (version.table, version.version) in stops_aside:
            continue
        if swap and context.declared.environment.soak_min:
            steps.soak(version, swap)
        else:
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
    """Split orphans by whether a serving version reads them, directly or indirectly; return the unread ones first."""
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


def _bindings_then(
    context: PlanningContext, table: TableName, decision: TableDecision, versions: Mapping[TableName, int]
) -> tuple[Binding, ...]:
    """Return the bindings of a table after the plan.

    A start, rebuild or seam binds the table to the latest versions of all parents; a restart binds it only to those of
    its static sides. All other actions leave the bindings unchanged.
    """
    if decision.action is Action.KEEP and not context.observed.is_deployed(table):
        return ()
    if decision.action in (Action.KEEP, Action.RESUME, Action.RECORD):
        return context.bindings.of(table)
    then = {
        _binding_after_plan(binding, versions) for binding in context.bindings.bind(context.revisions.declared(table))
    }
    if decision.action is Action.RESTART and not decision.rebinds_streams:
        streamed = {b.parent: b.version for b in context.bindings.of(table) if b.streamed}
        then = {replace(b, version=streamed.get(b.parent, b.version)) if b.streamed else b for b in then}
    return tuple(sorted(then, key=by_parent))


def _binding_after_plan(binding: Binding, versions: Mapping[TableName, int]) -> Binding:
    version = versions.get(binding.parent, binding.version)
    return binding if version == binding.version else replace(binding, version=version)


def decide_deploy(context: PlanningContext, scope: PlanScope) -> DeployDecisions:
    """Decide what a deploy does to every affected table."""
    walk = DeployWalk(context, scope)
    found = walk.found
    for table in scope.requested:
        came_with = scope.because_of.get(table)
        decision = decide_table(walk, table, (came_with,) if came_with else ())
        if decision is not None:
            found.put(table, with_chosen_strategy(walk, table, decision))
    decide_downstream(walk)
    find_left_behind(walk)
    for table in sorted(found.by_table):
        decide_upstream(walk, table)
    warn_of_old_inputs(walk)
    apply_start(walk)
    refuse_unmet_choices(walk)
    found.settle()
    for table in sorted(found.by_table):
        add_warnings(walk, table)
    return found
