"""Values by type: accepted forms, refusals with an example, and a round trip."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from core.project_reader.yaml_reader import read_value
from core.statement_tests.typed_values import (
    BadValue,
    can_be_written,
    canonical_value,
    decoded_value,
    encoded_value,
    typed_value,
    value_of_cell,
    written_value,
)

GOOD: list[tuple[str, str, object]] = [
    ("tinyint", "-128", -128),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("decimal(38,10)", "1234567890123456789012345678.0000000001", Decimal("1234567890123456789012345678.0000000001")),
    ("decimal(2,2)", "0.5", Decimal("0.50")),
    ("float", "0.1", 0.10000000149011612),
    ("double", "-2e3", -2000.0),
    ("double", "inf", float("inf")),
    ("boolean", "true", True),
    ("string", "1e3", "1e3"),
    ("varchar(3)", "abc", "abc"),
    ("date", "2026-01-31", date(2026, 1, 31)),
    ("timestamp", "2026-01-31T18:00:00.000001+02:00", datetime(2026, 1, 31, 16, 0, 0, 1, tzinfo=UTC)),
    ("timestamp", "2026-01-31 18:00:00", datetime(2026, 1, 31, 18, tzinfo=UTC)),
    ("timestamp_ntz", "2026-01-31T18:00:00", datetime(2026, 1, 31, 18)),
    ("binary", "00ff", b"\x00\xff"),
    ("array<string>", "[a, 'b\\c', null]", ("a", "b\\c", None)),
    ("map<string,int>", "{b: 1, a: 2}", (("a", 2), ("b", 1))),
    ("struct<x:int,y:array<date>>", "{Y: [2026-01-31]}", (None, (date(2026, 1, 31),))),
]


@pytest.mark.parametrize(("kind", "text", "value"), GOOD)
def test_a_value_is_read_by_its_type_and_survives_a_round_trip(kind: str, text: str, value: object) -> None:
    read = read_value(text)
    assert read is not None and typed_value(read, kind) == value
    again = read_value(f"[{written_value(value, kind)}]")
    assert again is not None and again.items is not None
    assert typed_value(again.items[0], kind) == value
    assert value_of_cell(text, kind) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("tinyint", "128"), ("int", "1.0"), ("int", "\uff11"), ("decimal(4,2)", "100"), ("decimal(4,2)", "1.234"),
        ("double", "1,5"), ("float", "1e40"), ("boolean", "yes"), ("date", "31.01.2026"), ("binary", "0g"),
        ("timestamp", "2026-01-31T18:00:00.1234567"), ("timestamp_ntz", "2026-01-31T18:00:00Z"),
        ("array<int>", "1"), ("map<string,int>", "[1]"), ("struct<x:int>", "{z: 1}"), ("int", "[1]"),
        ("variant", "1"), ("interval day", "1"),
    ],
)  # fmt: skip
def test_invalid_values_of_a_type_are_refused(kind: str, text: str) -> None:
    read = read_value(text)
    assert read is not None
    with pytest.raises(BadValue):
        typed_value(read, kind)


def test_types_that_no_fixture_can_hold_are_known_even_if_nested() -> None:
    assert can_be_written("array<struct<x:decimal(3,1),y:map<string,timestamp>>>")
    assert not can_be_written("array<struct<x:variant>>")


def test_values_from_arrow_are_normalised() -> None:
    moment = datetime(2026, 1, 31, 18, tzinfo=UTC)
    kind = "struct<x:map<string,int>,y:array<timestamp>>"
    assert canonical_value({"x": [("b", 1), ("a", 2)], "y": [moment, None]}, kind) == (
        (("a", 2), ("b", 1)),
        (moment, None),
    )


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "string"), ("null", "string"), ('a "b"\n', "string"), (True, "boolean"), (-7, "bigint"), (0.1, "double"),
        (Decimal("1.50"), "decimal(5,2)"), (b"\x00\xff", "binary"), (date(2026, 1, 2), "date"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "timestamp"), (datetime(2026, 1, 2, 3, 4), "timestamp_ntz"),
        ((1, None), "array<int>"), ((("k", ("x",)),), "map<string,array<string>>"),
        ((None, "n"), "struct<a:int,b:string>"),
    ],
)  # fmt: skip
def test_a_value_survives_its_way_to_another_process(value: object, kind: str) -> None:
    assert decoded_value(encoded_value(value, kind), kind) == value
