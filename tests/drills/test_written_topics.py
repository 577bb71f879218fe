"""A statement that writes a topic of a real broker: its messages, a kill in the middle of a batch, and a rebuild."""

import json
import os
import signal
import time
from collections import Counter

import pytest
from kafka_broker import Broker
from tiny_project import Tiny, until

pytestmark = [pytest.mark.spark, pytest.mark.drill]
SOURCE = """CREATE TABLE source_in (id BIGINT) USING kafka
OPTIONS ('kafka.bootstrap.servers'='{servers}', subscribe='source');"""
TARGET = (
    """CREATE TABLE sent ({columns}) USING kafka OPTIONS ('kafka.bootstrap.servers'='{servers}', topic='target');"""
)
COLUMNS = "_key STRING, id BIGINT, twice BIGINT"
DML = "INSERT INTO sent SELECT CAST(id AS STRING) AS _key, id, id * 2 AS twice FROM STREAM source_in;"
MANY = 60_000
"""Number of messages in the batch during which the pool is killed."""


def ids(broker: Broker) -> Counter[int]:
    """Return the number of messages in the target topic, by id."""
    return Counter(json.loads(message.value())["id"] for message in broker.messages("target"))


def send(broker: Broker, of: range) -> None:
    broker.produce("source", [json.dumps({"id": n}) for n in of])


def test_a_missing_topic_refuses_the_first_start_and_rows_become_messages(on_topics: Tiny, broker: Broker) -> None:
    broker.create("source")
    ddl = {"source_in": SOURCE.format(servers=broker.servers)}
    ddl["sent"] = TARGET.format(servers=broker.servers, columns=COLUMNS)
    on_topics.yml = {**on_topics.yml, "sent": "key: [id]\n"}
    on_topics.add(ddl, {"sent": DML})
    for _ in range(2):
        refused = on_topics.run("plan", "sent")
        said = " ".join(refused.stdout.split())
        assert refused.returncode == 3 and f"sent writes topic target, which does not exist at {broker.servers}" in said
        assert f"kafka-topics.sh --bootstrap-server {broker.servers} --create --topic target" in said
    broker.create("target")
    plan = on_topics.plan("sent")
    assert [each["verdict"] for each in plan["guards"] if each["name"] == "topics"] == ["ok"]
    broker.delete("target")
    late = on_topics.apply(plan)
    assert late.returncode == 1 and "sent has no topic target" in late.stdout + late.stderr, late
    assert "Headgate creates and changes no topics" in late.stdout + late.stderr
    broker.create("target")
    send(broker, range(10))
    plan = on_topics.plan("sent")
    assert "writes topic target at least once" in json.dumps(plan)
    done = on_topics.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: ids(broker) == Counter(range(10)), 60, "each row is one message")
    first = next(each for each in broker.messages("target") if each.key() == b"3")
    assert json.loads(first.value()) == {"id": 3, "twice": 6}
    shown = on_topics.done("show", "sent")
    assert "writes topic target at least once" in shown and "deduplicate them by id" in shown
    found = json.loads(on_topics.done("peek", "sent", "-n", "1", "--json"))
    assert json.loads(found["rows"][0][found["columns"].index("_value")])["id"] in range(10)


@pytest.mark.long
def test_a_pool_killed_in_the_middle_of_a_batch_loses_nothing_and_repeats_one_batch(
    on_topics: Tiny, broker: Broker
) -> None:
    before = broker.size("target")
    on_topics.done("stop", "sent", "--confirm", "yes")
    send(broker, range(10, MANY))
    on_topics.done("start", "sent", "--confirm", "yes")
    ends_at = time.monotonic() + 60
    while broker.size("target") <= before:
        assert time.monotonic() < ends_at, "the batch writes no message"
    os.kill(on_topics.pool_pid(), signal.SIGKILL)
    written = broker.size("target") - before
    assert written < MANY - 10, "the batch was not interrupted"
    until(lambda: on_topics.statements()["sent"]["lag_rows"] == 0, 180, "the rest is written")
    found = ids(broker)
    assert found.keys() == set(range(MANY)), "nothing is lost"
    twice = sum(count - 1 for count in found.values())
    # Messages that had left the producer when it was killed may have arrived after they were counted.
    assert written <= twice <= MANY - 10 and max(found.values()) == 2
    assert "again: messages of it may be in its topic twice" in on_topics.done("history", "sent")


@pytest.mark.long
def test_an_edit_continues_and_a_rebuild_writes_everything_again_and_is_not_rolled_back(
    on_topics: Tiny, broker: Broker
) -> None:
    on_topics.add(
        {"sent": TARGET.format(servers=broker.servers, columns="_key STRING, id BIGINT")},
        {"sent": "INSERT INTO sent SELECT CAST(id AS STRING) AS _key, id FROM STREAM source_in WHERE id >= 59990;"},
    )
    before = broker.size("target")
    done = on_topics.apply(on_topics.plan("sent"))
    assert done.returncode == 0, done.stdout + done.stderr
    send(broker, range(MANY, MANY + 5))
    until(lambda: broker.size("target") == before + 5, 60, "the edited statement continues")
    assert json.loads(max(broker.messages("target"), key=lambda each: int(each.key())).value()) == {"id": MANY + 4}
    plan = on_topics.plan("sent", "--rebuild")
    assert "writes all messages to topic target again" in json.dumps(plan)
    done = on_topics.apply(plan)
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: broker.size("target") == before + 5 + 15, 60, "the rows of the new text are there again")
    refused = on_topics.run("plan", "rollback", "sent")
    assert "sent writes a topic, and messages cannot be taken back" in refused.stdout + refused.stderr, refused
    send(broker, range(MANY + 5, MANY + 8))
    until(lambda: broker.size("target") == before + 5 + 15 + 3, 60, "only the new version writes")
    on_topics.add({}, {"sent": "INSERT INTO sent SELECT '' AS _key, id FROM STREAM source_in;"})
    done = on_topics.apply(on_topics.plan("sent", "--strategy", "sent=carry-over"))
    assert done.returncode == 0, done.stdout + done.stderr
    send(broker, range(MANY + 8, MANY + 10))
    until(lambda: broker.size("target") == before + 5 + 15 + 3 + 2, 60, "it continues after the former version")
    deleted = on_topics.apply(on_topics.plan("delete", "sent"))
    assert deleted.returncode == 0, deleted.stdout + deleted.stderr
    assert broker.size("target") == before + 5 + 15 + 3 + 2
