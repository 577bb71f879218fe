"""The restaurant's transactions, and the contents of its orders after each of them."""

import random
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pipelines.demo.restaurant import OrderBook, Restaurant, Transaction, load_restaurant

if TYPE_CHECKING:
    from psycopg import Connection


def restaurant(seed: int = 7) -> Restaurant:
    return Restaurant(
        chance=random.Random(seed),
        clients={0: "-"},
        tables={0: "-", 1: "Table 1", 2: "Table 2"},
        pizzas={0: ("-", Decimal("0.00")), 1: ("Margherita", Decimal("7.50")), 2: ("Diavola", Decimal("9.00"))},
        assignments={0: (0, 0)},
        orders={},
        numbers={"clients": 0, "table_assignment": 0, "orders": 0},
    )


def happenings(found: Restaurant, count: int) -> tuple[list[Transaction], OrderBook]:
    done: list[Transaction] = []
    book = OrderBook()
    while len(done) < count:
        for transaction in found.scene():
            book.note(len(done), transaction, found)
            done.append(transaction)
    return done, book


def test_the_same_seed_gives_the_same_transactions() -> None:
    first, second = (happenings(restaurant(), 200) for _ in range(2))
    assert first == second
    assert first[0] != happenings(restaurant(8), 200)[0]


def test_orders_are_inserted_updated_and_deleted_alone_and_with_rows_of_other_tables() -> None:
    done, _ = happenings(restaurant(), 400)
    kinds = Counter(" ".join(text.split()[0] for text, _ in transaction.statements) for transaction in done)
    assert {"INSERT", "UPDATE", "DELETE", "INSERT INSERT", "UPDATE UPDATE", "INSERT UPDATE"} <= {*kinds}


def test_each_committed_revision_of_an_order_is_one_state_and_a_revision_within_a_transaction_is_none() -> None:
    done, book = happenings(restaurant(), 400)
    assert [(state.order_id, state.transaction) for state in book.states] == [
        (order, number) for number, transaction in enumerate(done) for order in transaction.orders
    ]
    by_order: dict[int, list[int]] = {}
    for state in book.states:
        by_order.setdefault(state.order_id, []).append(state.revision)
    steps = {after - before for revisions in by_order.values() for before, after in pairwise(revisions)}
    assert steps == {1, 2}


def test_what_an_order_shows_later_is_kept_apart_from_what_it_showed_at_its_commit() -> None:
    found = restaurant()
    found._seat()
    book, order = OrderBook(), found._insert()
    book.note(0, order, found)
    shown = found.content(1)
    client = found.assignments[found.orders[1][0]][0]
    found.clients[client] = "Somebody else"
    book.note(1, Transaction(()), found)
    book.note(2, Transaction(()), found)
    assert book.states[0].contents == [shown, ("Somebody else", *shown[1:])]
    del found.orders[1]
    book.note(3, Transaction(()), found)
    assert len(book.states) == 1


@pytest.mark.parametrize(("newest", "next_order"), [(0, 1), (326, 359)])
def test_an_application_that_starts_again_uses_no_id_of_an_order_that_was_deleted(newest: int, next_order: int) -> None:
    answers = {
        "SELECT id FROM orders": [(0,), (newest,)],
        "SELECT id FROM clients": [(0,)],
        "SELECT id FROM table_assignment": [(0,)],
        "SELECT id, name FROM tables": [(1, "Table 1")],
        "SELECT id, name, price FROM pizzas": [(1, "Margherita", Decimal("7.50"))],
    }

    class Database:
        def execute(self, text: bytes) -> Any:
            return SimpleNamespace(fetchall=lambda: answers.get(text.decode(), []))

    found = load_restaurant(cast("Connection[Any]", Database()), seed=7)
    found._seat()
    assert found._insert().orders == (next_order,)
