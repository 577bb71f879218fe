"""Broken escape sequences never become keys: every sequence split at every byte, under a controlled clock."""

from collections.abc import Iterator

import pytest
from textual import _parser, events

import tui.terminal.driver
from tui.terminal.driver import KeyParser

SEQUENCES = {
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D", "home": "\x1b[H", "end": "\x1b[F",
    "left in application mode": "\x1bOD", "right in application mode": "\x1bOC", "f3": "\x1bOR", "f4": "\x1bOS",
    "keypad enter": "\x1bOM", "page up": "\x1b[5~", "page down": "\x1b[6~", "delete": "\x1b[3~", "insert": "\x1b[2~",
    "f5": "\x1b[15~", "f12": "\x1b[24~", "shift tab": "\x1b[Z", "ctrl left": "\x1b[1;5D", "shift down": "\x1b[1;2B",
    "alt delete": "\x1b[3;3~", "linux f1": "\x1b[[A", "linux f4": "\x1b[[D", "focus in": "\x1b[I",
    "focus out": "\x1b[O",
    "mode report 2026": "\x1b[?2026;2$y", "mode report 2048": "\x1b[?2048;0$y", "cursor report": "\x1b[24;80R",
    "device attributes": "\x1b[?64;1;2;4c", "mouse": "\x1b[<0;35;12M", "kitty T": "\x1b[84;2u",
    "kitty yes": "\x1b[121;;121u",
    "paste of yes": "\x1b[200~yes\r\x1b[201~", "paste of acts": "\x1b[200~TDXEPC\ryes\r\x1b[201~",
}  # fmt: skip
GAPS = (0.05, 0.3, 1.5)
HARMLESS = {"escape", "up", "down", "left", "right", "home", "end", "pageup", "pagedown", "delete", "insert",
"f1", "f3",
            "f4", "f5", "f12", "shift+tab", "ctrl+left", "shift+down", "enter"}  # fmt: skip


class Clock:
    """Simulated time that advances on request; the driver polls the parser every 50 ms."""

    def __init__(self, parser: KeyParser) -> None:
        self.parser = parser
        self.now = 1000.0

    def wait(self, seconds: float) -> Iterator[object]:
        """Let time pass."""
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            yield from self.parser.tick()


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch):
    """Type pieces with a gap after each, and return the resulting keys and pastes."""

    def type_pieces(*pieces: str, gap: float) -> list[events.Event]:
        parser = KeyParser()
        clock = Clock(parser)
        monkeypatch.setattr(_parser, "get_time", lambda: clock.now)
        monkeypatch.setattr(tui.terminal.driver, "get_time", lambda: clock.now)
        found: list[object] = []
        for piece in pieces:
            found.extend(parser.feed(piece))
            found.extend(clock.wait(gap))
        found.extend(clock.wait(3.0))
        return [event for event in found if isinstance(event, events.Key | events.Paste)]

    return type_pieces


def keys(found: list[events.Event]) -> list[str]:
    return [event.key for event in found if isinstance(event, events.Key)]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_split_at_any_byte_never_becomes_a_character(name: str, gap: float, typed) -> None:
    sequence = SEQUENCES[name]
    for place in range(1, len(sequence)):
        found = keys(typed(sequence[:place], sequence[place:], gap=gap))
        assert set(found) <= HARMLESS, f"split at {place}: {found}"


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_received_byte_by_byte_never_becomes_a_character(name: str, gap: float, typed) -> None:
    found = keys(typed(*SEQUENCES[name], gap=gap))
    assert set(found) <= HARMLESS, found


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_key_after_a_broken_sequence_is_a_key_again(name: str, typed) -> None:
    sequence = SEQUENCES[name]
    for place in range(1, len(sequence)):
        assert keys(typed(sequence[:place], sequence[place:], "j", gap=0.3))[-1] == "j"


def test_whole_sequences_are_read_as_their_keys(typed) -> None:
    assert keys(typed("\x1b[A\x1b[B\x1bOC\x1b[5~\x1b[Z", gap=0.05)) == ["up", "down", "right", "pageup", "shift+tab"]


def test_a_slow_sequence_whose_escape_was_not_delivered_is_still_read_as_its_key(typed) -> None:
    assert keys(typed("\x1b[", "B", gap=1.5)) == ["down"]


def test_escape_alone_is_escape(typed) -> None:
    assert keys(typed("\x1b", gap=0.3)) == ["escape"]


def test_escape_and_then_a_key_are_both(typed) -> None:
    assert keys(typed("\x1b", "q", gap=0.3)) == ["escape", "q"]


def test_a_whole_paste_is_one_paste(typed) -> None:
    found = typed("\x1b[200~yes\n\x1b[201~", gap=0.05)
    assert [event.text for event in found if isinstance(event, events.Paste)] == ["yes\n"]
    assert keys(found) == []


def test_a_paste_whose_escape_was_parsed_as_a_key_is_dropped_completely(typed) -> None:
    found = typed("\x1b", "[200~TDyes\r\x1b[201~", gap=1.5)
    assert keys(found) == ["escape"]
    assert len(found) == 1


def test_ctrl_c_ends_a_paste_that_never_closes(typed) -> None:
    assert keys(typed("\x1b[200~yes", "\x03", "j", gap=0.3)) == ["j"]


def test_an_answer_of_the_terminal_is_swallowed_up_to_its_end(typed) -> None:
    assert keys(typed("\x1b]11;rgb:1c1c/1c1c/1c1c\x07j\x1bP>|tmux 3.3a\x1b\\k", gap=0.05)) == ["j", "k"]


def test_plain_letters_come_through_in_order(typed) -> None:
    assert keys(typed("jjTG?/:", gap=0.05)) == ["j", "j", "T", "G", "question_mark", "slash", "colon"]
