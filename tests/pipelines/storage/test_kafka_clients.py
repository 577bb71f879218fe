"""Connections to a real broker with SASL and TLS: secrets by reference, and messages when a broker refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType
from kafka_broker import PASSWORD, USER, Broker, certificate
from live_project import until

from core.model.errors import HeadgateError, Refused
from core.model.names import TableName
from core.sql.kafka_topics import kafka_location, topic_place
from pipelines.storage import kafka_offsets
from pipelines.storage.kafka_clients import GroupFault, connect
from pipelines.storage.kafka_offsets import KafkaOffsets

pytestmark = pytest.mark.spark
TABLE = TableName("orders")
ROOT = Path(__file__).parents[3]
BY_NAME = "${env:KAFKA_TEST_PASSWORD}"


@pytest.fixture(scope="module", autouse=True)
def topics(broker: Broker) -> None:
    for topic in ("guarded", "denied"):
        broker.create(topic)
    broker.produce("guarded", ["{}"] * 5)
    broker.deny("denied")


def place(servers: str, topic: str = "guarded", **options: str) -> str:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    login |= {"sasl.password": BY_NAME} | {name.replace("_", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    return kafka_location(given | {f"kafka.{name}": value for name, value in login.items()})


def tls(broker: Broker, **options: str) -> str:
    return place(broker.tls, security_protocol="SASL_SSL", ssl_truststore_location=str(broker.authority), **options)


def refusal(location: str, offsets: KafkaOffsets | None = None) -> HeadgateError:
    with pytest.raises(Refused) as raised:
        (offsets or KafkaOffsets()).lag(None, TABLE, location)
    assert raised.value.remedy and PASSWORD not in raised.value.sentence
    return raised.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_comes_from_the_environment_or_a_file(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", PASSWORD)
    (tmp_path / "password").write_text(PASSWORD)
    of_file = f"${{file:{tmp_path}/password}}"
    for location in (
        place(broker.sasl, sasl_mechanism=mechanism),
        place(broker.sasl, sasl_mechanism=mechanism, sasl_password=of_file),
        tls(broker, sasl_mechanism=mechanism),
    ):
        assert PASSWORD not in location
        assert KafkaOffsets().lag(None, TABLE, location).rows == 5


def test_refused_credentials_are_one_sentence_and_corrected_ones_are_read_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_offsets, "SILENT_S", 0.0)
    held, offsets = tmp_path / "password", KafkaOffsets(refresh_s=0)
    held.write_text("wrong")
    location = place(broker.sasl, sasl_mechanism="SCRAM-SHA-512", sasl_password=f"${{file:{held}}}")
    refused = refusal(location, offsets)
    assert refused.summary.startswith(f"{broker.sasl} refuses the credentials of the topics' table: "), refused
    assert "invalid credentials" in refused.summary and "\n" not in refused.sentence
    held.write_text(PASSWORD)
    assert offsets.lag(None, TABLE, location).rows == 5
    wrong = refusal(place(broker.sasl, sasl_password=f"${{file:{held}}}", sasl_username="nobody"))
    assert wrong.summary.endswith(": Invalid username or password"), wrong


def test_a_secret_that_cannot_be_read_is_named_but_not_shown(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_TEST_PASSWORD", raising=False)
    assert "variable KAFKA_TEST_PASSWORD, which OPTIONS refer to, is not set" in refusal(place(broker.sasl)).summary
    held = tmp_path / "password"
    location = place(broker.sasl, sasl_password=f"${{file:{held}}}")
    assert f"the secret in {held} cannot be read: No such file" in refusal(location).summary
    held.write_text(f"{PASSWORD}\n")
    assert f"the secret in {held} is empty, or has" in refusal(location).summary


def test_a_certificate_that_cannot_be_verified_or_read_is_named(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", PASSWORD)
    untrusted = refusal(place(broker.tls, security_protocol="SASL_SSL"))
    assert untrusted.summary.startswith(f"TLS with {broker.tls} fails: ") and "truststore" in untrusted.remedy
    absent = place(broker.tls, security_protocol="SASL_SSL", ssl_truststore_location=f"{tmp_path}/ca.pem")
    assert f"the client of {broker.tls} cannot be set up" in refusal(absent).summary


def mutual(broker: Broker, **options: str) -> str:
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": str(broker.authority)}
    given |= {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return kafka_location(given | {"kafka.bootstrap.servers": broker.mutual, "subscribe": "guarded"})


def test_a_client_certificate_is_shown_and_a_refused_one_is_named(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", PASSWORD)
    own = {"ssl_keystore_location": str(broker.client), "ssl_key_password": BY_NAME}
    assert KafkaOffsets().lag(None, TABLE, mutual(broker, **own)).rows == 5
    certificate(tmp_path / "public.pem", tmp_path / "other.pem")
    for wrong in (mutual(broker), mutual(broker, **own | {"ssl_keystore_location": f"{tmp_path}/other.pem"})):
        refused = refusal(wrong)
        assert refused.summary.startswith(f"{broker.mutual} refuses the client certificate: "), refused
        assert "kafka.ssl.keystore.location" in refused.remedy
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", "another")
    locked = refusal(mutual(broker, **own))
    assert f"the client of {broker.mutual} cannot be set up" in locked.summary
    assert "kafka.ssl.key.password" in locked.remedy


def test_a_topic_that_may_not_be_read_hides_no_other(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", PASSWORD)
    offsets = KafkaOffsets(refresh_s=0)

    def is_denied() -> bool:
        with pytest.raises(HeadgateError) as raised:
            offsets.lag(None, TABLE, place(broker.sasl, "denied"))
        return "does not allow" in raised.value.summary and USER in raised.value.remedy

    until(is_denied, 30, "the broker knows the rule")
    assert offsets.lag(None, TABLE, place(broker.sasl)).rows == 5


def test_offsets_of_a_group_are_committed_and_refusals_are_facts(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TEST_PASSWORD", PASSWORD)
    clients = connect(topic_place(place(broker.sasl)))
    offsets = {("guarded", 0): 2, ("guarded", 1): 1}

    def fault(group: str, of: dict[tuple[str, int], int]) -> object:
        found = clients.commit(group, of)
        return found and found.kind

    # A new group gets its coordinator at the first request.
    until(lambda: fault("mirror", offsets) is None, 30, "the offsets are committed")
    assert broker.committed("mirror") == offsets
    assert fault("mirror", {("denied", 0): 1}) is GroupFault.NOT_ALLOWED
    broker.deny("secret", ResourceType.GROUP)
    until(lambda: fault("secret", offsets) is GroupFault.NOT_ALLOWED, 30, "the rule is known")
    with broker.consuming("mirror", "guarded"):
        until(lambda: fault("mirror", offsets) is GroupFault.IN_USE, 30, "the consumer is a member")
    assert fault("mirror", {("absent", 0): 1}) is GroupFault.REFUSED


@pytest.mark.drill
def test_a_broker_that_dies_between_commits_is_silent_and_ends_no_process(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from kafka_broker import running_broker
from live_project import until
from core.sql.kafka_topics import TopicPlace
from pipelines.storage.kafka_clients import connect

with running_broker(Path(sys.argv[1])) as broker:
    broker.create("t")
    clients = connect(TopicPlace(broker.servers, ("t",)))
    # A new broker and a restarted one may need several requests until a group has its coordinator.
    until(lambda: clients.commit("g", {("t", 0): 0}) is None, 30, "the offsets are committed")
    broker.kill()
    for _ in range(3):
        print(clients.commit("g", {("t", 0): 0}))
    broker.start()
    until(lambda: clients.commit("g", {("t", 0): 0}) is None, 30, "the offsets are committed again")
"""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests/support")])
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 3 and all("answer" in line for line in said), said
