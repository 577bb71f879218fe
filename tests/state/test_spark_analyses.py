"""Spark's answers: stored by key, and only the latest answer per key."""

from pathlib import Path

import pytest

from state import measurements
from state.ledger import Ledger, LedgerReader


def test_answer_replaces_the_one_to_the_same_question(ledger: Ledger, path: Path) -> None:
    ledger.put_spark_analysis("k", "old", at=1.0)
    ledger.put_spark_analysis("j", "other", at=2.0)
    ledger.put_spark_analysis("k", "new", at=3.0)
    assert ledger.spark_analyses() == LedgerReader(path).spark_analyses() == {"j": "other", "k": "new"}


def test_only_the_newest_answers_are_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "ANSWERS_KEPT", 2)
    for at, key in ((5.0, "a"), (1.0, "b"), (4.0, "c")):
        ledger.put_spark_analysis(key, key, at=at)
    assert set(ledger.spark_analyses()) == {"a", "c"}
