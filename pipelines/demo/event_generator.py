"""Generates events every second until it is stopped and, on request, closing events that end all open windows."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

from core.model.errors import TryAgain
from core.model.names import TableName
from core.project.model import Project
from pipelines.demo.data_folder import (
    DemoDataFolder,
    exclusive_lock,
    lock_holder,
    read_generator_state,
    save_events,
    write_events,
    write_saved_events,
)
from pipelines.demo.event_simulation import (
    FEEDS,
    GeneratorState,
    LinesByFeed,
    closing_events,
    simulate_second,
    take_pending,
    timestamp,
)
from pipelines.whole_files import read_object, write_whole

HOURS_MAX = 2.0
FREE_BYTES_MIN = 5 * 10**9
RATE_MAX = 2_000.0


@dataclass(frozen=True, slots=True)
class Bursts:
    """Burst settings: `off_s` seconds at the normal rate alternate with `on_s` seconds at `factor` times that rate."""

    factor: float = 5.0
    on_s: float = 30.0
    off_s: float = 90.0


@dataclass(frozen=True, slots=True)
class Feeds:
    """Settings of the event feeds, as stored in `feeds.json`."""

    rate: float = 8.0
    """Orders per second outside of bursts. The rates of the other feeds follow from this rate."""
    paused: bool = False
    bursts: Bursts | None = Bursts()

    def rate_at(self, elapsed_s: float) -> float:
        """Return the rate in orders per second, `elapsed_s` seconds after the generator's start."""
        if self.paused or self.bursts is None:
            return 0.0 if self.paused else self.rate
        phase = elapsed_s % (self.bursts.on_s + self.bursts.off_s)
        return self.rate * (self.bursts.factor if phase >= self.bursts.off_s else 1.0)

    def as_json(self) -> dict[str, Any]:
        """Return the settings as the JSON object stored in `feeds.json`."""
        bursts = self.bursts
        shown = {"factor": bursts.factor, "on_s": bursts.on_s, "off_s": bursts.off_s} if bursts else None
        return {"rate": self.rate, "paused": self.paused, "bursts": shown}


def feeds_from_json(value: dict[str, Any]) -> Feeds:
    """Parse the object in `feeds.json`. Raises ValueError or TypeError if it is invalid.

    Missing settings get their defaults.
    """
    bursts = value.get("bursts", Feeds.as_json(Feeds())["bursts"])
    feeds = Feeds(
        float(value.get("rate", Feeds().rate)),
        bool(value.get("paused", False)),
        Bursts(**{key: float(number) for key, number in bursts.items()}) if bursts else None,
    )
    burst_s = (feeds.bursts.on_s + feeds.bursts.off_s) if feeds.bursts else 1.0
    factor = feeds.bursts.factor if feeds.bursts else 1.0
    if not (0 <= feeds.rate <= RATE_MAX and 0 <= feeds.rate * factor <= RATE_MAX and 0 < burst_s < 86_400):
        raise ValueError(f"rates must be between 0 and {RATE_MAX:g}")
    return feeds


class GeneratorClock(Protocol):
    """Clock that paces the event generator; tests replace it."""

    def now(self) -> float:
        """Return the current time, in seconds since the epoch."""

    def wait(self, seconds: float) -> bool:
        """Wait for `seconds` or until the generator is asked to stop; return True if it was asked."""


@dataclass(frozen=True, slots=True)
class GeneratorLimits:
    """Maximum run time and minimum free disk space, at which the generator stops without being asked."""

    hours: float = HOURS_MAX
    free_bytes: int = FREE_BYTES_MIN


@dataclass(slots=True)
class _Run:
    folder: DemoDataFolder
    book: GeneratorState
    feeds: Feeds
    started_at: float
    ahead_ms: int
    """Milliseconds by which event time is ahead of the clock, so that events are newer than earlier closing events."""
    note: str = ""
    unwritten: LinesByFeed | None = None
    """Events of a second that is saved, whose files could not be written yet."""


def generate(
    folder: DemoDataFolder,
    clock: GeneratorClock,
    *,
    feeds: Feeds | None = None,
    seed: int = 7,
    limits: GeneratorLimits = GeneratorLimits(),
    free_bytes: Callable[[DemoDataFolder], int] = lambda folder: shutil.disk_usage(folder.path).free,
) -> dict[str, Any]:
    """Write events until a limit is reached or a stop is requested; return the generator's final status.

    If `feeds` is None, an existing feeds.json is not changed. Raises Refused if another generator is running.
    """
    with exclusive_lock(folder):
        run = _begin(folder, clock.now(), feeds, seed)
        reason = ""
        while not reason:
            now = clock.now()
            reason = _reason_to_stop(run, now, limits, free_bytes(folder))
            if not reason:
                _tick(run, now)
                next_tick = now + 1.0
                reason = "terminated" if clock.wait(max(0.0, next_tick - clock.now())) else ""
        return _end(run, clock.now(), reason)


def _begin(folder: DemoDataFolder, now: float, feeds: Feeds | None, seed: int) -> _Run:
    book = read_generator_state(folder) or GeneratorState(seed=seed)
    ahead_ms = max(0, book.newest_ms - int(now * 1000))
    if feeds is not None or not folder.control.exists():
        write_whole(folder.control, json.dumps((feeds or Feeds()).as_json(), indent=2) + "\n")
    feeds = _control(folder, Feeds())[0]
    run = _Run(folder, book, feeds, now, ahead_ms)
    _log(run, now, f"started, process {os.getpid()}, {feeds.rate:g} orders/s, event time {ahead_ms // 1000} s ahead")
    return run


def _tick(run: _Run, now: float) -> None:
    feeds, note = _control(run.folder, run.feeds)
    if feeds != run.feeds:
        _log(run, now, f"feeds changed: {json.dumps(feeds.as_json())}")
    run.feeds, run.note = feeds, note
    rate = feeds.rate_at(now - run.started_at)
    if not feeds.paused and run.unwritten is None:
        run.unwritten = simulate_second(run.book, int(now * 1000) + run.ahead_ms, rate)
        save_events(run.folder, run.book, run.unwritten)
    if run.unwritten is not None:
        try:
            write_saved_events(run.folder, run.book, run.unwritten)
            run.unwritten = None
        except OSError as error:
            run.note = f"events cannot be written, and are tried again: {error.strerror or error}"
    _say(run, now, "paused" if feeds.paused else "running", "")


def _reason_to_stop(run: _Run, now: float, limits: GeneratorLimits, free: int) -> str:
    if now - run.started_at >= limits.hours * 3600:
        return f"{limits.hours:g} hours are over"
    if free < limits.free_bytes:
        return f"less than {limits.free_bytes / 10**9:g} GB of disk space is free"
    return ""


def _control(folder: DemoDataFolder, before: Feeds) -> tuple[Feeds, str]:
    value = read_object(folder.control)
    if value is None:
        return before, f"{folder.control.name} is unreadable; the feeds stay as they were" * folder.control.exists()
    try:
        return feeds_from_json(value), ""
    except (ValueError, TypeError, AttributeError) as error:
        return before, f"{folder.control.name} is invalid ({error}); the feeds stay as they were"


def _end(run: _Run, now: float, reason: str) -> dict[str, Any]:
    _log(run, now, f"stopped: {reason}")
    return _say(run, now, "stopped", reason)


def _say(run: _Run, now: float, state: str, stopped_because: str) -> dict[str, Any]:
    status = {
        "pid": os.getpid(),
        "started_at": _iso(run.started_at),
        "state": state,
        "rate": run.feeds.rate_at(now - run.started_at) if state == "running" else 0.0,
        "landed": run.book.landed,
        "event_time_ahead_s": run.ahead_ms // 1000,
        "stopped_because": stopped_because or None,
        "note": run.note or None,
        "updated_at": _iso(now),
    }
    write_whole(run.folder.status, json.dumps(status, indent=2) + "\n")
    return status


def _log(run: _Run, now: float, text: str) -> None:
    with run.folder.log.open("a") as log:
        log.write(f"{_iso(now)} {text}\n")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")


ROUND_MS = 10 * 60_000
"""Milliseconds of event time from the latest event to the next closing round.

This exceeds the sum of watermark delay, window and join bound.
"""
MARGIN_MS = 60_000
"""Milliseconds by which the watermark may lag behind a closing round.

This exceeds every watermark delay of the sample.
"""
ROUNDS = 4
"""Default number of closing rounds, which is the result of `how_many_rounds` for the unchanged sample."""
STOP_S_MAX = 15.0


@dataclass(frozen=True, slots=True)
class ClosingRound:
    """A round of closing events, with one event for each feed."""

    number: int
    """Number of the round in its data folder, starting at 1; the ids of its events are the negative of this number."""
    landed: dict[str, int]
    at: str
    """Event time of the round, as a timestamp."""
    closed_when_watermark_reaches: str
    """A statement whose watermark has passed this timestamp holds no events from before the round."""


def how_many_rounds(project: Project) -> int:
    """Return how many rounds of closing events are needed to close all windows of a project.

    That is one more than the largest number of stateful statements on any path of streaming reads.
    """

    @cache
    def depth(name: TableName) -> int:
        table = project.tables.get(name)
        if table is None or table.parsed is None:
            return 0
        parents = (depth(read.table) for read in table.parsed.reads if read.streaming)
        return max(parents, default=0) + table.parsed.stateful

    return max((depth(name) for name in project.tables), default=0) + 1


def stop_feeds(folder: DemoDataFolder, *, pause: Callable[[float], None] = time.sleep) -> bool:
    """Stop the generator of a data folder. Returns whether one was running. Raises TryAgain if it does not exit."""
    waited = 0.0
    while (pid := lock_holder(folder)) is not None:
        if waited == 0.0:
            os.kill(pid, signal.SIGTERM)
        if waited >= STOP_S_MAX:
            raise TryAgain(f"the generator (process {pid}) does not stop", remedy=f"kill it: kill -9 {pid}")
        pause(0.1)
        waited += 0.1
    return waited > 0.0


def write_pending_events(folder: DemoDataFolder) -> dict[str, int]:
    """Write all pending payments and duplicates, which completes the feeds. Repeating this writes nothing."""
    landed = dict.fromkeys(FEEDS, 0)
    with exclusive_lock(folder):
        book = read_generator_state(folder) or GeneratorState()
        while book.pending:
            for feed, count in write_events(folder, book, take_pending(book, None)).items():
                landed[feed] += count
    return landed


def write_closing_events(folder: DemoDataFolder) -> ClosingRound:
    """Write one more round of closing events. Raises Refused unless the feeds have stopped."""
    with exclusive_lock(folder):
        book = read_generator_state(folder) or GeneratorState()
        at = max(book.newest_ms, int(time.time() * 1000)) + ROUND_MS
        landed = write_events(folder, book, closing_events(book, at))
        return ClosingRound(book.closing, landed, timestamp(at), timestamp(at - MARGIN_MS))
