"""Columns of Kafka topics, inferred from a sample of their messages.

A sample does not prove what other messages contain. An inferred type holds every sampled value, and Spark can read each
value as this type (`from_json`, Spark 4.2.0). Anything that the sample leaves open becomes a remark, which is written
as a comment in the DDL.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from core.sql.avro_schemas import RegisteredSchema, suggested_columns
from core.sql.debezium_envelopes import METADATA, is_readable
from core.sql.kafka_topics import ValueFormat
from core.text.escaping import has_control_characters, quoted_name
from core.text.sentence import Fact, FactKind
from core.text.wording import counted

_ENVELOPE = frozenset({"op", "source"})
_CHANGES = ("c", "u", "d", "r")
_BINARY = "0x"
"""Prefix of sampled values that are not UTF-8."""
_FRAMED = ("0x00", "\0")
"""Prefixes of values that refer to a schema in a registry."""
_WIDEST = 2**63
_DIGITS = 38
"""Maximum number of digits of a DECIMAL."""
_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_TIMES = (
    ("TIMESTAMP", re.compile(rf"{_TIME}(?:Z|[+-]\d\d:\d\d)\Z")),
    ("TIMESTAMP_NTZ", re.compile(rf"{_TIME}\Z")),
    ("DATE", re.compile(r"\d{4}-\d\d-\d\d\Z")),
)
"""SQL types of text, each with the pattern that all sampled values must match."""
_CAPTURED_TIMES = (
    ("TIMESTAMP", re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z\Z")),
    ("DATE", re.compile(r"\d{4}-\d\d-\d\dZ?\Z")),
)
"""Like `_TIMES`, but for text that Debezium writes with time.precision.mode=isostring."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
_OF_TIME = re.compile(r"(?:\A|_)(?:at|ts|time|timestamp|date)\Z|(?:At|Ts|Time|Timestamp|Date)\Z")
_SINCE_1970 = (("seconds", 9, 10), ("millis", 12, 13), ("micros", 15, 16))
"""Units of numeric times, each with its minimum and maximum number of digits for times between 2001 and 2286."""
_MOST_FIELDS = 200
"""Maximum number of fields of a struct. An object with more fields is read as text, because its keys are likely to be
data."""


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """A sampled message; bytes that are not UTF-8 are written as `0x…`, and a missing key or value is None."""

    partition: int
    offset: int
    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class SampledColumn:
    """An inferred column with its SQL type, and a remark, possibly empty, on what the sample leaves open."""

    name: str
    type: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class SampledTopic:
    """How the values of topics can be read."""

    format: ValueFormat
    columns: tuple[SampledColumn, ...]
    key: tuple[str, ...] = ()
    """For database changes, the columns that identify a row; empty if the keys of the messages do not show this."""
    left_out: tuple[str, ...] = ()
    """Fields without a column: unions, and names that begin with an underscore or differ from another only in case."""


class SampleFault(FactKind):
    """Why columns cannot be inferred from a sample of messages."""

    EMPTY = "has no messages", "write some first, or declare its columns by hand: headgate help kafka"
    NO_VALUES = (
        "has no value in its newest {looked_at:number} messages",
        "write messages with values first, or declare its columns by hand: headgate help kafka",
    )
    MIXED = (
        "has {odd:number} of {looked_at:number} messages that are not {expected}, such as offset {offset} of partition "
        "{partition}",
        "correct what writes them; or declare its columns by hand, with _corrupt STRING for such values: headgate help "
        "kafka",
    )
    NO_COLUMNS = "has {schema}, of which no field can be a column", "declare its values as raw: headgate help kafka"
    NO_FIELDS = "has JSON objects without fields", "declare its columns by hand: headgate help kafka"


def columns_of_sample(messages: Sequence[SampledMessage]) -> SampledTopic | Fact[SampleFault]:
    """Return how the values of topics can be read, or why that cannot be inferred."""
    if not messages:
        return SampleFault.EMPTY.of()
    valued = [message for message in messages if message.value is not None]
    if not valued:
        return SampleFault.NO_VALUES.of(looked_at=len(messages))
    found = [_parsed(message.value) for message in valued]
    changes = [_change(value) for value in found]
    if not any(isinstance(value, dict) for value in found):
        kind = (
            "BINARY" if any((message.value or "").startswith((_BINARY, *_FRAMED)) for message in valued) else "STRING"
        )
        remark = "may be Avro: ?schema.registry=URL after the topic reads it" if all(map(_is_framed, valued)) else ""
        value = SampledColumn("_value", kind, remark)
        return SampledTopic(ValueFormat.RAW, (*_key_column(messages), value, _TIMESTAMP))
    expected = "changes of rows by Debezium" if any(changes) else "JSON objects"
    fits = [change is not None if any(changes) else isinstance(value, dict)
            for value, change in zip(found, changes, strict=True)]  # fmt: skip
    if not all(fits):
        return _mixed([message for message, fit in zip(valued, fits, strict=True) if not fit], len(valued), expected)
    if any(changes):
        return _captured(messages, [change for change in changes if change])
    columns, left_out = _columns(_seen(found), captured=False)
    if not columns:
        return SampleFault.NO_FIELDS.of()
    return SampledTopic(ValueFormat.JSON, (*columns, *_key_column(messages), _TIMESTAMP), left_out=left_out)


def columns_of_schema(messages: Sequence[SampledMessage], schema: RegisteredSchema) -> SampledTopic | Fact[SampleFault]:
    """Return how Avro values can be read, given their newest schema, or why that cannot be inferred."""
    valued = [message for message in messages if message.value is not None]
    if odd := [message for message in valued if not _is_framed(message)]:
        return _mixed(odd, len(valued), "Avro with the id of a schema")
    fields = [(name, kind) for name, kind in suggested_columns(schema) if not name.startswith("_")]
    columns = tuple(SampledColumn(name, kind) for name, kind in fields if kind)
    if not columns:
        return SampleFault.NO_COLUMNS.of(schema=str(schema))
    others = tuple(name for name, kind in suggested_columns(schema) if name not in {each.name for each in columns})
    return SampledTopic(ValueFormat.AVRO, (*columns, *_key_column(messages), _TIMESTAMP), left_out=others)


def _is_framed(message: SampledMessage) -> bool:
    return (message.value or "").startswith(_FRAMED)


def sampled_fields(messages: Sequence[SampledMessage], format: ValueFormat) -> tuple[str, ...]:
    """Return the names of the fields in sampled messages, in order of appearance; empty if no message can be read.

    For database changes, the fields are those of the row after the change.
    """
    found = [value for message in messages if isinstance(value := _parsed(message.value), dict)]
    if format is ValueFormat.DEBEZIUM:
        found = [row for value in found if (change := _change(value)) and (row := change.get("after"))]
    return tuple(dict.fromkeys(name for value in found for name in value))


_TIMESTAMP = SampledColumn("_timestamp", "TIMESTAMP")


@dataclass(slots=True)
class _Seen:
    """The sampled values of one field."""

    kinds: Counter[str] = field(default_factory=Counter)
    """How often a value was null, boolean, integer, decimal, string, object or array."""
    values: list[Any] = field(default_factory=list)
    """All numbers and texts among the values."""
    fields: dict[str, "_Seen"] = field(default_factory=dict)
    elements: "_Seen | None" = None

    def add(self, value: Any) -> None:
        kind = next(name for type, name in _KINDS.items() if isinstance(value, type))
        self.kinds[kind] += 1
        if kind in ("integer", "decimal", "string"):
            self.values.append(value)
        elif kind == "object":
            for name, each in value.items():
                self.fields.setdefault(name, _Seen()).add(each)
        elif kind == "array":
            self.elements = self.elements or _Seen()
            for each in value:
                self.elements.add(each)


_KINDS = {
    type(None): "null", bool: "boolean", int: "integer", Decimal: "decimal", float: "decimal", str: "string",
    dict: "object", list: "array",
}  # fmt: skip
"""Kinds of JSON values by their Python types; bool precedes int because it is a subclass of int."""


def _mixed(odd: Sequence[SampledMessage], looked_at: int, expected: str) -> Fact[SampleFault]:
    first = odd[0]
    return SampleFault.MIXED.of(
        odd=len(odd), looked_at=looked_at, expected=expected, offset=first.offset, partition=first.partition
    )


def _parsed(text: str | None) -> Any:
    """Parse JSON, with fractions as Decimal; return the text itself if it is not JSON."""
    try:
        return None if text is None else json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return text


def _change(value: Any) -> dict[str, Any] | None:
    """Return the Debezium envelope of a row change; None for any other value."""
    for envelope in (value, value.get("payload")) if isinstance(value, dict) else ():
        if isinstance(envelope, dict) and envelope.keys() >= _ENVELOPE and envelope["op"] in _CHANGES:
            return envelope
    return None


def _seen(values: Sequence[Any]) -> _Seen:
    found = _Seen()
    for value in values:
        found.add(value)
    return found


def _captured(
    messages: Sequence[SampledMessage], changes: Sequence[Mapping[str, Any]]
) -> SampledTopic | Fact[SampleFault]:
    columns, left_out = _columns(_seen([row for change in changes if (row := change.get("after"))]), captured=True)
    if not columns:
        return SampleFault.NO_VALUES.of(looked_at=len(messages))
    names, keys = {column.name for column in columns}, set()
    for message in messages:
        key = _parsed(message.key)
        key = key.get("payload", key) if isinstance(key, dict) else {}
        keys.add(tuple(key) if isinstance(key, dict) else ())
    key = keys.pop() if len(keys) == 1 else ()
    described = tuple(SampledColumn(name, METADATA[name][0].upper()) for name in ("_op", "_sequence"))
    key = key if set(key) <= names else ()
    return SampledTopic(ValueFormat.DEBEZIUM, (*columns, *described), key, left_out)


def _key_column(messages: Sequence[SampledMessage]) -> tuple[SampledColumn, ...]:
    keys = [message.key for message in messages if message.key is not None]
    if not keys:
        return ()
    kind = "BINARY" if any(key.startswith((_BINARY, *_FRAMED)) for key in keys) else "STRING"
    return (SampledColumn("_key", kind, _share(len(keys), len(messages))),)


def _columns(seen: _Seen, *, captured: bool) -> tuple[tuple[SampledColumn, ...], tuple[str, ...]]:
    """Return the columns for the fields of all sampled objects, and the names of the fields that cannot be columns."""
    total, columns = seen.kinds["object"], []
    names = _distinct(seen, underscores=False)
    for name in names:
        kind, remark = _type(name, seen.fields[name], captured=captured)
        share = _share(seen.fields[name].kinds.total(), total)
        columns.append(SampledColumn(name, kind, "; ".join(filter(None, (share, remark)))))
    return tuple(columns), tuple(name for name in seen.fields if name not in names)


def _distinct(seen: _Seen, *, underscores: bool) -> list[str]:
    """Return field names in order, without names that SQL cannot distinguish from another or does not allow."""
    chosen: dict[str, str] = {}
    for name, each in seen.fields.items():
        if not name or has_control_characters(name) or (name.startswith("_") and not underscores):
            continue
        rival = chosen.get(name.lower())
        if rival is None or each.kinds.total() > seen.fields[rival].kinds.total():
            chosen[name.lower()] = name
    return [name for name in seen.fields if chosen.get(name.lower()) == name]


def _share(number: int, total: int) -> str:
    return "" if number == total else f"in {number} of {counted(total, 'message')}"


def _type(name: str, seen: _Seen, *, captured: bool) -> tuple[str, str]:
    """Return the SQL type of a field and a remark; the type STRING holds any JSON value as text."""
    kinds = {kind: count for kind, count in seen.kinds.items() if kind != "null" and count}
    if not kinds:
        return "STRING", "always NULL in the sample"
    if kinds.keys() <= {"integer", "decimal"}:
        return _number(name, seen.values)
    if len(kinds) > 1:
        return "STRING", f"JSON text: {', '.join(f'{kind} {count} times' for kind, count in kinds.items())}"
    if "string" in kinds:
        return _text(seen.values, captured=captured)
    if "boolean" in kinds:
        return "BOOLEAN", ""
    if "array" in kinds:
        found = f"ARRAY<{_type(name, seen.elements or _Seen(), captured=False)[0]}>"
        return (found if not captured or is_readable(found.lower()) else "ARRAY<STRING>"), ""
    found = "" if captured else _struct(seen)
    return (found, "") if found else ("STRING", "JSON text")


def _struct(seen: _Seen) -> str:
    """Return the STRUCT type of an object; empty if it has no fields, or so many that its keys must be data."""
    names = _distinct(seen, underscores=True)
    if not 0 < len(names) <= _MOST_FIELDS:
        return ""
    parts = (f"{quoted_name(name)}: {_type(name, seen.fields[name], captured=False)[0]}" for name in names)
    return f"STRUCT<{', '.join(parts)}>"


def _number(name: str, values: Sequence[int | float | Decimal]) -> tuple[str, str]:
    if all(isinstance(value, int) for value in values):
        if all(-_WIDEST <= value < _WIDEST for value in values):
            return "BIGINT", _since_1970(name, values)
        if all(abs(value) < 10**_DIGITS for value in values):
            return f"DECIMAL({_DIGITS},0)", "larger than BIGINT"
        return "STRING", f"numbers of more than {_DIGITS} digits, as text"
    exact = [Decimal(value) for value in values if not isinstance(value, float)]
    if all(Decimal(repr(float(value))) == value for value in exact):
        return "DOUBLE", "a number with decimals: DECIMAL keeps it exactly"
    scale = max(0, *(-int(value.as_tuple().exponent) for value in exact))
    if len(exact) == len(values) and scale <= _DIGITS and max(value.adjusted() for value in exact) < _DIGITS - scale:
        return f"DECIMAL({_DIGITS},{scale})", "DOUBLE would round it"
    return "STRING", f"numbers of more than {_DIGITS} digits, as text"


def _since_1970(name: str, values: Sequence[int | float | Decimal]) -> str:
    least, most = len(str(min(values))), len(str(max(values)))
    for unit, fewest, longest in _SINCE_1970 if _OF_TIME.search(name) and min(values) > 0 else ():
        if fewest <= least and most <= longest:
            return f"may be a time: timestamp_{unit}({quoted_name(name)})"
    return ""


def _text(values: Sequence[str], *, captured: bool) -> tuple[str, str]:
    for kind, form in _CAPTURED_TIMES if captured else _TIMES:
        if all(form.match(value) and _is_real(value) for value in values):
            zone = "TIMESTAMP_NTZ if the column of the database has no zone"
            return kind, zone if captured and kind == "TIMESTAMP" else ""
    if all(map(_NUMBER.match, values)):
        return "STRING", "text of numbers" + (", DECIMAL if the column is numeric" if captured else "")
    return "STRING", ""


def _is_real(text: str) -> bool:
    """True if the date or timestamp at the start of a text exists in the calendar."""
    try:
        return bool(date.fromisoformat(text[:10])) and (len(text) <= 11 or bool(datetime.fromisoformat(text[:19])))
    except ValueError:
        return False
