"""Traces input through a chain of statements by the positions of their batches, without a mark in the rows.

An input is the id of a file or of a version of a table. The batch that read it is known exactly, and so are the inputs
that this batch wrote for the statements that read its table. So the trace of an input says when all rows that are due
to it were visible. It cannot say which rows of a batch these are: a batch that also read other input counts as a whole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from core.bench.watermark_waits import WatermarkWait
from core.model.names import TableName


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a statement whose rows are visible. Times are in epoch seconds."""

    number: int
    started_at: float
    """When its offsets were written, immediately before Spark reads the rows."""
    visible_at: float
    """When its rows became visible to readers; if it wrote none, when it was committed."""
    read: tuple[frozenset[str], ...]
    """The inputs that the batch read, for each streamed source in the order of the SQL text."""
    written: frozenset[str]
    """The inputs for readers that the batch wrote; empty if it wrote no rows."""
    watermark_ms: int = 0
    """Watermark by which the batch wrote and discarded rows, in epoch milliseconds; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class TracedStatement:
    """A statement, the tables that it streams, and when it writes the rows of an input."""

    table: TableName
    sources: tuple[TableName, ...]
    """The streamed tables, in the order of the SQL text."""
    waits: WatermarkWait | None = None
    """When the watermark lets rows be written; None if the batch that reads their input writes them."""


class Ended(StrEnum):
    """Why a trace does not reach a table."""

    UNREAD = "unread"
    """A statement has not read the input yet."""
    NO_ROWS = "no rows"
    """The batches that read the input wrote nothing: its rows were filtered out, or wait for matching rows."""
    WATERMARK = "watermark"
    """The watermark has not passed the rows yet; later events have to arrive first."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Where the time between two positions went, in seconds."""

    wait_s: float = 0.0
    """From when rows were visible to the start of the batch that read them: the trigger, and earlier batches."""
    batch_s: float = 0.0
    """In the batch that read them."""
    watermark_s: float = 0.0
    """From the end of that batch until the batch had written them that came after the watermark had passed."""

    def plus(self, other: "Stages") -> "Stages":
        """Return the sums of both."""
        return Stages(self.wait_s + other.wait_s, self.batch_s + other.batch_s, self.watermark_s + other.watermark_s)

    @property
    def sum_s(self) -> float:
        """The whole time."""
        return self.wait_s + self.batch_s + self.watermark_s


@dataclass(frozen=True, slots=True)
class Arrival:
    """When the rows that are due to an input were visible in a table, and how they got there.

    If they arrived by several ways or in several batches, this is about the last of them.
    """

    visible_at: float
    source: TableName
    """The streamed table through which they arrived."""
    last: Stages
    """From when they were visible in `source`."""
    path: Stages
    """From when the input was injected."""


@dataclass(frozen=True, slots=True)
class Injected:
    """Rows written to a source at a moment, as one input."""

    source: TableName
    input: str
    at: float
    """When the rows became visible to readers, in epoch seconds."""
    event_s: float
    """The latest event time among the rows, in epoch seconds; `at` if they have none."""
    middle_event_s: float
    """The median of their event times."""


@dataclass(frozen=True, slots=True)
class _Input:
    """When an input was visible, and the stages before that."""

    at: float
    path: Stages = Stages()


@dataclass(frozen=True, slots=True)
class _Reached:
    """The inputs that a table got, and the latest event time in them."""

    inputs: Mapping[str, _Input]
    event_s: float


@dataclass(slots=True)
class _Index:
    """The batches of a statement, by what they read."""

    batches: Sequence[Batch]
    by_input: tuple[dict[str, int], ...]
    """Position in `batches` of the batch that read an input, for each source."""


@dataclass(slots=True)
class BatchTracer:
    """Traces inputs through statements whose batches are known."""

    statements: Sequence[TracedStatement]
    """In topological order: each statement follows those whose tables it streams."""
    batches: Mapping[TableName, Sequence[Batch]]
    """The batches of each statement in ascending order."""
    _indices: dict[TableName, _Index] = field(default_factory=dict)

    def trace(self, injected: Injected) -> dict[TableName, Arrival | Ended]:
        """Return the arrival of an input in every table downstream of its source, or why it has not arrived."""
        reached = {injected.source: _Reached({injected.input: _Input(injected.at)}, injected.event_s)}
        found: dict[TableName, Arrival | Ended] = {}
        for statement in self.statements:
            ways = tuple(self._ways(statement, reached, found))
            if not ways:
                continue
            ended = next((way for way in ways if isinstance(way, Ended)), None)
            passed = [way for way in ways if not isinstance(way, Ended)]
            # Rows that arrive only by one of two ways have not all arrived; those of a way that ends without rows have.
            if not passed or (ended is not None and ended is not Ended.NO_ROWS):
                found[statement.table] = ended or Ended.NO_ROWS
                continue
            found[statement.table] = max((way.arrival for way in passed), key=lambda arrival: arrival.visible_at)
            inputs = {each: written for way in passed for each, written in way.written.items()}
            reached[statement.table] = _Reached(inputs, max(way.event_s for way in passed))
        return found

    def _ways(
        self, statement: TracedStatement, reached: Mapping[TableName, _Reached], found: Mapping[TableName, object]
    ) -> "Iterator[_Way | Ended]":
        for ordinal, source in enumerate(statement.sources):
            if source in reached:
                yield self._through(statement, ordinal, reached[source])
            elif isinstance(ended := found.get(source), Ended):
                yield ended

    def _through(self, statement: TracedStatement, ordinal: int, reached: _Reached) -> "_Way | Ended":
        index = self._index(statement)
        newest: dict[int, _Input] = {}
        for each, known in reached.inputs.items():
            place = index.by_input[ordinal].get(each)
            if place is None:
                return Ended.UNREAD
            newest[place] = max(known, newest.get(place, known), key=lambda one: one.at)
        source = statement.sources[ordinal]
        if statement.waits is None:
            return _written_at_once(index.batches, newest, source, reached.event_s)
        last = max(newest)
        reading, due_s = index.batches[last], statement.waits.due_s(reached.event_s)
        passing = next((each for each in index.batches[last:] if each.watermark_ms >= due_s * 1000), None)
        if passing is None:
            return Ended.WATERMARK
        if not passing.written:
            return Ended.NO_ROWS
        stages = replace(_stages(reading, newest[last]), watermark_s=passing.visible_at - reading.visible_at)
        path = newest[last].path.plus(stages)
        arrival = Arrival(passing.visible_at, source, stages, path)
        return _Way(arrival, dict.fromkeys(passing.written, _Input(passing.visible_at, path)), due_s)

    def _index(self, statement: TracedStatement) -> _Index:
        known = self._indices.get(statement.table)
        if known is None:
            batches = self.batches.get(statement.table, ())
            found: tuple[dict[str, int], ...] = tuple({} for _ in statement.sources)
            for place, batch in enumerate(batches):
                for inputs, read in zip(found, batch.read, strict=True):
                    inputs.update(dict.fromkeys(read, place))
            known = self._indices[statement.table] = _Index(batches, found)
        return known


@dataclass(frozen=True, slots=True)
class _Way:
    arrival: Arrival
    written: Mapping[str, _Input]
    """The inputs for readers that came of it."""
    event_s: float


def _written_at_once(
    batches: Sequence[Batch], newest: Mapping[int, _Input], source: TableName, event_s: float
) -> _Way | Ended:
    """Return how inputs went through a statement that writes rows in the batch that reads them.

    `newest` has the positions of the batches that read them, each with the newest of its inputs.
    """
    arrival: Arrival | None = None
    written: dict[str, _Input] = {}
    for place, known in sorted(newest.items()):
        batch = batches[place]
        if batch.written:
            stages = _stages(batch, known)
            arrival = Arrival(batch.visible_at, source, stages, known.path.plus(stages))
            written |= dict.fromkeys(batch.written, _Input(batch.visible_at, arrival.path))
    return _Way(arrival, written, event_s) if arrival is not None else Ended.NO_ROWS


def _stages(batch: Batch, known: _Input) -> Stages:
    return Stages(wait_s=batch.started_at - known.at, batch_s=batch.visible_at - batch.started_at)


def in_topological_order(statements: Iterable[TracedStatement]) -> tuple[TracedStatement, ...]:
    """Return the statements, each after those whose tables it streams; ties are in the order of names."""
    left = {each.table: each for each in sorted(statements, key=lambda each: each.table)}
    ordered: list[TracedStatement] = []
    while left:
        ready = [each for each in left.values() if not any(source in left for source in each.sources)]
        assert ready, "streams between tables have no cycle"
        for each in ready:
            ordered.append(each)
            del left[each.table]
    return tuple(ordered)
