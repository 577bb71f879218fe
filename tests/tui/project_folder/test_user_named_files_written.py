"""Output files named by users: an existing path that is not a regular file is left as it is."""

import os
import stat
from pathlib import Path

import pytest

from core.model.errors import UsageError
from tui.project_folder.user_named_files import write_whole


def test_a_file_is_replaced_without_leaving_another_beside_it(tmp_path: Path) -> None:
    for text in ("one", "two"):
        write_whole(str(tmp_path / "plan"), text)
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan", text)]


def test_a_name_without_a_folder_is_one_of_the_folder_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_whole("plan", "one")
    assert (tmp_path / "plan").read_text() == "one"


@pytest.mark.parametrize("there", [True, False])
def test_the_target_of_a_link_is_written_and_the_link_stays(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    if there:
        (tmp_path / "far" / "real").write_text("old")
    (tmp_path / "link").symlink_to("far/real")
    write_whole(str(tmp_path / "link"), "new")
    assert os.readlink(tmp_path / "link") == "far/real"
    assert (tmp_path / "far" / "real").read_text() == "new"
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["real"]


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFDIR])
def test_anything_but_a_regular_file_is_refused_and_left_alone(tmp_path: Path, kind: int, linked: bool) -> None:
    there = tmp_path / "there"
    (os.mkfifo if kind == stat.S_IFIFO else os.mkdir)(there)
    if linked:
        (tmp_path / "link").symlink_to(there)
    path = str(tmp_path / "link") if linked else str(there)
    before = sorted(each.name for each in tmp_path.iterdir())
    with pytest.raises(UsageError, match="exists and is not a regular file"):
        write_whole(path, "new")
    assert stat.S_IFMT(there.stat().st_mode) == kind
    assert sorted(each.name for each in tmp_path.iterdir()) == before


def test_circular_links_and_a_missing_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for path in (tmp_path / "a", tmp_path / "none" / "plan"):
        with pytest.raises(UsageError, match="cannot be written"):
            write_whole(str(path), "new")
