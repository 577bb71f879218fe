"""How often a pool that ends by itself is started again: soon, then ever later, at last only if somebody asks."""

from collections import deque
from collections.abc import Callable

WINDOW_S = 600.0
"""Starts within this time count."""

AT_ONCE = 3
"""So many starts follow each other without a pause."""

LIMIT = 8
"""After so many starts within the window a person is waited for."""

FIRST_PAUSE_S = 2.0
"""Doubled with each further start."""


class StartBackoff:
    """The last starts of one pool."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._starts: deque[float] = deque(maxlen=LIMIT)

    @property
    def exhausted(self) -> bool:
        """Return whether no further start is made by itself."""
        return self._count() >= LIMIT

    @property
    def pause_s(self) -> float:
        """Return how long the next start has to wait yet."""
        count = self._count()
        if count < AT_ONCE:
            return 0.0
        pause: float = FIRST_PAUSE_S * 2 ** (count - AT_ONCE)
        return max(0.0, self._starts[-1] + pause - self._monotonic())

    def started(self) -> None:
        """Count a start, whatever comes of it."""
        self._starts.append(self._monotonic())

    def forget(self) -> None:
        """Begin anew: somebody has asked for the pool."""
        self._starts.clear()

    def _count(self) -> int:
        return sum(self._monotonic() - at <= WINDOW_S for at in self._starts)
