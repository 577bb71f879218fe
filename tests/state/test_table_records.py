"""The sources of a table's history: rows about itself, and events of its parents at any depth."""

from collections.abc import Callable
from pathlib import Path

from core.model.names import TableName
from core.observed.versions import Binding, Deployment
from state.ledger import Ledger, LedgerReader
from state.row_types import EventRow
from state.table_records import read_table_records


def test_events_of_upstream_tables_are_among_a_tables_records_at_any_depth(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment]
) -> None:
    for table, parents in (("root", ()), ("middle", ("root",)), ("leaf", ("middle", "leaf")), ("other", ("root",))):
        bindings = tuple(Binding(TableName(parent), 1, True) for parent in parents)
        ledger.put_deployment(deployment(table, bindings=bindings))
        ledger.add_event(EventRow(0, float(len(table)), table, 1, "state", f"{table} stopped"))
    with LedgerReader(path) as reader:
        records = read_table_records(reader, TableName("leaf"), 10)
    assert [event.table for event in records.upstream] == ["middle", "root"]
    assert [event.table for event in records.events] == ["leaf"]
