"""Commits of a statement's Kafka offsets to a consumer group: which offsets, when, and messages about refusals."""

from collections.abc import Mapping
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from ledger_rows import deployment_row, external_row

from core.model.errors import Refused, TryAgain
from core.observed.versions import Binding
from core.project.revision import RevisionTexts
from core.text.sentence import Fact
from pipelines.agent.tables import offset_mirror
from pipelines.agent.tables.offset_mirror import AGAIN_S, NOT_MIRRORED, SILENT_S, OffsetMirror
from pipelines.storage.kafka_clients import GroupFault

DML = "INSERT INTO a SELECT id FROM STREAM landed UNION ALL SELECT id FROM STREAM other;"
READS = RevisionTexts("CREATE TABLE a (id BIGINT) USING parquet;", DML, "mirror_offsets: g\n")
Offsets = Mapping[tuple[str, int], int]


class Brokers:
    """Clients of every cluster, which record what is committed, and refuse with `fault`."""

    def __init__(self) -> None:
        self.committed: list[tuple[str, Offsets]] = []
        self.fault: Fact[GroupFault] | None = None
        self.unusable: Exception | None = None
        self.at_once = Barrier(1)
        """Where a commit waits for others."""
        self.connected = 0

    def connect(self, place: object) -> "Brokers":
        self.connected += 1
        if self.unusable:
            raise self.unusable
        return self

    def commit(self, group: str, offsets: Offsets) -> Fact[GroupFault] | None:
        self.committed.append((group, dict(offsets)))
        self.at_once.wait(30)
        return self.fault


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    monkeypatch.setattr(offset_mirror, "connect", found.connect)
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [1_000.0]
    monkeypatch.setattr(offset_mirror.time, "monotonic", lambda: found[0])
    return found


@pytest.fixture
def read(agent: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The offsets in the checkpoint of a@v1 by source; the statement reads two tables over topics of one cluster."""
    found: dict[str, Any] = {"landed": {("t", 0): 5, ("t", 1): 7}, "other": {("t", 0): 3, ("u", 0): 9}}

    def topic_offsets(checkpoint: str, source: Any, *, planned: bool = False) -> Offsets | None:
        offsets = found[source[1]]
        if isinstance(offsets, Exception):
            raise offsets
        return dict(offsets)

    monkeypatch.setattr(agent.files, "topic_offsets", topic_offsets, raising=False)
    for name, topics in (("landed", "t"), ("other", "t,u")):
        agent.ledger.put_deployment(external_row(name, format="kafka", folder=f"kafka://h:9092/{topics}"))
    bindings = tuple(Binding(name, 0, True) for name in ("landed", "other"))
    agent.ledger.put_deployment(deployment_row(texts=READS, bindings=bindings))
    return found


def events(agent: Any) -> list[str]:
    return [event.detail for event in agent.ledger.events(limit=50) if event.summary == NOT_MIRRORED]


ALL = {("t", 0): 3, ("t", 1): 7, ("u", 0): 9}


def test_the_offsets_of_the_slower_read_are_committed_once_and_again_when_they_move(
    agent: Any, brokers: Brokers, read: dict[str, Any], clock: list[float]
) -> None:
    mirror = OffsetMirror(agent)
    mirror.round()
    mirror.round()
    assert brokers.committed == [("g", ALL)] and brokers.connected == 1
    read["other"] = {("t", 0): 4, ("u", 0): 9}
    mirror.round()
    assert brokers.committed[1:] == [("g", ALL | {("t", 0): 4})]


def test_unchanged_offsets_are_committed_again_before_kafka_forgets_them(
    agent: Any, brokers: Brokers, read: dict[str, Any], clock: list[float]
) -> None:
    mirror = OffsetMirror(agent)
    mirror.round()
    clock[0] += AGAIN_S
    mirror.round()
    assert brokers.committed == [("g", ALL)] * 2


def test_only_the_serving_version_of_a_statement_with_a_group_is_mirrored(
    agent: Any, brokers: Brokers, read: dict[str, Any]
) -> None:
    agent.ledger.put_deployment(replace(agent.ledger.deployment("a", 1), active=False))
    OffsetMirror(agent).round()
    agent.ledger.put_deployment(replace(agent.ledger.deployment("a", 1), texts=replace(READS, yml=""), revision="x"))
    agent.ledger.put_deployment(replace(agent.ledger.deployment("a", 1), active=True))
    OffsetMirror(agent).round()
    assert brokers.committed == []


def test_a_checkpoint_that_cannot_be_read_is_left_out(agent: Any, brokers: Brokers, read: dict[str, Any]) -> None:
    read["landed"], read["other"] = TryAgain("not mounted", remedy="mount it"), {}
    OffsetMirror(agent).round()
    assert brokers.committed == []


def test_a_group_that_others_use_is_reported_once_until_the_commit_succeeds(
    agent: Any, brokers: Brokers, read: dict[str, Any]
) -> None:
    mirror = OffsetMirror(agent)
    brokers.fault = GroupFault.IN_USE.of(group="g")
    mirror.round()
    mirror.round()
    assert events(agent) == [
        "the offsets of a@v1 are not mirrored: consumer group g has live members, which commit their own offsets; "
        "name another group in mirror_offsets, or stop them"
    ]
    assert mirror.fault_of("a", 1) == brokers.fault
    brokers.fault = None
    mirror.round()
    assert mirror.fault_of("a", 1) is None and len(brokers.committed) == 3


def test_a_cluster_that_does_not_answer_is_left_alone_and_then_connected_to_again(
    agent: Any, brokers: Brokers, read: dict[str, Any], clock: list[float]
) -> None:
    mirror = OffsetMirror(agent)
    brokers.fault = GroupFault.NO_ANSWER.of(group="g", why="no broker of h:9092 answers")
    mirror.round()
    mirror.round()
    assert len(brokers.committed) == 1
    clock[0] += SILENT_S
    brokers.fault = None
    mirror.round()
    assert len(brokers.committed) == 2 and brokers.connected == 2 and mirror.fault_of("a", 1) is None


def add_statement(agent: Any, table: str) -> None:
    """Add a statement with a group of its own and the reads of a@v1."""
    texts = replace(READS, dml=DML.replace("INTO a", f"INTO {table}"), yml=f"mirror_offsets: {table}\n")
    bindings = tuple(Binding(name, 0, True) for name in ("landed", "other"))
    agent.ledger.put_deployment(deployment_row(table, texts=texts, revision=table, bindings=bindings))


def test_offsets_are_committed_to_several_groups_at_once_by_the_same_clients(
    agent: Any, brokers: Brokers, read: dict[str, Any]
) -> None:
    add_statement(agent, "b")
    brokers.at_once = Barrier(2)
    OffsetMirror(agent).round()
    assert sorted(brokers.committed, key=str) == [("b", ALL), ("g", ALL)] and brokers.connected == 1


def test_a_cluster_that_does_not_answer_for_one_group_is_not_asked_for_those_that_wait(
    agent: Any, brokers: Brokers, read: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_mirror, "AT_ONCE", 1)
    add_statement(agent, "b")
    brokers.fault = GroupFault.NO_ANSWER.of(group="g", why="no broker of h:9092 answers")
    OffsetMirror(agent).round()
    assert len(brokers.committed) == 1


def test_clients_that_cannot_be_set_up_are_a_fault_of_the_statement(
    agent: Any, brokers: Brokers, read: dict[str, Any]
) -> None:
    brokers.unusable = Refused("the environment variable PW is not set", remedy="set it")
    mirror = OffsetMirror(agent)
    mirror.round()
    assert "cannot be reached: the environment variable PW is not set" in events(agent)[0]
