"""Plans whose files were edited since they were made: the client's to notice, because an agent reads no project."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from core.model.names import TableName
from tui.project_folder.declaring_files import read_text
from tui.project_folder.environment_selection import SelectedEnvironment
from tui.project_folder.manifest_head import PROJECT_FILE
from tui.services.plan_submission import request_of_row

if TYPE_CHECKING:
    from state.row_types import PlanRow


def with_edits(row: "PlanRow", place: SelectedEnvironment) -> "PlanRow":
    """Return an open plan as superseded where a file of its tables says otherwise now than when it was made.

    Only in the folder that it was made in: another checkout has other files, and they prove nothing.
    """
    folder = row.folder
    if row.status != "open" or folder != place.folder or not os.path.isfile(os.path.join(folder, PROJECT_FILE)):
        return row
    request, acts = request_of_row(row)
    if request is None or request.verb == "delete":
        return row
    texts: Mapping[str, str] = json.loads(row.texts)
    for table in dict.fromkeys((*acts, *request.tables)):
        for path in _declaring(TableName(table), texts):
            now, at = _now(folder, path)
            if now != texts.get(path):
                return replace(row, status="superseded", superseded_by=f"an edit of {path}", superseded_at=at)
    return row


def _declaring(table: TableName, texts: Mapping[str, str]) -> Iterator[str]:
    """List the files that say what a table is, also a yml that there was not: DDL, statement, settings."""
    ddl = next((path for path in texts if path.endswith(f"/sql-scripts/ddl.{table}.sql")), "")
    if not ddl:
        return
    scripts = os.path.dirname(ddl)
    folder = os.path.dirname(scripts)
    own = f"{scripts}/dml.{table}.sql"
    yield ddl
    yield from [own] if own in texts else _statements(scripts, texts)
    settings = f"{folder}/{table}.yml"
    yield settings
    if settings not in texts:
        yield f"{folder}/{os.path.basename(folder)}.yml"


def _statements(scripts: str, texts: Iterable[str]) -> list[str]:
    """List the statement files of a unit; one of them may write several tables."""
    return [path for path in texts if path.startswith(f"{scripts}/dml.")]


def _now(folder: str, path: str) -> tuple[str | None, float | None]:
    """Return what a file says and when it was written; None where it is not there, empty where it cannot be read."""
    place = os.path.join(folder, path)
    try:
        return read_text(place), os.stat(place).st_mtime
    except FileNotFoundError:
        return None, None
    except (OSError, UnicodeDecodeError):
        return "", None
