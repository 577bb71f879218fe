"""Values in fixtures and results, by Spark type: parsing, normalization, and formatting.

A value is None, bool, int, float, Decimal, str, bytes, date or datetime (TIMESTAMP in UTC, TIMESTAMP_NTZ without a time
zone). Arrays and structs are tuples; maps are sorted tuples of pairs. All values can therefore be compared and hashed.
"""

import base64
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation

from core.project_reader.yaml_reader import YamlValue, read_value
from core.sql.tokens.data_types import element_type, fields_of, key_type

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_SPECIAL = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}
_WIDE = Context(prec=100)
_FINE = re.compile(r"\.[0-9]{7}")


class BadValue(ValueError):
    """Raised if a string is not a value of its column's type; the message describes the expected form."""


def typed_value(value: YamlValue, kind: str) -> object:
    """Convert a YAML value to a value of the Spark type `kind`; raises BadValue if that is impossible."""
    if value.text is None and value.items is None and value.pairs is None:
        return None
    if kind.startswith("array<"):
        if value.items is None:
            raise BadValue("a list: [1, 2]")
        return tuple(typed_value(item, element_type(kind)) for item in value.items)
    if kind.startswith(("map<", "struct<")):
        if value.pairs is None:
            raise BadValue("a mapping: {key: value}")
        return _map(value, kind) if kind.startswith("map<") else _struct(value, kind)
    if value.text is None:
        raise BadValue("one value, not a list or a mapping")
    return _scalar(value.text, kind)


def value_of_cell(cell: str, kind: str) -> object:
    """Convert a CSV cell to a value of the Spark type `kind`; raises BadValue if that is impossible.

    An empty cell is NULL; nested values are in YAML notation.
    """
    if not cell:
        return None
    if not kind.startswith(("array<", "map<", "struct<")):
        return _scalar(cell, kind)
    found = read_value(cell)
    if found is None:
        raise BadValue("a list or a mapping as in YAML: [1, 2]")
    return typed_value(found, kind)


def canonical_value(value: object, kind: str) -> object:
    """Convert a value from Arrow (`to_pylist`) to the Python types of this module."""
    if value is None:
        return None
    if kind.startswith("array<") and isinstance(value, list):
        return tuple(canonical_value(item, element_type(kind)) for item in value)
    if kind.startswith("map<") and isinstance(value, list):
        pairs = ((canonical_value(k, key_type(kind)), canonical_value(v, element_type(kind))) for k, v in value)
        return tuple(sorted(pairs, key=repr))
    if kind.startswith("struct<") and isinstance(value, dict):
        return tuple(canonical_value(value.get(name), each) for name, each in fields_of(kind))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def written_value(value: object, kind: str) -> str:
    """Return a value in the notation of fixtures, which is YAML on one line."""
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return _written_nested(value, kind)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, bytes):
        return f'"{value.hex()}"'
    if isinstance(value, str):
        return quoted_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def encoded_value(value: object, kind: str) -> str | None:
    """Return a value as text for another process; `decoded_value` restores it."""
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else written_value(value, kind)


def decoded_value(text: str | None, kind: str) -> object:
    """Return the value that `encoded_value` has written."""
    if text is None or not kind.startswith(("array<", "map<", "struct<")):
        return None if text is None else _scalar(text, kind)
    found = read_value(text)
    assert found is not None, text
    return typed_value(found, kind)


def quoted_text(text: str) -> str:
    """Return a string as a double-quoted YAML scalar."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def can_be_written(kind: str) -> bool:
    """True if values of a Spark type can be written in fixtures."""
    if kind.startswith("array<"):
        return can_be_written(element_type(kind))
    if kind.startswith("map<"):
        return can_be_written(key_type(kind)) and can_be_written(element_type(kind))
    if kind.startswith("struct<"):
        return all(can_be_written(each) for _, each in fields_of(kind))
    return _reader(kind) is not None


def _map(value: YamlValue, kind: str) -> tuple[object, ...]:
    pairs = [(typed_value(k, key_type(kind)), typed_value(v, element_type(kind))) for k, v in value.pairs or ()]
    if len({repr(key) for key, _ in pairs}) != len(pairs):
        raise BadValue("a mapping with unique keys")
    return tuple(sorted(pairs, key=repr))


def _struct(value: YamlValue, kind: str) -> tuple[object, ...]:
    fields = dict(fields_of(kind))
    known = {name.lower(): name for name in fields}
    found: dict[str, object] = {}
    for key, inner in value.pairs or ():
        name = known.get((key.text or "").lower())
        if name is None:
            raise BadValue(f"a mapping of {', '.join(fields)}; {key.text!r} is no field")
        found[name] = typed_value(inner, fields[name])
    return tuple(found.get(name) for name in fields)


def _scalar(text: str, kind: str) -> object:
    read = _reader(kind)
    if read is None:
        raise BadValue(f"nothing: a fixture cannot hold a value of type {kind}")
    return read(text)


def _reader(kind: str) -> Callable[[str], object] | None:
    if kind in _BITS:
        return lambda text: _integer(text, _BITS[kind])
    if kind.startswith("decimal("):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        return lambda text: _decimal(text, precision, scale)
    if kind == "string" or kind.startswith(("string collate ", "char(", "varchar(")):
        return str
    return _READERS.get(kind)


def _integer(text: str, bits: int) -> int:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if not _INTEGER.match(text) or len(text) > 20 or not least <= int(text) <= most:
        raise BadValue(f"a whole number from {least} to {most}")
    return int(text)


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    expected = f"a number of at most {precision - scale} digits before the point and {scale} after it"
    if not _FLOAT.match(text) or len(text) > 100:
        raise BadValue(expected)
    try:
        value = Decimal(text)
        exact = value.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    except InvalidOperation as error:
        raise BadValue(expected) from error
    if exact != value or abs(exact) >= Decimal(1).scaleb(precision - scale):
        raise BadValue(expected)
    return exact


def _double(text: str) -> float:
    if text.lower().lstrip(".").replace("-.", "-") in _SPECIAL:
        return _SPECIAL[text.lower().lstrip(".").replace("-.", "-")]
    if not _FLOAT.match(text):
        raise BadValue("a number: 1.5, 2e-3, nan, inf")
    return float(text)


def _float(text: str) -> float:
    value = _double(text)
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError as error:
        raise BadValue("a number in the range of a 32-bit float") from error
    return rounded


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadValue("true or false")
    return text.lower() == "true"


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise BadValue("a date: 2026-01-31") from error


def _moment(text: str) -> datetime:
    try:
        if _FINE.search(text):
            raise ValueError(text)
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadValue("a time to the microsecond: 2026-01-31T06:00:00Z") from error


def _timestamp(text: str) -> datetime:
    found = _moment(text)
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError as error:
        raise BadValue("a time between the years 1 and 9999") from error


def _timestamp_ntz(text: str) -> datetime:
    found = _moment(text)
    if found.tzinfo is not None:
        raise BadValue("a time without a zone: 2026-01-31T06:00:00")
    return found


def _binary(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise BadValue('bytes as hexadecimal digits in quotes: "0a1b"') from error


_READERS: dict[str, Callable[[str], object]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "binary": _binary,
}


def _written_nested(value: tuple[object, ...], kind: str) -> str:
    if kind.startswith("array<"):
        return "[" + ", ".join(written_value(item, element_type(kind)) for item in value) + "]"
    if kind.startswith("map<"):
        pairs = [pair for pair in value if isinstance(pair, tuple)]
        written = [f"{written_value(k, key_type(kind))}: {written_value(v, element_type(kind))}" for k, v in pairs]
    else:
        written = [
            f"{quoted_text(name)}: {written_value(v, each)}"
            for v, (name, each) in zip(value, fields_of(kind), strict=True)
        ]
    return "{" + ", ".join(written) + "}"


def json_value(value: object, kind: str) -> object:
    """Convert a value to one as JSON has it, except for dates and times, which stay."""
    if kind.startswith("array<") and isinstance(value, tuple):
        return [json_value(each, element_type(kind)) for each in value]
    if kind.startswith("map<") and isinstance(value, tuple):
        return {str(key): json_value(each, element_type(kind)) for key, each in value}
    if kind.startswith("struct<") and isinstance(value, tuple):
        return {name: json_value(each, of) for each, (name, of) in zip(value, fields_of(kind), strict=True)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return float(value) if isinstance(value, Decimal) else value
