"""Measures a running environment: latency of probes and of load, and the highest rate that its statements sustain."""

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from core.bench.batch_trace import Arrival, BatchTracer, Ended, Injected
from core.bench.keeping_up import BatchWork, InputWait, Keeping, KeepingUp, keeping_up
from core.bench.quantiles import distribution
from core.bench.rate_search import RateLimits, RateTrial, next_rate, rate_range
from core.bench.replayed_load import ReplayedLoad
from core.bench.request import BenchKind, BenchRequest, BenchStatement
from core.bench.result import Figure, FigureKind, TrialRecord
from core.model.errors import HeadgateError
from core.model.names import TableName
from core.text.wording import counted, short_number
from pipelines.bench.batch_reader import BatchReader
from pipelines.bench.load_writer import LoadWriter
from pipelines.bench.process_readings import ProcessReadings

Answer = dict[str, Any]

POLL_S = 0.25
SILENT_S = 240.0
"""Seconds without a new batch anywhere after which the measurement is given up."""
DRAIN_S = 300.0
"""Longest time, in seconds, for reading what a trial has left."""
JUDGE_EVERY = 5
"""Number of ticks after which the statements are judged, to end a trial as soon as one misses its objective."""
LATE_TICKS = 3
"""Ticks by which load may be late. It is later if the brokers or this machine cannot write so much."""
LISTED_S = 1.0
"""Seconds before a batch begins at which an input must have been visible, to be certain that Spark listed it."""
GOLDEN = 0.618034
"""Part of the longest trigger between two probes: probes then meet every phase of every trigger."""
LEAST_RATE = 1.0

IDLE, LOADED = "idle", "load"
WHOLE = TableName("")
"""Table and source of figures about the whole chain."""


@dataclass(slots=True)
class RunningBenchmark:
    """A benchmark of an environment whose statements run."""

    request: BenchRequest
    writer: LoadWriter
    loads: Mapping[int, ReplayedLoad]
    """The load of the writer for each size of records, of which a search is repeated for each; see `record_bytes`."""
    clock: Callable[[], float] = time.time
    wait: Callable[[float], None] = time.sleep
    readers: dict[TableName, BatchReader] = field(init=False)
    injected: list[Injected] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    trials: list[TrialRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    vias: Counter[tuple[TableName, TableName]] = field(default_factory=Counter)
    processes: ProcessReadings = field(init=False)

    def __post_init__(self) -> None:
        self.processes = ProcessReadings(self.request.home, self.request.agent, self.clock)
        self.readers = {each.table: BatchReader(each, self.writer.topics) for each in self.request.in_order}

    def answers(self) -> Iterator[Answer]:
        """Yield progress as `doing`, trials as `trial`, and at last the figures as `result`.

        Raises HeadgateError if a statement does not process its input any more.
        """
        yield from self._warm_up()
        for repetition in range(1, self.request.repeat + 1):
            match self.request.kind:
                case BenchKind.LATENCY:
                    yield from self._idle(repetition)
                    yield from self._loaded(repetition, LOADED)
                case BenchKind.SCALE:
                    yield from self._loaded(repetition, self.request.phase)
                case BenchKind.THROUGHPUT:
                    for size, load in self.loads.items():
                        self.writer.load = load
                        phase = str(size) if len(self.loads) > 1 else self.request.phase
                        yield from self._throughput(repetition, phase)
        stages = {table: via for (table, via), _ in sorted(self.vias.items(), key=lambda each: each[1])}
        yield {
            "result": {
                "figures": [asdict(each) for each in self.figures],
                "trials": [asdict(each) for each in self.trials],
                "stages": [(each.table, stages.get(each.table, "")) for each in self.request.in_order],
                "notes": list(dict.fromkeys(self.notes)),
            }
        }

    def _warm_up(self) -> Iterator[Answer]:
        """Inject until every statement has processed input twice, so that Spark has compiled its code."""
        every_s = max(1.0, min(each.trigger_s for each in self.request.statements))
        patience = _Patience(self)
        while waiting := [table for table, reader in self.readers.items() if _with_input(reader) < 2]:
            yield _doing("warming up", f"{counted(len(waiting), 'statement')} left")
            self.injected += self.writer.probe(self.request.probe_rows)
            self._pass(every_s)
            if patience.over({table: _with_input(self.readers[table]) for table in waiting}):
                silent = [table for table in waiting if not _with_input(self.readers[table])]
                if len(silent) == len(self.readers):
                    raise HeadgateError(
                        f"no statement has processed any input for {SILENT_S:.0f} s",
                        remedy="headgate up, then headgate logs pool, show whether statements start in this project",
                    )
                if silent:
                    self.notes.append(f"no row of the sample reached {', '.join(silent)}")
                return

    def _idle(self, repetition: int) -> Iterator[Answer]:
        of = self._of(repetition)
        since = self.processes.begin()
        longest = max(each.trigger_s for each in self.request.statements)
        probes: list[Injected] = []
        for number in range(self.request.probes):
            yield _doing(f"idle{of}", f"probe {number + 1} of {self.request.probes}")
            probes += self._inject(self.writer.probe(self.request.probe_rows))
            self._pass(max(1.0, longest * GOLDEN))
        self.figures += self.processes.figures(IDLE, repetition, since=since)
        yield from self._settle(probes, f"idle{of}")
        self._record(probes, IDLE, repetition)

    def _loaded(self, repetition: int, phase: str) -> Iterator[Answer]:
        of = self._of(repetition)
        yield _doing(f"load{of}", "preparing rows")
        prepared = self.writer.prepare(self.request.rate, self.request.window_s)
        loaded: list[Injected] = []
        since = self.processes.begin()
        for number, tick in enumerate(self.writer.shown(prepared)):
            loaded += self._inject(tick)
            self._refresh()
            yield _doing(f"load{of}", f"{number + 1} of {len(prepared.ticks)} s")
        self.figures += self.processes.figures(phase, repetition, since=since)
        yield from self._settle(loaded, f"load{of}")
        self._record(loaded, phase, repetition)
        if self.request.kind is BenchKind.SCALE:
            self._record_whole(loaded, phase, repetition)

    def _of(self, repetition: int) -> str:
        return f" ({repetition} of {self.request.repeat})" if self.request.repeat > 1 else ""

    def _settle(self, inputs: Sequence[Injected], doing: str) -> Iterator[Answer]:
        """Inject further probes until the trace of every input has ended, as rows may wait for later events."""
        patience, longest = _Patience(self), max(each.trigger_s for each in self.request.statements)
        while left := self._unfinished(inputs):
            yield _doing(doing, f"{counted(left, 'input')} on the way")
            self._inject(self.writer.probe(self.request.probe_rows))
            self._pass(max(1.0, longest / 2))
            if patience.over(left):
                self.notes.append(f"{counted(left, 'input')} had not arrived everywhere after {SILENT_S:.0f} s")
                return

    def _unfinished(self, inputs: Sequence[Injected]) -> int:
        tracer = self._tracer()
        on_the_way = (Ended.UNREAD, Ended.WATERMARK)
        return sum(1 for each in inputs if any(end in on_the_way for end in tracer.trace(each).values()))

    def _record(self, inputs: Sequence[Injected], phase: str, repetition: int) -> None:
        tracer = self._tracer()
        arrivals: dict[tuple[TableName, TableName], list[tuple[Injected, Arrival]]] = {}
        ends: dict[tuple[TableName, TableName], Counter[Ended]] = {}
        for each in inputs:
            for table, end in tracer.trace(each).items():
                name = (table, each.source)
                if isinstance(end, Arrival):
                    arrivals.setdefault(name, []).append((each, end))
                else:
                    ends.setdefault(name, Counter())[end] += 1
        for name in sorted(arrivals.keys() | ends.keys()):
            arrived = arrivals.get(name, [])
            self.figures += _figures(name, phase, repetition, arrived, ends.get(name, Counter()))
            self.vias.update((name[0], arrival.source) for _, arrival in arrived)

    def _record_whole(self, inputs: Sequence[Injected], phase: str, repetition: int) -> None:
        """Record when inputs had arrived in every table that gets rows of them."""
        tracer = self._tracer()
        arrived: list[tuple[Injected, Arrival]] = []
        missing: Counter[Ended] = Counter()
        for each in inputs:
            ends = tracer.trace(each).values()
            lost = [end for end in ends if isinstance(end, Ended) and end is not Ended.NO_ROWS]
            last = max((end for end in ends if isinstance(end, Arrival)), key=lambda end: end.visible_at, default=None)
            if last is None or lost:
                missing[lost[0] if lost else Ended.NO_ROWS] += 1
            else:
                arrived.append((each, last))
        self.figures += _figures((WHOLE, WHOLE), phase, repetition, arrived, missing)

    def _throughput(self, repetition: int, phase: str) -> Iterator[Answer]:
        of = self._of(repetition)
        size = f", records of {phase} bytes" if len(self.loads) > 1 else ""
        limits = RateLimits(self.request.rate, LEAST_RATE, self.request.most, self.request.precision)
        tried: list[RateTrial] = []
        found: list[TrialRecord] = []
        while (rate := next_rate(tried, limits)) is not None:
            named = f"trial {len(tried) + 1}{of}: {short_number(rate)} rows/s{size}"
            record, drained = yield from self._trial(rate, phase, repetition, named)
            if record is None:
                self.notes.append(f"the search ended at {short_number(rate)} rows/s, which were not written in time")
                break
            tried.append(RateTrial(rate, record.sustained))
            found.append(record)
            yield {"trial": asdict(record)}
            if not drained:
                self.notes.append(
                    f"the search ended early: {named} left input that was not read within {DRAIN_S:.0f} s"
                )
                break
        self.trials += found
        self._record_rates(phase, repetition, tried, found)

    def _trial(
        self, rate: float, phase: str, repetition: int, named: str
    ) -> Generator[Answer, None, tuple[TrialRecord | None, bool]]:
        """Write load at a rate, until every statement got it for the whole window or one has missed its objective.

        Then wait until all of it is read, because a batch that began in the window shows only at its end how long it
        takes. The record is None if the statements kept up with load that was late, so that nothing is known about them
        at this rate. The flag says whether everything was read in time.
        """
        leads = self.request.lead_s()
        yield _doing(named, "preparing rows")
        prepared = self.writer.prepare(rate, max(leads.values()) + self.request.window_s)
        begin = until = max(self.clock(), prepared.begins_at)
        judged: list[KeepingUp] = []
        written = number = 0
        since = self.processes.begin()
        for number, tick in enumerate(self.writer.shown(prepared)):
            self._inject(tick)
            written += sum(each.rows for each in prepared.ticks[number])
            self._refresh()
            yield _doing(named, f"{number + 1} of {len(prepared.ticks)} s")
            if number % JUDGE_EVERY and number + 1 < len(prepared.ticks):
                continue
            until = self.clock()
            judged = [self._judge(each, begin, begin + leads[each.table], until) for each in self.request.in_order]
            if any(each.keeping is Keeping.BEHIND for each in judged):
                break
        self.writer.discard(prepared)
        used = self.processes.figures(phase, repetition, since=since)
        drained = yield from self._drain(named)
        if drained and all(each.kept for each in judged):
            judged = [self._judge(each, begin, begin + leads[each.table], until) for each in self.request.in_order]
        sustained = all(each.kept for each in judged)
        if sustained and until - begin - number * prepared.every_s > LATE_TICKS * prepared.every_s:
            return None, drained
        statements = tuple({**asdict(each), "keeping": str(each.keeping)} for each in judged)
        record = TrialRecord(
            repetition,
            rate,
            sustained=sustained,
            written_rows=written,
            window_s=until - begin,
            statements=statements,
            phase=phase,
            used=used,
        )
        return record, drained

    def _judge(self, statement: BenchStatement, begin: float, since: float, until: float) -> KeepingUp:
        waits = self._waits(statement, since=since, now=until)
        work = tuple(self._work(statement, begin, since))
        return keeping_up(waits, work, statement.objective, since=since, until=until)

    def _work(self, statement: BenchStatement, begin: float, since: float) -> Iterator[BatchWork]:
        """Yield the batches since a time; none has read input of the time before the load began."""
        batches = self.readers[statement.table].batches
        known = {each: at for source, _, _ in statement.sources for each, at in self._inputs_of(source)}
        arrived = sorted(known.values())
        # Files without rows are read too, but are no inputs.
        counts = [sum(1 for inputs in each.read for one in inputs if one in known) for each in batches]
        read = 0
        for number, (before, each) in enumerate(pairwise(batches), 1):
            read += counts[number - 1]
            if each.started_at >= since:
                there = bisect_right(arrived, each.started_at - LISTED_S)
                yield BatchWork(
                    each.started_at,
                    span_s=each.started_at - max(before.started_at, begin),
                    took_s=each.visible_at - each.started_at,
                    left=max(0, there - read - counts[number]),
                )

    def _waits(self, statement: BenchStatement, *, since: float, now: float) -> list[InputWait]:
        """Return how long each input that arrived after `since` waited or has been waiting."""
        found = []
        for ordinal, (source, _, _) in enumerate(statement.sources):
            read_at = {
                each: batch.visible_at
                for batch in self.readers[statement.table].batches
                if batch.visible_at >= since
                for each in batch.read[ordinal]
            }
            for each, at in self._inputs_of(source):
                if at >= since:
                    found.append(InputWait(at, max(0.0, read_at.get(each, now) - at), read=each in read_at))
        return found

    def _inputs_of(self, table: TableName) -> Iterator[tuple[str, float]]:
        if table in self.readers:
            for batch in self.readers[table].batches:
                yield from ((each, batch.visible_at) for each in batch.written)
        else:
            yield from ((each.input, each.at) for each in self.injected if each.source == table)

    def _unread(self, statement: BenchStatement) -> int:
        read = {each for batch in self.readers[statement.table].batches for inputs in batch.read for each in inputs}
        return sum(1 for source, _, _ in statement.sources for each, _ in self._inputs_of(source) if each not in read)

    def _drain(self, doing: str) -> Generator[Answer, None, bool]:
        """Wait until every statement has read all its input; return False if that takes too long."""
        ends_at = self.clock() + DRAIN_S
        while left := sum(map(self._unread, self.request.statements)):
            yield _doing(doing, f"{counted(left, 'input')} left to read")
            self._pass(1.0)
            if self.clock() > ends_at:
                return False
        return True

    def _record_rates(
        self, phase: str, repetition: int, tried: Sequence[RateTrial], found: Sequence[TrialRecord]
    ) -> None:
        chain = rate_range(tried)
        by_table: dict[str, list[RateTrial]] = {"": list(tried)}
        for trial in found:
            for each in trial.statements:
                kept = each["keeping"] in ("keeps up", "no input")
                by_table.setdefault(str(each["table"]), []).append(RateTrial(trial.rate, kept))
        for table, trials in by_table.items():
            known = rate_range(trials) if table else chain
            if known.sustained is not None:
                self.figures.append(Figure(FigureKind.RATE, phase, table, repetition, known.sustained))
            if known.failed is not None:
                self.figures.append(Figure(FigureKind.FAILED_RATE, phase, table, repetition, known.failed))
        self.figures += [used for each in found if each.rate == chain.sustained for used in each.used]

    def _inject(self, injected: list[Injected]) -> list[Injected]:
        self.injected += injected
        return injected

    def _tracer(self) -> BatchTracer:
        self._refresh()
        batches: Mapping[TableName, Sequence[Any]] = {table: each.batches for table, each in self.readers.items()}
        return BatchTracer([each.traced for each in self.request.in_order], batches)

    def _pass(self, seconds: float) -> None:
        """Let time pass, and read the batches meanwhile, before Spark deletes the logs of old ones."""
        end = self.clock() + seconds
        while (left := end - self.clock()) > 0:
            self.wait(min(left, 1.0))
            self._refresh()

    def _refresh(self) -> bool:
        self.processes.read()
        return any([reader.refresh() for reader in self.readers.values()])


class _Patience:
    """Gives up once nothing has changed for `SILENT_S` seconds."""

    def __init__(self, of: RunningBenchmark) -> None:
        self._of = of
        self._seen: object = None
        self._since = of.clock()

    def over(self, seen: object) -> bool:
        """Return True if `seen` has not changed for too long."""
        if seen != self._seen:
            self._seen, self._since = seen, self._of.clock()
        return self._of.clock() - self._since > SILENT_S


def _doing(what: str, detail: str) -> Answer:
    return {"doing": what, "detail": detail}


def _with_input(reader: BatchReader) -> int:
    return sum(1 for batch in reader.batches if any(batch.read))


def _figures(
    name: tuple[TableName, TableName],
    phase: str,
    repetition: int,
    arrived: Sequence[tuple[Injected, Arrival]],
    missing: Counter[Ended],
) -> Iterator[Figure]:
    table, source = name
    why = str(missing.most_common(1)[0][0]) if missing else ""
    values: dict[FigureKind, list[float]] = {
        FigureKind.LATENCY: [arrival.visible_at - each.at for each, arrival in arrived],
        FigureKind.EVENT_LATENCY: [arrival.visible_at - each.middle_event_s for each, arrival in arrived],
        FigureKind.WAIT: [arrival.last.wait_s for _, arrival in arrived],
        FigureKind.BATCH: [arrival.last.batch_s for _, arrival in arrived],
        FigureKind.WATERMARK: [arrival.last.watermark_s for _, arrival in arrived],
        FigureKind.WAITS: [arrival.path.wait_s for _, arrival in arrived],
        FigureKind.BATCHES: [arrival.path.batch_s for _, arrival in arrived],
        FigureKind.WATERMARKS: [arrival.path.watermark_s for _, arrival in arrived],
    }
    for kind, listed in values.items():
        spread = distribution(listed)
        if spread is not None or (missing and kind is FigureKind.LATENCY):
            yield Figure(
                kind,
                phase,
                table,
                repetition,
                value=spread.p50 if spread is not None else 0.0,
                spread=spread,
                source=source,
                missing=missing.total(),
                missing_why=why,
            )
