"""How a comparison counts right, later, wrong, missing and repeated rows, and their latencies."""

import json
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

from pipelines.demo.comparison import Ticket, _Tickets, judged, percentile
from pipelines.demo.restaurant import Content, OrderState

FIRST: Content = ("Ada", "Table 1", (("Margherita", "7.50"),))
RENAMED: Content = ("Eda", "Table 1", (("Margherita", "7.50"),))
OTHER: Content = ("Ada", "Table 1", (("Diavola", "9.00"),))
STATES = (OrderState(1, 1, 0, [FIRST, RENAMED]), OrderState(1, 2, 1, [OTHER]), OrderState(2, 1, 2, [FIRST]))
COMMITTED = (10.0, 20.0, 30.0)


def test_a_row_is_right_later_or_wrong_by_what_the_database_showed_for_its_revision() -> None:
    rows = [Ticket(1, 1, FIRST, 11.0), Ticket(1, 2, FIRST, 21.0), Ticket(2, 1, FIRST, 33.0)]
    found = judged(rows, STATES, COMMITTED)
    assert (found["right"], found["later"], found["wrong"], found["missed"]) == (2, 0, 1, 0)
    later = judged([Ticket(1, 1, RENAMED, 11.0)], STATES, COMMITTED)
    assert (later["right"], later["later"], later["wrong"], later["missed"]) == (0, 1, 0, 2)


def test_a_revision_that_was_never_committed_is_wrong_and_has_no_latency() -> None:
    found = judged([Ticket(1, 7, FIRST, 11.0)], STATES, COMMITTED)
    assert (found["wrong"], found["missed"], found["p50_s"]) == (1, 3, None)


def test_a_repeated_row_is_counted_and_its_first_arrival_is_its_latency() -> None:
    rows = [Ticket(1, 1, FIRST, 12.0), Ticket(1, 1, FIRST, 19.0)]
    found = judged(rows, STATES, COMMITTED)
    assert (found["rows"], found["right"], found["twice"], found["p50_s"], found["p99_s"]) == (2, 2, 1, 2.0, 2.0)


def test_a_percentile_is_a_value_that_occurred() -> None:
    ordered = [float(n) for n in range(1, 201)]
    assert (percentile(ordered, 0.5), percentile(ordered, 0.99), percentile(ordered[:1], 0.99)) == (100.0, 198.0, 1.0)
    assert percentile([], 0.5) is None


def batch(
    table: Path, number: int, order: int, *, at: float, compact: bool = False, before: tuple[int, ...] = ()
) -> None:
    """Commit one row as Spark's file sink does; a compact file lists the files of earlier batches too."""
    row = {"order_id": order, "revision": 1, "client_name": "Ada", "table_name": "Table 1",
           "pizzas": [{"pizza": "Margherita", "price": Decimal("7.50")}]}  # fmt: skip
    parquet.write_table(arrow.Table.from_pylist([row]), table / f"{order}.parquet")
    log = table / "_spark_metadata" / (f"{number}.compact" if compact else str(number))
    log.parent.mkdir(exist_ok=True)
    names = [f"file://{table}/{each}.parquet" for each in (*before, order)]
    log.write_text("\n".join(["v1", *(json.dumps({"path": name, "action": "add"}) for name in names)]))
    os.utime(log, (at, at))


def test_rows_arrive_when_their_batch_is_committed_also_if_the_log_is_compacted(tmp_path: Path) -> None:
    tickets = _Tickets(tmp_path)
    assert tickets.refresh() == 0
    batch(tmp_path, 8, 1, at=100.0)
    assert tickets.refresh() == 1
    batch(tmp_path, 9, 2, at=101.0, compact=True, before=(1,))
    assert tickets.refresh() == tickets.refresh() == 2
    assert tickets.rows == [Ticket(1, 1, FIRST, 100.0), Ticket(2, 1, FIRST, 101.0)]
