"""stop, start, restart: which confirmation is required, which request is sent, and the exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import create_run, run_row

from core.model.act_outcomes import ActOutcome, ActResult
from core.model.errors import Busy, EngineRefused, HeadgateError, Refused
from core.model.names import TableName
from core.run.records import StepRow
from tui.command_line import exit_codes

PENDING = ", first batch pending"
TAKEN = {
    "stop": ((ActResult.STOPPED, "stopped"), (ActResult.ALREADY_STOPPED, "was already stopped")),
    "start": ((ActResult.STARTED, "started"), (ActResult.ALREADY_RUNNING, "was already running")),
    "restart": ((ActResult.RESTARTED, "restarted"),),
}
"""The successful outcomes of each command, in words."""


def answer(
    table: str, result: ActResult, *, version: int = 1, error: HeadgateError | None = None, recorded: bool = True
) -> Any:
    """Return the agent's answer for one statement."""
    return ActOutcome(TableName(table), version, result, 3.0, 12.0, recorded, error).as_json()


@pytest.mark.parametrize(("verb", "result", "words"), [(verb, *taken) for verb in TAKEN for taken in TAKEN[verb]])
def test_an_act_is_sent_once_it_is_confirmed(
    verb: str, result: ActResult, words: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script[verb] = {"statements": [answer("a", result)]}
    assert exit_codes.run_command_line([verb, "A", "--yes"]) == 0
    (request,) = agent.heard
    assert (request["args"], request["confirm"]) == ({"tables": ["a"]}, "yes")
    assert request["line"].startswith(f"headgate {verb} a --project ")
    said = capsys.readouterr()
    pending = PENDING if words in ("started", "restarted") else ""
    assert said.out == f"a v1: {words} in 12 ms{pending}\n" and said.err.startswith("shop dev  (")


@pytest.mark.parametrize(
    ("words", "text"),
    [(["stop", "a"], "yes"), (["stop", "a", "b", "--yes"], "2"), (["stop", "a", "--env", "prod", "--yes"], "a")],
)
def test_without_a_confirmation_nothing_is_sent(
    words: list[str], text: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(words) == 3
    assert f"--confirm '{text}'" in capsys.readouterr().err and agent.heard == []


def test_a_wrong_text_is_named(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["stop", "a", "b", "--confirm", "3"]) == 3
    assert "'3' was given" in capsys.readouterr().err


def test_without_an_agent_an_act_says_try_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["stop", "a", "--yes", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "AgentUnreachable"


def test_an_invalid_name_is_a_usage_error(agent: Any) -> None:
    assert exit_codes.run_command_line(["stop", "a; drop", "--yes"]) == 2
    assert agent.heard == []


@pytest.mark.parametrize(("result", "words"), [(ActResult.STOPPED, "stopped"), (ActResult.SENT, "sent, not confirmed")])
def test_an_unrecorded_stop_is_reported_and_is_no_success(
    result: ActResult, words: str, agent: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["stop"] = {"statements": [answer("a", result, recorded=False)]}
    assert exit_codes.run_command_line(["stop", "a", "--yes"]) == 4
    said = capsys.readouterr()
    assert f"a v1: {words} in 12 ms, not recorded" in said.out
    assert "the change is lost if the agent stops now" in said.err
    assert f"free space for {place.where.home}, then stop again" in said.err


@pytest.mark.parametrize(
    "not_proven",
    [
        answer("a", ActResult.SENT),
        answer("a", ActResult.NOT_SENT),
        answer("a", ActResult.NOT_STOPPED, error=EngineRefused("the session is closed")),
        {"table": "a", "outcome": "stopped"},
        {"table": "a", "came": "done"},
    ],
)
def test_only_what_is_proven_of_every_statement_is_a_success(not_proven: Any, agent: Any) -> None:
    agent.script["stop"] = {"statements": [answer("a", ActResult.STOPPED), not_proven]}
    assert exit_codes.run_command_line(["stop", "a", "--yes"]) == 4


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([Refused("b is gone", remedy="headgate plan b --rebuild")], 3),
        ([Refused("b is gone"), Refused("c is gone")], 3),
        ([Busy("b@v1 is held by run 7f3a")], 4),
        ([EngineRefused("no such column")], 1),
        ([Refused("b is gone"), Busy("c@v1 is held by run 7f3a")], 1),
    ],
)
def test_a_start_of_several_reports_each_and_its_exit_code_gives_the_reason(
    errors: list[HeadgateError], code: int, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = [answer(table, ActResult.NOT_STARTED, error=error) for table, error in zip("bc", errors, strict=False)]
    agent.script["start"] = {"statements": [answer("a", ActResult.STARTED), *refused]}
    assert exit_codes.run_command_line(["start", "a", "b", "c", "--confirm", "3"]) == code
    said = capsys.readouterr()
    assert "a v1: started in 12 ms, first batch pending\n" in said.out
    assert f"b v1: not started: {errors[0].summary}\n" in said.out
    assert not errors[0].remedy or f"b: {errors[0].remedy}" in said.err


@pytest.mark.parametrize("verb", TAKEN)
def test_a_name_without_a_statement_is_refused_before_anything_is_asked(
    verb: str, agent: Any, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line([verb, "orders"]) == 2
    assert "orders is not deployed here\n  headgate ls lists what is deployed" in capsys.readouterr().err
    ledger.put_deployment(deployed("orders"))
    ledger.put_deployment(deployed("landed", version=0, external=True))
    assert exit_codes.run_command_line([verb, "orders", "ordrs"]) == 2
    assert "ordrs is not deployed here\n  did you mean orders?" in capsys.readouterr().err
    assert exit_codes.run_command_line([verb, "landed"]) == 2
    assert "landed is an external table" in capsys.readouterr().err
    assert exit_codes.run_command_line([verb, "orders"]) == 3
    assert "--confirm 'yes'" in capsys.readouterr().err and agent.heard == []


def test_a_stop_names_each_version_that_it_stops_and_the_run_that_needs_the_table(
    agent: Any, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("orders"))
    ledger.put_deployment(deployed("orders", version=2, active=False))
    steps = (StepRow(1, "catch_up", "orders", 2, "done"), StepRow(2, "hold", "orders", 2, "gate"))
    create_run(ledger, run_row("p", id="7f3a-1", steps=steps))
    agent.script["stop"] = {"statements": [answer("orders", ActResult.STOPPED)]}
    assert exit_codes.run_command_line(["stop", "orders", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "orders is stopped in every running version: v1, v2\n" in said
    assert (
        "run 7f3a-1 needs orders: it will fail; then headgate runs retry 7f3a-1 starts its versions, "
        "or headgate runs cancel 7f3a-1 ends it\n" in said
    )
    ledger.update_deployment("orders", 1, wanted="stopped")
    assert exit_codes.run_command_line(["runs", "cancel", "7f3a-1", "--confirm", "7f3a"]) == 0
    assert "orders v1 serves and is stopped: headgate start orders starts it\n" in capsys.readouterr().err


@pytest.mark.parametrize("verb", TAKEN)
def test_a_version_is_named_as_show_prints_it(
    verb: str, agent: Any, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("orders"))
    ledger.put_deployment(deployed("orders", version=2, active=False))
    ledger.put_deployment(deployed("items", reads="orders"))
    steps = (StepRow(1, "catch_up", "orders", 2, "done"), StepRow(2, "swap", "orders", 2, "waits"))
    create_run(ledger, run_row("p", id="7f3a-1", steps=(*steps, StepRow(3, "stop", "orders", 1, "waits"))))
    agent.script[verb] = {"statements": [answer("orders", TAKEN[verb][0][0], version=2)]}
    assert exit_codes.run_command_line([verb, "Orders@v2", "--yes"]) == 0
    assert agent.heard[-1]["args"] == {"tables": ["orders@v2"]}
    said = capsys.readouterr().err
    assert ("run 7f3a-1 needs orders@v2: it will fail" in said) == (
        verb == "stop"
    ) and "every running version" not in said
    assert exit_codes.run_command_line([verb, "orders@v1", "items", "--confirm", "2"]) == 0
    assert agent.heard[-1]["args"] == {"tables": ["items", "orders@v1"]}
    assert "7f3a" not in capsys.readouterr().err, "the release goes on without the version that it replaces"
    assert exit_codes.run_command_line([verb, "orders@v1", "orders", "--yes"]) == 0
    assert agent.heard[-1]["args"] == {"tables": ["orders"]}
    heard = len(agent.heard)
    assert exit_codes.run_command_line([verb, "orders@v7", "--yes"]) == 2
    assert "orders@v7 is not deployed here\n  there is orders@v1, orders@v2" in capsys.readouterr().err
    assert exit_codes.run_command_line([verb, "ordrs@v1", "--yes"]) == 2 and len(agent.heard) == heard
