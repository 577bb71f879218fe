"""The projects of the scenarios: valid, with separate ports for their servers, and not confused with each other."""

import json
import os
from pathlib import Path

import pytest

from core.model.errors import Refused
from core.project_reader.loader import read_project
from pipelines.demo.sample_copy import MARKER, copy_sample
from pipelines.demo.scenarios import SCENARIOS, copy_scenario, debezium_settings, read_scenario, shift_of


def files_of(folder: Path) -> dict[str, str]:
    paths = [folder / "headgate.yml", *folder.glob("pipelines/**/*.sql"), *folder.glob("pipelines/**/*.yml")]
    return {os.path.relpath(path, folder): path.read_text() for path in paths}


@pytest.mark.parametrize("number", sorted(SCENARIOS))
def test_the_project_of_each_scenario_has_no_problem_and_the_same_target(number: int, tmp_path: Path) -> None:
    copied = copy_scenario(tmp_path / "s", number)
    project, problems = read_project(files_of(copied.folder))
    assert not problems and project.id == copied.project_id
    target = project.tables["pizzas_to_bake"]  # type: ignore[index]  # A TableName.
    assert target.parsed_ddl is not None
    assert [column.name for column in target.parsed_ddl.columns] == [
        "order_id", "revision", "client_name", "table_name", "pizzas"
    ]  # fmt: skip
    assert not any("@" in text.replace("127.0.0.1", "") for path, text in files_of(copied.folder).items())


def test_ports_are_chosen_once_and_are_in_the_declarations(tmp_path: Path) -> None:
    first, again = copy_scenario(tmp_path / "s", 6), copy_scenario(tmp_path / "s", 6)
    assert (first.made, again.made) == (True, False)
    scenario, ports = read_scenario(first.folder)
    assert scenario.number == 6 and len(set(ports.values())) == len(ports)
    assert (
        f"127.0.0.1:{ports['kafka']}"
        in (first.folder / "pipelines/sources/sales/order_changes/sql-scripts/ddl.order_changes.sql").read_text()
    )
    assert debezium_settings(scenario, ports["postgres"])["database.port"] == str(ports["postgres"])


def test_a_folder_of_another_scenario_or_of_the_sample_is_refused(tmp_path: Path) -> None:
    copy_scenario(tmp_path / "s", 3)
    with pytest.raises(Refused, match="is a demo of scenario 3"):
        copy_scenario(tmp_path / "s", 6)
    with pytest.raises(Refused, match="is a demo of scenario 3"):
        copy_sample(tmp_path / "s")
    copy_sample(tmp_path / "sample")
    with pytest.raises(Refused, match="is a demo of the sample without a database"):
        copy_scenario(tmp_path / "sample", 3)
    with pytest.raises(Refused, match="is not the folder of a scenario"):
        read_scenario(tmp_path / "sample")


def test_the_application_works_as_the_scenario_needs_it(tmp_path: Path) -> None:
    folder = copy_scenario(tmp_path / "s", 3).folder
    usual, fast = (shift_of(folder, rate=rate, seed=1) for rate in (None, 50.0))
    assert (usual.seed, usual.rate, fast.rate) == (1, 4.0, 50.0)
    port = json.loads((folder / MARKER).read_text())["ports"]["postgres"]
    assert usual.dsn == f"postgresql://restaurant@127.0.0.1:{port}/postgres"
