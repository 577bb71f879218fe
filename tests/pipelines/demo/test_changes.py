"""The five changes of the demo on a copy of the sample."""

from itertools import permutations
from pathlib import Path

import pytest

from core.errors import Refused, UsageError
from core.layouts import read_project
from pipelines.demo.changes import CHANGES, READERS, change_project
from pipelines.demo.project import copy_sample


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_sample(tmp_path / "demo").folder


def texts(project: Path) -> dict[str, str]:
    files = [path for path in project.rglob("*") if path.suffix in (".yml", ".sql")]
    return {path.relative_to(project).as_posix(): path.read_text() for path in files}


@pytest.mark.parametrize("word", CHANGES)
def test_a_change_writes_its_files_once_and_nothing_the_second_time(project: Path, word: str) -> None:
    before = texts(project)
    change, written = change_project(project, word)
    after = texts(project)
    assert set(written) == {path for path in before if before[path] != after[path]}
    assert all(change.table in path for path in written)
    assert change_project(project, word) == (change, ())
    assert texts(project) == after


def test_changes_in_any_order_give_the_same_project(tmp_path: Path) -> None:
    results = set()
    for n, words in enumerate(permutations(CHANGES)):
        project = copy_sample(tmp_path / str(n)).folder
        for word in words:
            change_project(project, word, with_readers=word == "rename")
        results.add(tuple(sorted(item for item in texts(project).items() if item[0] != "headgate.yml")))
    assert len(results) == 1


@pytest.mark.parametrize("word", [word for word in CHANGES if word != "rename"])
def test_a_changed_project_has_no_problem(project: Path, word: str) -> None:
    change_project(project, word)
    assert read_project(texts(project))[1] == ()


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


@pytest.mark.parametrize(("word", "with_readers"), [("shuffle", False), ("filter", True)])
def test_other_words_are_usage_errors(project: Path, word: str, with_readers: bool) -> None:
    with pytest.raises(UsageError):
        change_project(project, word, with_readers=with_readers)


def test_a_folder_without_the_sample_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        change_project(tmp_path, "filter")
