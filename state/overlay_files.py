"""The files of overlays in the homes of a project's environments; no ledger is opened."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from core.model.errors import HeadgateError, Refused
from core.model.names import TableName
from core.project.overlay import OVERLAY_FILE, Overlay, overlay_from_text


def read_overlay(home: str) -> Overlay | None:
    """Read the file of an overlay from its home; None if there is none, as in other environments.

    Raises HeadgateError if the file is damaged or cannot be read.
    """
    path = os.path.join(home, OVERLAY_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return overlay_from_text(file.read())
    except (FileNotFoundError, PermissionError):
        return None
    except (OSError, ValueError) as error:
        raise HeadgateError(f"{path} cannot be read: {error}", remedy="headgate up --from writes it again") from error


def overlays_beside(home: str) -> tuple[str, ...]:
    """Return the names of the overlays among the environments of a project, sorted; `home` is that of any of them."""
    try:
        with os.scandir(os.path.dirname(home)) as entries:
            return tuple(sorted(each.name for each in entries if os.path.isfile(os.path.join(each.path, OVERLAY_FILE))))
    except OSError:
        return ()


def versions_read_by_overlays(home: str) -> Mapping[TableName, tuple[tuple[str, int], ...]]:
    """Return the overlays that read versions of the environment with this home, by table, as (overlay, version).

    An overlay whose file cannot be read is left out.
    """
    found: dict[TableName, list[tuple[str, int]]] = {}
    for name in overlays_beside(home):
        with suppress(HeadgateError):
            overlay = read_overlay(str(Path(home).parent / name))
            if overlay is not None and overlay.base_home == home:
                for table, version in overlay.inherited.items():
                    found.setdefault(table, []).append((name, version))
    return {table: tuple(readers) for table, readers in found.items()}


def overlays_reading(home: str, table: TableName, version: int) -> tuple[str, ...]:
    """Return the overlays that read a version of the environment with this home, sorted.

    Raises Refused if the file of any overlay beside it cannot be read.
    """
    found = []
    for name in overlays_beside(home):
        try:
            overlay = read_overlay(str(Path(home).parent / name))
        except HeadgateError as error:
            raise unknown_reads(name, error) from error
        if overlay is not None and overlay.base_home == home and overlay.inherited.get(table) == version:
            found.append(name)
    return tuple(found)


def unknown_reads(overlay: str, error: HeadgateError) -> Refused:
    """Return the error for an overlay whose file or ledger cannot be read."""
    return Refused(
        f"what the overlay {overlay} reads cannot be determined: {error.summary}",
        remedy=f"repair it, or delete it: headgate down --env {overlay} --purge",
    )
