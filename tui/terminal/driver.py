"""The terminal's driver: Textual's, with our parser and without keyboard extensions.

It ends the process when the terminal is gone.
"""

import os
import selectors
import signal
from codecs import getincrementaldecoder
from typing import ClassVar

from textual import constants
from textual.drivers.linux_driver import LinuxDriver

from tui.terminal.first_picture import FirstPicture
from tui.terminal.key_parser import KeyParser

# The kitty protocol makes every key an escape sequence: more that can break on a bad link, and nothing that we need.
constants.DISABLE_KITTY_KEY = True  # type: ignore[misc]  # Final, but read at each call (textual 8.2.8)

ALTERNATE = "\x1b[?1049h"
POLL_S = 0.05
"""How often a lone escape is looked at: it is delivered after 100 ms."""


def end_at_once(*_: object) -> None:
    """Exit silently: the terminal is gone, and whatever runs belongs to the agent.

    Textual 8.2.8 has no SIGHUP handler and spins on a closed terminal; waiting for its shutdown would wait for writes.
    """
    os._exit(0)


class ConsoleDriver(LinuxDriver):
    """Reads keys with `KeyParser`; end of file on the terminal ends the process."""

    opening: ClassVar[FirstPicture | None] = None
    """What drew the first picture: the screen is switched already, and switching again would clear it."""

    def start_application_mode(self) -> None:
        if self.opening is not None:
            self.opening.hand_over()
        signal.signal(signal.SIGHUP, end_at_once)
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual leaves it untyped

    def write(self, data: str) -> None:
        """Write to the terminal."""
        if data == ALTERNATE and self.opening is not None and self.opening.shadow is not None:
            ConsoleDriver.opening = None
            return
        super().write(data)

    def stop_application_mode(self) -> None:
        self.write("\x1b[m")
        super().stop_application_mode()

    def _enable_mouse_support(self) -> None:
        """Ask for buttons and the wheel alone: a pointer that only moves sends nothing."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _query_in_band_window_resize(self) -> None:
        """Do not ask for sizes in the input: the signal tells them."""

    def run_input_thread(self) -> None:
        """Read until told to stop."""
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
