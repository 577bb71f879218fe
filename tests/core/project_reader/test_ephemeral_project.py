"""The project of an ephemeral environment: chosen tables with everything upstream, over sources of its own."""

import pytest
import small_project
import yaml

from core.model.names import TableName as T
from core.project.naming import DECLARED, Naming
from core.project_reader.ephemeral_project import (
    TRIGGER,
    EphemeralProject,
    NotIsolated,
    ephemeral_manifest,
    ephemeral_project,
    upstream_of,
)
from core.project_reader.ephemeral_systems import SystemNames
from core.project_reader.loader import read_project

NAMES = SystemNames(Naming(prefix="it_1_"), DECLARED)
YML = {"pipelines/facts/p/a/a.yml": "description: one\ntrigger: 40 seconds\n"}


def generated(texts: dict[str, str], *tables: str, trigger: str | None = TRIGGER) -> EphemeralProject:
    found = ephemeral_project(
        small_project.project(texts), texts, map(T, tables), data="/e/data", systems=NAMES, trigger=trigger
    )  # fmt: skip
    assert isinstance(found, EphemeralProject), found
    return found


def manifest(texts: dict[str, str], trigger: str | None = TRIGGER) -> str:
    return ephemeral_manifest(
        texts["headgate.yml"], folder="/branch", name="it_1", base="dev",
        data={"dev": "data", "it_1": "/e/data"}, pool={"name": "tests", "memory": "1g"}, trigger=trigger,
    )  # fmt: skip


def test_tables_run_with_everything_upstream_and_nothing_else() -> None:
    found = generated(small_project.texts(), "b")
    assert found.built == ("a", "b") and found.sources == {"landed": "/e/data/landing/landed"}
    assert not any("/c/" in path for path in found.texts)
    assert "LOCATION '/e/data/landing/landed'" in found.texts["pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"]


def test_tables_of_one_folder_come_together_and_upstream_tables_come_first() -> None:
    folder = "pipelines/facts/p/a/sql-scripts"
    beside = {
        f"{folder}/ddl.a2.sql": "CREATE TABLE a2 (id BIGINT, kind STRING) USING parquet;",
        f"{folder}/dml.a2.sql": "INSERT INTO a2 SELECT id, kind FROM STREAM c;",
    }
    project = small_project.project(
        {**small_project.texts(c="SELECT id, kind FROM STREAM landed WHERE id > 1"), **beside}
    )
    assert upstream_of(project, [T("a")]) == ("landed", "a", "c", "a2")


def test_the_generated_project_is_valid_and_has_its_own_names_data_and_server() -> None:
    texts = {**small_project.texts(), **YML}
    found = generated(texts, "b")
    project, problems = read_project({**found.texts, "headgate.yml": manifest(texts)}, environment="it_1")
    assert project is not None, problems
    here = project.environments["it_1"]
    assert (here.data, here.naming.prefix, here.protected) == ("/e/data", "it_1_", False)
    assert (here.pool.name, here.pool.memory, here.pool.url) == ("tests", "1g", None)
    assert {name: table.settings.trigger for name, table in project.tables.items() if not table.external} == {
        "a": TRIGGER, "b": TRIGGER,
    }  # fmt: skip


def test_its_only_pool_replaces_several_and_statements_keep_the_names_of_theirs() -> None:
    yml = {path: f"{text}pool: large\n" for path, text in YML.items()}
    texts = {**small_project.texts(), **yml}
    texts["headgate.yml"] = yaml.safe_dump({
        **(top := yaml.safe_load(texts["headgate.yml"])),
        "environments": {**top["environments"], "dev": {"pools": {"small": {"cores": 1}, "large": {"cores": 2}}}},
    })  # fmt: skip
    found = generated(texts, "b")
    project, problems = read_project({**found.texts, "headgate.yml": manifest(texts)}, environment="it_1")
    assert project is not None, problems
    here = project.environments["it_1"]
    assert here.named_pools == () and here.pool_of(project.tables[T("a")].settings).name == "tests"


def test_declared_intervals_are_kept_on_request() -> None:
    texts = {**small_project.texts(), **YML}
    found = generated(texts, "b", trigger=None)
    project, _ = read_project({**found.texts, "headgate.yml": manifest(texts, None)}, environment="it_1")
    assert project is not None
    triggers = {name: table.settings.trigger for name, table in project.tables.items() if not table.external}
    assert triggers == {"a": "40 seconds", "b": "10 seconds"}


@pytest.mark.parametrize("head", ["defaults:\n", "defaults: {owner: me}\n", ""])
def test_the_interval_is_set_whatever_the_defaults_are(head: str) -> None:
    texts = small_project.texts()
    texts["headgate.yml"] += head
    project, problems = read_project({**texts, "headgate.yml": manifest(texts)}, environment="it_1")
    assert project is not None, problems
    assert project.tables[T("a")].settings.trigger == TRIGGER


def test_tables_without_a_statement_are_refused() -> None:
    texts = small_project.texts()
    found = ephemeral_project(small_project.project(texts), texts, [T("landed")], data="/e/data", systems=NAMES)
    assert found == NotIsolated.NOTHING.of()
