"""Replaces `threading`, `queue`, `time` and `Future` in the agent's modules with stand-ins while a life is played.

This covers everything that a module of the agent imports under those names or from those modules; locks kept in modules
are renewed with each agent, as in a new process.
"""

import concurrent.futures
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

from modelled_files import Disk, LivedJournal
from modelled_pool import (
    ModelledAnalysis,
    ModelledEvents,
    ModelledLocalPool,
    ModelledQueries,
    ModelledSession,
    ModelledTables,
    NoOpenBatches,
    NoUpkeep,
)
from modelled_server import Handle, Server
from virtual_primitives import VirtualModules

from core.model.errors import TryAgain
from pipelines.agent import daemon
from pipelines.agent.context import AgentContext
from pipelines.agent.identity import environment_identity, registry_records
from pipelines.agent.pool import pool_supervisor, spark_connection
from pipelines.agent.pool.pool_supervisor import PoolSupervisor
from pipelines.agent.requests import adoption
from pipelines.spark_connect import jar_sessions, streaming_queries
from state import transactions

PREFIXES = ("pipelines.agent", "pipelines.spark_connect.", "state.emergency_journal")
_REAL: dict[int, str] = {
    id(found): name
    for name, found in {
        "threading": threading, "queue": queue, "time": time, "Thread": threading.Thread, "Lock": threading.Lock,
        "RLock": threading.RLock, "Event": threading.Event, "Condition": threading.Condition,
        "Future": concurrent.futures.Future, "wait": concurrent.futures.wait, "monotonic": time.monotonic,
        "sleep": time.sleep,
    }.items()
}  # fmt: skip
_LOCK = type(threading.Lock())
_ROWS = lru_cache(maxsize=100_000)(transactions.row_from_values)
"""Rows are immutable, and a life reads the same rows repeatedly."""


def _agent_modules() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.startswith(PREFIXES) and module]


def _stand_ins(modules: VirtualModules) -> dict[str, Any]:
    threads = modules.threading
    return {
        "threading": threads, "queue": modules.queue, "time": modules.time, "Thread": threads.Thread,
        "Lock": threads.Lock, "RLock": threads.RLock, "Event": threads.Event, "Condition": threads.Condition,
        "Future": modules.future, "wait": modules.wait, "monotonic": modules.time.monotonic,
        "sleep": modules.time.sleep,
    }  # fmt: skip


_PLACES = [
    (module, attribute, _REAL[id(value)])
    for module in _agent_modules()
    for attribute, value in vars(module).items()
    if id(value) in _REAL
]
_LOCKS = [
    (module, attribute) for module in _agent_modules() for attribute, value in vars(module).items()
    if isinstance(value, _LOCK)
]  # fmt: skip


def refresh_locks(modules: VirtualModules) -> None:
    """Replace every lock that is kept in a module with a new one, as a new process would."""
    for module, attribute in _LOCKS:
        setattr(module, attribute, modules.threading.Lock())


class _NoSocket:
    """Stands in for the socket, because the operators of a life call the command handler directly."""

    def __init__(self, *args: Any) -> None:
        return

    def open(self) -> None:
        return

    close = open


@contextmanager
def lived(modules: VirtualModules, server: Server, disk: Disk, changes: Any) -> Iterator[None]:
    """Run the agent's modules inside a life for the duration of the block; `changes` alters each agent's context."""
    stand_ins = _stand_ins(modules)
    with ExitStack() as restored:

        def put(owner: Any, attribute: str, value: Any) -> None:
            restored.callback(setattr, owner, attribute, vars(owner)[attribute])
            setattr(owner, attribute, value)

        for module, attribute, name in _PLACES:
            put(module, attribute, stand_ins[name])
        for module, attribute in _LOCKS:
            put(module, attribute, modules.threading.Lock())
        put(streaming_queries, "StreamingQuery", _handle_of(server))
        put(streaming_queries, "ListenerEvents", ModelledEvents)
        put(streaming_queries, "OpenBatches", NoOpenBatches)
        session = type("LivedSession", (ModelledSession,), {"server": server})
        pool = type("LivedPool", (ModelledLocalPool,), {"server": server})
        journal = type("LifeJournal", (LivedJournal,), {"disk": disk})
        put(pool_supervisor, "LocalPool", pool)
        for attribute, value in (
            ("Session", session), ("SparkTables", ModelledTables),
            ("SparkAnalysis", ModelledAnalysis), ("SparkUpkeep", NoUpkeep),
        ):  # fmt: skip
            put(spark_connection, attribute, value)
        put(jar_sessions, "SparkQueries", ModelledQueries)
        put(daemon, "PoolSupervisor", partial(PoolSupervisor, monotonic=modules.time.monotonic))
        put(daemon, "SocketServer", _NoSocket)
        put(daemon, "EmergencyJournal", journal)
        put(daemon, "AgentContext", _context(changes))
        put(adoption, "pids_of_servers_on", lambda data: {})
        put(transactions, "row_from_values", _ROWS)
        for owner, noun in ((registry_records, "record"), (environment_identity, "mark")):
            for verb in ("read", "write"):
                name = f"{verb}_{noun}"
                put(owner, name, _on_disk(disk, vars(owner)[name], writes=verb == "write"))
        yield


def _context(changes: Any) -> Any:
    def made(**fields: Any) -> AgentContext:
        return AgentContext(**(fields | changes()))

    return made


def _handle_of(server: Server) -> Any:
    def handle(spark: Any, id: str, run_id: str, name: str) -> Handle:
        return Handle(server, spark.streams.session.generation, id, run_id, name)

    return handle


def _on_disk(disk: Disk, act: Any, *, writes: bool) -> Any:
    def acted(*args: Any) -> Any:
        disk.baton.point()
        if disk.away_until > disk.baton.now:
            raise TryAgain("the data folder cannot be reached: Input/output error")
        if writes and disk.full_until > disk.baton.now:
            raise TryAgain("the disk is full: No space left on device")
        found = act(*args)
        disk.baton.point()
        return found

    return acted
