"""Statements whose process in the pool has died: started again a few times, then failed like any other."""

from dataclasses import dataclass, field

from core.model.names import TableName

STARTS, WITHIN_S = 3, 600.0
"""A statement is started again so often within this time."""

_DIED = ("Python worker exited unexpectedly", "Python worker failed to connect back")
"""What Spark says where the process that runs a writer of keyed tables is gone (4.2.0)."""

WORKER_LOST = "HEADGATE_WORKER_LOST"


@dataclass(slots=True)
class LostWorkers:
    """When the process of each statement was lost lately, monotonic seconds."""

    _lost: dict[tuple[TableName, int], list[float]] = field(default_factory=dict)

    def again(self, key: tuple[TableName, int], error: str, now: float) -> bool:
        """Return whether a statement that ended with an error is to be started again."""
        if not any(words in error for words in _DIED):
            return False
        lately = [at for at in self._lost.get(key, ()) if now - at < WITHIN_S]
        self._lost[key] = [*lately, now]
        return len(lately) < STARTS
