"""Records of ephemeral environments on disk. A record is complete or missing, and locked while somebody uses it."""

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from core.ipc.environment_paths import ephemeral_root
from core.model.errors import HeadgateError
from core.project.ephemeral import LOCK_FILE, PREFIX, RECORD_FILE, EphemeralRecord, record_from_text


def abandoned(environ: Mapping[str, str]) -> tuple[EphemeralRecord, ...]:
    """Return the ephemeral environments that no process uses any more, oldest first."""
    found = []
    for folder in _folders(environ):
        if _is_used(folder):
            continue
        if (record := _record_in(folder)) is not None:
            found.append(record)
    return tuple(sorted(found, key=lambda record: record.created_at))


def write_record(folder: Path, record: EphemeralRecord) -> None:
    """Write or replace the record in a folder at once, readable for this user only."""
    beside = folder / f".{RECORD_FILE}"
    write_secret(beside, record.as_text())
    os.replace(beside, folder / RECORD_FILE)


def write_secret(path: Path, text: str) -> None:
    """Write a file that only this user may read, and wait until it is on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _record_in(folder: Path) -> EphemeralRecord | None:
    """Return the record in a folder; None if the folder was not made here, and belongs to somebody else."""
    try:
        record = record_from_text((folder / RECORD_FILE).read_text("utf-8"))
        return record if record.name == folder.name else None
    except (OSError, ValueError, HeadgateError):
        # Nothing but the folder and its lock exists before the record is complete.
        with suppress(OSError):
            names = set(os.listdir(folder))
            if {LOCK_FILE} <= names <= {LOCK_FILE, RECORD_FILE, f".{RECORD_FILE}"}:
                return EphemeralRecord(name=folder.name)
    return None


def _folders(environ: Mapping[str, str]) -> list[Path]:
    with suppress(OSError):
        return sorted(each for each in Path(ephemeral_root(environ)).iterdir() if each.name.startswith(PREFIX))
    return []


def _is_used(folder: Path) -> bool:
    try:
        with open(folder / LOCK_FILE, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
