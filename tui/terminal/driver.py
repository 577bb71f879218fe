"""Textual's terminal driver with a different key parser and without keyboard extensions.

The process ends when the terminal is gone. A broken escape sequence never becomes a key: once a sequence has begun, all
of its bytes are dropped.
"""

import os
import selectors
import signal
from codecs import getincrementaldecoder
from collections.abc import Generator, Iterable
from typing import ClassVar

from textual import constants, events, messages
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._parser import ParseEOF, ParseTimeout, Peek1, Read1, TokenCallback
from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys
from textual.message import Message

from tui.terminal.first_frame import FirstFrame

ESC = "\x1b"
LONE_ESCAPE_S = 2.0
"""Seconds after a lone escape within which an `O` belongs to a broken sequence.

A `[` always belongs to a broken sequence, however late it arrives.
"""
_SS3_PARAMETERS = "0123456789;"
PASTE_LIMIT = 65536
STRING_LIMIT = 4096
"""Maximum length of a terminal's reply that is dropped."""


class KeyParser(XTermParser):
    """Parses keys by the grammar of ECMA-48 rather than by timing.

    Textual 8.2.8 gives up on a sequence after 100 ms and delivers its bytes as keys: Left becomes `escape`, `[`, `D`.
    This parser reads a sequence to its final byte, however slowly it arrives.
    """

    def __init__(self, debug: bool = False) -> None:
        self._escaped_at: float | None = None
        """When a lone escape was delivered; None once another character has followed."""
        super().__init__(debug)

    def parse(self, token_callback: TokenCallback[Message]) -> Generator[Read1 | Peek1, str, None]:
        """Parse characters until the input ends, passing events to the callback."""
        try:
            while True:
                character = yield self.read1()
                if character == ESC:
                    yield from self._after_escape(token_callback)
                elif self._continues_broken(character):
                    yield from self._swallow(character, token_callback)
                else:
                    self._escaped_at = None
                    self._deliver_keys(character, token_callback)
        except ParseEOF:
            return

    def _continues_broken(self, character: str) -> bool:
        if self._escaped_at is None:
            return False
        if character == "[":
            return True
        return character == "O" and get_time() - self._escaped_at < LONE_ESCAPE_S

    def _swallow(self, introducer: str, deliver: TokenCallback[Message]) -> Generator[Read1 | Peek1, str, None]:
        self._escaped_at = None
        body = yield from self._read_body(introducer)
        if body == "[200~":
            yield from self._read_paste()

    def _after_escape(self, deliver: TokenCallback[Message]) -> Generator[Read1 | Peek1, str, None]:
        while True:
            try:
                character = yield self.read1(constants.ESCAPE_DELAY)
            except ParseTimeout:
                self._deliver_escape(deliver)
                return
            except ParseEOF:
                self._deliver_escape(deliver)
                raise
            if character != ESC:
                break
            self._deliver_escape(deliver)
        self._escaped_at = None
        if character in "[O":
            yield from self._sequence(character, deliver)
        elif character in "]PX^_":
            yield from self._read_string()
        elif character >= " ":
            # Alt with a character, or a character typed right after esc on a slow line; neither is bound to an action.
            deliver(events.Key(f"alt+{character}", None))

    def _deliver_escape(self, deliver: TokenCallback[Message]) -> None:
        self._escaped_at = get_time()
        deliver(events.Key("escape", ESC))

    def _sequence(self, introducer: str, deliver: TokenCallback[Message]) -> Generator[Read1 | Peek1, str, None]:
        body = yield from self._read_body(introducer)
        if body == "[200~":
            text = yield from self._read_paste()
            deliver(events.Paste(text))
        elif body:
            self._deliver_sequence(ESC + body, deliver)

    def _read_body(self, introducer: str) -> Generator[Read1 | Peek1, str, str]:
        """Read a sequence to its final byte, without a time limit, and return it without the ESC.

        An ESC begins a new sequence, which is returned instead. Any other control character aborts the sequence, and
        the result is empty. ECMA-48 5.4: parameter bytes 0x30-0x3F, intermediate bytes 0x20-0x2F, one final byte
        0x40-0x7E.
        """
        body = introducer
        while True:
            character = yield self.read1()
            if character < " ":
                # A new ESC begins another sequence.
                if character == ESC:
                    return (yield from self._restarted())
                return ""
            body += character
            if body == "[[":
                # The Linux console sends F1 to F5 as ESC [ [ A to E: the second bracket is not a final byte.
                continue
            if character not in _SS3_PARAMETERS if introducer == "O" else character >= "@":
                return body if len(body) <= 64 else ""

    def _restarted(self) -> Generator[Read1 | Peek1, str, str]:
        character = yield self.read1()
        return (yield from self._read_body(character)) if character in "[O" else ""

    def _read_paste(self) -> Generator[Read1 | Peek1, str, str]:
        """Return pasted text up to its end marker. Ctrl+C abandons a paste that never ends, and the result is empty."""
        end = f"{ESC}[201~"
        text = ""
        while not text.endswith(end):
            character = yield self.read1()
            if character == "\x03":
                return ""
            text += character
            if len(text) > PASTE_LIMIT:
                text = text[-len(end) :]
        return text[: -len(end)].replace("\x00", "")

    def _read_string(self) -> Generator[Read1 | Peek1, str, None]:
        """Drop a reply of the terminal (OSC, DCS …) up to BEL or ST, or until nothing arrives for a second."""
        previous = ""
        for _ in range(STRING_LIMIT):
            try:
                character = yield self.read1(1.0)
            except ParseTimeout:
                return
            if character == "\x07" or (previous == ESC and character == "\\"):
                return
            previous = character

    def _deliver_sequence(self, sequence: str, deliver: TokenCallback[Message]) -> None:
        if sequence == f"{ESC}[I":
            deliver(events.AppFocus())
        elif sequence == f"{ESC}[O":
            deliver(events.AppBlur())
        elif sequence.startswith(f"{ESC}[?2026;") and sequence.endswith("$y"):
            if sequence[len(ESC) + 7] in "123":
                deliver(messages.TerminalSupportsSynchronizedOutput())
        elif sequence.startswith(f"{ESC}[<") and sequence[-1] in "Mm":
            mouse = self.parse_mouse_code(sequence)
            if mouse is not None:
                deliver(mouse)
        else:
            for event in known_keys(sequence):
                deliver(event)

    def _deliver_keys(self, character: str, deliver: TokenCallback[Message]) -> None:
        for event in self._sequence_to_key_events(character):
            if event.key != Keys.Ignore:
                deliver(event)


def known_keys(sequence: str) -> Iterable[events.Key]:
    """Yield the keys of a complete sequence. Empty if Textual's table does not contain it."""
    keys = ANSI_SEQUENCES_KEYS.get(sequence)
    if isinstance(keys, tuple):
        for key in keys:
            if key is not Keys.Ignore:
                yield events.Key(key.value, None)


# The kitty protocol turns every key into an escape sequence, which breaks more often on a bad link; we need none of it.
constants.DISABLE_KITTY_KEY = True  # type: ignore[misc]  # Final, but read at each call (textual 8.2.8)

ALTERNATE = "\x1b[?1049h"
POLL_S = 0.05
"""Seconds between two checks for input. A lone escape is delivered after 100 ms."""


def end_at_once(*_: object) -> None:
    """Exit immediately and silently because the terminal is gone. The agent keeps everything running.

    Textual 8.2.8 has no SIGHUP handler and spins on a closed terminal. An orderly shutdown would block on writes.
    """
    os._exit(0)


class ConsoleDriver(LinuxDriver):
    """A driver that reads keys with `KeyParser`, and ends the process at end of file on the terminal."""

    opening: ClassVar[FirstFrame | None] = None
    """The first frame, if drawn. The alternate screen is then active, and entering it again would clear it."""

    def start_application_mode(self) -> None:
        if self.opening is not None:
            self.opening.hand_over()
        signal.signal(signal.SIGHUP, end_at_once)
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual leaves it untyped

    def write(self, data: str) -> None:
        if data == ALTERNATE and self.opening is not None and self.opening.shadow is not None:
            ConsoleDriver.opening = None
            return
        super().write(data)

    def stop_application_mode(self) -> None:
        self.write("\x1b[m")
        super().stop_application_mode()

    def _enable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _query_in_band_window_resize(self) -> None:
        """Do nothing: SIGWINCH reports sizes, so no query is needed."""

    def run_input_thread(self) -> None:
        """Read and dispatch input until the exit event is set."""
        parser = KeyParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(POLL_S):
                    for event in parser.feed(decode(self._read())):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)

    def _read(self) -> bytes:
        try:
            data = os.read(self.fileno, 4096)
        except OSError:
            data = b""
        if not data:
            end_at_once()
        return data
