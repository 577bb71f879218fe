"""The world epoch: counts how often this ledger was put in the place of another, so that what is older is noticed."""

from state.transactions import LedgerReads, LedgerWrites


class WorldEpochReads(LedgerReads):
    """Reads of the world epoch."""

    def world_epoch(self) -> int:
        """Return the epoch; 1 in a ledger that was never restored."""
        return int(self._values("SELECT epoch FROM world_epoch")[0][0])


class WorldEpochWrites(WorldEpochReads, LedgerWrites):
    """Writes of the world epoch."""

    def bump_epoch(self, *, above: int = 0) -> int:
        """Begin a new epoch, higher than this ledger's and than `above`; returns it."""
        with self._transaction() as connection:
            connection.execute("UPDATE world_epoch SET epoch = max(epoch, ?) + 1", (above,))
        return self.world_epoch()
