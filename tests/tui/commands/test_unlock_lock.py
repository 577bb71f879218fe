"""unlock and lock: what is sent, and answers that begin with project and environment."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.model.errors import Refused
from tests.tui.conftest import ScriptedAgent
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import select_environment

ANSWER = {"unlocked": True, "actor": "ana", "ticket": "OPS-1", "seconds": 1800.0, "until": 1800.0}


def test_an_unlock_sends_length_and_ticket(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script["unlock"] = ANSWER
    assert exit_codes.run_command_line(["unlock", "30m", " OPS-1 "]) == 0
    said = capsys.readouterr().err
    assert said.startswith("shop dev is unlocked for ana for 30m, until ") and said.endswith(": OPS-1\n")
    (request,) = agent.heard
    assert request["args"] == {"seconds": 1800.0, "ticket": "OPS-1"}
    assert request["line"].startswith("headgate unlock 30m OPS-1 --project ")
    assert written(["unlock", "2h", "OPS-1"], capsys)["until"] == 1800.0


def test_a_secret_in_a_ticket_is_neither_sent_nor_shown(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script["unlock"] = ANSWER
    assert exit_codes.run_command_line(["unlock", "30m", "OPS-1 password=hunter2"]) == 0
    assert agent.heard[0]["args"]["ticket"] == "OPS-1 password=*****"
    assert "hunter2" not in f"{agent.heard}{capsys.readouterr()}"


@pytest.mark.parametrize(
    "words", [["30", "a"], ["9h", "a"], ["59s", "a"], ["1d", "a"], ["30m", ""], ["30m"], ["-5m", "a"]]
)
def test_a_wrong_length_or_ticket_is_not_sent(words: list[str], agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["unlock", *words]) == 2
    assert agent.heard == [] and len(capsys.readouterr().err.splitlines()) == 2


def test_an_open_environment_is_no_error(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script["unlock"] = {"unlocked": False, "changed": False}
    assert exit_codes.run_command_line(["unlock", "30m", "OPS-1"]) == 0
    assert capsys.readouterr().err == "shop dev is not protected: nothing to unlock\n"


@pytest.mark.parametrize("words", [["unlock", "30m", "OPS-1"], ["lock"]])
def test_an_open_environment_needs_no_agent_but_a_protected_one_does(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(words) == 0
    assert capsys.readouterr().err.startswith("shop dev is not protected")
    assert exit_codes.run_command_line([*words, "--env", "prod"]) == 4
    said = capsys.readouterr().err
    assert "no agent is running for shop PROD protected" in said and "headgate up --foreground --env prod" in said


def test_a_negative_length_is_named_and_not_taken_for_an_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["unlock", "-5m", "OPS-1", "--env", "prod"]) == 2
    assert capsys.readouterr().err == "headgate: '-5m' is not a time from 1m to 8h\n  write 30m or 2h\n"


@pytest.mark.parametrize(
    ("changed", "protected", "said"),
    [
        (True, True, "shop dev is locked for you again\n"),
        (False, True, "shop dev was not unlocked for you: nothing changed\n"),
        (False, False, "shop dev is not protected, so it is open to everybody: nothing to lock\n"),
    ],
)
def test_lock_says_what_happened(
    changed: bool, protected: bool, said: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["lock"] = {"unlocked": False, "changed": changed, "protected": protected}
    assert exit_codes.run_command_line(["lock"]) == 0
    assert capsys.readouterr().err == said
    assert written(["lock"], capsys) == {"project": "shop", "environment": "dev", **agent.script["lock"]}


def test_a_refusal_is_exit_code_3_with_the_command_that_unlocks(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = "shop PROD protected is read-only for ana: unlock it to restart statements"
    agent.script["restart"] = Refused(words, remedy="headgate unlock 30m TICKET --env prod")
    assert exit_codes.run_command_line(["restart", "a", "--yes"]) == 3
    assert capsys.readouterr().err.endswith(f"headgate: {words}\n  headgate unlock 30m TICKET --env prod\n")


@pytest.mark.parametrize(("no_colour", "start"), [("", "\x1b[1;38;5;231;48;5;130m"), ("1", "\x1b[1;7;39;49m")])
def test_on_a_terminal_the_environment_is_painted_before_an_act_and_always_in_words(
    no_colour: str, start: str, folder: Path, agent: Any, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    head = folder / "headgate.yml"
    head.write_text(head.read_text().replace("    data: data\n", "    data: data\n    colour: amber\n", 1))
    for name, value in (("TERM", "xterm-256color"), ("NO_COLOR", no_colour), ("COLORTERM", ""), ("HEADGATE_THEME", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    exit_codes.run_command_line(["restart", "a", "--yes"])
    assert capsys.readouterr().err.startswith(f"{start}shop dev\x1b[m  (")


READ_ONLY = Refused(
    "shop PROD protected is read-only for ana: unlock it", remedy="headgate unlock 30m TICKET --env prod"
)


@pytest.fixture
def prod_agent(folder: Path, tmp_path: Path) -> Iterator[ScriptedAgent]:
    place = select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder), environment="prod")
    scripted = ScriptedAgent(place.where.socket, script={"status": {"refused": READ_ONLY.as_json()}})
    scripted.serve()
    yield scripted
    scripted.close()


@pytest.mark.parametrize("given", [[], ["--confirm", "prod"]])
def test_a_locked_environment_refuses_before_it_asks_for_a_confirmation(
    given: list[str], prod_agent: ScriptedAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["restart", "a", "--env", "prod", *given]) == 3
    said = capsys.readouterr().err
    assert said.endswith(f"headgate: {READ_ONLY.summary}\n  {READ_ONLY.remedy}\n") and "confirmation" not in said
    assert [(heard["op"], heard["args"]) for heard in prod_agent.heard] == [("status", {"op": "restart", "act": ""})]
    assert exit_codes.run_command_line(["stop", "a", "--env", "prod"]) == 3
    assert "this needs the confirmation" in capsys.readouterr().err
