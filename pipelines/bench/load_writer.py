"""Writes load to the sources of an environment at a rate, as one file, or messages, for each source and tick.

All files of a run of load are prepared before its first one is shown, so that making up rows takes no time from the
pool while something is measured. The clock decides only when a file is shown; what became of it is read from logs.
Prepared messages are in a file as well, and showing it writes them to their topics.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from core.bench.batch_trace import Injected
from core.bench.replayed_load import ReplayedLoad, Row
from core.bench.request import BenchSource
from core.model.errors import UsageError
from core.model.names import TableName
from core.model.table_formats import table_format
from pipelines.bench.load_messages import VALUE, WHOLE
from pipelines.bench.source_files import json_line, show_file, write_rows
from pipelines.bench.topic_load import TopicLoad

TICK_S = 1.0
"""Seconds between two files of a source while load is written."""

LATE_S = 60.0
"""Longest time by which events of a portion may be before its newest one, however long they are in the sample."""


CLOSING, CLOSING_ROWS = 10_000_000, 3
"""Distance of the numbers of closing rows from each other and from all others, and their number for each source."""


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file of a source that is not visible yet."""

    source: TableName
    hidden: str
    event_s: float
    middle_event_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class PreparedLoad:
    """Files that are not visible yet, by tick, and the time between two ticks."""

    ticks: tuple[tuple[PreparedFile, ...], ...]
    every_s: float
    begins_at: float
    """When the first file should be shown, in epoch seconds, which is what its events were made for."""


@dataclass(slots=True)
class LoadWriter:
    """Writes files to sources. Row numbers continue from one run of load to the next, so no key is repeated."""

    load: ReplayedLoad
    sources: Mapping[TableName, BenchSource]
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    name: str = ""
    """Part of the names of the files, to distinguish them from those of an earlier writer."""
    topics: TopicLoad = field(default_factory=lambda: TopicLoad(""))
    _total: float = 0.0
    _lateness_s: float | None = None
    _files: int = 0
    _closings: int = 0
    _row_s: float = field(default=2e-5, init=False)
    """Seconds that a row took to prepare."""

    def probe(self, rows: int) -> list[Injected]:
        """Show one file for each source, with `rows` rows in all, and return what was injected."""
        return self._show(self._prepared(rows, self.clock(), spread_s=self._spread_s(TICK_S)))

    def closed_portion(
        self, rows: int, event_s: float, closing_s: Iterable[float]
    ) -> tuple[list[Injected], list[Injected]]:
        """Show a portion, and immediately after it a few later rows of each source, so that every watermark follows.

        Returns the files of the portion, and those of the later rows, whose keys are new and whose events are at each
        time of `closing_s`. All are prepared before the first one is shown, so that one batch can read them together.
        """
        portion = self._prepared(rows, event_s, spread_s=LATE_S)
        closing = []
        for at in closing_s:
            self._closings += 1
            first = CLOSING * self._closings
            closing += [self._file(table, first, CLOSING_ROWS, at, LATE_S) for table in self.load.tables]
        return self._show(portion), self._show(closing)

    def prepare(self, rate: float, seconds: float, *, every_s: float = TICK_S) -> PreparedLoad:
        """Prepare load of `rate` rows per second over all sources for `seconds`."""
        ticks = max(1, round(seconds / every_s))
        began = self.clock()
        begins_at = began + rate * seconds * self._row_s * 1.2 + 0.2
        spread_s = self._spread_s(every_s)
        before = self._total
        files = tuple(
            tuple(self._prepared(rate * every_s, begins_at + tick * every_s, spread_s=spread_s))
            for tick in range(ticks)
        )
        rows = round(self._total - before)
        self._row_s = max(1e-6, (self.clock() - began) / max(rows, 1))
        return PreparedLoad(files, every_s, begins_at)

    def shown(self, prepared: PreparedLoad) -> Iterator[list[Injected]]:
        """Show the files of each tick when it is due, and yield what was injected."""
        self.wait(max(0.0, prepared.begins_at - self.clock()))
        begin = self.clock()
        for number, tick in enumerate(prepared.ticks):
            self.wait(max(0.0, begin + number * prepared.every_s - self.clock()))
            yield self._show(tick)

    def discard(self, prepared: PreparedLoad) -> None:
        """Delete the files that have not been shown."""
        for each in (one for tick in prepared.ticks for one in tick):
            Path(each.hidden).unlink(missing_ok=True)

    def _spread_s(self, every_s: float) -> float:
        """Return how far apart events of a tick may be: no row may be later than in the sample, or it is dropped.

        At a high rate, the sample's events of a minute are written within a second.
        """
        if self._lateness_s is None:
            self._lateness_s = self.load.lateness_s()
        return max(every_s, self._lateness_s)

    def _prepared(self, rows: float, at: float, *, spread_s: float) -> list[PreparedFile]:
        before, self._total = self._total, self._total + rows
        counts = self.load.counts(before, self._total)
        return [self._file(table, first, count, at, spread_s) for table, (first, count) in counts.items() if count]

    def _file(self, table: TableName, first: int, count: int, at: float, spread_s: float) -> PreparedFile:
        self._files += 1
        values = self.load.rows(table, first, count, at_s=at, spread_s=spread_s)
        column = self.load.samples[table].event_column
        events = sorted(value.timestamp() for row in values if isinstance(value := row.get(column), datetime))
        newest, middle = (events[-1], events[len(events) // 2]) if events else (at, at)
        source, name = self.sources[table], f"load{self.name}-{self._files:09}"
        messages = table_format(source.format).topics
        hidden = self.topics.prepare(source, name, values) if messages else write_rows(source, name, values)
        return PreparedFile(table, hidden, newest, middle, count)

    def _show(self, prepared: Iterable[PreparedFile]) -> list[Injected]:
        return [Injected(each.source, *self._shown(each), each.event_s, each.middle_event_s) for each in prepared]

    def _shown(self, prepared: PreparedFile) -> tuple[str, float]:
        """Make rows visible, and return the input that they are, and when they were visible."""
        source = self.sources[prepared.source]
        if table_format(source.format).topics:
            return self.topics.send(source, prepared.hidden)
        return show_file(prepared.hidden), self.clock()


def sized(load: ReplayedLoad, sources: Iterable[BenchSource], size: int) -> ReplayedLoad:
    """Return load whose records have on average `size` bytes, by filling up a text column of each source.

    The column is the longest one that is a whole message, or that is neither a key nor compared with a literal. Raises
    UsageError if a source has none, or has longer records already.
    """
    padding = {}
    for source in sources:
        if source.table not in load.tables:
            continue
        rows = load.samples[source.table].rows[:200]
        compared = {column for column, _, _ in source.literals}
        lengths = {
            name: sum(len(str(row.get(name) or "")) for row in rows) / len(rows)
            for name, kind in source.columns
            if kind == "string"
            and (source.table, name) not in load.keys
            and (name in WHOLE or not (name.lower() in compared or name.startswith("_")))
        }
        if not lengths:
            raise UsageError(
                f"{source.table} has no text column that can be filled up, so its records keep their size",
                remedy="leave out --record-bytes",
            )
        column = max(lengths, key=lambda name: lengths[name])
        usual = sum(_record_bytes(row, source) for row in rows) / len(rows)
        if usual > size:
            raise UsageError(
                f"records of {source.table} have {usual:.0f} bytes already", remedy="give a larger --record-bytes"
            )
        padding[source.table] = (column, round(lengths[column] + size - usual))
    return replace(load, padding=padding)


def _record_bytes(row: Row, source: BenchSource) -> int:
    """Return the size of a row as JSON or, for a message that is not parsed, of its value."""
    return len(str(row[VALUE] or "")) if VALUE in dict(source.columns) else len(json_line(row, source)) + 1
