"""Plans as files and by hash: saved, reviewed, approved, applied, compared."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import written
from ledger_rows import environment_row

from core.plan.file import saved_as_text, saved_from_text
from core.policy.unlocking import Unlock
from core.project.revision import RevisionTexts
from core.run.records import RunRow
from state.ledger import create_or_open
from state.row_types import ApprovalRow, PlanRow
from tests.tui.conftest import ScriptedAgent
from tui.agent_client.os_processes import boot_id
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import select_environment


@pytest.fixture
def saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """The plan of b, saved offline as b.json."""
    return written(["plan", "b", "--offline", "--save", "b.json"], capsys)


def keep(ledger: Any, plan: Any, *, author: str = "ana", status: str = "open", **fields: Any) -> str:
    """Store a plan as the agent does, and return its hash."""
    row = PlanRow(plan["hash"], json.dumps(plan), author, 1.0, 1e12, status, author_uid=7)
    ledger.put_plan(PlanRow(**{**{name: getattr(row, name) for name in row.__slots__}, **fields}))
    return str(plan["hash"])


def test_a_saved_plan_holds_the_plan_and_the_texts_that_it_was_computed_from(saved: Any, folder: Path) -> None:
    found = saved_from_text((folder / "b.json").read_text(), "b.json")
    assert found.plan.hash == saved["hash"] and found.plan.request.nonce
    assert found.texts["headgate.yml"] == (folder / "headgate.yml").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["b.json", "headgate.yml", "pipelines"]


def test_a_plan_that_is_handed_over_is_saved_as_it_was_taken(
    ledger: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["submit_plan"] = {"confirm": "2"}
    found = written(["plan", "b", "--save", "b.json"], capsys)
    (request,) = [heard for heard in agent.heard if heard["op"] == "submit_plan"]
    assert request["args"]["hash"] == found["hash"] == saved_from_text((folder / "b.json").read_text(), "").plan.hash


def test_a_refused_plan_is_not_saved_and_a_failed_write_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", "b", "--exclude", "a", "--offline", "--save", "b.json"]) == 3
    assert not (folder / "b.json").exists()
    assert "not saved: the plan is refused, and b.json was not changed" in capsys.readouterr().err
    assert exit_codes.run_command_line(["plan", "b", "--offline", "--save", "no/b.json"]) == 2
    assert "no/b.json cannot be written" in capsys.readouterr().err
    (folder / "headgate.yml").write_text((folder / "headgate.yml").read_text() + "# url: sc://h/;token=abc\n")
    assert exit_codes.run_command_line(["plan", "b", "--offline", "--save", "b.json"]) == 3
    assert "headgate.yml:10 contains what looks like a secret" in capsys.readouterr().err
    assert not (folder / "b.json").exists()


def test_a_secret_in_a_text_that_only_the_registry_has_is_not_saved(
    ledger: Any, deployed: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaked = RevisionTexts("CREATE TABLE a (id BIGINT) USING parquet", "SELECT 1 AS id OPTIONS (password 'hunter2')")
    ledger.put_deployment(deployed("landed", version=0, external=True, bindings=()))
    ledger.put_deployment(deployed("a", active=False, revision="old", texts=leaked, wanted="stopped", served_at=1.0))
    ledger.put_deployment(deployed("a", version=2, served_before=1, served_at=2.0, served_by="7f3a-1"))
    assert exit_codes.run_command_line(["plan", "rollback", "a", "--offline", "--save", "b.json"]) == 3
    said = capsys.readouterr()
    assert "deployed text of a, dml.sql:1 contains what looks like a secret" in said.err, said
    assert not (folder / "b.json").exists()


@pytest.mark.parametrize(("unlocked", "agent_runs"), [(False, True), (True, True), (True, False)])
def test_how_to_execute_a_plan_in_a_locked_environment_begins_with_the_unlock(
    unlocked: bool, agent_runs: bool, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(["plan", "b", "--offline", "--save", "p.json", "--env", "prod"], capsys)
    place = select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder), environment="prod")
    facts = environment_row(
        project_id=place.project_id, project="shop", environment="prod", protected=True, agent_pid=1,
        agent_seen_at=time.time(),
    )  # fmt: skip
    now = time.time()
    with create_or_open(Path(place.where.ledger), facts) as ledger:
        ledger.put_unlock(Unlock(1, "ana" if unlocked else "bob", "OPS-1", now, now + 1800, boot_id(), 0.0, 1800.0))
    scripted = ScriptedAgent(place.where.socket, script={"status": {"actor": "ana"}})
    if agent_runs:
        scripted.serve()
    assert exit_codes.run_command_line(["review", "p.json", "--env", "prod"]) == 0
    said = capsys.readouterr().err
    if agent_runs:
        scripted.close()
    assert "to execute it: headgate apply p.json --env prod" in said
    first = "first, unlock the environment: headgate unlock 30m TICKET --env prod\nto execute it"
    assert (first in said) is not (unlocked and agent_runs)


def test_a_file_is_reviewed_without_an_agent(saved: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["review", "b.json"], capsys)
    assert found["hash"] == saved["hash"]
    assert (found["standing"]["status"], found["standing"]["approvals"]) == ("not submitted", [])
    assert found["standing"]["expires_at"] == found["standing"]["created_at"] + 24 * 3600
    assert exit_codes.run_command_line(["review", "./b.json"]) == 0
    assert "not submitted" in capsys.readouterr().out


def test_a_plan_file_that_is_too_old_is_refused(saved: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = saved_from_text((folder / "b.json").read_text(), "b.json")
    (folder / "b.json").write_text(saved_as_text(replace(found, created_at=1.0, expires_at=2.0)))
    assert written(["review", "b.json"], capsys)["standing"]["status"] == "expired"
    assert exit_codes.run_command_line(["review", "b.json"]) == 0
    assert "expired" in capsys.readouterr().out


def test_the_file_of_a_submitted_plan_shows_who_approved_it(
    ledger: Any, saved: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_hash = keep(ledger, saved)
    ledger.approve(ApprovalRow(plan_hash, 8, "bob", 2.0))
    standing = written(["review", "b.json"], capsys)["standing"]
    assert (standing["author"], standing["status"]) == ("ana", "open")
    assert standing["approvals"] == [{"login": "bob", "at": 2.0}]
    assert standing == written(["review", plan_hash[:6]], capsys)["standing"]


def test_a_plan_file_is_submitted_completely_and_then_applied(
    ledger: Any, agent: Any, saved: Any, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "pipelines/facts/p/b/sql-scripts/dml.b.sql").write_text("edited since")
    agent.script = {"submit_plan": lambda request: keep(ledger, saved) and {}, "apply": {"run": "7f3a-1"}}
    assert exit_codes.run_command_line(["apply", "b.json", "--confirm", "2", "--detach"]) == 0
    submit, apply = [heard for heard in agent.heard if heard["op"] != "status"]
    assert submit["args"]["plan"]["hash"] == submit["args"]["hash"] == apply["args"]["hash"] == saved["hash"]
    assert submit["args"]["texts"]["pipelines/facts/p/b/sql-scripts/dml.b.sql"].startswith("INSERT INTO b")
    assert submit["args"]["created_at"] == saved_from_text((folder / "b.json").read_text(), "").created_at


@pytest.mark.parametrize("words", [["review", "b.json"], ["apply", "b.json"], ["approve", "b.json"],
                                   ["plan", "diff", "b.json", "b.json"]])  # fmt: skip
@pytest.mark.parametrize(
    ("edit", "code", "says"),
    [
        (lambda text: text[:-40], 2, "b.json is not a plan file"),
        (lambda text: text.replace('"author":"', '"author":"x'), 2, "b.json is damaged or was edited"),
        (lambda text: "ä", 2, "b.json cannot be read"),
        (lambda text: "", 2, "b.json is not a plan file"),
    ],
)
def test_a_damaged_file_is_a_bad_command(
    words: list[str], edit: Any, code: int, says: str, saved: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "b.json").write_text(edit((folder / "b.json").read_text()))
    assert exit_codes.run_command_line(words) == code
    assert says in capsys.readouterr().err


def test_a_file_of_another_environment_or_project_is_refused_before_anything_is_sent(
    saved: Any, agent: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["apply", "b.json", "--env", "prod"]) == 3
    assert "b.json was planned for dev, but the environment is prod" in capsys.readouterr().err
    manifest = (folder / "headgate.yml").read_text()
    (folder / "headgate.yml").write_text(re.sub("5b0e4a52", "11111111", manifest, count=1))
    assert exit_codes.run_command_line(["apply", "b.json"]) == 3
    assert "a plan of a project other than shop" in capsys.readouterr().err
    assert agent.heard == []


def test_a_missing_file_is_a_usage_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["review", "nowhere.json"]) == 2
    assert "nowhere.json cannot be read: No such file" in capsys.readouterr().err


def test_approve_is_confirmed_with_the_start_of_the_hash(
    ledger: Any, agent: Any, saved: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.script["approve"] = {"approved": 1, "approvals": 2}
    assert exit_codes.run_command_line(["approve", "b.json"]) == 3
    assert "has not been submitted to the agent yet" in capsys.readouterr().err
    plan_hash = keep(ledger, saved)
    assert exit_codes.run_command_line(["approve", plan_hash[:6]]) == 3
    assert agent.heard == []
    for word in (plan_hash[:6], "b.json"):
        found = written(["approve", word, "--confirm", plan_hash[:4]], capsys)
        where = {"project": "shop", "environment": "dev"}
        assert found == {**where, "hash": plan_hash, "approved": 1, "approvals": 2}
    assert [(heard["args"], heard["confirm"]) for heard in agent.heard] == [({"hash": plan_hash}, plan_hash[:4])] * 2


def test_two_plans_are_compared_by_hash_or_file(
    ledger: Any, saved: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_hash = keep(ledger, saved)
    other = written(["plan", "a", "--offline", "--save", "a.json"], capsys)
    found = written(["plan", "diff", plan_hash[:8], "./a.json"], capsys)
    assert (found["first"], found["second"], found["same"]) == (plan_hash, other["hash"], False)
    assert {(d["of"], d["subject"]) for d in found["differences"] if d["after"] is None} >= {("node", "b")}
    assert exit_codes.run_command_line(["plan", "diff", "b.json", "a.json"]) == 0
    assert "- node        b: start v1" in capsys.readouterr().out.splitlines()
    assert written(["plan", "diff", plan_hash, "b.json"], capsys)["same"] is True


@pytest.mark.parametrize("words", [["plan", "diff"], ["plan", "diff", "7f3a"], ["plan", "diff", "a", "b", "c"]])
def test_plan_diff_takes_two_plans(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(words) == 2
    said = capsys.readouterr().err
    assert "are required: " in said or "'c' is an unexpected argument" in said


@pytest.mark.parametrize(
    "option", ["--exit-code", "--markdown", "--save x.json", "--offline", "--children all", "--from now", "--rebuild"]
)
def test_plan_diff_refuses_what_says_how_a_plan_is_made(
    option: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", "diff", "a", "b", *option.split()]) == 2
    assert f"plan diff takes no {option.split()[0]}" in capsys.readouterr().err
    assert not (folder / "x.json").exists()


def test_an_applied_plan_cannot_be_applied_again_from_its_file(
    ledger: Any, agent: Any, saved: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    from core.model.errors import Refused

    plan_hash = keep(ledger, saved)
    ledger.apply_plan(plan_hash, RunRow("7f3a-1", plan_hash, "ana", "running", 2.0, None), now=2.0)
    agent.script["submit_plan"] = Refused(f"plan {plan_hash[:12]} was already applied by run 7f3a-1")
    assert exit_codes.run_command_line(["apply", "b.json", "--confirm", "2"]) == 3
    assert "already applied by run 7f3a-1" in capsys.readouterr().err
    assert written(["review", "b.json"], capsys)["standing"]["run"] == "7f3a-1"


def test_a_plan_is_printed_as_markdown_from_a_file_and_from_the_ledger(
    ledger: Any, saved: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["plan", "b", "--offline", "--markdown", "--exit-code"]) == 10
    offline = capsys.readouterr().out
    assert offline.startswith("### Plan `") and "headgate plan deploy b --env dev" in offline
    plan_hash = keep(ledger, saved)
    for word in ("b.json", plan_hash[:8]):
        assert exit_codes.run_command_line(["review", word, "--markdown"]) == 0
        said = capsys.readouterr().out
        assert f"headgate apply {plan_hash[:12]}" in said and "author ana" in said
        assert "<details><summary>b: dml, start v1</summary>" in said


def test_markdown_is_not_json(saved: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["plan", "b", "--offline"], ["review", "b.json"]):
        assert exit_codes.run_command_line([*words, "--markdown", "--json"]) == 2
    assert "give one of them" in capsys.readouterr().out
