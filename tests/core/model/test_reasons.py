"""Reasons: what plan documents hold never changes, and people read something for each."""

import hashlib

from core.model.reasons import Reason, because, reason_words


def test_the_values_in_plan_documents_are_those_of_every_ledger() -> None:
    values = "\n".join(f"{reason.name}={reason.value}" for reason in Reason)
    assert hashlib.sha256(values.encode()).hexdigest()[:12] == "7d64e82d4e66"


def test_people_read_words_of_the_field_and_nothing_twice() -> None:
    words = [reason_words(reason) for reason in Reason]
    assert len(set(words)) == len(words)
    assert not any("parent" in text or "asked" in text for text in words)


def test_a_reason_is_a_clause_with_a_subject() -> None:
    assert because(Reason.COLD_PARENT) == "it is not running and is read by tables of this plan"
    assert because(Reason.ASKED) == "a rebuild was requested"
    assert because(Reason.AT_REST) == "it was stopped on purpose and is not part of the request"


def test_a_reason_of_another_program_is_told_as_it_stands() -> None:
    assert reason_words("runs on a moon") == "runs on a moon"
