"""The registry: the serving version, deleted versions, and what a console receives after a change."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from core.model.errors import LedgerUnavailable
from core.model.names import TableName
from core.observed.versions import Deployment, Measurement
from state.ledger import Ledger, LedgerReader
from state.operator_commands import CommandStamp
from state.row_types import StagedRow

ORDERS, FACTS_TABLE = TableName("orders"), TableName("fct_orders")
Made = Callable[..., Deployment]


def test_exactly_one_version_of_a_table_serves(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders", 1))
    ledger.put_deployment(deployment("orders", 2, active=False))
    ledger.put_deployment(deployment("fct_orders", 1))
    ledger.put_deployment(deployment("fct_orders", 2, active=False))
    ledger.activate({ORDERS: 2, FACTS_TABLE: 2})
    assert [(d.table, d.version) for d in ledger.deployments() if d.active] == [("fct_orders", 2), ("orders", 2)]


@pytest.mark.parametrize(
    "where, column, content",
    [
        ("revision", "texts", "{no json"),
        ("revision", "texts", "5"),
        ("deployment", "bindings", "5"),
        ("deployment", "pool", "[]"),
    ],
)
def test_a_row_with_broken_content_is_reported_as_damage(
    where: str, column: str, content: str, ledger: Ledger, deployment: Made, path: Path
) -> None:
    ledger.put_deployment(deployment("orders", 1))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {where} SET {column} = ?", (content,))
    with LedgerReader(path) as reader:
        with pytest.raises(LedgerUnavailable, match="damaged: the Deployment of version 1 of table orders cannot be"):
            reader.deployments()
        if column == "bindings":
            with pytest.raises(LedgerUnavailable, match="inputs of orders@v1 that cannot be read"):
                _ = reader.statements()[0].bindings


def test_each_version_knows_when_it_began_to_serve_and_what_it_replaced(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders", 1))
    for version in (2, 3):
        ledger.put_deployment(deployment("orders", version, active=False))
    ledger.activate({ORDERS: 2}, by="run2", at=20.0)
    ledger.activate({ORDERS: 2}, by="again", at=21.0)
    ledger.activate({ORDERS: 3})
    ledger.activate({ORDERS: 1}, by="back", at=30.0)
    known = {d.version: (d.active, d.served_at, d.served_by, d.served_before) for d in ledger.versions(ORDERS)}
    assert known == {1: (True, 30.0, "back", 3), 2: (False, 20.0, "run2", 1), 3: (False, None, "", None)}
    ledger.tombstone(ORDERS, 1, drop_after=99.0, trash="/data/trash/x")
    ledger.activate({ORDERS: 2}, by="restored", at=40.0)
    (two,) = (d for d in ledger.versions(ORDERS) if d.version == 2)
    assert (two.active, two.served_by, two.served_before) == (True, "restored", 1), (
        "nothing served: what was known stays"
    )


def test_a_version_line_shows_its_state_and_the_time_it_began_to_serve(ledger: Ledger, deployment: Made) -> None:
    for version, mode, stateful in ((1, "append", False), (2, "upsert/2", False), (3, "upsert/2", True)):
        ledger.put_deployment(deployment("orders", version, mode=mode, stateful=stateful, active=False))
    ledger.activate({ORDERS: 2}, by="run2", at=20.0)
    lines = {line.version: (line.keyed, line.stateful, line.active, line.served_at) for line in ledger.statements()}
    assert lines == {
        1: (False, False, False, None),
        2: (True, False, True, 20.0),
        3: (True, True, False, None),
    }
    assert {type(value) for line in lines.values() for value in line[:3]} == {bool}


def test_release_moves_all_pointers_or_none(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders", 1))
    ledger.put_deployment(deployment("orders", 2, active=False))
    with pytest.raises(AssertionError, match="fct_orders v9"):
        ledger.activate({ORDERS: 2, FACTS_TABLE: 9})
    assert [d.version for d in ledger.deployments() if d.active] == [1]


def test_deleted_version_is_listed_only_when_asked_and_its_number_is_never_used_again(
    ledger: Ledger, deployment: Made
) -> None:
    ledger.put_deployment(deployment("orders", 3))
    ledger.tombstone(ORDERS, 3, drop_after=99.0, trash="/data/trash/x")
    assert ledger.deployments() == ledger.statements() == ()
    (deleted,) = ledger.deployments(include_deleted=True)
    assert (deleted.state, deleted.wanted, deleted.active) == ("absent", "stopped", False)
    assert (deleted.drop_after, deleted.trash) == (99.0, "/data/trash/x")
    ledger.purged(ORDERS, 3, 100.0)
    assert [d.version for d in ledger.versions(ORDERS)] == [3]


def test_console_is_given_what_changed_and_nothing_else(ledger: Ledger, path: Path, deployment: Made) -> None:
    for table in ("a", "b", "c"):
        ledger.put_deployment(deployment(table))
    with LedgerReader(path) as reader:
        change, lines = reader.changed_since(0)
        assert [line.table for line in lines] == ["a", "b", "c"]
        assert reader.changed_since(change) == (change, ())
        ledger.put_measurements([Measurement(TableName("b"), 1, 7.0, lag_rows=4, trend="growing")])
        change, lines = reader.changed_since(change)
        assert [(line.table, line.lag_rows, line.trend, line.at) for line in lines] == [("b", 4, "growing", 7.0)]
        ledger.tombstone(TableName("a"), 1, drop_after=9.0, trash="")
        _, lines = reader.changed_since(change)
        assert [(line.table, line.deleted) for line in lines] == [("a", True)]


def test_every_change_of_a_row_is_listed_once_and_a_measurement_is_no_change(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders", 1))
    ledger.put_deployment(deployment("orders", 2, active=False))
    change, rows = ledger.registered_since(0)
    assert [row.version for row in rows] == [1, 2]
    ledger.put_measurements([Measurement(ORDERS, 1, 7.0)])
    for act in (
        lambda: ledger.update_deployment(ORDERS, 1, owner="ana"),
        lambda: ledger.stop_statements([ORDERS], CommandStamp(1, "bob", 1.0)),
        lambda: ledger.want_running(ORDERS, 1, CommandStamp(2, "bob", 2.0)),
        lambda: ledger.activate({ORDERS: 2}),
        lambda: ledger.tombstone(ORDERS, 1, drop_after=9.0, trash="/t"),
        lambda: ledger.purged(ORDERS, 1, 10.0),
    ):
        change, _ = ledger.registered_since(change)
        assert ledger.registered_since(change) == (change, ())
        act()
        assert 1 in {row.version for row in ledger.registered_since(change)[1]}


def test_data_version_differs_exactly_after_something_was_written(ledger: Ledger, path: Path, deployment: Made) -> None:
    with LedgerReader(path) as reader:
        before = reader.data_version()
        assert reader.data_version() == before
        ledger.put_deployment(deployment("a"))
        assert reader.data_version() != before


def test_agent_sees_its_own_write_in_the_kept_list(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders"))
    assert ledger.deployments()[0].wanted == "running"
    assert ledger.deployments() is ledger.deployments()
    ledger.update_deployment(ORDERS, 1, wanted="stopped")
    assert ledger.deployments()[0].wanted == "stopped"


def test_an_unknown_field_or_version_is_reported_as_a_bug(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders"))
    with pytest.raises(AssertionError, match="stat"):
        ledger.update_deployment(ORDERS, 1, stat="failed")
    with pytest.raises(AssertionError, match="orders v2"):
        ledger.update_deployment(ORDERS, 2, state="failed")


def test_staged_tables_belong_to_their_actor_and_folder(ledger: Ledger) -> None:
    for actor, folder, table in (("ana", "/p", "a"), ("ana", "/p", "b"), ("bob", "/p", "a"), ("ana", "/q", "a")):
        ledger.stage([StagedRow(actor, folder, TableName(table), "deploy", 1.0)])
    ledger.unstage("ana", "/p", [TableName("a"), TableName("z")])
    assert [(s.actor, s.folder, s.table) for s in ledger.staged()] == [
        ("ana", "/p", "b"), ("ana", "/q", "a"), ("bob", "/p", "a"),
    ]  # fmt: skip


def test_reading_imports_neither_sqlite_utils_nor_the_parsers() -> None:
    script = "import sys, state.ledger; print(*{'sqlite_utils', 'sqlglot', 'networkx', 'yaml'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_a_version_deleted_again_keeps_its_first_deadline_and_folder(ledger: Ledger, deployment: Made) -> None:
    ledger.put_deployment(deployment("orders", 3))
    ledger.tombstone(ORDERS, 3, drop_after=99.0, trash="/data/trash/x")
    ledger.tombstone(ORDERS, 3, drop_after=500.0, trash="/data/trash/y")
    again = ledger.deployment(ORDERS, 3)
    assert again is not None and (again.drop_after, again.trash) == (99.0, "/data/trash/x")


@pytest.mark.parametrize(
    "meanwhile", [{"wanted": "stopped"}, {"state": "stopping"}, {"run_id": "r2"}, {"drop_after": 9.0}]
)
def test_an_observation_of_another_moment_is_not_written(
    meanwhile: dict[str, object], ledger: Ledger, deployment: Made
) -> None:
    seen = deployment("orders", 1)
    ledger.put_deployment(seen)
    assert ledger.observe_deployment(seen, error="late")
    ledger.update_deployment(seen.table, 1, **meanwhile)
    left = ledger.deployment(seen.table, 1)
    assert not ledger.observe_deployment(seen, state="unknown") and ledger.deployment(seen.table, 1) == left
