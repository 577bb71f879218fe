"""What a comparison of two versions expects besides the edits: rows that a seam has left, and parts."""

from typing import Any

import pytest
from ledger_rows import deployment_row

from core.model.names import TableName
from core.project.revision import RevisionTexts
from core.sql.comparison.row_effects import RowSide
from pipelines.agent.context import AgentContext
from pipelines.agent.runs.version_comparison import _of_release

TEXTS = RevisionTexts(ddl="CREATE TABLE a (id INT) USING parquet", dml="INSERT INTO a SELECT id FROM STREAM raw")


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({}, ""),
        ({"older_rows": "rows that came of raw@v1"}, "a@v1 holds rows that came of raw@v1"),
        ({"begins_after": "batch 7 of a@v0"}, "a@v1 begins with what follows batch 7 of a@v0"),
        ({"begins_where": ("raw.ts >= 1",)}, "a@v1 begins with raw.ts >= 1"),
    ],
)
def test_what_the_serving_version_holds_besides_its_text_may_differ_in_any_way(
    known: dict[str, Any], words: str, world: AgentContext
) -> None:
    old, new = (
        deployment_row(table=TableName("a"), version=n, revision="r", texts=TEXTS, **more)
        for n, more in ((1, known), (2, {}))
    )
    expected = _of_release(world, {}, old, new)
    assert {row.why for row in expected.rows} == ({words} if words else set())
    assert {row.side for row in expected.rows} == ({*RowSide} if words else set()) and not expected.anything
