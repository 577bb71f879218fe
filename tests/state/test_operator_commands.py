"""Commands of operators: the latest command on each subject counts, in whatever order they are written."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from ledger_rows import create_run, run_row

from core.model.names import TableName
from core.observed.versions import Deployment
from state.ledger import Ledger, LedgerReader
from state.operator_commands import CommandStamp

ORDERS = TableName("orders")


def word(serial: int) -> CommandStamp:
    return CommandStamp(serial, "ana", float(serial))


def wanted(ledger: Ledger) -> list[str]:
    return [row.wanted for row in sorted(ledger.versions(ORDERS), key=lambda row: row.version)]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_later_start_of_one_version_holds_however_late_the_stops_are_written(
    order: tuple[int, ...], ledger: Ledger, deployment: Callable[..., Deployment]
) -> None:
    for version in (1, 2):
        ledger.put_deployment(deployment("orders", version, active=version == 1))
    said: tuple[Callable[[], object], ...] = (
        lambda: ledger.stop_statements(["orders"], word(1)),
        lambda: ledger.stop_statements(["orders@v2"], word(2)),
        lambda: ledger.want_running(ORDERS, 2, word(3)),
    )
    for n in order:
        said[n]()
    assert wanted(ledger) == ["stopped", "running"]
    assert ledger.newest_serial() == 3


def test_a_start_is_not_recorded_after_a_later_stop(ledger: Ledger, deployment: Callable[..., Deployment]) -> None:
    ledger.put_deployment(deployment("orders", 1))
    ledger.stop_statements(["orders"], word(2))
    assert not ledger.want_running(ORDERS, 1, word(1))
    assert wanted(ledger) == ["stopped"] and ledger.latest_command("orders@v1") is None


def test_the_end_of_a_query_is_recorded_only_for_its_run_and_changes_no_wanted_state(
    ledger: Ledger, deployment: Callable[..., Deployment]
) -> None:
    ledger.put_deployment(deployment("orders", 1, run_id="r2", state="running"))
    assert not ledger.put_stopped(ORDERS, 1, "r2", 9.0), "it is wanted running"
    ledger.stop_statements(["orders"], word(1))
    assert not ledger.put_stopped(ORDERS, 1, "r1", 9.0), "another query runs by now"
    assert ledger.put_stopped(ORDERS, 1, "r2", 9.0)
    (row,) = ledger.versions(ORDERS)
    assert (row.wanted, row.state, row.run_id) == ("stopped", "stopped", "")


def test_a_stop_holds_against_earlier_runs(ledger: Ledger, path: Path, deployment: Callable[..., Deployment]) -> None:
    create_run(ledger, run_row(id="before", serial=1))
    create_run(ledger, run_row(id="after", serial=3))
    ledger.stop_statements(["orders@v1"], word(2))
    found = {(run, n): bool(ledger.stopped_during(run, ORDERS, n)) for run in ("before", "after") for n in (1, 2)}
    assert found == {("before", 1): True, ("before", 2): False, ("after", 1): False, ("after", 2): False}
    with LedgerReader(path) as reader:
        assert reader.run("before") is not None
