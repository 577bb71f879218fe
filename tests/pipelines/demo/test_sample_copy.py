"""Copies of the sample: complete, recognized, refused in wrong folders, and purged by their marker."""

import json
import re
from pathlib import Path

import pytest

from core.model.actions import Action
from core.model.errors import HeadgateError, Refused
from core.model.names import TableName
from core.plan.request import PlanRequest, StrategyChoice
from core.planner.planner import make_plan
from core.project.model import Project
from core.project_reader.loader import read_project
from pipelines.demo import sample_copy
from pipelines.demo.event_simulation import FEEDS, FOLDER
from pipelines.demo.sample_copy import MARKER, PROGRAM, TRIGGER_WITH_LOG, copy_sample, project_id
from tests.support.domain_builders import deployed


def test_a_copy_holds_the_sample_with_a_fresh_id_and_its_reference_data(tmp_path: Path) -> None:
    first, second = copy_sample(tmp_path / "a"), copy_sample(tmp_path / "b")
    assert first.made and second.made and first.project_id != second.project_id
    manifest = (first.folder / "headgate.yml").read_text()
    assert re.search(r"^id: (.*)$", manifest, re.MULTILINE)[1] == first.project_id  # type: ignore[index]  # It is there.
    shipped = {p.relative_to(FOLDER) for p in (FOLDER / "pipelines").rglob("*.*")}
    assert shipped == {p.relative_to(first.folder) for p in (first.folder / "pipelines").rglob("*.*")}
    assert (first.data / "reference/pizzas/pizzas.json").read_bytes() == (
        FOLDER / "reference/pizzas/pizzas.json"
    ).read_bytes()
    assert all((first.data / "landing" / feed).is_dir() for feed in FEEDS)


def test_an_existing_copy_is_found_again_and_left_unchanged(tmp_path: Path) -> None:
    first = copy_sample(tmp_path / "demo")
    (first.folder / "headgate.yml").write_text("edited")
    again = copy_sample(tmp_path / "demo")
    assert (again.project_id, again.made) == (first.project_id, False)
    assert (again.folder / "headgate.yml").read_text() == "edited"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    assert copy_sample(tmp_path / "demo").made


@pytest.mark.parametrize("marker", [None, "{}", "no json", '{"made_by": "someone", "project_id": "x"}'])
def test_a_folder_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, marker: str | None) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    if marker is not None:
        (tmp_path / MARKER).write_text(marker)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Refused):
        copy_sample(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_the_programs_own_folder_is_refused_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(PROGRAM)
    for target in (PROGRAM, PROGRAM / "headgate-demo", tmp_path / "link" / "demo"):
        with pytest.raises(Refused, match="inside"):
            copy_sample(target)
    assert not (PROGRAM / "headgate-demo" / MARKER).exists()


def test_an_interrupted_copy_leaves_nothing_that_looks_like_a_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> None:
        assert (folder.parent / "pipelines").is_dir()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sample_copy, "open_folder", full)
        with pytest.raises(HeadgateError, match="No space left"):
            copy_sample(tmp_path / "demo")
    assert list(tmp_path.iterdir()) == []
    assert copy_sample(tmp_path / "demo").made


def test_the_marker_names_what_was_copied(tmp_path: Path) -> None:
    copy = copy_sample(tmp_path / "demo")
    found = {str(path.relative_to(copy.folder)) for path in copy.folder.rglob("*")}
    assert {*json.loads((copy.folder / MARKER).read_text())["made"], MARKER} == found


def test_the_marker_holds_the_project_id(tmp_path: Path) -> None:
    copy = copy_sample(tmp_path / "demo")
    assert project_id(copy.folder) == json.loads((copy.folder / MARKER).read_text())["project_id"] == copy.project_id
    assert project_id(tmp_path) is None


def project_of(folder: Path) -> Project:
    files = [path for path in folder.rglob("*") if path.suffix in (".yml", ".sql")]
    project, problems = read_project({path.relative_to(folder).as_posix(): path.read_text() for path in files})
    assert project is not None and not problems
    return project


@pytest.mark.parametrize("table", ["dim_client_now", "int_order_status"])
def test_each_keyed_table_of_the_sample_can_be_written_again_in_place_as_the_help_says(
    table: str, tmp_path: Path
) -> None:
    project = project_of(copy_sample(tmp_path / "demo", "delta").folder)
    external = {name: 0 for name, each in project.tables.items() if each.external}
    observed = {name: deployed(each, bindings=external) for name, each in project.tables.items()}
    asked = PlanRequest(tables=(TableName(table),), choices=(StrategyChoice(TableName(table), "keyed"),))
    plan = make_plan(project, "dev", observed, asked)
    assert plan.refusals == () and plan.approvals == 0
    assert {node.table: node.action for node in plan.nodes if node.action is not Action.KEEP} == {table: Action.REBUILD}


def test_the_sample_on_delta_is_the_same_company_with_its_tables_in_delta(tmp_path: Path) -> None:
    copy = copy_sample(tmp_path / "demo", "delta")
    project = project_of(copy.folder)
    formats = {table.parsed_ddl.format for table in project.tables.values() if not table.external}
    assert formats == {"delta"}
    assert {table.settings.trigger for table in project.tables.values()} == {TRIGGER_WITH_LOG}
    keyed = {name for name, table in project.tables.items() if table.settings.upserts}
    assert keyed == {"dim_client_now", "int_order_status"}
    (changes,) = project.tables[TableName("fct_client_moves")].parsed.reads  # type: ignore[union-attr]  # It has one.
    assert changes.takes_changes and changes.table == "dim_client_now"
    assert copy_sample(tmp_path / "demo").made is False
    with pytest.raises(Refused, match="whose tables are delta"):
        copy_sample(tmp_path / "demo", "parquet")
