"""Results of integration tests: the first table that differs, and the documents for CI."""

from dataclasses import replace
from xml.etree import ElementTree

from core.integration_tests.reports import junit_xml, markdown
from core.integration_tests.results import CheckedTable, Found, TestResult, judged
from core.model.names import TableName as T
from core.statement_tests.comparison import MOST_FOUND
from core.statement_tests.request import CaseOutcome

COLUMNS = (("id", "bigint"), ("kind", "string"))
A = CheckedTable(T("a"), COLUMNS, ((1, "x"),), ((1, "x"),), ("id",))
PASSED = TestResult("p/one", "p/one.yml", CaseOutcome.PASSED, Found.ERROR.of(error="fine"), 1.25)
ENDED = replace(PASSED, name="p/two", outcome=CaseOutcome.ERROR, fact=Found.ERROR.of(error='no <Spark> & "no" \x1b'))


def compared(*tables: CheckedTable) -> TestResult:
    return judged("p/one", "p/one.yml", tables, tolerance=1e-9, slowest_s=2.34)


def test_tables_with_the_expected_rows_pass() -> None:
    found = compared(A, replace(A, table=T("b"), expected=(), found=()))
    assert found.passed and str(found.fact) == "1 row in 2 tables as expected, at most 2.3 s after a part"


def test_the_first_table_that_differs_is_shown_with_its_rows() -> None:
    wrong = replace(A, table=T("b"), found=((1, "y"), (2, None)))
    found = compared(A, wrong, replace(wrong, table=T("c")))
    assert (found.outcome, found.table) == (CaseOutcome.FAILED, "b")
    assert str(found.fact) == "b differs: 0 missing, 1 unexpected, 1 with other values"
    assert found.difference is not None and found.difference["unexpected_rows"] == [{"id": "2", "kind": "null"}]


def test_rows_of_which_some_are_missing_and_others_unexpected_need_a_key() -> None:
    wrong = replace(A, key=(), found=((1, "y"),))
    found = compared(wrong)
    assert [str(note) for note in found.notes] == [
        "a key pairs missing rows with unexpected ones and shows which columns differ: key: {a: [column]}"
    ]
    assert not compared(replace(wrong, key=("id",))).notes and not compared(replace(wrong, found=())).notes


def test_too_many_rows_are_not_compared() -> None:
    many = replace(A, found=((1, "x"),) * (MOST_FOUND + 1))
    assert compared(many).fact == Found.TOO_MANY.of(table="a", most=MOST_FOUND)


def test_junit_xml_has_the_outcome_of_each_test_with_the_rows_that_differ() -> None:
    failed = replace(compared(replace(A, found=())), name="p/three")
    root = ElementTree.fromstring(junit_xml([PASSED, ENDED, failed], project="p", environment="dev"))
    (suite,) = root
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    assert [(case.get("name"), [each.tag for each in case]) for case in suite] == [
        ("p/one", []), ("p/two", ["error"]), ("p/three", ["failure"]),
    ]  # fmt: skip
    assert suite[0].get("time") == "1.250" and suite[0].get("file") == "p/one.yml"
    assert suite[1][0].get("message") == 'no <Spark> & "no" \\x1b'
    assert suite[2][0].text == 'missing    {id: 1, kind: "x"}'


def test_markdown_has_a_verdict_a_line_for_each_test_and_the_rows_that_differ() -> None:
    failed = replace(compared(replace(A, found=())), name="p/three")
    text = markdown([PASSED, replace(ENDED, fact=Found.ERROR.of(error="a|b")), failed], project="p", environment="dev")
    assert text.startswith("**Integration tests of p (dev): 2 of 3 tests failed**\n")
    assert "| ok | `p/one` | fine | 1.2 |" in text and "| ERROR | `p/two` | a\\|b | 1.2 |" in text
    assert '`p/three`, table `a`:\n\n```\nmissing    {id: 1, kind: "x"}\n```' in text
    assert markdown([PASSED], project="p", environment="dev").startswith(
        "**Integration tests of p (dev): 1 test passed**"
    )
