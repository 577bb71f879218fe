"""Figures of tables and of the environment: the newest of each version, with what its measurements know."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from core.model.names import TableName
from core.observed.table_statistics import Headroom, TableStatistics
from core.project.model import Pool
from state.ledger import Ledger, LedgerReader, create_or_open
from state.migrations import MIGRATIONS, migrate
from state.planner_input import observe
from state.row_types import Deployment, EnvironmentRow, Measurement

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


def test_pool_and_engine_of_a_version_are_kept_and_unknown_of_older_ones(
    facts: EnvironmentRow, path: Path, deployment: Callable[..., Deployment]
) -> None:
    """A ledger of the release before figures, with a deployment in it."""
    create_or_open(path, facts).close()
    path.unlink()
    with sqlite3.connect(path, isolation_level=None) as old:
        migrate(old, MIGRATIONS[:3])
        old.execute("INSERT INTO facts VALUES (1, '9f2c', '0b8e', 'p', 'dev', 0, NULL, NULL, NULL, '', '', '', 0, '')")
        old.execute('INSERT INTO revision VALUES (\'r\', \'{"ddl":"","dml":"","yml":""}\')')
        names = [name for _, name, kind, needed, default, _ in old.execute("PRAGMA table_info(deployment)")
                 if needed and default is None and name != "id"]  # fmt: skip
        values = {"revision": "r", "columns": "[]", "bindings": "[]", "table": "orders", "version": 1, "active": 1}
        columns = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join("?" * len(names))
        old.execute(f"INSERT INTO deployment ({columns}) VALUES ({marks})", [values.get(name, 0) for name in names])
    old.close()
    pool = Pool("big", "sc://host:15002", 16, "8g", (("spark.sql.ansi.enabled", "true"),))
    with create_or_open(path, facts) as ledger:
        (found,) = ledger.deployments()
        assert (found.pool, found.engine) == (None, "")
        ledger.put_deployment(deployment("more", pool=pool, engine="4.2.0"))
        ledger.update_deployment(ORDERS, 1, pool=Pool("small"), engine="4.3.0")
        seen = observe(ledger.deployments())
        assert (seen[TableName("more")].pool, seen[TableName("more")].engine) == (pool, "4.2.0")
        assert (seen[ORDERS].pool, seen[ORDERS].engine) == (Pool("small"), "4.3.0")
