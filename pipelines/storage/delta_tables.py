"""Reads what Headgate needs from Delta logs: batches, lag, contents and results of maintenance."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from core.model.errors import Refused
from core.model.names import TableName
from core.model.states import TableFaultKind
from core.model.table_formats import TABLE_FORMATS
from core.observed.table_statistics import NEWEST_COMMITS, LogHistory
from core.observed.time_left import Bound, TimeLeft, lost, time_left_in_log
from core.ports.storage import FolderContents, LogMark, SeenLog, SourceLag, TableFault, Upkeep
from core.sql.statement import AT_VERSION, LogStart
from core.text.sentence import Sentence
from pipelines.storage.delta_log import Commit, CommitsGone, DataFile, DeltaLog, NoDeltaLog, is_elsewhere
from pipelines.storage.delta_log_files import commits_in
from pipelines.storage.delta_readers import (
    Backlog,
    DeltaOffset,
    DeltaReaders,
    OtherTable,
    backlog,
    extended_backlog,
    first_without_files,
    offsets_in,
)
from pipelines.storage.delta_schemas import lost_column
from pipelines.storage.file_store import missing, store_of

_DELTA = TABLE_FORMATS["delta"]

REFRESH_S = 0.5
"""Minimum seconds between two reads of a log, however many statements need it."""

KEPT_LOGS, KEPT_BACKLOGS = 2_000, 10_000
"""Maximum numbers of logs and backlogs in memory.

The least recently used ones are discarded, and read again when needed.
"""


class DeltaTables:
    """Logs of Delta tables, by the folder that contains `_delta_log`, and the offsets of readers. Thread-safe.

    Each call reads only new commits, and calls within REFRESH_S share one read.
    """

    def __init__(self, *, refresh_s: float = REFRESH_S) -> None:
        self._refresh_s = refresh_s
        self._lock = threading.Lock()
        """Guards the mappings, and is never held during a read."""
        self._logs: OrderedDict[str, _KeptLog] = OrderedDict()
        self._backlogs: OrderedDict[tuple[str, DeltaOffset | None], tuple[int, int, Backlog]] = OrderedDict()
        """Backlogs by (folder, offset), each preceded by the log's `life` and version when it was computed."""
        self._readers = DeltaReaders()

    @contextmanager
    def open(self, folder: str, *, newest: bool = True) -> Iterator[DeltaLog | None]:
        """Yield a table's log; None if there is no table. Threads that need the same log wait until the block ends.

        With `newest`, the log is refreshed first; without `newest`, it may be up to REFRESH_S seconds old. If the block
        needs commits that the log no longer contains, the rest of the block is skipped without an error.
        """
        kept = self._kept(folder)
        with kept.lock, suppress(CommitsGone):
            try:
                log = self._log(kept, newest=newest)
            except NoDeltaLog:
                log = None
            yield log

    def fault_behind(
        self, offset: DeltaOffset, folder: str, *, takes_changes: bool = False, tracked: bool = False
    ) -> TableFault | None:
        """Return the fault that keeps a query from continuing, such as a missing log; None if it can continue.

        See `DeltaReaders.fault_behind`.
        """
        with self.open(folder) as log:
            if log is None:
                return TableFault(TableFaultKind.GONE, "is gone: there is no _delta_log")
            return self._readers.fault_behind(log, offset, takes_changes=takes_changes, tracked=tracked)

    def offsets(self, text: str) -> Mapping[int, DeltaOffset]:
        """Return the offsets of Delta sources in an offsets file, by source ordinal; empty if there are none."""
        return offsets_in(text)

    def first_offsets(self, text: str) -> Mapping[int, DeltaOffset]:
        """Return, by source ordinal, where a first batch that is planned but uncommitted starts to read each source."""
        return {
            ordinal: replace(end, version=end.version - int(not end.in_snapshot), index=-1, in_snapshot=True)
            for ordinal, end in self.offsets(text).items()
        }

    def lag(
        self, offset: DeltaOffset | None, table: TableName, folder: str, *, vacuumed_by_others: bool = False
    ) -> SourceLag:
        """Return a query's lag behind a table. `offset` is None if the query has read nothing.

        With `vacuumed_by_others`, replaced files may be deleted before the query has read them.
        """
        now, kept = time.time(), self._kept(folder)
        with kept.lock:
            try:
                log = self._log(kept)
                waits = self._backlog(log, offset)
            except (NoDeltaLog, OtherTable, CommitsGone) as why:
                kind = Bound.COMMITS_GONE if isinstance(why, CommitsGone) else Bound.SOURCE_GONE
                gone = None if offset is None else lost(kind, table=table)
                return SourceLag(table, 0, bytes=0, rows=None, exact=False, oldest_s=None, missing=True, time_left=gone)
            produced, rows = log.produced.rows, waits.waiting.rows
            return SourceLag(
                table=table,
                files=waits.waiting.files,
                bytes=waits.waiting.bytes,
                rows=rows,
                exact=rows is not None,
                oldest_s=None if waits.oldest is None else max(0.0, now - waits.oldest),
                produced_rows=produced,
                consumed_rows=None if produced is None or rows is None else max(0, produced - rows),
                newest_s=None if log.newest_at is None else max(0.0, now - log.newest_at),
                versions=waits.versions,
                time_left=None if offset is None else _time_left(log, waits, table, now, vacuumed=vacuumed_by_others),
            )

    def _kept(self, folder: str) -> "_KeptLog":
        with self._lock:
            if (found := self._logs.get(folder)) is None:
                found = self._logs[folder] = _KeptLog(DeltaLog(folder), -self._refresh_s)
            self._logs.move_to_end(folder)
            if len(self._logs) > KEPT_LOGS:
                self._logs.popitem(last=False)
            return found

    def _log(self, kept: "_KeptLog", *, newest: bool = False) -> DeltaLog:
        now = time.monotonic()
        if newest or now - kept.read_at >= self._refresh_s:
            kept.log.refresh()
            kept.read_at = now
        return kept.log

    def _backlog(self, log: DeltaLog, offset: DeltaOffset | None) -> Backlog:
        key = (log.folder, offset)
        life, head, known = self._backlogs.get(key) or (-1, -1, None)
        if known is None or life != log.life or offset is None or offset.version > head:
            known = backlog(log, offset) if (life, head) != (log.life, log.head) or known is None else known
        else:
            known = extended_backlog(known, head, log, offset)
        with self._lock:
            self._backlogs[key] = (log.life, log.head, known)
            self._backlogs.move_to_end(key)
            if len(self._backlogs) > KEPT_BACKLOGS:
                self._backlogs.popitem(last=False)
        return known


@dataclass(slots=True)
class _KeptLog:
    log: DeltaLog
    read_at: float
    """When the log was last refreshed, on the monotonic clock."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held by the thread that reads the log or uses what it has read."""


def is_there(folder: str) -> bool:
    return store_of(folder).is_folder(f"{folder}/_delta_log")


def log_mark(log: DeltaLog, version: int | None) -> LogMark:
    """Return the mark of a log at `version`, or at the latest version if that is lower or `version` is None."""
    at = log.head if version is None else min(version, log.head)
    return LogMark(log.id, at, log.commit_mark(at))


def contents(log: DeltaLog) -> FolderContents:
    """Return the size and age of a table's data, as of the latest version read from the log."""
    held, (entries, size) = log.active(), since_checkpoint(log)
    return FolderContents(
        held.files,
        held.bytes,
        held.rows,
        held.rows is not None,
        held.earliest,
        small_files=held.small,
        log_entries=entries,
        log_bytes=size,
    )


def written_files(log: DeltaLog, upto: int) -> tuple[str, ...] | None:
    """Return all files of the table version that batch `upto` wrote; None if the log does not record that batch.

    Raises Refused if these files, without the log, do not give exactly the rows of that version.
    """
    at = [version for version, (_, batch) in log.batch_by_version.items() if batch == upto]
    if not at and upto >= 0:
        return None
    files = log.files_at(at[-1]) if at else []
    if why := _why_other_rows(log, files):
        raise Refused(why)
    places = tuple(log.place_of(file) for file in files)
    if gone := len(missing(places)):
        raise Refused(f"{gone:,} of {len(places):,} are gone, as after a VACUUM")
    return places


def position_after_batch(log: DeltaLog, upto: int | None) -> SeenLog | None:
    """Return the position after the version that batch `upto` wrote; if `upto` is None, after the latest version.

    The result is None if the log records no version, or several versions, for that batch.
    """
    at = [version for version, (_, batch) in log.batch_by_version.items() if batch == upto]
    if upto is None:
        at = [log.head]
    if len(at) != 1:
        return None
    offset = DeltaOffset(log.id, at[0] + 1, -1, False)
    return SeenLog(offset.line, offset.version)


def written_version(log: DeltaLog, query: str, batch: int) -> int | None:
    """Return a version that contains a query's batches up to `batch`, but no later batches; None if unknown."""
    newest = log.batches.get(query, -1)
    if newest <= batch:
        return log.head if newest == batch else None
    known = sorted((n, version) for version, (of, n) in log.batch_by_version.items() if of == query)
    later = [(n, version) for n, version in known if n > batch]
    if later and (later[0][0] == batch + 1 or known[0][0] <= batch):
        return later[0][1] - 1
    return None


def history(log: DeltaLog) -> LogHistory:
    """Return the range of versions in a log, and the commit time and row count of the latest versions."""
    first = log.first()
    oldest = next(islice(log.since(first), 1))
    newest = log.since(max(first, log.head + 1 - NEWEST_COMMITS))
    commits = tuple((each.version, each.at, each.rows) for each in newest)
    return LogHistory(first, oldest.at, commits, kept_h(log))


def kept_h(log: DeltaLog) -> float | None:
    """Return how many hours the table keeps files of older versions; None if unknown."""
    return _DELTA.kept_h(log.configuration)


def _time_left(log: DeltaLog, waits: Backlog, table: TableName, now: float, *, vacuumed: bool) -> TimeLeft:
    log_kept_h, files_kept_h = _DELTA.log_kept_h(log.configuration), kept_h(log)
    if log.configuration.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        log_kept_h = float("inf")
    return time_left_in_log(
        table,
        next_at=waits.next_at,
        replaced_at=waits.replaced_at if vacuumed else None,
        log_kept_s=None if log_kept_h is None else log_kept_h * 3600,
        files_kept_s=None if files_kept_h is None else files_kept_h * 3600,
        now=now,
    )


def why_not_from(log: DeltaLog, start: LogStart, *, takes_changes: bool, tracked: bool) -> Sentence | None:
    """Return why a stream cannot start at a version or time in a log; None if it can."""
    try:
        first = log.first()
        version = int(start.value) if start.option == AT_VERSION else _version_at(log, first, start.value)
        if version < first:
            return Sentence(f"version {version} of {start.table} is no longer in its log, which begins with {first}")
        if version > log.head:
            return Sentence(f"{start.table} ends with version {log.head}, which is before {start.value}")
        waits = list(log.since(version))
        changing = next((each for each in waits if each.changed_rows_by and not takes_changes), None)
        if not tracked and (lost := lost_column(log, waits)) is not None:
            what = f"its {lost[1]} in version {lost[0]}"
            return Sentence(
                f"{start.table} has changed since then: {what}; only a stream with schema_tracking continues"
            )
        if changing is not None:
            how = f"{changing.changed_rows_by} in version {changing.version}"
            return Sentence(
                f"{start.table} was changed by {how}: a stream that starts earlier cannot continue past that"
            )
        if (gone := first_without_files(log, DeltaOffset(log.id, version, -1, False))) is not None:
            return Sentence(f"{start.table} lacks files of version {gone}: VACUUM has deleted them")
    except CommitsGone as error:
        return Sentence(str(error))
    return None


def rows_since(log: DeltaLog, moment: float) -> int | None:
    """Count the rows committed since `moment`, in epoch seconds; None if a commit lacks a row count."""
    since: list[Commit] = []
    for version in range(log.head, -1, -1):
        (commit,) = islice(log.since(version), 1)
        if commit.at < moment:
            break
        since.append(commit)
    known = [commit.rows for commit in since if commit.rows is not None]
    return sum(known) if len(known) == len(since) else None


def batches_by_reader_position(log: DeltaLog) -> Mapping[str, tuple[int, int]]:
    """Map reader positions to the first and last batch after which the table had exactly the rows before them.

    Keys are marks (`DeltaOffset.mark`). A reader that has read a version completely is positioned at the next version.
    """
    found: dict[str, tuple[int, int]] = {}
    written = sorted(log.batch_by_version.items())
    with suppress(CommitsGone):
        for n, (version, (_, batch)) in enumerate(written):
            until = written[n + 1][0] if n + 1 < len(written) else log.head + 1
            for after in range(version + 1, until + 1):
                if after > version + 1 and _changed(log, after - 1):
                    break
                position = DeltaOffset(log.id, after, -1, False).mark
                found[position] = (found.get(position, (batch, batch))[0], batch)
    return found


def _version_at(log: DeltaLog, first: int, moment: str) -> int:
    """Return the first version that was committed at or after a time (ISO 8601).

    If no version was, return the version that the next commit will create. If all commits in the log are later and
    older commits have been deleted, return the version before the oldest one in the log.
    """
    begins = datetime.fromisoformat(moment).timestamp()
    for version in range(log.head, first - 1, -1):
        (commit,) = islice(log.since(version), 1)
        if commit.at < begins:
            return version + 1
    return first if first == 0 else first - 1


def _why_other_rows(log: DeltaLog, files: Sequence[DataFile]) -> Sentence | None:
    """Return why the data files, without the log, do not give exactly the table's rows; None if they do.

    Spark reads partition values from folder names below a single base path, but a clone's files lie below several.
    """
    if log.configuration.get("delta.columnMapping.mode", "none") != "none":
        return Sentence("columns have other names there")
    if any(file.deleted for file in files):
        return Sentence("rows that were deleted are still there")
    elsewhere = any(is_elsewhere(file) and "=" in os.path.dirname(file.path) for file in files)
    return Sentence("some are partitions of another version") if elsewhere else None


def _changed(log: DeltaLog, version: int) -> bool:
    (commit,) = islice(log.since(version), 1)
    return bool(commit.files or commit.changed_rows_by)


LOOKED_AT = 1_000
"""Maximum number of commits since the last checkpoint for which a total size is computed."""

MARKED = 10_000
"""Number of latest versions searched for a tag.

Other commits may follow an operation while it rewrites files.
"""


def since_checkpoint(log: DeltaLog) -> tuple[int, int | None]:
    """Return the number of versions since the log's last checkpoint, and the total size of their commits in bytes.

    The size is None for more than LOOKED_AT versions, or if a commit is gone.
    """
    last = max((version for version, _ in log.checkpoints() if version <= log.head), default=-1)
    if log.head - last > LOOKED_AT:
        return log.head - last, None
    return log.head - last, log.bytes_of(range(last + 1, log.head + 1))


def upkeep_of(log: DeltaLog, operation: str, tag: str) -> Upkeep | None:
    """Return the result of the latest `OPTIMIZE` or completed `VACUUM` with this tag; None if there is none.

    Operations are identified by tag, because commit times are wrong if the clock was set back.
    """
    try:
        newest = max(commits_in(log.place), default=-1)
    except FileNotFoundError:
        return None
    for version in range(newest, max(-1, newest - MARKED), -1):
        actions = log.read(version)
        if actions is None:
            return None
        if actions.tag != tag:
            continue
        if actions.operation == operation == "OPTIMIZE":
            return Upkeep(len(actions.removed), len(actions.rewritten))
        if actions.operation == f"{operation} END":
            return Upkeep(int(actions.metrics.get("numDeletedFiles", 0)))
    return None


def unread_before(log: DeltaLog, offset: DeltaOffset, moment: float, *, takes_changes: bool) -> int | None:
    """Return the first unread version with a file that was replaced before `moment`, in epoch seconds.

    The result is None if there is no such version, or if the table was replaced. Raises CommitsGone if unread commits
    are no longer in the log.
    """
    if log.id != offset.table_id:
        return None
    paths: dict[str, int] = {}
    if offset.in_snapshot:
        paths |= {file.path: offset.version for file in log.files_at(offset.version)[offset.files_read :]}
    for commit in log.since(offset.version + int(offset.in_snapshot)):
        if takes_changes and commit.changed_rows_by and commit.at < moment:
            # The commit's changes are in separate files, which expire with the commit.
            return commit.version
        if commit.files:
            first = offset.files_read if commit.version == offset.version else 0
            paths |= {file.path: commit.version for file in log.added_in(commit.version)[first:]}
    return _first_replaced(log, paths, offset.version, moment)


def _first_replaced(log: DeltaLog, paths: Mapping[str, int], begin: int, moment: float) -> int | None:
    found: list[int] = []
    for version in range(max(0, begin), log.head + 1):
        actions = log.read(version)
        if actions is None:
            raise CommitsGone(f"version {version} of {log.folder} is no longer in its log")
        if actions.at is not None and actions.at < moment:
            found += [paths[path] for path in actions.removed if path in paths]
    return min(found, default=None)
