"""Holds: where a plan waits for confirmation before its swap, and how it says so."""

from dataclasses import replace

import pytest

from core.model.names import TableName as T
from core.observed.planner_input import Seconds
from core.observed.table_statistics import TableStatistics
from core.plan.descriptions import step_line
from core.plan.predictions import predict
from core.plan.rendering import head_parts
from core.plan.request import PlanRequest, command_words
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from tests.core.planner.test_rollback import SHOP as BACK
from tests.core.planner.test_rollback import released
from tests.support.domain_builders import plan, project, running, steps, table

SHOP = project(src="", a="src", b="a")
REBUILD = PlanRequest(tables=(T("a"),), rebuild=True, children="all")


def test_every_version_catches_up_before_the_hold_and_nothing_swaps_without_a_confirmation() -> None:
    found = make_plan(SHOP, "dev", running(SHOP), replace(REBUILD, hold=True))
    assert steps(found) == [
        "create a@2", "start a@2 < 1", "catch_up a@2 < 2", "create b@2 < 2", "start b@2 < 2,4", "catch_up b@2 < 3,5",
        "validate a@2 < 3", "validate b@2 < 6", "hold b+a < 3,6,7,8", "swap b+a < 9", "stop b@1 < 10",
        "stop a@1 < 10,11",
    ]  # fmt: skip
    assert step_line(found.steps[8]) == "  9 hold b a   needs 3, 6, 7, 8"
    assert any("headgate release swap RUN" in warned.summary for warned in found.warnings)
    assert "--hold" in command_words(found.request)


def test_the_policy_holds_what_replaces_a_version_and_nothing_else() -> None:
    strict = Policy(hold=True)
    held = make_plan(SHOP, "dev", running(SHOP), REBUILD, policy=strict)
    assert [step.do for step in held.steps].count("hold") == 1 and not held.request.hold
    first = make_plan(SHOP, "dev", {}, PlanRequest(everything=True), policy=strict)
    assert "hold" not in {step.do for step in first.steps}, "a first start replaces nothing"
    assert held.hash != make_plan(SHOP, "dev", running(SHOP), REBUILD, policy=Policy()).hash


def test_a_held_plan_that_replaces_nothing_says_so() -> None:
    said = "nothing is held: it replaces no version"
    first = make_plan(SHOP, "dev", {}, PlanRequest(everything=True, hold=True))
    assert first.steps and said in head_parts(first)
    assert said not in head_parts(make_plan(SHOP, "dev", running(SHOP), replace(REBUILD, hold=True)))
    assert said not in head_parts(make_plan(SHOP, "dev", {}, PlanRequest(everything=True)))


def test_a_rollback_waits_for_no_confirmation() -> None:
    request = PlanRequest(verb="rollback", tables=(T("a"),))
    found = make_plan(BACK, "dev", released(), request, policy=Policy(hold=True))
    assert found.steps and "hold" not in {step.do for step in found.steps}


@pytest.mark.parametrize("verb", ["delete", "rollback"])
def test_only_a_deploy_is_asked_to_hold(verb: str) -> None:
    (refused,) = [r for r in plan(SHOP, running(SHOP), "b", verb=verb, hold=True).refusals if "--hold" in r.summary]
    assert refused.summary == f"--hold does not apply to a {verb}"


def test_the_eta_excludes_the_wait_for_a_confirmation() -> None:

    found = make_plan(SHOP, "dev", running(SHOP), replace(REBUILD, hold=True))
    nodes = [replace(node, replay_rows=0) for node in found.nodes]
    known = {kind: Seconds(1.0, 2.0) for kind in ("create", "start", "swap", "stop", "hold")}
    plain = make_plan(SHOP, "dev", running(SHOP), REBUILD)
    with_hold, without = (predict(nodes, p.steps, lambda t: TableStatistics(), known).whole for p in (found, plain))
    assert with_hold == without and with_hold is not None


def test_a_restart_in_place_says_how_to_request_a_version_that_can_be_held() -> None:
    edited = project(table("a", "src", mark="new"), src="", b="a")
    found = make_plan(edited, "dev", running(SHOP), replace(REBUILD, rebuild=False, hold=True))
    assert {node.action for node in found.nodes if node.table == "a"} == {"restart"}
    assert "nothing is held: it goes on in place; --rebuild makes a version to hold" in head_parts(found)
    assert not any("version" in warned.summary for warned in found.warnings)
