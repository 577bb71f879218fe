"""Statistics of tables and of the environment: the newest for each version, with its measurements."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from core.model.names import TableName
from core.observed.table_statistics import Headroom, TableStatistics
from core.observed.versions import Deployment, Measurement
from core.project.model import Pool
from state.ledger import Ledger, LedgerReader
from state.planner_input_from_registry import observe

ORDERS, LANDED = TableName("orders"), TableName("landed")
MEASURED = TableStatistics(
    at=100.0,
    rows=40,
    exact=False,
    bytes=4000,
    files=4,
    earliest=12.5,
    gone=2,
    small_files=3,
    log_entries=9,
    log_bytes=900,
)


def test_figures_of_a_version_join_what_its_batches_have_shown(
    ledger: Ledger, path: Path, deployment: Callable[..., Deployment]
) -> None:
    ledger.put_deployment(deployment("landed", 0, external=True))
    ledger.put_deployment(deployment("orders", 1, active=False))
    ledger.put_deployment(deployment("orders", 2))
    ledger.put_table_statistics({(LANDED, 0): MEASURED, (ORDERS, 2): MEASURED, (TableName("gone"), 1): MEASURED})
    ledger.put_measurements(
        [Measurement(ORDERS, 2, 90.0, state_rows=7, state_bytes=700, fastest_rows_s=1234.5), Measurement(ORDERS, 1, 90)]
    )
    whole = replace(MEASURED, rate_rows_s=1234.5, state_rows=7, state_bytes=700)
    with_none = TableStatistics()
    expected = {(LANDED, 0): MEASURED, (ORDERS, 1): with_none, (ORDERS, 2): whole}
    assert ledger.table_statistics() == LedgerReader(path).table_statistics() == expected
    assert ledger.table_statistics(LANDED) == {(LANDED, 0): MEASURED}
    seen = observe(ledger.deployments(), ledger.table_statistics())
    assert (seen[ORDERS].statistics, seen[LANDED].statistics) == (whole, MEASURED)
    assert observe(ledger.deployments())[ORDERS].statistics is None


def test_newer_figures_replace_the_older_and_a_deleted_version_has_none(
    ledger: Ledger, deployment: Callable[..., Deployment]
) -> None:
    ledger.put_deployment(deployment("orders", 1))
    ledger.put_table_statistics({(ORDERS, 1): MEASURED})
    newer = TableStatistics(at=700.0, rows=None, bytes=None, files=None, gone=None)
    ledger.put_table_statistics({(ORDERS, 1): newer})
    assert ledger.table_statistics() == {(ORDERS, 1): newer}
    ledger.tombstone(ORDERS, 1, drop_after=1.0, trash="/t")
    assert ledger.table_statistics() == {}


def test_room_is_the_last_that_was_written(ledger: Ledger, path: Path) -> None:
    assert ledger.headroom() == Headroom()
    for free in (5, 4):
        ledger.put_headroom(Headroom(1.0, free, 10, 2, 0.5, "4.2.0"))
    assert LedgerReader(path).headroom() == Headroom(1.0, 4, 10, 2, 0.5, "4.2.0")


def test_pool_and_engine_of_a_version_are_kept_and_unknown_until_it_was_started(
    ledger: Ledger, deployment: Callable[..., Deployment]
) -> None:
    pool = Pool("big", "sc://host:15002", 16, "8g", (("spark.sql.ansi.enabled", "true"),))
    ledger.put_deployment(deployment("orders"))
    (found,) = ledger.deployments()
    assert (found.pool, found.engine) == (None, "")
    ledger.put_deployment(deployment("more", pool=pool, engine="4.2.0"))
    ledger.update_deployment(ORDERS, 1, pool=Pool("small"), engine="4.3.0")
    seen = observe(ledger.deployments())
    assert (seen[TableName("more")].pool, seen[TableName("more")].engine) == (pool, "4.2.0")
    assert (seen[ORDERS].pool, seen[ORDERS].engine) == (Pool("small"), "4.3.0")
