"""headgate impact: answers for people and programs, over declarations and over a ledger; and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.model.reasons import Reason
from core.project.revision import RevisionTexts
from tui.command_line import exit_codes

DDL = "CREATE TABLE {} (id BIGINT, kind STRING) USING parquet;"


@pytest.fixture
def both(ledger: Any, deployed: Any) -> Any:
    """Table a and its reader b, running their declared texts."""
    ledger.put_deployment(deployed("landed", version=0, external=True, bindings=()))
    for name, reads in (("a", "landed"), ("b", "a")):
        statement = f"INSERT INTO {name} SELECT id, kind FROM STREAM {reads};"
        ledger.put_deployment(
            deployed(name, reads=reads, revision=name, texts=RevisionTexts(DDL.format(name), statement))
        )
    return ledger


def test_before_the_first_start_impact_uses_declared_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["impact", "A"], capsys)
    assert list(found) == [
        "format",
        "project",
        "environment",
        "table",
        "column",
        "external",
        "basis",
        "edited",
        "answers",
        "columns",
        "left_out",
    ]
    assert (found["format"], found["table"], found["column"], found["basis"]) == (
        "headgate.impact/1", "a", None, "declared",
    )  # fmt: skip
    rebuilt, dropped = found["answers"]
    assert (rebuilt["if"], rebuilt["refused"], dropped["if"], dropped["refused"]) == ("rebuilt", False, "dropped", True)
    assert rebuilt["plan"].startswith("headgate plan") and "a --rebuild" in rebuilt["plan"]
    assert rebuilt["readers"] == [{
        "table": "b", "product": "p", "layer": "fact", "owner": None, "depth": 1,
        "through": [{"table": "a", "streamed": True}], "streamed": True, "stateful": False,
        "keyed": False, "state": None,
        "effect": "rebuilt", "why": Reason.PARENT_REBUILT.words,
        "uses": None, "makes": [],
    }]  # fmt: skip
    assert found["columns"][1] == {"column": "kind", "readers": [{"table": "b", "uses": "dml.b.sql:1"}]}


def test_with_a_ledger_impact_uses_deployed_tables(both: Any, capsys: pytest.CaptureFixture[str]) -> None:
    both.put_deployment(_stopped(both))
    found = written(["impact", "a"], capsys)
    assert found["basis"] == "deployed"
    dropped = found["answers"][1]
    b = dropped["readers"][0]
    assert (dropped["refused"], b["effect"], b["state"]) == (False, "stranded", "stopped")


def test_the_answer_names_the_traced_texts_and_tables_with_another_deployed_text(
    folder: Path, both: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["impact", "a"]) == 0
    assert "Based on what is deployed of a and its readers. Columns are traced in the files." in _lines(capsys)[0]
    script = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    script.write_text("INSERT INTO b SELECT id, 'x' AS kind FROM STREAM a;")
    assert exit_codes.run_command_line(["impact", "a"]) == 0
    assert _lines(capsys)[0].endswith("Columns are traced in the files; the files of b differ from what is deployed.")
    assert written(["impact", "a"], capsys)["edited"] == ["b"]


def _stopped(ledger: Any) -> Any:
    from dataclasses import replace

    return replace(ledger.deployment("b", 1), state="stopped", wanted="stopped")


def test_an_observed_document_replaces_the_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "observed.json").write_text(json.dumps({"tables": {"landed": "running", "a": "running", "b": "running"}}))
    assert written(["impact", "a", "--observed", "observed.json"], capsys)["basis"] == "deployed"


def test_a_column_names_the_lines_that_use_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (answer,) = written(["impact", "landed.KIND"], capsys)["answers"]
    assert (answer["if"], answer["plan"], answer["refused"]) == ("column lost", None, True)
    assert [(r["table"], r["effect"], r["uses"], r["makes"]) for r in answer["readers"]] == [
        ("a", "refused", "dml.a.sql:1", ["kind"]), ("b", "rebuilt", "dml.b.sql:1", ["kind"]),
    ]  # fmt: skip


PEOPLE = """\
a is not deployed: assuming that everything declared is running.

IF a WERE REBUILT: 1 rebuilt
  headgate plan deploy a --rebuild …
  EFFECT   READER  PRODUCT  DEPTH  THROUGH
  rebuilt  b       p        1      a
      an upstream table is re-created; old offsets mean nothing in the new one

IF a WERE DROPPED: a plan would be refused; 1 refused
  refused: a is read by b (p); delete them together: headgate plan delete a b
  EFFECT   READER  PRODUCT  OWNER  DEPTH  THROUGH  KIND       WHY
  refused  b       p               1      a        stateless  reads a

COLUMNS: 2 columns
  id    b dml.b.sql:1
  kind  b dml.b.sql:1
"""


def test_people_see_both_answers_and_the_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["impact", "a"]) == 0
    said = [line.split(" --project")[0] + (" …" if " --project" in line else "") for line in _lines(capsys)]
    assert said == PEOPLE.splitlines()


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_wide_terminal_has_the_why_on_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert exit_codes.run_command_line(["impact", "a"]) == 0
    assert any(line.startswith("  rebuilt  b ") and line.endswith("in the new one") for line in _lines(capsys))


@pytest.mark.parametrize(
    ("words", "summary", "remedy"),
    [
        ("aa", "aa is not declared in this project", "did you mean a?"),
        ("a.kid", "a has no column kid", "did you mean kind?"),
        ("a --children q", "there is no product q", "products: p"),
        (
            "a --children all,p",
            "--children all cannot be combined with other values",
            "give that word alone, or only product names",
        ),
    ],
)
def test_a_mistake_is_a_wrong_command(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str, summary: str, remedy: str
) -> None:
    error = written(["impact", *words.split()], capsys, 2)["error"]
    assert (error["summary"], error["remedy"]) == (summary, remedy)


def test_a_table_that_is_only_deployed_has_readers_and_no_columns(
    folder: Path, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("old"))
    found = written(["impact", "old"], capsys)
    assert (found["columns"], found["answers"][0]["refused"]) == ([], True)
    assert "no longer declared" in written(["impact", "old.id"], capsys, 2)["error"]["summary"]
