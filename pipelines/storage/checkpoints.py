"""Manages table and checkpoint folders: determines their owners, their contents, and how far queries have read.

Spark does not prevent two queries from writing to one folder. A folder without Headgate's owner file, or owned by
another ledger, is therefore never moved, and no query is started on it. A table's contents are determined from its
transaction log or, if its format has none, from its files.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from core.model.errors import HeadgateError, Refused, TryAgain
from core.model.names import TableName, whole_number
from core.model.states import TableFaultKind
from core.model.table_formats import table_format
from core.observed.aligned_positions import BatchHistory
from core.observed.table_statistics import LogHistory
from core.ports.storage import (
    CheckpointState,
    FolderContents,
    FolderTaken,
    LogMark,
    MeasuredFiles,
    OriginRows,
    Seen,
    SeenFile,
    SeenLog,
    SeenMessages,
    SourceLag,
    Sources,
    StartPosition,
    StatementFolders,
    TableFault,
    Upkeep,
    VersionFolders,
)
from core.sql.statement import LogStart
from core.text.sentence import Sentence
from pipelines.storage import checkpoint_forks, delta_tables, table_contents
from pipelines.storage.batch_histories import BatchHistories
from pipelines.storage.change_slots import ChangeSlots, position_of
from pipelines.storage.checkpoint_forks import TOPICS_FILE
from pipelines.storage.checkpoint_logs import OWNER_FILE, CheckpointLogs, text_of
from pipelines.storage.delta_log import DeltaLog
from pipelines.storage.delta_readers import mark_of
from pipelines.storage.delta_schemas import columns_of
from pipelines.storage.delta_tables import DeltaTables
from pipelines.storage.file_sources import TABLE_LOG_FOLDER, TABLE_NOTE_FILE
from pipelines.storage.file_store import LOCAL, missing, store_of
from pipelines.storage.file_stream_logs import first_gap, local_path, newest_batch
from pipelines.storage.file_system import reachable, read_json, remove_folder, removed_as_empty, unreachable, write_json
from pipelines.storage.kafka_offsets import KafkaOffsets, mark_of_offsets, offsets_of, parsed_offsets
from pipelines.storage.remote_reads import RemoteReads, Stores
from pipelines.storage.source_lag import REFRESH_S, SourceLags

LOGS = {"delta": DeltaTables}
"""Readers of transaction logs, by format name in `core.model.table_formats`."""

CLOCK_FILE = "_headgate_clock"
"""A file that is written only to see by which time its store dates it."""


class TableLog(NamedTuple):
    """The folder of a table that has a transaction log, and the reader for logs of its format."""

    of: DeltaTables
    place: str


class TableCheckpoints:
    """Implements `core.ports.storage.Checkpoints`, which documents the methods, for all table formats.

    Folders are local or in HDFS (`file_store`). Thread-safe.
    """

    def __init__(
        self,
        ledger: str,
        *,
        machine: str = "",
        epoch: int = 1,
        logs: Mapping[str, DeltaTables] | None = None,
        refresh_s: float = REFRESH_S,
    ) -> None:
        """Manage the folders of one ledger on one machine. `epoch` is the number of adoptions.

        `machine` is the machine's id. `logs` maps formats to readers of transaction logs; by default, each format in
        `LOGS` gets a new reader. Files and logs of a source are read at most every `refresh_s` seconds.
        """
        self.ledger, self.machine, self.epoch = ledger, machine, epoch
        self._logs: Mapping[str, DeltaTables] = logs or {
            name: tables(refresh_s=refresh_s) for name, tables in LOGS.items()
        }
        self._lags = SourceLags(refresh_s=refresh_s)
        self._topics = KafkaOffsets(refresh_s=refresh_s)
        self._slots = ChangeSlots()
        self._histories = BatchHistories(lambda line: mark_of(line) or mark_of_offsets(line))
        self._tables = table_contents.TableFolders()
        self._positions = CheckpointLogs()
        self._remote = RemoteReads()

    def prepare(self, folder: str, note: Mapping[str, Any]) -> None:
        files, run = store_of(folder), str(note.get("run", ""))
        with reachable(folder):
            if files.exists(folder):
                self._check_ours(folder)
                if (made_by := _made_by(folder)) == run:
                    return
                if not _is_unused(folder):
                    raise FolderTaken(f"{folder} contains data written by run {made_by or 'unknown'}, not by this run")
                write_json(f"{folder}/{TABLE_NOTE_FILE}", note)
                write_json(f"{folder}/{OWNER_FILE}", self._owner(run))
                return
            above, name = os.path.split(folder)
            temporary = f"{above}/.{name}.{secrets.token_hex(4)}"
            files.make_folders(temporary)
            try:
                write_json(f"{temporary}/{OWNER_FILE}", self._owner(run))
                write_json(f"{temporary}/{TABLE_NOTE_FILE}", note)
                files.rename(temporary, folder)
            except OSError:
                # On a full disk, every attempt would otherwise leave a temporary folder behind.
                files.remove_tree(temporary)
                raise

    def read(self, folder: str) -> CheckpointState | None:
        with reachable(folder):
            return self._positions.state(folder)

    def missing_checkpoint_file(self, folder: str) -> str:
        with reachable(folder):
            try:
                entries = store_of(folder).entries(f"{folder}/sources")
                sources = sorted(entry.name for entry in entries if whole_number(entry.name) is not None)
            except FileNotFoundError:
                return ""
            for source in sources:
                if (batch := first_gap(f"{folder}/sources/{source}")) is not None:
                    return f"sources/{source}/{batch}"
            return ""

    def take_over(self, folder: str, former: str = "") -> None:
        with reachable(folder):
            self._check_ours(folder, former)
            write_json(f"{folder}/{OWNER_FILE}", self._owner(_made_by(folder)))

    def note(self, folder: str, note: Mapping[str, Any]) -> None:
        with reachable(folder):
            write_json(f"{folder}/{TABLE_NOTE_FILE}", note)

    def set_aside(self, folder: str, into: str) -> None:
        files = store_of(folder)
        with reachable(folder):
            if not files.exists(folder):
                return
            self._check_ours(folder)
            files.make_folders(os.path.dirname(into))
            target = f"{into}.{secrets.token_hex(4)}" if files.exists(into) else into
            files.move(folder, target)
            self._positions.forget(folder)

    def remove(self, folder: str) -> bool:
        # The owner file is deleted last, so that it remains as proof of ownership if anything cannot be deleted.
        # Symbolic links are not followed.
        files = store_of(folder)
        if files.is_link(folder):
            return False
        with reachable(folder):
            if not files.exists(folder):
                return True
            try:
                self._check_ours(folder)
            except Refused:
                return False
            remove_folder(folder, last=OWNER_FILE)
            return True

    def put_back(self, aside: str, folder: str) -> None:
        files = store_of(folder)
        with reachable(folder):
            if not files.exists(aside):
                if not files.exists(folder):
                    raise Refused(f"{aside} is no longer in the trash", remedy="nothing was changed")
                self._check_ours(folder)
                return
            if files.exists(folder) and not removed_as_empty(folder):
                raise Refused(f"{folder} exists, and {aside} would take its place", remedy="move one of them away")
            self._check_ours(aside)
            files.make_folders(os.path.dirname(folder))
            files.move(aside, folder)
            with suppress(OSError):
                # Remove the folders of version and kind, and the trash, if they are empty: an empty folder has no owner
                # file to check.
                left = aside
                for _ in range(3):
                    left = os.path.dirname(left)
                    files.rmdir(left)

    def checkpoints_of_version(self, checkpoint: str) -> tuple[str, ...]:
        above, name = os.path.split(checkpoint)
        files = store_of(checkpoint)
        with reachable(checkpoint):
            beside = files.entries(above) if files.is_folder(above) else ()
            mine = [entry for entry in beside if entry.name == name or entry.name.startswith(f"{name}.")]
            return tuple(sorted(entry.path for entry in mine if entry.is_dir()))

    def is_there(self, folder: str) -> bool:
        with reachable(folder):
            try:
                place = local_path(folder)
                return stat.S_ISDIR(store_of(place).stat(place).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def has_owner(self, folder: str) -> bool:
        with reachable(folder):
            place = local_path(folder)
            return store_of(place).is_file(f"{place}/{OWNER_FILE}")
        return False

    def file_clock(self, folder: str) -> float:
        path = f"{local_path(folder)}/{CLOCK_FILE}"
        with reachable(folder):
            files = store_of(path)
            files.replace(path, b"")
            try:
                return files.stat(path).st_mtime
            finally:
                files.unlink(path)

    # Contents of a table and what was written to it.

    def sink_batch(self, folder: str, *, format: str = "", query: str = "") -> int | None:
        with self._log(folder, format) as log:
            if log or self._has_log(format):
                return log.batches.get(query) if log else None
            return newest_batch(f"{folder}/{TABLE_LOG_FOLDER}")

    def identity(self, folder: str, format: str) -> str:
        if table_format(format).topics:
            return self._topics.identity(folder)
        with self._log(folder, format) as log:
            if log is None and self._has_log(format):
                _refuse_unmounted(folder)
            return log.id if log else ""

    def columns(self, folder: str, format: str) -> Mapping[str, str] | None:
        with self._log(folder, format, newest=False) as log:
            return columns_of(log.schema) if log else None

    def properties(self, folder: str, format: str) -> Mapping[str, str]:
        with self._log(folder, format, newest=False) as log:
            return dict(log.configuration) if log else {}

    def written_by_hand(self, folder: str, format: str) -> tuple[int, str] | None:
        with self._log(folder, format) as log:
            return log.by_hand if log else None

    def contents(self, folder: str, format: str) -> FolderContents | None:
        with self._log(folder, format, newest=False) as log:
            if log or self._has_log(format):
                return delta_tables.contents(log) if log else None
            try:
                return self._tables.contents(folder, format)
            except ValueError as error:
                raise _unreadable(folder, error) from error
        return None

    def rows(self, folder: str, format: str) -> int | None:
        with self._log(folder, format, newest=False) as log:
            if log or self._has_log(format):
                return log.active().rows if log else None
            return self._lags.rows(folder, format)
        return None

    def rows_since(self, folder: str, format: str, moment: float) -> int | None:
        with self._log(folder, format) as log:
            if log:
                return delta_tables.rows_since(log, moment)
            with suppress(FileNotFoundError, NotADirectoryError, ValueError):
                return table_contents.rows_since(folder, format, moment)
        return None

    def log_history(self, folder: str, format: str) -> LogHistory | None:
        with self._log(folder, format, newest=False) as log:
            return delta_tables.history(log) if log else None
        return None

    def kept_h(self, folder: str, format: str) -> float | None:
        with self._log(folder, format) as log:
            return delta_tables.kept_h(log) if log else None

    def written_files(self, folder: str, upto: int) -> tuple[str, ...] | None:
        with self._log(folder) as log:
            if log:
                return delta_tables.written_files(log, upto)
            with suppress(FileNotFoundError, ValueError):
                return self._histories.files(local_path(folder), upto)
        return None

    def written_version(self, folder: str, query: str, batch: int) -> int | None:
        with self._log(folder) as log:
            return delta_tables.written_version(log, query, batch) if log else None

    def lost_files(self, folder: str, version: int) -> tuple[str, ...]:
        places: list[str] = []
        with self._log(folder) as log:
            places = [log.place_of(file) for file in log.files_at(version)] if log else []
        with reachable(folder):
            gone = missing(places)
            return tuple(place for place in places if place in gone)
        return ()

    def why_not_from(
        self, folder: str, format: str, start: LogStart, *, takes_changes: bool, tracked: bool = False
    ) -> Sentence | None:
        with self._log(folder, format) as log:
            if log:
                return delta_tables.why_not_from(log, start, takes_changes=takes_changes, tracked=tracked)
        if self._has_log(format):
            return Sentence(f"{start.table} is gone: there is no _delta_log")
        return Sentence(f"{start.table} has no versions")

    def log_mark(self, place: str, version: int | None = None) -> LogMark | None:
        with _reading(place):
            for tables in self._logs.values():
                with tables.open(local_path(place)) as log:
                    if log:
                        return delta_tables.log_mark(log, version)
        return None

    def upkeep(self, place: str, operation: str, tag: str) -> Upkeep | None:
        with _reading(place):
            folder = local_path(place)
            return delta_tables.upkeep_of(DeltaLog(folder), operation, tag) if delta_tables.is_there(folder) else None

    # What a statement has read from its sources.

    def measure_ahead(self, statements: Iterable[StatementFolders]) -> Mapping[str, MeasuredFiles | Exception]:
        stores = {each: _remote_stores(each) for each in statements}
        self._prefetch_topics(stores)
        reads = {each: (found, partial(self._measured, each)) for each, found in stores.items() if found}
        return {
            each.checkpoint: unreachable(_remote_places(each)[0], found) if isinstance(found, OSError) else found
            for each, found in self._remote.results(reads).items()
        }

    def _prefetch_topics(self, statements: Mapping[StatementFolders, Stores]) -> None:
        reads = {
            (each.checkpoint, source): (stores, partial(self.topic_offsets, each.checkpoint, source))
            for each, stores in statements.items()
            for source in each.sources
            if table_format(source[3]).topics
        }
        offsets = self._remote.results({key: read for key, read in reads.items() if read[0]})
        for key, (stores, read) in reads.items():
            with suppress(TryAgain):
                offsets |= {} if stores else {key: read()}
        asked = ((found, source[2]) for (_, source), found in offsets.items() if isinstance(found, Mapping))
        self._topics.prefetch(asked)

    def _measured(self, statement: StatementFolders) -> MeasuredFiles:
        checkpoint = statement.checkpoint
        state, rows = self.read(checkpoint), self.rows(statement.table, statement.format)
        # A log that has just changed would be listed again.
        committed = state.batch if state is not None else self._positions.newest(f"{checkpoint}/commits")
        try:
            return MeasuredFiles(state, self._lag(checkpoint, committed, statement.sources), rows)
        except HeadgateError as error:
            if isinstance(error.__cause__, OSError):
                raise
            return MeasuredFiles(state, (), rows, error)

    def lag(self, checkpoint: str, sources: Sources) -> tuple[SourceLag, ...]:
        with reachable(checkpoint):
            return self._lag(checkpoint, self._positions.newest(f"{checkpoint}/commits"), sources)

    def _lag(self, checkpoint: str, committed: int | None, sources: Sources) -> tuple[SourceLag, ...]:
        logs = {source: found for source in sources if (found := self._log_of(source[2], source[3]))}
        topics = {source: read for source in sources if (read := self.topic_offsets(checkpoint, source)) is not None}
        changes = [source for source in sources if table_format(source[3]).changes]
        files = tuple(each for each in sources if each not in logs and each not in topics and each not in changes)
        with reachable(checkpoint):
            lags = self._lags.measure(checkpoint, self._positions.consumed(checkpoint, committed), files)
            measured = dict(zip(files, lags, strict=True))
        if logs:
            with _reading(checkpoint):
                text = self._offsets(checkpoint, committed)
                for source, log in logs.items():
                    offset = log.of.offsets(text).get(source[0])
                    others = not table_format(source[3]).written
                    measured[source] = log.of.lag(offset, source[1], log.place, vacuumed_by_others=others)
        for source, consumed in topics.items():
            measured[source] = _apart(source[1], partial(self._topics.lag, consumed, source[1], source[2]))
        for source in changes:
            position = self.position(checkpoint, source[0])
            measured[source] = _apart(source[1], partial(self._slots.lag, position, source[1], source[2]))
        faults = [fault for each in measured.values() if (fault := each.unmeasured) is not None]
        if faults and len(faults) == len(measured):
            raise faults[0]
        return tuple(measured[source] for source in sources)

    def _offsets(self, checkpoint: str, batch: int | None) -> str:
        """Return the offsets file of a batch; empty if there is none."""
        with suppress(FileNotFoundError):
            return self._positions.offsets(checkpoint, batch) if batch is not None else ""
        return ""

    def missing_topics(self, locations: Iterable[str]) -> dict[str, tuple[str, ...] | HeadgateError]:
        return self._topics.missing(locations)

    def missing_folders(self, folders: Iterable[str]) -> tuple[str, ...]:
        return tuple(filter(_is_missing, folders))

    def newest_message(self, location: str) -> tuple[int, float | None]:
        return self._topics.newest(location)

    def encoded_lag(self) -> dict[str, str]:
        return self._lags.encoded()

    def restore_lag(self, encoded: Mapping[str, str]) -> None:
        self._lags.restore(encoded)

    def source_fault(
        self,
        checkpoint: str,
        sources: Sources,
        *,
        take_changes: Set[int] = frozenset(),
        tracked: bool = False,
        running: bool = False,
    ) -> tuple[TableName, TableFault] | None:
        lost_column: tuple[TableName, TableFault] | None = None
        with _reading(checkpoint):
            text = self._offsets(checkpoint, self._positions.newest(f"{checkpoint}/commits"))
            for source in sources:
                ordinal, table, folder, format = source
                if (read := self.topic_offsets(checkpoint, source, planned=running)) is not None:
                    ids = read_json(f"{checkpoint}/{TOPICS_FILE}").get(table, {}) if checkpoint else {}
                    if fault := self._topics.fault_behind(read, folder, ids, fresh=not running):
                        return table, fault
                    self._keep_topics(checkpoint, table, folder)
                    continue
                if table_format(format).changes:
                    if fault := self._slots.fault_behind(self.position(checkpoint, ordinal), folder):
                        return table, fault
                    continue
                if (log := self._log_of(folder, format)) is None:
                    continue
                if (offset := log.of.offsets(text).get(ordinal)) is None:
                    continue
                changes = ordinal in take_changes
                fault = log.of.fault_behind(offset, log.place, takes_changes=changes, tracked=tracked)
                if fault is not None:
                    _refuse_unmounted(folder)
                    if fault.kind is not TableFaultKind.STREAM_COLUMNS_CHANGED:
                        return table, fault
                    lost_column = lost_column or (table, fault)
        return lost_column

    def unread_before(
        self, checkpoint: str, source: tuple[int, TableName, str, str], moment: float, *, takes_changes: bool = False
    ) -> int | None:
        ordinal, _, folder, format = source
        if (log := self._log_of(folder, format)) is None:
            return None
        with _reading(checkpoint):
            committed = self._positions.newest(f"{checkpoint}/commits")
            offset = log.of.offsets(self._offsets(checkpoint, committed)).get(ordinal)
            if offset is None:
                planned = self._positions.newest(f"{checkpoint}/offsets")
                offset = log.of.first_offsets(self._offsets(checkpoint, planned)).get(ordinal)
            if offset is None:
                return None
            with log.of.open(log.place) as found:
                return delta_tables.unread_before(found, offset, moment, takes_changes=takes_changes) if found else None
        return None

    def count_missing_inputs(self, checkpoint: str, sources: Sources) -> int | None:
        logs = {source: found for source in sources if (found := self._log_of(source[2], source[3]))}
        with _reading(checkpoint):
            for of, place in logs.values():
                with of.open(place, newest=False) as log:
                    if log is None or not log.keeps_all():
                        return None
        if (state := self.read(checkpoint)) is None:
            return None
        files = tuple(source for source in sources if source not in logs)
        with reachable(checkpoint), suppress(FileNotFoundError, ValueError):
            return table_contents.missing_files(checkpoint, state.consumed, files)
        return None

    def batch_history(self, checkpoint: str, sources: int, folder: str) -> BatchHistory:
        found = BatchHistory({}, {})
        with reachable(checkpoint), suppress(FileNotFoundError, ValueError):
            found = self._histories.history(checkpoint, sources, local_path(folder))
        with self._log(folder, newest=False) as log:
            return replace(found, held=delta_tables.batches_by_reader_position(log)) if log else found

    # Versions that start from the position of another version or of a source.

    def source_position(
        self, folder: str, upto: int | None = None, *, format: str = "", since: float | None = None
    ) -> tuple[SeenFile, ...] | SeenLog | SeenMessages:
        if format and table_format(format).topics:
            return SeenMessages(self._topics.position(folder, since))
        with self._log(folder, format or None) as log:
            found = delta_tables.position_after_batch(log, upto) if log else checkpoint_forks.seen_files(folder, upto)
        if found is None:
            raise Refused(
                f"the log of {folder} no longer distinguishes batch {upto} from other changes",
                remedy="choose another strategy",
            )
        if since is not None and not isinstance(found, SeenLog):
            return tuple(file for file in found if file.modified_ms < since * 1000)
        return found

    def fork(
        self, origin: VersionFolders, copy: VersionFolders, note: Mapping[str, Any], *, rows: OriginRows
    ) -> StartPosition:
        with reachable(copy.checkpoint):
            logged = not copy.table or self._log_of(copy.table) is not None
            return checkpoint_forks.fork(self.prepare, origin, copy, note, rows, has_transaction_log=logged)

    def create_checkpoint_after(
        self,
        version: VersionFolders,
        seen: Sequence[Seen],
        note: Mapping[str, Any],
        *,
        batch: int | None = None,
        like: str = "",
    ) -> StartPosition:
        with reachable(version.checkpoint):
            logged = not version.table or self._log_of(version.table) is not None
            # The table's log records batches by query id, so the new checkpoint keeps the query id.
            known = self.read(like) if like and logged else None
            query = known.id if known else ""
            return checkpoint_forks.create_checkpoint_after(
                self.prepare, version, seen, note, batch=batch, like=like, query=query, has_transaction_log=logged
            )

    @contextmanager
    def _log(self, folder: str, format: str | None = None, *, newest: bool = True) -> Iterator[DeltaLog | None]:
        """Yield a table's transaction log; None if there is no table or its format has no log.

        Errors in reading the log are raised as TryAgain. If the block needs commits that the log no longer contains,
        the rest of the block is skipped without an error.
        """
        found = self._log_of(folder, format)
        if found is None:
            with reachable(folder):
                yield None
            return
        with _reading(folder), found.of.open(found.place, newest=newest) as log:
            yield log

    def _has_log(self, format: str) -> bool:
        return table_format(format).name in self._logs

    def _log_of(self, folder: str, format: str | None = None) -> TableLog | None:
        """Return a table's transaction log, even before it exists; None if the format has none.

        If `format` is omitted, it is detected from the files in the folder.
        """
        if format is not None:
            of = self._logs.get(table_format(format).name)
            return None if of is None else TableLog(of, _table_in(folder, format))
        found = (TableLog(of, _table_in(folder, name)) for name, of in self._logs.items())
        return next((log for log in found if delta_tables.is_there(log.place)), None)

    def _keep_topics(self, checkpoint: str, table: TableName, location: str) -> None:
        if not store_of(checkpoint).is_folder(checkpoint):
            return
        ids, path = self._topics.ids(location), f"{checkpoint}/{TOPICS_FILE}"
        known = read_json(path)
        if known.get(table) != ids:
            write_json(path, {**known, table: ids})

    def topic_offsets(
        self, checkpoint: str, source: tuple[int, TableName, str, str], *, planned: bool = False
    ) -> Mapping[tuple[str, int], int] | None:
        if not table_format(source[3]).topics:
            return None
        batch = self._positions.newest(f"{checkpoint}/{'offsets' if planned else 'commits'}")
        with _reading(checkpoint), suppress(FileNotFoundError):
            if batch is not None:
                return offsets_of(text_of(f"{checkpoint}/offsets/{batch}"), source[0]) or {}
            # Where the first batch will start, once that is decided.
            start = text_of(f"{checkpoint}/sources/{source[0]}/0")
            return parsed_offsets(start.partition("\n")[2]) or {}
        return {}

    def position(self, checkpoint: str, ordinal: int) -> int | None:
        with _reading(checkpoint), suppress(FileNotFoundError):
            batch = self._positions.newest(f"{checkpoint}/commits")
            if batch is not None:
                return position_of(text_of(f"{checkpoint}/offsets/{batch}"), ordinal)
        return None

    def _owner(self, run: str) -> dict[str, Any]:
        return {"ledger": self.ledger, "machine": self.machine, "epoch": self.epoch, "run": run}

    def _check_ours(self, place: str, former: str = "") -> None:
        try:
            owner = read_json(f"{place}/{OWNER_FILE}").get("ledger", "")
        except ValueError:
            owner = ""
        if owner not in (self.ledger, former or self.ledger):
            raise Refused(
                f"{place} belongs to another ledger" if owner else f"{place} exists and has no owner file",
                remedy="move it away",
            )


def _made_by(place: str) -> str:
    return str(
        read_json(f"{place}/{OWNER_FILE}").get("run") or read_json(f"{place}/{TABLE_NOTE_FILE}").get("run") or ""
    )


def _is_unused(place: str) -> bool:
    return all(entry.name in (OWNER_FILE, TABLE_NOTE_FILE, TOPICS_FILE) for entry in store_of(place).entries(place))


def _table_in(folder: str, format: str) -> str:
    return table_format(format).place_in(local_path(folder.rstrip("/")))


@contextmanager
def _reading(folder: str) -> Iterator[None]:
    with reachable(folder):
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(folder, error) from error


def _apart(table: TableName, measure: Callable[[], SourceLag]) -> SourceLag:
    """Measure the lag behind a source whose broker or database may fail alone, with the reason if it does."""
    try:
        return measure()
    except HeadgateError as error:
        return SourceLag(table, 0, 0, rows=None, exact=False, oldest_s=None, unmeasured=error)


def _remote_places(statement: StatementFolders) -> list[str]:
    places = (statement.checkpoint, statement.table, *(source[2] for source in statement.sources))
    return [place for place in map(local_path, places) if store_of(place) is not LOCAL]


def _remote_stores(statement: StatementFolders) -> Stores:
    return frozenset(map(store_of, _remote_places(statement)))


def _unreadable(folder: str, error: Exception) -> TryAgain:
    return TryAgain(f"the log of {folder} cannot be read: {error}", remedy="check what wrote it")


def _is_missing(folder: str) -> bool:
    """True if a path certainly does not exist; False if that cannot be seen."""
    try:
        store_of(folder).stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _refuse_unmounted(folder: str) -> None:
    # The disk may not be mounted, in which case the folder may still exist. HDFS answers or raises an error.
    above = os.path.dirname(local_path(folder.rstrip("/")))
    if store_of(above) is LOCAL and not LOCAL.is_folder(above):
        raise TryAgain(f"{above} is not there", remedy="mount it, or check its permissions")
