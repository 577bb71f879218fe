"""headgate lineage: a tree for people, data for programs, a picture for both; and its errors."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.project.revision import RevisionTexts
from tui.command_line import exit_codes
from tui.command_line.parser import parse_line


def test_a_column_is_a_tree_down_to_landed_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["lineage", "b.kind"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[:4]] == [
        ["COLUMN", "TYPE", "FILE", "EXPRESSION"],
        ["b.kind", "string", "dml.b.sql:1", "kind"],
        ["a.kind", "string", "dml.a.sql:1", "kind"],
        ["landed.kind", "string", "external", "input:", "json", "in"],
    ]


def test_down_shows_every_reader(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["lineage", "LANDED.`Kind`", "--down"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "COLUMN", "landed.kind", "a.kind", "b.kind",
    ]  # fmt: skip


def test_json_has_the_documented_shape(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["lineage", "b.kind", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [
        "format",
        "project",
        "root",
        "direction",
        "nodes",
        "edges",
        "unresolved",
        "edited",
        "functions",
        "left_out",
    ]
    assert (found["format"], found["root"]) == ("headgate.lineage/1", {"table": "b", "column": "kind"})
    assert [(node["table"], node["column"], node["kind"]) for node in found["nodes"]] == [
        ("b", "kind", "column"), ("a", "kind", "column"), ("b", None, "rows"),
        ("landed", "kind", "landed"), ("a", None, "rows"), ("landed", None, "landed"),
    ]  # fmt: skip
    assert found["nodes"][3] == {
        "table": "landed", "column": "kind", "type": "string", "kind": "landed", "format": "json", "location": "in",
        "expression": None,
    }  # fmt: skip
    assert found["edges"][0] == {
        "from": {"table": "a", "column": "kind"}, "to": {"table": "b", "column": "kind"}, "kind": "value",
        "clause": "SELECT", "expression": "kind", "fields": [], "through": [],
        "file": "pipelines/facts/p/b/sql-scripts/dml.b.sql", "line": 1,
    }  # fmt: skip
    assert found["unresolved"] == []


def test_a_table_with_another_deployed_text_is_marked(
    folder: Path, ledger: Any, deployed: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sql = folder / "pipelines/sources/p/a/sql-scripts"
    texts = RevisionTexts((sql / "ddl.a.sql").read_text(), (sql / "dml.a.sql").read_text(), "")
    ledger.put_deployment(
        deployed("a", texts=replace(texts, dml="INSERT INTO a SELECT id, 'x' AS kind FROM STREAM landed"))
    )
    assert exit_codes.run_command_line(["lineage", "b.kind"]) == 0
    assert "the lineage of the files; the files of a differ from what is deployed" in capsys.readouterr().err
    assert exit_codes.run_command_line(["lineage", "b.kind", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["edited"] == ["a"]
    ledger.update_deployment("a", 1, texts=texts, revision="of the files")
    assert exit_codes.run_command_line(["lineage", "b.kind"]) == 0
    assert "another text" not in capsys.readouterr().err


def test_a_table_has_a_tree_for_each_column(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["lineage", "b"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ") and line]
    assert names[1:3] == ["b.id", "b.kind"]


def test_untraceable_parts_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    script.write_text("INSERT INTO b SELECT id, lost AS kind FROM STREAM a;")
    assert exit_codes.run_command_line(["lineage", "b.kind"]) == 0
    said = capsys.readouterr()
    assert "b.kind: lost cannot be traced: no source has such a column  (dml.b.sql:1)" in said.out
    assert "1 name could not be traced" in said.err


@pytest.mark.parametrize(
    ("words", "summary", "remedy"),
    [
        ("bb.kind", "bb is not declared in this project", "did you mean b?"),
        ("b.kinds", "b has no column kinds", "did you mean kind?"),
        ("b.zzz", "b has no column zzz", "there are id, kind"),
        ("b.", "b has no column without a name", "there are id, kind"),
    ],
)
def test_an_unknown_table_or_column_is_a_wrong_command(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str, summary: str, remedy: str
) -> None:
    assert exit_codes.run_command_line(["lineage", words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "error": {"class": "UsageError", "summary": summary, "remedy": remedy}
    }


def test_up_and_down_exclude_each_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["lineage", "b", "--up", "--down"]) == 2
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "name"), [("--svg", "p.svg"), ("--html", "p.html")])
def test_a_picture_is_written_completely(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    assert exit_codes.run_command_line(["lineage", "b.kind", option, name]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"written: {name}\n")
    text = (Path.cwd() / name).read_text()
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and "<script" not in text


def test_a_picture_that_cannot_be_written_is_reported_and_leaves_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["lineage", "b.kind", "--svg", "nowhere/p.svg"]) == 2
    assert "nowhere/p.svg cannot be written: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "first"), [("mermaid", "flowchart LR"), ("dot", "digraph {")])
def test_a_viewer_draws_what_is_printed(
    form: str, first: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["lineage", "b.kind", "--format", form]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(first) and "landed (external input: json in)" in said.out and said.err == ""
    assert exit_codes.run_command_line(["lineage", "b.kind", "--format", form]) == 0
    assert capsys.readouterr().out == said.out
    assert exit_codes.run_command_line(["lineage", "b.kind", "--format", form, "--json"]) == 2
    assert exit_codes.run_command_line(["lineage", "b.kind", "--format", f"{form}s"]) == 2
    assert f"did you mean {form}?" in capsys.readouterr().err


def test_completion_offers_the_columns_of_one_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["completion", "columns", "a"]) == 0
    assert capsys.readouterr().out.split() == ["a.id", "a.kind"]
    assert exit_codes.run_command_line(["completion", "columns", "none"]) == 0
    assert capsys.readouterr().out == ""


def test_help_has_an_example() -> None:
    from tui.command_line.command_table import SPEC_BY_NAME

    for line in SPEC_BY_NAME["lineage"].example.splitlines():
        parse_line(line.split()[1:])
