"""Creates checkpoints that continue another version's checkpoint, or that mark source contents as read.

A checkpoint is built in a sibling folder, which is then renamed. Neither Spark nor Headgate changes an existing file in
place. If the file system supports hard links, two versions can therefore share files, and deleting one version leaves
the other complete.
"""

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from core.model.errors import Refused, TryAgain
from core.ports.storage import (
    FolderTaken,
    OriginRows,
    Seen,
    SeenFile,
    SeenLog,
    SeenMessages,
    StartPosition,
    VersionFolders,
)
from pipelines.storage.file_sources import TABLE_LOG_FOLDER, is_data
from pipelines.storage.file_store import LOCAL, FolderEntry, FolderView, store_of
from pipelines.storage.file_stream_logs import LogEntry, batch_files, local_path, newest_batch, whole_table_log
from pipelines.storage.file_system import read_json, write_json

MARK_FILE = "_headgate_fork"
"""File that marks a checkpoint created by this module. It records the run, the origin and the batch."""

TOPICS_FILE = "_headgate_topics"
"""File in a checkpoint with the ids of the Kafka topics that were read, by table. Copied checkpoints keep this file."""

Prepare = Callable[[str, Mapping[str, Any]], None]
"""Signature of `core.ports.storage.Checkpoints.prepare`."""

_NUMBERED = re.compile(r"(\d+)(?:[._]|$)")
_JAVA_KEEPS = "/!$&'()*+,;=:@~_-."
_HEADER = "v1\n"
_BEFORE_START = "\0"
"""First character of a file with the offsets at which a Kafka source starts (KafkaSourceInitialOffsetWriter, 4.2.0)."""


def fork(
    prepare: Prepare,
    origin: VersionFolders,
    copy: VersionFolders,
    note: Mapping[str, Any],
    rows: OriginRows,
    *,
    has_transaction_log: bool = False,
) -> StartPosition:
    """Create a checkpoint that continues another version; see `core.ports.storage.Checkpoints.fork`.

    If the table `has_transaction_log`, its rows and batch records are written by Spark, not by this function.
    """
    place = copy.checkpoint
    if (made := _existing_start(prepare, place, note)) is not None:
        return made
    batch = newest_batch(f"{origin.checkpoint}/commits")
    if rows is OriginRows.BEFORE and not has_transaction_log:
        store_of(copy.before).make_folders(copy.before)
    if batch is not None and not has_transaction_log:
        _fork_log(origin.table, copy.table, batch, rows_into=copy.table if rows is OriginRows.INSIDE else "")
        if rows is OriginRows.BEFORE:
            _fork_log(origin.table, copy.before, batch, rows_into=copy.before)

    def fill(building: str) -> None:
        if batch is not None:
            _copy_checkpoint(origin.checkpoint, building, batch)

    start = StartPosition(batch, str(uuid.uuid4()) if batch is not None else "")
    return _build_checkpoint(prepare, place, note, start, fill, origin=origin.checkpoint)


def create_checkpoint_after(
    prepare: Prepare,
    version: VersionFolders,
    seen: Sequence[Seen],
    note: Mapping[str, Any],
    *,
    batch: int | None = None,
    like: str = "",
    query: str = "",
    has_transaction_log: bool = False,
) -> StartPosition:
    """Create a checkpoint that marks source contents as read; see `Checkpoints.create_checkpoint_after`.

    The new checkpoint reuses `query`, the query id in the table's batch records; it is empty if the table has no
    records.
    """
    if batch is None and any(isinstance(files, SeenLog) for files in seen):
        raise Refused(
            "a table with a log cannot be marked as read before its first batch", remedy="choose another strategy"
        )
    place = version.checkpoint
    if (made := _existing_start(prepare, place, note)) is not None:
        return made
    conf = pinned(like)
    if batch is not None and not has_transaction_log and not _has_log(version.table):
        _write_log(version.table, {str(number): () for number in range(batch + 1)})

    def fill(building: str) -> None:
        _write_seen(building, seen, read=batch is not None)
        if batch is not None:
            _write_positions(building, batch, seen, conf)

    return _build_checkpoint(prepare, place, note, StartPosition(batch, query or str(uuid.uuid4())), fill, origin=like)


def seen_files(folder: str, upto: int | None = None) -> tuple[SeenFile, ...]:
    """Return the files of a source, in the form in which Spark records them.

    For a source with a log, return its files up to batch `upto`; for a source without a log, all files in the folder.
    Raises Refused if the log has merged that batch with later ones, or if the folder is not on this machine.
    """
    folder = local_path(folder)
    if "://" in folder and store_of(folder) is LOCAL:
        raise Refused(f"{folder} cannot be listed from this machine", remedy="start at the earliest row")
    if _has_log(folder):
        return tuple(
            SeenFile(str(entry["path"]), int(entry.get("modificationTime", 0)))
            for entry in _logged(f"{folder}/{TABLE_LOG_FOLDER}", upto)
        )
    return tuple(
        SeenFile(uri(entry.path), entry.stat().st_mtime_ns // 1_000_000)
        for entry in sorted(_below(folder), key=lambda entry: entry.path)
    )


def uri(path: str) -> str:
    """Encode a path as a URI as Hadoop does, which escapes neither non-ASCII nor URI-safe characters."""
    root = "" if "://" in path else "file://"
    return root + "".join(c if ord(c) > 127 else quote(c, safe=_JAVA_KEEPS) for c in path)


def pinned(checkpoint: str) -> Mapping[str, str]:
    """Return the Spark settings pinned in a checkpoint, from its latest batch; empty before its first batch."""
    newest = newest_batch(f"{checkpoint}/offsets") if checkpoint else None
    if newest is None:
        return {}
    lines = store_of(checkpoint).read(f"{checkpoint}/offsets/{newest}").decode().split("\n")
    found = json.loads(lines[1]).get("conf", {}) if len(lines) > 1 else {}
    return {str(key): str(value) for key, value in found.items()}


def _existing_start(prepare: Prepare, place: str, note: Mapping[str, Any]) -> StartPosition | None:
    """Return the start position if this run has already created the checkpoint; None if the folder is unused.

    Raises FolderTaken if a query was already started on the checkpoint.
    """
    prepare(place, note)
    mark = read_json(f"{place}/{MARK_FILE}")
    if mark:
        return StartPosition(mark.get("batch"), str(mark.get("id", "")))
    if any(store_of(place).exists(f"{place}/{name}") for name in ("metadata", "offsets", "commits")):
        raise FolderTaken(f"{place} was started before its positions were prepared")
    return None


def _build_checkpoint(
    prepare: Prepare,
    place: str,
    note: Mapping[str, Any],
    start: StartPosition,
    fill: Callable[[str], None],
    *,
    origin: str,
) -> StartPosition:
    files, (above, name) = store_of(place), os.path.split(place)
    building, empty = f"{above}/.{name}.fork", f"{above}/.{name}.empty"
    for left in (building, empty):
        files.remove_tree(left)
    prepare(building, note)
    fill(building)
    if start.id:
        files.write(f"{building}/metadata", _line({"id": start.id}).encode())
    mark = {"run": note.get("run", ""), "origin": origin, "batch": start.batch, "id": start.id}
    write_json(f"{building}/{MARK_FILE}", mark)
    files.rename(place, empty)
    files.rename(building, place)
    files.remove_tree(empty)
    return start


def _copy_checkpoint(origin: str, building: str, batch: int) -> None:
    """Copy a checkpoint up to and including `batch`, even while its query runs.

    Raises TryAgain if the copy is incomplete.
    """
    for log in ("offsets", "commits"):
        _copy_tree(f"{origin}/{log}", f"{building}/{log}", upto=batch)
    # Source files that were recorded after `batch` are read by the copy's next batch.
    _copy_tree(f"{origin}/sources", f"{building}/sources")
    _copy_tree(f"{origin}/state", f"{building}/state", upto=batch + 1)
    files = store_of(origin)
    if files.exists(f"{origin}/{TOPICS_FILE}"):
        _share(f"{origin}/{TOPICS_FILE}", f"{building}/{TOPICS_FILE}", needed=True)
    needed = {batch, max(0, batch - 1)}
    whole = needed <= set(_batch_files(f"{building}/offsets")) and batch in _batch_files(f"{building}/commits")
    if not whole or not files.exists(f"{origin}/commits/{batch}") or _lacks_state(f"{building}/state", batch + 1):
        raise TryAgain(f"batch {batch} of {origin} could not be copied completely", remedy="try again")


def _copy_tree(origin: str, copy: str, *, upto: int | None = None) -> None:
    """Copy a folder recursively, without files whose batch number exceeds `upto`.

    Files that disappear during the copy are omitted, because Spark deletes only outdated files.
    """
    files = store_of(origin)
    for folder, _, names in files.walk(origin):
        target = copy + folder.removeprefix(origin)
        files.make_folders(target)
        for name in names:
            number = _NUMBERED.match(name)
            if name.startswith(".") or (upto is not None and number is not None and int(number[1]) > upto):
                continue
            _share(f"{folder}/{name}", f"{target}/{name}", needed=False)


def _lacks_state(state: str, version: int) -> bool:
    for _, below, names in store_of(state).walk(state):
        below[:] = [name for name in below if not name.startswith("_")]
        numbers = {int(found[1]) for found in map(_NUMBERED.match, names) if found}
        if numbers and version not in numbers:
            return True
    return False


def _fork_log(origin: str, table: str, batch: int, *, rows_into: str) -> None:
    """Copy a table's batch records up to `batch` to another table, and the files that they list to `rows_into`.

    If `rows_into` is empty, no file is copied, and the new records list none.
    """
    log = f"{origin}/{TABLE_LOG_FOLDER}"
    names = {number: name for number, name in sorted(_batch_files(log).items()) if number <= batch}
    first = max((number for number, name in names.items() if name.endswith(".compact")), default=0)
    if any(number not in names for number in range(first, batch + 1)):
        raise TryAgain(f"the record of batches in {origin} does not reach batch {batch}", remedy="try again")
    entries: dict[str, Iterable[LogEntry]] = {}
    for number, name in names.items():
        if number >= first:
            entries[name] = _moved(f"{log}/{name}", origin, rows_into) if rows_into else ()
    _write_log(table, entries)


def _moved(path: str, origin: str, table: str) -> Iterator[LogEntry]:
    made: set[str] = set()
    with store_of(path).open(path) as lines:
        next(lines, None)
        for line in filter(None, map(bytes.strip, lines)):
            entry = json.loads(line)
            found = local_path(str(entry["path"]))
            if not found.startswith(f"{origin}/"):
                raise Refused(f"{found} is not below {origin}", remedy="rebuild the table from its sources")
            own = table + found.removeprefix(origin)
            if entry.get("action", "add") == "add":
                if (above := os.path.dirname(own)) not in made:
                    store_of(above).make_folders(above)
                    made.add(above)
                _share(found, own, needed=True)
            yield {**entry, "path": uri(own)}


def _write_log(table: str, entries: Mapping[str, Iterable[LogEntry]]) -> None:
    files, building, log = store_of(table), f"{table}/.{TABLE_LOG_FOLDER}.fork", f"{table}/{TABLE_LOG_FOLDER}"
    files.remove_tree(building)
    files.make_folders(building)
    for name, found in entries.items():
        files.write(f"{building}/{name}", "\n".join(("v1", *map(_line, found))).encode())
    files.remove_tree(log)
    files.rename(building, log)


def _write_seen(building: str, seen: Sequence[Seen], *, read: bool) -> None:
    """Write a log for each file source, so that Spark treats the source's files as seen, and a start offset for topics.

    With `read`, the log assigns the files to batch 0, which counts as having read them; without `read`, it assigns them
    to no batch. Spark treats all entries of such a log as seen, and a batch reads only the entries with its own number.
    """
    store = store_of(building)
    for ordinal, files in enumerate(seen):
        if not files or isinstance(files, SeenLog):
            continue
        log = f"{building}/sources/{ordinal}"
        store.make_folders(log)
        if isinstance(files, SeenMessages):
            store.write(f"{log}/0", f"{_BEFORE_START}{_HEADER}{files.offset}".encode())
            continue
        lines = (_line({"path": file.path, "timestamp": file.modified_ms, "batchId": 0}) for file in files)
        content = (_HEADER + "\n".join(lines)).encode()
        store.write(f"{log}/0", content if read else b"v1")
        if not read:
            store.write(f"{log}/1", content)


def _write_positions(building: str, batch: int, seen: Sequence[Seen], conf: Mapping[str, str]) -> None:
    offsets = [
        files.offset if isinstance(files, SeenLog | SeenMessages) else _line({"logOffset": 0}) if files else "-"
        for files in seen
    ]
    now = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": dict(conf)}
    store = store_of(building)
    for name in ("offsets", "commits"):
        store.make_folders(f"{building}/{name}")
    # At a start, Spark also reads the batch before the latest.
    for number in range(max(0, batch - 1), batch + 1):
        store.write(f"{building}/offsets/{number}", (_HEADER + "\n".join((_line(now), *offsets))).encode())
        store.write(f"{building}/commits/{number}", (_HEADER + _line({"nextBatchWatermarkMs": 0})).encode())


def _logged(log: str, upto: int | None) -> Iterator[LogEntry]:
    if upto is None:
        found: Iterable[LogEntry] = whole_table_log(log)
    else:
        names = _batch_files(log)
        compact = max((n for n, name in names.items() if n <= upto and name.endswith(".compact")), default=0)
        if any(number not in names for number in range(compact, upto + 1)):
            raise Refused(
                f"{log} no longer distinguishes batch {upto} from later ones", remedy="choose another strategy"
            )
        found = _up_to(log, names, compact, upto)
    return (entry for entry in found if entry.get("action", "add") == "add")


def _up_to(log: str, names: Mapping[int, str], first: int, last: int) -> Iterator[LogEntry]:
    for number in range(first, last + 1):
        with store_of(log).open(f"{log}/{names[number]}") as lines:
            next(lines, None)
            yield from (json.loads(line) for line in lines if line.strip())


def _has_log(table: str) -> bool:
    return store_of(table).is_folder(f"{table}/{TABLE_LOG_FOLDER}")


def _below(folder: str, view: FolderView | None = None) -> Iterator[FolderEntry]:
    with suppress(FileNotFoundError, NotADirectoryError):
        view = view or store_of(folder).below(folder)
        for entry in view.entries(folder):
            if is_data(entry.name) and not entry.is_dir():
                yield entry
            elif is_data(entry.name) and not store_of(folder).is_link(entry.path):
                yield from _below(entry.path, view)


def _batch_files(folder: str) -> dict[int, str]:
    try:
        return batch_files(folder)
    except FileNotFoundError:
        return {}


def _share(origin: str, copy: str, *, needed: bool) -> None:
    try:
        store_of(origin).link_or_copy(origin, copy)
    except FileNotFoundError:
        if needed:
            raise Refused(
                f"{origin} is missing, but its table refers to it", remedy="rebuild it from its sources"
            ) from None


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
