"""Reads the newest messages of Kafka topics for people to look at, without committing offsets."""

import time
from typing import Any

from core.sql.kafka_topics import topic_place
from pipelines.storage.kafka_clients import ANSWER_S, KafkaClients, connect

MESSAGE_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", "_value")
"""The columns of `newest_messages`, called as in the DDL of a table over topics."""


def newest_messages(location: str, limit: int) -> list[tuple[Any, ...]]:
    """Return at most `limit` of the newest messages of a location's topics, newest first.

    Times are epoch milliseconds. Bytes that are not UTF-8 are returned as `0x…`, and a message without a key or a value
    has None there. Raises the same errors as `KafkaOffsets.lag`, and returns fewer messages if a broker is slow.
    """
    clients = connect(topic_place(location))
    try:
        return sorted(_read(clients, _begins(clients, limit)), key=lambda row: (row[3], row[2]), reverse=True)[:limit]
    finally:
        clients.consumer.close()


def _begins(clients: KafkaClients, limit: int) -> dict[tuple[str, int], int]:
    """Return, for each partition with messages, the offset `limit` before its end, or its earliest if that is later."""
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


def _read(clients: KafkaClients, begins: dict[tuple[str, int], int]) -> list[tuple[Any, ...]]:
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
        shown = (_text(message.key()), headers, _text(message.value()))
        rows.append((*each, message.offset(), message.timestamp()[1], *shown))
    return rows


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
