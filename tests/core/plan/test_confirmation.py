"""Confirmation levels over their whole table."""

import pytest

from core.plan.confirmation import Confirmation, confirmation_for_act, confirmation_for_plan, confirmation_for_policy
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.policy.roles_and_rules import Policy
from tests.support.domain_builders import plan, project, running, table

MANY = tuple(f"t{n:02}" for n in range(21))


@pytest.mark.parametrize("act", ["stop", "start", "restart"])
@pytest.mark.parametrize(
    ("tables", "protected", "expected"),
    [
        (("a",), False, Confirmation("C1", "yes")),
        (("a",), True, Confirmation("C2", "a")),
        (("a", "b"), False, Confirmation("C2", "2")),
        (("a", "b", "a"), True, Confirmation("C2", "2")),
        (MANY[:20], False, Confirmation("C2", "20")),
    ],
)
def test_an_act_asks_for_its_level(act: str, tables: tuple[str, ...], protected: bool, expected: Confirmation) -> None:
    assert confirmation_for_act(act, tables, protected) == expected


@pytest.mark.parametrize("act", ["look", "mark", "stage", "unstage"])
def test_reversible_changes_need_no_confirmation(act: str) -> None:
    assert confirmation_for_act(act, MANY, True) == Confirmation("C0", "")


@pytest.mark.parametrize("act", ["cancel", "skip"])
def test_acts_on_a_run_name_it(act: str) -> None:
    assert confirmation_for_act(act, ("9f2c",), False) == Confirmation("C2", "9f2c")


def test_a_large_set_asks_for_environment_and_hash_of_exactly_that_set() -> None:
    one = confirmation_for_act("stop", MANY, False, environment="prod")
    assert one.level == "C3" and one.text.startswith("prod ") and len(one.text) == 9
    assert confirmation_for_act("stop", tuple(reversed(MANY)), False, environment="prod") == one
    assert confirmation_for_act("stop", (*MANY[1:], "x"), False, environment="prod") != one


def test_a_destructive_plan_asks_for_environment_and_hash() -> None:
    declared = project(src="", a="src")
    for found in (
        plan(declared, running(declared), "a", rebuild=True),
        plan(declared, running(declared), "a", verb="delete"),
    ):
        assert confirmation_for_plan(found) == Confirmation("C3", f"dev {found.hash[:4]}")


def test_a_plan_that_another_must_approve_asks_for_its_own_name() -> None:
    one = project(src="", a="src")
    asking = make_plan(one, "dev", {}, PlanRequest(everything=True), policy=Policy(approve=("all",)))
    assert confirmation_for_plan(asking) == Confirmation("C4", f"dev {asking.hash[:4]}")


@pytest.mark.parametrize("protected", [False, True])
def test_a_policy_is_confirmed_as_its_environment_is_and_approved_by_its_own_digest(protected: bool) -> None:
    recorded = confirmation_for_policy("apply", "9f2c44", protected, environment="prod")
    assert recorded == (Confirmation("C2", "prod") if protected else Confirmation("C1", "yes"))
    approved = confirmation_for_policy("approve", "9f2c44", protected, environment="prod")
    assert approved == Confirmation("C3", "prod 9f2c")


def test_a_plan_for_one_statement_asks_for_yes_and_external_tables_do_not_count() -> None:
    assert confirmation_for_plan(plan(project(src="", a="src"), {})) == Confirmation("C1", "yes")
    protected = project(src="", a="src", protected=True)
    assert confirmation_for_plan(plan(protected, {})) == Confirmation("C2", "a")


def test_a_plan_for_several_statements_asks_for_their_count() -> None:
    assert confirmation_for_plan(plan(project(src="", a="src", b="a"), {})) == Confirmation("C2", "2")
    many = project(table("src"), *(table(name, "src") for name in MANY))
    assert confirmation_for_plan(plan(many, {})).level == "C3"
