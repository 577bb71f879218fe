"""The undo of a plan: a deploy of the old SQL and YAML in the environment as the plan leaves it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from core.changes.kinds import ChangeKind
from core.changes.pinned_settings import recorded_pool
from core.model.actions import UNDO_D, Action, Strategy
from core.model.names import TableName, physical_name
from core.model.reasons import STOPPED_MEANWHILE
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment, StepDurations
from core.plan.model import PlanNode, PlanRefusal, RetentionKind, Undo
from core.plan.predictions import predict
from core.plan.request import PlanRequest
from core.planner.context import PlanningContext, planning_context
from core.planner.deploy import deploy_body
from core.planner.rollback import TO_FORMER, undo_by_rollback, undos_by_former_versions
from core.planner.scope import normal_request, resolve_scope
from core.project.model import Pool, Project
from core.project_reader.parse_cache import ParseCache

UNTIL = f"until {UNDO_D:g} days after the run, unless another plan changes them first"

_EDITS = frozenset({Action.RECORD, Action.RESUME, Action.RESTART, Action.REBUILD})
_WHY_NOT_IN_PLACE = {
    ChangeKind.COLUMN_ADDED: "; the added column cannot be taken out",
    ChangeKind.COLUMN_WIDENED: "; a wider type is not taken back in place, and a value that needs it ends it "
    "or is rounded",
}
_SAME_TEXT = "the text is the same, so there is none to go back to"
_OLD_VERSION = "the old version stays as a table (headgate peek --version), and no rollback to it can be promised"
_OF_THE_ENVIRONMENT = "what it runs on is changed outside of plans"


def edited_nodes(nodes: Iterable[PlanNode]) -> tuple[PlanNode, ...]:
    """Return the nodes whose SQL or YAML the plan changes, if their old SQL and YAML are known."""
    return tuple(node for node in nodes if node.action in _EDITS and node.old.ddl and node.old != node.texts)


def undo_request(
    request: PlanRequest, tables: Iterable[TableName], plan_hash: str, *, rebuild: bool = False
) -> PlanRequest:
    """Return the request to deploy the old SQL and YAML of edited tables.

    The new request has the same `children` and `exclude` as `request`.
    """
    return normal_request(
        PlanRequest(
            tables=tuple(tables),
            children=request.children,
            exclude=request.exclude,
            rebuild=rebuild,
            undoes=plan_hash,
        )
    )


def undos_of(
    context: PlanningContext,
    request: PlanRequest,
    nodes: Sequence[PlanNode],
    *,
    engine: str,
    durations: StepDurations = MappingProxyType({}),
) -> tuple[Undo, ...]:
    """Return the ways to undo an executed plan; an entry without a command lists tables that cannot be undone.

    No entry lists a reader that the plan only pauses.
    """
    if request.verb != "deploy":
        return undos_by_former_versions(context, request.verb, nodes)
    released = undo_by_rollback(context, nodes)
    nodes = [node for node in nodes if released is None or node.table not in released.tables]
    acted = {node.table: node for node in nodes if node.action is not Action.KEEP}
    begun = [table for table, node in acted.items() if node.action is Action.START and node.version]
    resumed = [t for t, node in acted.items() if node.action is Action.RESUME and node.reason not in STOPPED_MEANWHILE]
    found = [released] if released else []
    found += [_stop(begun, f"; headgate plan delete {' '.join(begun)} removes both")] if begun else []
    found += [_stop(resumed, "")] if resumed else []
    back = _back(context, request, nodes, engine=engine, durations=durations)
    back += _drains_back(request, acted.values())
    covered = {*begun, *(table for way in back if way.act for table in way.tables)}
    none: dict[str, list[TableName]] = {}
    for table, node in acted.items():
        if table not in covered and not (node.action is Action.RESUME and node not in edited_nodes((node,))):
            none.setdefault(_no_way_words(node, back), []).append(table)
    found += [way for way in back if way.act]
    return (*found, *(Undo.of("", tuple(tables), words) for words, tables in none.items()))


def with_undo_words(nodes: Iterable[PlanNode], ways: Sequence[Undo]) -> tuple[PlanNode, ...]:
    """Return the nodes with their labels for the column UNDO, such as `back` or `none`; kept nodes get no label."""
    words: dict[TableName, str] = {}
    for act, word in _LABELS:
        words |= {table: word for way in ways if way.act == act for table in way.tables}
    return tuple(
        node if node.action is Action.KEEP else _with_undo(node, words.get(node.table, "none")) for node in nodes
    )


_LABELS = (("stop", "stop"), ("plan undo", "plan"), ("pool drain", "plan"), *((act, "back") for act in TO_FORMER))

_PARTS = tuple(field.name for field in fields(PlanNode))
_BEFORE = attrgetter(*_PARTS[: _PARTS.index("undo")])
_AFTER = attrgetter(*_PARTS[_PARTS.index("undo") + 1 :])


def _with_undo(node: PlanNode, word: str) -> PlanNode:
    """Return `replace(node, undo=word)` in a third of the time; a plan may have 10,000 nodes."""
    parts: list[Any] = [*_BEFORE(node), word, *_AFTER(node)]
    return PlanNode(*parts)


def _stop(tables: Sequence[TableName], more: str) -> Undo:
    words = f"stopped at once; table and checkpoint stay{more}"
    return Undo.of("stop", tuple(tables), words, until="at any time")


def _no_way_words(node: PlanNode, back: Sequence[Undo]) -> str:
    if node.action is Action.START:
        return "no command takes a registered table out of the catalog"
    if not node.old.ddl:
        return "no deployed text is known"
    if node.old == node.texts:
        outside = node.change is not None and node.change.definition.is_of_the_environment
        more = _OLD_VERSION if node.action is Action.REBUILD else _OF_THE_ENVIRONMENT if outside else ""
        more = "rows under the same keys are overwritten" if node.strategy == Strategy.KEYED else more
        return f"{_SAME_TEXT}; {more}" if more else _SAME_TEXT
    return next((str(way.words) for way in back if not way.act), "nothing would change")


def _back(
    context: PlanningContext,
    request: PlanRequest,
    nodes: Sequence[PlanNode],
    *,
    engine: str,
    durations: StepDurations,
) -> tuple[Undo, ...]:
    """Return the undos that deploy the old SQL and YAML; they have no command if planning them would be refused."""
    edited = edited_nodes(nodes)
    if not edited:
        return ()
    tables = tuple(node.table for node in edited)
    project = _with_old_texts(context, edited)
    if project is None:
        return (Undo.of("", tables, "the deployed text cannot be read"),)
    world, asked = _afterwards(context, nodes, engine), undo_request(request, tables, "")
    planned, refused = _planned(context, project, world, asked, engine=engine, durations=durations)
    if refused is not None:
        return (Undo.of("", tables, f"planning the old text would be refused: {refused.summary}"),)
    went, back_to_old = {node.table: node for node in nodes}, frozenset(tables)
    groups: dict[str, list[PlanNode]] = {}
    for node in planned:
        if node.action is not Action.KEEP:
            groups.setdefault(_words(node, went.get(node.table), back_to_old), []).append(node)
    return tuple(_way(words + _once_uncordoned(request), group) for words, group in groups.items())


def _drains_back(request: PlanRequest, nodes: Iterable[PlanNode]) -> tuple[Undo, ...]:
    """Return a drain of each pool to which a drain moves statements without an edit, back to the pool that it empties.

    No text names their pools, so no undo of the plan can bring them back.
    """
    moved: dict[str, list[TableName]] = {}
    for node in nodes:
        if request.drains and node.action is Action.RESTART and node.old == node.texts:
            moved.setdefault(node.pool, []).append(node.table)
    return tuple(
        Undo.of(
            "pool drain",
            tuple(tables),
            f"moved back with all that runs in {pool}{_once_uncordoned(request)}",
            until="at any time",
        )
        for pool, tables in moved.items()
    )


def _once_uncordoned(request: PlanRequest) -> str:
    return f", after headgate pool uncordon {request.drains}" if request.drains else ""


def _way(words: str, nodes: Sequence[PlanNode]) -> Undo:
    return _with_costs(Undo.of("plan undo", tuple(node.table for node in nodes), words, until=UNTIL), nodes)


def _with_costs(way: Undo, nodes: Sequence[PlanNode]) -> Undo:
    """Add the rows that all nodes reread, and the time until the last node ends; an unknown figure is None."""
    reading = [node for node in nodes if node.action in (Action.REBUILD, Action.START) and node.version]
    rows, etas = [node.replay_rows for node in reading], [node.eta_s for node in reading]
    acted = [node for node in nodes if node.action is not Action.KEEP]
    return replace(
        way,
        replay_rows=None if None in rows else sum(each for each in rows if each is not None),
        eta_s=_latest(etas),
        predicted_low_s=_latest([node.predicted_low_s for node in acted]),
        predicted_high_s=_latest([node.predicted_high_s for node in acted]),
    )


def _latest(seconds: Sequence[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return max(known) if known and len(known) == len(seconds) else None


def _words(node: PlanNode, went: PlanNode | None, edited: Collection[TableName]) -> str:
    """Return what an undo does to the table of `node`; `went` is its node in the plan to be undone."""
    text = " with the old text" if node.table in edited else ""
    match node.action:
        case Action.RECORD:
            return "the old text is recorded, nothing restarts"
        case Action.RESTART:
            words = f"restart{text} on the same checkpoint"
            if node.change is ChangeKind.WATERMARK_DELAY:
                return f"{words}; windows that were closed stay closed"
            if node.change is ChangeKind.COLUMN_ADDED:
                return f"{words}; old rows have NULL in the column that comes back (--rebuild reads them again)"
            leaves = node.change is not None and node.change.definition.leaves_seam
            return (
                f"{words}; the rows that are there stay as they are (--rebuild reads them again)" if leaves else words
            )
        case Action.REBUILD:
            why = _WHY_NOT_IN_PLACE.get(went.change, "") if went and went.change else ""
            short = node.retention is not None and node.retention.kind is RetentionKind.SHORT
            lost = "; what its inputs no longer hold is lost" if short else ""
            return f"rebuild{text} as a new version{why}{lost}"
        case _:
            return f"{node.action}{text}"


def _planned(
    context: PlanningContext,
    project: Project,
    observed: Mapping[TableName, ObservedDeployment],
    request: PlanRequest,
    *,
    engine: str,
    durations: StepDurations,
) -> tuple[tuple[PlanNode, ...], PlanRefusal | None]:
    here, pools = context.declared.environment, context.changes.pools_seen
    places = {**context.declared.places, **{table: seen.pool.name for table, seen in observed.items() if seen.pool}}
    places = {table: name for table, name in places.items() if name in {pool.name for pool in here.named_pools}}
    other = planning_context(
        project, here, observed, ParseCache(), engine=engine, pools=pools, places=places, like=context
    )
    scope = resolve_scope(request, other)
    body = deploy_body(other, scope, with_steps=bool(durations))
    refusals = (*scope.refusals, *body.refusals)
    found = predict(body.nodes, body.steps, other.observed.statistics, durations)
    return found.nodes, refusals[0] if refusals else None


def _with_old_texts(context: PlanningContext, edited: Iterable[PlanNode]) -> Project | None:
    project = context.declared.project
    tables = dict(project.tables)
    for node in edited:
        old = context.revisions.deployed(node.table)
        if old is None:
            return None
        now = tables[node.table]
        script = now.dml or now.ddl
        tables[node.table] = replace(
            now,
            ddl=replace(now.ddl, text=old.texts.ddl),
            parsed_ddl=old.ddl,
            dml=replace(script, text=old.texts.dml, written=None) if old.parsed is not None else None,
            parsed=old.parsed,
            settings=old.settings,
        )
    return replace(project, tables=tables)


def _engine_then(context: PlanningContext, node: PlanNode, engine: str) -> str:
    """Return the Spark version with which a table's statement runs after the plan; empty if unknown."""
    if not context.declared.environment.named_pools:
        return engine
    known = context.changes.pools_seen.get(node.pool)
    return known.engine if known is not None else ""


def _pool_then(context: PlanningContext, node: PlanNode) -> Pool:
    here = context.declared.environment
    return recorded_pool(next((pool for pool in here.named_pools if pool.name == node.pool), here.pool))


def _afterwards(
    context: PlanningContext, nodes: Iterable[PlanNode], engine: str
) -> dict[TableName, ObservedDeployment]:
    found = dict(context.observed.deployments)
    for node in nodes:
        seen = context.observed.deployment(node.table)
        match node.action:
            case Action.KEEP:
                continue
            case Action.RECORD:
                found[node.table] = replace(seen, revision=node.revision, deployed=node.texts)
            case _:
                found[node.table] = replace(
                    seen,
                    state=State.RUNNING,
                    wanted=WantedState.RUNNING,
                    revision=node.revision,
                    deployed=node.texts,
                    version=node.version,
                    highest_version=max(seen.highest_version, node.version),
                    bindings=node.bindings,
                    begins_where=node.begins_where,
                    pointer=physical_name(node.table, node.version) if node.version else "",
                    checkpoint_ok=True,
                    begun=True,
                    orphan_versions=(),
                    pool=_pool_then(context, node) if seen.pool is not None else None,
                    engine=_engine_then(context, node, engine) or seen.engine,
                )
    return found
