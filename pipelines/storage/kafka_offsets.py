"""Determines from Kafka offsets how far a statement is behind, and why it cannot continue to read a topic.

Spark commits no offsets to consumer groups. The offsets file of a checkpoint records what a statement has read. The
client library is an optional dependency, imported when a topic is measured for the first time.
"""

import hashlib
import json
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from core.model.errors import HeadgateError, Refused
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.observed.time_left import (
    Bound,
    Growth,
    Left,
    PartitionPosition,
    TimeLeft,
    TopicSettings,
    lost,
    shortest,
    time_left_in_topic,
)
from core.ports.storage import SourceLag, TableFault
from core.sql.kafka_topics import TopicPlace, topic_place
from core.text.wording import counted
from pipelines.storage import kafka_clients
from pipelines.storage.kafka_clients import KafkaClients, NoAnswer, NotAllowed, connect
from pipelines.storage.kafka_messages import NextMessage, NextMessages, Partition

REFRESH_S = 0.5
"""Minimum seconds between two requests for a cluster's offsets, however many statements read it."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

SILENT_S = 5.0
"""Seconds for which a cluster that did not answer receives no further request, so that it delays no other measurement.
"""

SETTINGS_S = 60.0
"""Minimum seconds between two requests for the retention of topics."""


@dataclass(slots=True)
class _Cluster:
    clients: KafkaClients
    next: NextMessages = field(init=False)
    topics: set[str] = field(default_factory=set)
    """All topics ever requested. Their offsets are requested together."""
    earliest: dict[Partition, int] = field(default_factory=dict)
    latest: dict[Partition, int] = field(default_factory=dict)
    newest: dict[Partition, float] = field(default_factory=dict)
    """Latest timestamp of each partition that has messages, in epoch seconds."""
    listed_at: float | None = None
    silent_until: float = 0.0
    failure: HeadgateError | None = None
    """Why the last listing failed; the cluster receives no further request until `silent_until`."""
    denied: dict[str, HeadgateError] = field(default_factory=dict)
    """By topic: the error if the user may not read the topic."""
    ids: dict[str, str] = field(default_factory=dict)
    """Ids of topics. A topic that is recreated gets a different id. Brokers before 2.8 report no ids."""
    settings: dict[str, TopicSettings | HeadgateError] = field(default_factory=dict)
    """The retention of topics, or why it is unknown."""
    settings_at: float | None = None
    growth: dict[Partition, Growth] = field(default_factory=dict)
    """Growth of the partitions of topics whose size is limited."""
    per_s: dict[Partition, float] = field(default_factory=dict)
    """Messages written per second; a partition whose rate is unknown is missing."""

    def __post_init__(self) -> None:
        self.next = NextMessages(self.clients)


class KafkaOffsets:
    """Reads the offsets of Kafka topics, with one client per cluster. Thread-safe."""

    def __init__(self, *, refresh_s: float = REFRESH_S) -> None:
        self._refresh_s = refresh_s
        self._clusters: dict[TopicPlace, _Cluster] = {}
        self._lock = threading.Lock()

    def lag(self, read: Mapping[Partition, int] | None, table: TableName, location: str) -> SourceLag:
        """Return a statement's lag behind the topics at a location. `read` contains the statement's offsets.

        `read` is None before the first batch. A partition that was added later counts as read up to its earliest
        message. The row count is exact, unless topics have offsets without a message and there are too many unread
        offsets to check. Raises TryAgain if no broker answers in time, and Refused if the client library is not
        installed or the brokers refuse the credentials.
        """
        place = topic_place(location)
        with self._lock:
            cluster = self._listed(place)
            latest = {each: end for each, end in cluster.latest.items() if each[0] in place.topics}
            newest = max((cluster.newest[each] for each in latest if each in cluster.newest), default=None)
            earliest, begun = cluster.earliest, _begun(cluster, place, read)
        if not set(place.topics) <= {topic for topic, _ in latest}:
            return SourceLag(table, 0, 0, rows=None, exact=False, oldest_s=None, missing=True, topics=True)
        unread = {each: (begun[each], end) for each, end in latest.items() if begun[each] < end}
        oldest = cluster.next.after(unread, list(cluster.latest))
        begun |= {each: unread[each][1] for each, found in oldest.items() if found.end is not None}
        gone = {
            each: n for each, offset in (read or {}).items() if each in latest and (n := earliest[each] - offset) > 0
        }
        times = [found.at for found in oldest.values() if found.at is not None]
        pending, now = {each: max(0, latest[each] - begin) for each, begin in begun.items()}, time.time()
        rows, exact = cluster.next.count(pending, oldest)
        spans = {each: (earliest[each], begin, latest[each]) for each, begin in begun.items()}
        # If messages are newer than this machine's time, its clock is behind.
        time_left = _time_left(cluster, spans, oldest, max(now, newest or 0.0))
        return SourceLag(
            table=table,
            files=rows,
            bytes=0,
            rows=rows,
            exact=exact,
            oldest_s=max(0.0, now - min(times)) if times else None,
            produced_rows=sum(latest.values()),
            consumed_rows=sum(begun.values()),
            newest_s=None if newest is None else max(0.0, now - newest),
            topics=True,
            skipped=sum(gone.values()) if place.skips_lost else None,
            time_left=_lost(gone) if gone and not place.skips_lost else time_left if read else None,
        )

    def prefetch(self, asked: Iterable[tuple[Mapping[Partition, int] | None, str]]) -> None:
        """Request together what `lag` needs for statements at these offsets and locations.

        Without this call, each statement whose offsets have moved would wait separately for a message. If a cluster
        does not answer, `lag` raises the error.
        """
        by_cluster: dict[TopicPlace, list[tuple[TopicPlace, Mapping[Partition, int] | None]]] = {}
        for read, location in asked:
            place = topic_place(location)
            by_cluster.setdefault(replace(place, topics=(), skips_lost=False), []).append((place, read))
        for key, readers in by_cluster.items():
            topics = {topic for place, _ in readers for topic in place.topics}
            with suppress(HeadgateError):
                with self._lock:
                    cluster = self._listed(replace(key, topics=tuple(topics)))
                    spans = [
                        (each, (begin, cluster.latest[each]))
                        for place, read in readers
                        for each, begin in _begun(cluster, place, read).items()
                        if begin < cluster.latest[each]
                    ]
                for unread in _by_partition(spans):
                    cluster.next.after(unread, list(cluster.latest))

    def ids(self, location: str) -> dict[str, str]:
        """Return the ids of the existing topics at a location. Raises the same errors as `lag`."""
        place = topic_place(location)
        with self._lock:
            found = self._listed(place).ids
            return {topic: found[topic] for topic in place.topics if topic in found}

    def identity(self, location: str) -> str:
        """Return the ids of the topics at a location as one string. Raises the same errors as `lag`.

        The result is empty unless all topics exist and have an id.
        """
        found = self.ids(location)
        return ",".join(found.values()) if found.keys() >= set(topic_place(location).topics) else ""

    def missing(self, locations: Iterable[str]) -> dict[str, tuple[str, ...] | HeadgateError]:
        """Return the topics that do not exist, by location, or the error that `lag` would raise.

        A cluster is asked once, for the topics of all locations. The question never makes a broker create a topic.
        """
        places = {location: topic_place(location) for location in locations}
        topics: dict[TopicPlace, set[str]] = {}
        for place in places.values():
            topics.setdefault(replace(place, topics=(), skips_lost=False), set()).update(place.topics)
        found: dict[str, tuple[str, ...] | HeadgateError] = {}
        with self._lock:
            for key, asked in topics.items():
                with suppress(HeadgateError):
                    self._listed(replace(key, topics=tuple(asked)), fresh=True)
            for location, place in places.items():
                try:
                    there = {topic for topic, _ in self._listed(place).latest}
                    found[location] = tuple(topic for topic in place.topics if topic not in there)
                except HeadgateError as error:
                    found[location] = error
        return found

    def newest(self, location: str) -> tuple[int, float | None]:
        """Return the sum of the topics' latest offsets, and the newest timestamp of their messages in epoch seconds.

        Raises the same errors as `lag`.
        """
        place = topic_place(location)
        with self._lock:
            cluster = self._listed(place)
            latest = {each: end for each, end in cluster.latest.items() if each[0] in place.topics}
            times = [cluster.newest[each] for each in latest if each in cluster.newest]
        return sum(latest.values()), max(times, default=None)

    def position(self, location: str, since: float | None = None) -> str:
        """Return the ends of the topics or, with `since`, the offsets of their first messages from that time on.

        The offsets have the form of a checkpoint; `since` is in epoch seconds. Raises Refused if a topic does not
        exist, and any error that `lag` raises.
        """
        place = topic_place(location)
        with self._lock:
            cluster = self._listed(place, fresh=True)
            found = {each: end for each, end in cluster.latest.items() if each[0] in place.topics}
            if missing := set(place.topics) - {topic for topic, _ in found}:
                raise Refused(f"there is no topic {' and '.join(sorted(missing))} at {place.servers}")
            if since is not None:
                found |= _offsets_since(cluster, found, since)
        by_topic = {
            topic: {str(n): at for (of, n), at in sorted(found.items()) if of == topic} for topic in place.topics
        }
        return json.dumps(by_topic, separators=(",", ":"))

    def fault_behind(
        self,
        read: Mapping[Partition, int],
        location: str,
        ids: Mapping[str, str] | None = None,
        *,
        fresh: bool = True,
    ) -> TableFault | None:
        """Return why a statement at the offsets `read` cannot continue with the topics; None if it can.

        `read` is empty before the first batch. `ids` contains the known ids of the topics that were read. With `fresh`,
        as before a start, the topics' offsets are requested again. Raises the same errors as `lag`.
        """
        place = topic_place(location)
        with self._lock:
            cluster = self._listed(place, fresh=fresh)
            there = {topic for topic, _ in cluster.latest}
            if missing := [topic for topic in place.topics if topic not in there]:
                return TableFault(TableFaultKind.GONE, f"has no topic {' and '.join(missing)} at {place.servers}")
            for each, offset in sorted(read.items()):
                topic, partition = each
                if topic not in place.topics:
                    continue
                former, now = (ids or {}).get(topic), cluster.ids.get(topic)
                if former and now and former != now:
                    why = f"was created again: topic {topic} has the id {now}, and the statement has read {former}"
                    return TableFault(TableFaultKind.REPLACED, why)
                if each not in cluster.latest:
                    return TableFault(TableFaultKind.GONE, f"has no partition {partition} of topic {topic} any more")
                if offset > cluster.latest[each]:
                    ends = f"partition {partition} of topic {topic} ends at offset {cluster.latest[each]:,}"
                    why = f"was created again: {ends}, and the statement has read up to {offset:,}"
                    return TableFault(TableFaultKind.REPLACED, why)
                if offset < cluster.earliest[each] and not place.skips_lost:
                    lost = counted(cluster.earliest[each] - offset, "unread message")
                    begins = f"partition {partition} of topic {topic} begins at offset {cluster.earliest[each]:,}"
                    why = f"has lost {lost} to its retention: {begins}, and the statement has read up to {offset:,}"
                    return TableFault(TableFaultKind.LOG_GONE, why)
        return None

    def _listed(self, place: TopicPlace, *, fresh: bool = False) -> _Cluster:
        key = replace(place, topics=(), skips_lost=False)
        cluster, now = self._clusters.get(key), time.monotonic()
        if cluster is None or (isinstance(cluster.failure, Refused) and now >= cluster.silent_until):
            # The credentials are read again, because they may have been corrected.
            topics = cluster.topics if cluster else set()
            cluster = self._clusters[key] = _Cluster(connect(key), topics)
        new = not cluster.topics.issuperset(place.topics)
        cluster.topics.update(place.topics)
        if now < cluster.silent_until and cluster.failure is not None:
            raise cluster.failure
        if new or fresh or cluster.listed_at is None or now - cluster.listed_at >= self._refresh_s:
            try:
                _list(cluster)
            except HeadgateError as error:
                if isinstance(error, Refused | NoAnswer):
                    cluster.failure, cluster.silent_until = error, time.monotonic() + SILENT_S
                raise
            cluster.listed_at, cluster.failure = now, None
            _observe_retention(cluster, now, fresh=new)
        if denied := next((error for topic, error in cluster.denied.items() if topic in place.topics), None):
            raise denied
        return cluster


def offsets_of(text: str, ordinal: int) -> dict[Partition, int] | None:
    """Parse the Kafka offsets of a source from an offsets file; None if the source has no Kafka offsets.

    The file has a version line, the batch's metadata, and then one line per source, for Kafka `{"topic":{"0":12}}`
    (Spark 4.2.0).
    """
    lines = text.split("\n")[2:]
    return parsed_offsets(lines[ordinal]) if ordinal < len(lines) else None


def parsed_offsets(line: str) -> dict[Partition, int] | None:
    """Parse offsets as Spark writes them into checkpoints; None if the line contains no Kafka offsets."""
    if not line.startswith("{"):
        return None
    parts = json.loads(line)
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in parts.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
    } or None


def mark_of_offsets(line: str) -> str | None:
    """Convert a line of an offsets file to a position mark; None if its source is not Kafka."""
    if (found := parsed_offsets(line)) is None:
        return None
    digest = hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()
    return f"{sum(found.values())}:{digest[:32]}"


def _list(cluster: _Cluster) -> None:
    from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    clients, wait_s = cluster.clients, {"request_timeout": kafka_clients.ANSWER_S}
    clients.forget_failure()
    cluster.denied.clear()
    cluster.ids.clear()
    partitions: list[Partition] = []
    for topic, answer in clients.admin.describe_topics(TopicCollection(sorted(cluster.topics)), **wait_s).items():
        try:
            found = clients.answer(answer)
        except NotAllowed as error:
            cluster.denied[topic] = error
            continue
        partitions += [(topic, part.id) for part in found.partitions] if found else []
        if found and (id := str(found.topic_id)) != _NO_ID:
            cluster.ids[topic] = id
    isolation = dict(clients.place.settings).get("isolation.level", "read_uncommitted")

    def listed(spec: Any) -> dict[Partition, Any]:
        asked = {TopicPartition(*each): spec for each in partitions}
        read = {"isolation_level": IsolationLevel[isolation.upper()], **wait_s}
        answers = clients.admin.list_offsets(asked, **read) if asked else {}
        found = {(place.topic, place.partition): clients.answer(answer) for place, answer in answers.items()}
        return {each: result for each, result in found.items() if result is not None}

    earliest, newest = listed(OffsetSpec.earliest()), listed(OffsetSpec.max_timestamp())
    # The latest offsets are requested last, so that none is lower than the earliest offset of its partition.
    latest = listed(OffsetSpec.latest())
    cluster.earliest = {each: result.offset for each, result in earliest.items()}
    cluster.latest = {each: result.offset for each, result in latest.items() if each in earliest}
    cluster.newest = {each: result.timestamp / 1000 for each, result in newest.items() if result.timestamp > 0}


def _offsets_since(cluster: _Cluster, places: Collection[Partition], since: float) -> dict[Partition, int]:
    """Return the offset of the first message since a time, for each partition that has such a message."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(*each): OffsetSpec.for_timestamp(int(since * 1000)) for each in places}
    answers = cluster.clients.admin.list_offsets(asked, request_timeout=kafka_clients.ANSWER_S)
    found = {(at.topic, at.partition): cluster.clients.answer(answer) for at, answer in answers.items()}
    return {each: result.offset for each, result in found.items() if result is not None and result.offset >= 0}


def _begun(cluster: _Cluster, place: TopicPlace, read: Mapping[Partition, int] | None) -> dict[Partition, int]:
    """Return the first pending offset of each partition of the topics that exist.

    Messages that retention has deleted are lost, not pending; `fault_behind` reports them.
    """
    there = (each for each in cluster.latest if each[0] in place.topics)
    return {each: max((read or {}).get(each, 0), cluster.earliest[each]) for each in there}


def _by_partition(
    spans: Iterable[tuple[Partition, tuple[int, int]]],
) -> list[dict[Partition, tuple[int, int]]]:
    """Distribute offsets over few mappings, because a consumer reads a partition at only one offset at a time."""
    found: list[dict[Partition, tuple[int, int]]] = []
    counts: dict[Partition, int] = {}
    for each, span in dict.fromkeys(spans):
        n = counts[each] = counts.get(each, 0) + 1
        if n > len(found):
            found.append({})
        found[n - 1][each] = span
    return found


def _observe_retention(cluster: _Cluster, now: float, *, fresh: bool) -> None:
    """Request the settings of all topics if they are old, and record the growth of the topics whose size is limited.

    If a broker does not answer, the previous settings are kept, because the lag does not depend on them.
    """
    if fresh or cluster.settings_at is None or now - cluster.settings_at >= SETTINGS_S:
        with suppress(HeadgateError):
            cluster.settings = cluster.clients.settings_of({topic for topic, _ in cluster.latest})
        cluster.settings_at = now
    limited = {topic for topic, each in cluster.settings.items() if isinstance(each, TopicSettings) and each.kept}
    for each, end in cluster.latest.items():
        if each[0] in limited and (per_s := cluster.growth.setdefault(each, Growth()).add(now, end)) is not None:
            cluster.per_s[each] = per_s


def _lost(gone: Mapping[Partition, int]) -> TimeLeft:
    return lost(Bound.MESSAGES_GONE, messages=sum(gone.values()), topics=tuple(sorted({topic for topic, _ in gone})))


def _time_left(
    cluster: _Cluster,
    spans: Mapping[Partition, tuple[int, int, int]],
    following: Mapping[Partition, NextMessage],
    now: float,
) -> TimeLeft | None:
    """Return the time left for a position from which no message is missing yet; None if no settings are known.

    `spans` contains, for each partition, its earliest offset, the position, and its latest offset.
    """
    by_topic: dict[str, list[PartitionPosition]] = {}
    for each, (earliest, begin, latest) in spans.items():
        found = following.get(each)
        next_at = None if found is None or found.end is not None else found.at
        position = PartitionPosition(max(0, latest - begin), max(0, begin - earliest), next_at, cluster.per_s.get(each))
        by_topic.setdefault(each[0], []).append(position)
    left: list[TimeLeft | None] = []
    for topic, positions in by_topic.items():
        settings = cluster.settings.get(topic)
        if isinstance(settings, HeadgateError):
            left.append(TimeLeft(Left.UNKNOWN, Bound.SETTINGS_UNREAD.of(topic=topic, why=settings.summary)))
        elif settings is not None:
            left.append(time_left_in_topic(settings, positions, message=cluster.next.size(topic), now=now))
    return shortest(left)
