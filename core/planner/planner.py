"""Planning as a pure function of project, environment, observations and request: every process gets the same plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from core.changes.spark_questions_and_answers import AnalysisQuestion
from core.model.errors import UsageError
from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment, ObservedPool, SourceTable, StepDurations
from core.observed.table_statistics import Headroom
from core.plan.codec import plan_hash
from core.plan.model import PLANNER_VERSION, Plan
from core.plan.preconditions import preconditions
from core.plan.predictions import predict
from core.plan.request import PlanRequest
from core.planner.context import DeclaredTables, PlanningContext, planning_context
from core.planner.delete_and_retire import delete_body, retire_body
from core.planner.deploy import deploy_body
from core.planner.folder_guard import read_folders
from core.planner.guards import judge_plan
from core.planner.left_behind_and_exposures import exposures
from core.planner.orphans_to_reuse_or_trash import without_orphans
from core.planner.placement import PlacedNodes, place_nodes, presumed_places
from core.planner.plan_nodes import PlanBody
from core.planner.promotion import promotion_refusals
from core.planner.rollback import rollback_body, undelete_body
from core.planner.scope import PlanScope, normal_request, resolve_scope
from core.planner.strategy_costs import not_executable_warnings
from core.planner.table_maintenance import upkeep_body
from core.planner.topic_guard import used_topics
from core.planner.undo_plan import undos_of, with_undo_words
from core.planner.warning_and_refusal_kinds import PlanWarningKind
from core.policy.roles_and_rules import Policy
from core.project.model import Project
from core.project_reader.parse_cache import ParseCache
from core.text.wording import did_you_mean


def make_plan(
    project: Project,
    environment: str,
    observed: Mapping[TableName, ObservedDeployment],
    request: PlanRequest,
    parse_cache: ParseCache | None = None,
    *,
    answers: Mapping[str, str] = MappingProxyType({}),
    policy: Policy | None = None,
    headroom: Headroom | None = None,
    durations: StepDurations = MappingProxyType({}),
    source: Mapping[TableName, SourceTable] = MappingProxyType({}),
    pools: Mapping[str, ObservedPool] = MappingProxyType({}),
    chosen: Mapping[TableName, str] = MappingProxyType({}),
) -> Plan:
    """Return the plan for a request; a plan with `refusals` has no steps.

    Raises UsageError if the project does not declare the environment, and InvalidProject if the plan would need the
    declaration of a table whose files have errors. `answers` maps question keys to Spark's answers as JSON, which can
    only make a change more severe, and to the topics that the agent has seen. `policy` is the recorded policy; without
    it, the declared policy applies. `headroom` contains measurements of disk and pool, and `durations` the measured
    durations of steps in earlier runs. `source` contains the serving tables of the environment from which the request
    promotes revisions, and `pools` what is known of each of several pools. `chosen` has the pools, by table, in which a
    reviewed plan has placed statements; they are kept while they have room. `parse_cache` only saves time. Time is
    linear in tables and reads.
    """
    if environment not in project.environments:
        names = project.environments
        remedy = did_you_mean(environment, names) or f"environments: {', '.join(names)}"
        raise UsageError(f"there is no environment {environment}", remedy=remedy)
    request = normal_request(request)
    if request.continues:
        observed = without_orphans(observed)
    headroom = headroom or Headroom()
    parse_cache = parse_cache or ParseCache()
    has_errors = bool(project.broken or project.stray)
    if has_errors:
        from core.planner import broken_files

        if request.verb == "deploy":
            broken_files.refuse_broken_request(project, request)
        else:
            project = broken_files.with_deployed_revisions(project, observed, parse_cache)
    here = project.environments[environment]
    policy = policy or here.declared_policy(t for t, found in project.tables.items() if found.settings.protect)
    in_places = partial(
        planning_context, project, here, observed, parse_cache, answers=answers, engine=headroom.engine, pools=pools
    )
    drafted = partial(_drafted, request=request, policy=policy, has_errors=has_errors)
    presumed = presumed_places(project, here, observed, request, pools)
    draft = drafted(in_places(places=presumed), chosen=chosen)
    if any(draft.placed.names.get(table, pool) != pool for table, pool in presumed.items()):
        # A statement that is deployed leaves its pool, which is a change of it.
        places = {**presumed, **draft.placed.names}
        draft = drafted(in_places(places=places, like=draft.context), chosen=places)
    sealed = _sealed(draft, answers, policy=policy, headroom=headroom, source=source)
    return _predicted(draft.context, sealed, headroom.engine, durations) if sealed.steps else sealed


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plan before guards, preconditions and hash are added, with the subjects from which it was made."""

    context: PlanningContext
    scope: PlanScope
    body: PlanBody
    placed: PlacedNodes


def _drafted(
    context: PlanningContext,
    *,
    request: PlanRequest,
    policy: Policy,
    chosen: Mapping[TableName, str],
    has_errors: bool,
) -> _Draft:
    scope = replace(resolve_scope(request, context), holds=request.hold or policy.hold)
    body = _BODIES[request.verb](context, scope)
    if has_errors:
        from core.planner.broken_files import refuse_broken_plan

        refuse_broken_plan(context, scope, body)
    placed = place_nodes(
        context.declared,
        context.observed.deployments,
        request,
        body.nodes,
        body.steps,
        pools=context.changes.pools_seen,
        chosen=chosen,
    )
    return _Draft(context, scope, body, placed)


_BODIES: Mapping[str, Callable[[PlanningContext, PlanScope], PlanBody]] = {
    "deploy": deploy_body,
    "delete": delete_body,
    "rollback": rollback_body,
    "undelete": undelete_body,
    "retire": retire_body,
    "optimize": upkeep_body,
    "vacuum": upkeep_body,
}


def questions_of(
    plan: Plan,
    project: Project,
    observed: Mapping[TableName, ObservedDeployment],
    parse_cache: ParseCache | None = None,
) -> tuple[AnalysisQuestion, ...]:
    """Return the requests for Spark to analyse the new and changed statements of a plan, in node order."""
    context = planning_context(project, project.environments[plan.environment], observed, parse_cache or ParseCache())
    found = (
        context.changes.question(node.table) for node in plan.nodes if node.for_spark and node.table in project.tables
    )
    return tuple(question for question in found if question is not None)


def topics_of(plan: Plan, project: Project) -> tuple[str, ...]:
    """Return the locations of the topics that the statements need which a plan starts, each once."""
    declared = DeclaredTables(project, project.environments[plan.environment])
    return tuple(dict.fromkeys(used.location for used in used_topics(declared, plan.nodes)))


def folders_of(plan: Plan, project: Project) -> tuple[str, ...]:
    """Return the declared locations of the external files that a plan begins to stream, each once."""
    declared = DeclaredTables(project, project.environments[plan.environment])
    return tuple(dict.fromkeys(location for _, _, location in read_folders(declared, plan.nodes)))


def _predicted(context: PlanningContext, plan: Plan, engine: str, durations: StepDurations) -> Plan:
    """Add predicted durations and undo commands to a plan; the plan's hash covers neither."""
    found = predict(plan.nodes, plan.steps, context.observed.statistics, durations)
    ways = undos_of(context, plan.request, plan.nodes, engine=engine, durations=durations)
    nodes = with_undo_words(found.nodes, ways)
    low_s, high_s = (round(found.whole.low, 1), round(found.whole.high, 1)) if found.whole else (None, None)
    return replace(plan, nodes=nodes, steps=found.steps, undo=ways, predicted_low_s=low_s, predicted_high_s=high_s)


def _sealed(
    draft: _Draft,
    answers: Mapping[str, str],
    *,
    policy: Policy,
    headroom: Headroom,
    source: Mapping[TableName, SourceTable],
) -> Plan:
    context, scope, body, nodes = draft.context, draft.scope, draft.body, draft.placed.nodes
    again = PlanWarningKind.WRITTEN_AGAIN.code
    verdicts = judge_plan(
        context.declared,
        context.observed,
        scope.request,
        nodes,
        body.steps,
        policy=policy,
        headroom=headroom,
        answers=answers,
        source=source,
        pools=context.changes.pools_seen,
        unplaced=draft.placed.refused,
        topics_rewritten=[TableName(warning.table) for warning in body.warnings if warning.kind == again],
    )
    promotion = promotion_refusals(context, scope.request, nodes, source)
    found = {*scope.refusals, *body.refusals, *promotion, *verdicts.refusals}
    refusals = tuple(sorted(found, key=lambda r: (r.table, r.summary)))
    steps = () if refusals else tuple(body.steps)
    warnings = {*scope.warnings, *body.warnings, *not_executable_warnings(nodes)}
    if not body.steps:
        warnings = {warning for warning in warnings if warning.kind != PlanWarningKind.PROMOTED.code}
    behind = tuple(sorted(set(body.left_behind), key=lambda left: (left.table, left.reads)))
    plan = Plan(
        hash="",
        project_id=context.declared.project.id,
        environment=context.declared.environment.name,
        protected=context.declared.environment.protected or policy.protected,
        planner=PLANNER_VERSION,
        request=scope.request,
        nodes=nodes,
        order=tuple(dict.fromkeys(table for step in steps for table in (step.tables or (step.table,)))),
        steps=steps,
        left_behind=behind,
        guards=verdicts.guards,
        refusals=refusals,
        warnings=tuple(sorted(warnings, key=lambda w: (not w.multiplies_rows, w.table, w.summary))),
        approvals=verdicts.approvals if steps else 0,
        readers=exposures(context.declared, context.observed, nodes),
        policy=policy.digest,
        preconditions=preconditions(context.observed.deployments, context.bindings.readers, nodes),
    )
    return replace(plan, hash=plan_hash(plan))
