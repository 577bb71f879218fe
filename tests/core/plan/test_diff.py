"""Comparison of two plans: every kind of difference is found, named and written, and nothing else is."""

import json
from dataclasses import replace

import pytest

from core.model.actions import Action
from core.model.names import TableName as T
from core.plan.diff import compare_plans, difference_as_json, difference_lines, difference_words
from core.plan.model import Exposure, Guard, Plan, PlanRefusal, PlanWarning
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from tests.core.plan.test_hash import DRIFTS, MATTERS, Edit, one
from tests.core.plan.test_rendering import changed
from tests.support.domain_builders import plan, project, running, table


def test_a_plan_equals_itself() -> None:
    assert compare_plans(one(), one()) == ()
    assert difference_lines(one(), one()) == (f"plan {one().hash[:12]} → {one().hash[:12]}: the same",)
    assert difference_as_json(one(), one())["same"] is True


def test_the_nonce_alone_is_no_difference() -> None:
    assert compare_plans(one(), replace(one(), hash="x", request=replace(one().request, nonce="n"))) == ()


NOT_COMPARED = {"the nonce", "an offer's strategy", "what an offer loses", 
                "what to know of an offer", "the checkpoint seen", "the pointer seen", "the readers seen",
                "the acts on it", "that it is gone", "a severity that was lowered"}  # fmt: skip
"""Parts of a plan's hash that a diff ignores. Staleness covers its inputs, and unchosen options change nothing."""


@pytest.mark.parametrize("name", sorted(MATTERS.keys() - NOT_COMPARED))
def test_every_change_of_the_hash_is_a_relevant_difference(name: str) -> None:
    assert any(found.matters for found in compare_plans(one(), MATTERS[name](one())))


@pytest.mark.parametrize("edit", DRIFTS.values(), ids=DRIFTS)
def test_drifting_figures_are_not_relevant_differences(edit: Edit) -> None:
    assert not any(found.matters for found in compare_plans(one(), edit(one())))


def lines(second: Plan, first: Plan | None = None) -> list[str]:
    return list(difference_lines(first or one(), second))[1:]


def test_a_different_kind_of_change_is_named_with_its_code_beside_it() -> None:
    assert "~ node        a: change none (0) → filter or projection (3)" in lines(MATTERS["the kind of change"](one()))


def test_added_removed_and_changed_nodes_are_found_with_their_versions_and_texts() -> None:
    declared, observed = changed()
    restarted = make_plan(declared, "dev", observed, PlanRequest(tables=(T("a"),)))
    rebuilt = make_plan(declared, "dev", observed, PlanRequest(tables=(T("a"),), rebuild=True, children="none"))
    said = lines(rebuilt, restarted)
    assert "~ node        a: action restart → rebuild v1→v2" in said
    assert "~ node        a: strategy in-place → earliest" in said
    assert "+ request     rebuild: true" in said
    assert "+ left behind b: stays on a__v1" in said
    assert any(line.startswith("+ step        a: create v2") for line in said)
    gone = replace(restarted, nodes=tuple(node for node in restarted.nodes if node.table != "src"))
    assert "- node        src: keep" in lines(gone, restarted)
    assert "+ node        src: keep" in lines(restarted, gone)


def test_another_text_is_its_unified_diff_below_the_node() -> None:
    declared, observed = changed()
    other, _ = changed("SELECT id FROM STREAM src WHERE id > 2")
    first, second = (make_plan(p, "dev", observed, PlanRequest(tables=(T("a"),))) for p in (declared, other))
    said = lines(second, first)
    at = said.index("~ node        a: new dml")
    assert [line for line in said[at + 1 :] if line.startswith(("    -", "    +"))] == [
        "    -SELECT id FROM STREAM src WHERE id > 1;", "    +SELECT id FROM STREAM src WHERE id > 2;",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "edit, line",
    [
        (lambda p: replace(p, guards=(Guard("disk", "deny", ""), p.guards[1])), "~ verdict     disk: warn → deny"),
        (lambda p: replace(p, guards=p.guards[1:]), "- verdict     disk: warn"),
        (lambda p: replace(p, approvals=1), "~ plan        approvals: 0 → 1"),
        (lambda p: replace(p, order=tuple(reversed(p.order))), "~ order       a b → b a"),
        (lambda p: replace(p, left_behind=()), "- left behind c: stays on a__v1"),
        (lambda p: replace(p, warnings=(PlanWarning("a", "look"),)), "+ warning     a: look"),
        (lambda p: replace(p, refusals=(PlanRefusal("a", "no", ""),)), "+ refusal     a: no"),
        (
            lambda p: replace(p, readers=(Exposure("report", T("a"), "a__v1", "a__v2"),)),
            "+ reader      report: a: a__v1 → a__v2",
        ),
    ],
)
def test_everything_beside_the_nodes_has_its_line(edit: Edit, line: str) -> None:
    assert line in lines(edit(one()))


def test_the_order_differs_only_where_tables_of_both_changed_places() -> None:
    more = replace(one(), order=(T("z"), *one().order))
    assert not [found for found in compare_plans(one(), more) if found.of == "order"]


def test_json_has_null_on_the_side_where_there_is_nothing() -> None:
    declared = project(table("src"), table("a", "src"))
    first, second = plan(declared, running(declared), "a"), plan(declared, {}, "a")
    data = json.loads(json.dumps(difference_as_json(first, second)))
    assert (data["first"], data["second"], data["same"]) == (first.hash, second.hash, False)
    actions = [d for d in data["differences"] if d["part"] == "action"]
    assert {(d["subject"], d["before"], d["after"]) for d in actions} >= {("a", "keep", "start v1")}
    assert any(d["of"] == "step" and d["before"] is None for d in data["differences"])


def test_words_of_one_difference_are_one_sentence() -> None:
    (verdict,) = compare_plans(one(), replace(one(), guards=(Guard("disk", "deny", ""), one().guards[1])))
    assert difference_words(verdict) == "verdict disk: warn → deny"
    (gone,) = compare_plans(one(), replace(one(), left_behind=()))
    assert difference_words(gone) == "left behind c was removed: stays on a__v1"
    kept = tuple(replace(node, action=Action.KEEP) if node.table == "a" else node for node in one().nodes)
    assert "node a action: rebuild v1→v2 → keep" in map(
        difference_words, compare_plans(one(), replace(one(), nodes=kept))
    )


def test_no_field_name_of_the_code_is_read_by_people() -> None:
    second = replace(
        one(),
        nodes=tuple(
            replace(n, eta_s=99.0, predicted_low_s=8.0, predicted_high_s=99.0, replay_rows=7, because_of=(T("z"),))
            for n in one().nodes
        ),
    )
    told = "\n".join(difference_lines(one(), second))
    assert (
        "ETA ? → 8\N{EN DASH}99 s" in told
        and "reading time at best " in told
        and "rows to replay " in told
        and "because of " in told
    )
    assert "eta s" not in told and "_" not in told.replace("__", "")
