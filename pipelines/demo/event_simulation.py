"""Simulates the sample pizzeria second by second, and returns its events as JSON lines.

Nothing here reads a clock. The random choices in an event depend only on the seed, the feed and the event's id.
"""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

FOLDER = Path(__file__).parents[1] / "samples" / "pizzeria"
"""Folder of the sample as shipped; it is never modified."""

KEYED_TABLES = FOLDER.with_name("pizzeria_keyed")
"""Folder of the tables that are added to a demo whose table format can replace rows by key."""

FEEDS = ("orders", "payments", "table_assignments", "client_changes")
"""The feeds, in the order in which the event files of a second are written."""

CLOSING = "closing"
"""Value of name, channel, status and payment method in closing events."""


@cache
def menu() -> dict[int, tuple[str, int]]:
    """Return the name and the price in cents, by pizza id; id 0 is reserved for closing events."""
    lines = (FOLDER / "reference" / "pizzas" / "pizzas.json").read_text().splitlines()
    return {row["id"]: (row["name"], row["price_cents"]) for row in map(json.loads, lines)}


@cache
def dining_tables() -> dict[int, tuple[str, int]]:
    """Return the name and the number of seats, by dining table id; id 0 is reserved for closing events."""
    with (FOLDER / "reference" / "tables" / "tables.csv").open(newline="") as file:
        return {int(row["id"]): (row["name"], int(row["seats"])) for row in csv.DictReader(file)}


LATE_MS_MAX = 5_000
"""Maximum time from an event's event time to its arrival, in ms."""
REPEAT_MS_MAX = 3_000
"""Maximum time from an event's arrival to the arrival of its duplicate, in ms."""
PAID_WITHIN_MS = 15_000
"""Maximum time from an order to its payment, in ms."""

LATE_SHARE = 0.06
REPEAT_SHARE = 0.05
SHARES = {"table_assignments": 0.3, "client_changes": 0.15}
"""Number of events per order in these feeds. Payments follow from the orders."""
FIRST_CLIENTS = 12
SEATED = 40
"""Number of latest seatings whose guests can still order."""

_NAMES = ("April", "Casey", "Irma", "Karai", "Leo", "Mikey", "Mona", "Raph", "Renet", "Shini", "Splinter", "Usagi")
_TOWNS = ("Bologna", "Genova", "Lecce", "Napoli", "Parma", "Siena", "Torino", "Verona")

LinesByFeed = dict[str, list[str]]
"""Event lines to write now, in order, by feed."""


@dataclass(slots=True)
class GeneratorState:
    """State that the generator keeps between two runs; the only mutable state in this module."""

    seed: int = 7
    next_id: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FEEDS, 1))
    clients: int = 0
    """Number of known clients; their ids are 1 to this number."""
    seated: list[tuple[int, int]] = field(default_factory=list)
    """The latest seatings, as (id, event time in ms)."""
    pending: list[tuple[int, str, str]] = field(default_factory=list)
    """Event lines to write later, as (due event time in ms, feed, line)."""
    owed: dict[str, float] = field(default_factory=lambda: dict.fromkeys(FEEDS, 0.0))
    """Fraction of an event that is carried over to the next second, by feed."""
    landed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FEEDS, 0))
    """Number of lines written so far, by feed, including duplicates and closing events."""
    file: int = 0
    """Number of the last event file; restarts continue the count."""
    closing: int = 0
    """Number of the last closing round; the ids of its events are the negative of this number."""
    newest_ms: int = 0
    """Upper bound of all event times so far, in ms, including closing events."""

    def as_json(self) -> dict[str, Any]:
        """Return the state as a JSON object.

        The result shares this object's collections, because copying them every second would be slow.
        """
        return {one.name: getattr(self, one.name) for one in fields(self)}


def generator_state_from_json(value: dict[str, Any]) -> GeneratorState:
    """Decode the result of `GeneratorState.as_json`. Raises KeyError, TypeError or ValueError if it is invalid."""
    book = GeneratorState(**value)
    book.seated = [(int(number), int(at)) for number, at in book.seated]
    book.pending = [(int(due), str(feed), str(line)) for due, feed, line in book.pending]
    return book


def simulate_second(book: GeneratorState, now_ms: int, rate: float) -> LinesByFeed:
    """Simulate one second at `rate` orders per second, and return the event lines to write in that second, by feed.

    Pending lines that are due come before new lines, so that lateness is bounded.
    """
    second = _Second(book, now_ms, take_pending(book, now_ms))
    if not book.clients and rate > 0:
        for _ in range(FIRST_CLIENTS):
            second.client_change()
    for _ in range(_earned(book, "client_changes", rate)):
        second.client_change()
    for _ in range(_earned(book, "table_assignments", rate)):
        second.seating()
    for _ in range(_earned(book, "orders", rate)):
        second.order()
    book.newest_ms = max(book.newest_ms, now_ms)
    return second.lines


def take_pending(book: GeneratorState, until_ms: int | None) -> LinesByFeed:
    """Remove and return the pending event lines due by `until_ms`, earliest first.

    If `until_ms` is None, all lines are returned. A line and its duplicate are never returned together.
    """
    lines: LinesByFeed = {feed: [] for feed in FEEDS}
    kept = []
    for due, feed, line in sorted(book.pending):
        if (until_ms is None or due <= until_ms) and line not in lines[feed]:
            lines[feed].append(line)
        else:
            kept.append((due, feed, line))
    book.pending = kept
    return lines


def closing_events(book: GeneratorState, at_ms: int) -> LinesByFeed:
    """Return the next round of closing events: one per feed, all with the same id, so that references match.

    The id is negative.
    """
    book.closing += 1
    number = -book.closing
    book.newest_ms = max(book.newest_ms, at_ms + 2_000)
    events = {
        "orders": {"id": number, "assignment_id": number, "channel": CLOSING, "status": CLOSING,
                   "order_time": timestamp(at_ms + 1_000), "pizzas": [0]},
        "payments": {"id": number, "order_id": number, "method": CLOSING, "amount_cents": 0,
                     "paid_at": timestamp(at_ms + 2_000)},
        "table_assignments": {"id": number, "table_id": 0, "client_id": number, "guests": 0,
                              "time_in": timestamp(at_ms)},
        "client_changes": {"id": number, "client_id": number, "name": CLOSING, "town": CLOSING,
                           "changed_at": timestamp(at_ms)},
    }  # fmt: skip
    return {feed: [_line(event)] for feed, event in events.items()}


def timestamp(ms: int) -> str:
    """Format epoch milliseconds as a timestamp that Spark's JSON reader parses correctly in any session time zone."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"


def _earned(book: GeneratorState, feed: str, rate: float) -> int:
    book.owed[feed] += rate * SHARES.get(feed, 1.0)
    count = int(book.owed[feed])
    book.owed[feed] -= count
    return count


@dataclass(frozen=True, slots=True)
class _Second:
    book: GeneratorState
    now_ms: int
    lines: LinesByFeed

    def client_change(self) -> None:
        book = self.book
        number, chance = _next(book, "client_changes")
        is_new = book.clients < FIRST_CLIENTS or chance.random() < 0.25
        book.clients += is_new
        client = book.clients if is_new else chance.randint(1, book.clients)
        name = None if chance.random() < 0.03 else f" {chance.choice(_NAMES)} {client}"
        at = _event_ms(chance, self.now_ms)
        event = {"id": number, "client_id": client, "name": name, "town": chance.choice(_TOWNS),
                 "changed_at": timestamp(at)}  # fmt: skip
        self._deliver("client_changes", event, chance)

    def seating(self) -> None:
        book = self.book
        number, chance = _next(book, "table_assignments")
        table = chance.choice([table for table in dining_tables() if table])
        at = _event_ms(chance, self.now_ms)
        event = {"id": number, "table_id": table, "client_id": chance.randint(1, book.clients),
                 "guests": chance.randint(1, dining_tables()[table][1]), "time_in": timestamp(at)}  # fmt: skip
        book.seated = [*book.seated, (number, at)][-SEATED:]
        self._deliver("table_assignments", event, chance)

    def order(self) -> None:
        number, chance = _next(self.book, "orders")
        at = _event_ms(chance, self.now_ms)
        channel = chance.choices(("dine_in", "takeaway", "delivery"), (5, 3, 2))[0]
        seatings = [seating for seating, since in self.book.seated if since <= at]
        seating = chance.choice(seatings) if channel == "dine_in" and seatings else None
        pizzas = [chance.choice([pizza for pizza in menu() if pizza]) for _ in range(chance.randint(1, 4))]
        status = "void" if chance.random() < 0.06 else "placed"
        event = {"id": number, "assignment_id": seating, "channel": channel, "status": status,
                 "order_time": timestamp(at), "pizzas": pizzas}  # fmt: skip
        self._deliver("orders", event, chance)
        if status == "placed" and chance.random() < 0.95:
            _promise_payment(self.book, number, at, sum(menu()[pizza][1] for pizza in pizzas))

    def _deliver(self, feed: str, event: Mapping[str, object], chance: Random) -> None:
        line = _line(event)
        self.lines[feed].append(line)
        if chance.random() < REPEAT_SHARE:
            self.book.pending.append((self.now_ms + chance.randint(1, REPEAT_MS_MAX), feed, line))


def _promise_payment(book: GeneratorState, order: int, ordered_ms: int, cents: int) -> None:
    # The payment is written in the next second at the earliest.
    number, chance = _next(book, "payments")
    paid_ms = ordered_ms + chance.randint(2_000, PAID_WITHIN_MS)
    event = {"id": number, "order_id": order, "method": chance.choice(("card", "cash", "phone")),
             "amount_cents": cents, "paid_at": timestamp(paid_ms)}  # fmt: skip
    due = 2 * paid_ms - _event_ms(chance, paid_ms)
    line = _line(event)
    book.pending.append((due, "payments", line))
    if chance.random() < REPEAT_SHARE:
        book.pending.append((due + chance.randint(1, REPEAT_MS_MAX), "payments", line))


def _next(book: GeneratorState, feed: str) -> tuple[int, Random]:
    # The random choices depend only on the seed, the feed and the event id.
    number = book.next_id[feed]
    book.next_id[feed] = number + 1
    return number, Random(f"{book.seed}/{feed}/{number}")


def _event_ms(chance: Random, now_ms: int) -> int:
    """Choose an event time in the second before `now_ms` or, for a late event, up to `LATE_MS_MAX` before it."""
    return now_ms - (chance.randint(1_000, LATE_MS_MAX) if chance.random() < LATE_SHARE else chance.randint(0, 999))


def _line(event: Mapping[str, object]) -> str:
    return json.dumps(event, separators=(",", ":"))
