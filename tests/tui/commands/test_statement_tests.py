"""headgate test: the cases that run, the report and the exit code, with a script as child process."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.model.errors import PoolUnreachable
from core.project.revision import RevisionTexts
from core.statement_tests.request import CaseOutcome, CaseRequest, CaseResult, UpgradeVerdict
from tui.agent_client import os_processes
from tui.agent_client.socket_client import AgentClient
from tui.command_line import exit_codes
from tui.services import statement_tests

CASE = "given:\n  - landed: [{id: 1, kind: x}]\n  - landed: [{id: 2}]\nexpect: [{id: 1, kind: x}, {id: 2}]\n"
PATH = "pipelines/sources/p/a/tests/one.yml"
DIFFERENCE = {
    "missing": 12, "unexpected": 0, "differing": 1, "missing_rows": [{"id": "1", "kind": '"x"'}],
    "unexpected_rows": [],
    "differing_rows": [{"row": {"id": "2", "kind": '"x"'}, "columns": {"kind": ['"x"', "null"]}}],
}  # fmt: skip
RESULT = CaseResult(PATH, "a", "one", CaseOutcome.PASSED, "2 rows", 1.25)

Child = Callable[..., list[CaseRequest]]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    """Replace the child process with a script that answers, and return the requests that it receives."""

    def scripted(*answers: dict[str, Any]) -> list[CaseRequest]:
        asked: list[CaseRequest] = []

        def run_child(request: CaseRequest, environ: Any, *, trials: int = 1) -> Iterator[dict[str, Any]]:
            asked.append(request)
            yield {"doing": "Spark is starting"}
            yield from answers

        monkeypatch.setattr(statement_tests, "run_child", run_child)
        return asked

    return scripted


def put(folder: Path, text: str = CASE, path: str = PATH) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


def of(**changed: Any) -> dict[str, Any]:
    return {"result": replace(RESULT, **changed).as_json()}


def said(words: list[str], capsys: pytest.CaptureFixture[str], code: int) -> str:
    assert exit_codes.run_command_line(words) == code
    found = capsys.readouterr()
    return found.out + found.err


def test_a_delta_table_is_said_to_be_tested_over_files(
    folder: Path, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    child(of())
    assert "tried over" not in said(["test"], capsys, 0)
    manifest, ddl = folder / "headgate.yml", next(folder.glob("pipelines/*/p/a/sql-scripts/ddl.a.sql"))
    ddl.write_text(ddl.read_text().replace("parquet", "delta"))
    manifest.write_text(manifest.read_text() + "connectors: {delta: {}}\n")
    child(of())
    assert "tried over parquet files, without what only delta does: a\n" in said(["test"], capsys, 0)


def test_all_that_pass_is_zero_with_the_files_that_the_child_needs(
    folder: Path, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    asked = child(of())
    found = written(["test"], capsys)
    assert (found["format"], found["passed"], found["cases"][0]["outcome"]) == ("headgate/tests", True, "passed")
    (request,) = asked
    assert request.cases == (PATH,) and set(request.tests) == {PATH}
    assert {path.rpartition("/")[2] for path in request.texts} == {
        "headgate.yml",
        "ddl.landed.sql",
        "ddl.a.sql",
        "dml.a.sql",
    }
    assert "ok    a/one: 2 rows  (1.2 s)" in said(["test", "a"], capsys, 0)


def test_a_case_that_fails_is_one_and_shows_the_rows(
    folder: Path, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    child(of(outcome=CaseOutcome.FAILED, summary="it wrote 2 rows, 14 expected", difference=DIFFERENCE))
    text = said(["test", "--product", "p"], capsys, 1)
    for line in (
        "FAIL  a/one: it wrote 2 rows, 14 expected",
        f"      {PATH}",
        '      missing    {id: 1, kind: "x"}',
        "… and 11 more missing",
        '      different  {id: 2}: kind null, expected "x"',
        "1 case: 1 failed in",
    ):
        assert line in text


def test_mistakes_in_cases_and_unsafe_statements_are_two_before_anything_is_run(
    folder: Path, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "given: {landed: [{idd: 1}]}\nexpect: [{id: x}]\n")
    asked = child()
    problems = written(["test"], capsys, 2)["problems"]
    assert [(each["file"], each["line"], each["summary"]) for each in problems] == [
        (PATH, 1, "landed has no column idd"),
        (PATH, 2, "a.id must be of type bigint"),
    ]
    put(folder)
    sql = folder / "pipelines/sources/p/a/sql-scripts/dml.a.sql"
    sql.write_text("INSERT INTO a SELECT id, reflect('java.lang.System', 'getenv', 'HOME') AS kind FROM STREAM landed;")
    assert "reflect calls a Java method" in said(["test"], capsys, 2)
    sql.write_text("INSERT INTO a SELECT id, other.db.f(kind) AS kind FROM STREAM landed;")
    assert "is a catalog function" in said(["test"], capsys, 2)
    assert asked == []


@pytest.mark.parametrize(
    ("words", "summary"),
    [
        (["test"], "there is no test case"),
        (["test", "b"], "b has no test case"),
        (["test", "landed"], "landed is external: it has no statement to test"),
        (["test", "bb"], "bb is not declared"),
        (["test", "--product", "q"], "'q' is not a product"),
        (["test", "--since", "main"], "--since names the old texts of an upgrade"),
        (["test", "--timeout", "0"], ""),
        (["test", "init", "nowhere"], "nowhere is not declared"),
        (["test", "init", "landed"], "landed is external"),
    ],
)
def test_a_command_that_tests_nothing_is_two(
    words: list[str], summary: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert summary in said(words, capsys, 2)


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def changed(folder: Path) -> Path:
    """A repository whose working tree has a new filter in a statement, and a case that the commit lacks."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    put(folder)
    (folder / "pipelines/sources/p/a/sql-scripts/dml.a.sql").write_text(
        "INSERT INTO a SELECT id, kind FROM STREAM landed WHERE id > 1;"
    )
    return folder


def test_an_upgrade_takes_the_old_text_from_git_and_shows_the_action_of_a_plan(
    changed: Path, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = child(of(outcome=CaseOutcome.FAILED, verdict=UpgradeVerdict.SEAM, difference=DIFFERENCE))
    text = said(["test", "--upgrade", "--since", "main"], capsys, 1)
    assert asked[0].old["a"].dml == "INSERT INTO a SELECT id, kind FROM STREAM landed;"
    assert "the table gets rows of both texts: rows written before the upgrade keep the old meaning" in text
    assert "not safe" not in text
    assert "a plan would restart the statement: filter or projection (3)" in text
    assert "the plan announces it: rows that are there already keep the meaning" in text


def test_a_disagreement_of_plan_and_test_is_reported(
    changed: Path, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    child(of(outcome=CaseOutcome.FAILED, verdict=UpgradeVerdict.MIXED, difference=DIFFERENCE))
    found = written(["test", "--upgrade", "--since", "main"], capsys, 1)["cases"][0]
    assert (found["verdict"], found["change"]) == ("mixed", "filter_or_projection")
    assert any("PLAN AND TEST DISAGREE" in words for words in found["words"])
    text = said(["test", "--upgrade", "--since", "main"], capsys, 1)
    assert "plans do not know of it, and would restart a on its checkpoint: " in text


def test_the_result_of_a_case_is_sent_to_the_agent(
    changed: Path, child: Child, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(AgentClient, "call", lambda self, op, args: calls.append((op, args)) or {})
    child(of(outcome=CaseOutcome.FAILED, verdict=UpgradeVerdict.MIXED, difference=DIFFERENCE))
    assert "plans rebuild a from now on, for these texts" in said(["test", "--upgrade", "--since", "main"], capsys, 1)
    ((op, args),) = calls
    assert (op, args["table"]) == ("upgrade_shown", "a") and args["old"] != args["new"]
    assert args["shown"] == "case one: state that the old text left behind makes rows wrong"


def test_an_upgrade_without_a_change_runs_nothing(
    changed: Path, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    git(changed, "commit", "-q", "-am", "second")
    asked = child()
    assert "nothing to run" in said(["test", "--upgrade", "--since", "main"], capsys, 0)
    assert written(["test", "--upgrade", "--since", "main"], capsys)["cases"] == []
    assert asked == []


def test_an_upgrade_begins_with_the_deployed_texts(
    folder: Path, ledger: Any, deployed: Any, child: Child, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    asked = child(of(outcome=CaseOutcome.PASSED, verdict=UpgradeVerdict.SAFE, summary=""))
    ddl = (folder / "pipelines/sources/p/a/sql-scripts/ddl.a.sql").read_text()
    older = RevisionTexts(
        ddl, "INSERT INTO a SELECT id, upper(kind) AS kind FROM STREAM landed;", 'trigger: "10 seconds"\n'
    )
    ledger.put_deployment(replace(deployed("a"), texts=older, revision="0" * 64))
    text = said(["test", "--upgrade"], capsys, 0)
    assert asked[0].old["a"].dml == older.dml
    assert "safe in this case: the upgrade writes the same rows as the new text alone" in text


def test_without_a_ledger_an_upgrade_needs_a_commit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(folder)
    assert "nothing was ever deployed" in said(["test", "--upgrade"], capsys, 2)


def test_a_first_case_is_written_once(folder: Path, child: Child, capsys: pytest.CaptureFixture[str]) -> None:
    asked = child({"recorded": CASE})
    assert said(["test", "init", "a", "--timeout", "9"], capsys, 0).endswith("review them, then run headgate test\n")
    path = folder / "pipelines/sources/p/a/tests/a_recorded.yml"
    assert path.read_text() == CASE and (asked[0].record, asked[0].case_s) == ("a", 9)
    path.write_text("mine")
    assert "exists" in said(["test", "init", "a"], capsys, 3)
    assert path.read_text() == "mine"


def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Use a Python script as child; temporary folders are created inside the test's folder."""
    monkeypatch.setattr(os_processes, "module_command", lambda _, *words: [sys.executable, "-c", script, *words])
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


CHILD = "import json, sys; print(json.dumps({'doing': sys.argv[1]}), flush=True); json.loads(sys.stdin.readline())\n"


@pytest.mark.parametrize(
    ("script", "words", "code"),
    [
        (
            f"print('''{json.dumps(of())}''')\nprint(json.dumps({{'done': True}}), flush=True)\nsys.stdin.read()",
            "1 passed",
            0,
        ),
        ("sys.exit('no module named pyspark')", "ended: no module named pyspark", 1),
        ("print('not json', flush=True); sys.exit(3)", "ended: not json", 1),
        (
            f"print(json.dumps({{'error': {PoolUnreachable('no java on PATH', remedy='install one').as_json()!r}}}))",
            "no java on PATH\n  install one",
            4,
        ),
    ],
)
def test_every_end_of_the_process_is_reported_and_its_folder_is_deleted(
    script: str, words: str, code: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    put(folder)
    process(monkeypatch, tmp_path, CHILD + script)
    assert words in said(["test"], capsys, code)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_silent_process_is_ended(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)
    monkeypatch.setattr(statement_tests, "START_S", 0.5)
    monkeypatch.setattr(statement_tests, "END_S", 0.5)
    process(monkeypatch, tmp_path, CHILD + "import time; time.sleep(600)")
    assert "the process that runs the tests ended" in said(["test", "--timeout", "1"], capsys, 1)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_disk_without_room_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder)

    def full(**_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    found = json.loads(_printed(["test", "--json"], capsys))
    assert found["error"]["summary"] == "no folder for the test can be made: No space left on device"


def _printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_codes.run_command_line(words) == 1
    return capsys.readouterr().out
