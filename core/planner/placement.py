"""Places the statements of a plan in the pools of an environment, and states why each runs where it does.

A statement that runs stays where it is: only an edit of what it names, or the drain of its pool, moves it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.model.actions import Action
from core.model.names import TableName
from core.model.states import State
from core.observed.planner_input import ObservedDeployment, ObservedPool
from core.plan.model import Placement, PlanNode, Step
from core.plan.request import PlanRequest
from core.planner.context import DeclaredTables
from core.planner.pool_load import (
    Full,
    Place,
    Placed,
    Unplaced,
    loads_after,
    loads_of,
    may_run,
    need,
    need_of,
    place,
    pool_of_version,
)
from core.planner.warning_and_refusal_kinds import GuardFinding
from core.project.model import Environment, Pool, Project
from core.project.resources import PoolClass
from core.text.sentence import Fact

STARTS = frozenset({Action.START, Action.RESUME, Action.RESTART, Action.REBUILD})
"""Actions with which a plan runs a version in a pool that it names."""

_BACK = frozenset({Action.ROLLBACK, Action.UNDELETE})


@dataclass(frozen=True, slots=True)
class PlacedNodes:
    """The nodes of a plan with their pools."""

    nodes: tuple[PlanNode, ...]
    names: Mapping[TableName, str] = field(default_factory=dict)
    """The pools of the statements that the planner has placed, by table."""
    refused: tuple[Fact[GuardFinding], ...] = ()
    """Why statements are in no pool."""


def presumed_places(
    project: Project,
    environment: Environment,
    observed: Mapping[TableName, ObservedDeployment],
    request: PlanRequest,
    pools: Mapping[str, ObservedPool],
) -> dict[TableName, str]:
    """Return the pools of deployed statements whose pool the planner chooses: where each is, unless it must leave.

    One that must leave gets the pool in which it would be placed alone.
    """
    found, leaving = dict[TableName, str](), list[Unplaced]()
    for table, declared in project.tables.items() if environment.named_pools else ():
        choice = () if declared.external else environment.pools_for(declared.settings)
        seen = observed.get(table)
        if not choice or seen is None or seen.state == State.ABSENT:
            continue
        present = environment.pool_holding(seen.pool).name
        found[table] = present
        if present not in {pool.name for pool in choice} or (request.drains == present and table in request.tables):
            leaving.append(Unplaced(table, need_of(seen), _takers(choice, table, request, pools)))
    if leaving:
        loads = loads_of(environment, observed.values())
        for each in leaving:
            alone = place([each], environment.pools, loads).by_table.get(each.table)
            found[each.table] = alone.pool if alone is not None else next(iter(each.candidates), found[each.table])
    return found


def place_nodes(
    declared: DeclaredTables,
    observed: Mapping[TableName, ObservedDeployment],
    request: PlanRequest,
    nodes: Sequence[PlanNode],
    steps: Sequence[Step],
    *,
    pools: Mapping[str, ObservedPool],
    chosen: Mapping[TableName, str],
) -> PlacedNodes:
    """Give each node that runs a statement its pool, and the reason for it. One pool of an environment needs neither.

    A pool in `chosen`, by table, is kept if it takes the statement and has room.
    """
    environment = declared.environment
    if not environment.named_pools:
        return PlacedNodes(tuple(nodes))
    fixed = {node.table: found for node in nodes if (found := _fixed(declared, observed, request, node))}
    waiting = [
        _unplaced(declared, observed, request, node, pools=pools, chosen=chosen.get(node.table, ""))
        for node in nodes
        if node.table not in fixed and _runs(node)
    ]
    placed, refused = Placed(), tuple[Fact[GuardFinding], ...]()
    if waiting:
        rest = [node for node in nodes if node.table in fixed]
        loads = loads_after(
            environment,
            loads_of(environment, observed.values()),
            observed=observed,
            nodes=rest,
            steps=steps,
            pool_then=lambda node: fixed[node.table][0],
        )
        placed = place(waiting, environment.pools, loads)
        refused = tuple(_refused(environment, placed, pools))
    for each in waiting:
        if (there := placed.by_table.get(each.table)) is not None:
            fixed[each.table] = there.pool, _why(declared, each, there, observed.get(each.table), chosen)
    turns = {table: n for n, table in enumerate(placed.by_table, start=1)}
    return PlacedNodes(
        tuple(
            replace(node, pool=found[0], placed=found[1], placed_n=turns.get(node.table, 0))
            if (found := fixed.get(node.table)) is not None
            else node
            for node in nodes
        ),
        {table: there.pool for table, there in placed.by_table.items()},
        refused,
    )


def _runs(node: PlanNode) -> bool:
    return node.action in STARTS and bool(node.version and node.texts.dml)


def _fixed(
    declared: DeclaredTables,
    observed: Mapping[TableName, ObservedDeployment],
    request: PlanRequest,
    node: PlanNode,
) -> tuple[str, Fact[Placement]] | None:
    """Return the pool of a node that has no choice, with the reason; None if it has one, or runs nothing."""
    environment, seen = declared.environment, observed.get(node.table, ObservedDeployment())
    if node.action in _BACK:
        pool = pool_of_version(environment, seen, node.version)
        return pool, Placement.BACK.of(pool=pool)
    if not _runs(node):
        return None
    if any(orphan.version == node.version for orphan in seen.orphan_versions):
        pool = pool_of_version(environment, seen, node.version)
        return pool, Placement.MADE.of(pool=pool)
    table, present = declared.tables.get(node.table), environment.pool_holding(seen.pool).name
    pool = declared.pool_of(node.table).name
    if table is None or not environment.pools_for(table.settings):
        if request.drains and node.table in request.tables:
            return pool, Placement.DRAINED.of(pool=pool, drained=request.drains)
        named = table is not None and table.settings.pool == pool
        return pool, Placement.NAMED.of(pool=pool) if named else Placement.DEFAULT.of(pool=pool)
    if node.version == node.from_version and may_run(seen) and pool == present:
        return pool, Placement.STAYS.of(pool=pool)
    return None


def _unplaced(
    declared: DeclaredTables,
    observed: Mapping[TableName, ObservedDeployment],
    request: PlanRequest,
    node: PlanNode,
    *,
    pools: Mapping[str, ObservedPool],
    chosen: str,
) -> Unplaced:
    environment, seen = declared.environment, observed.get(node.table, ObservedDeployment())
    choice = environment.pools_for(declared.tables[node.table].settings)
    takers, present = _takers(choice, node.table, request, pools), ""
    if seen.state != State.ABSENT:
        present = environment.pool_holding(seen.pool).name
        same = node.version == node.from_version and present in {pool.name for pool in choice}
        if same and present not in takers and not _is_closed(present, node.table, request, pools):
            # Its query can only be proved to be gone once that pool answers, so it waits there.
            takers = tuple(sorted((*takers, present)))
    prefers = tuple(filter(None, (chosen, present)))
    return Unplaced(node.table, need(node.texts.yml, node.trigger, seen.statistics), takers, prefers)


def _takers(
    choice: Sequence[Pool], table: TableName, request: PlanRequest, pools: Mapping[str, ObservedPool]
) -> tuple[str, ...]:
    names = (pool.name for pool in choice if not pools.get(pool.name, ObservedPool()).unfit)
    return tuple(sorted(name for name in names if not _is_closed(name, table, request, pools)))


def _is_closed(pool: str, table: TableName, request: PlanRequest, pools: Mapping[str, ObservedPool]) -> bool:
    moves = request.drains and table in request.tables
    elsewhere = moves and request.drains_to not in ("", pool)
    return bool(pool == request.drains or elsewhere or pools.get(pool, ObservedPool()).cordoned)


def _why(
    declared: DeclaredTables,
    each: Unplaced,
    found: Place,
    seen: ObservedDeployment | None,
    chosen: Mapping[TableName, str],
) -> Fact[Placement]:
    environment, pool = declared.environment, found.pool
    wanted = declared.tables[each.table].settings.pool
    if seen is not None and seen.state != State.ABSENT and environment.pool_holding(seen.pool).name == pool:
        return Placement.STAYS.of(pool=pool)
    if not found.best and chosen.get(each.table) == pool:
        return Placement.CHOSEN.of(pool=pool)
    percent = round(100 * found.free)
    if isinstance(wanted, PoolClass):
        if len(each.candidates) == 1:
            return Placement.ONLY_OF_CLASS.of(pool=pool, of_class=wanted.name)
        if found.scarcest:
            return Placement.MOST_ROOM_OF_CLASS.of(
                pool=pool, of_class=wanted.name, percent=percent, dimension=_WORDS[found.scarcest]
            )
        return Placement.FEWEST_OF_CLASS.of(pool=pool, of_class=wanted.name, statements=found.has)
    if len(each.candidates) == 1:
        return Placement.ONLY.of(pool=pool)
    if found.scarcest:
        return Placement.MOST_ROOM.of(pool=pool, percent=percent, dimension=_WORDS[found.scarcest])
    return Placement.FEWEST.of(pool=pool, statements=found.has)


_WORDS = {"statements": "statements", "cores": "cores", "mib": "memory"}


def _refused(
    environment: Environment, placed: Placed, pools: Mapping[str, ObservedPool]
) -> Iterator[Fact[GuardFinding]]:
    by_candidates: dict[tuple[str, ...], list[Unplaced]] = {}
    for each in sorted(placed.left, key=lambda each: each.table):
        by_candidates.setdefault(each.candidates, []).append(each)
    for names, left in by_candidates.items():
        tables = tuple(each.table for each in left)
        if names:
            rooms = Placed(left=left, loads=placed.loads).full(environment.pools)
            yield GuardFinding.NO_POOL_HAS_ROOM.of(tables=tables, rooms=rooms)
        else:
            why = tuple(
                Full.CORDONED.of(pool=name) if seen.cordoned else Full.UNFIT.of(pool=name, state=seen.unfit)
                for name, seen in sorted(pools.items())
                if seen.cordoned or seen.unfit
            )
            yield GuardFinding.NO_POOL_TAKES.of(tables=tables, why=why)
