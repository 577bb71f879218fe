"""Properties of every plan over every graph; `--hypothesis-show-statistics` prints how many cases were tried.

For a longer run: `pytest tests/core/planner/test_planner_properties.py --hypothesis-profile=long`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hypothesis import event, given, settings
from hypothesis import strategies as st

from core.lineage.table_graph import edges_of
from core.model.actions import EXECUTABLE, Action, StepKind, Strategy
from core.model.names import TableName as T
from core.model.names import physical_name
from core.model.states import State, WantedState
from core.observed.versions import Binding
from core.plan.model import Plan, PlanNode
from core.plan.request import PlanRequest
from core.project.model import Project
from tests.support.domain_builders import project, running, table
from tests.support.example_counts import examples
from tests.support.random_worlds import World, cases, times

BEGINS = frozenset({StepKind.START, StepKind.RESUME, StepKind.RESTART})
OTHER = {str(strategy) for strategy in Strategy} - EXECUTABLE
AT_REST = (State.STOPPED, State.FAILED, State.COMPLETED)


@dataclass(frozen=True)
class Case:
    """A plan and the world for which it was made."""

    world: World
    request: PlanRequest
    plan: Plan

    @cached_property
    def nodes(self) -> dict[T, PlanNode]:
        return {node.table: node for node in self.plan.nodes}

    @cached_property
    def behind(self) -> dict[int, int]:
        """For every step, a bit set of the steps that must be done before it."""
        found: dict[int, int] = {}
        for step in self.plan.steps:
            found[step.n] = 0
            for n in step.after:
                assert n < step.n
                found[step.n] |= found[n] | 1 << n
        return found

    @cached_property
    def begun(self) -> dict[tuple[T, int], int]:
        return {(s.table, s.version): s.n for s in self.plan.steps if s.do in BEGINS or s.do is StepKind.REGISTER}

    @cached_property
    def readers(self) -> dict[T, list[tuple[T, Binding]]]:
        found: dict[T, list[tuple[T, Binding]]] = {}
        for name, seen in self.world.observed.items():
            for binding in seen.bindings:
                found.setdefault(binding.parent, []).append((name, binding))
        return found

    def does(self, *which: StepKind) -> Iterator[tuple[T, int]]:
        return ((step.table, step.version) for step in self.plan.steps if step.do in which)

    def is_before(self, first: int, then: int) -> bool:
        return bool(self.behind[then] >> first & 1)


def made(world: World, request: PlanRequest) -> Case:
    return Case(world, request, world.plan(request))


def tell(case: Case) -> None:
    """Record the kinds of plans for Hypothesis statistics."""
    event("with steps" if case.plan.steps else "refused" if case.plan.refusals else "with nothing to do")
    for action in sorted({str(node.action) for node in case.plan.nodes}):
        event(f"with {action}")
    for strategy in sorted({str(node.strategy) for node in case.plan.nodes} & OTHER):
        event(f"by {strategy}, {'refused' if case.plan.refusals else 'planned'}")
    if case.plan.left_behind:
        event("with tables left behind")


# Deploys


@given(cases())
@settings(max_examples=times(30))
def test_a_deploy(drawn: tuple[World, PlanRequest]) -> None:
    case = made(*drawn)
    tell(case)
    for holds in DEPLOY:
        holds(case)


def begins_after_everything_it_reads(case: Case) -> None:
    for step in case.plan.steps:
        if step.do in BEGINS:
            for binding in case.nodes[step.table].bindings:
                parent = case.begun.get((binding.parent, binding.version))
                assert parent is None or case.is_before(parent, step.n), (step, binding)


def is_listed_in_the_order_of_the_edges(case: Case) -> None:
    place = {node.table: number for number, node in enumerate(case.plan.nodes)}
    for node in case.plan.nodes:
        for binding in node.bindings:
            parent = case.nodes.get(binding.parent)
            if (
                parent is not None
                and parent.version == binding.version
                and node.action in (Action.START, Action.REBUILD)
            ):
                assert place[binding.parent] < place[node.table]


def begins_under_parents_that_run(case: Case) -> None:
    begun = {table for table, _ in case.begun}
    warned = {warned.table for warned in case.plan.warnings}
    for node in case.plan.nodes:
        if node.table not in begun:
            continue
        for binding in node.bindings:
            declared = case.world.declared.tables.get(binding.parent)
            lands = declared is not None and declared.external and bool(case.readers.get(binding.parent))
            excluded = binding.parent in case.request.exclude and node.table in warned
            runs = case.world.seen(binding.parent).state == State.RUNNING
            assert binding.parent in begun or runs or lands or excluded, (node.table, binding)


def forgets_no_reader(case: Case) -> None:
    """Every reader of a table that gets a new version also gets one, or is reported as left behind."""
    fresh = {node.table: node.version for node in case.plan.nodes if node.action is Action.REBUILD}
    said = {(left.table, left.reads) for left in case.plan.left_behind}
    for parent, version in fresh.items():
        for name, binding in case.readers.get(parent, ()):
            then = case.nodes[name].bindings if name in case.nodes else ()
            moved = name in fresh or any((b.parent, b.version) == (parent, version) for b in then)
            assert moved or (name, physical_name(parent, binding.version)) in said, (parent, name)


def names_at_every_depth_who_stays(case: Case) -> None:
    """Readers of tables left behind are left behind too, one level deeper; tables that read no old version are not."""
    fresh = {node.table for node in case.plan.nodes if node.action in (Action.START, Action.REBUILD)}
    left = {found.table: found.depth for found in reversed(case.plan.left_behind)}
    said = {(found.table, found.through) for found in case.plan.left_behind}
    for table_, depth in left.items():
        assert table_ not in fresh
        for name, _ in case.readers.get(table_, ()):
            if name not in fresh:
                assert name in left and left[name] <= depth + 1, (table_, name)
    for name, through in said:
        assert through in {binding.parent for binding in case.world.seen(name).bindings}
        assert through in (fresh if left[name] == 1 else left)


def is_never_milder_than_a_parent_asks(case: Case) -> None:
    """Within the plan, readers of a re-created table are re-created, or restarted if they read it as a static side."""
    fresh = {node.table for node in case.plan.nodes if node.action is Action.REBUILD}
    staying = {left.table for left in case.plan.left_behind}
    for name, node in case.nodes.items():
        if node.action is Action.DELETE or name in staying:
            continue
        if case.world.seen(name).state == "absent":
            continue
        recreated = [b.streamed for b in case.world.seen(name).bindings if b.parent in fresh]
        if any(recreated) and node.strategy != Strategy.SEAM:
            assert node.action in (Action.REBUILD, Action.START), (name, node.action)
        elif recreated:
            assert node.action in (Action.RESTART, Action.REBUILD, Action.START), (name, node.action)


def ends_no_version_that_is_read_or_serves(case: Case) -> None:
    ended = set(case.does(StepKind.STOP, StepKind.TOMBSTONE))
    serving = {name: seen.version for name, seen in case.world.observed.items()}
    then = {name: seen.bindings for name, seen in case.world.observed.items()}
    for node in case.plan.nodes:
        serving[node.table], then[node.table] = node.version, node.bindings
    assert not {(name, version) for name, version in serving.items() if version} & ended
    for bindings in then.values():
        assert not {(b.parent, b.version) for b in bindings} & ended
    for name, seen in case.world.observed.items():
        stays = serving[name] != seen.version and case.plan.steps and (name, seen.version) not in ended
        if stays:
            assert not {(b.parent, b.version) for b in seen.bindings} & ended


def makes_each_version_once_and_never_an_old_one_again(case: Case) -> None:
    created = list(case.does(StepKind.CREATE))
    assert len(created) == len(set(created))
    for table_, version in created:
        assert version > case.world.seen(table_).highest_version
    assert set(created) == set(case.does(StepKind.START))


def destroys_nothing(case: Case) -> None:
    """A deploy removes no pointer, and moves only versions that never served to the trash."""
    assert not set(case.does(StepKind.UNPOINT))
    for table_, version in case.does(StepKind.TOMBSTONE):
        seen = case.world.seen(table_)
        assert version in {orphan.version for orphan in seen.orphan_versions} or not seen.begun


def does_not_touch_what_is_excluded(case: Case) -> None:
    acted = {step.table for step in case.plan.steps if step.do is not StepKind.STOP}
    acted |= {table for step in case.plan.steps for table in step.tables}
    assert not acted & set(case.request.exclude)


def touches_foreign_products_only_upwards_or_as_asked(case: Case) -> None:
    """A rebuild outside the accepted products was requested by name, by product, or by a request for everything."""
    request, tables = case.request, case.world.declared.tables
    if request.children == "all" or request.everything:
        return
    units = {tables[name].folder for name in request.tables if name in tables}
    named = {name for name, made in tables.items() if made.folder in units or made.product in request.products}
    accepted = {tables[name].product for name in named} if request.children != "none" else set()
    if request.children not in ("none", "product"):
        accepted |= set(request.children.split(","))
    units |= {tables[name].folder for name in named}
    for node in case.plan.nodes:
        if node.action is Action.REBUILD:
            assert node.product in accepted or tables[node.table].folder in units, node.table


def swaps_everything_it_rebuilds_at_once_and_after_it_has_caught_up(case: Case) -> None:
    rebuilt = {node.table for node in case.plan.nodes if node.action is Action.REBUILD}
    caught_up = {step.table: step.n for step in case.plan.steps if step.do is StepKind.CATCH_UP}
    swaps = [step for step in case.plan.steps if step.do is StepKind.SWAP and set(step.tables) & rebuilt]
    if case.plan.steps and rebuilt:
        (swap,) = swaps
        assert set(swap.tables) == rebuilt <= set(caught_up)
        assert all(case.is_before(caught_up[table], swap.n) for table in rebuilt)


def starts_a_reader_once_what_it_joins_is_complete(case: Case) -> None:
    """A query starts only after the new version of its static side has caught up."""
    begins = (StepKind.START, StepKind.RESUME, StepKind.RESTART)
    began = {(step.table, step.version): step for step in case.plan.steps if step.do in begins}
    caught_up = {(step.table, step.version): step.n for step in case.plan.steps if step.do is StepKind.CATCH_UP}
    for (reader, version), step in began.items():
        node = case.nodes[reader]
        for binding in node.bindings if node.version == version else ():
            key = (binding.parent, binding.version)
            if not binding.streamed and key in began:
                assert case.is_before(caught_up[key], step.n), f"{reader} starts before {binding.parent} is complete"


def has_no_steps_where_it_is_refused(case: Case) -> None:
    assert not (case.plan.refusals and case.plan.steps)
    assert not any(guard.verdict == "deny" for guard in case.plan.guards) or case.plan.refusals


def acts_by_its_nodes(case: Case) -> None:
    """Steps belong to nodes, every acting node has steps, and the plan's order lists exactly the acting tables."""
    acting = {step.table for step in case.plan.steps} | {t for step in case.plan.steps for t in step.tables}
    assert acting <= set(case.nodes) and acting == set(case.plan.order)
    if case.plan.steps:
        assert {n.table for n in case.plan.nodes if n.action is not Action.KEEP} <= acting


DEPLOY = (
    begins_after_everything_it_reads,
    is_listed_in_the_order_of_the_edges,
    begins_under_parents_that_run,
    forgets_no_reader,
    names_at_every_depth_who_stays,
    is_never_milder_than_a_parent_asks,
    ends_no_version_that_is_read_or_serves,
    makes_each_version_once_and_never_an_old_one_again,
    destroys_nothing,
    does_not_touch_what_is_excluded,
    touches_foreign_products_only_upwards_or_as_asked,
    swaps_everything_it_rebuilds_at_once_and_after_it_has_caught_up,
    starts_a_reader_once_what_it_joins_is_complete,
    has_no_steps_where_it_is_refused,
    acts_by_its_nodes,
)


# Deletes


@given(cases("delete"))
@settings(max_examples=times(20))
def test_a_delete(drawn: tuple[World, PlanRequest]) -> None:
    case = made(*drawn)
    tell(case)
    for holds in DELETE:
        holds(case)


def leaves_no_reader_that_runs_or_is_wanted(case: Case) -> None:
    gone = {table_ for table_, _ in case.does(StepKind.TOMBSTONE)}
    for name in gone:
        for reader, _ in case.readers.get(name, ()):
            seen = case.world.seen(reader)
            assert reader in gone or (seen.wanted == WantedState.STOPPED and seen.state in AT_REST), (name, reader)


def stops_sinks_before_sources(case: Case) -> None:
    first: dict[T, int] = {}
    for step in case.plan.steps:
        if step.do is StepKind.STOP:
            first.setdefault(step.table, step.n)
    gone = {table_ for table_, _ in case.does(StepKind.TOMBSTONE)}
    for name in gone:
        for binding in case.world.seen(name).bindings:
            if binding.parent in gone:
                assert case.is_before(first[name], first[binding.parent])


def stops_and_unpoints_before_it_sets_aside(case: Case) -> None:
    before = [step for step in case.plan.steps if step.do in (StepKind.STOP, StepKind.UNPOINT)]
    for step in case.plan.steps:
        if step.do is StepKind.TOMBSTONE:
            assert all(case.is_before(other.n, step.n) for other in before if other.table == step.table)


def takes_no_external_table_and_begins_nothing(case: Case) -> None:
    tables = case.world.declared.tables
    assert not any(tables[step.table].external for step in case.plan.steps if step.table in tables)
    assert {step.do for step in case.plan.steps} <= {StepKind.STOP, StepKind.UNPOINT, StepKind.TOMBSTONE}


def keeps_what_is_excluded(case: Case) -> None:
    assert not {table_ for table_, _ in case.does(StepKind.TOMBSTONE, StepKind.UNPOINT)} & set(case.request.exclude)


DELETE = (
    leaves_no_reader_that_runs_or_is_wanted,
    stops_sinks_before_sources,
    stops_and_unpoints_before_it_sets_aside,
    takes_no_external_table_and_begins_nothing,
    keeps_what_is_excluded,
    has_no_steps_where_it_is_refused,
    acts_by_its_nodes,
)


# Cost


@given(st.integers(2, 6), st.sampled_from(["start", "keep", "rebuild", "delete"]))
@settings(max_examples=examples(5))
def test_the_work_is_linear_in_edges(width: int, what: str) -> None:
    """Counts calls, not time: 200 layers cost no more per edge than 24."""
    few, many = (calls_for_an_edge(layers, width, what) for layers in (24, 200))
    assert many < few * 1.1, (few, many)


def calls_for_an_edge(layers: int, width: int, what: str) -> float:
    """Return the number of function calls during planning, divided by the number of edges."""
    declared = layered(layers, width)
    world = World(declared, {} if what == "start" else running(declared))
    verb = "delete" if what == "delete" else "deploy"
    request = PlanRequest(verb=verb, everything=True, rebuild=what == "rebuild")
    world.plan(request)
    calls = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        world.plan(request)
    finally:
        sys.setprofile(None)
    return calls / sum(len(edges_of(made)) for made in declared.tables.values())


def layered(layers: int, width: int) -> Project:
    """Declare a graph whose tables read the whole previous layer: paths grow exponentially, edges linearly."""
    before, tables = ["src"], [table("src")]
    for layer in range(layers):
        now = [f"t{layer:03}_{place}" for place in range(width)]
        tables += [table(name, " ".join(before)) for name in now]
        before = now
    return project(*tables)
