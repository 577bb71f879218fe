"""What callers repeat, counted: of many alike commands in a minute a few are stored, and of the rest their number.

Alike are all commands of one name that changed nothing, and those that changed the same thing.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

STORED = 10
"""Alike commands that are stored within WINDOW_S."""

WINDOW_S = 60.0

CHANGES_NOTHING = frozenset(("refused", "failed", "unchanged"))
"""Outcomes of which there are as many as a caller likes, about whatever he likes to name."""

DRAFTS = frozenset(("stage", "unstage", "opinion", "upgrade_shown"))
"""Commands that change nothing that runs or may run."""


class Alike(NamedTuple):
    """What alike commands have in common."""

    caller: str
    op: str
    outcome: str
    subject: str = ""
    """What was changed; empty where nothing was."""


@dataclass(slots=True)
class _Window:
    began: float
    count: int = 0


class RepeatedCalls:
    """Counts by caller, command, outcome and what was changed, which are few, so that it stays small."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[Alike, _Window] = {}

    def is_stored(self, caller: str, op: str, outcome: str, subject: str) -> bool:
        """Count a command; returns whether it is to be stored."""
        changes = outcome not in CHANGES_NOTHING and op not in DRAFTS
        alike = Alike(caller, op, outcome, subject if changes else "")
        with self._lock:
            window = self._windows.setdefault(alike, _Window(self._monotonic()))
            window.count += 1
            return window.count <= STORED

    def take_over(self) -> list[tuple[Alike, int]]:
        """Return what was counted without being stored, with its number, of windows that are over."""
        with self._lock:
            now = self._monotonic()
            over = {key: window for key, window in self._windows.items() if now - window.began > WINDOW_S}
            for key in over:
                del self._windows[key]
        return [(key, window.count - STORED) for key, window in over.items() if window.count > STORED]
