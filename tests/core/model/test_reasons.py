"""Reasons: each has a text for people, and plan documents hold its name."""

from core.model.reasons import Reason


def test_texts_use_the_terms_of_the_field_and_say_nothing_twice() -> None:
    words = [str(reason.words) for reason in Reason]
    assert len(set(words)) == len(words)
    assert not any("parent" in text or "asked" in text for text in words)


def test_a_reason_is_a_clause_with_a_subject() -> None:
    assert Reason.COLD_PARENT.clause == "it is not running and is read by tables of this plan"
    assert Reason.ASKED.clause == "a rebuild was requested"
    assert Reason.AT_REST.clause == "it was stopped on purpose and is not part of the request"


def test_a_reason_is_read_by_its_name() -> None:
    assert [Reason(reason.name.lower()) for reason in Reason] == list(Reason)
