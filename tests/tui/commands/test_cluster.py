"""The command `cluster`: what it passes to the Spark side, and how it shows the answer."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tui.command_line.exit_codes import run_command_line
from tui.commands import cluster

STATUS: dict[str, Any] = {
    "size": {"workers": 1, "cores": 2, "memory": "1g"}, "master": "spark://127.0.0.1:7077",
    "master_ui": "http://127.0.0.1:8080",
    "processes": [
        {"name": "master", "pid": 11, "port": 7077, "page": "http://127.0.0.1:8080", "master_says": "ALIVE",
         "log": "/l"},
        {"name": "worker 1", "pid": None, "port": 7078, "page": "http://127.0.0.1:8081", "master_says": "DEAD",
         "log": "/l"},
    ],
    "applications": [{"id": "app-1", "name": "headgate", "state": "RUNNING", "cores": 1}],
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The arguments that the Spark side got; it answers with `STATUS` or, to `down`, with what it ended."""
    found: list[Sequence[str]] = []

    def last_answer(module: str, words: Sequence[str], environ: object, **more: object) -> dict[str, Any]:
        found.append(words[1:])
        if words[1] == "down":
            return {"ended": ["master (pid 11)"], "applications": ["app-1"]}
        return {**STATUS, "started": ["worker 1"]} if words[1] == "up" else STATUS

    monkeypatch.setattr(cluster, "last_answer", last_answer)
    return found


def test_status_shows_processes_beside_what_the_master_says(
    asked: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["cluster"]) == 1 and asked == [["status"]]
    assert capsys.readouterr().out.splitlines() == [
        "PROCESS   PID  STATE        MASTER SAYS  WEB INTERFACE",
        "master     11  running      ALIVE        http://127.0.0.1:8080",
        "worker 1       not running  DEAD         http://127.0.0.1:8081",
        "spark://127.0.0.1:7077: each worker has 2 cores and 1g",
        "application app-1 (headgate): RUNNING, 1 core",
    ]


def test_up_prints_a_pool_for_headgate_yml(asked: list[Sequence[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["cluster", "up", "--workers", "1", "--memory", "1g"]) == 0
    assert asked == [["up", "--workers", "1", "--memory", "1g"]]
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "    pool:", "      master: spark://127.0.0.1:7077", "      master_ui: http://127.0.0.1:8080", "      cores: 2",
        "      memory: 1g",
    ]  # fmt: skip
    assert "started worker 1" in said.err
    assert run_command_line(["cluster", "up", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pool"]["cores"] == 2


def test_down_names_what_waits(asked: list[Sequence[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["cluster", "down"]) == 0
    said = capsys.readouterr().err
    assert "ended master (pid 11)" in said and "1 application waits for its workers" in said


@pytest.mark.parametrize("words", [["--workers", "0"], ["--workers", "17"], ["--cores", "x"], ["--memory", "100m"]])
def test_wrong_sizes_are_refused(words: list[str], asked: list[Sequence[str]]) -> None:
    assert run_command_line(["cluster", "up", *words]) == 2 and asked == []
