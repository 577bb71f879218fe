"""env: every environment of a project in one list, whatever state the ledgers of the others are in."""

import fcntl
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import written
from ledger_rows import environment_row, policy_row, pool_row

from core.observed.served_environment import ServedEnvironment
from core.observed.versions import Deployment
from core.policy.roles_and_rules import Policy
from core.policy.unlocking import Unlock
from core.project.naming import OWN_SOURCES, Naming
from pipelines.storage.data_folder_records import EnvironmentMark, write_mark
from state.ledger import create_or_open
from tui.agent_client.os_processes import boot_id
from tui.command_line import exit_codes
from tui.project_folder.environment_selection import SelectedEnvironment, select_environment
from tui.services import environments
from tui.services.environments import read_environments

MORE = """\
  prod:
    data: /lake/prod
    protected: true
    naming: {prefix: prod_, database: lake}
    colour: red
    pool: {name: spark-eu, url: "sc://spark:15002/;authorization=Bearer%20s3cret"}
  stage:
    data: stage
"""


@pytest.fixture
def places(folder: Path, tmp_path: Path) -> Callable[[str], SelectedEnvironment]:
    head = folder / "headgate.yml"
    head.write_text(head.read_text().replace("  prod:\n    protected: true\n    data: prod-data\n", MORE))
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    return lambda name: select_environment(environ, str(folder), environment=name)


@pytest.fixture
def prod(places: Callable[[str], SelectedEnvironment], deployed: Callable[..., Deployment]) -> SelectedEnvironment:
    """The environment prod, with a statement that runs and one that failed, a freeze and an unlock."""
    place = places("prod")
    facts = environment_row(
        project_id=place.project_id, project=place.project, environment="prod", protected=True, agent_pid=1,
        agent_seen_at=time.time(), pools=(pool_row("spark-eu"),),
        serves=ServedEnvironment("/lake/prod", Naming("prod_", database="lake"), OWN_SOURCES, "sc://spark:15002"),
    )  # fmt: skip
    with create_or_open(Path(place.where.ledger), facts) as ledger:
        ledger.put_deployment(deployed("a"))
        ledger.put_deployment(deployed("b", state="failed", error="x", error_class="X"))
        ledger.put_policy(policy_row(Policy(freeze=("Mon - Sun",), protected=True)))
        now = time.time()
        ledger.put_unlock(Unlock(1, "ana", "OPS-1", now, now + 1800, boot_id(), 0.0, 1800.0))
        ledger.put_unlock(Unlock(2, "bob", "OPS-2", now - 1900, now - 100, boot_id(), 0.0, 1800.0))
        ledger.put_unlock(Unlock(3, "lee", "OPS-3", now, now + 1800, "an earlier boot", 0.0, 1800.0))
    return place


def test_all_environments_are_listed_with_what_their_ledgers_say(
    prod: SelectedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {one["environment"]: one for one in written(["env"], capsys)["environments"]}
    assert set(found) == {"prod", "stage", "dev"} and found["dev"]["default"]
    one = found["prod"]
    assert (one["protected"], one["agent"], one["statements"], one["running"], one["faults"]) == (True, "live", 2, 1, 1)
    assert one["last_known"] is None
    assert one["pool"] == {"name": "spark-eu", "address": "sc://spark:15002", "state": "up"}
    assert one["frozen"].endswith("UTC (Mon - Sun)") and one["data"] == "/lake/prod"
    assert [unlock["actor"] for unlock in one["unlocks"]] == ["ana"]
    assert one["naming"] == {"prefix": "prod_", "suffix": "", "catalog": "", "database": "lake"}
    assert (one["sources"], one["error"]) == ("own", None)
    assert (one["colour"], found["dev"]["colour"]) == ("red", None)
    assert (found["stage"]["started"], found["stage"]["agent"]) == (False, None)


def test_the_list_shows_what_runs_and_how_the_declaration_differs(
    prod: SelectedEnvironment, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = folder / "headgate.yml"
    edited = head.read_text().replace("/lake/prod", "/lake/new").replace("{prefix: prod_", "{prefix: p_")
    head.write_text(edited.replace("sc://spark:15002/", "sc://other:15002/"))
    (one,) = written(["env", "--env", "prod"], capsys)["environments"]
    assert (one["data"], one["naming"]["prefix"]) == ("/lake/prod", "prod_")
    assert one["pool"]["address"] == "sc://spark:15002"
    assert [(edit["kind"], edit["runs"], edit["declared"]) for edit in one["edits"]] == [
        ("data", "/lake/prod", "/lake/new"), ("naming", "lake.prod_*", "lake.p_*"),
    ]  # fmt: skip
    assert exit_codes.run_command_line(["env", "--env", "prod"]) == 0
    said = capsys.readouterr().out
    assert "lake.prod_*\n" in said and "pool sc://spark:15002, data /lake/prod\n" in said, (
        "the declared pool has another address"
    )
    assert "now declares /lake/new; put it back or, if nothing is deployed, restart the agent: headgate down" in said
    assert "headgate up --foreground --env prod" in said


def test_the_list_names_the_pool_with_its_address_and_the_sources_that_are_not_its_own(
    prod: SelectedEnvironment, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = folder / "headgate.yml"
    stage = "    data: stage\n    pool: {name: second}\n    naming: {prefix: s_}\n    sources: dev\n"
    head.write_text(head.read_text().replace("    data: stage\n", stage))
    assert exit_codes.run_command_line(["env"]) == 0
    below = [line for line in capsys.readouterr().out.splitlines() if ": pool " in line]
    (ours,) = [line for line in below if line.startswith("stage: ")]
    assert ours == f"stage: pool second (local), data {folder}/stage, sources: dev"
    assert "PROD protected: pool spark-eu (sc://spark:15002), data /lake/prod" in below
    assert sum("sources" in line for line in below) == 1


def test_the_list_names_state_freeze_and_unlock(prod: SelectedEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["env"]) == 0
    said = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert lines[0] == "ENV AGENT AGE POOL RUNNING FAULTS CHANGED NAMES"
    assert "PROD protected live 0s spark-eu up 1 of 2 1 lake.prod_*" in lines and "stage never local *" in lines
    assert any(line.startswith("PROD protected: frozen until ") for line in lines)
    assert any(line.startswith("PROD protected: unlocked for ana until ") for line in lines)
    assert "s3cret" not in said


@pytest.mark.parametrize(
    ("pid", "seen_s", "agent", "words"),
    [
        (None, 7200.0, "none", "no agent is running; 2h ago: pool up, 1 of 2 running, 1 fault"),
        (2**22 + 1, 7200.0, "none", "no agent is running; 2h ago: pool up, 1 of 2 running, 1 fault"),
        (None, None, "none", "no agent has run here yet"),
    ],
)
def test_what_no_agent_observes_is_unknown_and_its_last_state_has_an_age(
    prod: SelectedEnvironment,
    pid: int | None,
    seen_s: float | None,
    agent: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen_at = time.time() - seen_s if seen_s is not None else None
    with closing(sqlite3.connect(prod.where.ledger)) as ledger, ledger:
        ledger.execute("UPDATE facts SET agent_pid = ?, agent_seen_at = ?", (pid, seen_at))
    (one,) = written(["env", "--env", "prod"], capsys)["environments"]
    assert (one["agent"], one["pool"]["state"], one["statements"], one["running"], one["faults"]) == (
        agent, None, 2, None, None,
    )  # fmt: skip
    assert one["last_known"] == {"pool_state": "up", "running": 1, "faults": 1}
    assert exit_codes.run_command_line(["env", "--env", "prod"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "spark-eu ? ? of 2 ?" in lines[1] and f"PROD protected: {words}" in lines


def test_an_agent_of_an_environment_that_is_no_longer_declared_is_named(
    prod: SelectedEnvironment, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(prod.where.home).parent / "dev").mkdir(exist_ok=True)
    (Path(prod.where.home).parent / "dev/agent.lock").touch()
    head = folder / "headgate.yml"
    head.write_text(head.read_text().replace(MORE, ""))
    with open(prod.where.lock, "w") as lock:
        assert written(["env"], capsys)["undeclared"] == []
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = written(["env"], capsys)
        assert found["undeclared"] == ["prod"]
        one = next(each for each in found["environments"] if each["environment"] == "prod")
        assert (one["declared"], one["data"], one["running"]) == (False, "/lake/prod", 1)
        assert exit_codes.run_command_line(["env"]) == 0
        said = capsys.readouterr().out
        assert "headgate.yml no longer declares it; to end it: headgate down --env prod" in said


def test_what_headgate_yml_no_longer_declares_can_be_read_and_ended_but_not_planned(
    prod: SelectedEnvironment, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = folder / "headgate.yml"
    head.write_text(head.read_text().replace(MORE, ""))
    for words in (["ls"], ["lag"], ["show", "a"], ["events"], ["audit"], ["health"], ["runs"], ["env"]):
        assert exit_codes.run_command_line([*words, "--env", "prod"]) in (0, 1), words
        said = capsys.readouterr()
        assert "headgate.yml no longer declares prod" in said.err and "Traceback" not in said.err, words
    for words in (["plan", "--all"], ["policy"]):
        assert exit_codes.run_command_line([*words, "--env", "prod"]) == 2
        assert "no longer declares prod: it can be read, stopped and ended, but not planned" in capsys.readouterr().err
    assert exit_codes.run_command_line(["up", "--env", "prod"]) == 3
    assert "no agent is running for shop PROD protected, and headgate.yml no longer declares" in capsys.readouterr().err
    assert exit_codes.run_command_line(["doctor", "--env", "prod"]) == 1
    capsys.readouterr()
    write_mark(str(tmp_path / "lake"), EnvironmentMark("ledger", 1, "", prod.where.home, 1))
    with create_or_open(Path(prod.where.ledger), environment_row(project_id=prod.project_id, environment="prod")) as it:
        it.put_agent(None, None, serves=ServedEnvironment(str(tmp_path / "lake"), Naming(), OWN_SOURCES))
    assert exit_codes.run_command_line(["down", "--purge", "--env", "prod", "--confirm", "prod"]) == 0
    assert not Path(prod.where.ledger).exists() and not (tmp_path / "lake").exists()
    assert exit_codes.run_command_line(["ls", "--env", "prod"]) == 2
    assert "shop declares no environment 'prod'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "..", "../prod", "other"])
def test_only_a_ledger_of_this_project_stands_for_an_undeclared_environment(
    prod: SelectedEnvironment, folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Path(prod.where.home)
    (home.parent / "other").symlink_to(home)
    assert exit_codes.run_command_line(["ls", f"--env={name}"]) == 2
    assert "declares no environment" in capsys.readouterr().err


def test_a_broken_ledger_hides_no_other(
    prod: SelectedEnvironment, places: Callable[[str], SelectedEnvironment], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(places("stage").where.ledger)
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no ledger " * 1000)
    assert exit_codes.run_command_line(["env"]) == 1
    said = capsys.readouterr().out
    assert f"stage: the ledger {broken} is" in said and "1 of 2" in said
    assert exit_codes.run_command_line(["env", "--env", "prod"]) == 0
    assert "stage" not in capsys.readouterr().out


def test_a_ledger_that_does_not_answer_is_reported_after_the_deadline(
    prod: SelectedEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, look = threading.Event(), environments.select_environment

    def hang(environ: Any, cwd: str, *, project: str, environment: str) -> SelectedEnvironment:
        if environment == "stage":
            released.wait(60)
        return look(environ, cwd, project=project, environment=environment)

    monkeypatch.setattr(environments, "select_environment", hang)
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    stage, there = read_environments(environ, prod.folder, ("stage", "prod"), deadline_s=1.0)
    released.set()
    assert stage.error is not None and stage.error.summary == "the ledger was not read within 1 s"
    assert there.error is None and there.statements == 2


def test_a_colour_that_does_not_exist_is_a_problem_with_its_line(
    places: Callable[[str], SelectedEnvironment], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert places("prod").colour == "red"
    head = folder / "headgate.yml"
    head.write_text(head.read_text().replace("colour: red", "colour: pink"))
    found = written(["env"], capsys)
    assert [one["protected"] for one in found["environments"]] == [True, True, True]
    assert exit_codes.run_command_line(["plan", "--all", "--offline"]) == 2
    said = capsys.readouterr().err
    assert "environments.prod.colour must be one of red, amber, green, blue" in said and "headgate.yml:11" in said


def test_without_a_readable_headgate_yml_the_last_one_names_the_environments(
    prod: SelectedEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["env"]) == 0
    (Path(prod.folder) / "headgate.yml").write_text("environments: [")
    assert exit_codes.run_command_line(["env"]) == 0
    said = capsys.readouterr()
    assert "PROD protected" in said.out and "every environment counts as protected" in said.err
