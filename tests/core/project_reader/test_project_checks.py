"""`checks:` in a table's yml: accepted forms, Problems with their positions, and the effect of a change."""

from collections.abc import Mapping

import pytest

from core.model.names import TableName as T
from core.model.problems import Problem, Severity
from core.observed.planner_input import ObservedDeployment
from core.project.model import Settings
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project, read_settings, settings_as_text
from core.project_reader.parse_cache import ParseCache
from tests.core.project_reader.test_loader import SRC_A, good, texts
from tests.support.domain_builders import actions, plan

YML = "pipelines/facts/p/a/a.yml"


def with_checks(yml: str) -> dict[str, str]:
    return texts((YML, yml), src="", a="SELECT id FROM STREAM src")


def problems(found: Mapping[str, str]) -> list[str]:
    every = read_project(found)[1]
    assert all(p.remedy and p.severity is Severity.ERROR for p in every)
    return [f"{p.where.line}: {p.summary}" for p in every if p.where and p.where.path == YML]


GOOD = """owner: me
checks:
  - name: positive
    sql: SELECT * FROM a WHERE id <= 0
  - name: known in the source
    sql: |
      SELECT a.id FROM a
      LEFT ANTI JOIN src ON a.id = src.id
"""


def test_checks_are_read_in_their_order_and_come_back_from_their_text() -> None:
    cache = ParseCache()
    project, _ = read_project(with_checks(GOOD), cache)
    assert project is not None
    settings = project.tables[T("a")].settings
    assert [name for name, _ in settings.checks] == ["positive", "known in the source"]
    assert settings.checks[1][1] == "SELECT a.id FROM a\nLEFT ANTI JOIN src ON a.id = src.id\n"
    wrong: list[Problem] = []
    assert read_settings(settings_as_text(settings), "a.yml", Settings(), wrong) == settings and not wrong
    again, _ = read_project(with_checks(GOOD), ParseCache(cache.take_fresh()))
    assert again is not None and again.tables[T("a")].settings == settings


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FORM a", "the SQL cannot be parsed"),
        ("DELETE FROM a", "DELETE"),
        ("INSERT INTO a SELECT 1 AS id", "it is not one query"),
        ("SELECT * FROM STREAM a", "it streams"),
        ("SELECT * FROM src", "it does not read a"),
        ("SELECT a.id FROM a JOIN scr ON a.id = scr.id", "it reads scr, which no DDL declares"),
        ("SELECT idd FROM a", "idd is no column of a"),
        ("SELECT java_method('java.lang.System', 'exit', 1) FROM a", "java_method"),
        ("SELECT * FROM a; SELECT * FROM a", "it is not one query"),
    ],
)
def test_a_query_that_is_no_valid_check_is_a_problem_with_its_line(sql: str, expected: str) -> None:
    (found,) = problems(with_checks(f'owner: me\nchecks:\n  - name: x\n    sql: "{sql}"\n'))
    assert found.startswith("4: check x of a: ") and expected in found


@pytest.mark.parametrize(
    ("yml", "expected"),
    [
        ("checks: 5\n", "1: checks must be a list of checks, each with a name and a query"),
        ("checks:\n  - name: x\n", "2: checks must be a list of checks, each with a name and a query"),
        ("checks:\n  - {name: x, sql: SELECT 1 FROM a, more: 1}\n", "2: checks must be a list of checks, each with a"),
        ("checks:\n  - {name: x, sql: SELECT id FROM a}\n  - {name: x, sql: SELECT id FROM a}\n",
         "3: checks must be a list that names x once"),
    ],
)  # fmt: skip
def test_another_form_is_a_problem(yml: str, expected: str) -> None:
    (found,) = problems(with_checks(yml))
    assert found.startswith(expected)


def test_checks_belong_to_a_table_and_not_to_the_defaults_of_a_project() -> None:
    found = texts(src="", a="SELECT id FROM STREAM src")
    found["headgate.yml"] += "defaults: {checks: [{name: x, sql: SELECT id FROM a}]}\n"
    project, every = read_project(found)
    assert project is None
    assert [p.summary for p in every] == ["defaults.checks must be in the yml of the table that they check"]


def test_another_check_is_recorded_and_nothing_restarts() -> None:
    project = good(with_checks(GOOD))
    found = with_checks("owner: me\n")
    old = RevisionTexts(found[f"{SRC_A}/ddl.a.sql"], found[f"{SRC_A}/dml.a.sql"], "owner: me\n")
    made = plan(project, {T("a"): ObservedDeployment("running", "changed", old)}, "a")
    assert actions(made)["a"] == "record"
