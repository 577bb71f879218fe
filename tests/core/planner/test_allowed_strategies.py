"""The strategies that a plan allows depend on the capabilities of the tables' formats."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
import small_project
from domain_builders import actions, deployed, steps
from domain_builders import plan as planned
from priced_project import node_of

from core.model.actions import Action
from core.model.names import TableName
from core.model.reasons import LOST_CHECKPOINT
from core.model.states import TableFaultKind
from core.observed.planner_input import ObservedDeployment
from core.plan.descriptions import change_words
from core.plan.model import Plan
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.project.model import Project
from tests.support.domain_builders import evidence_of

T = TableName


def on_delta(
    *tables: str, selects: Mapping[str, str] = MappingProxyType({}), keyed: str = "", tracked: str = "", **columns: str
) -> Project:
    """Declare the small project with some tables on Delta, one of them keyed; keywords give columns by table."""
    files = small_project.texts(**selects)
    if keyed:
        files[f"pipelines/facts/p/{keyed}/{keyed}.yml"] = "mode: upsert\nkey: [id]\n"
    if tracked:
        files[f"pipelines/facts/p/{tracked}/{tracked}.yml"] = "schema_tracking: true\n"
    for path, text in files.items():
        name = path.rpartition(".sql")[0].rpartition(".")[2]
        if "/ddl." in path and name in tables:
            files[path] = text.replace("USING parquet", "USING delta")
        if "/ddl." in path and name in columns:
            files[path] = files[path].replace("kind STRING", columns[name])
        if "/dml." in path and name in columns:
            files[path] = text.replace("SELECT id, kind", "SELECT id, kind, 1 AS more")
    files["headgate.yml"] += "connectors: {delta: {}}\n"
    return small_project.project(files)


def running(declared: Project) -> dict[TableName, ObservedDeployment]:
    return {name: deployed(table, bindings={"landed": 0, "a": 1}) for name, table in declared.tables.items()}


WIDER = "kind STRING, more INT"


def test_a_delta_column_is_added_while_its_readers_are_stopped() -> None:
    found = planned(on_delta("a", "b", "c", a=WIDER), running(on_delta("a", "b", "c")))
    assert actions(found) == {"landed": "keep", "a": "restart", "b": "resume", "c": "resume"}
    assert steps(found) == ["alter a@1", "restart a@1 < 1", "swap a < 2", "resume b@1 < 1", "resume c@1 < 1"]
    assert found.steps[0].why == "the added columns; what streams it is stopped before, and goes on after"
    (node,) = [node for node in found.nodes if node.table == "b"]
    assert evidence_of(node) == ("Spark would end it when a gets a column",)
    assert change_words(node) == "upstream column added"
    assert [way.words.partition(";")[0] for way in found.undo] == [
        "rebuild with the old text as a new version",
        "rebuild as a new version",
    ]
    assert {node.table: node.undo for node in found.nodes} == {"landed": "", "a": "plan", "b": "plan", "c": "none"}
    on_parquet = planned(on_delta(a=WIDER), running(on_delta()))
    assert actions(on_parquet) == {"landed": "keep", "a": "restart", "b": "keep", "c": "keep"}


def test_a_reader_that_gets_columns_itself_restarts_behind_what_it_reads() -> None:
    after = on_delta("a", "b", "c", a=WIDER, b=WIDER)
    found = planned(after, running(on_delta("a", "b", "c")))
    assert actions(found) == {"landed": "keep", "a": "restart", "b": "restart", "c": "resume"}
    assert steps(found) == [
        "alter a@1", "restart a@1 < 1", "swap a < 2", "alter b@1", "restart b@1 < 2,4", "swap b < 5", "resume c@1 < 1",
    ]  # fmt: skip


def test_readers_outside_the_plan_are_told_that_they_are_stopped() -> None:
    found = planned(on_delta("a", "b", "c", a=WIDER), running(on_delta("a", "b", "c")), "a")
    assert actions(found) == {"landed": "keep", "a": "restart", "b": "resume"}
    said = [warning.summary for warning in found.warnings if warning.table == "c"]
    assert said == [
        "is not part of this plan, but Spark would end it when a gets a column: it is stopped during the change, and "
        "resumes with its own text"
    ]


def test_exposures_are_asked_to_restart_their_own_streams() -> None:
    before = running(on_delta("a", "b", "c"))
    after = on_delta("a", "b", "c", a=WIDER)
    settings = replace(after.tables[T("a")].settings, readers=("billing (ann)", "audit"))
    after = replace(after, tables={**after.tables, T("a"): replace(after.tables[T("a")], settings=settings)})
    said = [warning.summary for warning in planned(after, before, "a", children="all").warnings]
    assert said == [
        "Spark ends queries outside of Headgate that stream a when it gets a column; restart them there: audit, billing"
    ]


def test_readers_at_rest_are_left_alone_and_start_no_parent() -> None:
    before = running(on_delta("a", "b", "c"))
    before[T("b")] = replace(before[T("b")], state="stopped", wanted="stopped")
    before[T("c")] = replace(before[T("c")], state="failed")
    found = planned(on_delta("a", "b", "c", a=WIDER), before, "a", children="all")
    assert actions(found) == {"landed": "keep", "a": "restart"} and not found.refusals


def test_a_reader_that_could_not_resume_prevents_the_added_column() -> None:
    before = running(on_delta("a", "b", "c"))
    before[T("b")] = replace(before[T("b")], checkpoint_ok=False)
    found = planned(on_delta("a", "b", "c", a=WIDER), before, "a")
    (refusal,) = found.refusals
    assert refusal.summary == f"b cannot be started: {LOST_CHECKPOINT}"


def test_the_losses_of_a_statement_are_shown_if_known() -> None:
    made, why = on_delta("a", "b", "c"), "the table of b@v1 is gone: there is no folder /data/b__v1"
    before = running(made)
    before[T("b")] = replace(before[T("b")], checkpoint_ok=False, lost=why, state="stopped")
    (refusal,) = planned(made, before, "b").refusals
    assert refusal.summary == f"b cannot be started: {why}"
    node = node_of(planned(made, before, "b", rebuild=True), "b")
    assert evidence_of(node) == (why,) and node.reason.words == "it cannot continue from its checkpoint"


def test_a_reader_that_ended_at_a_dropped_column_is_restarted_once_it_tracks_columns() -> None:
    made, why = on_delta("a", "b"), "a__v1, which b@v1 reads, has changed since version 4: its column was dropped"
    before = running(made)
    kind = TableFaultKind.STREAM_COLUMNS_CHANGED
    before[T("b")] = replace(before[T("b")], checkpoint_ok=False, lost=why, lost_kind=kind, state="failed")
    (refusal,) = planned(made, before, "b").refusals
    assert refusal.summary == f"b cannot be started: {why}"
    found = planned(on_delta("a", "b", tracked="b"), before, "b")
    assert not found.refusals and node_of(found, "b").row == "11c" and node_of(found, "b").action is Action.RESTART


def test_a_star_that_would_write_the_column_into_a_table_without_it_is_refused() -> None:
    selects = {"b": "SELECT * FROM STREAM a"}
    before = running(on_delta("a", "b", "c", selects=selects))
    found = planned(on_delta("a", "b", "c", a=WIDER, selects=selects), before, "a")
    (refusal,) = found.refusals
    assert (refusal.summary, refusal.remedy) == (
        "b selects * from a, but its own table has no column more: every batch would fail",
        "add more to the DDL of b in the same plan, or list its columns instead of *",
    )
    both = on_delta("a", "b", "c", a=WIDER, b=WIDER, selects=selects)
    taken = planned(both, before, "a", "b")
    assert not taken.refusals and actions(taken)["b"] == "restart"


def chosen(strategy: str, before: Project, after: Project, *, at: str = "", table: str = "b", **seen: Any) -> Plan:
    """Plan an edit of one table with a strategy other than the default."""
    world = {t: replace(d, **seen) if t == table else d for t, d in running(before).items()}
    request = PlanRequest(tables=(T(table),), choices=(StrategyChoice(T(table), strategy, at),))
    return make_plan(after, "dev", world, request)


def test_without_state_a_version_on_delta_begins_with_the_rows_of_the_old_one() -> None:
    """Cloning a table makes this free. Where files would have to be linked one by one, it is not the fallback."""
    edited = {"b": "SELECT id, kind FROM STREAM a WHERE id > 7"}
    for tables in (("b",), ("a", "b")):
        found = chosen("fork", on_delta(*tables), on_delta(*tables, selects=edited))
        assert not found.refusals and actions(found)["b"] == "rebuild"
        assert [step.do for step in found.steps if step.table == "b" and step.version == 2][:3] == [
            "create",
            "fork",
            "start",
        ]
    (why,) = chosen("fork", on_delta("a"), on_delta("a", selects=edited)).refusals
    assert why.summary == "fork cannot be used for b: it keeps no state that could be taken along"


def test_a_delta_version_continues_where_the_old_one_is() -> None:
    edited = {"b": "SELECT id, kind FROM STREAM a WHERE id > 7"}
    found = chosen("carry_over", on_delta("a", "b"), on_delta("a", "b", selects=edited))
    assert not found.refusals and "fork" in [step.do for step in found.steps if step.table == "b"]
    keyed = chosen("carry_over", on_delta("a", "b", keyed="b"), on_delta("a", "b", selects=edited, keyed="b")).refusals[
        0
    ]
    assert keyed.summary == "carry-over cannot be used for b: it does more than append rows"
    (other,) = chosen("chain", on_delta(), on_delta("b")).refusals
    assert other.summary == "chain cannot be used for b: its format changes from parquet to delta"


def test_with_state_nothing_on_delta_counts_as_read_before_a_batch() -> None:
    timed = {"a": "kind STRING, more TIMESTAMP"}
    counted = "SELECT max(id) AS id, 'n' AS kind FROM STREAM a WATERMARK more DELAY OF INTERVAL 1 MINUTE GROUP BY "
    before, after = (
        on_delta("a", selects={"b": f"{counted} window(more, '{each} minutes')"}, **timed) for each in (1, 2)
    )
    (why,) = chosen("seeded", before, after, at="now").refusals
    assert why.summary == (
        "seeded cannot be used for b: it keeps state, and a batch that only marks a (delta) "
        "as read would leave no state"
    )
    assert not chosen(
        "seeded", on_delta("b"), on_delta("b", selects={"b": "SELECT id, kind FROM STREAM a WHERE id > 7"}), at="now"
    ).refusals


def seam_of_b(*tables: str) -> Plan:
    """Plan to rebuild `a` while `b` keeps its table, with these tables on Delta."""
    declared = on_delta(*tables)
    request = PlanRequest(tables=(T("a"),), rebuild=True, choices=(StrategyChoice(T("b"), "seam"),))
    return make_plan(declared, "dev", running(declared), request)


@pytest.mark.parametrize("tables", [(), ("a",), ("b",), ("a", "b")])
def test_a_statement_keeps_its_table_across_a_rebuild_whatever_it_writes_and_streams(tables: tuple[str, ...]) -> None:
    found = seam_of_b(*tables)
    assert actions(found) == {"landed": "keep", "a": "rebuild", "b": "restart"} and not found.refusals
    assert [step.do for step in found.steps if step.table == "b"] == ["seam"]


def test_a_plan_shows_what_its_statements_read_from_a_keyed_table() -> None:
    selects = {
        "b": "SELECT id, _change_type AS kind FROM STREAM a",
        "c": "SELECT id, kind FROM STREAM a WITH ('skipChangeCommits'='true')",
    }
    found = planned(on_delta("a", "b", "c", selects=selects, keyed="a"), {})
    assert {
        warning.table: warning.summary for warning in found.warnings if "replaces rows by key" in warning.summary
    } == {
        "b": "reads the changes of a, which replaces rows by key",
        "c": "reads only the first row of each key of a, which replaces rows by key",
    }


def test_a_table_that_becomes_keyed_is_rebuilt_with_the_readers_of_its_changes() -> None:
    selects = {"b": "SELECT id, '_change_type' AS kind FROM STREAM a", "c": "SELECT id, kind FROM STREAM landed"}
    before = on_delta("a", "b", selects=selects)
    found = planned(on_delta("a", "b", selects=selects, keyed="a"), running(before), children="all")
    assert actions(found)["a"] == actions(found)["b"] == "rebuild"
