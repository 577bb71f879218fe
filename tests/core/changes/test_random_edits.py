"""A few random edits of random statements: Spark does on the old checkpoint what our action promises."""

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from random_edits import pair, smaller_pairs
from random_trials import drawn, tried

from pipelines.local_pool.connect_server import LocalPool

SEED, PAIRS = 20, 20


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.long
def test_spark_does_what_our_action_for_a_random_edit_promises(pool: LocalPool, tmp_path: Path) -> None:
    """`tests/drills/random_edits.py` tries hundreds of edits, and shrinks and prints unsafe ones."""
    found = tried(pool, tmp_path / "pairs", drawn(SEED, range(PAIRS)))
    assert [(each.trial.edit.name, each.trial.outcome) for each in found if each.unsafe] == []
    assert sum(each.kind != "not run" and each.wrote for each in found) > PAIRS // 2


def test_a_pair_is_the_same_each_time_it_is_drawn() -> None:
    assert [pair(Random(f"1/{number}"))[1] for number in range(5)] == [edit for _, _, edit in drawn(1, range(5))]


def test_a_pair_holds_an_edit_and_a_smaller_one_holds_it_too() -> None:
    # In pair 11 of seed 6, the edit changes the value of a column, and classifying that requires the table's DDL.
    for _, found, edit in (*drawn(2, range(5)), *drawn(6, (11,))):
        assert edit.old.texts != edit.new.texts
        for each in islice(smaller_pairs(found), 60):
            assert each.kind == found.kind
            assert each.edit is None or each.edit.old.texts != each.edit.new.texts
