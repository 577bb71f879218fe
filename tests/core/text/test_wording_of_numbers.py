"""Ranges of durations and counts as people read them."""

import pytest

from core.text.wording import counted, duration_range, without_numbers


@pytest.mark.parametrize(
    ("low_s", "high_s", "words"),
    [
        (0.2, 4.6, "up to 5 s"),
        (0.0, 0.0, "up to 1 s"),
        (5.2, 19.1, "5\N{EN DASH}20 s"),
        (7.0, 7.0, "7 s"),
        (40.0, 230.0, "up to 4 min"),
        (121.0, 230.0, "2\N{EN DASH}4 min"),
        (3700.0, 9000.0, "1\N{EN DASH}3 h"),
    ],
)
def test_a_range_has_one_unit_and_is_never_narrowed(low_s: float, high_s: float, words: str) -> None:
    assert duration_range(low_s, high_s) == words


def test_large_counts_are_grouped_by_thousands() -> None:
    assert [counted(number, "file") for number in (1, 999, 9122)] == ["1 file", "999 files", "9,122 files"]
    assert without_numbers(counted(9122, "file")) == without_numbers(counted(999, "file"))
