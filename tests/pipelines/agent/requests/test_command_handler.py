"""The agent answers every request that console and command line send, and handles no others."""

import re
from pathlib import Path
from typing import Any

import pytest

from core.model.errors import UsageError
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.caller_roles_and_policy import REQUIRED_ROLES
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal
from tui.agent_client.socket_client import DEADLINES_S, WITH_AN_OLDER_AGENT

TUI = Path(__file__).parents[4] / "tui"
VERBS = {"stop", "start", "restart"}
"""Requests sent by `AgentCommands.act`, which gets their name as an argument."""


def sent() -> set[str]:
    """Return the names of all requests in the sources of tui."""
    return VERBS | {
        op for path in TUI.rglob("*.py") for op in re.findall(r'client\.call\(\s*"(\w+)"', path.read_text())
    }


@pytest.fixture
def answered(agent: AgentContext, tmp_path: Path) -> set[str]:
    figures = TableStatisticsCollector(agent, PoolUtilization())
    runs: Any = None
    handler = CommandHandler(
        agent, StatementControl(agent, EmergencyJournal(tmp_path / "e")), runs, figures, lambda **asked: None
    )
    with pytest.raises(UsageError, match="does not know"):
        handler.handle(None, {"op": "dance"})  # type: ignore[arg-type]  # Refused before the caller is examined.
    return set(handler._answer_by_op)


def test_every_request_that_is_sent_has_an_answer_and_the_other_way_round(answered: set[str]) -> None:
    assert sent() == answered


def test_tables_of_deadlines_roles_and_older_requests_name_existing_requests(answered: set[str]) -> None:
    assert set(DEADLINES_S) <= answered
    assert set(REQUIRED_ROLES) <= answered
    assert answered >= WITH_AN_OLDER_AGENT
