"""A statement that joins a table of a real PostgreSQL server: what its batches read, and how faults are reported."""

import json
import threading
import time
from collections.abc import Iterator

import psycopg
import pyarrow.parquet as parquet
import pytest
from postgres_server import PASSWORD, READER, PostgresServer, running_postgres
from tiny_project import DDL, Tiny, committed, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill]
OPTIONS = f"url 'jdbc:postgresql://127.0.0.1:{{port}}/postgres', user '{READER}', dbtable '{{table}}'"
COLUMNS = "id BIGINT, name STRING, price DECIMAL(8,2)"
KEPT = f"CREATE TABLE kept ({COLUMNS}) USING parquet;"
PRICED = "CREATE TABLE priced (id BIGINT, price DECIMAL(8,2)) USING delta;"
PRICES = "INSERT INTO priced SELECT l.id, p.price FROM STREAM landed AS l LEFT JOIN prices AS p ON p.id = l.id;"
DML = "INSERT INTO kept SELECT l.id, p.name, p.price FROM STREAM landed AS l LEFT JOIN products AS p ON p.id = l.id;"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as found:
        found.run(
            "CREATE TABLE products (id int PRIMARY KEY, name varchar(20), price numeric(6,2), note text)",
            "INSERT INTO products SELECT n, 'p' || n, n * 1.5 FROM generate_series(1, 1000) n",
            f"CREATE ROLE {READER} LOGIN PASSWORD '{PASSWORD}'",
            "CREATE TABLE prices AS SELECT id, price FROM products",
            f"GRANT SELECT ON products, prices TO {READER}",
        )
        yield found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, server: PostgresServer) -> Iterator[Tiny]:
    root = tmp_path_factory.mktemp("tables")
    options = {table: OPTIONS.format(port=server.port, table=table) for table in ("products", "absent", "prices")}
    ddl = {
        "landed": DDL["landed"],
        "products": f"CREATE TABLE products ({COLUMNS}) USING jdbc OPTIONS ({options['products']});",
        "lost": f"CREATE TABLE lost (id BIGINT) USING jdbc OPTIONS ({options['absent']});",
        "prices": (
            "CREATE TABLE prices (id BIGINT, price DECIMAL(8,2)) USING jdbc "
            f"OPTIONS ({options['prices']}, refresh '10 seconds');"
        ),
        "kept": KEPT,
        "priced": PRICED,
        "never": "CREATE TABLE never (id BIGINT) USING parquet;",
    }
    dml = {
        "kept": DML,
        "priced": PRICES,
        "never": "INSERT INTO never SELECT l.id FROM STREAM landed AS l JOIN lost ON lost.id = l.id;",
    }
    environ = {"PGPASSFILE": str(server.password_file(root))}
    formats = {"priced": "delta"}
    with tiny_that_runs(root, landed=4, ddl=ddl, dml=dml, environ=environ, formats=formats) as found:
        done = found.apply(found.plan("kept"))
        assert done.returncode == 0, done.stdout + done.stderr
        yield found


def names(tiny: Tiny) -> dict[int, str]:
    """Return the name that was written for each id."""
    files = committed(tiny.folder / "data/tables/kept__v1")
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row["name"] for row in rows}


def test_each_batch_reads_the_table_as_it_is_then(tiny: Tiny, server: PostgresServer) -> None:
    until(lambda: len(names(tiny)) == 4, 60, "the first rows are written")
    server.run("UPDATE products SET name = 'new' WHERE id > 4")
    tiny.land(2)
    until(lambda: len(names(tiny)) == 6, 60, "the next rows are written")
    assert names(tiny) == {1: "p1", 2: "p2", 3: "p3", 4: "p4", 5: "new", 6: "new"}
    peeked = tiny.done("peek", "products", "-n", "3")
    assert [line.split() for line in peeked.splitlines()][:2] == [["id", "name", "price"], ["1", "p1", "1.50"]]


@pytest.mark.long
def test_a_statement_survives_a_restart_of_the_database_and_of_the_pool(tiny: Tiny, server: PostgresServer) -> None:
    server.kill()
    before = tiny.landed
    tiny.land(2)
    until(lambda: "the database does not answer" in tiny.done("show", "products"), 60, "its table shows the fault")
    server.start()
    until(lambda: len(names(tiny)) == before + 2, 120, "the rows are written after the database has come back")
    tiny.replace_pool()
    tiny.land(2)
    until(lambda: len(names(tiny)) == before + 4, 120, "the view was made again in the new pool")
    until(lambda: "the database does not answer" not in tiny.done("show", "products"), 60, "the fault is gone")


def test_a_pool_that_starts_while_the_database_is_down_goes_on_afterwards(tiny: Tiny, server: PostgresServer) -> None:
    before = len(names(tiny))
    server.kill()
    tiny.replace_pool()
    tiny.land(2)
    waits = f"the database at jdbc:postgresql://127.0.0.1:{server.port}/postgres does not answer"
    until(lambda: waits in tiny.done("show", "products"), 60, "its table shows the fault")
    until(lambda: "it waits for products" in tiny.done("show", "kept"), 60, "its reader waits")
    server.start()
    until(lambda: len(names(tiny)) == before + 2, 180, "the rows are written after the database has come back")


def test_a_table_that_the_database_lacks_is_named_before_the_start(tiny: Tiny, server: PostgresServer) -> None:
    refused = tiny.apply(tiny.plan("never"))
    assert refused.returncode == 1
    assert "lost reads public.absent, and the database has no such table" in refused.stdout + refused.stderr, refused
    checks = json.loads(tiny.run("doctor", "--json").stdout)["checks"]
    assert [check["facts"]["table"] for check in checks if check["name"] == "inputs" and not check["ok"]] == ["lost"]


def test_init_declares_a_table_that_can_be_joined(tiny: Tiny, server: PostgresServer) -> None:
    server.run(
        "CREATE TABLE kinds (id int, n numeric(6,2), tags text[], at timestamptz, d timestamp, j json, t time, u uuid)",
        "INSERT INTO kinds VALUES (1, 2.5, '{a,b}', '2026-01-01 00:00+02', '2026-01-01', '{\"a\": 1}', '10:00', NULL)",
        f"GRANT SELECT ON kinds TO {READER}",
    )
    uri = f"postgresql://{READER}@127.0.0.1:{server.port}/postgres"
    refused = tiny.run("init", "table", "kinds", "--postgres", f"{uri}/absent")
    assert refused.returncode == 3 and "sees no table public.absent" in refused.stderr, refused
    tiny.done("init", "table", "kinds", "--postgres", f"{uri}/kinds")
    ddl = next(tiny.folder.rglob("ddl.kinds.sql")).read_text()
    assert "Left out, because Spark would add a date to a time of day: t." in ddl and "n DECIMAL(6,2)" in ddl
    folder = tiny.folder / "pipelines/facts/p/known/sql-scripts"
    folder.mkdir(parents=True)
    text = "to_json(struct(n, tags, at, d, j, u))"
    (folder / "ddl.known.sql").write_text("CREATE TABLE known (id BIGINT, text STRING) USING parquet;")
    dml = f"INSERT INTO known SELECT l.id, {text} AS text FROM STREAM landed AS l JOIN kinds USING (id);"
    (folder / "dml.known.sql").write_text(dml)
    done = tiny.apply(tiny.plan("known"))
    assert done.returncode == 0, done.stdout + done.stderr
    files = committed(tiny.folder / "data/tables/known__v1")
    texts = [json.loads(row["text"]) for file in files for row in parquet.read_table(file).to_pylist()]
    times = {"at": "2025-12-31T22:00:00.000Z", "d": "2026-01-01T00:00:00.000Z"}
    assert texts == [{"n": 2.5, "tags": ["a", "b"], **times, "j": '{"a": 1}'}]


def test_the_password_is_nowhere(tiny: Tiny) -> None:
    until(lambda: len(names(tiny)) > 0, 60, "rows are written")
    places = [place for place in tiny.root.rglob("*") if place.is_file() and place.name != "pgpass"]
    assert places and not [place for place in places if PASSWORD.encode() in place.read_bytes()]


def prices(tiny: Tiny) -> list[int]:
    """Return the whole part of each price that was written, in the order of the ids."""
    rows = [
        row
        for file in tiny._delta_files(tiny.folder / "data/tables/priced__v1")
        for row in parquet.read_table(file).to_pylist()
    ]
    assert len(rows) == len({row["id"] for row in rows})
    return [int(row["price"]) for row in sorted(rows, key=lambda row: int(row["id"]))]


def copied_at(tiny: Tiny) -> float:
    return float(tiny.statements()["prices"]["copied_at"])


def joins(tiny: Tiny, price: int) -> None:
    """Land a row, and wait until it is written with a price."""
    before = len(prices(tiny))
    tiny.land(1)
    until(lambda: len(prices(tiny)) == before + 1, 120, "the row is written")
    assert prices(tiny)[-1] == price


def refreshed(tiny: Tiny, after: float) -> None:
    until(lambda: copied_at(tiny) > after, 60, "the rows are copied")


@pytest.mark.long
def test_a_copy_is_refreshed_for_readers_that_keep_running(tiny: Tiny, server: PostgresServer) -> None:
    server.run("UPDATE prices SET price = 1")
    done = tiny.apply(tiny.plan("priced"))
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: len(prices(tiny)) == tiny.landed, 60, "the first rows are written")
    query = tiny.statements()["priced"]["restarts"]
    for price in (2, 4):
        server.run(f"UPDATE prices SET price = {price}")
        refreshed(tiny, time.time())
        joins(tiny, price)
    assert tiny.statements()["priced"]["restarts"] == query
    assert "copied from the database" in tiny.done("show", "prices")
    files = list((tiny.folder / "data/tables/prices__v0/delta").glob("*.parquet"))
    assert len(files) <= 3, files


@pytest.mark.long
def test_readers_go_on_with_the_last_copy_while_the_database_is_down(tiny: Tiny, server: PostgresServer) -> None:
    server.kill()
    try:
        last = (
            "prices was not refreshed, and readers use the rows of the last copy: prices: the database does not answer"
        )
        until(lambda: last in tiny.done("show", "prices"), 60, "the fault is shown")
        at = copied_at(tiny)
        tiny.replace_pool()
        joins(tiny, 4)
        assert copied_at(tiny) == at
    finally:
        server.start()
    server.run("UPDATE prices SET price = 5")
    refreshed(tiny, time.time())
    joins(tiny, 5)
    assert "was not refreshed" not in tiny.done("show", "prices")


@pytest.mark.long
@pytest.mark.parametrize(("point", "price"), [("copy begun", 6), ("copy made", 7)])
def test_an_agent_killed_in_a_refresh_leaves_a_whole_copy(
    tiny: Tiny, server: PostgresServer, point: str, price: int
) -> None:
    tiny.done("down", "--keep-pool")
    server.run(f"UPDATE prices SET price = {price}")
    changed = time.time()
    trace = tiny.root / f"{price}.trace"
    environ = {"HEADGATE_FAULT_AT": point, "HEADGATE_FAULT_TRACE": str(trace)}
    # This `up` waits for the agent that dies, and returns once the next agent answers.
    up = threading.Thread(target=tiny.run, args=("up",), kwargs=environ)
    up.start()
    until(lambda: trace.exists() and point in trace.read_text(), 60, "the agent died at the point")
    tiny.done("up")
    up.join()
    until(lambda: tiny.pool()[0] == "up", 60, "the pool is found")
    refreshed(tiny, changed)
    joins(tiny, price)


@pytest.mark.long
def test_a_pool_killed_in_a_refresh_leaves_the_last_copy(tiny: Tiny, server: PostgresServer) -> None:
    with psycopg.connect(server.dsn) as lock:
        lock.execute("UPDATE prices SET price = 8")
        lock.execute("LOCK TABLE prices")
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'relation' AND query LIKE '%price%'"
        until(lambda: server.run(waits) != [(0,)], 60, "the copy waits for the table")
        tiny.replace_pool()
        joins(tiny, 7)
    refreshed(tiny, time.time())
    joins(tiny, 8)
