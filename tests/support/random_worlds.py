"""Random projects with random deployments, determined by a seed and a size; thousands can be built in seconds.

Hypothesis draws and shrinks the seed, the size and the request; the graph itself comes from `random.Random`.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from hypothesis import strategies as st

from core.model.actions import Strategy
from core.model.names import TableName as T
from core.model.names import physical_name
from core.model.problems import Problem
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.observed.table_statistics import TableStatistics
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.request import NOW, PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from core.project.model import Project, Table
from core.project.revision import RevisionTexts
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import revision_of
from core.sql.statement import ParsedStatement, TableDdl, Watermark
from tests.support.declared_edits import EDITS
from tests.support.domain_builders import project, table
from tests.support.example_counts import examples

PRODUCTS = ("kitchen", "crm", "web")
UNHEALTHY = tuple(state for state in State if state not in (State.ABSENT, State.RUNNING))


class Written(ParseCache):
    """A cache of the texts that a world has generated, with their parsed values, so that no SQL is parsed."""

    def __init__(self) -> None:
        super().__init__()
        self._ddls: dict[str, TableDdl] = {}
        self._statements: dict[str, ParsedStatement] = {}

    def take(self, made: Table) -> RevisionTexts:
        """Store a table's parsed values under its texts, and return the texts."""
        texts = revision_of(made).texts
        self._ddls[texts.ddl] = made.parsed_ddl
        if made.parsed is not None:
            self._statements[texts.dml] = made.parsed
        return texts

    def ddl(self, text: str, path: str) -> tuple[int | None, TableDdl | None, tuple[Problem, ...]]:
        return None, self._ddls[text], ()

    def statements(
        self, text: str, path: str, *, every_table_streams: bool = False
    ) -> tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]:
        return (self._statements[text],), ()


@dataclass(frozen=True, repr=False)
class World:
    """A declared project, its deployments, and the parsed values of their texts for the planner."""

    declared: Project
    observed: dict[T, ObservedDeployment]
    facts: Written = field(default_factory=Written, compare=False)

    def __repr__(self) -> str:
        """Describe the world for a failing example, one line per table."""
        return "\n" + "\n".join(self._line(name) for name in self.names())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the same text in Hypothesis's reports."""
        printer.text(repr(self))

    def _line(self, name: T) -> str:
        made, seen = self.declared.tables.get(name), self.seen(name)
        reads = made.parsed.reads if made is not None and made.parsed else ()
        words = [f"{read.table}{'' if read.streaming else '!'}" for read in reads]
        declared = (
            f"{made.product} {'stateful ' * made.parsed.stateful if made.parsed else ''}< {' '.join(words)}"
            if made
            else "-"
        )
        known = {
            f.name: getattr(seen, f.name) for f in fields(seen) if f.name not in ("deployed", "statistics", "revision")
        }
        plain = ObservedDeployment()
        shown = {key: value for key, value in known.items() if value != getattr(plain, key)}
        bound = " ".join(f"{b.parent}@{b.version}" for b in seen.bindings)
        return f"  {name} {declared} :: {bound} { ({k: v for k, v in shown.items() if k != 'bindings'}) }"

    def names(self) -> list[T]:
        """Return all tables that are declared or deployed, sorted."""
        return sorted({*self.declared.tables, *self.observed})

    def seen(self, name: T) -> ObservedDeployment:
        """Return the observed deployment of a table; a default one if it is not deployed."""
        return self.observed.get(name, ObservedDeployment())

    def readers(self, name: T) -> list[T]:
        """Return the tables with a deployment that reads any version of this table, sorted."""
        return sorted(n for n, seen in self.observed.items() if any(b.parent == name for b in seen.bindings))

    def below(self, names: Iterable[T]) -> list[T]:
        """Return the given tables and all tables whose deployments depend on them."""
        found = dict.fromkeys(names)
        waiting = list(found)
        for name in waiting:
            new = [reader for reader in self.readers(name) if reader not in found]
            found.update(dict.fromkeys(new))
            waiting.extend(new)
        return waiting

    def put(self, name: T, **known: object) -> "World":
        """Return a world in which fields of one table's observed deployment are replaced."""
        return replace(self, observed={**self.observed, name: replace(self.seen(name), **known)})  # type: ignore[arg-type]

    def plan(self, request: PlanRequest, policy: Policy | None = None) -> Plan:
        return make_plan(self.declared, "dev", self.observed, request, self.facts, policy=policy)


@st.composite
def worlds(draw: st.DrawFn, largest: int = 200) -> World:
    """Draw a world; half of them are small, the others have up to `largest` tables."""
    bands = [st.integers(2, 9), st.integers(2, 9), st.integers(10, min(40, largest)), st.integers(10, largest)]
    return world_of(draw(st.integers(0, 2**32)), draw(st.one_of(bands)))


@st.composite
def cases(draw: st.DrawFn, verb: str = "deploy", largest: int = 200) -> tuple[World, PlanRequest]:
    """Draw a world, and a request for some of its tables."""
    world = draw(worlds(largest))
    return world, request_of(random.Random(draw(st.integers(0, 2**32))), world, verb)


def request_of(chance: random.Random, world: World, verb: str = "deploy") -> PlanRequest:
    """Return a random request for tables, products, everything or a mixture, with random options."""
    names, deploys = world.names(), verb == "deploy"
    if deploys:
        names = sorted(world.declared.tables)
    products = sorted({made.product for made in world.declared.tables.values()})
    several = min(len(names), chance.choice((1, 1, 1, 2, 5)))
    scope = chance.random()
    named = chance.sample(names, several)
    if not deploys and chance.random() < 0.6:
        named = world.below(named)
    return PlanRequest(
        verb=verb,
        tables=tuple(named) if scope < 0.7 else (),
        products=(chance.choice(products),) if 0.6 < scope < 0.85 else (),
        everything=scope >= 0.85,
        children=chance.choice(("none", "product", "product", "all", products[0])),
        exclude=tuple(chance.sample(names, min(len(names), 2))) if chance.random() < 0.3 else (),
        rebuild=deploys and chance.random() < 0.3,
        **(_wishes(chance, named) if deploys and chance.random() < 0.15 else {}),
    )


def _wishes(chance: random.Random, names: list[T]) -> dict[str, Any]:
    """Return options that request non-default strategies, many of which will be refused."""
    wish = chance.random()
    if wish < 0.2:
        return {"keep_table": True}
    if wish < 0.4:
        return {"start": chance.choice(("earliest", NOW, "2026-09-01"))}
    strategies = [chance.choice(list(Strategy)) for _ in names]
    at = {Strategy.SEEDED: NOW, Strategy.PARTIAL: "2026-09-01"}
    return {
        "choices": tuple(
            StrategyChoice(n, str(s), at.get(s, "")) for n, s in zip(sorted(names), strategies, strict=True)
        )
    }


@dataclass(slots=True)
class _Spec:
    """The plan for a table that has not been built yet; `reads` maps parents to whether they are streamed."""

    name: T
    reads: dict[T, bool]
    product: str
    stateful: bool
    unit: str = ""
    gone: bool = False

    def made(self, reads: dict[T, bool]) -> Table:
        words = " ".join(f"{parent}{'' if streamed else '!'}" for parent, streamed in reads.items())
        made = table(self.name, words, product=self.product, stateful=self.stateful, unit=self.unit)
        if not self.stateful or made.parsed is None:
            return made
        first, *rest = made.parsed.reads
        watched = replace(first, watermark=Watermark("id", "1 minute"))
        return replace(made, parsed=replace(made.parsed, reads=(watched, *rest)))


@dataclass(frozen=True, slots=True)
class _Habits:
    """The probabilities of the irregularities in one world."""

    deployed: float
    changed: float
    unhealthy: float
    old: float
    lost: float


def world_of(seed: int, size: int) -> World:
    """Build the world of a seed, with `size` tables in layers: some external, some deployed in various states."""
    chance = random.Random(seed)
    habits = _Habits(
        deployed=chance.choice((0.0, 0.7, 0.95, 1.0, 1.0)),
        changed=chance.choice((0.0, 0.05, 0.3)),
        unhealthy=chance.choice((0.0, 0.05, 0.4)),
        old=chance.choice((0.0, 0.0, 0.2)),
        lost=chance.choice((0.0, 0.0, 0.1)),
    )
    specs = _specs(chance, size)
    facts = Written()
    tables, observed = [], {}
    gone = {spec.name for spec in specs if spec.gone}
    for spec in specs:
        reads = {parent: streamed for parent, streamed in spec.reads.items() if parent not in gone}
        now = spec.made(reads or spec.reads)
        if not spec.gone:
            tables.append(now)
        before = now if reads == spec.reads else spec.made(spec.reads)
        if chance.random() < habits.changed and before.parsed is not None:
            before = chance.choice(EDITS)(before)
        if all(parent in observed for parent in spec.reads) and chance.random() < habits.deployed:
            _observe(chance, habits, before, observed, facts)
    return World(project(*tables), observed, facts)


def _specs(chance: random.Random, size: int) -> list[_Spec]:
    """Draw the graph of tables; parents are chosen nearby, so that chains, diamonds and wide joins occur."""
    near = chance.choice((3, 8, 40))
    external = chance.choice((0.05, 0.15, 0.3))
    several = chance.choice((0.0, 0.3, 0.6))
    specs: list[_Spec] = []
    for index in range(size):
        name = T(f"t{index:03}")
        if index == 0 or chance.random() < external:
            specs.append(_Spec(name, {}, chance.choice(PRODUCTS), False))
            continue
        above = [spec.name for spec in specs[-near:] if not spec.gone or index < size // 2]
        wanted = 1 + (chance.random() < several) + (chance.random() < several / 2)
        picked = chance.sample(above, min(len(above), wanted)) or [specs[0].name]
        reads = {parent: position == 0 or chance.random() < 0.8 for position, parent in enumerate(sorted(picked))}
        product = specs[-1].product if chance.random() < 0.7 else chance.choice(PRODUCTS)
        specs.append(_Spec(name, reads, product, chance.random() < 0.4, gone=chance.random() < 0.03))
        before = specs[-2]
        if before.reads and not before.gone and before.name not in reads and chance.random() < 0.06:
            specs[-1].product, specs[-1].gone = before.product, False
            specs[-1].unit = before.unit = before.unit or before.name
    # A table without parents would look external, so its parents stay.
    kept = {spec.name for spec in specs if not spec.gone}
    for spec in specs:
        if spec.reads and not kept.intersection(spec.reads):
            for other in specs:
                other.gone = other.gone and other.name not in spec.reads
    return specs


def _observe(
    chance: random.Random, habits: _Habits, before: Table, observed: dict[T, ObservedDeployment], facts: Written
) -> None:
    """Deploy a table's old SQL in a random state; it reads versions of its parents that are kept for this purpose."""
    texts = facts.take(before)
    if before.parsed is None:
        if chance.random() < 0.8:
            observed[before.name] = ObservedDeployment(state=State.RUNNING, deployed=texts)
        else:
            # The external table was never registered, but its readers refer to it.
            observed[before.name] = ObservedDeployment()
        return
    unhealthy = chance.random() < habits.unhealthy
    state = chance.choice(UNHEALTHY) if unhealthy else State.RUNNING
    wanted = chance.choice(tuple(WantedState)) if unhealthy else WantedState.RUNNING
    bindings = []
    for read in before.parsed.reads:
        parent = observed[read.table]
        version = parent.version
        if version > 1 and chance.random() < habits.old:
            version = chance.randint(1, version - 1)
            observed[read.table] = replace(
                parent,
                retained=tuple(sorted({*parent.retained, version})),
                kept=tuple(sorted({*parent.kept, version})),
            )
        bindings.append(Binding(read.table, version, read.streaming))
    version = chance.choice((1, 1, 2, 3))
    serves = not unhealthy or chance.random() < 0.9
    observed[before.name] = ObservedDeployment(
        state=state,
        revision=revision_of(before).hash,
        deployed=texts if chance.random() < 0.98 else None,
        version=version,
        highest_version=version + (chance.random() < 0.2),
        bindings=tuple(sorted(bindings, key=lambda b: b.parent)),
        checkpoint_id=f"{before.name}-{version}",
        checkpoint_ok=chance.random() >= habits.lost,
        pointer=physical_name(before.name, version) if serves else "",
        wanted=wanted,
        begun=serves or chance.random() < 0.5,
        statistics=TableStatistics(at=1.0, rows=chance.randrange(10**6), rate_rows_s=float(chance.randrange(1, 10**4)))
        if chance.random() < 0.5
        else None,
    )
    if serves and chance.random() < habits.old / 4:
        _leave_orphan_version(chance, before.name, observed)


def _leave_orphan_version(chance: random.Random, name: T, observed: dict[T, ObservedDeployment]) -> None:
    """Add a version that a failed run created and that never served."""
    seen = observed[name]
    orphan = OtherVersion(seen.highest_version + 1, seen.revision, seen.bindings, running=chance.random() < 0.7)
    running = (orphan.version,) if orphan.running else ()
    observed[name] = replace(
        seen,
        highest_version=orphan.version,
        orphan_versions=(orphan,),
        kept=(*seen.kept, orphan.version),
        retained=(*seen.retained, *running),
    )


def times(factor: int) -> int:
    """Return how many worlds a test draws: 4 times `factor`, in the profile `drill` 16 times, in `long` 2,000 times."""
    return examples(20 * factor)
