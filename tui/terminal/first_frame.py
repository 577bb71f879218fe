"""The first frame, drawn before Textual is imported. The cell diff knows it, so nothing is sent twice."""

import os
import shutil
import sys
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tui.presentation.screen_content.home import first_frame_lines
from tui.presentation.screen_content.screen_frame import ConsoleIdentity
from tui.presentation.styling.theme import choose_glyphs, choose_palette
from tui.presentation.view.ledger_view import LedgerView
from tui.terminal.cell_diff import ShadowScreen, put_line

ENTER = "\x1b[?1049h\x1b[?25l"
LEAVE = "\x1b[m\x1b[?25h\x1b[?1049l"


class FirstFrame:
    """Draws the first frame and owns the terminal until Textual takes over.

    If Textual never takes over, this restores the terminal.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._before: list[object] | None = None
        self.shadow: ShadowScreen | None = None
        self.handed_over = False

    def __enter__(self) -> Self:
        return self

    def draw(self, identity: ConsoleIdentity, view: LedgerView) -> None:
        """Draw the home screen in its last known state."""
        width, height = shutil.get_terminal_size()
        palette, glyphs = choose_palette(self._environ), choose_glyphs(self._environ)
        shadow = ShadowScreen(width, height)
        for y, row in enumerate(
            first_frame_lines(identity, view, width=width, height=height, glyphs=glyphs, now=time.time())
        ):
            put_line(shadow, palette, y, row.line, chosen=row.chosen, band=row.band)
        self._be_quiet()
        self._write(ENTER + shadow.flush())
        self.shadow = shadow

    def _be_quiet(self) -> None:
        try:
            self._before = termios.tcgetattr(0)
            quiet = termios.tcgetattr(0)
            quiet[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(0, termios.TCSANOW, quiet)
        except termios.error:
            self._before = None

    def hand_over(self) -> None:
        """Restore the terminal's settings before Textual saves and changes them itself."""
        self.handed_over = True
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSANOW, self._before)  # type: ignore[arg-type]  # what tcgetattr gave

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shadow is not None and not self.handed_over:
            self.hand_over()
            self._write(LEAVE)

    @staticmethod
    def _write(text: str) -> None:
        stream = sys.__stderr__
        assert stream is not None
        data = text.encode(stream.encoding or "utf-8", "replace")
        while data:
            data = data[os.write(stream.fileno(), data) :]
