"""What Review says of Spark's opinion; the rest of it is in test_presentation."""

from dataclasses import replace

import pytest

from core.plan import Action
from tests.terminal.fake import sample_plan
from tui.presentation.glyphs import ASCII
from tui.presentation.review import node_row, why
from tui.presentation.text import plain


@pytest.mark.parametrize(
    "confirmed, words",
    [
        (True, "confirmed by Spark"),
        (None, "not confirmed by Spark"),
        (False, "Spark reads it otherwise, so it is treated as the worst"),
    ],
)
def test_review_says_what_spark_makes_of_a_statement(confirmed: bool | None, words: str) -> None:
    node = next(node for node in sample_plan().nodes if node.action is Action.REBUILD)
    seen = replace(
        node,
        texts=replace(node.texts, dml="INSERT INTO t SELECT 2"),
        confirmed_by_spark=confirmed,
        classified=confirmed is not False,
        evidence=("Spark disagrees: it reads a",) if confirmed is False else (),
    )
    told = [plain(line).strip() for line in why(1, seen, 80, ASCII, full=False)]
    assert words in told
    assert ("Spark disagrees: it reads a" in told) is (confirmed is False)
    assert ("Spark disagrees" in plain(node_row(1, seen, 100))) is (confirmed is False)
