"""The console in a pseudo-terminal: bytes on the wire, broken input, lost terminals."""

import os
import re
import signal

import pytest
from wcwidth import wcwidth

from tests.terminal.pseudo_terminal import Terminal, console
from tui.presentation.styling.styled_text import clean
from tui.screens.home import RESTS_S

pytestmark = pytest.mark.terminal

SIZES = pytest.mark.parametrize(("width", "height", "bound"), [(80, 24, 10_000), (200, 60, 32_000)])


def ready(terminal: Terminal) -> None:
    """Wait for the first frame, and until the application behind it is ready."""
    terminal.wait(lambda text: "? keys" in text)
    terminal.wait(lambda _: b"\x1b[?2004h" in terminal.raw)
    terminal.quiet()


def all_open(terminal: Terminal) -> None:
    """Wait like `ready`, then open every branch of the tree."""
    ready(terminal)
    while "all branches open" not in terminal.text():
        before = terminal.received
        terminal.send("z")
        terminal.wait(lambda _, before=before: terminal.received > before)  # type: ignore[misc]  # Bound at once.
        terminal.quiet()


@SIZES
def test_the_first_paint_stays_within_its_bytes_and_is_not_sent_twice(width: int, height: int, bound: int) -> None:
    with console(width, height, "--still") as terminal:
        ready(terminal)
        assert terminal.received <= bound
        # Every visible row is sent once, so Textual's later drawing sends next to nothing.
        assert terminal.raw.count(b"order_items") <= (1 if width < 160 else 6)


@pytest.mark.sampled
@SIZES
def test_nothing_is_sent_while_nothing_changes(width: int, height: int, bound: int) -> None:
    with console(width, height, "--still") as terminal:
        ready(terminal)
        # Ages advance in steps of ten seconds; between two steps, nothing is sent.
        assert terminal.quiet(5.0)


@pytest.mark.sampled
@pytest.mark.parametrize(("width", "height", "bound"), [(80, 24, 1_000), (200, 60, 2_200)])
def test_a_cursor_key_stays_within_its_bytes(width: int, height: int, bound: int) -> None:
    """On a wide terminal, the inspector follows the cursor, so its sheet counts too, above all a failed statement's."""
    with console(width, height, "--still") as terminal:
        ready(terminal)
        for _ in range(24):
            before = terminal.received
            terminal.send("j")
            terminal.wait(lambda text, before=before: terminal.received > before)
            terminal.quiet(RESTS_S + 0.6 if width >= 160 else 0.4)
            assert terminal.received - before <= bound


@pytest.mark.sampled
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60)])
def test_the_end_of_a_dialog_stays_within_its_bytes(width: int, height: int) -> None:
    with console(width, height, "--still") as terminal:
        ready(terminal)
        terminal.send("jjjjjjjj")
        terminal.quiet(RESTS_S + 0.6)
        terminal.send("T")
        terminal.wait(lambda text: "STOP " in text)
        terminal.quiet()
        before = terminal.received
        terminal.send("\x1b")
        terminal.wait(lambda text: "type yes" not in text)
        terminal.quiet()
        assert terminal.received - before <= 2000


ALSO_LONG = (pytest.mark.drill, pytest.mark.long)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("t\u26a0\ufe0f", id="emoji"),
        pytest.param("cafe\u0301", id="mark"),
        pytest.param("tx\u0301", id="mark alone", marks=ALSO_LONG),
        pytest.param("\u8ba2\u5355", id="wide", marks=ALSO_LONG),
        pytest.param("t\U0001f468\u200d\U0001f469", id="joined"),
        pytest.param("t\U0001f1e9\U0001f1ea", id="flag", marks=ALSO_LONG),
        pytest.param("t\u0939\u093f", id="spacing mark", marks=ALSO_LONG),
    ],
)
def test_a_name_in_any_script_shifts_nothing_beside_it(name: str) -> None:
    """pyte may draw the name differently from other terminals, so only its surroundings are compared."""
    with console(120, 30, "--still", "--clients", name) as terminal:
        all_open(terminal)
        for key in "jjjkjkjkk":
            terminal.send(key)
            terminal.quiet(0.2)
        terminal.quiet(RESTS_S + 0.6)
        drawn = terminal.text()
        rows = [row for row in drawn.splitlines() if " 182k " in row]
        assert any(clean(name) in row for row in rows), drawn
        assert len(rows) == 9 and len({cells_before(row, " 182k ") for row in rows}) == 1, drawn
        terminal.screen.reset()
        terminal.resize(119, 30)
        terminal.quiet()
        terminal.resize(120, 30)
        terminal.quiet()
        assert terminal.text() == drawn


def cells_before(row: str, word: str) -> int:
    return sum(max(wcwidth(char), 0) for char in row.partition(word)[0])


def test_a_dialog_opens_within_two_kilobytes() -> None:
    with console(80, 24, "--still") as terminal:
        all_open(terminal)
        terminal.send("jjjj")
        terminal.quiet()
        before = terminal.received
        terminal.send("T")
        terminal.wait(lambda text: "STOP clients" in text)
        terminal.quiet()
        assert terminal.received - before <= 2000


def test_a_closed_terminal_ends_the_process() -> None:
    with console(80, 24) as terminal:
        ready(terminal)
        terminal.hang_up()
        assert terminal.ends()


def test_a_hang_up_signal_ends_the_process() -> None:
    with console(80, 24) as terminal:
        ready(terminal)
        os.kill(terminal.pid, signal.SIGHUP)
        assert terminal.ends()


def test_q_gives_the_terminal_back_and_exits_with_zero() -> None:
    with console(80, 24) as terminal:
        ready(terminal)
        terminal.send("q")
        assert terminal.ends()
        assert terminal.status == 0
        assert terminal.raw.rstrip().endswith(b"calls [], prod []")
        assert b"\x1b[?1049l" in terminal.raw
        assert b"\x1b[?25h" in terminal.raw
        assert terminal.raw.count(b"\x1b[?1049h") == 1


@pytest.mark.sampled
@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_be_drawn_on_is_refused_with_a_sentence(term: str) -> None:
    with console(80, 24, environ={"TERM": term}) as terminal:
        assert terminal.ends()
        assert "headgate ls" in terminal.text()
        assert b"\x1b[" not in terminal.raw
        assert terminal.status == 2


def test_no_color_sends_no_colour() -> None:
    with console(80, 24, "--still", environ={"NO_COLOR": "1"}) as terminal:
        ready(terminal)
        assert not re.search(rb"\x1b\[[0-9;]*(?:3[0-7]|4[0-7]|38|48|9[0-7])[;m]", bytes(terminal.raw))


def test_sixteen_colours_are_enough() -> None:
    with console(80, 24, "--still", environ={"TERM": "xterm", "COLORTERM": ""}) as terminal:
        ready(terminal)
        assert b"38;5;" not in terminal.raw
        assert b"\x1b[1;31m" in terminal.raw
        assert "failed" in terminal.text()


def test_a_locale_without_utf_8_gets_ascii_alone() -> None:
    with console(80, 24, "--still", environ={"LANG": "C", "LC_ALL": "C"}) as terminal:
        ready(terminal)
        assert terminal.raw.isascii()


def test_a_terminal_that_shrinks_and_grows_is_drawn_again() -> None:
    with console(80, 24, "--still") as terminal:
        ready(terminal)
        whole = body(terminal.text())
        terminal.resize(40, 10)
        terminal.wait(lambda text: "needs 80x24" in text)
        terminal.resize(80, 24)
        terminal.wait(lambda text: body(text) == whole)


def body(text: str) -> list[str]:
    """Return the text between the first line, which shows the age of the data, and the status line."""
    return text.splitlines()[1:-2]


SPLITS = [
    ("left", "\x1b[D", 1), ("left", "\x1b[D", 2), ("right in application mode", "\x1bOC", 1), ("f3",
    "\x1bOR", 1), ("f3", "\x1bOR", 2),
    ("mode report", "\x1b[?2026;2$y", 1), ("mode report", "\x1b[?2026;2$y", 6), ("paste",
    "\x1b[200~TXyes\r\x1b[201~", 1),
    ("paste", "\x1b[200~TXyes\r\x1b[201~", 3), ("paste", "\x1b[200~TXyes\r\x1b[201~", 14),
]  # fmt: skip


@pytest.mark.parametrize(
    "gap",
    [0.05, pytest.param(0.3, marks=pytest.mark.drill), pytest.param(1.5, marks=(pytest.mark.drill, pytest.mark.long))],
)
def test_broken_sequences_stage_confirm_and_send_nothing(gap: float) -> None:
    with console(80, 24) as terminal:
        ready(terminal)
        terminal.send("jjjj")
        for _, sequence, place in SPLITS:
            terminal.send(sequence[:place])
            terminal.pump(gap)
            terminal.send(sequence[place:])
            terminal.pump(0.2)
        # The sequences must not answer an open dialog either.
        terminal.send("T")
        terminal.wait(lambda text: "STOP " in text)
        for _, sequence, place in SPLITS:
            terminal.send(sequence[:place])
            terminal.pump(gap)
            terminal.send(sequence[place:])
            terminal.pump(0.2)
        for key in ("\x1b", "\x1b", "q"):
            terminal.send(key)
            terminal.quiet()
        terminal.send("q")
        assert terminal.ends()
        assert b"calls []" in terminal.raw


def test_a_key_that_opens_a_screen_is_not_said_to_change_nothing() -> None:
    with console(80, 24, "--still") as terminal:
        ready(terminal)
        terminal.send("jjjc")
        terminal.wait(lambda text: "began to serve" in text)
        terminal.quiet()
        assert "no change" not in terminal.text()


@pytest.mark.sampled
@SIZES
def test_several_environments_stay_within_the_bytes_of_one(width: int, height: int, bound: int) -> None:
    with console(width, height, "--still", "--several") as terminal:
        terminal.wait(lambda text: "[ dev ! 2 ]  PROD protected ! 2   stage ?" in text)
        ready(terminal)
        assert terminal.received <= bound
        assert terminal.quiet(5.0)
        before = terminal.received
        terminal.send("n")
        terminal.wait(lambda text: "[ PROD protected ! 2 ]" in text)
        terminal.quiet()
        # The two environments of this test look alike, so that a switch sends little else than the first line.
        assert terminal.received - before <= bound / 4


def test_what_is_typed_for_one_environment_never_reaches_the_other() -> None:
    with console(80, 24, "--still", "--several") as terminal:
        terminal.wait(lambda text: "stage ?" in text)
        ready(terminal)
        terminal.send(":env prod\r")
        terminal.wait(lambda text: "[ PROD protected ! 2 ]" in text)
        terminal.quiet()
        terminal.send(":stop till\r")
        terminal.wait(lambda text: "in pizzeria PROD protected" in text)
        terminal.quiet(0.6)
        terminal.send("till")
        terminal.wait(lambda text: "stop:  till" in text)
        terminal.quiet()
        terminal.send("\r")
        terminal.wait(lambda text: "stop: till stopped" in text)
        terminal.send("nq")
        assert terminal.ends()
        assert b"calls [], prod [('stop', ('till',), 'till')]" in terminal.raw
