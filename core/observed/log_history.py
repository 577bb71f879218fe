"""What a table's log says of the versions at which a stream may begin: its first one, and the newest commits."""

import json
from dataclasses import dataclass

NEWEST_COMMITS = 64
"""Commits of one table that are told; of older ones nobody says how many rows they hold."""


@dataclass(frozen=True, slots=True)
class LogHistory:
    """Of one table, as it was measured."""

    first: int
    """The oldest version whose commit is still there."""
    first_at: float
    """When it was committed, epoch seconds."""
    commits: tuple[tuple[int, float, int | None], ...]
    """(version, when it was committed, rows that came with it), the newest last; None rows where nobody says."""
    kept_h: float | None = None
    """For how many hours the table keeps files that its newest version does not hold, by the properties that it has;
    None where they say it unreadably, or it was not measured."""

    @property
    def last(self) -> int:
        """Return the newest version."""
        return self.commits[-1][0]

    @property
    def last_at(self) -> float:
        """Return when that was committed, epoch seconds."""
        return self.commits[-1][1]

    def rows_from(self, version: int) -> int | None:
        """Count the rows that came with a version and after it; None where that is not known."""
        return self._rows(self.commits[0][0] <= version, [rows for n, _, rows in self.commits if n >= version])

    def rows_since(self, moment: float) -> int | None:
        """Count the rows that were committed at a moment or after it; None where that is not known."""
        whole = self.commits[0][1] <= moment or self.commits[0][0] == 0
        return self._rows(whole, [rows for _, at, rows in self.commits if at >= moment])

    @staticmethod
    def _rows(whole: bool, rows: list[int | None]) -> int | None:
        known = [each for each in rows if each is not None]
        return sum(known) if whole and len(known) == len(rows) else None

    def as_text(self) -> str:
        """Write it as `history_of` reads it."""
        said = {"first": [self.first, self.first_at], "commits": self.commits, "kept_h": self.kept_h}
        return json.dumps(said, separators=(",", ":"))


def history_of(text: str) -> LogHistory | None:
    """Read what `as_text` writes; None where it says nothing, or something else."""
    try:
        found = json.loads(text)
        commits = tuple((int(n), float(at), None if rows is None else int(rows)) for n, at, rows in found["commits"])
        kept_h = None if (kept := found["kept_h"]) is None else float(kept)
        return LogHistory(int(found["first"][0]), float(found["first"][1]), commits, kept_h) if commits else None
    except (ValueError, KeyError, TypeError, IndexError):
        return None
