"""Jobs in Python on the command line, without an agent."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.model.names import TableName
from core.project.model import Settings
from core.project_reader.revision_reader import read_revision
from core.sql.python_jobs import code_hash
from core.statement_tests.request import CaseOutcome, CaseRequest, CaseResult, UpgradeVerdict
from tui.agent_client.socket_client import AgentClient
from tui.command_line import exit_codes
from tui.project_folder.project_folder_reader import declared_tables, find_sql_file
from tui.services import statement_tests

VISITS = "pipelines/intermediates/main/visits"


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
        (["test", "visits"], "headgate test init visits writes a first one"),
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


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[CaseRequest]:
    """Write a case, commit all files, and replace the child process, which finds rows of old state in each upgrade."""
    case = folder / VISITS / "tests/one.yml"
    case.parent.mkdir()
    case.write_text("given: [{src_events: [{id: 1}]}, {src_events: [{id: 2}]}]\nexpect: [{id: 1}, {id: 2}]\n")
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    found: list[CaseRequest] = []

    def run_child(request: CaseRequest, environ: Mapping[str, str], *, trials: int = 1) -> Iterator[dict[str, Any]]:
        found.append(request)
        mixed = CaseResult(f"{VISITS}/tests/one.yml", "visits", "one", CaseOutcome.FAILED, "", 1.0)
        verdict = UpgradeVerdict.MIXED if request.old else ""
        yield {"result": {**mixed.as_json(), "verdict": verdict}}

    monkeypatch.setattr(statement_tests, "run_child", run_child)
    return found


def test_the_child_gets_the_job_and_what_its_packages_need(
    folder: Path, asked: list[CaseRequest], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_HOME", str(folder.parent / "home"))
    yml, code = folder / VISITS / "visits.yml", folder / VISITS / "sql-scripts/job.visits.py"
    yml.write_text("requirements: [numpy]\n")
    code.write_text(code.read_text().replace("(src_events", "(spark, src_events"))
    assert exit_codes.run_command_line(["test", "visits"]) == 1
    assert "what a job reads through its parameter spark is not part of a case: visits" in capsys.readouterr().err
    (request,) = asked
    assert f"{VISITS}/sql-scripts/job.visits.py" in request.texts
    assert (request.packages, request.install_s) == (str(folder.parent.resolve() / "home/python"), 240.0)
    manifest = folder / "headgate.yml"
    manifest.write_text(manifest.read_text().replace("name: local", "name: far\n      url: sc://far:15002"))
    exit_codes.run_command_line(["test", "visits"])
    assert asked[1].packages == "", "a start could not install them either"


def test_a_disproved_state_compatible_is_sent_to_the_agent(
    folder: Path, asked: list[CaseRequest], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(AgentClient, "call", lambda self, op, args: calls.append((op, args)) or {})
    yml, code = folder / VISITS / "visits.yml", folder / VISITS / "sql-scripts/job.visits.py"
    code.write_text(code.read_text().replace("return src_events", "return src_events.filter('id > 1')"))
    assert exit_codes.run_command_line(["test", "--upgrade", "--since", "main"]) == 1
    assert "a plan would rebuild" in capsys.readouterr().out and calls == []
    old = read_revision(TableName("visits"), asked[0].old["visits"], Settings())
    assert old is not None and old.parsed is not None
    yml.write_text(f"state_compatible: {code_hash(old.parsed)}\n")
    assert exit_codes.run_command_line(["test", "--upgrade", "--since", "main"]) == 1
    said = capsys.readouterr()
    assert "PLAN AND TEST DISAGREE" in said.out and "plans rebuild visits from now on" in said.err
    ((op, args),) = calls
    assert (op, args["table"], args["old"]) == ("upgrade_shown", "visits", old.hash)
