"""Where the statements of a pool go when it is drained, or every reason why they cannot."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from core.model.names import TableName, physical_name
from core.model.states import AT_REST, State, WantedState
from core.observed.versions import Deployment, serving_versions
from core.project.model import Environment, Pool
from core.text.sentence import Fact, FactKind


class DrainRefusal(FactKind):
    """Why a pool cannot be drained now."""

    NO_OTHER = (
        "no other pool of {environment} takes statements",
        "declare one below pools in headgate.yml, or uncordon one: headgate pool list",
    )
    NO_ROOM = (
        "{tables:few} {tables:does/do} not fit: {rooms:;}",
        "raise statements: of a pool in headgate.yml, stop statements, or add a pool",
    )
    OLDER_VERSION = (
        "{versions:few} {versions:keeps/keep} running there beside the serving version, and a plan moves only that",
        "retire them first: headgate plan retire TABLE",
    )
    STOPPING = (
        "{versions:few} {versions:is/are} being stopped there, which is not confirmed",
        "drain the pool again once headgate ls shows them as stopped",
    )


class Room(FactKind):
    """How many statements a pool still takes."""

    LEFT = "{pool} takes {most:statement} and has {has} now, which leaves room for {room} of {all}"


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
) -> Drain:
    """Return where each running statement of `pool` goes: to the pool `to` or, without it, where most room is left.

    Pools in `cordoned` take none. A statement goes to the pool with the most free places; of equal ones, to that with
    the fewest statements, then to the first declared. Statements are placed by name, so the result is always the same.
    Older versions and unconfirmed stops are no obstacle in a pool that is `lost`, since nothing runs there.
    """
    found = [each for each in deployments if not (each.external or each.deleted)]
    serving = {(each.table, each.version) for each in serving_versions(found).values()}
    of = {(each.table, each.version): environment.pool_holding(each.pool).name for each in found}
    queries = {(each.table, each.version): each for each in found if may_run(each)}
    here = {key: each for key, each in sorted(queries.items()) if of[key] == pool}
    moving = [key for key, each in here.items() if key in serving and each.wanted == WantedState.RUNNING]
    now = Counter(of[key] for key in queries)
    has = now.copy()
    targets = [each for each in environment.pools if each.name not in (pool, *cordoned) and (not to or each.name == to)]
    moves, left = dict[TableName, str](), list[TableName]()
    for table, _ in moving:
        free = [each for each in targets if _room(each, has) > 0]
        if free:
            # The first of equal ones, as `max` returns it.
            chosen = max(free, key=lambda each: (_room(each, has), -has[each.name]))
            moves[table] = chosen.name
            has[chosen.name] += 1
        else:
            left.append(table)
    refusals = list[Fact[DrainRefusal]]()
    if not targets:
        refusals.append(DrainRefusal.NO_OTHER.of(environment=environment.name))
    elif left:
        rooms = tuple(
            Room.LEFT.of(
                pool=each.name,
                most=each.statements,
                has=now[each.name],
                room=has[each.name] - now[each.name],
                all=len(moving),
            )
            for each in targets
        )
        refusals.append(DrainRefusal.NO_ROOM.of(tables=tuple(left), rooms=rooms))
    stay = [each for key, each in here.items() if key not in moving and not lost]
    if older := tuple(physical_name(each.table, each.version) for each in stay if each.wanted == WantedState.RUNNING):
        refusals.append(DrainRefusal.OLDER_VERSION.of(versions=older))
    if ends := tuple(physical_name(each.table, each.version) for each in stay if each.wanted != WantedState.RUNNING):
        refusals.append(DrainRefusal.STOPPING.of(versions=ends))
    rests = tuple(sorted({table for table, version in of.keys() - queries.keys() if of[table, version] == pool}))
    return Drain(moves, tuple(refusals), rests)


def may_run(deployment: Deployment) -> bool:
    """True if a version may have a query, or if its agent starts one by itself."""
    resumes = deployment.state == State.STOPPED and deployment.wanted == WantedState.RUNNING
    return deployment.state not in AT_REST or resumes


_UNLIMITED = 1 << 30


def _room(pool: Pool, has: Mapping[str, int]) -> int:
    return _UNLIMITED if pool.statements is None else pool.statements - has[pool.name]
