"""The findings of a release's comparison, for people and for programs."""

import json

from core.model.names import TableName
from core.run.records import CheckResultRow
from tui.presentation.reports.check_results import blocks, result_as_json, result_lines


def result(check: str, verdict: str, summary: str, *examples: dict[str, object], n: int = 1) -> CheckResultRow:
    return CheckResultRow(
        "7f3a", TableName("orders"), n, 1.0, 1, 2, 120, 3, check, verdict, summary, {"old": 4}, examples
    )


FOUND = (
    result("schema", "ok", "3 columns"),
    result(
        "differences",
        "unexpected",
        "1 row with other values, unexpected; 2 rows only in the old version: filter added: id > 2",
        {"why": "filter added: id > 2", "old": {"id": 1, "kind": None}, "new": None},
        {"why": "", "old": {"id": 4, "kind": "a"}, "new": {"id": 4, "kind": "b"}},
    ),
)


def test_unexpected_differences_are_first_and_each_row_names_its_version() -> None:
    assert result_lines(FOUND) == (
        "orders__v2 as of batch 3 compared with orders__v1 as of batch 120, after the same input",
        "  ok          schema        3 columns",
        "  UNEXPECTED  differences   1 row with other values, unexpected; 2 rows only in the old version:",
        "                            filter added: id > 2",
        "                            not expected",
        "                              changed kind a → b of {id: 4, kind: a}",
        "                            filter added: id > 2",
        "                              old {id: 1, kind: null}",
    )
    assert result_lines(()) == ()


def test_the_label_of_an_example_agrees_with_its_check() -> None:
    row = {"why": "", "old": None, "new": {"id": 1}}
    labels = [result_lines((result("duplicates", v, "x", row),))[2].strip() for v in ("unexpected", "expected", "ok")]
    assert labels == ["not expected", "expected", "ok"]


def test_only_what_is_unexpected_or_failed_blocks() -> None:
    verdicts = ("ok", "expected", "skipped", "unexpected", "failed")
    assert [blocks(result("x", verdict, "")) for verdict in verdicts] == [False, False, False, True, True]


def test_the_data_is_complete() -> None:
    found = json.loads(json.dumps(result_as_json(FOUND[1])))
    assert found["old"] == {"version": 1, "batch": 120} and found["new"] == {"version": 2, "batch": 3}
    assert [example["why"] for example in found["examples"]] == ["filter added: id > 2", ""]
