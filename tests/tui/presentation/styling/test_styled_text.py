"""Widths of texts: our count equals Textual's, and what every terminal draws."""

import subprocess
import sys
import unicodedata
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, get_character_cell_size
from wcwidth import wcwidth

from core.text.escaping import has_control_characters
from tui.presentation.styling.styled_text import (
    cells_of,
    clean,
    crop,
    fit,
    left,
    line,
    line_width,
    plain,
    right,
    shorten,
    width_of,
)
from tui.presentation.styling.theme import UNICODE

TEXTS = st.text(
    st.sampled_from("ab \t\x1b⚠❤☺✔️‍⃣́é日本👨👩👍🏽🇩🇪ก็हिन्दी한☰\u3164\u00ad\u202e")
    | st.characters(exclude_categories=["Cs"])
)


@pytest.mark.drill
def test_every_character_is_drawn_as_wide_as_textual_and_terminals_count() -> None:
    wrong = []
    for char in map(chr, chain(range(0xD800), range(0xE000, 0x110000))):
        drawn = clean(char)
        counted = width_of(char)
        unassigned = unicodedata.category(char) == "Cn"
        # A character of one cell is counted without Rich's table of characters, which must agree.
        agrees = counted != 1 or drawn != char or get_character_cell_size(char) == 1
        if not agrees or counted != cell_len(drawn) or (not unassigned and counted != sum(map(wcwidth, drawn))):
            wrong.append((hex(ord(char)), counted, drawn))
    assert not wrong, wrong[:20]


@given(TEXTS)
def test_a_clean_text_is_as_wide_as_textual_counts(text: str) -> None:
    assert width_of(text) == cell_len(clean(text)) == sum(map(get_character_cell_size, clean(text)))
    assert clean(clean(text)) == clean(text)


@given(TEXTS, st.integers(0, 12))
def test_fitted_text_has_the_same_width_for_textual(text: str, width: int) -> None:
    assert cell_len(plain(fit(line(text), width))) == width
    assert line_width(fit(line(text, "x"), width)) == width
    assert cell_len(crop(text, width)) <= width
    assert cell_len(shorten(text, width)) <= width
    if width > 0:
        assert cell_len(left(text, width)) == cell_len(right(text, width)) == width


@given(TEXTS)
def test_a_text_has_as_many_cells_as_textual_counts(text: str) -> None:
    cells = cells_of(text)
    assert len(cells) == cell_len(text)
    for number, cell in enumerate(cells):
        behind = cells[number + 1 : number + 2]
        assert sum(map(wcwidth, cell)) == (0 if cell == "" else 2 if behind == ("",) else 1)
        assert clean(cell) == cell


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("⚠️ lag", "⚠ lag"),
        ("cafe\u0301", "café"),
        ("x\u0301y", "x\u0301y"),
        ("订单", "订单"),
        ("👨‍👩‍👧", "👨👩👧"),
        ("👍🏽", "👍"),
        ("🇩🇪", "DE"),
        ("a\x1b[31m\tb", "a [31m b"),
        ("\u202eabc", " abc"),
        ("हि", "ह\ufffd"),
    ],
)
def test_characters_of_disputed_width_are_drawn_in_an_undisputed_form(text: str, drawn: str) -> None:
    assert clean(text) == drawn


def test_our_own_glyphs_load_no_table() -> None:
    program = (
        "import sys, dataclasses\n"
        "from tui.presentation.styling import styled_text, theme\n"
        "styled_text.width_of(repr(dataclasses.astuple(theme.UNICODE)) + '≈ … · → µ é')\n"
        "print('rich' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert width_of(UNICODE.cursor) == 1


def test_no_character_that_acts_on_a_reader_is_drawn() -> None:
    acting = [char for char in map(chr, range(0x110000)) if has_control_characters(char)]
    assert {"\u202e", "\u3164", "\U000e0041"} <= set(acting)
    assert not has_control_characters("".join(clean(f"a{char}b") for char in acting))
