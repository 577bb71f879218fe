"""The columns of a Delta table as its log writes them, Spark's JSON of a schema, in the words of DESCRIBE."""

import json
from collections.abc import Mapping
from typing import Any

_WORDS = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Where JSON has another word than SQL (Spark 4.2.0)."""
_SAME = frozenset(
    {"string", "binary", "boolean", "float", "double", "date", "timestamp", "timestamp_ntz", "variant", "void"}
)
_AS_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""What a field says of itself that holds CHAR or VARCHAR somewhere: its type; in JSON they are strings (4.2.0)."""
_COLLATIONS = "__COLLATIONS"
"""What a field says of itself that holds strings with a collation, which its type does not tell (4.2.0)."""


def columns_of(schema: str) -> Mapping[str, str] | None:
    """Return types by name; None where a type is of a kind that is not known here."""
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
    """Return a type in words; raises ValueError or KeyError for one that is not known."""
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
