"""A thread that reads the ledger and the current screen's data, and posts changes as messages.

The thread touches no widget.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from core.model.errors import HeadgateError
from tui.presentation.view.ledger_view import LedgerView, make_ledger_view
from tui.screens.backend import ConsoleBackend
from tui.screens.console_screen import ConsoleScreen

POLL_S = 0.5
"""Seconds between two reads; also the seconds between two redraws."""


class LedgerRead(Message):
    """Posted when the ledger has been read. `asked` is True if a reload was requested."""

    def __init__(self, view: LedgerView, *, asked: bool) -> None:
        super().__init__()
        self.view = view
        self.asked = asked


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """Why a screen's data could not be read. The same failure is not shown twice in a row."""

    words: str


class ScreenDataRead(Message):
    """Posted when the data for one screen has been read."""

    def __init__(self, screen: ConsoleScreen, what: object) -> None:
        super().__init__()
        self.screen = screen
        self.what = what


class ReloadFinished(Message):
    """Posted when a requested reload has finished."""


class WorkerCrashed(Message):
    """Posted when a thread fails because of a bug, which is then raised on the event loop and ends the console."""

    def __init__(self, bug: Exception) -> None:
        super().__init__()
        self.bug = bug


class Poller:
    """Reads the ledger and the current screen's data twice a second, and immediately on request."""

    def __init__(self, backend: ConsoleBackend, view: LedgerView, post: Callable[[Message], object]) -> None:
        self.screen: ConsoleScreen | None = None
        """The screen in front; set on the event loop."""
        self._backend = backend
        self._view = view
        self._post = post
        self._asked = threading.Event()
        self._over = threading.Event()

    def start(self) -> None:
        """Start the polling thread, a daemon."""
        threading.Thread(target=self._run, name="console-poller", daemon=True).start()

    def stop(self) -> None:
        """Ask the polling thread to end, without waiting for it."""
        self._over.set()
        self._asked.set()

    def read_now(self) -> None:
        """Reread everything without waiting for the next interval."""
        self._asked.set()

    def _run(self) -> None:
        try:
            self._read_for_ever()
        except Exception as bug:
            self._post(WorkerCrashed(bug))

    def _read_for_ever(self) -> None:
        view, shown, asked = self._view, False, False
        fetched: tuple[ConsoleScreen, object] | None = None
        while not self._over.is_set():
            newer = make_ledger_view(self._backend.snapshot(view.snapshot), view)
            if newer is not view or not shown:
                view, shown = newer, True
                self._post(LedgerRead(view, asked=asked))
            screen = self.screen
            if screen is not None:
                what = self._fetch(screen)
                if what is not None and (fetched is None or fetched[0] is not screen or fetched[1] != what):
                    fetched = (screen, what)
                    self._post(ScreenDataRead(screen, what))
            if asked:
                self._post(ReloadFinished())
            asked = self._asked.wait(POLL_S)
            self._asked.clear()

    def _fetch(self, screen: ConsoleScreen) -> object:
        try:
            return screen.fetch()
        except HeadgateError as error:
            return ReadFailure(f"{error.summary}. {error.remedy}".strip())
