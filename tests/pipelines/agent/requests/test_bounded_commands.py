"""What callers send is bounded before it is stored; what they are refused is counted, not stored one by one."""

from pathlib import Path
from typing import Any

import pytest
from ledger_rows import deployment_row

from core.model.errors import HeadgateError
from pipelines.agent.context import AgentContext
from pipelines.agent.fast_lane import FastLane
from pipelines.agent.measurements.pool_utilization import PoolUtilization
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import CommandHandler, cut
from pipelines.agent.requests.refused_calls import STORED, WINDOW_S, RefusedCalls
from pipelines.agent.requests.socket_server import Caller
from state.emergency_journal import EmergencyJournal

CALLER = Caller(pid=1, uid=0, login_uid=None)
LONG = "x" * 3_000_000


@pytest.fixture
def handler(world: AgentContext, tmp_path: Path) -> CommandHandler:
    world.ledger.put_deployment(deployment_row("a"))
    world.files.prepare("/c/a__v1", {})
    figures = TableStatisticsCollector(world, PoolUtilization())
    unused: Any = None
    return CommandHandler(world, FastLane(world, EmergencyJournal(tmp_path / "e")), unused, figures, lambda pool: None)


def refused(handler: CommandHandler, **request: Any) -> None:
    with pytest.raises(HeadgateError):
        handler.handle(CALLER, request)


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "stop", "args": {"tables": ["a"]}, "confirm": LONG},
        {"op": "stop", "args": {"tables": ["a"]}, "confirm": "no", "line": LONG},
        {"op": "stop", "args": {"tables": [LONG]}},
        {"op": "stop", "args": {"tables": [f"t{n}" for n in range(300_000)]}, "confirm": "no"},
        {"op": "run", "args": {"id": LONG, "act": "cancel"}},
        {"op": "run", "args": {"id": "x", "act": LONG}},
        {"op": "apply", "args": {"hash": LONG}},
        {"op": "stage", "args": {"tables": ["a"], "folder": LONG}},
        {"op": "stage", "args": {"tables": ["a"], "verb": LONG}},
        {"op": "stage", "args": {"tables": [f"t{n}" for n in range(20_000)]}},
    ],
    ids=["confirmation", "line", "a table", "tables", "a run", "an act", "a plan", "a folder", "a verb", "a stage"],
)
def test_a_refused_command_takes_little_room(
    request_: dict[str, Any], handler: CommandHandler, world: AgentContext
) -> None:
    refused(handler, **request_)
    (command,), (audit,) = world.ledger.commands(), world.ledger.audits()
    assert len(repr(command)) + len(repr(audit)) < 6000
    assert world.ledger.staged() == ()


def test_a_command_that_is_done_takes_little_room(handler: CommandHandler, world: AgentContext, pool: Any) -> None:
    handler.handle(CALLER, {"op": "stop", "args": {"tables": ["a"]}, "confirm": "yes", "line": LONG})
    (command,) = world.ledger.commands()
    assert command.outcome == "done" and command.line.endswith("… (3,000,000 characters)")
    assert len(command.line) == 2000


@pytest.mark.parametrize("request_", [{"op": LONG}, {"op": "stop", "args": [1]}, {"op": "stop", "args": "a"}])
def test_what_is_no_command_is_refused_and_stored_nowhere(
    request_: dict[str, Any], handler: CommandHandler, world: AgentContext
) -> None:
    with pytest.raises(HeadgateError) as raised:
        handler.handle(CALLER, request_)
    assert len(raised.value.summary) < 200 and world.ledger.commands() == ()


def test_ten_refusals_in_a_minute_are_stored_and_of_the_rest_the_number(
    handler: CommandHandler, world: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    handler._refused = RefusedCalls(lambda: now[0])
    for _ in range(500):
        refused(handler, op="apply", args={"hash": "none"})
    handler.handle(CALLER, {"op": "stop", "args": {"tables": ["a"]}, "confirm": "yes"})
    handler.tell_refused()
    assert len(world.ledger.commands(1000)) == STORED + 1, "the stop is stored, whatever is counted"
    now[0] = WINDOW_S + 1
    handler.tell_refused()
    handler.tell_refused()
    told, *_ = world.ledger.audits(1000)
    assert (told.action, told.subject, told.outcome) == ("apply", "490 more within a minute", "refused")
    assert len(world.ledger.audits(1000)) == STORED + 2
    refused(handler, op="apply", args={"hash": "none"})
    assert len(world.ledger.audits(1000)) == STORED + 3, "another minute has begun"


def test_a_text_that_fits_is_stored_as_it_is() -> None:
    assert cut("x" * 40, 40) == "x" * 40
    assert cut("x" * 1000, 40) == "x" * (40 - len("… (1,000 characters)")) + "… (1,000 characters)"
