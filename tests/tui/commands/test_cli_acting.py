"""stop, start, restart, plan, apply, runs, delete: what is asked, what is sent, how it ends."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import Stale, TryAgain
from core.opinions import Answer, Opinion, Output, Source, question_from_json
from state.rows import RunRow, StepRow
from tui.commands import edge

RUNNING = """
tables:
  landed: {state: running, revision: same}
  a: {state: running, revision: same}
  b: {state: running, revision: same}
"""


@pytest.mark.parametrize("verb", ["stop", "start", "restart"])
def test_an_act_is_sent_once_it_is_confirmed(verb: str, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent.script[verb] = {"statements": [{"table": "a", "version": 1, "outcome": "done", "took_ms": 12}]}
    assert edge.run([verb, "A", "--yes"]) == 0
    (request,) = agent.heard
    assert (request["args"], request["confirm"]) == ({"tables": ["a"]}, "yes")
    assert request["line"].startswith(f"headgate {verb} a --project ")
    said = capsys.readouterr()
    assert said.out == "a v1: done in 12 ms\n" and said.err.startswith("shop dev  (")


@pytest.mark.parametrize(
    ("words", "text"),
    [(["stop", "a"], "yes"), (["stop", "a", "b", "--yes"], "2"), (["stop", "a", "--env", "prod", "--yes"], "a")],
)
def test_without_the_text_nothing_is_sent(
    words: list[str], text: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert edge.run(words) == 3
    assert f"--confirm '{text}'" in capsys.readouterr().err and agent.heard == []


def test_a_wrong_text_is_named(agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert edge.run(["stop", "a", "b", "--confirm", "3"]) == 3
    assert "'3' was given" in capsys.readouterr().err


def test_without_an_agent_an_act_says_try_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert edge.run(["stop", "a", "--yes", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "AgentUnreachable"


def test_a_name_that_is_none_is_usage(agent: Any) -> None:
    assert edge.run(["stop", "a; drop", "--yes"]) == 2
    assert agent.heard == []


@pytest.fixture
def running(tmp_path: Path) -> str:
    path = tmp_path / "running.yml"
    path.write_text(RUNNING)
    return str(path)


def planned(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Run `plan … --json` and give the plan."""
    assert edge.run(["plan", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_plan_needs_neither_agent_nor_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(["b"], capsys)
    assert found["format"] == "headgate.plan/1" and [str(t) for t in found["order"]] == ["landed", "a", "b"]


def test_the_same_plan_has_the_same_bytes(folder: Path, running: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "a", "--rebuild", "--children", "all", "--observed", running, "--json"]
    said = []
    for _ in range(2):
        assert edge.run(words) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


@pytest.mark.parametrize(("words", "code"), [(["--all"], 0), (["a", "--rebuild"], 11), (["delete", "b"], 11)])
def test_the_exit_code_tells_what_a_plan_would_do(words: list[str], code: int, folder: Path, running: str) -> None:
    assert edge.run(["plan", *words, "--observed", running, "--exit-code"]) == code


def test_a_first_start_is_a_change_without_loss(folder: Path) -> None:
    assert edge.run(["plan", "--all", "--exit-code"]) == 10


def test_a_refused_request_prints_the_plan_and_exits_3(
    folder: Path, running: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(["delete", "a", "--observed", running], capsys, code=3)
    assert found["refusals"][0]["table"] == "a" and found["steps"] == []


def test_an_invalid_project_prints_all_its_problems(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text("INSERT INTO b SELECT id FROM STREAM nowhere;")
    (folder / "pipelines/sources/p/a/sql-scripts/ddl.a.sql").write_text("CREATE TABL a (")
    found = planned(["--all"], capsys, code=2)
    assert {problem["file"] for problem in found["problems"]} >= {
        "pipelines/facts/p/b/sql-scripts/dml.b.sql", "pipelines/sources/p/a/sql-scripts/ddl.a.sql",
    }  # fmt: skip
    assert all(problem["remedy"] for problem in found["problems"])


def test_an_observed_file_that_is_wrong_is_usage(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.yml").write_text("tables: {a: {state: runing}}")
    assert edge.run(["plan", "a", "--observed", str(tmp_path / "wrong.yml")]) == 2
    assert "running" in capsys.readouterr().err


def test_a_plan_is_handed_to_an_agent_with_the_texts_that_it_was_computed_from(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["submit_plan"] = {"expires_at": 1.0, "confirm": "2", "level": "C2"}
    found = planned(["b"], capsys)
    (request,) = [heard for heard in agent.heard if heard["op"] == "submit_plan"]
    assert request["args"]["hash"] == found["hash"]
    assert request["args"]["texts"]["headgate.yml"] == (folder / "headgate.yml").read_text()
    assert found["submitted"]["confirm"] == "2"


def test_a_plan_that_the_agent_finds_stale_is_computed_again(ledger: Any, agent: Any) -> None:
    answers = iter([Stale("the world changed"), {"confirm": "2"}])
    agent.script["submit_plan"] = lambda request: next(answers)
    assert edge.run(["plan", "b"]) == 0
    assert [heard["op"] for heard in agent.heard] == ["opinion", "submit_plan", "submit_plan"]


def test_a_plan_holds_what_spark_said_when_it_was_asked_before(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def opine(request: dict[str, Any]) -> dict[str, Any]:
        for each in request["args"]["questions"]:
            question = question_from_json(each)
            (source,) = dict(question.new.tables)
            said = Opinion((Source(source, True),), (Output("id", "bigint", True),) * question.new.select.count("id"))
            ledger.put_opinion(question.key, json.dumps(Answer("4.2.0", said).as_json()), at=1.0)
        return {"answers": [], "unanswered": ""}

    agent.script = {"opinion": opine, "submit_plan": {"confirm": "2"}}
    found = planned(["b"], capsys)
    said = {node["table"]: node["confirmed_by_spark"] for node in found["nodes"]}
    assert said["b"] is not None and said["landed"] is None
    assert [heard["args"]["hash"] for heard in agent.heard if heard["op"] == "submit_plan"] == [found["hash"]]


def count_plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from tui.operations import plans

    made: list[Any] = []
    compute = plans.compute
    monkeypatch.setattr(plans, "compute", lambda *args, **more: made.append(args) or compute(*args, **more))
    return made


def test_a_plan_is_computed_again_only_after_spark_was_asked(
    ledger: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = count_plans(monkeypatch)
    agent.script = {"submit_plan": {"confirm": "2"}}
    assert edge.run(["plan", "b"]) == 0
    assert len(made) == 2


def test_a_plan_is_computed_once_without_an_agent(ledger: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_plans(monkeypatch)
    assert edge.run(["plan", "b"]) == 0
    assert len(made) == 1


@pytest.mark.parametrize("said", [{"answers": [], "unanswered": "the pool is silent"}, TryAgain("the pool is silent")])
def test_a_plan_never_fails_by_spark_and_says_that_it_is_not_confirmed(
    said: Any, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script = {"opinion": said, "submit_plan": {"confirm": "2"}}
    assert edge.run(["plan", "b"]) == 0
    told = capsys.readouterr()
    assert "not confirmed by Spark: the pool is silent" in told.err
    assert "not confirmed by Spark: a, b" in told.out


def submitted(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """Plan b, keep the plan as the agent does, and give its hash."""
    from state.rows import PlanRow

    agent.script["submit_plan"] = {"confirm": "2"}
    found = planned(["b"], capsys)
    body = {key: value for key, value in found.items() if key != "submitted"}
    ledger.put_plan(PlanRow(found["hash"], json.dumps(body), "ana", 1.0, 1e12, "open"))
    agent.heard.clear()
    return str(found["hash"])


def run_row(plan_hash: str, state: str, step: str = "done") -> RunRow:
    steps = (StepRow(n=1, do="start", table="a", version=1, state=step, note="why"),)
    return RunRow("7f3a-1", plan_hash, "ana", state, 1.0, None if state == "running" else 2.0, steps)


@pytest.mark.parametrize(
    ("state", "step", "code"),
    [("done", "done", 0), ("failed", "failed", 1), ("failed", "blocked", 1), ("cancelled", "done", 1)],
)
def test_apply_waits_for_the_end_and_says_how_it_was(
    state: str, step: str, code: int, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_hash = submitted(ledger, agent, capsys)

    def begin(request: dict[str, Any]) -> dict[str, Any]:
        ledger.create_run(run_row(plan_hash, "running", "running"))
        threading.Thread(target=_end, args=(ledger, state, step)).start()
        return {"run": "7f3a-1"}

    agent.script["apply"] = begin
    assert edge.run(["apply", plan_hash[:6], "--confirm", "2"]) == code
    (request,) = agent.heard
    assert (request["args"], request["confirm"]) == ({"hash": plan_hash}, "2")


def _end(ledger: Any, state: str, step: str) -> None:
    ledger.put_step("7f3a-1", StepRow(n=1, do="start", table="a", version=1, state=step, note="why"))
    ledger.put_run_state("7f3a-1", state, ended_at=2.0)


def test_detach_prints_the_run_and_leaves_it(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan_hash = submitted(ledger, agent, capsys)
    agent.script["apply"] = {"run": "7f3a-1"}
    assert edge.run(["apply", plan_hash[:6], "--confirm", "2", "--detach"]) == 0
    assert capsys.readouterr().out == "7f3a-1\n"


def test_an_interrupt_while_a_run_is_followed_leaves_it_running(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create_run(run_row("7f3a", "running", "running"))

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("tui.operations.bound.Operations.wait_for_change", interrupt)
    assert edge.run(["runs", "7f3a-1", "--follow"]) == 130
    assert "detached" in capsys.readouterr().err and agent.heard == []


def test_a_run_is_followed_no_longer_than_somebody_drives_it(
    ledger: Any, place: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create_run(run_row("7f3a", "running", "gate"))
    monkeypatch.setattr("tui.commands.executing.AGENT_GONE_S", 0.0)
    assert edge.run(["runs", "7f3a-1", "--follow"]) == 4
    said = capsys.readouterr().err
    assert "the agent ended, and run 7f3a-1 with it: 0 of 1 steps, start a why" in said
    assert "headgate up, then headgate runs 7f3a-1 --follow" in said


def test_a_followed_run_whose_agent_answers_again_is_followed_on(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create_run(run_row("7f3a", "running", "running"))
    answers = iter([False, False, True, False])

    def answer(_: object) -> bool:
        found = next(answers)
        if found:
            _end(ledger, "done", "done")
        return found

    monkeypatch.setattr("tui.operations.bound.Operations.agent_answers", answer)
    assert edge.run(["runs", "7f3a-1", "--follow"]) == 0


@pytest.mark.parametrize(
    ("words", "begun", "goes_on"),
    [
        ("runs 7f3a-1 --follow", "run 7f3a-1", "headgate runs 7f3a-1 --follow comes back to it"),
        ("apply {hash} --confirm 2", "run 7f3a-1", "headgate runs 7f3a-1 --follow comes back to it"),
        ("wait --timeout 300", "1 of 1 statement", "headgate ls shows how it is"),
        ("up", "pool", "headgate up waits for them again"),
    ],
)
def test_an_interrupt_says_in_one_line_what_goes_on(
    words: str, begun: str, goes_on: str, ledger: Any, agent: Any, folder: Path, deployed: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    plan_hash = submitted(ledger, agent, capsys)
    ledger.put_deployment(deployed("a", state="starting"))
    ledger.create_run(run_row(plan_hash, "running", "running"))
    ledger.put_pool(pool_state="starting")
    agent.script["apply"] = {"run": "7f3a-1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "tui.cli", *words.format(hash=plan_hash[:8]).split()],
        cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert child.stderr is not None
    said = ""
    while f"  {begun}" not in said and " statement:" not in said:
        line = child.stderr.readline()
        assert line, said
        said += line
    child.send_signal(signal.SIGINT)
    rest = child.stderr.read()
    assert child.wait() == 130
    assert goes_on in rest and rest.count("\n") == 1, rest


def test_apply_without_its_text_sends_nothing(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan_hash = submitted(ledger, agent, capsys)
    assert edge.run(["apply", plan_hash[:6]]) == 3
    assert agent.heard == []


@pytest.mark.parametrize("given", ["", "7f3"])
def test_a_hash_that_is_too_short_names_no_plan(
    given: str, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    submitted(ledger, agent, capsys)
    assert edge.run(["apply", given, "--confirm", "2"]) == 2
    assert agent.heard == [] and "too short" in capsys.readouterr().err


def test_a_hash_that_begins_two_plans_names_neither(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_hash = submitted(ledger, agent, capsys)
    other = plan_hash[:6] + plan_hash[6:][::-1]
    ledger.put_plan(replace(ledger.plan(plan_hash), hash=other, created_at=2.0))
    assert edge.run(["apply", plan_hash[:6], "--confirm", "2"]) == 2
    said = capsys.readouterr().err
    assert agent.heard == [] and plan_hash[:12] in said and other[:12] in said


def failed_run(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """Plan b, and give the hash of the plan whose run has failed at b's start."""
    plan_hash = submitted(ledger, agent, capsys)
    planned_steps = json.loads(ledger.plan(plan_hash).body)["steps"]
    number = next(step["n"] for step in planned_steps if (step["do"], step["table"]) == ("start", "b"))
    steps = (StepRow(n=number, do="start", table="b", version=1, state="failed", note="no such column: kind"),)
    ledger.create_run(RunRow("7f3a-1", plan_hash, "ana", "failed", 1.0, 2.0, steps))
    return plan_hash


def test_a_retry_without_an_edit_is_the_same_plan_again(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    failed_run(ledger, agent, capsys)
    assert edge.run(["runs", "retry", "7f3a-1"]) == 0
    assert [(request["op"], request["args"]["act"]) for request in agent.heard] == [("run", "retry")]


def test_a_retry_after_an_edit_shows_the_plan_that_goes_on_and_runs_it_once_confirmed(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed_run(ledger, agent, capsys)
    script = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    script.write_text(script.read_text().replace("kind FROM", "upper(kind) AS kind FROM"))
    agent.script["apply"] = {"run": "91cc-2"}
    assert edge.run(["runs", "retry", "7f3a-1"]) == 3
    said = capsys.readouterr().err
    assert "+INSERT INTO b SELECT id, upper(kind) AS kind FROM STREAM a;" in said and "start b@v1" in said
    assert [request["op"] for request in agent.heard] == ["opinion", "submit_plan"]
    assert edge.run(["runs", "retry", "7f3a-1", "--confirm", "2", "--json"]) == 0
    first, again, apply = [request for request in agent.heard if request["op"] != "opinion"]
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
    assert edge.run(["runs", "retry", "7f3a-1"]) == 0
    assert [request["op"] for request in agent.heard] == ["run"]


def test_a_run_that_was_continued_is_not_retried(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan_hash = failed_run(ledger, agent, capsys)
    ledger.create_run(replace(run_row(plan_hash, "running"), id="91cc-2", continues="7f3a-1"))
    assert edge.run(["runs", "retry", "7f3a-1"]) == 3
    assert agent.heard == [] and "continued by run 91cc-2" in capsys.readouterr().err
    assert edge.run(["runs"]) == 0
    assert "continued by 91cc-2" in capsys.readouterr().out


def test_without_an_id_no_run_is_acted_on(ledger: Any, agent: Any) -> None:
    ledger.create_run(run_row("7f3a", "running", "running"))
    assert edge.run(["runs", "pause", ""]) == 2
    assert agent.heard == []


@pytest.mark.parametrize("redirected", [">/dev/full", ">&-", "<&-", "2>/dev/full", "2>&1 | true", "<&- >&- 2>&-"])
def test_an_act_is_sent_wherever_the_shell_points_its_streams(redirected: str, folder: Path, agent: Any) -> None:
    program = Path(sys.executable).with_name("headgate")
    line = f"{shlex.quote(str(program))} stop a --confirm yes {redirected}"
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, capture_output=True, text=True)
    assert [request["op"] for request in agent.heard] == ["stop"]
    assert "Traceback" not in done.stderr and "should not" not in done.stderr


@pytest.mark.parametrize("words", ["ls", "ls --json"])
def test_a_stdout_that_is_full_is_told_in_one_sentence(words: str, folder: Path) -> None:
    program = Path(sys.executable).with_name("headgate")
    line = f"{shlex.quote(str(program))} {words} >/dev/full"
    done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "stdout cannot be written: No space left on device" in done.stderr and "Traceback" not in done.stderr


def test_a_run_is_cancelled_by_its_short_name(ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.create_run(run_row("7f3a", "running", "running"))
    assert edge.run(["runs", "cancel", "7f3a-1"]) == 3
    assert edge.run(["runs", "cancel", "7f3a-1", "--confirm", "7f3a"]) == 0
    (request,) = agent.heard
    assert (request["op"], request["args"]["act"], request["args"]["id"]) == ("run", "cancel", "7f3a-1")


def test_a_delete_under_readers_is_refused_before_anything_is_sent(
    ledger: Any, agent: Any, deployed: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    ledger.put_deployment(deployed("b", reads="a"))
    assert edge.run(["delete", "a"]) == 3
    assert "b" in capsys.readouterr().err and agent.heard == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "lunded"], "did you mean landed?"),
        (["plan", "delete", "lunded"], "did you mean landed?"),
        (["plan", "a", "--exclude", "bb"], "there is no table bb"),
        (["plan", "--product", "q"], "there is no product q"),
    ],
)
def test_a_name_that_nothing_has_is_a_bad_command(
    words: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert edge.run(words) == 2
    assert said in capsys.readouterr().err


def test_a_project_without_its_folder_of_tables_is_a_problem_that_names_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pipelines").rename(folder / "elsewhere")
    found = planned(["--all"], capsys, code=2)
    assert [problem["file"] for problem in found["problems"]] == ["pipelines"]
    (folder / "pipelines").mkdir()
    assert planned(["--all"], capsys)["nodes"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("demo new --rate -5", "--rate: '-5' is not"),
        ("demo new --rate nan", "--rate: 'nan' is not"),
        ("demo new --rate 1e9", "--rate: '1e9' is not"),
        ("wait --timeout nan", "--timeout: 'nan' is not"),
        ("wait --timeout -1", "--timeout: '-1' is not"),
        ("wait --timeout 1e300", "--timeout: '1e300' is not"),
        ("peek a -n -3", "-n/--limit: '-3' is not"),
        ("events -n 0", "-n/--limit: '0' is not"),
        ("runs skip 7f3a --step -1", "--step: '-1' is not"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_first(
    words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert edge.run(words.split()) == 2
    assert said in capsys.readouterr().err and not (folder / "new").exists()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_is_written_in_whatever_encoding(encoding: str, folder: Path) -> None:
    for words in (["--help"], ["help", "plans"], ["plan", "l\N{LATIN SMALL LETTER E WITH ACUTE}", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "tui.cli", *words],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            cwd=folder,
        )
        assert done.returncode == (2 if "--json" in words else 0), done.stderr
        said = done.stdout.decode(encoding)
        assert "--json" not in words or "l\N{LATIN SMALL LETTER E WITH ACUTE}" in json.loads(said)["error"]["summary"]


@pytest.mark.parametrize("words", ["ls", "ls --json", "plan --all", "--help", "help plans", "doctor"])
def test_a_reader_that_goes_away_is_no_failure(words: str, folder: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -m tui.cli {words} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=folder)
    code = done.stdout.splitlines()[-1]
    assert code in ("0", "1" if words == "doctor" else "0") and "Traceback" not in done.stderr


def test_a_plan_waits_for_the_first_look_of_an_agent_that_has_just_begun(
    ledger: Any, agent: Any, deployed: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.put_deployment(deployed("a", state="unknown"))

    def look(_: float) -> None:
        ledger.update_deployment(deployed("a").table, 1, state="running")

    monkeypatch.setattr("tui.operations.plans.time.sleep", look)
    actions = {node["table"]: node["action"] for node in planned(["b"], capsys)["nodes"]}
    assert (actions["a"], actions["b"]) == ("keep", "start")


@pytest.mark.parametrize(("pool_state", "code"), [("up", 4), ("starting", 4), ("down", 0)])
def test_what_was_not_observed_yet_is_not_planned_on(
    pool_state: str, code: int, ledger: Any, agent: Any, deployed: Any, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ledger.put_deployment(deployed("a", state="unknown"))
    ledger.put_pool(pool_state=pool_state)
    monkeypatch.setattr("tui.operations.plans.wait_until_observed.__kwdefaults__", {"seconds": 0.0})
    assert edge.run(["plan", "b"]) == code
    assert ("not observed yet: a" in capsys.readouterr().err) == bool(code)
    assert edge.run(["plan", "b", "--offline"]) == 0


@pytest.mark.parametrize("outcome", ["stopped, not recorded", "sent, not confirmed, not recorded"])
def test_a_stop_that_is_not_recorded_says_so_and_is_no_success(
    outcome: str, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["stop"] = {"statements": [{"table": "a", "version": 1, "outcome": outcome, "took_ms": 12}]}
    assert edge.run(["stop", "a", "--yes"]) == 4
    said = capsys.readouterr()
    assert f"a v1: {outcome}" in said.out and "an agent that ends now forgets it" in said.err
