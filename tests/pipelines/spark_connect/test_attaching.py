"""Attaching to a real pool: no attempt leaks a channel, a thread or a file, however it fails."""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_scenarios import wait_until
from ledger_rows import environment_row, pool_row

from core.ipc.environment_paths import EnvironmentPaths
from core.model.errors import HeadgateError, PoolUnreachable
from core.project.model import Pool
from pipelines.agent.context import PoolConnection
from pipelines.agent.pool import spark_connection
from pipelines.agent.pool.pool_supervisor import PoolSupervisor
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session
from state.ledger import Ledger, create_or_open

pytestmark = pytest.mark.spark

TRIES = 20
SLACK = 4
"""Number of threads and files that gRPC keeps, however many channels there were."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    facts = environment_row(pools=(pool_row(generation=0, session_id=""),))
    with create_or_open(tmp_path / "home" / "ledger.db", facts) as opened:
        yield opened


@pytest.fixture
def supervise(pool: LocalPool, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Supervise":
    """Return a function that creates a supervisor for the tests' server, as a remote pool, or for another address."""

    def session(url: str, token: str, session_id: str, lost: Callable[[Session], None], **_: object) -> Session:
        return Session(url, pool.token, session_id, lost=lost)

    def supervisor(url: str, restore: Callable[[PoolConnection], None]) -> PoolSupervisor:
        places = EnvironmentPaths(str(tmp_path / "home"), str(tmp_path / "a.sock"), os.getuid())
        return PoolSupervisor(places, Pool(name="shared", url=url), ledger, restore)

    monkeypatch.setattr(spark_connection, "Session", session)
    return supervisor


Supervise = Callable[[str, Callable[[PoolConnection], None]], PoolSupervisor]


def open_now() -> tuple[int, int]:
    """Count threads and files of this process."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def holds(before: tuple[int, int]) -> bool:
    threads, files = open_now()
    return threads <= before[0] + SLACK and files <= before[1] + SLACK


def fail(keeper: PoolSupervisor) -> None:
    with pytest.raises(HeadgateError):
        keeper.keep()


def test_tries_that_fail_before_the_attachment_leave_nothing(supervise: Supervise) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        keeper = supervise(f"sc://127.0.0.1:{unused.getsockname()[1]}", lambda attached: None)
        fail(keeper)
        before = open_now()
        for _ in range(TRIES):
            fail(keeper)
        wait_until(lambda: holds(before))


@pytest.mark.drill
def test_tries_that_fail_to_fill_the_catalog_leave_nothing(supervise: Supervise, pool: LocalPool) -> None:
    def refuse(attached: PoolConnection) -> None:
        attached.call(5.0, attached.queries.active)
        raise PoolUnreachable("no answer")

    keeper = supervise(pool.url, refuse)
    fail(keeper)
    before = open_now()
    for _ in range(TRIES):
        fail(keeper)
    assert holds(before), (before, open_now())
    keeper.end()


@pytest.mark.drill
def test_sessions_that_are_lost_again_and_again_leave_nothing(
    supervise: Supervise, pool: LocalPool, ledger: Ledger
) -> None:
    keeper = supervise(pool.url, lambda attached: attached.call(5.0, attached.queries.active))
    before: tuple[int, int] | None = None
    for number in range(TRIES):
        keeper.keep()
        connection = keeper.connection()
        connection.call(20.0, connection.tables.read, "SELECT 1", 1)
        keeper._drop()
        ledger.put_pool(session_id=str(uuid.uuid4()))
        if number == 2:
            before = open_now()
    assert before is not None
    wait_until(lambda: holds(before))
    assert threading.active_count() < TRIES
