"""`headgate pool drain`, `cordon` and `uncordon`, from the command line to a real agent, without a pool."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.changes.pinned_settings import recorded_pool
from core.ipc import framing
from core.model.names import TableName as T
from core.observed.cluster_manager import ManagerWord
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from core.text.sentence import Fact
from pipelines.agent.context import AgentContext, Pools
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller, SocketServer
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal
from state.ledger import Ledger
from state.migrations import SCHEMA_VERSION
from tests.pipelines.agent.conftest import ScriptedFiles, ScriptedPool
from tests.support.submission_desk import Driven, deployed
from tui.command_line import exit_codes
from tui.project_folder.declaring_files import read_files
from tui.screens.backend import ConsoleBackend
from tui.services.environment_service import EnvironmentService

HEAD = """\
project: shop
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    pools:
      large: {url: 'sc://big:15002'}
      small: {statements: 3}
      spare: {statements: 1}
"""
OTHER = "pipelines/facts/q/z/sql-scripts"


@dataclass
class Desk:
    """An agent whose statements a, b and z run in the pool `large`, which their files do not name."""

    context: AgentContext
    runs: Driven
    folder: Path
    pools: dict[str, ScriptedPool]

    @property
    def ledger(self) -> Ledger:
        return self.context.ledger

    def apply(self, plan: Any, confirm: str = "") -> int:
        typed = confirm or plan["submitted"]["confirm"]
        return exit_codes.run_command_line(["apply", plan["hash"][:12], "--confirm", typed, "--detach"])

    def cordoned(self) -> list[str]:
        return [row.name for row in self.ledger.facts().pools if row.cordoned_at is not None]


@pytest.fixture
def desk(folder: Path, place: Any, ledger: Ledger, tmp_path: Path) -> Iterator[Desk]:
    (folder / "headgate.yml").write_text(HEAD)
    (folder / OTHER).mkdir(parents=True)
    (folder / OTHER / "ddl.z.sql").write_text("CREATE TABLE z (id BIGINT, kind STRING) USING parquet;")
    (folder / OTHER / "dml.z.sql").write_text("INSERT INTO z SELECT id, kind FROM STREAM landed;")
    project, problems = read_project(read_files(str(folder)).texts)
    assert project is not None, problems
    dev = project.environments["dev"]
    ledger.declare_pools([(pool.name, pool) for pool in dev.pools])
    for pool in dev.pools:
        ledger.put_pool(pool.name, state="up", engine="4.2.0")
    large = recorded_pool(dev.pools[0])
    for name, parent in (("landed", ""), ("a", "landed"), ("b", "a"), ("z", "landed")):
        row = deployed(name, parent, revision_of(project.tables[T(name)]))
        ledger.put_deployment(replace(row, pool=large, engine="4.2.0") if parent else row)
    clients = {pool.name: ScriptedPool() for pool in dev.pools}
    context = AgentContext(
        places=place.where, folder=str(folder), project_id=project.id, project="shop",
        layout=EnvironmentLayout(str(tmp_path / "data"), dev), ledger=ledger, ledger_id="9f2c",
        pools=Pools(dev, clients), files=ScriptedFiles(clients["large"], "9f2c"),
    )  # fmt: skip
    found = Desk(context, Driven(), folder, clients)
    acts, figures = (
        StatementControl(context, EmergencyJournal(tmp_path / "e")),
        TableStatisticsCollector(context, PoolUtilization()),
    )
    commands = CommandHandler(context, acts, found.runs, figures, lambda **asked: None)  # type: ignore[arg-type]  # a double

    def handle(caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
        return commands.handle(replace(caller, uid=70_001, login_uid=None), request)

    hello = {"program": "0.1.0", "protocol": framing.PROTOCOL, "ledger": SCHEMA_VERSION, "pid": 1}
    server = SocketServer(place.where.socket, hello, handle)
    server.open()
    yield found
    server.close()


def refused(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_codes.run_command_line(words) == code
    return " ".join(capsys.readouterr().err.split())


def named(plan: Any) -> dict[str, str]:
    """Return the pools in the texts of the statements that a plan restarts."""
    restarted = [node for node in plan["nodes"] if node["action"] == "restart"]
    return {node["table"]: node["texts"]["yml"].rpartition("pool: ")[2].strip() for node in restarted}


def test_a_drain_moves_each_statement_to_where_most_room_is_left_and_cordons_the_pool(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["pool", "drain", "large"], capsys)
    assert named(plan) == {"a": "small", "b": "small", "z": "spare"}
    (undo,) = plan["undo"]
    assert undo["words"] == "restart with the old text on the same checkpoint, after headgate pool uncordon large"
    assert [(step["do"], step["table"]) for step in plan["steps"]] == [("restart", t) for t in ("a", "z", "b")]
    (guard,) = [guard for guard in plan["guards"] if guard["name"] == "pool"]
    assert guard["summary"] == "a, b run in small; z runs in spare"
    said = [each["summary"] for each in plan["warnings"] if not each["table"]]
    until = "it takes no new statements, and none back by an undo, until headgate pool uncordon large"
    assert f"applying this plan cordons large: {until}" in said
    assert any(each.startswith("the yml of a, b, z must name the new pools before their next plan") for each in said)
    assert desk.cordoned() == []
    assert desk.apply(plan) == 0 and len(desk.runs.driven) == 1
    assert desk.cordoned() == ["large"]
    assert "the pool large takes no new statements: it is drained by " in desk.ledger.events()[0].summary
    capsys.readouterr()
    rows = {pool["name"]: pool for pool in written(["pool", "list"], capsys)["pools"]}
    assert rows["large"]["cordoned_by"] and rows["small"]["cordoned_by"] is None


def in_done_runs(desk: Desk, plan: Any) -> None:
    """Record what the runs of a drain do: the statements are in the pools of the plan."""
    pools = {pool.name: pool for pool in desk.context.layout.environment.pools}
    for node in plan["nodes"]:
        if node["action"] == "restart":
            desk.ledger.update_deployment(T(node["table"]), 1, pool=recorded_pool(pools[node["pool"]]))
    for row in desk.ledger.open_runs():
        desk.ledger.put_run_state(row.id, "done", ended_at=2.0)


def test_statements_that_leave_the_choice_to_the_planner_are_drained_without_an_edit(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk.folder / "headgate.yml").write_text(HEAD.replace("    pools:", "    placement: spread\n    pools:"))
    plan = written(["pool", "drain", "large"], capsys)
    moved = {node["table"]: node for node in plan["nodes"] if node["action"] == "restart"}
    assert {name: node["pool"] for name, node in moved.items()} == {"a": "small", "b": "small", "z": "spare"}
    assert "pool:" not in moved["a"]["texts"]["yml"] + moved["z"]["texts"]["yml"]
    assert moved["a"]["placed"]["kind"] == "most_room"
    assert "the yml of" not in str([each["summary"] for each in plan["warnings"]])
    assert [(each["command"], each["tables"], each["words"]) for each in plan["undo"]] == [
        (
            f"headgate pool drain {pool} --to large",
            tables,
            f"moved back with all that runs in {pool}, after headgate pool uncordon large",
        )
        for pool, tables in (("small", ["a", "b"]), ("spare", ["z"]))
    ]
    assert {node["undo"] for node in moved.values()} == {"plan"}
    assert desk.apply(plan) == 0
    in_done_runs(desk, plan)
    capsys.readouterr()
    again = written(["plan", "--all"], capsys)
    assert not again["steps"] and not again["refusals"], "no file has to name another pool"
    assert exit_codes.run_command_line(["pool", "drain", "small", "--to", "spare"]) == 3
    text = " ".join(capsys.readouterr().err.split())
    assert "small cannot be drained: b do not fit" not in text and "a, b do not fit: with a, spare would hold" in text
    desk.ledger.cordon_pool("large", None, "")
    back = written(["pool", "drain", "small", "--to", "large"], capsys)
    assert {n["table"]: n["pool"] for n in back["nodes"] if n["action"] == "restart"} == {"a": "large", "b": "large"}


def test_a_plan_whose_pool_has_filled_up_or_was_cordoned_since_is_refused(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk.folder / "headgate.yml").write_text(HEAD.replace("'sc://big:15002'", "'sc://big:15002', statements: 4"))
    plan = written(["plan", "z", "--rebuild"], capsys)
    assert not plan["refusals"]
    row = desk.ledger.deployment(T("b"), 1)
    assert row is not None
    desk.ledger.put_deployment(replace(row, version=2, active=False))
    assert desk.apply(plan) == 3
    assert "the plan is stale: large would hold 5 of at most 4 statements by now" in capsys.readouterr().err
    desk.ledger.update_deployment(T("b"), 2, state="stopped", wanted="stopped")
    desk.ledger.cordon_pool("large", 1.0, "bob")
    assert desk.apply(plan) == 3
    assert "z would start in large, which was cordoned by bob" in " ".join(capsys.readouterr().err.split())


def test_everything_that_does_not_fit_is_refused_at_once(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    row = desk.ledger.deployment(T("b"), 1)
    assert row is not None
    desk.ledger.put_deployment(replace(row, version=2, active=False))
    said = refused(["pool", "drain", "large", "--to", "spare"], 3, capsys)
    assert "large cannot be drained: b, z do not fit: with b, spare would hold 2 of at most 1 statement" in said
    assert "b__v2 keeps running there beside the serving version" in said
    assert "b__v2 keeps running there" in refused(["pool", "drain", "large"], 3, capsys)


def test_a_capacity_that_was_raised_counts_at_once(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    (desk.folder / "headgate.yml").write_text(HEAD.replace("spare: {statements: 1}", "spare: {statements: 3}"))
    plan = written(["pool", "drain", "large", "--to", "spare"], capsys)
    assert desk.apply(plan) == 0 and desk.cordoned() == ["large"]


def test_wrong_names_and_an_empty_pool_are_one_sentence(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean large?" in refused(["pool", "drain", "larg"], 2, capsys)
    assert "large cannot be drained into itself" in refused(["pool", "drain", "large", "--to", "large"], 2, capsys)
    assert "no statement runs in spare" in refused(["pool", "drain", "spare"], 3, capsys)


def test_a_cordoned_pool_takes_no_new_statements_until_it_is_uncordoned(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(["plan", "z", "--rebuild"], capsys)
    assert exit_codes.run_command_line(["pool", "cordon", "large"]) == 0
    assert exit_codes.run_command_line(["pool", "cordon", "large"]) == 0
    assert "large takes no new statements already" in capsys.readouterr().err
    denied = "z would start in large, which is cordoned and takes no new statements"
    assert exit_codes.run_command_line(["plan", "z", "--rebuild"]) == 3
    assert denied in " ".join(capsys.readouterr().out.split())
    assert exit_codes.run_command_line(["apply", before["hash"][:12], "--confirm", before["submitted"]["confirm"]]) == 3
    assert "z would start in large, which was cordoned by " in capsys.readouterr().err
    desk.ledger.update_deployment(T("z"), 1, state="stopped", wanted="stopped", run_id="", query_id="")
    said = refused(["start", "z", "--confirm", "yes"], 3, capsys)
    assert "z@v1 is in the pool large, which takes no new statements" in said
    (desk.folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text(
        "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > 0;"
    )
    assert not written(["plan", "b"], capsys)["refusals"], "what runs there goes on, and may be restarted"
    assert exit_codes.run_command_line(["pool", "uncordon", "large"]) == 0 and desk.cordoned() == []
    acts = [command.op for command in desk.ledger.commands() if command.subject == "large"]
    assert acts == ["uncordon_pool", "cordon_pool", "cordon_pool"]
    assert not written(["plan", "z", "--rebuild"], capsys)["refusals"]


def test_files_that_still_name_the_drained_pool_are_denied(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    plan = written(["pool", "drain", "large", "--to", "small"], capsys)
    assert desk.apply(plan) == 0
    in_done_runs(desk, plan)
    capsys.readouterr()
    assert exit_codes.run_command_line(["plan", "b"]) == 3
    assert "b would start in large, which is cordoned" in " ".join(capsys.readouterr().out.split())
    said = refused(["pool", "drain", "large"], 3, capsys)
    assert "no statement runs in large, and it is cordoned already" in said
    assert "headgate pool uncordon large" in said and "keeps it so" not in said


def test_a_pool_that_does_not_exist_is_a_bad_command_also_where_there_is_only_one(
    folder: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no pool nope pools: local" in refused(["pool", "drain", "nope"], 2, capsys)
    assert "there is no pool nope pools: local" in refused(["pool", "drain", "local", "--to", "nope"], 2, capsys)
    assert "dev has no other pool to which statements could move" in refused(["pool", "drain", "local"], 3, capsys)


def test_a_statement_that_started_after_the_plan_makes_it_stale(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.ledger.update_deployment(T("z"), 1, state="stopped", wanted="stopped")
    plan = written(["pool", "drain", "large"], capsys)
    assert "z does not run and stays in large" in str([w["summary"] for w in plan["warnings"] if not w["table"]])
    desk.ledger.update_deployment(T("z"), 1, state="running", wanted="running")
    assert desk.apply(plan) == 3
    assert "z runs in large by now" in capsys.readouterr().err
    assert desk.cordoned() == []


def test_a_lost_pool_is_drained_only_after_a_statement_about_it(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pool", "drain", "large", "--to", "small", "--lost"]
    said = refused(words, 3, capsys)
    assert "large is up, so it can be asked: drain it without --lost" in said
    desk.ledger.put_pool("large", state="down", detail="connection refused")
    plan = written(words, capsys)
    assert plan["submitted"]["confirm"] == "nothing runs in large"
    assert desk.apply(plan, confirm=f"dev {plan['hash'][:4]}") == 3 and not desk.cordoned()
    assert desk.apply(plan) == 0
    audit = [(row.action, row.subject, row.outcome) for row in desk.ledger.audits()]
    assert ("state_pool_gone", "large", "states that nothing runs in large any more") in audit


MASTER = {"manager": "the master spark://m:7077", "application": "app-1"}
RUNS = ManagerWord.RUNS.of(**MASTER, state="RUNNING", kill="the link (kill) on http://m:8080")
ENDED = ManagerWord.ENDED.of(**MASTER, state="FINISHED", at="2026-11-29 10:00:05 UTC")


def lose(desk: Desk, word: Fact[ManagerWord] | None) -> None:
    """Have the pool `large` give no answer, and the manager of its cluster say `word` about it."""
    desk.pools["large"].manager_says = word
    says = json.dumps(word.as_json()) if word is not None else None
    desk.ledger.put_pool("large", state="silent", detail="no answer", silent_since=1.0, manager_says=says)


def of_manager(plan: Any) -> str:
    """Return the warning of a drain's plan about who vouches that nothing runs in the pool."""
    (said,) = (each["summary"] for each in plan["warnings"] if each["kind"] in ("manager_says", "nobody_vouches"))
    return str(said)


def test_a_lost_pool_whose_application_runs_is_not_drained(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pool", "drain", "large", "--to", "small", "--lost"]
    lose(desk, RUNS)
    said = refused(words, 3, capsys)
    assert "large cannot be drained: the master spark://m:7077 says that its application app-1 is RUNNING" in said
    assert "end it where it runs, or with the link (kill) on http://m:8080" in said
    # The agent asks again when the plan is submitted, and when it is applied.
    lose(desk, None)
    desk.pools["large"].manager_says = RUNS
    assert "says that its application app-1 is RUNNING" in refused(words, 3, capsys)
    lose(desk, ENDED)
    plan = written(words, capsys)
    desk.pools["large"].manager_says = RUNS
    assert desk.apply(plan) == 3 and not desk.cordoned()
    assert "says that its application app-1 is RUNNING" in capsys.readouterr().err
    desk.pools["large"].manager_says = ENDED
    assert desk.apply(plan) == 0 and desk.cordoned() == ["large"]


def test_the_plan_of_a_lost_pool_says_who_vouches_that_nothing_runs_there(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pool", "drain", "large", "--to", "small", "--lost"]
    lose(desk, ENDED)
    plan = written(words, capsys)
    ended = "the master spark://m:7077 says that its application app-1 is FINISHED since 2026-11-29 10:00:05 UTC"
    no_proof = "but that is no proof that nothing runs in large: a server can outlive its application for a moment"
    assert of_manager(plan) == f"{ended}, {no_proof}"
    assert plan["submitted"]["confirm"] == "nothing runs in large"
    nobody = "nobody but whoever applies this plan vouches for large: "
    for word, why in (
        (None, "no manager of its cluster is declared that could be asked"),
        (ManagerWord.SILENT.of(application="app-1", error="h cannot be read"),
         "nobody says whether its application app-1 runs: h cannot be read"),
        (ManagerWord.UNKNOWN.of(**MASTER), "the master spark://m:7077 does not know its application app-1: it has "
         "forgotten it, or has another cluster"),
    ):  # fmt: skip
        lose(desk, word)
        assert of_manager(written(words, capsys)) == f"{nobody}{why}"


def test_another_spark_in_the_new_pool_is_a_fact_of_the_plan(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.ledger.put_pool("small", engine="4.3.0")
    plan = written(["pool", "drain", "large", "--to", "small"], capsys)
    evidence = [str(each) for node in plan["nodes"] if node["table"] == "a" for each in node["evidence"]]
    assert any("4.2.0" in each and "4.3.0" in each for each in evidence)
    desk.ledger.put_pool("small", engine="4.1.0")
    plan = written(["pool", "drain", "large", "--to", "small"], capsys)
    assert plan["refusals"] or {n["action"] for n in plan["nodes"] if n["table"] == "a"} == {"rebuild"}


def test_the_console_submits_the_drain_that_the_command_submits(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = EnvironmentService(desk_place(desk, tmp_path), {"HEADGATE_HOME": str(tmp_path / "home")})
    try:
        submitted = ConsoleBackend(service).drain("large", "small")
    finally:
        service.close()
    assert written(["pool", "drain", "large", "--to", "small"], capsys)["hash"] == submitted


def desk_place(desk: Desk, tmp_path: Path) -> Any:
    from tui.project_folder.environment_selection import select_environment

    return select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(desk.folder))
