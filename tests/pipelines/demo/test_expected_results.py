"""The expected results for a few landed lines that a person can verify."""

import json
from collections import Counter
from pathlib import Path

import pytest
from expected_results import (
    EXPECTED_TABLES,
    ExpectedRules,
    expected_rows,
    landed_counts,
    real_rows_query,
)

from pipelines.demo.data_folder import DemoDataFolder, open_folder

NOON = 1_800_000_000_000
"""The start of a minute."""


@pytest.fixture
def folder(tmp_path: Path) -> DemoDataFolder:
    folder = open_folder(tmp_path)
    orders = [
        order(1, "dine_in", "placed", "2027-01-15T08:00:01.000Z", [1, 1], seat=1),
        order(2, "takeaway", "void", "2027-01-15T08:00:29.999Z", [1]),
        order(3, "delivery", "placed", "2027-01-15T08:01:00.000Z", [2]),
        order(-1, "closing", "closing", "2027-01-15T09:00:00.000Z", [0]),
    ]
    put(folder, "orders", orders[:2])
    put(folder, "orders", [orders[0], *orders[2:]])
    put(folder, "payments", [
        payment(1, 1, "card", 1600, "2027-01-15T08:00:21.000Z"),
        payment(2, 3, "cash", 1050, "2027-01-15T08:01:20.001Z"),
        payment(3, 9, "cash", 1, "2027-01-15T08:01:20.001Z"),
    ])  # fmt: skip
    put(folder, "table_assignments", [
        {"id": 1, "table_id": 2, "client_id": 5, "guests": 2, "time_in": "2027-01-15T07:58:01.000Z"},
    ])  # fmt: skip
    put(folder, "client_changes", [
        {"id": 1, "client_id": 5, "name": " Mona ", "town": "Siena", "changed_at": "2027-01-15T07:00:00.000Z"},
        {"id": 2, "client_id": 5, "name": None, "town": "Siena", "changed_at": "2027-01-15T07:00:00.000Z"},
    ])  # fmt: skip
    return folder


def order(
    number: int, channel: str, status: str, at: str, pizzas: list[int], *, seat: int | None = None
) -> dict[str, object]:
    return {"id": number, "assignment_id": seat, "channel": channel, "status": status, "order_time": at,
            "pizzas": pizzas}  # fmt: skip


def payment(number: int, order: int, method: str, cents: int, at: str) -> dict[str, object]:
    return {"id": number, "order_id": order, "method": method, "amount_cents": cents, "paid_at": at}


def put(folder: DemoDataFolder, feed: str, rows: list[dict[str, object]]) -> None:
    path = folder.feed(feed) / f"{feed}-{len(folder.event_files(feed)):09d}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_each_table_holds_what_a_person_computes(folder: DemoDataFolder) -> None:
    found = {table: set(rows) for table, rows in expected_rows(folder).items()}
    assert found["src_orders"] == {
        (1, 1, "dine_in", "placed", NOON + 1000, "1,1"),
        (2, None, "takeaway", "void", NOON + 29_999, "1"),
        (3, None, "delivery", "placed", NOON + 60_000, "2"),
    }
    assert {row[0] for row in found["src_payments"]} == {1, 2, 3}
    assert found["dim_clients"] == {(5, 1, "Mona", "SIENA", NOON - 3_600_000)}
    assert found["dim_seatings"] == {(1, 5, "Raffaello", 2, NOON - 119_000)}
    assert {row[:3] for row in found["int_order_items"]} == {(1, 0, 1), (1, 1, 1), (2, 0, 1), (3, 0, 2)}
    assert {row[:5] for row in found["int_priced_items"]} == {
        (1, 0, 1, "Margherita", 800), (1, 1, 1, "Margherita", 800), (3, 0, 2, "Diavola", 1050)
    }  # fmt: skip
    assert found["int_paid_orders"] == {(1, 1, "dine_in", "card", 1600, NOON + 1000, NOON + 21_000)}
    assert found["int_seated_orders"] == {(1, 1, 5, "Raffaello", 2, NOON + 1000)}
    assert found["fct_kitchen_load"] == {(NOON, NOON + 30_000, 1, 3), (NOON + 60_000, NOON + 90_000, 2, 1)}
    assert found["fct_revenue"] == {
        (NOON, NOON + 60_000, "Margherita", 2, 1600), (NOON + 60_000, NOON + 120_000, "Diavola", 1, 1050)
    }  # fmt: skip
    assert found["fct_takings"] == {(NOON, NOON + 30_000, "card", 1, 1600)}
    assert found["tickets_dine_in"] == {(1, NOON + 1000, 2)}
    assert found["tickets_takeaway"] == set()
    assert found["tickets_delivery"] == {(3, NOON + 60_000, 1)}
    assert (1, NOON + 1000, "# 1 dine_in 2 pizzas") in found["order_labels"]
    assert found["vw_busy_windows"] == set()


def test_the_rules_of_the_changes_change_what_they_say(folder: DemoDataFolder) -> None:
    filtered = expected_rows(folder, ExpectedRules(void_is_baked=False))["fct_kitchen_load"]
    assert filtered == Counter([(NOON, NOON + 30_000, 1, 2), (NOON + 60_000, NOON + 90_000, 2, 1)])
    wider = expected_rows(folder, ExpectedRules(revenue_window_ms=120_000))["fct_revenue"]
    assert set(wider) == {(NOON, NOON + 120_000, "Margherita", 2, 1600), (NOON, NOON + 120_000, "Diavola", 1, 1050)}


def test_landed_counts_leave_closing_events_out_and_tell_duplicates(folder: DemoDataFolder) -> None:
    assert landed_counts(folder)["orders"] == (4, 3)


def test_every_question_leaves_closing_events_out_and_follows_a_rename() -> None:
    assert real_rows_query("fct_takings", "fct_takings__v2").endswith("FROM fct_takings__v2 WHERE method <> 'closing'")
    assert all(" WHERE " in real_rows_query(table) for table in EXPECTED_TABLES)
    assert "menu_id" in real_rows_query("int_order_items", rules=ExpectedRules(pizza_column="menu_id"))
