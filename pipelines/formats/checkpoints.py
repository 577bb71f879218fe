"""Files of tables of every format: one with a log is asked what its log says, every other one what its files say."""

import os
import stat
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from core.model.errors import Refused, TryAgain
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.aligned_positions import BatchHistory
from core.observed.log_history import LogHistory
from core.ports.storage import FolderContents, LogMark, SeenFile, SeenLog, SourceLag, Upkeep
from core.sql.log_starts import LogStart
from pipelines.formats.delta_tables import DeltaTables
from pipelines.formats.log_tables import LogTables
from pipelines.storage.batch_histories import BatchHistories
from pipelines.storage.checkpoints import FileCheckpoints, Sources
from pipelines.storage.file_stream_logs import local_path
from pipelines.storage.json_files import reachable

LOGS = {"delta": DeltaTables}
"""What reads the tables of each format with a log, by its name in `core.model.table_formats`."""


class LoggedTable(NamedTuple):
    """A table with a log: what reads it, and where it lies."""

    of: LogTables[Any]
    place: str


class TableCheckpoints(FileCheckpoints):
    """Implements `core.ports.storage.Checkpoints` for tables of every format."""

    def __init__(
        self, ledger: str, *, machine: str = "", epoch: int = 1, logs: Mapping[str, LogTables[Any]] | None = None
    ) -> None:
        """`logs` are what reads the tables of each format with a log; by default those of `LOGS`, each new."""
        super().__init__(ledger, machine=machine, epoch=epoch)
        self._logs: Mapping[str, LogTables[Any]] = logs or {name: tables() for name, tables in LOGS.items()}
        self._histories = BatchHistories(self._mark_of)

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        """Return the newest batch of a query in a table's own record; None where it has none."""
        if (logged := self._logged(folder, format)) is None:
            return super().sink_batch(folder)
        with _reading(folder):
            return logged.of.sink_batch(logged.place, query)

    def identity(self, folder: str, format: str) -> str:
        """Return the id that a table itself has; empty where it has none, or its format knows none."""
        if (logged := self._logged(folder, format)) is None:
            return ""
        with _reading(folder):
            if not (found := logged.of.identity(logged.place)):
                _refuse_unmounted(folder)
            return found

    def columns(self, folder: str, format: str) -> Mapping[str, str] | None:
        """Return the types of a table's columns by name, as its log has them; None where none says them all."""
        if (logged := self._logged(folder, format)) is None:
            return None
        with _reading(folder):
            return logged.of.columns(logged.place)

    def properties(self, folder: str, format: str) -> Mapping[str, str]:
        """Return the properties of a table as its log has them; none where it has none, or is not there."""
        if (logged := self._logged(folder, format)) is None:
            return {}
        with _reading(folder):
            return logged.of.properties(logged.place)

    def written_by_hand(self, folder: str, format: str) -> tuple[int, str] | None:
        """Return the newest version whose rows no statement has written, and by what; None where there is none."""
        if (logged := self._logged(folder, format)) is None:
            return None
        with _reading(folder):
            return logged.of.written_by_hand(logged.place)

    def why_other_source(
        self, checkpoint: str, sources: Sources, *, take_changes: Set[int] = frozenset(), tracked: bool = False
    ) -> tuple[TableName, str] | None:
        """Return the first source that is not what a statement has read, and why; None where all are."""
        with _reading(checkpoint):
            committed = self._newest(f"{checkpoint}/commits")
            for ordinal, table, folder, format in sources:
                if (logged := self._logged(folder, format)) is None:
                    continue
                if (offset := logged.of.offsets(checkpoint, committed).get(ordinal)) is None:
                    continue
                changes = ordinal in take_changes
                if why := logged.of.why_other(offset, logged.place, takes_changes=changes, tracked=tracked):
                    _refuse_unmounted(folder)
                    return table, why
        return None

    def lag(self, checkpoint: str, sources: Sources) -> tuple[SourceLag, ...]:
        """Measure sources given as (ordinal, table, folder, format); works for stopped statements."""
        logged = {source: found for source in sources if (found := self._logged(source[2], source[3])) is not None}
        files = tuple(source for source in sources if source not in logged)
        measured = dict(zip(files, super().lag(checkpoint, files), strict=True))
        if logged:
            with _reading(checkpoint):
                committed = self._newest(f"{checkpoint}/commits")
                for source, (of, place) in logged.items():
                    offset = of.offsets(checkpoint, committed).get(source[0])
                    measured[source] = of.lag(offset, source[1], place)
        return tuple(measured[source] for source in sources)

    def rows(self, folder: str, format: str) -> int | None:
        """Count the rows of a table; None while some are not counted, and where they never are."""
        if (logged := self._logged(folder, format)) is None:
            return super().rows(folder, format)
        with _reading(folder):
            return logged.of.rows(logged.place)

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        """Count the rows that a written table has got since a moment; None where they cannot be counted."""
        if (logged := self._logged(folder, format)) is None:
            return super().rows_since(folder, format, moment)
        with _reading(folder):
            return logged.of.rows_since(logged.place, moment)

    def is_there(self, folder: str) -> bool:
        """Return whether a folder exists on this machine; raises TryAgain where that cannot be told now."""
        with reachable(folder):
            try:
                return stat.S_ISDIR(os.stat(local_path(folder)).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def contents(self, folder: str, format: str) -> FolderContents | None:
        """Return size and range of what a table holds; None if it does not exist on this machine."""
        if (logged := self._logged(folder, format)) is None:
            return super().contents(folder, format)
        with _reading(folder):
            return logged.of.contents(logged.place)

    def log_mark(self, place: str, version: int | None = None) -> LogMark | None:
        """Return where the log that lies in a folder stands, or how it was at a version; None where there is none.

        A log that ends before that version is told as it ends.
        """
        with _reading(place):
            found = (tables.mark(local_path(place), version) for tables in self._logs.values())
            return next((mark for mark in found if mark is not None), None)

    def upkeep(self, place: str, operation: str, tag: str) -> Upkeep | None:
        """Return what the newest whole `OPTIMIZE` or `VACUUM` with a tag has done to the table whose log lies in a
        folder; None without one."""
        with _reading(place):
            logs = (tables for tables in self._logs.values() if tables.is_there(local_path(place)))
            found = (tables.upkeep(local_path(place), operation, tag) for tables in logs)
            return next((done for done in found if done is not None), None)

    def kept_h(self, folder: str, format: str) -> float | None:
        """Return for how many hours a table keeps files of older versions; None where that cannot be read."""
        if (logged := self._logged(folder, format)) is None:
            return None
        with _reading(folder):
            return logged.of.kept_h(logged.place)

    def unread_before(
        self, checkpoint: str, source: tuple[int, TableName, str, str], moment: float, *, takes_changes: bool = False
    ) -> int | None:
        """Return the first version of a source that a statement has not read and that a vacuum of now deletes."""
        ordinal, _, folder, format = source
        if (logged := self._logged(folder, format)) is None:
            return None
        with _reading(checkpoint):
            offset = logged.of.offsets(checkpoint, self._newest(f"{checkpoint}/commits")).get(ordinal)
            if offset is None:
                offset = logged.of.first_offsets(checkpoint, self._newest(f"{checkpoint}/offsets")).get(ordinal)
            if offset is None:
                return None
            return logged.of.unread_before(offset, logged.place, moment, takes_changes=takes_changes)

    def gone(self, checkpoint: str, sources: Sources) -> int | None:
        """Count the files that a statement has read, and that are no longer there; None where nobody can say."""
        logged = {source: found for source in sources if (found := self._logged(source[2], source[3])) is not None}
        with _reading(checkpoint):
            if not all(of.keeps_all(place) for of, place in logged.values()):
                return None
        return super().gone(checkpoint, tuple(source for source in sources if source not in logged))

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        """Return what each known batch had read of so many sources, and what the table held; empty where unreadable."""
        found = super().batch_history(checkpoint, sources, folder)
        if (logged := self._logged_there(folder)) is None:
            return found
        with _reading(folder):
            return replace(found, held=logged.of.held(logged.place))

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        """Return the files of batches up to `upto`; None where the log does not say it any more."""
        if (logged := self._logged_there(folder)) is None:
            return super().written_files(folder, upto)
        with _reading(folder):
            return logged.of.written_files(logged.place, upto)

    def seen(self, folder: str, upto: int | None = None, *, format: str = "") -> tuple[SeenFile, ...] | SeenLog:
        """Return what a source holds, a table of ours up to batch `upto` of its own record."""
        logged = self._logged(folder, format) if format else self._logged_there(folder)
        if logged is None or not logged.of.is_there(logged.place):
            return super().seen(folder, upto)
        with _reading(folder):
            found = logged.of.seen(logged.place, upto)
        if found is None:
            raise Refused(f"the log of {folder} no longer tells batch {upto} alone", remedy="choose another strategy")
        return found

    def log_history(self, folder: str, format: str) -> LogHistory | None:
        """Return what a table's log says of its versions; None where it has none."""
        if (logged := self._logged(folder, format)) is None:
            return None
        with _reading(folder):
            return logged.of.history(logged.place)

    def why_not_from(
        self, folder: str, format: str, start: LogStart, *, takes_changes: bool, tracked: bool = False
    ) -> str:
        """Explain why a stream of a table cannot begin at a place in its log now; empty where it can."""
        if (logged := self._logged(folder, format)) is None:
            return super().why_not_from(folder, format, start, takes_changes=takes_changes, tracked=tracked)
        with _reading(folder):
            return logged.of.why_not_from(logged.place, start, takes_changes=takes_changes, tracked=tracked)

    def written_version(self, folder: str, query: str, batch: int) -> int | None:
        """Return the version of a table that holds a query's batches up to one, and no later one; None where its log
        does not say it any more."""
        if (logged := self._logged_there(folder)) is None:
            return None
        with _reading(folder):
            return logged.of.written_version(logged.place, query, batch)

    def lost_files(self, folder: str, version: int) -> tuple[str, ...]:
        """List the files that a version of a table names and that are not there, by path."""
        if (logged := self._logged_there(folder)) is None:
            return ()
        with _reading(folder):
            return logged.of.lost_files(logged.place, version)

    def _has_log(self, table: str) -> bool:
        return self._logged_there(table) is not None

    def _known_to_table(self, table: str, like: str) -> str:
        found = self.read(like) if like and self._has_log(table) else None
        return found.id if found else ""

    def _mark_of(self, line: str) -> str | None:
        found = (tables.mark_of(line) for tables in self._logs.values())
        return next((mark for mark in found if mark is not None), None)

    def _logged(self, folder: str, format: str) -> LoggedTable | None:
        """Return the table of a folder where its format has a log, whether it is there or not."""
        of = self._logs.get(table_format(format).name)
        return None if of is None else LoggedTable(of, _table_in(folder, format))

    def _logged_there(self, folder: str) -> LoggedTable | None:
        """Return the table with a log that lies in a version's folder; None where there is none."""
        found = (LoggedTable(of, _table_in(folder, name)) for name, of in self._logs.items())
        return next((logged for logged in found if logged.of.is_there(logged.place)), None)


def _table_in(folder: str, format: str) -> str:
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
