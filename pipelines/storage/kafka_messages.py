"""Reads single messages of Kafka topics without committing offsets: the newest, and the next for a statement."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from core.model.states import TableFaultKind
from core.ports.storage import TableFault
from core.sql.avro_schemas import KEY, VALUE
from core.sql.kafka_topics import declared_fields, topic_place, value_format
from core.sql.sampled_messages import SampledMessage, sampled_fields
from core.sql.statement import TableDdl
from core.text.wording import counted
from pipelines.storage import kafka_clients
from pipelines.storage.kafka_clients import ANSWER_S, KafkaClients, connect

Partition = tuple[str, int]
"""Topic and partition number."""

KEPT = 20_000
"""Maximum number of message timestamps kept for a cluster. If there are more, all are discarded."""

UNREAD_S = 60.0
"""Seconds for which a partition whose next message did not arrive in time is not read again."""

SAMPLED = 1_000
"""Maximum number of messages read together to find offsets without a message; most arrive with the next messages."""

MORE_S = 0.05
"""Longest wait for each of these additional messages, in seconds."""

OVERHEAD_B = 70
"""Bytes of a message besides key and value, if the message is alone in its batch (Kafka 4.1)."""

SAMPLE = 500
"""Maximum number of messages with which the columns of topics are compared."""

FIELDS_NAMED = 10
"""Maximum number of undeclared message fields that a remedy lists."""

MESSAGE_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", "_value")
"""The columns of `newest_messages`, with the names used in the DDL of a table over topics."""

Decoder = Callable[[str, bytes], str | None]
"""Converts a key or value to text; the first argument is `key` or `value`."""


def newest_messages(
    location: str, limit: int, decoded: Decoder | None = None, *, hidden: bool = False
) -> list[tuple[Any, ...]]:
    """Return at most `limit` of the newest messages of a location's topics, newest first.

    `decoded` converts a key or value to text, or returns None if it cannot. Without `decoded`, bytes that are not UTF-8
    are returned as `0x…`. If `hidden`, values are replaced by their sizes. Times are epoch milliseconds. A missing key
    or value is None. Raises the same errors as `KafkaOffsets.lag`, and returns fewer messages if a broker is slow.
    """
    clients = connect(topic_place(location))
    try:
        found = _read(clients, _begins(clients, limit), decoded, hidden=hidden)
        return sorted(found, key=lambda row: (row[3], row[2]), reverse=True)[:limit]
    finally:
        clients.consumer.close()


def sampled_messages(location: str) -> list[SampledMessage]:
    """Return at most `SAMPLE` of the newest messages of a location's topics.

    Raises the same errors as `KafkaOffsets.lag`.
    """
    rows = newest_messages(location, SAMPLE)
    return [SampledMessage(row[1], row[2], key=row[4], value=row[6]) for row in rows]


def fault_of_columns(ddl: TableDdl) -> TableFault | None:
    """Return the declared columns that none of the newest messages has, such as misspelt ones; None if all occur.

    Spark reads such columns as NULL. Raises the same errors as `KafkaOffsets.lag`.
    """
    if not (declared := declared_fields(ddl)):
        return None
    messages = sampled_messages(ddl.location)
    there = sampled_fields(messages, value_format(ddl))
    if not there or not (absent := [name for name in declared if name not in there]):
        return None
    has = f"none of its newest {counted(len(messages), 'message')} has {'it' if len(absent) == 1 else 'them'}"
    others = sorted(set(there).difference(declared))[:FIELDS_NAMED]
    remedy = f"compare the names, upper and lower case too: other fields are {', '.join(others)}" if others else ""
    why = f"{ddl.table} declares {', '.join(absent)}, and {has}"
    return TableFault(TableFaultKind.COLUMNS_CHANGED, why, remedy or "remove it, unless later messages have it")


def _begins(clients: KafkaClients, limit: int) -> dict[tuple[str, int], int]:
    """Return, per partition with messages, the offset `limit` before the end, or the earliest offset if later."""
    from confluent_kafka import TopicCollection, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    wait_s, partitions = {"request_timeout": ANSWER_S}, []
    topics = TopicCollection(list(clients.place.topics))
    for topic, answer in clients.admin.describe_topics(topics, **wait_s).items():
        found = clients.answer(answer)
        partitions += [TopicPartition(topic, part.id) for part in found.partitions] if found else []
    ends: list[dict[tuple[str, int], int]] = []
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        answers = clients.admin.list_offsets({place: spec for place in partitions}, **wait_s) if partitions else {}
        found = {(place.topic, place.partition): clients.answer(answer) for place, answer in answers.items()}
        ends.append({each: result.offset for each, result in found.items() if result is not None})
    earliest, latest = ends
    return {each: max(earliest[each], end - limit) for each, end in latest.items() if earliest.get(each, end) < end}


def _read(
    clients: KafkaClients, begins: dict[tuple[str, int], int], decoded: Decoder | None, *, hidden: bool
) -> list[tuple[Any, ...]]:
    """Read each partition to its end."""
    from confluent_kafka import KafkaError, TopicPartition

    clients.consumer.assign([TopicPartition(*each, offset) for each, offset in begins.items()])
    rows, left, ends_at = [], set(begins), time.monotonic() + 2 * ANSWER_S
    while left and time.monotonic() < ends_at:
        message = clients.consumer.poll(0.2)
        if message is None:
            continue
        each = (message.topic(), message.partition())
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(each)
            continue
        headers = {name: _text(value) for name, value in message.headers() or ()}
        key, value = message.key(), message.value()
        shown = f"hidden ({counted(len(value), 'byte')})" if hidden and value is not None else None
        shown = shown or _decoded(VALUE, value, decoded) or _text(value)
        text = _decoded(KEY, key, decoded) or _text(key)
        rows.append((*each, message.offset(), message.timestamp()[1], text, headers, shown))
    return rows


def _decoded(part: str, value: bytes | None, decoded: Decoder | None) -> str | None:
    return None if value is None or decoded is None else decoded(part, value)


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


@dataclass(frozen=True, slots=True)
class NextMessage:
    """The result of looking for the next message of a partition after an offset."""

    at: float | None
    """Timestamp of the message, in epoch seconds; None if no message was read."""
    end: int | None = None
    """The end of the partition, if there is no message before it."""
    until: float = 0.0
    """Monotonic time before which the partition is not read again, if it did not answer."""
    offsets: int = 0
    """Number of offsets checked for a message. Transaction records and compacted messages also occupy offsets."""
    messages: int = 0
    """Number of checked offsets that have a message."""

    def holds(self, end: int) -> bool:
        """Return whether a new read up to `end` would give the same result. A message that was found never changes."""
        return self.at is not None or self.end == end or time.monotonic() < self.until


@dataclass(slots=True)
class NextMessages:
    """Reads the next unread messages of statements in a cluster, each only once. Thread-safe."""

    clients: KafkaClients
    _reading: threading.Lock = field(default_factory=threading.Lock)
    """Held while the consumer is in use. A slow consumer must not delay anything else."""
    _known: dict[tuple[Partition, int], NextMessage] = field(default_factory=dict)
    """Messages by partition and the offset from which they were read."""
    _led: set[str] = field(default_factory=set)
    """Topics whose leaders the consumer knows."""
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number and total size of the messages that were read, by topic."""
    _compared: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number of messages found and number of offsets checked, by topic."""

    def after(
        self, unread: Mapping[Partition, tuple[int, int]], places: Collection[Partition]
    ) -> dict[Partition, NextMessage]:
        """Return the first message of each partition between two offsets, because not every offset has a message.

        `unread` maps partitions to start and end offsets. Compaction removes messages, and each transaction ends with a
        record that is not a message. `places` are all partitions of the cluster that are read.
        """
        with self._reading:
            known = {
                each: found
                for each, (offset, end) in unread.items()
                if (found := self._known.get((each, offset))) and found.holds(end)
            }
            if missing := {each: offsets for each, offsets in unread.items() if each not in known}:
                self._learn_leaders({topic for topic, _ in missing}, places)
                read = _read_next(self.clients.consumer, missing, self._sizes)
                if len(self._known) > KEPT:
                    self._known.clear()
                self._known.update({(each, missing[each][0]): found for each, found in read.items()})
                known.update(read)
                for (topic, _), found in read.items():
                    messages, offsets = self._compared.get(topic, (0, 0))
                    self._compared[topic] = (messages + found.messages, offsets + found.offsets)
        return known

    def count(self, unread: Mapping[Partition, int], following: Mapping[Partition, NextMessage]) -> tuple[int, bool]:
        """Return the number of messages at the unread offsets, and whether this number is exact.

        For offsets that were not checked, the number is estimated from the share of messages in their topic.
        """
        rows = unknown = 0
        for each, offsets in unread.items():
            found = following.get(each)
            if found is not None and 0 < found.offsets <= offsets:
                rows, offsets = rows + found.messages, offsets - found.offsets
            unknown += offsets
        counts = [self._compared[topic] for topic in {topic for topic, _ in unread} if topic in self._compared]
        messages, compared = sum(each[0] for each in counts), sum(each[1] for each in counts)
        share = messages / compared if compared else 1.0
        return rows + round(unknown * share), not unknown or share == 1.0

    def size(self, topic: str) -> float | None:
        """Return the average uncompressed size, in bytes, of a topic's messages; None if no message was read."""
        number, total = self._sizes.get(topic, (0, 0))
        return total / number if number else None

    def _learn_leaders(self, topics: Set[str], places: Collection[Partition]) -> None:
        """Make the consumer find all partition leaders at once, because separate look-ups would take a second each."""
        from confluent_kafka import OFFSET_END, TopicPartition

        if not topics <= self._led:
            self.clients.consumer.assign([TopicPartition(*each, OFFSET_END) for each in places])
            self._led = {topic for topic, _ in places}


def _read_next(
    consumer: Any, unread: Mapping[Partition, tuple[int, int]], sizes: dict[str, tuple[int, int]]
) -> dict[Partition, NextMessage]:
    """Read one message of each partition, or determine that there is none to read, within ANSWER_S seconds.

    Further messages are read to find offsets without a message. Message sizes are added to `sizes`, by topic.
    """
    from confluent_kafka import KafkaError, TopicPartition

    # Pausing a partition that was read would delay the next assignment by a second (librdkafka 2.16).
    consumer.assign([TopicPartition(*each, offset) for each, (offset, _) in unread.items()])
    found: dict[Partition, NextMessage] = {}
    left, ends_at, polled = set(unread), time.monotonic() + kafka_clients.ANSWER_S, 0
    while left and time.monotonic() < ends_at and (len(found) < len(unread) or polled < SAMPLED):
        message = consumer.poll(0.2 if len(found) < len(unread) else MORE_S)
        polled += 1
        if message is None and len(found) == len(unread):
            break
        if message is None or (message.error() and message.error().code() != KafkaError._PARTITION_EOF):
            continue
        each = (message.topic(), message.partition())
        if not message.error():
            number, total = sizes.get(each[0], (0, 0))
            size = len(message.key() or b"") + len(message.value() or b"") + OVERHEAD_B
            sizes[each[0]] = (number + 1, total + size)
        if each not in left:
            continue
        begin, end = unread[each]
        is_message = not message.error() and message.offset() < end
        if each not in found:
            at = message.timestamp()[1] / 1000 if is_message else None
            found[each] = NextMessage(at, None if is_message else end)
        compared = min(message.offset() + is_message, end) - begin
        found[each] = replace(found[each], offsets=compared, messages=found[each].messages + is_message)
        if compared == end - begin:
            left.discard(each)
    consumer.unassign()
    until = time.monotonic() + UNREAD_S
    return {each: found.get(each, NextMessage(None, until=until)) for each in unread}
