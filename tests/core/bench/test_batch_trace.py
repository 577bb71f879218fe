"""A chain is simulated with rows that know where they are, and compared with what positions alone say."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bench.batch_trace import (
    Arrival,
    Batch,
    BatchTracer,
    Ended,
    Injected,
    Stages,
    TracedStatement,
    in_topological_order,
)
from core.bench.watermark_waits import WatermarkWait
from core.model.names import TableName


def named(name: str) -> TableName:
    return TableName(name)


def statement(table: str, *sources: str, waits: WatermarkWait | None = None) -> TracedStatement:
    return TracedStatement(named(table), tuple(map(named, sources)), waits)


def batch(number: int, began: float, ended: float, *read: set[str], written: str = "", watermark_s: float = 0) -> Batch:
    outputs = frozenset(written.split())
    return Batch(number, began, ended, tuple(map(frozenset, read)), outputs, watermark_ms=int(watermark_s * 1000))


def injected(input: str = "i", at: float = 0.0, event_s: float = 0.0) -> Injected:
    return Injected(named("source"), input, at, event_s, event_s)


def traced(statements: list[TracedStatement], batches: dict[str, list[Batch]], of: Injected) -> dict[str, object]:
    tracer = BatchTracer(in_topological_order(statements), {named(table): each for table, each in batches.items()})
    return {str(table): end for table, end in tracer.trace(of).items()}


CHAIN = [statement("b", "a"), statement("a", "source")]


def test_the_stages_of_a_chain_add_up() -> None:
    batches = {"a": [batch(0, 2, 3, {"i"}, written="f")], "b": [batch(0, 7, 11, {"f"}, written="g")]}
    assert traced(CHAIN, batches, injected(at=1)) == {
        "a": Arrival(3, named("source"), Stages(1, 1), Stages(1, 1)),
        "b": Arrival(11, named("a"), Stages(4, 4), Stages(5, 5)),
    }


def test_files_of_one_batch_that_are_read_by_two_batches_arrive_with_the_second() -> None:
    batches = {
        "a": [batch(0, 2, 3, {"i"}, written="f1 f2")],
        "b": [batch(0, 4, 5, {"f1"}, written="g1"), batch(1, 6, 9, {"f2"}, written="g2")],
    }
    assert traced(CHAIN, batches, injected())["b"] == Arrival(9, named("a"), Stages(3, 3), Stages(5, 4))


def test_an_unread_input_ends_the_trace_everywhere_downstream() -> None:
    assert traced(CHAIN, {"a": [], "b": []}, injected()) == {"a": Ended.UNREAD, "b": Ended.UNREAD}


def test_a_batch_without_rows_ends_the_trace() -> None:
    assert traced(CHAIN, {"a": [batch(0, 1, 2, {"i"})]}, injected()) == {"a": Ended.NO_ROWS, "b": Ended.NO_ROWS}


def test_rows_that_wait_arrive_with_the_batch_whose_watermark_has_passed_them() -> None:
    window = [statement("w", "source", waits=WatermarkWait(30, 30))]
    batches = [
        batch(0, 50, 51, {"i"}, written="f0", watermark_s=20),
        batch(1, 60, 61, {"j"}, written="f1", watermark_s=59.9),
        batch(2, 70, 72, set(), written="f2", watermark_s=60),
    ]
    found = traced(window, {"w": batches}, injected(at=45, event_s=44))
    assert found == {"w": Arrival(72, named("source"), Stages(5, 1, 21), Stages(5, 1, 21))}
    assert traced(window, {"w": batches[:2]}, injected(at=45, event_s=44)) == {"w": Ended.WATERMARK}


def test_a_join_has_all_rows_of_a_source_when_both_ways_have_arrived() -> None:
    statements = [statement("a", "source"), statement("b", "source"), statement("c", "a", "b")]
    batches = {
        "a": [batch(0, 1, 2, {"i"}, written="fa")],
        "b": [batch(0, 1, 8, {"i"}, written="fb")],
        "c": [batch(0, 3, 4, {"fa"}, set(), written="g0"), batch(1, 9, 10, set(), {"fb"}, written="g1")],
    }
    assert traced(statements, batches, injected())["c"] == Arrival(10, named("b"), Stages(1, 1), Stages(2, 8))
    del batches["c"][1]
    assert traced(statements, batches, injected())["c"] is Ended.UNREAD
    batches["b"] = [batch(0, 1, 8, {"i"})]
    assert traced(statements, batches, injected())["c"] == Arrival(4, named("a"), Stages(1, 1), Stages(2, 2))


def test_tables_that_are_not_downstream_are_left_out() -> None:
    assert traced([statement("a", "other")], {"a": []}, injected()) == {}


@dataclass
class _Chain:
    """A chain in which every statement writes one file for each batch, with the inputs whose rows are in it."""

    length: int
    data: st.DataObject
    batches: dict[str, list[Batch]] = field(default_factory=dict)
    arrived: dict[tuple[str, str], float] = field(default_factory=dict)

    def run(self, inputs: dict[str, float]) -> None:
        files = {each: (at, frozenset([each])) for each, at in inputs.items()}
        for place in range(self.length):
            files = self.through(f"t{place}", files)

    def through(
        self, table: str, files: dict[str, tuple[float, frozenset[str]]]
    ) -> dict[str, tuple[float, frozenset[str]]]:
        left, now, written = dict(files), 0.0, {}
        self.batches[table] = []
        while left:
            now += self.data.draw(st.floats(0.1, 5))
            mine = [each for each, (at, _) in left.items() if at <= now]
            mine = mine[: self.data.draw(st.integers(1, 3))]
            if not mine:
                continue
            ended = now + self.data.draw(st.floats(0.1, 5))
            rows = frozenset(row for each in mine for row in left.pop(each)[1])
            number = len(self.batches[table])
            file = f"{table}-{number}"
            self.batches[table].append(batch(number, now, ended, set(mine), written=file))
            written[file] = (ended, rows)
            for row in rows:
                self.arrived[table, row] = ended
            now = ended
        return written


@given(st.data(), st.integers(1, 4), st.lists(st.floats(0, 20), min_size=1, max_size=6))
def test_positions_say_when_simulated_rows_arrive(data: st.DataObject, length: int, moments: list[float]) -> None:
    chain = _Chain(length, data)
    inputs = {f"i{number}": at for number, at in enumerate(sorted(moments))}
    chain.run(inputs)
    statements = [statement(f"t{n}", f"t{n - 1}" if n else "source") for n in range(length)]
    for each, at in inputs.items():
        found = traced(statements, chain.batches, injected(each, at))
        for table, arrival in found.items():
            assert isinstance(arrival, Arrival)
            assert arrival.visible_at == chain.arrived[table, each]
            assert arrival.path.sum_s == pytest.approx(arrival.visible_at - at)
