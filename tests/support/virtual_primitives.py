"""Stand-ins for `threading`, `queue`, `time` and `concurrent.futures`, scheduled by the baton of a life."""

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from virtual_threads import Baton, Fiber


class VirtualModules:
    """The stand-ins as attributes, all scheduled by one baton."""

    def __init__(self, baton: Baton) -> None:
        self.baton = baton
        self.threading = _Threading(baton)
        self.queue = _Queue(baton)
        self.time = _Time(baton)

    def future(self) -> "VirtualFuture":
        return VirtualFuture(self.baton)

    def wait(self, futures: Any, timeout: float | None = None) -> Any:
        """Stand in for `concurrent.futures.wait`, for a single future."""
        (future,) = futures
        done = future.wait(timeout)
        return _Waited({future} if done else set(), set() if done else {future})


class _Waited:
    def __init__(self, done: set[Any], not_done: set[Any]) -> None:
        self.done, self.not_done = done, not_done


class _Time:
    """Stands in for `time`, with the clocks of the life."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton

    def monotonic(self) -> float:
        return self._baton.now

    perf_counter = monotonic

    def time(self) -> float:
        return self._baton.now + self._baton.wall_offset

    def sleep(self, seconds: float) -> None:
        self._baton.sleep(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class VirtualLock:
    """A lock; acquiring it may switch to another thread."""

    def __init__(self, baton: Baton, *, again: bool = False) -> None:
        self._baton, self._again = baton, again
        self._owner: Fiber | None = None
        self._depth = 0
        self._waiting: deque[Fiber] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        baton = self._baton
        baton.point()
        me, ends_at = baton.current, baton.now + timeout
        while self._owner is not None and not (self._again and self._owner is me) and not self._owner.process.dead:
            if not blocking or (timeout >= 0 and baton.now >= ends_at):
                return False
            baton.block(self._waiting, None if timeout < 0 else ends_at - baton.now)
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._baton.wake_one(self._waiting)

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class VirtualCondition:
    """A condition, with its own lock unless one is given."""

    def __init__(self, baton: Baton, lock: VirtualLock | None = None) -> None:
        self._baton, self._lock = baton, lock or VirtualLock(baton, again=True)
        self._waiting: deque[Fiber] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._baton.block(self._waiting, timeout)
        finally:
            self._lock.acquire()

    def notify(self, n: int = 1) -> None:
        for _ in range(n):
            self._baton.wake_one(self._waiting)

    def notify_all(self) -> None:
        self._baton.wake_all(self._waiting)


class VirtualEvent:
    """An event; testing it may switch to another thread."""

    def __init__(self, baton: Baton) -> None:
        self._baton, self._set = baton, False
        self._waiting: deque[Fiber] = deque()

    def is_set(self) -> bool:
        self._baton.point()
        return self._set

    def set(self) -> None:
        self._set = True
        self._baton.wake_all(self._waiting)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._baton.block(self._waiting, timeout)
        return self._set


class VirtualFuture:
    """A future for whose result a thread can wait."""

    def __init__(self, baton: Baton) -> None:
        self._baton, self._done = baton, False
        self._result: Any = None
        self._error: BaseException | None = None
        self._waiting: deque[Fiber] = deque()
        self._hearing: list[Callable[[Any], object]] = []

    def set_result(self, result: Any) -> None:
        self._result, self._done = result, True
        self._end()

    def set_exception(self, error: BaseException) -> None:
        self._error, self._done = error, True
        self._end()

    def add_done_callback(self, hear: Callable[[Any], object]) -> None:
        if self._done:
            hear(self)
        else:
            self._hearing.append(hear)

    def _end(self) -> None:
        self._baton.wake_all(self._waiting)
        for hear in self._hearing:
            hear(self)

    @property
    def done_now(self) -> bool:
        """True if the future is done. Never switches threads, so that code outside all threads can call it."""
        return self._done

    def done(self) -> bool:
        self._baton.point()
        return self._done

    def wait(self, timeout: float | None) -> bool:
        if not self._done:
            self._baton.block(self._waiting, timeout)
        return self._done

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.wait(timeout):
            raise TimeoutError
        return self._error

    def result(self, timeout: float | None = None) -> Any:
        if not self.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result


class _VirtualThread:
    """Stands in for `threading.Thread`."""

    def __init__(self, baton: Baton, target: Callable[..., Any], args: Any, kwargs: Any, name: str) -> None:
        self._baton, self._target, self._args, self._kwargs = baton, target, args, kwargs or {}
        self.name = name
        self._fiber: Fiber | None = None

    def start(self) -> None:
        self._baton.point()
        helper = self.name in ("deadline", "breaker") or self.name.rpartition(" ")[0] == self._baton.current.name
        lane = self._baton.current.lane if helper else self.name
        self._fiber = self._baton.spawn(lambda: self._target(*self._args, **self._kwargs), self.name, lane=lane)

    def join(self, timeout: float | None = None) -> None:
        if self._fiber is not None and not self._fiber.over:
            self._baton.block(self._fiber.joining, timeout)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.over


class _Threading:
    """Stands in for the module `threading`."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._names = itertools.count(1)

    def Thread(  # `threading` uses this name.
        self, target: Any = None, name: str = "", args: Any = (), kwargs: Any = None, daemon: bool | None = None
    ) -> _VirtualThread:
        return _VirtualThread(self._baton, target, args, kwargs, name or f"thread {next(self._names)}")

    def Lock(self) -> VirtualLock:  # `threading` uses this name.
        return VirtualLock(self._baton)

    def RLock(self) -> VirtualLock:  # `threading` uses this name.
        return VirtualLock(self._baton, again=True)

    def Condition(self, lock: VirtualLock | None = None) -> VirtualCondition:  # `threading` uses this name.
        return VirtualCondition(self._baton, lock)

    def Event(self) -> VirtualEvent:  # `threading` uses this name.
        return VirtualEvent(self._baton)

    def get_ident(self) -> int:
        return id(self._baton.current)

    def current_thread(self) -> Fiber:
        return self._baton.current

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class _Queue:
    """Stands in for the module `queue`."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self.Empty = queue.Empty

    def Queue(self) -> "VirtualQueue":  # `queue` uses this name.
        return VirtualQueue(self._baton, self.Empty)

    SimpleQueue = Queue


class VirtualQueue:
    """An unbounded queue, built from a lock and a condition like the real one; each use may switch threads."""

    def __init__(self, baton: Baton, empty: type[Exception]) -> None:
        self._baton, self._empty = baton, empty
        self.queue: deque[Any] = deque()
        self.mutex = VirtualLock(baton)
        self.not_empty = VirtualCondition(baton, self.mutex)

    def put(self, item: Any) -> None:
        with self.mutex:
            self.queue.append(item)
            self.not_empty.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self.not_empty:
            ends_at = None if timeout is None else self._baton.now + timeout
            while not self.queue:
                left = None if ends_at is None else ends_at - self._baton.now
                if not block or (left is not None and left <= 0):
                    raise self._empty
                self.not_empty.wait(left)
            return self.queue.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        with self.mutex:
            return not self.queue

    def qsize(self) -> int:
        return len(self.queue)
