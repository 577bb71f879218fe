"""Commits the Kafka offsets of statements to consumer groups, so that other tools can show the statements' lag.

Spark commits no offsets. The committed offsets follow the checkpoint of the serving version, and are never read back.
"""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from core.model.errors import HeadgateError, TryAgain
from core.model.events import EventKind
from core.model.names import TableName, query_name
from core.observed.versions import Deployment
from core.sql.kafka_topics import TopicPlace, topic_place
from core.text.sentence import Fact
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import mirror_group, streamed_reads, streamed_sources
from pipelines.spark_connect.call_deadlines import in_threads
from pipelines.storage.kafka_clients import GroupFault, KafkaClients, connect
from pipelines.storage.kafka_messages import Partition

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Seconds between two rounds."""

AGAIN_S = 600.0
"""Seconds before unchanged offsets are committed again, because Kafka deletes the offsets of an unused group."""

AT_ONCE = 8
"""Number of groups to which offsets are committed at the same time. A commit mostly waits for the network."""

SILENT_S = 30.0
"""Pause, in seconds, before offsets are committed again to a cluster that did not answer."""

NOT_MIRRORED = "HEADGATE_OFFSETS_NOT_MIRRORED"
"""Error class of the event recorded when a statement's offsets could not be committed to its group."""

_Statement = tuple[TableName, int]


@dataclass(slots=True)
class OffsetMirror:
    """Commits the offsets of all statements with `mirror_offsets`, in a separate loop."""

    agent: AgentContext
    _faults: dict[tuple[_Statement, TopicPlace], Fact[GroupFault]] = field(default_factory=dict)
    """Why the last commit of a statement's offsets to a cluster failed."""
    _clients: dict[TopicPlace, KafkaClients] = field(default_factory=dict)
    _silent_until: dict[TopicPlace, float] = field(default_factory=dict)
    _committed: dict[tuple[str, TopicPlace], tuple[Mapping[Partition, int], float]] = field(default_factory=dict)
    """The offsets last committed to a group in a cluster, and when (monotonic time)."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held by a thread of a round while it changes the fields above."""

    def round(self) -> None:
        """Commit changed offsets, and unchanged ones after `AGAIN_S` seconds, to `AT_ONCE` groups at a time."""
        self.agent.identity.refuse_doubt()
        by_version = {(d.table, d.version): d for d in self.agent.ledger.deployments()}
        groups = {
            key: group for key, d in by_version.items() if d.active and (group := mirror_group(d, self.agent.layout))
        }
        self._faults = {key: fault for key, fault in self._faults.items() if key[0] in groups}
        due = [
            (key, group, cluster, offsets)
            for key, group in groups.items()
            for cluster, offsets in self._offsets(by_version[key], by_version).items()
            if offsets and self._is_due(group, cluster, offsets)
        ]
        in_threads(AT_ONCE, lambda each: self._commit(*each), due)

    def _commit(self, about: _Statement, group: str, cluster: TopicPlace, offsets: Mapping[Partition, int]) -> None:
        # A cluster that has not answered for another group in this round is not asked again.
        if not self._is_due(group, cluster, offsets):
            return
        try:
            fault = self._clients_of(cluster).commit(group, offsets)
        except HeadgateError as error:
            fault = GroupFault.NO_ANSWER.of(group=group, why=error.summary)
        with self._lock:
            if fault:
                self._failed(about, cluster, fault)
                return
            self._committed[group, cluster] = (offsets, time.monotonic())
            if self._faults.pop((about, cluster), None):
                log.info("the offsets of %s are committed again", query_name(*about))

    def fault_of(self, table: TableName, version: int) -> Fact[GroupFault] | None:
        """Return why the offsets of a version are not committed; None if they are, or if it has no group."""
        faults = tuple(self._faults.items())
        return next((fault for (about, _), fault in faults if about == (table, version)), None)

    def _clients_of(self, cluster: TopicPlace) -> KafkaClients:
        with self._lock:
            if cluster not in self._clients:
                self._clients[cluster] = connect(cluster)
            return self._clients[cluster]

    def _is_due(self, group: str, cluster: TopicPlace, offsets: Mapping[Partition, int]) -> bool:
        known, at = self._committed.get((group, cluster), ({}, 0.0))
        now = time.monotonic()
        return now >= self._silent_until.get(cluster, 0.0) and (known != offsets or now - at >= AGAIN_S)

    def _offsets(
        self, deployment: Deployment, by_version: Mapping[_Statement, Deployment]
    ) -> dict[TopicPlace, dict[Partition, int]]:
        """Return a statement's committed offsets by cluster. If a partition is read twice, the lower offset counts."""
        found: dict[TopicPlace, dict[Partition, int]] = {}
        for source in streamed_sources(deployment, streamed_reads(deployment), by_version):
            place, read = topic_place(source[2]), None
            with suppress(TryAgain):
                read = self.agent.files.topic_offsets(deployment.checkpoint, source)
            for each, offset in (read or {}).items():
                offsets = found.setdefault(replace(place, topics=(), skips_lost=False), {})
                if each[0] in place.topics:
                    offsets[each] = min(offset, offsets.get(each, offset))
        return found

    def _failed(self, about: _Statement, cluster: TopicPlace, fault: Fact[GroupFault]) -> None:
        if fault.kind is GroupFault.NO_ANSWER:
            # New clients read the credentials again, which may have been corrected.
            self._clients.pop(cluster, None)
            self._silent_until[cluster] = time.monotonic() + SILENT_S
        before = self._faults.get((about, cluster))
        self._faults[about, cluster] = fault
        if before is None or before.kind is not fault.kind:
            words = f"the offsets of {query_name(*about)} are not mirrored: {fault}; {fault.remedy}"
            self.agent.event(EventKind.EXCEPTION, NOT_MIRRORED, about=about, detail=words, fingerprint=NOT_MIRRORED)
