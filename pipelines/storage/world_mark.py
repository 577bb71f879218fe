"""The mark in a data folder: which ledger, home and machine it belongs to, and how far that ledger had counted.

The ledger counts first, the mark after it: of two that were never copied the mark is equal or one behind.
"""

import hashlib
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from core.model.errors import TryAgain
from pipelines.storage.file_sources import TABLE_NOTE_FILE
from pipelines.storage.json_files import reachable, read_json, write_json

MARK_FILE = "_headgate_world"


@dataclass(frozen=True, slots=True)
class WorldMark:
    """What the mark says, or what it should say."""

    ledger: str
    epoch: int
    machine: str
    """Its id, not its host name, which a container changes; empty where it has none."""
    home: str
    count: int


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A table's folder with our note, whoever has made it."""

    table: str
    version: int
    run: str
    path: str


def machine_id() -> str:
    """Return an id that this machine keeps over boots and renaming; empty where it has none.

    Hashed: machine-id(5) asks that the id itself is not shown.
    """
    for place in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            if found := Path(place).read_text("ascii").strip():
                return hashlib.sha256(f"headgate {found}".encode()).hexdigest()[:12]
        except (OSError, ValueError):
            continue
    return ""


def read_mark(data: str) -> WorldMark | None:
    """Read the mark of a data folder, None where it has none; raises TryAgain where nobody can say."""
    path = f"{data}/{MARK_FILE}"
    with reachable(data):
        try:
            found = read_json(path)
            mark = WorldMark(**found) if found else None
            # An earlier release has written the home as it was spelled.
            return replace(mark, home=os.path.realpath(mark.home)) if mark and mark.home else mark
        except (ValueError, TypeError) as error:
            raise TryAgain(f"{path} cannot be read: {error}", remedy="restore it") from error


def write_mark(data: str, mark: WorldMark) -> None:
    """Write the mark, and the folder where there is none yet."""
    with reachable(data):
        Path(data).mkdir(parents=True, exist_ok=True)
        write_json(Path(data, MARK_FILE), asdict(mark))


def table_folders(data: str) -> tuple[TableFolder, ...]:
    """List the tables' folders of a data folder that carry our note, by table and version."""
    found = []
    tables = Path(data, "tables")
    with reachable(data):
        for folder in tables.iterdir() if tables.is_dir() else ():
            try:
                note = read_json(str(folder / TABLE_NOTE_FILE))
                found.append(TableFolder(note["table"], int(note["version"]), note.get("run", ""), str(folder)))
            except (ValueError, KeyError, TypeError):
                continue
    return tuple(sorted(found, key=lambda folder: (folder.table, folder.version)))
