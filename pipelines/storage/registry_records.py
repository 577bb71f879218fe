"""The registry's records in a data folder: a file for each version that the ledger knows, what serves, and the session.

A ledger that is lost, or that is an older copy, is rebuilt from them. Each counts on when it is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.model.errors import TryAgain
from pipelines.storage.json_files import reachable, read_json, write_json

RECORDS_FOLDER = "_headgate_registry"
SERVING_FILE = "_serving"
SESSION_FILE = "_session"
_ENDING = ".json"


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """One record: who has written it, how often, and what it says."""

    ledger: str
    count: int
    row: Mapping[str, Any]
    """A version's durable fields; of what serves, table → version; of the pool's session, its id."""
    withheld: str = ""
    """Why its texts are left out; empty where they are there."""
    run: str = ""
    """The run that has moved the pointers, for as long as the ledger may not know it yet."""


def read_record(data: str, name: str) -> RegistryRecord | None:
    """Read one record, None where there is none; raises TryAgain where it cannot be read."""
    path = _path(data, name)
    with reachable(data):
        try:
            found = read_json(str(path))
            return RegistryRecord(**found) if found else None
        except (ValueError, TypeError) as error:
            raise TryAgain(f"{path} cannot be read: {error}", remedy="restore it, or move it away") from error


def write_record(data: str, name: str, record: RegistryRecord) -> None:
    """Write one record, whole or not at all."""
    path = _path(data, name)
    with reachable(data):
        path.parent.mkdir(parents=True, exist_ok=True)
        what = {"ledger": record.ledger, "count": record.count, "row": record.row}
        said = {"withheld": record.withheld, "run": record.run}
        write_json(path, what | {key: value for key, value in said.items() if value})


def remove_record(data: str, name: str) -> None:
    """Remove one record; nothing when it is gone already."""
    with reachable(data):
        _path(data, name).unlink(missing_ok=True)


def record_names(data: str) -> tuple[str, ...]:
    """List the names of the versions that have a record."""
    folder = Path(data, RECORDS_FOLDER)
    with reachable(data):
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    found = (name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING) and not name.startswith("."))
    return tuple(sorted(name for name in found if name not in (SERVING_FILE, SESSION_FILE)))


def _path(data: str, name: str) -> Path:
    return Path(data, RECORDS_FOLDER, name + _ENDING)
