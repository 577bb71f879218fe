"""Maintenance of table files: OPTIMIZE merges small files into large ones, VACUUM deletes old files.

The set of old files that statements still need can change within minutes. It is therefore checked by the vacuum step
when it runs, not by the planner.
"""

from dataclasses import replace

from core.model.actions import Action, StepKind
from core.model.names import TableName, physical_name
from core.model.reasons import Reason
from core.model.table_formats import TableFormat, table_format
from core.observed.table_statistics import history_of
from core.plan.model import PlanNode
from core.planner.context import PlanningContext
from core.planner.decision_model import WarningsAndRefusals
from core.planner.plan_nodes import PlanBody, kept_node, plan_levels
from core.planner.plan_steps import StepBuilder
from core.planner.scope import PlanScope
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.project.revision import Revision


def upkeep_body(context: PlanningContext, scope: PlanScope) -> PlanBody:
    """Draft the maintenance of the serving version of each requested table; no step depends on another."""
    request, found, steps = scope.request, WarningsAndRefusals(), StepBuilder()
    action = Action(request.verb)
    tables = [table for table in scope.requested if _accept_for_maintenance(context, table, found)]
    versions = {table: context.observed.deployment(table).version for table in tables}
    levels = plan_levels(context.declared, dict.fromkeys(tables, ()), versions, every_version=False)
    nodes = []
    for table in tables:
        node = kept_node(context, table, levels[table])
        name = physical_name(table, versions[table])
        if action is Action.OPTIMIZE:
            why = f"small files of {name} are written into large ones"
            nodes.append(replace(node, action=action, reason=Reason.OPTIMIZED))
            _warn_of_rewriting(context, table, found)
        else:
            nodes.append(_vacuumed(context, node, request.retain_h, found))
            why = f"files that only older versions of {name} hold are deleted"
        steps.add(StepKind(request.verb), table, versions[table], (), why=why)
    return PlanBody(tuple(nodes), steps.all, (), found.refusals, found.warnings)


def _accept_for_maintenance(context: PlanningContext, table: TableName, found: WarningsAndRefusals) -> bool:
    before = len(found.refusals)
    if not context.observed.is_deployed(table):
        found.refuse(table, PlanRefusalKind.NOT_STARTED.of())
    elif context.observed.is_external(table):
        found.refuse(table, PlanRefusalKind.EXTERNAL.of())
    elif not _format(context, table).retention_property:
        found.refuse(table, PlanRefusalKind.NO_MAINTENANCE.of(format=_format(context, table).name))
    return len(found.refusals) == before


def _vacuumed(context: PlanningContext, node: PlanNode, retain_h: str, found: WarningsAndRefusals) -> PlanNode:
    kept_h = _kept_h(context, node.table)
    if retain_h and kept_h is not None and float(retain_h) < kept_h:
        setting = _format(context, node.table).retention_property
        found.refuse(node.table, PlanRefusalKind.RETAINS_LONGER.of(kept_h=kept_h, asked_h=retain_h, property=setting))
    hours = retain_h or ("" if kept_h is None else f"{kept_h:g}")
    older = f"older than {hours} h" if hours else "older than it retains"
    vacuumed = PlanWarningKind.VACUUMED.of(hours=hours) if hours else PlanWarningKind.VACUUMED_BY_TABLE.of()
    found.warn(node.table, vacuumed)
    for overlay, version in context.observed.deployment(node.table).overlays:
        if version == node.version:
            name = physical_name(node.table, version)
            found.warn(node.table, PlanWarningKind.VACUUMED_UNDER_OVERLAY.of(overlay=overlay, version=name))
    return replace(node, action=Action.VACUUM, reason=Reason.VACUUMED, loses=(f"files of versions {older}",))


def _kept_h(context: PlanningContext, table: TableName) -> float | None:
    """Return for how many hours a table retains unreferenced files; None if unknown.

    The retention in the table's log takes precedence over that in its DDL.
    """
    if (measured := history_of(context.observed.statistics(table).log)) is not None and measured.kept_h is not None:
        return measured.kept_h
    revision = _revision(context, table)
    return _format(context, table).kept_h(dict(revision.ddl.properties) if revision is not None else {})


def _warn_of_rewriting(context: PlanningContext, table: TableName, found: WarningsAndRefusals) -> None:
    found.warn(table, PlanWarningKind.SMALL_FILES_STAY.of())
    revision = _revision(context, table)
    if revision is not None and revision.settings.upserts:
        found.warn(table, PlanWarningKind.PAUSES.of())


def _format(context: PlanningContext, table: TableName) -> TableFormat:
    revision = _revision(context, table)
    return table_format(revision.ddl.format if revision is not None else "")


def _revision(context: PlanningContext, table: TableName) -> Revision | None:
    deployed = context.revisions.deployed(table)
    if deployed is None and table in context.declared.tables:
        return context.revisions.declared(table)
    return deployed
