"""Measured lag: what one sample says of it, and the sum over all streamed sources of a statement."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from core.model.names import TableName
from core.ports.storage import SourceLag


class LagSample(Protocol):
    """What is read of a sample; `state.row_types.SampleRow` is one."""

    @property
    def at(self) -> float: ...
    @property
    def lag_rows(self) -> int | None: ...
    @property
    def lag_files(self) -> int | None: ...
    @property
    def in_rows_s(self) -> float | None: ...
    @property
    def batch_ms(self) -> int | None: ...
    @property
    def produced_rows(self) -> int | None: ...
    @property
    def consumed_rows(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Lag:
    """What all streamed sources of a statement hold that it has not committed."""

    rows: int | None
    """None when one of the sources cannot say."""
    files: int
    bytes: int
    exact: bool
    oldest_s: float | None
    missing: tuple[TableName, ...]
    """Sources that are gone or were replaced."""


def total_lag(positions: Iterable[SourceLag]) -> Lag:
    """Add up the sources; no source at all is no lag."""
    known = tuple(positions)
    rows = [position.rows for position in known if position.rows is not None]
    return Lag(
        rows=sum(rows) if len(rows) == len(known) else None,
        files=sum(position.files for position in known),
        bytes=sum(position.bytes for position in known),
        exact=all(position.exact for position in known),
        oldest_s=max((position.oldest_s for position in known if position.oldest_s is not None), default=None),
        missing=tuple(position.table for position in known if position.missing),
    )
