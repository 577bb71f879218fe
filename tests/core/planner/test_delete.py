"""Deletes of tables, products and pipelines: what is deleted, what stays for others, and what is refused."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core.model.names import TableName
from core.model.states import State
from core.observed.planner_input import ObservedDeployment, OtherVersion
from core.plan.codec import plan_as_json, plan_from_json
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.context import PlanningContext, planning_context
from core.planner.delete_and_retire import decide_delete
from core.planner.planner import make_plan
from core.planner.scope import PlanScope, normal_request, resolve_scope
from core.project.model import Project
from core.project_reader.parse_cache import ParseCache
from tests.support.domain_builders import T, deployed, project, running, table

SHOP = project(
    table("src", product="raw"),
    table("base", "src", product="raw"),
    table("a", "base", product="sales"),
    table("b", "a", product="sales"),
    table("sink", "b", product="sales"),
    table("other", "a", product="crm"),
    table("leaf", "other", product="crm"),
)
"""A project with src → base → a → b → sink, and a → other → leaf, which belong to another product."""


def delete(*tables: str, observed: Mapping[TableName, ObservedDeployment] | None = None, **request: Any) -> Plan:
    asked = PlanRequest(verb="delete", tables=tuple(map(T, tables)), **request)
    return make_plan(SHOP, "dev", running(SHOP) if observed is None else observed, asked)


def gone(found: Plan) -> list[str]:
    """Return the deleted tables in order."""
    return [str(node.table) for node in found.nodes if node.action == "delete"]


def said(found: Plan) -> list[str]:
    return [f"{warned.table} {warned.summary}" for warned in found.warnings]


def refused(found: Plan) -> list[str]:
    return [refusal.summary for refusal in found.refusals]


def test_a_sink_is_deleted_alone() -> None:
    assert gone(delete("sink")) == ["sink"]


def test_deleting_a_table_under_a_running_reader_is_refused_with_all_its_readers() -> None:
    found = delete("b")
    assert refused(found) == ["b is read by sink (sales)"] and found.steps == ()
    assert found.refusals[0].remedy == "delete them together: headgate plan delete b sink"


@pytest.mark.parametrize(
    ("children", "tables", "why"),
    [
        ("none", ["a"], ["a is read by b (sales), other (crm)"]),
        ("product", ["sink", "b", "a"], ["a is read by other (crm)"]),
        ("crm", ["leaf", "sink", "b", "other", "a"], []),
        ("all", ["leaf", "sink", "b", "other", "a"], []),
    ],
)
def test_readers_are_deleted_as_far_as_accepted(children: str, tables: list[str], why: list[str]) -> None:
    found = delete("a", children=children)
    assert sorted(gone(found)) == sorted(tables) and refused(found) == why


def test_no_reader_is_deleted_unless_requested() -> None:
    assert delete("a").request.children == "none" and refused(delete("a"))


def test_an_excluded_reader_stays_and_refuses() -> None:
    found = delete("a", children="all", exclude=(T("leaf"),))
    assert "leaf" not in gone(found) and refused(found) == ["a is read by other (crm)"]


def test_readers_are_deleted_before_their_inputs() -> None:
    found = delete("base", children="all")
    order = gone(found)
    assert set(order) == {"base", "a", "b", "sink", "other", "leaf"} and not found.refusals
    for parent, child in (("base", "a"), ("a", "b"), ("b", "sink"), ("a", "other"), ("other", "leaf")):
        assert order.index(child) < order.index(parent)


def test_deleting_a_product_keeps_tables_that_others_read_and_names_them() -> None:
    found = delete(products=("sales",))
    assert gone(found) == ["sink", "b"] and not found.refusals
    assert said(found) == ["a stays: other (crm) reads it"]


def test_all_who_need_a_shared_table_are_named() -> None:
    wide = project(
        table("src"), table("base", "src", product="raw"), *(table(name, "base", product=name) for name in "xyz")
    )
    found = make_plan(wide, "dev", running(wide), PlanRequest(verb="delete", products=("raw", "x")))
    assert gone(found) == ["x"] and said(found) == ["base stays: y (y), z (z) read it"]


def test_a_product_keeps_up_to_the_sources_what_a_kept_table_reads() -> None:
    found = delete(products=("raw", "sales"))
    assert gone(found) == ["sink", "b"]
    assert said(found) == [
        "a stays: other (crm) reads it",
        "base stays: a (sales) reads it",
        "src is external and is not deleted",
    ]


def test_two_products_that_read_only_each_other_are_deleted_together() -> None:
    assert set(gone(delete(products=("crm", "sales")))) == {"a", "b", "sink", "other", "leaf"}


def test_a_pipeline_is_a_sink_with_all_parents_that_nobody_else_needs() -> None:
    found = delete(pipelines=(T("sink"),))
    assert gone(found) == ["sink", "b"] and not found.refusals
    assert said(found) == [
        "a stays: other (crm) reads it",
        "base stays: a (sales) reads it",
        "src is external and is not deleted",
    ]


def test_two_pipelines_take_what_only_they_share() -> None:
    found = delete(pipelines=(T("leaf"), T("sink")))
    assert set(gone(found)) == {"sink", "leaf", "b", "other", "a", "base"} and said(found) == [
        "src is external and is not deleted"
    ]


def test_a_pipeline_of_a_table_that_is_read_is_refused_or_takes_its_readers() -> None:
    assert refused(delete(pipelines=(T("b"),))) == ["b is read by sink (sales)"]
    assert gone(delete(pipelines=(T("b"),), children="all")) == ["sink", "b"]


def test_a_pipeline_includes_no_reader_because_of_a_shared_parent() -> None:
    for children in ("product", "all"):
        found = delete(pipelines=(T("sink"),), children=children)
        assert gone(found) == ["sink", "b"] and not found.refusals


def test_a_table_excluded_from_a_pipeline_stays_with_its_inputs() -> None:
    found = delete(pipelines=(T("leaf"), T("sink")), exclude=(T("a"),))
    assert set(gone(found)) == {"sink", "leaf", "b", "other"}
    assert "base stays: a (sales) reads it" in said(found)


def test_a_layer_and_a_folder_take_what_nobody_else_reads() -> None:
    assert set(gone(delete(layers=("fact",)))) == {"base", "a", "b", "sink", "other", "leaf"}
    found = delete(folders=("pipelines/facts/sales",))
    assert gone(found) == ["sink", "b"] and said(found) == ["a stays: other (crm) reads it"]


def test_a_reader_at_rest_does_not_prevent_a_delete_of_its_parent_and_is_named() -> None:
    observed = running(SHOP) | {T("sink"): deployed(SHOP.tables[T("sink")], state="stopped", wanted="stopped")}
    found = delete("b", observed=observed)
    assert gone(found) == ["b"] and said(found) == [
        "sink is stopped and reads b: it could not resume from its checkpoint"
    ]


@pytest.mark.parametrize("state", [state for state in State if state != State.ABSENT])
@pytest.mark.parametrize("wanted", ["running", "stopped"])
def test_only_a_stopped_and_unwanted_reader_permits_a_delete_of_its_parent(state: State, wanted: str) -> None:
    observed = running(SHOP) | {T("sink"): deployed(SHOP.tables[T("sink")], state=str(state), wanted=wanted)}
    at_rest = wanted == "stopped" and state in (State.STOPPED, State.FAILED, State.COMPLETED)
    assert refused(delete("b", observed=observed)) == ([] if at_rest else ["b is read by sink (sales)"])


def test_foreign_and_missing_tables_are_refused_by_name() -> None:
    assert refused(delete("src", exclude=())) == ["src is external: Headgate does not delete it"]
    observed = {table: seen for table, seen in running(SHOP).items() if table != "sink"}
    assert refused(delete("sink", observed=observed)) == ["sink is not deployed; there is nothing to delete"]
    assert delete(products=("sales",), observed={}).empty and not delete(products=("sales",), observed={}).refusals


def test_a_table_that_another_pointer_serves_is_refused() -> None:
    observed = running(SHOP) | {T("leaf"): deployed(SHOP.tables[T("leaf")], pointer="sink__v1")}
    found = delete("sink", observed=observed)
    assert refused(found) == ["the pointer leaf serves sink__v1 of sink"]
    assert not delete("sink", "leaf", observed=observed).refusals


def test_older_versions_deleted_with_a_table_are_named() -> None:
    sink = deployed(
        SHOP.tables[T("sink")], version=4, kept=(2, 3, 5), orphan_versions=(OtherVersion(5, "r"),), bindings={"b": 1}
    )
    found = delete("sink", observed=running(SHOP) | {T("sink"): sink})
    (words,) = said(found)
    assert words == ("sink v2, v3 are deleted as well but do not serve: an undelete restores only the serving version")


def test_an_undeclared_table_is_deleted_with_its_pipeline() -> None:
    lost = table("lost", "src", product="raw")
    top = table("top", "lost", product="sales")
    observed = running(SHOP) | {T("lost"): deployed(lost), T("top"): deployed(top, bindings={"lost": 1})}
    assert gone(delete(pipelines=(T("top"),), observed=observed)) == ["top", "lost"]


SET = project(
    table("src", product="raw"),
    table("x", "src", product="sales", unit="both"),
    table("y", "src", product="sales", unit="both"),
    table("top", "x", product="sales"),
    table("theirs", "y", product="crm"),
)
"""A project in which x and y belong to one statement set, and another product reads y."""


def test_a_statement_set_is_kept_or_deleted_as_a_whole() -> None:
    pipeline = make_plan(SET, "dev", running(SET), PlanRequest(verb="delete", pipelines=(T("top"),)))
    assert gone(pipeline) == ["top"] and "x stays: it belongs to one statement set with y" in said(pipeline)
    product = make_plan(SET, "dev", running(SET), PlanRequest(verb="delete", products=("sales",)))
    assert gone(product) == ["top"]
    assert said(product) == ["x stays: it belongs to one statement set with y", "y stays: theirs (crm) reads it"]
    everything = make_plan(SET, "dev", running(SET), PlanRequest(verb="delete", everything=True))
    assert set(gone(everything)) == {"x", "y", "top", "theirs"}


def test_the_rest_of_a_statement_set_is_named_in_one_order() -> None:
    whole = [table(name, "src", product="sales", unit="all") for name in ("z", "y", "x")]
    readers = [table(f"of_{name}", name, product="crm") for name in ("y", "z")]
    declared = project(table("src", product="raw"), *whole, *readers)
    found = make_plan(declared, "dev", running(declared), PlanRequest(verb="delete", products=("sales",)))
    assert "x stays: it belongs to one statement set with y, z" in said(found)


def test_half_a_statement_set_is_refused_when_it_is_named() -> None:
    found = make_plan(SET, "dev", running(SET), PlanRequest(verb="delete", tables=(T("x"), T("top"))))
    assert refused(found) == ["x belongs to one statement set with y"]


def test_a_delete_of_thousands_by_name_takes_no_time_for_each_pair() -> None:
    wide = project(table("src"), *(table(f"t{n}", "src") for n in range(2000)))
    context, scope, counted = *_resolved(wide, running(wide)), 0

    def count(*_: object) -> None:
        nonlocal counted
        counted += 1

    sys.setprofile(count)
    try:
        decide_delete(context, scope)
    finally:
        sys.setprofile(None)
    assert counted < 200 * len(wide.tables)


def _resolved(declared: Project, observed: Mapping[TableName, ObservedDeployment]) -> tuple[PlanningContext, PlanScope]:
    context = planning_context(declared, declared.environments["dev"], observed, ParseCache())
    names = tuple(name for name in declared.tables if name != "src")
    return context, resolve_scope(normal_request(PlanRequest(verb="delete", tables=names)), context)


def test_an_overlay_that_reads_a_deleted_or_retired_version_is_warned_of() -> None:
    declared = project(src="", a="src", b="src")
    observed = running(declared)
    observed[T("a")] = replace(observed[T("a")], version=2, highest_version=2, kept=(1,), overlays=(("pr-1", 1),))
    words = "pr-1 reads a__v1, and its statements will fail: it overlays this environment"
    for verb in ("delete", "retire"):
        found = make_plan(declared, "dev", observed, PlanRequest(verb=verb, tables=(T("a"),)))
        assert words in [warning.summary for warning in found.warnings], (verb, found.refusals)
        assert found.overlays_named("a", 1) == {"pr-1"} and not found.overlays_named("a", 2)
        assert plan_from_json(plan_as_json(found)).overlays_named("a", 1) == {"pr-1"}
    observed[T("a")] = replace(observed[T("a")], overlays=(("pr-1", 2),))
    assert "pr-1 reads" not in str(
        make_plan(declared, "dev", observed, PlanRequest(verb="retire", tables=(T("a"),))).warnings
    )
    observed[T("a")] = replace(observed[T("a")], kept=(), overlays=(("pr-1", 1),))
    assert "pr-1 reads" not in str(
        make_plan(declared, "dev", observed, PlanRequest(verb="delete", tables=(T("a"),))).warnings
    ), "v1 is in the trash already"


def test_an_overlay_that_reads_a_replaced_version_is_warned_of() -> None:
    declared = project(src="", a="src", b="a")
    observed = running(declared)
    observed[T("a")] = replace(observed[T("a")], overlays=(("pr-1", 1), ("pr-2", 7)))
    said = "pr-1 reads a__v1 and gets no more rows once that is replaced: it overlays this environment"
    request = PlanRequest(tables=(T("a"),), children="all", rebuild=True)
    found = make_plan(declared, "dev", observed, request)
    assert [str(each.summary) for each in found.warnings if "overlay" in str(each.summary)] == [said], found.refusals
