"""What holds for every plan over every graph: order, warm parents, no forgotten child, no reader without a table."""

import os
import random
import subprocess
import sys
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from core.names import TableName as T
from core.names import physical_name
from core.plan import Action, Binding, Do, Observed, Plan, Request
from core.plan_json import plan_as_json, plan_from_json, plan_hash
from core.planner import make_plan
from core.project import Project
from core.vocabulary import State
from tests.core.declaring import project, table

BEGINS = frozenset({Do.START, Do.RESUME, Do.RESTART})


@dataclass(frozen=True)
class World:
    declared: Project
    observed: dict[T, Observed]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a project of up to 12 tables with diamonds, products and units, and a deployment of some of it."""
    size = draw(st.integers(2, 12))
    tables = []
    for index in range(size):
        name = f"t{index:02}"
        above = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True)) if index else []
        reads = " ".join(f"t{parent:02}" for parent in above)
        tables.append(table(name, reads, product=draw(st.sampled_from("pq")), stateful=draw(st.booleans())))
    declared = project(*tables)
    observed: dict[T, Observed] = {}
    for name, found in declared.tables.items():
        parents = [read.table for read in found.facts.reads] if found.facts else []
        if any(parent not in observed for parent in parents) or draw(st.integers(0, 3)) == 0:
            continue
        if found.external:
            observed[name] = Observed(state="running")
            continue
        version = draw(st.integers(1, 3))
        bindings = []
        for parent in parents:
            serving = observed[parent].version
            bound = draw(st.integers(1, serving)) if serving > 1 else serving
            bindings.append(Binding(parent, bound, True))
            if bound != serving:
                seen = observed[parent]
                observed[parent] = replace(seen, retained=tuple(sorted({*seen.retained, bound})))
        observed[name] = Observed(
            state=draw(st.sampled_from([s for s in State if s is not State.ABSENT])),
            revision=draw(st.sampled_from(["same", "same", "changed"])),
            version=version,
            highest_version=version + draw(st.integers(0, 1)),
            bindings=tuple(bindings),
            checkpoint_ok=draw(st.integers(0, 9)) > 0,
            pointer=physical_name(name, version),
            wanted=draw(st.sampled_from(["running", "stopped"])),
        )
    return World(declared, observed)


@st.composite
def requests(draw: st.DrawFn, verb: str = "deploy") -> Request:
    names = st.integers(0, 11).map(lambda n: T(f"t{n:02}"))
    return Request(
        verb=verb,
        tables=tuple(draw(st.lists(names, max_size=3))),
        products=tuple(draw(st.lists(st.sampled_from("pq"), max_size=1))),
        everything=draw(st.booleans()),
        children=draw(st.sampled_from(["none", "product", "all", "q"])),
        exclude=tuple(draw(st.lists(names, max_size=2))),
        rebuild=draw(st.booleans()) if verb == "deploy" else False,
    )


def make(world: World, request: Request) -> Plan:
    known = set(world.declared.tables)
    request = replace(
        request,
        tables=tuple(t for t in request.tables if t in known),
        exclude=tuple(t for t in request.exclude if t in known),
        products=tuple(p for p in request.products if any(p == t.product for t in world.declared.tables.values())),
    )
    return make_plan(world.declared, "dev", world.observed, request)


def behind(plan: Plan, n: int) -> set[int]:
    """Give every step that must be done before a step."""
    after = {step.n: step.after for step in plan.steps}
    found: set[int] = set()
    waiting = list(after[n])
    while waiting:
        step = waiting.pop()
        if step not in found:
            found.add(step)
            waiting.extend(after[step])
    return found


def bound_then(world: World, plan: Plan) -> dict[T, tuple[Binding, ...]]:
    """Give what every deployed table reads after the plan."""
    found = {name: seen.bindings for name, seen in world.observed.items()}
    found.update({node.table: node.bindings for node in plan.nodes})
    return found


@given(worlds(), requests())
@settings(max_examples=120, deadline=None)
def test_a_statement_begins_after_everything_it_reads(world: World, request: Request) -> None:
    plan = make(world, request)
    begun = {(step.table, step.version): step.n for step in plan.steps if step.do in BEGINS or step.do is Do.REGISTER}
    bindings = {node.table: node.bindings for node in plan.nodes}
    for step in plan.steps:
        assert all(n < step.n for n in step.after)
        if step.do in BEGINS:
            for binding in bindings[step.table]:
                parent = begun.get((binding.parent, binding.version))
                assert parent is None or parent in behind(plan, step.n)


@given(worlds(), requests())
@settings(max_examples=120, deadline=None)
def test_no_statement_begins_under_a_parent_that_does_not_run(world: World, request: Request) -> None:
    plan = make(world, request)
    begun = {step.table for step in plan.steps if step.do in BEGINS or step.do is Do.REGISTER}
    warned = {warned.table for warned in plan.warnings}
    for node in plan.nodes:
        if node.table not in begun:
            continue
        for binding in node.bindings:
            seen = world.observed.get(binding.parent, Observed())
            declared = world.declared.tables[binding.parent]
            known = declared.external and any(
                b.parent == binding.parent for o in world.observed.values() for b in o.bindings
            )
            assert (
                binding.parent in begun
                or seen.state == State.RUNNING
                or known
                or (binding.parent in request.exclude and node.table in warned)
            )


@given(worlds(), requests())
@settings(max_examples=120, deadline=None)
def test_every_reader_of_a_rebuilt_table_moves_or_is_said_to_stay(world: World, request: Request) -> None:
    plan = make(world, request)
    rebuilt = {node.table for node in plan.nodes if node.action is Action.REBUILD}
    left = {(left.table, left.reads) for left in plan.left_behind}
    for name, seen in world.observed.items():
        for binding in seen.bindings:
            if binding.parent in rebuilt:
                assert name in rebuilt or (name, physical_name(binding.parent, binding.version)) in left


@given(worlds(), requests())
@settings(max_examples=120, deadline=None)
def test_no_version_stops_under_a_reader_and_no_reader_binds_to_nothing(world: World, request: Request) -> None:
    plan = make(world, request)
    stopped = {(step.table, step.version) for step in plan.steps if step.do is Do.STOP}
    then = bound_then(world, plan)
    serving = {name: seen.version for name, seen in world.observed.items()}
    serving.update({node.table: node.version for node in plan.nodes})
    assert not {(t, v) for t, v in serving.items() if v} & stopped
    for bindings in then.values():
        assert not {(b.parent, b.version) for b in bindings} & stopped
    kept = {
        name
        for name, seen in world.observed.items()
        if serving[name] != seen.version and plan.steps and (name, seen.version) not in stopped
    }
    for name in kept:
        assert not {(b.parent, b.version) for b in world.observed[name].bindings} & stopped


@given(worlds(), requests("delete"))
@settings(max_examples=120, deadline=None)
def test_a_delete_never_leaves_a_reader(world: World, request: Request) -> None:
    plan = make(world, request)
    gone = {step.table for step in plan.steps if step.do is Do.TOMBSTONE}
    for name, seen in world.observed.items():
        if name not in gone and any(binding.parent in gone for binding in seen.bindings):
            assert seen.wanted == "stopped" and seen.state in (State.STOPPED, State.FAILED, State.COMPLETED)
    first = {}
    for step in plan.steps:
        if step.do is Do.STOP:
            first.setdefault(step.table, step.n)
    for name in gone:
        for binding in world.observed[name].bindings:
            if binding.parent in gone:
                assert first[name] in behind(plan, first[binding.parent])


@given(worlds(), requests(), st.randoms())
@settings(max_examples=80, deadline=None)
def test_the_bytes_do_not_depend_on_any_order(world: World, request: Request, chance: random.Random) -> None:
    def shuffled(items):  # type: ignore[no-untyped-def]
        found = list(items)
        chance.shuffle(found)
        return found

    again = World(
        replace(world.declared, tables=dict(shuffled(world.declared.tables.items()))),
        dict(shuffled(world.observed.items())),
    )
    other = replace(
        request,
        tables=tuple(shuffled(request.tables)) * 2,
        products=tuple(shuffled(request.products)),
        exclude=tuple(shuffled(request.exclude)),
    )
    assert plan_as_json(make(world, request)) == plan_as_json(make(again, other))


@given(worlds(), requests())
@settings(max_examples=60, deadline=None)
def test_a_plan_comes_back_from_json_with_its_hash(world: World, request: Request) -> None:
    plan = make(world, request)
    assert plan_from_json(plan_as_json(plan)) == plan
    assert plan_hash(plan) == plan.hash


@given(worlds(), st.sampled_from(["none", "product", "all"]))
@settings(max_examples=80, deadline=None)
def test_planning_again_after_a_plan_was_applied_finds_nothing_to_do(world: World, children: str) -> None:
    request = Request(everything=True, children=children)
    plan = make(world, request)
    if plan.refusals:
        return
    after = applied(world, plan)
    assert make(after, request).steps == ()


def applied(world: World, plan: Plan) -> World:
    """Give the world as a run of the plan leaves it."""
    observed = dict(world.observed)
    for node in plan.nodes:
        seen = observed.get(node.table, Observed())
        if node.action is Action.KEEP:
            continue
        retained = {*seen.retained, *((seen.version,) if node.version != seen.version and seen.version else ())}
        retained -= {step.version for step in plan.steps if step.do is Do.STOP and step.table == node.table}
        observed[node.table] = replace(
            seen,
            state=State.RUNNING,
            wanted="running",
            version=node.version,
            bindings=node.bindings,
            revision=seen.revision if node.action is Action.RESUME else "same",
            checkpoint_ok=True,
            highest_version=max(seen.highest_version, node.version),
            retained=tuple(sorted(retained)),
            pointer=physical_name(node.table, node.version) if node.version else "",
        )
    return World(world.declared, observed)


def test_the_bytes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from tests.core.declaring import *\n"
        "p = project(src='', a='src', b='src', c='a b', d='c a', e='b')\n"
        "print(plan(p, {}).hash, plan(p, running(p), 'a', rebuild=True).hash)\n"
        "print(plan(p, running(p), verb='delete').hash)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2", "77")
    }
    assert len(outputs) == 1 and "" not in outputs
