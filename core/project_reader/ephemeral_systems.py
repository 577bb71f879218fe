"""Topics and databases in the project of an ephemeral environment: topics of its own, and files instead of databases.

The name of a topic of its own begins with the name of the environment. A topic that a chosen statement writes and
another one reads stays one topic. No option that leads to something else in Kafka is kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from core.model.names import TableName
from core.model.table_formats import table_format
from core.project.model import Table
from core.project.naming import Naming
from core.sql.kafka_topics import (
    ASSIGNED,
    KEY_FORMAT,
    STARTS,
    TOPIC,
    TOPICS,
    ValueFormat,
    kafka_location,
    topic_place,
    value_format,
)
from core.sql.statement import TableDdl
from core.sql.written_topics import with_topic_named
from core.text.sentence import Fact, FactKind

STAND_IN = "parquet"
"""Format of the files in place of a database; it keeps every type."""

_DELAYING = ("minoffsetspertrigger", "maxtriggerdelay")
"""Options, in lower case, that make a batch wait for more messages."""

TOPIC_SETTINGS = ("connector", "silence", "mirror_offsets")
"""Settings in the yml of a table that lead to Kafka Connect and to consumer groups."""


class NotReplaced(FactKind):
    """Why topics cannot be replaced by topics of the environment's own."""

    AVRO = (
        "{table} reads {source}, whose messages are Avro, and rows are written to topics as JSON only",
        "leave out {table} and the tables downstream of it",
    )
    TOPIC_COLUMN = (
        "{table} reads {source}, which has a column _topic: it would contain the name of the topic that replaces it",
        "remove the column or, if a statement needs it, leave out {table} and the tables downstream of it",
    )


@dataclass(frozen=True, slots=True)
class SystemNames:
    """The names that topics have in an ephemeral environment and in the environment on which it is based."""

    own: Naming
    base: Naming


def fault_of_topics(table: TableName, source: Table) -> Fact[NotReplaced] | None:
    """Return why a statement, `table`, cannot read a topic of the environment's own in place of a source."""
    options = {name.lower() for name, _ in source.parsed_ddl.options}
    if value_format(source.parsed_ddl) is ValueFormat.AVRO or KEY_FORMAT in options:
        return NotReplaced.AVRO.of(table=table, source=source.name)
    if any(column.name.lower() == "_topic" for column in source.parsed_ddl.columns):
        return NotReplaced.TOPIC_COLUMN.of(table=table, source=source.name)
    return None


def own_topics(tables: Iterable[Table], names: SystemNames) -> dict[TableName, TableDdl]:
    """Return the declarations over topics of the environment's own, for all tables over topics among these."""
    every = [table for table in tables if table_format(table.parsed_ddl.format).topics]
    written = {topic: names.own.of(_topic(writer)) for topic, writer in _writers(every, names.base).items()}
    return {
        table.name: _over_own(table.parsed_ddl, written, names.own)
        if table.external
        else with_topic_named(table.parsed_ddl, names.own.of)
        for table in every
    }


def replaced_topics(tables: Iterable[Table], names: SystemNames) -> dict[str, tuple[str, str]]:
    """Return the topic that each topic of the environment's own replaces, as its location and its name."""
    found: dict[str, tuple[str, str]] = {}
    for table in tables:
        if table_format(table.parsed_ddl.format).topics:
            ddl = table.parsed_ddl if table.external else with_topic_named(table.parsed_ddl, names.base.of)
            declared = topic_place(table.parsed_ddl.location).topics
            for own, replaced in zip(map(names.own.of, declared), topic_place(ddl.location).topics, strict=True):
                found[own] = (ddl.location, replaced)
    return found


def read_messages(tables: Iterable[Table], base: Naming) -> dict[TableName, TableName]:
    """Return the external tables among these that read messages of a statement among them, each with the statement.

    `base` is the naming of the environment in which the tables are declared.
    """
    every = [table for table in tables if table_format(table.parsed_ddl.format).topics]
    writers, found = _writers(every, base), dict[TableName, TableName]()
    for table in every:
        topics = topic_place(table.parsed_ddl.location).topics if table.external else ()
        found.update((table.name, writers[topic].name) for topic in topics if topic in writers)
    return found


def as_stand_in(ddl: TableDdl) -> TableDdl:
    """Return the declaration of files with the columns of a table in a database."""
    return replace(ddl, format=STAND_IN, options=(), properties=())


def as_read(ddl: TableDdl) -> TableDdl:
    """Return the declaration by which messages that a statement has written are read."""
    options = tuple((TOPICS if name.lower() == TOPIC else name, value) for name, value in ddl.options)
    return replace(ddl, options=options)


def is_assigned(ddl: TableDdl, column: str) -> bool:
    """True if the broker gives a column its values, so that no case can."""
    return table_format(ddl.format).topics and column.lower() in ASSIGNED


def _writers(tables: Iterable[Table], base: Naming) -> dict[str, Table]:
    """Return the statements that write topics, by the name of the topic in the environment with a naming."""
    return {base.of(_topic(table)): table for table in tables if not table.external}


def _topic(table: Table) -> str:
    """Return the topic that a statement writes, as declared."""
    (topic,) = topic_place(table.parsed_ddl.location).topics
    return topic


def _over_own(ddl: TableDdl, written: Mapping[str, str], naming: Naming) -> TableDdl:
    topics = ",".join(dict.fromkeys(written.get(each) or naming.of(each) for each in topic_place(ddl.location).topics))
    dropped = (*STARTS, "startingoffsetsbytimestampstrategy", *_DELAYING)
    kept = ((name, value) for name, value in ddl.options if name.lower() not in dropped)
    options = tuple((name, topics if name.lower() == TOPICS else value) for name, value in kept)
    return replace(ddl, options=options, location=kafka_location(dict(options)))
