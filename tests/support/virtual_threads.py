"""Threads in virtual time: one runs at a time, a seed determines which, and time advances when all threads wait.

The code under test runs unchanged in real threads, of which only the holder of the baton is awake.
"""

import heapq
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

EPOCH = 1_000_000.0
"""The monotonic clock's value when a life begins."""

_HANGS_S = 60.0
"""Real seconds after which a thread that keeps the baton is assumed to wait for something that is not simulated."""


class Killed(BaseException):
    """Raised in a thread whose process was killed, and again on anything the thread tries after that."""


class StuckLife(AssertionError):
    """Raised if no thread can ever continue, or if a thread waits for something outside the life."""


class Process:
    """A group of threads that die together; `label` names the process."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.dead = False


class Fiber:
    """One thread of a life, which is awake only while it holds the baton."""

    def __init__(self, name: str, process: Process, lane: str) -> None:
        self.name, self.process = name, process
        self.lane = lane
        """The work to which the thread belongs, such as `run 7f3a…` or `reconcile`; a helper thread has its caller's
        lane."""
        self.gate = threading.Lock()
        self.gate.acquire()
        self.waits_on: deque[Fiber] | None = None
        self.wake = 0
        """Number of the thread's current wait, so that the timer of an earlier wait cannot end a later one."""
        self.timed_out = False
        self.over = False
        self.joining: deque[Fiber] = deque()


class Baton:
    """The scheduler of one life. The thread that creates it is its first fiber, and directs the life."""

    def __init__(self, seed: str, *, switches: float = 0.1, stalls: float = 0.0, stall_s: float = 1.0) -> None:
        """Create a scheduler for the random `seed`.

        At each point, the thread passes the baton on with probability `switches`, and sleeps for up to `stall_s`
        seconds with probability `stalls`.
        """
        self.chance = random.Random(seed)
        self.now = EPOCH
        self.wall_offset = 1_700_000_000.0 - EPOCH
        self.switches, self.stalls, self.stall_s = switches, stalls, stall_s
        self.outside = Process("outside")
        self.current = Fiber("director", self.outside, "director")
        self._ready: list[Fiber] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._every: list[Fiber] = []
        self.steps = 0
        self.crashed: list[tuple[str, BaseException]] = []
        """Threads that ended with an uncaught exception."""
        self.stopping = False

    # What fibers do.

    def spawn(self, target: Callable[[], Any], name: str, *, process: Process | None = None, lane: str = "") -> Fiber:
        """Create a thread, which starts to run when it gets the baton."""
        process = process or self.current.process
        fiber = Fiber(name, process, lane or self.current.lane)
        self._every.append(fiber)
        self._ready.append(fiber)

        def run() -> None:
            fiber.gate.acquire()
            try:
                self._refuse_dead(fiber)
                target()
            except Killed:
                pass
            except BaseException as error:
                self.crashed.append((fiber.name, error))
            fiber.over = True
            self._wake_all(fiber.joining)
            self._hand_on()

        threading.Thread(target=run, name=name, daemon=True).start()
        return fiber

    def point(self) -> None:
        """Let another thread run, or sleep for a while, if the seed demands it."""
        me = self.current
        self._refuse_dead(me)
        drawn = self.chance.random()
        if drawn < self.stalls and me.process is not self.outside:
            self.sleep(self.chance.random() * self.stall_s)
        elif drawn < self.stalls + self.switches and self._ready:
            self._ready.append(me)
            self._switch(me)

    def sleep(self, seconds: float) -> None:
        self.block(deque(), seconds)

    def block(self, waiting: "deque[Fiber]", seconds: float | None) -> bool:
        """Wait until another thread wakes `waiting`; return False if `seconds` pass before that."""
        me = self.current
        self._refuse_dead(me)
        me.wake += 1
        me.timed_out, me.waits_on = False, waiting
        waiting.append(me)
        if seconds is not None:
            turn = me.wake
            self.at(self.now + max(0.0, seconds), lambda: self._expire(me, turn))
        self._switch(me)
        return not me.timed_out

    def wake_one(self, waiting: "deque[Fiber]") -> None:
        """Wake the thread that has been waiting longest."""
        if waiting:
            self._rouse(waiting.popleft())

    def _wake_all(self, waiting: "deque[Fiber]") -> None:
        while waiting:
            self._rouse(waiting.popleft())

    wake_all = _wake_all

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Schedule an action at a moment; it runs outside all threads, and must not wait."""
        heapq.heappush(self._timers, (moment, next(self._count), act))

    def kill(self, process: Process) -> None:
        """End all threads of a process wherever they are; called by the director of the life."""
        process.dead = True
        for fiber in self._every:
            if fiber.process is process and not fiber.over and fiber.waits_on is not None:
                fiber.waits_on.remove(fiber)
                self._rouse(fiber)
        while any(fiber.process is process and not fiber.over for fiber in self._every):
            mine = [fiber for fiber in self._ready if fiber.process is process]
            if not mine:
                raise StuckLife("a killed thread does not end")
            self._ready.remove(mine[0])
            self._ready.append(self.current)
            self._pass_to(mine[0], self.current)
            # A thread that ends passes the baton to any other thread; the director waits for its own turn.
        self._every = [fiber for fiber in self._every if not fiber.over]

    # Scheduling.

    def _refuse_dead(self, fiber: Fiber) -> None:
        if fiber.process.dead or (self.stopping and fiber.process is not self.outside):
            raise Killed()

    def _rouse(self, fiber: Fiber) -> None:
        fiber.waits_on = None
        fiber.wake += 1
        self._ready.append(fiber)

    def _expire(self, fiber: Fiber, turn: int) -> None:
        if fiber.wake == turn and fiber.waits_on is not None:
            fiber.waits_on.remove(fiber)
            fiber.timed_out = True
            self._rouse(fiber)

    def _next(self) -> Fiber:
        """Return the next thread to run; if none can run, advance the time until one can."""
        self.steps += 1
        while not self._ready:
            if not self._timers:
                raise StuckLife("every thread waits for ever")
            moment, _, act = heapq.heappop(self._timers)
            self.now = max(self.now, moment)
            act()
        ready = self._ready
        if len(ready) == 1:
            return ready.pop()
        return ready.pop(self.chance.randrange(len(ready)))

    def _switch(self, me: Fiber) -> None:
        self._pass_to(self._next(), me)
        self._refuse_dead(me)

    def _pass_to(self, other: Fiber, me: Fiber) -> None:
        if other is me:
            return
        self.current = other
        other.gate.release()
        if not me.gate.acquire(timeout=_HANGS_S):
            raise StuckLife(f"{self.current.name} waits for something real")

    def _hand_on(self) -> None:
        """Pass the baton of the current thread, which has ended, to another thread."""
        other = self._next()
        self.current = other
        other.gate.release()
