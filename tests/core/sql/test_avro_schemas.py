"""Schemas of messages compared with declared columns: what can be read without loss, and all that cannot."""

import json
from typing import Any

import pytest

from core.sql.avro_schemas import RegisteredSchema, readings


def record(*fields: Any) -> dict[str, Any]:
    """Return a record with these fields, each as (name, type) or with its default as third."""
    named = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields]
    return {"type": "record", "name": "T", "namespace": "shop", "fields": named}


def faults(columns: str, *schemas: Any, kind: str = "AVRO") -> list[str]:
    """Return what is wrong with messages of each version."""
    every = tuple(RegisteredSchema(n, json.dumps(each), "t-value", n, kind) for n, each in enumerate(schemas, 1))
    return ["; ".join(map(str, each.faults)) for each in readings(f"struct<{columns}>", every)]


@pytest.mark.parametrize(
    ("kind", "declared", "fault"),
    [
        ("int", "bigint", ""), ("int", "smallint", "int, not SMALLINT"), ("int", "float", "int, not FLOAT"),
        ("long", "int", "long, not INT"), ("long", "double", "long, not DOUBLE"), ("float", "double", ""),
        ("double", "float", "double, not FLOAT"), ("string", "binary", "string, not BINARY"),
        (["null", "int"], "int", ""),
        (["int", "string"], "string", "a union of int, string, not STRING"), ("null", "int", "null, not INT"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "bigint", "timestamp-millis, not BIGINT"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp", "long, not TIMESTAMP"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint", ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, "decimal(8,2)", ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, "decimal(9,3)", ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, "decimal(8,3)",
         "decimal(8,2), not DECIMAL(8,3)"),
        ({"type": "array", "items": "int"}, "array<bigint>", ""),
        ({"type": "array", "items": "int"}, "array<string>", "[] as int, not STRING"),
        ({"type": "map", "values": "int"}, "map<int,int>", "map of int, not MAP<INT,INT>"),
        ({"type": "map", "values": "int"}, "array<int>", "map of int, not ARRAY<INT>"),
        (record(("a", "int")), "struct<b:int>", "has no field f.b, nor a default for it"),
        (record(("a", "int")), "string", "record, not STRING"),
    ],
)  # fmt: skip
def test_a_column_must_hold_all_values_of_its_field(kind: Any, declared: str, fault: str) -> None:
    (found,) = faults(f"f:{declared}", record(("f", kind)))
    assert (fault in found) if fault else not found, found


def test_a_field_that_messages_lack_needs_a_default_in_the_newest_version_that_has_it() -> None:
    older, newer = record(("a", "int")), record(("a", "int"), ("b", "int", 3))
    without = record(("a", "int"), ("b", "int"))
    assert faults("a:int,b:int", older, newer) == ["", ""]
    assert faults("a:int,b:int", newer, without, older) == ["", "", "has no field b, nor a default for it"]
    assert faults("b:int", older) == ["has no field b, nor a default for it"]
    nested = [record(("r", record(*fields))) for fields in ([("x", "int")], [("x", "int"), ("y", "string", "")])]
    assert faults("r:struct<x:int,y:string>", *nested) == ["", ""]
    assert faults("r:struct<x:int,y:string>", *nested[::-1]) == ["", ""]


def test_names_are_found_whatever_their_case_and_by_their_alias() -> None:
    renamed = {"name": "amount", "type": "int", "aliases": ["total"]}
    newer = record() | {"fields": [renamed]}
    assert faults("AMOUNT:int", record(("total", "int")), newer) == ["", ""]
    assert faults("total:int", record(("total", "int")), newer)[1] == "has no field total, nor a default for it"


def test_a_text_that_is_no_schema_of_avro_is_a_fault_and_not_an_error() -> None:
    for text, why in (
        ("{", "is no Avro schema"), ('{"type": "record"}', "it lacks 'name'"), ('"Other"', "type Other is not defined"),
        ("7", "is no Avro schema"), ("[" * 5000 + "]" * 5000, "is no Avro schema"),
        ('{"type": "record", "name": "A", "fields": 3}', "is no Avro schema"),
    ):  # fmt: skip
        (found,) = readings("struct<a:int>", (RegisteredSchema(1, text, "t-value", 1),))
        assert why in str(found.faults[0]) and not found.reader
    assert faults("a:int", record(("a", "int")), kind="PROTOBUF") == ["is PROTOBUF, not Avro"]
    (found,) = readings("struct<a:int>", (RegisteredSchema(1, subject="t-value"),))
    assert str(found.faults[0]) == "is no version of t-value"
