"""Offsets of a real broker: the lag behind topics, and the topics with which a statement cannot continue."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import ANY

import pytest
from kafka_broker import Broker, running_broker
from live_project import until

from core.model.errors import TryAgain
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.observed import time_left
from core.observed.time_left import Bound, Left, TimeLeft, lost
from core.ports.storage import OriginRows, SeenMessages, VersionFolders
from core.sql.kafka_topics import kafka_location
from pipelines.storage import kafka_clients, kafka_messages, kafka_offsets
from pipelines.storage.checkpoints import TableCheckpoints
from pipelines.storage.kafka_offsets import KafkaOffsets, mark_of_offsets, offsets_of

pytestmark = pytest.mark.spark
TABLE = TableName("orders")
PROMPT = ("log.retention.check.interval.ms=500", "log.initial.task.delay.ms=0")
"""Settings of a broker that deletes messages as soon as retention allows."""
T = TypeVar("T")


@pytest.fixture
def offsets() -> KafkaOffsets:
    """An instance of KafkaOffsets that requests offsets at every call."""
    return KafkaOffsets(refresh_s=0)


def answered(ask: Callable[[], T]) -> T:
    """Repeat a request until a broker answers: a client may not know the leaders of a topic just created."""
    found: list[T] = []

    def is_answered() -> bool:
        with suppress(TryAgain):
            found.append(ask())
        return bool(found)

    until(is_answered, 30, "a broker answers")
    return found[0]


def place(broker: Broker, *topics: str) -> str:
    return f"kafka://{broker.servers}/{','.join(topics)}"


def test_the_lag_is_the_number_of_unread_messages_and_the_age_of_the_oldest(
    broker: Broker, offsets: KafkaOffsets
) -> None:
    broker.create("lag")
    empty = answered(lambda: offsets.lag(None, TABLE, place(broker, "lag")))
    assert (empty.rows, empty.oldest_s, empty.newest_s, empty.exact) == (0, None, None, True)
    broker.produce("lag", ["{}"] * 10)
    first = offsets.lag(None, TABLE, place(broker, "lag"))
    assert (first.rows, first.files, first.produced_rows, first.consumed_rows) == (10, 10, 10, 0)
    assert first.topics and first.oldest_s is not None and 0 <= first.oldest_s < 60
    read = {("lag", 0): 5, ("lag", 1): 2}
    later = offsets.lag(read, TABLE, place(broker, "lag"))
    assert (later.rows, later.produced_rows, later.consumed_rows) == (3, 10, 7)
    assert later.newest_s is not None and later.oldest_s is not None
    done = offsets.lag({("lag", 0): 5, ("lag", 1): 5}, TABLE, place(broker, "lag"))
    assert (done.rows, done.oldest_s) == (0, None)


def test_a_message_from_a_clock_ahead_of_ours_is_not_behind(broker: Broker, offsets: KafkaOffsets) -> None:
    broker.create("ahead", partitions=1)
    broker.produce("ahead", ["{}"] * 2, partition=0, at=time.time() + 3600)
    found = answered(lambda: offsets.lag(None, TABLE, place(broker, "ahead")))
    assert (found.rows, found.oldest_s, found.newest_s) == (2, 0.0, 0.0)


def test_an_added_partition_is_unread_from_its_beginning(broker: Broker, offsets: KafkaOffsets) -> None:
    broker.create("grown")
    broker.produce("grown", ["{}"] * 2)
    broker.add_partitions("grown", 3)
    broker.produce("grown", ["{}"] * 4, partition=2)
    read = {("grown", 0): 1, ("grown", 1): 1}
    assert answered(lambda: offsets.lag(read, TABLE, place(broker, "grown"))).rows == 4
    assert offsets.fault_behind(read, place(broker, "grown")) is None


def test_several_topics_are_measured_together(broker: Broker, offsets: KafkaOffsets) -> None:
    for topic, messages in (("one", 3), ("two", 4)):
        broker.create(topic)
        broker.produce(topic, ["{}"] * messages)
    read = {("one", 0): 2, ("one", 1): 1}
    assert answered(lambda: offsets.lag(read, TABLE, place(broker, "one", "two"))).rows == 4
    assert offsets.lag(None, TABLE, place(broker, "two")).rows == 4


def test_messages_lost_to_retention_are_a_fault_and_no_lag(broker: Broker, offsets: KafkaOffsets) -> None:
    broker.create("short")
    broker.produce("short", ["{}"] * 20)
    broker.delete_before("short", {0: 6})
    read = {("short", 0): 4, ("short", 1): 10}
    fault = answered(lambda: offsets.fault_behind(read, place(broker, "short")))
    assert fault is not None and fault.kind is TableFaultKind.LOG_GONE
    assert fault.why.startswith("has lost 2 unread messages to its retention: partition 0 of topic short begins at")
    assert offsets.lag(read, TABLE, place(broker, "short")).rows == 4
    assert offsets.fault_behind({("short", 0): 6, ("short", 1): 10}, place(broker, "short")) is None


def left_of(offsets: KafkaOffsets, broker: Broker, read: dict[tuple[str, int], int]) -> TimeLeft:
    topics = sorted({topic for topic, _ in read})
    found = answered(lambda: offsets.lag(read, TABLE, place(broker, *topics))).time_left
    assert found is not None
    return found


def test_what_kafka_keeps_without_limit_is_never_lost_and_age_bounds_the_rest(
    broker: Broker, offsets: KafkaOffsets
) -> None:
    broker.create("compacted", partitions=1, **{"cleanup.policy": "compact", "retention.ms": "1000"})
    broker.create("endless", partitions=1, **{"retention.ms": "-1"})
    broker.create("hourly", partitions=1, **{"retention.ms": "3600000"})
    for topic in ("compacted", "endless", "hourly"):
        broker.produce(topic, ["{}"] * 5, partition=0, at=time.time() - 1800)
    assert left_of(offsets, broker, {("compacted", 0): 2}).bound.kind is Bound.COMPACTED
    assert left_of(offsets, broker, {("endless", 0): 2}).bound.kind is Bound.TOPIC_KEEPS_ALL
    behind = left_of(offsets, broker, {("hourly", 0): 2})
    assert behind.bound.kind is Bound.MESSAGE_AGE and behind.seconds is not None and 1700 < behind.seconds <= 1800
    assert left_of(offsets, broker, {("hourly", 0): 5}).seconds == 3600.0
    assert left_of(offsets, broker, {("hourly", 0): 2, ("compacted", 0): 2}) == replace(behind, seconds=ANY)
    assert offsets.lag(None, TABLE, place(broker, "hourly")).time_left is None, "no position is committed"


def test_a_position_is_lost_when_kafka_deletes_and_not_when_our_clock_says_so(
    tmp_path: Path, offsets: KafkaOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(tmp_path / "broker", *PROMPT) as broker:
        broker.create("aged", partitions=1, **{"retention.ms": "5000"})
        broker.produce("aged", ["{}"] * 5, partition=0)
        read = {("aged", 0): 2}
        with monkeypatch.context() as patch:
            patch.setattr(kafka_offsets.time, "time", lambda now=time.time: now() + 30 * 86_400)
            jumped = left_of(offsets, broker, read)
        assert (jumped.kind, jumped.seconds) == (Left.LIMITED, 0.0)
        assert 0 < (left_of(offsets, broker, read).seconds or 0) <= 5
        until(lambda: left_of(offsets, broker, read).kind is Left.LOST, 40, "Kafka deletes the messages")
        assert left_of(offsets, broker, read) == lost(Bound.MESSAGES_GONE, messages=3, topics=("aged",))

        broker.create("sized", partitions=1, **{"retention.bytes": "2097152", "segment.bytes": "1048576"})
        monkeypatch.setattr(time_left, "LEAST_GROWTH_S", 0.5)
        rows = [os.urandom(400).hex() for _ in range(600)]
        broker.produce("sized", rows, partition=0)
        read = {("sized", 0): 100}
        assert left_of(offsets, broker, read).kind is Left.UNKNOWN, "the growth is not known yet"
        broker.produce("sized", rows, partition=0)
        until(lambda: left_of(offsets, broker, read).bound.kind is Bound.TOPIC_SIZE, 10, "the growth is known")
        assert left_of(offsets, broker, read).amount.startswith("about")
        for _ in range(8):
            broker.produce("sized", rows, partition=0)
        until(lambda: left_of(offsets, broker, read).kind is Left.LOST, 40, "Kafka deletes a segment")


def test_a_table_that_declares_it_skips_lost_messages_but_no_other_topic(broker: Broker, offsets: KafkaOffsets) -> None:
    broker.create("skipped")
    broker.produce("skipped", ["{}"] * 20)
    declared = {"kafka.bootstrap.servers": broker.servers, "subscribe": "skipped", "failOnDataLoss": "FALSE"}
    skips, read = kafka_location(declared), {("skipped", 0): 4, ("skipped", 1): 10}
    assert answered(lambda: offsets.lag(read, TABLE, skips)).skipped == 0
    assert offsets.lag(read, TABLE, place(broker, "skipped")).skipped is None
    broker.delete_before("skipped", {0: 6})
    assert offsets.fault_behind(read, skips) is None
    assert offsets.fault_behind(read, place(broker, "skipped")) is not None
    lag = offsets.lag(read, TABLE, skips)
    assert (lag.rows, lag.skipped) == (4, 2)
    other = offsets.fault_behind({("skipped", 0): 11}, skips)
    assert other is not None and other.kind is TableFaultKind.REPLACED


def test_a_topic_that_was_deleted_is_missing_and_one_created_again_is_another(
    broker: Broker, offsets: KafkaOffsets
) -> None:
    broker.create("again")
    broker.produce("again", ["{}"] * 4)
    read = {("again", 0): 2, ("again", 1): 2}
    assert answered(lambda: offsets.fault_behind(read, place(broker, "again"))) is None
    broker.delete("again")
    gone = offsets.fault_behind(read, place(broker, "again"))
    assert gone is not None and gone.kind is TableFaultKind.GONE and gone.why.startswith("has no topic again at")
    assert offsets.lag(read, TABLE, place(broker, "again")).missing
    broker.create("again")
    other = answered(lambda: offsets.fault_behind(read, place(broker, "again")))
    assert other is not None and other.kind is TableFaultKind.REPLACED and other.why.startswith("was created again")


@pytest.mark.parametrize("copied", [False, True])
def test_a_topic_created_again_with_more_messages_is_another_one_for_a_checkpoint_and_its_copy(
    broker: Broker, tmp_path: Path, copied: bool
) -> None:
    topic = f"longer{copied:d}"
    broker.create(topic, partitions=1)
    broker.produce(topic, ["{}"] * 2, partition=0)
    files, note = TableCheckpoints("ledger"), {"run": "r"}
    version = VersionFolders(f"{tmp_path}/table", f"{tmp_path}/checkpoint")
    source = ((0, TABLE, place(broker, topic), "kafka"),)
    files.prepare(version.checkpoint, note)
    assert answered(lambda: files.source_fault(version.checkpoint, source)) is None
    for log, text in (("offsets", f'v1\n{{}}\n{{"{topic}":{{"0":2}}}}'), ("commits", "v1\n{}")):
        (tmp_path / "checkpoint" / log).mkdir()
        (tmp_path / "checkpoint" / log / "0").write_text(text)
    if copied:
        copy = VersionFolders(f"{tmp_path}/table2", f"{tmp_path}/checkpoint2")
        for folder in (version.table, copy.table, copy.checkpoint):
            files.prepare(folder, note)
        (tmp_path / "table/_spark_metadata").mkdir()
        (tmp_path / "table/_spark_metadata/0").write_text("v1\n")
        files.fork(version, copy, note, rows=OriginRows.LEFT)
        version = copy
    assert files.source_fault(version.checkpoint, source) is None
    known = files.identity(source[0][2], "kafka")
    broker.delete(topic)
    until(lambda: files.identity(source[0][2], "kafka") == "", 30, "no topic has an id")
    broker.create(topic, partitions=1)
    broker.produce(topic, ["{}"] * 5, partition=0)
    found = answered(lambda: files.source_fault(version.checkpoint, source))
    assert found is not None and found[1].kind is TableFaultKind.REPLACED
    assert found[1].why == (
        f"was created again: topic {topic} has the id {files.identity(source[0][2], 'kafka')}, "
        f"and the statement has read {known}"
    )


def test_a_version_marked_as_read_begins_at_the_end_of_its_topics_or_at_a_time(broker: Broker, tmp_path: Path) -> None:
    broker.create("marked", **{"retention.ms": "-1"})
    broker.produce("marked", ["{}"] * 4, at=1_000_000)
    broker.produce("marked", ["{}"] * 3, at=2_000_000)
    files, note, location = TableCheckpoints("ledger"), {"run": "r"}, place(broker, "marked")
    unread = [7, 0, 3, 0]
    for n, (since, found) in enumerate([(0.0, (0, 0)), (None, (4, 3)), (1_500_000.0, (2, 2)), (3_000_000.0, (4, 3))]):
        seen = answered(lambda since=since: files.source_position(location, format="kafka", since=since))
        assert seen == SeenMessages(f'{{"marked":{{"0":{found[0]},"1":{found[1]}}}}}')
        version = VersionFolders(f"{tmp_path}/table{n}", f"{tmp_path}/checkpoint{n}")
        files.create_checkpoint_after(version, (seen,), note)
        (lag,) = files.lag(version.checkpoint, ((0, TABLE, location, "kafka"),))
        assert lag.rows == unread[n]


def test_the_topics_of_all_statements_are_read_at_once(
    broker: Broker, offsets: KafkaOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Mapping[Any, Any]] = []
    monkeypatch.setattr(kafka_messages, "_read_next", lambda consumer, unread, sizes, read=kafka_messages._read_next: (
        reads.append(unread) or read(consumer, unread, sizes)))  # fmt: skip
    for topic in ("first", "second"):
        broker.create(topic, partitions=1)
        broker.produce(topic, ["{}"] * 5, partition=0)
    asked = [({("first", 0): 1}, "first"), ({("first", 0): 3}, "first"), ({("second", 0): 2}, "second"), (None, "none")]
    answered(lambda: offsets.lag(None, TABLE, place(broker, "first", "second")))
    reads.clear()
    offsets.prefetch((read, place(broker, topic)) for read, topic in asked)
    assert reads == [{("first", 0): (1, 5), ("second", 0): (2, 5)}, {("first", 0): (3, 5)}]
    lags = [offsets.lag(read, TABLE, place(broker, topic)) for read, topic in asked]
    assert [lag.rows for lag in lags] == [4, 2, 3, None] and len(reads) == 2
    assert all(lag.oldest_s is not None for lag in lags[:3])


def test_offsets_have_one_mark_in_any_order() -> None:
    first, other = (mark_of_offsets(f'{{"t":{{{offsets}}}}}') for offsets in ('"0":3,"1":4', '"1":4,"0":3'))
    assert first is not None and first == other and first.startswith("7:")
    assert mark_of_offsets('{"t":{"0":4,"1":3}}') != first
    assert mark_of_offsets("-") is mark_of_offsets('{"logOffset":3}') is None


def ends(offsets: KafkaOffsets, broker: Broker, end: int) -> None:
    """Wait until the topic `sent` ends at `end`: a transaction is committed before its last record is written."""
    all_read = {("sent", 0): end}
    until(lambda: answered(lambda: offsets.lag(all_read, TABLE, place(broker, "sent"))).produced_rows == end, 30, "end")


def test_the_end_of_a_transaction_is_no_message_and_is_read_once_without_the_lock(
    broker: Broker, offsets: KafkaOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("sent", partitions=1)
    broker.produce("sent", ["{}"] * 3, partition=0, transaction="one")
    reads: list[Mapping[Any, Any]] = []

    def read(consumer: Any, unread: Mapping[Any, Any], sizes: Any, *, original: Any = kafka_messages._read_next) -> Any:
        reads.append(unread)
        other = threading.Thread(target=offsets.fault_behind, args=({("sent", 0): 3}, place(broker, "sent")))
        other.start()
        other.join(20)
        assert not other.is_alive(), "a look at a message delays a start"
        return original(consumer, unread, sizes)

    monkeypatch.setattr(kafka_messages, "_read_next", read)
    ends(offsets, broker, 4)
    behind = offsets.lag({("sent", 0): 3}, TABLE, place(broker, "sent"))
    assert (behind.rows, behind.oldest_s, behind.produced_rows, behind.consumed_rows) == (0, None, 4, 4)
    assert offsets.lag({("sent", 0): 3}, TABLE, place(broker, "sent")).rows == 0
    assert reads == [{("sent", 0): (3, 4)}]
    broker.produce("sent", ["{}"] * 2, partition=0, transaction="two")
    ends(offsets, broker, 7)
    later = offsets.lag({("sent", 0): 3}, TABLE, place(broker, "sent"))
    assert later.oldest_s is not None and (later.rows, later.exact) in ((2, True), (2, False))
    assert reads[1:] == [{("sent", 0): (3, 7)}]


def test_offsets_without_a_message_are_no_rows(
    broker: Broker, offsets: KafkaOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("often", partitions=1)
    broker.create("plain", partitions=1)
    for _ in range(10):
        broker.produce("often", ["{}"] * 3, partition=0, transaction="often")
        broker.produce("plain", ["{}"] * 4, partition=0)
    until(lambda: answered(lambda: offsets.lag(None, TABLE, place(broker, "often"))).produced_rows == 40, 30, "end")
    lags = [offsets.lag(read, TABLE, place(broker, "often")) for read in (None, {("often", 0): 2}, {("often", 0): 40})]
    assert [(lag.rows, lag.exact) for lag in lags] == [(30, True), (28, True), (0, True)]
    monkeypatch.setattr(kafka_messages, "SAMPLED", 12)
    few = KafkaOffsets(refresh_s=0)
    part = answered(lambda: few.lag(None, TABLE, place(broker, "often")))
    assert 28 <= (part.rows or 0) <= 32 and not part.exact
    plain = answered(lambda: few.lag(None, TABLE, place(broker, "plain")))
    assert (plain.rows, plain.exact) == (40, True)


def test_a_cluster_that_does_not_answer_delays_one_measurement_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_clients, "ANSWER_S", 1.0)
    offsets, asked = KafkaOffsets(), []
    monkeypatch.setattr(kafka_offsets, "_list", lambda cluster, listed=kafka_offsets._list: (
        asked.append(cluster.clients.place.servers), listed(cluster)))  # fmt: skip
    for _ in range(3):
        with pytest.raises(TryAgain, match=r"no broker of 127\.0\.0\.1:9 answers"):
            offsets.lag(None, TABLE, "kafka://127.0.0.1:9/t")
    assert asked == ["127.0.0.1:9"]


def test_offsets_are_read_from_the_line_of_their_source() -> None:
    text = 'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}\n{"a":{"0":12,"1":7},"b":{"0":1}}\n-'
    assert offsets_of(text, 0) is None
    assert offsets_of(text, 1) == {("a", 0): 12, ("a", 1): 7, ("b", 0): 1}
    assert offsets_of(text, 2) is None and offsets_of(text, 3) is None


def test_a_cluster_without_any_of_the_topics_is_listed(broker: Broker, offsets: KafkaOffsets) -> None:
    assert answered(lambda: offsets.ids(place(broker, "nowhere"))) == {}
