"""stop, start, restart: what is asked, what is sent, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import create_run, run_row

from pipelines.agent.fast_lane import PENDING, RAN, RESTARTED, RESTED, SENT, STARTED, STOPPED, WAITS
from state.row_types import StepRow
from tui.command_line import exit_codes
from tui.commands.stop_start_restart import TAKEN


@pytest.mark.parametrize(("verb", "outcome"), [(verb, outcome) for verb in TAKEN for outcome in TAKEN[verb]])
def test_an_act_is_sent_once_it_is_confirmed(
    verb: str, outcome: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script[verb] = {"statements": [{"table": "a", "version": 1, "outcome": outcome, "took_ms": 12}]}
    assert exit_codes.run_command_line([verb, "A", "--yes"]) == 0
    (request,) = agent.heard
    assert (request["args"], request["confirm"]) == ({"tables": ["a"]}, "yes")
    assert request["line"].startswith(f"headgate {verb} a --project ")
    said = capsys.readouterr()
    assert (
        said.out == f"a v1: {outcome.removesuffix(PENDING)} in 12 ms{PENDING if PENDING in outcome else ''}\n"
        and said.err.startswith("shop dev  (")
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [(["stop", "a"], "yes"), (["stop", "a", "b", "--yes"], "2"), (["stop", "a", "--env", "prod", "--yes"], "a")],
)
def test_without_the_text_nothing_is_sent(
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


def test_a_name_that_is_none_is_usage(agent: Any) -> None:
    assert exit_codes.run_command_line(["stop", "a; drop", "--yes"]) == 2
    assert agent.heard == []


@pytest.mark.parametrize("outcome", ["stopped, not recorded", "sent, not confirmed, not recorded"])
def test_a_stop_that_is_not_recorded_says_so_and_is_no_success(
    outcome: str, agent: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["stop"] = {"statements": [{"table": "a", "version": 1, "outcome": outcome, "took_ms": 12}]}
    assert exit_codes.run_command_line(["stop", "a", "--yes"]) == 4
    said = capsys.readouterr()
    assert f"a v1: {outcome}" in said.out and "the change is lost if the agent stops now" in said.err
    assert f"free space for {place.where.home}, then stop again" in said.err


@pytest.mark.parametrize("outcome", [SENT, WAITS, "not stopped: the session is closed", "done", ""])
def test_only_what_is_proven_of_every_statement_is_a_success(outcome: str, agent: Any) -> None:
    proven = {"table": "a", "version": 1, "outcome": "stopped"}
    agent.script["stop"] = {"statements": [proven, {"table": "a", "version": 2, "outcome": outcome}]}
    assert exit_codes.run_command_line(["stop", "a", "--yes"]) == 4


def test_the_words_of_success_are_the_agents_own() -> None:
    assert {
        "stop": (STOPPED, RESTED),
        "start": (STARTED + PENDING, RAN),
        "restart": (RESTARTED + PENDING,),
    } == TAKEN


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
    agent.script["stop"] = {"statements": [{"table": "orders", "version": 1, "outcome": "stopped", "took_ms": 12}]}
    assert exit_codes.run_command_line(["stop", "orders", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "orders is stopped in each version that runs: v1, v2\n" in said
    assert (
        "run 7f3a-1 needs orders: it fails, and asks for headgate runs retry 7f3a-1, which starts its versions, "
        "or headgate runs cancel 7f3a-1\n" in said
    )
    ledger.update_deployment("orders", 1, wanted="stopped")
    assert exit_codes.run_command_line(["runs", "cancel", "7f3a-1", "--confirm", "7f3a"]) == 0
    assert "orders v1 serves and is stopped: headgate start orders starts it\n" in capsys.readouterr().err


@pytest.mark.parametrize("verb", TAKEN)
def test_one_version_is_named_as_show_prints_it(
    verb: str, agent: Any, ledger: Any, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("orders"))
    ledger.put_deployment(deployed("orders", version=2, active=False))
    ledger.put_deployment(deployed("items", reads="orders"))
    steps = (StepRow(1, "catch_up", "orders", 2, "done"), StepRow(2, "swap", "orders", 2, "waits"))
    create_run(ledger, run_row("p", id="7f3a-1", steps=(*steps, StepRow(3, "stop", "orders", 1, "waits"))))
    agent.script[verb] = {"statements": [{"table": "orders", "version": 2, "outcome": TAKEN[verb][0], "took_ms": 12}]}
    assert exit_codes.run_command_line([verb, "Orders@v2", "--yes"]) == 0
    assert agent.heard[-1]["args"] == {"tables": ["orders@v2"]}
    said = capsys.readouterr().err
    assert ("run 7f3a-1 needs orders@v2: it fails" in said) == (verb == "stop") and "each version" not in said
    assert exit_codes.run_command_line([verb, "orders@v1", "items", "--confirm", "2"]) == 0
    assert agent.heard[-1]["args"] == {"tables": ["items", "orders@v1"]}
    assert "7f3a" not in capsys.readouterr().err, "the release goes on without the version that it replaces"
    assert exit_codes.run_command_line([verb, "orders@v1", "orders", "--yes"]) == 0
    assert agent.heard[-1]["args"] == {"tables": ["orders"]}
    heard = len(agent.heard)
    assert exit_codes.run_command_line([verb, "orders@v7", "--yes"]) == 2
    assert "orders@v7 is not deployed here\n  there is orders@v1, orders@v2" in capsys.readouterr().err
    assert exit_codes.run_command_line([verb, "ordrs@v1", "--yes"]) == 2 and len(agent.heard) == heard
