"""apply and runs: confirmations, and how a run is followed, retried, cancelled, and left."""

import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import written
from ledger_rows import create_run

from core.run.records import RunRow, StepRow
from tui.agent_client.os_processes import OsProcess
from tui.command_line import exit_codes


def submitted(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """Plan b, store the plan as the agent does, and return its hash."""
    from state.row_types import PlanRow

    agent.script["submit_plan"] = {"confirm": "2"}
    found = written(["plan", "b"], capsys)
    body = {key: value for key, value in found.items() if key != "submitted"}
    ledger.put_plan(PlanRow(found["hash"], json.dumps(body), "ana", 1.0, 1e12, "open"))
    agent.heard.clear()
    return str(found["hash"])


def test_a_run_shows_what_was_predicted_beside_what_it_took(ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ended = replace(run_row("h", "done"), ended_at=130.0, started_at=100.0, predicted_low_s=20.0, predicted_high_s=50.0)
    step = replace(ended.steps[0], started_at=100.0, ended_at=103.0, predicted_low_s=2.0, predicted_high_s=6.0)
    create_run(ledger, replace(ended, steps=(step,)))
    assert exit_codes.run_command_line(["runs", "7f3a-1"]) == 0
    said = capsys.readouterr().out
    assert "30 s, predicted 20\N{EN DASH}50 s   by ana" in said and "3.0 s  2\N{EN DASH}6 s" in said
    assert exit_codes.run_command_line(["runs", "show", "7f3a-1"]) == 0
    assert "30 s, predicted 20" in capsys.readouterr().out
    found = written(["runs", "7f3a-1"], capsys)
    assert (found["predicted_low_s"], found["steps"][0]["predicted_high_s"]) == (20.0, 6.0)


def test_a_run_that_takes_longer_than_predicted_is_shown_as_late_without_following_it(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    row = run_row(submitted(ledger, agent, capsys), "running", "running")
    step = replace(row.steps[0], started_at=1.0, predicted_low_s=2.0, predicted_high_s=6.0)
    create_run(ledger, replace(row, steps=(step,), predicted_low_s=2.0, predicted_high_s=6.0))
    assert exit_codes.run_command_line(["runs", "7f3a-1"]) == 0
    assert ", longer than predicted   by ana" in capsys.readouterr().out


def run_row(plan_hash: str, state: str, step: str = "done") -> RunRow:
    steps = (StepRow(n=1, do="start", table="a", version=1, state=step, note="why"),)
    return RunRow("7f3a-1", plan_hash, "ana", state, 1.0, None if state == "running" else 2.0, steps)


def test_a_running_run_without_an_agent_is_shown_as_halted_everywhere(
    ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    create_run(ledger, run_row("h", "running", "gate"))
    (listed,) = written(["runs"], capsys)
    assert (listed["state"], listed["steps"][0]["state"]) == ("halted", "halted")
    assert written(["runs", "7f3a-1"], capsys)["state"] == "halted"
    assert exit_codes.run_command_line(["runs"]) == 0
    said = capsys.readouterr().out
    assert " halted " in said and "running" not in said
    assert exit_codes.run_command_line(["runs", "7f3a-1"]) == 0
    out, err = capsys.readouterr()
    assert out.count("halted") == 2 and "running" not in out and "no agent is running: nothing continues until" in err


def test_a_run_of_a_living_agent_is_running(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    create_run(ledger, run_row("h", "running", "gate"))
    (listed,) = written(["runs"], capsys)
    assert (listed["state"], listed["steps"][0]["state"]) == ("running", "gate")


def test_a_failed_comparison_is_reported_with_the_commands_that_show_and_skip_it(
    ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = run_row("h", "failed", "failed")
    create_run(ledger, replace(failed, steps=(replace(failed.steps[0], do="validate"),)))
    assert exit_codes.run_command_line(["runs", "7f3a-1"]) == 1
    said = capsys.readouterr().err
    assert "headgate release diff 7f3a-1 a" in said and "headgate runs skip 7f3a-1 --step 1" in said


@pytest.mark.parametrize(
    ("state", "step", "code"),
    [("done", "done", 0), ("failed", "failed", 1), ("failed", "blocked", 1), ("cancelled", "done", 1)],
)
def test_apply_waits_for_the_end_and_says_how_it_was(
    state: str, step: str, code: int, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_hash = submitted(ledger, agent, capsys)

    def begin(request: dict[str, Any]) -> dict[str, Any]:
        create_run(ledger, run_row(plan_hash, "running", "running"))
        threading.Thread(target=_end, args=(ledger, state, step)).start()
        return {"run": "7f3a-1"}

    agent.script["apply"] = begin
    assert exit_codes.run_command_line(["apply", plan_hash[:6], "--confirm", "2"]) == code
    (request,) = agent.heard
    assert (request["args"], request["confirm"]) == ({"hash": plan_hash}, "2")


def _end(ledger: Any, state: str, step: str) -> None:
    ledger.put_step("7f3a-1", StepRow(n=1, do="start", table="a", version=1, state=step, note="why"))
    ledger.put_run_state("7f3a-1", state, ended_at=2.0)


def test_detach_prints_the_run_and_leaves_it(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan_hash = submitted(ledger, agent, capsys)
    agent.script["apply"] = {"run": "7f3a-1"}
    assert exit_codes.run_command_line(["apply", plan_hash[:6], "--confirm", "2", "--detach"]) == 0
    assert capsys.readouterr().out == "7f3a-1\n"


def test_an_interrupt_while_a_run_is_followed_leaves_it_running(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(ledger, run_row("7f3a", "running", "running"))

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("tui.services.environment_service.EnvironmentService.wait_for_change", interrupt)
    assert exit_codes.run_command_line(["runs", "7f3a-1", "--follow"]) == 130
    assert "detached" in capsys.readouterr().err and agent.heard == []


def test_a_run_that_is_followed_later_shows_the_time_since_its_start(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = run_row("7f3a", "running", "running")
    create_run(ledger, row)
    monkeypatch.setattr("tui.commands.runs.time.time", lambda: row.started_at + 75.0)

    def end(*_: object) -> int:
        _end(ledger, "done", "done")
        return 0

    monkeypatch.setattr("tui.services.environment_service.EnvironmentService.wait_for_change", end)
    assert exit_codes.run_command_line(["runs", "7f3a-1", "--follow"]) == 0
    assert "run 7f3a-1: 75 s  0 of 1 step" in capsys.readouterr().err


def test_a_run_is_followed_no_longer_than_somebody_drives_it(
    ledger: Any, place: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(ledger, run_row("7f3a", "running", "gate"))
    monkeypatch.setattr("tui.commands.runs.AGENT_GONE_S", 0.0)
    assert exit_codes.run_command_line(["runs", "7f3a-1", "--follow"]) == 4
    said = capsys.readouterr().err
    assert "the agent stopped during run 7f3a-1: 0 of 1 step, start a why" in said
    assert "headgate up, then headgate runs 7f3a-1 --follow" in said


def test_a_followed_run_whose_agent_answers_again_is_followed_on(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(ledger, run_row("7f3a", "running", "running"))
    answers = iter([False, False, True, False])

    def answer(_: object) -> bool:
        found = next(answers)
        if found:
            _end(ledger, "done", "done")
        return found

    monkeypatch.setattr("tui.agent_client.agent_process.is_listening", answer)
    assert exit_codes.run_command_line(["runs", "7f3a-1", "--follow"]) == 0


def test_a_run_is_followed_while_its_agent_is_alive_but_slow(
    ledger: Any, place: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(ledger, run_row("7f3a", "running", "running"))
    found = iter([OsProcess(4711, "1"), OsProcess(4711, "1")])

    def alive(_: object) -> OsProcess:
        process = next(found)
        _end(ledger, "done", "done")
        return process

    monkeypatch.setattr("tui.agent_client.agent_process.find_agent_process", alive)
    monkeypatch.setattr("tui.commands.runs.AGENT_GONE_S", 0.0)
    assert exit_codes.run_command_line(["runs", "7f3a-1", "--follow"]) == 0
    assert "the agent stopped" not in capsys.readouterr().err


def test_a_run_whose_agent_is_alive_but_never_answers_is_not_followed_for_ever(
    ledger: Any, place: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(ledger, run_row("7f3a", "running", "running"))
    process = OsProcess(4711, "1")
    monkeypatch.setattr("tui.agent_client.agent_process.find_agent_process", lambda place: process)
    monkeypatch.setattr("tui.commands.runs.AGENT_GONE_S", 0.0)
    monkeypatch.setattr("tui.commands.runs.AGENT_SILENT_S", 0.0)
    assert exit_codes.run_command_line(["runs", "7f3a-1", "--follow"]) == 4
    said = capsys.readouterr().err
    assert "the agent (pid 4711) is alive but has not answered" in said and "run 7f3a-1: 0 of 1 step" in said


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "begun", "goes_on"),
    [
        ("runs 7f3a-1 --follow", "run 7f3a-1", "headgate runs 7f3a-1 --follow follows it"),
        ("apply {hash} --confirm 2", "run 7f3a-1", "headgate runs 7f3a-1 --follow follows it"),
        ("wait --timeout 300", "1 of 1 statement", "headgate ls shows the current state"),
        ("up", "pool", "headgate up waits for them again"),
    ],
)
def test_an_interrupt_says_in_one_line_what_continues(
    words: str, begun: str, goes_on: str, ledger: Any, agent: Any, folder: Path, deployed: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    plan_hash = submitted(ledger, agent, capsys)
    ledger.put_deployment(deployed("a", state="starting"))
    create_run(ledger, run_row(plan_hash, "running", "running"))
    ledger.put_pool(state="starting")
    agent.script["apply"] = {"run": "7f3a-1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "tui.cli", *words.format(hash=plan_hash[:8]).split()],
        cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert child.stderr is not None
    # A child that neither reports the end nor exits is killed, which the read below notices.
    bound = threading.Timer(60, child.kill)
    bound.start()
    said = ""
    while f"  {begun}" not in said and " statement:" not in said:
        line = child.stderr.readline()
        assert line, said
        said += line
    child.send_signal(signal.SIGINT)
    rest = child.stderr.read()
    assert child.wait() == 130
    bound.cancel()
    assert goes_on in rest and rest.count("\n") == 1, rest


def test_apply_without_a_confirmation_sends_nothing(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_hash = submitted(ledger, agent, capsys)
    assert exit_codes.run_command_line(["apply", plan_hash[:6]]) == 3
    assert agent.heard == []


@pytest.mark.parametrize("given", ["", "7f3"])
def test_a_hash_that_is_too_short_names_no_plan(
    given: str, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(ledger, agent, capsys)
    assert exit_codes.run_command_line(["apply", given, "--confirm", "2"]) == 2
    assert agent.heard == [] and "too short" in capsys.readouterr().err


def test_an_ambiguous_hash_prefix_names_no_plan(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan_hash = submitted(ledger, agent, capsys)
    other = plan_hash[:6] + plan_hash[6:][::-1]
    ledger.put_plan(replace(ledger.plan(plan_hash), hash=other, created_at=2.0))
    assert exit_codes.run_command_line(["apply", plan_hash[:6], "--confirm", "2"]) == 2
    said = capsys.readouterr().err
    assert agent.heard == [] and plan_hash[:12] in said and other[:12] in said


def failed_run(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """Plan b, record that the plan's run has failed at the start of b, and return the plan's hash."""
    plan_hash = submitted(ledger, agent, capsys)
    planned_steps = json.loads(ledger.plan(plan_hash).body)["steps"]
    number = next(step["n"] for step in planned_steps if (step["do"], step["table"]) == ("start", "b"))
    steps = (StepRow(n=number, do="start", table="b", version=1, state="failed", note="no such column: kind"),)
    create_run(ledger, RunRow("7f3a-1", plan_hash, "ana", "failed", 1.0, 2.0, steps))
    return plan_hash


def test_a_retry_without_an_edit_is_the_same_plan_again(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failed_run(ledger, agent, capsys)
    assert exit_codes.run_command_line(["runs", "retry", "7f3a-1"]) == 0
    assert [(request["op"], request["args"]["act"]) for request in agent.heard] == [("run", "retry")]


def test_a_retry_after_an_edit_shows_the_continuing_plan_and_runs_it_once_confirmed(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed_run(ledger, agent, capsys)
    script = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    script.write_text(script.read_text().replace("kind FROM", "upper(kind) AS kind FROM"))
    agent.script["apply"] = {"run": "91cc-2"}
    assert exit_codes.run_command_line(["runs", "retry", "7f3a-1"]) == 3
    said = capsys.readouterr().err
    assert "+INSERT INTO b SELECT id, upper(kind) AS kind FROM STREAM a;" in said and "start b@v1" in said
    assert [request["op"] for request in agent.heard] == ["look_for_inputs", "opinion", "submit_plan"]
    assert exit_codes.run_command_line(["runs", "retry", "7f3a-1", "--confirm", "2", "--json"]) == 0
    first, again, apply = [request for request in agent.heard if request["op"] not in ("opinion", "look_for_inputs")]
    assert first["args"]["request"]["continues"] == "7f3a-1"
    assert first["args"]["hash"] == again["args"]["hash"] == apply["args"]["hash"]
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], told["continues"]) == ("91cc-2", "7f3a-1")


def test_an_edit_elsewhere_does_not_make_a_retry_another_plan(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed_run(ledger, agent, capsys)
    scripts = folder / "pipelines/facts/p/other/sql-scripts"
    scripts.mkdir(parents=True)
    (scripts / "ddl.other.sql").write_text("CREATE TABLE other (id BIGINT) USING parquet;")
    (scripts / "dml.other.sql").write_text("INSERT INTO other SELECT id FROM STREAM b;")
    assert exit_codes.run_command_line(["runs", "retry", "7f3a-1"]) == 0
    assert [request["op"] for request in agent.heard] == ["run"]


def test_a_run_that_was_continued_is_not_retried(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan_hash = failed_run(ledger, agent, capsys)
    create_run(ledger, replace(run_row(plan_hash, "running"), id="91cc-2", continues="7f3a-1"))
    assert exit_codes.run_command_line(["runs", "retry", "7f3a-1"]) == 3
    assert agent.heard == [] and "continued by run 91cc-2" in capsys.readouterr().err
    assert exit_codes.run_command_line(["runs"]) == 0
    assert "continued by 91cc-2" in capsys.readouterr().out


def test_without_an_id_no_run_is_acted_on(ledger: Any, agent: Any) -> None:
    create_run(ledger, run_row("7f3a", "running", "running"))
    assert exit_codes.run_command_line(["runs", "pause", ""]) == 2
    assert agent.heard == []


def test_a_run_is_cancelled_by_its_short_name(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    create_run(ledger, run_row("7f3a", "running", "running"))
    assert exit_codes.run_command_line(["runs", "cancel", "7f3a-1"]) == 3
    assert exit_codes.run_command_line(["runs", "cancel", "7f3a-1", "--confirm", "7f3a"]) == 0
    (request,) = agent.heard
    assert (request["op"], request["args"]["act"], request["args"]["id"]) == ("run", "cancel", "7f3a-1")


def test_a_retry_that_is_followed_prints_only_what_is_new(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_hash = submitted(ledger, agent, capsys)
    steps = tuple(
        StepRow(n=n, do="start", table=table, version=1, state=state, tries=1)
        for n, (table, state) in enumerate((("a", "done"), ("b", "failed")), 1)
    )
    create_run(ledger, RunRow("7f3a-1", plan_hash, "ana", "failed", 1.0, 2.0, steps))

    def again(request: dict[str, Any]) -> dict[str, Any]:
        ledger.put_step("7f3a-1", replace(steps[1], state="done", tries=2))
        ledger.put_run_state("7f3a-1", "done", ended_at=3.0)
        return {}

    agent.script["run"] = again
    assert exit_codes.run_command_line(["runs", "retry", "7f3a-1", "--follow"]) == 0
    said = capsys.readouterr()
    told = [line.split()[:3] for line in said.err.splitlines() if " done" in line]
    assert told == [["2", "start", "b"]]


def test_a_failed_run_is_acknowledged_by_a_command(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    create_run(ledger, replace(run_row("h", "failed", "failed")))
    agent.script["run"] = {"run": "7f3a-1", "act": "ack"}
    assert exit_codes.run_command_line(["runs", "ack", "7f3a"]) == 0
    assert [request["args"]["act"] for request in agent.heard] == ["ack"]
    assert "run 7f3a-1: acknowledged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("act", "more"),
    [
        *((act, []) for act in ("pause", "resume", "retry", "ack")),
        ("cancel", ["--confirm", "7f3a"]),
        ("skip", ["--step", "1", "--confirm", "7f3a"]),
    ],
)
def test_an_id_that_could_be_several_runs_or_is_empty_is_refused(
    act: str, more: list[str], ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (1, 2):
        create_run(ledger, replace(run_row("h", "failed", "failed"), id=f"7f3a-{n}", started_at=float(n)))
    assert exit_codes.run_command_line(["runs", act, "7f3a", *more]) == 2
    assert "7f3a matches several runs: 7f3a-2, 7f3a-1" in capsys.readouterr().err
    assert exit_codes.run_command_line(["runs", act, "", *more]) == 2
    assert not [request for request in agent.heard if request.get("op") == "run"]
