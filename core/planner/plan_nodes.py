"""The nodes of a plan (one per table) and their levels, built from declarations, observations and decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.lineage.table_graph import levels
from core.model.actions import FORKS, Action
from core.model.names import TableName
from core.model.reasons import Reason
from core.observed.planner_input import ObservedDeployment
from core.observed.versions import Binding
from core.plan.model import LeftBehind, PlanNode, PlanRefusal, PlanWarning, Step
from core.planner.context import DeclaredTables, ObservedTables, PlanningContext, TableRevisions
from core.planner.decision_model import NEEDS_TEXTS, TableDecision
from core.planner.strategy_costs import CostedOffers
from core.project.model import Environment
from core.project.revision import RevisionTexts


@dataclass(slots=True)
class PlanBody:
    """The contents of a plan before guards, preconditions and hash are added."""

    nodes: tuple[PlanNode, ...]
    steps: Sequence[Step]
    left_behind: Sequence[LeftBehind]
    refusals: list[PlanRefusal]
    warnings: list[PlanWarning]


def changed_node(
    context: PlanningContext,
    table: TableName,
    decision: TableDecision,
    *,
    level: int,
    version: int,
    bindings: tuple[Binding, ...],
    costed: CostedOffers | None,
) -> PlanNode:
    """Return the node of a table in a deploy, with its new and its deployed SQL and YAML.

    The costs are those of the chosen strategy, which is the first in `costed`.
    """
    seen, declared = context.observed.deployment(table), context.declared.tables.get(table)
    action = decision.action
    if declared is None:
        return replace(
            kept_node(context, table, level),
            action=action,
            reason=decision.reason,
            because_of=decision.because_of,
            strategy=decision.strategy,
        )
    revision = context.revisions.declared(table)
    chosen = costed.offers[0] if costed else None
    return PlanNode(
        table=table,
        product=declared.product,
        layer=declared.layer,
        stateful=declared.parsed is not None and declared.parsed.stateful,
        action=action,
        change=decision.change.kind,
        evidence=decision.change.evidence,
        classified=decision.change.classified,
        strategy="" if declared.external else decision.strategy,
        at=decision.at,
        begins_where=_begins_where(seen, decision),
        lowered=decision.lowered,
        reason=decision.reason,
        because_of=decision.because_of,
        level=level,
        loses=chosen.loses if chosen else (),
        replay_rows=chosen.replay_rows if chosen else None,
        eta_s=chosen.eta_s if chosen else None,
        retention=costed.retention if costed else None,
        offers=costed.offers if costed else (),
        replay_bytes=chosen.replay_bytes if chosen else None,
        from_version=seen.version,
        version=version,
        bindings=bindings,
        revision=revision.hash,
        texts=_texts_then(context.observed, context.revisions, table, decision),
        old=seen.deployed or RevisionTexts() if action is not Action.KEEP else RevisionTexts(),
        trigger=declared.settings.trigger,
        owner=declared.settings.owner,
        confirmed_by_spark=decision.change.confirmed,
    )


def _begins_where(seen: ObservedDeployment, decision: TableDecision) -> tuple[str, ...]:
    """Return the start conditions of a version after the plan; kept and forked versions retain their conditions."""
    anew = decision.action in (Action.START, Action.REBUILD) and decision.strategy not in FORKS
    return decision.begins_where if anew else seen.begins_where


def _texts_then(
    observed: ObservedTables, revisions: TableRevisions, table: TableName, decision: TableDecision
) -> RevisionTexts:
    if decision.action is Action.KEEP:
        return RevisionTexts()
    deployed = observed.deployment(table).deployed
    if decision.action in NEEDS_TEXTS or decision.change.kind.definition.is_recorded or deployed is None:
        return revisions.declared(table).texts
    return deployed


def deleted_node(context: PlanningContext, table: TableName, level: int) -> PlanNode:
    """Return the node of a table to be deleted; the table may no longer be declared."""
    node = kept_node(context, table, level)
    what = "table data, offsets and state" if node.stateful else "table data and offsets"
    when = purged_after(context.declared.environment)
    return replace(
        node,
        action=Action.DELETE,
        reason=Reason.DELETED,
        loses=(f"{what}, once the files are purged, {when}",),
    )


def purged_after(environment: Environment) -> str:
    """Return when an environment purges trashed files, for example `7 days after the run`."""
    return f"{environment.drop_after_d:g} {'day' if environment.drop_after_d == 1 else 'days'} after the run"


def kept_node(context: PlanningContext, table: TableName, level: int) -> PlanNode:
    """Return the node of a kept table, built from its deployment and, if it is declared, its declaration."""
    seen, declared = context.observed.deployment(table), context.declared.tables.get(table)
    texts = seen.deployed or (context.revisions.declared(table).texts if declared else RevisionTexts())
    old = context.revisions.deployed(table) if declared is None else None
    statement = declared.parsed if declared else old.parsed if old else None
    return PlanNode(
        table=table,
        product=declared.product if declared else "",
        layer=declared.layer if declared else "",
        stateful=statement is not None and statement.stateful,
        action=Action.KEEP,
        change=None,
        evidence=(),
        classified=True,
        strategy="",
        reason=Reason.SERVES,
        because_of=(),
        level=level,
        loses=(),
        from_version=seen.version,
        version=seen.version,
        bindings=context.bindings.of(table),
        begins_where=seen.begins_where,
        revision=seen.revision,
        texts=texts,
        old=texts,
        trigger=declared.settings.trigger if declared else "",
        owner=declared.settings.owner if declared else "",
    )


def plan_levels(
    declared: DeclaredTables,
    bindings: Mapping[TableName, tuple[Binding, ...]],
    versions: Mapping[TableName, int],
    *,
    every_version: bool,
) -> dict[TableName, int]:
    """Return the level of each table in the plan: 0 without parents, otherwise one above its highest parent.

    Only bindings to versions in `versions` count, unless `every_version` is set, as for a delete. If the bindings form
    a cycle, the declared reads are used instead, because they have no cycles.
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
