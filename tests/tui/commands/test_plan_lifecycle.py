"""The life of a plan, from the command line to a real agent over a real socket and ledger, without a pool."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from agent_scenarios import one_pool
from command_line import written

from core.ipc import framing
from core.model.names import TableName as T
from core.policy.roles_and_rules import Policy, policy_as_json
from core.project.model import Environment
from core.project.revision import RevisionTexts, revision_hash
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
from state.migrations import SCHEMA_VERSION
from state.registry import IN_FORCE
from state.row_types import PolicyRow
from tests.pipelines.agent.conftest import ScriptedFiles, ScriptedPool
from tests.support.submission_desk import Driven, deployed
from tui.command_line import exit_codes
from tui.project_folder.declaring_files import read_files
from tui.screens.backend import ConsoleBackend
from tui.services.environment_service import EnvironmentService

OTHER = "pipelines/facts/q/z/sql-scripts"
LEE, BOB = 70_001, 70_002


@dataclass
class Agent:
    """The agent as seen from the command line."""

    context: AgentContext
    runs: Driven
    person: int = LEE

    def move(self, table: str, **fields: Any) -> None:
        self.context.ledger.update_deployment(T(table), 1, **fields)


@pytest.fixture
def serving(folder: Path, place: Any, ledger: Any, tmp_path: Path) -> Iterator[Agent]:
    """Serve landed → a → b, and z of another product, all running their declared texts."""
    (folder / OTHER).mkdir(parents=True)
    (folder / OTHER / "ddl.z.sql").write_text("CREATE TABLE z (id BIGINT, kind STRING) USING parquet;")
    (folder / OTHER / "dml.z.sql").write_text("INSERT INTO z SELECT id, kind FROM STREAM landed;")
    project, problems = read_project(read_files(str(folder)).texts)
    assert project is not None, problems
    for name, parent in (("landed", ""), ("a", "landed"), ("b", "a"), ("z", "landed")):
        ledger.put_deployment(deployed(name, parent, revision_of(project.tables[T(name)])))
    pool = ScriptedPool()
    context = AgentContext(
        places=place.where, folder=str(folder), project_id=project.id, project="shop",
        layout=EnvironmentLayout(str(tmp_path / "data"), Environment("dev")), ledger=ledger, ledger_id="9f2c",
        pools=one_pool(pool), files=ScriptedFiles(pool, "9f2c"),
    )  # fmt: skip
    agent = Agent(context, Driven())
    acts, figures = (
        StatementControl(context, EmergencyJournal(tmp_path / "e")),
        TableStatisticsCollector(context, PoolUtilization()),
    )
    commands = CommandHandler(context, acts, agent.runs, figures, lambda **asked: None)  # type: ignore[arg-type]  # a double

    def handle(caller: Caller, request: dict[str, Any]) -> dict[str, Any]:
        return commands.handle(replace(caller, uid=agent.person, login_uid=None), request)

    hello = {"program": "0.1.0", "protocol": framing.PROTOCOL, "ledger": SCHEMA_VERSION, "pid": 1}
    server = SocketServer(place.where.socket, hello, handle)
    server.open()
    yield agent
    server.close()


def applied(word: str, plan: Any) -> int:
    confirm = plan.get("submitted", {}).get("confirm") or f"dev {plan['hash'][:4]}"
    return exit_codes.run_command_line(["apply", word, "--confirm", confirm, "--detach"])


def test_a_changed_statement_is_planned_once_here_and_once_by_the_agent(
    serving: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pipelines.agent.requests import submitted_plans
    from tui.services import plan_submission

    made: list[str] = []

    def counted(who: str, plan: Any) -> Any:
        return lambda *args, **more: made.append(who) or plan(*args, **more)

    monkeypatch.setattr(plan_submission, "compute", counted("here", plan_submission.compute))
    monkeypatch.setattr(submitted_plans, "make_plan", counted("agent", submitted_plans.make_plan))
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text(
        "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > 0;"
    )
    plan = written(["plan", "b"], capsys)
    assert [node["action"] for node in plan["nodes"] if node["table"] == "b"] == ["restart"]
    assert made == ["here", "agent"]
    words = ["apply", plan["hash"][:12], "--confirm", plan["submitted"]["confirm"], "--detach"]
    assert exit_codes.run_command_line(words) == 0
    assert made == ["here", "agent"], "what was reviewed is what runs: applying plans nothing"
    assert len(serving.runs.driven) == 1


def test_a_saved_plan_stays_valid_if_only_other_tables_change(
    serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["plan", "a", "--rebuild", "--save", "a.json"], capsys)
    serving.move("z", checkpoint_id="new", wanted="stopped", state="stopped")
    assert applied("a.json", plan) == 0
    (run_id,) = serving.runs.driven
    assert capsys.readouterr().out == f"{run_id}\n"
    assert applied("a.json", plan) == 3
    assert f"already applied by run {run_id}" in capsys.readouterr().err


def test_a_saved_plan_is_refused_if_its_tables_change_and_says_which(
    serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["plan", "a", "--rebuild", "--offline", "--save", "a.json"], capsys)
    serving.move("b", checkpoint_id="new")
    assert applied("a.json", plan) == 3
    assert "the plan is stale: b: checkpoint_id was b, now new" in capsys.readouterr().err
    assert serving.runs.driven == []


def test_an_offline_plan_is_submitted_from_its_file_after_its_project_was_edited(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["plan", "a", "--rebuild", "--offline", "--save", "a.json"], capsys)
    (folder / OTHER / "dml.z.sql").write_text("INSERT INTO z SELECT id, upper(kind) AS kind FROM STREAM landed;")
    assert applied("a.json", plan) == 0
    assert serving.runs.driven


def test_a_plan_with_edited_verdicts_is_refused_by_the_agent(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from core.plan.codec import plan_hash
    from core.plan.file import saved_as_text, saved_from_text

    written(["plan", "a", "--rebuild", "--offline", "--save", "a.json"], capsys)
    saved = saved_from_text((folder / "a.json").read_text(), "a.json")
    guards = tuple(replace(guard, verdict="ok") for guard in saved.plan.guards)
    assert guards != saved.plan.guards
    forged = replace(saved.plan, guards=guards)
    forged = replace(forged, hash=plan_hash(forged))
    (folder / "a.json").write_text(saved_as_text(replace(saved, plan=forged)))
    assert exit_codes.run_command_line(["apply", "a.json", "--confirm", f"dev {forged.hash[:4]}", "--detach"]) == 3
    assert re.search(r"differs from what this agent plans: verdict \w+: ok → \w+", capsys.readouterr().err)


def test_another_login_approves_before_a_plan_is_applied(serving: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    policy = Policy(approve=("rebuild",))
    serving.context.ledger.put_policy(PolicyRow(0, 1.0, "ana", 1, policy.digest, policy_as_json(policy), IN_FORCE))
    plan = written(["plan", "a", "--rebuild", "--save", "a.json"], capsys)
    short = plan["hash"][:4]
    assert plan["approvals"] == 1
    assert exit_codes.run_command_line(["review", "a.json"]) == 0
    assert "first, as another login: headgate approve a.json\n" in capsys.readouterr().err
    assert applied("a.json", plan) == 3
    said = capsys.readouterr().err
    assert "approvals 0 of 1" in said and f"headgate approve {plan['hash'][:12]} as another login" in said
    assert exit_codes.run_command_line(["approve", "a.json", "--confirm", short]) == 3
    assert "its author cannot approve it" in capsys.readouterr().err
    serving.person = BOB
    assert exit_codes.run_command_line(["approve", short, "--confirm", short]) == 0
    serving.person = LEE
    assert exit_codes.run_command_line(["review", "a.json"]) == 0
    said = capsys.readouterr()
    assert "approvals 1 of 1" in said.out and "first, as another login" not in said.err
    assert applied(short, plan) == 0 and serving.runs.driven


def test_the_same_request_over_the_same_texts_is_the_same_open_plan_until_something_changes(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (written(["plan", "a", "--rebuild", "--save", f"{n}.json"], capsys) for n in (1, 2))
    assert first["hash"] == second["hash"]
    assert [row.status for row in serving.context.ledger.plans()] == ["open"]
    assert written(["plan", "diff", first["hash"][:12], "2.json"], capsys)["same"] is True
    path = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    path.write_text("INSERT INTO b SELECT id, upper(kind) AS kind FROM STREAM a;")
    third = written(["plan", "a", "--rebuild"], capsys)
    assert [row.status for row in serving.context.ledger.plans()] == ["open", "superseded"]
    assert exit_codes.run_command_line(["plan", "diff", "1.json", third["hash"][:12]]) == 0
    said = capsys.readouterr().out
    assert "~ node        b: new dml" in said and "+INSERT INTO b SELECT id, upper(kind)" in said


def test_a_plan_that_needs_an_approval_has_the_exit_code_of_data_loss(
    serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    serving.move("z", state="stopped")
    words = ["plan", "z", "--offline", "--exit-code"]
    assert written(words, capsys, code=10)["approvals"] == 0
    policy = Policy(approve=("all",))
    serving.context.ledger.put_policy(PolicyRow(0, 1.0, "ana", 1, policy.digest, policy_as_json(policy), IN_FORCE))
    assert written(words, capsys, code=11)["approvals"] == 1


def test_an_active_freeze_denies_among_the_guards_and_another_one_is_ok(
    serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = Policy(freeze=("Mon - Sun", "Sun - Mon"))
    serving.context.ledger.put_policy(PolicyRow(0, 1.0, "ana", 1, policy.digest, policy_as_json(policy), IN_FORCE))
    words = r"deny freeze: dev is frozen until .* UTC \(.*\): no plan is applied until then"
    assert exit_codes.run_command_line(["plan", "a", "--rebuild"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(words, said) and not re.search("ok .*freeze: no plan", said)
    plan = written(["plan", "a", "--rebuild"], capsys)
    assert plan["submitted"]["frozen"].startswith("frozen until ")
    for more in ([], ["--markdown"]):
        assert exit_codes.run_command_line(["review", plan["hash"][:12], *more]) == 0
        assert "frozen until" in capsys.readouterr().out
    assert written(["review", plan["hash"][:12]], capsys)["standing"]["frozen"] == plan["submitted"]["frozen"]
    later = Policy(freeze=("2990-01-01 - 2990-01-02",))
    serving.context.ledger.put_policy(PolicyRow(0, 2.0, "ana", 1, later.digest, policy_as_json(later), IN_FORCE))
    assert written(["plan", "a", "--rebuild"], capsys)["submitted"]["frozen"] is None
    assert exit_codes.run_command_line(["plan", "a", "--rebuild"]) == 0
    assert re.search("ok .*freeze: no plan is applied during 2990-01", " ".join(capsys.readouterr().out.split()))


def test_the_list_of_plans_shows_request_tables_author_age_and_outcome(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = written(["plan", "a", "--rebuild"], capsys)
    path = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    path.write_text("INSERT INTO b SELECT id, upper(kind) AS kind FROM STREAM a;")
    second = written(["plan", "a", "--rebuild"], capsys)
    newest, oldest = written(["review"], capsys)["plans"]
    assert (newest["hash"], newest["status"], newest["superseded_by"]) == (second["hash"], "open", None)
    assert (oldest["hash"], oldest["status"]) == (first["hash"], "superseded")
    assert oldest["superseded_by"].startswith(f"plan {second['hash'][:12]} of ")
    assert newest["request"]["tables"] == ["a"] and newest["tables"][:2] == ["a", "b"]
    assert exit_codes.run_command_line(["review"]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"{second['hash'][:12]}  open +\S+ ago  by \S+ +deploy a --rebuild\n +\d tables: a, b", said)
    assert f"by plan {second['hash'][:12]} of " in said
    assert exit_codes.run_command_line(["apply", first["hash"][:12], "--confirm", "x"]) != 0
    assert "superseded by plan" in capsys.readouterr().err


EDITS = {
    "statement": (
        "pipelines/facts/p/b/sql-scripts/dml.b.sql",
        "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > 9;",
    ),
    "ddl": (
        "pipelines/facts/p/b/sql-scripts/ddl.b.sql",
        "CREATE TABLE b (id BIGINT, kind STRING, n INT) USING parquet;",
    ),
    "settings that there were not": ("pipelines/facts/p/b/b.yml", "trigger: 1 minute"),
    "settings of the unit": ("pipelines/sources/p/a/a.yml", "trigger: 1 minute"),
    "unreadable": ("pipelines/facts/p/b/sql-scripts/dml.b.sql", b"\xff"),
    "gone": ("pipelines/facts/p/b/sql-scripts/ddl.b.sql", None),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_plan_whose_file_was_edited_is_stale_and_names_the_file(
    edit: str, serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["plan", "a", "--rebuild"], capsys)
    path, text = EDITS[edit]
    if text is None:
        (folder / path).unlink()
    else:
        (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert applied(plan["hash"][:12], plan) == 3
    said = capsys.readouterr().err
    assert f"plan {plan['hash'][:12]} is stale: it was superseded by an edit of {path}" in said and "plan again" in said
    assert exit_codes.run_command_line(["approve", plan["hash"][:12], "--confirm", "x"]) == 3
    assert f"by an edit of {path}" in capsys.readouterr().err
    (row,) = written(["review"], capsys)["plans"]
    assert (row["status"], row["superseded_by"]) == ("superseded", f"an edit of {path}")
    assert written(["review", plan["hash"][:12]], capsys)["standing"]["status"] == "superseded"
    assert serving.runs.driven == []


def test_edits_in_other_checkouts_or_of_other_tables_do_not_supersede_a_plan(
    serving: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["plan", "a", "--rebuild"], capsys)
    (folder / OTHER / "dml.z.sql").write_text("INSERT INTO z SELECT id, kind FROM STREAM landed WHERE id > 3;")
    (folder / "pipelines/facts/p/b/notes.md").write_text("nothing that is declared")
    other = folder.parent / "checkout"
    shutil.copytree(folder, other)
    (other / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text(
        "INSERT INTO b SELECT id, kind FROM STREAM a -- x;"
    )
    monkeypatch.chdir(other)
    assert [row["status"] for row in written(["review"], capsys)["plans"]] == ["open"]
    assert applied(plan["hash"][:12], plan) == 0 and serving.runs.driven


def test_a_file_that_is_as_it_was_again_leaves_its_plan_open(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = written(["plan", "a", "--rebuild"], capsys)
    path = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    before = path.read_text()
    path.write_text(f"{before} -- x")
    path.write_text(before)
    assert applied(plan["hash"][:12], plan) == 0


FILTERED = "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > 0;"


def executed(serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str], text: str = FILTERED) -> Any:
    """Edit b, plan and apply it, and record what its run would have recorded."""
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text(text)
    plan = written(["plan", "b"], capsys)
    assert applied(plan["hash"][:12], plan) == 0
    capsys.readouterr()
    project, _ = read_project(read_files(str(folder)).texts)
    assert project is not None
    revision = revision_of(project.tables[T("b")])
    serving.move("b", texts=revision.texts, revision=revision.hash)
    serving.context.ledger.put_run_state(serving.runs.driven[-1], "done", ended_at=2.0)
    return plan


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_codes.run_command_line(words) == 3
    return capsys.readouterr().err


@pytest.mark.parametrize("by", ["plan", "run"])
def test_the_printed_undo_plans_the_text_from_before_and_leaves_the_files(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    dml = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    before = dml.read_text()
    plan = executed(serving, folder, capsys)
    (way,) = plan["undo"]
    assert (way["command"], way["tables"]) == (f"headgate plan undo {plan['hash'][:12]}", ["b"])
    words = way["command"].split()[1:] if by == "plan" else ["plan", "undo", serving.runs.driven[-1]]
    back = written(words, capsys)
    (node,) = (node for node in back["nodes"] if node["action"] != "keep")
    assert (node["table"], node["action"], node["texts"]["dml"]) == ("b", "restart", before)
    assert dml.read_text() == FILTERED
    assert any("the next deploy" in warned["summary"] for warned in back["warnings"])
    assert applied(back["hash"][:12], back) == 0


def test_the_console_submits_the_undo_of_the_last_run_as_the_command_does(
    serving: Agent, folder: Path, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = executed(serving, folder, capsys)
    service = EnvironmentService(place, {})
    submitted = ConsoleBackend(service).undo("")
    service.close()
    undo = written(["plan", "undo", plan["hash"]], capsys)
    assert submitted == undo["hash"]
    said = [each["summary"] for each in undo["warnings"]]
    # Files that already hold the earlier texts, as after a drain, change nothing.
    assert f"from before plan {plan['hash'][:12]}: where the files hold other texts, the next deploy" in str(said)


def test_the_changes_screen_lists_a_column_that_does_not_exist_and_no_line_that_nobody_removed(
    serving: Agent, folder: Path, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    executed(serving, folder, capsys)
    dml = folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql"
    dml.write_text(FILTERED.replace("WHERE id", "WHERE no_such_id"))
    service = EnvironmentService(place, {})
    view = ConsoleBackend(service).project()
    service.close()
    (row,) = (row for row in view.drift if row.table == "b")
    (problem,) = row.problems
    assert problem.where is not None and problem.where.path.endswith("dml.b.sql") and "no_such_id" in problem.summary
    assert row.new.yml == row.old.yml and row.new.dml != row.old.dml
    assert problem in view.problems


def test_a_plan_is_not_undone_before_it_was_executed_while_it_runs_or_after_a_later_edit(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = executed(serving, folder, capsys)
    later = executed(serving, folder, capsys, FILTERED.replace("0", "9"))
    said = refused(["plan", "undo", first["hash"]], capsys)
    assert f"b was changed again since plan {first['hash'][:12]}" in said
    serving.context.ledger.put_run_state(serving.runs.driven[-1], "running")
    assert "has not ended" in refused(["plan", "undo", later["hash"]], capsys)
    open_plan = written(["plan", "b", "--rebuild"], capsys)
    assert "was not executed" in refused(["plan", "undo", open_plan["hash"]], capsys)


def test_a_plan_that_was_undone_or_changed_no_text_is_reported(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = executed(serving, folder, capsys)
    old = next(node["old"] for node in plan["nodes"] if node["table"] == "b")
    serving.move("b", texts=RevisionTexts(**old), revision=revision_hash(RevisionTexts(**old)))
    assert "every table already has its earlier text" in refused(["plan", "undo", plan["hash"]], capsys)
    same = written(["plan", "z", "--rebuild"], capsys)
    assert applied(same["hash"][:12], same) == 0
    serving.context.ledger.put_run_state(serving.runs.driven[-1], "done", ended_at=3.0)
    assert "it changed no text" in refused(["plan", "undo", same["hash"]], capsys)
    assert exit_codes.run_command_line(["plan", "undo", "nothing"]) == 2


def test_an_undo_restores_variables_or_if_they_have_changed_their_values(
    serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = folder / "headgate.yml"
    head.write_text(head.read_text() + "variables: {least: {type: int, default: 3}}\n")
    limited = "INSERT INTO b SELECT id, kind FROM STREAM a WHERE id > ${least};"
    executed(serving, folder, capsys, limited)
    plan = executed(serving, folder, capsys)
    assert exit_codes.run_command_line(["plan", "undo", plan["hash"]]) == 0
    assert "no file uses" not in capsys.readouterr().err
    texts = _texts_of_b(written(["plan", "undo", plan["hash"]], capsys))
    assert texts["written"]["dml"] == limited and texts["dml"] == limited.replace("${least}", "3")
    head.write_text(head.read_text().replace("default: 3", "default: 4"))
    texts = _texts_of_b(written(["plan", "undo", plan["hash"]], capsys))
    assert texts["dml"] == limited.replace("${least}", "3") and "written" not in texts


def _texts_of_b(plan: Any) -> Any:
    return next(node["texts"] for node in plan["nodes"] if node["table"] == "b")


def test_settings_are_restored_with_the_text(serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pipelines/facts/p/b/b.yml").write_text("trigger: 7 seconds\n")
    plan = executed(serving, folder, capsys)
    back = written(["plan", "undo", plan["hash"]], capsys)
    node = next(node for node in back["nodes"] if node["table"] == "b")
    assert (node["trigger"], node["texts"]["yml"]) == ("10 seconds", "trigger: 10 seconds\n")


BROKEN = {
    "statement": ("sql-scripts/dml.b.sql", b"INSERT INTO b SELCT id FORM"),
    "settings": ("b.yml", b"trigger: [1, 2\nowner: : x"),
    "encoding": ("sql-scripts/dml.b.sql", b"INSERT INTO b SELECT '\xff\xfe' FROM STREAM a"),
    "link": ("sql-scripts/more", None),
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, folder: Path, serving: Agent) -> str:
    """Break a file of b, which reads a; z and its files are sound."""
    path, content = BROKEN[request.param]
    place = folder / "pipelines/facts/p/b" / path
    if content is None:
        place.symlink_to(folder)
    else:
        place.write_bytes(content)
    return f"pipelines/facts/p/b/{path}"


def test_deployed_tables_are_operated_while_a_file_is_broken(
    broken: str, serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["delete", "z"],
        ["delete", "b"],
        ["plan", "z", "--rebuild"],
        ["plan", "a", "--rebuild", "--children", "none"],
    ):
        code = exit_codes.run_command_line(words)
        said = capsys.readouterr().err
        assert "needs the confirmation" in said if words[0] == "delete" else code == 0, said
        assert "1 problem in files that this plan does not need was set aside: headgate plan --all lists it" in said
    assert applied("b.json", written(["plan", "delete", "b", "--save", "b.json"], capsys)) == 0
    assert len(serving.runs.driven) == 1


def test_what_needs_a_broken_file_is_refused_with_its_place(
    broken: str, serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["plan", "--all"], ["plan", "b"] if "more" not in broken else ["plan", "--product", "p"]):
        assert exit_codes.run_command_line(words) == 2
        assert f"{broken}" in capsys.readouterr().err


def test_selectors_of_a_deploy_need_the_files_that_they_may_reach(
    broken: str, serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", "+z"]) == 0
    capsys.readouterr()
    assert exit_codes.run_command_line(["plan", "b+"]) == 2
    assert broken in capsys.readouterr().err


@pytest.mark.parametrize("by", ["the client", "the agent"])
def test_a_plan_over_an_edited_data_folder_is_refused_while_the_agent_runs(
    by: str, serving: Agent, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if by == "the client":
        serving.context.ledger.put_agent(1, 1.0, serves=serving.context.layout.served)
    manifest = folder / "headgate.yml"
    manifest.write_text(manifest.read_text().replace("data: data", "data: moved"))
    data = serving.context.layout.data
    for words in (["plan", "--all"], ["plan", "a", "--rebuild", "--save", "a.json"]):
        assert exit_codes.run_command_line(words) == 3
        said = capsys.readouterr().err
        assert f"headgate.yml:6: the agent of dev works in the data folder {data}, and headgate.yml" in said
        assert "headgate up --env dev, headgate adopt --env dev" in said
    assert serving.runs.driven == []
    assert exit_codes.run_command_line(["plan", "--all", "--offline"]) == 0


def test_a_plan_that_starts_a_reader_of_a_folder_that_does_not_exist_is_denied_until_it_does(
    serving: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    files, folder = serving.context.files, f"{serving.context.layout.data}/in"
    files.unmade[folder] = ()  # type: ignore[attr-defined]  # A double.
    for words, readers in ((["plan", "a", "--rebuild"], "a reads"), (["plan", "--all", "--rebuild"], "a, z read")):
        (refusal,) = written(words, capsys, 3)["refusals"]
        assert refusal["guard"] == "folders"
        assert refusal["summary"].endswith(f"{readers} landed, and there is no folder {folder}")
        assert refusal["remedy"] == f"create it, an empty folder is enough: mkdir -p {folder}"
    assert exit_codes.run_command_line(["plan", "b"]) == 0, "its statement reads no external table"
    files.unmade.clear()  # type: ignore[attr-defined]  # A double.
    capsys.readouterr()
    plan = written(["plan", "a", "--rebuild"], capsys)
    assert all(guard["name"] != "folders" for guard in plan["guards"]) and applied(plan["hash"][:12], plan) == 0
