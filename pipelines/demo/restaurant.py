"""The restaurant of the scenarios: an application that changes the database, and a record of what each order shows.

Transactions depend only on the seed and on the rows in the database at the start. A scene is a series of transactions
that follow each other without a pause: a client changes their mind, is moved to another table, or has their name
corrected.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.model.errors import HeadgateError
from pipelines.demo.data_folder import DemoDataFolder, exclusive_lock
from pipelines.demo.event_generator import GeneratorClock
from pipelines.whole_files import write_whole

if TYPE_CHECKING:
    from psycopg import Connection

NUMBERED = ("clients", "table_assignment", "orders")
SKIPPED = 32
"""Ids of orders that are skipped at a start, as sequences of PostgreSQL do after a crash."""
NAMES = ("Ada", "Ben", "Carla", "Dino", "Elsa", "Fritz", "Gina", "Hugo", "Ines", "Jan", "Kim", "Luca")

Content = tuple[str, str, tuple[tuple[str, str], ...]]
"""What an order shows: the client, the table, and the name and price of each pizza, as listed in the order."""

Statement = tuple[str, tuple[Any, ...]]
"""SQL with a `%s` placeholder for each value, and the values."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Statements that are committed together."""

    statements: tuple[Statement, ...]
    orders: tuple[int, ...] = ()
    """Ids of the orders that the transaction inserts or updates, without duplicates."""


@dataclass(slots=True)
class OrderState:
    """A revision of an order, as committed by one transaction, and the contents that the order has shown since then."""

    order_id: int
    revision: int
    transaction: int
    """Number of the transaction that committed the revision, starting at 0."""
    contents: list[Content]
    """What the database showed while this was the newest revision: at its commit, and after changes of other rows."""


@dataclass(slots=True)
class Restaurant:
    """Holds the rows in the database, and chooses at random the transactions that change them."""

    chance: random.Random
    clients: dict[int, str]
    tables: dict[int, str]
    pizzas: dict[int, tuple[str, Decimal]]
    assignments: dict[int, tuple[int, int]]
    """Ids of the client and the table, by assignment id."""
    orders: dict[int, tuple[int, tuple[int, ...], int]]
    """Assignment id, pizza ids and revision, by order id."""
    seated: list[int] = field(default_factory=list)
    """Ids of the assignments whose clients are still at their table."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The highest id used so far, by table name."""

    def scene(self) -> Iterator[Transaction]:
        """Choose a scene and yield its transactions. Requesting a transaction also changes the rows in this object."""
        if len(self.seated) < 3:
            return iter((self._seat(),))
        busy = [order for order, (assignment, _, _) in self.orders.items() if assignment in self.seated]
        scenes = [
            self._ordered,
            self._undecided,
            self._misspelt,
            self._moved,
            self._dearer,
            self._cancelled,
            self._left,
        ]
        if busy:
            scenes += [self._changed, self._changed_twice]
        return self.chance.choice(scenes)(busy)

    def content(self, order: int) -> Content:
        """Return the client and the table of an order, and its pizzas with their prices, as they are now."""
        assignment, pizzas, _ = self.orders[order]
        client, table = self.assignments[assignment]
        lines = tuple((self.pizzas[pizza][0], str(self.pizzas[pizza][1])) for pizza in pizzas)
        return self.clients[client], self.tables[table], lines

    def _seat(self) -> Transaction:
        client, assignment = self._next("clients"), self._next("table_assignment")
        table = self.chance.choice([table for table in self.tables if table])
        self.clients[client] = self._name(client)
        self.assignments[assignment] = (client, table)
        self.seated.append(assignment)
        insert = "INSERT INTO table_assignment VALUES (%s, %s, %s, now(), NULL)"
        added = ("INSERT INTO clients VALUES (%s, %s)", (client, self.clients[client]))
        return Transaction((added, (insert, (assignment, client, table))))

    def _insert(self) -> Transaction:
        order, assignment = self._next("orders"), self.chance.choice(self.seated)
        self.orders[order] = (assignment, self._menu(), 1)
        insert = "INSERT INTO orders VALUES (%s, %s, now(), %s, 1, now())"
        return Transaction(((insert, (order, assignment, list(self.orders[order][1]))),), (order,))

    def _update(self, order: int) -> Transaction:
        assignment, _, revision = self.orders[order]
        self.orders[order] = (assignment, self._menu(), revision + 1)
        update = "UPDATE orders SET pizzas = %s, revision = %s, changed_at = now() WHERE id = %s"
        return Transaction(((update, (list(self.orders[order][1]), revision + 1, order)),), (order,))

    def _ordered(self, busy: Sequence[int]) -> Iterator[Transaction]:
        yield self._insert()

    def _changed(self, busy: Sequence[int]) -> Iterator[Transaction]:
        yield self._update(self.chance.choice(busy))

    def _changed_twice(self, busy: Sequence[int]) -> Iterator[Transaction]:
        """Yield one transaction that updates an order twice, so that the first update is never committed by itself."""
        order = self.chance.choice(busy)
        yield Transaction((*self._update(order).statements, *self._update(order).statements), (order,))

    def _undecided(self, busy: Sequence[int]) -> Iterator[Transaction]:
        first = self._insert()
        yield first
        for _ in range(self.chance.randint(1, 4)):
            yield self._update(first.orders[0])

    def _misspelt(self, busy: Sequence[int]) -> Iterator[Transaction]:
        ordered = self._insert()
        yield ordered
        client, _ = self.assignments[self.orders[ordered.orders[0]][0]]
        self.clients[client] = self._name(client)
        yield Transaction((("UPDATE clients SET name = %s WHERE id = %s", (self.clients[client], client)),))

    def _moved(self, busy: Sequence[int]) -> Iterator[Transaction]:
        """Yield a transaction that inserts an order, then one that moves its client to another table and changes it."""
        ordered = self._insert()
        yield ordered
        assignment = self.orders[ordered.orders[0]][0]
        client, before = self.assignments[assignment]
        table = self.chance.choice([table for table in self.tables if table and table != before])
        self.assignments[assignment] = (client, table)
        move = ("UPDATE table_assignment SET table_id = %s WHERE id = %s", (table, assignment))
        changed = self._update(ordered.orders[0])
        yield Transaction((*changed.statements, move), changed.orders)

    def _dearer(self, busy: Sequence[int]) -> Iterator[Transaction]:
        """Yield one transaction that orders a pizza and changes its price."""
        ordered = self._insert()
        pizza = self.orders[ordered.orders[0]][1][0]
        name, price = self.pizzas[pizza]
        self.pizzas[pizza] = (name, price + Decimal("0.25") if price < 15 else Decimal("7.00"))
        change = ("UPDATE pizzas SET price = %s WHERE id = %s", (self.pizzas[pizza][1], pizza))
        yield Transaction((*ordered.statements, change), ordered.orders)

    def _cancelled(self, busy: Sequence[int]) -> Iterator[Transaction]:
        ordered = self._insert()
        yield ordered
        del self.orders[ordered.orders[0]]
        yield Transaction((("DELETE FROM orders WHERE id = %s", ordered.orders),))

    def _left(self, busy: Sequence[int]) -> Iterator[Transaction]:
        assignment = self.seated.pop(0)
        yield Transaction((("UPDATE table_assignment SET out_time = now() WHERE id = %s", (assignment,)),))
        yield self._seat()

    def _menu(self) -> tuple[int, ...]:
        sold = [pizza for pizza in self.pizzas if pizza]
        return tuple(self.chance.choice(sold) for _ in range(self.chance.randint(1, 3)))

    def _name(self, client: int) -> str:
        return f"{self.chance.choice(NAMES)} {client}.{self.chance.randrange(100)}"

    def _next(self, table: str) -> int:
        self.numbers[table] += 1
        return self.numbers[table]


def load_restaurant(connection: "Connection[Any]", seed: int) -> Restaurant:
    """Read the restaurant's rows from the database.

    Some ids of orders are skipped: the newest orders may have been deleted before the database was killed, and a second
    order with the id of one of them could not be distinguished from it.
    """

    def rows(text: str) -> list[tuple[Any, ...]]:
        return connection.execute(text.encode()).fetchall()

    numbers = {table: max(id for (id,) in rows(f"SELECT id FROM {table}")) for table in NUMBERED}
    if numbers["orders"] > 0:
        numbers["orders"] += SKIPPED
    orders = "SELECT id, table_assignment_id, pizzas, revision FROM orders WHERE id > 0 ORDER BY id DESC LIMIT 200"
    seated = "SELECT id FROM table_assignment WHERE id > 0 AND out_time IS NULL ORDER BY id"
    assigned = rows("SELECT id, client_id, table_id FROM table_assignment")
    return Restaurant(
        chance=random.Random(f"{seed}/{numbers['orders']}"),
        clients=dict(rows("SELECT id, name FROM clients")),
        tables=dict(rows("SELECT id, name FROM tables")),
        pizzas={id: (name, price) for id, name, price in rows("SELECT id, name, price FROM pizzas")},
        assignments={id: (client, table) for id, client, table in assigned},
        orders={id: (assignment, tuple(pizzas), revision) for id, assignment, pizzas, revision in rows(orders)},
        seated=[id for (id,) in rows(seated)],
        numbers=numbers,
    )


@dataclass(slots=True)
class OrderBook:
    """The contents of every revision of each order: the reference with which a pipeline's output is compared."""

    states: list[OrderState] = field(default_factory=list)
    _newest: dict[int, OrderState] = field(default_factory=dict)

    def newest(self) -> tuple[OrderState, ...]:
        """Return the newest state of each order that exists."""
        return tuple(self._newest.values())

    def note(self, number: int, committed: Transaction, restaurant: Restaurant) -> None:
        """Record what the orders show after transaction `number`, whose changes `restaurant` contains."""
        for order in [order for order in self._newest if order not in restaurant.orders]:
            del self._newest[order]
        for order in committed.orders:
            self._newest[order] = OrderState(order, restaurant.orders[order][2], number, [])
            self.states.append(self._newest[order])
        for order, state in self._newest.items():
            shows = restaurant.content(order)
            if shows not in state.contents[-1:]:
                state.contents.append(shows)


PUBLISHED: dict[str, tuple[str, ...]] = {
    "": (),
    # Debezium captures the insert, so the row can be deleted at once.
    "outbox": (
        "INSERT INTO orders_outbox (aggregatetype, aggregateid, type, payload) SELECT 'order', order_id::text, "
        "'Changed', {shown}::jsonb FROM order_enriched WHERE order_id = %s",
        "DELETE FROM orders_outbox WHERE aggregateid = %s::text",
    ),
    "message": (
        "SELECT pg_logical_emit_message(true, 'order', {shown}::text) FROM order_enriched WHERE order_id = %s",
    ),
}
"""Statements that the application adds to a transaction for each order that it changes, by key of `Shift.publishes`."""
_SHOWN = (
    "json_build_object('order_id', order_id, 'revision', revision, 'client_name', client_name, "
    "'table_name', table_name, 'pizzas', pizzas)"
)


@dataclass(frozen=True, slots=True)
class Shift:
    """Settings of the application."""

    dsn: str
    seed: int = 7
    rate: float = 4.0
    """Scenes per second."""
    publishes: str = ""
    """A key of `PUBLISHED`."""
    every_s: float | None = None
    """Seconds between two files, each of which names a period whose orders are due; None without a schedule."""
    transactions: int | None = None
    """Number of transactions after which the application ends; None if it runs until it is stopped."""
    hours: float = 2.0


Committed = Callable[[Transaction, str, Restaurant], object]
"""Called after each commit with the transaction, its id in the database, and the restaurant after it."""


def work(folder: DemoDataFolder, clock: GeneratorClock, shift: Shift, committed: Committed) -> dict[str, Any]:
    """Run the application until its limits are reached or a stop is requested; return its final status.

    Raises Refused if another application is running, and HeadgateError if the database does not answer.
    """
    import psycopg

    folder.path.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder):
        try:
            with psycopg.connect(shift.dsn, autocommit=True) as connection:
                return _work(folder, clock, shift, committed, connection)
        except psycopg.OperationalError as error:
            raise HeadgateError(f"the database does not answer: {error}", remedy="headgate demo starts it") from error


def _work(
    folder: DemoDataFolder, clock: GeneratorClock, shift: Shift, committed: Committed, connection: "Connection[Any]"
) -> dict[str, Any]:
    restaurant, done, reason = load_restaurant(connection, shift.seed), 0, ""
    schedule = _Schedule(folder.feed("schedule"), connection) if shift.every_s else None
    began = landed = clock.now()
    while not reason:
        due = clock.now() + 1 / shift.rate
        for transaction in restaurant.scene():
            committed(transaction, _commit(connection, transaction, shift.publishes), restaurant)
            done += 1
        status = {"pid": os.getpid(), "state": "running", "transactions": done, "orders": restaurant.numbers["orders"]}
        write_whole(folder.status, json.dumps(status) + "\n")
        if shift.transactions is not None and done >= shift.transactions:
            reason = "all transactions are committed"
        elif clock.now() - began > shift.hours * 3600:
            reason = f"{shift.hours:g} hours are over"
        elif clock.wait(max(0.0, due - clock.now())):
            reason = "terminated"
        if schedule and shift.every_s and (reason or clock.now() - landed >= shift.every_s):
            schedule.land()
            landed = clock.now()
    final = {**status, "state": "stopped", "stopped_because": reason}
    write_whole(folder.status, json.dumps(final) + "\n")
    return final


class _Schedule:
    """Writes files with consecutive intervals, without gaps, timed by the database's clock."""

    def __init__(self, folder: Path, connection: "Connection[Any]") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._connection = folder, connection
        self._number, self._from = len(list(folder.glob("*.json"))), self._now()

    def land(self) -> None:
        until, self._number = self._now(), self._number + 1
        interval = json.dumps({"from_at": self._from, "until_at": until})
        write_whole(self._folder / f"schedule-{self._number:09d}.json", interval + "\n")
        self._from = until

    def _now(self) -> str:
        found = self._connection.execute("SELECT clock_timestamp()").fetchone()
        assert found is not None, "a query without FROM has one row"
        return str(found[0].isoformat())


def _commit(connection: "Connection[Any]", transaction: Transaction, publishes: str) -> str:
    """Commit a transaction; return its id in the database."""
    with connection.transaction():
        for text, values in transaction.statements:
            connection.execute(text.encode(), values)
        for order in transaction.orders:
            for text in PUBLISHED[publishes]:
                connection.execute(text.format(shown=_SHOWN).encode(), (order,))
        found = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
    assert found is not None, "a query without FROM has one row"
    return str(found[0])
