"""Test cases of functions, as cases of generated statements, and their mistakes."""

import pytest

from core.project.model import Project
from core.project_reader.loader import read_project
from core.statement_tests.case_reader import read_cases
from core.statement_tests.function_cases import FunctionCases, function_cases, function_folders

HEAD = "project: s\nid: 12345678-1234-5678-1234-567812345678\ndefault_env: dev\nenvironments: {dev: {}}\n"
TEXTS = {
    "headgate.yml": HEAD,
    "functions/vat.sql": "CREATE FUNCTION vat(`case` DOUBLE, s STRUCT<a: INT>) RETURNS DOUBLE RETURN net(`case`) * s.a",
    "functions/net.sql": "CREATE FUNCTION net(x DOUBLE) RETURNS DOUBLE RETURN x",
}


def project() -> Project:
    found, problems = read_project(TEXTS)
    assert found is not None, problems
    return found


def cases(path: str, text: str) -> FunctionCases:
    read = project()
    return function_cases(read.functions, read, TEXTS, {path: text}, environment="dev")


def test_a_file_of_calls_becomes_a_case_of_a_statement_that_makes_them() -> None:
    text = "cases:\n- args: [2, {a: 3}]\n  expect: 6\n- {args: {s: null, case: 1}, expect: null}\n"
    found = cases("functions/tests/vat.yml", text)
    assert found.problems == [] and list(found.shown.values()) == [("vat()", "functions/tests/vat.yml")]
    (case,), problems = read_cases(found.tests, found.tables)
    assert problems == () and (case.table, case.key) == ("function_vat", ("case_",))
    assert case.parts == ({"function_vat_calls": ((1, 2.0, (3,)), (2, 1.0, None))},)
    assert case.expected == ((1, 6.0), (2, None))
    statement = found.tables[case.table].dml
    assert statement is not None and "/* vat */" in statement.text and "/* net */" in statement.text


def test_the_cases_of_a_table_function_expect_rows() -> None:
    text = (
        "# CREATE FUNCTION words(line STRING) RETURNS TABLE (word STRING, `case` INT)\n"
        "class words:\n    def eval(self, line):\n        yield line, 1\n"
    )
    texts = {"headgate.yml": HEAD, "functions/words.py": text}
    read, problems = read_project(texts)
    assert read is not None, problems

    def of(cases: str) -> FunctionCases:
        return function_cases(read.functions, read, texts, {"functions/tests/words.yml": cases}, environment="dev")

    found = of("cases:\n- {args: [a b], expect: [[a, 1], {case: 1, word: b}]}\n- {args: [''], expect: []}\n")
    assert found.problems == [] and found.cases[0].expected == ((1, "a", 1), (1, "b", 1))
    (case,), wrong = read_cases(found.tests, found.tables)
    assert wrong == () and case.key == () and case.expected == found.cases[0].expected
    statement = found.tables[case.table].dml
    assert statement is not None and "SELECT `case_`, result.word, result.case FROM STREAM" in statement.text
    for cases, said in (
        ("- {args: [a], expect: a}", "expect must be a list of rows"),
        ("- {args: [a], expect: [a]}", "a row of expect must have the columns word, case"),
        ("- {args: [a], expect: [[a, x]]}", "expect.case must be of type int"),
    ):
        (problem,) = of(f"cases:\n{cases}\n").problems
        assert (problem.summary, problem.where and problem.where.line) == (said, 2)


def test_the_cases_of_functions_lie_beside_the_functions() -> None:
    assert function_folders(project().functions) == ("functions",)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("vat.yml", "x: 1\n", ":1: there are no cases [write cases: [{args: [1, 2], expect: 3}]]"),
        ("vat.yml", "cases:\n- {args: [1]}\n", ":2: a case has args and expect [write cases: [{args: [1, 2], "),
        ("vat.yml", "cases:\n- {args: [1], expect: 1}\n",
         ":2: vat has 2 parameters, and args has 1 value [give a value to each of case, s]"),
        ("vat.yml", "cases:\n- {args: {cas: 1, s: null}, expect: 1}\n",
         ":2: vat has no parameter cas [did you mean case?]"),
        ("vat.yml", "cases:\n- args: [x, null]\n  expect: 1\n", ":2: args.case must be of type double [write"),
        ("vatt.yml", "cases: []\n", ": there is no function vatt [did you mean vat?]"),
        ("vat.yaml", "", ": vat.yaml is ignored [rename it to vat.yml]"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_of_cases_is_a_problem_with_its_line(path: str, text: str, said: str) -> None:
    found = cases(f"functions/tests/{path}", text)
    shown = [f"{each.where}: {each.summary} [{each.remedy}]" for each in found.problems if each.subject != "x"]
    assert len(shown) == 1 and shown[0].startswith(f"functions/tests/{path}{said}") and found.cases == []
