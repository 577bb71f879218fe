"""Intent, effect, evidence: every change of the world passes here before and after, so that kill -9 is a known case."""

import logging
import os
import signal
import threading

log = logging.getLogger(__name__)

FAULT_VARIABLE = "HEADGATE_FAULT_AT"
"""A count, or labels with commas between: the agent kills itself with SIGKILL there, whichever is first (drills)."""

TRACE_VARIABLE = "HEADGATE_FAULT_TRACE"
"""A file that each point is appended to, one label a line, so that a drill can loop over all of them."""


class FaultPoints:
    """Numbered places around every intent and evidence; free of cost unless a drill has asked for one."""

    def __init__(self, at: str = "", trace: str = "") -> None:
        self._at = frozenset(at.split(",")) - {""}
        self._trace = trace
        self._count = 0
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> "FaultPoints":
        """Read what a drill asked for from the process's environment."""
        return cls(os.environ.get(FAULT_VARIABLE, ""), os.environ.get(TRACE_VARIABLE, ""))

    def pass_by(self, label: str) -> None:
        """Pass a point; does not return when a drill asked to die here."""
        if not (self._at or self._trace):
            return
        with self._lock:
            self._count += 1
            if self._trace:
                with open(self._trace, "a") as file:
                    file.write(f"{self._count} {label}\n")
            if self._at & {str(self._count), label}:
                log.warning("dying at fault point %s %s, as asked", self._count, label)
                os.kill(os.getpid(), signal.SIGKILL)
