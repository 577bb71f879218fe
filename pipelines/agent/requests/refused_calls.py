"""What callers are refused, counted: of many refusals in a minute a few are stored, and of the rest their number."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

STORED = 10
"""Refusals of one caller and command that are stored within WINDOW_S."""

WINDOW_S = 60.0


@dataclass(slots=True)
class _Window:
    began: float
    count: int = 0


class RefusedCalls:
    """Refusals by caller and command; both are few, so it stays small."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str], _Window] = {}

    def is_stored(self, caller: str, op: str) -> bool:
        """Count a refusal; returns whether it is to be stored."""
        with self._lock:
            window = self._windows.setdefault((caller, op), _Window(self._monotonic()))
            window.count += 1
            return window.count <= STORED

    def take_over(self) -> list[tuple[str, str, int]]:
        """Return caller, command and number of what was counted without being stored, of windows that are over."""
        with self._lock:
            now = self._monotonic()
            over = {key: window for key, window in self._windows.items() if now - window.began > WINDOW_S}
            for key in over:
                del self._windows[key]
        return [(*key, window.count - STORED) for key, window in over.items() if window.count > STORED]
