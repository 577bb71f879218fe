"""One act for each of many statements, a few at a time, in threads that no end of the agent waits for."""

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_threads(count: int, act: Callable[[T], R], items: Iterable[T]) -> tuple[R, ...]:
    """Return what an act returns for each item, in their order, from at most `count` daemon threads.

    Raises what the act raised for the first item that it failed on, after it has been tried for all of them.
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
