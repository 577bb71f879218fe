"""Settling: the feeds stop, and closing events move every watermark past the last real event.

The events of one round are newer than all before them by more than any delay, window and join bound of the sample. A
statement with state passes on what it holds when its watermark moves, so the next one below it needs a further round.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from core.model.errors import TryAgain
from core.model.names import TableName
from core.project.model import Project
from pipelines.demo.data_folder import DemoDataFolder, exclusive_lock, land, lock_holder, read_generator_state
from pipelines.demo.event_simulation import GeneratorState, closing_events, take_pending, timestamp
from pipelines.demo.sample_reference_data import FEEDS

ROUND_MS = 10 * 60_000
"""Event time from the newest event to the next round: longer than delay, window and join bound together."""
MARGIN_MS = 60_000
"""Longer than any watermark delay of the sample."""
ROUNDS = 4
"""Rounds for the sample as shipped: `how_many_rounds` of it."""
STOP_S_MAX = 15.0


@dataclass(frozen=True, slots=True)
class ClosingRound:
    """One round of closing events that has landed."""

    number: int
    """Counts over all settlings of the folder; the events' ids are its negative."""
    landed: dict[str, int]
    at: str
    """Event time of the round."""
    closed_when_watermark_reaches: str
    """Once the watermark of a statement has passed it, the statement holds no event from before this round."""


def how_many_rounds(project: Project) -> int:
    """Return the rounds after which every chain is closed: the most stateful statements in one chain, and one more."""

    @cache
    def depth(name: TableName) -> int:
        table = project.tables.get(name)
        if table is None or table.parsed is None:
            return 0
        parents = (depth(read.table) for read in table.parsed.reads if read.streaming)
        return max(parents, default=0) + table.parsed.stateful

    return max((depth(name) for name in project.tables), default=0) + 1


def stop_feeds(folder: DemoDataFolder, *, pause: Callable[[float], None] = time.sleep) -> bool:
    """End the generator of this folder, False when none runs; raises TryAgain when it does not end in time."""
    waited = 0.0
    while (pid := lock_holder(folder)) is not None:
        if waited == 0.0:
            os.kill(pid, signal.SIGTERM)
        if waited >= STOP_S_MAX:
            raise TryAgain(f"the generator (process {pid}) does not stop", remedy=f"kill it: kill -9 {pid}")
        pause(0.1)
        waited += 0.1
    return waited > 0.0


def land_rest(folder: DemoDataFolder) -> dict[str, int]:
    """Write the payments and duplicates still pending, so that the feeds end complete; a second call does nothing."""
    landed = dict.fromkeys(FEEDS, 0)
    with exclusive_lock(folder):
        book = read_generator_state(folder) or GeneratorState()
        while book.pending:
            for feed, count in land(folder, book, take_pending(book, None)).items():
                landed[feed] += count
    return landed


def land_closing(folder: DemoDataFolder) -> ClosingRound:
    """Write one more round of closing events; the feeds must have stopped, else raises Refused."""
    with exclusive_lock(folder):
        book = read_generator_state(folder) or GeneratorState()
        at = max(book.newest_ms, int(time.time() * 1000)) + ROUND_MS
        landed = land(folder, book, closing_events(book, at))
        return ClosingRound(book.closing, landed, timestamp(at), timestamp(at - MARGIN_MS))
