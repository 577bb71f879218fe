"""Impact analysis: what happens downstream if a table is rebuilt or dropped, or loses a column.

The effects are the planner's own decisions about every downstream table; no steps are planned.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from core.lineage.column_lineage import LineageTracer
from core.lineage.column_usage import ColumnUse, column_uses_downstream, column_uses_of_readers
from core.model.actions import Action
from core.model.errors import UsageError
from core.model.names import TableName, physical_name
from core.model.states import State, stays_at_rest
from core.observed.planner_input import ObservedDeployment, PlannerInput
from core.observed.versions import Binding
from core.plan.model import Exposure, PlanRefusal
from core.plan.request import CHILDREN, PlanRequest
from core.planner.context import ObservedTables, PlanningContext, TableBindings, planning_context
from core.planner.delete_and_retire import decide_delete
from core.planner.deploy import decide_deploy
from core.planner.left_behind_and_exposures import exposures_of
from core.planner.scope import normal_request, resolve_scope
from core.planner.warning_and_refusal_kinds import PlanRefusalKind
from core.project.model import Project
from core.project_reader.parse_cache import ParseCache
from core.reports.impact_scope import DownstreamReach, affected_part, downstream_reach
from core.reports.inventory import InventoryReading
from core.sql.lineage.model import ColumnOrigin
from core.text.wording import did_you_mean


class ImpactEvent(StrEnum):
    """A hypothetical change of a table."""

    REBUILT = "rebuilt"
    DROPPED = "dropped"
    COLUMN_LOST = "column lost"


class ImpactEffect(StrEnum):
    """The effect of the change on a reader; members are in order of severity, most severe first."""

    REFUSED = "refused"
    """The reader blocks the change: no plan can make the change while the reader stays as it is."""
    DELETED = "deleted"
    STRANDED = "stranded"
    """The reader could not be restarted."""
    STARVED = "starved"
    """The reader would keep running, but without new input."""
    REBUILT = "rebuilt"
    RESTARTED = "restarted"
    STARTED = "started"
    RESUMED = "resumed"
    LEFT_BEHIND = "left behind"
    """The reader stays on the old version, which keeps running for the reader."""
    UNAFFECTED = "unaffected"


_EFFECTS = {
    Action.REBUILD: ImpactEffect.REBUILT,
    Action.RESTART: ImpactEffect.RESTARTED,
    Action.START: ImpactEffect.STARTED,
    Action.RESUME: ImpactEffect.RESUMED,
}
_SEVERITY = {effect: place for place, effect in enumerate(ImpactEffect)}


@dataclass(frozen=True, slots=True)
class ReachedTable:
    """A table that is downstream of the changed table or in an affected table's statement set."""

    table: TableName
    product: str
    """The table's product; empty if it is deployed but no longer declared."""
    layer: str
    owner: str
    depth: int
    """Number of reads between the changed table and this table; 0 within the changed table's statement set."""
    through: tuple[InventoryReading, ...]
    """Reads through which the change reaches this table, sorted by table name."""
    stateful: bool | None
    """True if the statement keeps state; None if the table is no longer declared."""
    keyed: bool | None
    """True if the statement upserts by key; None if the table is no longer declared."""
    state: str
    effect: ImpactEffect
    why: str
    place: str = ""
    """Lines at which the statement uses the lost column or a column derived from it, such as `dml.orders.sql:3,7`."""
    direct: str = ""
    """The lines that use the lost column itself; `why` names them."""
    output_columns: tuple[str, ...] = ()
    """Columns of this table that are derived from the lost column."""


@dataclass(frozen=True, slots=True)
class ImpactAnswer:
    """The effects of a hypothetical change."""

    event: ImpactEvent
    request: PlanRequest | None
    """The plan request for the change; None if files have to be edited first."""
    refusals: tuple[PlanRefusal, ...]
    """Why a plan for the change could not be applied, other than readers that block the change."""
    reached: tuple[ReachedTable, ...]
    """Affected tables, most severe effect first, then by depth and name."""
    outside: tuple[Exposure, ...]

    @property
    def refused(self) -> bool:
        """True if the planner would refuse a plan for the change."""
        return bool(self.refusals) or any(one.effect is ImpactEffect.REFUSED for one in self.reached)


@dataclass(frozen=True, slots=True)
class Impact:
    """The effects of hypothetical changes to a table, or to one of its columns."""

    root: ColumnOrigin
    external: bool
    deployed: bool
    """True if the answers are about deployed tables, False if every declared table is treated as deployed."""
    answers: tuple[ImpactAnswer, ...]
    columns: Mapping[str, Mapping[TableName, str]]
    """For each column of a declared table, the readers and the lines that reference it.

    Empty if the question is about a single column.
    """
    edited: tuple[TableName, ...] = ()
    """The root and downstream tables whose files differ from the deployed SQL; columns are traced in the files."""


def impact_of(
    project: Project,
    environment: str,
    known: PlannerInput,
    root: ColumnOrigin,
    tracer: LineageTracer,
    *,
    children: str = "",
    parse_cache: ParseCache | None = None,
) -> Impact:
    """Return what would happen downstream of a declared or deployed table, or of one of its declared columns.

    `children` is a value of `--children`; empty means `product` for a rebuild, and `none` for a delete. If the table is
    not deployed, every declared table is treated as running. Time is linear in the reads, plus the time to parse the
    statements that may use the column, unless `tracer` has parsed them already.
    """
    deployed = known.observed.get(root.table, ObservedDeployment()).state != State.ABSENT
    part, seen = affected_part(project, known.observed if deployed else {}, root.table)
    context = planning_context(
        part,
        project.environments[environment],
        seen if deployed else as_if_running(part),
        parse_cache or ParseCache(),
        known.answers,
        engine=known.headroom.engine if known.headroom is not None else "",
    )
    asking = _Asking(
        context,
        root,
        _children(children, project, part),
        downstream_reach(context.declared, context.bindings, tracer, root.table),
    )
    found = (
        (_lost(asking, column_uses_downstream(tracer, root)),) if root.column else (_rebuilt(asking), _dropped(asking))
    )
    beside = column_uses_of_readers(tracer, root.table) if not root.column and root.table in project.tables else {}
    edited = tuple(sorted(name for name in asking.below.depth if _is_edited(context, name)))
    return Impact(
        root, context.observed.is_external(root.table), deployed=deployed, answers=found, columns=beside, edited=edited
    )


def _children(words: str, project: Project, part: Project) -> str:
    """Return the value of `--children` without products outside `part`; raise UsageError for an unknown product."""
    if not words or words in CHILDREN:
        return words
    near = {table.product for table in part.tables.values()}
    every = {table.product for table in project.tables.values()}
    for word in words.split(","):
        if word not in every:
            raise UsageError(
                f"there is no product {word}",
                remedy=did_you_mean(word, {*every, *CHILDREN}) or f"products: {', '.join(sorted(every))}",
            )
    return ",".join(word for word in words.split(",") if word in near) or "product"


def as_if_running(project: Project) -> dict[TableName, ObservedDeployment]:
    """Return observations in which every declared table runs as version 1, or as version 0 if it is external."""
    found = {}
    for name, table in project.tables.items():
        reads = table.parsed.reads if table.parsed is not None else ()
        bound = {Binding(r.table, 0 if project.tables[r.table].external else 1, r.streaming) for r in reads}
        bindings = tuple(sorted(bound, key=lambda b: (b.parent, b.version, not b.streamed)))
        version = 0 if table.external else 1
        found[name] = ObservedDeployment(
            state=State.RUNNING, version=version, highest_version=version, bindings=bindings
        )
    return found


@dataclass(frozen=True, slots=True)
class _Asking:
    context: PlanningContext
    root: ColumnOrigin
    children: str
    below: DownstreamReach

    @property
    def table(self) -> TableName:
        return self.root.table


def _rebuilt(asking: _Asking) -> ImpactAnswer:
    context = asking.context
    asked: tuple[TableName, ...] = (asking.table,)
    if context.observed.is_external(asking.table):
        asked = tuple(
            name for name in context.bindings.readers(asking.table) if context.declared.tables.get(name) is not None
        )
    request, refusals, effects = _rebuilding(asking, asked)
    if asking.table not in asked:
        effects |= {name: (effects[name][0], f"reads {asking.table}") for name in asked if name in effects}
    return ImpactAnswer(ImpactEvent.REBUILT, request, refusals, _listed(asking, effects), _exposures(asking, effects))


def _rebuilding(
    asking: _Asking, asked: tuple[TableName, ...]
) -> tuple[PlanRequest, tuple[PlanRefusal, ...], dict[TableName, tuple[ImpactEffect, str]]]:
    request = normal_request(PlanRequest(tables=asked, rebuild=True, children=asking.children or "product"))
    if not asked:
        return request, (), {}
    scope = resolve_scope(request, asking.context)
    found = decide_deploy(asking.context, scope)
    effects: dict[TableName, tuple[ImpactEffect, str]] = {}
    for left in found.left_behind:
        effects[left.table] = (ImpactEffect.LEFT_BEHIND, f"stays on {left.reads}")
    for table, decision in found.by_table.items():
        if decision.action in _EFFECTS:
            effects[table] = (_EFFECTS[decision.action], str(decision.reason.words))
    effects |= {
        name: (effects[name][0], f"one statement set with {other}")
        for name, other in scope.because_of.items()
        if name in effects
    }
    return request, _sorted((*scope.refusals, *found.refusals)), effects


def _lost(asking: _Asking, uses: Mapping[TableName, ColumnUse]) -> ImpactAnswer:
    """Return the effects of losing a column: the table is rebuilt, and readers of the column block the change.

    An external table is not rebuilt, but its readers are, once they are edited.
    """
    table, column = asking.table, f"{asking.table}.{asking.root.column}"
    direct = {name: use.direct for name, use in uses.items() if use.direct}
    if asking.context.observed.is_external(table):
        _, _, effects = _rebuilding(asking, tuple(direct))
        refusals: tuple[PlanRefusal, ...] = (PlanRefusal.of(table, PlanRefusalKind.EXTERNAL_LOSES_COLUMN.of()),)
    else:
        _, refusals, effects = _rebuilding(asking, (table,))
    effects |= {
        name: (ImpactEffect.REFUSED, f"reads {column} at {place}{_edited(asking.context, name)}")
        for name, place in direct.items()
    }
    unaffected = (ImpactEffect.UNAFFECTED, f"does not use {column}")
    effects |= {name: unaffected for name in asking.below.readers if name not in effects and name not in uses}
    return ImpactAnswer(
        ImpactEvent.COLUMN_LOST, None, refusals, _listed(asking, effects, uses), _exposures(asking, effects)
    )


def _edited(context: PlanningContext, name: TableName) -> str:
    return " of the edited file; another text is deployed" if _is_edited(context, name) else ""


def _is_edited(context: PlanningContext, name: TableName) -> bool:
    seen = context.observed.deployment(name).deployed
    if seen is None or name not in context.declared.tables:
        return False
    texts = context.revisions.declared(name).texts
    return (seen.dml, seen.ddl) != (texts.dml, texts.ddl)


def _dropped(asking: _Asking) -> ImpactAnswer:
    """Return the effects of deleting the table, as if the remaining readers did not block the delete."""
    context = asking.context
    request = normal_request(PlanRequest(verb="delete", tables=(asking.table,), children=asking.children))
    scope = resolve_scope(request, context)
    found = decide_delete(context, scope)
    effects = {name: (ImpactEffect.DELETED, "is deleted with it") for name in found.tables if name != asking.table}
    gone = {asking.table, *found.tables}
    for name in sorted(asking.below.readers - effects.keys()):
        if (effect := _without(asking, name, gone)) is not None:
            effects[name] = effect
    _starve(context.bindings, effects)
    refusals = _sorted((*scope.refusals, *found.refusals))
    outside = exposures_of(context.declared, context.observed, dict.fromkeys(gone, ""))
    return ImpactAnswer(ImpactEvent.DROPPED, request, refusals, _listed(asking, effects), outside)


def _without(asking: _Asking, name: TableName, gone: set[TableName]) -> tuple[ImpactEffect, str] | None:
    context = asking.context
    lost = {binding.parent: binding.streamed for binding in context.bindings.of(name) if binding.parent in gone}
    names = ", ".join(sorted(lost))
    if not lost:
        return None
    if context.observed.is_external(asking.table):
        if any(lost.values()):
            return ImpactEffect.STARVED, f"would read no more rows from {names}"
        return ImpactEffect.STRANDED, f"could not be restarted without {names}"
    if _is_at_rest(context.observed, name):
        return ImpactEffect.STRANDED, f"is stopped and reads {names}; it could not resume from its checkpoint"
    return ImpactEffect.REFUSED, f"reads {names}"


def _starve(bindings: TableBindings, effects: dict[TableName, tuple[ImpactEffect, str]]) -> None:
    waiting = [name for name, (effect, _) in sorted(effects.items()) if effect in _DRY]
    for parent in waiting:
        for child in bindings.readers(parent):
            streams = any(b.streamed for b in bindings.of(child) if b.parent == parent)
            if streams and child not in effects:
                effects[child] = (ImpactEffect.STARVED, f"would read no more rows from {parent}")
                waiting.append(child)


def _is_at_rest(observed: ObservedTables, name: TableName) -> bool:
    seen = observed.deployment(name)
    return stays_at_rest(seen.state, seen.wanted)


_DRY = frozenset({ImpactEffect.REFUSED, ImpactEffect.STARVED})
"""Effects after which a table gets no further rows, because an input is gone."""


def _listed(
    asking: _Asking,
    effects: Mapping[TableName, tuple[ImpactEffect, str]],
    uses: Mapping[TableName, ColumnUse] = MappingProxyType({}),
) -> tuple[ReachedTable, ...]:
    context, found = asking.context, []
    for name, depth in asking.below.depth.items():
        declared, use = context.declared.tables.get(name), uses.get(name)
        effect, why = effects.get(name, _NOTHING if context.observed.is_deployed(name) else _ABSENT)
        if name == asking.table or (name not in asking.below.readers and effect is ImpactEffect.UNAFFECTED):
            continue
        found.append(
            ReachedTable(
                table=name,
                product=declared.product if declared else "",
                layer=str(declared.layer) if declared else "",
                owner=declared.settings.owner if declared else "",
                depth=depth,
                through=asking.below.through.get(name, ()),
                stateful=declared.parsed.stateful if declared and declared.parsed else None,
                keyed=declared.settings.upserts if declared and declared.parsed else None,
                state=str(context.observed.deployment(name).state),
                effect=effect,
                why=why,
                place=use.place if use else "",
                direct=use.direct if use else "",
                output_columns=use.output_columns if use else (),
            )
        )
    return tuple(sorted(found, key=lambda one: (_SEVERITY[one.effect], one.depth, one.table)))


_NOTHING = (ImpactEffect.UNAFFECTED, "reads only what is unchanged")
_ABSENT = (ImpactEffect.UNAFFECTED, "is not deployed")


def _exposures(asking: _Asking, effects: Mapping[TableName, tuple[ImpactEffect, str]]) -> tuple[Exposure, ...]:
    context = asking.context
    rebuilt = {name for name, (effect, _) in effects.items() if effect is ImpactEffect.REBUILT} | {asking.table}
    own = (name for name in rebuilt if not context.observed.is_external(name))
    return exposures_of(
        context.declared,
        context.observed,
        {name: physical_name(name, context.observed.next_version(name)) for name in own},
    )


def _sorted(refusals: Iterable[PlanRefusal]) -> tuple[PlanRefusal, ...]:
    return tuple(sorted(set(refusals), key=lambda refusal: (refusal.table, refusal.summary)))
