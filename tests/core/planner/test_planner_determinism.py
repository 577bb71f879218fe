"""Equal inputs give equal bytes in any order and process; the hash changes only with relevant inputs."""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.model.actions import Action
from core.model.names import TableName as T
from core.model.names import physical_name
from core.observed.table_statistics import Headroom, TableStatistics
from core.plan.codec import canonical_text, plan_as_json, plan_from_json, plan_hash
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from core.project.model import Script, Table
from tests.support.random_worlds import World, cases, times

BOTH = cases() | cases("delete")
SMALL = cases(largest=50) | cases("delete", largest=50)


def written(plan: Plan) -> str:
    return canonical_text(plan_as_json(plan))


@given(BOTH, st.randoms())
@settings(max_examples=times(4))
def test_the_bytes_do_not_depend_on_any_order(drawn: tuple[World, PlanRequest], chance: random.Random) -> None:
    world, request = drawn

    def shuffled(items):  # type: ignore[no-untyped-def]  # Items of any kind.
        found = list(items)
        chance.shuffle(found)
        return found

    again = replace(
        world,
        declared=replace(world.declared, tables=dict(shuffled(world.declared.tables.items()))),
        observed=dict(shuffled(world.observed.items())),
    )
    other = replace(
        request,
        tables=tuple(shuffled(request.tables * 2)),
        products=tuple(shuffled(request.products * 2)),
        exclude=tuple(shuffled(request.exclude * 2)),
    )
    assert written(world.plan(request)) == written(again.plan(other))


@given(BOTH)
@settings(max_examples=times(2))
def test_a_plan_survives_a_round_trip_through_json_with_its_hash(drawn: tuple[World, PlanRequest]) -> None:
    world, request = drawn
    plan = world.plan(request)
    assert plan_from_json(plan_as_json(plan)) == plan
    assert plan_hash(plan) == plan.hash


@pytest.mark.parametrize(
    ("worlds", "seeds"), [(30, ("0", "1")), pytest.param(150, ("0", "1", "2", "77"), marks=pytest.mark.drill)]
)
def test_the_bytes_do_not_depend_on_the_hash_seed(worlds: int, seeds: tuple[str, ...]) -> None:
    script = (
        "import random\n"
        "from tests.support.random_worlds import request_of, world_of\n"
        f"for seed in range({worlds}):\n"
        "    chance = random.Random(seed)\n"
        "    world = world_of(seed, chance.randint(2, 60))\n"
        "    for verb in ('deploy', 'delete'):\n"
        "        print(world.plan(request_of(chance, world, verb)).hash)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in seeds
    }
    (output,) = outputs
    assert len(output.split()) == 2 * worlds


# Relevant inputs.


@given(SMALL, st.randoms())
@settings(max_examples=times(2))
def test_the_hash_changes_with_observations_inside_the_plan(
    drawn: tuple[World, PlanRequest], chance: random.Random
) -> None:
    world, request = drawn
    plan = world.plan(request)
    inside = [node for node in plan.nodes if world.seen(node.table).version]
    assume(inside)
    node = chance.choice(inside)
    seen = world.seen(node.table)
    for known in (
        {"state": "absent"},
        {"wanted": "stopped" if seen.wanted != "stopped" else "running"},
        {"checkpoint_id": "another"},
        {"table_id": "another"},
        {"pointer": physical_name(node.table, 99)},
        {"version": 98, "highest_version": 98},
        {"highest_version": 99},
        {"revision": "changed", "deployed": None},
    ):
        assert world.put(node.table, **known).plan(request).hash != plan.hash, (node.table, known)
    other = world.put(node.table, state="failed" if seen.state != "failed" else "stopped").plan(request)
    assert other.hash != plan.hash or done(other) == done(plan)


def done(plan: Plan) -> list[object]:
    """Return the effects of a plan: steps, messages and actions."""
    return [plan.steps, plan.warnings, plan.refusals, [(node.table, node.action) for node in plan.nodes]]


@given(cases(largest=50), st.randoms())
@settings(max_examples=times(2))
def test_the_hash_changes_with_the_inputs_of_a_statement(
    drawn: tuple[World, PlanRequest], chance: random.Random
) -> None:
    """The present bindings of a statement that is re-created are irrelevant, because it is bound again."""
    world, request = drawn
    plan = world.plan(request)
    stays = (Action.KEEP, Action.RESUME, Action.RECORD)
    bound = [n for n in plan.nodes if n.action in stays and any(b.version for b in world.seen(n.table).bindings)]
    assume(bound)
    node = chance.choice(bound)
    other = tuple(replace(b, version=b.version and b.version + 7) for b in world.seen(node.table).bindings)
    assert world.put(node.table, bindings=other).plan(request).hash != plan.hash


@given(cases(largest=50), st.randoms())
@settings(max_examples=times(2))
def test_the_hash_changes_with_every_text_inside_the_plan(
    drawn: tuple[World, PlanRequest], chance: random.Random
) -> None:
    world, request = drawn
    plan = world.plan(request)
    inside = [node.table for node in plan.nodes if node.table in world.declared.tables]
    assume(inside)
    name = chance.choice(inside)
    assert retyped(world, name).plan(request).hash != plan.hash


@given(SMALL)
@settings(max_examples=times(1))
def test_the_hash_changes_with_the_request_and_the_policy(drawn: tuple[World, PlanRequest]) -> None:
    world, request = drawn
    plan = world.plan(request)
    assert world.plan(replace(request, nonce="another")).hash != plan.hash
    assert world.plan(replace(request, everything=not request.everything)).hash != plan.hash
    assert world.plan(request, Policy(max_statements=10_000)).hash != plan.hash
    protected = replace(world.declared.environments["dev"], protected=True)
    elsewhere = replace(world, declared=replace(world.declared, environments={"dev": protected}))
    assert elsewhere.plan(request).hash != plan.hash


# Irrelevant inputs.


@given(SMALL, st.randoms())
@settings(max_examples=times(2))
def test_the_hash_leaves_out_what_was_measured(drawn: tuple[World, PlanRequest], chance: random.Random) -> None:
    """Measurements change from minute to minute, and may change a plan only through the verdict of a guard."""
    world, request = drawn
    plan = world.plan(request)
    now = {
        name: replace(
            seen, statistics=TableStatistics(at=2.0, rows=chance.randrange(10**9), bytes=chance.randrange(10**12))
        )
        for name, seen in world.observed.items()
    }
    later = make_plan(
        world.declared, "dev", now, request, world.facts, headroom=Headroom(at=2.0, disk_free=10**15, disk_total=10**16)
    )
    same = [(g.name, g.verdict) for g in plan.guards] == [(g.name, g.verdict) for g in later.guards]
    assert (plan.hash == later.hash) == same or verdicts_in_words(plan) != verdicts_in_words(later)


def verdicts_in_words(plan: Plan) -> list[object]:
    """Return the parts of a plan that measurements may change, apart from guards: messages, approvals and retention."""
    return [plan.warnings, plan.refusals, plan.approvals, [node.retention for node in plan.nodes]]


@given(SMALL, st.randoms())
@settings(max_examples=times(4))
def test_the_hash_ignores_everything_outside_the_plan(drawn: tuple[World, PlanRequest], chance: random.Random) -> None:
    world, request = drawn
    plan = world.plan(request)
    far = [name for name in world.names() if name not in near(world, plan) and name not in request.tables]
    assume(far and not request.everything and not request.products)
    for name in chance.sample(far, min(len(far), 3)):
        if name in world.declared.tables:
            assert retyped(world, name).plan(request).hash == plan.hash, name
        if name in world.observed:
            other = world.put(name, state="failed", wanted="stopped", checkpoint_id="another", since="now")
            assert other.plan(request).hash == plan.hash, name


def near(world: World, plan: Plan) -> set[T]:
    """Return all tables that a plan names, their parents, their readers, and the rest of their statement sets."""
    tables = world.declared.tables
    found = {node.table for node in plan.nodes} | {left.table for left in plan.left_behind}
    found |= {refusal.table for refusal in plan.refusals} | {warned.table for warned in plan.warnings}  # type: ignore[arg-type]
    found |= set(plan.request.exclude) | set(plan.request.tables)
    around = set(found)
    for name in found:
        made = tables.get(name)
        around |= {binding.parent for binding in world.seen(name).bindings}
        around |= {read.table for read in made.parsed.reads} if made and made.parsed else set()
        around |= {other for other in tables if made and tables[other].folder == made.folder}
    for name in world.names():
        made = tables.get(name)
        reads = {binding.parent for binding in world.seen(name).bindings}
        reads |= {read.table for read in made.parsed.reads} if made and made.parsed else set()
        if reads & found:
            around.add(name)
    return around


def retyped(world: World, name: T) -> World:
    """Return a world in which one table's text has one more comment."""
    made = world.declared.tables[name]
    script = made.dml or made.ddl
    text = Script(script.path, f"{script.text} -- retyped")
    changed: Table = replace(made, dml=text) if made.dml else replace(made, ddl=text)
    return replace(world, declared=replace(world.declared, tables={**world.declared.tables, name: changed}))
