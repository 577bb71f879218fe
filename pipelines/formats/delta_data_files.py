"""Files of a Delta table as its log has them, and their sums."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from core.observed.table_statistics import SMALL_FILE


class DataFile(NamedTuple):
    """A file that a commit has added."""

    path: str
    size: int
    rows: int | None
    """None where the writer has recorded no statistics."""
    at: float
    """When it was written, epoch seconds."""
    deleted: int = 0
    """Rows that it still holds and that were taken out of the table (deletion vectors)."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Files of one version of a table, or of several commits."""

    files: int = 0
    bytes: int = 0
    rows: int | None = 0
    """None where a file says nothing of its rows."""
    earliest: float | None = None
    """When the oldest was written; None where there is none."""
    small: int = 0
    """Files of less than SMALL_FILE."""

    def plus(self, files: int, size: int, rows: int | None, at: float | None, small: int = 0) -> "Totals":
        """Return these and more."""
        known = None if self.rows is None or rows is None else self.rows + rows
        times = [each for each in (self.earliest, at if files else None) if each is not None]
        return Totals(self.files + files, self.bytes + size, known, min(times, default=None), self.small + small)

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> "Totals":
        """Add up files."""
        found = cls()
        for file in files:
            found = found.plus(1, file.size, file.rows, file.at, int(file.size < SMALL_FILE))
        return found


def is_elsewhere(file: DataFile) -> bool:
    """Return whether a table names a file that is not its own."""
    return file.path.startswith(("/", "file:"))
