"""adopt: shows what is in doubt and what will be done before it asks, and sends nothing without confirmation."""

from typing import Any

import pytest
from command_line import written

from tui.command_line import exit_codes

FOUND = {
    "doubt": "the ledger is an older copy: its mark is 3, and the data folder's is 6",
    "lines": ["a@v1: begins"],
}


def test_findings_are_listed_and_adopted_once_confirmed(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script["adoption"], agent.script["adopt"] = FOUND, {"epoch": 2}
    assert exit_codes.run_command_line(["adopt", "--confirm", "dev adopt"]) == 0
    said = capsys.readouterr()
    assert said.out == "adopted as epoch 2\n"
    assert "the ledger is an older copy" in said.err and "  a@v1: begins" in said.err
    look, act = agent.heard
    assert (look["op"], act["op"], act["confirm"]) == ("adoption", "adopt", "dev adopt")
    assert act["line"].startswith("headgate adopt --project ")


def test_versions_that_could_not_be_adopted_are_named(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script["adoption"] = FOUND
    agent.script["adopt"] = {"epoch": 2, "left": ["b@v1: /c/b__v1 cannot be reached"]}
    assert exit_codes.run_command_line(["adopt", "--confirm", "dev adopt"]) == 0
    assert (
        "not adopted yet, run headgate adopt again later: b@v1: /c/b__v1 cannot be reached" in capsys.readouterr().err
    )
    assert written(["adopt", "--confirm", "dev adopt"], capsys)["left"] == ["b@v1: /c/b__v1 cannot be reached"]


def test_without_a_confirmation_the_findings_are_shown_and_nothing_is_adopted(
    agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["adoption"] = FOUND
    assert exit_codes.run_command_line(["adopt"]) == 3
    said = capsys.readouterr().err
    assert "a@v1: begins" in said and "--confirm 'dev adopt'" in said
    assert [request["op"] for request in agent.heard] == ["adoption"]


def test_without_a_doubt_adopt_asks_nothing(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script["adoption"] = {"doubt": "", "lines": []}
    assert written(["adopt"], capsys) == {
        "project": "shop",
        "environment": "dev",
        "doubt": "",
        "lines": [],
        "epoch": None,
    }
    assert exit_codes.run_command_line(["adopt"]) == 0
    assert "nothing is in doubt" in capsys.readouterr().err
    assert {request["op"] for request in agent.heard} == {"adoption"}
