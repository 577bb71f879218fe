"""Slots on a real PostgreSQL server: lag, faults of a declaration, and how a slot is created, advanced and dropped."""

from collections.abc import Iterator

import psycopg
import pytest
from kafka_broker import free_port
from live_project import until
from postgres_server import PASSWORD, READER, PostgresServer, running_postgres

from core.model.errors import TryAgain
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.observed import time_left
from core.observed.time_left import Bound, Left, lost
from core.ports.storage import SourceLag
from core.sql.ddl_reader import read_ddl
from core.sql.postgres_changes import change_address, with_slot
from core.sql.statement import TableDdl
from pipelines import doctor
from pipelines.storage import change_slots
from pipelines.storage.change_slots import (
    HEARTBEAT_B,
    ChangeSlots,
    SlotFault,
    create_slot,
    drop_slot,
    fault_of_changes,
    large_columns,
    position_of,
    risk_of_key,
    stray_slots,
)

NAME = TableName("orders_in")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with running_postgres(max_slot_wal_keep_size="48MB") as found:
        found.run(
            "CREATE TABLE orders (id bigint PRIMARY KEY, total numeric, note text, code varchar(20))",
            "CREATE TABLE other (id bigint PRIMARY KEY, v text)",
            "CREATE TABLE unpublished (id bigint)",
            "CREATE PUBLICATION headgate FOR TABLE orders, other",
            "CREATE PUBLICATION partly FOR TABLE orders (id) WITH (publish = 'insert, update, delete, truncate')",
            "CREATE PUBLICATION inserts FOR TABLE orders WITH (publish = 'insert')",
            f"CREATE ROLE {READER} LOGIN PASSWORD '{PASSWORD}'",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGPASSFILE", str(found.password_file(tmp_path_factory.mktemp("postgres"))))
            yield found


@pytest.fixture
def server(database: PostgresServer) -> Iterator[PostgresServer]:
    yield database
    database.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def declared(
    server: PostgresServer,
    what: str = "dbtable 'orders'",
    *,
    user: str = "postgres",
    publication: str = "headgate",
    columns: str = "id BIGINT, note STRING, _op STRING",
) -> TableDdl:
    options = f"url 'jdbc:postgresql://127.0.0.1:{server.port}/postgres', user '{user}', publication '{publication}'"
    text = f"CREATE TABLE orders_in ({columns}) USING postgres_changes OPTIONS ({options}, {what})"
    ddl, problems = read_ddl(text, "d.sql")
    assert ddl is not None, problems
    return ddl


def url(server: PostgresServer, what: str = "dbtable 'orders'", columns: str = "id BIGINT") -> str:
    return change_address(with_slot(declared(server, what, columns=columns), "s"))


def position(server: PostgresServer) -> int:
    return int(server.run("SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots")[0][0])


def end(server: PostgresServer) -> int:
    return int(server.run("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")[0][0])


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({}, None, ""),
        ({"user": READER}, TableFaultKind.GONE, "reader may not read the log of the database"),
        ({"publication": "absent"}, TableFaultKind.GONE, "the database has no publication absent"),
        ({"what": "dbtable 'unpublished'"}, TableFaultKind.GONE, "does not contain public.unpublished"),
        ({"what": "dbtable 'absent'"}, TableFaultKind.GONE, "does not contain public.absent"),
        ({"publication": "inserts"}, TableFaultKind.COLUMNS_CHANGED, "leaves out some kinds of changes"),
        ({"publication": "partly"}, TableFaultKind.COLUMNS_CHANGED, "public.orders has no published column note"),
        ({"what": "messages 'app'", "columns": "_content STRING"}, None, ""),
    ],
)
def test_a_declaration_that_cannot_be_read_has_a_fault(
    server: PostgresServer, options: dict[str, str], kind: TableFaultKind | None, words: str
) -> None:
    found = fault_of_changes(declared(server, **options))
    assert (found and found.kind) == kind
    assert found is None or (words in found.why and found.remedy)


def test_a_database_without_logical_decoding_or_without_an_answer_is_named(server: PostgresServer) -> None:
    with running_postgres(wal_level="replica") as other:
        found = fault_of_changes(declared(other))
        assert found is not None and "wal_level = replica" in found.why and "wal_level = logical" in found.remedy
        nowhere = declared(other)
    with pytest.raises(TryAgain, match="orders_in: the database does not answer"):
        fault_of_changes(nowhere)


def test_columns_that_an_update_can_leave_out_of_the_log_are_known(server: PostgresServer) -> None:
    ddl = declared(server, columns="id BIGINT, total DECIMAL(8,2), note STRING, code STRING")
    assert large_columns(ddl) == ("note",)
    server.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    assert large_columns(ddl) == ()
    server.run("ALTER TABLE orders REPLICA IDENTITY DEFAULT")


@pytest.mark.parametrize(
    ("identity", "key", "risk"),
    [
        ("DEFAULT", "PRIMARY KEY", ""),
        ("FULL", "PRIMARY KEY", ""),
        ("USING INDEX keyed_code_id_key", "PRIMARY KEY", ""),
        ("USING INDEX keyed_code_key", "PRIMARY KEY", "the replica identity of public.keyed lacks id"),
        ("FULL", "NOT NULL", "public.keyed has no primary key"),
        ("NOTHING", "NOT NULL", ""),
    ],
)
def test_a_key_that_the_log_lacks_before_an_update_is_a_risk(
    server: PostgresServer, identity: str, key: str, risk: str
) -> None:
    server.run("DROP TABLE IF EXISTS keyed", f"CREATE TABLE keyed (id int {key}, code int NOT NULL UNIQUE)")
    server.run("ALTER TABLE keyed ADD UNIQUE (code, id)", f"ALTER TABLE keyed REPLICA IDENTITY {identity}")
    found = risk_of_key(declared(server, "dbtable 'keyed'"))
    assert bool(found) == bool(risk) and (found is None or (risk in found[0] and found[1]))


def test_a_slot_is_created_once_and_dropped_once(server: PostgresServer) -> None:
    assert [create_slot(NAME, url(server)) for _ in range(2)] == [True, False]
    server.run("INSERT INTO orders VALUES (1)", "DELETE FROM orders")
    before = position(server)
    assert not create_slot(NAME, url(server))
    assert position(server) == before, "the changes since its creation are kept"
    assert [drop_slot(NAME, url(server)) for _ in range(2)] == [True, False]


def test_a_slot_for_failovers_is_created_or_its_database_is_too_old(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = "dbtable 'orders', failover 'true'"
    assert fault_of_changes(declared(server, what)) is None
    assert create_slot(NAME, url(server, what))
    assert server.run("SELECT failover, two_phase, temporary FROM pg_replication_slots") == [(True, False, False)]
    server.run("INSERT INTO orders VALUES (70)")
    assert ChangeSlots().lag(None, NAME, url(server, what)).rows == 1, "a copy of it can be read"
    ChangeSlots().advance(NAME, url(server, what), [end(server)], in_use=True)
    assert position(server) > 0
    server.run("DELETE FROM orders")
    monkeypatch.setattr(change_slots, "FAILOVER_SINCE", 990_000)
    found = fault_of_changes(declared(server, what))
    assert found is not None and found.remedy == "remove failover, or use PostgreSQL 99"


def test_a_removed_environment_drops_its_slot_or_names_the_command_that_does(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    dropped = doctor.drop(url(server))
    assert dropped["ok"] and dropped["summary"] == "the replication slot s is dropped"
    assert doctor.drop(url(server))["summary"] == "the replication slot s was already dropped"
    kept = doctor.drop(url(server).replace(str(server.port), str(free_port())))
    assert not kept["ok"] and "may still keep the log of its database" in kept["summary"]
    assert kept["remedy"].startswith("psql 'postgresql://") and "pg_drop_replication_slot('s')" in kept["remedy"]


def test_slots_of_other_environments_that_keep_much_log_are_found(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_slots, "HEARTBEAT_B", 1 << 18)
    for name in ("headgate_a_t", "headgate_b_t", "elsewhere"):
        server.run(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    assert stray_slots(declared(server), ["headgate_a_t"]) == ()
    server.run("CREATE TABLE much AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)", "DROP TABLE much")
    ((_, name, kept),) = stray_slots(declared(server), ["headgate_a_t"])
    assert name == "headgate_b_t" and kept > 1 << 20
    (risk,) = [each for each in doctor._risks_of_changes(declared(server), ["headgate_a_t"]) if "slot" in each["facts"]]
    assert risk["warning"] and "pg_drop_replication_slot('headgate_b_t')" in risk["remedy"]


def test_an_open_transaction_that_delays_a_slot_is_named(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_slots, "CREATED_S", 1)
    with psycopg.connect(server.dsn) as other:
        other.execute("INSERT INTO other VALUES (100)")
        with pytest.raises(TryAgain, match="not created within 1 s: a transaction in the database is open"):
            create_slot(NAME, url(server))
        other.rollback()
    assert server.run("SELECT slot_name FROM pg_replication_slots") == []
    assert create_slot(NAME, url(server))


def test_the_lag_counts_changes_of_the_table_and_all_bytes_of_the_log(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    slots = ChangeSlots()
    assert slots.lag(None, NAME, url(server)).rows == 0
    server.run("INSERT INTO orders SELECT g FROM generate_series(1, 30) g", "INSERT INTO other VALUES (1)")
    at = end(server)
    server.run("UPDATE orders SET note = 'x' WHERE id < 6", "DELETE FROM orders WHERE id = 1", "DELETE FROM other")
    found = slots.lag(None, NAME, url(server))
    assert (found.rows, found.files, found.exact, found.topics) == (36, 36, True, True)
    assert found.wal_bytes == end(server) - position(server) and found.oldest_s is not None and found.oldest_s < 30
    later = slots.lag(at, NAME, url(server))
    assert (later.rows, later.wal_bytes) == (6, end(server) - at)
    assert slots.lag(end(server), NAME, url(server)).rows == 0
    server.run("DELETE FROM orders")


def seconds_left(found: SourceLag) -> float:
    assert found.time_left is not None and found.time_left.seconds is not None, found.time_left
    return found.time_left.seconds


def test_a_position_lasts_until_the_log_has_grown_to_its_limit_and_is_then_lost(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_left, "LEAST_GROWTH_S", 0.1)
    create_slot(NAME, url(server))
    slots, at = ChangeSlots(), position(server)
    first = slots.lag(at, NAME, url(server)).time_left
    assert first is not None and (first.kind, first.bound.kind) == (Left.UNKNOWN, Bound.GROWTH_UNKNOWN)
    server.run("INSERT INTO other SELECT 9000 + g, repeat('x', 1000) FROM generate_series(1, 9000) g")

    def growth_is_known() -> bool:
        left = slots.lag(at, NAME, url(server)).time_left
        return left is not None and left.bound.kind is Bound.SLOT_SIZE

    until(growth_is_known, 10, "the growth of the log is known")
    growing = slots.lag(at, NAME, url(server))
    assert growing.time_left is not None and growing.time_left.bound.kind is Bound.SLOT_SIZE
    assert growing.time_left.held_bytes is not None and 9_000_000 < growing.time_left.held_bytes < 20_000_000
    assert growing.time_left.bound.fields["kept"] == 48 << 20
    assert (
        growing.time_left.bound.remedy is not None
        and "max_slot_wal_keep_size = '96MB'" in growing.time_left.bound.remedy
    )
    for _ in range(3):
        server.run("UPDATE other SET v = v || 'y' WHERE id > 9000")
    later = slots.lag(at, NAME, url(server))
    assert seconds_left(later) < seconds_left(growing) and later.time_left is not None and later.time_left.is_short
    for _ in range(4):
        server.run("UPDATE other SET v = v || 'y' WHERE id > 9000", "SELECT pg_switch_wal()", "CHECKPOINT")
    gone = slots.lag(at, NAME, url(server))
    assert gone.missing and gone.time_left == lost(Bound.LOG_GONE, slot="s")
    server.run("DELETE FROM other WHERE id > 9000")


def test_an_idle_slot_is_lost_after_its_timeout_by_the_time_of_the_database(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    server.run("ALTER SYSTEM SET idle_replication_slot_timeout = '1h'", "SELECT pg_reload_conf()")
    slots, at = ChangeSlots(), position(server)
    until(lambda: slots.lag(at, NAME, url(server)).time_left.kind is Left.LIMITED, 20, "the setting applies")  # type: ignore[union-attr]  # It has a slot.
    assert 3500 < seconds_left(slots.lag(at, NAME, url(server))) <= 3600
    before = seconds_left(slots.lag(at, NAME, url(server)))
    slots.lag(None, NAME, url(server))
    assert seconds_left(slots.lag(at, NAME, url(server))) < before, "measuring is no use of the slot"
    slots.advance(NAME, url(server), [at], in_use=True)
    assert seconds_left(slots.lag(at, NAME, url(server))) < before, "it is not nearly lost"
    server.run("ALTER SYSTEM SET idle_replication_slot_timeout = '2s'", "SELECT pg_reload_conf()")
    until(lambda: seconds_left(slots.lag(at, NAME, url(server))) < 1, 20, "it is nearly lost")
    slots.advance(NAME, url(server), [at], in_use=False)
    assert seconds_left(slots.lag(at, NAME, url(server))) < 1, "only stopped statements read it"
    slots.advance(NAME, url(server), [at], in_use=True)
    assert seconds_left(slots.lag(at, NAME, url(server))) > 1 and position(server) == at
    until(lambda: seconds_left(slots.lag(at, NAME, url(server))) == 0, 20, "the time has passed")
    assert not slots.lag(at, NAME, url(server)).missing, "it is lost at a checkpoint"
    server.run("CHECKPOINT", "ALTER SYSTEM RESET idle_replication_slot_timeout", "SELECT pg_reload_conf()")
    gone = slots.lag(at, NAME, url(server))
    assert gone.missing and gone.time_left == lost(Bound.LOG_GONE, slot="s")


def test_before_an_initial_snapshot_the_lag_is_the_size_of_the_table(server: PostgresServer) -> None:
    begins = url(server, "dbtable 'orders', snapshot 'initial'")
    create_slot(NAME, begins)
    server.run("INSERT INTO orders SELECT g FROM generate_series(1, 30) g", "ANALYZE orders")
    found = ChangeSlots().lag(None, NAME, begins)
    assert (found.rows, found.exact, found.oldest_s) == (30, False, None)
    assert ChangeSlots().lag(end(server), NAME, begins).exact
    server.run("DELETE FROM orders", "ALTER TABLE orders SET (autovacuum_enabled = false)", "TRUNCATE orders")
    assert ChangeSlots().lag(None, NAME, begins).rows is None, "the database does not know"


def test_an_initial_snapshot_needs_a_user_who_may_read_the_table(server: PostgresServer) -> None:
    server.run(f"ALTER ROLE {READER} REPLICATION")
    assert fault_of_changes(declared(server, user=READER)) is None
    found = fault_of_changes(declared(server, "dbtable 'orders', snapshot 'initial'", user=READER))
    assert found is not None and found.remedy == f"GRANT SELECT ON public.orders TO {READER}"
    server.run(f"ALTER ROLE {READER} NOREPLICATION")
    assert fault_of_changes(declared(server, "dbtable 'orders', snapshot 'initial'")) is None


def test_a_long_lag_is_an_estimate(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    for n in range(30):
        server.run(f"INSERT INTO orders SELECT {1000 * n} + g FROM generate_series(1, 1000) g")
    found = ChangeSlots().lag(None, NAME, url(server))
    assert not found.exact and found.rows is not None and 25_000 < found.rows < 35_000
    server.run("DELETE FROM orders")


def test_the_lag_behind_messages_counts_those_of_the_prefix(server: PostgresServer) -> None:
    of_messages = url(server, "messages 'app'", "_content STRING")
    create_slot(NAME, of_messages)
    server.run("SELECT pg_logical_emit_message(true, p, 'x') FROM unnest(ARRAY['app', 'app', 'ap', 'app2']) p")
    assert ChangeSlots().lag(None, NAME, of_messages).rows == 2


def test_a_slot_is_advanced_to_the_slowest_reader_and_never_past_one_without_a_position(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    begin, slots = position(server), ChangeSlots()
    server.run("INSERT INTO orders VALUES (1)")
    first = end(server)
    server.run("DELETE FROM orders")
    slots.advance(NAME, url(server), [end(server), None], in_use=True)
    assert position(server) == begin
    slots.advance(NAME, url(server), [end(server), first], in_use=True)
    assert position(server) == first
    slots.advance(NAME, url(server), [begin, end(server)], in_use=True)
    assert position(server) == end(server), "a reader behind the slot cannot continue and does not hold it"


def test_one_heartbeat_is_written_for_much_log_of_other_tables(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    slots, at = ChangeSlots(), end(server)
    server.run("INSERT INTO unpublished SELECT g FROM generate_series(1, 300000) g")
    assert end(server) - at > HEARTBEAT_B
    for _ in range(3):
        slots.advance(NAME, url(server), [at], in_use=True)
    beats = "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('s', NULL, NULL, 'proto_version', '1',"
    assert server.run(f"{beats} 'publication_names', 'headgate', 'messages', 'true')") == [(3,)], "begin, beat, commit"


def test_slots_that_are_missing_ahead_or_lost_are_faults(server: PostgresServer) -> None:
    slots = ChangeSlots()
    missing = slots.fault_behind(1, url(server))
    assert missing is not None and missing.kind is TableFaultKind.GONE and "no replication slot any more" in missing.why
    with pytest.raises(SlotFault):
        slots.advance(NAME, url(server), [1], in_use=True)
    create_slot(NAME, url(server))
    ahead = slots.fault_behind(position(server) - 2048, url(server))
    assert ahead is not None and ahead.kind is TableFaultKind.LOG_GONE and "has lost changes in 2 kB" in ahead.why
    assert slots.fault_behind(position(server), url(server)) is slots.fault_behind(None, url(server)) is None
    assert slots.lag(position(server) - 1, NAME, url(server)).missing


def test_a_slot_that_the_database_has_given_up_is_a_fault_and_is_replaced(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    for _ in range(6):
        server.run(
            "SELECT pg_switch_wal()", "CREATE TABLE much AS SELECT 1 FROM generate_series(1, 1000)", "CHECKPOINT"
        )
        server.run("DROP TABLE much")
    found = ChangeSlots().fault_behind(None, url(server))
    assert found is not None and found.kind is TableFaultKind.LOG_GONE and "has deleted log" in found.why
    assert create_slot(NAME, url(server))
    assert ChangeSlots().fault_behind(None, url(server)) is None


def test_no_copy_of_a_slot_is_left(server: PostgresServer) -> None:
    create_slot(NAME, url(server))
    ChangeSlots().lag(None, NAME, url(server))
    assert server.run("SELECT slot_name FROM pg_replication_slots") == [("s",)]


def test_a_position_is_read_from_the_offsets_of_its_source() -> None:
    text = 'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}\n{"lsn": 24376536}\n-'
    assert [position_of(text, ordinal) for ordinal in range(4)] == [None, 24376536, None, None]


def test_an_unused_port_is_no_answer(server: PostgresServer) -> None:
    nowhere = url(server).replace(str(server.port), str(free_port()))
    with pytest.raises(TryAgain, match="does not answer"):
        ChangeSlots().lag(None, NAME, nowhere)
