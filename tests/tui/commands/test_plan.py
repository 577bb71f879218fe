"""plan and plan delete: where the plan is computed, what the agent is asked, and earlier refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.changes.spark_questions_and_answers import (
    AnalysedColumn,
    AnalysedRead,
    AnalysedStatement,
    AnalysisAnswer,
    question_from_json,
)
from core.model.errors import Stale, TryAgain
from tui.command_line import exit_codes

RUNNING = """
tables:
  landed: {state: running, revision: same}
  a: {state: running, revision: same}
  b: {state: running, revision: same}
"""


@pytest.fixture
def running(tmp_path: Path) -> str:
    path = tmp_path / "running.yml"
    path.write_text(RUNNING)
    return str(path)


def test_a_plan_needs_neither_agent_nor_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["plan", "b"], capsys)
    assert found["format"] == "headgate.plan/1" and [str(t) for t in found["order"]] == ["landed", "a", "b"]


def test_the_same_plan_has_the_same_bytes(folder: Path, running: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "a", "--rebuild", "--children", "all", "--observed", running, "--json"]
    said = []
    for _ in range(2):
        assert exit_codes.run_command_line(words) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


@pytest.mark.parametrize(("words", "code"), [(["--all"], 0), (["a", "--rebuild"], 11), (["delete", "b"], 11)])
def test_the_exit_code_shows_what_a_plan_would_do(words: list[str], code: int, folder: Path, running: str) -> None:
    assert exit_codes.run_command_line(["plan", *words, "--observed", running, "--exit-code"]) == code


def test_a_first_start_is_a_change_without_loss(folder: Path) -> None:
    assert exit_codes.run_command_line(["plan", "--all", "--exit-code"]) == 10


def test_a_refused_request_prints_the_plan_and_exits_3(
    folder: Path, running: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(["plan", "delete", "a", "--observed", running], capsys, code=3)
    assert found["refusals"][0]["table"] == "a" and found["steps"] == []


def test_an_invalid_project_prints_all_its_problems(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text("INSERT INTO b SELECT id FROM STREAM nowhere;")
    (folder / "pipelines/sources/p/a/sql-scripts/ddl.a.sql").write_text("CREATE TABL a (")
    found = written(["plan", "--all"], capsys, code=2)
    assert {problem["file"] for problem in found["problems"]} >= {
        "pipelines/facts/p/b/sql-scripts/dml.b.sql", "pipelines/sources/p/a/sql-scripts/ddl.a.sql",
    }  # fmt: skip
    assert all(problem["remedy"] for problem in found["problems"])


def test_an_observed_file_that_is_wrong_is_usage(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.yml").write_text("tables: {a: {state: runing}}")
    assert exit_codes.run_command_line(["plan", "a", "--observed", str(tmp_path / "wrong.yml")]) == 2
    assert "running" in capsys.readouterr().err


IMPOSSIBLE = """
tables:
  landed: running
  b:
    state: running
  a:
    state: absent
    pointer: a__v1
"""


@pytest.mark.parametrize("command", [["plan", "b"], ["impact", "b"]])
def test_a_world_that_cannot_be_is_not_planned_over(
    command: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "impossible.yml")
    Path(path).write_text(IMPOSSIBLE)
    found = written([*command, "--observed", path], capsys, code=2)
    assert [(each["file"], each["line"], each["summary"]) for each in found["problems"]] == [
        (path, 4, "b is running and reads a, which was never deployed"),
        (path, 8, "a is absent and has pointer"),
    ]
    assert found["problems"][0]["remedy"] == (
        "list a with its state, or {state: absent, highest_version: 1} where it was deleted"
    )


def test_a_plan_is_handed_to_an_agent_with_the_texts_that_it_was_computed_from(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["submit_plan"] = {"expires_at": 1.0, "confirm": "2", "level": "C2"}
    found = written(["plan", "b"], capsys)
    (request,) = [heard for heard in agent.heard if heard["op"] == "submit_plan"]
    assert request["args"]["hash"] == found["hash"]
    assert request["args"]["texts"]["headgate.yml"] == (folder / "headgate.yml").read_text()
    assert found["submitted"]["confirm"] == "2"


@pytest.fixture
def first_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that can only carry out first starts and rebuilds from the earliest row."""
    for module in ("core.planner.strategy_costs", "core.plan.model"):
        monkeypatch.setattr(f"{module}.EXECUTABLE", frozenset({"", "first", "earliest"}))


@pytest.mark.parametrize("words", [["--from", "now"], ["--strategy", "b=seeded@now"]])
def test_an_unsupported_strategy_is_refused_before_the_agent_is_asked(
    words: list[str], first_agent: None, ledger: Any, agent: Any, deployed: Callable[..., Any], capsys: Any
) -> None:
    agent.script["submit_plan"] = {"confirm": "2"}
    ledger.put_deployment(deployed("a"))
    assert exit_codes.run_command_line(["plan", "b", *words]) == 3
    assert "the plan uses seeded for b, which this version cannot execute yet" in capsys.readouterr().err
    assert agent.heard == []


def test_an_unsupported_strategy_is_planned_offline_and_the_plan_says_so(
    folder: Path, first_agent: None, running: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "b", "--rebuild", "--strategy", "b=carry-over", "--observed", running]
    found = written(words, capsys)
    assert {
        "table": "b",
        "summary": "carry-over cannot be executed yet: it can only be planned, and agents refuse it",
        "multiplies_rows": False, "kind": "not_executable", "drifts": False, "fields": {"what": "carry-over"},
    } in found["warnings"]  # fmt: skip
    (node,) = [node for node in found["nodes"] if node["table"] == "b"]
    assert {offer["strategy"]: offer["executable"] for offer in node["offers"]} == {
        "carry_over": False, "earliest": True, "seeded": False,
    }  # fmt: skip


def test_a_plan_that_the_agent_finds_stale_is_computed_again(ledger: Any, agent: Any) -> None:
    answers = iter([Stale("the environment changed"), {"confirm": "2"}])
    agent.script["submit_plan"] = lambda request: next(answers)
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    assert [heard["op"] for heard in agent.heard] == ["look_for_inputs", "opinion", "submit_plan", "submit_plan"]


def test_a_plan_is_computed_again_as_long_as_its_input_changes(
    ledger: Any, agent: Any, deployed: Callable[..., Any]
) -> None:
    """After a start of the pool, the agent repeatedly observes one more running statement than the console did."""
    versions = iter(range(1, 7))

    def moved(request: dict[str, Any]) -> dict[str, Any] | Stale:
        if (version := next(versions, 0)) == 0:
            return {"confirm": "2"}
        ledger.put_deployment(deployed("a", version=version, checkpoint=f"/c{version}", active=version == 1))
        return Stale("the environment changed")

    agent.script["submit_plan"] = moved
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    hashes = [heard["args"]["hash"] for heard in agent.heard if heard["op"] == "submit_plan"]
    assert len(hashes) == len(set(hashes)) == 7


def test_a_refused_plan_with_unchanged_input_is_abandoned(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["submit_plan"] = Stale("the environment changed")
    assert exit_codes.run_command_line(["plan", "b"]) == 3
    assert [heard["op"] for heard in agent.heard].count("submit_plan") == 3
    assert "the environment changed" in capsys.readouterr().err


def answering(ledger: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answer every question like an agent that has asked Spark: the answers are written to the ledger."""

    def opine(request: dict[str, Any]) -> dict[str, Any]:
        for each in request["args"]["questions"]:
            question = question_from_json(each)
            (source,) = dict(question.new.tables)
            said = AnalysedStatement(
                (AnalysedRead(source, True),), (AnalysedColumn("id", "bigint", True),) * question.new.select.count("id")
            )
            ledger.put_spark_analysis(question.key, json.dumps(AnalysisAnswer("4.2.0", said).as_json()), at=1.0)
        return {"answers": [], "unanswered": ""}

    return opine


def test_a_plan_holds_what_spark_said_when_it_was_asked_before(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script = {"opinion": answering(ledger), "submit_plan": {"confirm": "2"}}
    found = written(["plan", "b"], capsys)
    said = {node["table"]: node["confirmed_by_spark"] for node in found["nodes"]}
    assert said["b"] is not None and said["landed"] is None
    assert [heard["args"]["hash"] for heard in agent.heard if heard["op"] == "submit_plan"] == [found["hash"]]


def count_plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from tui.services import plan_submission

    made: list[Any] = []
    compute = plan_submission.compute
    monkeypatch.setattr(plan_submission, "compute", lambda *args, **more: made.append(args) or compute(*args, **more))
    return made


def test_a_plan_is_computed_again_only_for_new_answers_of_spark(
    ledger: Any, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = count_plans(monkeypatch)
    agent.script = {"submit_plan": {"confirm": "2"}}
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    assert len(made) == 1, "Spark said nothing"
    agent.script["opinion"] = answering(ledger)
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    assert len(made) == 1 + 2, "what to ask Spark follows from the first plan, and its answers are in the second"
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    assert len(made) == 3 + 1, "it said so before"
    assert [heard["op"] for heard in agent.heard] == ["look_for_inputs", "opinion", "submit_plan"] * 3


def test_a_plan_is_computed_once_without_an_agent(ledger: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_plans(monkeypatch)
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    assert len(made) == 1


@pytest.mark.parametrize("said", [{"answers": [], "unanswered": "the pool is silent"}, TryAgain("the pool is silent")])
def test_a_plan_never_fails_because_of_spark_and_says_that_it_is_unconfirmed(
    said: Any, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script = {"opinion": said, "submit_plan": {"confirm": "2"}}
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    told = capsys.readouterr()
    assert "not confirmed by Spark: the pool is silent" in told.err
    assert "not confirmed by Spark: a, b" in told.out


def test_a_delete_under_readers_is_refused_before_anything_is_sent(
    ledger: Any, agent: Any, deployed: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a"))
    ledger.put_deployment(deployed("b", reads="a"))
    assert exit_codes.run_command_line(["delete", "a"]) == 3
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
    assert exit_codes.run_command_line(words) == 2
    assert said in capsys.readouterr().err


def test_a_project_without_its_folder_of_tables_is_a_problem_that_names_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pipelines").rename(folder / "elsewhere")
    found = written(["plan", "--all"], capsys, code=2)
    assert [problem["file"] for problem in found["problems"]] == ["pipelines"]
    (folder / "pipelines").mkdir()
    assert written(["plan", "--all"], capsys)["nodes"] == []


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
    assert exit_codes.run_command_line(words.split()) == 2
    assert said in capsys.readouterr().err and not (folder / "new").exists()


def test_a_plan_waits_for_the_first_look_of_an_agent_that_has_just_begun(
    ledger: Any, agent: Any, deployed: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.put_deployment(deployed("a", state="unknown"))

    def look(_: float) -> None:
        ledger.update_deployment(deployed("a").table, 1, state="running")

    monkeypatch.setattr("tui.services.planner_input_reader.time.sleep", look)
    actions = {node["table"]: node["action"] for node in written(["plan", "b"], capsys)["nodes"]}
    assert (actions["a"], actions["b"]) == ("keep", "start")


@pytest.mark.parametrize(("pool_state", "code"), [("up", 4), ("starting", 4), ("down", 0)])
def test_unobserved_statements_are_not_planned_on(
    pool_state: str, code: int, ledger: Any, agent: Any, deployed: Any, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ledger.put_deployment(deployed("a", state="unknown"))
    ledger.put_pool(state=pool_state)
    patched = {"seconds": 0.0, "server_s": 0.0}
    monkeypatch.setattr("tui.services.planner_input_reader.wait_until_statements_observed.__kwdefaults__", patched)
    assert exit_codes.run_command_line(["plan", "b"]) == code
    assert (f"not observed yet: a (the pool is {pool_state})" in capsys.readouterr().err) == bool(code)
    assert exit_codes.run_command_line(["plan", "b", "--offline"]) == 0


def test_a_plan_waits_for_a_server_that_starts_longer_than_for_a_round(
    ledger: Any, agent: Any, deployed: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.put_deployment(deployed("a", state="unknown"))
    ledger.put_pool(state="starting")

    def look(_: float) -> None:
        ledger.update_deployment(deployed("a").table, 1, state="running")
        ledger.put_pool(state="up")

    monkeypatch.setattr("tui.services.planner_input_reader.time.sleep", look)
    patched = {"seconds": -1.0, "server_s": 1000.0}
    monkeypatch.setattr("tui.services.planner_input_reader.wait_until_statements_observed.__kwdefaults__", patched)
    assert exit_codes.run_command_line(["plan", "b"]) == 0
    assert "1 statement, the pool is starting" in capsys.readouterr().err


def test_wrong_column_is_a_problem_of_its_line_wherever_a_plan_starts_the_statement(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "-- Kinds.\nINSERT INTO b\nSELECT id,\n  kinde AS kind\nFROM STREAM a\n"
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text(wrong)
    assert exit_codes.run_command_line(["plan", "a", "--children", "none"]) == 0
    capsys.readouterr()
    assert exit_codes.run_command_line(["plan", "b"]) == 2
    said = capsys.readouterr().err
    place = "pipelines/facts/p/b/sql-scripts/dml.b.sql:4"
    assert f"{place}: error: b reads kinde, a column that a does not have\n    did you mean kind?" in said
    assert "headgate: 1 column that is read does not exist" in said


def test_a_rollback_over_a_document_finds_the_run_there(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = "former: {version: 1, revision: old, bindings: [{parent: landed, version: 0, streamed: true}]}"
    path = tmp_path / "released.yml"
    released = f"a: {{state: running, version: 2, served_by: 1c50-31ac8, {before}}}"
    path.write_text(f"tables:\n  landed: {{state: running}}\n  {released}\n")
    found = written(["plan", "rollback", "1c50", "--observed", str(path)], capsys)
    assert found["request"]["tables"] == ["a"] and [s["do"] for s in found["steps"]].count("swap") == 1
    found = written(["plan", "rollback", "a", "--observed", str(path)], capsys)
    assert found["request"]["tables"] == ["a"]
    other = released.replace("a: {", "b: {").replace("1c50-31ac8", "1c50-9")
    path.write_text(f"tables:\n  landed: {{state: running}}\n  {released}\n  {other}\n")
    assert exit_codes.run_command_line(["plan", "rollback", "1c50", "--observed", str(path)]) == 2
    assert "1c50 matches several runs: 1c50-31ac8, 1c50-9" in capsys.readouterr().err
    assert written(["plan", "rollback", "1c50-9", "--observed", str(path)], capsys)["request"]["tables"] == ["b"]
    assert exit_codes.run_command_line(["plan", "rollback", "", "--observed", str(path)]) == 2
