"""Statements that ended with what the next start may not meet: started again a few times, then failed like any other.

The process in the pool that writes has died, or somebody else has changed the table that a batch was being written to:
of such a batch nothing was committed, and its next try reads the table as it is then (Delta 4.4.0).
"""

from dataclasses import dataclass, field

from core.model.names import TableName

STARTS, WITHIN_S = 3, 600.0
"""A statement is started again so often within this time."""

_DIED = ("Python worker exited unexpectedly", "Python worker failed to connect back")
"""What Spark says where the process that runs a writer of keyed tables is gone (4.2.0)."""
_CHANGED = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""How the classes begin of what Delta refuses at a commit over files or columns that are others meanwhile (4.4.0)."""

WORKER_LOST, WRITTEN_MEANWHILE = "HEADGATE_WORKER_LOST", "HEADGATE_WRITTEN_MEANWHILE"


@dataclass(slots=True)
class PassingEnds:
    """When each statement has ended so lately, monotonic seconds."""

    _ended: dict[tuple[TableName, int], list[float]] = field(default_factory=dict)

    def again(self, key: tuple[TableName, int], error_class: str, error: str, now: float) -> str:
        """Return by what class a statement that ended is to be started again; empty where it has failed."""
        died = any(words in error for words in _DIED)
        if not died and not error_class.startswith(_CHANGED):
            return ""
        if not self.is_left(key, now):
            return ""
        self.count(key, now)
        return WORKER_LOST if died else WRITTEN_MEANWHILE

    def is_left(self, key: tuple[TableName, int], now: float) -> bool:
        """Return whether a statement may be started again by itself."""
        return sum(now - at < WITHIN_S for at in self._ended.get(key, ())) < STARTS

    def count(self, key: tuple[TableName, int], now: float) -> None:
        """Count one that was, or is about to be."""
        self._ended[key] = [*(at for at in self._ended.get(key, ()) if now - at < WITHIN_S), now]
