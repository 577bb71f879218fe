"""`init --from-manifests` makes a folder of manifests a project: it writes what is missing, and changes nothing."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.project_reader.job_manifests import MANIFEST_KEYS, OF_ONE_STATEMENT, OWN
from core.project_reader.loader import read_project
from tests.support.manifest_project import CHEAP, DEAR, IN, OUT
from tui.command_line import exit_codes
from tui.project_folder.declaring_files import read_files
from tui.services.help_topics import help_topic

FILES = {
    "queries/cheap.yaml": CHEAP,
    "queries/shop/dear.yml": DEAR.replace("STREAM ", ""),
    "sql/in.sql": IN,
    "sql/out.sql": OUT,
    "sql/report.sql": "SELECT 1;\n",
    "deploy/job-template.yaml": "trigger: 7 seconds\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "shop"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def write(folder: Path, texts: Mapping[str, str]) -> None:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def test_the_written_project_has_every_manifest_table_and_the_template(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, FILES)
    assert exit_codes.run_command_line(["init", "--from-manifests", "queries", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == ["headgate.yml", ".gitignore"]
    project, problems = read_project(read_files(str(folder)).texts)
    assert project is not None and not problems
    found = {name: (table.product, table.external, table.settings.trigger) for name, table in project.tables.items()}
    assert found == {
        "cheap": ("main", False, "7 seconds"),
        "dear": ("shop", False, "7 seconds"),
        "orders": ("main", True, "5 seconds"),
    }
    assert {path: (folder / path).read_text() for path in FILES} == FILES


def test_without_table_definitions_a_file_for_them_is_written_and_the_problems_name_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {"queries/dear.yml": DEAR, ".gitignore": "x\n"})
    assert exit_codes.run_command_line(["init", "--from-manifests", "./queries/"]) == 0
    assert "1 problem to correct: headgate plan --all lists them" in capsys.readouterr().err
    assert (folder / ".gitignore").read_text() == "x\n"
    _, (problem,) = read_project(read_files(str(folder)).texts)
    assert problem.summary == "no file of table definitions declares dear" and "tables.sql" in problem.remedy


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from-manifests", "nowhere"], "'nowhere' cannot be the folder of the manifests"),
        (["--from-manifests", "."], "'.' cannot be the folder of the manifests"),
        (["--from-manifests", ".."], "'..' cannot be the folder of the manifests"),
        (["--from-manifests", "pipelines"], "'pipelines' cannot be the folder of the manifests"),
        (["--from-manifests", "sql"], "sql contains no .yaml or .yml file"),
        (["--from-manifests", "queries", "shop"], "and shop was named as well"),
    ],
)
def test_what_cannot_become_a_project_is_refused_and_nothing_is_written(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, {**FILES, "pipelines/a.yaml": ""})
    assert exit_codes.run_command_line(["init", *words]) == 2
    assert message in capsys.readouterr().err
    assert not os.path.exists(folder / "headgate.yml")


def test_an_existing_project_is_not_overwritten_and_gets_no_tables_of_the_other_layout(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, FILES)
    assert exit_codes.run_command_line(["init", "--from-manifests", "queries"]) == 0
    before = (folder / "headgate.yml").read_text()
    capsys.readouterr()
    assert exit_codes.run_command_line(["init", "--from-manifests", "queries"]) != 0
    assert "already exists" in capsys.readouterr().err and (folder / "headgate.yml").read_text() == before
    assert exit_codes.run_command_line(["init", "table", "clicks"]) != 0
    said = capsys.readouterr().err
    assert "is a project of manifests" in said and "headgate help manifests" in said
    assert not (folder / "pipelines").exists()


def test_the_page_on_manifests_names_every_key_and_those_that_no_template_may_have() -> None:
    words = help_topic("manifests").replace(",", " ").replace(".", " ").split()
    assert [key for key in MANIFEST_KEYS if key not in words] == []
    of_one_job = help_topic("manifests").partition("of a single\njob:")[2].partition(".")[0]
    listed = of_one_job.replace(" and ", ", ").replace("\n", " ").split(",")
    assert sorted(word.strip() for word in listed) == sorted((*OWN, *OF_ONE_STATEMENT))
