"""A model of microbatches with known ground truth, and an agent that samples it."""

import math
import random
from dataclasses import dataclass, field, replace

from core.lag.trend import LagTrend, UpstreamHealth, lag_trend
from core.model.names import TableName
from core.model.states import State, Trend

EVERY_S = 5.0
LANDING, ORDERS = TableName("landing"), TableName("orders")
EXTERNAL = UpstreamHealth(LANDING, State.RUNNING, external=True, silent_s=1.0)
PARENT = UpstreamHealth(ORDERS, State.RUNNING, silent_s=1.0)


@dataclass(frozen=True, slots=True)
class Point:
    """A sample with the fields of `state.row_types.SampleRow`."""

    at: float
    lag_rows: int | None
    lag_files: int | None = None
    batch_ms: int | None = None
    produced_rows: int | None = None
    consumed_rows: int | None = None
    in_rows_s: float | None = None


@dataclass(slots=True)
class Model:
    """A source that lands files, and a query that reads them in microbatches; time advances in quarters of a second."""

    dice: random.Random
    trigger_s: float
    rate: float
    """Nominal rows per second that land; each file deviates by up to `jitter`."""
    speed: float
    """Rows per second that a batch processes after its overhead."""
    batch_rows: float = math.inf
    """Maximum number of rows per batch (maxFilesPerTrigger)."""
    land_s: float = 1.0
    """Seconds between two files of the source: 1 for the generator, the trigger for a statement."""
    overhead_s: float = 0.8
    jitter: float = 0.3
    running: bool = True
    now: float = 0.0
    produced: float = 0.0
    consumed: float = 0.0
    batch_ms: int | None = None
    committed_at: float = 0.0
    landed_at: float = 0.0
    resumed_at: float = 0.0
    in_rows_s: float | None = None
    in_flight: tuple[float, float, float] | None = None
    """Start and end of the current batch, and the rows consumed once it commits."""
    due: float = 0.0

    def run(self, seconds: float) -> None:
        """Advance the model's time by this many seconds."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            self._land()
            self._commit()
            self._start()

    def _land(self) -> None:
        if self.rate <= 0:
            self.resumed_at = self.now
            return
        since = max(self.landed_at, self.resumed_at)
        if self.now - since >= self.land_s:
            rows = self.rate * (self.now - since) * self.dice.uniform(1 - self.jitter, 1 + self.jitter)
            self.produced += round(rows)
            self.landed_at = self.now

    def _commit(self) -> None:
        if self.in_flight and self.now >= self.in_flight[1]:
            started, ends, consumed = self.in_flight
            before, self.consumed, self.in_flight = self.consumed, consumed, None
            self.batch_ms = round((ends - started) * 1000)
            self.in_rows_s = (consumed - before) / max(ends - started, self.trigger_s)
            self.committed_at = self.now

    def _start(self) -> None:
        if not self.running or self.in_flight or self.now < self.due:
            return
        self.due = (self.now // self.trigger_s + 1) * self.trigger_s
        rows = min(self.produced - self.consumed, self.batch_rows * self.dice.uniform(0.8, 1.2))
        if rows > 0:
            takes = (self.overhead_s + rows / self.speed) * self.dice.uniform(0.8, 1.25)
            self.in_flight = (self.now, self.now + takes, self.consumed + round(rows))

    @property
    def lag(self) -> int:
        return round(self.produced - self.consumed)


@dataclass(slots=True)
class Watch:
    """Samples a model every five seconds, as the agent does, and records the resulting assessments of its lag."""

    model: Model
    parents: tuple[UpstreamHealth, ...] = (EXTERNAL,)
    counters: bool = True
    state: str = State.RUNNING
    samples: list[Point] = field(default_factory=list)
    said: list[tuple[float, LagTrend, int]] = field(default_factory=list)
    """Moment, assessment, and the lag at that moment."""
    changed_at: float = 0.0
    """When the statement entered its state."""

    def look(self, seconds: float) -> list[tuple[float, LagTrend, int]]:
        """Watch for this many seconds, and return the assessments made meanwhile."""
        before = len(self.said)
        until = self.model.now + seconds
        while self.model.now < until:
            self.model.run(EVERY_S + self.model.dice.choice((-0.25, 0.0, 0.0, 0.25)))
            self._sample()
        return self.said[before:]

    def _sample(self) -> None:
        model = self.model
        produced, consumed = (round(model.produced), round(model.consumed)) if self.counters else (None, None)
        self.samples.append(Point(model.now, model.lag, None, model.batch_ms, produced, consumed, model.in_rows_s))
        found = lag_trend(
            self.samples[-180:],
            model.now,
            interval_s=EVERY_S,
            state=self.state,
            parents=tuple(replace(parent, silent_s=model.now - model.landed_at) for parent in self.parents),
            trigger_s=model.trigger_s,
            previous=self.said[-1][1].trend if self.said else Trend.UNKNOWN,
            commit_age_s=model.now - model.committed_at if model.committed_at else None,
            rests_since=self.changed_at,
        )
        self.said.append((model.now, found, model.lag))
