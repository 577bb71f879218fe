"""Load is written as files or as messages, and filled up to a size."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core.bench.replayed_load import ReplayedLoad, SourceSample
from core.bench.request import BenchSource, BenchStatement
from core.model.errors import UsageError
from core.model.names import TableName
from pipelines.bench.load_writer import LoadWriter, sized
from pipelines.bench.paired_benchmark import longest_path
from pipelines.bench.source_files import show_file, write_rows
from pipelines.bench.topic_load import TopicLoad

S = TableName("s")


def source(folder: str, format: str, columns: tuple[tuple[str, str], ...], **options: str) -> BenchSource:
    return BenchSource(S, folder, format, columns, options)


def test_records_are_filled_up_to_a_size(tmp_path: Path) -> None:
    of = source(str(tmp_path), "json", (("id", "bigint"), ("note", "string")))
    rows = tuple({"id": n, "note": "x" * (n % 10)} for n in range(10, 60))
    load = ReplayedLoad({S: SourceSample(S, of.columns, rows)}, frozenset({(S, "id")}))
    filled = sized(load, [of], 500)
    path = Path(show_file(write_rows(of, "one", filled.rows(S, 0, 50, at_s=0, spread_s=0))))
    assert abs(path.stat().st_size / 50 - 500) < 10
    with pytest.raises(UsageError, match="bytes already"):
        sized(load, [of], 20)
    bare = ReplayedLoad({S: SourceSample(S, of.columns, rows)}, frozenset({(S, "id"), (S, "note")}))
    with pytest.raises(UsageError, match="no text column"):
        sized(bare, [of], 500)


@dataclass
class Topics:
    """Topics with two partitions that take every message, at a time of their own."""

    written: list[tuple[str, Any]] = field(default_factory=list)

    def write(self, messages: list[tuple[str, Any]]) -> None:
        self.written += messages

    def ends(self) -> dict[tuple[str, int], int]:
        return {("it_s", n): (len(self.written) + n) // 2 for n in range(2)}


def over_topics(tmp_path: Path, source: BenchSource, rows: tuple[dict[str, object], ...]) -> tuple[LoadWriter, Topics]:
    topics = Topics()
    samples = {S: SourceSample(S, source.columns, rows)}
    sent = TopicLoad(
        str(tmp_path / "load"), samples, clock=lambda: 7.0,
        connect=lambda location: topics,  # type: ignore[arg-type, return-value]  # A fake.
    )  # fmt: skip
    load = ReplayedLoad(samples, frozenset({(S, "id")}))
    return LoadWriter(load, {S: source}, lambda seconds: None, lambda: 9.0, topics=sent), topics


def test_prepared_messages_are_written_when_they_are_due_and_are_one_input(tmp_path: Path) -> None:
    of = source("kafka://b:9092/it_s", "kafka", (("id", "bigint"), ("note", "string")))
    writer, topics = over_topics(tmp_path, of, ({"id": 1, "note": "ü"}, {"id": 2, "note": None}))
    (injected,) = writer.probe(4)
    assert (injected.input, injected.at) == ("kafka://b:9092/it_s#1", 7.0), "the time before they were sent"
    assert [value for _, (_, value, _, _) in topics.written] == [
        b'{"id": 1, "note": "\\u00fc"}', b'{"id": 2, "note": null}', b'{"id": 11, "note": "\\u00fc"}',
        b'{"id": 12, "note": null}',
    ]  # fmt: skip
    assert writer.topics.inputs.every == [("kafka://b:9092/it_s#1", {("it_s", 0): 2, ("it_s", 1): 2})]
    prepared = writer.prepare(3, 2)
    assert len(list((tmp_path / "load").iterdir())) == 2 and len(topics.written) == 4
    assert next(writer.shown(prepared))[0].input == "kafka://b:9092/it_s#2" and len(topics.written) == 7
    writer.discard(prepared)
    assert not list((tmp_path / "load").iterdir())


def test_values_that_are_not_parsed_are_filled_up_with_spaces(tmp_path: Path) -> None:
    of = source("kafka://b:9092/it_s", "kafka", (("_value", "string"), ("_key", "string")), **{"value.format": "raw"})
    rows: tuple[dict[str, object], ...] = tuple({"_value": f'{{"id": {n}}}', "_key": "a key"} for n in range(20))
    writer, topics = over_topics(tmp_path, of, rows)
    writer.load = sized(writer.load, [of], 100)
    writer.probe(20)
    values = [value.decode() for _, (_, value, _, _) in topics.written]
    assert {abs(len(each) - 100) <= 1 for each in values} == {True}
    assert [each.strip() for each in values] == [row["_value"] for row in rows]


def test_a_portion_ends_with_new_rows_at_each_closing_time(tmp_path: Path) -> None:
    of = source(str(tmp_path), "json", (("id", "bigint"), ("at", "timestamp")))
    rows = tuple({"id": n, "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n)} for n in range(20))
    load = ReplayedLoad({S: SourceSample(S, of.columns, rows, "at")}, frozenset({(S, "id")}))
    writer = LoadWriter(load, {S: of}, lambda seconds: None, lambda: 9.0)
    portion, closing = writer.closed_portion(10, 10_000.0, (20_000.0, 30_000.0))
    known: set[int] = set()
    for injected, at in ((portion, 10_000.0), (closing[:1], 20_000.0), (closing[1:], 30_000.0)):
        found = [json.loads(line) for each in injected for line in Path(each.input).read_text().splitlines()]
        times = [datetime.fromisoformat(row["at"]).timestamp() for row in found]
        assert found and all(abs(time - at) < 120 for time in times)
        assert not known & {row["id"] for row in found}
        known |= {row["id"] for row in found}


def test_the_longest_path_decides_how_often_a_portion_is_closed() -> None:
    def reads(table: str, *sources: str) -> BenchStatement:
        read = tuple((TableName(each), "", "json") for each in sources)
        return BenchStatement(TableName(table), "", "json", "", read, trigger_s=1.0, objective_s=10.0)

    assert longest_path([reads("a", "s"), reads("b", "a", "s"), reads("c", "s"), reads("d", "b", "c")]) == 3
    assert longest_path([reads("a", "s")]) == 1
