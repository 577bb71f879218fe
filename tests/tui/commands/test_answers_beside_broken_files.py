"""Questions about tables whose files have no errors are answered while other files have errors, if the answer holds."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.statement_tests.request import CaseOutcome, CaseResult
from tui.command_line import exit_codes
from tui.services import statement_tests

DML = "pipelines/facts/p/b/sql-scripts/dml.b.sql"
LEFT_OUT = {"tables": ["c"], "problems": 1}


@pytest.fixture
def broken(folder: Path) -> Path:
    """A project with a fourth table, c, whose statement cannot be parsed and mentions b."""
    scripts = folder / "pipelines/facts/q/c/sql-scripts"
    scripts.mkdir(parents=True)
    (scripts / "ddl.c.sql").write_text("CREATE TABLE c (id BIGINT) USING parquet;\n")
    (scripts / "dml.c.sql").write_text("INSERT INTO c SELCT id FORM STREAM b;\n")
    return folder


def answered(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = written(line.split(), capsys)
    assert found["left_out"] == LEFT_OUT
    assert exit_codes.run_command_line(line.split()) == 0
    assert "1 table left out: 1 problem in files; headgate plan --all lists them" in capsys.readouterr().err
    return found


def refused(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_codes.run_command_line(line.split()) == 2
    said = capsys.readouterr().err
    assert "dml.c.sql" in said
    return said


def test_the_inventory_leaves_out_broken_tables(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [entry["table"] for entry in answered("inventory", capsys)["tables"]] == ["a", "b", "landed"]
    assert [entry["table"] for entry in answered("inventory --single-reader", capsys)["tables"]] == ["a", "landed"]


def test_a_list_of_tables_by_their_readers_is_refused_if_a_broken_file_may_read_one(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (broken / "pipelines/facts/q/c/sql-scripts/dml.c.sql").write_text("INSERT INTO c SELCT id FORM STREAM a;\n")
    assert "files of c may read a, but have 1 problem" in refused("inventory --single-reader", capsys)


@pytest.mark.parametrize("question", ["report b --up", "lineage b.id", "lineage b"])
def test_upstream_answers_hold(question: str, broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answered(question, capsys)


@pytest.mark.parametrize("question", ["report b", "report a --down", "lineage a.id --down", "impact a", "impact b"])
def test_downstream_answers_are_refused_if_a_broken_file_may_read_a_table_in_them(
    question: str, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "files of c may read b, but have 1 problem" in refused(question, capsys)


@pytest.mark.parametrize("question", ["report b", "report a --down", "lineage a.id --down", "impact a", "impact b"])
def test_downstream_answers_hold_if_no_broken_file_mentions_their_tables(
    question: str, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (broken / "pipelines/facts/q/c/sql-scripts/dml.c.sql").write_text("INSERT INTO c SELCT id FORM STREAM b_old;\n")
    answered(question, capsys)


@pytest.mark.parametrize("question", ["report c", "lineage c.id", "impact c", "impact c.id", "test c"])
def test_questions_about_a_broken_table_list_its_problems(
    question: str, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "files of c are needed for the answer, but have 1 problem" in refused(question, capsys)


def test_a_file_that_cannot_be_read_may_read_any_table(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (broken / "pipelines/facts/q/c/sql-scripts/dml.c.sql").write_bytes(b"INSERT INTO c SELECT '\xff'")
    assert "files of c may read any table, but have 1 problem" in refused("impact a", capsys)


def test_selectors_of_a_plan_follow_the_sound_tables(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(written(["plan", "+b", "--offline"], capsys)["request"]["tables"]) == ["a", "b", "landed"]
    assert "files of c may read b" in refused("plan a+ --offline", capsys)
    assert "files of c are needed" in refused("plan c+ --offline", capsys)
    (broken / "pipelines/facts/q/c/sql-scripts/dml.c.sql").write_text("INSERT INTO c SELCT id FORM STREAM d;\n")
    assert written(["plan", "a+", "--offline"], capsys)["request"]["tables"] == ["a", "b"]


def test_a_tag_selects_the_sound_tables_unless_a_broken_file_may_have_it(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = broken / "pipelines/facts/p/b/b.yml"
    settings.write_text((settings.read_text() if settings.exists() else "") + "\ntags: [nightly]\n")
    assert written(["plan", "tag:nightly", "--offline"], capsys)["request"]["tables"] == ["b"]
    (broken / "pipelines/facts/q/c/c.yml").write_text("tags: [nightly]\n")
    assert "files of c may have the tag nightly" in refused("plan tag:nightly --offline", capsys)


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_changed_since_leaves_out_a_broken_table_that_has_not_changed(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(broken, "init", "-q", "-b", "main")
    git(broken, "add", ".")
    git(broken, "commit", "-q", "-m", "first")
    (broken / DML).write_text((broken / DML).read_text() + "-- edited\n")
    line = ["plan", "--changed-since", "main", "--offline"]
    found = written(line, capsys)
    assert (found["request"]["tables"], found["request"].get("gone", [])) == (["b"], [])
    (broken / "pipelines/facts/q/c/sql-scripts/dml.c.sql").write_text("INSERT INTO c SELCT id FORM STREAM b;\n--\n")
    assert "this plan needs files of c" in refused(" ".join(line), capsys)
    (broken / "pipelines/facts/q/c/sql-scripts/dml.c.sql").write_text("INSERT INTO c SELECT id FROM STREAM b;\n")
    assert written(line, capsys)["request"]["tables"] == ["b", "c"]


def test_tests_of_the_sound_tables_are_selected(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (broken / "pipelines/facts/p/b/sql-scripts/ddl.b.sql").write_text("CREATE TABLE b (id BIGINT")
    (broken / "pipelines/facts/q/c/sql-scripts/dml.c.sql").write_text("INSERT INTO c SELECT id FROM STREAM b;\n")
    assert exit_codes.run_command_line(["test"]) == 2
    assert "ddl.b.sql" in capsys.readouterr().err
    assert exit_codes.run_command_line(["test", "c"]) == 2
    assert "files of b are needed for the answer" in capsys.readouterr().err


def test_a_command_whose_cases_cannot_all_run_does_not_succeed(
    broken: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = "given: {a: [{id: 1}]}\nexpect: [{id: 1}]\n"
    for folder in ("facts/p/b", "facts/q/c"):
        (broken / f"pipelines/{folder}/tests").mkdir()
        (broken / f"pipelines/{folder}/tests/one.yml").write_text(case)
    passed = CaseResult("pipelines/facts/p/b/tests/one.yml", "b", "one", CaseOutcome.PASSED, "1 row")
    answer = {"result": passed.as_json()}
    monkeypatch.setattr(statement_tests, "run_child", lambda *_, **__: (each for each in [answer]))
    assert exit_codes.run_command_line(["test"]) == 2
    said = capsys.readouterr()
    assert "1 case: 1 passed" in said.err and "the test cases of c" in said.err
    assert exit_codes.run_command_line(["test", "b"]) == 0
    assert exit_codes.run_command_line(["test", "--product", "p"]) == 0
    (broken / "pipelines/facts/q/c/tests/one.yml").unlink()
    assert exit_codes.run_command_line(["test"]) == 0
