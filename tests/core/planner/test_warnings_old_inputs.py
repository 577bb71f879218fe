"""A reader left behind between two tables: everything below it continues with rows of the old version."""

from typing import Any

import pytest

from core.model.names import TableName as T
from core.plan.model import Plan
from core.plan.request import StrategyChoice
from core.project.model import Project
from tests.support.domain_builders import plan, project, running, table

ONLY_A = (StrategyChoice(T("a"), "earliest"),)
B = {"exclude": (T("b"),)}


def declared(*tables: str, **products: str) -> Project:
    """Declare tables written as `c<b`, of product p unless given."""
    pairs = [each.split("<") for each in tables]
    return project(table("src"), *(table(name, reads, product=products.get(name, "p")) for name, reads in pairs))


def said(found: Plan, name: str) -> list[str]:
    return [warned.summary for warned in found.warnings if warned.table == name]


CHAIN = declared("a<src", "b<a", "c<b")


@pytest.mark.parametrize(
    "request_",
    [
        {**B, "rebuild": True},
        {**B, "choices": ONLY_A},
        {"children": "none", "rebuild": True},
        {"children": "none", "choices": ONLY_A},
    ],
)
def test_a_table_left_behind_between_two_requested_ones_is_named_for_the_lower(
    request_: dict[str, Any],
) -> None:
    found = plan(CHAIN, running(CHAIN), "a", "c", **request_)
    assert said(found, "c") == ["will not see the new a: b between them stays on a__v1"]


def test_a_reader_of_another_product_or_excluded_from_the_request_is_named_too() -> None:
    other = declared("a<src", "b<a", "c<b", b="crm")
    assert said(plan(other, running(other), "a", "c", choices=ONLY_A), "c") == [
        "will not see the new a: b between them stays on a__v1"
    ]
    assert said(plan(CHAIN, running(CHAIN), rebuild=True, **B), "c") == [
        "will not see the new a: b between them stays on a__v1"
    ]


def test_a_reader_left_behind_above_a_table_that_starts_is_named_too() -> None:
    world = running(CHAIN)
    del world[T("c")]
    assert said(plan(CHAIN, world, "a", "c", choices=ONLY_A, **B), "c") == [
        "will not see the new a: b between them stays on a__v1"
    ]


def test_the_reader_that_stays_is_named_through_everything_below_it() -> None:
    deep = declared("a<src", "b<a", "m<b", "c<m")
    found = plan(deep, running(deep), "a", "c", choices=ONLY_A, children="none")
    assert said(found, "c") == ["will not see the new a: b between them stays on a__v1"]


def test_several_that_stay_are_named_together() -> None:
    wide = declared("a<src", "b<a", "d<a", "c<b d")
    found = plan(wide, running(wide), "a", "c", choices=ONLY_A, children="none")
    assert said(found, "c") == ["will not see the new a: b, d between them stay on a__v1"]


def test_if_another_path_leads_to_the_new_table_both_are_named() -> None:
    diamond = declared("a<src", "b<a", "d<a", "c<b d")
    found = plan(diamond, running(diamond), "a", "c", choices=ONLY_A, **B)
    assert said(found, "c") == ["sees the new a through d, and the old one through b, which stays on a__v1"]
    direct = declared("a<src", "b<a", "c<a b")
    assert said(plan(direct, running(direct), "a", "c", choices=ONLY_A, **B), "c") == [
        "reads the new a, and the old one through b, which stays on a__v1"
    ]


def test_an_included_reader_is_reported_as_well() -> None:
    direct = declared("a<src", "b<a", "c<a b")
    assert said(plan(direct, running(direct), "a", choices=ONLY_A, **B), "c") == [
        "reads the new a, and the old one through b, which stays on a__v1"
    ]


def test_a_rebound_static_side_provides_the_new_table() -> None:
    static = declared("a<src", "b<a", "e<src", "c<e a! b")
    found = plan(static, running(static), "a", "c", choices=ONLY_A, **B)
    assert said(found, "c") == ["reads the new a, and the old one through b, which stays on a__v1"]


def test_of_many_upstream_tables_the_first_are_named_and_the_others_counted() -> None:
    names = "stuv"
    wide = declared(
        *(f"{n}<src" for n in names), *(f"x{n}<{n}" for n in names), "c<" + " ".join(f"x{n}" for n in names)
    )
    choices = tuple(StrategyChoice(T(n), "earliest") for n in names)
    found = plan(wide, running(wide), *names, "c", choices=choices, children="none")
    assert said(found, "c") == [
        "gets old rows of 1 more table in the same way",
        *(f"will not see the new {n}: x{n} between them stays on {n}__v1" for n in "stu"),
    ]


def test_nothing_is_reported_if_all_readers_move_or_the_table_restarts_in_place() -> None:
    assert said(plan(CHAIN, running(CHAIN), "a", "c", choices=ONLY_A), "c") == []
    old = declared("a<src", "b<a", "c<b")
    new = project(table("src"), table("a", "src", mark="x"), *(old.tables[T(n)] for n in "bc"))
    assert said(plan(new, running(old), "c", **B), "c") == []


def test_an_unrequested_reader_that_stays_is_only_left_behind() -> None:
    found = plan(CHAIN, running(CHAIN), "a", choices=ONLY_A, **B)
    assert said(found, "c") == [] and [left.table for left in found.left_behind] == ["b", "c"]
