"""Every option of a request, alone and in pairs: a plan or a refusal with a reason, always the same bytes."""

from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import pytest

from core.model.actions import Strategy
from core.model.names import TableName as T
from core.plan.codec import canonical_text, plan_as_json, request_as_json, request_from_json
from core.plan.model import Plan
from core.plan.request import EARLIEST, NOW, PlanRequest, PromotedRevision, StrategyChoice
from core.planner.planner import make_plan
from tests.core.planner.test_planner_properties import DELETE, DEPLOY, Case
from tests.support.domain_builders import project, running, table
from tests.support.random_worlds import World

DECLARED = project(
    table("src"),
    table("a", "src", product="p", columns="id bigint, ts timestamp"),
    table("b", "a", product="p", stateful=True),
    table("c", "b", product="q"),
    table("u", "a", product="p", unit="set"),
    table("w", "a", product="p", unit="set"),
)
OBSERVED = running(DECLARED, c="failed", w="stopped")
WORLD = World(DECLARED, OBSERVED)

OPTIONS: tuple[dict[str, Any], ...] = (
    {"tables": (T("a"),)},
    {"tables": (T("c"), T("u"))},
    {"products": ("q",)},
    {"layers": ("fact",)},
    {"folders": ("pipelines/facts/p",)},
    {"pipelines": (T("c"),)},
    {"changed_since": "main"},
    {"gone": (T("x"),)},
    {"settings": ("pool.cores", "policy.freeze")},
    {"everything": True},
    {"children": "none"},
    {"children": "all"},
    {"children": "q"},
    {"exclude": (T("b"),)},
    {"exclude": (T("u"),)},
    {"rebuild": True},
    {"keep_table": True},
    {"hold": True},
    {"start": EARLIEST},
    {"start": NOW},
    {"start": "2026-09-01"},
    {"continues": "run-1"},
    {"nonce": "n"},
    {"undoes": "7f3a"},
    {"promoted_from": "stage"},
    {"promotes": (PromotedRevision(T("a"), "7f3a", "91bc"),)},
    {"with_parents": True},
    {"drains": "large"},
    {"drains_to": "small"},
    {"lost": True},
    {"retain_h": "168"},
    *({"choices": (StrategyChoice(T("a"), strategy),)} for strategy in Strategy),
    {"choices": (StrategyChoice(T("b"), Strategy.PARTIAL, "2026-09-01"),)},
)
PAIRS = [{**one, **other} for one, other in combinations(OPTIONS, 2) if not one.keys() & other.keys()]
VERBS = ("deploy", "delete")


def test_every_option_of_a_request_is_tried() -> None:
    assert {name for option in OPTIONS for name in option} == {f.name for f in fields(PlanRequest)} - {"verb"}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_an_option_alone(verb: str, option: dict[str, Any]) -> None:
    holds({"verb": verb, **option})
    holds({"verb": verb, "tables": (T("a"),), **option})


@pytest.mark.sampled
@pytest.mark.parametrize("verb", VERBS)
def test_every_pair_of_options(verb: str) -> None:
    for pair in PAIRS:
        holds({"verb": verb, **pair})
        holds({"verb": verb, "tables": (T("a"),), **pair})
    assert len(PAIRS) > 300


def holds(asked: dict[str, Any]) -> None:
    """Plan twice, from requests in different order, and check all properties of a plan."""
    request = PlanRequest(**asked)
    plan, again = made(request), made(replace(request, tables=tuple(reversed(request.tables))))
    assert canonical_text(plan_as_json(plan)) == canonical_text(plan_as_json(again)), asked
    assert request_from_json(request_as_json(plan.request)) == plan.request, asked
    assert plan.steps or plan.refusals or all(node.action == "keep" for node in plan.nodes), asked
    assert all(refusal.summary and refusal.remedy for refusal in plan.refusals), asked
    for property_ in DELETE if request.verb == "delete" else PROPERTIES:
        property_(Case(WORLD, plan.request, plan))


PROPERTIES = tuple(
    holds
    for holds in DEPLOY
    if holds.__name__ not in ("touches_foreign_products_only_upwards_or_as_asked", "is_never_milder_than_a_parent_asks")
)
"""The properties to check. Two are excluded: layers and folders reach other products, and a choice may be milder."""


def made(request: PlanRequest) -> Plan:
    return make_plan(DECLARED, "dev", OBSERVED, request)
