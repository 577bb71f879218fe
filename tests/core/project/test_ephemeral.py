"""The record of an ephemeral environment, and what is said of its end."""

import pytest

from core.model.errors import UsageError
from core.project.ephemeral import EphemeralRecord, Remains, Teardown, record_from_text

RECORD = EphemeralRecord("it_1", "p", "/branch", "dev", "headgate test", 5.0, "alice", "sc://127.0.0.1:1")


def test_a_record_is_read_as_written_and_a_damaged_one_is_refused() -> None:
    assert record_from_text(RECORD.as_text()) == RECORD
    for damaged in ("", "[]", '{"project": "p"}', RECORD.as_text()[:-3]):
        with pytest.raises(UsageError):
            record_from_text(damaged)


def test_the_end_of_an_environment_says_what_was_checked_or_what_is_left() -> None:
    gone = Teardown("it_1", ("agent (pid 7)",), "/e/it_1", "sc://127.0.0.1:1")
    words = "it_1 is gone: no process of its own, no folder, no socket, no name in the catalog of sc://127.0.0.1:1"
    assert gone.words() == f"{words} (ended agent (pid 7))"
    left = Teardown("it_1", (), "/e/it_1", left=(Remains.NAMES.of(names=("it_1_a", "it_1_b"), server="sc://h:1"),))
    assert left.words() == "it_1 is not completely gone: it_1_a, it_1_b still in the catalog of sc://h:1"
