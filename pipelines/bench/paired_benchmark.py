"""Measures old and new texts in alternating pairs on one server: how long their batches take for the same rows.

Both run in environments of their own, and only one of them has input at a time. Times of events are not those of the
clock: each portion ends with rows that are half an hour later each, so that every watermark passes the rows of the
portion at once, and nothing waits for the clock. A statement that waits for a watermark keeps the latest rows that it
has, so there are such rows for each statement on the longest path.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from core.bench.batch_trace import BatchTracer, Ended, Injected
from core.bench.replayed_load import ReplayedLoad
from core.bench.request import BenchRequest, BenchSource, BenchStatement, in_order
from core.bench.result import Figure, FigureKind
from core.bench.result_comparison import NEW, OLD
from core.model.errors import HeadgateError
from core.model.names import TableName
from pipelines.bench.batch_reader import BatchReader
from pipelines.bench.load_writer import LoadWriter
from pipelines.bench.topic_load import TopicLoad

Answer = dict[str, Any]

WARM_UPS = 3
"""Number of portions before the measured ones, in which Spark compiles the code of both sides."""
LATER_S = 1800.0
"""Seconds of event time between the rows that end a portion; longer than the delay of any watermark should be."""
QUIET_S = 2.0
"""Seconds without a new batch after which a portion counts as processed, if all input is read."""
PORTION_S = 300.0
"""Longest time for a portion of rows, in seconds."""


@dataclass(slots=True)
class _Side:
    name: str
    statements: Sequence[BenchStatement]
    writer: LoadWriter
    readers: Mapping[TableName, BatchReader]
    injected: list[Injected] = field(default_factory=list)

    def refresh(self) -> None:
        for reader in self.readers.values():
            reader.refresh()

    def batches(self) -> int:
        """Return how many batches there are."""
        return sum(len(reader.batches) for reader in self.readers.values())

    def unread(self) -> bool:
        """True if a statement has not read all its input."""
        for each in self.statements:
            for ordinal, (source, _, _) in enumerate(each.sources):
                read = {one for batch in self.readers[each.table].batches for one in batch.read[ordinal]}
                if any(one not in read for one in self.inputs_of(source)):
                    return True
        return False

    def inputs_of(self, table: TableName) -> Iterator[str]:
        if table in self.readers:
            yield from (each for batch in self.readers[table].batches for each in batch.written)
        else:
            yield from (each.input for each in self.injected if each.source == table)

    def waits_for_watermark(self, inputs: Sequence[Injected]) -> bool:
        """True if rows of inputs wait for a watermark, which then has to follow in a batch of its own."""
        tracer = BatchTracer(
            [each.traced for each in self.statements], {table: each.batches for table, each in self.readers.items()}
        )
        return any(end in (Ended.WATERMARK, Ended.UNREAD) for each in inputs for end in tracer.trace(each).values())


@dataclass(slots=True)
class PairedBenchmark:
    """Old and new texts in two environments on one server."""

    request: BenchRequest
    load: ReplayedLoad
    topics: TopicLoad = field(default_factory=lambda: TopicLoad(""))
    clock: Callable[[], float] = time.time
    wait: Callable[[float], None] = time.sleep
    figures: list[Figure] = field(default_factory=list)

    def answers(self) -> Iterator[Answer]:
        """Yield progress, and at last the figures. Raises HeadgateError if rows are not processed in time."""
        sides = {OLD: self._old(), NEW: self._side(NEW, self.request.statements, self.request.sources)}
        event_s, path = self.clock(), max(longest_path(side.statements) for side in sides.values())
        for portion in range(WARM_UPS + self.request.repeat):
            event_s += LATER_S * (path + 1)
            closing_s = [event_s + LATER_S * number for number in range(1, path + 1)]
            repetition = portion - WARM_UPS + 1
            what = "warming up" if repetition < 1 else "pairs"
            detail = f"{portion + 1} of {WARM_UPS}" if repetition < 1 else f"{repetition} of {self.request.repeat}"
            for name in (OLD, NEW) if portion % 2 == 0 else (NEW, OLD):
                yield {"doing": what, "detail": f"{detail}, {name}"}
                self._portion(sides[name], event_s, closing_s, repetition)
        stages = [(each.table, each.sources[0][0] if each.sources else "") for each in self.request.in_order]
        found = {"figures": [asdict(each) for each in self.figures], "trials": [], "stages": stages, "notes": []}
        yield {"result": found}

    def _old(self) -> _Side:
        old = self.request.old
        assert old is not None, "a comparison has two sides"
        sources = [replace(each, folder=old.folders[each.table]) for each in self.request.sources]
        return self._side(OLD, old.statements, sources)

    def _side(self, name: str, statements: Sequence[BenchStatement], sources: Sequence[BenchSource]) -> _Side:
        writer = LoadWriter(
            self.load, {each.table: each for each in sources}, self.wait, self.clock, topics=self.topics
        )
        readers = {each.table: BatchReader(each, self.topics) for each in in_order(statements)}
        return _Side(name, in_order(statements), writer, readers)

    def _portion(self, side: _Side, event_s: float, closing_s: Sequence[float], repetition: int) -> None:
        """Write rows to one side, wait until everything that is due to them is written, and record the work."""
        side.refresh()
        before = {table: len(each.batches) for table, each in side.readers.items()}
        began = self.clock()
        rows, closing = side.writer.closed_portion(self.request.probe_rows, event_s, closing_s)
        side.injected += [*rows, *closing]
        seen, quiet_from = side.batches(), self.clock()
        while self.clock() - quiet_from < QUIET_S or side.unread() or side.waits_for_watermark(rows):
            self.wait(0.1)
            side.refresh()
            if (now := side.batches()) != seen:
                seen, quiet_from = now, self.clock()
            if self.clock() - began > PORTION_S:
                raise HeadgateError(
                    f"rows of the {side.name} texts were not processed within {PORTION_S:.0f} s",
                    remedy="give fewer --rows, or name fewer tables",
                )
        if repetition > 0:
            self._record(side, before, began, repetition)

    def _record(self, side: _Side, before: Mapping[TableName, int], began: float, repetition: int) -> None:
        for table, reader in side.readers.items():
            mine = reader.batches[before[table] :]
            work = sum(each.visible_at - each.started_at for each in mine if any(each.read) or each.written)
            if work > 0:
                self.figures.append(Figure(FigureKind.WORK, side.name, table, repetition, work))
        ends = [each.visible_at for reader in side.readers.values() for each in reader.batches if each.written]
        if ends and max(ends) > began:
            self.figures.append(Figure(FigureKind.LATENCY, side.name, "", repetition, max(ends) - began))


def longest_path(statements: Sequence[BenchStatement]) -> int:
    """Return the number of statements on the longest path from a source; `statements` are upstream first."""
    depth: dict[TableName, int] = {}
    for each in statements:
        depth[each.table] = 1 + max((depth.get(source, 0) for source, _, _ in each.sources), default=0)
    return max(depth.values(), default=0)
