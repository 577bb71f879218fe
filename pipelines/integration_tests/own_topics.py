"""Topics of an ephemeral environment on a broker: creates and deletes them, and writes messages.

Only topics are touched whose names begin with the name of the environment. The client library is an optional
dependency, imported when a cluster is first used.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any

from core.model.errors import HeadgateError, Refused
from core.sql.kafka_topics import topic_place
from pipelines.storage.kafka_clients import ANSWER_S, KafkaClients, NotAllowed, connect

GONE_S = 60.0
"""Longest time, in seconds, until brokers no longer list deleted topics, or list created ones."""

SENT_S = 15.0
"""Longest time, in seconds, until a broker takes messages."""

MOST_MESSAGES = 5_000_000
"""Number of messages that may wait in the client library until brokers take them."""

_POLL_S = 0.05

_CONFIG = {
    "cleanup.policy": "delete",
    # Times in cases may be long ago or in the future.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
_FUTURE = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Brokers since 3.6 refuse messages from the future by default; older ones do not know the setting."""

_library_log = logging.getLogger("rdkafka")

Message = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None]
"""Key, value, headers, and timestamp in epoch milliseconds."""

Partition = tuple[str, int]
"""Topic and number of a partition."""


def existing_topics(locations: Iterable[str], prefix: str) -> list[str]:
    """Return the topics whose names begin with a prefix, in the clusters of these locations.

    Raises Refused if the client library is missing, or if a cluster does not answer or refuses the credentials.
    """
    found: set[str] = set()
    for location in locations:
        with _clients(location) as clients:
            found |= _listed(clients, prefix)
    return sorted(found)


def partition_counts(locations: Iterable[str]) -> list[tuple[str, str, int]]:
    """Return the number of partitions of each topic of these locations that exists, as (location, topic, number).

    Raises the errors of `existing_topics`.
    """
    found: list[tuple[str, str, int]] = []
    for location in locations:
        with _clients(location) as clients:
            every = _metadata(clients)
        topics = (each for each in topic_place(location).topics if each in every)
        found += [(location, topic, len(every[topic].partitions)) for topic in topics]
    return found


def create_topics(locations: Iterable[str], partitions: Mapping[str, int]) -> None:
    """Create all topics of these locations that do not exist, and wait until they answer.

    A topic has as many partitions as `partitions` says, or one: a partition more would make the order of rows
    undefined. Raises the errors of `existing_topics`.
    """
    for location in locations:
        topics = topic_place(location).topics
        with _clients(location) as clients:
            for topic in topics:
                _create(clients, topic, partitions.get(topic, 1))
            _until_led(clients, topics)


def delete_topics(locations: Iterable[str], prefix: str) -> list[str]:
    """Delete the topics of these locations whose names have the prefix; return all with the prefix that are left.

    Raises the errors of `existing_topics`.
    """
    every, left = tuple(locations), set[str]()
    for location in every:
        own = [topic for topic in topic_place(location).topics if topic.startswith(prefix)]
        with _clients(location) as clients:
            for done in clients.admin.delete_topics(own, operation_timeout=ANSWER_S).values() if own else ():
                _answer(clients, done)
    for location in every:
        with _clients(location) as clients:
            # Brokers learn of a deletion one after the other.
            ends_at = time.monotonic() + GONE_S
            while (there := _listed(clients, prefix)) and time.monotonic() < ends_at:
                time.sleep(_POLL_S)
            left |= there
    return sorted(left)


def write_messages(location: str, messages: Sequence[Message]) -> None:
    """Append messages to the first partition of the first topic of a location, in their order.

    They appear at once if they fit into one batch of the client library, which is 1 MB. Raises HeadgateError if a
    broker does not take one.
    """
    topic = topic_place(location).topics[0]
    with closing(OpenTopics(location)) as topics:
        topics.write(((topic, each) for each in messages), partition=0)


class OpenTopics:
    """A connection to the topics of a location, for many reads and writes. Not thread-safe."""

    def __init__(self, location: str) -> None:
        """Set up a client, which connects at its first request. Raises the errors of `kafka_clients.connect`."""
        _require_library()
        from confluent_kafka import Producer

        clients = self._clients = connect(topic_place(location))
        self._failures: list[str] = []
        self._partitions: list[Partition] = []
        reading = ("enable.auto.commit", "session.timeout.ms")
        settings = {name: value for name, value in clients.settings.items() if name not in reading}
        settings |= {"linger.ms": 1_000, "batch.num.messages": 100_000, "enable.idempotence": True}
        settings |= {"message.timeout.ms": int(SENT_S * 1000), "delivery.report.only.error": True}
        # Keys are distributed as Kafka's Java client does, and each message without a key goes to any partition.
        settings |= {"partitioner": "murmur2_random", "sticky.partitioning.linger.ms": 0}
        settings |= {"queue.buffering.max.messages": MOST_MESSAGES, "on_delivery": self._delivered}
        self._producer = Producer(settings, logger=_library_log)

    def write(self, messages: Iterable[tuple[str, Message]], *, partition: int = -1) -> None:
        """Append messages to topics, and wait until brokers have all of them.

        `partition` is that of all messages; by default, it follows from the key. Raises HeadgateError if a broker does
        not take one.
        """
        from confluent_kafka import KafkaException

        self._failures.clear()
        try:
            for topic, (key, value, headers, at) in messages:
                dated = {} if at is None else {"timestamp": at}
                given = {} if headers is None else {"headers": headers}
                self._producer.produce(topic, key=key, value=value, partition=partition, **dated, **given)
            if self._producer.flush(SENT_S + 1):
                self._failures.append("no answer in time")
        except (KafkaException, BufferError) as error:
            self._failures.append(str(error.args[0].str()) if isinstance(error, KafkaException) else str(error))
        if self._failures:
            raise HeadgateError(f"{self._clients.place.servers} does not take rows: {self._failures[0]}")

    def ends(self, before_ms: int | None = None) -> dict[Partition, int]:
        """Return the offset after the last message of each partition or, if given, of the last one before a time.

        The times of messages must not decrease. Raises the errors of `KafkaClients.answer`.
        """
        from confluent_kafka.admin import OffsetSpec

        # The ends first: what is written between the two requests does not count if it is not before the time.
        ends = self._offsets(OffsetSpec.latest())
        since = self._offsets(OffsetSpec.for_timestamp(before_ms)) if before_ms is not None else {}
        return {each: since[each] if since.get(each, -1) >= 0 else end for each, end in ends.items()}

    def times(self, places: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the timestamp of the message at an offset of each partition, in epoch milliseconds.

        A message that does not arrive in time is left out.
        """
        from confluent_kafka import TopicPartition

        consumer, found = self._clients.consumer, dict[Partition, int]()
        consumer.assign([TopicPartition(*each, offset) for each, offset in places.items()])
        ends_at = time.monotonic() + ANSWER_S
        while len(found) < len(places) and time.monotonic() < ends_at:
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                found.setdefault((message.topic(), message.partition()), message.timestamp()[1])
        return found

    def close(self) -> None:
        """End the connection."""
        self._clients.consumer.close()

    def _offsets(self, spec: Any) -> dict[Partition, int]:
        from confluent_kafka import TopicPartition

        if not self._partitions:
            listed = _metadata(self._clients)
            self._partitions = [
                (topic, each) for topic in self._clients.place.topics for each in listed[topic].partitions
            ]
        asked = {TopicPartition(*each): spec for each in self._partitions}
        answers = self._clients.admin.list_offsets(asked, request_timeout=ANSWER_S)
        found = {(at.topic, at.partition): self._clients.answer(answer) for at, answer in answers.items()}
        return {each: result.offset for each, result in found.items() if result is not None}

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(str(error.str()))


def _create(clients: KafkaClients, topic: str, partitions: int) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    for config in (_CONFIG | _FUTURE, _CONFIG):
        (done,) = clients.admin.create_topics(
            [NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=config)],
            operation_timeout=ANSWER_S,
        ).values()
        try:
            done.result(ANSWER_S + 1)
            return
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code == KafkaError.INVALID_CONFIG and config != _CONFIG:
                continue
        except TimeoutError:
            pass
        _answer(clients, done)


def _until_led(clients: KafkaClients, topics: Iterable[str]) -> None:
    """Wait until every partition has a leader, which brokers learn one after the other."""
    ends_at = time.monotonic() + GONE_S
    while not all(_has_leader(clients, topic) for topic in topics):
        if time.monotonic() > ends_at:
            raise clients.silent("topics that were created have no leader")
        time.sleep(_POLL_S)


def _has_leader(clients: KafkaClients, topic: str) -> bool:
    found = _metadata(clients).get(topic)
    return found is not None and not found.error and all(each.leader >= 0 for each in found.partitions.values())


def _listed(clients: KafkaClients, prefix: str) -> set[str]:
    return {topic for topic in _metadata(clients) if topic.startswith(prefix)}


def _metadata(clients: KafkaClients) -> Mapping[str, Any]:
    """Return all topics by name. This never makes a broker create one."""
    from confluent_kafka import KafkaException

    # Requests about single topics can answer for a minute that one which was just created is unknown, because the
    # client keeps an earlier answer (librdkafka 2.16, on a busy machine).
    clients.forget_failure()
    try:
        topics: Mapping[str, Any] = clients.admin.list_topics(timeout=ANSWER_S).topics
    except KafkaException as error:
        _refuse(clients, error)
        raise
    return topics


def _answer(clients: KafkaClients, future: Any) -> None:
    try:
        clients.answer(future)
    except NotAllowed as error:
        user = dict(clients.place.settings).get("sasl.username", "anonymous users")
        remedy = f"allow Create, Delete, Describe, Read and Write on topics with the prefix it_ to {user}"
        raise Refused(error.summary, remedy=remedy) from error


def _refuse(clients: KafkaClients, error: Exception) -> None:
    """Raise why a list of topics failed, as `KafkaClients.answer` does."""
    from concurrent.futures import Future

    failed: Future[Any] = Future()
    failed.set_exception(error)
    clients.answer(failed)


@contextmanager
def _clients(location: str) -> Iterator[KafkaClients]:
    """Yield clients of a cluster. A cluster that does not answer is refused, because nothing can be waited for."""
    _require_library()
    clients = connect(topic_place(location))
    try:
        yield clients
    except Refused:
        raise
    except HeadgateError as error:
        raise Refused(error.summary, remedy=error.remedy) from error
    finally:
        clients.consumer.close()


def _require_library() -> None:
    if find_spec("confluent_kafka") is None:
        remedy = "pip install 'headgate[kafka]'"
        raise Refused("the package confluent-kafka, which creates Kafka topics, is not installed", remedy=remedy)


def parsed_messages(rows: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return rows with the columns of `core.integration_tests.given_messages.MESSAGE` as messages."""
    return [
        (
            row["key"],
            row["value"],
            None if row["headers"] is None else [(each["key"], each["value"]) for each in row["headers"]],
            row["at"],
        )
        for row in rows
    ]
