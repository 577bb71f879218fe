"""Which statements write the rows of an event only after the watermark has passed it, and by when they are due."""

import re
from dataclasses import dataclass, replace

from core.model.names import interval_s
from core.sql.statement import Operator, ParsedStatement

_CALL = re.compile(r"^(?:session_)?window\((?P<column>.+?),(?P<lengths>.+)\)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WatermarkWait:
    """When the watermark lets rows of an event be written."""

    length_s: float = 0.0
    """Length of the window or gap of the session; 0 if rows are due at their own event time."""
    slide_s: float = 0.0
    """Time between the begins of two windows; 0 for a session."""
    delay_s: float = 0.0
    """Longest delay of a watermark of the statement: by how much it follows the newest event."""

    def due_s(self, event_s: float) -> float:
        """Return what the watermark must reach, in epoch seconds, before all rows of an event are written."""
        if not self.slide_s:
            return event_s + self.length_s
        return event_s // self.slide_s * self.slide_s + self.length_s


def watermark_wait(parsed: ParsedStatement, *, appends: bool) -> WatermarkWait | None:
    """Return when rows of a statement are due; None if it writes them in the batch that reads their input.

    `appends` is False for a statement that replaces rows by key, which writes every intermediate result.
    """
    if not appends:
        return None
    waits = [wait for each in parsed.operators if (wait := _wait(each)) is not None]
    if not waits:
        return None
    delays = [interval_s(read.watermark.delay) for read in parsed.reads if read.watermark is not None]
    return replace(max(waits, key=lambda wait: wait.length_s), delay_s=max(delays, default=0.0))


def _wait(operator: Operator) -> WatermarkWait | None:
    if operator.kind in ("window", "session_window"):
        calls = (found for key in operator.keys if (found := _CALL.match(key)) is not None)
        call = next(calls, None)
        lengths = [interval_s(each) for each in call["lengths"].split(",")[:2]] if call is not None else [0.0]
        slide = 0.0 if operator.kind == "session_window" else lengths[-1]
        return WatermarkWait(lengths[0], slide)
    # DISTINCT is an aggregate without functions: append mode writes a group once its event time is over (4.2.0).
    return WatermarkWait() if operator.kind in ("aggregate", "deduplicate") else None
