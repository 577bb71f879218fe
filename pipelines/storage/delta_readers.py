"""Determines the offsets and backlogs of streams that read a Delta table, and whether they can continue (Delta 4.4.0).

Readers are checked in every round, and a reader that is far behind may have thousands of unread commits. Each commit is
therefore examined only once per reader.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from core.model.states import TableFaultKind
from core.ports.storage import TableFault
from pipelines.storage.delta_log import CommitsGone, DataFile, DeltaLog, Totals
from pipelines.storage.delta_schemas import lost_column
from pipelines.storage.file_store import missing


@dataclass(frozen=True, slots=True)
class DeltaOffset:
    """The position in a Delta table at which a stream's next batch starts."""

    table_id: str
    version: int
    index: int
    """Index, from 0, of the last file read in this version. Negative if no file has been read."""
    in_snapshot: bool
    """True if the index counts all files of the version, as in a stream's first batches.

    False if it counts only the files that the version's commit added.
    """

    @property
    def files_read(self) -> int:
        """Number of files of `version` that have been read."""
        return max(0, self.index + 1)

    @property
    def mark(self) -> str:
        """The position as a string; two positions are equal if and only if their strings are equal."""
        snapshot = "s" if self.in_snapshot else ""
        return f"{self.table_id}:{self.version}:{self.files_read}{snapshot}"

    @property
    def line(self) -> str:
        """The offset as Spark writes it in an offsets file."""
        about = {"sourceVersion": 1, "reservoirId": self.table_id, "reservoirVersion": self.version}
        rest = {"index": self.index, "isStartingVersion": self.in_snapshot}
        return json.dumps(about | rest, separators=(",", ":"))


def offsets_in(text: str) -> Mapping[int, DeltaOffset]:
    """Parse an offsets file into the offsets of the Delta sources, by source ordinal; none if the text is empty.

    Raises ValueError if its layout is unknown.
    """
    lines = text.split("\n")
    if text and lines[0] != "v1":
        raise ValueError(f"not an offset log that is known: {lines[0][:20]!r}")
    return {ordinal: offset for ordinal, line in enumerate(lines[2:]) if (offset := offset_of(line)) is not None}


def mark_of(line: str) -> str | None:
    """Convert a line of an offsets file to a position mark; None if its source is not a Delta table."""
    found = offset_of(line)
    return None if found is None else found.mark


def offset_of(line: str) -> DeltaOffset | None:
    """Parse a line of an offsets file; None if its source is not a Delta table or has no offset yet."""
    if not line.startswith("{"):
        return None
    value = json.loads(line)
    if not isinstance(value, dict) or "reservoirId" not in value:
        return None
    return DeltaOffset(
        str(value["reservoirId"]),
        int(value["reservoirVersion"]),
        int(value["index"]),
        bool(value.get("isStartingVersion")),
    )


class OtherTable(Exception):
    """Raised if a table was replaced, or if its log ends before a stream's offset, as in an older copy."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part of a source that a query has not read yet."""

    versions: int
    """Number of versions that have not been read completely. Some of them may contain no new rows."""
    waiting: Totals
    oldest: float | None
    """Commit time of the oldest unread rows; None if there are none."""
    next_at: float | None = None
    """Time of the commit that is read next, whatever it contains; None if there is none."""
    replaced_at: float | None = None
    """Time of the first unread commit that replaced files; None if there is none."""


def backlog(log: DeltaLog, offset: DeltaOffset | None) -> Backlog:
    """Return the backlog of a query, as of the log's last refresh; if `offset` is None, it is the whole table.

    Raises OtherTable if the table was replaced, and CommitsGone if the log begins after the offset.
    """
    if offset is None:
        held = log.active()
        return Backlog(log.head + 1 if held.files else 0, held, held.earliest)
    _require(log, offset)
    waiting, oldest, after, partly = Totals(), None, offset.version, 0
    next_at, replaced_at = None, None
    if offset.in_snapshot:
        left = log.files_at(offset.version)[offset.files_read :]
        waiting, after, partly = Totals.of(left), offset.version + 1, int(bool(left))
        oldest = waiting.earliest
    if offset.in_snapshot:
        # The snapshot may be readable from a checkpoint alone.
        with suppress(CommitsGone):
            next_at = next(log.since(offset.version)).at
    for commit in log.since(after):
        next_at = commit.at if next_at is None else next_at
        if replaced_at is None and commit.replaced:
            replaced_at = commit.at
        files, size, rows = commit.files, commit.bytes, commit.rows
        if commit.version == offset.version and offset.files_read:
            left = log.added_in(commit.version)[offset.files_read :]
            part = Totals.of(left)
            files, size, rows = part.files, part.bytes, part.rows
        waiting = waiting.plus(files, size, rows, commit.at)
        if files and (oldest is None or commit.at < oldest):
            oldest = commit.at
    return Backlog(log.head + 1 - after + partly, waiting, oldest, next_at, replaced_at)


def extended_backlog(known: Backlog, upto: int, log: DeltaLog, offset: DeltaOffset) -> Backlog:
    """Extend `known`, a query's backlog up to version `upto`, to the latest version of the log.

    Only commits after `upto` are examined. Raises the same errors as `backlog`.
    """
    _require(log, offset)
    waiting, oldest, next_at, replaced_at = known.waiting, known.oldest, known.next_at, known.replaced_at
    for commit in log.since(upto + 1):
        next_at = commit.at if next_at is None else next_at
        replaced_at = commit.at if replaced_at is None and commit.replaced else replaced_at
        waiting = waiting.plus(commit.files, commit.bytes, commit.rows, commit.at)
        if commit.files and (oldest is None or commit.at < oldest):
            oldest = commit.at
    return Backlog(known.versions + log.head - upto, waiting, oldest, next_at, replaced_at)


def _require(log: DeltaLog, offset: DeltaOffset) -> None:
    if offset.table_id != log.id or offset.version > log.head + 1:
        raise OtherTable
    log.require(offset.version + int(offset.in_snapshot))


LOOKED_AT = 200
"""Maximum number of unread versions, and of files per version, checked for existence before a start."""

KEPT = 10_000
"""Maximum number of readers remembered. Commits are examined again for a reader that was forgotten."""


@dataclass(slots=True)
class _Looked:
    life: int
    upto: int
    replaced: bool = False


class DeltaReaders:
    """Detects faults that keep streams from continuing. Examines each commit once per reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked: OrderedDict[tuple[str, DeltaOffset, bool, bool], _Looked] = OrderedDict()

    def fault_behind(
        self, log: DeltaLog, offset: DeltaOffset, *, takes_changes: bool, tracked: bool
    ) -> TableFault | None:
        """Return the fault that prevents a query from continuing at an offset of a table; None if it can continue.

        A stream of rows fails at a commit that deletes or updates rows (Delta 4.4.0), unless it reads changes
        (`takes_changes`). No stream continues past a renamed or dropped column without schema tracking (`tracked`). A
        renamed or dropped column is reported only if there is no other fault, because tracking would not remedy that
        fault.
        """
        if log.id != offset.table_id:
            why = f"was re-created: its id is {log.id}, and what was read had {offset.table_id}"
            return TableFault(TableFaultKind.REPLACED, why)
        if offset.version > log.head + 1:
            why = f"is an older copy: it ends with version {log.head}, and version {offset.version - 1} was read"
            return TableFault(TableFaultKind.REPLACED, why)
        first = offset.version + int(offset.in_snapshot)
        try:
            log.require(first)
            key = (log.folder, offset, takes_changes, tracked)
            looked = self._looked.get(key)
            if looked is None or looked.life != log.life:
                looked = _Looked(log.life, first - 1)
            waits = list(log.since(looked.upto + 1))
            changing = next((commit for commit in waits if commit.changed_rows_by and not takes_changes), None)
            if changing is not None:
                how = f"{changing.changed_rows_by} in version {changing.version}, which it has not read"
                why = f"was changed by {how}: a stream of rows cannot continue past that"
                return TableFault(TableFaultKind.ROWS_CHANGED, why)
            lost = None if tracked else lost_column(log, waits)
            replaced = looked.replaced or any(commit.replaced for commit in waits)
            if lost is None:
                self._keep(key, _Looked(log.life, log.head, replaced))
            if replaced and (version := first_without_files(log, offset)) is not None:
                why = f"lacks files of version {version}, which is to be read next: VACUUM has deleted them"
                return TableFault(TableFaultKind.FILES_GONE, why)
            if lost is not None:
                only = "only a stream with schema_tracking continues, even if that is reverted"
                why = f"has changed since version {lost[0]}: its {lost[1]}; {only}"
                return TableFault(TableFaultKind.STREAM_COLUMNS_CHANGED, why)
        except CommitsGone:
            why = f"no longer has version {first} in its log, which is to be read next"
            return TableFault(TableFaultKind.LOG_GONE, why)
        return None

    def _keep(self, key: tuple[str, DeltaOffset, bool, bool], looked: _Looked) -> None:
        with self._lock:
            self._looked[key] = looked
            self._looked.move_to_end(key)
            if len(self._looked) > KEPT:
                self._looked.popitem(last=False)


def first_without_files(log: DeltaLog, offset: DeltaOffset) -> int | None:
    """Return the first unread version with missing files; None if no file is missing.

    Checks at most LOOKED_AT versions. Raises CommitsGone if the log begins after the offset.
    """
    if offset.in_snapshot and not _are_there(log, log.files_at(offset.version)[offset.files_read :]):
        return offset.version
    for commit in islice(log.since(offset.version + int(offset.in_snapshot)), LOOKED_AT):
        first = offset.files_read if commit.version == offset.version else 0
        if commit.files and not _are_there(log, log.added_in(commit.version)[first:]):
            return commit.version
    return None


def _are_there(log: DeltaLog, files: Sequence[DataFile]) -> bool:
    return not missing(log.place_of(file) for file in files[:LOOKED_AT])
