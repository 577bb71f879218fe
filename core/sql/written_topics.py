"""Kafka topics to which statements write: the options in their DDL, and how a row becomes a message.

A statement writes to one `topic`, which is the same for all its versions. Delivery is at least once, because Spark's
sink keeps no record of batches (Spark 4.2.0).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from core.sql.kafka_security import PREFIX, SecurityFault, is_of_client, security_fault, shared_settings, spark_settings
from core.sql.kafka_topics import (
    MESSAGE_PARTS,
    TOPIC,
    TOPIC_NAME,
    TOPICS,
    VALUE_FORMAT,
    TopicFault,
    ValueFormat,
    is_field,
    kafka_location,
    servers_fault,
    value_format,
)
from core.sql.statement import Column, TableDdl
from core.text.escaping import quoted_name, quoted_string_literal
from core.text.sentence import Fact, FactKind

_WRITTEN = {name: MESSAGE_PARTS[name] for name in ("_key", "_value", "_headers")}
"""Parts of a message that a statement can write."""
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of `to_json`, whose own formats of timestamps lack microseconds (Spark 4.2.0)."""
_WRITER_OPTIONS = (TOPIC, VALUE_FORMAT)
_REFUSED_BY_SINK = ("kafka.key.serializer", "kafka.value.serializer")
"""Options of Kafka's client, in lower case, that Spark's sink refuses (`KafkaSourceProvider`, 4.2.0)."""
_EVERY_REPLICA = ("all", "-1")


class SinkFault(FactKind):
    """A reason why a statement cannot write to a topic as declared."""

    SUBSCRIBES = "is written by a statement, and subscribes to topics in {option}", "name its topic: topic='orders'"
    NO_TOPIC = "names no topic to write", "add topic='orders' to its OPTIONS; a statement writes one topic"
    UNKNOWN_OPTION = "has the option {option}, which a writer of topics lacks", "remove it; options: {known}"
    ACKNOWLEDGED = "sets {option} to {value}, with which Kafka may lose messages", "leave {option} out"
    TRANSACTIONS = "sets {option}, and Spark writes no transactions", "leave {option} out"
    FORMAT = "writes values as {format}", "write value.format='json' or 'raw'"
    NO_VALUE = "declares no column of the value", "declare the fields of a JSON value, or _value and value.format='raw'"
    PART = "has a column {column}, which a statement cannot write", "rename it, or use one of {known}"


class Delivery(FactKind):
    """What readers of a topic must know about the messages that a statement writes to it."""

    BY_KEY = (
        "writes topic {topic} at least once: messages of a batch that is repeated after a failure are there twice, and "
        "readers can deduplicate them by {key}"
    )
    WITHOUT_KEY = (
        "writes topic {topic} at least once: messages of a batch that is repeated after a failure are there twice, and "
        "its yml names no key by which readers could deduplicate them"
    )


def sink_fault(ddl: TableDdl) -> Fact[SinkFault] | Fact[TopicFault] | Fact[SecurityFault] | None:
    """Return the first fault in the DDL of a table whose statement writes to a topic; None if the DDL is valid."""
    given = {key.lower(): value for key, value in ddl.options}
    for name, value in ddl.options:
        option = name.lower()
        if option in (TOPICS, "subscribepattern", "assign"):
            return SinkFault.SUBSCRIBES.of(option=name)
        if option not in _WRITER_OPTIONS and not is_of_client(name):
            return SinkFault.UNKNOWN_OPTION.of(option=name, known=_WRITER_OPTIONS)
        if option == "kafka.acks" and value not in _EVERY_REPLICA:
            return SinkFault.ACKNOWLEDGED.of(option=name, value=value)
        if option == "kafka.transactional.id":
            return SinkFault.TRANSACTIONS.of(option=name)
        if option in _REFUSED_BY_SINK:
            instead = "Spark writes keys and values as bytes, and value.format says how they are made"
            return TopicFault.NOT_FOR_SPARK.of(option=name, instead=instead)
    if unreachable := security_fault(given) or servers_fault(given):
        return unreachable
    topic = given.get(TOPIC, "")
    if not TOPIC_NAME.match(topic):
        return TopicFault.BAD_TOPIC.of(topic=topic) if topic else SinkFault.NO_TOPIC.of()
    if given.get(VALUE_FORMAT, ValueFormat.JSON).lower() not in (ValueFormat.JSON, ValueFormat.RAW):
        return SinkFault.FORMAT.of(format=given[VALUE_FORMAT])
    return TopicFault.PARTITIONED.of() if ddl.partitioning else _written_column_fault(ddl)


def _written_column_fault(ddl: TableDdl) -> Fact[SinkFault] | Fact[TopicFault] | None:
    raw, names = value_format(ddl) is ValueFormat.RAW, [column.name.lower() for column in ddl.columns]
    for column in ddl.columns:
        types = _WRITTEN.get(column.name.lower())
        if types is None and not is_field(column):
            return SinkFault.PART.of(column=column.name, known=tuple(_WRITTEN))
        if types is not None and column.type not in types:
            return TopicFault.TYPE.of(column=column.name, found=column.type, expected=types[0])
        if raw is not (types is not None) and column.name.lower() not in ("_key", "_headers"):
            if raw:
                return TopicFault.RAW_COLUMNS.of(column=column.name)
            return SinkFault.PART.of(column=column.name, known=("_key", "_headers", "value.format='raw'"))
    has_value = "_value" in names if raw else any(map(is_field, ddl.columns))
    return None if has_value else SinkFault.NO_VALUE.of()


def delivery(topic: str, key: Sequence[str]) -> Fact[Delivery]:
    """Return the delivery guarantee of a statement's messages in a topic; `key` contains the declared key columns."""
    return Delivery.BY_KEY.of(topic=topic, key=tuple(key)) if key else Delivery.WITHOUT_KEY.of(topic=topic)


def with_topic_named(ddl: TableDdl, naming: Callable[[str], str]) -> TableDdl:
    """Return the DDL of a topic to which a statement writes, with the name that an environment gives to the topic."""
    options = tuple((name, naming(value) if name.lower() == TOPIC else value) for name, value in ddl.options)
    return replace(ddl, options=options, location=kafka_location(dict(options)))


def sink_options(ddl: TableDdl) -> dict[str, str]:
    """Return the options for Spark's Kafka sink."""
    shared = shared_settings(dict(ddl.options))
    ours = {VALUE_FORMAT, *(PREFIX + name for name in shared)}
    return {key: value for key, value in ddl.options if key.lower() not in ours} | spark_settings(shared)


def message_expressions(ddl: TableDdl) -> tuple[str, ...]:
    """Return the SQL expressions that turn rows with the table's columns into messages for Spark's Kafka sink.

    Values are cast to the declared types. A JSON value has a field for each column that is not a part of the message,
    even if the column is NULL.
    """
    parts = [column for column in ddl.columns if not is_field(column)]
    found = [f"{_cast(column)} AS {column.name.lower().removeprefix('_')}" for column in parts]
    if value_format(ddl) is ValueFormat.JSON:
        found.append(f"{json_of(filter(is_field, ddl.columns))} AS value")
    return tuple(found)


def json_of(columns: Iterable[Column], **options: str) -> str:
    """Return the SQL expression of a JSON object with a field for each column, cast to its type.

    `options` are options of `to_json` in place of those with which statements write.
    """
    fields = ", ".join(f"{quoted_string_literal(column.name)}, {_cast(column)}" for column in columns)
    listed = ", ".join(quoted_string_literal(text) for pair in (_JSON | options).items() for text in pair)
    return f"to_json(named_struct({fields}), map({listed}))"


def _cast(column: Column) -> str:
    return f"CAST({quoted_name(column.name)} AS {column.type})"
