"""Planning while project files have errors; a plan is refused only if it needs the declaration of a broken table.

A deploy needs sound files of its tables, of all tables upstream of them, and of the readers that it affects. All other
requests act on deployed versions, whose revisions replace the declarations that cannot be read.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from core.lineage.table_graph import edges_of, reach
from core.model.actions import Action
from core.model.errors import InvalidProject
from core.model.names import TableName
from core.model.states import State
from core.observed.planner_input import ObservedDeployment
from core.plan.model import PlanNode
from core.plan.request import PlanRequest
from core.planner.context import PlanningContext
from core.planner.plan_nodes import PlanBody
from core.planner.scope import PlanScope, is_meant
from core.project.model import BrokenTable, Project, Script, Table
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision
from core.text.wording import counted


def with_deployed_revisions(
    project: Project, observed: Mapping[TableName, ObservedDeployment], parse_cache: ParseCache
) -> Project:
    """Return the project, with deployed revisions in place of the declarations of broken tables."""
    found = {
        name: _as_deployed(project, broken, observed.get(name), parse_cache) for name, broken in project.broken.items()
    }
    tables = {**project.tables, **{name: table for name, table in found.items() if table is not None}}
    return replace(project, tables=dict(sorted(tables.items())))


def _as_deployed(
    project: Project, broken: BrokenTable, seen: ObservedDeployment | None, parse_cache: ParseCache
) -> Table | None:
    if seen is None or seen.state == State.ABSENT or seen.deployed is None:
        return None
    revision = read_revision(broken.name, seen.deployed, project.defaults, parse_cache)
    if revision is None:
        return None
    return Table(
        name=broken.name,
        product=broken.product,
        layer=broken.layer,
        unit=broken.unit,
        folder=broken.folder,
        ddl=Script("", seen.deployed.ddl),
        parsed_ddl=revision.ddl,
        dml=Script("", seen.deployed.dml) if revision.parsed is not None else None,
        parsed=revision.parsed,
        settings=revision.settings,
        settings_text=seen.deployed.yml,
    )


def refuse_broken_request(project: Project, request: PlanRequest) -> None:
    """Raise InvalidProject with the errors of the broken tables that a deploy request in normal form selects."""
    if request.promoted_from:
        refuse_broken(project, {each.table for each in request.promotes} & project.broken.keys())
        return
    if request.everything:
        # A file outside of every table's folder may declare a table.
        refuse_broken(project, set(project.broken) - set(request.exclude), stray=True)
    named = {*request.tables, *request.pipelines, *(choice.table for choice in request.choices)} - {*request.exclude}
    meant = {name for name, table in project.broken.items() if is_meant(table, request)} - {*request.exclude}
    undeclared = named - project.tables.keys() - project.broken.keys()
    wide = request.products or request.layers or request.folders
    refuse_broken(project, (named & project.broken.keys()) | meant, stray=bool(wide or undeclared))


def refuse_broken_plan(context: PlanningContext, scope: PlanScope, body: PlanBody) -> None:
    """Raise InvalidProject with the errors of the broken tables whose declarations a drafted plan needs."""
    project = context.declared.project
    needed = {"deploy": _needed_by_deploy, "delete": _needed_by_delete}.get(scope.request.verb)
    if needed is not None:
        lacking = {*needed(context, scope, body)} - context.declared.tables.keys()
        refuse_broken(project, lacking & project.broken.keys(), stray=bool(lacking - project.broken.keys()))


def _needed_by_deploy(context: PlanningContext, scope: PlanScope, body: PlanBody) -> Iterator[TableName]:
    yield from (node.table for node in body.nodes)
    tables = context.declared.tables
    acted = [node.table for node in body.nodes if node.action is not Action.KEEP and node.table in tables]
    yield from reach(acted, lambda table: (edge.parent for edge in edges_of(tables[table])) if table in tables else ())
    for node in body.nodes:
        for reader in context.bindings.readers(node.table):
            if _changes_columns(node) or (node.action is Action.REBUILD and _is_in_scope(context, scope, reader)):
                yield reader


def _needed_by_delete(context: PlanningContext, scope: PlanScope, body: PlanBody) -> Iterator[TableName]:
    """Yield the tables whose product and statement set must be known for a delete."""
    request = scope.request
    yield from (node.table for node in body.nodes if node.action is Action.DELETE)
    if request.products or request.layers or request.folders:
        yield from filter(context.observed.is_deployed, context.observed.deployments)


def _changes_columns(node: PlanNode) -> bool:
    return node.action is not Action.KEEP and bool(node.old.ddl) and node.texts.ddl != node.old.ddl


def _is_in_scope(context: PlanningContext, scope: PlanScope, reader: TableName) -> bool:
    broken = context.declared.project.broken.get(reader)
    return scope.may_touch(reader, broken.product) if broken else reader not in scope.excluded


def refuse_broken(project: Project, names: Set[TableName], *, stray: bool = False) -> None:
    """Raise InvalidProject if the broken tables `names` or, with `stray`, files outside table folders have errors."""
    problems = (*project.errors(sorted(names)), *(project.stray if stray else ()))
    if problems:
        tables = f" of {', '.join(sorted(names))}" if names else ""
        raise InvalidProject(
            f"this plan needs files{tables} that have {counted(len(problems), 'problem')}",
            remedy="correct what is listed, and plan again",
            problems=tuple(problem.as_json() for problem in problems),
        )
