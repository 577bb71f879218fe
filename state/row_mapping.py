"""Mapping between row dataclasses and SQLite values: each field is a column, and compound values are JSON.

When a row is read, a field without a column gets its default.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar, get_type_hints

from core.model.states import PoolState
from core.observed.cluster_manager import ManagerWord, word_from_json
from core.observed.served_environment import ServedEnvironment
from core.observed.versions import Binding
from core.project.model import Pool
from core.project.naming import Naming, Sources
from core.project.resources import UNLIMITED, Amounts
from core.project.revision import RevisionTexts, texts_as_json, texts_from_json
from core.text.escaping import escape_surrogates
from core.text.sentence import Fact

Row = TypeVar("Row")
Value = str | int | float | bytes | None
"""A value that SQLite can store."""


class BrokenRow(Exception):
    """Raised if a row has content that no Headgate writes; the message names the row."""


def sqlite_value(value: object) -> Value:
    """Convert the value of a field to an SQLite value. Undecodable bytes of file names are escaped."""
    match value:
        case None | int() | float():
            return value
        case str():
            return escape_surrogates(value)
        case RevisionTexts():
            return _json(texts_as_json(value))
        case Pool():
            of_class = {"of_class": value.of_class} if value.of_class else {}
            capacity = {"capacity": asdict(value.capacity)} if value.capacity != UNLIMITED else {}
            return _json({name: getattr(value, name) for name in Pool.RECORDED} | of_class | capacity)
        case Fact():
            return _json(value.as_json())
        case ServedEnvironment():
            return _json(asdict(value))
        case tuple() | list():
            return _json([_plain(item) for item in value])
        case _:
            return _json(value)


def values_by_column(row: object, *, without: Iterable[str] = ()) -> dict[str, Value]:
    """Return the SQLite values of a row by column name, omitting the fields in `without`."""
    left_out = frozenset(without)
    return {name: sqlite_value(getattr(row, name)) for name in field_names(type(row)) if name not in left_out}


def row_from_values(kind: type[Row], columns: Sequence[str], values: Sequence[Any]) -> Row:
    """Build an object of the dataclass `kind` from column names and values. Columns that are not fields are ignored.

    Raises BrokenRow if a compound value cannot be decoded.
    """
    decoders = _decoders(kind)
    try:
        fields_by_name = {
            name: decode(value) if (decode := decoders[name]) and value is not None else value
            for name, value in zip(columns, values, strict=True)
            if name in decoders
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        record = dict(zip(columns, values, strict=True))
        where = " of ".join(f"{name} {record[name]}" for name in ("version", "table") if name in record)
        where = where or f"{columns[0]} {values[0]}"
        raise BrokenRow(f"the {kind.__name__} of {where} cannot be decoded") from error
    return kind(**fields_by_name)


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the field names of a row class, in order."""
    return tuple(_decoders(kind))


_KNOWN: dict[type[Any], Mapping[str, Callable[[Any], Any] | None]] = {}


def _decoders(kind: type[Any]) -> Mapping[str, Callable[[Any], Any] | None]:
    if kind not in _KNOWN:
        hints = get_type_hints(kind)
        _KNOWN[kind] = {field.name: _decoder(hints[field.name]) for field in fields(kind)}
    return _KNOWN[kind]


def _decoder(hint: Any) -> Callable[[Any], Any] | None:
    if hint is bool:
        return bool
    if hint is PoolState:
        return PoolState
    if hint is RevisionTexts:
        return _texts
    if hint == tuple[Binding, ...]:
        return _bindings
    if hint == Pool | None:
        return _pool
    if hint == Fact[ManagerWord] | None:
        return _word
    if hint == ServedEnvironment | None:
        return _served
    origin = getattr(hint, "__origin__", None)
    if origin is tuple:
        return _tuple
    return json.loads if origin is dict else None


def _texts(text: str) -> RevisionTexts:
    return texts_from_json(json.loads(text))


def _bindings(text: str) -> tuple[Binding, ...]:
    return tuple(Binding(*item) for item in json.loads(text))


def _pool(text: str) -> Pool:
    found = json.loads(text)
    capacity = Amounts(**found.pop("capacity", {}))
    return Pool(**{**found, "conf": tuple((key, value) for key, value in found["conf"]), "capacity": capacity})


def _word(text: str) -> Fact[ManagerWord]:
    return word_from_json(json.loads(text))


def _served(text: str) -> ServedEnvironment:
    found = json.loads(text)
    sources = found["sources"]
    of = Naming(**sources["naming"]) if sources["naming"] else None
    return ServedEnvironment(
        **{
            **found,
            "naming": Naming(**found["naming"]),
            "sources": Sources(**{**sources, "naming": of}),
            "pools": tuple(found.get("pools", ())),
        }
    )


def _tuple(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


def _plain(item: object) -> object:
    return [item.parent, item.version, item.streamed] if isinstance(item, Binding) else item


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return escape_surrogates(text, backslash="\\\\")
