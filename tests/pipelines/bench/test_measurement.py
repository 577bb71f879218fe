"""A benchmark of two simulated statements, with a clock that only moves when the benchmark waits."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from core.bench.batch_trace import Batch, Injected
from core.bench.replayed_load import ReplayedLoad, SourceSample
from core.bench.request import BenchKind, BenchRequest, BenchSource, BenchStatement
from core.model.errors import HeadgateError
from core.model.names import TableName
from pipelines.bench import measurement
from pipelines.bench.load_writer import LoadWriter, PreparedFile, PreparedLoad
from pipelines.bench.measurement import RunningBenchmark

SOURCE, A, B = TableName("source"), TableName("a"), TableName("b")
TRIGGER_S = 2.0
CAPACITY = {A: 5000.0, B: 1000.0}
"""Rows per second that the batches of a statement process, in addition to a fixed time of 0.2 s."""


@dataclass
class World:
    """The clock, and the files that are visible, with their rows."""

    now: float = 1e9
    files: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    filtered: set[TableName] = field(default_factory=set)
    """Statements that process nothing."""

    def wait(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Simulated:
    """A statement that begins a batch at its trigger, if there is input, and writes one file for each batch."""

    statement: BenchStatement
    world: World
    batches: list[Batch] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    free_at: float = 0.0

    def refresh(self) -> bool:
        changed = False
        table, ((source, _, _),) = self.statement.table, self.statement.sources
        self.free_at = self.free_at or self.world.now
        while table not in self.world.filtered:
            there = self.world.files.get(source, {})
            start = self.free_at
            mine = {each: rows for each, (at, rows) in there.items() if each not in self.read and at <= start}
            took_s = 0.2 + sum(mine.values()) / CAPACITY[table]
            if start + (took_s if mine else TRIGGER_S) > self.world.now:
                return changed
            if mine:
                number, changed = len(self.batches), True
                self.read |= mine.keys()
                written = f"{table}{number}"
                self.world.files.setdefault(table, {})[written] = (start + took_s, sum(mine.values()))
                inputs = (frozenset(mine),)
                self.batches.append(Batch(number, start, start + took_s, inputs, frozenset([written])))
            self.free_at = max(start + took_s if mine else 0.0, start + TRIGGER_S)
        return changed


@dataclass(slots=True)
class Unwritten(LoadWriter):
    """Load of which no file is written."""

    world: World = field(default_factory=World)

    def _file(self, table: TableName, first: int, count: int, at: float, spread_s: float) -> PreparedFile:
        return PreparedFile(table, f"{first}", at, at, count)

    def _show(self, prepared: Any) -> list[Injected]:
        for each in prepared:
            self.world.files.setdefault(SOURCE, {})[each.hidden] = (self.world.now, each.rows)
        return [Injected(each.source, each.hidden, self.world.now, each.event_s, each.event_s) for each in prepared]

    def discard(self, prepared: Any) -> None:
        pass


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(measurement, "BatchReader", lambda statement, topics: Simulated(statement, made))
    return made


def answers(world: World, kind: BenchKind, sizes: tuple[int, ...] = (0,), **settings: Any) -> Iterator[dict[str, Any]]:
    statements = tuple(
        BenchStatement(table, "", "parquet", "", ((source, "", "json"),), TRIGGER_S, 60.0)
        for table, source in ((A, SOURCE), (B, A))
    )
    source = BenchSource(SOURCE, "", "json", (("id", "bigint"),))
    load = ReplayedLoad({SOURCE: SourceSample(SOURCE, source.columns, ({"id": 1},))}, frozenset())
    writer = Unwritten(load, {SOURCE: source}, world.wait, lambda: world.now, world=world)
    request = BenchRequest(kind, statements, (source,), **settings)
    return RunningBenchmark(
        request, writer, dict.fromkeys(sizes, load), clock=lambda: world.now, wait=world.wait
    ).answers()


def test_the_search_finds_the_capacity_of_the_slowest_statement(world: World) -> None:
    (result,) = [
        each["result"]
        for each in answers(world, BenchKind.THROUGHPUT, rate=100.0, window_s=30.0, precision=1.1)
        if "result" in each
    ]
    rates = {(str(each["kind"]), each["table"]): each["value"] for each in result["figures"]}
    assert 800 <= rates["rate", ""] < rates["failed rate", ""] <= 1250
    assert rates["rate", "b"] == rates["rate", ""]
    assert rates["rate", "a"] > rates["rate", "b"]
    assert ("failed rate", "a") not in rates


def test_a_batch_that_does_not_end_within_the_window_is_not_sustained(world: World) -> None:
    found = list(answers(world, BenchKind.THROUGHPUT, rate=16_000.0, window_s=10.0, precision=1.1, most=64_000.0))
    trials = [each["trial"] for each in found if "trial" in each]
    assert (trials[0]["rate"], trials[0]["sustained"]) == (16_000.0, False)
    judged = {each["table"]: each for each in trials[0]["statements"]}
    assert judged["a"]["keeping"] == "lag rises"


def test_the_time_before_the_load_is_none_whose_input_a_batch_has_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = LoadWriter.prepare

    def slow(self: LoadWriter, rate: float, seconds: float) -> PreparedLoad:
        found = prepare(self, rate, seconds)
        return replace(found, begins_at=found.begins_at + 100)

    monkeypatch.setattr(LoadWriter, "prepare", slow)
    found = list(answers(world, BenchKind.THROUGHPUT, rate=12_000.0, window_s=14.0, most=12_000.0))
    trials = [each["trial"] for each in found if "trial" in each]
    judged = {each["table"]: each for each in trials[0]["statements"]}
    assert judged["a"]["keeping"] == "lag rises"


def test_latencies_are_those_of_the_simulated_batches(world: World) -> None:
    (result,) = [
        each["result"]
        for each in answers(world, BenchKind.LATENCY, probes=8, probe_rows=10, rate=50.0, window_s=10.0, repeat=2)
        if "result" in each
    ]
    figures = {
        (str(each["kind"]), each["phase"], each["table"], each["repetition"]): each for each in result["figures"]
    }
    for phase, count in (("idle", 8), ("load", 10)):
        for repetition in (1, 2):
            for table, most_s in (("a", 2.3), ("b", 4.6)):
                latency = figures["latency", phase, table, repetition]
                assert latency["spread"]["count"] == count
                assert 0.2 <= latency["spread"]["least"] <= latency["spread"]["most"] <= most_s
            batch = figures["batch", phase, "b", repetition]["value"]
            assert batch == pytest.approx(0.2, abs=0.2)
    assert result["stages"] == [(A, SOURCE), (B, A)]
    assert result["notes"] == []


def test_a_statement_that_no_row_reaches_is_noted_and_all_silent_ones_are_an_error(world: World) -> None:
    world.filtered.add(B)
    (result,) = [each["result"] for each in answers(world, BenchKind.LATENCY, probes=2) if "result" in each]
    assert result["notes"][0] == "no row of the sample reached b"
    assert {each["table"] for each in result["figures"] if each["spread"]} == {A}
    world.filtered.add(A)
    with pytest.raises(HeadgateError, match="no statement has processed any input"):
        list(answers(world, BenchKind.LATENCY))


def test_a_point_of_scalability_follows_every_input_to_the_last_table(world: World) -> None:
    (result,) = [
        each["result"]
        for each in answers(world, BenchKind.SCALE, phase="4", rate=100.0, window_s=20.0)
        if "result" in each
    ]
    values = {(str(each["kind"]), each["table"]): each for each in result["figures"]}
    assert {each["phase"] for each in result["figures"]} == {"4"}
    whole, last = values["latency", ""], values["latency", "b"]
    assert whole["spread"] == last["spread"] and whole["spread"]["count"] == 20 and whole["missing"] == 0
    assert values["latency", "a"]["value"] < whole["value"]


def test_an_input_that_arrives_nowhere_is_missing_in_the_whole(world: World) -> None:
    world.filtered = {B}
    (result,) = [
        each["result"]
        for each in answers(world, BenchKind.SCALE, phase="1", rate=100.0, window_s=5.0)
        if "result" in each
    ]
    (whole,) = [each for each in result["figures"] if not each["table"]]
    assert (whole["spread"], whole["missing"], whole["missing_why"]) == (None, 5, "unread")


def test_a_search_is_repeated_for_every_size_of_records(world: World) -> None:
    found = list(answers(world, BenchKind.THROUGHPUT, (100, 1000), rate=400.0, window_s=20.0, precision=2.0))
    (result,) = [each["result"] for each in found if "result" in each]
    rates = {
        each["phase"]: each["value"] for each in result["figures"] if str(each["kind"]) == "rate" and not each["table"]
    }
    assert rates.keys() == {"100", "1000"} and all(rates.values())
    assert {each["phase"] for each in result["trials"]} == {"100", "1000"}
    assert any("records of 1000 bytes" in each.get("doing", "") for each in found)
