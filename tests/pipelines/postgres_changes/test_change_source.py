"""The source of changes on a real PostgreSQL server, as a pool's Python process runs it, without Spark."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from live_project import until
from postgres_server import PostgresServer, running_postgres
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pipelines.postgres_changes import change_source
from pipelines.postgres_changes.change_source import Between, ChangeReader, ChangeSource
from pipelines.postgres_changes.replication_slot import ChangeStreamError, DatabaseLost
from pipelines.spark_connect import postgres_source

Row = tuple[Any, ...]
TYPES = {"_lsn": LongType(), "_commit_lsn": LongType(), "_content": BinaryType()}


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with running_postgres(max_slot_wal_keep_size="48MB", max_replication_slots="6") as found:
        found.run("CREATE TABLE t (id bigint PRIMARY KEY, v text)", "CREATE PUBLICATION headgate FOR TABLE t")
        yield found


@pytest.fixture
def server(database: PostgresServer) -> Iterator[PostgresServer]:
    """A server with an empty table and a new slot."""
    database.run("TRUNCATE t", "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    yield database
    database.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def reader(server: PostgresServer, columns: str = "id v _op", **options: str) -> ChangeReader:
    schema = StructType([StructField(name, TYPES.get(name, StringType())) for name in columns.split()])
    what = {} if {"prefix", "table"} & options.keys() else {"table": "public.t"}
    return ChangeReader({"dsn": server.dsn, "slot": "s", "publication": "headgate", **what, **options}, schema)


def batches(reader: ChangeReader, start: dict[str, int] | None = None) -> list[list[Row]]:
    """Read all available changes, in batches."""
    at = start or reader.initialOffset()
    found = []
    while (end := reader.latestOffset(at, ReadAllAvailable())) != at:
        found.append(rows(reader, at, end))
        at = end
    return found


def rows(reader: ChangeReader, start: dict[str, int], end: dict[str, int]) -> list[Row]:
    return [row for part in reader.partitions(start, end) for row in reader.read(part)]


def test_transactions_come_in_the_order_of_their_commits(server: PostgresServer) -> None:
    with psycopg.connect(server.dsn) as one, psycopg.connect(server.dsn) as two:
        one.execute("INSERT INTO t VALUES (1, 'first')")
        two.execute("INSERT INTO t VALUES (2, 'second')")
        two.commit()
        one.execute("INSERT INTO t VALUES (3, 'first')")
        one.commit()
    found = batches(reader(server, "id _commit_lsn _lsn"))[0]
    assert [row[0] for row in found] == ["2", "1", "3"]
    assert found[0][1] < found[1][1] == found[2][1] and found[1][2] < found[0][2] < found[2][2]


def test_a_batch_ends_with_a_transaction_and_can_be_repeated_at_any_time(server: PostgresServer) -> None:
    for n in range(5):
        server.run(f"INSERT INTO t SELECT {10 * n} + g, 'x' FROM generate_series(1, 3) g")
    source = reader(server, maxchanges="4")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    first = rows(source, start, end)
    assert [len(batch) for batch in batches(source)] == [3, 3, 3, 3, 3]
    server.run("UPDATE t SET v = 'y'", "ALTER TABLE t ADD COLUMN w text DEFAULT 'w'", "DELETE FROM t")
    assert rows(source, start, end) == first == [("1", "x", "c"), ("2", "x", "c"), ("3", "x", "c")]
    server.run("ALTER TABLE t DROP COLUMN w")


def test_readers_share_a_slot_and_leave_it_where_it_is(server: PostgresServer) -> None:
    before = server.run("SELECT confirmed_flush_lsn FROM pg_replication_slots")
    server.run("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 2000) g")
    found: list[int] = []
    readers = [threading.Thread(target=lambda: found.append(len(batches(reader(server))[0]))) for _ in range(3)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert found == [2000, 2000, 2000]
    assert server.run("SELECT confirmed_flush_lsn FROM pg_replication_slots") == before


def test_every_kind_of_change_is_a_row(server: PostgresServer) -> None:
    server.run("INSERT INTO t VALUES (1, NULL)", "UPDATE t SET v = 'é'", "UPDATE t SET id = 2", "DELETE FROM t")
    server.run("TRUNCATE t")
    expected = [
        ("1", None, "c"), ("1", "é", "u"), ("1", None, "d"), ("2", "é", "c"), ("2", None, "d"), (None, None, "t"),
    ]  # fmt: skip
    assert [row for batch in batches(reader(server)) for row in batch] == expected


def test_a_column_that_the_table_has_lost_ends_a_stream_and_one_that_was_added_is_null_before(
    server: PostgresServer,
) -> None:
    server.run("INSERT INTO t VALUES (1, 'x')", "ALTER TABLE t ADD COLUMN w text", "INSERT INTO t VALUES (2, 'y', 'z')")
    assert [row for batch in batches(reader(server, "id w")) for row in batch] == [("1", None), ("2", "z")]
    start = reader(server).latestOffset(reader(server).initialOffset(), ReadAllAvailable())
    server.run("ALTER TABLE t RENAME COLUMN w TO u")
    assert batches(reader(server, "id w"), start) == [], "nothing has changed since"
    server.run("INSERT INTO t VALUES (3, 'y', 'z')")
    with pytest.raises(ChangeStreamError, match=r"HEADGATE_COLUMN_GONE\] public.t was changed .* no column w any more"):
        batches(reader(server, "id w"), start)
    assert batches(reader(server, "id v"), start) == [[("3", "y")]]
    server.run("ALTER TABLE t DROP COLUMN u")


REPLACEMENTS = {
    "swapped": ("CREATE TABLE u (LIKE t INCLUDING ALL)", "INSERT INTO u VALUES (8, 'unseen')",
                "ALTER TABLE t RENAME TO old", "ALTER TABLE u RENAME TO t", "DROP TABLE old",
                "ALTER PUBLICATION headgate ADD TABLE t"),
    "added again": ("ALTER PUBLICATION headgate DROP TABLE t", "INSERT INTO t VALUES (8, 'unseen')",
                    "ALTER PUBLICATION headgate ADD TABLE t"),
    "created again": ("DROP PUBLICATION headgate", "INSERT INTO t VALUES (8, 'unseen')",
                      "CREATE PUBLICATION headgate FOR TABLE t"),
    "fewer columns": ("ALTER PUBLICATION headgate SET TABLE t (id)", "INSERT INTO t VALUES (8, 'unseen')"),
    "fewer rows": ("ALTER PUBLICATION headgate SET TABLE t WHERE (id < 5)", "INSERT INTO t VALUES (8, 'unseen')"),
}  # fmt: skip


@pytest.mark.parametrize("how", REPLACEMENTS)
def test_a_stream_ends_when_its_table_or_publication_was_replaced(server: PostgresServer, how: str) -> None:
    source = reader(server)
    start = source.initialOffset()
    server.run("INSERT INTO t VALUES (1, 'x')")
    end = source.latestOffset(start, ReadAllAvailable())
    server.run(*REPLACEMENTS[how], "INSERT INTO t VALUES (2, 'y')")
    try:
        for offset in (start, end):
            with pytest.raises(ChangeStreamError, match=r"HEADGATE_CHANGES_REPLACED\] public.t, its columns"):
                source.latestOffset(offset, ReadAllAvailable())
        assert rows(source, start, end) == [("1", "x", "c")], "a batch that was planned before is whole"
    finally:
        server.run("ALTER PUBLICATION headgate SET TABLE t")


def test_a_table_that_had_another_name_meanwhile_lacks_no_change(server: PostgresServer) -> None:
    source = reader(server)
    start = source.initialOffset()
    server.run("ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (1, 'x')", "ALTER TABLE u RENAME TO t")
    server.run("CREATE TABLE u (LIKE t)", "ALTER PUBLICATION headgate ADD TABLE u", "INSERT INTO u VALUES (9, 'other')")
    server.run("DROP TABLE u")
    assert batches(source, start) == [[("1", "x", "c")]]


@pytest.mark.parametrize("name", ["order", "a$b"])
def test_a_snapshot_has_the_published_rows_of_a_table_with_any_name_and_none_of_its_heirs(
    server: PostgresServer, name: str
) -> None:
    server.run(f'CREATE TABLE "{name}" (id bigint PRIMARY KEY, v text)', f'CREATE TABLE heir () INHERITS ("{name}")')
    try:
        server.run(f'ALTER PUBLICATION headgate ADD TABLE ONLY "{name}" WHERE (id < 5)')
        server.run(f"INSERT INTO \"{name}\" VALUES (1, 'in'), (9, 'out')", "INSERT INTO heir VALUES (2, 'heir')")
        found = batches(reader(server, table=f"public.{name}", snapshot="initial"))
        assert [row for batch in found for row in batch] == [("1", "in", "r")]
    finally:
        server.run("DROP TABLE heir", f'DROP TABLE "{name}"')


def test_a_truncate_ends_a_stream_that_could_not_tell_it_from_another_change(server: PostgresServer) -> None:
    server.run("INSERT INTO t VALUES (1, 'x')", "TRUNCATE t")
    with pytest.raises(ChangeStreamError, match=r"HEADGATE_TRUNCATED\] public.t was truncated at 0/"):
        batches(reader(server, "id v"))


def test_a_large_value_that_an_update_left_alone_is_refused_or_taken_from_the_old_row(server: PostgresServer) -> None:
    large = "(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300) g)"
    server.run(f"INSERT INTO t VALUES (1, {large})")
    start = reader(server).latestOffset(reader(server).initialOffset(), ReadAllAvailable())
    server.run("UPDATE t SET id = 1")
    with pytest.raises(ChangeStreamError, match=r"HEADGATE_UNCHANGED_VALUE.*left the large value of v unchanged"):
        batches(reader(server), start)
    assert batches(reader(server, "id _op"), start) == [[("1", "u")]]
    end = reader(server).latestOffset(start, ReadAllAvailable())
    server.run("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET id = 1", "UPDATE t SET id = 2")
    found = [(row[0], len(row[1]), row[2]) for batch in batches(reader(server), end) for row in batch]
    assert found == [("1", 9600, "u"), ("1", 9600, "d"), ("2", 9600, "c")]
    server.run("ALTER TABLE t REPLICA IDENTITY DEFAULT")


def test_messages_of_a_prefix_are_rows_with_or_without_a_transaction(server: PostgresServer) -> None:
    server.run("SELECT pg_logical_emit_message(false, 'app', 'alone')")
    server.run("INSERT INTO t VALUES (1, 'x')", "SELECT pg_logical_emit_message(true, 'app', '\\x00ff'::bytea)")
    server.run("SELECT pg_logical_emit_message(true, 'other', 'x')")
    source = reader(server, "_prefix _content", prefix="app", maxchanges="1")
    assert [row for batch in batches(source) for row in batch] == [("app", b"alone"), ("app", b"\x00\xff")]


def test_a_read_goes_on_after_a_restart_of_the_database_without_repeating_a_row(server: PostgresServer) -> None:
    server.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g")
    source = reader(server)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    reading = source.read(source.partitions(start, end)[0])
    found = [next(reading) for _ in range(10)]
    server.kill()
    assert source.latestOffset(end, ReadAllAvailable()) == end, "nothing is new while there is no answer"
    starting = threading.Thread(target=server.start)
    starting.start()
    found += reading
    starting.join()
    assert [row[0] for row in found] == [str(n) for n in range(1, 20001)]


def test_a_database_that_stays_away_ends_the_read(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_source, "PATIENCE_S", 0.5)
    server.kill()
    with pytest.raises(DatabaseLost, match=r"HEADGATE_DATABASE_LOST.*does not answer"):
        list(reader(server).read(Between(0, 1)))
    server.start()


@pytest.mark.parametrize("many", [change_source.FEW, 2])
def test_few_changes_are_read_once_and_again_only_when_the_batch_is_repeated(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(change_source, "PATIENCE_S", 0.0)
    monkeypatch.setattr(change_source, "FEW", many)
    server.run("INSERT INTO t VALUES (1, 'x'), (2, 'y')", "UPDATE t SET v = 'z' WHERE id = 2")
    source = reader(server, "id v _op _lsn _commit_lsn")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    (part,), (repeated,) = source.partitions(start, end), reader(server).partitions(start, end)
    expected = list(source.read(repeated))
    assert [row[:3] for row in expected] == [("1", "x", "c"), ("2", "y", "c"), ("2", "z", "u")]
    server.kill()
    try:
        if many > 2:
            assert list(source.read(part)) == expected
        else:
            with pytest.raises(DatabaseLost):
                list(source.read(part))
    finally:
        server.start()
    assert list(source.read(part)) == expected


def test_the_catalog_is_asked_only_for_whole_old_rows_and_missing_columns(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ChangeReader, "_catalog", lambda self, database: asked.append("") or (("id",), ()))
    source = reader(server)
    at = source.initialOffset()
    for statement in (
        "INSERT INTO t VALUES (1, 'x')", "ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET id = 2",
        "ALTER TABLE t REPLICA IDENTITY DEFAULT", "INSERT INTO t VALUES (3, 'x')",
    ):  # fmt: skip
        server.run(statement)
        at = source.latestOffset(at, ReadAllAvailable())
    assert len(asked) == 1, "by the UPDATE"
    server.run("INSERT INTO t VALUES (4, 'x')")
    other = reader(server, "id v w")
    other.latestOffset(at, ReadAllAvailable())
    other.stop()
    assert len(asked) == 2, "by the missing column"
    source.stop()


def test_a_message_that_is_not_short_is_read_whole_from_the_log(server: PostgresServer) -> None:
    long = "x" * change_source.SHORT_B
    # The commit after it flushes the message, which is outside of any transaction.
    server.run(f"SELECT pg_logical_emit_message(false, 'app', '{long}')", f"INSERT INTO t VALUES (1, '{long}')")
    assert batches(reader(server, "v")) == [[(long,)]]
    assert batches(reader(server, "_content", prefix="app")) == [[(long.encode(),)]]


def sessions(server: PostgresServer) -> list[Row]:
    """Return the other client sessions of the server, with the process that serves each."""
    found = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    return server.run(found)


def test_batches_share_a_connection_that_is_replaced_when_it_is_lost_or_old_and_ends_with_the_query(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def next_session(source: ChangeReader) -> Row:
        server.run("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t")
        assert len(batches(source, at)) == 1
        (found,) = sessions(server)
        return found

    source = reader(server)
    until(lambda: not sessions(server), 10, "earlier sessions have ended")
    at = source.initialOffset()
    first = next_session(source)
    assert next_session(source) == first
    server.run(f"SELECT pg_terminate_backend({first[0]})")
    until(lambda: not sessions(server), 10, "the session has ended")
    assert source.latestOffset(at, ReadAllAvailable()) == at
    second = next_session(source)
    monkeypatch.setattr(change_source, "IDLE_S", 0.0)
    assert source.latestOffset(at, ReadAllAvailable()) != at
    until(lambda: second not in sessions(server), 10, "the old session has ended")
    source.stop()
    until(lambda: not sessions(server), 10, "the query's session has ended")


def test_a_slot_that_is_missing_behind_or_full_is_named(server: PostgresServer) -> None:
    source = reader(server)
    start = source.initialOffset()
    server.run("INSERT INTO t VALUES (1, 'x')", "SELECT pg_replication_slot_advance('s', pg_current_wal_flush_lsn())")
    with pytest.raises(ChangeStreamError, match=r"HEADGATE_SLOT_AHEAD.*slot s begins at"):
        source.latestOffset(start, ReadAllAvailable())
    for n in range(5):
        server.run(f"SELECT pg_create_logical_replication_slot('o{n}', 'pgoutput')")
    with pytest.raises(ChangeStreamError, match=r"HEADGATE_NO_FREE_SLOT"):
        source.latestOffset(source.initialOffset(), ReadAllAvailable())
    server.run("SELECT pg_drop_replication_slot('s')")
    with pytest.raises(ChangeStreamError, match=r"HEADGATE_SLOT_MISSING.*slot s does not exist"):
        source.initialOffset()


def test_a_slot_whose_log_was_deleted_is_named(server: PostgresServer) -> None:
    for _ in range(6):
        server.run(
            "SELECT pg_switch_wal()", "CREATE TABLE much AS SELECT 1 FROM generate_series(1, 1000)", "CHECKPOINT"
        )
        server.run("DROP TABLE much")
    with pytest.raises(ChangeStreamError, match=r"HEADGATE_SLOT_LOST"):
        reader(server).initialOffset()


def test_available_now_ends_at_what_is_there_at_its_start(server: PostgresServer) -> None:
    server.run("INSERT INTO t VALUES (1, 'x')")
    source = reader(server)
    source.prepareForTriggerAvailableNow()
    server.run("INSERT INTO t VALUES (2, 'x')")
    assert [row[0] for batch in batches(source) for row in batch] == ["1"]


def test_the_pickled_source_needs_no_module_of_headgate() -> None:
    assert postgres_source, "which registers its modules"
    program = "import sys, pickle; sys.modules['pipelines'] = None; source = pickle.load(sys.stdin.buffer)\n"
    program += "options, schema = dict.fromkeys(('dsn', 'slot', 'publication'), ''), type('', (), {'names': ()})()\n"
    program += "print(source(options).streamReader(schema).commit({}))"
    pickled = cloudpickle.dumps(ChangeSource)
    done = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, timeout=60)
    assert done.stdout == b"None\n", done.stderr.decode()


def test_an_initial_snapshot_and_the_changes_after_it_neither_overlap_nor_leave_a_gap(server: PostgresServer) -> None:
    server.run("INSERT INTO t SELECT g, 'old' FROM generate_series(1, 3) g", "DELETE FROM t WHERE id = 3")
    source = reader(server, "id v _op", snapshot="initial")
    with psycopg.connect(server.dsn) as open:
        open.execute("INSERT INTO t VALUES (4, 'open')")
        server.run("UPDATE t SET v = 'new' WHERE id = 1")
        start = source.initialOffset()
        end = source.latestOffset(start, ReadAllAvailable())
        server.run("UPDATE t SET v = 'later' WHERE id = 2")
        assert sorted(rows(source, start, end)) == [("1", "new", "r"), ("2", "old", "r")]
        assert [row for batch in batches(source, end) for row in batch] == [("2", "later", "u")]
        open.commit()
    server.run("INSERT INTO t VALUES (5, 'last')")
    found = [row for batch in batches(source, end) for row in batch]
    assert found == [("2", "later", "u"), ("4", "open", "c"), ("5", "last", "c")]


def test_a_repeated_snapshot_has_the_rows_of_now_and_is_older_than_every_change(server: PostgresServer) -> None:
    server.run("INSERT INTO t SELECT g, 'old' FROM generate_series(1, 2) g")
    with psycopg.connect(server.dsn) as open:
        # The position of this change is before that of the snapshot, which does not contain it.
        open.execute("UPDATE t SET v = 'open' WHERE id = 1")
        first = reader(server, "id v _op _lsn", snapshot="initial")
        end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
        first.stop()
        server.run("DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (3, 'meanwhile')")
        again = reader(server, "id v _op _lsn", snapshot="initial")
        found = rows(again, again.initialOffset(), end)
        open.commit()
    assert sorted(row[:3] for row in found) == [("1", "old", "r"), ("3", "meanwhile", "r")]
    changes = [row for batch in batches(again, end) for row in batch]
    assert [row[:3] for row in changes] == [("2", None, "d"), ("3", "meanwhile", "c"), ("1", "open", "u")]
    assert {row[3] for row in found} == {found[0][3]} and found[0][3] < min(row[3] for row in changes)
    newest = {row[0]: row for row in sorted(found + changes, key=lambda row: int(row[3]))}
    kept = sorted((row[0], row[1]) for row in newest.values() if row[2] != "d")
    assert kept == server.run("SELECT id::text, v FROM t ORDER BY id")


@pytest.mark.parametrize(
    ("xid", "seen"), [(4, True), (5, True), (6, False), (7, True), (9, False), (2**32 - 1, True), (2**31 + 20, True)]
)
def test_a_snapshot_sees_the_transactions_that_had_committed(xid: int, seen: bool) -> None:
    wrapped = 1 << 32
    assert change_source._seen_by(f"{wrapped + 6}:{wrapped + 9}:{wrapped + 6},{wrapped + 8}")(xid) is seen
    assert not change_source._seen_by("")(xid)


def test_rows_that_the_publication_leaves_out_are_not_in_the_snapshot(server: PostgresServer) -> None:
    server.run(
        "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 3) g", "CREATE PUBLICATION few FOR TABLE t WHERE (id > 2)"
    )
    source = reader(server, "id", publication="few", snapshot="initial")
    assert batches(source) == [[("3",)]]
