"""Statements over the changes of a real PostgreSQL server: rows under load and kills, and the slot that they share."""

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
import pyarrow.parquet as parquet
import pytest
from postgres_server import PASSWORD, READER, PostgresServer, running_postgres
from tiny_project import Tiny, alive, committed, tiny_that_runs, until

from pipelines.storage.change_slots import HEARTBEAT_B

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]
ITEMS = 50_000
SEED = int(os.environ.get("HEADGATE_SEED", "7"))
ORDERS_IN = f"""CREATE TABLE orders_in
(id BIGINT, name STRING, total DECIMAL(8,2), _op STRING, _lsn BIGINT, _xid BIGINT)
USING postgres_changes OPTIONS (url 'jdbc:postgresql://127.0.0.1:{{port}}/postgres', user '{READER}',
dbtable 'public.orders', publication 'headgate', maxChanges '5000');"""
ITEMS_IN = """CREATE TABLE items_in (id BIGINT, n BIGINT, _op STRING, _lsn BIGINT)
USING postgres_changes OPTIONS (url 'jdbc:postgresql://127.0.0.1:{port}/postgres', user '{user}',
dbtable 'public.items', publication 'headgate', snapshot 'initial');"""
DDL = {
    "counts": "CREATE TABLE counts (id BIGINT, n BIGINT, op STRING, lsn BIGINT) USING parquet;",
    "items": "CREATE TABLE items (id BIGINT, n BIGINT, op STRING, seq BIGINT) USING parquet;",
    "kept": "CREATE TABLE kept (id BIGINT, name STRING, total DECIMAL(8,2), op STRING, seq BIGINT) USING parquet;",
    "trail": "CREATE TABLE trail (id BIGINT, op STRING, lsn BIGINT, xid BIGINT) USING parquet;",
}
DML = {
    "counts": "INSERT INTO counts SELECT id, n, _op AS op, _lsn AS lsn FROM STREAM items_in;",
    "items": "INSERT INTO items SELECT id, n, _op AS op, _lsn AS seq FROM STREAM items_in;",
    "kept": "INSERT INTO kept SELECT id, name, total, _op AS op, _lsn AS seq FROM STREAM orders_in;",
    "trail": "INSERT INTO trail SELECT id, _op AS op, _lsn AS lsn, _xid AS xid FROM STREAM orders_in;",
}
KEYED = "mode: upsert\nkey: [id]\nsequence: seq\ndeletes: op = 'd'\n"
YML = {"kept": KEYED, "items": KEYED}
AUDIT = """CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO audit VALUES (CASE TG_OP WHEN 'INSERT' THEN 'c' WHEN 'UPDATE' THEN 'u' ELSE 'd' END,
    CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END);
RETURN NULL; END $$"""
"""Trigger that records each change in the same transaction, as a reference for the stream."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as found:
        found.run(
            "CREATE TABLE orders (id bigint PRIMARY KEY, name text, total numeric(8,2), note text)",
            "CREATE TABLE audit (op text, id bigint)",
            "CREATE TABLE other (n bigint, what text)",
            AUDIT,
            "CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION audit()",
            "CREATE TABLE items (id bigint PRIMARY KEY, n bigint)",
            f"INSERT INTO items SELECT id, 1 FROM generate_series(1, {ITEMS}) id",
            "CREATE PUBLICATION headgate FOR TABLE orders, items",
            f"CREATE ROLE {READER} LOGIN REPLICATION PASSWORD '{PASSWORD}'",
            f"GRANT SELECT ON items TO {READER}",
        )
        yield found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, server: PostgresServer) -> Iterator[Tiny]:
    root = tmp_path_factory.mktemp("changes")
    environ = {"PGPASSFILE": str(server.password_file(root))}
    ddl = {"orders_in": ORDERS_IN.format(port=server.port), "items_in": ITEMS_IN.format(port=server.port, user=READER)}
    ddl, formats = {**ddl, **DDL}, {"kept": "delta", "items": "delta"}
    with tiny_that_runs(root, landed=0, ddl=ddl, dml=DML, yml=YML, formats=formats, environ=environ) as found:
        done = found.apply(found.plan("kept", "trail"))
        assert done.returncode == 0, done.stdout + done.stderr
        yield found


def change(server: PostgresServer, chance: random.Random) -> None:
    """Commit two overlapping transactions, so that the order of changes differs from the order of commits."""
    with psycopg.connect(server.dsn) as one, psycopg.connect(server.dsn) as two:
        for number, connection in enumerate((one, two, one)):
            # Each connection has its own keys, so that neither waits for the other.
            for id in (2 * chance.randrange(50) + number % 2 for _ in range(5)):
                values = (id, f"n{chance.randrange(1000)}", chance.randrange(10**6) / 100)
                connection.execute(
                    "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (id)"
                    " DO UPDATE SET name = excluded.name, total = excluded.total",
                    values,
                )
                if chance.random() < 0.3:
                    connection.execute("DELETE FROM orders WHERE id = %s", (id,))
        (two if chance.random() < 0.5 else one).commit()


def count_up(server: PostgresServer, chance: random.Random) -> None:
    """Increment the numbers of some rows and replace others, in two transactions that overlap."""
    with psycopg.connect(server.dsn) as one, psycopg.connect(server.dsn) as two:
        for number, connection in enumerate((one, two, one)):
            odd_or_even = [2 * chance.randrange(ITEMS // 2) + 1 + number % 2 for _ in range(5)]
            connection.execute("UPDATE items SET n = n + 1 WHERE id = ANY (%s)", (odd_or_even,))
            # Another row in its place: the next number of the same key.
            gone = connection.execute("DELETE FROM items WHERE id = %s RETURNING id, n + 1", (odd_or_even[0],))
            connection.execute("INSERT INTO items VALUES (%s, %s)", gone.fetchone())
        (two if chance.random() < 0.5 else one).commit()


@contextmanager
def load(server: PostgresServer, change: Callable[[PostgresServer, random.Random], None] = change) -> Iterator[None]:
    """Change a table during the block, whatever happens to the database."""
    stop, chance = threading.Event(), random.Random(SEED)

    def run() -> None:
        while not stop.wait(0.1):
            with suppress(psycopg.Error):
                change(server, chance)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def kill_agent(tiny: Tiny) -> None:
    agent = tiny.agent_pid()
    os.kill(agent, signal.SIGKILL)
    until(lambda: not alive(agent), 10, "the agent is dead")


def trail(tiny: Tiny, version: int = 1) -> Counter[tuple[str, int]]:
    """Return how often each change was written."""
    files = committed(tiny.folder / f"data/tables/trail__v{version}")
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    return Counter((row["op"], row["id"]) for row in rows)


def audited(server: PostgresServer) -> Counter[tuple[str, int]]:
    return Counter((op, id) for op, id in server.run("SELECT op, id FROM audit"))


def is_exact(tiny: Tiny, server: PostgresServer) -> bool:
    """Return whether the keyed table equals the database's table, and the other table has each change once."""
    files = tiny._delta_files(tiny.folder / "data/tables/kept__v1")
    rows = sorted(
        (row["id"], row["name"], row["total"]) for file in files for row in parquet.read_table(file).to_pylist()
    )
    return rows == server.run("SELECT id, name, total FROM orders ORDER BY id") and trail(tiny) == audited(server)


def lag(tiny: Tiny) -> tuple[object, object, object]:
    row = tiny.statements()["trail"]
    return row["state"], row["lag_rows"], row["lag_exact"]


def slots(server: PostgresServer) -> list[tuple[str, int]]:
    """Return name and position of the slot of `orders_in`, if it exists."""
    at = "(confirmed_flush_lsn - '0/0'::pg_lsn)::int8"
    rows = server.run(f"SELECT slot_name, {at} FROM pg_replication_slots WHERE slot_name LIKE '%orders_in'")
    return [(str(name), int(at)) for name, at in rows]


def test_a_keyed_table_and_a_trail_follow_the_table_exactly(tiny: Tiny, server: PostgresServer) -> None:
    chance = random.Random(SEED)
    for _ in range(20):
        change(server, chance)
    until(lambda: is_exact(tiny, server), 90, "both tables have all changes")
    assert {op for op, _ in trail(tiny)} == {"c", "u", "d"}


@pytest.mark.long
def test_kills_under_load_lose_and_double_nothing(tiny: Tiny, server: PostgresServer) -> None:
    with load(server):
        before = sum(trail(tiny).values())
        until(lambda: sum(trail(tiny).values()) > before + 100, 60, "changes arrive")
        tiny.replace_pool()
        kill_agent(tiny)
        tiny.done("up")
        before = sum(trail(tiny).values())
        until(lambda: sum(trail(tiny).values()) > before + 100, 90, "changes arrive in the new pool")
        server.kill()
        until(lambda: tiny.statements()["trail"]["lag_rows"] is None, 60, "the lag is unknown")
        server.start()
        before = sum(trail(tiny).values())
        until(lambda: sum(trail(tiny).values()) > before + 100, 120, "changes arrive from the new server")
    until(lambda: is_exact(tiny, server), 120, "both tables have all changes")


def position(tiny: Tiny, table: str) -> int:
    """Return the position in the last committed batch of a table's statement."""
    checkpoint = tiny.folder / f"data/checkpoints/{table}__v1"
    batch = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    return int(json.loads((checkpoint / f"offsets/{batch}").read_text().split("\n")[2])["lsn"])


def test_the_slot_waits_for_its_slowest_reader_and_moves_past_other_tables(tiny: Tiny, server: PostgresServer) -> None:
    until(lambda: is_exact(tiny, server), 60, "nothing is pending")
    tiny.done("stop", "trail", "--confirm", "yes")
    at = position(tiny, "trail")
    change(server, random.Random(SEED))
    pending = sum(audited(server).values()) - sum(trail(tiny).values())
    until(lambda: position(tiny, "kept") > at, 60, "the other reader goes on")
    until(lambda: slots(server)[0][1] == at, 30, "the slot is at the position of the reader that is stopped")
    until(lambda: lag(tiny) == ("stopped", pending, True), 30, "the lag is exact")
    held = "of WAL kept for trail@v1, which does not run"
    until(lambda: held in tiny.done("show", "trail"), 30, "the version that holds the log is named")
    assert "of WAL kept for trail@v1" in tiny.done("show", "orders_in")
    left = tiny.statements()["kept"]["time_left"]
    assert (left["held_by"], left["held_version"]) == ("trail", 1) and left["held_bytes"] > 0, left
    assert slots(server)[0][1] == at
    tiny.done("start", "trail", "--confirm", "yes")
    until(lambda: is_exact(tiny, server) and slots(server)[0][1] > at, 60, "the slot moves with the slowest reader")
    server.run("INSERT INTO other SELECT n, repeat('x', 1000) FROM generate_series(1, 40000) n")
    at = slots(server)[0][1]
    until(lambda: slots(server)[0][1] > at + HEARTBEAT_B, 60, "a heartbeat moves readers and slot past another table")


def rows_of(tiny: Tiny, table: str) -> list[dict[str, int]]:
    folder = tiny.folder / f"data/tables/{table}__v1"
    files = tiny._delta_files(folder) if tiny.format_of(table) == "delta" else committed(folder)
    return [row for file in files for row in parquet.read_table(file).to_pylist()]


def is_gapless(tiny: Tiny, server: PostgresServer) -> bool:
    """Return whether a table of all changes has each number of each key once, starting with its row in the snapshot."""
    numbers: dict[int, list[int]] = {}
    for row in rows_of(tiny, "counts"):
        if row["op"] != "d":
            numbers.setdefault(row["id"], []).append(row["n"])
    last = dict(server.run("SELECT id, n FROM items"))
    assert all(len(found) == len({*found}) for found in numbers.values()), "a change is in the snapshot and follows it"
    return {id: [*range(min(found), last[id] + 1)] for id, found in numbers.items()} == {
        id: sorted(found) for id, found in numbers.items()
    } and numbers.keys() == last.keys()


def test_a_reader_begins_with_the_rows_under_load_without_gap_or_overlap(tiny: Tiny, server: PostgresServer) -> None:
    with load(server, count_up):
        done = tiny.apply(tiny.plan("counts"))
        assert done.returncode == 0, done.stdout + done.stderr
        before = len(rows_of(tiny, "counts"))
        until(lambda: len(rows_of(tiny, "counts")) > before + 100, 60, "changes follow the rows")
    until(lambda: is_gapless(tiny, server), 60, "it has all changes")
    snapshot = [row for row in rows_of(tiny, "counts") if row["op"] == "r"]
    assert len(snapshot) == len({row["id"] for row in snapshot}) == ITEMS


@pytest.mark.long
def test_a_pool_killed_in_the_snapshot_begins_it_anew(tiny: Tiny, server: PostgresServer) -> None:
    with load(server, count_up):
        plan = tiny.plan("items")
        tiny.run("apply", plan["hash"][:12], "--confirm", tiny.confirmation(plan), "--detach")
        checkpoint = tiny.folder / "data/checkpoints/items__v1"
        until((checkpoint / "offsets/0").exists, 60, "the first batch has begun")
        os.kill(tiny.pool_pid(), signal.SIGKILL)
        assert not (checkpoint / "commits/0").exists()
        until(lambda: len(rows_of(tiny, "items")) > 0, 180, "the rows are read in the new pool")
    until(
        lambda: (
            sorted((row["id"], row["n"]) for row in rows_of(tiny, "items"))
            == server.run("SELECT id, n FROM items ORDER BY id")
        ),
        60,
        "the keyed table has all changes",
    )
    until(lambda: is_gapless(tiny, server), 60, "the other reader has all changes")


def test_a_truncate_is_a_row_for_one_reader_and_ends_the_keyed_one(tiny: Tiny, server: PostgresServer) -> None:
    until(lambda: is_exact(tiny, server), 60, "nothing is pending")
    server.run("TRUNCATE orders")
    until(lambda: tiny.statements()["kept"]["state"] == "failed", 60, "the keyed statement has ended")
    assert "after a TRUNCATE (_op = 't') rebuild the table" in " ".join(tiny.done("show", "kept").split())
    server.run("INSERT INTO audit VALUES ('t', NULL)")
    until(lambda: trail(tiny) == audited(server), 60, "the other table has a row of it")


def test_a_dropped_slot_refuses_a_start_and_a_rebuild_begins_with_a_new_one(tiny: Tiny, server: PostgresServer) -> None:
    until(lambda: trail(tiny) == audited(server), 60, "nothing is pending")
    tiny.done("stop", "kept", "trail", "--confirm", "2")
    server.run(f"SELECT pg_drop_replication_slot('{slots(server)[0][0]}')")
    refused = tiny.run("start", "trail", "--confirm", "yes")
    assert refused.returncode == 3, refused
    assert "orders_in, which trail@v1 reads, has no replication slot any more" in refused.stderr, refused
    denied = json.loads(tiny.run("plan", "trail", "--rebuild", "--json").stdout)
    assert "are no longer in the log of the database" in str(denied["guards"]), denied
    rebuilt = tiny.apply(tiny.plan("trail", "--rebuild", "--from", "earliest"))
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    ((_, begin),) = slots(server)
    refused = tiny.run("start", "kept", "--confirm", "yes")
    assert refused.returncode == 3 and "orders_in, which kept@v1 reads, has lost changes in" in refused.stderr, refused
    change(server, random.Random(SEED))
    until(lambda: slots(server)[0][1] > begin, 60, "readers that are behind the slot do not hold it")


def test_the_slot_goes_with_its_last_reader_and_comes_back_after_a_kill(tiny: Tiny, server: PostgresServer) -> None:
    assert len(slots(server)) == 1
    for table in ("kept", "trail"):
        deleted = tiny.apply(tiny.plan("delete", table))
        assert deleted.returncode == 0, deleted.stdout + deleted.stderr
    until(lambda: slots(server) == [], 60, "the slot is dropped")
    kill_agent(tiny)
    tiny.done("up", HEADGATE_FAULT_AT="slot created")
    until(lambda: tiny.pool()[0] == "up", 60, "the pool is found")
    plan = tiny.plan("trail")
    tiny.run("apply", plan["hash"][:12], "--confirm", tiny.confirmation(plan), "--detach")
    until(lambda: not alive(tiny.agent_pid()), 60, "the agent died at the point")
    assert len(slots(server)) == 1
    before = audited(server)
    change(server, random.Random(SEED))
    tiny.done("up")
    until(lambda: tiny.ledger("SELECT state FROM run ORDER BY started_at DESC")[0] == ("done",), 90, "it is deployed")
    change(server, random.Random(SEED))
    wanted = audited(server) - before
    until(lambda: trail(tiny, 3) == wanted, 60, "it has all changes since its slot was created")
