"""Tables over Kafka topics: what a declaration may say, and the rows that messages become."""

import pytest

from core.sql.avro_schemas import POISON
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_security import SecurityFault
from core.sql.kafka_topics import (
    TopicFault,
    TopicPlace,
    merged_locations,
    row_condition,
    row_expressions,
    source_options,
    topic_fault,
    topic_place,
)
from core.sql.statement import TableDdl

CAPTURED = "'kafka.bootstrap.servers'='a:9092', subscribe='pg.public.t', 'value.format'='Debezium'"
SERVERS = "'kafka.bootstrap.servers'='a:9092, b:9092'"
AVRO = f"{SERVERS}, subscribe='t', 'value.format'='avro'"
REGISTRY, LOGIN = "'schema.registry'='http://r:8081'", "'schema.registry.username'='me', 'schema.registry.password'"
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


def test_locations_of_one_cluster_and_user_are_merged() -> None:
    locations = ["kafka://a:1/x,y", "kafka://a:1/z", "kafka://a:1/y?sasl.username=me", "kafka://b:1/x"]
    assert merged_locations(locations) == ("kafka://a:1/x,y,z", "kafka://a:1/y?sasl.username=me", "kafka://b:1/x")


def declared(columns: str = "id BIGINT", options: str = f"{SERVERS}, subscribe='t'", more: str = "") -> TableDdl:
    ddl, problems = read_ddl(f"CREATE TABLE k ({columns}) USING kafka OPTIONS ({options}) {more}", "ddl.k.sql")
    assert ddl is not None, problems
    return ddl


@pytest.mark.parametrize(
    ("columns", "options", "fault"),
    [
        ("id BIGINT", f"{SERVERS}, subscribe='t'", None),
        ("id BIGINT, _key BINARY, _offset BIGINT, _corrupt STRING", f"{SERVERS}, subscribe='t,u'", None),
        ("_value BINARY, _headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
         f"{SERVERS}, subscribe='t', 'value.format'='raw'", None),
        ("id BIGINT", f"{SERVERS}, Subscribe='t', startingOffsets='latest', maxOffsetsPerTrigger='10'", None),
        ("id BIGINT", "subscribe='t'", TopicFault.NO_SERVERS),
        ("id BIGINT", "'kafka.bootstrap.servers'='a', subscribe='t'", TopicFault.BAD_SERVER),
        ("id BIGINT", SERVERS, TopicFault.NO_TOPICS),
        ("id BIGINT", f"{SERVERS}, subscribe='a topic'", TopicFault.BAD_TOPIC),
        ("id BIGINT", f"{SERVERS}, subscribePattern='t.*'", TopicFault.PATTERN),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffset='latest'", TopicFault.UNKNOWN_OPTION),
        *(
            ("id BIGINT", f"{SERVERS}, subscribe='t', '{name}'='x'", TopicFault.NOT_FOR_SPARK)
            for name in (
                "kafka.key.deserializer", "kafka.Value.Deserializer", "kafka.auto.offset.reset",
                "kafka.enable.auto.commit", "kafka.interceptor.classes",
            )
        ),
        ("id BIGINT", f"{SERVERS}, subscribe='t', 'kafka.key.serializer'='x'", None),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffsets='{{\"t\":{{\"0\":7,\"1\":-2}}}}'", None),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingTimestamp='1767225600000'", None),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffsetsByTimestamp='{{\"t\":{{\"0\":7}}}}'", None),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffsets='newest'", TopicFault.VALUE),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffsets='{{\"t\":7}}'", TopicFault.VALUE),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffsets='{{\"t\":{{\"x\":7}}}}'", TopicFault.VALUE),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffsetsByTimestamp='{{\"t\":{{\"0\":-1}}}}'",
         TopicFault.VALUE),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingTimestamp='2026-01-01'", TopicFault.VALUE),
        ("id BIGINT", f"{SERVERS}, subscribe='t,u', startingOffsets='{{\"t\":{{\"0\":7}}}}'",
         TopicFault.START_TOPICS),
        ("id BIGINT", f"{SERVERS}, subscribe='t', startingOffsets='latest', startingTimestamp='1'",
         TopicFault.TWO_STARTS),
        ("id BIGINT", f"{SERVERS}, subscribe='t', 'value.format'='xml'", TopicFault.VALUE_FORMAT),
        ("id BIGINT, _id BIGINT", f"{SERVERS}, subscribe='t'", TopicFault.UNDERSCORE),
        ("id BIGINT, _offset INT", f"{SERVERS}, subscribe='t'", TopicFault.TYPE),
        ("id BIGINT", f"{SERVERS}, subscribe='t', 'value.format'='raw'", TopicFault.RAW_COLUMNS),
        ("_key STRING", f"{SERVERS}, subscribe='t'", TopicFault.NO_COLUMNS),
        ("id BIGINT, n DECIMAL(10,2), _op STRING, _sequence BIGINT, _offset BIGINT, _corrupt STRING", CAPTURED, None),
        ("id BIGINT, _transaction STRUCT<id: STRING, total_order: BIGINT>", CAPTURED, None),
        ("id BIGINT, _op STRING", f"{SERVERS}, subscribe='t'", TopicFault.UNDERSCORE),
        ("id BIGINT, _before STRING", CAPTURED, TopicFault.UNDERSCORE),
        ("id BIGINT, _lsn STRING", CAPTURED, TopicFault.TYPE),
        ("_op STRING", CAPTURED, TopicFault.NO_COLUMNS),
        ("id BIGINT, b BINARY", CAPTURED, TopicFault.CAPTURED_TYPE),
        ("id BIGINT, days ARRAY<DATE>", CAPTURED, TopicFault.CAPTURED_TYPE),
        ("id BIGINT, point STRUCT<x: DOUBLE>", CAPTURED, TopicFault.CAPTURED_TYPE),
        ("id BIGINT, v VARCHAR(9)", CAPTURED, TopicFault.CAPTURED_TYPE),
        ("id BIGINT, _corrupt STRING", f"{AVRO}, {REGISTRY}", None),
        ("id BIGINT, _key STRUCT<a: INT>", f"{AVRO}, {REGISTRY}, 'key.format'='Avro', 'schema.subject'='s'", None),
        ("id BIGINT, _key BIGINT", f"{SERVERS}, subscribe='t', 'key.format'='avro', {REGISTRY}", None),
        ("id BIGINT", f"{AVRO}, {REGISTRY}, {LOGIN}='${{env:NAME}}'", None),
        ("id BIGINT, _key BIGINT", f"{AVRO}, {REGISTRY}", TopicFault.TYPE),
        ("id BIGINT", f"{AVRO}, {REGISTRY}, {LOGIN}='secret'", SecurityFault.SECRET),
        ("id BIGINT", f"{AVRO}, {REGISTRY}, 'schema.registry.ssl.truststore.location'='ca'", SecurityFault.PATH),
        ("id BIGINT", f"{AVRO}, 'schema.registry'='http://me:secret@r'", TopicFault.REGISTRY),
        ("id BIGINT", f"{AVRO}, 'schema.registry'='r:8081'", TopicFault.REGISTRY),
        *(("id BIGINT", f"{AVRO}, 'schema.registry'='{url}'", TopicFault.REGISTRY)
          for url in ("http://[::1", "http://r:99999", "http://r?password=x", "me:secret@r:8081")),
        *(("id BIGINT", f"{SERVERS}, subscribe='t', {option}", TopicFault.VALUE)
          for option in ("maxOffsetsPerTrigger='0'", "minPartitions='-1'", "maxRecordsPerPartition='x'",
                         "failOnDataLoss='no'", f"startingOffsets='{'[' * 5000}'")),
        ("id BIGINT", f"{SERVERS}, subscribe='t', failOnDataLoss='FALSE', maxOffsetsPerTrigger='1'", None),
        ("id BIGINT", AVRO, TopicFault.NO_SCHEMA),
        ("id BIGINT", f"{AVRO}, 'schema.subject'='s'", TopicFault.UNUSED),
        ("id BIGINT", f"{AVRO}, {REGISTRY}, 'key.format'='json'", TopicFault.KEY_FORMAT),
        ("id BIGINT", f"{SERVERS}, subscribe='t', {REGISTRY}", TopicFault.UNUSED),
        ("id BIGINT", f"{CAPTURED}, {REGISTRY}", TopicFault.CAPTURED_AVRO),
        ("id BIGINT", f"{CAPTURED}, 'key.format'='avro'", TopicFault.CAPTURED_AVRO),
        ("n INT", f"{AVRO}, 'avro.schema'='{SCHEMA}'", None),
        ("n INT", f"{AVRO}, 'avro.schema'='{SCHEMA}', {REGISTRY}", TopicFault.TWO_SCHEMAS),
        ("n INT, _key INT", f"{AVRO}, 'avro.schema'='{SCHEMA}', 'key.format'='avro'", TopicFault.NO_SCHEMA),
        ("n STRING, m INT", f"{AVRO}, 'avro.schema'='{SCHEMA}'", TopicFault.UNLIKE_SCHEMA),
        ("n INT", f"{AVRO}, 'avro.schema'='record'", TopicFault.UNLIKE_SCHEMA),
    ],
)  # fmt: skip
def test_a_declaration_that_spark_could_not_read_is_refused(
    columns: str, options: str, fault: TopicFault | SecurityFault | None
) -> None:
    found = topic_fault(declared(columns, options))
    assert (found.kind if found else None) is fault
    assert found is None or found.remedy


def test_no_fault_shows_a_password_before_the_host() -> None:
    brokers = "'kafka.bootstrap.servers'='a:9092,me:hunter2@b:9092', subscribe='t'"
    for options in (
        brokers,
        f"{AVRO}, 'schema.registry'='me:hunter2@r'",
        f"{AVRO}, 'schema.registry'='x://me:hunter2@r'",
    ):
        assert "hunter2" not in str(topic_fault(declared(options=options)))


def test_a_topic_that_is_listed_twice_is_read_once() -> None:
    assert topic_place(declared(options=f"{SERVERS}, subscribe='t, t'").location).topics == ("t",)


def test_partitions_are_not_declared() -> None:
    found = topic_fault(declared(more="PARTITIONED BY (id)"))
    assert found is not None and found.kind is TopicFault.PARTITIONED


def test_the_location_names_brokers_and_topics_in_any_order() -> None:
    one, other = (declared(options=f"{SERVERS}, subscribe='{topics}'") for topics in ("t, s", "s,t"))
    assert one.location == other.location == "kafka://a:9092,b:9092/s,t"
    assert topic_place(one.location) == TopicPlace("a:9092,b:9092", ("s", "t"))


def test_a_location_beside_the_options_is_refused() -> None:
    ddl, problems = read_ddl(
        f"CREATE TABLE k (id INT) USING kafka OPTIONS ({SERVERS}, subscribe='t') LOCATION 'x'", "d"
    )
    assert ddl is None and "has no LOCATION" in problems[0].summary


def test_a_new_version_reads_from_the_earliest_message_unless_the_table_says_otherwise() -> None:
    assert source_options(declared())["startingOffsets"] == "earliest"
    later = declared(options=f"{SERVERS}, subscribe='t', StartingOffsets='latest', 'value.format'='json'")
    assert "startingOffsets" not in source_options(later) and source_options(later)["StartingOffsets"] == "latest"


def test_requests_of_the_source_end_before_a_stop_gives_up_unless_the_table_sets_their_limits() -> None:
    usual = source_options(declared())
    calls_s = int(usual["kafka.default.api.timeout.ms"]) / 1000
    assert calls_s < 8, "the deadline of a stop"
    assert usual["kafka.request.timeout.ms"] == usual["kafka.default.api.timeout.ms"]
    patience_s = int(usual["fetchOffset.numRetries"]) * (calls_s + int(usual["fetchOffset.retryIntervalMs"]) / 1000)
    assert patience_s > 180, "as long as three requests of a minute"
    given = declared(options=f"{SERVERS}, subscribe='t', 'kafka.Request.Timeout.ms'='9000', StartingOffsets='latest'")
    assert source_options(given) == {
        "kafka.bootstrap.servers": "a:9092, b:9092",
        "subscribe": "t",
        "kafka.Request.Timeout.ms": "9000",
        "StartingOffsets": "latest",
    }


def test_a_value_that_cannot_be_parsed_fails_the_batch_unless_a_column_keeps_it() -> None:
    steps, columns = row_expressions(declared("id BIGINT, _key STRING"))
    assert columns == ("_parsed.id AS id", "CAST(key AS string) AS _key")
    assert len(steps) == 2 and "raise_error" in steps[1] and POISON in steps[1]
    steps, columns = row_expressions(declared("id BIGINT, _corrupt STRING"))
    assert columns[0] == "_parsed.id AS id" and columns[1].endswith("CAST(value AS STRING), NULL) AS _corrupt")
    assert not any("raise_error" in step for step in steps)


def test_raw_values_are_not_parsed() -> None:
    raw = declared("_value STRING, _offset BIGINT", f"{SERVERS}, subscribe='t', 'value.format'='raw'")
    assert row_expressions(raw) == ((), ("CAST(value AS string) AS _value", "CAST(offset AS bigint) AS _offset"))


def test_tombstones_are_rows_unless_they_follow_a_captured_delete() -> None:
    assert row_condition(declared()) == "true"
    assert row_condition(declared(options=CAPTURED)) == "value IS NOT NULL"


def test_a_value_that_is_no_change_fails_the_batch_unless_a_column_keeps_it() -> None:
    *_, parsed = row_expressions(declared("id BIGINT", CAPTURED))[0]
    assert "IF(_fault IS NULL, _row, raise_error(concat('[" + POISON in parsed
    steps, columns = row_expressions(declared("id BIGINT, _op STRING, _corrupt STRING", CAPTURED))
    assert steps[-1] == "IF(spark_partition_id() < 0, NULL, IF(_fault IS NULL, _row, NULL)) AS _parsed"
    assert columns == (
        "_parsed.id AS id",
        "_parsed._op AS _op",
        "IF(_fault IS NULL, NULL, CAST(value AS STRING)) AS _corrupt",
    )
