"""A thread that reads the ledger of one environment and the data of its screen, and delivers what has changed.

The thread touches no widget: deliveries are calls that the event loop makes.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from core.model.errors import HeadgateError
from tui.presentation.view.ledger_view import LedgerView, make_ledger_view
from tui.screens.backend import ConsoleBackend
from tui.screens.console_screen import ConsoleScreen

POLL_S = 0.5
"""Seconds between two reads; also the seconds between two redraws."""
HIDDEN_POLL_S = 5.0
"""Seconds between two reads of an open environment that is not shown: only the first line shows anything of it."""


@dataclass(frozen=True, slots=True)
class ReadFailure:
    """Why a screen's data could not be read. The same failure is not shown twice in a row."""

    words: str


class Reader(Protocol):
    """The receiver of what a poller has read. All calls are made on the event loop."""

    def take_view(self, view: LedgerView, *, asked: bool) -> None: ...
    def take_screen_data(self, screen: ConsoleScreen, what: object) -> None: ...
    def end_reload(self) -> None: ...
    def crash(self, bug: Exception) -> None: ...


class Poller:
    """Reads the ledger and the data of the screen in front twice a second, and immediately on request.

    Without a screen in front, it reads only the ledger, every HIDDEN_POLL_S.
    """

    def __init__(
        self,
        backend: ConsoleBackend,
        view: LedgerView,
        reader: Reader,
        deliver: Callable[[Callable[[], object]], object],
    ) -> None:
        self.screen: ConsoleScreen | None = None
        """The screen in front; None while another environment is shown. Set on the event loop."""
        self._backend = backend
        self._view = view
        self._reader = reader
        self._deliver = deliver
        """Has the event loop make a call; may be used from any thread."""
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
            self._deliver(partial(self._reader.crash, bug))

    def _read_for_ever(self) -> None:
        view, shown, asked = self._view, False, False
        fetched: tuple[ConsoleScreen, object] | None = None
        while not self._over.is_set():
            newer = make_ledger_view(self._backend.snapshot(view.snapshot), view)
            if newer is not view or not shown:
                view, shown = newer, True
                self._deliver(partial(self._reader.take_view, view, asked=asked))
            screen = self.screen
            if screen is not None:
                what = self._fetch(screen)
                if what is not None and (fetched is None or fetched[0] is not screen or fetched[1] != what):
                    fetched = (screen, what)
                    self._deliver(partial(self._reader.take_screen_data, screen, what))
            if asked:
                self._deliver(self._reader.end_reload)
            asked = self._asked.wait(POLL_S if self.screen is not None else HIDDEN_POLL_S)
            self._asked.clear()

    def _fetch(self, screen: ConsoleScreen) -> object:
        try:
            return screen.fetch()
        except HeadgateError as error:
            return ReadFailure(f"{error.summary}. {error.remedy}".strip())
