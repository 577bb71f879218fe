"""The changes of `headgate demo change`, on a copy of the sample."""

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from core.model.actions import Action
from core.model.errors import Refused, UsageError
from core.model.names import TableName
from core.observed.planner_input import ObservedDeployment
from core.plan.model import Plan
from core.plan.request import PlanRequest
from core.planner.planner import make_plan
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from pipelines.demo.sample_changes import CHANGES, READERS, change_project
from pipelines.demo.sample_copy import copy_sample
from tui.command_line.arguments import demo_change
from tui.services.demo_project import CHANGES as OFFERED


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_sample(tmp_path / "demo").folder


def texts(project: Path) -> dict[str, str]:
    files = [path for path in project.rglob("*") if path.suffix in (".yml", ".sql", ".py")]
    return {path.relative_to(project).as_posix(): path.read_text() for path in files}


@pytest.mark.parametrize("word", CHANGES)
def test_a_change_writes_its_files_once_and_nothing_the_second_time(project: Path, word: str) -> None:
    before = texts(project)
    change, written = change_project(project, word)
    after = texts(project)
    assert set(written) == {path for path in after if before.get(path) != after[path]}
    assert all(change.table in path or path.startswith("functions/") for path in written)
    assert change_project(project, word) == (change, ())
    assert texts(project) == after


def test_the_command_offers_every_change() -> None:
    parser = ArgumentParser()
    demo_change(parser)
    assert set(OFFERED) == set(CHANGES)
    assert all(word in parser.format_help() for word in CHANGES)


def test_each_two_changes_give_the_same_project_in_either_order(tmp_path: Path) -> None:
    results = set()
    for n, words in enumerate((list(CHANGES), list(reversed(CHANGES)))):
        project = copy_sample(tmp_path / str(n)).folder
        for word in words:
            change_project(project, word, with_readers=word == "rename")
        results.add(tuple(sorted(item for item in texts(project).items() if item[0] != "headgate.yml")))
    assert len(results) == 1


@pytest.mark.parametrize("word", [word for word in CHANGES if word != "rename"])
def test_a_changed_project_has_no_problem(project: Path, word: str) -> None:
    change_project(project, word)
    assert read_project(texts(project))[1] == ()


def plan_of(project: Path, word: str, *, with_readers: bool = False) -> Plan:
    """Change a project whose statements all run as shipped, and plan the changed table with all its children."""
    before = read_project(texts(project))[0]
    change, _ = change_project(project, word, with_readers=with_readers)
    after = read_project(texts(project))[0]
    assert before and after
    running = {
        name: ObservedDeployment(state="running", wanted="running", deployed=revision_of(table).texts, version=1)
        for name, table in before.tables.items()
        if not table.external
    }
    return make_plan(after, "dev", running, PlanRequest(tables=(TableName(change.table),), children="all"))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("comment", {"src_payments": (Action.RECORD, "1")}),
        ("column", {"int_priced_items": (Action.RESTART, "4")}),
        ("filter", {"fct_kitchen_load": (Action.REBUILD, "6b"), "vw_busy_windows": (Action.REBUILD, "0")}),
        ("window", {"fct_revenue": (Action.REBUILD, "6a")}),
        ("function", {"int_priced_items": (Action.RESTART, "3")}),
        ("code", {"order_labels": (Action.REBUILD, "6a")}),
    ],
)
def test_a_change_is_planned_as_the_demo_announces(
    project: Path, word: str, expected: dict[str, tuple[Action, str]]
) -> None:
    plan = plan_of(project, word)
    acted = {node.table: (node.action, node.row) for node in plan.nodes if node.action is not Action.KEEP}
    assert plan.refusals == ()
    assert acted == expected


def test_a_rename_alone_is_refused_naming_each_reader_and_its_lines(project: Path) -> None:
    plan = plan_of(project, "rename")
    said = " ".join(refusal.summary for refusal in plan.refusals)
    assert plan.steps == ()
    assert not CHANGES["rename"].expected.startswith("refused")
    assert "dml.fct_kitchen_load.sql:2,4" in said
    assert "dml.int_priced_items.sql:3,5" in said


def test_a_rename_with_its_readers_rebuilds_the_table_and_all_below_it(project: Path) -> None:
    plan = plan_of(project, "rename", with_readers=True)
    assert plan.refusals == ()
    assert {node.table for node in plan.nodes if node.action is Action.REBUILD} == {
        "int_order_items", "int_priced_items", "fct_kitchen_load", "fct_revenue", "vw_busy_windows"
    }  # fmt: skip


def test_a_rename_touches_the_table_alone_and_its_readers_can_follow(project: Path) -> None:
    _, alone = change_project(project, "rename")
    assert all("int_order_items" in path for path in alone)
    _, readers = change_project(project, "rename", with_readers=True)
    assert {path.split("/")[-1] for path in readers} == {"dml.int_priced_items.sql", "dml.fct_kitchen_load.sql"}
    assert read_project(texts(project))[1] == ()


def test_rename_with_readers_at_once_is_rename_and_then_readers(tmp_path: Path) -> None:
    once, twice = copy_sample(tmp_path / "once").folder, copy_sample(tmp_path / "twice").folder
    change_project(once, "rename", with_readers=True)
    change_project(twice, "rename")
    change_project(twice, "rename", with_readers=True)
    assert {k: v for k, v in texts(once).items() if k != "headgate.yml"} == {
        k: v for k, v in texts(twice).items() if k != "headgate.yml"
    }


def test_a_text_edited_by_hand_is_refused_and_nothing_is_written(project: Path) -> None:
    last = project / READERS.edits[-1].path
    last.write_text(last.read_text().replace("'30 seconds'", "'45 seconds'"))
    before = texts(project)
    with pytest.raises(Refused, match="edited by hand"):
        change_project(project, "rename", with_readers=True)
    assert texts(project) == before


def test_a_move_that_was_interrupted_before_its_text_was_replaced_is_completed(project: Path) -> None:
    before = texts(project)
    _, (job, _) = change_project(project, "code")
    changed = texts(project)
    sql = job.replace("job.", "dml.").replace(".py", ".sql")
    (project / job).write_text(before[sql])
    assert sql not in changed
    assert change_project(project, "code")[1] == (job,)
    assert texts(project) == changed
    assert job in json.loads((project / ".headgate-demo").read_text())["made"]


def test_a_job_edited_afterwards_stays_as_it_is(project: Path) -> None:
    _, (job, _) = change_project(project, "code")
    edited = (project / job).read_text().replace(" pizzas", " boxes")
    (project / job).write_text(edited)
    assert change_project(project, "code")[1] == ()
    assert (project / job).read_text() == edited


@pytest.mark.parametrize(("word", "with_readers"), [("shuffle", False), ("filter", True)])
def test_unknown_words_are_usage_errors(project: Path, word: str, with_readers: bool) -> None:
    with pytest.raises(UsageError):
        change_project(project, word, with_readers=with_readers)


def test_a_folder_without_the_sample_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        change_project(tmp_path, "filter")


def test_a_column_is_expected_to_stop_the_readers_on_delta(tmp_path: Path) -> None:
    change, written = change_project(copy_sample(tmp_path / "demo", "delta").folder, "column")
    assert written and change.expected.startswith("stop its readers, alter the table")
