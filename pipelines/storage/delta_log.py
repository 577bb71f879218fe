"""Reads commits and the files of a version from a Delta table's transaction log (`_delta_log`), without Spark.

Commits are JSON files with one action per line. About every tenth commit is followed by a checkpoint with the whole
state of the table. Older commits are deleted after 30 days if a checkpoint covers them (Delta 4.4.0).
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from typing import Any, NamedTuple
from urllib.parse import unquote

from core.model.file_stores import scheme_of
from core.observed.table_statistics import SMALL_FILE
from core.text.sentence import Sentence
from pipelines.storage.delta_log_files import STATE, Columns, actions_in, checkpoints_among, commits_in, why_unreadable
from pipelines.storage.file_store import FileStatus, FolderEntry, store_of
from pipelines.storage.file_stream_logs import local_path


class DataFile(NamedTuple):
    """A data file of a Delta table, as described by the commit that added it."""

    path: str
    size: int
    rows: int | None
    """Row count; None if the writer recorded no statistics."""
    at: float
    """Modification time in epoch seconds."""
    deleted: int = 0
    """Number of rows that a deletion vector marks as deleted."""


@dataclass(frozen=True, slots=True)
class Totals:
    """File, byte and row totals of a table version or of several commits."""

    files: int = 0
    bytes: int = 0
    rows: int | None = 0
    """Row count; None if the row count of a file is unknown."""
    earliest: float | None = None
    """Modification time of the oldest file; None if there are no files."""
    small: int = 0
    """Number of files smaller than SMALL_FILE."""

    def plus(self, files: int, size: int, rows: int | None, at: float | None, small: int = 0) -> "Totals":
        known = None if self.rows is None or rows is None else self.rows + rows
        times = [each for each in (self.earliest, at if files else None) if each is not None]
        return Totals(self.files + files, self.bytes + size, known, min(times, default=None), self.small + small)

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> "Totals":
        found = cls()
        for file in files:
            found = found.plus(1, file.size, file.rows, file.at, int(file.size < SMALL_FILE))
        return found


def is_elsewhere(file: DataFile) -> bool:
    """True if a data file lies outside its table's folder, as in a clone."""
    return file.path.startswith("/") or bool(scheme_of(file.path))


KEPT_COMMITS = 10_000
"""Number of latest commits per table kept in memory. Older commits are read again when needed."""

_Mark = tuple[int, int, int]
"""Inode, size and change time (ns) of a file, to distinguish it from a successor of the same name."""

_DIGITS = 20
_CHANGED_ROWS = (
    "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numUpdatedRows", "numDeletedRows",
)  # fmt: skip
"""Metrics of MERGE, UPDATE and DELETE that count changed rows. File row counts are larger, because rewritten files
repeat unchanged rows (Delta 4.4.0).
"""

_BY_HAND = frozenset({"WRITE", "UPDATE", "DELETE", "RESTORE", "TRUNCATE", "MERGE"})
"""Operations that count as changes by hand, unless the commit records a batch or is the MERGE of a keyed statement."""

_OURS = "headgate_gone"
"""Text that identifies a keyed statement's MERGE by its condition, which the commit repeats (Delta 4.4.0)."""


class NoDeltaLog(Exception):
    """Raised if a folder contains no Delta table."""


class CommitsGone(Exception):
    """Raised if requested commits have been deleted from the log."""


class Commit(NamedTuple):
    """The details of a commit that streams reading the table depend on."""

    version: int
    at: float
    """Commit time in epoch seconds."""
    files: int
    """Number of files with new rows. Files rewritten by OPTIMIZE do not count."""
    bytes: int
    rows: int | None
    """Number of new rows or, if the commit changed rows, of inserted, updated and deleted rows. None if not recorded.
    """
    changed_rows_by: str = ""
    """Operation that deleted or updated rows, such as `UPDATE`; empty if none. OPTIMIZE does not count."""
    replaced: bool = False
    """True if the commit removed files from the table, which VACUUM may then delete."""
    schema: str = ""
    """Schema as JSON, if the commit sets one."""


@dataclass(slots=True)
class Actions:
    """The actions in a commit file, grouped by kind."""

    at: float | None = None
    mark: _Mark | None = None
    added: list[DataFile] = field(default_factory=list)
    """Files with new rows, in the order in which a stream counts them."""
    rewritten: list[DataFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changes_rows: bool = False
    operation: str = ""
    tag: str = ""
    """Tag set by the client that requested the operation."""
    ours: bool = False
    """True if the commit is the MERGE of a keyed statement."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Metrics recorded by the operation."""
    changed_rows: int | None = None
    """Number of changed rows according to `metrics`."""
    batches: dict[str, int] = field(default_factory=dict)
    id: str = ""
    configuration: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    protocol: Mapping[str, Any] | None = None


class DeltaLog:
    """The transaction log of one table. `refresh` reads only new commits."""

    def __init__(self, folder: str) -> None:
        """Create the log of the table in `folder`, without reading it."""
        self.folder = folder
        self.place = f"{folder}/_delta_log"
        self._files = store_of(folder)
        self.life = 0
        """Number of times the log was read from its beginning. A new value invalidates everything derived earlier."""
        self._forget()

    def _forget(self) -> None:
        self.id = ""
        self.configuration: Mapping[str, str] = {}
        """Table properties."""
        self.schema = ""
        self.head = -1
        """Latest version."""
        self.batches: dict[str, int] = {}
        """Latest batch written by each query, by query id."""
        self.batch_by_version: dict[int, tuple[str, int]] = {}
        self.produced = Totals()
        """Totals of everything added since the first state that was read."""
        self.by_hand: tuple[int, str] | None = None
        """Latest known version that was written by hand rather than by a statement, and its operation."""
        self.newest_at: float | None = None
        """Time of the last commit that added rows."""
        self.life += 1
        self._keeps_all: bool | None = None
        """Whether no commit has deleted or updated rows. None until the commits before the first state that was read
        are checked.
        """
        self._active: Totals | None = None
        self._commits: dict[int, Commit] = {}
        self._snapshot: tuple[int, list[DataFile]] | None = None
        self._snapshot_used = False
        self._unread: Sentence | None = None
        """A feature of the table that Headgate does not support, so that everything read from the log may be wrong."""
        self._inode: tuple[int, int] | None = None
        self._mark: _Mark | None = None
        """Mark of the latest commit's file when it was read."""
        self._there_from = 0
        """A version whose commit file the last refresh, or a call since then, has seen; later ones exist as well."""

    def refresh(self) -> None:
        """Read the new commits, or the whole log if it was recreated.

        Raises NoDeltaLog if there is no table, and ValueError if the log cannot be read.
        """
        try:
            about = self._files.stat(self.place)
        except (FileNotFoundError, NotADirectoryError) as error:
            self._forget()
            raise NoDeltaLog(self.folder) from error
        inode, self._there_from = (about.st_dev, about.st_ino), self.head
        listed: Mapping[str, FolderEntry] = {}
        if self._inode != inode or (self.head >= 0 and not self._is_as_read()):
            # The log was recreated, replaced by an older copy, or cleaned up since the last refresh. A recreated folder
            # may have the inode of the deleted one, so the newest commit file is compared as well.
            self._forget()
            listed = self._begin()
            self._inode, self._there_from = inode, self.head + 1
        if not self._snapshot_used:
            self._snapshot = None
        self._snapshot_used = False
        while (actions := self.read(self.head + 1, listed.get(_name(self.head + 1)))) is not None:
            self._take(self.head + 1, actions)
        if self._unread is not None:
            raise ValueError(str(self._unread))
        if self.head < 0:
            if commits := commits_in(self.place):
                raise ValueError(f"it begins with version {min(commits)}, and no usable checkpoint precedes it")
            raise NoDeltaLog(self.folder)

    def active(self) -> Totals:
        """Return the totals of the latest version."""
        if self._active is None:
            self._active = Totals.of(self._state(self.head).values())
        return self._active

    def since(self, version: int) -> Iterator[Commit]:
        """Yield all commits from `version` on. Raises CommitsGone if the log begins later."""
        self.require(version)
        for each in range(version, self.head + 1):
            if (commit := self._commits.get(each)) is None:
                commit = self._commit(each, self._there(each))
                if each > self.head - KEPT_COMMITS:
                    self._commits[each] = commit
            yield commit

    def require(self, version: int) -> None:
        """Raise CommitsGone if the log begins later than `version`.

        Checking one version is enough, because a cleanup removes the oldest versions first.
        """
        if version > self.head or version >= self._there_from:
            return
        if not self._files.exists(self.path(version)):
            raise CommitsGone(f"version {version} of {self.folder} is no longer in its log")
        self._there_from = version

    def keeps_all(self) -> bool:
        """True if none of the commits still in the log deleted or updated rows."""
        if self._keeps_all is None:
            older = sorted((each for each in commits_in(self.place) if each <= self.head), reverse=True)
            self._keeps_all = not any((actions := self.read(each)) and actions.changes_rows for each in older)
        return self._keeps_all

    def first(self) -> int:
        """Return the oldest version with a commit in the log. Raises CommitsGone if there is none."""
        if not (found := commits_in(self.place)):
            raise CommitsGone(f"no version of {self.folder} is in its log any more")
        return min(found)

    def added_in(self, version: int) -> list[DataFile]:
        """Return the files with new rows that a version added, in the order in which streams count them."""
        return self._there(version).added

    def files_at(self, version: int) -> list[DataFile]:
        """Return all files of a version, in the order in which a stream's first batches read them.

        That order is by time and path (Delta 4.4.0). Raises CommitsGone if the version cannot be reconstructed.
        """
        self._snapshot_used = True
        if self._snapshot is None or self._snapshot[0] != version:
            found = sorted(self._state(version).values(), key=lambda file: (file.at, file.path))
            self._snapshot = (version, found)
        return self._snapshot[1]

    def commit_mark(self, version: int) -> str:
        """Return a digest of a version's commit file; empty if the file is no longer in the log."""
        with suppress(FileNotFoundError):
            return hashlib.sha256(self._files.read(self.path(version))).hexdigest()[:16]
        return ""

    def place_of(self, file: DataFile) -> str:
        """Return the absolute path of a data file.

        A clone refers to the files of its origin by URI (Delta 4.4.0).
        """
        if scheme_of(file.path):
            return local_path(file.path)
        path = unquote(file.path)
        return path if is_elsewhere(file) else f"{self.folder}/{path}"

    def _begin(self) -> Mapping[str, FolderEntry]:
        """Read the latest checkpoint, if there is one; return the files of the log by name."""
        listed = {entry.name: entry for entry in self._files.entries(self.place)}
        newest = max((version for version, _ in checkpoints_among(listed)), default=None)
        if newest is None:
            return listed
        state: dict[str, DataFile] = {}
        for table in self._tables_of(newest):
            state |= {file.path: file for file in _added_files(table.get("add"))}
            self.batches |= {str(txn["appId"]): int(txn["version"]) for txn in _structs(table.get("txn"))}
            for found in _structs(table.get("metaData")):
                self.id, self.configuration = str(found["id"]), dict(found["configuration"] or ())
                self.schema = str(found["schemaString"])
            for protocol in _structs(table.get("protocol")):
                self._unread = why_unreadable(protocol)
        if not self.id:
            raise ValueError(f"its checkpoint of version {newest} does not name its table")
        self._active = self.produced = Totals.of(state.values())
        self.newest_at = max((file.at for file in state.values()), default=None)
        self.head, self._mark = newest, self._mark_of(newest)
        return listed

    def _take(self, version: int, actions: Actions) -> None:
        commit = self._commit(version, actions)
        self._commits[version] = commit
        self._commits.pop(version - KEPT_COMMITS, None)
        self.head, self._mark = version, actions.mark
        if actions.protocol is not None:
            self._unread = why_unreadable(actions.protocol)
        if actions.id:
            self.id, self.configuration, self.schema = actions.id, actions.configuration, actions.schema
        self.produced = self.produced.plus(commit.files, commit.bytes, commit.rows, commit.at)
        for query, batch in actions.batches.items():
            self.batches[query] = batch
            self.batch_by_version[version] = (query, batch)
            self.batch_by_version.pop(version - KEPT_COMMITS, None)
        a_statement = actions.batches or actions.ours
        if actions.operation in _BY_HAND and not a_statement and (actions.added or actions.changes_rows):
            self.by_hand = (version, actions.operation)
        if commit.files:
            self.newest_at = commit.at
        if version == 0 or actions.changes_rows:
            self._keeps_all = not actions.changes_rows
        if actions.removed or actions.rewritten:
            self._active = None
        elif self._active is not None or version == 0:
            added = Totals.of(actions.added)
            before = self._active or Totals()
            self._active = before.plus(added.files, added.bytes, added.rows, added.earliest, added.small)

    def _commit(self, version: int, actions: Actions) -> Commit:
        found = Totals.of(actions.added)
        at = actions.at if actions.at is not None else found.earliest or 0.0
        what = (actions.operation or "a commit") if actions.changes_rows else ""
        rows = actions.changed_rows if what else found.rows
        return Commit(
            version,
            at,
            files=found.files,
            bytes=found.bytes,
            rows=rows,
            changed_rows_by=what,
            replaced=bool(actions.removed),
            schema=actions.schema,
        )

    def _there(self, version: int) -> Actions:
        found = self.read(version)
        if found is None:
            raise CommitsGone(f"version {version} of {self.folder} is no longer in its log")
        return found

    def _state(self, version: int) -> dict[str, DataFile]:
        begin = max((each for each, _ in self.checkpoints() if each <= version), default=-1)
        state: dict[str, DataFile] = {}
        if begin >= 0:
            for table in self._tables_of(begin):
                state |= {file.path: file for file in _added_files(table.get("add"))}
        for each in range(begin + 1, version + 1):
            actions = self._there(each)
            for path in actions.removed:
                state.pop(path, None)
            state |= {file.path: file for file in (*actions.added, *actions.rewritten)}
        return state

    def checkpoints(self) -> list[tuple[int, str]]:
        """Return the complete checkpoints in the log as (version, file name)."""
        return checkpoints_among(entry.name for entry in self._files.entries(self.place))

    def _tables_of(self, version: int) -> Iterator[Columns]:
        for each, name in self.checkpoints():
            if each == version:
                yield from actions_in(self.place, name, STATE)

    def _is_as_read(self) -> bool:
        return self._mark is not None and self._mark_of(self.head) == self._mark

    def _mark_of(self, version: int) -> _Mark | None:
        with suppress(FileNotFoundError):
            return _mark(self._files.stat(self.path(version)))
        return None

    def bytes_of(self, versions: range) -> int | None:
        """Return the total size of commit files; None if one of them is gone."""
        found = {entry.name: entry for entry in self._files.entries(self.place)} if versions else {}
        try:
            return sum(found[_name(version)].stat().st_size for version in versions)
        except (FileNotFoundError, KeyError):
            return None

    def path(self, version: int) -> str:
        return f"{self.place}/{_name(version)}"

    def read(self, version: int, listed: FolderEntry | None = None) -> Actions | None:
        """Read the actions of one commit; None if its file does not exist.

        With the entry `listed`, a remote store is not asked for the status of the file.
        """
        try:
            if listed is None:
                file, about = self._files.open_with_status(self.path(version))
            else:
                about, file = listed.stat(), self._files.open(self.path(version))
            with TextIOWrapper(file, "utf-8") as lines:
                found = _actions(lines)
                found.mark, found.at = _mark(about), about.st_mtime if found.at is None else found.at
        except FileNotFoundError:
            return None
        return found


def _name(version: int) -> str:
    return f"{version:0{_DIGITS}}.json"


def _mark(about: FileStatus) -> _Mark:
    return about.st_ino, about.st_size, about.st_mtime_ns


def _actions(lines: Iterable[str]) -> Actions:
    found = Actions()
    for line in lines:
        if not line.strip():
            continue
        action: Mapping[str, Any] = json.loads(line)
        if add := action.get("add"):
            (found.added if add.get("dataChange", True) else found.rewritten).append(_data_file(add))
        elif remove := action.get("remove"):
            found.removed.append(str(remove["path"]))
            found.changes_rows |= bool(remove.get("dataChange", True))
        elif txn := action.get("txn"):
            found.batches[str(txn["appId"])] = int(txn["version"])
        elif meta := action.get("metaData"):
            found.id, found.configuration = str(meta["id"]), meta.get("configuration") or {}
            found.schema = str(meta.get("schemaString") or "")
        elif protocol := action.get("protocol"):
            found.protocol = protocol
        elif info := action.get("commitInfo"):
            found.operation, found.tag = str(info.get("operation", "")), str(info.get("userMetadata") or "")
            said = info.get("operationParameters") or {}
            found.ours = any(_OURS in str(value) for value in said.values())
            if said.get("status") == "FAILED":
                # Even an interrupted VACUUM commits an end entry (4.4.0).
                found.operation += " FAILED"
            found.metrics = info.get("operationMetrics") or {}
            counts = [found.metrics[name] for name in _CHANGED_ROWS if name in found.metrics]
            found.changed_rows = sum(map(int, counts)) if counts else None
            at = info.get("inCommitTimestamp") or info.get("timestamp")
            found.at = None if at is None else float(at) / 1000
    return found


def _added_files(column: list[Any] | None) -> Iterator[DataFile]:
    return (_data_file(add) for add in _structs(column))


def _structs(column: list[Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the actions in a checkpoint column. Values that are NULL or have only NULL fields are skipped."""
    return (each for each in column or () if each is not None and any(value is not None for value in each.values()))


def _data_file(add: Mapping[str, Any]) -> DataFile:
    stats = add.get("stats")
    rows = json.loads(stats).get("numRecords") if stats else None
    deleted = (add.get("deletionVector") or {}).get("cardinality") or 0
    at = float(add.get("modificationTime") or 0) / 1000
    left = None if rows is None else int(rows) - int(deleted)
    return DataFile(str(add["path"]), int(add.get("size") or 0), left, at, int(deleted))
