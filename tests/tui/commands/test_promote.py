"""promote and diff between two environments: two real ledgers, and a real agent of the target without a pool."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import one_pool
from command_line import written
from ledger_rows import environment_row

from core.ipc import framing
from core.model.errors import HeadgateError
from core.model.names import TableName as T
from core.observed.versions import Deployment, Measurement
from core.policy.roles_and_rules import Policy
from core.project.revision import Revision, revision_hash, texts_from_json, written_hash
from core.project_reader.loader import read_project
from core.project_reader.revision_reader import revision_of
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.measurements.table_statistics_collector import TableStatisticsCollector
from pipelines.agent.requests.command_handler import CommandHandler
from pipelines.agent.requests.socket_server import Caller, SocketServer
from pipelines.agent.statements.statement_control import StatementControl
from pipelines.spark_connect.query_progress import PoolUtilization
from state.emergency_journal import EmergencyJournal
from state.ledger import Ledger, create_or_open
from state.migrations import SCHEMA_VERSION
from tests.pipelines.agent.conftest import ScriptedFiles, ScriptedPool
from tests.support.ledger_rows import policy_row
from tests.support.submission_desk import Driven
from tests.support.submission_desk import deployed as deployment_of
from tui.command_line import exit_codes
from tui.project_folder.declaring_files import read_files
from tui.project_folder.environment_selection import select_environment
from tui.screens.backend import ConsoleBackend
from tui.services.environment_service import EnvironmentService

HEAD = """\
project: shop
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments: {dev: {}, stage: {data: staged, naming: {prefix: stage_}}}
"""
B = "pipelines/facts/p/b/sql-scripts/dml.b.sql"
FILTERED = "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > 0;"
TO_STAGE = ("--from", "dev", "--to", "stage")


@dataclass
class Two:
    """The environments dev and stage, which both run landed → a → b at first."""

    folder: Path
    dev: Ledger
    stage: Ledger
    agent: AgentContext
    runs: Driven

    def run_in(self, ledger: Ledger, table: str, text: str, **fields: Any) -> Deployment:
        """Deploy a statement with another text, as if its files had held that text for a while."""
        path = next(self.folder.glob(f"pipelines/*/p/{table}/sql-scripts/dml.{table}.sql"))
        kept = path.read_text()
        path.write_text(text)
        found = replace(
            deployment_of(table, "a" if table == "b" else "landed", revisions(self.folder)[table]), **fields
        )
        path.write_text(kept)
        ledger.put_deployment(found)
        return found

    def measured(self, table: str, **fields: Any) -> None:
        self.dev.put_measurements([Measurement(T(table), 1, time.time(), **fields)])


def revisions(folder: Path) -> dict[str, Revision]:
    project, problems = read_project(read_files(str(folder)).texts)
    assert project is not None, problems
    return {name: revision_of(table) for name, table in project.tables.items()}


@pytest.fixture
def two(folder: Path, tmp_path: Path) -> Iterator[Two]:
    (folder / "headgate.yml").write_text(HEAD)
    places = {
        name: select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder), environment=name)
        for name in ("dev", "stage")
    }
    ledgers = [
        create_or_open(
            Path(place.where.ledger),
            environment_row(
                ledger_id=name, project_id=place.project_id, project="shop", environment=name, agent_pid=1,
                agent_started_at=1.0, agent_seen_at=time.time() + 600,
            ),
        )
        for name, place in places.items()
    ]  # fmt: skip
    for ledger in ledgers:
        for name, parent in (("landed", ""), ("a", "landed"), ("b", "a")):
            ledger.put_deployment(deployment_of(name, parent, revisions(folder)[name]))
    pool, where = ScriptedPool(), places["stage"].where
    project, problems = read_project(read_files(str(folder)).texts)
    assert project is not None, problems
    context = AgentContext(
        places=where, folder=str(folder), project_id=places["stage"].project_id, project="shop",
        layout=EnvironmentLayout(str(tmp_path / "data"), project.environments["stage"]), ledger=ledgers[1],
        ledger_id="stage", pools=one_pool(pool), files=ScriptedFiles(pool, "stage"),
    )  # fmt: skip
    runs = Driven()
    acts, figures = (
        StatementControl(context, EmergencyJournal(tmp_path / "e")),
        TableStatisticsCollector(context, PoolUtilization()),
    )
    commands = CommandHandler(context, acts, runs, figures, lambda **asked: None)  # type: ignore[arg-type]  # a double

    def handle(caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
        return commands.handle(replace(caller, uid=70_001, login_uid=None), request)

    server = SocketServer(
        where.socket, {"program": "0.1.0", "protocol": framing.PROTOCOL, "ledger": SCHEMA_VERSION, "pid": 1}, handle
    )
    server.open()
    yield Two(folder, *ledgers, context, runs)
    server.close()
    for ledger in ledgers:
        ledger.close()


def nodes(plan: Any) -> dict[str, tuple[str, str]]:
    """Return the action on each table of a plan that does something, with the start of the revision."""
    return {n["table"]: (n["action"], n["revision"]) for n in plan["nodes"] if n["action"] != "keep"}


def refused(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_codes.run_command_line(words) == code
    return capsys.readouterr().err


def test_what_runs_in_the_source_is_planned_by_hash_whatever_the_files_hold(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    there = two.run_in(two.dev, "b", FILTERED, plan_hash="77aa" * 16)
    (two.folder / B).write_text("INSERT INTO b SELECT id, upper(kind) AS kind FROM STREAM a;")
    plan = written(["promote", "b", *TO_STAGE], capsys)
    assert nodes(plan) == {"b": ("restart", there.revision)}
    assert plan["request"]["promoted_from"] == "dev"
    assert plan["request"]["promotes"] == [{"table": "b", "revision": there.revision, "plan": "77aa" * 16}]
    confirm = plan["submitted"]["confirm"] or ""
    words = ["apply", plan["hash"][:12], "--env", "stage", "--confirm", confirm, "--detach"]
    assert exit_codes.run_command_line(words) == 0 and len(two.runs.driven) == 1
    capsys.readouterr()
    assert ("promote", f"{plan['hash'][:12]} from dev") in [(row.action, row.subject) for row in two.stage.audits()]
    assert exit_codes.run_command_line(["history", "b", "--env", "stage"]) == 0
    assert f"promoted from dev: revision {there.revision[:8]}, plan 77aa there" in capsys.readouterr().out
    found = written(["runs", two.runs.driven[0], "--env", "stage"], capsys)
    assert found["promoted_from"] == "dev"
    two.stage.update_deployment(T("b"), 1, plan_hash=plan["hash"])
    assert written(["show", "b", "--env", "stage"], capsys)["promoted_from"] == "dev"
    assert exit_codes.run_command_line(["show", "b", "--env", "stage"]) == 0
    assert "origin      promoted from dev" in capsys.readouterr().out


def test_deleted_files_do_not_matter_and_settings_are_those_of_the_source(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = two.folder / "pipelines/facts/p/b"
    (scripts / "b.yml").write_text("owner: ana\ntrigger: 7 seconds\n")
    there = two.run_in(two.dev, "b", FILTERED)
    for path in sorted(scripts.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (two.folder / "headgate.yml").write_text(HEAD + "defaults: {owner: bob, trigger: 3 seconds, reads: stream}\n")
    plan = written(["promote", "--all", *TO_STAGE], capsys)
    assert nodes(plan)["b"][1] == there.revision


def test_equal_tables_are_left_out_and_counted(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["promote", "--product", "p", *TO_STAGE]) == 0
    said = capsys.readouterr()
    assert "3 tables already run the same revision in stage as in dev" in said.err and "nothing to do" in said.err
    assert exit_codes.run_command_line(["promote", "a", "b", "--product", "p", *TO_STAGE]) == 0
    said = capsys.readouterr()
    assert "approv" not in said.out and "the next deploy of files" not in said.out and "nothing to do" in said.err
    assert "1 table already runs the same revision in stage as in dev" in said.err


def test_a_new_table_is_promoted_unless_it_is_excluded(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    there = two.run_in(two.dev, "b", FILTERED)
    new = replace(there, table=T("c"), texts=replace(there.texts, ddl=there.texts.ddl.replace(" b ", " c "),
                                                     dml=there.texts.dml.replace(" b ", " c ")))  # fmt: skip
    two.dev.put_deployment(replace(new, revision=revision_hash(new.texts)))
    assert nodes(written(["promote", "--all", *TO_STAGE], capsys)).keys() == {"b", "c"}
    assert nodes(written(["promote", "--all", "--exclude", "c", *TO_STAGE], capsys)).keys() == {"b"}
    assert "zz is not deployed in dev" in refused(["promote", "--all", "--exclude", "zz", *TO_STAGE], 2, capsys)


def test_a_parent_that_is_older_in_the_target_is_named_and_can_be_included(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    upper = "INSERT INTO a SELECT id, upper(kind) AS kind FROM STREAM landed;"
    old = revisions(two.folder)["a"].hash
    parent, there = two.run_in(two.dev, "a", upper), two.run_in(two.dev, "b", FILTERED)
    said = refused(["promote", "b", *TO_STAGE], 3, capsys)
    assert f"a has revision {old[:8]} instead of {parent.revision[:8]}" in said and "--with-parents" in said
    two.run_in(two.dev, "a", (two.folder / "pipelines/sources/p/a/sql-scripts/dml.a.sql").read_text(), version=2,
               active=False, wanted="stopped", state="stopped")  # fmt: skip
    assert f"a has the older revision {old[:8]}" in refused(["promote", "b", *TO_STAGE], 3, capsys)
    plan = written(["promote", "b", "--with-parents", *TO_STAGE], capsys)
    assert {table: revision for table, (_, revision) in nodes(plan).items()} == {
        "a": parent.revision, "b": there.revision,
    }  # fmt: skip


def test_a_source_that_moves_after_the_plan_is_noticed_when_it_is_submitted(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    two.run_in(two.dev, "b", FILTERED)
    plan = written(["promote", "b", *TO_STAGE, "--offline", "--save", "p.json"], capsys)
    now = two.run_in(two.dev, "b", FILTERED.replace("0", "1"))
    said = refused(["apply", "p.json", "--env", "stage", "--confirm", "x"], 3, capsys)
    assert f"dev now runs revision {now.revision[:8]} of b" in said or "differs from what this agent plans" in said
    assert plan["request"]["promotes"][0]["revision"] != now.revision


@pytest.mark.parametrize(
    "fields, fault, words",
    [
        ({"state": "failed"}, "", "b has failed in dev"),
        ({"state": "degraded"}, "", "b is degraded in dev"),
        ({}, "stalled", "b is degraded in dev"),
    ],
)
def test_a_source_in_trouble_is_denied_by_default_and_allowed_by_the_policy_of_the_target(
    two: Two, fields: dict[str, str], fault: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    two.run_in(two.dev, "b", FILTERED, **fields)
    two.measured("b", fault=fault)
    assert exit_codes.run_command_line(["promote", "b", *TO_STAGE]) == 3
    assert words in capsys.readouterr().out
    allowed = Policy(promote=(("degraded", "allow"), ("failed", "allow")))
    two.stage.put_policy(policy_row(allowed, at=1.0, actor="lee"))
    plan = written(["promote", "b", *TO_STAGE], capsys)
    assert [g["summary"] for g in plan["guards"] if g["name"] == "source"] == [f"{words}: the policy accepts that"]


@pytest.mark.parametrize(
    "fields, fault, rule, words",
    [
        ({"state": "stopped"}, "", "stopped", "b is not known to run in dev"),
        ({}, "behind", "behind", "b misses its objective in dev"),
        (
            {"served_before": 7, "served_by": "gone"},
            "",
            "unvalidated",
            "b replaced a version in dev without a comparison of rows",
        ),
    ],
)
def test_a_source_that_proved_less_needs_an_approval(
    two: Two, fields: dict[str, Any], fault: str, rule: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    two.run_in(two.dev, "b", FILTERED, **fields)
    two.measured("b", fault=fault)
    plan = written(["promote", "b", *TO_STAGE], capsys)
    (guard,) = [g for g in plan["guards"] if g["name"] == "approval"]
    assert plan["approvals"] == 1 and words in guard["summary"]
    spared = f"declare promote: {{{rule}: allow}} below policy, then headgate policy apply --env stage"
    assert guard["remedy"] == f"to promote without an approval, {spared}"
    exit_codes.run_command_line(["promote", "b", *TO_STAGE])
    assert spared in " ".join(capsys.readouterr().out.split())


def test_a_text_that_headgate_yml_no_longer_allows_is_refused_without_a_place_in_a_file(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    (two.folder / "headgate.yml").write_text(f"{HEAD}variables: {{least: {{type: int, default: 1}}}}\n")
    two.run_in(two.dev, "b", "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > ${least};")
    (two.folder / "headgate.yml").write_text(HEAD)
    said = refused(["promote", "b", *TO_STAGE], 3, capsys)
    assert "b as it runs in dev is not valid in stage: least is not a declared variable" in said
    assert "--exclude b" in said and ".sql" not in said


@pytest.mark.parametrize("pools", ["pool: {name: only}", "pools: {big: {}, huge: {}}"])
def test_a_plan_says_that_the_target_has_no_pool_of_the_name_that_a_promoted_statement_has(
    pools: str, two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    head = HEAD.replace("dev: {}", "dev: {pools: {small: {}, large: {}}}")
    (two.folder / "headgate.yml").write_text(head.replace("prefix: stage_}", f"prefix: stage_}}, {pools}"))
    (two.folder / "pipelines/facts/p/b/b.yml").write_text("pool: large\n")
    two.run_in(two.dev, "b", FILTERED)
    if "pools" in pools:
        said = refused(["promote", "b", *TO_STAGE], 3, capsys)
        assert "b as it runs in dev is not valid in stage: stage has no pool large" in said
        return
    said = [f"{each['table']}: {each['summary']}" for each in written(["promote", "b", *TO_STAGE], capsys)["warnings"]]
    assert "b: names the pool large, but stage has only one, only, in which it runs" in said


def test_nothing_to_promote_needs_no_approval(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    two.run_in(two.dev, "b", (two.folder / B).read_text(), state="stopped")
    plan = written(["promote", "b", *TO_STAGE], capsys)
    assert (plan["approvals"], plan["warnings"], plan["steps"]) == (0, [], [])
    assert not [guard for guard in plan["guards"] if guard["name"] in ("approval", "source")]


def test_forged_texts_are_refused_by_the_agent(
    two: Two, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pipelines.agent.requests import submitted_plans
    from tui.services import plan_submission

    two.run_in(two.dev, "b", FILTERED)
    sent = plan_submission.AgentClient.call
    forged = lambda texts: {path: text.replace("id > 0", "id > 9") for path, text in texts.items()}  # noqa: E731  # Local.

    def call(self: Any, op: str, args: Any = None, **more: Any) -> Any:
        args = {**args, "texts": forged(args["texts"])} if op == "submit_plan" else args
        return sent(self, op, args, **more)

    monkeypatch.setattr(plan_submission.AgentClient, "call", call)
    planned: list[Any] = []
    made = submitted_plans.make_plan
    monkeypatch.setattr(submitted_plans, "make_plan", lambda *a, **k: planned.append(made(*a, **k)) or planned[-1])
    assert exit_codes.run_command_line(["promote", "b", *TO_STAGE]) == 3
    assert {refusal.kind for plan in planned for refusal in plan.refusals} == {"not_the_promoted_text"}


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["b", "--from", "dev", "--to", "dev"], 2, "dev cannot be promoted into itself"),
        (["b", "--from", "dev"], 2, "--to is missing"),
        (["b", "--env", "stage", *TO_STAGE[:2], "--to", "dev"], 2, "--to names dev, and --env stage"),
        (["b", *TO_STAGE, "--env", "dev"], 2, "--to names stage, and --env dev"),
        (["--from", "dev", "--to", "stage"], 2, "the request is empty"),
        (["bb", *TO_STAGE], 2, "bb is not deployed in dev"),
        (["--product", "q", *TO_STAGE], 2, "dev runs no table of a product 'q'"),
        (["b", "--from", "qa", "--to", "stage"], 2, "declares no environment 'qa'"),
        (["b", "--to", "stage"], 2, "--from"),
    ],
)
def test_a_mistaken_promotion_is_one_sentence(
    two: Two, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(["promote", *words], code, capsys)


def test_two_environments_are_compared_table_by_table(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage"]) == 0
    assert "0 tables differ, 3 the same" in capsys.readouterr().err
    there = two.run_in(two.dev, "b", FILTERED)
    two.measured("b", fault="behind", behind_s=400.0)
    found = written(["diff", "--env", "dev", "--env", "stage"], capsys, 10)
    assert (found["differ"], found["same"], [one["table"] for one in found["tables"]]) == (1, 2, ["b"])
    (b,) = found["tables"]
    assert b["in"]["dev"]["revision"] == there.revision and b["in"]["stage"]["fault"] is None
    assert b["promotion"]["action"] == "restart"
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage", "--all"]) == 10
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["TABLE", "DEV", "STAGE", "VARIABLES", "PROMOTION"] and len(lines) == 4
    assert f"v1 {there.revision[:8]} running, 6m 40s behind, misses its objective" in lines[2]
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage", "a"]) == 0
    two.stage.put_deployment(replace(there, table=T("c")))
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage", "c"]) == 10
    assert "stays: a promotion deletes nothing" in capsys.readouterr().out


def test_a_difference_that_no_promotion_can_remove_is_refused_in_the_comparison(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    here = next(d for d in two.dev.deployments() if d.external)
    moved = replace(here.texts, ddl=here.texts.ddl.replace("'in'", "'moved'"))
    two.dev.put_deployment(replace(here, texts=moved, revision=revision_hash(moved)))
    assert exit_codes.run_command_line(["promote", "landed", *TO_STAGE]) == 3
    capsys.readouterr()
    (landed,) = written(["diff", "--env", "dev", "--env", "stage"], capsys, 10)["tables"]
    refused_because = "landed is external and changed: location: in → moved"
    assert landed["promotion"] == {"action": None, "strategy": None, "row": None, "refused": refused_because}
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage"]) == 10
    assert "--exclude landed" in capsys.readouterr().err


def test_a_ledger_that_is_missing_or_of_another_project_is_one_sentence(
    two: Two, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (two.folder / "headgate.yml").write_text(HEAD.replace("environments: {", "environments: {qa: {}, "))
    said = refused(["diff", "--env", "dev", "--env", "qa"], 2, capsys)
    assert "qa has never been started on this machine" in said and "Traceback" not in said
    home = Path(two.agent.places.home).parent / "qa"
    home.mkdir()
    create_or_open(home / "ledger.db", environment_row(project="till", environment="prod")).close()
    said = refused(["diff", "--env", "dev", "--env", "qa"], 2, capsys)
    assert "belongs to till prod, and not to qa of this project" in said
    assert "two different environments" in refused(["diff", "--env", "dev", "--env", "dev"], 2, capsys)
    assert "zz is deployed in neither" in refused(["diff", "--env", "dev", "--env", "stage", "zz"], 2, capsys)
    assert "diff compares two files or two environments" in refused(["diff", "one.sql"], 2, capsys)


@pytest.mark.parametrize("table, column, content", [("revision", "texts", "{no json"), ("deployment", "bindings", "5")])
def test_a_damaged_row_is_one_sentence(
    two: Two, table: str, column: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(two.dev.path)) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (content,))
    for words in (["diff", "--env", "dev", "--env", "stage"], ["promote", "b", *TO_STAGE], ["schema", "b"]):
        said = refused(words, 4, capsys)
        assert "ledger" in said and "damaged" in said and "Error" not in said
    if column == "bindings":
        assert exit_codes.run_command_line(["env"]) == 1
        said = capsys.readouterr().out
        assert "dev: the ledger has inputs of a@v1 that cannot be read" in said and "stage  " in said


def test_a_promoted_revision_takes_the_values_of_the_target(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    head = HEAD.replace("data: staged,", "data: staged, variables: {least: 7},")
    (two.folder / "headgate.yml").write_text(f"{head}variables: {{least: {{type: int, default: 1}}}}\n")
    there = two.run_in(two.dev, "b", "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > ${least};")
    assert "id > 1" in there.texts.dml and there.texts.variables == (("least", "1"),)
    plan = written(["promote", "b", *TO_STAGE], capsys)
    (node,) = [node for node in plan["nodes"] if node["action"] != "keep"]
    assert "id > 7" in node["texts"]["dml"] and node["texts"]["variables"] == {"least": "7"}
    assert plan["request"]["promotes"][0]["revision"] == written_hash(there.texts) != there.revision
    two.stage.put_deployment(replace(there, revision=node["revision"], texts=texts_from_json(node["texts"])))
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage", "b", "--all"]) == 0
    assert "least: 1 → 7" in capsys.readouterr().out


def test_other_values_of_the_same_revision_are_counted_apart_and_never_promoted(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    head = f"{HEAD}variables: {{least: {{type: int, default: 1}}}}\n"
    (two.folder / "headgate.yml").write_text(head.replace("data: staged,", "data: staged, variables: {least: 7},"))
    text = "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > ${least};"
    there = two.run_in(two.dev, "b", text)
    here = replace(there.texts, dml=there.texts.dml.replace("> 1", "> 7"), variables=(("least", "7"),))
    two.stage.put_deployment(replace(there, texts=here, revision=revision_hash(here)))
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage"]) == 0
    words = "0 tables differ in revision, 1 has the same revision with other values of variables, 2 the same (--all)"
    assert words in capsys.readouterr().err
    found = written(["diff", "--env", "dev", "--env", "stage"], capsys)
    assert (found["differ"], found["same"], found["other_values"]) == (0, 3, 1)
    for words in (["b"], ["--all"]):
        assert exit_codes.run_command_line(["promote", *words, *TO_STAGE]) == 0
        said = capsys.readouterr()
        assert "nothing to do" in said.err and "with other values" not in said.err
    (two.folder / "headgate.yml").write_text(head.replace("data: staged,", "data: staged, variables: {least: 9},"))
    for words in (["b"], ["--all"], ["b", "--rebuild"]):
        assert exit_codes.run_command_line(["promote", *words, *TO_STAGE]) == 0
        said = capsys.readouterr().err
        assert "nothing to do" in said and "already run" in said
        assert "b runs with other values of variables than headgate.yml now gives stage, which no promotion" in said
        assert "headgate plan b --env stage" in said


def test_the_undo_of_a_plan_names_the_environment_as_the_command_did(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    two.run_in(two.dev, "b", FILTERED)
    plan = written(["promote", "b", *TO_STAGE], capsys)
    undo = f"headgate plan undo {plan['hash'][:12]} --env stage"
    for words in (["promote", "b", *TO_STAGE], ["review", plan["hash"][:12], "--env", "stage"]):
        assert exit_codes.run_command_line(words) == 0
        assert undo in capsys.readouterr().out
    assert exit_codes.run_command_line(["review", plan["hash"][:12], "--env", "stage", "--markdown"]) == 0
    said = capsys.readouterr().out
    assert undo in said and "--project" not in said


def test_a_protected_environment_that_never_started_has_the_remedy_that_starts_it(
    two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    (two.folder / "headgate.yml").write_text(HEAD.replace("environments: {", "environments: {qa: {protected: true}, "))
    for words in (["diff", "--env", "dev", "--env", "qa"], ["apply", "7f3a00", "--env", "qa"]):
        assert "headgate up --foreground --env qa" in refused(words, 2 if words[0] == "diff" else 4, capsys)


@pytest.fixture
def console(two: Two, tmp_path: Path) -> Iterator[ConsoleBackend]:
    """The backend of a console that shows stage."""
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    service = EnvironmentService(select_environment(environ, str(two.folder), environment="stage"), environ)
    yield ConsoleBackend(service)
    service.close()


@pytest.mark.parametrize(("words", "command"), [(("b",), ["b"]), ((), ["--all"])])
def test_the_console_submits_the_promotion_that_the_command_submits(
    words: tuple[str, ...], command: list[str], two: Two, console: ConsoleBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    there = two.run_in(two.dev, "b", FILTERED)
    submitted = console.promote(words, "dev")
    plan = written(["promote", *command, *TO_STAGE], capsys)
    assert plan["hash"] == submitted and nodes(plan) == {"b": ("restart", there.revision)}


def test_a_mistaken_promotion_of_the_console_is_one_sentence(two: Two, console: ConsoleBackend) -> None:
    for words, source, said in (
        ((), "dev", "nothing to do: stage runs every table of it as dev does"),
        (("b",), "stage", "stage cannot be promoted into itself"),
        (("b",), "nowhere", "shop declares no environment 'nowhere'"),
        (("none",), "dev", "none is not deployed in dev"),
    ):
        with pytest.raises(HeadgateError) as error:
            console.promote(words, source)
        assert said in error.value.summary


def test_the_console_compares_environments_as_the_command_does(
    two: Two, console: ConsoleBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    two.run_in(two.dev, "b", FILTERED)
    assert exit_codes.run_command_line(["diff", "--env", "dev", "--env", "stage"]) == 10
    printed = capsys.readouterr()
    lines = [row.rstrip() for row in console.environment_diff("dev", ())]
    assert lines[: lines.index("")] == [row.rstrip() for row in printed.out.splitlines()]
    assert all(row in " ".join(printed.err.split()) for row in lines[lines.index("") + 1 :])
    assert "1 table differs, 2 the same" in lines
    assert console.environment_diff("dev", ("a",))[0] == "0 tables differ, 1 the same"
    with pytest.raises(HeadgateError, match="this is stage"):
        console.environment_diff("stage", ())


LABEL = "CREATE FUNCTION label(kind STRING) RETURNS STRING RETURN concat(kind, '{end}')"
LABEL_IN_PYTHON = "# CREATE FUNCTION label(kind STRING) RETURNS STRING\ndef label(kind): return kind + '{end}'\n"


@pytest.mark.parametrize(
    ("file", "text", "called_as", "edit"),
    [
        ("label.sql", LABEL, "concat(CAST(kind AS string), '2')", "concat(kind, '{end}')"),
        ("label.py", LABEL_IN_PYTHON, "/* label */ label__py_", "def label(kind): return kind + '{end}'"),
    ],
)
def test_a_promoted_revision_brings_its_functions_and_other_tables_keep_theirs(
    file: str, text: str, called_as: str, edit: str, two: Two, capsys: pytest.CaptureFixture[str]
) -> None:
    function = two.folder / "functions" / file
    function.parent.mkdir()
    called = {
        table: f"INSERT INTO {table} SELECT id, label(kind) AS kind FROM STREAM {parent};"
        for table, parent in (("a", "landed"), ("b", "a"))
    }
    function.write_text(text.format(end="1"))
    for ledger in (two.dev, two.stage):
        for table, statement in called.items():
            two.run_in(ledger, table, statement)
    function.write_text(text.format(end="2"))
    there = two.run_in(two.dev, "b", called["b"])
    # The files have a third body, which takes no part.
    function.write_text(text.format(end="3"))
    plan = written(["promote", "b", *TO_STAGE], capsys)
    (node,) = [node for node in plan["nodes"] if node["action"] != "keep"]
    assert node["table"] == "b" and node["texts"]["functions"] == {"label": text.format(end="2")}
    assert called_as in node["texts"]["dml"]
    assert plan["request"]["promotes"][0]["revision"] == written_hash(there.texts)
    edited = f"{edit.format(end=1)} → {edit.format(end=2)}"
    assert node["evidence"][-1]["sentence"] == f"function label: {edited}"
