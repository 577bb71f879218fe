"""A Kafka broker for tests: the demo's broker with security, and a client that writes messages and manages topics."""

import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from live_project import until
from pool_jars import CACHE

from core.model.errors import HeadgateError
from pipelines.demo.servers import KAFKA, Artifact, KafkaBroker, java_program, resolved_jars
from pipelines.local_pool.detached_servers import free_port

QUIET = logging.getLogger("kafka broker")
"""Receives the messages that the client library would otherwise write to stderr while a broker is down."""
QUIET.disabled = True

USER, PASSWORD = "headgate", "a secret of tests"
"""The user of the listeners with SASL."""


class Broker(KafkaBroker):
    """The demo's broker with its data in `folder`; it can be killed and started again.

    It has a listener without authentication, and three others: `sasl` with SASL (PLAIN, SCRAM), `tls` with SASL over
    TLS, and `mutual` with TLS only, for clients that present the certificate in `client`.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(folder, free_port(), free_port(), jars_of(KAFKA))
        self._sasl, self._tls, self._mutual = (free_port() for _ in range(3))
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {**self._secured(), **dict(each.split("=", 1) for each in settings)}
        self.prepare()

    def properties(self) -> dict[str, str]:
        usual = super().properties()
        ports = {"SASL": self._sasl, "TLS": self._tls, "MUTUAL": self._mutual}
        return {
            **usual,
            "listeners": ",".join([usual["listeners"], *(f"{name}://127.0.0.1:{at}" for name, at in ports.items())]),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL,MUTUAL:SSL,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "true",
            **self._settings,
        }  # fmt: skip

    def formatted(self) -> tuple[str, ...]:
        users = (f"SCRAM-SHA-{n}=[name={USER},password={PASSWORD}]" for n in (256, 512))
        return tuple(word for user in users for word in ("--add-scram", user))

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def sasl(self) -> str:
        return f"127.0.0.1:{self._sasl}"

    @property
    def tls(self) -> str:
        return f"127.0.0.1:{self._tls}"

    @property
    def mutual(self) -> str:
        return f"127.0.0.1:{self._mutual}"

    @property
    def authority(self) -> Path:
        """The certificate that clients of `tls` and `mutual` must trust, as PEM."""
        return self.folder / "authority.pem"

    @property
    def client(self) -> Path:
        """A certificate for CN=reader with its key, encrypted with `PASSWORD`, as PEM."""
        return self.folder / "client.pem"

    def change_password(self, password: str) -> None:
        """Replace the password of the user for SCRAM-SHA-512."""
        given = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        for done in self.admin.alter_user_scram_credentials([given]).values():
            done.result(30)

    def deny(self, name: str, kind: ResourceType = ResourceType.TOPIC) -> None:
        """Forbid the user everything on a topic, or on a resource of another kind."""
        rule = (f"User:{USER}", "*", AclOperation.ALL, AclPermissionType.DENY)
        acl = AclBinding(kind, name, ResourcePatternType.LITERAL, *rule)
        for done in self.admin.create_acls([acl]).values():
            done.result(30)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers}, logger=QUIET)

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        self._process = process = self.spawn()

        def answers() -> bool:
            assert process.poll() is None, self.last_words()
            return self.answers()

        until(answers, 60, "the broker answers")

    def kill(self) -> None:
        """Kill the broker; its data is kept."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def create(self, topic: str, partitions: int = 2, **config: str) -> None:
        """Create a topic, and wait until every partition answers; before that, it is "not led" for a moment."""
        for done in self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            done.result(30)
        until(lambda: self._partitions(topic) == partitions and self._answers(topic), 30, f"{topic} answers")

    def add_partitions(self, topic: str, total: int) -> None:
        """Increase the number of a topic's partitions to `total`."""
        for done in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            done.result(30)
        until(lambda: self._partitions(topic) == total and self._answers(topic), 30, f"{total} partitions answer")

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        for done in self.admin.delete_topics([topic]).values():
            done.result(30)
        until(lambda: not self._partitions(topic), 30, f"{topic} is gone")

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the messages before an offset of each partition, as retention would."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for done in self.admin.delete_records(places).values():
            done.result(30)

    def messages(self, topic: str) -> list[Message]:
        """Return all messages of a topic."""
        reader = {"group.id": "messages", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
        consumer, found = Consumer({"bootstrap.servers": self.servers, **reader}, logger=QUIET), []
        left = set(range(self._partitions(topic)))
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        while left:
            for message in consumer.consume(10_000, 1.0):
                if not message.error():
                    found.append(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        consumer.close()
        return found

    def size(self, topic: str) -> int:
        """Return the number of messages that were ever written to a topic."""
        asked = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(self._partitions(topic))}
        return sum(done.result(30).offset for done in self.admin.list_offsets(asked).values())

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets of a consumer group, by topic and partition."""
        (found,) = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return {(each.topic, each.partition): each.offset for each in found.result(30).topic_partitions}

    @contextmanager
    def consuming(self, group: str, topic: str) -> Iterator[None]:
        """Run a consumer that is a member of a group throughout the block."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group}, logger=QUIET)
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), 30, "the consumer has partitions")
        try:
            yield
        finally:
            consumer.close()

    def produce(
        self,
        topic: str,
        values: Sequence[str | bytes | None],
        *,
        partition: int | None = None,
        transaction: str = "",
        at: float | None = None,
    ) -> None:
        """Write messages with their position as key, round robin over two partitions unless `partition` is given.

        With `transaction`, the id of a transactional producer, all messages are in one transaction. `at`, in epoch
        seconds, is their timestamp.
        """
        dated = {} if at is None else {"timestamp": int(at * 1000)}
        of_transaction = {"transactional.id": transaction} if transaction else {}
        producer = Producer({"bootstrap.servers": self.servers, **of_transaction}, logger=QUIET)
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for n, value in enumerate(values):
            to = n % 2 if partition is None else partition
            producer.produce(topic, key=str(n), value=value, partition=to, **dated)
            producer.poll(0)
        if transaction:
            producer.commit_transaction(30)
        assert producer.flush(30) == 0

    def _secured(self) -> dict[str, str]:
        store, pair = self.folder / "broker.p12", ("-alias", "broker", "-storepass", PASSWORD)
        keytool = [str(Path(java_program()).with_name("keytool")), "-keystore", str(store), *pair]
        made = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=test", "-ext", "san=ip:127.0.0.1", "-ext", "bc=ca:true"]
        for command in (made, ["-exportcert", "-rfc", "-file", str(self.authority)]):
            subprocess.run([*keytool, *command], check=True, capture_output=True, timeout=60)
        trusted = self.folder / "trusted.pem"
        certificate(trusted, self.client)
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        settings = {"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}
        mutual = {"client.auth": "required", "truststore.type": "PEM", "truststore.location": str(trusted)}
        settings |= {f"listener.name.mutual.ssl.{name}": value for name, value in mutual.items()}
        for prefix in ("listener.name.sasl", "listener.name.tls"):
            settings[f"{prefix}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
            settings[f"{prefix}.plain.sasl.jaas.config"] = f'{plain} required user_{USER}="{PASSWORD}";'
            settings |= {f"{prefix}.scram-sha-{n}.sasl.jaas.config": f"{scram} required;" for n in (256, 512)}
        return settings

    def _answers(self, topic: str) -> bool:
        try:
            return self.size(topic) >= 0
        except KafkaException:
            return False

    def _partitions(self, topic: str) -> int:
        found = self.admin.list_topics(topic, timeout=10).topics.get(topic)
        return len(found.partitions) if found and not found.error else 0


def certificate(public: Path, client: Path) -> None:
    """Write a self-signed certificate to `public`, and the certificate with its encrypted key to `client`.

    The key is encrypted with `PASSWORD`, but not with AES, because Kafka's Java client cannot read such keys
    (kafka-clients 3.9.2, Java 17).
    """
    made = ["openssl", "req", "-x509", "-subj", "/CN=reader", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-noenc", "-keyout", str(client), "-out", str(public)]
    locked = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", str(client), "-passout", f"pass:{PASSWORD}"]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    key = subprocess.run(locked, check=True, capture_output=True, timeout=60, text=True).stdout
    client.write_text(key + public.read_text())


@contextmanager
def running_broker(folder: Path, *settings: str) -> Iterator[Broker]:
    """Yield a running broker with these settings, and kill it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    broker = Broker(folder, *settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def jars_of(artifact: Artifact) -> Path:
    """Return the folder with an artifact and its dependencies; skip the test if they cannot be downloaded."""
    try:
        return resolved_jars(artifact, CACHE)
    except HeadgateError as error:
        pytest.skip(str(error))
