"""Clients of a Kafka cluster. Secrets are read when the clients are created, and are stored nowhere else.

The client library is an optional dependency and is imported when a cluster is first measured.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from core.model.errors import HeadgateError, Refused, TryAgain
from core.model.names import whole_number
from core.model.secret_references import SecretKind
from core.observed.time_left import TopicSettings
from core.sql.kafka_security import library_settings, reference
from core.sql.kafka_topics import TopicPlace
from core.text.sentence import Fact, FactKind

ANSWER_S = 3.0
"""Longest wait for a broker's answer, in seconds."""

# While no broker answers, the client library logs a line for each connection attempt; Headgate raises and records the
# error once.
_library_log = logging.getLogger("rdkafka")
_library_log.disabled = True
_AROUND = re.compile(r"^\w+://\S+: |(?: error)?: Authentication failed(?=:)| \(after \d+ms in state \w+\)$")
"""Text that the client library adds to a broker's reason: address, repetition and time."""
_OWN_REFUSED = re.compile(r"alert (?P<why>[a-z ]+): SSL alert number (?:4[2-8]|116)$")
"""TLS alerts about the client's certificate, which a broker may send after the handshake (RFC 8446, 6.2)."""


_Failure = tuple[int, str]
"""Error code and message of the client library, for a connection that failed."""


class GroupFault(FactKind):
    """Why the offsets of a statement could not be committed to a consumer group."""

    IN_USE = (
        "consumer group {group} has live members, which commit their own offsets",
        "name another group in mirror_offsets, or stop them",
    )
    NOT_ALLOWED = (
        "{servers} does not allow {user} to commit offsets of consumer group {group}",
        "allow Read on the group and on the topics",
    )
    REFUSED = "{servers} does not take the offsets of consumer group {group} now: {why}", "it is tried again"
    NO_ANSWER = "consumer group {group} cannot be reached: {why}", "it is tried again"


class NoAnswer(TryAgain):
    """Raised if no broker of a cluster answers."""


class NotAllowed(Refused):
    """Raised if, according to a broker, the user may not read a topic."""


@dataclass(slots=True)
class KafkaClients:
    """The clients of a cluster, and the reason for the last failed connection."""

    place: TopicPlace
    """The cluster. The topics in this value are not used."""
    admin: Any = None
    consumer: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings with which the client library connects to the cluster, including secrets."""
    failure: _Failure | None = field(default=None)
    """The last failure of a request to brokers."""

    def answer(self, future: "Future[Any]") -> Any:
        """Return the result of a request; None if the requested topic or partition does not exist.

        Raises Refused if a broker rejects the credentials or the user, NoAnswer if no broker answers within about
        ANSWER_S seconds, and TryAgain if a broker reports another error.
        """
        from confluent_kafka import KafkaError, KafkaException

        ends_at = time.monotonic() + ANSWER_S + 1
        while True:
            try:
                return future.result(0.2)
            except KafkaException as error:
                code, reason = error.args[0].code(), error.args[0].str()
                if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
                    return None
                if code in (
                    KafkaError.TOPIC_AUTHORIZATION_FAILED,
                    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                    KafkaError.GROUP_AUTHORIZATION_FAILED,
                ):
                    raise self._not_allowed(reason) from error
                self._refuse_login(error)
                if code not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                    summary = f"a broker of {self.place.servers} refuses: {reason}"
                    raise TryAgain(summary, remedy="try again in a moment") from error
                raise self.silent(self.failure[1] if self.failure else reason) from error
            except TimeoutError as error:
                self._refuse_login(error)
                if time.monotonic() > ends_at:
                    raise self.silent("no answer in time") from error

    def settings_of(self, topics: Iterable[str]) -> dict[str, TopicSettings | HeadgateError]:
        """Return the retention of existing topics, or why a broker hides it. Raises the errors of `answer`."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, TopicSettings | HeadgateError] = {}
        # The client library refuses an empty list.
        answers = self.admin.describe_configs(asked, request_timeout=ANSWER_S) if asked else {}
        for resource, answer in answers.items():
            try:
                if settings := self.answer(answer):
                    values = {name: entry.value for name, entry in settings.items()}
                    found[resource.name] = _retention(resource.name, self.place.servers, values)
            except NotAllowed as error:
                found[resource.name] = error
        return found

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> Fact[GroupFault] | None:
        """Commit offsets to a consumer group, by topic and partition; return why a broker did not accept them.

        Takes at most about 6 s. Several threads may commit to different groups at once. The commit is made by a
        consumer without a subscription, because a request of librdkafka's admin client aborts the process if the broker
        dies meanwhile (assertion in `rdkafka_queue.h`).
        """
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        user, failures = dict(self.place.settings).get("sasl.username", "anonymous users"), list[_Failure]()

        def note(error: Any) -> None:
            failures.extend(_failures(error))

        consumer = Consumer({**self.settings, "group.id": group, "error_cb": note}, logger=_library_log)
        try:
            asked = [TopicPartition(*each, at) for each, at in offsets.items()]
            done = consumer.commit(offsets=asked, asynchronous=False)
            errors = {each.error.code(): str(each.error.str()) for each in done if each.error}
        except KafkaException as error:
            errors = {error.args[0].code(): str(error.args[0].str())}
            # Only `poll` returns the library's connection errors; it returns the error of a forbidden group as a
            # message.
            found = consumer.poll(0)
            if found is not None and found.error():
                note(found.error())
        finally:
            consumer.close()
        if not errors:
            return None
        if KafkaError.UNKNOWN_MEMBER_ID in errors:
            return GroupFault.IN_USE.of(group=group)
        failure = failures[-1] if failures else None
        denied = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
        if denied & {*errors, failure[0] if failure else None}:
            return GroupFault.NOT_ALLOWED.of(servers=self.place.servers, user=user, group=group)
        why = next(iter(errors.values()))
        silence = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD}
        if not silence & errors.keys():
            return GroupFault.REFUSED.of(servers=self.place.servers, group=group, why=why)
        silent = self._login_refusal(failure) or self.silent(failure[1] if failure else why)
        return GroupFault.NO_ANSWER.of(group=group, why=silent.summary)

    def silent(self, why: str) -> HeadgateError:
        """Return the error for a cluster whose brokers do not answer."""
        summary = f"no broker of {self.place.servers} answers: {why}"
        return NoAnswer(summary, remedy="check that Kafka runs and can be reached")

    def _not_allowed(self, reason: str) -> HeadgateError:
        given = dict(self.place.settings)
        own = given.get("ssl.keystore.location")
        user = given.get("sasl.username") or (f"the subject of {own}" if own else "anonymous users")
        remedy = f"allow Describe and Read on the topics to {user}"
        return NotAllowed(f"{self.place.servers} does not allow this: {reason}", remedy=remedy)

    def forget_failure(self) -> None:
        """Forget the reason for the last failed connection. Call this before a request."""
        self.admin.poll(0)
        self.failure = None

    def _refuse_login(self, because: BaseException) -> None:
        """Raise Refused if a connection has failed because of credentials or certificates."""
        # Only `poll` returns the library's connection errors.
        self.admin.poll(0)
        if refused := self._login_refusal(self.failure):
            raise refused from because

    def _login_refusal(self, failure: _Failure | None) -> Refused | None:
        """Return the error for a connection that failed because of credentials or certificates; None for others."""
        from confluent_kafka import KafkaError

        if failure is None:
            return None
        code, why = failure
        if code == KafkaError._AUTHENTICATION:
            summary = f"{self.place.servers} refuses the credentials of the topics' table: {why}"
            remedy = "correct what kafka.sasl.password refers to, or the user and mechanism in OPTIONS, and start again"
            return Refused(summary, remedy=remedy)
        if own := _OWN_REFUSED.search(why):
            remedy = "set kafka.ssl.keystore.location to a PEM file with a key and a certificate that the broker trusts"
            return Refused(f"{self.place.servers} refuses the client certificate: {own['why']}", remedy=remedy)
        if code == KafkaError._SSL:
            remedy = "check kafka.ssl.truststore.location: a PEM file of the authority that signed the broker's"
            return Refused(f"TLS with {self.place.servers} fails: {why}", remedy=remedy)
        return None

    def note(self, error: Any) -> None:
        """Keep the reason for a failed connection, unless it is merely that all brokers are down."""
        for failure in _failures(error):
            self.failure = failure


def _failures(error: Any) -> tuple[_Failure, ...]:
    """Return the code and reason of a client library error; empty if the error is merely that all brokers are down."""
    from confluent_kafka import KafkaError

    is_reason = error.code() != KafkaError._ALL_BROKERS_DOWN
    return ((error.code(), _AROUND.sub("", _AROUND.sub("", error.str()))),) if is_reason else ()


def _retention(topic: str, servers: str, values: Mapping[str, str]) -> TopicSettings:
    age_ms, size = (whole_number(values.get(f"retention.{unit}") or "") for unit in ("ms", "bytes"))
    return TopicSettings(
        topic,
        servers,
        deletes="delete" in values.get("cleanup.policy", "delete"),
        kept_s=None if age_ms is None else age_ms / 1000,
        kept=size,
    )


def connect(place: TopicPlace) -> KafkaClients:
    """Create clients of the cluster that contains these topics. They connect at their first request.

    Raises Refused if the client library is not installed, or if a secret or a certificate cannot be read.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise Refused(
            "the lag behind Kafka topics is unknown: the package confluent-kafka is not installed",
            remedy="pip install 'headgate[kafka]', then headgate down --keep-pool and headgate up",
        ) from error
    clients = KafkaClients(place)
    settings = library_settings(dict(place.settings), resolved)
    isolation = settings.pop("isolation.level", "read_uncommitted")
    conf: dict[str, Any] = {"bootstrap.servers": place.servers, "socket.timeout.ms": int(ANSWER_S * 1000), **settings}
    # A commit waits for the group's coordinator for up to the session timeout, for which brokers allow 6 s or more.
    clients.settings = {**conf, "enable.auto.commit": False, "session.timeout.ms": 6_000}
    reading = {"group.id": "headgate", "enable.auto.commit": False, "auto.offset.reset": "error"}
    # The isolation level is Spark's, and the end of a partition is an event, so that no read waits for messages beyond
    # it.
    reading |= {
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "fetch.message.max.bytes": 65_536,
    }
    made: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (AdminClient, {"error_cb": clients.note}),
        (Consumer, reading),
    ]
    try:
        clients.admin, clients.consumer = (of({**conf, **more}, logger=_library_log) for of, more in made)
    except KafkaException as error:
        why = str(error.args[0].str()).removeprefix("Failed to create admin client: ")
        remedy = "check the files that kafka.ssl.* name in OPTIONS, and what kafka.ssl.key.password refers to"
        raise Refused(f"the client of {place.servers} cannot be set up: {why}", remedy=remedy) from error
    return clients


def resolved(value: str, *, for_java: bool = True) -> str:
    """Return `value`, or the secret that it refers to.

    Raises Refused if there is no such secret, or if `for_java` is true and Kafka's Java client cannot use the secret.
    """
    if (found := reference(value)) is None:
        return value
    if found.kind == SecretKind.VARIABLE:
        if not (secret := os.environ.get(found.of)):
            remedy = "set it where the agent and the pool are started, and start both again"
            raise Refused(f"the environment variable {found.of}, which OPTIONS refer to, is not set", remedy=remedy)
    else:
        try:
            with open(found.of, encoding="utf-8") as file:
                secret = file.read()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            remedy = "have it readable where the agent and the pool run"
            raise Refused(f"the secret in {found.of} cannot be read: {why}", remedy=remedy) from error
    # Kafka's Java client reads the whole file, and inserts the secret between quotes.
    if not secret or (for_java and re.search(r"[\r\n\"\\]", secret)):
        what = "is empty, or has a quote, a backslash or a line break, which Kafka's Java client cannot take"
        raise Refused(f"the secret in {found.of} {what}", remedy="write it without: printf %s SECRET > FILE")
    return secret
