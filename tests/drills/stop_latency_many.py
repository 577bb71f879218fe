"""Situations of `stop_latency` on 100 statements: a locked ledger, 1,000 idle connections, and a returning pool.

Bounds: if forty statements are stopped by one command while the ledger is locked, the emergency journal gets one entry,
the first stop is called within 300 ms, all statements are gone within 3 s, and the agent has no additional thread
afterwards. With 1,000 idle connections, the agent's additional threads and files are at most the connections it allows
one user.
"""

import os
import random
import shutil
import signal
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from live_project import until
from many_statements import ManyStatements
from measured_stops import Situation, Stop, called, client_of, socket_of, stop

from core.ipc.framing import encode_frame
from pipelines.agent.requests.socket_server import MOST_OF_A_USER, RESERVED
from pipelines.agent.statements.statement_control import STOPS_AT_ONCE
from tui.agent_client.socket_client import AgentClient

STATEMENTS = 100
FORTY = 40
FIRST_MS, ALL_MS = 300.0, 3000.0
IDLE = 1000
AGAIN_S, AGAIN_PER_S = 0.1, 500
"""Seconds until closed connections are reopened, and connections per second, as if that many programs called again."""
FLAT = 4
"""Number of threads and files that may come and go independently of the test."""


def measure_many(count: int, words: Sequence[str]) -> Iterator[Situation]:
    """Deploy 100 statements over a table without rows, and stop them in each situation."""
    root = Path(tempfile.mkdtemp(prefix="headgate-drill-"))
    many = ManyStatements(root)
    try:
        many.write(STATEMENTS)
        many.done("up")
        applied = many.apply(many.plan("--all", "--children", "all"))
        assert applied.returncode == 0, applied.stderr[-600:]
        for word in words:
            until(lambda: len(many.tables_in("running")) == STATEMENTS, 300, "all statements run")
            for found in MANY_SITUATIONS[word](many, count):
                print(f"  {found.name}: {len(found.stops)} stops", flush=True)
                yield found
                start_again(many, found)
    finally:
        many.down()
        shutil.rmtree(root, ignore_errors=True)


def locked(many: ManyStatements, count: int) -> Iterator[Situation]:
    """Stop statements one by one, then forty by one command, while another process holds the ledger."""
    client, tables = client_of(many), [f"t{n}" for n in range(count)]
    with held_ledger(many):
        stops = [found for table in tables for found in stop(client, table)]
    yield Situation("the ledger is locked", tuple(stops), learned(many, stops))
    start_again(many, Situation("", tuple(stops)))
    before = many.threads()
    with held_ledger(many), watched(many.threads) as most:
        forty = stop(client, *(f"t{n}" for n in range(FORTY)))
        entries = [line for line in (many.home() / "emergency.jsonl").read_text().splitlines() if line]
    first, last = min(called(forty)), max(found.took_ms for found in forty)
    said = f"{len(entries)} entries, first called after {first:.0f} ms, all gone after {last:.0f} ms"
    print(f"  forty by one command: {said}; threads {before} before, at most {most()}, {many.threads()} after")
    within = len(entries) == 1 and first <= FIRST_MS and last <= ALL_MS
    # Each stop in progress uses two threads: one executes it, and one enforces the deadline.
    flat = most() <= before + 2 * STOPS_AT_ONCE + FLAT
    wrong = [] if within and flat else [said]
    until(lambda: many.threads() <= before + FLAT, 10, "the number of threads is as before")
    name = "forty by one command, the ledger is locked"
    yield Situation(name, forty, (*wrong, *learned(many, forty)), called_within_ms=ALL_MS)


def idle_sockets(many: ManyStatements, count: int) -> Iterator[Situation]:
    """Stop while 1,000 silent connections are held; those that the agent closes are reopened."""
    client = client_of(many)
    before = many.threads(), many.files()
    with held_connections(many), watched(many.threads) as threads, watched(many.files) as files:
        stops = [found for n in range(count) for found in stop(client, f"t{n}")]
    print(f"  threads and files: {before} before, at most {threads(), files()}, {many.threads(), many.files()} after")
    most = max(threads() - before[0], files() - before[1])
    wrong = [] if most <= MOST_OF_A_USER + RESERVED + 2 * FLAT else [f"{most} more threads or files than before"]
    yield Situation("1,000 idle connections", tuple(stops), (*wrong, *learned(many, stops)))


def attaching(many: ManyStatements, count: int) -> Iterator[Situation]:
    """Lose the pool, and stop statements one by one from its attachment until all others run; repeat if too few."""
    client, stops, wrong = client_of(many), list[Stop](), list[str]()
    tables = random.Random(7).sample([f"t{n}" for n in range(STATEMENTS)], STATEMENTS)
    while len(stops) < count:
        these = while_attaching(many, client, tables)
        wrong += learned(many, these)
        stops += these
        if len(stops) < count:
            start_again(many, Situation("", tuple(these)))
            until(lambda: len(many.tables_in("running")) == STATEMENTS, 300, "all statements run")
    yield Situation("100 statements are being attached", tuple(stops), tuple(wrong))


def while_attaching(many: ManyStatements, client: AgentClient, tables: Sequence[str]) -> list[Stop]:
    """Kill the server, and stop statements from its attachment until all others have been started."""
    killed, stops = time.time(), list[Stop]()
    os.kill(many.pool_pid(), signal.SIGKILL)
    until(lambda: many.pool()[1].startswith("attached"), 120, "the agent is attached to the pool")
    while len(stops) < len(tables) and len(stops) + many.started(killed) < len(tables):
        stops += stop(client, tables[len(stops)])
    until(lambda: many.started(killed) >= len(tables) - len(stops), 300, "all others run")
    return stops


def learned(many: ManyStatements, stops: Sequence[Stop]) -> tuple[str, ...]:
    """Wait until the ledger has recorded all stops; return each stop that was not confirmed."""
    tables = {found.table for found in stops}
    until(lambda: tables <= many.tables_in("stopped"), 60, "the ledger has learned of every stop")
    return tuple(f"{found.table}: {found.outcome}" for found in stops if found.outcome != "stopped")


def start_again(many: ManyStatements, found: Situation) -> None:
    """Start the statements that a situation has stopped."""
    tables = sorted({stopped.table for stopped in found.stops} & many.tables_in("stopped"))
    for table in tables:
        client_of(many).call("start", {"tables": [table]}, confirm="yes")


@contextmanager
def held_ledger(many: ManyStatements) -> Iterator[None]:
    """Hold the ledger as another program would, so that nobody can read or write it."""
    with closing(sqlite3.connect(many.home() / "ledger.db", isolation_level=None, timeout=30)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            holder.execute("ROLLBACK")


@contextmanager
def held_connections(many: ManyStatements) -> Iterator[None]:
    """Hold 1,000 connections, half of them with a greeting; a thread reopens those that the agent closes."""
    path, over = socket_of(many), threading.Event()
    held = [connection(path, greets=n % 2 == 0) for n in range(IDLE)]

    def hold() -> None:
        while not over.wait(AGAIN_S):
            for n, one in enumerate(held):
                if is_closed(one) and not over.wait(1 / AGAIN_PER_S):
                    one.close()
                    held[n] = connection(path, greets=n % 2 == 0)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    try:
        yield
    finally:
        over.set()
        holder.join()
        for one in held:
            one.close()


def connection(path: str, *, greets: bool) -> socket.socket:
    """Open a connection that sends nothing except perhaps its greeting; reading from it never blocks."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(5)
    with suppress(OSError):
        # If it is refused or closed at once, it is reopened later.
        found.connect(path)
        if greets:
            found.sendall(encode_frame({"hello": {}}))
    found.setblocking(False)
    return found


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextmanager
def watched(count: Callable[[], int]) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the largest count seen within the block."""
    over, most = threading.Event(), [count()]

    def watch() -> None:
        while not over.wait(0.02):
            most.append(max(count(), most.pop()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: most[-1]
    finally:
        over.set()
        watcher.join()


MANY_SITUATIONS: dict[str, Callable[[ManyStatements, int], Iterator[Situation]]] = {
    "locked": locked,
    "sockets": idle_sockets,
    "attaching": attaching,
}
