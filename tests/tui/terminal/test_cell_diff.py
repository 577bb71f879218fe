"""The cell diff: what a terminal shows after any frames is what was wanted, and unchanged cells are not sent."""

import pyte
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.presentation.styling.palette import BY_NAME, DARK, Paint
from tui.presentation.styling.styled_text import Tone, line
from tui.terminal.cell_diff import PLAIN, CellStyle, ShadowScreen, cell_style_of_paint, put_line

WIDTH, HEIGHT = 12, 4
LOOKS = (
    PLAIN,
    CellStyle("31", "49", ("1",)),
    CellStyle("38;5;117", "48;5;234"),
    CellStyle("39", "44", ("7",)),
    CellStyle("32", "49", ("4",)),
)
PIECES = st.tuples(
    st.integers(0, WIDTH - 1),
    st.integers(0, HEIGHT - 1),
    st.text(alphabet="ab ●▲日é", max_size=WIDTH),
    st.sampled_from(LOOKS),
)


def shown(screen: pyte.Screen) -> list[str]:
    return [row.rstrip() for row in screen.display]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=6), min_size=1, max_size=4))
def test_a_terminal_fed_with_differences_shows_what_one_fed_with_everything_shows(frames) -> None:
    shadow, screen = ShadowScreen(WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    for frame in frames:
        for x, y, text, look in frame:
            shadow.put(x, y, [(text, look)], WIDTH)
        stream.feed(shadow.flush())
    whole = pyte.Screen(WIDTH, HEIGHT)
    shadow.forget()
    pyte.Stream(whole).feed(shadow.flush())
    assert shown(screen) == shown(whole)
    for y in range(HEIGHT):
        for x in range(WIDTH):
            left, right = screen.buffer[y][x], whole.buffer[y][x]
            # A blank shows its ground alone.
            if left.data.strip():
                assert left == right
            else:
                assert (left.bg, left.reverse, left.underscore) == (right.bg, right.reverse, right.underscore)


def test_nothing_is_sent_when_nothing_changed() -> None:
    shadow = ShadowScreen(20, 2)
    shadow.put(0, 0, [("orders", PLAIN)], 20)
    assert shadow.flush()
    shadow.put(0, 0, [("orders", PLAIN)], 20)
    assert shadow.flush() == ""


def test_one_changed_digit_costs_a_few_bytes() -> None:
    shadow = ShadowScreen(80, 24)
    shadow.put(0, 5, [("orders  lag 1200", PLAIN)], 80)
    shadow.flush()
    shadow.put(0, 5, [("orders  lag 1201", PLAIN)], 80)
    assert shadow.flush() == "\x1b[6;16H1"


def test_half_of_a_wide_character_is_never_left_standing() -> None:
    shadow, screen = ShadowScreen(6, 1), pyte.Screen(6, 1)
    stream = pyte.Stream(screen)
    shadow.put(0, 0, [("日本", PLAIN)], 6)
    stream.feed(shadow.flush())
    shadow.put(1, 0, [("x", PLAIN)], 6)
    stream.feed(shadow.flush())
    assert screen.display[0].startswith(" x本")


def test_every_palette_has_a_look_for_every_tone_on_every_ground() -> None:
    for palette in BY_NAME.values():
        for tone in Tone:
            for chosen in (False, True):
                cell_style_of_paint(palette.paint(tone, chosen=chosen, band=not chosen))
    assert cell_style_of_paint(Paint(fg=1, bg=9, bold=True)) == CellStyle("31", "101", ("1",))


def test_a_chosen_row_has_one_ground_under_every_tone() -> None:
    grounds = {DARK.paint(tone, chosen=True).bg for tone in Tone if tone is not Tone.PROTECTED}
    assert grounds == {24}


def test_lines_of_tones_end_at_the_edge() -> None:
    shadow = ShadowScreen(5, 1)
    put_line(shadow, DARK, 0, line("abcdefgh"))
    assert "".join(cell[0] for cell in shadow.wanted[0]) == "abcde"
