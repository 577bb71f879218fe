"""The newest messages of topics on a real broker."""

import pytest
from confluent_kafka import Producer
from kafka_broker import Broker
from live_project import until

from core.sql.ddl_reader import read_ddl
from pipelines.storage.kafka_messages import MESSAGE_COLUMNS, fault_of_columns, newest_messages

pytestmark = pytest.mark.spark


def place(broker: Broker, *topics: str) -> str:
    return f"kafka://{broker.servers}/{','.join(topics)}"


def test_the_newest_messages_of_all_partitions_come_first(broker: Broker) -> None:
    for topic in ("peeked", "peeked-too"):
        # By default, the retention check would delete messages from 1970.
        broker.create(topic, **{"retention.ms": "-1"})
    assert newest_messages(place(broker, "peeked", "peeked-too"), 5) == []
    producer = Producer({"bootstrap.servers": broker.servers})
    for n in range(20):
        topic = "peeked-too" if n == 17 else "peeked"
        producer.produce(topic, key=str(n), value=f"v{n}", partition=n % 2, timestamp=1_000 + n, headers={"a": b"\xff"})
    producer.produce("peeked", value=b"\xfe", partition=0, timestamp=2_000)
    producer.produce("peeked", key="gone", value=None, partition=0, timestamp=2_001)
    assert producer.flush(30) == 0
    until(lambda: len(newest_messages(place(broker, "peeked", "peeked-too"), 100)) == 22, 30, "all are there")
    found = [dict(zip(MESSAGE_COLUMNS, row, strict=True)) for row in newest_messages(place(broker, "peeked"), 4)]
    assert [(row["_key"], row["_value"], row["_timestamp"]) for row in found] == [
        ("gone", None, 2_001),
        (None, "0xfe", 2_000),
        ("19", "v19", 1_019),
        ("18", "v18", 1_018),
    ]
    assert found[2] == {
        "_topic": "peeked", "_partition": 1, "_offset": 8, "_timestamp": 1_019, "_key": "19",
        "_headers": {"a": "0xff"}, "_value": "v19",
    }  # fmt: skip
    hidden = newest_messages(place(broker, "peeked"), 4, hidden=True)
    assert [row[4:] for row in hidden] == [
        ("gone", {}, None),
        (None, {}, "hidden (1 byte)"),
        ("19", {"a": "0xff"}, "hidden (3 bytes)"),
        ("18", {"a": "0xff"}, "hidden (3 bytes)"),
    ]
    newest = newest_messages(place(broker, "peeked", "peeked-too"), 22)
    assert [row[0] for row in newest].count("peeked-too") == 1


def test_a_topic_that_does_not_exist_has_no_messages(broker: Broker) -> None:
    assert newest_messages(place(broker, "never"), 5) == []


def test_a_declared_column_that_no_message_has_is_named(broker: Broker) -> None:
    broker.create("spelt", partitions=1)
    options = f"'kafka.bootstrap.servers'='{broker.servers}', subscribe='spelt'"

    def fault(columns: str, more: str = "") -> str:
        ddl, _ = read_ddl(f"CREATE TABLE orders_in ({columns}) USING kafka OPTIONS ({options}{more})", "ddl.sql")
        assert ddl is not None
        found = fault_of_columns(ddl)
        return found.sentence if found else ""

    assert fault("total INT") == "", "a topic without messages tells nothing"
    broker.produce("spelt", ['{"id": 1}', '{"Total": 2}', "broken", None], partition=0)
    until(lambda: fault("total INT") != "", 30, "the messages are there")
    assert fault("id INT, total INT, _key STRING") == (
        "orders_in declares total, and none of its newest 4 messages has it; compare the names, upper and lower case "
        "too: other fields are Total"
    )
    assert fault("id INT, Total INT") == fault("_value STRING", ", 'value.format'='raw'") == ""
