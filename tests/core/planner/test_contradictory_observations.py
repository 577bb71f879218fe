"""Impossible observations are reported all at once with their lines; possible ones are planned over."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.names import TableName as T
from core.observed.document import (
    places_in_text,
    planner_input_as_document,
    planner_input_from_text,
)
from core.observed.planner_input import ObservedDeployment, PlannerInput
from core.planner.contradictory_observations import impossible_observations, with_places
from core.project.model import Project
from tests.core.planner.test_planner_simulated import Life, born
from tests.support.domain_builders import project, running, table
from tests.support.example_counts import examples
from tests.support.random_worlds import World, worlds
from tests.support.simulated_agent import Agent, Died

CHAIN = project(table("src"), table("a", "src"), table("b", "a"), table("c", "b"))
B_READS = "{state: running, bindings: [{parent: a, version: %d, streamed: true}]}"


def said(text: str, declared: Project = CHAIN) -> list[str]:
    """Return the problems of a document, with their lines."""
    known = planner_input_from_text(text, "o.yml").observed
    found = impossible_observations(declared, declared.environments["dev"], known)
    placed = with_places(found, places_in_text(text, "o.yml"))
    assert all(problem.remedy and problem.where for problem in placed)
    return [f"{problem.where.line if problem.where else 0}: {problem.summary}" for problem in placed]


@pytest.mark.parametrize(
    ("tables", "wrong"),
    [
        ("b: running", ["2: b is running and reads a, which was never deployed"]),
        ("b: degraded", ["2: b is degraded and reads a, which was never deployed"]),
        ("a: absent\n  b: running", ["3: b is running and reads a, which was never deployed"]),
        (f"b: {B_READS % 1}", ["2: b reads a__v1, and a was never deployed"]),
        (f"a: running\n  b: {B_READS % 7}", ["3: b reads a__v7, and a has come to v1 only"]),
        (f"a: {{state: running, version: 3}}\n  b: {B_READS % 2}",
         ["3: b is running and reads a__v2, a version that is not there"]),
        ("b:\n    state: running\n    bindings: [{parent: b, version: 1, streamed: true}]", ["4: b reads itself"]),
        ("a:\n    state: absent\n    version: 2\n    pointer: a__v2", ["4: a is absent and has version, pointer"]),
        ("a:\n    state: running\n    version: 3\n    highest_version: 2",
         ["5: a has v3, above its highest_version 2"]),
        ("a:\n    state: running\n    version: 3\n    pointer: a__v2",
         ["5: a has the pointer a__v2, a version that is not there"]),
        ("a: {state: running, begun: false}", ["2: a is running and was never begun"]),
        ("a: {state: stopped, pointer: a__v1, begun: false}", ["2: a serves and was never begun"]),
        ("a: {state: running, version: 2, spare: [{version: 2}]}",
         ["2: a has v2 as its version and among those that never served"]),
        ("a: {state: running, spare: [{version: 2, running: true, begun: false}]}",
         ["2: a has v2 running that was never begun"]),
        ("a: {state: running, spare: [{version: 2, bindings: [{parent: c, version: 4, streamed: true}]}]}",
         ["2: a reads c__v4, and c was never deployed"]),
    ],
)  # fmt: skip
def test_a_world_that_cannot_be_is_named_with_its_line(tables: str, wrong: list[str]) -> None:
    assert said(f"tables:\n  {tables}\n") == wrong


def test_everything_that_cannot_be_is_named_at_once_in_the_order_of_the_document() -> None:
    text = f"tables:\n  c: running\n  b: {B_READS % 2}\n  a: {{state: running, begun: false}}\n"
    assert said(text) == [
        "3: b reads a__v2, and a has come to v1 only",
        "4: a is running and was never begun",
    ]
    assert said("tables:\n  c: running\n  a: {state: running, begun: false}\n") == [
        "2: c is running and reads b, which was never deployed",
        "3: a is running and was never begun",
    ]


def test_lines_are_known_in_json_as_well() -> None:
    assert said('{"tables": {\n"a": "absent",\n"B": {"state": "running"}}}') == [
        "3: b is running and reads a, which was never deployed"
    ]


@pytest.mark.parametrize(
    "tables",
    [
        "a: running\n  b: running",  # src is external and was never registered
        "b: stopped",  # its parent was deleted while it was stopped
        "b: failed",
        "a: {state: absent, highest_version: 1}\n  b: running",
        f"a: {{state: absent, highest_version: 3}}\n  b: {B_READS % 3}",
        f"a: {{state: running, version: 3, kept: [2]}}\n  b: {B_READS % 2}",
        f"a: {{state: running, version: 3, retained: [2]}}\n  b: {B_READS % 2}",
        f"a: {{state: running, version: 3}}\n  b: {(B_READS % 2).replace('running', 'stopped')}",
        "b: {state: running, revision: changed}",  # the running text is unknown
        "b: {state: running, revision: 0123abc}",
        "b: {state: running, deployed: {dml: INSERT INTO b SELECT id FROM STREAM elsewhere}}",
        "b: {state: running, bindings: [{parent: a, version: 0, streamed: true}]}",  # a used to be external
        "a: {state: running, checkpoint_ok: false}",
        "a: {state: running, wanted: stopped}",
        "a: {state: failed, begun: false, spare: [{version: 2}], kept: [2], highest_version: 2}",
        "old: {state: running, bindings: [{parent: old_src, version: 0, streamed: true}]}",  # no longer declared
        "src: {state: running}",
    ],
)
def test_a_world_that_can_be_is_accepted(tables: str) -> None:
    assert said(f"tables:\n  {tables}\n") == []


@settings(deadline=None, max_examples=examples(60))
@given(worlds(60))
def test_no_world_of_deploys_stops_and_failures_is_called_impossible(world: World) -> None:
    environment = world.declared.environments["dev"]
    assert impossible_observations(world.declared, environment, world.observed, world.facts) == ()


@settings(deadline=None, max_examples=examples(40))
@given(worlds(30), st.randoms(use_true_random=False))
def test_a_removed_parent_is_missed_by_every_reader_bound_to_a_version_of_it(world: World, chance: Any) -> None:
    read = sorted({b.parent for seen in world.observed.values() for b in seen.bindings if b.version})
    if not read:
        return
    lost = chance.choice(read)
    without = {name: seen for name, seen in world.observed.items() if name != lost}
    found = impossible_observations(world.declared, world.declared.environments["dev"], without, world.facts)
    assert {problem.subject for problem in found} == {
        str(name)
        for name, seen in without.items()
        for bound in (seen.bindings, *(orphan.bindings for orphan in seen.orphan_versions))
        if any(b.parent == lost and b.version for b in bound)
    }


def test_a_plain_observation_of_everything_running_is_accepted() -> None:
    observed = running(CHAIN) | {T("b"): ObservedDeployment("unknown", revision="")}
    assert impossible_observations(CHAIN, CHAIN.environments["dev"], observed) == ()


@settings(deadline=None)
@given(st.builds(born, st.integers(0, 2**32), st.integers(2, 12)))
def test_an_exported_document_is_never_impossible_even_after_a_kill(life: Life) -> None:
    for _ in range(5):
        plan = life.next_plan()
        can_be(life)
        if plan.refusals:
            continue
        whole, before = Agent(life.pool.copy(), plan, "whole"), life.pool
        whole.apply()
        for point in life.chance.sample(range(1, whole.passed + 1), min(whole.passed, 5)):
            life.pool = before.copy()
            with suppress(Died):
                Agent(life.pool, plan, f"r{life.round}", dies_at=point).apply()
            can_be(life)
        life.pool = before
        Agent(life.pool, plan, f"r{life.round}").apply()
        life.pool.settle()
        life.pool.going = frozenset()
        can_be(life)


def can_be(life: Life) -> None:
    world = life.look()
    document = planner_input_as_document(PlannerInput(world.observed), "dev")
    known = planner_input_from_text(json.dumps(document), "o.json", "dev").observed
    assert known == world.observed
    assert impossible_observations(world.declared, world.declared.environments["dev"], known, world.facts) == ()
