"""The scope of a request: the tables that it selects, and the readers that the plan may change."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from core.lineage.table_graph import TableEdge, TableGraph, edges_of, reach
from core.model.names import TableName
from core.model.states import AT_REST
from core.observed.cluster_manager import ManagerWord
from core.plan.model import PlanRefusal, PlanWarning
from core.plan.request import BY_NAME, CHILDREN, PlanRequest
from core.planner.context import DeclaredTables, ObservedTables, PlanningContext, TableBindings
from core.planner.warning_and_refusal_kinds import PlanRefusalKind, PlanWarningKind
from core.project.manifest_head import MANIFEST_PATH as MANIFEST
from core.project.model import BrokenTable, Layer, Project, Table
from core.text.wording import did_you_mean

ROOT = "."
"""The project folder in a request; it selects every table."""

SUGGESTED = 3
"""Maximum number of suggestions for unknown names; finding a similar name among 3,000 takes 0.2 s."""

Name = TypeVar("Name", bound=str)


@dataclass(frozen=True, slots=True)
class PlanScope:
    """A request resolved to tables of the project, and the readers that the plan may change."""

    request: PlanRequest
    requested: Mapping[TableName, None]
    """Requested tables and their statement sets, without excluded tables; sorted, as a mapping for fast lookup."""
    named: frozenset[TableName]
    """Tables that the request names and does not exclude, without those selected by product, folder or Git reference.

    A named table starts even if an operator stopped it. A delete is refused if it cannot include all named tables.
    """
    upstream: frozenset[TableName]
    """Tables upstream of a requested pipeline; a delete includes them only if nothing else reads them."""
    because_of: dict[TableName, TableName]
    """For each table that is included because of its statement set, the requested table of that set."""
    excluded: frozenset[TableName]
    products: frozenset[str]
    """Products whose tables may be rebuilt or deleted as readers of a requested table."""
    refusals: tuple[PlanRefusal, ...]
    warnings: tuple[PlanWarning, ...]
    holds: bool = False
    """True if the swap waits for an operator, as requested or as the policy requires."""

    def may_touch(self, table: TableName, product: str) -> bool:
        """True if a reader may be changed: it is requested or belongs to an accepted product, and is not excluded."""
        if table in self.excluded:
            return False
        return table in self.requested or self.request.children == "all" or product in self.products


def normal_request(request: PlanRequest) -> PlanRequest:
    """Return a request in normal form: sorted, without duplicates, and with defaults.

    Equivalent requests have equal normal forms.
    """
    children = ",".join(sorted({word.strip() for word in request.children.split(",") if word.strip()}))
    return replace(
        request,
        tables=_sorted(request.tables),
        products=_sorted(request.products),
        layers=_sorted(request.layers),
        folders=_sorted(request.folders),
        pipelines=_sorted(request.pipelines),
        gone=_sorted(request.gone),
        settings=_sorted(request.settings),
        exclude=_sorted(request.exclude),
        choices=tuple(sorted(set(request.choices), key=lambda choice: (choice.table, choice.strategy, choice.at))),
        promotes=tuple(sorted(set(request.promotes), key=lambda each: each.table)),
        children=children or ("product" if request.verb == "deploy" else "none"),
    )


def resolve_scope(request: PlanRequest, context: PlanningContext) -> PlanScope:
    """Resolve a request in normal form. An unknown name becomes a refusal that suggests a similar name."""
    tables, known = (
        context.declared.tables,
        frozenset(context.observed.known() | context.declared.project.broken.keys()),
    )
    refusals = list(request_mistakes(request, context.declared.project, known))
    one_by_one = {name for name in (*request.tables, *request.pipelines) if name in known}
    if request.promoted_from:
        found = {each.table for each in request.promotes} & known
    else:
        found = one_by_one | {name for name, table in tables.items() if is_meant(table, request)}
    if request.everything and not request.promoted_from:
        found |= set(tables if request.verb == "deploy" else known)
    above = _above(request.pipelines, context.observed, context.bindings) - found
    found |= above
    excluded = frozenset(request.exclude)
    came_with = _statement_sets(found - excluded, context.declared) if request.verb == "deploy" else {}
    refusals += [
        PlanRefusal.of(name, PlanRefusalKind.SET_HALF_EXCLUDED.of(other=came_with[name]))
        for name in sorted(came_with)
        if name in excluded
    ]
    return PlanScope(
        request=request,
        requested=dict.fromkeys(sorted((found | set(came_with)) - excluded)),
        named=frozenset(one_by_one - excluded) if not request.changed_since else frozenset(),
        upstream=above,
        because_of={table: asked for table, asked in came_with.items() if table not in excluded},
        excluded=excluded,
        products=_accepted(request, found - above - excluded, tables),
        refusals=tuple(refusals),
        warnings=(
            *_warnings_of_exclusions(request, found, context),
            *_warnings_of_gone(request, context.declared, context.observed),
            *_warnings_of_settings(request, context.declared.environment.name),
            *_warnings_of_old_texts(request),
            *_warnings_of_drain(request, context),
        ),
    )


def request_mistakes(request: PlanRequest, project: Project, known: Collection[TableName]) -> Iterator[PlanRefusal]:
    """Yield a refusal for each mistake in a request in normal form; `known` has the names of all tables that exist."""
    named = (*request.tables, *request.exclude, *request.pipelines, *(choice.table for choice in request.choices))
    unknown = [name for name in dict.fromkeys(named) if name not in known]
    yield from (_unknown("table", name, known if n < SUGGESTED else ()) for n, name in enumerate(unknown))
    tables: tuple[Table | BrokenTable, ...] = (*project.tables.values(), *project.broken.values())
    products = {table.product for table in tables}
    yield from (_unknown("product", name, products) for name in request.products if name not in products)
    if request.children not in CHILDREN:
        for word in request.children.split(","):
            if word not in products:
                yield _unknown("product", word, products | set(CHILDREN))
    layers = {str(table.layer) for table in tables}
    for layer in request.layers:
        if layer not in tuple(Layer):
            yield _unknown("layer", layer, tuple(Layer))
        elif layer not in layers:
            yield PlanRefusal.of(layer, PlanRefusalKind.EMPTY_LAYER.of(layers=_sorted(layers)))
    for folder in request.folders:
        if not any(_is_below(table, folder) for table in tables):
            yield PlanRefusal.of(folder, PlanRefusalKind.EMPTY_FOLDER.of())
    yield from _contradictions(request)


def _contradictions(request: PlanRequest) -> Iterator[PlanRefusal]:
    scopes = (request.tables, request.products, request.layers, request.folders, request.pipelines)
    if not (any(scopes) or request.everything or request.changed_since):
        yield PlanRefusal.of("", PlanRefusalKind.NAMES_NO_TABLES.of())
    wide = any(scopes[1:]) or request.everything or request.exclude
    if request.verb in BY_NAME and wide:
        yield PlanRefusal.of("", PlanRefusalKind.BY_NAME_ONLY.of(verb=request.verb))
    if request.retain_h and request.verb != "vacuum":
        yield PlanRefusal.of("", PlanRefusalKind.RETAIN_WITHOUT_VACUUM.of())
    if request.verb != "deploy":
        only_deploys = {
            "--changed-since": request.changed_since,
            "--rebuild": request.rebuild,
            "--keep-table": request.keep_table,
            "--hold": request.hold,
            "--from": request.start or request.promoted_from,
            "--strategy": request.choices,
        }
        for option in (option for option, given in only_deploys.items() if given):
            verb = f"a {request.verb}" if request.verb in ("delete", "rollback") else request.verb
            yield PlanRefusal.of("", PlanRefusalKind.OPTION_OF_DEPLOY.of(option=option, verb=verb))
    elif request.pipelines:
        yield PlanRefusal.of("", PlanRefusalKind.PIPELINE_WITHOUT_DELETE.of(sinks=request.pipelines))
    if request.rebuild and request.keep_table:
        yield PlanRefusal.of("", PlanRefusalKind.REBUILD_AND_KEEP_TABLE.of())


def _sorted(values: Iterable[Name]) -> tuple[Name, ...]:
    return tuple(sorted(set(values)))


def is_meant(table: Table | BrokenTable, request: PlanRequest) -> bool:
    """True if a request in normal form selects a table by product, layer or folder."""
    return (
        table.product in request.products
        or table.layer in request.layers
        or any(_is_below(table, folder) for folder in request.folders)
    )


def _is_below(table: Table | BrokenTable, folder: str) -> bool:
    """True if a table's folder equals `folder`, contains `folder` or is contained in it.

    The folder `sql-scripts` inside a table's folder therefore selects the table. A manifest is in the folders above it.
    """
    if folder == ROOT:
        return True
    if table.manifest:
        return table.manifest.startswith(f"{folder}/")
    return f"{table.folder}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{table.folder}/")


def _above(sinks: Iterable[TableName], observed: ObservedTables, bindings: TableBindings) -> frozenset[TableName]:
    return reach(sinks, lambda t: (b.parent for b in bindings.of(t) if observed.is_deployed(b.parent)))


def _statement_sets(named: set[TableName], declared: DeclaredTables) -> dict[TableName, TableName]:
    found: dict[TableName, TableName] = {}
    for name in sorted(named):
        for other in declared.statement_set(name):
            if other not in named:
                found.setdefault(other, name)
    return found


def _accepted(request: PlanRequest, named: set[TableName], tables: Mapping[TableName, Table]) -> frozenset[str]:
    if request.children == "none":
        return frozenset()
    own = frozenset(tables[name].product for name in named if name in tables)
    return own if request.children in CHILDREN else own | frozenset(request.children.split(","))


def _warnings_of_exclusions(
    request: PlanRequest, found: set[TableName], context: PlanningContext
) -> Iterator[PlanWarning]:
    if not request.exclude:
        return
    graph = _graph(context)
    near = found | graph.ancestors(*found) | graph.descendants(*found)
    near |= graph.ancestors(*near)
    for name in request.exclude:
        if name in request.tables:
            yield PlanWarning.of(name, PlanWarningKind.NAMED_AND_EXCLUDED.of())
        elif name not in near and (context.declared.tables.get(name) is not None or context.observed.is_deployed(name)):
            yield PlanWarning.of(name, PlanWarningKind.EXCLUDED_FOR_NOTHING.of())


def _graph(context: PlanningContext) -> TableGraph:
    declared = (edge for table in context.declared.tables.values() for edge in edges_of(table))
    deployed = (
        TableEdge(binding.parent, table, binding.streamed)
        for table in context.observed.tables()
        for binding in context.bindings.of(table)
    )
    return TableGraph((*declared, *deployed), context.observed.tables())


def _warnings_of_gone(
    request: PlanRequest, declared: DeclaredTables, observed: ObservedTables
) -> Iterator[PlanWarning]:
    for name in request.gone:
        if declared.tables.get(name) is not None:
            continue
        deployed = observed.is_deployed(name) and not observed.is_external(name)
        kind = PlanWarningKind.UNDECLARED_SINCE if deployed else PlanWarningKind.UNDECLARED_NOT_DEPLOYED
        yield PlanWarning.of(name, kind.of(since=request.changed_since))


def _warnings_of_settings(request: PlanRequest, environment: str) -> Iterator[PlanWarning]:
    """Warn about changed settings that no plan applies: the agent must be restarted, or the policy recorded again."""
    since = request.changed_since
    for part in ("pool", "policy", "place"):
        keys = tuple(key.partition(".")[2] for key in request.settings if key.startswith(f"{part}."))
        if keys and part == "policy":
            kind = PlanWarningKind.POLICY_CHANGED
            yield PlanWarning.of(MANIFEST, kind.of(environment=environment, since=since, keys=keys))
        elif keys:
            kind = PlanWarningKind.SETTINGS_CHANGED
            yield PlanWarning.of(MANIFEST, kind.of(part=part, environment=environment, since=since, keys=keys))


def _warnings_of_old_texts(request: PlanRequest) -> Iterator[PlanWarning]:
    """Warn that the plan uses other texts than those of the files."""
    if request.promoted_from:
        yield PlanWarning.of("", PlanWarningKind.PROMOTED.of(source=request.promoted_from))
    if request.undoes:
        yield PlanWarning.of("", PlanWarningKind.PLANNED_WITH_OLD_TEXTS.of(plan=request.undoes[:12]))


def _warnings_of_drain(request: PlanRequest, context: PlanningContext) -> Iterator[PlanWarning]:
    pool = request.drains
    if not pool:
        return
    yield PlanWarning.of("", PlanWarningKind.CORDONS.of(pool=pool))
    here, tables = context.declared.environment, context.declared.tables
    if named := tuple(t for t in request.tables if t in tables and not here.pools_for(tables[t].settings)):
        yield PlanWarning.of("", PlanWarningKind.FILES_NAME_POOL.of(pool=pool, tables=named))
    if request.lost:
        yield PlanWarning.of("", PlanWarningKind.STATED_GONE.of(pool=pool))
        seen = context.changes.pools_seen.get(pool)
        word = seen.manager_says if seen is not None else None
        if word is not None and word.kind is ManagerWord.ENDED:
            yield PlanWarning.of("", PlanWarningKind.MANAGER_SAYS.of(pool=pool, word=word), drifts=True)
        else:
            why = word or ManagerWord.UNDECLARED.of()
            yield PlanWarning.of("", PlanWarningKind.NOBODY_VOUCHES.of(pool=pool, why=why), drifts=True)
    stays = tuple(
        table
        for table, seen in context.observed.deployments.items()
        if seen.version and here.pool_holding(seen.pool).name == pool
        if table not in request.tables and seen.state in AT_REST
    )
    if stays:
        yield PlanWarning.of("", PlanWarningKind.STAY_IN_POOL.of(tables=stays, pool=pool))


def _unknown(noun: str, name: str, known: Collection[str]) -> PlanRefusal:
    if suggestion := did_you_mean(name, known):
        return PlanRefusal.of(name, PlanRefusalKind.MISSPELLED_NAME.of(noun=noun, suggestion=suggestion))
    return PlanRefusal.of(name, PlanRefusalKind.UNKNOWN_NAME.of(noun=noun))
