"""The plan printed under UNDO has the same effect as planning the old texts after the plan was executed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.model.names import TableName as T
from core.model.names import physical_name
from core.model.states import State, WantedState
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import Headroom
from core.observed.versions import Binding
from core.plan.model import Plan, PlanNode
from core.plan.rendering import undo_sentences
from core.planner import context
from core.planner.planner import make_plan
from core.planner.undo_plan import edited_nodes, undo_request
from core.project_reader.revision_reader import revision_of
from tests.core.planner.test_planner_change_kinds import EDITS, ENGINE, FACTS, Edit, declared, planned
from tests.support.priced_project import TEXTS, observed
from tests.support.priced_project import declared as priced
from tests.support.priced_project import planned as planned_with_prices

GOLDEN = Path(__file__).parents[2] / "fixtures" / "plans" / "undo.txt"
"""The expected output; regenerate with `python -m tests.core.planner.test_undo_plan > tests/fixtures/plans/undo.txt`.
"""

FILTERED = f"{TEXTS['a'][1]} WHERE v > 1"
GROWN = (
    TEXTS["a"][0].replace("ts TIMESTAMP", "ts TIMESTAMP, w BIGINT"),
    TEXTS["a"][1].replace("ts FROM", "ts, v AS w FROM"),
)
SUM = TEXTS["b"][1].replace("max(", "sum(")


def golden() -> str:
    parts = []
    for edit in EDITS:
        said = undo_sentences(planned(edit, foreign=False, state=State.RUNNING))
        parts.append("\n".join((f"## {edit.row} {edit.kind}: {edit.what}", *(said or ("-",)), "")))
    return "\n".join(parts)


def test_every_kind_of_change_names_its_undo_or_why_there_is_none() -> None:
    assert golden() == GOLDEN.read_text()


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.row} {edit.kind} {edit.what}")
def test_the_printed_undo_equals_planning_the_old_texts(edit: Edit) -> None:
    plan = planned(edit, foreign=False, state=State.RUNNING)
    printed = {table for way in plan.undo if way.act == "plan undo" for table in way.tables}
    released = {table for way in plan.undo if way.act == "rollback" for table in way.tables}
    assert released in (set(), {node.table for node in plan.nodes if node.action == "rebuild"})
    edited = tuple(node for node in edited_nodes(plan.nodes) if node.table not in released)
    if not edited:
        assert not printed and (released or all(not way.act for way in plan.undo))
        return
    assert not released, "no edit here takes both ways"
    back = make_plan(
        declared(edit.old, False), "dev", executed(edit, plan),
        undo_request(plan.request, (node.table for node in edited), plan.hash), FACTS, headroom=Headroom(engine=ENGINE),
    )  # fmt: skip
    acts = {node.table: node.action for node in back.nodes if node.action != "keep"}
    assert not back.refusals and printed == set(acts)
    for way in plan.undo:
        for table in way.tables if way.act else ():
            assert ("recorded" if acts[table] == "record" else acts[table]) in way.words


def executed(edit: Edit, plan: Plan) -> dict[T, ObservedDeployment]:
    """Observe the world after a plan, with the declared texts and the versions that the plan made."""
    nodes: dict[T, PlanNode] = {node.table: node for node in plan.nodes}
    found = {}
    for name, made in declared(edit.new, False).tables.items():
        texts, node = revision_of(made).texts, nodes.get(name)
        if made.parsed is None:
            found[name] = ObservedDeployment(State.RUNNING, deployed=texts)
            continue
        before = ObservedDeployment(engine=ENGINE)
        version = node.version if node is not None else 1
        found[name] = replace(
            before,
            state=State.RUNNING,
            wanted=WantedState.RUNNING,
            deployed=texts,
            version=version,
            highest_version=version,
            bindings=node.bindings if node is not None and node.action != "keep" else before.bindings,
            pointer=physical_name(name, version),
        )
    return found


def test_the_cost_of_an_undo_is_that_of_its_plan() -> None:
    lost = observed(b={"checkpoint_ok": False})
    (way, readers) = planned_with_prices(priced(b=SUM), "b", world=lost).undo
    assert (way.act, way.tables, way.replay_rows, way.eta_s) == ("plan undo", (T("b"),), 800, 16.0)
    assert (readers.tables, readers.replay_rows) == ((T("c"),), 80)


def test_the_version_replaced_by_a_rebuild_serves_again_if_it_can_continue() -> None:
    found = planned_with_prices(priced(b=SUM), "b")
    (way,) = found.undo
    assert (way.act, set(way.tables), way.replay_rows) == ("rollback", {T("b"), T("c")}, 0)
    assert {node.undo for node in found.nodes if node.action != "keep"} == {"back"}
    assert undo_sentences(found)[0].startswith("headgate rollback b  (until another plan")


def test_an_edit_in_place_is_undone_in_place_and_the_remaining_rows_are_named() -> None:
    (way,) = planned_with_prices(priced(a=FILTERED), "a").undo
    assert (way.tables, way.replay_rows) == ((T("a"),), 0)
    assert way.words.startswith("restart with the old text on the same checkpoint; the rows that are there stay")


def test_a_column_is_added_in_place_and_removed_by_rebuilding_all_its_readers() -> None:
    found = planned_with_prices(priced(a=GROWN), "a")
    assert {node.table: str(node.action) for node in found.nodes if node.action != "keep"} == {"a": "restart"}
    assert [(way.tables, way.replay_rows) for way in found.undo] == [((T("a"),), 1_000), ((T("b"), T("c")), 880)]
    assert "the added column cannot be taken out" in found.undo[0].words


def test_started_statements_are_stopped_and_deleted_tables_restored() -> None:
    stop, *_ = planned_with_prices(priced(), "a", world={}).undo
    assert (stop.act, stop.tables, stop.until) == ("stop", (T("a"),), "at any time")
    (gone,) = planned_with_prices(priced(), "c", verb="delete").undo
    assert (gone.act, gone.tables, gone.replay_rows) == ("undelete", (T("c"),), 0)
    assert gone.until == "until the files are purged, 7 days after the run"
    moved = observed(b={"version": 2}, c={"bindings": (Binding(T("b"), 1, True),)})
    (lost,) = planned_with_prices(priced(), "c", verb="delete", world=moved).undo
    assert (lost.act, lost.words) == ("", "a version that failed, never served or lost its inputs cannot resume")


def test_a_rebuild_of_the_same_text_is_undone_by_the_previous_version_or_not_at_all() -> None:
    found = planned_with_prices(priced(), "c", rebuild=True)
    assert [(way.act, way.tables) for way in found.undo] == [("rollback", (T("c"),))]
    for why in ({"checkpoint_ok": False}, {"state": State.FAILED}):
        lost = planned_with_prices(priced(), "c", rebuild=True, world=observed(c=why))
        assert [(way.act, way.tables) for way in lost.undo] == [("", (T("c"),))]
        assert {node.undo for node in lost.nodes if node.action != "keep"} == {"none"}


def test_a_plan_that_is_refused_or_does_nothing_has_nothing_to_undo() -> None:
    assert planned_with_prices(priced(), "a").undo == ()
    lost = observed(a={"state": "stopped", "checkpoint_ok": False})
    assert planned_with_prices(priced(), "a", world=lost).undo == ()


@pytest.mark.parametrize("asked", [{"verb": "delete"}, {}], ids=["deleted", "edited"])
def test_planning_an_undo_reuses_what_the_plan_has_computed(
    asked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counting(make: Callable[[Any], object]) -> Callable[[Any], object]:
        return lambda of: made.append(f"{make.__name__} {of.name}") or make(of)

    for make in (context.revision_of, context.table_graph):
        monkeypatch.setattr(context, make.__name__, counting(make))
    assert planned_with_prices(priced(a=FILTERED), "a", "b", "c", **asked).undo
    again = [] if asked else ["revision_of a"]
    assert len(made) > 2 and sorted(made) == sorted([*{*made}, *again])


if __name__ == "__main__":
    print(golden(), end="")
