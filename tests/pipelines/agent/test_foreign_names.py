"""Names and folders of other environments are refused before anything is created."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_project
from ledger_rows import deployment_row

from core.model.errors import InvalidProject, Refused
from core.model.names import TableName
from core.plan.request import PlanRequest
from core.project.model import Environment
from core.project_reader.manifest import Manifest, read_manifest
from pipelines.agent.context import AgentContext
from pipelines.agent.deployment_compiler import EnvironmentLayout
from pipelines.agent.identity.foreign_names import (
    refuse_edited_environment,
    refuse_names_of_others,
    refuse_nested_data,
    refuse_other_naming,
)
from pipelines.storage.data_folder_records import EnvironmentMark, write_mark
from tests.pipelines.agent.runs.test_run_driver import EVERYTHING, deploy, fast_gates, picture, plan

__all__ = ["fast_gates"]

MARK = EnvironmentMark("9f2c", 1, "", "/home/theirs", 3)


def test_a_name_of_another_environment_ends_a_run_before_its_first_effect(
    agent: AgentContext, pool: Any, tmp_path: Path
) -> None:
    write_mark(str(tmp_path / "theirs"), MARK)
    pool.foreign = {"c": f"{tmp_path}/theirs/tables/c__v1"}
    before = picture(agent, pool)
    assert deploy(agent, pool, small_project.texts()) == "failed"
    assert picture(agent, pool) == before
    (run,) = agent.ledger.runs(limit=1)
    notes = {step.note for step in run.steps if step.state == "failed"}
    words = f"c of c would meet c at {tmp_path}/theirs/tables/c__v1 of ledger 9f2c in /home/theirs"
    assert notes and all(note.startswith(words) for note in notes)


def test_names_in_the_own_data_folder_and_of_what_is_deployed_are_no_others(agent: AgentContext, pool: Any) -> None:
    pool.foreign = {"c": f"{agent.layout.data}/tables/c__v1"}
    assert deploy(agent, pool, small_project.texts()) == "done"
    pool.foreign = {"c": "/theirs/tables/c__v1", "c__v1": "/theirs/tables/c__v1"}
    refuse_names_of_others(
        agent, plan(agent, small_project.texts(), PlanRequest(tables=(TableName("a"),), rebuild=True))
    )


def test_an_external_table_of_another_place_is_refused(agent: AgentContext, pool: Any) -> None:
    made = plan(agent, small_project.texts(), EVERYTHING)
    pool.foreign = {"landed": f"{agent.layout.data}/landing"}
    refuse_names_of_others(agent, made)
    pool.foreign = {"landed": ""}
    with pytest.raises(Refused, match="landed of landed would meet landed at an unknown place"):
        refuse_names_of_others(agent, made)


HEAD = """\
project: p
id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c
default_env: dev
environments:
  dev:
    pool: {}
"""


def declared(more: str = "") -> tuple[Manifest, Environment]:
    manifest = read_manifest(f"{HEAD}{more}", problems := [])
    assert not problems
    return manifest, next(each for each in manifest.environments if each.name == "dev")


def test_what_is_deployed_keeps_its_names(agent: AgentContext, pool: Any) -> None:
    naming, dev = "    naming: {database: stage}\n", "    sources: s\n  s: {data: s, naming: {prefix: dev_}}\n"
    refuse_other_naming((), *declared(naming))
    assert deploy(agent, pool, small_project.texts()) == "done"
    made = agent.ledger.deployments()
    refuse_other_naming((*made, deployment_row(compiled_ddl="")), *declared())
    with pytest.raises(InvalidProject, match=r"^headgate\.yml:7: a was deployed as a__v1, and .* it stage\.a__v1"):
        refuse_other_naming((d for d in made if d.table == "a"), *declared(naming))
    with pytest.raises(InvalidProject, match=r"^headgate\.yml:7: landed was registered as landed, and .* dev_landed"):
        refuse_other_naming(made, *declared(dev))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("    data: ./data/\n", ""),
        ("    colour: red\n", ""),
        ("    data: other\n", "works in the data folder /home/p/data, and headgate.yml now declares /home/p/other"),
        ("    naming: {prefix: s_}\n", "gives the names *, and headgate.yml now declares s_*"),
        ("    sources: s\n  s: {data: s}\n", "has sources: own, and headgate.yml now declares s, named *, in s"),
    ],
)
def test_a_plan_over_another_data_folder_or_naming_than_the_agents_is_refused(
    edit: str, said: str, agent: AgentContext
) -> None:
    here = replace(agent, folder="/home/p", layout=EnvironmentLayout("/home/p/data", Environment("dev")))
    environment = declared(edit)[1]
    if not said:
        refuse_edited_environment(environment, f"{HEAD}{edit}", here)
        return
    with pytest.raises(Refused) as refused:
        refuse_edited_environment(environment, f"{HEAD}{edit}", here)
    assert refused.value.summary == f"headgate.yml:7: the agent of dev {said}"
    assert "restart the agent: headgate down --env dev, headgate up --env dev" in refused.value.remedy


def test_a_new_data_folder_is_neither_inside_nor_around_another_one(tmp_path: Path) -> None:
    outer, inner = str(tmp_path / "a"), str(tmp_path / "a/b")
    refuse_nested_data(inner)
    write_mark(outer, MARK)
    with pytest.raises(InvalidProject, match=r"a/b is inside .*/a, which belongs to ledger 9f2c in /home/theirs"):
        refuse_nested_data(inner)
    with pytest.raises(InvalidProject, match=f"{tmp_path} contains {outer}, which belongs to"):
        refuse_nested_data(str(tmp_path))
    refuse_nested_data(outer)


def test_a_data_folder_of_another_environment_is_found_at_any_depth(tmp_path: Path) -> None:
    deep = str(tmp_path / "a/b/c/d")
    write_mark(deep, MARK)
    (tmp_path / "a/loop").symlink_to(tmp_path)
    with pytest.raises(InvalidProject, match=f"{tmp_path} contains {deep}, which belongs to ledger 9f2c"):
        refuse_nested_data(str(tmp_path))
