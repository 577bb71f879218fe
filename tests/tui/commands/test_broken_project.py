"""Commands that need nothing of the files' content work while the files are broken."""

from pathlib import Path
from typing import Any

import pytest

from state.row_types import EventRow, PlanRow, RunRow
from tui.command_line import exit_codes

BROKEN = {
    "sql": ("pipelines/facts/p/b/sql-scripts/dml.b.sql", "INSERT INTO b SELCT id FORM"),
    "ddl": ("pipelines/facts/p/b/sql-scripts/ddl.b.sql", "CREATE TABLE b (id BIGINT"),
    "settings": ("pipelines/facts/p/b/b.yml", "trigger: [1, 2\nowner: : x"),
    "encoding": ("pipelines/facts/p/b/sql-scripts/dml.b.sql", b"INSERT INTO b SELECT '\xff\xfe' FROM STREAM a"),
    "defaults": ("headgate.yml", None),
    "missing": ("pipelines/sources/p/a/sql-scripts/ddl.a.sql", b""),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, folder: Path) -> str:
    path, text = BROKEN[request.param]
    if text is None:
        (folder / path).write_text((folder / path).read_text() + "defaults: {trigger: often, colour: red}\n")
    elif isinstance(text, bytes):
        (folder / path).write_bytes(text)
    else:
        (folder / path).write_text(text)
    return str(request.param)


@pytest.mark.parametrize(
    "words",
    [
        "stop a --confirm yes", "start a --confirm yes", "restart a --confirm yes", "ls", "ls --json", "show a",
        "lag", "peek a", "runs", "runs 7f3a-1", "events", "events a", "logs", "audit", "review", "wait a",
        "health", "export observed", "completion tables", "up", "down", "help plans",
        "runs pause 7f3a-1", "runs cancel 7f3a-1 --confirm 7f3a",
    ],
)  # fmt: skip
def test_what_needs_no_files_works_while_they_are_broken(
    words: str, broken: str, agent: Any, ledger: Any, deployed: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    ledger.add_event(EventRow(id=0, at=1.0, table="a", version=1, kind="state", summary="started"))
    ledger.put_plan(PlanRow("7f3a" + "0" * 60, "{}", "ana", 1.0, 1e12, "applied"))
    ledger.create_run(RunRow("7f3a-1", "7f3a" + "0" * 60, "ana", "running", 1.0, None, ()))
    agent.script["peek"] = {"columns": ["id"], "rows": [[1]]}
    Path(place.where.agent_log).write_text("hello\n")
    code = exit_codes.run_command_line(words.split())
    said = capsys.readouterr()
    assert code == 0 and "error:" not in said.err, f"{broken}: {words}: {code}\n{said.err}"
