"""The path of a stop through the agent, from its socket to Spark, with every function on it."""

import socket
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from agent_scenarios import one_pool
from ledger_rows import deployment_row

import pipelines
from core.ipc import framing
from pipelines.agent.context import AgentContext
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import SocketServer, receive_frame, send_frame
from pipelines.agent.statements import statement_control
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.call_deadlines import CircuitBreaker
from pipelines.spark_connect.session import Session
from pipelines.spark_connect.streaming_queries import SparkQueries
from state.emergency_journal import EmergencyJournal

PIPELINES = f"{Path(pipelines.__file__).parent}/"
WALK = [
    "SocketServer._serve",
    "SocketServer._answer",
    "CommandHandler.handle",
    "CommandHandler._act_on_statements",
    "StatementControl.stop",
    "in_threads",
    "in_threads.<locals>.work",
    "StatementControl._stop_one",
    "stop",
    "Session.call",
    "call",
    "call.<locals>.run",
    "SparkQueries.stop",
    "SparkQueries._end",
]


class SparkOfOneQuery:
    """A Spark whose only query records the call stacks that lead to its stop."""

    def __init__(self) -> None:
        self.active: list[Any] = [SimpleNamespace(name="a@v1", id="q", runId="r1", stop=self.stop)]
        self.walk: list[str] = []

    @property
    def streams(self) -> "SparkOfOneQuery":
        return self

    def stop(self) -> None:
        walks = [_ours(frame) for frame in sys._current_frames().values()]
        # Each of these threads waits for the next: the connection's, this stop's, and that of the call with the
        # deadline.
        self.walk = [name for first in ("SocketServer._serve", "in_threads.<locals>.work", "call.<locals>.run")
                     for walk in walks if walk[:1] == [first] for name in walk]  # fmt: skip
        self.active = []


def _ours(frame: FrameType | None) -> list[str]:
    """Return our functions on a thread's stack, outermost first."""
    found: list[str] = []
    while frame is not None:
        if PIPELINES in frame.f_code.co_filename:
            found.insert(0, frame.f_code.co_qualname)
        frame = frame.f_back
    return found


def test_a_stop_passes_only_these_functions_from_the_socket_to_spark(
    agent: AgentContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No thread of a write that timed out may remain.
    monkeypatch.setattr(statement_control, "LEDGER_S", 60.0)
    agent.ledger.put_deployment(deployment_row(query_id="q", run_id="r1"))
    spark = SparkOfOneQuery()
    session: Any = object.__new__(Session)
    session.spark, session.breaker, session._lost = spark, CircuitBreaker(lambda: None), None
    connection = SimpleNamespace(call=session.call, queries=SparkQueries(session))
    agent.pools = one_pool(SimpleNamespace(connection_for_stops=lambda: connection))  # One port is enough.
    acts = StatementControl(agent, EmergencyJournal(tmp_path / "emergency.jsonl"))
    unused: Any = None
    commands = CommandHandler(agent, acts, unused, unused, unused)
    server = SocketServer(str(tmp_path / "agent.sock"), {"protocol": framing.PROTOCOL}, commands.handle)
    server.open()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(60)
            caller.connect(str(tmp_path / "agent.sock"))
            send_frame(caller, {"hello": {}})
            receive_frame(caller)
            send_frame(caller, {"id": 1, "op": "stop", "args": {"tables": ["a"]}, "confirm": "yes"})
            reply = receive_frame(caller)
    finally:
        server.close()
    assert reply["ok"], reply
    assert spark.walk == WALK
