"""Results of comparisons: the latest result for each table of a run, kept for as long as the run is retained."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.model.names import TableName as T
from core.run.records import OVERLAY_COMPARISON, CheckResultRow
from state.ledger import Ledger, LedgerReader
from state.retention import DAY_S, RUNS_D
from tests.support.ledger_rows import create_run, run_row


def result(n: int, check: str, table: str = "a", **more: object) -> CheckResultRow:
    return CheckResultRow("r-1", T(table), n, 5.0, 1, 2, 7, None, check, "ok", "equal", **more)  # type: ignore[arg-type]


def test_a_later_look_replaces_the_results_of_its_table_alone(ledger: Ledger, path: Path) -> None:
    examples = ({"why": "", "old": {"id": 1}, "new": None},)
    ledger.put_check_results("r-1", T("a"), [result(1, "schema"), result(2, "differences")])
    ledger.put_check_results("r-1", T("b"), [result(1, "schema", "b")])
    again = result(1, "differences", counts={"unexpected": 3}, examples=examples)
    ledger.put_check_results("r-1", T("a"), [again])
    assert LedgerReader(path).check_results("r-1") == (again, result(1, "schema", "b"))
    assert ledger.check_results("r-1", T("a")) == (again,) and ledger.check_results("r-2") == ()


def test_results_are_deleted_with_their_run(ledger: Ledger) -> None:
    create_run(ledger, run_row("h", id="r-1", state="done", ended_at=1.0))
    ledger.put_check_results("r-1", T("a"), [result(1, "schema")])
    ledger.forget_old(2.0)
    assert ledger.check_results("r-1")
    ledger.put_overlay_comparison([replace(result(1, "schema"), run_id=OVERLAY_COMPARISON)])
    ledger.forget_old(2.0 + RUNS_D * DAY_S)
    assert ledger.check_results("r-1") == () and ledger.check_results(OVERLAY_COMPARISON)


def of_overlay(table: str) -> CheckResultRow:
    return replace(result(1, "schema", table), run_id=OVERLAY_COMPARISON)


def test_a_comparison_with_the_base_replaces_the_one_before_it_as_a_whole_or_not_at_all(ledger: Ledger) -> None:
    ledger.put_check_results("r-1", T("a"), [result(1, "schema")])
    ledger.put_overlay_comparison([of_overlay("a"), of_overlay("b")])
    ledger.put_overlay_comparison([of_overlay("b"), of_overlay("c")])
    assert [row.table for row in ledger.check_results(OVERLAY_COMPARISON)] == ["b", "c"]

    def broken() -> Iterator[CheckResultRow]:
        yield of_overlay("d")
        raise ValueError

    with pytest.raises(ValueError):
        ledger.put_overlay_comparison(broken())
    assert [row.table for row in ledger.check_results(OVERLAY_COMPARISON)] == ["b", "c"]
    assert ledger.check_results("r-1") == (result(1, "schema"),)
