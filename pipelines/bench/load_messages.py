"""Messages of topics as rows of a sample, and rows of a load as messages, in JSON, as changes of Debezium, or raw.

A row has the declared columns, and the key of its message and its topic even if these are not declared, so that load is
distributed over partitions as the sample is.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from core.bench.replayed_load import Row, SourceSample
from core.bench.request import BenchSource
from core.model.errors import UsageError
from core.sql.kafka_topics import SCHEME, VALUE_FORMAT, ValueFormat, topic_place
from core.sql.metadata_columns import METADATA_NAMES
from pipelines.bench.source_files import MOST_ROWS, json_line, typed
from pipelines.integration_tests.own_topics import Message
from pipelines.storage.kafka_messages import MESSAGE_COLUMNS, newest_messages

KEY, VALUE, TOPIC = "_key", "_value", "_topic"
TIME, HEADERS = "_timestamp", "_headers"
WHOLE = (VALUE, "_content")
"""Columns whose values are whole messages of a topic, or of a database's log."""

_SNAPSHOT = "r"
_KINDS = ("c", "u", "d", _SNAPSHOT)


def is_of_topics(sample: str) -> bool:
    """True if a sample is in topics, not in files."""
    return sample.startswith(SCHEME)


def format_of_values(source: BenchSource) -> ValueFormat:
    """Return how the values of a source's messages are read."""
    return ValueFormat(source.options.get(VALUE_FORMAT, ValueFormat.JSON).lower())


def sampled_rows(source: BenchSource) -> tuple[Row, ...]:
    """Return the newest messages of the topics at a source's `sample` as rows, oldest first; empty if there are none.

    It only reads, and joins no consumer group. Raises the errors of `newest_messages`, and UsageError if no message can
    be read as declared.
    """
    messages = newest_messages(source.sample, MOST_ROWS, lambda _, value: base64.b64encode(value).decode())
    rows: list[Row] = []
    for values in reversed(messages):
        message = dict(zip(MESSAGE_COLUMNS, values, strict=True))
        # The readers of the topic keep a message that is not as declared, or fail at it; a benchmark leaves it out.
        with suppress(ValueError, TypeError, LookupError, AttributeError):
            if (row := _row(source, _bytes(message[KEY]), _bytes(message[VALUE]))) is not None:
                headers = [{"key": name, "value": _base64(text.encode())} for name, text in message[HEADERS].items()]
                at = datetime.fromtimestamp(message[TIME] / 1000, UTC)
                rows.append({**row, TOPIC: message[TOPIC], TIME: at, HEADERS: headers})
    if messages and not rows:
        topics = ", ".join(topic_place(source.sample).topics)
        raise UsageError(
            f"no message of {topics} can be read as {source.table} declares it", remedy="give a file with --sample"
        )
    return tuple(rows)


def _row(source: BenchSource, key: bytes | None, value: bytes | None) -> dict[str, Any] | None:
    """Return a message as a row with its key; None if readers get no row of it."""
    kinds = dict(source.columns)
    given = (
        None if key is None else _base64(key) if kinds.get(KEY) == "binary" else key.decode() if KEY in kinds else key
    )
    match format_of_values(source):
        case ValueFormat.RAW:
            text = None if value is None else _base64(value) if kinds.get(VALUE) == "binary" else value.decode()
            return {VALUE: text, KEY: given}
        case ValueFormat.DEBEZIUM:
            if value is None or (found := _change(key, value)) is None:
                return None
            return {**typed(found, source.columns), KEY: given}
    fields = {} if value is None else json.loads(value)
    return {**typed(dict(fields), source.columns), KEY: given}


def _change(key: bytes | None, value: bytes) -> dict[str, Any] | None:
    """Return a change as the row after it with its metadata; a row of a snapshot is an insert."""
    change = _payload(json.loads(value))
    if (op := change.get("op")) not in _KINDS:
        return None
    row = _payload(json.loads(key or b"{}")) if op == "d" else change["after"]
    source = change.get("source") or {}
    about = {
        "_op": "c" if op == _SNAPSHOT else op,
        "_sequence": source.get("lsn"),
        "_lsn": source.get("lsn"),
        "_xid": source.get("txId"),
        "_snapshot": "false",
        "_transaction": change.get("transaction"),
    }
    if (at_ms := source.get("ts_ms")) is not None:
        about["_committed_at"] = datetime.fromtimestamp(at_ms / 1000, UTC)
    return {**row, **about}


def _payload(found: dict[str, Any]) -> dict[str, Any]:
    inner = found.get("payload")
    return inner if isinstance(inner, dict) else found


@dataclass(slots=True)
class MessageMaker:
    """Makes messages of the rows of a load."""

    source: BenchSource
    sample: SourceSample
    _format: ValueFormat = field(init=False)
    _kinds: Mapping[str, str] = field(init=False)
    _fields: tuple[str, ...] = field(init=False)
    _key: str | tuple[str, ...] = field(init=False)
    """The column whose text is the key, or the columns that are its fields in JSON; empty if it is neither."""
    _own: tuple[str, ...] = field(init=False)
    _topics: Mapping[object, str] = field(init=False)
    """The topic in place of each one of the sample."""
    _made: int = 0

    def __post_init__(self) -> None:
        self._format, self._kinds = format_of_values(self.source), dict(self.source.columns)
        self._fields = tuple(filter(_is_field, self._kinds))
        self._key = _columns_of_key(self.sample.rows, self._fields)
        self._own = topic_place(self.source.folder).topics
        sampled = topic_place(self.source.sample).topics if is_of_topics(self.source.sample) else ()
        self._topics = dict(zip(sampled, self._own, strict=True)) if len(sampled) == len(self._own) else {}

    def message(self, row: Row) -> tuple[str, Message]:
        """Return a row as a message, with its topic."""
        self._made += 1
        topic = self._topics.get(row.get(TOPIC)) or self._own[self._made % len(self._own)]
        at = row.get(TIME) if TIME in self._kinds else None
        at_ms = round(at.timestamp() * 1000) if isinstance(at, datetime) else None
        headers: list[tuple[str, bytes | None]] | None = None
        if HEADERS in self._kinds and isinstance(listed := row.get(HEADERS), list):
            headers = [(str(each["key"]), base64.b64decode(each["value"] or "")) for each in listed]
        return topic, (self._key_of(row), self._value(row), headers, at_ms)

    def _value(self, row: Row) -> bytes | None:
        match self._format:
            case ValueFormat.RAW:
                return _given(row.get(VALUE), self._kinds.get(VALUE, ""))
            case ValueFormat.DEBEZIUM:
                return json.dumps(self._envelope(row)).encode()
        return json_line({name: value for name, value in row.items() if _is_field(name)}, self.source).encode()

    def _envelope(self, row: Row) -> dict[str, Any]:
        """Return a change as Debezium writes it with the settings that Headgate reads."""
        op = row.get("_op") or "c"
        lsn = row.get("_lsn") if row.get("_lsn") is not None else row.get("_sequence")
        at = row.get("_committed_at")
        return {
            "op": op,
            "before": {} if op == "u" else None,
            "after": None if op == "d" else self._captured(row),
            "source": {
                "lsn": lsn,
                "txId": row.get("_xid"),
                "ts_ms": round(at.timestamp() * 1000) if isinstance(at, datetime) else None,
                "snapshot": row.get("_snapshot"),
            },
            "transaction": row.get("_transaction"),
        }

    def _captured(self, row: Row) -> dict[str, Any]:
        """Return the columns of the captured table in the encodings that cannot be mistaken for others."""
        plain = {name: _encoded(row.get(name), self._kinds[name]) for name in self._fields}
        found: dict[str, Any] = json.loads(json_line(plain, self.source))
        for name in self._fields:
            if self._kinds[name] == "timestamp_ntz" and isinstance(text := found[name], str):
                found[name] = f"{text.removesuffix('Z')}Z"
        return found

    def _key_of(self, row: Row) -> bytes | None:
        if isinstance(self._key, str):
            if self._key and row.get(self._key) is not None:
                return str(row[self._key]).encode()
            if (given := row.get(KEY)) is not None:
                return _given(given, self._kinds.get(KEY, ""))
            if self._format is not ValueFormat.DEBEZIUM:
                return None
            # A delete without a key cannot be read.
            return json.dumps({name: each for name, each in self._captured(row).items() if each is not None}).encode()
        found = self._captured(row)
        return json.dumps({name: found[name] for name in self._key}).encode()


def _columns_of_key(rows: Iterable[Row], names: Iterable[str]) -> str | tuple[str, ...]:
    """Return the column whose text is the key of every row, or the columns whose values are its fields in JSON."""
    keyed = [row for row in rows if row.get(KEY) is not None]
    if not keyed:
        return ""
    texts = [_text_of(row[KEY]) for row in keyed]
    for name in names:
        if all(row.get(name) is not None and str(row[name]) == text for row, text in zip(keyed, texts, strict=True)):
            return name
    with suppress(ValueError, AttributeError):
        parsed = [_payload(json.loads(text)) for text in texts]
        fields = tuple(parsed[0])
        known = set(names)
        same = all(
            tuple(each) == fields and all(row.get(name) == each[name] for name in fields)
            for row, each in zip(keyed, parsed, strict=True)
        )
        if fields and known.issuperset(fields) and same:
            return fields
    return ""


def _is_field(name: str) -> bool:
    return not name.startswith("_") or name in METADATA_NAMES


def _text_of(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def _encoded(value: object, kind: str) -> object:
    """Return a value for JSON of Debezium, in which a decimal is a text with the digits of its type."""
    if kind.startswith("decimal") and isinstance(value, int | float | str):
        scale = int(kind.rstrip(")").partition(",")[2] or 0)
        return str(Decimal(str(value)).quantize(Decimal(1).scaleb(-scale)))
    return value


def _given(value: object, kind: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return base64.b64decode(str(value)) if kind == "binary" else str(value).encode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
