"""The rows that every table of the sample must contain once its windows are closed, computed without Spark.

They are computed from the landed files. Times are epoch milliseconds. Closing events are left out; `real_rows_query`
selects a table's rows without them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from pipelines.demo.data_folder import DemoDataFolder
from pipelines.demo.event_simulation import FEEDS, dining_tables, menu

Row = tuple[object, ...]
EVENT_TIME = {
    "orders": "order_time",
    "payments": "paid_at",
    "table_assignments": "time_in",
    "client_changes": "changed_at",
}
"""The field with the event time, by feed."""
LATENESS_S_MAX = 10
"""Maximum delay of an event, in seconds: the longest delays of an arrival and of its duplicate, with a tick for each.
Every watermark delay of the sample is longer."""
PAID_BOUND_MS = 20_000
"""The join bound of int_paid_orders."""
SEATED_BOUND_MS = 120_000
"""The join bound of int_seated_orders."""
BUSY_FROM = 10
"""The threshold of vw_busy_windows."""


@dataclass(frozen=True, slots=True)
class ExpectedRules:
    """How the demo's `--change` options alter the results."""

    void_is_baked: bool = True
    """Whether voided orders are baked; False after `--change filter`."""
    revenue_window_ms: int = 60_000
    """Length of the revenue window, in ms; 120,000 after `--change window`."""
    pizza_column: str = "pizza_id"
    """The name of this column in int_order_items: `menu_id` after `--change rename`."""


@dataclass(frozen=True, slots=True)
class ExpectedTable:
    """The query that reads a table's real rows, and the function that computes the expected rows."""

    columns: str
    """SQL select list."""
    real: str
    """SQL predicate that excludes closing events."""
    rows: Callable[["_Truth"], Iterable[Row]]


def real_rows_query(table: str, physical: str = "", rules: ExpectedRules = ExpectedRules()) -> str:
    """Return the SQL that reads a table's rows in the form of `expected_rows`, from the name `physical` if given."""
    answer = EXPECTED_TABLES[table]
    columns = answer.columns
    if table == "int_order_items":
        columns = columns.replace("pizza_id", rules.pizza_column)
    return f"SELECT {columns} FROM {physical or table} WHERE {answer.real}"


def expected_rows(folder: DemoDataFolder, rules: ExpectedRules = ExpectedRules()) -> dict[str, Counter[Row]]:
    """Return how often each row must occur in each table written by a statement; linear in the landed data."""
    truth = _Truth({feed: _distinct(folder, feed) for feed in FEEDS}, rules)
    return {table: Counter(answer.rows(truth)) for table, answer in EXPECTED_TABLES.items()}


def landed_counts(folder: DemoDataFolder) -> dict[str, tuple[int, int]]:
    """Return for each feed how many real lines have landed, in total and without duplicates."""
    return {feed: (len(rows := list(_real_lines(folder, feed))), len(set(rows))) for feed in FEEDS}


def event_ms(event: Mapping[str, Any], feed: str) -> int:
    """Return the event time of a landed event in epoch milliseconds."""
    return round(datetime.fromisoformat(event[EVENT_TIME[feed]]).timestamp() * 1000)


@dataclass(frozen=True)
class _Truth:
    """The distinct real events by feed, from which the expected rows are computed."""

    events: Mapping[str, list[dict[str, Any]]]
    rules: ExpectedRules

    @cached_property
    def items(self) -> list[tuple[dict[str, Any], int, int]]:
        return [(order, line, pizza) for order in self.events["orders"] for line, pizza in enumerate(order["pizzas"])]

    @cached_property
    def paid(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        orders = {order["id"]: order for order in self.events["orders"]}
        pairs = [(orders[payment["order_id"]], payment) for payment in self.events["payments"]
                 if payment["order_id"] in orders]  # fmt: skip
        return [(order, payment) for order, payment in pairs if 0 <= payment["at"] - order["at"] <= PAID_BOUND_MS]

    @cached_property
    def kitchen_load(self) -> Counter[tuple[int, int]]:
        return Counter(
            (_window(order["at"], 30_000), pizza) for order, _, pizza in self.items
            if self.rules.void_is_baked or order["status"] != "void"
        )  # fmt: skip


@dataclass(slots=True)
class _Sum:
    count: int = 0
    cents: int = 0

    def add(self, cents: int) -> None:
        self.count += 1
        self.cents += cents


@dataclass(slots=True)
class _Sums:
    """Counts and amounts in cents, summed up by key."""

    by_key: dict[tuple[int, str], _Sum] = field(default_factory=dict)

    def add(self, key: tuple[int, str], cents: int) -> None:
        self.by_key.setdefault(key, _Sum()).add(cents)

    def rows(self, window_ms: int) -> Iterable[Row]:
        return ((start, start + window_ms, name, one.count, one.cents) for (start, name), one in self.by_key.items())


def _real_lines(folder: DemoDataFolder, feed: str) -> Iterable[str]:
    for path in folder.event_files(feed):
        for line in path.read_text().splitlines():
            if json.loads(line)["id"] > 0:
                yield line


def _distinct(folder: DemoDataFolder, feed: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in dict.fromkeys(_real_lines(folder, feed))]
    return [event | {"at": event_ms(event, feed)} for event in events]


def _window(at_ms: int, length_ms: int) -> int:
    return at_ms - at_ms % length_ms


def _orders(truth: _Truth) -> Iterable[Row]:
    for order in truth.events["orders"]:
        pizzas = ",".join(str(pizza) for pizza in order["pizzas"])
        yield order["id"], order["assignment_id"], order["channel"], order["status"], order["at"], pizzas


def _payments(truth: _Truth) -> Iterable[Row]:
    for payment in truth.events["payments"]:
        yield payment["id"], payment["order_id"], payment["method"], payment["amount_cents"], payment["at"]


def _clients(truth: _Truth) -> Iterable[Row]:
    for change in truth.events["client_changes"]:
        if change["name"] is not None:
            name, town = change["name"].strip(), change["town"].upper()
            yield change["client_id"], change["id"], name, town, change["at"]


def _seatings(truth: _Truth) -> Iterable[Row]:
    for seating in truth.events["table_assignments"]:
        table = dining_tables()[seating["table_id"]][0]
        yield seating["id"], seating["client_id"], table, seating["guests"], seating["at"]


def _items(truth: _Truth) -> Iterable[Row]:
    return ((order["id"], line, pizza, order["status"], order["at"]) for order, line, pizza in truth.items)


def _priced(truth: _Truth) -> Iterable[Row]:
    for order, line, pizza in truth.items:
        if order["status"] != "void":
            yield order["id"], line, pizza, *menu()[pizza], order["at"]


def _paid(truth: _Truth) -> Iterable[Row]:
    for order, payment in truth.paid:
        yield (order["id"], payment["id"], order["channel"], payment["method"], payment["amount_cents"],
               order["at"], payment["at"])  # fmt: skip


def _seated(truth: _Truth) -> Iterable[Row]:
    seatings = {seating["id"]: seating for seating in truth.events["table_assignments"]}
    for order in truth.events["orders"]:
        seating = seatings.get(order["assignment_id"])
        if seating and 0 <= order["at"] - seating["at"] <= SEATED_BOUND_MS:
            table = dining_tables()[seating["table_id"]][0]
            yield order["id"], seating["id"], seating["client_id"], table, seating["guests"], order["at"]


def _kitchen_load(truth: _Truth) -> Iterable[Row]:
    return ((start, start + 30_000, pizza, count) for (start, pizza), count in truth.kitchen_load.items())


def _busy(truth: _Truth) -> Iterable[Row]:
    return ((start, pizza, count) for (start, pizza), count in truth.kitchen_load.items() if count >= BUSY_FROM)


def _revenue(truth: _Truth) -> Iterable[Row]:
    sums, window_ms = _Sums(), truth.rules.revenue_window_ms
    for order, _, pizza in truth.items:
        if order["status"] != "void":
            name, cents = menu()[pizza]
            sums.add((_window(order["at"], window_ms), name), cents)
    return sums.rows(window_ms)


def _takings(truth: _Truth) -> Iterable[Row]:
    sums = _Sums()
    for _, payment in truth.paid:
        sums.add((_window(payment["at"], 30_000), payment["method"]), payment["amount_cents"])
    return sums.rows(30_000)


def _tickets(channel: str) -> Callable[[_Truth], Iterable[Row]]:
    def rows(truth: _Truth) -> Iterable[Row]:
        for order in truth.events["orders"]:
            if order["channel"] == channel and order["status"] != "void":
                yield order["id"], order["at"], len(order["pizzas"])

    return rows


def _labels(truth: _Truth) -> Iterable[Row]:
    for order in truth.events["orders"]:
        yield order["id"], order["at"], f"# {order['id']} {order['channel']} {len(order['pizzas'])} pizzas"


_ORDERED = "unix_millis(order_time)"
_WINDOW = "unix_millis(window_start), unix_millis(window_end)"
_TICKET = f"order_id, {_ORDERED}, pizzas"

EXPECTED_TABLES: Mapping[str, ExpectedTable] = {
    "src_orders": ExpectedTable(
        f"id, assignment_id, channel, status, {_ORDERED}, concat_ws(',', cast(pizzas AS ARRAY<STRING>))",
        "id > 0",
        _orders,
    ),
    "src_payments": ExpectedTable("id, order_id, method, amount_cents, unix_millis(paid_at)", "id > 0", _payments),
    "dim_clients": ExpectedTable(
        "client_id, change_id, name, town, unix_millis(changed_at)", "client_id > 0", _clients
    ),
    "dim_seatings": ExpectedTable(
        "assignment_id, client_id, table_name, guests, unix_millis(time_in)", "assignment_id > 0", _seatings
    ),
    "int_order_items": ExpectedTable(f"order_id, line, pizza_id, status, {_ORDERED}", "order_id > 0", _items),
    "int_priced_items": ExpectedTable(
        f"order_id, line, pizza_id, pizza_name, price_cents, {_ORDERED}", "order_id > 0", _priced
    ),
    "int_paid_orders": ExpectedTable(
        f"order_id, payment_id, channel, method, amount_cents, {_ORDERED}, unix_millis(paid_at)", "order_id > 0", _paid
    ),
    "int_seated_orders": ExpectedTable(
        f"order_id, assignment_id, client_id, table_name, guests, {_ORDERED}", "order_id > 0", _seated
    ),
    "fct_kitchen_load": ExpectedTable(f"{_WINDOW}, pizza_id, pizzas", "pizza_id > 0", _kitchen_load),
    "fct_revenue": ExpectedTable(f"{_WINDOW}, pizza_name, items, revenue_cents", "pizza_name <> 'closing'", _revenue),
    "fct_takings": ExpectedTable(f"{_WINDOW}, method, payments, taken_cents", "method <> 'closing'", _takings),
    "tickets_dine_in": ExpectedTable(_TICKET, "order_id > 0", _tickets("dine_in")),
    "tickets_takeaway": ExpectedTable(_TICKET, "order_id > 0", _tickets("takeaway")),
    "tickets_delivery": ExpectedTable(_TICKET, "order_id > 0", _tickets("delivery")),
    "order_labels": ExpectedTable(f"order_id, {_ORDERED}, label", "order_id > 0", _labels),
    "vw_busy_windows": ExpectedTable("unix_millis(window_start), pizza_id, pizzas", "pizza_id > 0", _busy),
}
"""For each table, how to query it and the rows expected, with values in column order."""
