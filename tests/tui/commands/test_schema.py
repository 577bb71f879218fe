"""The `schema` command over a ledger: versions, columns altered in place, readers, and allowing modes."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.model.actions import Action, StepKind
from core.model.names import TableName as T
from core.observed.versions import Binding
from core.project.revision import RevisionTexts
from core.run.records import StepRow
from tests.support.ledger_rows import create_run, plan_of, plan_row, run_row
from tui.command_line import exit_codes
from tui.screens.backend import ConsoleBackend
from tui.services.environment_service import EnvironmentService


def ddl(columns: str) -> RevisionTexts:
    return RevisionTexts(f"CREATE TABLE a ({columns}) USING parquet")


V1, V2, V2_ALTERED = (
    "id BIGINT, kind STRING, old INT NOT NULL",
    "id BIGINT, kind STRING",
    "id BIGINT, kind STRING, n INT",
)
DECLARED = "CREATE TABLE a (id BIGINT, kind STRING, n INT, must STRING NOT NULL) USING parquet;"


@pytest.fixture
def versions(folder: Path, ledger: Any, deployed: Any) -> Any:
    """a has served as v1 and v2, which got a column in place; b reads v1, and the files add another column."""
    now = time.time()
    made = {"active": False, "created_at": now - 900, "served_at": now - 800, "revision": "r1"}
    ledger.put_deployment(deployed("a", version=1, texts=ddl(V1), **made))
    served = {"version": 2, "created_at": now - 600, "served_at": now - 500, "served_before": 1}
    ledger.put_deployment(deployed("a", texts=ddl(V2_ALTERED), revision="r2", **served))
    ledger.put_deployment(deployed("b", reads="a", bindings=(Binding(T("a"), 1, True),)))
    old, new = ddl(V2), ddl(V2_ALTERED)
    plan = plan_of(T("a"), action=Action.RESTART, version=2, old=old, texts=new)
    ledger.put_plan(plan_row(plan), {})
    step = StepRow(1, StepKind.ALTER, T("a"), 2, "done", 1, "", now - 301, now - 300)
    create_run(ledger, run_row(plan.hash, state="done", steps=(step,)), [T("a")])
    place = folder / "pipelines/sources/p/a"
    (place / "sql-scripts/ddl.a.sql").write_text(DECLARED)
    (place / "sql-scripts/dml.a.sql").write_text(
        "INSERT INTO a SELECT id, kind, 1 AS n, 'x' AS must FROM STREAM landed;"
    )
    (place / "a.yml").write_text("compatibility: backward\nreaders: [report (bi)]\n")
    return ledger


def test_it_lists_each_schema_with_its_edits_readers_and_the_modes_that_allow_it(
    versions: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(["schema", "a"], capsys)
    assert (found["format"], found["table"], found["mode"]) == ("headgate.schema/1", "a", "backward")
    schemas = found["schemas"]
    assert [(each["version"], each["state"], each["edits"], each["readers"]) for each in schemas] == [
        (1, "replaced", [], ["b@v1"]),
        (2, "altered", ["-old"], []),
        (2, "serves", ["+n int"], ["report (bi)"]),
        (None, None, ["+must string NOT NULL"], []),
    ]
    assert schemas[1]["allowed_by"] == ["none", "backward", "backward_transitive"]
    assert schemas[2]["allowed_by"] == ["none", "backward", "forward", "full", "backward_transitive"]
    # b is bound to v1, so v1 counts even without a transitive mode.
    assert schemas[3]["allowed_by"] == ["none"]
    assert [(each["after"], each["direction"], each["kind"]) for each in schemas[3]["conflicts"]] == [
        (1, "backward", "added_not_null"), (1, "forward", "dropped_not_null"), (2, "backward", "added_not_null"),
    ]  # fmt: skip


def test_its_lines_are_a_table_of_versions_and_the_reasons(versions: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["schema", "a"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("a  compatibility: backward\n")
    rows = [line.split() for line in said.splitlines()]
    assert ["next", "in", "the", "files", "-", "+must", "string", "NOT", "NULL"] in rows
    assert ["v1", "b@v1"] in rows and ["v2", "report", "(bi)"] in rows
    assert "v2       v1      forward   drops old int NOT NULL" in said
    assert "next     v1, v2  backward  adds must string NOT NULL, which is missing in earlier rows" in said


@pytest.mark.parametrize(
    ("selected", "yml", "allowed"),
    [
        ("id, kind", "", False),
        ("id", "", True),
        ("*", "", True),
        ("id, upper(kind) AS kind", "", False),
        ("id", "readers: [report (bi)]\n", False),
    ],
)
def test_a_dropped_column_is_allowed_forward_only_if_no_known_reader_names_it(
    selected: str, yml: str, allowed: bool, folder: Path, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a", texts=ddl(V2), revision="r1"))
    texts = RevisionTexts(
        "CREATE TABLE b (id BIGINT, kind STRING) USING parquet", f"INSERT INTO b SELECT {selected} FROM STREAM a"
    )
    ledger.put_deployment(deployed("b", reads="a", bindings=(Binding(T("a"), 1, True),), texts=texts, revision="rb"))
    place = folder / "pipelines/sources/p/a"
    (place / "sql-scripts/ddl.a.sql").write_text("CREATE TABLE a (id BIGINT) USING parquet;")
    (place / "sql-scripts/dml.a.sql").write_text("INSERT INTO a SELECT id FROM STREAM landed;")
    (place / "a.yml").write_text(f"compatibility: forward\n{yml}")
    declared = written(["schema", "a"], capsys)["schemas"][-1]
    assert [(each["column"], each["allowed"]) for each in declared["conflicts"]] == [("kind", allowed)]
    assert ("forward" in declared["allowed_by"]) is allowed
    assert exit_codes.run_command_line(["schema", "a"]) == 0
    said = capsys.readouterr().out
    assert ("; allowed, as no known reader names it" in said) is allowed and "NOT" in said


def test_a_version_whose_ddl_cannot_be_parsed_is_named(
    folder: Path, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a", texts=RevisionTexts("CREATE TABLE a ("), revision="r1"))
    found = written(["schema", "a"], capsys)
    assert (found["unreadable"], [each["version"] for each in found["schemas"]]) == ([1], [None])
    assert exit_codes.run_command_line(["schema", "a"]) == 0
    said = capsys.readouterr().out
    assert "the DDL of v1 cannot be parsed: its columns are unknown" in said and "no known reader" not in said


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("landed", "landed is external: others change its columns, and only its DDL is known"),
        ("b", "b has no history: it was never deployed here"),
    ],
)
def test_a_table_without_history_gives_one_sentence(
    folder: Path, table: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["schema", table]) == 0
    assert capsys.readouterr().out == f"{words}\n"
    found = written(["schema", table], capsys)
    assert (found["missing"], found["schemas"]) == (words, [])


def test_an_unknown_table_is_refused_with_a_similar_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["schema", "lande"]) == 2
    assert "there is no table lande" in capsys.readouterr().err


def test_a_deployed_table_whose_files_are_gone_has_a_history_without_a_mode(
    folder: Path, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = replace(deployed("a"), table=T("gone"), texts=RevisionTexts("CREATE TABLE gone (id INT) USING parquet"))
    ledger.put_deployment(gone)
    found = written(["schema", "gone"], capsys)
    assert (found["mode"], [each["version"] for each in found["schemas"]]) == (None, [1])


def test_the_console_shows_the_schemas_as_the_command_does(
    versions: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["schema", "a"]) == 0
    printed = capsys.readouterr().out.split()
    service = EnvironmentService(place, {})
    shown = ConsoleBackend(service).schema("a")
    service.close()
    assert " ".join(shown).split() == printed
