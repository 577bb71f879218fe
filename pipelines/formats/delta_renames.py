"""Columns of a Delta table that were renamed or dropped: no stream of it goes on over that (4.4.0).

A field has a physical name in the files, which a rename leaves as it is; without one that is its own name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.formats.delta_checkpoints import actions_in
from pipelines.formats.delta_log import Commit, DeltaLog

_PHYSICAL = "delta.columnMapping.physicalName"
_Place = tuple[str, ...]
"""Physical names from the outermost field inwards."""


def lost_column(log: DeltaLog, waits: Sequence[Commit]) -> tuple[int, str] | None:
    """Return the first of some commits that renamed or dropped a column, with what it did; None where none has."""
    changed = [commit for commit in waits if commit.schema]
    before = _schema_at(log, changed[0].version - 1) if changed else ""
    for commit in changed:
        if before and (what := _lost(before, commit.schema)):
            return commit.version, what
        before = commit.schema
    return None


def _lost(before: str, after: str) -> str:
    """Describe the first column of a schema that another one has no more under its name; empty where it has all."""
    new = dict(_fields(json.loads(after)))
    for place, name in _fields(json.loads(before)):
        if place not in new:
            return f"column {name} was dropped"
        if new[place] != name:
            return f"column {name} was renamed to {new[place]}"
    return ""


def _fields(kind: Any, above: _Place = (), names: str = "") -> Iterator[tuple[_Place, str]]:
    """Go through all fields of a type by place, each with its name as people write it."""
    if not isinstance(kind, Mapping):
        return
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(part), (*above, part), names)
    for field in kind.get("fields", ()):
        place = (*above, str((field.get("metadata") or {}).get(_PHYSICAL, field["name"])))
        name = f"{names}.{field['name']}" if names else str(field["name"])
        yield place, name
        yield from _fields(field["type"], place, name)


def _schema_at(log: DeltaLog, version: int) -> str:
    """Return the schema of a version as JSON; empty where the log does not say it any more."""
    whole = [(each, name) for each, name in log.checkpoints() if each <= version]
    begin = max((each for each, _ in whole), default=-1)
    for each in range(version, begin, -1):
        actions = log.read(each)
        if actions is not None and actions.schema:
            return actions.schema
    for name in (name for each, name in whole if each == begin):
        for found in actions_in(log.place, name, ("metaData.schemaString",)):
            for row in found.get("metaData", ()):
                if row is not None and row["schemaString"]:
                    return str(row["schemaString"])
    return ""
