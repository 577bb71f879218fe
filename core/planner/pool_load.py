"""How full pools are, what statements need there, and to which pools statements go that name none.

The number of statements is exact. Cores and memory are what table.yml declares, or an estimate from the last batch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

from core.model.actions import Action, StepKind
from core.model.names import TableName, trigger_s
from core.model.states import AT_REST, State, WantedState
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import TableStatistics
from core.observed.versions import Deployment, StatementLine
from core.plan.model import PlanNode, Step
from core.project.model import Environment, Pool, Settings
from core.project.resources import DIMENSIONS, UNLIMITED, Amounts, over_capacity
from core.project_reader.table_yml import read_settings
from core.text.sentence import Fact, FactKind

USUAL_CORES, USUAL_MIB = 0.5, 256
"""What a statement needs that declares nothing and of which no batch was measured."""

_BASE_MIB = 128
"""What a statement needs in addition to the memory of its state."""

_STEP = 0.05
"""Estimated cores are multiples of this, so that small changes of a batch's duration do not change a plan."""


@dataclass(frozen=True, slots=True)
class Load:
    """What statements need together; the amounts are in the order of `DIMENSIONS`."""

    statements: int = 0
    cores: float = 0.0
    mib: float = 0.0

    def __add__(self, other: "Load") -> "Load":
        return Load(self.statements + other.statements, self.cores + other.cores, self.mib + other.mib)

    def __sub__(self, other: "Load") -> "Load":
        return Load(self.statements - other.statements, self.cores - other.cores, self.mib - other.mib)

    def __iter__(self) -> Iterator[float]:
        return iter((self.statements, self.cores, self.mib))


NOTHING = Load()


class Full(FactKind):
    """Why a pool does not take a statement."""

    WOULD_HOLD = "with {table}, {pool} would hold {over:and}"
    CORDONED = "{pool} is cordoned"
    UNFIT = "{pool} is {state}"
    NOW_HOLDS = "{pool} would hold {over:and} by now"


def need(yml: str, trigger: str = "", measured: TableStatistics | None = None) -> Load:
    """Return what a statement needs, from the yml of its revision and the statistics of its last batch.

    It needs one core while a batch runs, and the memory of its state, unless its yml declares `resources`.
    """
    declared, known = _resources(yml), measured or TableStatistics()
    cores, mib = USUAL_CORES, float(USUAL_MIB)
    if known.batch_s is not None:
        busy = known.batch_s / max(known.batch_s, trigger_s(trigger), _STEP)
        cores, mib = max(1, ceil(busy / _STEP)) * _STEP, _BASE_MIB + (known.state_bytes or 0) / 2**20
    return Load(
        1,
        declared.cores if declared.cores is not None else round(cores, 2),
        declared.mib if declared.mib is not None else ceil(mib),
    )


def _resources(yml: str) -> Amounts:
    return settings_of(yml).resources if "resources:" in yml else UNLIMITED


@lru_cache(maxsize=10_000)
def settings_of(yml: str) -> Settings:
    """Return the settings in the yml of a revision."""
    return read_settings(yml, "", Settings(), [])


def may_run(version: Deployment | ObservedDeployment | StatementLine) -> bool:
    """True if a version may have a query, or if its agent starts one by itself."""
    resumes = version.state == State.STOPPED and version.wanted == WantedState.RUNNING
    return version.state not in (*AT_REST, State.ABSENT) or resumes


def need_of(seen: ObservedDeployment) -> Load:
    """Return what the serving version of a statement needs."""
    return need(seen.deployed.yml if seen.deployed is not None else "", seen.trigger, seen.statistics)


def loads_of(environment: Environment, observed: Iterable[ObservedDeployment]) -> dict[str, Load]:
    """Return the load of each pool: of statements that may run, and of older versions that are kept running."""
    found = {pool.name: NOTHING for pool in environment.pools}
    for seen in observed:
        if not seen.version:
            continue
        here = environment.pool_holding(seen.pool).name
        one = need_of(seen) if may_run(seen) or seen.retained else NOTHING
        if may_run(seen):
            found[here] += one
        for version in seen.retained:
            found[pool_of_version(environment, seen, version)] += one
    return found


def loads_after(
    environment: Environment,
    loads: Mapping[str, Load],
    *,
    observed: Mapping[TableName, ObservedDeployment],
    nodes: Iterable[PlanNode],
    steps: Iterable[Step],
    pool_then: Callable[[PlanNode], str],
) -> dict[str, Load]:
    """Return the highest loads of the pools while a plan is executed, starting from `loads`.

    While a table is rebuilt, both of its versions run. What the plan stops is not subtracted. `pool_then` returns the
    pool in which the version of a node runs after the plan.
    """
    found, resumed = dict(loads), {step.table for step in steps if step.do is StepKind.RESUME}
    for node in nodes:
        if node.action not in _RUNS or not (node.version and node.texts.dml):
            continue
        seen = observed.get(node.table, ObservedDeployment())
        there, one = pool_then(node), need(node.texts.yml, node.trigger, seen.statistics)
        if node.action is Action.ROLLBACK:
            found[there] += one if node.table in resumed and node.version not in seen.retained else NOTHING
        elif node.version != node.from_version or not may_run(seen):
            found[there] += one if node.action is not Action.RECORD else NOTHING
        else:
            found[environment.pool_holding(seen.pool).name] -= need_of(seen)
            found[there] += one
    return found


_RUNS = frozenset(
    {Action.START, Action.RESUME, Action.RESTART, Action.REBUILD, Action.RECORD, Action.ROLLBACK, Action.UNDELETE}
)


def pool_of_version(environment: Environment, seen: ObservedDeployment, version: int) -> str:
    """Return the name of the pool of another version of a table; that of the serving one if it is unknown."""
    others = (seen.former, seen.in_trash, *seen.runs_on, *seen.orphan_versions)
    name = next((each.pool for each in others if each is not None and each.version == version), "")
    known = {pool.name for pool in environment.pools}
    return name if name in known else environment.pool_holding(seen.pool).name


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A statement to place."""

    table: TableName
    need: Load
    candidates: tuple[str, ...]
    """Names of the pools that take it, if they have room."""
    prefers: tuple[str, ...] = ()
    """Names of pools in which it is placed before all others, in order; those that do not take it are ignored."""


@dataclass(frozen=True, slots=True)
class Place:
    """The pool in which a statement is placed, and what was free there."""

    pool: str
    free: float
    """The smallest share of its capacity that stays free, over the dimensions that it limits; 1 if it limits none."""
    scarcest: str
    """The dimension of that share; empty if the pool has no capacity."""
    has: int
    """Number of statements in the pool before."""
    best: bool = True
    """False if another pool had more room, and this one was preferred."""


@dataclass(slots=True)
class Placed:
    """The result of placing statements in turn."""

    by_table: dict[TableName, Place] = field(default_factory=dict)
    left: list[Unplaced] = field(default_factory=list)
    """Statements for which no candidate has room beside those that are placed."""
    loads: dict[str, Load] = field(default_factory=dict)
    """The load of each pool, with the statements that are placed."""

    def full(self, pools: Iterable[Pool]) -> tuple[Fact[Full], ...]:
        """Return why each of the pools does not take the first statement that is left."""
        first = self.left[0]
        return tuple(
            Full.WOULD_HOLD.of(
                pool=pool.name, table=first.table, over=over_capacity(pool.capacity, self.loads[pool.name] + first.need)
            )
            for pool in pools
            if pool.name in first.candidates
        )


def place(waiting: Iterable[Unplaced], pools: Iterable[Pool], loads: Mapping[str, Load]) -> Placed:
    """Place statements in pools with room for them, starting from the loads that the pools have.

    Each goes to the pool of which the largest share stays free in its scarcest dimension; of equal ones, to that with
    the fewest statements, then to the first by name. A pool without a capacity counts as empty. Those with the fewest
    candidates come first, then by need and name, so the result does not depend on the order of the arguments. If some
    have no room that way, the largest are packed first and as tightly as possible.
    """
    capacities, waiting = {pool.name: pool.capacity for pool in pools}, tuple(waiting)
    order = sorted(waiting, key=lambda each: (len(each.candidates), -each.need.cores, -each.need.mib, each.table))
    spread = _place_in_turn(order, capacities, loads, tight=False)
    if not spread.left or all((each.cores, each.mib) == (None, None) for each in capacities.values()):
        return spread
    largest = sorted(waiting, key=lambda each: (-each.need.cores, -each.need.mib, len(each.candidates), each.table))
    packed = _place_in_turn(largest, capacities, loads, tight=True)
    return packed if len(packed.left) < len(spread.left) else spread


def _place_in_turn(
    waiting: Iterable[Unplaced], capacities: Mapping[str, Amounts], loads: Mapping[str, Load], *, tight: bool
) -> Placed:
    found = Placed(loads=dict(loads))
    for each in waiting:
        fits = [name for name in each.candidates if not over_capacity(capacities[name], found.loads[name] + each.need)]
        if not fits:
            found.left.append(each)
            continue
        rooms = {name: _room(capacities[name], found.loads[name] + each.need) for name in fits}
        sign = -1 if tight else 1
        best = min(fits, key=lambda name: (-sign * rooms[name][0], found.loads[name].statements, name))
        chosen = next((name for name in each.prefers if name in fits), best)
        share, scarcest = rooms[chosen]
        found.by_table[each.table] = Place(chosen, share, scarcest, found.loads[chosen].statements, chosen == best)
        found.loads[chosen] += each.need
    return found


def _room(capacity: Amounts, load: Load) -> tuple[float, str]:
    """Return the smallest share of a capacity that a load leaves free, and its dimension."""
    shares = [
        (1 - needed / most, name)
        for name, most, needed in zip(DIMENSIONS, capacity, load, strict=True)
        if most is not None
    ]
    return min(shares, default=(1.0, ""))
