"""Where the statements of a pool go when it is drained, or every reason why they cannot."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.model.names import TableName, physical_name
from core.model.states import WantedState
from core.observed.cluster_manager import ManagerWord
from core.observed.table_statistics import TableStatistics
from core.observed.versions import Deployment, serving_versions
from core.planner.pool_load import NOTHING, Unplaced, may_run, need, place, settings_of
from core.project.model import Environment
from core.project.resources import PoolClass
from core.text.sentence import Fact, FactKind


class DrainRefusal(FactKind):
    """Why a pool cannot be drained now."""

    NO_OTHER = (
        "no other pool of {environment} takes statements",
        "declare one below pools in headgate.yml, or uncordon one: headgate pool list",
    )
    NO_ROOM = (
        "{tables:few} {tables:does/do} not fit: {rooms:;}",
        "raise capacity: of a pool in headgate.yml, stop statements, or add a pool",
    )
    OLDER_VERSION = (
        "{versions:few} {versions:keeps/keep} running there beside the serving version, and a plan moves only that",
        "retire them first: headgate plan retire TABLE",
    )
    STOPPING = (
        "{versions:few} {versions:is/are} being stopped there, which is not confirmed",
        "drain the pool again once headgate ls shows them as stopped",
    )
    STILL_RUNS = ("{word}", "{remedy}")


@dataclass(frozen=True, slots=True)
class Drain:
    """The moves that empty a pool, and what stays there."""

    moves: Mapping[TableName, str]
    """The pool to which each statement moves, by table; sorted."""
    refusals: tuple[Fact[DrainRefusal], ...]
    """Every reason why the pool cannot be drained; empty if it can."""
    rests: tuple[TableName, ...]
    """Tables whose stopped or failed statements stay in the pool, where they cannot be started while it is cordoned."""


def plan_drain(
    environment: Environment,
    deployments: Iterable[Deployment],
    pool: str,
    *,
    to: str = "",
    cordoned: Collection[str] = (),
    lost: bool = False,
    manager_says: Fact[ManagerWord] | None = None,
    statistics: Mapping[tuple[TableName, int], TableStatistics] = MappingProxyType({}),
) -> Drain:
    """Return where each running statement of `pool` goes: to the pool `to` or, without it, where most room is left.

    Pools in `cordoned` take none. Statements are placed by `place`, also those that name their pool, or the default
    pool by naming none; a class is kept. Older versions and unconfirmed stops are no obstacle in a pool that is `lost`,
    since nothing runs there, unless `manager_says`, the word of its cluster's manager, contradicts that.
    """
    found = [each for each in deployments if not (each.external or each.deleted)]
    serving = {(each.table, each.version) for each in serving_versions(found).values()}
    of = {(each.table, each.version): environment.pool_holding(each.pool).name for each in found}
    queries = {(each.table, each.version): each for each in found if may_run(each)}
    here = {key: each for key, each in sorted(queries.items()) if of[key] == pool}
    moving = {key: each for key, each in here.items() if key in serving and each.wanted == WantedState.RUNNING}
    needs = {key: need(each.texts.yml, each.trigger, statistics.get(key)) for key, each in queries.items()}
    loads = {each.name: NOTHING for each in environment.pools}
    for key in queries:
        loads[of[key]] += needs[key]
    targets = [each for each in environment.pools if each.name not in (pool, *cordoned) and (not to or each.name == to)]
    names = {each.name for each in targets}
    waiting = []
    for key, each in moving.items():
        wanted = settings_of(each.texts.yml).pool
        of_class = {
            p.name for p in environment.named_pools if isinstance(wanted, PoolClass) and p.of_class == wanted.name
        }
        waiting.append(Unplaced(key[0], needs[key], tuple(sorted(names & of_class if of_class else names))))
    placed = place(waiting, targets, loads)
    refusals = list[Fact[DrainRefusal]]()
    if not targets:
        refusals.append(DrainRefusal.NO_OTHER.of(environment=environment.name))
    elif placed.left:
        refusals.append(
            DrainRefusal.NO_ROOM.of(
                tables=tuple(sorted(each.table for each in placed.left)), rooms=placed.full(targets)
            )
        )
    stay = [each for key, each in here.items() if key not in moving and not lost]
    if older := tuple(physical_name(each.table, each.version) for each in stay if each.wanted == WantedState.RUNNING):
        refusals.append(DrainRefusal.OLDER_VERSION.of(versions=older))
    if ends := tuple(physical_name(each.table, each.version) for each in stay if each.wanted != WantedState.RUNNING):
        refusals.append(DrainRefusal.STOPPING.of(versions=ends))
    if lost and manager_says is not None and manager_says.kind is ManagerWord.RUNS:
        refusals.append(DrainRefusal.STILL_RUNS.of(word=manager_says, remedy=str(manager_says.remedy)))
    rests = tuple(sorted({table for table, version in of.keys() - queries.keys() if of[table, version] == pool}))
    return Drain({t: placed.by_table[t].pool for t in sorted(placed.by_table)}, tuple(refusals), rests)
