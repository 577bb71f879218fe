"""Jobs in Python on the command line, without an agent."""

import json
from pathlib import Path

import pytest

from tui.command_line import exit_codes
from tui.project_folder.project_folder_reader import declared_tables, find_sql_file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert exit_codes.run_command_line(["init", "shop"]) == 0
    monkeypatch.chdir(tmp_path / "shop")
    assert exit_codes.run_command_line(["init", "table", "visits", "--reads", "src_events", "--python"]) == 0
    capsys.readouterr()
    return tmp_path / "shop"


def test_a_written_job_can_be_planned_and_is_no_external_table(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", "visits", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [node["action"] for node in plan["nodes"] if node["table"] == "visits"] == ["start"]
    assert {entry.table: entry.external for entry in declared_tables(str(folder))}["visits"] is False
    assert find_sql_file(str(folder), "visits").endswith("/job.visits.py")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["init", "table", "x", "--python"], "--python writes a job that reads a table"),
        (["test", "visits"], "visits is a job in Python, which cannot be tested"),
        (["test", "init", "visits"], "visits cannot be tested: it is a job in Python"),
        (["sql", "pipelines/intermediates/main/visits/sql-scripts/job.visits.py"], "is Python, not SQL"),
        (["lineage", "visits.id"], "id cannot be traced: a job in Python computes it"),
    ],
)
def test_what_a_job_cannot_do_is_said_in_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    exit_codes.run_command_line(words)
    said = capsys.readouterr()
    assert expected in said.out + said.err and "Traceback" not in said.err


def test_a_function_can_be_added_beside_a_job(folder: Path) -> None:
    assert exit_codes.run_command_line(["init", "function", "vat"]) == 0
    assert exit_codes.run_command_line(["init", "function", "score", "--python"]) == 0
    assert exit_codes.run_command_line(["plan", "visits"]) == 0
