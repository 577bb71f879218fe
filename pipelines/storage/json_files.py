"""Small JSON files beside tables and checkpoints: read as objects, written whole or not at all."""

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.model.errors import TryAgain


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON object; empty when there is no such file, ValueError when it holds something else."""
    try:
        text = Path(path).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write whole or not at all, so that it survives a power cut."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        # On a full disk each try would leave one.
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make what was renamed in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def reachable(folder: str) -> Iterator[None]:
    """Raise what the file system refuses as TryAgain: a stop, a start or a figure may work a moment later."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = f"the disk under {folder} is full: {error.strerror}"
            raise TryAgain(full, remedy="free space there") from error
        summary = f"{folder} cannot be reached: {error.strerror or error}"
        raise TryAgain(summary, remedy="mount it, or check its permissions") from error
