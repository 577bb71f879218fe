"""Conflicts between the columns of two versions of a topic, whose messages have names in one case."""

import pytest
from schema_readers import ddl_of

from core.changes.schema_compatibility import Direction, Incompatibility, columns_in, conflicts

TOPIC = "kafka OPTIONS ('kafka.bootstrap.servers'='localhost:1', 'topic'='a')"
BOTH = {
    (Direction.BACKWARD, Incompatibility.ADDED_NOT_NULL),
    (Direction.FORWARD, Incompatibility.DROPPED_NOT_NULL),
}


@pytest.mark.parametrize(
    ("format", "null", "broken"), [("parquet", "NOT NULL", set()), (TOPIC, "NOT NULL", BOTH), (TOPIC, "", set())]
)
def test_a_column_in_capitals_is_another_field_of_a_message(
    format: str, null: str, broken: set[tuple[Direction, Incompatibility]]
) -> None:
    old, new = (columns_in(ddl_of(f"id INT, {name} INT {null}", format)) for name in ("must", "MUST"))
    assert {(each.direction, each.why.kind) for each in conflicts(old, new)} == broken
