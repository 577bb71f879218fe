"""policy: declared against recorded rules, and requests to record and approve them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import written
from ledger_rows import deployment_row

from core.policy.roles_and_rules import Policy, policy_as_json
from state.registry import IN_FORCE, WAITING
from state.row_types import PolicyRow
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import select_environment

RULES = "    policy: {max_replay_rows: 100M, freeze: [Fri 16:00 - Mon 08:00], roles: {operate: [ana, '@sre']}}\n"


def declare(folder: Path, rules: str = RULES, **ymls: str) -> None:
    """Write rules for dev, and yml files of tables."""
    head = folder / "headgate.yml"
    head.write_text(head.read_text().replace("    data: data\n", f"    data: data\n{rules}"))
    for table, text in ymls.items():
        (folder / f"pipelines/facts/p/{table}/{table}.yml").write_text(text)


def row(policy: Policy, status: str = IN_FORCE, actor: str = "ana") -> PolicyRow:
    return PolicyRow(0, 1.0, actor, 7, policy.digest, policy_as_json(policy), status)


def test_without_a_ledger_what_is_declared_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declare(folder, b="protect: true\n")
    found = written(["policy"], capsys)
    assert (found["in_force"], found["waits"], found["differs"]) == (None, None, [])
    rules = found["declared"]["rules"]
    assert (rules["max_replay_rows"], rules["roles"]) == (100_000_000, {"operate": ["@sre", "ana"]})
    assert rules["protected_tables"] == ["b"]
    assert exit_codes.run_command_line(["policy", "show"]) == 0
    said = capsys.readouterr()
    assert "nothing is recorded yet" in said.out and "headgate up" in said.err
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "max_replay_rows 100M" in lines and "roles operate: @sre, ana" in lines


def test_differences_are_marked_and_named(folder: Path, ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    declare(folder)
    ledger.put_policy(row(Policy(max_replay_rows=5_000_000, freeze=("Fri 16:00 - Mon 08:00",))))
    assert written(["policy"], capsys)["differs"] == ["max_replay_rows", "roles"]
    assert exit_codes.run_command_line(["policy"]) == 0
    said = capsys.readouterr()
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "RULE IN FORCE DECLARED" in lines
    assert "max_replay_rows * 5M 100M" in lines and "roles * - operate: @sre, ana" in lines
    assert "freeze Fri 16:00 - Mon 08:00 Fri 16:00 - Mon 08:00" in lines
    assert "headgate policy apply" in said.err and "by ana" in said.out


def test_an_active_freeze_is_reported(folder: Path, ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.put_policy(row(Policy(freeze=("Mon - Sun",))))
    assert written(["policy"], capsys)["frozen"].endswith("UTC (Mon - Sun)")
    assert exit_codes.run_command_line(["policy"]) == 0
    assert "dev is frozen until" in capsys.readouterr().out


def test_apply_sends_the_yaml_alone_once_it_is_confirmed(
    folder: Path, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(folder, b="protect: true\n")
    ledger.put_policy(row(Policy()))
    assert exit_codes.run_command_line(["policy", "apply"]) == 3
    assert agent.heard == [] and "'yes'" in capsys.readouterr().err
    agent.script["policy_apply"] = lambda request: {"policy": request["args"]["id"], "state": IN_FORCE, "changed": True}
    assert exit_codes.run_command_line(["policy", "apply", "--yes"]) == 0
    (request,) = agent.heard
    assert request["confirm"] == "yes" and request["line"].startswith("headgate policy apply --project")
    texts = request["args"]["texts"]
    assert texts["headgate.yml"] == (folder / "headgate.yml").read_text()
    assert texts["pipelines/facts/p/b/b.yml"] == "protect: true\n"
    assert {text for path, text in texts.items() if path.endswith(".sql")} == {""}
    assert "is in force" in capsys.readouterr().err


def test_applying_the_policy_in_force_sends_nothing(
    folder: Path, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(folder, "    policy: {max_statements: 4}\n")
    ledger.put_policy(row(Policy(max_statements=4)))
    assert written(["policy", "apply"], capsys)["changed"] is False
    assert agent.heard == []


@pytest.mark.parametrize("words", ["show", "apply --yes"])
def test_an_invalid_rule_is_reported_with_its_line(
    words: str, folder: Path, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(folder, "    policy: {max_statement: 4}\n")
    assert exit_codes.run_command_line(["policy", *words.split()]) == 2
    said = capsys.readouterr().err
    assert "headgate.yml:7: error: environments.dev.policy.max_statement is not a known key" in said
    assert "did you mean max_statements?" in said and agent.heard == []


def test_a_waiting_policy_is_approved_by_its_digest(
    ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["policy", "approve", "--confirm", "x"]) == 3
    assert "no policy is waiting" in capsys.readouterr().err
    waiting = Policy(max_statements=9)
    ledger.put_policy(row(Policy(protected=True)))
    ledger.put_policy(row(waiting, WAITING, "bob"))
    assert exit_codes.run_command_line(["policy", "approve", "--confirm", "yes"]) == 3
    said = capsys.readouterr().err
    assert f"'dev {waiting.digest[:4]}'" in said and "waits since" in said and agent.heard == []
    agent.script["policy_approve"] = {"policy": waiting.digest, "state": IN_FORCE, "changed": True}
    assert exit_codes.run_command_line(["policy", "approve", "--confirm", f"dev {waiting.digest[:4]}"]) == 0
    assert agent.heard[0]["args"] == {"id": waiting.digest}


def test_the_recorded_protection_holds_whatever_the_file_says(
    folder: Path, place: Any, ledger: Any, agent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"HEADGATE_HOME": str(Path(place.where.home).parents[1])}
    assert not select_environment(environ, str(folder)).protected
    ledger.put_policy(row(Policy(protected=True)))
    ledger.put_deployment(deployment_row("a"))
    found = select_environment(environ, str(folder))
    assert found == replace(place, protected=True) and found.title == "shop DEV protected"
    assert exit_codes.run_command_line(["stop", "a", "--yes"]) == 3
    assert "'a'" in capsys.readouterr().err and agent.heard == []
    declare(folder)
    assert exit_codes.run_command_line(["policy", "apply", "--yes"]) == 3
    assert "'dev'" in capsys.readouterr().err


def test_a_plan_over_the_ledger_uses_the_recorded_policy_and_an_offline_one_the_declared(
    folder: Path, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(folder, "    policy: {max_statements: 1}\n")
    ledger.put_policy(row(Policy(max_statements=7)))
    assert written(["plan", "b"], capsys)["policy"] == Policy(max_statements=7).digest
    nothing = folder / "observed.yml"
    nothing.write_text("tables: {}\n")
    refused = written(["plan", "b", "--observed", str(nothing)], capsys, code=3)
    assert refused["policy"] == Policy(max_statements=1).digest
    assert "the policy allows 1" in refused["refusals"][0]["summary"]
