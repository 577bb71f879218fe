"""Where versions of a statement over topics start and continue, on a real broker and Spark."""

import json
from pathlib import Path

import pytest
from kafka_broker import Broker, running_broker
from tiny_project import Tiny, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]
DAY = 86_400.0
FIRST_DAY = 1_767_225_600.0
"""2026-01-01T00:00Z, when the messages 0 to 9 were sent; 10 to 19 were sent a day later."""
SOURCE = """CREATE TABLE {name} (id BIGINT, _timestamp TIMESTAMP) USING kafka
OPTIONS ('kafka.bootstrap.servers'='{servers}', subscribe='dated'{more});"""
DISTINCT = """INSERT INTO once SELECT DISTINCT id, _timestamp AS at FROM STREAM dated_in
WATERMARK _timestamp DELAY OF INTERVAL 1 MINUTE;"""
OFFSETS = ', startingOffsets=\'{"dated":{"0":9,"1":-1}}\''


def send(broker: Broker, ids: range, at: float | None = None, partition: int | None = None) -> None:
    broker.produce("dated", [json.dumps({"id": n}) for n in ids], at=at, partition=partition)


@pytest.fixture(scope="module")
def tiny(on_topics: Tiny, broker: Broker) -> Tiny:
    # By default, retention would delete messages that are older than a week.
    broker.create("dated", **{"retention.ms": "-1"})
    send(broker, range(10), FIRST_DAY)
    send(broker, range(10, 20), FIRST_DAY + DAY)
    ddl = {"dated_in": SOURCE.format(name="dated_in", servers=broker.servers, more="")}
    ddl["chosen_in"] = SOURCE.format(name="chosen_in", servers=broker.servers, more=OFFSETS)
    ddl |= {name: f"CREATE TABLE {name} (id BIGINT) USING parquet;" for name in ("dated", "chosen")}
    ddl["once"] = "CREATE TABLE once (id BIGINT, at TIMESTAMP) USING parquet;"
    dml = {"dated": "INSERT INTO dated SELECT id FROM STREAM dated_in;", "once": DISTINCT}
    on_topics.add(ddl, dml | {"chosen": "INSERT INTO chosen SELECT id FROM STREAM chosen_in;"})
    return on_topics


def has(tiny: Tiny, table: str, version: int, *ids: int) -> None:
    until(lambda: tiny.ids(table, version) == sorted(ids), 60, f"{table} v{version} has the rows {ids}")


def deploy(tiny: Tiny, *words: str) -> None:
    done = tiny.apply(tiny.plan(*words))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_version_starts_now_and_its_lag_is_zero_before_its_first_batch(tiny: Tiny, broker: Broker) -> None:
    deploy(tiny, "dated", "--from", "now")
    (begins,) = tiny.ledger("SELECT begins_after FROM deployment WHERE [table] = 'dated'")
    assert begins == ("the newest message of dated_in",)
    assert tiny.statements()["dated"]["lag_rows"] == 0
    send(broker, range(20, 23))
    has(tiny, "dated", 1, 20, 21, 22)


def test_a_version_with_state_starts_with_the_messages_of_a_time(tiny: Tiny) -> None:
    deploy(tiny, "once", "--from", "committed:2026-01-02T00:00:00Z")
    # The watermark has not passed the later messages yet.
    has(tiny, "once", 1, *range(10, 20))


def test_a_version_starts_at_offsets_in_the_options_of_its_table_which_the_plan_says(tiny: Tiny) -> None:
    plan = tiny.plan("chosen")
    assert "does not read chosen_in from its earliest message" in json.dumps(plan)
    assert tiny.apply(plan).returncode == 0
    has(tiny, "chosen", 1, 18, 20, 22)


def test_an_edited_statement_continues_from_the_offsets_of_the_old_version(tiny: Tiny, broker: Broker) -> None:
    deploy(tiny, "dated", "--rebuild")
    has(tiny, "dated", 2, *range(23))
    tiny.add({}, {"dated": "INSERT INTO dated SELECT id FROM STREAM dated_in WHERE id % 10 <> 3;"})
    deploy(tiny, "dated", "--strategy", "dated=carry-over")
    send(broker, range(30, 35))
    has(tiny, "dated", 3, 30, 31, 32, 34)
    assert tiny.ids("dated", 2)[:23] == list(range(23))


def test_a_table_that_declares_it_continues_after_lost_messages_and_says_so(tiny: Tiny, broker: Broker) -> None:
    broker.create("lossy", partitions=1)
    options = f"'kafka.bootstrap.servers'='{broker.servers}', subscribe='lossy', failOnDataLoss='false'"
    ddl = {"lossy_in": f"CREATE TABLE lossy_in (id BIGINT) USING kafka OPTIONS ({options});"}
    ddl["lossy"] = "CREATE TABLE lossy (id BIGINT) USING parquet;"
    tiny.add(ddl, {"lossy": "INSERT INTO lossy SELECT id FROM STREAM lossy_in;"})
    broker.produce("lossy", ['{"id": 1}', '{"id": 2}'], partition=0)
    deploy(tiny, "lossy")
    has(tiny, "lossy", 1, 1, 2)
    tiny.done("stop", "lossy", "--confirm", "yes")
    broker.produce("lossy", [json.dumps({"id": n}) for n in range(3, 8)], partition=0)
    broker.delete_before("lossy", {0: 5})
    until(lambda: tiny.statements()["lossy"]["lag_rows"] == 2, 30, "two messages are left")
    tiny.done("start", "lossy", "--confirm", "yes")
    has(tiny, "lossy", 1, 1, 2, 6, 7)
    lost = "lossy@v1 skips 3 messages of lossy_in that retention has deleted unread"
    until(lambda: lost in tiny.done("history", "lossy"), 30, "an event records it")


def test_options_that_keep_the_topics_are_edited_and_another_cluster_is_refused(
    tiny: Tiny, broker: Broker, tmp_path: Path
) -> None:
    known = "SELECT table_id FROM deployment WHERE [table] = 'lossy_in' AND table_id <> ''"
    until(lambda: tiny.ledger(known), 60, "the ids of the topics are recorded")
    ddl = tiny.ddl["lossy_in"].replace(broker.servers, f"localhost:{broker.port}")
    tiny.add({"lossy_in": ddl.replace("failOnDataLoss='false'", "maxOffsetsPerTrigger='1'")}, {})
    deploy(tiny, "lossy_in")
    tiny.done("restart", "lossy", "--confirm", "yes")
    broker.produce("lossy", ['{"id": 8}', '{"id": 9}'], partition=0)
    has(tiny, "lossy", 1, 1, 2, 6, 7, 8, 9)
    with running_broker(tmp_path / "other") as other:
        other.create("lossy", partitions=1)
        tiny.add({"lossy_in": ddl.replace(f"localhost:{broker.port}", other.servers)}, {})
        refused = tiny.apply(tiny.plan("lossy_in"))
    assert refused.returncode == 1
    assert "lossy_in has other topics than those that are registered" in refused.stdout + refused.stderr, refused
    tiny.add({"lossy_in": ddl}, {})


def test_a_partition_that_is_added_is_read_from_its_beginning(tiny: Tiny, broker: Broker) -> None:
    before = tiny.ids("dated", 3)
    broker.add_partitions("dated", 3)
    send(broker, range(40, 43), partition=2)
    has(tiny, "dated", 3, *before, 40, 41, 42)
    until(lambda: tiny.statements()["dated"]["lag_rows"] == 0, 30, "the lag is known")
