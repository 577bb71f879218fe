"""Signals that are held back while something must not be broken off, and raised as KeyboardInterrupt afterwards."""

import signal
import threading
from contextlib import suppress
from typing import Any, Self

from tui.agent_client.agent_process import ProgressCallback, WaitProgress


class HeldInterrupts:
    """Signals that raise KeyboardInterrupt, held at first; after one was let through, all others are held.

    What was held is raised at the end. Does nothing in a thread other than the main one, which gets no signals.
    """

    def __init__(self, progress: ProgressCallback) -> None:
        self._progress, self._held, self._pending = progress, True, False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if callable(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._pending:
            raise KeyboardInterrupt

    def let_through(self) -> None:
        """Raise what was held, or else the next signal."""
        self._held = False
        if self._pending:
            self._held, self._pending = True, False
            raise KeyboardInterrupt

    def hold(self) -> None:
        self._held = True

    def _on_signal(self, number: int, frame: object) -> None:
        if not self._held:
            self._held = True
            raise KeyboardInterrupt
        self._pending = True
        with suppress(RuntimeError):
            # The signal may have interrupted the writing of another line.
            self._progress(WaitProgress("interrupted; the environment is deleted before the command ends", 0.0, 0.0))
