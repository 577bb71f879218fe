"""Reading a project from files, from cached texts and from a copy: results and output of commands are equal."""

import os
from pathlib import Path

import pytest

from core.model.errors import InvalidProject
from core.project_reader import loader
from tests.tui.conftest import FILES
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import select_environment
from tui.project_folder.project_folder_reader import ProjectReader


def reader(folder: Path) -> ProjectReader:
    return ProjectReader(select_environment(os.environ, str(folder)), os.environ)


def test_each_way_of_reading_gives_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anew = reader(folder).read()
    known_texts = reader(folder).read()
    monkeypatch.setattr(loader, "read_project", None)
    copied = reader(folder).read()
    assert anew == known_texts == copied


def test_an_edit_is_seen_behind_a_copy(folder: Path) -> None:
    for _ in range(2):
        before = reader(folder).read()
    path = next(path for path in FILES if "/dml." in path)
    (folder / path).write_text((folder / path).read_text() + "-- edited\n")
    assert reader(folder).read().texts != before.texts
    (folder / path).write_text("SELECT")
    with pytest.raises(InvalidProject):
        reader(folder).read()
    (folder / path).write_text(FILES[path])
    assert reader(folder).read() == before


@pytest.mark.parametrize(
    "key",
    [
        "pool: {{url: 'sc://h:1', ca: {ca}}}",
        "pools:\n      one: {{}}\n      two:\n        url: sc://h:1\n        ca: {ca}",
    ],
)
def test_certificates_that_are_not_on_this_machine_are_a_warning_at_their_line(
    key: str, folder: Path, tmp_path: Path
) -> None:
    ca, head = tmp_path / "ca.pem", (folder / "headgate.yml").read_text()
    (folder / "headgate.yml").write_text(head.replace("  dev:\n", f"  dev:\n    {key.format(ca=ca)}\n"))
    read = reader(folder)
    for _ in range(2):
        (found,) = read.read().problems
        assert found.severity == "warning" and found.summary == f"the file {ca} does not exist"
        assert found.where is not None and found.where.path == "headgate.yml"
        assert (folder / "headgate.yml").read_text().splitlines()[found.where.line - 1].count(str(ca)) == 1
    ca.write_text("")
    assert not read.read().problems, "the file is looked for at each reading"


@pytest.mark.parametrize("words", ["plan --all --offline --json", "inventory --json", "plan --all"])
def test_commands_print_the_same_however_they_read(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for _ in range(3):
        exit_codes.run_command_line(words.split())
        printed.append(capsys.readouterr().out)
    assert printed[0] and printed == [printed[0]] * 3
