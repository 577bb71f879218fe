"""How far a Delta source is ahead of a query: formulas over its log and the query's offset, proven on Delta 4.4.0."""

from dataclasses import dataclass

from pipelines.formats.delta_log import DeltaLog, Totals
from pipelines.formats.delta_offsets import DeltaOffset


class OtherTable(Exception):
    """What was read is another table, or a state of it that its log does not have."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a query has not read of one source."""

    versions: int
    """Versions that are not wholly read; some of them may hold no new row."""
    waiting: Totals
    oldest: float | None
    """When the oldest of it came into the table; None where nothing waits."""


def backlog(log: DeltaLog, offset: DeltaOffset | None) -> Backlog:
    """Compute what waits at the state of the log that was read last.

    Without an offset it is all that the table holds. Raises OtherTable, and CommitsGone where the log begins later.
    """
    if offset is None:
        held = log.active()
        return Backlog(log.head + 1 if held.files else 0, held, held.earliest)
    _require(log, offset)
    waiting, oldest, after, partly = Totals(), None, offset.version, 0
    if offset.in_snapshot:
        left = log.files_at(offset.version)[offset.files_read :]
        waiting, after, partly = Totals.of(left), offset.version + 1, int(bool(left))
        oldest = waiting.earliest
    for commit in log.since(after):
        files, size, rows = commit.files, commit.bytes, commit.rows
        if commit.version == offset.version and offset.files_read:
            left = log.added_in(commit.version)[offset.files_read :]
            part = Totals.of(left)
            files, size, rows = part.files, part.bytes, part.rows
        waiting = waiting.plus(files, size, rows, commit.at)
        if files and (oldest is None or commit.at < oldest):
            oldest = commit.at
    return Backlog(log.head + 1 - after + partly, waiting, oldest)


def longer(known: Backlog, upto: int, log: DeltaLog, offset: DeltaOffset) -> Backlog:
    """Compute the same from what waited at version `upto` of the same log, at or behind what the offset says.

    Only what was committed since is looked at. Raises what `backlog` raises.
    """
    _require(log, offset)
    waiting, oldest = known.waiting, known.oldest
    for commit in log.since(upto + 1):
        waiting = waiting.plus(commit.files, commit.bytes, commit.rows, commit.at)
        if commit.files and (oldest is None or commit.at < oldest):
            oldest = commit.at
    return Backlog(known.versions + log.head - upto, waiting, oldest)


def _require(log: DeltaLog, offset: DeltaOffset) -> None:
    if offset.table_id != log.id or offset.version > log.head + 1:
        raise OtherTable
    log.require(offset.version + int(offset.in_snapshot))
