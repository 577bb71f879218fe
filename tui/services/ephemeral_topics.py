"""Topics of ephemeral environments: recorded before they are created, and deleted when all processes have ended."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from core.model.errors import HeadgateError, Refused
from core.model.names import TableName
from core.project.ephemeral import EphemeralRecord, Remains
from core.project_reader.ephemeral_project import source_ddl
from core.project_reader.ephemeral_systems import as_read
from core.sql.kafka_topics import merged_locations, topic_place
from core.sql.metadata_columns import without_metadata
from core.sql.statement import TableDdl
from core.text.sentence import Fact
from tui.services.table_client import TableClient


def topic_locations(topics: Mapping[TableName, TableDdl]) -> tuple[str, ...]:
    """Return the locations of tables over topics, one for each cluster and user."""
    return merged_locations(ddl.location for ddl in topics.values())


def with_topics(record: EphemeralRecord, topics: Mapping[TableName, TableDdl], access: TableClient) -> EphemeralRecord:
    """Return a record that names these topics as well. Raises Refused if a cluster does not answer."""
    wanted = merged_locations((*record.topics, *topic_locations(topics)))
    if wanted == record.topics:
        return record
    there = access.existing_topics(wanted, record.topic_prefix)
    if there and not record.topics:
        raise Refused(f"{', '.join(there)} exist already", remedy="run the command again: it takes another name")
    return replace(record, topics=wanted)


def partitions_of(replaced: Mapping[str, tuple[str, str]], access: TableClient) -> dict[str, int]:
    """Return the number of partitions of existing topics, by the names of the topics that replace them."""
    counts = access.partition_counts(sorted({location for location, _ in replaced.values()}))
    return {own: counts[topic] for own, topic in replaced.items() if topic in counts}


@dataclass(frozen=True, slots=True)
class EndedTopics:
    """What was found when the topics of an environment were deleted."""

    left: tuple[Fact[Remains], ...] = ()
    locations: tuple[str, ...] = ()
    """Locations of topics that are left, or may be."""
    brokers: tuple[str, ...] = ()
    """The brokers of each cluster whose topics were listed."""


def end_topics(record: EphemeralRecord, folder: Path, environ: Mapping[str, str]) -> EndedTopics:
    """Delete the topics of an environment whose processes have ended, and look for those that are left."""
    if not record.topics:
        return EndedTopics()
    left: list[Fact[Remains]] = []
    kept: list[str] = []
    searched: list[str] = []
    with closing(TableClient(environ)) as access:
        for servers, locations in _by_cluster(record.topics).items():
            names: tuple[str, ...] = ()
            try:
                names = access.delete_topics(locations, record.topic_prefix)
                searched.append(servers)
            except HeadgateError as error:
                unknown = Remains.TOPICS_UNKNOWN.of(
                    environment=record.name, servers=servers, folder=str(folder), why=error.summary
                )
                left.append(unknown)
            if names:
                left.append(Remains.TOPICS.of(names=names, servers=servers, folder=str(folder)))
            if names or servers not in searched:
                kept += locations
    return EndedTopics(tuple(left), tuple(kept), tuple(searched))


def read_back(ddl: TableDdl) -> str:
    """Return the declaration by which the messages of a topic that a statement writes are read, without metadata."""
    return source_ddl(as_read(without_metadata(ddl)), "")


def _by_cluster(locations: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for location in locations:
        found.setdefault(topic_place(location).servers, []).append(location)
    return found
