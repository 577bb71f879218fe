"""The process of a drill; before it exits on a signal, it ends everything that it started."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from core.project.model import Pool
from pipelines.local_pool.connect_server import LocalPool

_servers: list[LocalPool] = []


def run_drill(main: Callable[[], int]) -> NoReturn:
    """Run a drill and exit with its code; on SIGTERM, SIGHUP and SIGINT, its `finally` clauses run before the exit."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _leave)
    raise SystemExit(main())


def _leave(number: int, _: object) -> NoReturn:
    for again in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # The clean-up takes seconds, and an impatient second signal must not cut it off.
        signal.signal(again, signal.SIG_IGN)
    # Servers are ended first: threads waiting for an answer from Spark would otherwise delay the exit.
    for server in _servers:
        server.end()
    raise SystemExit(128 + number)


@contextmanager
def spark_server(home: Path, *, memory: str) -> Iterator[LocalPool]:
    """Start a Spark Connect server on two cores, and end it after the block."""
    server = LocalPool(home, Pool(cores=2, memory=memory))
    _servers.append(server)
    try:
        server.start()
        server.ready()
        yield server
    finally:
        server.end()
        _servers.remove(server)
