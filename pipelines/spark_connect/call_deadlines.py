"""Calls in daemon threads, with deadlines or in parallel.

A call to a dead server may never return, but its caller still returns at the deadline. While a pool does not answer, it
receives at most one probe at a time.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, ParamSpec, TypeVar

from core.model.errors import PoolUnreachable

P = ParamSpec("P")
R = TypeVar("R")

PROBE_EVERY_S = 1.0
"""Seconds between two probes of a pool that missed a deadline."""

_ends = threading.local()


def call(seconds: float, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run `fn` in a thread and return its result, or raise MissedDeadline after `seconds`.

    Errors raised by `fn` are passed on. In a nested call, the outer call's deadline also applies.
    """
    left = remaining()
    seconds = seconds if left is None else min(seconds, left)
    ends_at = time.monotonic() + seconds
    work: Future[R] = Future()

    def run() -> None:
        _ends.at = _ends.caller_at = ends_at
        try:
            work.set_result(fn(*args, **kwargs))
        except BaseException as error:
            work.set_exception(error)

    threading.Thread(target=run, name="deadline", daemon=True).start()
    if not wait((work,), seconds).done:
        summary = f"no answer within {seconds:.3g} s"
        raise MissedDeadline(summary, remedy="the call is retried; see the pool's log", work=work)
    return work.result()


def remaining() -> float | None:
    """Return the seconds until the deadline of the call that this thread runs; None without a deadline."""
    end = getattr(_ends, "at", None)
    return None if end is None else max(0.0, end - time.monotonic())


def is_given_up() -> bool:
    """True if the caller no longer waits for this thread's call. The thread must then send no further requests."""
    end = getattr(_ends, "caller_at", None)
    return end is not None and end <= time.monotonic()


@contextmanager
def lingering(seconds: float) -> Iterator[None]:
    """Extend the deadline of calls within the block by `seconds` beyond the caller's deadline.

    The caller gets no result after that deadline, but the block can still record what its call has changed. Check
    `is_given_up` before sending anything new.
    """
    end = getattr(_ends, "at", None)
    _ends.at = None if end is None else end + seconds
    try:
        yield
    finally:
        _ends.at = end


class MissedDeadline(PoolUnreachable):
    """Raised if a call was sent but not answered before its deadline. The call may still take effect."""

    def __init__(self, summary: str, *, remedy: str = "", work: "Future[Any] | None" = None) -> None:
        super().__init__(summary, remedy=remedy)
        self.work = work
        """The call, which may still be running; None if no thread waits for its result."""


class CircuitState(StrEnum):
    """State of a circuit breaker, which determines whether calls are let through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitBreaker:
    """Lets calls through until one misses its deadline, then blocks all calls until a probe succeeds."""

    def __init__(self, probe: Callable[[], object], *, probe_s: float = 3.0, every_s: float = PROBE_EVERY_S) -> None:
        self._probe = probe
        self._probe_s = probe_s
        self._every_s = every_s
        self._lock = threading.Lock()
        self._state = CircuitState.CLOSED
        self._opened_at = 0.0
        self._over = threading.Event()

    @property
    def state(self) -> CircuitState:
        """`CLOSED` (calls pass), `OPEN` (between two probes) or `HALF_OPEN` (a probe is in progress)."""
        return self._state

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Run the block, or raise PoolUnreachable unless the breaker is closed.

        A MissedDeadline in the block opens the breaker and starts the probes.
        """
        if self._state != CircuitState.CLOSED:
            silent = time.monotonic() - self._opened_at
            raise PoolUnreachable(
                f"the pool has not answered for {silent:.0f} s",
                remedy="the agent checks it every second; wait, or restart it",
            )
        try:
            yield
        except MissedDeadline:
            self._open()
            raise

    def close(self) -> None:
        """Stop probing a pool that is no longer used."""
        self._over.set()

    def _open(self) -> None:
        with self._lock:
            if self._state != CircuitState.CLOSED:
                return
            self._state = CircuitState.OPEN
            self._opened_at = time.monotonic()
        threading.Thread(target=self._watch, name="breaker", daemon=True).start()

    def _watch(self) -> None:
        while not self._over.is_set():
            self._state = CircuitState.HALF_OPEN
            try:
                call(self._probe_s, self._probe)
            except MissedDeadline:
                self._state = CircuitState.OPEN
                self._over.wait(self._every_s)
            except Exception:
                # A refusal also proves that the pool answers; the next call finds out what is wrong.
                self._state = CircuitState.CLOSED
                return
            else:
                self._state = CircuitState.CLOSED
                return


T = TypeVar("T")


def in_threads(count: int, act: Callable[[T], R], items: Iterable[T]) -> tuple[R, ...]:
    """Call `act` for every item in up to `count` daemon threads, and return the results in item order.

    If `act` fails for an item, the other items are still processed; then the error of the first failed item is raised.
    """
    waiting: queue.SimpleQueue[tuple[Future[R], T]] = queue.SimpleQueue()
    futures: list[Future[R]] = []
    for item in items:
        futures.append(Future())
        waiting.put((futures[-1], item))

    def work() -> None:
        while True:
            try:
                future, item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                future.set_result(act(item))
            except BaseException as error:
                future.set_exception(error)

    for n in range(min(count, len(futures))):
        threading.Thread(target=work, name=f"{threading.current_thread().name} {n + 1}", daemon=True).start()
    for future in futures:
        future.exception()
    return tuple(future.result() for future in futures)
