"""Which project and environment is meant, found without a parser."""

from pathlib import Path

import pytest

from core.model.errors import InvalidProject, UsageError
from tui.project_folder.environment_selection import (
    absolute_environ,
    find_folder,
    parse_manifest_head,
    read_manifest_head,
    select_environment,
)

FORMS = {
    "block": "project: shop\nid: u1\ndefault_env: dev\nenvironments:\n  dev:\n    data: d\n"
    "  prod:\n    protected: true\n",
    "deep": "project: 'shop'  # ours\nid: \"u1\"\ndefault_env: dev\nenvironments:\n    dev:\n        data: d\n"
    "    prod:\n        protected: yes\n        pool: {name: x}\n",
    "flow": "project: shop\nid: u1\ndefault_env: dev\nenvironments:\n  dev: {data: d, protected: false}\n"
    "  prod: {protected: true}\n",
    "windows": "project: shop\r\nid: u1\r\ndefault_env: dev\r\nenvironments:\r\n  dev:\r\n    data: d\r\n"
    "  prod:\r\n    protected: true\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_head_is_found_in_every_usual_form(form: str) -> None:
    head = parse_manifest_head(FORMS[form])
    assert (head.project, head.id, head.default_env) == ("shop", "u1", "dev")
    assert head.protected_by_name == {"dev": False, "prod": True}
    assert head.data_by_name == {"dev": "d"}


def test_a_key_of_a_pool_is_no_environment() -> None:
    text = "environments:\n  dev:\n    pool:\n      name: x\n      protected: true\ndefaults:\n  owner: a\n"
    assert set(parse_manifest_head(text).protected_by_name) == {"dev"}


def test_an_unusual_form_is_read_as_yaml(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text(
        "{project: shop, id: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c, default_env: dev, environments: {dev: {}}}\n"
    )
    assert read_manifest_head(str(tmp_path)).protected_by_name == {"dev": False}


def test_a_missing_key_is_told_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "headgate.yml").write_text("project: shop\n")
    with pytest.raises(InvalidProject) as refused:
        read_manifest_head(str(tmp_path))
    assert refused.value.problems and refused.value.exit_code == 2


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


def test_a_protected_place_says_so_in_its_title(folder: Path) -> None:
    assert select_environment({}, str(folder), environment="prod").title == "shop PROD protected"


def test_an_environment_that_is_not_declared_is_usage(folder: Path) -> None:
    with pytest.raises(UsageError) as refused:
        select_environment({}, str(folder), environment="stage")
    assert "dev, prod" in refused.value.remedy


def test_a_relative_home_means_the_same_for_a_child_in_another_folder(folder: Path) -> None:
    assert absolute_environ({"HEADGATE_HOME": "../home"}, str(folder))["HEADGATE_HOME"] == str(folder.parent / "home")
