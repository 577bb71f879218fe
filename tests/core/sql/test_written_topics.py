"""Topics that statements write: what a declaration may say, and how rows become messages."""

import pytest

from core.sql.ddl_reader import read_ddl
from core.sql.kafka_topics import TopicFault, topic_place
from core.sql.statement import TableDdl
from core.sql.written_topics import (
    Delivery,
    SinkFault,
    delivery,
    message_expressions,
    sink_fault,
    sink_options,
    with_topic_named,
)

SERVERS = "'kafka.bootstrap.servers'='a:9092'"
RAW = "'value.format'='raw'"


def declared(columns: str = "id BIGINT", options: str = f"{SERVERS}, topic='t'", more: str = "") -> TableDdl:
    ddl, problems = read_ddl(f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options}) {more}", "ddl.k.sql")
    assert ddl is not None, problems
    return ddl


@pytest.mark.parametrize(
    ("columns", "options", "fault"),
    [
        ("id BIGINT, _key STRING", f"{SERVERS}, topic='t', 'kafka.compression.type'='zstd', 'kafka.acks'='all'", None),
        ("_value BINARY, _key BINARY, _headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
         f"{SERVERS}, topic='t', {RAW}", None),
        ("id BIGINT", f"{SERVERS}, subscribe='t'", SinkFault.SUBSCRIBES),
        ("id BIGINT", SERVERS, SinkFault.NO_TOPIC),
        ("id BIGINT", f"{SERVERS}, topic='t,u'", TopicFault.BAD_TOPIC),
        ("id BIGINT", "topic='t'", TopicFault.NO_SERVERS),
        ("id BIGINT", f"{SERVERS}, topic='t', startingOffsets='latest'", SinkFault.UNKNOWN_OPTION),
        ("id BIGINT", f"{SERVERS}, topic='t', 'kafka.acks'='1'", SinkFault.ACKNOWLEDGED),
        ("id BIGINT", f"{SERVERS}, topic='t', 'kafka.key.serializer'='x'", TopicFault.NOT_FOR_SPARK),
        ("id BIGINT", f"{SERVERS}, topic='t', 'kafka.Value.Serializer'='x'", TopicFault.NOT_FOR_SPARK),
        ("id BIGINT", f"{SERVERS}, topic='t', 'kafka.transactional.id'='x'", SinkFault.TRANSACTIONS),
        ("id BIGINT", f"{SERVERS}, topic='t', 'value.format'='debezium'", SinkFault.FORMAT),
        ("id BIGINT, _offset BIGINT", f"{SERVERS}, topic='t'", SinkFault.PART),
        ("id BIGINT, _value STRING", f"{SERVERS}, topic='t'", SinkFault.PART),
        ("id BIGINT, _key BIGINT", f"{SERVERS}, topic='t'", TopicFault.TYPE),
        ("id BIGINT", f"{SERVERS}, topic='t', {RAW}", TopicFault.RAW_COLUMNS),
        ("_key STRING", f"{SERVERS}, topic='t'", SinkFault.NO_VALUE),
        ("_key STRING", f"{SERVERS}, topic='t', {RAW}", SinkFault.NO_VALUE),
    ],
)  # fmt: skip
def test_a_declaration_that_could_not_be_written_is_refused(columns: str, options: str, fault: object) -> None:
    found = sink_fault(declared(columns, options))
    assert (found and found.kind) == fault
    if found is not None:
        assert found.remedy and str(found)


def test_a_partitioned_topic_is_refused() -> None:
    found = sink_fault(declared("id BIGINT, d DATE", more="PARTITIONED BY (d)"))
    assert found is not None and found.kind is TopicFault.PARTITIONED


def test_a_row_becomes_a_json_value_of_all_fields_and_parts_of_the_message() -> None:
    key, value = message_expressions(declared("_key STRING, id BIGINT, `a b` DATE"))
    assert key == "CAST(_key AS string) AS key"
    assert value.startswith("to_json(named_struct('id', CAST(id AS bigint), 'a b', CAST(`a b` AS date)), map(")
    raw = message_expressions(declared("_value STRING", f"{SERVERS}, topic='t', {RAW}"))
    assert raw == ("CAST(_value AS string) AS value",)


def test_an_environment_with_a_naming_writes_a_topic_of_its_own() -> None:
    ddl = with_topic_named(declared(), "dev_{}".format)
    assert topic_place(ddl.location).topics == ("dev_t",)
    assert sink_options(ddl) == {"kafka.bootstrap.servers": "a:9092", "topic": "dev_t"}
    assert with_topic_named(declared(), str) == declared()


def test_a_secret_stays_a_reference_in_the_options_of_the_writer() -> None:
    login = "'kafka.security.protocol'='SASL_SSL', 'kafka.sasl.mechanism'='PLAIN', 'kafka.sasl.username'='u'"
    ddl = declared(options=f"{SERVERS}, topic='t', {login}, 'kafka.sasl.password'='${{env:PW}}'")
    assert sink_fault(ddl) is None
    assert "${env:PW}" in sink_options(ddl)["kafka.sasl.jaas.config"]


def test_the_delivery_names_the_key_by_which_readers_deduplicate() -> None:
    assert str(delivery("t", ("id", "at"))).endswith("readers can deduplicate them by id, at")
    assert delivery("t", ()).kind is Delivery.WITHOUT_KEY
