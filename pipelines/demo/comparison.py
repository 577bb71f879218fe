"""Compares how correctly, how soon and at what cost the scenarios fill the table of pizzas to bake.

The reference is the order book, which records what each order showed after every transaction. Times are those of the
database's clock. A row is right if it shows its revision as committed, later if it shows the revision as the database
showed it at a later time, and wrong if the database never showed it.
"""

import json
import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.model.errors import HeadgateError
from pipelines.demo.data_folder import DemoDataFolder
from pipelines.demo.event_generator import GeneratorClock
from pipelines.demo.restaurant import Content, OrderBook, OrderState, Restaurant, Shift, Transaction, work
from pipelines.demo.scenarios import cluster_of, lay_out, read_scenario, shift_of
from pipelines.demo.servers import PostgresCluster
from pipelines.local_pool.detached_servers import Say
from pipelines.storage.file_stream_logs import batch_files, local_path

if TYPE_CHECKING:
    from psycopg import Connection

WARM_UP = 40
"""Number of transactions before the measured ones, so that Spark has compiled its classes."""
SETTLED_S, GIVEN_UP_S = 10.0, 120.0
"""Seconds without a new row after which a table has settled: SETTLED_S if it shows the newest state of all orders,
GIVEN_UP_S if it does not."""
ENDED_S = 30.0
"""Longest wait for the application's sessions to end, in seconds."""

_LOAD = (
    "SELECT xact_commit, blks_hit + blks_read, tup_returned FROM pg_stat_database WHERE datname = current_database()"
)
_WORKING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'restaurant'"
"""Query for the number of the application's sessions. A session that has ended has reported its load."""
_SLOT = (
    "SELECT coalesce(max(pg_current_wal_lsn() - restart_lsn), 0)::int8 FROM pg_replication_slots WHERE NOT temporary"
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A row of the table of pizzas to bake."""

    order_id: int
    revision: int
    content: Content
    arrived_s: float
    """Time at which the batch with the row was committed, in seconds since the epoch."""


@dataclass(slots=True)
class _Tickets:
    """Reads the rows of the table batch by batch, and keeps them."""

    table: Path
    rows: list[Ticket] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def refresh(self) -> int:
        """Read the rows of new batches; return how many rows there are."""
        import pyarrow.parquet as parquet

        log = self.table / "_spark_metadata"
        for _, name in sorted(batch_files(str(log)).items()) if log.is_dir() else ():
            lines = (log / name).read_text().splitlines()[1:]
            arrived_s = (log / name).stat().st_mtime
            for path in [local_path(json.loads(line)["path"]) for line in lines]:
                if path not in self._known:
                    self._known.add(path)
                    self.rows += [_ticket(row, arrived_s) for row in parquet.read_table(path).to_pylist()]
        return len(self.rows)


@dataclass(slots=True)
class _Recorder:
    """Records the application's transactions, and the size of the log that replication slots retain."""

    connection: "Connection[Any]"
    book: OrderBook = field(default_factory=OrderBook)
    ids: list[str] = field(default_factory=list)
    slot_bytes: int = 0
    samples: int = 0
    _sampled_at: float = 0.0

    def note(self, transaction: Transaction, identity: str, restaurant: Restaurant) -> None:
        self.book.note(len(self.ids), transaction, restaurant)
        self.ids.append(identity)
        if time.monotonic() - self._sampled_at > 1.0:
            self._sampled_at, self.samples = time.monotonic(), self.samples + 1
            self.slot_bytes = max(self.slot_bytes, _row(self.connection, _SLOT)[0])

    def committed_s(self) -> list[float]:
        """Return when each transaction was committed, in seconds since the epoch."""
        at = "extract(epoch FROM pg_xact_commit_timestamp(id::xid))::float8"
        text = f"SELECT {at} FROM unnest(%s::text[]) WITH ORDINALITY AS ids (id, n) ORDER BY n"
        return [float(at) for (at,) in self.connection.execute(text.encode(), (self.ids,)).fetchall()]


def measure(
    folder: Path, data: DemoDataFolder, clock: GeneratorClock, say: Say, *, transactions: int, rate: float, seed: int
) -> dict[str, Any]:
    """Let an application commit `transactions`; return the correctness and latency of the table, and the load, as JSON.

    Raises HeadgateError if no row arrives in the table, or if another program has changed the database.
    """
    import psycopg

    scenario, _ = read_scenario(folder)
    shift = replace(shift_of(folder, rate=rate, seed=seed), transactions=transactions)
    warm = replace(shift, seed=seed + 1, transactions=WARM_UP)
    cluster, tickets = cluster_of(folder), _Tickets(data.path / "tables/pizzas_to_bake__v1")
    with closing(psycopg.connect(cluster.dsn, autocommit=True)) as connection:
        say(f"{WARM_UP} transactions to warm up")
        before = _Recorder(connection)
        work(data, clock, warm, before.note)
        _settle(tickets, before.book, say)
        skipped = tickets.refresh()
        if not skipped:
            raise HeadgateError(
                "no row has arrived in pizzas_to_bake", remedy=f"headgate show pizzas_to_bake in {folder}"
            )
        first, began = _load(connection), time.monotonic()
        say(f"{transactions} transactions are measured")
        recorder = _Recorder(connection)
        work(data, clock, shift, recorder.note)
        _settle(tickets, recorder.book, say)
        took_s, last = time.monotonic() - began, _load(connection)
        _check(connection, recorder.book)
        ahead_s, committed = _clock_difference(connection), recorder.committed_s()
    alone = _load_without_pipeline(cluster, data, clock, warm, shift)
    load = [after - before - app for before, after, app in zip(first, last, alone, strict=True)]
    rows = [replace(ticket, arrived_s=ticket.arrived_s + ahead_s) for ticket in tickets.rows[skipped:]]
    return {
        "scenario": scenario.number,
        "title": scenario.title,
        "transactions": len(recorder.ids),
        "took_s": round(took_s, 1),
        **judged(rows, recorder.book.states, committed),
        "database_transactions": max(0, load[0] - recorder.samples),
        "database_blocks": max(0, load[1]),
        "database_rows": max(0, load[2]),
        "application_transactions": alone[0],
        "application_blocks": alone[1],
        "slot_bytes": recorder.slot_bytes,
    }


def judged(rows: Sequence[Ticket], states: Sequence[OrderState], committed_s: Sequence[float]) -> dict[str, Any]:
    """Return the numbers of right, later, wrong, repeated and missing rows, and latency percentiles in seconds."""
    truth = {(state.order_id, state.revision): state for state in states}
    found = {"rows": len(rows), "right": 0, "later": 0, "wrong": 0, "twice": 0}
    latencies: dict[tuple[int, int], float] = {}
    for ticket in rows:
        key = (ticket.order_id, ticket.revision)
        state = truth.get(key)
        if state is None or ticket.content not in state.contents:
            found["wrong"] += 1
        else:
            found["right" if ticket.content == state.contents[0] else "later"] += 1
        if state is not None:
            found["twice"] += key in latencies
            latencies.setdefault(key, ticket.arrived_s - committed_s[state.transaction])
    ordered = sorted(latencies.values())
    return {
        "states": len(states),
        **found,
        "missed": len(truth.keys() - latencies.keys()),
        "p50_s": percentile(ordered, 0.50),
        "p99_s": percentile(ordered, 0.99),
    }


def percentile(ordered: Sequence[float], part: float) -> float | None:
    """Return the nearest-rank percentile `part` (above 0, at most 1) of the ordered values; None without values."""
    return round(ordered[math.ceil(part * len(ordered)) - 1], 3) if ordered else None


def _ticket(row: dict[str, Any], arrived_s: float) -> Ticket:
    lines = tuple((str(line["pizza"]), f"{line['price']:.2f}") for line in row["pizzas"] or ())
    content = (str(row["client_name"]), str(row["table_name"]), lines)
    return Ticket(row["order_id"], row["revision"], content, arrived_s)


def _settle(tickets: _Tickets, book: OrderBook, say: Say) -> None:
    """Wait until the table has settled."""
    newest = {(state.order_id, state.revision) for state in book.newest()}
    count, quiet_from = -1, time.monotonic()
    while True:
        if (now := tickets.refresh()) != count:
            count, quiet_from = now, time.monotonic()
        quiet_s = time.monotonic() - quiet_from
        missing = len(newest - {(ticket.order_id, ticket.revision) for ticket in tickets.rows})
        if quiet_s > (GIVEN_UP_S if missing else SETTLED_S):
            return
        say("pizzas_to_bake settles")
        time.sleep(0.5)


def _check(connection: "Connection[Any]", book: OrderBook) -> None:
    """Raise HeadgateError unless the database shows the same orders as the order book."""
    text = "SELECT order_id, revision, client_name, table_name, pizzas FROM order_enriched"
    names = ("order_id", "revision", "client_name", "table_name", "pizzas")
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute(text.encode()).fetchall()]
    shown = {(ticket.order_id, ticket.revision): ticket.content for ticket in (_ticket(row, 0.0) for row in rows)}
    wrong = [s for s in book.newest() if shown.get((s.order_id, s.revision)) != s.contents[-1]]
    if wrong:
        said = f"the database differs from the order book in {len(wrong)} orders, for example order {wrong[0].order_id}"
        raise HeadgateError(said, remedy="let nothing else write into the database, and compare again")


def _load(connection: "Connection[Any]") -> tuple[Any, ...]:
    """Return the database's counts of transactions, blocks and rows, once the application's sessions have ended.

    Raises HeadgateError if they do not end.
    """
    ends_at = time.monotonic() + ENDED_S
    while _row(connection, _WORKING)[0]:
        if time.monotonic() > ends_at:
            raise HeadgateError("the application's session in the database does not end", remedy="compare again")
        time.sleep(0.05)
    connection.execute("SELECT pg_stat_force_next_flush()")
    return _row(connection, _LOAD)


def _row(connection: "Connection[Any]", text: str) -> tuple[Any, ...]:
    found = connection.execute(text.encode()).fetchone()
    assert found is not None, "an aggregate, or the row of this database"
    return tuple(found)


def _load_without_pipeline(
    cluster: PostgresCluster, data: DemoDataFolder, clock: GeneratorClock, warm: Shift, shift: Shift
) -> tuple[Any, ...]:
    """Return the load of the same transactions in a database that nothing else reads."""
    import psycopg

    def ignore(transaction: Transaction, identity: str, restaurant: Restaurant) -> None:
        """Record nothing."""

    def alone(shift: Shift) -> Shift:
        dsn = shift.dsn.removesuffix("/postgres") + "/alone"
        return replace(shift, dsn=dsn, rate=1e6, publishes="", every_s=None)

    with closing(psycopg.connect(cluster.dsn, autocommit=True)) as connection:
        connection.execute("DROP DATABASE IF EXISTS alone WITH (FORCE)")
        connection.execute("CREATE DATABASE alone")
    dsn = cluster.dsn.removesuffix("/postgres") + "/alone"
    lay_out(dsn)
    with closing(psycopg.connect(dsn, autocommit=True)) as connection:
        work(data, clock, alone(warm), ignore)
        first = _load(connection)
        work(data, clock, alone(shift), ignore)
        last = _load(connection)
    return tuple(after - before for before, after in zip(first, last, strict=True))


def _clock_difference(connection: "Connection[Any]") -> float:
    """Return how many seconds the database's clock is ahead of ours, according to the fastest of ten answers."""
    found = []
    for _ in range(10):
        asked = time.time()
        at = float(_row(connection, "SELECT extract(epoch FROM clock_timestamp())::float8")[0])
        took = time.time() - asked
        found.append((took, at - asked - took / 2))
    return min(found)[1]
