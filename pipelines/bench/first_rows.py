"""Waits for the first rows of every statement after a moment, such as a start or a kill."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from core.bench.request import BenchRequest
from core.bench.result import Figure, FigureKind
from core.model.errors import HeadgateError
from core.text.wording import counted
from pipelines.bench.batch_reader import BatchReader
from pipelines.bench.load_writer import LoadWriter
from pipelines.bench.process_readings import ProcessReadings

PATIENCE_S = 600.0
"""Longest time, in seconds, until every statement has written rows."""


@dataclass(slots=True)
class FirstRows:
    """Writes rows to the sources once a second until every statement has written some since a moment."""

    request: BenchRequest
    writer: LoadWriter
    clock: Callable[[], float] = time.time
    wait: Callable[[float], None] = time.sleep

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield progress, and at last the figures. Raises HeadgateError if a statement writes nothing."""
        readers = [BatchReader(each, self.writer.topics) for each in self.request.in_order]
        processes = ProcessReadings(self.request.home, self.request.agent, self.clock)
        while left := [each.statement.table for each in readers if self._first(each) is None]:
            yield {"doing": self.request.phase, "detail": f"{counted(len(left), 'statement')} without new rows"}
            if self.clock() - self.request.since > PATIENCE_S:
                raise HeadgateError(
                    f"{left[0]} has written no rows for {PATIENCE_S:.0f} s",
                    remedy="the sample's rows may not reach it: --sample FILE names another one",
                )
            self.writer.probe(self.request.probe_rows)
            self.wait(1.0)
            processes.read()
            for each in readers:
                each.refresh()
        figures = [
            Figure(FigureKind.STARTUP, self.request.phase, each.statement.table, self.request.repetition, first)
            for each in readers
            if (first := self._first(each)) is not None
        ]
        figures += processes.figures(self.request.phase, self.request.repetition, since=self.request.since)
        yield {"result": {"figures": [asdict(each) for each in figures], "trials": [], "stages": [], "notes": []}}

    def _first(self, reader: BatchReader) -> float | None:
        """Return how long after the moment the first rows of a statement were visible; None if there are none."""
        since = self.request.since
        return next(
            (each.visible_at - since for each in reader.batches if each.written and each.visible_at > since), None
        )
