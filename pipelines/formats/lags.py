"""How far the streamed sources of a query are ahead of it, measured from files."""

from collections.abc import Mapping
from core.names import TableName
from core.ports import Position


class Lags:
    def measure(
        self, checkpoint: str, consumed: Mapping[int, int], sources: tuple[tuple[int, TableName, str, str], ...]
    ) -> tuple[Position, ...]:
        return ()
