"""Results of comparisons: the latest result for each table of a run, kept for as long as the run is retained."""

from pathlib import Path

from core.model.names import TableName as T
from core.run.records import CheckResultRow
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
    ledger.forget_old(2.0 + RUNS_D * DAY_S)
    assert ledger.check_results("r-1") == ()
