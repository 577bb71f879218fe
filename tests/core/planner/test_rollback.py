"""Rollbacks and undeletes: what is included, what is refused with which remedy, and what keeps running for others."""

from dataclasses import replace
from typing import Any

import pytest

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.observed.versions import Binding
from core.plan.model import Plan
from core.plan.preconditions import moved_since
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from core.project.model import Settings
from core.project_reader.revision_reader import revision_of
from tests.support.domain_builders import actions, deployed, plan, project, running, steps

SHOP = project(src="", a="src", b="a", c="b", other="a")


def former(name: str, version: int, **known: Any) -> OtherVersion:
    made = SHOP.tables[T(name)]
    bindings = deployed(made, bindings={"a": version, "b": version}).bindings
    return OtherVersion(version, "old", bindings, texts=revision_of(made).texts, **known)


def released(**known: dict[str, Any]) -> dict[T, ObservedDeployment]:
    """Observe a and b after run r9 has moved both to v2; `known` overrides fields of any table."""
    found = {T("src"): deployed(SHOP.tables[T("src")])}
    for name in ("a", "b"):
        made = deployed(SHOP.tables[T(name)], version=2, bindings={"a": 2})
        found[T(name)] = replace(made, served_by="r9", former=former(name, 1), kept=(1,))
    for name in ("c", "other"):
        found[T(name)] = ObservedDeployment()
    return {name: replace(seen, **known.get(name, {})) for name, seen in found.items()}


def back(*tables: str, world: dict[T, ObservedDeployment] | None = None, verb: str = "rollback") -> Plan:
    return plan(SHOP, released() if world is None else world, *tables, verb=verb)


def test_a_rollback_covers_the_whole_release_and_stops_its_versions() -> None:
    found = back("a")
    assert actions(found) == {"src": "keep", "a": "rollback", "b": "rollback"} and found.destructive
    assert steps(found) == [
        "resume a@1",
        "catch_up a@1 < 1",
        "resume b@1 < 1",
        "catch_up b@1 < 2,3",
        "swap b+a < 2,4",
        "stop b@2 < 5",
        "stop a@2 < 5,6",
    ]
    assert found.nodes[2].because_of == (T("a"),) and found.hash == back("a").hash != back("b").hash


def test_a_version_that_still_runs_is_not_started_again() -> None:
    running = {name: {"former": former(name, 1, running=True), "retained": (1,)} for name in ("a", "b")}
    found = back("b", world=released(**running))
    assert steps(found)[:3] == ["catch_up a@1", "catch_up b@1 < 1", "swap b+a < 1,2"]
    assert {node.replay_rows for node in found.nodes if node.action != "keep"} == {0}
    assert "no additional statements on local" in {guard.summary for guard in found.guards}
    assert "2 additional statements on local" in {guard.summary for guard in back("b").guards}


def test_soaking_versions_count_towards_the_statements_of_a_policy() -> None:
    running = {name: {"former": former(name, 1, running=True), "retained": (1,)} for name in ("a", "b")}
    asked = PlanRequest(tables=(T("a"),), rebuild=True, children="all")
    for world, allowed in ((released(), 4), (released(**running), 6)):
        for most, refusals in ((allowed, 0), (allowed - 1, 1)):
            made = make_plan(SHOP, "dev", world, asked, policy=Policy(max_statements=most))
            assert len(made.refusals) == refusals, (most, made.guards)


def test_a_version_read_from_outside_the_release_keeps_running_with_its_inputs() -> None:
    c = deployed(SHOP.tables[T("c")], bindings={"b": 2})
    found = back("a", world=released() | {T("c"): c})
    assert not any(step.startswith("stop") for step in steps(found))
    assert [(left.table, left.reads) for left in found.left_behind] == [("c", "b__v2")]
    assert sum("keeps running: tables outside of this release" in w.summary for w in found.warnings) == 2


@pytest.mark.parametrize(
    ("world", "summary", "remedy"),
    [
        ({"a": {"former": None}}, "a has no earlier version that served", "headgate plan undo PLAN"),
        ({"a": {"former": None, "version": 1}}, "a has no earlier version that served", "headgate plan delete a"),
        ({"a": {"state": "absent", "version": 0}}, "a is not deployed", "start it: headgate plan a"),
        ({"a": {"former": former("a", 1, checkpoint_ok=False)}}, 
         "a__v1 cannot resume: its checkpoint or a table", "plan undo"),
        ({"b": {"former": former("b", 7)}},
         "b__v7 reads a__v7, which no longer gets rows", "plan undo"),
    ],
)  # fmt: skip
def test_an_edit_that_cannot_continue_is_refused_with_the_alternative(
    world: dict[str, Any], summary: str, remedy: str
) -> None:
    found = back("a", "b", world=released(**world))
    assert any(summary in r.summary and remedy in r.remedy for r in found.refusals) and not found.steps


def test_options_of_a_deploy_do_not_apply() -> None:
    (refused,) = plan(SHOP, released(), "a", verb="rollback", rebuild=True).refusals
    assert refused.summary == "--rebuild does not apply to a rollback"
    assert "takes tables by name" in plan(SHOP, released(), "a", verb="undelete", layers=("fact",)).refusals[0].summary


def test_the_files_that_hold_a_newer_text_are_named() -> None:
    other = replace(former("a", 1), texts=replace(former("a", 1).texts, dml="SELECT 1"))
    found = back("a", world=released(a={"former": other}))
    assert any(w.summary.startswith("the files of a hold other texts") for w in found.warnings)


def test_deleted_tables_come_back_sources_first_and_are_served_again() -> None:
    gone = {
        T(name): ObservedDeployment(highest_version=2, in_trash=former(name, 1, drop_after=99.0)) for name in ("a", "b")
    }
    found = back("a", "b", world={T("src"): deployed(SHOP.tables[T("src")]), **gone}, verb="undelete")
    assert steps(found) == [
        "restore a@1",
        "resume a@1 < 1",
        "swap a < 2",
        "restore b@1 < 2",
        "resume b@1 < 2,4",
        "swap b < 5",
    ]
    assert actions(found) == {"src": "keep", "a": "undelete", "b": "undelete"}


def test_a_plan_is_superseded_once_an_older_version_that_it_reads_stops() -> None:
    world = released(
        a={"retained": (1,), "kept": (1,)},
        b={"served_by": "r8", "bindings": (Binding(T("src"), 0, True),), "former": former("b", 1)},
    )
    found = back("b", world=world)
    assert not found.refusals and not moved_since(found.preconditions, world)
    moved = world | {T("a"): replace(world[T("a")], retained=())}
    assert moved_since(found.preconditions, moved) == ("a: its older versions that run were v1, now none",)


@pytest.mark.parametrize("verb", ["rollback", "undelete"])
def test_an_action_on_a_remaining_input_supersedes_the_plan(verb: str) -> None:
    world = released(b={"served_by": "r8", "bindings": (Binding(T("src"), 0, True),), "former": former("b", 2)})
    if verb == "undelete":
        world[T("b")] = ObservedDeployment(highest_version=2, in_trash=former("b", 2))
    found = back("b", world=world, verb=verb)
    assert not found.refusals and actions(found) == {"a": "keep", "b": verb}
    moved = world | {T("a"): replace(world[T("a")], version=3, highest_version=3)}
    assert moved_since(found.preconditions, moved) and not moved_since(found.preconditions, world)


def test_a_table_is_restored_only_together_with_its_inputs() -> None:
    gone = {
        T(name): ObservedDeployment(highest_version=2, in_trash=former(name, 1, drop_after=99.0)) for name in ("a", "b")
    }
    (refused,) = back("b", world=gone, verb="undelete").refusals
    assert refused.remedy == "headgate undelete a b"
    assert back("a", verb="undelete").refusals[0].summary == "a is deployed"
    empty = {T("a"): ObservedDeployment()}
    assert back("a", world=empty, verb="undelete").refusals[0].remedy == "start it anew: headgate plan a"


def test_no_remedy_leads_to_the_same_refusal() -> None:
    world = released(b={"served_by": "r8", "former": former("b", 1)})
    world[T("a")] = ObservedDeployment(highest_version=1, in_trash=former("a", 1))
    assert back("b", world=world).refusals[0].remedy == "headgate undelete a"
    world[T("b")] = ObservedDeployment(highest_version=2, in_trash=former("b", 2))
    for tables in (("b",), ("a", "b")):
        (refused,) = back(*tables, world=world, verb="undelete").refusals
        assert (refused.table, refused.remedy) == ("b", "start it anew: headgate plan b")
    world[T("b")] = ObservedDeployment(highest_version=1, in_trash=former("b", 1, checkpoint_ok=False))
    assert "start it anew: headgate plan b" in {r.remedy for r in back("a", "b", world=world, verb="undelete").refusals}


def test_a_table_that_is_no_longer_declared_can_be_restored_as_well() -> None:
    lone = project(src="")
    seen = ObservedDeployment(
        highest_version=1, in_trash=replace(former("a", 1), bindings=(Binding(T("src"), 0, True),))
    )
    found = plan(lone, {T("src"): deployed(lone.tables[T("src")]), T("a"): seen}, "a", verb="undelete")
    assert [step.partition(" ")[0] for step in steps(found)] == ["restore", "resume", "swap"]


def test_rolling_back_a_protected_table_needs_another_logins_approval() -> None:
    made = replace(SHOP.tables[T("b")], settings=Settings(protect=True))
    shop = replace(SHOP, tables={**SHOP.tables, T("b"): made})
    assert plan(shop, released(), "a", verb="rollback").approvals == 1 and back("a").approvals == 0


def test_a_refusal_names_every_table_that_nothing_fills_and_what_restores_them_all() -> None:
    two = project(src="", a="src", b="src", c="a, b")
    reads = (Binding(T("a"), 1, True), Binding(T("b"), 1, True))
    gone = {
        T(name): ObservedDeployment(highest_version=1, in_trash=replace(former("a", 1), bindings=bound))
        for name, bound in (("a", ()), ("b", ()), ("c", reads))
    }
    world = {T("src"): deployed(two.tables[T("src")]), **gone}
    (refused,) = plan(two, world, "c", verb="undelete").refusals
    assert refused.summary == "c__v1 reads a__v1 and b__v1, which no longer get rows"
    assert refused.remedy == "headgate undelete a b c" and not plan(two, world, "a", "b", "c", verb="undelete").refusals


def test_an_undelete_names_purged_later_versions_and_expires_with_the_trash() -> None:
    aside = former("a", 1, drop_after=99.0, outlived=(2, 3))
    world = {T("src"): deployed(SHOP.tables[T("src")]), T("a"): ObservedDeployment(highest_version=3, in_trash=aside)}
    found = back("a", world=world, verb="undelete")
    assert any(w.summary.startswith("a__v2, a__v3 served later, but no files are left") for w in found.warnings)
    over = world | {T("a"): ObservedDeployment(highest_version=3)}
    assert moved_since(found.preconditions, over) == ("a: its version in the trash was v1, now none",)
    assert not moved_since(found.preconditions, world)


@pytest.mark.parametrize(("minutes", "said"), [(0.0, False), (30.0, True)])
def test_the_undo_of_a_release_says_until_when_it_takes_seconds(minutes: float, said: bool) -> None:
    declared = project(src="", a="src")
    here = replace(declared.environments["dev"], soak_min=minutes)
    found = plan(replace(declared, environments={"dev": here}), running(declared), "a", rebuild=True)
    (way,) = found.undo
    assert way.act == "rollback"
    assert way.words.endswith("; it takes seconds for 30 min after the swap") is said
