"""Promotion: a deploy of exactly the revisions that serve in another environment, the source.

The request pins each revision by the hash of its texts as written, which is the same in environments whose variables
have other values: the target uses its own values. The parents of a promoted revision must have the revisions with which
it runs in the source, so that nothing is deployed in a combination that never ran.
"""

from collections.abc import Iterator, Mapping, Sequence

from core.model.actions import Action
from core.model.names import TableName
from core.model.states import Fault, State
from core.observed.planner_input import ObservedDeployment, SourceTable
from core.plan.model import PlanNode, PlanRefusal
from core.plan.request import PlanRequest
from core.planner.context import PlanningContext
from core.planner.warning_and_refusal_kinds import GuardFinding, ParentDifference, PlanRefusalKind
from core.policy.roles_and_rules import PROMOTION_RULES
from core.project.revision import written_hash
from core.text.sentence import Fact

_DEPLOYS = frozenset({Action.START, Action.RESTART, Action.REBUILD, Action.RECORD})

_FINDING_BY_CONDITION = {
    "failed": GuardFinding.SOURCE_FAILED,
    "degraded": GuardFinding.SOURCE_DEGRADED,
    "stopped": GuardFinding.SOURCE_STOPPED,
    "behind": GuardFinding.SOURCE_BEHIND,
    "unvalidated": GuardFinding.SOURCE_UNVALIDATED,
}
assert _FINDING_BY_CONDITION.keys() == PROMOTION_RULES.keys()


def deployed_revision(seen: ObservedDeployment | None) -> str:
    """Return the hash of a table's deployed texts as written; empty if the table is not deployed."""
    if seen is None or seen.state == State.ABSENT:
        return ""
    return written_hash(seen.deployed) if seen.deployed is not None else seen.revision


def short(revision: str) -> str:
    """Return the part of a revision's hash that is shown."""
    return revision[:8]


def source_conditions(
    request: PlanRequest, source: Mapping[TableName, SourceTable]
) -> Iterator[tuple[str, Fact[GuardFinding]]]:
    """Yield each condition in which promoted tables are, a key of PROMOTION_RULES, with a finding that names them.

    A table has at most one condition, apart from `unvalidated`.
    """
    found: dict[str, list[TableName]] = {condition: [] for condition in PROMOTION_RULES}
    for table in (each.table for each in request.promotes if each.table in source):
        if condition := _condition(source[table]):
            found[condition].append(table)
        if not source[table].compared:
            found["unvalidated"].append(table)
    for condition, tables in found.items():
        if tables:
            finding = _FINDING_BY_CONDITION[condition]
            yield condition, finding.of(tables=tuple(tables), source=request.promoted_from)


def _condition(table: SourceTable) -> str:
    if table.state == State.FAILED:
        return "failed"
    if table.state == State.DEGRADED or table.fault in (Fault.STALLED, Fault.STARVED):
        return "degraded"
    if table.state != State.RUNNING:
        return "stopped"
    return "behind" if table.fault == Fault.BEHIND else ""


def promotion_refusals(
    context: PlanningContext, request: PlanRequest, nodes: Sequence[PlanNode], source: Mapping[TableName, SourceTable]
) -> Iterator[PlanRefusal]:
    """Yield why a promotion cannot be planned: source, texts or parents differ from what the request pins."""
    environment, where = context.declared.environment.name, request.promoted_from
    if not where:
        return
    if where == environment:
        yield PlanRefusal.of(environment, PlanRefusalKind.SOURCE_IS_TARGET.of())
        return
    for table, asked in ((each.table, each.revision) for each in request.promotes):
        there = source.get(table)
        known = table in context.declared.tables
        declared = written_hash(context.revisions.declared(table).texts) if known else ""
        if there is None:
            yield PlanRefusal.of(table, PlanRefusalKind.NOT_IN_SOURCE.of(source=where))
        elif there.revision != asked:
            moved = PlanRefusalKind.SOURCE_MOVED.of(
                source=where, environment=environment, asked=short(asked), now=short(there.revision)
            )
            yield PlanRefusal.of(table, moved)
        elif declared != asked:
            other = PlanRefusalKind.NOT_THE_PROMOTED_TEXT.of(
                source=where, environment=environment, asked=short(asked), now=short(declared)
            )
            yield PlanRefusal.of(table, other)
    here = {table: deployed_revision(seen) for table, seen in context.observed.deployments.items()}
    differing = tuple(parent_refusals(request, environment, source, here))
    yield from differing
    if not differing:
        # Otherwise, the plan also starts the parents that are missing.
        pinned = {each.table for each in request.promotes}
        for node in nodes:
            if (
                node.action in _DEPLOYS
                and node.table not in pinned
                and written_hash(node.texts) != here.get(node.table)
            ):
                yield PlanRefusal.of(node.table, PlanRefusalKind.NOT_PROMOTED.of())


def parent_refusals(
    request: PlanRequest, environment: str, source: Mapping[TableName, SourceTable], here: Mapping[TableName, str]
) -> Iterator[PlanRefusal]:
    """Yield a refusal for each promoted table whose parents would not have the revisions with which it runs.

    `here` has the hashes of the revisions that are deployed in `environment`; they are empty for absent tables.
    """
    pinned, where = {each.table: each.revision for each in request.promotes}, request.promoted_from
    for table in (table for table in pinned if table in source):
        reads = source[table].reads
        if old := tuple(parent for parent, tested in reads if pinned.get(parent, tested) != tested):
            yield PlanRefusal.of(table, PlanRefusalKind.READS_OLD_IN_SOURCE.of(parents=old, source=where))
        differing = tuple(
            _difference(parent, tested, here.get(parent, ""), source.get(parent))
            for parent, tested in reads
            if parent not in pinned and here.get(parent, "") != tested
        )
        if differing:
            others = PlanRefusalKind.PARENTS_DIFFER.of(source=where, environment=environment, parents=differing)
            yield PlanRefusal.of(table, others)


def _difference(parent: TableName, tested: str, now: str, there: SourceTable | None) -> Fact[ParentDifference]:
    if not now:
        return ParentDifference.ABSENT.of(parent=parent)
    kind = ParentDifference.OLDER if there is not None and now in there.earlier else ParentDifference.OTHER
    return kind.of(parent=parent, now=short(now), tested=short(tested))
