"""Functions on the command line: written, listed, traced, tested, and their mistakes."""

import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import written
from java_class_files import FMT, fmt_jar

from core.model.names import TableName
from core.project.revision import revision_hash
from core.project_reader.loader import read_project
from core.project_reader.paths import LARGEST_JAR
from core.project_reader.revision_reader import revision_of
from core.sql.python_declarations import registered_functions
from core.statement_tests.request import CaseOutcome, CaseResult
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.project_folder_reader import ProjectReader
from tui.services import statement_tests
from tui.services.follow_up_plans import texts_before

DML = "pipelines/sources/p/a/sql-scripts/dml.a.sql"


@pytest.fixture
def calls(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The project, whose table a calls the function that `headgate init function` writes."""
    assert exit_codes.run_command_line(["init", "function", "Clean"]) == 0
    text = (folder / DML).read_text()
    (folder / DML).write_text(text.replace("SELECT id, kind", "SELECT id, clean(kind) AS kind"))
    assert text != (folder / DML).read_text()
    capsys.readouterr()
    return folder


def test_a_written_function_is_valid_and_listed_with_its_users(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["inventory"], capsys)
    assert found["functions"] == [{
        "function": "clean", "file": "functions/clean.sql", "line": 2,
        "parameters": [{"name": "value", "type": "string"}],
        "returns": "string", "scope": None, "used_by": ["a"], "used_by_functions": [], "other_body_in": [],
    }]  # fmt: skip
    assert exit_codes.run_command_line(["inventory"]) == 0
    assert ["clean(value", "string)", "→", "string", "functions/clean.sql", "a"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]


def test_nothing_is_overwritten_and_no_function_of_spark_is_written(
    calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert written(["init", "function", "clean"], capsys, 3)["error"]["class"] == "Refused"
    assert "would not be a valid function" in written(["init", "function", "upper"], capsys, 2)["error"]["summary"]
    assert not (calls / "functions/upper.sql").exists()


def test_the_impact_of_a_function_names_its_users_and_their_kind_of_change(
    calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(["impact", "clean()"], capsys)
    assert (found["format"], found["function"], found["downstream"]) == ("headgate.function_impact/1", "clean", ["b"])
    assert found["users"] == [{"table": "a", "through": [], "change": "filter_or_projection", "action": "restart"}]
    assert exit_codes.run_command_line(["impact", "clean()"]) == 0
    said = capsys.readouterr().out
    assert "another body changes 1 statement" in said and "downstream: b" in said and "headgate plan a" in said
    wrong = written(["impact", "cleam()"], capsys, 2)["error"]
    assert (wrong["summary"], wrong["remedy"]) == ("there is no function cleam()", "did you mean clean()?")
    assert "about tables" in written(["impact", "clean()", "--children", "all"], capsys, 2)["error"]["summary"]


def test_the_lineage_names_the_functions_of_its_statements(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["lineage", "b.kind"], capsys)
    assert found["functions"] == [{"function": "clean", "file": "functions/clean.sql", "used_by": ["a"]}]
    assert {each["expression"] for each in found["edges"]} >= {"CAST(TRIM(lower(CAST(kind AS STRING))) AS STRING)"}


def test_a_plan_of_a_new_table_names_its_functions(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["plan", "a", "--offline", "--why"]) in (0, 2)
    capsys.readouterr()
    node = next(each for each in written(["plan", "a"], capsys)["nodes"] if each["table"] == "a")
    assert node["texts"]["functions"] == {"clean": (calls / "functions/clean.sql").read_text()}


def test_the_cases_of_a_function_are_run_and_shown_under_its_name(
    calls: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def child(request: Any, *_: object, **__: object) -> Any:
        asked.append(request)
        result = CaseResult(request.cases[0], "function_clean", "clean", CaseOutcome.PASSED, "2 rows", 1.0)
        yield from ({"doing": "function_clean/clean"}, {"result": result.as_json()})

    monkeypatch.setattr(statement_tests, "run_child", child)
    found = written(["test", "clean()"], capsys)
    assert [(each["table"], each["case"], each["file"]) for each in found["cases"]] == [
        ("clean()", "clean", "functions/tests/clean.yml")
    ]
    (request,) = asked
    assert "pipelines/facts/function_clean/functions/clean.sql" in request.texts and len(request.tests) == 1
    wrong = written(["test", "cleam()"], capsys, 2)["error"]
    assert (wrong["summary"], wrong["remedy"]) == ("there is no function cleam()", "did you mean clean()?")
    (calls / "functions/tests/clean.yml").unlink()
    assert written(["test", "clean()"], capsys, 2)["error"]["summary"] == "clean() has no test case"
    (calls / "functions/tests/clean.yml").write_text("cases: 3\n")
    assert "have 1 problem" in written(["test", "clean()"], capsys, 2)["error"]["summary"]


def test_diff_and_sql_replace_calls_as_plans_do(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=calls, check=True)
    function = calls / "functions/clean.sql"
    function.write_text(function.read_text().replace("trim(lower(value))", "lower(value)"))
    assert exit_codes.run_command_line(["diff", f"HEAD:{DML}", DML]) == 0
    said = capsys.readouterr().out
    assert "function clean: trim(lower(value)) → lower(value)" in said and "filter or projection" in said
    assert exit_codes.run_command_line(["sql", DML]) == 0
    assert "CAST(lower(CAST(kind AS STRING)) AS STRING)" in capsys.readouterr().out
    function.write_text(function.read_text().replace("lower(value)", "lower(val)"))
    assert exit_codes.run_command_line(["diff", f"HEAD:{DML}", DML]) == 2
    assert "functions/clean.sql:4:14" in capsys.readouterr().err


def test_a_function_in_python_is_written_listed_and_compared_like_one_in_sql(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["init", "function", "plain", "--python"]) == 0
    text = (folder / DML).read_text()
    (folder / DML).write_text(text.replace("SELECT id, kind", "SELECT id, plain(kind) AS kind"))
    capsys.readouterr()
    (function,) = written(["inventory"], capsys)["functions"]
    assert (function["file"], function["line"], function["returns"]) == ("functions/plain.py", 1, "string")
    assert function["used_by"] == ["a"]
    assert written(["init", "function", "plain"], capsys, 3)["error"]["class"] == "Refused"
    assert written(["impact", "plain()"], capsys)["users"] == [
        {"table": "a", "through": [], "change": "filter_or_projection", "action": "restart"}
    ]
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    file = folder / "functions/plain.py"
    file.write_text(file.read_text().replace("value.strip().lower()", "value.lower()"))
    assert exit_codes.run_command_line(["diff", f"HEAD:{DML}", DML]) == 0
    said = capsys.readouterr().out
    assert 'function plain: letters = unicodedata.normalize("NFKD", value.strip().lower())' in said
    assert "filter or projection" in said
    file.write_text(file.read_text().replace("def plain", "def simple"))
    assert exit_codes.run_command_line(["plan", "--all"]) == 2
    said = capsys.readouterr().err
    assert "functions/plain.py:7:1: error: plain.py does not define plain" in said and said.count("error:") == 1


def test_an_undo_gives_a_table_its_earlier_functions_in_its_own_folder(calls: Path, place: SelectedEnvironment) -> None:
    reader = ProjectReader(place, {"HEADGATE_HOME": str(calls.parent / "home")})
    before = revision_of(reader.read().project.tables[TableName("a")]).texts
    function = calls / "functions/clean.sql"
    function.write_text(function.read_text().replace("trim", "rtrim"))
    declared = reader.read()
    node: Any = SimpleNamespace(table=TableName("a"), old=before)
    texts = texts_before(declared, [node], place.environment)
    assert texts["functions/clean.sql"] == function.read_text()
    undone, problems = read_project(texts, environment=place.environment)
    assert undone is not None and not problems
    assert revision_hash(revision_of(undone.tables[TableName("a")]).texts) == revision_hash(before)


def test_an_undo_declares_the_code_of_python_functions_even_with_the_values_of_then(
    folder: Path, place: SelectedEnvironment
) -> None:
    (folder / "functions").mkdir()
    code = "# CREATE FUNCTION plain(x STRING) RETURNS STRING\ndef plain(x): return x\n"
    (folder / "functions/plain.py").write_text(code)
    (folder / "functions/both.sql").write_text("CREATE FUNCTION both(x STRING) RETURNS STRING RETURN plain(x) || x")
    text = (folder / DML).read_text()
    (folder / DML).write_text(text.replace("SELECT id, kind", "SELECT id, both(kind) AS kind"))
    reader = ProjectReader(place, {"HEADGATE_HOME": str(folder.parent / "home")})
    deployed = revision_of(reader.read().project.tables[TableName("a")]).texts
    (folder / "functions/plain.py").unlink()
    (folder / "functions/plain.sql").write_text("CREATE FUNCTION plain(x STRING) RETURNS STRING RETURN trim(x)")
    declared = reader.read()
    for old in (deployed, replace(deployed, variables=(("gone", "1"),))):
        node: Any = SimpleNamespace(table=TableName("a"), old=old)
        texts = texts_before(declared, [node], place.environment)
        undone, problems = read_project(texts, environment=place.environment)
        assert undone is not None and not problems
        found = revision_of(undone.tables[TableName("a")]).texts
        assert found.dml == deployed.dml
        assert [each.code for each in registered_functions(found.dml, found.functions)] == [code]


def test_a_function_of_a_jar_is_planned_and_compared_with_git_and_a_damaged_jar_is_a_problem(
    calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = calls / "functions/acme.jar"
    (calls / "functions/clean.sql").write_text(FMT.replace("fmt", "clean"))
    place.write_bytes(fmt_jar("one"))
    subprocess.run(["git", "init", "-q"], cwd=calls, check=True)
    subprocess.run(["git", "add", "."], cwd=calls, check=True)
    who = ["-c", "user.name=lee", "-c", "user.email=lee@example.com"]
    subprocess.run(["git", *who, "commit", "-qm", "one"], cwd=calls, check=True)
    assert exit_codes.run_command_line(["plan", "--all"]) in (0, 1)
    capsys.readouterr()
    assert exit_codes.run_command_line(["plan", "--changed-since", "HEAD"]) in (0, 1)
    assert "nothing to do" in capsys.readouterr().out
    assert written(["impact", "clean()"], capsys)["users"] == [
        {"table": "a", "through": [], "change": "filter_or_projection", "action": "restart"}
    ]
    place.write_bytes(fmt_jar("two"))
    assert exit_codes.run_command_line(["plan", "--changed-since", "HEAD"]) in (0, 1)
    said = capsys.readouterr().out
    assert "changes 1 of 1 statement" in said
    place.write_bytes(b"PK\xff")
    assert exit_codes.run_command_line(["plan", "--all"]) == 2
    said = capsys.readouterr().err
    assert "functions/acme.jar: error: acme.jar cannot be read: it is not a jar" in said
    assert said.count("error:") == 1
    with place.open("wb") as file:
        file.truncate(LARGEST_JAR + 1)
    assert exit_codes.run_command_line(["plan", "--all"]) == 2
    assert "acme.jar cannot be read: larger than 16 MB" in capsys.readouterr().err
