"""Test cases parsed from text: values by declared types, parts, CSV, and all Problems at once with their lines."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
import small_project

from core.model.names import TableName
from core.model.problems import Problem
from core.project.model import Project
from core.statement_tests.case import StatementCase
from core.statement_tests.case_reader import read_cases

FOLDER = "pipelines/facts/p/a/tests"
LANDED = "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
COLUMNS = "(id BIGINT, kind STRING, price DECIMAL(5,2), at TIMESTAMP, tags ARRAY<INT>, about STRUCT<x:INT,y:STRING>)"


def project(select: str = "SELECT id, kind FROM STREAM landed") -> Project:
    texts = small_project.texts(a=select)
    texts[LANDED] = f"CREATE TABLE landed {COLUMNS} USING json LOCATION 'landing';"
    texts["pipelines/sources/p/names/sql-scripts/ddl.names.sql"] = (
        "CREATE TABLE names (id BIGINT, name STRING) USING csv LOCATION 'names';"
    )
    return small_project.project(texts)


def read(text: str, select: str = "SELECT id, kind FROM STREAM landed", **beside: str) -> tuple[StatementCase, ...]:
    cases, problems = read_all(text, select, **beside)
    assert problems == (), [problem.as_json() for problem in problems]
    return cases


def read_all(
    text: str, select: str = "SELECT id, kind FROM STREAM landed", **beside: str
) -> tuple[tuple[StatementCase, ...], tuple[Problem, ...]]:
    files = {f"{FOLDER}/one.yml": text} | {f"{FOLDER}/{name}.csv": cells for name, cells in beside.items()}
    return read_cases(files, project(select).tables)


def said(text: str, select: str = "SELECT id, kind FROM STREAM landed", **beside: str) -> list[str]:
    cases, problems = read_all(text, select, **beside)
    assert cases == ()
    assert all(problem.remedy for problem in problems)
    return [f"{problem.where}: {problem.summary}".removeprefix(f"{FOLDER}/") for problem in problems]


def test_rows_have_the_declared_types_and_a_column_that_is_left_out_is_null() -> None:
    (case,) = read(
        "given:\n  landed:\n"
        "    - {id: 7, price: 1.5, at: 2026-01-31 18:00:00+01:00, tags: [1, null], about: {y: yes}}\n"
        'expect:\n  - {ID: 7, kind: "null"}\n  - {id: 8, kind: null}\n'
    )
    assert (case.table, case.name, case.path) == ("a", "one", f"{FOLDER}/one.yml")
    moment = datetime(2026, 1, 31, 17, tzinfo=UTC)
    row = (7, None, Decimal("1.50"), moment, (1, None), (None, "yes"))
    assert case.parts == ({TableName("landed"): (row,)},)
    assert case.expected == ((7, "null"), (8, None))


def test_a_list_of_mappings_is_one_part_for_each_micro_batch() -> None:
    (case,) = read("given:\n  - landed: [{id: 1}]\n  - {}\n  - landed: [{id: 2}]\nexpect: []\n")
    assert [[row[0] for row in part.get(TableName("landed"), ())] for part in case.parts] == [[1], [], [2]]


def test_rows_may_be_in_a_csv_file_beside_it() -> None:
    cells = 'id,kind,tags,price,at\n1,"a,b","[1, 2]",2.25,2026-01-01T00:00:00Z\n2,,,,\n'
    (case,) = read("given: {landed: rows.csv}\nexpect: wanted.csv\n", rows=cells, wanted="kind,id\nx,1\n")
    rows = case.parts[0][TableName("landed")]
    assert rows[0] == (1, "a,b", Decimal("2.25"), datetime(2026, 1, 1, tzinfo=UTC), (1, 2), None)
    assert rows[1] == (2, None, None, None, None, None)
    assert case.expected == ((1, "x"),)


def test_all_mistakes_are_reported_at_once_with_their_lines() -> None:
    assert said(
        "given:\n"
        "  landed:\n"
        "    - {id: one, kynd: x}\n"
        "    - {price: 1000.00, at: yesterday}\n"
        "  orders: []\n"
        "expect:\n"
        "  - {id: 99999999999999999999}\n"
        "  - 7\n"
        "key: [idd]\n"
        "expects: []\n"
    ) == [
        "one.yml:3: landed has no column kynd",
        "one.yml:3: landed.id must be of type bigint",
        "one.yml:4: landed.at must be of type timestamp",
        "one.yml:4: landed.price must be of type decimal(5,2)",
        "one.yml:5: a does not read orders",
        "one.yml:7: a.id must be of type bigint",
        "one.yml:8: a row of a is not a mapping",
        "one.yml:9: a has no column idd",
        "one.yml:10: expects is not a known key",
    ]


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("", "given is missing"),
        ("given: {landed: []}", "expect is missing"),
        ("given: [7]\nexpect: []", "part 1 of given is not a mapping of tables to rows"),
        ("given: {landed: nowhere.csv}\nexpect: []", "nowhere.csv is not in the folder of this file"),
        ("given: {landed: ../../rows.csv}\nexpect: []", "../../rows.csv is not in the folder of this file"),
        ("table: b\ngiven: {}\nexpect: []", "b is not a statement of this folder"),
        ("given: {landed: [{id: 1, id: 2}]}\nexpect: []", "id appears twice in a row of landed"),
        ("given: {landed: [{id: 1}]\nexpect: []", "is not valid YAML"),
        ("given: &a [*a]\nexpect: []", "given must be a value of bounded size"),
    ],
)
def test_an_invalid_case_file_is_refused_with_the_reason(text: str, summary: str) -> None:
    assert any(summary in line for line in said(text))


def test_mistakes_in_a_csv_name_its_own_lines() -> None:
    assert said("given: {landed: rows.csv}\nexpect: []\n", rows="id,nme\nx,1\n1\n") == [
        "rows.csv:1: landed has no column nme",
        "rows.csv:2: landed.id must be of type bigint",
        "rows.csv:3: a row has 1 cell, but the header line has 2",
    ]


def test_a_static_side_has_its_rows_in_the_first_part() -> None:
    joined = "SELECT l.id, n.name AS kind FROM STREAM landed AS l JOIN names AS n ON n.id = l.id"
    text = "given:\n  - landed: [{id: 1}]\n  - names: [{id: 1, name: x}]\nexpect: []\n"
    assert said(text, joined) == [
        "one.yml:3: names is a static side, which is read only once: its rows belong in the first part"
    ]


def test_a_folder_of_several_statements_needs_the_name_of_one() -> None:
    texts = small_project.texts()
    texts["pipelines/facts/p/a/sql-scripts/ddl.b.sql"] = texts.pop("pipelines/facts/p/b/sql-scripts/ddl.b.sql")
    texts["pipelines/facts/p/a/sql-scripts/dml.b.sql"] = texts.pop("pipelines/facts/p/b/sql-scripts/dml.b.sql")
    tables = small_project.project(texts).tables
    case = "given: {landed: []}\nexpect: []\n"
    cases, problems = read_cases({f"{FOLDER}/x.yml": case, f"{FOLDER}/y.yml": f"table: a\n{case}"}, tables)
    assert [each.label for each in cases] == ["a/y"]
    assert [problem.summary for problem in problems] == ["it does not say which of a, b it tests"]
