"""Retirements: which versions go to the trash, in which order, and what prevents it."""

from dataclasses import replace
from typing import Any

import pytest

from core.model.names import TableName as T
from core.observed.planner_input import ObservedDeployment, OpenTicket
from core.observed.versions import Binding
from core.plan.confirmation import confirmation_for_plan
from core.plan.descriptions import action_words
from core.plan.model import Plan
from core.plan.request import PlanRequest, command_words
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from tests.core.planner.test_rollback import SHOP, former, released
from tests.support.domain_builders import actions, deployed, plan, steps

Observed = dict[T, ObservedDeployment]


def running_on() -> dict[str, dict[str, Any]]:
    return {name: {"former": former(name, 1, running=True), "retained": (1,)} for name in ("a", "b")}


def retired(*tables: str, world: Observed | None = None) -> Plan:
    return plan(SHOP, released() if world is None else world, *tables, verb="retire")


def test_replaced_versions_go_to_the_trash_readers_first() -> None:
    found = retired("a", "b")
    assert actions(found) == {"a": "retire", "b": "retire"} and found.destructive
    assert steps(found) == ["tombstone b@1", "tombstone a@1 < 1"]
    assert [action_words(node) for node in found.nodes] == ["retire v1", "retire v1"]
    assert confirmation_for_plan(found).level == "C3" and command_words(found.request) == ["plan", "retire", "a", "b"]
    assert {way.act for way in found.undo} == {""} and {node.undo for node in found.nodes} == {"none"}
    assert sum("no longer possible" in warned.summary for warned in found.warnings) == 2


def test_running_versions_are_stopped_first_readers_before_inputs() -> None:
    found = retired("a", "b", world=released(**running_on()))
    assert steps(found) == ["stop b@1", "stop a@1 < 1", "tombstone b@1 < 1", "tombstone a@1 < 2,3"]


def test_every_replaced_version_is_retired_and_no_orphan_of_a_failed_run() -> None:
    from core.observed.planner_input import OtherVersion

    many = {"a": {"kept": (1, 3, 4), "orphan_versions": (OtherVersion(4, "r"),), "version": 5, "former": None}}
    assert steps(retired("a", world=released(**many))) == ["tombstone a@3", "tombstone a@1"]


def test_a_clone_that_never_served_is_removed_because_it_keeps_files_of_its_base() -> None:
    from core.observed.planner_input import OtherVersion

    left = {"kept": (3, 4), "orphan_versions": (OtherVersion(4, "r"), OtherVersion(3, "q")), "former": None}
    assert steps(retired("a", world=released(a={**left, "clones": ((3, 2),)}))) == ["tombstone a@3"]
    assert steps(retired("a", world=released(a={**left, "clones": ((3, 2), (4, 3))}))) == [
        "tombstone a@4",
        "tombstone a@3 < 1",
    ]


def test_a_version_that_is_read_stays_with_its_readers_named() -> None:
    world = released()
    world[T("c")] = deployed(SHOP.tables[T("c")], bindings={"b": 1})
    (refused,) = retired("a", "b", world=world).refusals
    assert (refused.summary, refused.remedy) == (
        "b__v1 is read by c (p)",
        "move it to the serving version: headgate plan c",
    )


def test_a_running_reader_version_prevents_it_and_one_at_rest_causes_a_warning() -> None:
    (refused,) = retired("a", world=released(**running_on())).refusals
    assert (refused.summary, refused.remedy) == ("a__v1 is read by b__v1, which is kept running", "retire b as well")
    found = retired("a")
    assert not found.refusals
    assert any(w.summary == "b can no longer be rolled back to v1, which reads a__v1" for w in found.warnings)


def test_a_failed_replaced_version_that_is_wanted_running_prevents_it_too() -> None:
    failed = {name: {"former": former(name, 1), "retained": (1,)} for name in ("a", "b")}
    (refused,) = retired("a", world=released(**failed)).refusals
    assert refused.summary == "a__v1 is read by b__v1, which is kept running"


def test_rows_that_only_a_retired_version_holds_are_warned_of() -> None:
    where = ("src.at >= '2026-09-01'",)
    found = retired("a", "b", world=released(a={"begins_where": where}, b={"begins_where": where, "rows_before": True}))
    said = [(w.table, w.summary) for w in found.warnings if " starts " in w.summary]
    assert said == [("a", f"v2 starts WHERE {where[0]}: only the retired versions hold earlier rows")]
    found = retired("a", "b", world=released(b={"begins_after": "batch 12 of b@v1"}))
    assert [w.table for w in found.warnings if "v2 starts after batch 12 of b@v1: " in w.summary] == ["b"]


def test_an_open_ticket_prevents_it() -> None:
    world = released(a={"tickets": (OpenTicket("BI team", 1, "r9"), OpenTicket("old", 7, "r1"))})
    (refused,) = retired("a", world=world).refusals
    assert refused.summary == "BI team has an open ticket on a__v1"
    assert refused.remedy == "once it has moved: headgate release close r9 'BI team'"


@pytest.mark.parametrize(
    ("table", "world", "summary"),
    [
        ("src", {}, "src is external: others write it"),
        ("c", {}, "c is not deployed"),
        ("a", {"a": {"kept": (), "former": None}}, "a has no replaced version to retire"),
    ],
)
def test_a_table_without_replaced_versions_is_refused(table: str, world: dict[str, Any], summary: str) -> None:
    assert [r.summary for r in retired(table, world=released(**world)).refusals] == [summary]


def test_a_policy_that_asks_for_deletes_asks_for_retirements() -> None:
    request = PlanRequest(verb="retire", tables=(T("a"), T("b")))
    for policy, approvals in ((Policy(approve=("delete",)), 1), (Policy(protected_tables=(T("b"),)), 1), (Policy(), 0)):
        assert make_plan(SHOP, "dev", released(), request, policy=policy).approvals == approvals


def test_a_serving_version_with_it_as_a_static_side_is_a_reader_too() -> None:
    world = released()
    seen = world[T("b")]
    world[T("b")] = replace(seen, bindings=(Binding(T("a"), 1, False),), former=None, kept=())
    assert [r.summary for r in retired("a", world=world).refusals] == ["a__v1 is read by b (p)"]


def test_a_retirement_says_when_its_versions_are_purged() -> None:
    (way,) = retired("a", "b").undo
    assert way.words == "no command takes a retired version out of the trash; it is purged 7 days after the run"
