"""Reads remote stores, several reads at once, so that a store that does not answer does not delay the others."""

import errno
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from pipelines.storage.file_store import FileStore

AT_ONCE = 8
"""Maximum number of simultaneous reads from the same stores."""

WAIT_S = 5.0
"""Seconds to wait for all reads together."""

SILENT_WAIT_S = 0.2
"""Seconds to wait for stores from which no read has succeeded last time: enough for an error, or for an answer."""

Stores = frozenset[FileStore]
"""The remote stores that a read needs."""

K = TypeVar("K")
R = TypeVar("R")


class RemoteReads:
    """Runs reads in threads, with separate threads for each set of stores. For one caller at a time."""

    def __init__(self, *, at_once: int = AT_ONCE, wait_s: float = WAIT_S) -> None:
        self._at_once, self._wait_s = at_once, wait_s
        self._lanes: dict[Stores, _Lane] = {}

    def results(self, reads: Mapping[K, tuple[Stores, Callable[[], R]]]) -> dict[K, R | Exception]:
        """Run all reads, and return their results or errors. A read that takes too long yields an OSError.

        Reads that have not begun by then are dropped; the others end in the background.
        """
        futures: dict[K, Future[R]] = {}
        by_stores: dict[Stores, list[Future[R]]] = {}
        for key, (stores, read) in reads.items():
            lane = self._lanes.setdefault(stores, _Lane(self._at_once))
            futures[key] = lane.submit(read)
            by_stores.setdefault(stores, []).append(futures[key])
        until = time.monotonic() + self._wait_s
        for stores, submitted in by_stores.items():
            left = max(0.0, until - time.monotonic())
            wait(submitted, min(left, SILENT_WAIT_S) if self._lanes[stores].silent else left)
            self._lanes[stores].silent = not any(map(_has_succeeded, submitted))
        found: dict[K, R | Exception] = {}
        for key, future in futures.items():
            if future.cancel() or not future.done():
                found[key] = OSError(errno.ETIMEDOUT, f"no answer within {self._wait_s:g} s")
                continue
            try:
                found[key] = future.result()
            except Exception as error:
                found[key] = error
        return found


class _Lane:
    """The reads of the same stores, and up to `at_once` threads, which end when nothing waits."""

    def __init__(self, at_once: int) -> None:
        self.silent = False
        """True if no read has succeeded last time. Any later success ends this, even one that was not waited for."""
        self._at_once = at_once
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, read: Callable[[], R]) -> Future[R]:
        future: Future[R] = Future()
        with self._lock:
            self._waiting.append((future, read))
            starts = self._threads < self._at_once
            self._threads += int(starts)
        if starts:
            # A daemon thread, because a store that does not answer must not delay the end of the agent.
            threading.Thread(target=self._work, name="remote reads", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                future, read = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                found = read()
            except BaseException as error:
                future.set_exception(error)
            else:
                self.silent = False
                future.set_result(found)


def _has_succeeded(future: Future[R]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
