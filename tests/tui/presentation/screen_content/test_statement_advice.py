"""The verdict tells faults from trends, and how old the data of a starved statement is."""

from dataclasses import replace

from tests.terminal.in_memory_backend import FakeBackend
from tests.terminal.pizzeria_values import NOW
from tui.presentation.screen_content.statement_advice import advise
from tui.presentation.screen_content.statement_rows import RowContext
from tui.presentation.styling.glyphs import UNICODE
from tui.presentation.styling.styled_text import Tone
from tui.presentation.view.ledger_view import make_ledger_view


def verdict(why: str = "", **fields: object) -> tuple[str, Tone]:
    backend = FakeBackend()
    backend.change("till", at=NOW, **fields)
    view = make_ledger_view(backend.current)
    till = view.statements["till"]
    known = till.line.measurement
    assert known is not None
    return advise(till, replace(known, fault_why=why), view, RowContext(UNICODE, NOW))


def test_a_growing_lag_alone_is_no_alarm_and_time_beyond_the_objective_is() -> None:
    words, tone = verdict(trend="growing", rate_rows_s=2.0)
    assert words.startswith("Input arrives faster") and tone is Tone.CHANGING
    words, tone = verdict("6m behind, the objective is 1m", trend="growing", rate_rows_s=2.0, fault="behind")
    assert "longer than its objective: 6m behind, the objective is 1m. Input arrives faster" in words
    assert tone is Tone.BAD


def test_a_statement_behind_its_objective_never_keeps_up() -> None:
    assert "keeps up" in verdict(trend="steady")[0]
    words, tone = verdict(trend="steady", fault="behind")
    assert "keeps up" not in words and tone is Tone.BAD


def test_a_starved_statement_says_how_old_its_data_is() -> None:
    words, tone = verdict(trend="starved", fault="starved", data_age_s=200.0)
    assert "Its newest data is 3m 20s old." in words and tone is Tone.BAD
