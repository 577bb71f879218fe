"""Kafka topics as external tables: the options in their DDL, their location, and how a message becomes a row.

A table lists its topics in `subscribe`. Its columns are the fields of the JSON or Avro value, or `_value` alone if
values are not parsed. Columns whose names begin with an underscore are parts of the message itself.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, urlencode, urlsplit

from core.model.names import whole_number
from core.sql.avro_schemas import (
    KEY,
    PLACE,
    POISON,
    VALUE,
    RegisteredSchema,
    SchemasByPart,
    avro_steps,
    declared_type,
    readings,
)
from core.sql.debezium_envelopes import METADATA, change_steps, is_readable, whole_json
from core.sql.kafka_security import (
    PREFIX,
    SecurityFault,
    is_of_client,
    reference,
    security_fault,
    shared_settings,
    spark_settings,
)
from core.sql.metadata_columns import METADATA_NAMES
from core.sql.statement import Column, TableDdl
from core.text.escaping import quoted_name
from core.text.secret_masking import masked_address
from core.text.sentence import Fact, FactKind

SERVERS = "kafka.bootstrap.servers"
TOPICS = "subscribe"
TOPIC = "topic"
"""Option with the topic to which a statement writes (`core.sql.written_topics`)."""
VALUE_FORMAT = "value.format"
"""Option that selects how values are parsed, as a `ValueFormat`; Spark has no such option."""
KEY_FORMAT, SCHEMA, REGISTRY, SUBJECTS = "key.format", "avro.schema", "schema.registry", "schema.subject"
"""Options for Avro: the format of keys, the schema of values without ids, the registry's URL, and subjects of values.
"""
REGISTRY_USER, REGISTRY_PASSWORD = "schema.registry.username", "schema.registry.password"
REGISTRY_TRUST = "schema.registry.ssl.truststore.location"
_OF_REGISTRY = (SUBJECTS, REGISTRY_USER, REGISTRY_PASSWORD, REGISTRY_TRUST)
_SCHEMA_OPTIONS = (SCHEMA, REGISTRY, *_OF_REGISTRY)

SCHEME = "kafka://"
_LOSS = "failondataloss"
_HEADERS = "array<struct<key:string,value:binary>>"
MESSAGE_PARTS: Mapping[str, tuple[str, ...]] = {
    "_key": ("string", "binary"), "_value": ("string", "binary"), "_topic": ("string",), "_partition": ("int",),
    "_offset": ("bigint",), "_timestamp": ("timestamp",), "_headers": (_HEADERS,),
}  # fmt: skip
"""Columns for the parts of a message, each with the types that it may have; the first type is suggested."""
ASSIGNED = ("_topic", "_partition", "_offset")
"""Parts of a message that follow from where the broker stores it."""
_CORRUPT = "_corrupt"
"""Column for a value that cannot be parsed; without this column, such a value fails the batch."""

_OPTIONS = frozenset(
    {
        TOPICS, VALUE_FORMAT, KEY_FORMAT, *_SCHEMA_OPTIONS, "startingoffsets", "startingtimestamp",
        "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "maxoffsetspertrigger",
        "minoffsetspertrigger", "maxtriggerdelay", "minpartitions", "maxrecordsperpartition", "failondataloss",
        "kafkaconsumer.polltimeoutms", "fetchoffset.numretries", "fetchoffset.retryintervalms",
    }
)  # fmt: skip
"""Allowed options in lower case (Spark 4.2 Kafka guide); `kafka.…` options for Kafka's client are allowed as well."""
_FORMATS = "Spark reads keys and values as bytes, and value.format says how they are parsed"
_REFUSED_BY_SOURCE = {
    "kafka.key.deserializer": _FORMATS,
    "kafka.value.deserializer": _FORMATS,
    "kafka.auto.offset.reset": "startingOffsets says where a new version starts",
    "kafka.enable.auto.commit": "Spark commits no offsets, and mirror_offsets in the yml of a reader does",
    "kafka.interceptor.classes": "interceptors could change messages",
}
"""Options of Kafka's client, in lower case, that Spark's source refuses (`KafkaSourceProvider`, 4.2.0).

Each comes with what to use instead, or the reason.
"""
_CALLS = {
    "kafka.request.timeout.ms": "5000",
    "kafka.default.api.timeout.ms": "5000",
    "kafka.metadata.max.age.ms": "5000",
    "fetchOffset.numRetries": "36",
    "fetchOffset.retryIntervalMs": "100",
}
"""Options that limit each request of Spark's Kafka source to 5 s, and let a query fail after 3 minutes.

A query that is stopped ends only after its last request, which cannot be interrupted. While no broker answers, that
takes up to 60 s by default, and Kafka's client may notice that it was closed only when its metadata expires, which can
take 5 minutes (Spark 4.2.0, kafka-clients 3.9.2).
"""
STARTS = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
"""Options, in lower case, that say where a new version starts; Spark obeys the first that is given (4.2.0)."""
_EXPECTED_STARTS = {
    "startingtimestamp": "milliseconds since 1970",
    "startingoffsetsbytimestamp": """'{"topic": {"0": milliseconds since 1970}}'""",
    "startingoffsets": """'earliest', 'latest', or '{"topic": {"0": offset}}'""",
}
_WHOLE = ("maxoffsetspertrigger", "minoffsetspertrigger", "minpartitions", "maxrecordsperpartition")
"""Options, in lower case, that are whole numbers of at least 1. Spark would accept 0, and read nothing (4.2.0)."""
_SERVER = re.compile(r"[\w.-]+:\d{1,5}\Z|\[[\da-fA-F:]+\]:\d{1,5}\Z", re.ASCII)
TOPIC_NAME = re.compile(r"[\w.-]{1,249}\Z", re.ASCII)


class ValueFormat(StrEnum):
    """How the value of a message is parsed into columns."""

    JSON = "json"
    AVRO = "avro"
    RAW = "raw"
    DEBEZIUM = "debezium"


class TopicFault(FactKind):
    """Why a table of Kafka topics cannot be read as declared."""

    NO_SERVERS = (
        "names no broker",
        "write OPTIONS ('kafka.bootstrap.servers'='host:9092', subscribe='topic') after USING kafka",
    )
    BAD_SERVER = "names the broker {server}, which is not host:port", "write host:port, separated by commas"
    NO_TOPICS = "names no topic", "add subscribe='topic' to its OPTIONS; several topics are separated by commas"
    BAD_TOPIC = "names the topic {topic}, which Kafka does not allow", "write letters, digits, dots, dashes and _"
    PATTERN = "subscribes by {option}", "list the topics in subscribe: a new topic then appears in a plan"
    UNKNOWN_OPTION = "has the option {option}, which Spark would ignore", "remove it; options: {known}"
    NOT_FOR_SPARK = "sets {option}, which Spark refuses", "remove it: {instead}"
    VALUE_FORMAT = "has the value format {format}", "write value.format='json', 'avro', 'raw' or 'debezium'"
    KEY_FORMAT = "has the key format {format}", "write key.format='avro', or remove it"
    NO_SCHEMA = (
        "reads Avro, and names no schema",
        "add 'schema.registry'='http://host:8081'; or, for values that do not begin with the id of a schema, "
        "'avro.schema'='{{…}}'",
    )
    TWO_SCHEMAS = "has schemas both in avro.schema and in a registry", "keep one of them"
    UNUSED = "has the option {option}, which only Avro and its registry need", "remove it, or add {needed}"
    REGISTRY = (
        "names the schema registry {url}, which is no URL without a user and parameters",
        "write http://host:8081, or https://…",
    )
    CAPTURED_AVRO = (
        "reads changes of Debezium, which Headgate reads as JSON only",
        "remove {option}, and have Debezium write them with org.apache.kafka.connect.json.JsonConverter",
    )
    UNLIKE_SCHEMA = "differs from its avro.schema, which {faults:;}", "correct the columns or the schema"
    UNDERSCORE = "has a column {column}, and names with _ are parts of a message", "rename it, or use one of {known}"
    TYPE = "has {column} {found}", "declare {column} {expected}"
    RAW_COLUMNS = "does not parse its values, and declares {column}", "declare _value instead, or value.format='json'"
    CAPTURED_TYPE = (
        "has {column} {found}, which cannot be told from other values in the JSON of Debezium",
        "declare it STRING, or an array ARRAY<STRING>, and convert it in the statement",
    )
    NO_COLUMNS = "declares no column of the value", "declare the fields of the value, or value.format='raw'"
    TWO_STARTS = "says in {options} where a new version starts", "keep one of them"
    VALUE = "has {option} {value}", "write {expected}"
    START_TOPICS = "gives a start in {option} for {found}, and subscribes to {topics}", "give one for each topic"
    PARTITIONED = "is partitioned", "remove PARTITIONED BY: Kafka partitions are in the column _partition"


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """Topics and the connection to their cluster, as parsed from a table's location."""

    servers: str
    """The brokers, separated by commas."""
    topics: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()
    """The result of `kafka_security.shared_settings`."""
    skips_lost: bool = False
    """Whether statements continue after messages that retention has deleted unread (`failOnDataLoss` = false)."""


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """A schema registry and how to log in to it; the password is a reference, or empty."""

    url: str
    user: str = ""
    password: str = ""
    trusted: str = ""
    """Path of a PEM file with the trusted certificate authorities; empty to trust the system's authorities."""


def kafka_location(options: Mapping[str, str]) -> str:
    """Return a table's location, `kafka://host:port,…/topic,…?setting=value`; empty without brokers or topics.

    The order of brokers and topics does not matter.
    """
    given = {key.lower(): value for key, value in options.items()}
    given.setdefault(TOPICS, given.get(TOPIC, ""))
    servers, topics = (",".join(sorted(_listed(given.get(name, "")))) for name in (SERVERS, TOPICS))
    skips = {_LOSS: "false"} if given.get(_LOSS, "").lower() == "false" else {}
    settings = urlencode(shared_settings(options) | skips, safe="${}:/")
    return f"{SCHEME}{servers}/{topics}{'?' if settings else ''}{settings}" if servers and topics else ""


def topic_place(location: str) -> TopicPlace:
    """Parse a location made by `kafka_location`."""
    place, _, settings = location.removeprefix(SCHEME).partition("?")
    servers, _, topics = place.partition("/")
    given = dict(parse_qsl(settings, keep_blank_values=True))
    skips_lost = given.pop(_LOSS, "") == "false"
    return TopicPlace(servers, tuple(topics.split(",")), tuple(given.items()), skips_lost)


def merged_locations(locations: Iterable[str]) -> tuple[str, ...]:
    """Return one location for each cluster and user, with all topics that these locations have there."""
    topics_by_place: dict[tuple[str, str], set[str]] = {}
    for location in locations:
        place, _, settings = location.removeprefix(SCHEME).partition("?")
        servers, _, topics = place.partition("/")
        topics_by_place.setdefault((servers, settings), set()).update(topics.split(","))
    return tuple(
        f"{SCHEME}{servers}/{','.join(sorted(topics))}{'?' if settings else ''}{settings}"
        for (servers, settings), topics in topics_by_place.items()
    )


def topics_by_server(location: str) -> frozenset[tuple[str, str]]:
    """Return each topic at a location, once for each of the listed brokers, whose hosts are in lower case.

    Two locations with a common pair are the same topic, even if each lists other brokers of the cluster as well.
    """
    place = topic_place(location)
    return frozenset((server.lower(), topic) for server in place.servers.split(",") for topic in place.topics)


def create_command(place: TopicPlace, topic: str) -> str:
    """Return the command of Kafka that creates a topic with the broker's defaults.

    For a secured cluster, it refers to a file with the settings of the client, which the reader has to write.
    """
    secured = any(name != "isolation.level" for name, _ in place.settings)
    config = " --command-config client.properties" if secured else ""
    return f"kafka-topics.sh --bootstrap-server {place.servers}{config} --create --topic {topic}"


def options_of_uri(uri: str) -> dict[str, str]:
    """Return the OPTIONS of a table that reads the topics at `kafka://host:port,…/topic,…?setting=value`.

    The scheme may be missing. With a schema registry among the settings, values are Avro. `topic_fault` checks the
    options.
    """
    place = topic_place(uri)
    settings = {name if name in _SCHEMA_OPTIONS else PREFIX + name: value for name, value in place.settings}
    avro = {VALUE_FORMAT: ValueFormat.AVRO.value} if REGISTRY in settings else {}
    return {SERVERS: place.servers, TOPICS: ",".join(place.topics), **settings, **avro}


def topic_fault(ddl: TableDdl) -> Fact[TopicFault] | Fact[SecurityFault] | None:
    """Return the first fault in the DDL of a table of Kafka topics; None if the table can be read."""
    given = {key.lower(): value for key, value in ddl.options}
    for name, _ in ddl.options:
        if name.lower() in ("subscribepattern", "assign"):
            return TopicFault.PATTERN.of(option=name)
        if name.lower() not in _OPTIONS and not is_of_client(name):
            return TopicFault.UNKNOWN_OPTION.of(option=name, known=tuple(sorted(_OPTIONS)))
        if instead := _REFUSED_BY_SOURCE.get(name.lower()):
            return TopicFault.NOT_FOR_SPARK.of(option=name, instead=instead)
    if insecure := security_fault({name: value for name, value in given.items() if name not in _SCHEMA_OPTIONS}):
        return insecure
    if unreachable := servers_fault(given):
        return unreachable
    topics = _listed(given.get(TOPICS, ""))
    if not topics:
        return TopicFault.NO_TOPICS.of()
    if bad := next((topic for topic in topics if not TOPIC_NAME.match(topic)), ""):
        return TopicFault.BAD_TOPIC.of(topic=bad)
    if given.get(VALUE_FORMAT, ValueFormat.JSON).lower() not in list(ValueFormat):
        return TopicFault.VALUE_FORMAT.of(format=given[VALUE_FORMAT])
    if ddl.partitioning:
        return TopicFault.PARTITIONED.of()
    return (
        _value_fault(given)
        or _start_fault(given, topics)
        or _avro_fault(ddl, given)
        or _column_fault(ddl)
        or _schema_fault(ddl)
    )


def servers_fault(given: Mapping[str, str]) -> Fact[TopicFault] | None:
    """Return the fault in the broker addresses of the options (names in lower case); None if they are valid."""
    servers = _listed(given.get(SERVERS, ""))
    bad = next((server for server in servers if not _SERVER.match(server)), "")
    return (
        TopicFault.BAD_SERVER.of(server=masked_address(bad)) if bad else None if servers else TopicFault.NO_SERVERS.of()
    )


def registry_of(ddl: TableDdl) -> RegistryPlace | None:
    """Return the schema registry for a table's messages; None if they need none."""
    given = {key.lower(): value for key, value in ddl.options}
    names = (REGISTRY, REGISTRY_USER, REGISTRY_PASSWORD, REGISTRY_TRUST)
    return RegistryPlace(*(given.get(name, "") for name in names)) if given.get(REGISTRY) else None


def avro_parts(ddl: TableDdl) -> dict[str, tuple[str, ...]]:
    """Return the parts of a table's messages that are Avro, each with the subjects of its schemas.

    By default, a subject is called `<topic>-value` or `<topic>-key`, as in Confluent's serializers.
    """
    given = {key.lower(): value for key, value in ddl.options}
    topics, found = topic_place(ddl.location).topics, {}
    if value_format(ddl) is ValueFormat.AVRO:
        found[VALUE] = _listed(given.get(SUBJECTS, "")) or tuple(f"{topic}-{VALUE}" for topic in topics)
    if KEY_FORMAT in given:
        found[KEY] = tuple(f"{topic}-{KEY}" for topic in topics)
    return found


def avro_types(ddl: TableDdl) -> dict[str, str]:
    """Return the declared type of each part that is Avro and has columns."""
    fields = [column for column in ddl.columns if is_field(column)]
    key = next((column.type for column in ddl.columns if column.name.lower() == "_key"), "")
    return {
        part: kind for part, kind in ((VALUE, declared_type(fields)), (KEY, key)) if part in avro_parts(ddl) and kind
    }


def declared_fields(ddl: TableDdl) -> tuple[str, ...]:
    """Return the columns that are fields of the messages' JSON values; empty if the values are not JSON."""
    read = value_format(ddl) in (ValueFormat.JSON, ValueFormat.DEBEZIUM)
    return tuple(column.name for column in ddl.columns if read and is_field(column))


def start_option(ddl: TableDdl) -> tuple[str, str] | None:
    """Return the option and value that make new versions start after the earliest message; None if there is none."""
    found = next(((name, value) for name, value in ddl.options if name.lower() in STARTS), None)
    return None if found and found[1].lower() == "earliest" else found


def has_same_messages(old: TableDdl, new: TableDdl) -> bool:
    """True if an edited table has the same topics and rows as the old one, apart from columns added at the end.

    Brokers are not compared here: the registration compares the clusters by the ids of their topics.
    """
    before, after = (topic_place(ddl.location) for ddl in (old, new))
    isolations = {dict(place.settings).get("isolation.level", "read_uncommitted") for place in (before, after)}
    same = before.topics == after.topics and len(isolations) == 1 and _parsing(old) == _parsing(new)
    return same and new.columns[: len(old.columns)] == old.columns


def _parsing(ddl: TableDdl) -> tuple[object, ...]:
    given = {key.lower(): value for key, value in ddl.options}
    return value_format(ddl), *(given.get(name) for name in (KEY_FORMAT, SCHEMA)), REGISTRY in given


def skips_lost_messages(ddl: TableDdl) -> bool:
    """True if the table lets its readers continue after messages were deleted before they were read."""
    return ddl.location.startswith(SCHEME) and topic_place(ddl.location).skips_lost


def _avro_fault(ddl: TableDdl, given: Mapping[str, str]) -> Fact[TopicFault] | Fact[SecurityFault] | None:
    format, keys = value_format(ddl), given.get(KEY_FORMAT)
    if keys is not None and keys.lower() != ValueFormat.AVRO:
        return TopicFault.KEY_FORMAT.of(format=keys)
    option = next((name for name in (KEY_FORMAT, *_SCHEMA_OPTIONS) if name in given), None)
    if format is ValueFormat.DEBEZIUM and option:
        return TopicFault.CAPTURED_AVRO.of(option=option)
    if option and not (format is ValueFormat.AVRO or keys):
        return TopicFault.UNUSED.of(option=option, needed="'value.format'='avro'")
    if SCHEMA in given and REGISTRY in given:
        return TopicFault.TWO_SCHEMAS.of()
    option = next((name for name in _OF_REGISTRY if name in given), None)
    if option and REGISTRY not in given:
        return TopicFault.UNUSED.of(option=option, needed=f"'{REGISTRY}'='http://host:8081'")
    if (keys or SCHEMA not in given) and REGISTRY not in given:
        return TopicFault.NO_SCHEMA.of() if format is ValueFormat.AVRO or keys else None
    if not _is_registry(given.get(REGISTRY, "http://a")):
        return TopicFault.REGISTRY.of(url=masked_address(given[REGISTRY]))
    if REGISTRY_PASSWORD in given and reference(given[REGISTRY_PASSWORD]) is None:
        return SecurityFault.SECRET.of(option=REGISTRY_PASSWORD)
    if not given.get(REGISTRY_TRUST, "/").startswith("/"):
        return SecurityFault.PATH.of(option=REGISTRY_TRUST, path=given[REGISTRY_TRUST])
    return None


def _is_registry(text: str) -> bool:
    with suppress(ValueError):
        url = urlsplit(text)
        is_whole = bool(url.hostname) and (url.port is None or url.port > 0)
        return is_whole and url.scheme in ("http", "https") and not ("@" in url.netloc or url.query or url.fragment)
    return False


def _schema_fault(ddl: TableDdl) -> Fact[TopicFault] | None:
    """Return how the columns contradict the schema in the OPTIONS; None if they fit, or if there is no schema."""
    found = readings(avro_types(ddl).get(VALUE, "struct<>"), own_schemas(ddl))
    faults = tuple(fault for each in found for fault in each.faults)
    return TopicFault.UNLIKE_SCHEMA.of(faults=faults) if faults else None


def own_schemas(ddl: TableDdl) -> tuple[RegisteredSchema, ...]:
    """Return the schema in a table's OPTIONS; empty if the table has a registry, or if its values are not Avro."""
    text = next((value for key, value in ddl.options if key.lower() == SCHEMA), None)
    return () if text is None else (RegisteredSchema(0, text, SCHEMA),)


def _value_fault(given: Mapping[str, str]) -> Fact[TopicFault] | None:
    for option in _WHOLE:
        if option in given and not whole_number(given[option]):
            return TopicFault.VALUE.of(option=option, value=given[option], expected="a whole number of at least 1")
    if (loss := given.get(_LOSS, "true")).lower() not in ("true", "false"):
        return TopicFault.VALUE.of(option=_LOSS, value=loss, expected="'true' or 'false'")
    return None


def _start_fault(given: Mapping[str, str], topics: tuple[str, ...]) -> Fact[TopicFault] | None:
    starts = [name for name in STARTS if name in given]
    if len(starts) > 1:
        return TopicFault.TWO_STARTS.of(options=tuple(starts))
    for option in starts:
        value = given[option]
        if option == "startingoffsets" and value.lower() in ("earliest", "latest"):
            continue
        wrong = TopicFault.VALUE.of(option=option, value=value, expected=_EXPECTED_STARTS[option])
        if option == "startingtimestamp":
            return None if whole_number(value) is not None else wrong
        found = _positions(value)
        if found is None or (option != "startingoffsets" and any(min(each) < 0 for each in found.values())):
            return wrong
        if set(found) != set(topics):
            return TopicFault.START_TOPICS.of(option=option, found=tuple(found), topics=topics)
    return None


def _positions(text: str) -> dict[str, list[int]] | None:
    """Parse `startingOffsets` to offsets by topic; -2 is the earliest offset, -1 the latest. Return None if invalid."""
    try:
        found = json.loads(text)
        listed = {topic: [(int(partition), at) for partition, at in of.items()] for topic, of in found.items()}
    except (ValueError, AttributeError, RecursionError):
        return None
    positions = {topic: [at for _, at in of] for topic, of in listed.items()}
    is_valid = all(of and all(type(at) is int and at >= -2 for at in of) for of in positions.values())
    return positions if is_valid and all(partition >= 0 for of in listed.values() for partition, _ in of) else None


def _column_fault(ddl: TableDdl) -> Fact[TopicFault] | None:
    raw, captured = (value_format(ddl) is format for format in (ValueFormat.RAW, ValueFormat.DEBEZIUM))
    types_by_name = {**MESSAGE_PARTS, _CORRUPT: ("string",)}
    if KEY in avro_parts(ddl):
        del types_by_name["_key"]
        types_by_name = {"_key": (), **types_by_name}
    if captured:
        types_by_name |= {name: (kind,) for name, (kind, _) in METADATA.items()}
    for column in ddl.columns:
        name, parts = column.name.lower(), tuple(types_by_name)
        types = types_by_name.get(name)
        if types is None and name.startswith("_"):
            return TopicFault.UNDERSCORE.of(column=column.name, known=parts)
        if types and column.type not in types:
            return TopicFault.TYPE.of(column=column.name, found=column.type, expected=types[0])
        if raw and (types is None or name == _CORRUPT):
            return TopicFault.RAW_COLUMNS.of(column=column.name)
        if captured and types is None and not is_readable(column.type):
            return TopicFault.CAPTURED_TYPE.of(column=column.name, found=column.type.upper())
    return None if raw or any(map(is_field, ddl.columns)) else TopicFault.NO_COLUMNS.of()


def source_options(ddl: TableDdl) -> dict[str, str]:
    """Return the options for Spark's Kafka source.

    Unless the DDL sets a starting position, a new version reads the topics from their earliest messages. Unless the DDL
    sets any of `_CALLS`, a query ends within about 5 s of a stop, whether or not a broker answers.
    """
    shared = shared_settings(dict(ddl.options))
    ours = {VALUE_FORMAT, KEY_FORMAT, *_SCHEMA_OPTIONS, *(PREFIX + name for name in shared)}
    found = {key: value for key, value in ddl.options if key.lower() not in ours} | spark_settings(shared)
    if not any(key.lower().startswith("starting") for key in found):
        found["startingOffsets"] = "earliest"
    if not {name.lower() for name in _CALLS} & {name.lower() for name in found}:
        found |= _CALLS
    if any(column.name.lower() == "_headers" for column in ddl.columns):
        found["includeHeaders"] = "true"
    return found


def row_condition(ddl: TableDdl) -> str:
    """Return the SQL condition for a message to be a row; a Debezium tombstone is not a row."""
    return "value IS NOT NULL" if value_format(ddl) is ValueFormat.DEBEZIUM else "true"


def row_expressions(ddl: TableDdl, schemas: SchemasByPart | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the SQL expressions that turn messages of Spark's Kafka source into rows, in two groups.

    The first group is added to the source's columns, each expression in a projection of its own, because each refers to
    the previous one; it is empty if values are not parsed. The second group computes the table's columns. `schemas` are
    the schemas in the registry, if the table has one.

    A value that cannot be parsed fails the batch with `POISON` and the offset of the message, unless the table declares
    `_corrupt` to keep such values. FAILFAST is not used, because Spark's error would not identify the message
    (`from_json`, `from_avro`, Spark 4.2.0). A key that cannot be parsed always fails the batch.
    """
    keys, format = _key_steps(ddl, schemas or {}), value_format(ddl)
    kept = any(column.name.lower() == _CORRUPT for column in ddl.columns)
    steps, corrupt = _value_steps(ddl, schemas or {}, kept=kept)
    columns = [_expression(column, is_avro=bool(keys)) for column in ddl.columns]
    if corrupt:
        at = {_CORRUPT: f"{corrupt} AS {_CORRUPT}"}
        columns = [at.get(column.name.lower(), each) for column, each in zip(ddl.columns, columns, strict=True)]
    return (*keys, *(() if format is ValueFormat.RAW else steps)), tuple(columns)


def _key_steps(ddl: TableDdl, schemas: SchemasByPart) -> tuple[str, ...]:
    if (kind := avro_types(ddl).get(KEY)) is None:
        return ()
    failure = _failure("_key_fault", "', _key_error, '")
    steps = avro_steps(KEY, kind, schemas.get(KEY, ()), framed=True)
    return (*steps, f"{_once(f'IF(_key_fault IS NULL, _key_avro.part, {failure})')} AS _parsed_key")


def _value_steps(ddl: TableDdl, schemas: SchemasByPart, *, kept: bool) -> tuple[tuple[str, ...], str]:
    """Return the expressions that add `_parsed`, and the expression for `_corrupt`.

    The latter is empty if values are not parsed. `kept` means that the table declares `_corrupt`, so that values that
    cannot be parsed do not fail the batch.
    """
    fields = [column for column in ddl.columns if is_field(column)]
    match value_format(ddl):
        case ValueFormat.RAW:
            return (), ""
        case ValueFormat.AVRO:
            own = own_schemas(ddl)
            steps = avro_steps(VALUE, declared_type(fields), own or schemas.get(VALUE, ()), framed=not own)
            result = "NULL" if kept else _failure("_value_fault", "', _value_error, '")
            steps = (*steps, f"{_once(f'IF(_value_fault IS NULL, _value_avro.part, {result})')} AS _parsed")
            return steps, "IF(_value_fault IS NULL, NULL, base64(value))"
        case ValueFormat.DEBEZIUM:
            others = (*MESSAGE_PARTS, _CORRUPT)
            steps = change_steps([column for column in ddl.columns if column.name.lower() not in others])
            result = "NULL" if kept else _failure("_fault")
            steps = (*steps, f"{_once(f'IF(_fault IS NULL, _row, {result})')} AS _parsed")
            return steps, "IF(_fault IS NULL, NULL, CAST(value AS STRING))"
        case ValueFormat.JSON:
            listed = ", ".join(f"{quoted_name(column.name)}: {column.type}" for column in fields)
            parsed, is_wrong = whole_json("value", f"STRUCT<{listed}>", "_json")
            result = "_json.whole" if kept else _failure("'is not JSON of the declared columns'")
            steps = (f"{_once(parsed)} AS _json", f"{_once(f'IF({is_wrong}, {result}, _json.whole)')} AS _parsed")
            return steps, f"IF({is_wrong}, CAST(value AS STRING), NULL)"


def _once(expression: str) -> str:
    """Return an expression with the same value that Spark evaluates once for each message.

    Spark copies a deterministic expression into each condition on its result, even if the expression parses the
    message: a statement with one condition parsed each message three times (4.2.0, `PushPredicateThroughNonJoin`).
    The returned expression is not deterministic.
    """
    return f"IF(spark_partition_id() < 0, NULL, {expression})"


def _failure(reason: str, error: str = POISON) -> str:
    """Return the expression that fails the batch at a message, for a `reason` given as an SQL expression.

    `error` is the error class, or SQL that closes the string literal, adds an expression for the class and reopens it.
    """
    return f"raise_error(concat('[{error}] the message at ', {PLACE}, ' ', {reason}))"


def _expression(column: Column, *, is_avro: bool) -> str:
    """Return the SQL expression of a column; with `is_avro`, keys are parsed as Avro."""
    name = column.name.lower()
    if name == "_key" and is_avro:
        return f"_parsed_key AS {quoted_name(column.name)}"
    if name in MESSAGE_PARTS:
        return f"CAST({name.removeprefix('_')} AS {column.type}) AS {quoted_name(column.name)}"
    return f"_parsed.{quoted_name(column.name)} AS {quoted_name(column.name)}"


def is_field(column: Column) -> bool:
    """True if a column is a field of the value, not a part of the message."""
    return not column.name.startswith("_") or column.name.lower() in METADATA_NAMES


def value_format(ddl: TableDdl) -> ValueFormat:
    """Return the format in which the values of a table's messages are read or written."""
    said = next((value for key, value in ddl.options if key.lower() == VALUE_FORMAT), ValueFormat.JSON)
    return ValueFormat(said.lower())


def _listed(text: str) -> tuple[str, ...]:
    """Return the distinct entries of a comma-separated list."""
    return tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
