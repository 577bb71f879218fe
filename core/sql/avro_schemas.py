"""Avro schemas of Kafka messages: how the messages of each schema are read as a declared type, or why they cannot be.

A message is read with the schema with which it was written. Fields are matched by name, and types are only widened. A
field that this schema lacks gets its default from the newest version of the schema that has the field; without a
default, the message is refused. A value therefore never becomes NULL only because schemas differ.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.sql.statement import Column
from core.sql.tokens.data_types import element_type, fields_of, key_type
from core.text.escaping import quoted_name, quoted_string_literal
from core.text.sentence import Fact, FactKind

VALUE, KEY = "value", "key"
"""The parts of a message that can be Avro, as Spark's Kafka source names them."""
NEW_SCHEMA = "HEADGATE_NEW_SCHEMA"
"""Error class of a batch that failed at a message whose schema was unknown when its statement was started."""
POISON = "HEADGATE_POISON_MESSAGE"
"""Error class of a batch that failed because a message could not be parsed."""
UNREADABLE = "HEADGATE_UNREADABLE_SCHEMA"
"""Error class of a batch that failed at a message whose schema does not fit the declared columns."""
PLACE = "'offset ', offset, ' in partition ', partition, ' of topic ', topic"
"""Arguments of SQL's `concat` that give the offset, partition and topic of a message."""

_PREFIX_BYTES = 5
"""Length of a message's prefix, which consists of a zero byte and the schema's id (Confluent's serializers)."""
_SQL_TYPES: Mapping[str, tuple[str, ...]] = {
    "boolean": ("boolean",), "int": ("int", "bigint", "double"), "long": ("bigint",), "float": ("float", "double"),
    "double": ("double",), "string": ("string",), "enum": ("string",), "bytes": ("binary",), "fixed": ("binary",),
    "date": ("date",), "timestamp-millis": ("timestamp",), "timestamp-micros": ("timestamp",),
    "local-timestamp-millis": ("timestamp_ntz",), "local-timestamp-micros": ("timestamp_ntz",),
}  # fmt: skip
"""Maps each Avro type or logical type to the SQL types that can hold all its values; the first one is suggested."""
_LOGICAL = {"int": ("date",), "long": tuple(name for name in _SQL_TYPES if "timestamp" in name)}
"""Logical types that change how a value is read; all others are read as plain values."""


class AvroFault(FactKind):
    """Why messages of a schema do not fit the declared columns."""

    NOT_AVRO = "is no Avro schema: {why}"
    OTHER_KIND = "is {kind}, not Avro"
    NOT_LISTED = "is no version of {subjects}"
    MISSING = "has no field {field}, nor a default for it"
    TYPE = "has {field} as {found}, not {declared}"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """An Avro schema with the id by which messages refer to it."""

    id: int
    text: str = ""
    """The schema as JSON; empty if no version of the subjects has the id."""
    subject: str = ""
    """The subject of the schema; if `text` is empty, the subjects that were searched."""
    version: int = 0
    kind: str = "AVRO"

    def __str__(self) -> str:
        return f"schema {self.id} (version {self.version} of {self.subject})" if self.text else f"schema {self.id}"


SchemasByPart = Mapping[str, tuple[RegisteredSchema, ...]]
"""Maps the parts `value` and `key` to the schemas of a table's messages: the versions of each subject, newest last."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How messages of one schema are read as values of a declared type."""

    schema: RegisteredSchema
    reader: str = ""
    """The reader schema as JSON; empty if there are faults."""
    faults: tuple[Fact[AvroFault], ...] = ()
    """All reasons why messages of the schema are refused."""


@dataclass(slots=True, eq=False)
class _Type:
    """A parsed Avro type. A recursive type contains itself."""

    kind: str
    name: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    """Attributes, as in JSON, that affect how values are read: a logical type with its parameters, symbols, size."""
    items: "_Type | None" = None
    """The type of an array's elements or a map's values."""
    fields: "dict[str, list[_Field]]" = field(default_factory=dict)
    """The fields of a record by their names in lower case."""
    branches: "tuple[_Type, ...]" = ()

    @property
    def plain(self) -> "_Type":
        """The other branch of a union of NULL and one type; for any other type, the type itself."""
        others = [each for each in self.branches if each.kind != "null"]
        return others[0] if len(others) == 1 else self

    def __str__(self) -> str:
        if self.branches:
            return f"a union of {', '.join(map(str, self.branches))}" if self.plain is self else str(self.plain)
        logical = self.attributes.get("logicalType", self.kind)
        if logical == "decimal":
            return f"decimal({self.attributes['precision']},{self.attributes['scale']})"
        return f"{self.kind} of {self.items}" if self.items else str(logical)


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    name: str
    type: _Type
    aliases: tuple[str, ...]
    default: tuple[Any, ...]
    """A tuple with the default value; empty if the field has no default."""


def declared_type(columns: Sequence[Column]) -> str:
    """Return the type of a struct with these columns."""
    return f"struct<{','.join(f'{quoted_name(column.name)}:{column.type}' for column in columns)}>"


def readings(declared: str, schemas: Sequence[RegisteredSchema]) -> tuple[Reading, ...]:
    """Return, for each schema in order, how its messages are read as values of the type `declared`."""
    parsed: list[_Type | Reading] = [_parsed(schema) for schema in schemas]
    found = []
    for schema, writer in zip(schemas, parsed, strict=True):
        if isinstance(writer, Reading):
            found.append(writer)
            continue
        pairs = zip(schemas, parsed, strict=True)
        versions = [each for of, each in pairs if of.subject == schema.subject and isinstance(each, _Type)]
        reader = _Reader()
        message = reader.message(declared, writer, versions[::-1])
        faults = tuple(reader.faults)
        found.append(Reading(schema, "" if faults else json.dumps(message), faults))
    return tuple(found)


def suggested_columns(schema: RegisteredSchema) -> tuple[tuple[str, str], ...]:
    """Return the name and SQL type of each field in a record schema: the narrowest type that holds all its values.

    The type is empty if no SQL type can hold them. The result is empty if the schema cannot be parsed or is not a
    record.
    """
    of = _parsed(schema)
    found = [each[0] for each in of.fields.values()] if isinstance(of, _Type) else []
    return tuple((each.name, _suggested(each.type, ())) for each in found)


def _suggested(of: _Type, above: tuple[_Type, ...]) -> str:
    of = of.plain
    if of in above:
        return ""
    inside, logical = (*above, of), str(of.attributes.get("logicalType", of.kind))
    if of.kind == "record":
        parts = [(each[0].name, _suggested(each[0].type, inside)) for each in of.fields.values()]
        known = ", ".join(f"{quoted_name(name)}: {kind}" for name, kind in parts if kind)
        return f"STRUCT<{known}>" if known else ""
    if of.items is not None:
        element = _suggested(of.items, inside)
        return element and (f"ARRAY<{element}>" if of.kind == "array" else f"MAP<STRING, {element}>")
    return str(of).upper() if logical == "decimal" else _SQL_TYPES.get(logical, ("",))[0].upper()


def _parsed(schema: RegisteredSchema) -> _Type | Reading:
    if not schema.text:
        return Reading(schema, faults=(AvroFault.NOT_LISTED.of(subjects=schema.subject),))
    if schema.kind != "AVRO":
        return Reading(schema, faults=(AvroFault.OTHER_KIND.of(kind=schema.kind),))
    try:
        return _type(json.loads(schema.text), "", {})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        return Reading(schema, faults=(AvroFault.NOT_AVRO.of(why=why),))


def _type(node: Any, space: str, names: dict[str, _Type]) -> _Type:
    """Parse an Avro type from JSON. `space` is the enclosing namespace; named types are added to `names`."""
    if isinstance(node, list):
        return _Type("union", branches=tuple(_type(each, space, names) for each in node))
    if isinstance(node, str):
        node = {"type": node}
    kind = node["type"]
    if not isinstance(kind, str):
        return _type(kind, space, names)
    if kind in ("array", "map"):
        return _Type(kind, items=_type(node["items" if kind == "array" else "values"], space, names))
    if kind in ("record", "error", "enum", "fixed"):
        return _named(node, space, names)
    if kind in ("null", "boolean", "int", "long", "float", "double", "bytes", "string"):
        return _Type(kind, attributes=_logical(kind, node))
    found = names.get(_full_name(kind, space)) or names.get(kind)
    if found is None:
        raise ValueError(f"the type {kind} is not defined in it")
    return found


def _named(node: dict[str, Any], space: str, names: dict[str, _Type]) -> _Type:
    name = _full_name(node["name"], node.get("namespace", space))
    found = names[name] = _Type("record" if node["type"] == "error" else node["type"], name)
    if found.kind == "enum":
        found.attributes = {"symbols": node["symbols"]}
    elif found.kind == "fixed":
        found.attributes = {"size": node["size"], **_logical("bytes", node)}
    else:
        for each in node["fields"]:
            kind = _type(each["type"], name.rpartition(".")[0], names)
            default = (each["default"],) if "default" in each else ()
            made = _Field(each["name"], kind, tuple(each.get("aliases", ())), default)
            found.fields.setdefault(made.name.lower(), []).append(made)
    return found


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _logical(kind: str, node: dict[str, Any]) -> dict[str, Any]:
    logical = node.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        return {"logicalType": logical, "precision": int(node["precision"]), "scale": int(node.get("scale", 0))}
    return {"logicalType": logical} if logical in _LOGICAL.get(kind, ()) else {}


@dataclass(slots=True)
class _Reader:
    """Builds Avro's reader schema for messages of one schema: the declared fields, with the types that were written."""

    faults: list[Fact[AvroFault]] = field(default_factory=list)
    _named: set[str] = field(default_factory=set)
    _made: int = 0

    def message(self, declared: str, writer: _Type, versions: Sequence[_Type]) -> dict[str, Any]:
        """Return the reader schema of a message; the default of its extra field `ok` marks a message as read."""
        part = self._schema(declared, writer, versions, "")
        fields = [{"name": "part", "type": part}, {"name": "ok", "type": "boolean", "default": True}]
        return {"type": "record", "name": "HeadgateMessage", "fields": fields}

    def _schema(self, declared: str, of: _Type, versions: Sequence[_Type], at: str, *, absent: bool = False) -> Any:
        """Return the reader schema of the value at path `at`; if `absent`, messages lack it, and a default is used."""
        plain, newer = of.plain, [each.plain for each in versions]
        found = self._not_null(declared, plain, newer, at, absent=absent)
        return ["null" if each.kind == "null" else found for each in of.branches] if plain is not of else found

    def _not_null(self, declared: str, of: _Type, newer: Sequence[_Type], at: str, *, absent: bool) -> Any:
        items = [each.items for each in newer if each.items is not None]
        if of.kind == "record" and declared.startswith("struct<"):
            fields = [self._field(name, kind, of, newer, at, absent=absent) for name, kind in fields_of(declared)]
            return {"type": "record", "name": self._new_name(), "fields": [each for each in fields if each]}
        if of.items is not None and declared.startswith(f"{of.kind}<"):
            if of.kind == "array":
                item = self._schema(element_type(declared), of.items, items, f"{at}[]", absent=absent)
                return {"type": "array", "items": item}
            if key_type(declared) == "string":
                values = self._schema(element_type(declared), of.items, items, f"{at}[]", absent=absent)
                return {"type": "map", "values": values}
        if not _holds(declared, of):
            place = at or "its value"
            self.faults.append(AvroFault.TYPE.of(field=place, found=str(of), declared=declared.upper()))
            return "null"
        if not of.name:
            return {"type": of.kind, **of.attributes}
        if of.name in self._named and not absent:
            return of.name
        self._named.update(() if absent else (of.name,))
        return {"type": of.kind, "name": self._new_name() if absent else of.name, **of.attributes}

    def _field(
        self, name: str, declared: str, of: _Type, newer: Sequence[_Type], at: str, *, absent: bool
    ) -> dict[str, Any] | None:
        place = f"{at}.{name}" if at else name
        known = [each for each in (_find(version, (name,)) for version in newer) if each is not None]
        aliases = tuple(alias for each in known for alias in each.aliases)
        there = _find(of, (name, *aliases))
        types = [each.type for each in known]
        if there is not None:
            # Inside a default, a field may be missing.
            default = {"default": there.default[0]} if absent and there.default else {}
            return {
                "name": there.name,
                "type": self._schema(declared, there.type, types, place, absent=absent),
            } | default
        if not known or not known[0].default:
            self.faults.append(AvroFault.MISSING.of(field=place))
            return None
        made = self._schema(declared, known[0].type, types, place, absent=True)
        return {"name": known[0].name, "type": made, "default": known[0].default[0]}

    def _new_name(self) -> str:
        self._made += 1
        return f"Headgate{self._made}"


def _find(of: _Type, names: Sequence[str]) -> _Field | None:
    """Return the field with the first of `names` that a record has; case matters only if several fields match."""
    for name in names:
        if found := of.fields.get(name.lower()):
            return next((each for each in found if each.name == name), found[0])
    return None


def _holds(declared: str, of: _Type) -> bool:
    """True if the SQL type `declared` holds all values of an Avro type that has no fields or elements."""
    logical = of.attributes.get("logicalType", of.kind)
    if logical != "decimal":
        return declared in _SQL_TYPES.get(logical, ())
    digits, _, scale = declared.removeprefix("decimal(").removesuffix(")").partition(",")
    if not declared.startswith("decimal("):
        return False
    fraction, whole = int(scale or 0), int(digits) - int(scale or 0)
    of_scale: int = of.attributes["scale"]
    return fraction >= of_scale and whole >= int(of.attributes["precision"]) - of_scale


def avro_steps(part: str, declared: str, schemas: Sequence[RegisteredSchema], *, framed: bool) -> tuple[str, ...]:
    """Return the expressions that add `_{part}_avro`, `_{part}_fault` and `_{part}_error` to a Kafka source's columns.

    Each expression needs a projection of its own, because it refers to the previous ones. `_{part}_avro.part` is the
    value converted to the declared type. `_{part}_fault` states why the part cannot be read; it is NULL if the part was
    read or is NULL. `_{part}_error` is the error class for the fault.

    A message begins with the id of its schema if `framed`; if not, `schemas` has only one schema, which applies to all
    messages. A message whose id is not among the schemas fails the batch with the error NEW_SCHEMA and the id.
    """
    found = readings(declared, schemas)
    good = [each for each in found if not each.faults]
    as_declared = f"STRUCT<part: {declared}, ok: BOOLEAN>"
    cases = [
        f"WHEN {each.schema.id} THEN CAST(from_avro({_body(part, framed)}, {_writer(each.schema)}, map('mode', "
        f"'PERMISSIVE', 'avroSchema', {quoted_string_literal(each.reader)})) AS {as_declared})"
        for each in good
    ]
    # Of several identical branches, Spark would take the type of NULL.
    read = f"CASE _{part}_schema {' '.join(cases)} END" if cases else f"CAST(NULL AS {as_declared})"
    id = f"CAST(conv(hex(substring({part}, 2, 4)), 16, 10) AS BIGINT)"
    framing = f"IF(length({part}) >= {_PREFIX_BYTES} AND startswith({part}, X'00'), {id}, -1)"
    unlike = ", ".join(str(each.schema.id) for each in found if each.faults)
    return (
        f"{framing if framed else found[0].schema.id} AS _{part}_schema",
        f"{read} AS _{part}_avro",
        f"CASE {' '.join(_faults(part, found, framed=framed))} END AS _{part}_fault",
        f"IF(_{part}_schema IN ({unlike or 'NULL'}), '{UNREADABLE}', '{POISON}') AS _{part}_error",
    )


def _body(part: str, framed: bool) -> str:
    return f"substring({part}, {_PREFIX_BYTES + 1})" if framed else part


def _writer(schema: RegisteredSchema) -> str:
    """Return the writer schema of a whole message as an SQL literal: a record that contains the type as a field."""
    part = {"name": "part", "type": _as_written(json.loads(schema.text))}
    return quoted_string_literal(json.dumps({"type": "record", "name": "HeadgateMessage", "fields": [part]}))


def _as_written(node: Any) -> Any:
    """Return a schema without attributes that do not affect the encoding; Spark may refuse some, such as defaults."""
    if isinstance(node, list):
        return [*map(_as_written, node)]
    unused = ("default", "doc", "aliases")
    return (
        {key: _as_written(value) for key, value in node.items() if key not in unused}
        if isinstance(node, dict)
        else node
    )


def _faults(part: str, found: Sequence[Reading], *, framed: bool) -> list[str]:
    """Return the branches of a CASE that names the reason why a part of a message cannot be read."""
    known = ", ".join(str(each.schema.id) for each in found)
    new = f"raise_error(concat('[{NEW_SCHEMA}] schema ', _{part}_schema, ' of the {part} at ', {PLACE}, "
    new += "' was not known when the statement was started'))"
    unframed = quoted_string_literal(f"has no {part} that begins with a zero byte and the id of a schema")
    unlike = [
        f"WHEN _{part}_schema = {each.schema.id} THEN "
        + quoted_string_literal(f"has a {part} of {each.schema}, which {'; '.join(map(str, each.faults))}")
        for each in found
        if each.faults
    ]
    schema = f"'schema ', _{part}_schema" if framed else quoted_string_literal(found[0].schema.subject)
    return [
        f"WHEN {part} IS NULL THEN NULL",
        f"WHEN _{part}_schema = -1 THEN {unframed}",
        f"WHEN NOT coalesce(_{part}_schema IN ({known or 'NULL'}), false) THEN {new}",
        *unlike,
        f"WHEN _{part}_avro.ok IS NULL THEN concat('has a {part} that is not Avro of ', {schema})",
    ]
