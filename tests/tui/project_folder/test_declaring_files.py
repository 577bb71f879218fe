"""Declaring files: folders of test cases declare nothing, now or at a commit; a table called `tests` is declared."""

import json
import pickle
import subprocess
from pathlib import Path

import pytest

from core.model.errors import UsageError
from core.project.unreadable_file import UnreadableFile, texts_from_json
from core.project_reader.paths import unreadable_files
from tui.project_folder.declaring_files import list_files, read_files, read_test_files
from tui.project_folder.git_objects import texts_differing_from

DECLARING = (
    "headgate.yml",
    "pipelines/facts/p/a/a.yml",
    "pipelines/facts/p/a/sql-scripts/ddl.a.sql",
    "pipelines/facts/tests/sql-scripts/ddl.tests.sql",
    "pipelines/facts/tests/tests.yml",
    "pipelines/sources/tests/b/sql-scripts/ddl.b.sql",
)
TESTS = (
    "pipelines/facts/p/a/tests/deeper/two.yml",
    "pipelines/facts/p/a/tests/one.yml",
    "pipelines/facts/p/a/tests/rows.csv",
    "pipelines/sources/tests/b/tests/three.yml",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in (*DECLARING, *TESTS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    return tmp_path


def test_folders_of_test_cases_declare_nothing(folder: Path) -> None:
    assert list_files(str(folder)) == (sorted(DECLARING), {})


@pytest.mark.parametrize("target", ["../../elsewhere", "nowhere"])
def test_an_unfollowed_link_is_a_problem(target: str, folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir(exist_ok=True)
    (folder / "pipelines/linked").symlink_to(target)
    (problem,) = unreadable_files(read_files(str(folder)).texts).values()
    assert str(problem.where) == "pipelines/linked" and problem.remedy and "is a link to a folder" in problem.summary


def test_unreadable_files_survive_json_and_pickling(folder: Path) -> None:
    (folder / "pipelines/linked").symlink_to("nowhere")
    texts = read_files(str(folder)).texts
    for copied in (texts_from_json(json.loads(json.dumps(dict(texts)))), pickle.loads(pickle.dumps(dict(texts)))):
        assert copied == texts and unreadable_files(copied) == unreadable_files(texts)
        assert isinstance(copied["pipelines/linked"], UnreadableFile)
    assert unreadable_files({path: str(text) for path, text in texts.items()}) == {}, "no text is read back"


def test_a_link_to_a_file_is_read(folder: Path) -> None:
    (folder / "pipelines/facts/p/a/a.yml").rename(folder / "shared.yml")
    (folder / "pipelines/facts/p/a/a.yml").symlink_to(folder / "shared.yml")
    assert read_files(str(folder)).texts["pipelines/facts/p/a/a.yml"] == "x"


@pytest.mark.parametrize("name", ["two.YML", "two.Yaml", "ddl.two.SQL"])
def test_an_ending_in_capital_letters_is_listed(name: str, folder: Path) -> None:
    (folder / "pipelines/facts/p/a" / name).write_text("x")
    assert f"pipelines/facts/p/a/{name}" in list_files(str(folder))[0]


def test_a_file_that_is_too_large_is_named_and_not_cut(folder: Path) -> None:
    (folder / "pipelines/facts/p/a/a.yml").write_text("#" * (4 * 1024 * 1024 + 1))
    (problem,) = unreadable_files(read_files(str(folder)).texts).values()
    assert str(problem.summary) == "a.yml cannot be read: larger than 4 MB"
    assert problem.remedy == "make it smaller than 4 MB"


def test_nor_do_they_at_a_commit(folder: Path) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    assert texts_differing_from(str(folder), "HEAD", read_files(str(folder)).texts) == {}


def test_test_cases_are_read_by_the_folders_of_tables(folder: Path) -> None:
    found = read_test_files(str(folder), ["pipelines/facts/p/a", "pipelines/facts/p/a", "pipelines/facts/tests"])
    assert found == {"pipelines/facts/p/a/tests/one.yml": "x", "pipelines/facts/p/a/tests/rows.csv": "x"}


def test_a_test_case_that_is_not_text_is_named(folder: Path) -> None:
    (folder / "pipelines/facts/p/a/tests/one.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"tests/one\.yml cannot be read"):
        read_test_files(str(folder), ["pipelines/facts/p/a"])
