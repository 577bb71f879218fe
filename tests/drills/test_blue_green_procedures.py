"""Two realistic changes of the pizzeria, released and rolled back while orders land: no row is lost or doubled."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pizzeria_orders import STATEMENTS, TIP_CENTS, OrderFeed, OrdersProject, orders_project

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

Pizzeria = tuple[OrdersProject, OrderFeed]


@pytest.fixture(scope="module")
def pizzeria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pizzeria]:
    with orders_project(tmp_path_factory.mktemp("pizzeria")) as found:
        yield found


def applied(world: OrdersProject, *words: str) -> dict[str, Any]:
    """Plan and apply; return the newest run."""
    began = time.monotonic()
    found = world.apply(world.plan(*words))
    assert found.returncode == 0, found.stdout + found.stderr
    print(f"{' '.join(words)}: {time.monotonic() - began:.0f} s")
    newest: dict[str, Any] = json.loads(world.done("runs", "--json"))[0]
    return newest


def versions(world: OrdersProject) -> dict[str, int]:
    return {table: version for table, (version, _) in world.serving().items()}


def rolled_back(world: OrdersProject, table: str) -> dict[str, int]:
    """Roll a release back; return the number of rows that remain in each table's retired version."""
    run = applied(world, "rollback", table)
    notes = {step["table"]: step["note"] for step in run["steps"] if step["do"] == "stop"}
    assert all("since the swap stay in" in note for note in notes.values()), notes
    return {table: int(note.rsplit(": ", 1)[1].replace(",", "")) for table, note in notes.items()}


def test_a_computed_column_is_released_with_its_readers_and_rolled_back(
    pizzeria: Pizzeria,
) -> None:
    world, feed = pizzeria
    assert world.whole(feed) >= 99
    files, before = world.texts(), world.serving()
    assert set(versions(world)) == set(STATEMENTS) and set(versions(world).values()) == {1}
    world.edit("int_priced_items", "ddl", "  order_time TIMESTAMP\n", "  order_time TIMESTAMP,\n  gross_cents BIGINT\n")
    gross = "p.price_cents, i.order_time,\n  p.price_cents * 119 DIV 100 AS gross_cents\n"
    world.edit("int_priced_items", "dml", "p.price_cents, i.order_time\n", gross)
    applied(world, "int_priced_items", "--rebuild", "--children", "all")
    now = world.serving()
    moved = {"int_priced_items", "fct_revenue"}
    assert {table for table, (version, _) in now.items() if version == 2} == moved
    assert all(now[table] == before[table] for table in set(STATEMENTS) - moved), "the rest was not even restarted"
    released = world.whole(feed)
    assert world.asks("SELECT count_if(gross_cents <> price_cents * 119 DIV 100) FROM int_priced_items") == ((0,),)
    stays = rolled_back(world, "int_priced_items")
    assert set(stays) == moved and stays["int_priced_items"] > 0
    assert set(versions(world).values()) == {1}
    back = world.whole(feed)
    assert back > released
    for file, text in files.items():
        file.write_text(text)
    print(f"computation: {released} orders once in v2, {back} after the rollback; rows that stay in v2: {stays}")


def test_a_new_source_column_reaches_the_last_table_and_is_rolled_back(
    pizzeria: Pizzeria,
) -> None:
    world, feed = pizzeria
    feed.tips_from = feed.landed + 10
    first = feed.tips_from
    world.whole(feed)
    for table in ("orders", "src_orders"):
        world.edit(table, "ddl", "  pizzas ARRAY<INT>\n", "  pizzas ARRAY<INT>,\n  tip_cents INT\n")
    tip = "order_time, pizzas, coalesce(tip_cents, 0) AS tip_cents\n"
    world.edit("src_orders", "dml", "order_time, pizzas\n", tip)
    before = versions(world)
    applied(world, "orders", "src_orders", "--children", "all")
    now = versions(world)
    assert all(now[table] > before[table] for table in STATEMENTS), (before, now)
    released = world.whole(feed)
    tips = f"SELECT count_if(tip_cents = 0), sum(tip_cents) FROM src_orders WHERE id <= {released}"
    assert world.asks(tips) == ((first - 1, (released - first + 1) * TIP_CENTS),)
    stays = rolled_back(world, "src_orders")
    assert set(stays) == set(STATEMENTS) and versions(world) == before
    back = world.whole(feed)
    assert back > released
    print(f"column: {released} orders once in v2, {back} after the rollback; rows that stay in v2: {stays}")
