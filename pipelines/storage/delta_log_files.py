"""Finds and reads the commits and checkpoints in a Delta table's log folder.

A checkpoint contains the state of the table at its version, with one row or line per action. It consists of one Parquet
file, of several, or (policy v2) of a Parquet or JSON file that refers to other files (`_sidecars`), which list the
table's data files (Delta 4.4.0). A table that requires an unknown feature is not read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from core.model.file_stores import scheme_of
from core.model.names import whole_number
from core.text.sentence import Sentence
from pipelines.storage.file_store import store_of
from pipelines.storage.file_stream_logs import local_path

_CHECKPOINT, _SIDECARS = ".checkpoint.", "_sidecars"
_V2_WORDS, _PART_WORDS = 4, 5
"""Number of dot-separated parts of `N.checkpoint.<id>.<format>` and of `N.checkpoint.<part>.<parts>.parquet`."""

STATE = (
    "add.path", "add.size", "add.modificationTime", "add.stats", "add.deletionVector.cardinality",
    "txn.appId", "txn.version", "metaData.id", "metaData.configuration", "metaData.schemaString",
    "protocol.minReaderVersion", "protocol.readerFeatures", "protocol.writerFeatures",
)  # fmt: skip
"""Checkpoint columns that describe the state of a table."""

Columns = Mapping[str, list[Any]]
"""Values by kind of action. A row of another kind has the value None."""


def checkpoints_among(names: Iterable[str]) -> list[tuple[int, str]]:
    """Return the files of complete checkpoints in a log as (version, file name), for one checkpoint per version.

    A checkpoint in several parts has one entry per part. It is complete once all parts exist.
    """
    found: dict[int, list[str]] = {}
    for name in names:
        version = whole_number(name.partition(".")[0])
        if _CHECKPOINT in name and version is not None and name.endswith((".parquet", ".json")):
            found.setdefault(version, []).append(name)
    return [(version, name) for version, names in found.items() for name in _whole(sorted(names))]


def actions_in(place: str, name: str, columns: Sequence[str]) -> Iterator[Columns]:
    """Yield the actions of a checkpoint file and its sidecar files, a few thousand at a time.

    `columns` are the Parquet columns to read, such as `add.path`.
    """
    named: list[str] = []
    for found in _actions_of(f"{place}/{name}", (*columns, "sidecar.path")):
        named += [str(each["path"]) for each in found.get("sidecar", ()) if each is not None and each["path"]]
        yield found
    for each in named:
        inside = not (each.startswith("/") or scheme_of(each))
        yield from _actions_of(f"{place}/{_SIDECARS}/{each}" if inside else local_path(each), columns)


def _actions_of(path: str, columns: Sequence[str]) -> Iterator[Columns]:
    if path.endswith(".json"):
        kinds = {column.partition(".")[0] for column in columns}
        lines = [json.loads(line) for line in store_of(path).read(path).splitlines() if line.strip()]
        yield {kind: [line.get(kind) for line in lines] for kind in kinds}
        return
    # Imported here, because an agent answers 0.2 s earlier after its start without this import.
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(store_of(path).for_arrow(path)) as file:
        for batch in file.iter_batches(columns=list(columns)):
            yield {column: batch.column(column).to_pylist() for column in batch.schema.names}


def _whole(names: Sequence[str]) -> Sequence[str]:
    """Choose the files of one complete checkpoint from a version's checkpoint files; empty if none is complete.

    A single file is preferred, then a file with sidecars, then a checkpoint in parts, because parts may be missing.
    """
    by_words: dict[int, list[str]] = {}
    for name in names:
        by_words.setdefault(name.count(".") + 1, []).append(name)
    parts = by_words.pop(_PART_WORDS, [])
    for words in sorted(by_words):
        if words <= _V2_WORDS:
            return by_words[words][:1]
    return parts if parts and len(parts) == int(parts[0].split(".")[3]) else ()


_COMMIT = ".json"


def commits_in(place: str) -> list[int]:
    """Return the versions that have a commit file. Checkpoints and compacted commits have longer names."""
    found = (entry.name for entry in store_of(place).entries(place))
    names = (whole_number(name.removesuffix(_COMMIT)) for name in found if name.endswith(_COMMIT))
    return [version for version in names if version is not None]


_NEWEST_READER = 3
_KNOWN = frozenset(
    {
        "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
        "vacuumProtocolCheck", "variantType", "variantType-preview", "variantShredding", "variantShredding-preview",
    }
)  # fmt: skip
"""Reader features that Headgate supports, or that do not affect how versions, files and rows are read."""
_ELSEWHERE = ("catalogManaged", "catalogOwned", "coordinatedCommits")
"""Prefixes of features that allow the latest commits to be stored outside the log."""


def why_unreadable(protocol: Mapping[str, Any]) -> Sentence | None:
    """Return which unsupported version or feature makes a table unreadable; None if Headgate can read the table."""
    reader = int(protocol.get("minReaderVersion") or 1)
    if reader > _NEWEST_READER:
        return Sentence(f"it requires readers of version {reader}")
    readers, writers = (set(protocol.get(name) or ()) for name in ("readerFeatures", "writerFeatures"))
    unknown = sorted(readers - _KNOWN) or sorted(each for each in writers if each.startswith(_ELSEWHERE))
    return Sentence(f"it requires {', '.join(unknown)}, which Headgate does not support") if unknown else None
