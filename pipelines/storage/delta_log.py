"""The transaction log of a Delta table (`_delta_log`), read without Spark: commits, and what a version holds.

Commits are JSON, one action a line; every tenth or so is followed by a checkpoint, parquet, which holds the state of
the table up to it. Older commits are deleted once a checkpoint is there and 30 days have passed (Delta 4.4.0).
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from core.observed.table_statistics import SMALL_FILE
from core.text.sentence import Sentence
from pipelines.storage.delta_log_files import STATE, Columns, actions_in, checkpoints_in, commits_in, why_unreadable
from pipelines.storage.file_stream_logs import local_path


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


KEPT_COMMITS = 10_000
"""Commits of one table that are held, newest first; a reader that is farther behind has them read once more."""

_Mark = tuple[int, int, int]
"""Inode, bytes and time of change in nanoseconds of a file: what tells it from another one of its name."""

_DIGITS = 20
_CHANGED_ROWS = (
    "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted", "numUpdatedRows", "numDeletedRows",
)  # fmt: skip
"""What MERGE, UPDATE and DELETE say of themselves: the files that they write hold rows that stayed as well (4.4.0)."""

_BY_HAND = frozenset({"WRITE", "UPDATE", "DELETE", "RESTORE", "TRUNCATE", "MERGE"})
"""Operations that change rows; a statement records its batch in the same commit, or merges in a way of its own."""

_OURS = "headgate_gone"
"""Stands in the conditions of a keyed statement's MERGE, which its commit repeats (4.4.0)."""


class NoDeltaLog(Exception):
    """There is no Delta table in the folder."""


class CommitsGone(Exception):
    """Commits that are asked for are no longer in the log."""


class Commit(NamedTuple):
    """What readers of a stream see of one version."""

    version: int
    at: float
    """When it was made, epoch seconds."""
    files: int
    """Added with new rows: what OPTIMIZE writes is not counted."""
    bytes: int
    rows: int | None
    """Of one that took rows out: those that were inserted, changed and deleted; None where it does not say so."""
    took_out: str = ""
    """What took rows out or changed them (`UPDATE`), empty where nothing did; what OPTIMIZE does is none of it."""
    replaced: bool = False
    """Whether files are no longer in the table since then, so that VACUUM may delete them."""
    schema: str = ""
    """Where it says what columns there are, as JSON."""


@dataclass(slots=True)
class Actions:
    """One commit as it stands in its file."""

    at: float | None = None
    mark: _Mark | None = None
    added: list[DataFile] = field(default_factory=list)
    """With new rows, in the order in which a stream counts them."""
    rewritten: list[DataFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    took_out: bool = False
    operation: str = ""
    tag: str = ""
    """With which who asked for it has marked it."""
    ours: bool = False
    """Whether it is a MERGE of a keyed statement."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """What the operation says of itself."""
    changed_rows: int | None = None
    """As it says itself."""
    batches: dict[str, int] = field(default_factory=dict)
    id: str = ""
    configuration: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    protocol: Mapping[str, Any] | None = None


class DeltaLog:
    """One table's log; `refresh` reads what is new of it and nothing twice."""

    def __init__(self, folder: str) -> None:
        """Read nothing yet; `folder` is that of the table."""
        self.folder = folder
        self.place = f"{folder}/_delta_log"
        self.life = 0
        """Counts how often it was read from its beginning: what is known of a version is of one such life."""
        self._forget()

    def _forget(self) -> None:
        self.id = ""
        self.configuration: Mapping[str, str] = {}
        """The properties of the table."""
        self.schema = ""
        self.head = -1
        """Newest version."""
        self.batches: dict[str, int] = {}
        """The newest batch that each streaming query has written, by its id."""
        self.batch_by_version: dict[int, tuple[str, int]] = {}
        self.produced = Totals()
        """All that was ever added, counted from the first state that was read."""
        self.by_hand: tuple[int, str] | None = None
        """The newest version whose rows no statement has written, as far as was read, with its operation."""
        self.newest_at: float | None = None
        """When rows were last added."""
        self.life += 1
        self._keeps_all: bool | None = None
        """None where it is not known of commits before the first state that was read."""
        self._active: Totals | None = None
        self._commits: dict[int, Commit] = {}
        self._snapshot: tuple[int, list[DataFile]] | None = None
        self._snapshot_used = False
        self._unread: Sentence | None = None
        """What it asks for that is not read here: then all that is known of it may be wrong."""
        self._inode: tuple[int, int] | None = None
        self._mark: _Mark | None = None
        """What the file of the newest version was when it was read."""

    def refresh(self) -> None:
        """Read the commits that are new; a log that was made anew is read from its beginning.

        Raises NoDeltaLog where there is none, ValueError where it cannot be read.
        """
        try:
            about = os.stat(self.place)
        except (FileNotFoundError, NotADirectoryError) as error:
            self._forget()
            raise NoDeltaLog(self.folder) from error
        inode = (about.st_dev, about.st_ino)
        if self._inode != inode or (self.head >= 0 and not self._is_as_read()):
            # Made anew, a copy that ends earlier, or one that went on while nobody looked and was cleaned up.
            # A folder that is made anew may have the inode of the deleted one, so its newest file is looked at.
            self._forget()
            self._begin()
            self._inode = inode
        if not self._snapshot_used:
            self._snapshot = None
        self._snapshot_used = False
        while (actions := self.read(self.head + 1)) is not None:
            self._take(self.head + 1, actions)
        if self._unread is not None:
            raise ValueError(str(self._unread))
        if self.head < 0:
            if commits := commits_in(self.place):
                raise ValueError(f"it begins with version {min(commits)}, and no checkpoint that is read is before it")
            raise NoDeltaLog(self.folder)

    def active(self) -> Totals:
        """Return what the newest version holds."""
        if self._active is None:
            self._active = Totals.of(self._state(self.head).values())
        return self._active

    def since(self, version: int) -> Iterator[Commit]:
        """Go through the commits from a version on; raises CommitsGone where the log begins later."""
        self.require(version)
        for each in range(version, self.head + 1):
            if (commit := self._commits.get(each)) is None:
                commit = self._commit(each, self._there(each))
                if each > self.head - KEPT_COMMITS:
                    self._commits[each] = commit
            yield commit

    def require(self, version: int) -> None:
        """Raise CommitsGone where the log, which is cleaned up from its oldest version on, begins after a version."""
        if version <= self.head and not os.path.exists(self.path(version)):
            raise CommitsGone(f"version {version} of {self.folder} is no longer in its log")

    def keeps_all(self) -> bool:
        """Return whether no row was taken out or changed, as far as the commits say that are there."""
        if self._keeps_all is None:
            older = sorted((each for each in commits_in(self.place) if each <= self.head), reverse=True)
            self._keeps_all = not any((actions := self.read(each)) and actions.took_out for each in older)
        return self._keeps_all

    def first(self) -> int:
        """Return the oldest version whose commit is there; raises CommitsGone where there is none."""
        if not (found := commits_in(self.place)):
            raise CommitsGone(f"no version of {self.folder} is in its log any more")
        return min(found)

    def added_in(self, version: int) -> list[DataFile]:
        """Return the files with new rows of one commit, in the order in which a stream counts them."""
        return self._there(version).added

    def files_at(self, version: int) -> list[DataFile]:
        """Return the files of a version in the order in which the first batches of a stream read them.

        That order is by time and path (Delta 4.4.0). Raises CommitsGone where the version cannot be put together.
        """
        self._snapshot_used = True
        if self._snapshot is None or self._snapshot[0] != version:
            found = sorted(self._state(version).values(), key=lambda file: (file.at, file.path))
            self._snapshot = (version, found)
        return self._snapshot[1]

    def commit_mark(self, version: int) -> str:
        """Return what tells a commit from another one of its number; empty where it is no longer in the log."""
        with suppress(FileNotFoundError), open(self.path(version), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        return ""

    def place_of(self, file: DataFile) -> str:
        """Return where a file lies: a clone names those of what it was cloned from by a URI (4.4.0)."""
        if file.path.startswith("file:"):
            return local_path(file.path)
        path = unquote(file.path)
        return path if is_elsewhere(file) else f"{self.folder}/{path}"

    def _begin(self) -> None:
        """Begin with the newest checkpoint, or before the first version."""
        newest = max((version for version, _ in self.checkpoints()), default=None)
        if newest is None:
            return
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
            raise ValueError(f"its checkpoint of version {newest} does not say of which table it is")
        self._active = self.produced = Totals.of(state.values())
        self.newest_at = max((file.at for file in state.values()), default=None)
        self.head, self._mark = newest, self._mark_of(newest)

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
        if actions.operation in _BY_HAND and not a_statement and (actions.added or actions.took_out):
            self.by_hand = (version, actions.operation)
        if commit.files:
            self.newest_at = commit.at
        if version == 0 or actions.took_out:
            self._keeps_all = not actions.took_out
        if actions.removed or actions.rewritten:
            self._active = None
        elif self._active is not None or version == 0:
            added = Totals.of(actions.added)
            before = self._active or Totals()
            self._active = before.plus(added.files, added.bytes, added.rows, added.earliest, added.small)

    def _commit(self, version: int, actions: Actions) -> Commit:
        found = Totals.of(actions.added)
        at = actions.at if actions.at is not None else found.earliest or 0.0
        what = (actions.operation or "a commit") if actions.took_out else ""
        rows = actions.changed_rows if what else found.rows
        return Commit(
            version,
            at,
            files=found.files,
            bytes=found.bytes,
            rows=rows,
            took_out=what,
            replaced=bool(actions.removed),
            schema=actions.schema,
        )

    def _there(self, version: int) -> Actions:
        found = self.read(version)
        if found is None:
            raise CommitsGone(f"version {version} of {self.folder} is no longer in its log")
        return found

    def _state(self, version: int) -> dict[str, DataFile]:
        """Put a version together from the newest checkpoint up to it and the commits after that."""
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
        """List the files of whole checkpoints by version."""
        return checkpoints_in(self.place)

    def _tables_of(self, version: int) -> Iterator[Columns]:
        """Read the files of a checkpoint, a few thousand rows at once."""
        for each, name in self.checkpoints():
            if each == version:
                yield from actions_in(self.place, name, STATE)

    def _is_as_read(self) -> bool:
        """Return whether the file of the newest version is there, and is the one that was read."""
        return self._mark is not None and self._mark_of(self.head) == self._mark

    def _mark_of(self, version: int) -> _Mark | None:
        with suppress(FileNotFoundError):
            return _mark(os.stat(self.path(version)))
        return None

    def path(self, version: int) -> str:
        return f"{self.place}/{version:0{_DIGITS}}.json"

    def read(self, version: int) -> Actions | None:
        """Read one commit; None where it is not there."""
        try:
            with open(self.path(version), encoding="utf-8") as file:
                found, about = _actions(file), os.fstat(file.fileno())
                found.mark, found.at = _mark(about), about.st_mtime if found.at is None else found.at
        except FileNotFoundError:
            return None
        return found


def _mark(about: os.stat_result) -> _Mark:
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
            found.took_out |= bool(remove.get("dataChange", True))
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
                # A VACUUM that is cut off commits its end all the same (4.4.0).
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
    """Go through the actions of one kind; a struct of nothing but NULL is none."""
    return (each for each in column or () if each is not None and any(value is not None for value in each.values()))


def _data_file(add: Mapping[str, Any]) -> DataFile:
    stats = add.get("stats")
    rows = json.loads(stats).get("numRecords") if stats else None
    deleted = (add.get("deletionVector") or {}).get("cardinality") or 0
    at = float(add.get("modificationTime") or 0) / 1000
    left = None if rows is None else int(rows) - int(deleted)
    return DataFile(str(add["path"]), int(add.get("size") or 0), left, at, int(deleted))
