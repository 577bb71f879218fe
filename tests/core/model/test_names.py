"""Names of versions and queries: each has exactly one spelling."""

import pytest

from core.model.errors import BadName
from core.model.names import interval_s, parse_statement_name, split_query, whole_number

NOT_NUMBERS = ("0", "", "²", "٣", "\uff17", "-1", "1 ", "1.5", "1_0", "9" * 19, "9" * 5000)
"""Superscripts are digits for `isdigit` but are refused by `int`. The other texts are misspelled numbers or not
numbers."""


def test_a_version_is_named_by_its_table_and_number() -> None:
    assert parse_statement_name(" Orders@V03 ") == "orders@v3"
    assert split_query("orders@v3") == ("orders", 3)
    assert split_query("landed@v0") == ("landed", 0), "the record of an external table"


@pytest.mark.parametrize("number", [each for each in NOT_NUMBERS if each != "1 "])
def test_a_version_that_is_no_number_is_refused(number: str) -> None:
    with pytest.raises(BadName, match="is not a version of a table"):
        parse_statement_name(f"a@v{number}")


@pytest.mark.parametrize("number", [*(each for each in NOT_NUMBERS if each != "0"), "03"])
def test_a_query_with_an_invalid_version_is_not_ours(number: str) -> None:
    assert split_query(f"a@v{number}") is None


@pytest.mark.parametrize("name", ["a", "@v1", "A@v1", "a b@v1", "a@v1@v2", "x" * 121 + "@v1"])
def test_a_query_with_an_invalid_table_name_is_not_ours(name: str) -> None:
    assert split_query(name) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("7", 7),
        ("00000000000000000012", 12),
        ("9" * 18, 10**18 - 1),
        *(
            (text, None)
            for text in (
                "",
                " 7",
                "7\n",
                "-1",
                "+1",
                "1_0",
                "1.0",
                "²",
                "٣",
                "\uff17",
                "\U0001d7db",
                "9" * 19,
                "9" * 5000,
            )
        ),
    ],
)
def test_an_integer_has_ascii_digits_and_fits_into_the_ledger(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_intervals_are_read_in_every_form() -> None:
    texts = ("30 seconds", "INTERVAL '2' MINUTES", "1 minute 30 seconds", "1 day")
    assert [interval_s(each) for each in texts] == [30, 120, 90, 86_400]
