"""OPTIMIZE and VACUUM as plans: the tables, what is retained, what the reviewer reads, and what prevents them."""

from dataclasses import replace
from typing import Any

import pytest
import small_project

from core.model.errors import UsageError
from core.model.names import TableName as T
from core.model.table_formats import table_format
from core.observed.planner_input import ObservedDeployment
from core.observed.table_statistics import LogHistory, TableStatistics
from core.plan.codec import plan_as_json, plan_from_json
from core.plan.confirmation import confirmation_for_plan
from core.plan.descriptions import action_words, change_words, step_words
from core.plan.model import Plan
from core.plan.request import PlanRequest, command_words, parse_retention
from core.planner.planner import make_plan
from core.planner.scope import normal_request
from core.policy.roles_and_rules import Policy
from tests.support.domain_builders import deployed

FILES = small_project.on_delta(small_project.texts())
YML = "pipelines/facts/p/b/b.yml"


def planned(verb: str, *tables: str, files: dict[str, str] = FILES, policy: Policy | None = None, **more: Any) -> Plan:
    project = small_project.project(files)
    world: dict[T, ObservedDeployment] = {name: deployed(table) for name, table in project.tables.items()}
    request = normal_request(PlanRequest(verb=verb, tables=tuple(map(T, tables)), **more))
    return make_plan(project, "dev", world, request, policy=policy)


def kept_for(hours: str) -> dict[str, str]:
    path = "pipelines/facts/p/a/sql-scripts/ddl.a.sql"
    said = f" TBLPROPERTIES ('delta.deletedFileRetentionDuration' = '{hours}')"
    return FILES | {path: FILES[path].replace("USING delta", f"USING delta{said}")}


def test_small_files_are_written_into_large_ones_and_nothing_is_lost() -> None:
    found = planned("optimize", "b", "a")
    assert not found.refusals and not found.destructive
    assert [step_words(step) for step in found.steps] == ["optimize a__v1", "optimize b__v1"]
    assert [step.after for step in found.steps] == [(), ()], "each by itself"
    assert [action_words(node) for node in found.nodes] == ["optimize", "optimize"]
    assert {change_words(node) for node in found.nodes} == {"optimize requested"}
    assert {way.words for way in found.undo} == {"nothing to undo: no row changes"}
    assert confirmation_for_plan(found).text == "2" and confirmation_for_plan(planned("optimize", "a")).text == "yes"
    assert command_words(found.request) == ["plan", "optimize", "a", "b"]
    assert {warned.summary for warned in found.warnings if warned.table == "a"} == {
        "the small files stay next to the large ones until headgate vacuum a"
    }


def test_a_vacuum_loses_versions_and_is_confirmed_by_the_plans_name() -> None:
    found = planned("vacuum", "a", retain_h="720")
    assert not found.refusals and found.destructive and confirmation_for_plan(found).level == "C3"
    assert [node.loses for node in found.nodes] == [("files of versions older than 720 h",)]
    assert command_words(found.request) == ["plan", "vacuum", "a", "--retain", "720"]
    assert [way.act for way in found.undo] == [""] and "brings back" in found.undo[0].words
    again = plan_from_json(plan_as_json(found))
    assert again.request.retain_h == "720" and again.steps == found.steps
    assert found.hash != planned("vacuum", "a").hash
    assert planned("vacuum", "a").nodes[0].loses == ("files of versions older than 168 h",)


def test_an_overlay_whose_statements_may_need_the_deleted_files_is_warned_of() -> None:
    project = small_project.project(FILES)
    world = {name: deployed(table) for name, table in project.tables.items()}
    world[T("a")] = replace(world[T("a")], version=2, highest_version=2, overlays=(("pr-1", 2), ("pr-2", 1)))
    found = make_plan(project, "dev", world, PlanRequest(verb="vacuum", tables=(T("a"),)))
    assert [str(each.summary) for each in found.warnings if "overlay" in str(each.summary)] == [
        "pr-1 reads a__v2: the step fails while its statements still need what this deletes; it overlays this "
        "environment"
    ]


def test_how_long_a_table_keeps_files_is_what_its_log_says_also_where_it_was_set_by_hand() -> None:
    project = small_project.project(FILES)

    def vacuumed(retain_h: str, kept_h: float | None) -> Plan:
        log = LogHistory(0, 1.0, ((0, 1.0, 0),), kept_h).as_text()
        world = {name: deployed(table) for name, table in project.tables.items()}
        world[T("a")] = replace(world[T("a")], statistics=TableStatistics(log=log))
        return make_plan(project, "dev", world, PlanRequest(verb="vacuum", tables=(T("a"),), retain_h=retain_h))

    assert vacuumed("", 720.0).nodes[0].loses == ("files of versions older than 720 h",)
    (refused,) = vacuumed("200", 720.0).refusals
    assert refused.summary == "a retains files of older versions for 720 h, which is longer than 200 h"
    assert not vacuumed("24", 24.0).refusals, "it was lowered by hand"
    assert vacuumed("", None).nodes[0].loses == ("files of versions older than 168 h",), "it was not measured"


@pytest.mark.parametrize(
    ("hours", "kept", "refused"),
    [("", "167", "a retains files of older versions for 168 h, which is longer than 167 h"),
     ("interval 30 days", "719", "a retains files of older versions for 720 h, which is longer than 719 h"),
     ("interval 30 days", "720", ""),
     ("interval 0 hours", "0", ""),
     ("for ever", "1", "")],
)  # fmt: skip
def test_no_vacuum_keeps_less_than_its_table_says(hours: str, kept: str, refused: str) -> None:
    found = planned("vacuum", "a", files=kept_for(hours) if hours else FILES, retain_h=kept)
    assert [refusal.summary for refusal in found.refusals] == ([refused] if refused else [])


@pytest.mark.parametrize("verb", ["optimize", "vacuum"])
def test_a_table_without_a_log_of_versions_is_refused_with_the_reason(verb: str) -> None:
    (parquet,) = planned(verb, "a", files=small_project.texts()).refusals
    assert parquet.summary == "a is parquet, and maintenance is not supported for that format"
    (external,) = planned(verb, "landed").refusals
    assert external.summary == "landed is external: others write it"
    project = small_project.project(FILES)
    request = normal_request(PlanRequest(verb=verb, tables=(T("a"),)))
    (absent,) = make_plan(project, "dev", {}, request).refusals
    assert (absent.summary, absent.remedy) == ("a is not deployed", "start it: headgate plan a")


def test_a_keyed_statement_pauses_while_its_files_are_rewritten() -> None:
    keyed = planned("optimize", "b", files=FILES | {YML: "mode: upsert\nkey: [id]\n"})
    assert any("pauses meanwhile" in warned.summary for warned in keyed.warnings)
    assert not any("pauses" in warned.summary for warned in planned("optimize", "b").warnings)


def test_another_login_approves_a_vacuum_where_the_policy_asks_it_of_deletes_or_the_table_is_protected() -> None:
    for policy in (Policy(approve=("delete",)), Policy(protected_tables=(T("a"),))):
        assert planned("vacuum", "a", policy=policy).approvals == 1
        assert planned("optimize", "a", policy=policy).approvals == 0


def test_optimize_and_vacuum_take_tables_by_name_and_only_their_own_options() -> None:
    (wide,) = planned("optimize", everything=True).refusals[:1]
    assert wide.summary == "optimize takes tables by name"
    assert {r.summary for r in planned("optimize", "a", retain_h="1").refusals} == {"--retain is only for a vacuum"}
    assert {r.summary for r in planned("vacuum", "a", rebuild=True).refusals} == {"--rebuild does not apply to vacuum"}
    assert parse_retention(" 0168 ") == "168"
    for wrong in ("-1", "1.5", "week", "99999999"):
        with pytest.raises(UsageError, match="is not a number of hours"):
            parse_retention(wrong)


@pytest.mark.parametrize(
    ("said", "hours"),
    [("interval 1 week", 168.0), ("interval 7 days", 168.0), ("36 hours", 36.0), ("interval 1 day 12 hours", 36.0),
     ("interval 30 minutes", 0.5), ("interval", None), ("interval 1 month", None), ("interval 1 day 2", None)],
)  # fmt: skip
def test_how_long_a_table_keeps_files_is_read_as_it_is_written(said: str, hours: float | None) -> None:
    delta = table_format("delta")
    assert delta.kept_h({"delta.deletedFileRetentionDuration": said}) == hours
    assert delta.kept_h({}) == 168.0
