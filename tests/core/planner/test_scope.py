"""Scopes: what each option selects, alone and in pairs; order and repetition do not change a request's bytes."""

import json
from collections.abc import Mapping
from itertools import combinations, permutations
from typing import Any

import pytest

from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment
from core.plan.codec import canonical_text, plan_as_json, request_as_json, request_from_json
from core.plan.rendering import request_words
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.context import planning_context
from core.planner.scope import PlanScope, normal_request, resolve_scope
from core.project.model import Project
from core.project_reader.parse_cache import ParseCache
from tests.support import domain_builders
from tests.support.domain_builders import T

SHOP = domain_builders.project(
    domain_builders.table("src", product="raw"),
    domain_builders.table("a", "src", product="sales"),
    domain_builders.table("b", "a", product="sales"),
    domain_builders.table("c", "a", product="crm"),
    domain_builders.table("d", "c b", product="crm"),
    domain_builders.table("lone", "src", product="raw"),
)
"""A project of three products, in which a and lone read src, b and c read a, and d reads b and c."""

SCOPES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "table": ({"tables": (T("b"),)}, {"b"}),
    "product": ({"products": ("sales",)}, {"a", "b"}),
    "layer": ({"layers": ("source",)}, {"src"}),
    "folder": ({"folders": ("pipelines/facts/crm",)}, {"c", "d"}),
    "folder of a table": ({"folders": ("pipelines/facts/raw/lone",)}, {"lone"}),
    "folder in a table": ({"folders": ("pipelines/facts/crm/c/sql-scripts",)}, {"c"}),
    "project": ({"folders": (".",)}, set(SHOP.tables)),
    "all": ({"everything": True}, set(SHOP.tables)),
    "changed": ({"changed_since": "main", "tables": (T("d"),)}, {"d"}),
    "changed nothing": ({"changed_since": "main"}, set()),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {"children": "none"},
    "products": {"children": "sales,crm"},
    "every child": {"children": "all"},
    "exclude": {"exclude": (T("c"),)},
    "rebuild": {"rebuild": True},
    "keep": {"keep_table": True},
    "start": {"start": "now"},
    "strategy": {"choices": (StrategyChoice(T("a"), "seam"),)},
}


def resolved(
    request: PlanRequest, project: Project = SHOP, observed: Mapping[TableName, ObservedDeployment] | None = None
) -> PlanScope:
    context = planning_context(project, project.environments["dev"], observed or {}, ParseCache())
    return resolve_scope(normal_request(request), context)


def merged(*parts: dict[str, Any]) -> PlanRequest:
    """Return one request that combines these parts."""
    values: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            values[name] = (*values.get(name, ()), *value) if isinstance(value, tuple) else value
    return PlanRequest(**values)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_takes_what_it_names(scope: str) -> None:
    asked, tables = SCOPES[scope]
    found = resolved(PlanRequest(**asked))
    assert set(found.requested) == tables and found.refusals == () == found.warnings


@pytest.mark.parametrize(("one", "other"), list(combinations(SCOPES, 2)))
def test_two_scopes_take_what_either_takes(one: str, other: str) -> None:
    found = resolved(merged(SCOPES[one][0], SCOPES[other][0]))
    assert set(found.requested) == SCOPES[one][1] | SCOPES[other][1] and found.refusals == ()


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_beside_a_scope_keeps_the_scope(scope: str, option: str) -> None:
    asked, tables = SCOPES[scope]
    found = resolved(merged(asked, OPTIONS[option]))
    assert set(found.requested) == tables - ({"c"} if option == "exclude" else set()) and found.refusals == ()


@pytest.mark.parametrize(("one", "other"), list(combinations(OPTIONS, 2)))
def test_two_options_can_be_combined_or_the_reason_is_given(one: str, other: str) -> None:
    found = resolved(merged({"tables": (T("b"),)}, OPTIONS[one], OPTIONS[other]))
    said = [refusal.summary for refusal in found.refusals]
    contradict = ["a rebuild creates a new table, but --keep-table keeps the existing one"]
    assert said == (contradict if {one, other} == {"rebuild", "keep"} else [])


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_survives_a_round_trip_through_json(option: str) -> None:
    request = normal_request(merged(SCOPES["product"][0], SCOPES["layer"][0], SCOPES["folder"][0], OPTIONS[option]))
    assert request_from_json(request_as_json(request)) == request


def test_references_and_pipelines_survive_a_round_trip_through_json() -> None:
    found = {"changed_since": "main", "tables": (T("d"),), "gone": (T("x"),)}
    for asked in (found, {"verb": "delete", "pipelines": (T("d"),)}):
        request = normal_request(merged(asked))
        assert request_from_json(json.loads(canonical_text(request_as_json(request)))) == request


def test_the_bytes_of_a_request_know_neither_order_nor_repetition() -> None:
    parts = [SCOPES["table"][0], SCOPES["product"][0], {"tables": (T("a"), T("b"))}, {"products": ("crm", "crm")},
             {"exclude": (T("d"), T("c"))}]  # fmt: skip
    written = {canonical_text(request_as_json(normal_request(merged(*order)))) for order in permutations(parts)}
    assert len(written) == 1


def test_a_plan_does_not_depend_on_the_order_of_its_scopes() -> None:
    observed = domain_builders.running(SHOP)
    asked = [{"layers": ("fact", "source")}, {"folders": ("pipelines/facts/crm", "pipelines/facts/raw")}]
    made = {
        canonical_text(plan_as_json(domain_builders.plan(SHOP, observed, "b", **{**one, **other})))
        for one, other in permutations(asked)
    }
    assert len(made) == 1


@pytest.mark.parametrize(
    ("asked", "summary", "remedy"),
    [
        ({}, "the request names no tables", "name tables, a product, or everything"),
        ({"tables": (T("zzz"),)}, "there is no table zzz", "see the tables with `headgate ls`"),
        ({"tables": (T("lonee"),)}, "there is no table lonee", "did you mean lone?"),
        ({"products": ("slaes",)}, "there is no product slaes", "did you mean sales?"),
        ({"layers": ("view",)}, "there is no table of layer view", "layers with tables: fact, source"),
        ({"layers": ("facts",)}, "there is no layer facts", "did you mean fact?"),
        ({"folders": ("pipelines/fact",)}, "there is no table in pipelines/fact",
         "name a folder below pipelines/ that contains tables"),
        ({"everything": True, "children": "slaes"}, "there is no product slaes", "did you mean sales?"),
        ({"everything": True, "exclude": (T("lonee"),)}, "there is no table lonee", "did you mean lone?"),
        ({"everything": True, "choices": (StrategyChoice(T("lonee"), "seam"),)}, "there is no table lonee",
         "did you mean lone?"),
        ({"pipelines": (T("d"),)}, "--pipeline is only for a delete",
         "deploy its sink: headgate plan d starts what it needs"),
        ({"verb": "delete", "everything": True, "rebuild": True}, "--rebuild does not apply to a delete",
         "leave it out"),
        ({"verb": "delete", "changed_since": "x"}, "--changed-since does not apply to a delete", "leave it out"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_with_the_nearest_one(asked: dict[str, Any], summary: str, remedy: str) -> None:
    refusals = resolved(PlanRequest(**asked)).refusals
    assert [(refusal.summary, refusal.remedy) for refusal in refusals] == [(summary, remedy)]


def test_all_mistakes_are_reported_at_once() -> None:
    found = resolved(PlanRequest(tables=(T("x"), T("y")), products=("z",)))
    assert [refusal.summary for refusal in found.refusals] == [
        "there is no table x", "there is no table y", "there is no product z",
    ]  # fmt: skip


def test_of_many_unknown_names_only_the_first_are_compared_with_every_known_one() -> None:
    refusals = resolved(PlanRequest(tables=tuple(T(f"lon{n}") for n in range(5)))).refusals
    assert [refusal.remedy for refusal in refusals] == ["did you mean lone?"] * 3 + [
        "see the tables with `headgate ls`"
    ] * 2


def test_children_belong_to_the_products_of_the_request_and_to_accepted_ones() -> None:
    for children, products in (("product", {"sales"}), ("crm", {"sales", "crm"}), ("none", set()), ("all", {"sales"})):
        assert resolved(PlanRequest(tables=(T("a"),), children=children)).products == products


def test_excluding_a_named_or_unrelated_table_causes_a_warning() -> None:
    found = resolved(PlanRequest(tables=(T("b"), T("d")), exclude=(T("d"), T("lone"), T("c"))))
    assert [(warned.table, warned.summary) for warned in found.warnings] == [
        ("d", "is both named and excluded; it is left out"),
        ("lone", "is excluded, but nothing in the request involves it"),
    ]
    assert list(found.requested) == ["b"]


def test_only_what_was_asked_for_one_by_one_is_named() -> None:
    assert resolved(PlanRequest(tables=(T("a"), T("b")), products=("crm",), exclude=(T("b"),))).named == {"a"}
    assert resolved(PlanRequest(tables=(T("a"),), changed_since="main")).named == frozenset()


def test_a_stopped_table_stays_stopped_if_only_a_git_reference_selected_it() -> None:
    observed = domain_builders.running(SHOP, b="stopped")
    observed[T("b")] = domain_builders.deployed(SHOP.tables[T("b")], state="stopped", wanted="stopped")
    found = domain_builders.plan(SHOP, observed, "b", changed_since="main")
    assert found.empty and [w.summary for w in found.warnings] == [
        "was stopped on purpose and stays stopped; name it to start it"
    ]
    assert domain_builders.actions(domain_builders.plan(SHOP, observed, "b"))["b"] == "resume"


def test_nothing_that_changed_is_an_empty_plan_and_no_refusal() -> None:
    found = domain_builders.plan(SHOP, domain_builders.running(SHOP), products=(), changed_since="main")
    assert found.empty and not found.refusals and not found.nodes


def test_a_request_of_a_reference_reads_like_its_command() -> None:
    found = domain_builders.plan(SHOP, domain_builders.running(SHOP), "b", "d", changed_since="main", exclude=(T("c"),))
    assert request_words(found) == "deploy --changed-since main (2 tables) --exclude c"


def test_a_table_that_is_gone_is_warned_of_with_how_to_delete_it() -> None:
    observed = domain_builders.running(SHOP) | {T("old"): domain_builders.deployed(domain_builders.table("old", "a"))}
    found = domain_builders.plan(SHOP, observed, products=(), changed_since="main", gone=(T("old"), T("never")))
    assert [(w.table, w.summary) for w in found.warnings] == [
        ("never", "was declared at main and no longer is; it is not deployed"),
        ("old", "was declared at main and no longer is; to delete it: headgate plan delete old"),
    ]
