"""Commands that do not need the contents of the files work while the files are broken."""

import os
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import create_run

from core.run.records import RunRow
from state.row_types import EventRow, PlanRow
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import select_environment

BROKEN = {
    "sql": ("pipelines/facts/p/b/sql-scripts/dml.b.sql", "INSERT INTO b SELCT id FORM"),
    "ddl": ("pipelines/facts/p/b/sql-scripts/ddl.b.sql", "CREATE TABLE b (id BIGINT"),
    "settings": ("pipelines/facts/p/b/b.yml", "trigger: [1, 2\nowner: : x"),
    "encoding": ("pipelines/facts/p/b/sql-scripts/dml.b.sql", b"INSERT INTO b SELECT '\xff\xfe' FROM STREAM a"),
    "defaults": ("headgate.yml", None),
    "head": ("headgate.yml", "project: shop\nenvironments: [\n"),
    "missing": ("pipelines/sources/p/a/sql-scripts/ddl.a.sql", b""),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, folder: Path) -> str:
    path, text = BROKEN[request.param]
    select_environment(os.environ, str(folder))
    if text is None:
        (folder / path).write_text((folder / path).read_text() + "defaults: {trigger: often, colour: red}\n")
    elif isinstance(text, bytes):
        (folder / path).write_bytes(text)
    else:
        (folder / path).write_text(text)
    return str(request.param)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words",
    [
        "stop a --confirm {a}", "start a --confirm {a}", "restart a --confirm {a}", "ls", "ls --json", "show a",
        "lag", "peek a", "runs", "runs 7f3a-1", "events", "events a", "logs", "audit", "review", "wait a",
        "health", "export observed", "completion tables", "up", "down --confirm {dev}", "help plans",
        "runs pause 7f3a-1", "runs cancel 7f3a-1 --confirm 7f3a",
    ],
)  # fmt: skip
def test_commands_that_need_no_files_work_while_these_are_broken(
    words: str, broken: str, agent: Any, ledger: Any, deployed: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    ledger.add_event(EventRow(id=0, at=1.0, table="a", version=1, kind="state", summary="started"))
    ledger.put_plan(PlanRow("7f3a" + "0" * 60, "{}", "ana", 1.0, 1e12, "applied"))
    create_run(ledger, RunRow("7f3a-1", "7f3a" + "0" * 60, "ana", "running", 1.0, None, ()))
    agent.script["peek"] = {"columns": ["id"], "rows": [[1]]}
    Path(place.where.agent_log).write_text("hello\n")
    # While the head cannot be read, every environment counts as protected, and requires more confirmation.
    typed = {"a": "a", "dev": "dev"} if broken == "head" else {"a": "yes", "dev": "dev"}
    code = exit_codes.run_command_line([word.format(**typed) for word in words.split()])
    said = capsys.readouterr()
    assert code == 0 and "error:" not in said.err, f"{broken}: {words}: {code}\n{said.err}"


@pytest.mark.parametrize(("words", "code"), [("plan a", 2), ("inventory", 2), ("stop a --confirm yes", 3)])
def test_a_broken_head_is_reported_refused_by_its_readers_and_never_unprotected(
    words: str, code: int, folder: Path, agent: Any, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    select_environment(os.environ, str(folder))
    (folder / "headgate.yml").write_text("project: shop\nenvironments: [\n")
    assert exit_codes.run_command_line(words.split()) == code
    assert "its last readable version applies, and dev counts as protected" in capsys.readouterr().err
    assert agent.heard == []


def test_a_head_that_was_never_read_is_refused(folder: Path) -> None:
    (folder / "headgate.yml").write_text("project: shop\nenvironments: [\n")
    assert exit_codes.run_command_line(["stop", "a", "--confirm", "yes"]) == 2
