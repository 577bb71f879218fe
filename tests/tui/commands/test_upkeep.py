"""The commands `optimize` and `vacuum`, and their plans: the table, what is retained, and refusals."""

from pathlib import Path
from typing import Any

import pytest
from command_line import written
from ledger_rows import deployment_row, external_row

from core.model.names import TableName as T
from core.observed.versions import Binding
from tui.command_line import exit_codes


@pytest.fixture
def lake(ledger: Any, place: Any) -> Any:
    """A project with landed → a → b on Delta, deployed as declared."""
    folder = Path(place.folder)
    (folder / "headgate.yml").write_text((folder / "headgate.yml").read_text() + "connectors: {delta: {}}\n")
    for path in folder.rglob("ddl.*.sql"):
        path.write_text(path.read_text().replace("USING parquet", "USING delta"))
    reads = {"a": (Binding(T("landed"), 0, True),), "b": (Binding(T("a"), 1, True),)}
    for row in (external_row("landed"), *(deployment_row(name, bindings=bound) for name, bound in reads.items())):
        ledger.put_deployment(row)
    return ledger


def test_upkeep_is_planned_by_name(lake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["plan", "optimize", "a", "b", "--offline"], capsys)
    assert [(step["do"], step["table"], step["version"]) for step in found["steps"]] == [
        ("optimize", "a", 1), ("optimize", "b", 1),
    ]  # fmt: skip
    found = written(["plan", "vacuum", "a", "--retain", "0720", "--offline"], capsys)
    assert [node["loses"] for node in found["nodes"]] == [["files of versions older than 720 h"]]
    assert exit_codes.run_command_line(["plan", "vacuum", "a", "--offline"]) == 0
    out = capsys.readouterr().out
    assert "vacuum a" in out and "LOSES" in out and "no command brings back the files" in out


def test_a_table_without_maintenance_is_refused_in_a_sentence(lake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["plan", "vacuum", "a", "--retain", "167", "--offline"]) == 3
    assert "a retains files of older versions for 168 h, which is longer" in capsys.readouterr().out
    assert exit_codes.run_command_line(["plan", "vacuum", "a", "--retain", "a week", "--offline"]) == 2
    assert "'a week' is not a number of hours" in capsys.readouterr().err
    assert exit_codes.run_command_line(["plan", "optimize", "landed", "--offline"]) == 3
    assert "landed is external: others write it" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "text"), [(["optimize", "a"], "yes"), (["vacuum", "a", "--retain", "200"], "dev x")])
def test_upkeep_is_submitted_confirmed_and_followed(
    lake: Any, agent: Any, line: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["submit_plan"] = {"confirm": text}
    assert exit_codes.run_command_line(line) == 3
    assert "this needs the confirmation" in capsys.readouterr().err
    submitted = next(request for request in agent.heard if request["op"] == "submit_plan")
    assert submitted["args"]["request"]["verb"] == line[0]
