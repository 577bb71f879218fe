"""The selected project and environment, in whatever form of YAML they are given."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ledger_rows import environment_row

from core.ipc.environment_paths import environment_paths
from core.model.errors import UsageError
from state.ledger import create_or_open
from state.migrations import SCHEMA_VERSION
from tui.project_folder.environment_selection import (
    absolute_environ,
    find_folder,
    select_environment,
)


def test_the_nearest_project_upwards_is_meant(folder: Path) -> None:
    assert find_folder({}, str(folder / "pipelines" / "facts")) == str(folder)


def test_the_option_wins_over_the_variable_and_the_variable_over_the_folder(folder: Path, tmp_path: Path) -> None:
    for name in ("option", "variable"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "headgate.yml").write_text("project: x\n")
    environ = {"HEADGATE_PROJECT": str(tmp_path / "variable")}
    assert find_folder(environ, str(folder)) == str(tmp_path / "variable")
    assert find_folder(environ, str(folder), project="../option") == str(tmp_path / "option")


def test_the_environment_is_the_option_else_the_variable_else_the_default(folder: Path) -> None:
    assert select_environment({}, str(folder)).environment == "dev"
    assert select_environment({"HEADGATE_ENV": "prod"}, str(folder)).environment == "prod"
    assert select_environment({"HEADGATE_ENV": "prod"}, str(folder), environment="dev").environment == "dev"


@pytest.mark.parametrize("variable", ["HEADGATE_HOME", "XDG_STATE_HOME", "HOME"])
def test_a_home_that_is_reached_through_a_link_is_the_same_environment(
    variable: str, folder: Path, tmp_path: Path
) -> None:
    real = select_environment({variable: str(tmp_path / "real")}, str(folder))
    Path(real.where.home).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for spelled in (f"{tmp_path}/link", f"{tmp_path}/link/", f"{tmp_path}/real/../link", f"{tmp_path}/./real//"):
        assert select_environment({variable: spelled}, str(folder)).where == real.where
    if variable != "HOME":
        assert select_environment({variable: "../link"}, str(folder)).where == real.where


def test_a_home_whose_own_folder_is_a_link_is_the_same_environment(folder: Path, tmp_path: Path) -> None:
    before = select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder))
    elsewhere = tmp_path / "elsewhere" / "dev"
    elsewhere.mkdir(parents=True)
    Path(before.where.home).parent.mkdir(parents=True)
    Path(before.where.home).symlink_to(elsewhere)
    assert select_environment({"HEADGATE_HOME": str(tmp_path / "home")}, str(folder)).where == environment_paths(
        str(elsewhere), os.getuid()
    )


def test_a_project_that_is_reached_through_a_link_has_one_folder_and_one_data_folder(
    folder: Path, tmp_path: Path
) -> None:
    real = select_environment({}, str(folder))
    (tmp_path / "linked").symlink_to(folder)
    for spelled in ("../linked", f"{tmp_path}/linked/", f"{folder}/pipelines/.."):
        assert select_environment({}, str(folder), project=spelled) == real


def test_a_protected_environment_is_marked_in_the_title(folder: Path) -> None:
    assert select_environment({}, str(folder), environment="prod").title == "shop PROD protected"


@pytest.mark.parametrize("version", [36, SCHEMA_VERSION, SCHEMA_VERSION + 1])
def test_protection_in_the_ledger_holds_while_the_ledger_is_of_another_release(
    folder: Path, tmp_path: Path, version: int
) -> None:
    environ = {"HEADGATE_HOME": str(tmp_path / "home")}
    ledger = Path(select_environment(environ, str(folder)).where.ledger)
    create_or_open(ledger, environment_row(protected=True)).close()
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    assert select_environment(environ, str(folder)).protected


def test_an_empty_option_means_no_default(folder: Path) -> None:
    with pytest.raises(UsageError, match="declares no environment ''"):
        select_environment({}, str(folder), environment="")
    with pytest.raises(UsageError, match="--project names no folder"):
        select_environment({}, str(folder), project="")


def test_an_undeclared_environment_is_a_usage_error(folder: Path) -> None:
    with pytest.raises(UsageError) as refused:
        select_environment({}, str(folder), environment="stage")
    assert "dev, prod" in refused.value.remedy


def test_a_relative_home_means_the_same_for_a_child_in_another_folder(folder: Path) -> None:
    assert absolute_environ({"HEADGATE_HOME": "../home"}, str(folder))["HEADGATE_HOME"] == str(folder.parent / "home")


NOT_UTF_8 = os.fsdecode(b"caf\xe9")


def test_a_project_folder_whose_name_is_not_utf_8_is_refused_with_its_bytes(folder: Path) -> None:
    theirs = folder.rename(folder.with_name(NOT_UTF_8))
    for found in ({}, {"HEADGATE_PROJECT": str(theirs)}):
        with pytest.raises(UsageError, match=r"the project folder .*/caf\\xe9 is not UTF-8"):
            find_folder(found, str(theirs))


def test_a_data_folder_that_leads_to_a_name_that_is_not_utf_8_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / NOT_UTF_8).mkdir()
    (folder / "data").symlink_to(tmp_path / NOT_UTF_8)
    with pytest.raises(UsageError, match=r"the data folder of dev .*/caf\\xe9 is not UTF-8"):
        select_environment({}, str(folder), environment="dev")


@pytest.mark.parametrize("name", ["HEADGATE_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME"])
def test_a_home_whose_name_is_not_utf_8_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} /srv/caf\\xe9 is not UTF-8"):
        absolute_environ({name: f"/srv/{NOT_UTF_8}"}, "/")
    with_a_home = {"HEADGATE_HOME": "/srv", "HOME": f"/srv/{NOT_UTF_8}"}
    assert absolute_environ(with_a_home, "/") == with_a_home
