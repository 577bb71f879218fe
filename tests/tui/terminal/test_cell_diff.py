"""The cell diff: after any frames, the terminal shows the intended picture, and unchanged cells are not sent."""

import pyte
import pytest
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.presentation.styling.styled_text import Tone, line
from tui.presentation.styling.theme import BY_NAME, DARK, Paint
from tui.terminal.cell_diff import PLAIN, CellStyle, ShadowScreen, cell_style_of_paint, put_line

WIDTH, HEIGHT = 12, 4
NASTY = "ab ●▲日é\u0301\u20e3\ufe0f\u26a0\u200d\U0001f468\U0001f3fd\U0001f1e9\u0e31\u0939\u093f\u1112\u1161\u2630"
"""Characters with and without emoji selectors, marks, joiners, skin tones, flags, Thai, Hindi, and Hangul parts."""
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
    st.text(alphabet=NASTY, max_size=WIDTH),
    st.sampled_from(LOOKS),
)


def terminal(width: int, height: int) -> pyte.Screen:
    """Return a terminal without automatic wrapping: pyte wraps before a combining mark, real terminals do not."""
    screen = pyte.Screen(width, height)
    screen.reset_mode(pyte.modes.DECAWM)
    return screen


def shown(screen: pyte.Screen) -> list[str]:
    return [row.rstrip() for row in screen.display]


@example([[], [(0, 0, "a", LOOKS[3]), (0, 1, "a", PLAIN), (9, 3, "aaa\u0e31", LOOKS[3])]])
@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.lists(PIECES, max_size=6), min_size=1, max_size=4))
def test_a_terminal_fed_with_differences_shows_what_one_fed_with_everything_shows(frames) -> None:
    shadow, screen = ShadowScreen(WIDTH, HEIGHT), terminal(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    for frame in frames:
        for x, y, text, look in frame:
            shadow.put(x, y, [(text, look)], WIDTH)
        stream.feed(shadow.flush())
    whole = terminal(WIDTH, HEIGHT)
    shadow.forget()
    pyte.Stream(whole).feed(shadow.flush())
    assert shown(screen) == shown(whole)
    for y in range(HEIGHT):
        for x in range(WIDTH):
            left, right = screen.buffer[y][x], whole.buffer[y][x]
            # A blank shows only its background.
            if left.data.strip():
                assert left == right
            else:
                assert (left.bg, left.reverse, left.underscore) == (right.bg, right.reverse, right.underscore)


def test_a_row_of_alternating_looks_is_drawn_in_place() -> None:
    shadow, screen = ShadowScreen(60, 1), pyte.Screen(60, 1)
    stream = pyte.Stream(screen)
    for words in ("one two three four five six", "six five four three two one"):
        x = 0
        for at, word in enumerate(words.split()):
            shadow.put(x, 0, [(f"{word} ", LOOKS[1 + at % 2])], 60)
            x += len(word) + 1
        stream.feed(shadow.flush())
        assert shown(screen) == [words]


def test_a_blank_between_words_is_written_if_moving_the_cursor_takes_more_bytes() -> None:
    shadow = ShadowScreen(60, 1)
    for words in ("one two", "ONE TWO"):
        shadow.put(0, 0, [(f"{words}        ", look) for look in (LOOKS[2], LOOKS[1]) * 2], 60)
        sent = shadow.flush()
    assert sent.count("ONE TWO") == 4


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


NAMES = {
    "a sign as an emoji": "\u26a0\ufe0f",
    "a combining mark": "cafe\u0301",
    "a mark that has no letter of its own": "x\u0301",
    "Chinese": "\u8ba2\u5355",
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "a skin tone": "\U0001f44d\U0001f3fd",
    "a flag": "\U0001f1e9\U0001f1ea",
    "a key": "1\ufe0f\u20e3",
    "Hindi": "\u0939\u093f\u0928\u094d\u0926\u0940",
    "Hangul in parts": "\u1112\u1161\u11ab",
    "a sign that became wide": "\u2630",
    "a mark alone": "\u0301",
    "a joiner alone": "\u200d",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("edge", [0, 1, 2])
def test_neighbouring_text_stays_in_its_column(name: str, edge: int) -> None:
    """The text is rendered by Textual's own widgets; columns are counted as Textual counts them."""
    text = NAMES[name]
    column = cell_len(text)
    width = column + 1 + edge
    shadow, screen = ShadowScreen(width, 2), pyte.Screen(width, 2)
    stream = pyte.Stream(screen)
    for sign in "|#":
        shadow.put(0, 0, [(text, PLAIN), (sign * (1 + edge), CellStyle("31"))], width)
        shadow.put(0, 1, [("next", PLAIN)], width)
        stream.feed(shadow.flush())
        assert [screen.buffer[0][column + n].data for n in range(1 + edge)] == [sign] * (1 + edge)
        assert screen.display[1].startswith("next"[:width])


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_cut_at_the_edge_leaves_no_remains_of_the_previous_frame(name: str) -> None:
    for room in range(5):
        shadow = ShadowScreen(6, 1)
        shadow.put(0, 0, [("######", PLAIN)], 6)
        shadow.put(0, 0, [(NAMES[name], PLAIN), (" " * 6, PLAIN)], room)
        assert "".join(cell[0] for cell in shadow.wanted[0]).endswith("#" * (6 - room))
        assert "#" not in "".join(cell[0] for cell in shadow.wanted[0][:room])


def test_the_cursor_position_is_sent_again_after_a_combining_mark() -> None:
    shadow = ShadowScreen(6, 1)
    shadow.put(0, 0, [("x\u0301y", PLAIN)], 3)
    assert "x\u0301\x1b[1;2Hy" in shadow.flush()


def test_every_palette_has_a_look_for_every_tone_on_every_ground() -> None:
    for palette in BY_NAME.values():
        for tone in Tone:
            for chosen in (False, True):
                cell_style_of_paint(palette.paint(tone, chosen=chosen, band=not chosen))
    assert cell_style_of_paint(Paint(fg=1, bg=9, bold=True)) == CellStyle("31", "101", ("1",))


def test_a_chosen_row_has_one_ground_under_every_tone() -> None:
    of_environments = {Tone.PROTECTED, Tone.RED, Tone.AMBER, Tone.GREEN, Tone.BLUE}
    grounds = {DARK.paint(tone, chosen=True).bg for tone in Tone if tone not in of_environments}
    assert grounds == {24}


def test_lines_of_tones_end_at_the_edge() -> None:
    shadow = ShadowScreen(5, 1)
    put_line(shadow, DARK, 0, line("abcdefgh"))
    assert "".join(cell[0] for cell in shadow.wanted[0]) == "abcde"
