"""Measures table folders, and counts deleted files that a statement had read.

A table written by a query consists of the files that its log lists and that still exist. Any other table consists of
all data files in its folder.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from core.model.names import TableName
from core.model.table_formats import TableFormat, table_format
from core.ports.storage import FolderContents
from pipelines.storage.file_sources import TABLE_LOG_FOLDER, is_data, logged_file
from pipelines.storage.file_store import FolderEntry, FolderView, missing, store_of
from pipelines.storage.file_stream_logs import local_path, read_source_log, whole_table_log
from pipelines.storage.row_counting import DataFile, TableRows

COUNT_S = 2.0
"""Longest time, in seconds, that one call spends on reading one table's footers (0.1 ms each).

The next call continues where this call stopped.
"""

_SETTLED_S = 2.0
"""Seconds after a change within which a folder may change again without a new modification time."""


@dataclass(frozen=True, slots=True)
class _FolderScan:
    found: FolderContents
    folders: Mapping[str, int]
    """Modification time of each folder in the table, in nanoseconds."""
    at: float
    rows: TableRows


class TableFolders:
    """Measures the contents of table folders. Keeps only totals for each folder, never a list of files."""

    def __init__(self, *, count_s: float = COUNT_S) -> None:
        self._count_s = count_s
        self._looks: dict[str, _FolderScan] = {}
        self._lock = threading.Lock()

    def contents(self, folder: str, format: str) -> FolderContents | None:
        """Measure a table's files; None if the folder does not exist on this machine."""
        with self._lock:
            return self._contents(local_path(folder.rstrip("/")), table_format(format))

    def _contents(self, folder: str, format: TableFormat) -> FolderContents | None:
        before = self._looks.get(folder)
        if before is not None and before.rows.whole and _is_unchanged(before):
            return before.found
        at = time.time()
        folders: dict[str, int] = {}
        try:
            entries = (
                _logged(folder, folders)
                if store_of(folder).is_folder(f"{folder}/{TABLE_LOG_FOLDER}")
                else _listed(folder, folders)
            )
        except (FileNotFoundError, NotADirectoryError):
            self._looks.pop(folder, None)
            return None
        rows = (before.rows if before else TableRows()).counted(entries, format, self._count_s)
        found = FolderContents(
            files=len(entries),
            bytes=sum(entry[2] for entry in entries),
            rows=rows.rows,
            exact=rows.exact,
            earliest=min((entry[0] for entry in entries), default=None),
            newest=max((entry[0] for entry in entries), default=None),
        )
        self._looks[folder] = _FolderScan(found, folders, at, rows)
        return found


def rows_since(folder: str, format: str, moment: float, count_s: float = COUNT_S) -> int | None:
    """Count the rows in the files of a table's log that were written since `moment`, in epoch seconds.

    The result is None if not all of these files can be counted exactly within `count_s`.
    """
    entries = [entry for entry in _logged(local_path(folder.rstrip("/")), {}) if entry[0] >= moment]
    counted = TableRows().counted(entries, table_format(format), count_s)
    return counted.rows if counted.whole and counted.exact else None


def missing_files(
    checkpoint: str, consumed: Mapping[int, int], sources: tuple[tuple[int, TableName, str, str], ...]
) -> int:
    """Count the files consumed by a statement, up to its committed log positions, that have since been deleted.

    Raises FileNotFoundError if the log of a consumed source does not exist.
    """
    return sum(
        _gone_of(f"{checkpoint}/sources/{ordinal}", consumed[ordinal], local_path(folder.rstrip("/")))
        for ordinal, _, folder, _ in sources
        if consumed.get(ordinal, -1) >= 0
    )


def _gone_of(log: str, upto: int, folder: str) -> int:
    read = {local_path(str(entry["path"])) for entry in read_source_log(log, -1, upto)}
    if not read:
        raise FileNotFoundError(log)
    try:
        unlisted = read.difference(entry.path for entry in _walk(folder, {}))
    except (FileNotFoundError, NotADirectoryError):
        unlisted = read
    # Listing is fast but not conclusive, because a path may be written differently.
    return len(missing(unlisted))


def _logged(folder: str, folders: dict[str, int]) -> list[DataFile]:
    log = f"{folder}/{TABLE_LOG_FOLDER}"
    folders[log] = store_of(log).stat(log).st_mtime_ns
    # Read before the files are listed, so that all files that the log names have been written.
    files = list(map(logged_file, whole_table_log(log)))
    there = {entry.path for entry in _walk(folder, folders)}
    gone = missing(file.path for file in files if file.path not in there)
    return [(file.at, file.path, file.size) for file in files if file.path not in gone]


def _listed(folder: str, folders: dict[str, int]) -> list[DataFile]:
    entries: list[DataFile] = []
    for entry in _walk(folder, folders):
        try:
            about = entry.stat()
        except FileNotFoundError:
            continue
        entries.append((about.st_mtime, entry.path, about.st_size))
    return sorted(entries)


def _walk(folder: str, folders: dict[str, int], view: FolderView | None = None) -> list[FolderEntry]:
    """List data files recursively, and record each folder's modification time in nanoseconds in `folders`."""
    found: list[FolderEntry] = []
    view = view or store_of(folder).below(folder)
    folders[folder] = view.stat(folder).st_mtime_ns
    below: list[FolderEntry] = []
    for entry in view.entries(folder):
        if is_data(entry.name):
            (below if entry.is_dir() else found).append(entry)
    for each in below:
        try:
            found += _walk(each.path, folders, view)
        except FileNotFoundError:
            continue
    return found


def _is_unchanged(before: _FolderScan) -> bool:
    newest = max(before.folders.values()) / 1e9
    if before.at - newest < _SETTLED_S:
        return False
    try:
        return all(store_of(path).stat(path).st_mtime_ns == changed for path, changed in before.folders.items())
    except FileNotFoundError:
        return False
