"""Reads schemas in a Delta table's log: column types as shown by DESCRIBE, and columns renamed or dropped.

In Delta 4.4.0, a stream continues past a renamed or dropped column only with schema tracking. In the data files, a
field may have a separate physical name, which a rename does not change; by default, it equals the field's name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.storage.delta_log import Commit, DeltaLog
from pipelines.storage.delta_log_files import actions_in

_WORDS = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Types with different names in JSON and SQL (Spark 4.2.0)."""
_SAME = frozenset(
    {"string", "binary", "boolean", "float", "double", "date", "timestamp", "timestamp_ntz", "variant", "void"}
)
_AS_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata key for the type of a field with CHAR or VARCHAR, which the JSON schema stores as string (Spark 4.2.0)."""
_COLLATIONS = "__COLLATIONS"
"""Metadata key for a field's collation, which its type does not show (Spark 4.2.0)."""


def columns_of(schema: str) -> Mapping[str, str] | None:
    """Return the column types in a JSON schema by column name; None if a type is unknown."""
    try:
        return {str(field["name"]): _field(field) for field in json.loads(schema)["fields"]}
    except (ValueError, KeyError, TypeError):
        return None


def _field(field: Mapping[str, Any]) -> str:
    about = field.get("metadata") or {}
    if _COLLATIONS in about:
        raise ValueError(f"the collation of {field['name']}")
    return str(about[_AS_DECLARED]) if _AS_DECLARED in about else _type(field["type"])


def _type(kind: Any) -> str:
    if isinstance(kind, str):
        if kind in _SAME or kind.startswith("decimal("):
            return kind
        return _WORDS[kind]
    match kind["type"]:
        case "array":
            return f"array<{_type(kind['elementType'])}>"
        case "map":
            return f"map<{_type(kind['keyType'])},{_type(kind['valueType'])}>"
        case "struct":
            fields = (f"{field['name']}:{_field(field)}" for field in kind["fields"])
            return f"struct<{','.join(fields)}>"
    raise ValueError(f"the type {kind['type']}")


_PHYSICAL = "delta.columnMapping.physicalName"
_Place = tuple[str, ...]
"""Physical names of a field's enclosing fields, outermost first, then of the field itself."""


def lost_column(log: DeltaLog, waits: Sequence[Commit]) -> tuple[int, str] | None:
    """Return the version and the change of the first commit that renamed or dropped a column; None if no commit did."""
    changed = [commit for commit in waits if commit.schema]
    before = _schema_at(log, changed[0].version - 1) if changed else ""
    for commit in changed:
        if before and (what := _lost(before, commit.schema)):
            return commit.version, what
        before = commit.schema
    return None


def _lost(before: str, after: str) -> str:
    new = dict(_fields(json.loads(after)))
    for place, name in _fields(json.loads(before)):
        if place not in new:
            return f"column {name} was dropped"
        if new[place] != name:
            return f"column {name} was renamed to {new[place]}"
    return ""


def _fields(kind: Any, above: _Place = (), names: str = "") -> Iterator[tuple[_Place, str]]:
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
