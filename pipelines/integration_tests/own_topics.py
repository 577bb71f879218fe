"""Topics of an ephemeral environment on a broker: creates and deletes them, and writes messages.

Only topics are touched whose names begin with the name of the environment. The client library is an optional
dependency, imported when a cluster is first used.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from core.model.errors import HeadgateError, Refused
from core.sql.kafka_topics import topic_place
from pipelines.storage.kafka_clients import ANSWER_S, KafkaClients, NotAllowed, connect

GONE_S = 60.0
"""Longest time, in seconds, until brokers no longer list deleted topics, or list created ones."""

SENT_S = 15.0
"""Longest time, in seconds, until a broker takes messages."""

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


def existing_topics(locations: Iterable[str], prefix: str) -> list[str]:
    """Return the topics whose names begin with a prefix, in the clusters of these locations.

    Raises Refused if the client library is missing, or if a cluster does not answer or refuses the credentials.
    """
    found: set[str] = set()
    for location in locations:
        with _clients(location) as clients:
            found |= _listed(clients, prefix)
    return sorted(found)


def create_topics(locations: Iterable[str]) -> None:
    """Create all topics of these locations that do not exist, each with one partition, and wait until they answer.

    A partition more would make the order of rows undefined. Raises the errors of `existing_topics`.
    """
    for location in locations:
        topics = topic_place(location).topics
        with _clients(location) as clients:
            for topic in topics:
                _create(clients, topic)
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
    """Append messages to the first topic of a location, in their order.

    They appear at once if they fit into one batch of the client library, which is 1 MB. Raises HeadgateError if a
    broker does not take one.
    """
    from confluent_kafka import KafkaException, Producer

    topic = topic_place(location).topics[0]
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error.str()))

    with _clients(location) as clients:
        reading = ("enable.auto.commit", "session.timeout.ms")
        settings = {name: value for name, value in clients.settings.items() if name not in reading}
        settings |= {"linger.ms": 1_000, "batch.num.messages": 100_000, "enable.idempotence": True}
        settings |= {"message.timeout.ms": int(SENT_S * 1000)}
        producer = Producer(settings, logger=_library_log)
        try:
            for key, value, headers, at in messages:
                dated = {} if at is None else {"timestamp": at}
                given = {} if headers is None else {"headers": headers}
                producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered, **dated, **given)
            if producer.flush(SENT_S + 1):
                failures.append("no answer in time")
        except KafkaException as error:
            failures.append(str(error.args[0].str()))
    if failures:
        raise HeadgateError(f"{topic_place(location).servers} does not take rows of a case: {failures[0]}")


def _create(clients: KafkaClients, topic: str) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    for config in (_CONFIG | _FUTURE, _CONFIG):
        (done,) = clients.admin.create_topics(
            [NewTopic(topic, num_partitions=1, replication_factor=-1, config=config)], operation_timeout=ANSWER_S
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
    if find_spec("confluent_kafka") is None:
        remedy = "pip install 'headgate[kafka]'"
        raise Refused("the package confluent-kafka, which creates Kafka topics, is not installed", remedy=remedy)
    clients = connect(topic_place(location))
    try:
        yield clients
    except Refused:
        raise
    except HeadgateError as error:
        raise Refused(error.summary, remedy=error.remedy) from error
    finally:
        clients.consumer.close()


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
