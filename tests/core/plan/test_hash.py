"""A plan's hash changes if and only if something relevant changes; it ignores everything outside the plan's scope."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.changes.kinds import ChangeKind
from core.model.actions import Action
from core.model.evidence import Notice
from core.model.names import TableName as T
from core.model.reasons import Reason
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import Headroom, TableStatistics
from core.plan.codec import plan_hash
from core.plan.diff import compare_plans
from core.plan.model import (
    Exposure,
    Guard,
    Plan,
    PlanNode,
    PlanRefusal,
    PlanWarning,
    Retention,
    RetentionKind,
    StrategyOffer,
    Undo,
)
from core.plan.preconditions import moved_since
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.project.model import Project
from tests.support.domain_builders import deployed, plan, project, running, table
from tests.support.random_worlds import World, cases, times

Edit = Callable[[Plan], Plan]


def one() -> Plan:
    """Return a plan that rebuilds a, its reader b, and c of another product; guards and offers have costs."""
    declared = project(table("src"), table("a", "src"), table("b", "a"), table("c", "a", product="q"))
    found = plan(declared, running(declared), "a", rebuild=True)
    nodes = tuple(
        replace(node, offers=(StrategyOffer("earliest", 81, 840.0, 5, 6, ("offsets",), "all of it"),))
        if node.action is Action.REBUILD
        else node
        for node in found.nodes
    )
    return replace(found, nodes=nodes, guards=(Guard("disk", "warn", "38 of 40 GB"), Guard("pool", "ok", "2 → 4")))


def on_a(change: Callable[[PlanNode], PlanNode]) -> Edit:
    return lambda found: replace(
        found, nodes=tuple(change(node) if node.table == "a" else node for node in found.nodes)
    )


def node(**parts: Any) -> Edit:
    return on_a(lambda one: replace(one, **parts))


def offer(**parts: Any) -> Edit:
    return on_a(lambda one: replace(one, offers=tuple(replace(offer, **parts) for offer in one.offers)))


def first_guard(**parts: Any) -> Edit:
    return lambda found: replace(found, guards=(replace(found.guards[0], **parts), *found.guards[1:]))


def of_plan(**parts: Any) -> Edit:
    return lambda found: replace(found, **parts)


def of_request(**parts: Any) -> Edit:
    return lambda found: replace(found, request=replace(found.request, **parts))


def before(**values: str) -> Edit:
    return lambda found: replace(
        found, preconditions={**found.preconditions, T("a"): {**found.preconditions[T("a")], **values}}
    )


MATTERS: dict[str, Edit] = {
    "the verdict of a guard": first_guard(verdict="ok"),
    "a guard": lambda found: replace(found, guards=found.guards[1:]),
    "the action": node(action=Action.KEEP),
    "the kind of change": node(change=ChangeKind.FILTER_OR_PROJECTION),
    "the strategy": node(strategy="chain"),
    "whether it is classified": node(classified=False),
    "that Spark disagrees": node(confirmed_by_spark=False),
    "the reason": node(reason=Reason.NEW),
    "what is lost": node(loses=("table data",)),
    "the version": node(version=9),
    "the revision": node(revision="other"),
    "the level": node(level=5),
    "the declared text": on_a(lambda one: replace(one, texts=replace(one.texts, dml="INSERT"))),
    "the deployed text": on_a(lambda one: replace(one, old=replace(one.old, dml="INSERT"))),
    "the bindings": node(bindings=()),
    "a severity that was lowered": node(lowered=True),
    "an offer's strategy": offer(strategy="chain"),
    "what an offer loses": offer(loses=()),
    "what to know of an offer": offer(note="half of it"),
    "the steps": lambda found: replace(found, steps=found.steps[:-1]),
    "the order": lambda found: replace(found, order=tuple(reversed(found.order))),
    "what is left behind": of_plan(left_behind=()),
    "a refusal": of_plan(refusals=(PlanRefusal("a", "no", "never"),)),
    "a warning": of_plan(warnings=(PlanWarning("a", "look"),)),
    "a reader outside": of_plan(readers=(Exposure("report", T("a"), "a__v1", "a__v2"),)),
    "approvals": of_plan(approvals=2),
    "the policy": of_plan(policy="other"),
    "the planner": of_plan(planner="1"),
    "the project": of_plan(project_id="other"),
    "the environment": of_plan(environment="prod"),
    "protection": of_plan(protected=True),
    "the request": of_request(children="all"),
    "a choice": of_request(choices=(StrategyChoice(T("a"), "chain"),)),
    "the nonce": of_request(nonce="n"),
    "the checkpoint seen": before(checkpoint_id="other"),
    "the pointer seen": before(pointer="a__v9"),
    "the readers seen": before(readers="z v1"),
    "the acts on it": before(serial="7"),
    "that it is gone": before(state="absent"),
}
DRIFTS: dict[str, Edit] = {
    "the hash": of_plan(hash="x"),
    "rows to replay": node(replay_rows=82_000_000),
    "the ETA": node(eta_s=1.5),
    "bytes to replay": node(replay_bytes=7),
    "its way back": node(undo="stop"),
    "the ways back": of_plan(undo=(Undo("stop", (T("a"),), "stopped"),)),
    "retention": node(retention=Retention(RetentionKind.SHORT, 3)),
    "what was seen of it": node(evidence=(Notice.CONFIRMED.of(),)),
    "that Spark was asked": node(confirmed_by_spark=True),
    "the price of an offer": offer(replay_rows=None, eta_s=None, replay_bytes=None, disk_bytes=None),
    "what a guard says beside its verdict": first_guard(summary="37 of 40 GB"),
    "how far a state has come": before(state="starting"),
}


@pytest.mark.parametrize("edit", MATTERS.values(), ids=MATTERS)
def test_the_hash_covers_what_matters(edit: Edit) -> None:
    assert edit(one()) != one()
    assert plan_hash(edit(one())) != plan_hash(one())


@pytest.mark.parametrize("edit", DRIFTS.values(), ids=DRIFTS)
def test_the_hash_leaves_out_what_drifts(edit: Edit) -> None:
    assert edit(one()) != one()
    assert plan_hash(edit(one())) == plan_hash(one())


def test_a_refusal_by_a_guard_is_covered_by_its_verdict() -> None:
    def denied(words: str) -> Plan:
        return replace(
            one(), guards=(Guard("disk", "deny", words),), refusals=(PlanRefusal("", words, "see the guard", "disk"),)
        )

    assert plan_hash(denied("39 of 40 GB")) == plan_hash(denied("40 of 40 GB"))
    assert plan_hash(denied("39 of 40 GB")) != plan_hash(replace(denied(""), refusals=(PlanRefusal("a", "no", ""),)))


# Tables inside and outside a plan's scope: p is src → a → b, c of product q reads a, and d reads none of them.


def world() -> tuple[Project, dict[T, ObservedDeployment]]:
    tables = (table("src"), table("a", "src"), table("b", "a"), table("c", "a", product="q"), table("src2"))
    declared = project(*tables, table("d", "src2", product="r"), table("e", "d", product="r"))
    return declared, running(declared)


Move = Callable[[Project, dict[T, ObservedDeployment]], dict[str, ObservedDeployment]]
OUTSIDE: dict[str, Move] = {
    "a table elsewhere is rebuilt": lambda p, seen: {"d": deployed(p.tables[T("d")], version=2)},
    "a table elsewhere goes": lambda p, seen: {"e": ObservedDeployment("absent", highest_version=1)},
    "a table elsewhere fails": lambda p, seen: {"d": replace(seen[T("d")], state="failed")},
    "what is left behind is stopped": lambda p, seen: {"c": replace(seen[T("c")], state="stopped", wanted="stopped")},
    "what is left behind gets another text": lambda p, seen: {"c": replace(seen[T("c")], revision="other")},
    "an old version elsewhere goes on for its reader": lambda p, seen: {
        "d": replace(deployed(p.tables[T("d")], version=2), retained=(1,), kept=(1,))
    },
    "what is left behind gets a reader": lambda p, seen: {"y": deployed(project(table("y", "c")).tables[T("y")])},
    "figures are measured inside": lambda p, seen: {
        "a": replace(seen[T("a")], statistics=TableStatistics(1.0, 81, rate_rows_s=9.0))
    },
    "figures are measured outside": lambda p, seen: {
        "d": replace(seen[T("d")], statistics=TableStatistics(1.0, 10**9))
    },
}
INSIDE: dict[str, Move] = {
    "it is rebuilt meanwhile": lambda p, seen: {"a": deployed(p.tables[T("a")], version=2)},
    "its checkpoint is another": lambda p, seen: {"a": replace(seen[T("a")], checkpoint_id="other")},
    "a child is stopped": lambda p, seen: {"b": replace(seen[T("b")], state="stopped", wanted="stopped")},
    "a child's text is another": lambda p, seen: {"b": replace(seen[T("b")], revision="other")},
    "what is left behind moves away": lambda p, seen: {"c": deployed(p.tables[T("c")], bindings={"a": 7})},
    "a reader comes": lambda p, seen: {"e": deployed(project(table("e", "a")).tables[T("e")])},
    "its parent goes": lambda p, seen: {"src": ObservedDeployment("absent")},
}


def after(move: Move | None) -> dict[T, ObservedDeployment]:
    declared, seen = world()
    return {**seen, **{T(name): one for name, one in (move(declared, seen) if move else {}).items()}}


def planned(move: Move | None = None, *, room: Headroom | None = None) -> Plan:
    return make_plan(world()[0], "dev", after(move), PlanRequest(tables=(T("a"),), rebuild=True), headroom=room)


@pytest.mark.parametrize("move", OUTSIDE.values(), ids=OUTSIDE)
def test_the_world_outside_of_a_plan_does_not_change_its_hash(move: Move) -> None:
    declared, seen = world()
    assert any(seen.get(T(name)) != one for name, one in move(declared, seen).items())
    assert planned(move).hash == planned().hash
    assert moved_since(planned().preconditions, after(move)) == ()


SENTENCES = {
    "it is rebuilt meanwhile": "a: version was 1, now 2",
    "its checkpoint is another": "a: checkpoint_id was a-1, now other",
    "a child is stopped": "b: wanted was running, now stopped",
    "a child's text is another": "b: revision was same, now other",
    "what is left behind moves away": "a: its readers were b v1, c v1, now b v1, c v7",
    "a reader comes": "a: its readers were b v1, c v1, now b v1, c v1, e v1",
    "its parent goes": "src: state was running, now absent",
}


@pytest.mark.parametrize("name", INSIDE)
def test_the_world_inside_of_a_plan_changes_its_hash_and_is_named(name: str) -> None:
    assert planned(INSIDE[name]).hash != planned().hash
    assert SENTENCES[name] in moved_since(planned().preconditions, after(INSIDE[name]))


def test_room_that_a_verdict_does_not_turn_on_does_not_change_the_hash() -> None:
    first = planned(room=Headroom(1.0, disk_free=10**12, disk_total=10**12, cores=8, busy=0.1))
    assert planned(room=Headroom(2.0, disk_free=10**12 - 5, disk_total=10**12, cores=8, busy=0.11)).hash == first.hash


def test_a_fluctuating_load_does_not_change_the_hash() -> None:
    quiet, loaded = (planned(room=Headroom(1.0, cores=2, busy=busy)) for busy in (0.1, 5.0))
    verdicts = [next(guard.verdict for guard in each.guards if guard.name == "pool") for each in (quiet, loaded)]
    assert verdicts == ["ok", "warn"] and quiet.hash == loaded.hash
    assert [each.matters for each in compare_plans(quiet, loaded)] == [False]


def _moved_on(seen: ObservedDeployment) -> ObservedDeployment:
    version = seen.highest_version + 1
    return replace(seen, version=version, highest_version=version, kept=(seen.version,), retained=(seen.version,))


CHANGES: tuple[Callable[[ObservedDeployment], ObservedDeployment], ...] = (
    lambda seen: replace(seen, state="failed"),
    lambda seen: replace(seen, state="stopped", wanted="stopped"),
    lambda seen: replace(seen, checkpoint_id="other"),
    lambda seen: replace(seen, checkpoint_ok=False),
    lambda seen: replace(seen, revision="other"),
    lambda seen: replace(seen, state="absent", version=0, bindings=()),
    _moved_on,
)


@given(cases(largest=40), st.sampled_from(CHANGES), st.integers(0, 99))
@settings(max_examples=times(8), deadline=None)
def test_no_change_outside_the_scope_of_a_plan_changes_its_hash(
    case: tuple[World, PlanRequest], change: Callable[[ObservedDeployment], ObservedDeployment], which: int
) -> None:
    drawn, request = case
    found = drawn.plan(request)
    outside = [name for name in _far_from(found, drawn) if drawn.seen(name).version]
    if found.refusals or found.empty or not outside:
        return
    name = outside[which % len(outside)]
    moved_on = replace(drawn, observed={**drawn.observed, name: change(drawn.seen(name))})
    assert moved_on.plan(request).hash == found.hash
    assert moved_since(found.preconditions, moved_on.observed) == ()


def _far_from(found: Plan, drawn: World) -> list[T]:
    """Return the tables that neither read nor are read by a table that a plan contains or leaves behind."""
    inside = {node.table for node in found.nodes} | {left.table for left in found.left_behind}
    near = {binding.parent for name in inside for binding in drawn.seen(name).bindings}
    near |= {reader for name in inside for reader in drawn.readers(name)}
    for name, made in drawn.declared.tables.items():
        reads = {read.table for read in made.parsed.reads} if made.parsed else set()
        near |= reads if name in inside else {name} if reads & inside else set()
    return [name for name in drawn.names() if name not in inside | near]
