"""Short phrases for people."""

import pytest

from core.text.wording import first_sentence


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("", ""),
        ("no such column", "no such column"),
        ("12 rows differ; one example follows", "12 rows differ"),
        ("[X.Y] Division by 0.5. Use try_divide.", "[X.Y] Division by 0.5"),
        ("first line\nsecond", "first line"),
        ("word " * 60, ("word " * 19).strip() + " …"),
    ],
)
def test_the_first_sentence_of_a_text_ends_at_its_full_stop_or_is_cut_between_words(text: str, first: str) -> None:
    assert first_sentence(text) == first
