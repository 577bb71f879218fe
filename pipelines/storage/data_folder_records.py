"""Records in a data folder: a mark that identifies the folder's owner, and a registry from which a ledger is rebuilt.

The mark records the ledger, the home, the machine, and a counter that the ledger also keeps. The counter is incremented
first in the ledger and then in the mark. The mark's counter is therefore equal to the ledger's counter or lower by one,
unless the ledger or the mark is an older copy.

The registry has a file for each version in the ledger, a file for the serving versions, and a file for the session.
Each file records how many times it has been written.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core.model.errors import TryAgain
from pipelines.storage.file_sources import TABLE_NOTE_FILE
from pipelines.storage.file_store import store_of
from pipelines.storage.file_system import reachable, read_json, write_json

MARK_FILE = "_headgate_world"


@dataclass(frozen=True, slots=True)
class EnvironmentMark:
    """A data folder's mark, which records the ledger that owns the folder and the machine of that ledger."""

    ledger: str
    epoch: int
    machine: str
    """Id of the machine, because host names change in containers; empty if the machine has no id."""
    home: str
    count: int


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A table folder that contains a Headgate note, whichever ledger created the folder."""

    table: str
    version: int
    run: str
    path: str


def machine_id() -> str:
    """Return an id of this machine that survives reboots and renames; empty if the machine has no id.

    The id is a hash, because machine-id(5) asks not to expose the original.
    """
    for place in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            if found := Path(place).read_text("ascii").strip():
                return hashlib.sha256(f"headgate {found}".encode()).hexdigest()[:12]
        except (OSError, ValueError):
            continue
    return ""


def read_mark(data: str) -> EnvironmentMark | None:
    """Return the mark of a data folder; None if it has no mark. Raises TryAgain if the mark cannot be read."""
    path = f"{data}/{MARK_FILE}"
    with reachable(data):
        try:
            found = read_json(path)
            mark = EnvironmentMark(**found) if found else None
            # If a home was moved and its old path is a link, both paths mean the same home.
            return replace(mark, home=os.path.realpath(mark.home)) if mark and mark.home else mark
        except (ValueError, TypeError) as error:
            raise TryAgain(f"{path} cannot be read: {error}", remedy="restore it") from error


def write_mark(data: str, mark: EnvironmentMark) -> None:
    """Write a data folder's mark, creating the folder if it is missing."""
    with reachable(data):
        store_of(data).make_folders(data)
        write_json(f"{data}/{MARK_FILE}", asdict(mark))


def table_folders(data: str) -> tuple[TableFolder, ...]:
    """List the table folders in a data folder that have a Headgate note, sorted by table and version."""
    found = []
    with reachable(data):
        for folder in _paths_in(f"{data}/tables"):
            try:
                note = read_json(f"{folder}/{TABLE_NOTE_FILE}")
                found.append(TableFolder(note["table"], int(note["version"]), note.get("run", ""), folder))
            except (ValueError, KeyError, TypeError):
                continue
    return tuple(sorted(found, key=lambda folder: (folder.table, folder.version)))


RECORDS_FOLDER = "_headgate_registry"
SERVING_FILE = "_serving"
SESSION_FILE = "_session"
"""Record of the session of an environment's one pool; with the name of a pool after a dot, of one among several."""
_ENDING = ".json"


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """A record of the registry: its contents, the ledger that wrote it, and how many times it was written."""

    ledger: str
    count: int
    row: Mapping[str, Any]
    """The durable fields of a version, the serving version of each table, or the id of the pool's session."""
    withheld: str = ""
    """Why the version's SQL and other texts are omitted; empty if they are included."""
    run: str = ""
    """The run that moved the pointers, recorded because the ledger may not know it yet."""


def read_record(data: str, name: str) -> RegistryRecord | None:
    """Read a record of the registry; None if it does not exist. Raises TryAgain if it cannot be read."""
    path = _path(data, name)
    with reachable(data):
        try:
            found = read_json(path)
            return RegistryRecord(**found) if found else None
        except (ValueError, TypeError) as error:
            raise TryAgain(f"{path} cannot be read: {error}", remedy="restore it, or move it away") from error


def write_record(data: str, name: str, record: RegistryRecord) -> None:
    """Write a record of the registry atomically."""
    path = _path(data, name)
    with reachable(data):
        store_of(data).make_folders(f"{data}/{RECORDS_FOLDER}")
        what = {"ledger": record.ledger, "count": record.count, "row": record.row}
        said = {"withheld": record.withheld, "run": record.run}
        write_json(path, what | {key: value for key, value in said.items() if value})


def remove_record(data: str, name: str) -> None:
    """Remove a record of the registry, if it exists."""
    with reachable(data), suppress(FileNotFoundError):
        store_of(data).unlink(_path(data, name))


def record_names(data: str) -> tuple[str, ...]:
    """List the names of the versions recorded in the registry, sorted."""
    with reachable(data):
        names = [path.rpartition("/")[2] for path in _paths_in(f"{data}/{RECORDS_FOLDER}")]
    found = (name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING) and not name.startswith("."))
    return tuple(sorted(name for name in found if name != SERVING_FILE and name.partition(".")[0] != SESSION_FILE))


def _path(data: str, name: str) -> str:
    return f"{data}/{RECORDS_FOLDER}/{name}{_ENDING}"


def _paths_in(folder: str) -> list[str]:
    files = store_of(folder)
    return [entry.path for entry in files.entries(folder)] if files.is_folder(folder) else []
