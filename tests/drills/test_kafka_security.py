"""Statements over topics of a broker with SASL and TLS: secrets by reference, kills, and errors after refusals."""

import io
import json
import os
import signal
import time
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest
from kafka_broker import PASSWORD, USER, Broker, certificate
from tiny_project import Tiny, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]
SECURED = """CREATE TABLE {name}_in (id BIGINT) USING kafka OPTIONS (
  'kafka.bootstrap.servers'='{servers}', subscribe='guarded_events', {options});"""
OF_FILE = """'kafka.security.protocol'='SASL_PLAINTEXT', 'kafka.sasl.mechanism'='SCRAM-SHA-512',
  'kafka.sasl.username'='{user}', 'kafka.sasl.password'='${{file:{held}}}'"""
OVER_TLS = """'kafka.security.protocol'='SASL_SSL', 'kafka.ssl.truststore.location'='{authority}',
  'kafka.sasl.mechanism'='{mechanism}', 'kafka.sasl.username'='{user}',
  'kafka.sasl.password'='${{env:KAFKA_TEST_PASSWORD}}'"""
MUTUAL = """'kafka.security.protocol'='SSL', 'kafka.ssl.truststore.location'='{authority}',
  'kafka.ssl.keystore.location'='{own}', 'kafka.ssl.key.password'='${{env:KAFKA_TEST_PASSWORD}}'"""
READERS = ("guarded", "over_tls", "hashed", "mutual")
OTHER = "another secret of tests"


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the password."""
    found = tmp_path_factory.mktemp("secrets") / "password"
    found.write_text(PASSWORD)
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Path:
    """The file with the certificate and the key of the client."""
    found = tmp_path_factory.mktemp("certificates") / "client.pem"
    found.write_text(broker.client.read_text())
    return found


@pytest.fixture(scope="module")
def tiny(on_topics: Tiny, broker: Broker, held: Path, own: Path) -> Tiny:
    broker.create("guarded_events")
    options = {"guarded": (broker.sasl, OF_FILE), "mutual": (broker.mutual, MUTUAL)}
    for name, mechanism in (("over_tls", "PLAIN"), ("hashed", "SCRAM-SHA-256")):
        options[name] = (broker.tls, OVER_TLS.replace("{mechanism}", mechanism))
    ddl, dml = {}, {}
    for name, (servers, more) in options.items():
        given = more.format(held=held, authority=broker.authority, user=USER, own=own)
        ddl[f"{name}_in"] = SECURED.format(name=name, servers=servers, options=given)
        ddl[name] = f"CREATE TABLE {name} (id BIGINT) USING parquet;"
        dml[name] = f"INSERT INTO {name} SELECT id FROM STREAM {name}_in;"
    on_topics.add(ddl, dml)
    return on_topics


def test_a_secret_reaches_the_brokers_and_no_file_of_ours(tiny: Tiny, broker: Broker) -> None:
    broker.produce("guarded_events", [json.dumps({"id": n}) for n in range(20)])
    done = tiny.apply(tiny.plan(*READERS))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in READERS:
        until(lambda name=name: tiny.ids(name, 1) == list(range(20)), 60, "the messages are rows")
        until(lambda name=name: tiny.statements()[name]["lag_rows"] == 0, 30, "the lag is known")
    files = [path for path in tiny.root.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


def test_an_expired_password_is_one_sentence_and_a_new_one_is_read_at_the_next_start(
    tiny: Tiny, broker: Broker, held: Path
) -> None:
    broker.change_password(OTHER)
    tiny.done("stop", "guarded", "--confirm", "yes")
    tiny.run("start", "guarded", "--confirm", "yes")
    until(lambda: tiny.statements()["guarded"]["state"] == "failed", 60, "the statement has failed")
    shown = tiny.done("show", "guarded")
    assert "HEADGATE_KAFKA_LOGIN  the Kafka brokers cannot be connected to: Authentication failed" in shown, shown
    assert "correct what kafka.sasl.password refers to" in shown
    held.write_text(OTHER)
    tiny.done("start", "guarded", "--confirm", "yes")
    broker.produce("guarded_events", [json.dumps({"id": n}) for n in range(20, 30)])
    until(lambda: tiny.ids("guarded", 1) == list(range(30)), 60, "later messages are rows")


def test_a_client_certificate_that_the_broker_does_not_trust_is_one_sentence(tiny: Tiny, own: Path) -> None:
    trusted = own.read_text()
    tiny.done("stop", "mutual", "--confirm", "yes")
    certificate(own.with_name("public.pem"), own)
    tiny.run("start", "mutual", "--confirm", "yes")
    until(lambda: tiny.statements()["mutual"]["state"] == "failed", 60, "the statement has failed")
    shown = tiny.done("show", "mutual")
    assert "HEADGATE_KAFKA_LOGIN  the Kafka brokers cannot be connected to: " in shown, shown
    assert "kafka.ssl.* in OPTIONS" in shown, shown
    own.write_text(trusted)
    tiny.done("start", "mutual", "--confirm", "yes")
    until(lambda: tiny.ids("mutual", 1) == list(range(30)), 60, "the statement reads on")


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
    ],
}
MANY = 100_000
"""Messages of the batch in whose middle the agent is killed."""


def orders(of: range) -> list[bytes]:
    """Return messages in Avro."""
    schema, found = fastavro.parse_schema(ORDER), []
    for n in of:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"id": n, "total": Decimal(n % 1000) / 4})
        found.append(out.getvalue())
    return found


@pytest.mark.long
def test_a_batch_over_tls_is_written_once_though_the_agent_is_killed_in_its_middle(tiny: Tiny, broker: Broker) -> None:
    broker.create("sealed_in")
    broker.create("sealed")
    given = OVER_TLS.replace("{mechanism}", "SCRAM-SHA-256").format(authority=broker.authority, user=USER)
    given = f"'kafka.bootstrap.servers'='{broker.tls}', {given}"
    avro = f"subscribe='sealed_in', 'value.format'='avro', 'avro.schema'='{json.dumps(ORDER)}'"
    columns = "id BIGINT, total DECIMAL(8,2)"
    ddl = {
        "sealed_in": f"CREATE TABLE sealed_in ({columns}) USING kafka OPTIONS ({given}, {avro});",
        "sealed": f"CREATE TABLE sealed (_key STRING, {columns}) USING kafka OPTIONS ({given}, topic='sealed');",
    }
    select = "SELECT CAST(id AS STRING) AS _key, id, total FROM STREAM sealed_in"
    tiny.add(ddl, {"sealed": f"INSERT INTO sealed {select};"})
    broker.produce("sealed_in", orders(range(10)))
    done = tiny.apply(tiny.plan("sealed"))
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: broker.size("sealed") == 10, 60, "each row is a message")
    tiny.done("stop", "sealed", "--confirm", "yes")
    broker.produce("sealed_in", orders(range(10, MANY)))
    tiny.done("start", "sealed", "--confirm", "yes")
    started = run_of(tiny, "sealed")
    ends_at = time.monotonic() + 60
    while broker.size("sealed") == 10:
        assert time.monotonic() < ends_at, "the batch writes no message"
    os.kill(tiny.agent_pid(), signal.SIGKILL)
    assert broker.size("sealed") < MANY, "the batch was not over"
    until(lambda: broker.size("sealed") == MANY, 120, "the pool finishes the batch without the agent")
    broker.produce("sealed_in", orders(range(MANY, MANY + 10)))
    tiny.done("up")
    until(lambda: broker.size("sealed") == MANY + 10, 60, "later messages are written")
    until(lambda: tiny.statements()["sealed"]["lag_rows"] == 0, 30, "the new agent knows the lag")
    assert run_of(tiny, "sealed") == started, "the query was not started again"
    found = {json.loads(each.value())["id"]: json.loads(each.value()) for each in broker.messages("sealed")}
    assert found.keys() == set(range(MANY + 10)) and found[7] == {"id": 7, "total": 1.75}
    assert not [path for path in tiny.root.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]


def run_of(tiny: Tiny, table: str) -> object:
    """Return the run id of a statement's query."""
    ((found,),) = tiny.ledger('SELECT run_id FROM deployment WHERE "table" = ? AND version = 1', table)
    return found
