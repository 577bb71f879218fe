"""Answers of the agent are read by people as words, never as JSON."""

import pytest

from state.row_types import CommandRow
from tui.presentation.reports.agent_answers import detail_words
from tui.presentation.screen_content.audit_log_events import command_text
from tui.presentation.styling.styled_text import plain


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ("a stopped in 12 ms", "a stopped in 12 ms"),
        ('{"run": "7f3a", "steps": 3}', "run 7f3a started"),
        ('{"hash": "0123456789abcdef", "confirm": "yes"}', "plan 0123456789ab"),
        ('{"staged": ["a"]}', ""),
        ("another run is open", "another run is open"),
        ("", ""),
    ],
)
def test_an_answer_is_written_in_words_and_a_reason_as_it_is(detail: str, words: str) -> None:
    assert detail_words(detail) == words


def test_the_pane_of_the_log_shows_no_json() -> None:
    detail = '{"run": "7f3a", "steps": 3}'
    row = CommandRow(1, 50.0, "bob", "apply", "a", "headgate apply a", "accepted", detail=detail, took_ms=12)
    text = "\n".join(map(plain, command_text(row, 100)))
    assert "run 7f3a started" in text and "{" not in text
