"""Files of tables of every format: what has a transaction log is asked of it, everything else of its own files."""

import os
import stat
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.aligned_positions import BatchHistory
from core.observed.log_history import LogHistory
from core.ports.storage import FolderContents, LogMark, SeenFile, SeenLog, SourceLag, Upkeep
from core.sql.log_starts import LogStart
from pipelines.formats.delta_log import DeltaLog
from pipelines.formats.delta_offsets import DeltaOffset, mark_of
from pipelines.formats.delta_tables import DeltaTables
from pipelines.formats.delta_upkeep import upkeep_of
from pipelines.storage.batch_histories import BatchHistories
from pipelines.storage.checkpoints import FileCheckpoints, Sources
from pipelines.storage.file_stream_logs import local_path
from pipelines.storage.json_files import reachable


class TableCheckpoints(FileCheckpoints):
    """Implements `core.ports.storage.Checkpoints` for tables of every format."""

    def __init__(self, ledger: str, *, machine: str = "", epoch: int = 1) -> None:
        super().__init__(ledger, machine=machine, epoch=epoch)
        self._delta = DeltaTables()
        self._histories = BatchHistories(mark_of)

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        """Return the newest batch of a query in a table's own record; None where it has none."""
        if not table_format(format).transaction_log:
            return super().sink_batch(folder)
        with _reading(folder):
            return self._delta.sink_batch(_table_in(folder, format), query)

    def identity(self, folder: str, format: str) -> str:
        """Return the id that a table itself has; empty where it has none, or its format knows none."""
        if not table_format(format).transaction_log:
            return ""
        with _reading(folder):
            if not (found := self._delta.identity(_table_in(folder, format))):
                _refuse_unmounted(folder)
            return found

    def columns(self, folder: str, format: str) -> Mapping[str, str] | None:
        """Return the types of a table's columns by name, as its log has them; None where none says them all."""
        if not table_format(format).transaction_log:
            return None
        with _reading(folder):
            return self._delta.columns(_table_in(folder, format))

    def properties(self, folder: str, format: str) -> Mapping[str, str]:
        """Return the properties of a table as its log has them; none where it has none, or is not there."""
        if not table_format(format).transaction_log:
            return {}
        with _reading(folder):
            return self._delta.properties(_table_in(folder, format))

    def written_by_hand(self, folder: str, format: str) -> tuple[int, str] | None:
        """Return the newest version whose rows no statement has written, and by what; None where there is none."""
        if not table_format(format).transaction_log:
            return None
        with _reading(folder):
            return self._delta.written_by_hand(_table_in(folder, format))

    def why_other_source(
        self, checkpoint: str, sources: Sources, *, take_changes: Set[int] = frozenset(), tracked: bool = False
    ) -> tuple[TableName, str] | None:
        """Return the first source that is not what a statement has read, and why; None where all are."""
        with _reading(checkpoint):
            offsets = self._delta_offsets(checkpoint)
            for ordinal, table, folder, format in sources:
                if (offset := offsets.get(ordinal)) is None:
                    continue
                place, changes = _table_in(folder, format), ordinal in take_changes
                if why := self._delta.why_other(offset, place, takes_changes=changes, tracked=tracked):
                    _refuse_unmounted(folder)
                    return table, why
        return None

    def lag(self, checkpoint: str, sources: Sources) -> tuple[SourceLag, ...]:
        """Measure sources given as (ordinal, table, folder, format); works for stopped statements."""
        logged = {source[0] for source in sources if table_format(source[3]).transaction_log}
        files = tuple(source for source in sources if source[0] not in logged)
        measured = dict(zip((source[0] for source in files), super().lag(checkpoint, files), strict=True))
        if logged:
            with _reading(checkpoint):
                offsets = self._delta_offsets(checkpoint)
                measured |= {
                    ordinal: self._delta.lag(offsets.get(ordinal), table, _table_in(folder, format))
                    for ordinal, table, folder, format in sources
                    if ordinal in logged
                }
        return tuple(measured[source[0]] for source in sources)

    def rows(self, folder: str, format: str) -> int | None:
        """Count the rows of a table; None while some are not counted, and where they never are."""
        if not table_format(format).transaction_log:
            return super().rows(folder, format)
        with _reading(folder):
            return self._delta.rows(_table_in(folder, format))

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        """Count the rows that a written table has got since a moment; None where they cannot be counted."""
        if not table_format(format).transaction_log:
            return super().rows_since(folder, format, moment)
        with _reading(folder):
            return self._delta.rows_since(_table_in(folder, format), moment)

    def is_there(self, folder: str) -> bool:
        """Return whether a folder exists on this machine; raises TryAgain where that cannot be told now."""
        with reachable(folder):
            try:
                return stat.S_ISDIR(os.stat(local_path(folder)).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def contents(self, folder: str, format: str) -> FolderContents | None:
        """Return size and range of what a table holds; None if it does not exist on this machine."""
        if not table_format(format).transaction_log:
            return super().contents(folder, format)
        with _reading(folder):
            return self._delta.contents(_table_in(folder, format))

    def log_mark(self, place: str, version: int | None = None) -> LogMark | None:
        """Return where the log that lies in a folder stands, or how it was at a version; None where there is none.

        A log that ends before that version is told as it ends.
        """
        with _reading(place):
            return self._delta.mark(local_path(place), version)

    def upkeep(self, place: str, operation: str, tag: str) -> Upkeep | None:
        """Return what the newest whole `OPTIMIZE` or `VACUUM` with a tag has done to the table whose log lies in a
        folder; None without one."""
        with _reading(place):
            return upkeep_of(DeltaLog(place), operation, tag)

    def kept_h(self, folder: str, format: str) -> float | None:
        """Return for how many hours a table keeps files of older versions; None where that cannot be read."""
        with _reading(folder):
            return self._delta.kept_h(_table_in(folder, format)) if table_format(format).transaction_log else None

    def unread_before(
        self, checkpoint: str, source: tuple[int, TableName, str, str], moment: float, *, takes_changes: bool = False
    ) -> int | None:
        """Return the first version of a source that a statement has not read and that a vacuum of now deletes."""
        ordinal, _, folder, format = source
        with _reading(checkpoint):
            offset = self._delta_offsets(checkpoint).get(ordinal) or self._first_batch(checkpoint).get(ordinal)
            if offset is None:
                return None
            return self._delta.unread_before(offset, _table_in(folder, format), moment, takes_changes=takes_changes)

    def gone(self, checkpoint: str, sources: Sources) -> int | None:
        """Count the files that a statement has read, and that are no longer there; None where nobody can say."""
        logged = [source for source in sources if table_format(source[3]).transaction_log]
        with _reading(checkpoint):
            if not all(self._delta.keeps_all(_table_in(folder, format)) for _, _, folder, format in logged):
                return None
        return super().gone(checkpoint, tuple(source for source in sources if source not in logged))

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return what each known batch had read of so many sources, and what the table held; empty where unreadable."""
        found = super().batch_history(checkpoint, sources, folder)
        if not self._delta.is_there(_table_in(folder)):
            return found
        with _reading(folder):
            return replace(found, held=self._delta.held(_table_in(folder)))

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        """Return the files of batches up to `upto`; None where the log does not say it any more."""
        if not self._delta.is_there(_table_in(folder)):
            return super().written_files(folder, upto)
        with _reading(folder):
            return self._delta.written_files(_table_in(folder), upto)

    def seen(self, folder: str, upto: int | None = None, *, format: str = "") -> tuple[SeenFile, ...] | SeenLog:
        """Return what a source holds, a table of ours up to batch `upto` of its own record."""
        place = _table_in(folder, format or "delta")
        if not self._delta.is_there(place):
            return super().seen(folder, upto)
        with _reading(folder):
            offset = self._delta.after_batch(place, upto)
        if offset is None:
            raise Refused(f"the log of {folder} no longer tells batch {upto} alone", remedy="choose another strategy")
        return SeenLog(offset.line, offset.version)

    def log_history(self, folder: str, format: str) -> LogHistory | None:
        """Return what a table's log says of its versions; None where it has none."""
        if not table_format(format).transaction_log:
            return None
        with _reading(folder):
            return self._delta.history(_table_in(folder, format))

    def why_not_from(
        self, folder: str, format: str, start: LogStart, *, takes_changes: bool, tracked: bool = False
    ) -> str:
        """Explain why a stream of a table cannot begin at a place in its log now; empty where it can."""
        if not table_format(format).transaction_log:
            return super().why_not_from(folder, format, start, takes_changes=takes_changes, tracked=tracked)
        with _reading(folder):
            return self._delta.why_not_from(
                _table_in(folder, format), start, takes_changes=takes_changes, tracked=tracked
            )

    def written_version(self, folder: str, query: str, batch: int) -> int | None:
        """Return the version of a table that holds a query's batches up to one, and no later one; None where its log
        does not say it any more."""
        with _reading(folder):
            return self._delta.written_version(_table_in(folder), query, batch)

    def _has_log(self, table: str) -> bool:
        return self._delta.is_there(_table_in(table))

    def _known_to_table(self, table: str, like: str) -> str:
        found = self.read(like) if like and self._delta.is_there(_table_in(table)) else None
        return found.id if found else ""

    def _first_batch(self, checkpoint: str) -> Mapping[int, DeltaOffset]:
        """Return where a first batch begins that was planned and not committed: with the files of its version."""
        planned = self._delta.offsets(checkpoint, self._newest(f"{checkpoint}/offsets"))
        return {
            ordinal: replace(end, version=end.version - int(not end.in_snapshot), index=-1, in_snapshot=True)
            for ordinal, end in planned.items()
        }

    def _delta_offsets(self, checkpoint: str) -> Mapping[int, DeltaOffset]:
        return self._delta.offsets(checkpoint, self._newest(f"{checkpoint}/commits"))


def _table_in(folder: str, format: str = "delta") -> str:
    """Return where the table of a version's folder lies, or the folder itself of one that others write."""
    return table_format(format).place_in(local_path(folder.rstrip("/")))


@contextmanager
def _reading(folder: str) -> Iterator[None]:
    """Raise what the file system refuses, and what is no log that is known, as TryAgain."""
    with reachable(folder):
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise TryAgain(f"the log of {folder} cannot be read: {error}", remedy="check what wrote it") from error


def _refuse_unmounted(folder: str) -> None:
    """Raise TryAgain where the folder that holds a version's folder is not there: what is below it is not gone."""
    above = os.path.dirname(local_path(folder.rstrip("/")))
    if not os.path.isdir(above):
        raise TryAgain(f"{above} is not there", remedy="mount it, or check its permissions")
