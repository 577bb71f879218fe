"""Scopes and options on the command line: list files, folders, and all their errors."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from tui.command_line import exit_codes


def asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run `headgate plan --offline` with these words, and return the request in the printed plan."""
    request: dict[str, Any] = written(["plan", *words, "--offline"], capsys)["request"]
    return request


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["a", "B", "a"], {"tables": ["a", "b"]}),
        (["deploy", "a"], {"verb": "deploy", "tables": ["a"], "children": "product"}),
        (["delete", "--all"], {"verb": "delete", "everything": True, "children": "none"}),
        (["--product", "p", "--product", "p"], {"products": ["p"]}),
        (["--layer", "facts", "--layer", "source"], {"layers": ["fact", "source"]}),
        (["--dir", "pipelines/facts"], {"folders": ["pipelines/facts"]}),
        (["--dir", "."], {"folders": ["."]}),
        (["--all"], {"everything": True}),
        (["a", "--children", "all"], {"children": "all"}),
        (["a", "--children", "p"], {"children": "p"}),
        (["a", "--exclude", "b,landed", "--exclude", "b"], {"exclude": ["b", "landed"]}),
        (["a", "--rebuild"], {"rebuild": True}),
        (["a", "--keep-table"], {"keep_table": True}),
        (["a", "--from", "2026-01-02"], {"start": "2026-01-02T00:00:00Z"}),
    ],
)
def test_every_option_is_in_the_request(
    words: list[str], part: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", *words, "--offline", "--json"]) in (0, 3)
    request = json.loads(capsys.readouterr().out)["request"]
    assert {name: request.get(name) for name in part} == part


def test_the_order_of_the_arguments_does_not_change_the_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tables.txt").write_text("b\na\n")
    orders = (
        ["a", "b", "--layer", "source", "--exclude", "landed"],
        ["--exclude", "landed,landed", "--layer", "sources", "b", "a", "b"],
        ["--list", "tables.txt", "--layer", "source", "--list", "tables.txt", "--exclude", "landed"],
    )
    said = []
    for words in orders:
        assert exit_codes.run_command_line(["plan", *words, "--json", "--offline"]) == 3
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]


# List files


def test_a_list_file_holds_names_comments_and_blank_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tables.txt").write_bytes("\ufeff# ours\r\n\r\nb # the facts\r\n  A\r\n#c\r\n".encode())
    assert asked(["--list", "tables.txt", "landed"], capsys)["tables"] == ["a", "b", "landed"]


def test_a_list_file_may_hold_selectors_and_a_wrong_one_is_reported_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("tables.txt").write_text("1+b  # and what it reads\n")
    assert asked(["--list", "tables.txt"], capsys)["tables"] == ["a", "b"]
    Path("tables.txt").write_text("a\ntag:nothing\n")
    assert exit_codes.run_command_line(["plan", "--list", "tables.txt", "--offline"]) == 2
    assert "tables.txt:2: " in capsys.readouterr().err


def test_a_list_may_come_from_stdin(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b\n")))
    assert asked(["--list", "-"], capsys)["tables"] == ["b"]


def test_a_repeated_name_in_a_list_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tables.txt").write_text("b\na\nB\n")
    assert exit_codes.run_command_line(["plan", "a", "--list", "tables.txt", "--offline"]) == 0
    told = capsys.readouterr().err
    assert "tables.txt:3: b was already named by tables.txt:1" in told
    assert "tables.txt:2: a was already named by the command line" in told


def test_all_unknown_names_of_a_list_are_reported_with_their_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tables.txt").write_text("# ours\nlunded\na\nzzzz\n")
    assert exit_codes.run_command_line(["plan", "--list", "tables.txt", "--offline"]) == 2
    told = capsys.readouterr().err
    assert "tables.txt:2: there is no table lunded; tables.txt:4: there is no table zzzz" in told
    assert "did you mean landed?" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a-b\nc d\n", "tables.txt:1: 'a-b' is not a table name; tables.txt:2: 'c d' is not a table name"),
        (b"# nothing\n\n", "tables.txt names no table"),
        (b"\xff\xfe", "tables.txt cannot be read: it is not UTF-8 text"),
        (None, "tables.txt cannot be read: No such file or directory"),
    ],
)
def test_a_list_that_is_wrong_is_a_bad_command(
    text: bytes | None, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (folder / "tables.txt").write_bytes(text)
    assert exit_codes.run_command_line(["plan", "a", "--list", "tables.txt"]) == 2
    assert said in capsys.readouterr().err


def test_of_many_mistakes_the_first_are_listed_and_the_rest_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tables.txt").write_text("".join(f"none_{n}\n" for n in range(500)))
    assert exit_codes.run_command_line(["plan", "--list", "tables.txt"]) == 2
    told = capsys.readouterr().err
    assert told.count("there is no table none_") == 20 and "; and 480 more problems" in told


# Folders


@pytest.mark.parametrize(
    ("cwd", "given"),
    [
        (".", "pipelines/facts/"),
        (".", "./pipelines/sources/../facts"),
        ("pipelines", "facts"),
        ("pipelines/facts", "."),
        ("pipelines/sources", "pipelines/facts"),
        (".", "{root}/pipelines/facts"),
        (".", "link"),
    ],
)
def test_a_folder_is_found_from_here_or_from_the_project(
    cwd: str, given: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link").symlink_to(folder / "pipelines/facts")
    monkeypatch.chdir(folder / cwd)
    assert asked(["--dir", given.format(root=folder)], capsys)["folders"] == ["pipelines/facts"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("..", "is outside the project"),
        ("/", "is outside the project"),
        ("pipelines/fact", "is not a folder of the project"),
        ("headgate.yml", "is not a folder of the project"),
        ("", "is not a folder of the project"),
        ("empty", "there is no table in empty"),
    ],
)
def test_a_folder_outside_the_project_is_a_usage_error(
    given: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    assert exit_codes.run_command_line(["plan", "--dir", given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--layer", "fcts"], "did you mean fact?"),
        (["--layer", "view"], "there is no table of layer view"),
        (["--product", ""], "--product is empty"),
        (["a", "--children", "slaes"], "there is no product slaes"),
        (["a", "--children", "none,p"], "--children none cannot be combined with other values"),
        (["a", "--from", "erliest"], "did you mean earliest?"),
        (["a", "--strategy", "a=seem"], "did you mean seam?"),
        (["a", "--strategy", "b"], "'b' is not a valid --strategy"),
        (["a", "--strategy", "zz=seam"], "there is no table zz"),
        (["a", "--rebuild", "--keep-table"], "a rebuild creates a new table"),
        (["--pipeline", "b"], "--pipeline is only for a delete"),
        (["delete", "a", "--rebuild"], "--rebuild does not apply to a delete"),
        (["delete"], "the request is empty"),
        (["--exclude", "a"], "the request is empty"),
    ],
)
def test_meaningless_combinations_are_usage_errors(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", *words]) == 2
    assert said in capsys.readouterr().err


# Deletes


def test_a_delete_takes_the_same_scopes(
    ledger: Any, agent: Any, deployed: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    ledger.put_deployment(deployed("b", reads="a"))
    (folder / "tables.txt").write_text("lunded\n")
    assert exit_codes.run_command_line(["delete", "--list", "tables.txt"]) == 2
    assert "tables.txt:1: there is no table lunded" in capsys.readouterr().err
    assert exit_codes.run_command_line(["delete"]) == 2
    found = written(["plan", "delete", "--pipeline", "b", "--offline"], capsys)
    assert [node["table"] for node in found["nodes"] if node["action"] == "delete"] == ["b", "a"]
