"""Callers' input is bounded before it is stored, and refusals are counted instead of stored one by one."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ledger_rows import create_run, deployment_row, run_row

from core.model.errors import HeadgateError, LedgerUnavailable, Refused, UsageError
from core.model.names import TableName
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import LONGEST_S, TABLES_LIMIT, CommandHandler, _seconds
from pipelines.agent.requests.command_log import STORED, WINDOW_S, RepeatedCalls, cut
from pipelines.agent.requests.socket_server import Caller, SocketServer, receive_frame, send_frame
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal

CALLER = Caller(pid=1, uid=0, login_uid=None)
LONG = "x" * 3_000_000


@pytest.fixture
def handler(agent: AgentContext, tmp_path: Path) -> CommandHandler:
    agent.ledger.put_deployment(deployment_row("a"))
    agent.files.prepare("/c/a__v1", {})
    figures = TableStatisticsCollector(agent, PoolUtilization())
    unused: Any = None
    return CommandHandler(
        agent, StatementControl(agent, EmergencyJournal(tmp_path / "e")), unused, figures, lambda **asked: None
    )


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
    request_: dict[str, Any], handler: CommandHandler, agent: AgentContext
) -> None:
    refused(handler, **request_)
    (command,), (audit,) = agent.ledger.commands(), agent.ledger.audits()
    assert len(repr(command)) + len(repr(audit)) < 6000
    assert agent.ledger.staged() == ()


def test_a_command_that_is_done_takes_little_room(handler: CommandHandler, agent: AgentContext, pool: Any) -> None:
    handler.handle(CALLER, {"op": "stop", "args": {"tables": ["a"]}, "confirm": "yes", "line": LONG})
    (command,) = agent.ledger.commands()
    assert command.outcome == "done" and command.line.endswith("… (3,000,000 characters)")
    assert len(command.line) == 2000


@pytest.mark.parametrize("request_", [{"op": LONG}, {"op": "stop", "args": [1]}, {"op": "stop", "args": "a"}])
def test_an_unknown_command_is_refused_and_not_stored(
    request_: dict[str, Any], handler: CommandHandler, agent: AgentContext
) -> None:
    with pytest.raises(HeadgateError) as raised:
        handler.handle(CALLER, request_)
    assert len(raised.value.summary) < 200 and agent.ledger.commands() == ()


def test_ten_refusals_in_a_minute_are_stored_and_of_the_rest_the_number(
    handler: CommandHandler, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    handler._log._repeated = RepeatedCalls(lambda: now[0])
    for _ in range(500):
        refused(handler, op="apply", args={"hash": "none"})
    handler.handle(CALLER, {"op": "stop", "args": {"tables": ["a"]}, "confirm": "yes"})
    handler.record_repeated()
    assert len(agent.ledger.commands(1000)) == STORED + 1, "the stop is stored, whatever is counted"
    now[0] = WINDOW_S + 1
    handler.record_repeated()
    handler.record_repeated()
    told, *_ = agent.ledger.audits(1000)
    assert (told.action, told.subject, told.outcome) == ("apply", "490 more within a minute", "failed")
    assert len(agent.ledger.audits(1000)) == STORED + 2
    refused(handler, op="apply", args={"hash": "none"})
    assert len(agent.ledger.audits(1000)) == STORED + 3, "another minute has begun"


@pytest.mark.parametrize("write", ["add_command", "add_audit"])
def test_actions_that_a_full_ledger_did_not_record_are_recorded_once_possible(
    write: str, handler: CommandHandler, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, is_full = getattr(type(agent.ledger), write), [True]

    def put(*args: Any) -> Any:
        if is_full:
            raise LedgerUnavailable("the ledger cannot be written: database or disk is full")
        return written(*args)

    monkeypatch.setattr(type(agent.ledger), write, put)
    handler.handle(CALLER, {"op": "stop", "args": {"tables": ["a"]}, "confirm": "yes"})
    handler.record_repeated()
    assert agent.ledger.audits() == ()
    is_full.clear()
    acted_at = agent.clock()
    for _ in range(2):
        handler.record_repeated()
    (command,), (audit,) = agent.ledger.commands(), agent.ledger.audits()
    assert (command.op, audit.action, audit.actor) == ("stop", "stop", CALLER.name)
    assert command.at == audit.at < acted_at


def test_a_text_that_fits_is_stored_unchanged() -> None:
    assert cut("x" * 40, 40) == "x" * 40
    assert cut("x" * 1000, 40) == "x" * (40 - len("… (1,000 characters)")) + "… (1,000 characters)"


UNCHANGING = {
    "stop": {"op": "stop", "args": {"tables": ["a"]}, "confirm": "yes"},
    "unstage": {"op": "unstage", "args": {"tables": ["a"], "folder": "/p"}},
    "stage": {"op": "stage", "args": {"tables": ["a"], "folder": "/p"}},
    "upgrade": {"op": "upgrade_shown", "args": {"old": "0" * 64, "new": "1" * 64, "table": "a", "shown": "x"}},
}


@pytest.mark.parametrize("request_", UNCHANGING.values(), ids=UNCHANGING.keys())
def test_ten_commands_without_effect_are_stored_per_minute(
    request_: dict[str, Any], handler: CommandHandler, agent: AgentContext
) -> None:
    agent.ledger.update_deployment(TableName("a"), 1, wanted="stopped", state="stopped")
    now = [0.0]
    handler._log._repeated = RepeatedCalls(lambda: now[0])
    for _ in range(300):
        handler.handle(CALLER, request_)
    now[0] = WINDOW_S + 1
    handler.record_repeated()
    commands, audits = agent.ledger.commands(1000), agent.ledger.audits(1000)
    assert len(commands) == len(audits) == STORED + 1
    assert (audits[0].subject, audits[0].outcome) == ("290 more within a minute", audits[1].outcome)
    assert [event.count for event in agent.ledger.events(limit=1000)] in ([], [300])


def test_a_repeated_command_to_a_run_is_counted_and_a_different_one_stored(
    handler: CommandHandler, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(agent.ledger, run_row("h", id="7f3a-1"))
    told: list[str] = []
    monkeypatch.setattr(handler, "_runs", SimpleNamespace(submit_command=lambda run, word: told.append(word.act)))
    for _ in range(100):
        handler.handle(CALLER, {"op": "run", "args": {"id": "7f3a-1", "act": "pause"}})
    handler.handle(CALLER, {"op": "run", "args": {"id": "7f3a-1", "act": "cancel"}, "confirm": "7f3a"})
    assert [row.op for row in agent.ledger.commands(1000)] == ["cancel", *["pause"] * STORED]
    assert told == ["pause"] * 100 + ["cancel"]


def test_commands_with_a_new_effect_each_time_are_stored_each_time(
    handler: CommandHandler, agent: AgentContext
) -> None:
    names = [f"t{number}" for number in range(3 * STORED)]
    for name in names:
        agent.ledger.put_deployment(deployment_row(name))
        handler.handle(CALLER, {"op": "stop", "args": {"tables": [name]}, "confirm": "yes"})
    assert [row.subject for row in reversed(agent.ledger.commands(1000))] == names


def test_the_staged_tables_of_a_caller_are_bounded_over_all_commands(
    handler: CommandHandler, agent: AgentContext
) -> None:
    def stage(folder: str, count: int) -> None:
        tables = [f"t{number}" for number in range(count)]
        handler.handle(CALLER, {"op": "stage", "args": {"tables": tables, "folder": folder}})

    stage("/p", TABLES_LIMIT)
    stage("/p", TABLES_LIMIT)
    with pytest.raises(Refused, match=f"has {TABLES_LIMIT:,} tables staged in all project folders") as refused:
        stage("/q", 1)
    assert "unstage" in refused.value.remedy and len(agent.ledger.staged()) == TABLES_LIMIT


@pytest.mark.parametrize("wrong", [{"tables": 5}, {"hash": [[1]]}, {"table": {"a": 1}}, {"questions": []}])
def test_an_act_is_recorded_whatever_else_its_arguments_hold(
    wrong: dict[str, Any], handler: CommandHandler, agent: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(agent.ledger, run_row("h", id="7f3a-1"))
    monkeypatch.setattr(handler, "_runs", SimpleNamespace(submit_command=lambda run, word: None))
    answer = handler.handle(CALLER, {"op": "run", "args": {"id": "7f3a-1", "act": "pause", **wrong}})
    assert answer == {"run": "7f3a-1", "act": "pause"}
    assert [row.outcome for row in agent.ledger.commands()] == ["accepted"]


def test_an_unrecorded_but_completed_action_is_not_reported_as_failed(
    handler: CommandHandler, agent: AgentContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(row: object) -> int:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(agent.ledger, "add_command", broken)
    answer = handler.handle(CALLER, {"op": "stop", "args": {"tables": ["a"]}, "confirm": "yes"})
    assert [one["table"] for one in answer["statements"]] == ["a"]
    assert "not recorded: stop a by" in caplog.text


@pytest.mark.parametrize("field", ["confirm", "line"])
def test_a_non_text_field_is_refused_before_anything_is_done(
    field: str, handler: CommandHandler, agent: AgentContext
) -> None:
    refused(handler, op="stop", args={"tables": ["a"]}, **{"confirm": "yes", field: ["yes"]})
    assert agent.ledger.deployment(TableName("a"), 1).wanted == "running"  # type: ignore[union-attr]  # It is there.


@pytest.mark.parametrize("seconds", [1e300, None, "7", True, [1]])
def test_seconds_are_a_number_and_bounded(seconds: Any) -> None:
    given = {"seconds": seconds}
    if seconds == 1e300:
        assert _seconds(given, 1.0) == LONGEST_S
    else:
        with pytest.raises(UsageError, match="is not a number of seconds"):
            _seconds(given, 1.0)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"op":"stop","args":{"tables":["a"]},"confirm":"yes","line":"\ud800"}',
        rb'{"op":"stop","args":{"tables":["a"],"\ud800":1},"confirm":"yes"}',
        rb'{"op":"stop","args":{"tables":["a"]},"confirm":"yes","line":"\xff"}'.replace(rb"\xff", b"\xff"),
        b'{"op":"stop","args":{"tables":["a"]},"confirm":"yes","x":' + b"[" * 600 + b"]" * 600 + b"}",
    ],
    ids=["a value", "a key", "bytes", "deep"],
)
def test_a_request_that_could_not_be_recorded_is_refused_and_has_no_effect(
    body: bytes, handler: CommandHandler, agent: AgentContext, tmp_path: Path
) -> None:
    server = SocketServer(str(tmp_path / "s" / "agent.sock"), {}, handler.handle)
    server.open()
    try:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(60)
            caller.connect(str(tmp_path / "s" / "agent.sock"))
            send_frame(caller, {"hello": {}})
            receive_frame(caller)
            caller.sendall(len(body).to_bytes(4, "big") + body)
            error = receive_frame(caller)["error"]
    finally:
        server.close()
    assert error["class"] == "UsageError" and error["summary"].startswith(
        "the agent cannot read this request: the message"
    )
    found = agent.ledger.deployment(TableName("a"), 1)
    assert found is not None and found.wanted == "running" and agent.ledger.commands() == ()


def test_an_answer_with_a_name_that_is_not_utf_8_arrives(agent: AgentContext, tmp_path: Path) -> None:
    name = os.fsdecode(b"/srv/caf\xe9")
    server = SocketServer(str(tmp_path / "s" / "agent.sock"), {}, lambda caller, request: {"folder": name})
    server.open()
    try:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.settimeout(60)
            caller.connect(str(tmp_path / "s" / "agent.sock"))
            send_frame(caller, {"hello": {}})
            receive_frame(caller)
            send_frame(caller, {"op": "status"})
            assert receive_frame(caller)["result"] == {"folder": r"/srv/caf\xe9"}
    finally:
        server.close()
