"""Batches are read from logs in the form in which Spark 4.2.0 and Delta 4.4.0 write them."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from core.bench.batch_trace import Batch
from core.bench.request import BenchStatement
from core.bench.topic_inputs import TopicInputs
from core.model.names import TableName
from pipelines.bench.batch_reader import BatchReader
from pipelines.bench.topic_load import TopicLoad

A, SOURCE = TableName("a"), TableName("source")


@pytest.fixture
def logs(tmp_path: Path) -> "Logs":
    return Logs(tmp_path)


class Logs:
    """Writes the logs of a statement over files."""

    def __init__(self, root: Path) -> None:
        self.checkpoint, self.table = root / "c", root / "t"
        (self.table / "_spark_metadata").mkdir(parents=True)
        (self.table / "_delta_log").mkdir()
        for name in ("offsets", "commits", "sources/0"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id":"q"}')

    def reader(
        self,
        format: str = "parquet",
        source_format: str = "json",
        place: str = "/in",
        topics: TopicLoad | None = None,
        table: str = "",
    ) -> BatchReader:
        sources = ((SOURCE, place, source_format),)
        statement = BenchStatement(A, table or str(self.table), format, str(self.checkpoint), sources, 5.0, 60.0)
        return BatchReader(statement, topics or TopicLoad(""))

    def planned(self, number: int, offset: object, *, at: float, watermark_ms: int = 0) -> None:
        body = offset if isinstance(offset, str) else json.dumps(offset)
        path = self.checkpoint / f"offsets/{number}"
        path.write_text(f"v1\n{json.dumps({'batchWatermarkMs': watermark_ms})}\n{body}")
        os.utime(path, (at, at))

    def committed(self, number: int, *, at: float) -> None:
        path = self.checkpoint / f"commits/{number}"
        path.write_text('v1\n{"nextBatchWatermarkMs":0}')
        os.utime(path, (at, at))

    def listed(self, number: int, *files: str) -> None:
        lines = [json.dumps({"path": f"file:///in/{each}", "timestamp": 0, "batchId": number}) for each in files]
        (self.checkpoint / f"sources/0/{number}").write_text("\n".join(["v1", *lines]))

    def wrote(self, number: int, rows: int, *, at: float) -> str:
        place = self.table / f"part-{number}.parquet"
        parquet.write_table(arrow.table({"id": list(range(rows))}), place)
        log = self.table / f"_spark_metadata/{number}"
        log.write_text("v1\n" + json.dumps({"path": f"file://{place}", "action": "add"}))
        os.utime(log, (at, at))
        return str(place)


def test_a_batch_has_what_it_read_and_wrote_and_when(logs: Logs) -> None:
    reader = logs.reader()
    assert not reader.refresh()
    logs.listed(0, "x.json", "with%20space.json")
    logs.planned(0, {"logOffset": 0}, at=100, watermark_ms=7)
    assert not reader.refresh()
    path = logs.wrote(0, 3, at=104)
    logs.committed(0, at=105)
    assert reader.refresh()
    read = (frozenset({"/in/x.json", "/in/with space.json"}),)
    assert reader.batches == [Batch(0, 100, 104, read, frozenset({path}), 7)]


def test_a_batch_without_rows_wrote_nothing_although_spark_writes_a_file(logs: Logs) -> None:
    logs.listed(0, "x.json")
    logs.planned(0, {"logOffset": 0}, at=100)
    logs.wrote(0, 0, at=104)
    logs.committed(0, at=105)
    logs.planned(1, {"logOffset": 0}, at=110, watermark_ms=9)
    logs.committed(1, at=111)
    reader = logs.reader()
    reader.refresh()
    assert [(each.visible_at, each.written) for each in reader.batches] == [(105, frozenset()), (111, frozenset())]
    assert reader.batches[1].read == (frozenset(),)


def test_a_source_without_data_yet_is_read_later(logs: Logs) -> None:
    logs.planned(0, "-", at=100)
    logs.committed(0, at=101)
    logs.listed(0, "x.json")
    logs.listed(1, "y.json")
    logs.planned(1, {"logOffset": 1}, at=102)
    logs.committed(1, at=103)
    reader = logs.reader()
    reader.refresh()
    assert [each.read[0] for each in reader.batches] == [frozenset(), frozenset({"/in/x.json", "/in/y.json"})]


def test_versions_of_a_delta_table_are_read_by_the_batch_that_completes_them(logs: Logs) -> None:
    def offset(version: int, index: int, *, snapshot: bool = False) -> dict[str, object]:
        known = {"sourceVersion": 1, "reservoirId": "r", "reservoirVersion": version, "index": index}
        return {**known, "isStartingVersion": snapshot}

    for number, (version, index, snapshot) in enumerate([(1, 3, True), (3, -1, False), (3, 0, False), (4, -1, False)]):
        logs.planned(number, offset(version, index, snapshot=snapshot), at=100 + number)
        logs.committed(number, at=100.5 + number)
    reader = logs.reader(source_format="delta", place="/d")
    reader.refresh()
    read = [sorted(each.read[0]) for each in reader.batches]
    assert read == [["/d@0", "/d@1"], ["/d@2"], ["/d@3"], []]


def test_a_batch_that_wrote_a_delta_table_is_found_by_its_transaction(logs: Logs) -> None:
    def commit(version: int, *actions: dict[str, object], at: float) -> None:
        path = logs.table / f"_delta_log/{version:020}.json"
        path.write_text("\n".join(map(json.dumps, actions)))
        os.utime(path, (at, at))

    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    meta = {"metaData": {"id": "i", "schemaString": "{}", "configuration": {}, "partitionColumns": []}}
    add = {"add": {"path": "f", "size": 9, "modificationTime": 1, "dataChange": True, "partitionValues": {}}}
    commit(0, protocol, meta, at=99)
    commit(1, {"txn": {"appId": "q", "version": 0}}, add, at=104)
    commit(2, {"txn": {"appId": "another", "version": 1}}, add, at=105)
    commit(3, {"txn": {"appId": "q", "version": 1}}, at=106)
    logs.listed(0, "x.json")
    for number in (0, 1):
        logs.planned(number, {"logOffset": 0}, at=100 + 5 * number)
        logs.committed(number, at=107 + number)
    reader = logs.reader("delta")
    reader.refresh()
    place = str(logs.table)
    assert [each.written for each in reader.batches] == [frozenset({f"{place}@1"}), frozenset()]
    assert [each.visible_at for each in reader.batches] == [104, 108]


@dataclass
class Topic:
    """A topic with one partition, as the times of its messages in milliseconds."""

    times_ms: list[int] = field(default_factory=list)

    def ends(self, before_ms: int | None = None) -> dict[tuple[str, int], int]:
        return {("out", 0): sum(1 for each in self.times_ms if before_ms is None or each < before_ms)}

    def times(self, places: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return {each: self.times_ms[offset] for each, offset in places.items()}


def test_messages_are_those_of_the_batch_that_was_committed_after_them(logs: Logs) -> None:
    topic = Topic([104_200, 104_300, 112_001])
    topics = TopicLoad("", connect=lambda location: topic)  # type: ignore[arg-type, return-value]  # A fake.
    reader = logs.reader("kafka", topics=topics, table="kafka://b:9092/out")
    for number, offset in enumerate((0, 0, 1)):
        logs.listed(number, f"{number}.json")
        logs.planned(number, {"logOffset": offset}, at=104 + 4 * number)
        logs.committed(number, at=105 + 4 * number)
    reader.refresh()
    assert [(each.visible_at, set(each.written)) for each in reader.batches] == [
        (104.3, {"kafka://b:9092/out@0"}), (109, set()), (112.001, {"kafka://b:9092/out@2"}),
    ]  # fmt: skip


def test_a_batch_that_read_messages_of_a_running_one_is_known_once_that_is_committed(logs: Logs) -> None:
    topics = TopicLoad("", inputs=TopicInputs(sinks={"out"}))
    reader = logs.reader(source_format="kafka", topics=topics)
    topics.inputs.add("x@0", {("out", 0): 2})
    for number, offset in enumerate((2, 5)):
        logs.planned(number, {"out": {"0": offset}}, at=100 + number)
        logs.committed(number, at=100.5 + number)
    assert reader.refresh() and not reader.refresh()
    topics.inputs.add("x@1", {("out", 0): 6})
    assert reader.refresh()
    topics.inputs.add("x@2", {("out", 0): 7})
    logs.planned(2, {"out": {"0": 7}}, at=110)
    logs.committed(2, at=111)
    reader.refresh()
    assert [set(each.read[0]) for each in reader.batches] == [{"x@0"}, set(), {"x@1", "x@2"}]
