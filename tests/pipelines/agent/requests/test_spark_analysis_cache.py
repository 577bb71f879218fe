"""The agent's cache of Spark's analyses: asked once, again for another engine, bounded, and never blocking."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from ledger_rows import create_run, plan_row, run_row

from core.changes.spark_cross_check import proof_key
from core.changes.spark_questions_and_answers import (
    AnalysedRevision,
    AnalysedStatement,
    AnalysisAnswer,
    AnalysisQuestion,
)
from core.model.errors import EngineRefused, Stale, TryAgain, UsageError
from core.model.names import TableName
from core.model.table_formats import TABLE_FORMATS
from core.plan.codec import plan_as_json
from core.plan.request import PlanRequest
from core.planner.planner import make_plan, questions_of
from pipelines.agent.context import AgentContext
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller
from pipelines.agent.requests.spark_analysis_cache import SparkAnalysisCache
from pipelines.agent.runs.run_driver import OpenRuns
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal
from tests.pipelines.agent.conftest import ScriptedPool

ONE, TWO = (
    AnalysisQuestion(
        AnalysedRevision(f"SELECT {n} FROM STREAM a", ((TableName("a"), "CREATE TABLE a (i INT) USING parquet"),))
    )
    for n in (1, 2)
)
SAID = AnalysisAnswer("4.2.0", AnalysedStatement())


def test_same_question_is_put_to_spark_once(agent: AgentContext, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: SAID}
    for _ in range(2):
        assert SparkAnalysisCache(agent).ask([ONE, ONE], 5.0) == ((SAID, SAID), "")
    assert pool.asked == [ONE]
    assert json.loads(agent.ledger.spark_analyses()[ONE.key]) == json.loads(json.dumps(SAID.as_json()))


def test_another_engine_is_asked_again(agent: AgentContext, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: SAID}
    SparkAnalysisCache(agent).ask([ONE], 5.0)
    newer = AnalysisAnswer("4.3.0", AnalysedStatement())
    pool.engine, pool.answers = "4.3.0", {ONE.key: newer}
    assert SparkAnalysisCache(agent).ask([ONE], 5.0) == ((newer,), "")
    assert len(agent.ledger.spark_analyses()) == 1


def test_pool_that_is_away_leaves_what_is_known(agent: AgentContext, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: SAID}
    SparkAnalysisCache(agent).ask([ONE], 5.0)
    pool.reachable = False
    assert SparkAnalysisCache(agent).ask([ONE, TWO], 5.0) == ((SAID, None), "the pool is silent")


def test_table_that_cannot_be_made_leaves_one_question_unanswered(agent: AgentContext, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: EngineRefused("no source nowhere"), TWO.key: SAID}
    assert SparkAnalysisCache(agent).ask([ONE, TWO], 5.0) == ((None, SAID), "no source nowhere")
    assert set(agent.ledger.spark_analyses()) == {TWO.key}


@pytest.mark.parametrize(
    ("select", "ddl", "why"),
    [
        ("SELECT java_method('java.io.File', 'createTempFile', 'headgate', 'x') AS x", "",
         "Spark was not asked: java_method calls a Java method, which no statement may do"),
        ("SELECT * FROM text.`/etc/passwd`", "",
         "Spark was not asked: text./etc/passwd is a path or a table of another database"),
        ("SELECT i FROM a", "CREATE TABLE a (i INT) USING `org.evil.Source`",
         f"Spark was not asked: a is org.evil.source, not {', '.join(TABLE_FORMATS)}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("old", [False, True])
def test_functions_that_an_analysis_would_run_or_read_never_reach_spark(
    agent: AgentContext, pool: ScriptedPool, select: str, ddl: str, why: str, old: bool
) -> None:
    unsafe = AnalysedRevision(select, ((TableName("a"), ddl),) if ddl else ())
    question = AnalysisQuestion(ONE.new, unsafe) if old else AnalysisQuestion(unsafe)
    pool.answers = {question.key: SAID, TWO.key: SAID}
    assert SparkAnalysisCache(agent).ask([question, TWO], 5.0) == ((None, SAID), why)
    assert pool.asked == [TWO]


def test_slow_answer_ends_the_asking(agent: AgentContext, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: TryAgain("Spark is slow"), TWO.key: SAID}
    assert SparkAnalysisCache(agent).ask([ONE, TWO], 5.0) == ((None, None), "Spark is slow")
    assert pool.asked == [ONE]


def test_an_answer_that_comes_after_its_caller_left_is_kept(agent: AgentContext, pool: ScriptedPool) -> None:
    pool.answers = {ONE.key: SAID}
    analysed = threading.Event()
    pool.analysing = analysed.wait
    cache = SparkAnalysisCache(agent)
    for _ in range(2):
        answers, why = cache.ask([ONE], 0.6)
        assert answers == (None,) and "did not analyse" in why
    analysed.set()
    assert cache.ask([ONE], 60.0) == ((SAID,), "")
    assert pool.asked == [ONE]
    until_cleared()
    assert ONE.key in agent.ledger.spark_analyses()


def test_asking_without_time_asks_nothing(agent: AgentContext, pool: ScriptedPool) -> None:
    answers, why = SparkAnalysisCache(agent).ask([ONE], 0.0)
    assert answers == (None,) and "did not analyse all" in why
    assert pool.asked == []


@pytest.mark.parametrize("said", [SAID, TryAgain("slow")])
def test_temporary_objects_are_dropped_each_time(
    agent: AgentContext, pool: ScriptedPool, said: AnalysisAnswer | TryAgain
) -> None:
    pool.answers = {ONE.key: said}
    SparkAnalysisCache(agent).ask([ONE], 5.0)
    until_cleared()
    assert pool.cleared == 1


def until_cleared() -> None:
    for thread in threading.enumerate():
        if thread.name == "clear analyses":
            thread.join(60)


CALLER = Caller(pid=1, uid=0, login_uid=None)


@pytest.fixture
def commands(agent: AgentContext, tmp_path: Path) -> CommandHandler:
    agent.project_id = small_project.project(small_project.texts()).id
    acts, figures = (
        StatementControl(agent, EmergencyJournal(tmp_path / "e")),
        TableStatisticsCollector(agent, PoolUtilization()),
    )
    return CommandHandler(agent, acts, OpenRuns(agent), figures, lambda **asked: None)


@pytest.mark.parametrize("continues", ["", "7f3a-1"])
def test_agent_takes_the_plan_that_holds_what_its_ledger_says_and_no_other(
    continues: str, agent: AgentContext, commands: CommandHandler
) -> None:
    project, request = small_project.project(small_project.texts()), PlanRequest(everything=True, children="all")
    failed = make_plan(project, "dev", {}, request)
    agent.ledger.put_plan(plan_row(failed, status="applied"))
    create_run(agent.ledger, run_row(failed.hash, state="failed", ended_at=2.0))
    request = replace(request, continues=continues)
    before = make_plan(project, "dev", {}, request)
    answers = {question.key: json.dumps(SAID.as_json()) for question in questions_of(before, project, {})}
    for key, answer in answers.items():
        agent.ledger.put_spark_analysis(key, answer, at=1.0)
    after = make_plan(project, "dev", {}, request, answers=answers)
    args = {"texts": small_project.texts(), "request": plan_as_json(after)["request"]}
    with pytest.raises(Stale):
        commands.handle(CALLER, {"op": "submit_plan", "args": {**args, "hash": before.hash}})
    assert commands.handle(CALLER, {"op": "submit_plan", "args": {**args, "hash": after.hash}})["hash"] == after.hash


def test_frame_gives_answers_in_the_questions_order_and_why_some_are_missing(
    commands: CommandHandler, pool: ScriptedPool
) -> None:
    pool.answers = {TWO.key: SAID, ONE.key: EngineRefused("no source nowhere")}
    args = {"questions": [ONE.as_json(), TWO.as_json()], "seconds": 5}
    said = commands.handle(CALLER, {"op": "opinion", "args": args})
    assert said == {"answers": [None, SAID.as_json()], "unanswered": "no source nowhere"}


@pytest.mark.parametrize("args", [{"questions": [{}]}, {"questions": [None]}, {"questions": [], "seconds": "x"}])
def test_frame_that_is_wrong_is_a_usage_error(commands: CommandHandler, args: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        commands.handle(CALLER, {"op": "opinion", "args": args})


def test_the_result_of_an_upgrade_test_is_kept_for_plans_of_these_texts(
    agent: AgentContext, commands: CommandHandler
) -> None:
    old, new = "0" * 64, "f" * 64
    args = {"table": "a", "old": old, "new": new, "shown": "case one: rows are wrong " + "x" * 400}
    assert commands.handle(CALLER, {"op": "upgrade_shown", "args": args}) == {"table": "a"}
    kept = agent.ledger.spark_analyses()[proof_key(old, new)]
    assert kept.startswith("case one: rows are wrong") and len(kept) == 300
    with pytest.raises(UsageError):
        commands.handle(CALLER, {"op": "upgrade_shown", "args": {**args, "old": "a text"}})
