"""Cases of integration tests: rows by table and part, and mistakes with their lines."""

import pytest
import small_project

from core.integration_tests.case import IntegrationCase
from core.integration_tests.case_reader import read_integration_cases, sources_of
from core.model.names import TableName as T
from core.model.problems import Problem

PATH = "pipelines/facts/p/integration/one.yml"
STATIC = "SELECT a.id, s.kind FROM STREAM a JOIN side s ON a.id = s.id"


def texts() -> dict[str, str]:
    folder = "pipelines/sources/p/side/sql-scripts"
    side = {f"{folder}/ddl.side.sql": f"CREATE TABLE side {small_project.COLUMNS} USING json LOCATION 'side';"}
    return {**small_project.texts(b=STATIC), **side}


def read(text: str, **beside: str) -> tuple[tuple[IntegrationCase, ...], tuple[Problem, ...]]:
    files = {PATH: text, **{f"pipelines/facts/p/integration/{n}.csv": t for n, t in beside.items()}}
    return read_integration_cases(files, small_project.project(texts()))


def test_a_case_has_rows_by_part_and_table_and_the_expected_rows_of_several_tables() -> None:
    cases, problems = read(
        "description: two parts\ngiven:\n  - landed: [{id: 1, kind: x}]\n    side: side.csv\n  - landed: [{id: 2}]\n"
        "expect:\n  b: [{id: 1, kind: s}]\n  a: rows.csv\nkey: {b: [ID]}\ntolerance: 0.5\nwithin: 5\n",
        side="id,kind\n1,s\n",
        rows="id,kind\n1,x\n2,\n",
    )
    assert problems == ()
    assert cases == (
        IntegrationCase(
            "one", PATH,
            parts=({T("landed"): ((1, "x"),), T("side"): ((1, "s"),)}, {T("landed"): ((2, None),)}),
            expected={T("b"): ((1, "s"),), T("a"): ((1, "x"), (2, None))},
            keys={T("b"): ("id",), T("a"): ()}, tolerance=0.5, within_s=5.0, description="two parts",
        ),
    )  # fmt: skip


def test_sources_are_all_external_tables_upstream_and_it_is_known_which_are_streamed() -> None:
    project = small_project.project(texts())
    assert sources_of(project, [T("b")]) == {"landed": True, "side": False}
    assert sources_of(project, [T("a")]) == {"landed": True}


@pytest.mark.parametrize(
    ("text", "line", "summary"),
    [
        ("expect: {a: []}", 1, "given is missing"),
        ("given: {landed: []}", 1, "expect is missing"),
        ("given: {landed: []}\nexpect: [{id: 1}]", 2, "expect is not a mapping of tables to rows"),
        ("given: {landed: []}\nexpect: {landed: []}", 2, "landed is external: nothing is written to it"),
        ("given: {landed: []}\nexpect: {A1: []}", 2, "a1 is not declared"),
        ("given: []\nexpect: {a: []}", 1, "given is empty"),
        ("given:\n  - landed: []\n  - 7\nexpect: {a: []}", 3, "part 2 of given is not a mapping of tables to rows"),
        ("given: {a: []}\nexpect: {b: []}", 1, "a is no source of b"),
        ("given: {side: []}\nexpect: {a: []}", 1, "side is no source of a"),
        ("given: {landed: [{id: x}]}\nexpect: {a: []}", 1, "landed.id must be of type bigint"),
        ("given: {landed: []}\nexpect: {a: [{other: 1}]}", 2, "a has no column other"),
        ("given: {landed: []}\nexpect: {a: []}\nkey: {b: [id]}", 3, "b is not in expect"),
        ("given: {landed: []}\nexpect: {a: []}\nkey: {a: [no]}", 3, "a has no column no"),
        ("given: {landed: []}\nexpect: {a: []}\nkey: [id]", 3, "key is not a mapping of tables to columns"),
    ],
)
def test_a_mistake_is_a_problem_with_its_line_and_a_remedy(text: str, line: int, summary: str) -> None:
    cases, (problem,) = read(text)
    assert (cases, problem.summary, problem.where.line) == ((), summary, line) and problem.remedy


def test_rows_of_a_static_side_come_first_and_all_mistakes_are_found_at_once() -> None:
    _, problems = read("given:\n  - landed: []\n  - side: []\n    nope: []\nexpect: {b: []}\nwithin: 0\nother: 1\n")
    assert [problem.where.line for problem in problems] == [3, 4, 6, 7]
    assert "its rows belong in the first part" in problems[0].summary
