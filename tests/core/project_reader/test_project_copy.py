"""Copies of projects: a round trip preserves equality, and other bytes are rejected."""

import pickle
from pathlib import Path

import pytest

from core.model.problems import Problem, Severity, Where
from core.project.model import Project
from core.project_reader.loader import read_project
from core.project_reader.project_copy import ReadProject, digest_of, pack_project, unpack_project
from tests.bench.generated_projects import project_texts
from tests.support.small_project import texts
from tui.project_folder.declaring_files import read_files

ROOT = Path(__file__).parents[3]
FOLDERS = tuple(sorted(found.parent for found in ROOT.glob("[pt]*/*/**/headgate.yml")))


def every_project() -> dict[str, dict[str, str]]:
    folders = {folder.name: dict(read_files(str(folder)).texts) for folder in FOLDERS}
    return {"small": texts(), "generated": project_texts(60), **folders}


def read(files: dict[str, str]) -> ReadProject:
    project, problems = read_project(files)
    assert project is not None
    return project, problems


def test_there_are_folders_to_read() -> None:
    assert {"orders", "topology", "pizzeria"} <= set(every_project())


@pytest.mark.parametrize("name", sorted(every_project()))
def test_a_project_survives_a_round_trip(name: str) -> None:
    files = every_project()[name]
    found = read(files)
    again = unpack_project(pack_project(found, files), files)
    assert again == found
    assert again is not None and repr(again) == repr(found)


def test_warnings_come_back() -> None:
    project, _ = read(texts())
    warning = Problem("odd", "see there", Where("x.yml", 3), "a", severity=Severity.WARNING)
    assert unpack_project(pack_project((project, (warning,)), texts()), texts()) == (project, (warning,))


def test_texts_are_not_in_a_copy() -> None:
    files = {path: text + "-- not in the copy\n" if path.endswith(".sql") else text for path, text in texts().items()}
    assert b"not in the copy" not in pack_project(read(files), files)


def test_cut_bytes_are_no_copy() -> None:
    whole = pack_project(read(texts()), texts())
    assert [unpack_project(whole[:length], texts()) for length in range(0, len(whole), 7)] == [None] * -(
        -len(whole) // 7
    )


class _Acting:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("run",)


@pytest.mark.parametrize("found", [_Acting(), (Project, ()), ("no project", ()), 7, None])
def test_only_a_project_is_created(found: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert unpack_project(pickle.dumps(found), texts()) is None
    assert capsys.readouterr().out == ""


def test_a_digest_distinguishes_paths_from_contents() -> None:
    others = [{}, {"a": ""}, {"": "a"}, {"a": "b"}, {"ab": ""}, {"a": "", "b": ""}, {"a": "b", "b": "a"}, {"ba": "ba"}]
    assert len({digest_of(each, "dev") for each in others}) == len(others)
