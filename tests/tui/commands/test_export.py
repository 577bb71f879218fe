"""export observed: the ledger's contents as a document, from which the same plan is computed without the ledger."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import written

from core.model.names import TableName
from core.observed.document import planner_input_from_text
from core.observed.planner_input import PlannerInput
from core.observed.table_statistics import Headroom, TableStatistics
from core.policy.roles_and_rules import Policy, policy_as_json
from core.project.model import Pool
from core.project.revision import RevisionTexts
from state.registry import IN_FORCE
from state.row_types import PolicyRow
from tui.command_line import exit_codes
from tui.services import planner_input_reader

A, B = TableName("a"), TableName("b")


@pytest.fixture
def world(ledger: Any, deployed: Callable[..., Any], folder: Path) -> Any:
    """A ledger with everything that a plan depends on: old texts, orphans, measurements, Spark's answers."""
    ddl = (folder / "pipelines/sources/p/a/sql-scripts/ddl.a.sql").read_text()
    dml = "INSERT INTO a\nSELECT id, kind FROM STREAM landed WHERE id > 0;\n"
    pool = Pool("local", None, 2, "2g", (("spark.sql.ansi.enabled", "true"),))
    ledger.put_deployment(
        deployed("a", texts=RevisionTexts(ddl, dml, "trigger: 10 seconds\n"), pool=pool, engine="4.2.0", started_at=1.0)
    )
    ledger.put_deployment(deployed("b", reads="a", wanted="stopped", state="stopped", started_at=1.0))
    ledger.put_deployment(deployed("b", reads="a", version=2, active=False, state="failed", checkpoint="/c2"))
    ledger.put_deployment(deployed("old", drop_after=1e12, active=False, state="stopped", checkpoint="/c3"))
    ledger.put_table_statistics(
        {(A, 1): TableStatistics(at=5.0, rows=1_000_000, bytes=2**30, files=12, earliest=1.5, gone=0)}
    )
    ledger.put_headroom(Headroom(at=5.0, disk_free=2**34, disk_total=2**40, cores=2, busy=0.25, engine="4.2.0"))
    ledger.put_spark_analysis("key", '{"packed": "ä"}', at=5.0)
    shut = Policy(max_statements=1, approve=("all",), roles=(("operate", ("me", "@us")),))
    ledger.put_policy(PolicyRow(0, 1.0, "me", 7, shut.digest, policy_as_json(shut), IN_FORCE))
    return ledger


def known_to(place: Any, world: Any) -> PlannerInput:
    from state.ledger import LedgerReader

    reader = LedgerReader(Path(place.where.ledger))
    try:
        return planner_input_reader.planner_input(reader)
    finally:
        reader.close()


@pytest.mark.parametrize("name", ["out.yml", "out.yaml", "out.json", "OUT.JSON"])
def test_an_export_contains_everything_that_the_ledger_knows(name: str, world: Any, place: Any, folder: Path) -> None:
    assert exit_codes.run_command_line(["export", "observed", "-o", name]) == 0
    text = (folder / name).read_text(encoding="utf-8")
    assert text.startswith("{") == name.lower().endswith(".json")
    assert planner_input_from_text(text, name, "dev") == known_to(place, world)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words",
    [["--all"], ["a"], ["a", "--rebuild", "--children", "none"], ["b"], ["delete", "b"], ["delete", "a"],
     ["--layer", "source", "--exclude", "b"]],
)  # fmt: skip
@pytest.mark.parametrize("name", ["out.yml", "out.json"])
def test_the_plan_of_an_export_is_the_plan_of_the_ledger(
    words: list[str], name: str, world: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["export", "observed", "-o", name]) == 0
    capsys.readouterr()
    found = []
    for options in (["--offline"], ["--observed", name]):
        assert exit_codes.run_command_line(["plan", *words, *options, "--json"]) in (0, 3)
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] and len(found[0]["hash"]) == 64


def test_stdout_has_the_same_document_as_yaml_or_as_json(
    world: Any, place: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["export", "observed"]) == 0
    assert planner_input_from_text(capsys.readouterr().out, "stdout", "dev") == known_to(place, world)
    assert written(["export", "observed"], capsys)["format"] == "headgate.observed/1"


def test_a_file_is_replaced_completely_or_stays_unchanged(
    world: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "out.yml").write_text("before")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert exit_codes.run_command_line(["export", "observed", "-o", "out.yml"]) == 1
    said = capsys.readouterr().err
    assert "out.yml cannot be written: the disk is full" in said and "write to another disk" in said
    assert (folder / "out.yml").read_text() == "before"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".headgate")] == []


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["observed", "-o", "out.txt"], "'out.txt' has no known file extension", 2),
        (["observed", "-o", ""], "'' has no known file extension", 2),
        (["observed", "-o", "nowhere/out.yml"], "cannot be written: No such file or directory", 2),
        (["everything"], "WHAT: 'everything' is not one of observed", 2),
    ],
)
def test_an_export_that_is_impossible_is_refused_with_the_reason(
    words: list[str], said: str, code: int, world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["export", *words]) == code
    assert said in capsys.readouterr().err


def test_an_environment_that_was_never_started_has_nothing_to_export(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["export", "observed", "-o", "out.yml"]) == 4
    assert not (folder / "out.yml").exists() and "never been started" in capsys.readouterr().err


def test_an_export_of_another_environment_is_refused(
    world: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_command_line(["export", "observed", "-o", "out.yml"]) == 0
    assert exit_codes.run_command_line(["plan", "--all", "--env", "prod", "--observed", "out.yml"]) == 2
    assert "it was observed in dev, but the plan is for prod" in capsys.readouterr().err


def test_a_token_of_a_pool_is_in_no_export(
    ledger: Any, deployed: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from core.changes.pinned_settings import recorded_pool

    pool = Pool("far", "sc://far:15002/;token=hush", conf=(("spark.sql.my.password", "hush"),))
    ledger.put_deployment(replace(deployed("a"), pool=recorded_pool(pool)))
    assert exit_codes.run_command_line(["export", "observed"]) == 0
    told = capsys.readouterr().out
    assert "sc://far:15002" in told and "hush" not in told
