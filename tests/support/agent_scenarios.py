"""Another actor that works while a test runs: a thread that holds a version, or an operator who acts during a step."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.model.names import TableName
from core.observed.versions import Deployment
from core.project.model import Environment
from pipelines.agent.context import AgentContext, Pools
from pipelines.agent.statement_locks import Version
from pipelines.agent.statements.statement_control import StatementControl
from state.emergency_journal import EmergencyJournal
from state.ledger import Ledger
from state.operator_commands import CommandStamp


def one_pool(client: Any) -> Pools:
    """Return the pools of an environment with one pool, over a double of it."""
    environment = Environment("dev")
    return Pools(environment, {environment.pool.name: client})


@contextmanager
def held_elsewhere(agent: AgentContext, *versions: Version, by: str = "run 7f3a") -> Iterator[None]:
    """Hold the locks of versions in another thread for the duration of the block."""
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with agent.locks.holding(*versions, by=by):
            taken.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(30)
    try:
        yield
    finally:
        over.set()
        thread.join()


class _ReadBefore:
    """A ledger wrapper that lets another actor act once, right after the first answer to a certain question."""

    def __init__(self, ledger: Ledger, question: str, act: Callable[[], object]) -> None:
        self._ledger, self._question, self._act = ledger, question, act
        self.acted = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ledger, name)
        if name != self._question or self.acted:
            return found

        def answered(*args: Any, **more: Any) -> Any:
            answer, self.acted = found(*args, **more), True
            self._act()
            return answer

        return answered


def read_before(agent: AgentContext, question: str, act: Callable[[], object]) -> AgentContext:
    """Return a context in which `act` is called once, right after the ledger's first answer to `question`."""
    return replace(agent, ledger=_ReadBefore(agent.ledger, question, act))  # type: ignore[arg-type]  # A double.


def put_made(agent: AgentContext, deployment: Deployment, run: str = "") -> Deployment:
    """Record a version in the state in which a run leaves it: in the ledger and catalog, with a checkpoint folder."""
    agent.ledger.put_deployment(deployment)
    for each in agent.pools.every():
        pool: Any = each.client
        pool.tables[agent.layout.catalog_name(deployment.table, deployment.version)] = deployment.compiled_ddl
    agent.files.prepare(deployment.checkpoint, {"run": run})
    return deployment


def fast_lane(agent: AgentContext) -> StatementControl:
    """Return the control through which operators start and stop statements, over this agent's context."""
    return StatementControl(agent, EmergencyJournal(Path(agent.folder, "emergency.jsonl")))


def stop_in_ledger(agent: AgentContext, *names: str) -> None:
    """Record an operator's stop in the ledger without carrying it out."""
    agent.ledger.stop_statements(names, CommandStamp(agent.locks.announce_stop(names), "bob", 1.0))


def in_a_thread(act: Callable[[], object]) -> threading.Thread:
    """Run another actor's work in a daemon thread, so that a test that ends early can exit."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def stop_by_operator(agent: AgentContext, pool: Any, *tables: str) -> threading.Thread:
    """Start an operator's stop; return once Spark has been told to stop, even if its confirmation is still pending."""
    called = len(pool.stops)
    acts, names = fast_lane(agent), tuple(map(TableName, tables))
    thread = in_a_thread(lambda: acts.stop(names, time.monotonic(), by="bob"))
    wait_until(lambda: len(pool.stops) >= called + len(tables))
    return thread


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until a condition is true; fail after `seconds`."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "the condition never held"
        time.sleep(0.001)
