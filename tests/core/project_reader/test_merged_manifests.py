"""Generated cases: the nearest value wins however many templates there are, and no input ends in a traceback."""

from collections.abc import Mapping
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.model.problems import Problem
from core.project_reader.job_manifests import MANIFEST_KEYS, merge_settings
from core.project_reader.loader import read_sound_tables
from core.project_reader.manifest_layout import generated_texts
from core.project_reader.yaml_reader import YamlSection, read_yaml
from tests.support.manifest_project import HEADGATE, files

NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.one_of(st.none(), st.integers(0, 9), st.lists(st.integers(0, 3), max_size=2))
LAYERS = st.dictionaries(NAMES, LEAVES, max_size=3).flatmap(
    lambda plain: st.fixed_dictionaries({"plain": st.just(plain), "deep": st.dictionaries(NAMES, LEAVES, max_size=3)})
)


def section(values: Mapping[str, Any], problems: list[Problem]) -> YamlSection:
    found = read_yaml(yaml.safe_dump(dict(values)), "f", problems)
    assert found is not None
    return found


def values_of(nodes: Mapping[str, yaml.Node]) -> dict[str, Any]:
    loader = yaml.SafeLoader("")
    return {key: loader.construct_document(node) for key, node in nodes.items()}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return value


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    problems: list[Problem] = []
    found = values_of(merge_settings([section(layer, problems) for layer in layers], problems).nodes)
    assert not problems
    return dict(without_nulls(found))


@given(st.lists(LAYERS, min_size=1, max_size=5))
def test_each_value_is_that_of_the_nearest_layer_that_sets_one(layers: list[dict[str, Any]]) -> None:
    wanted: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            wanted.setdefault(key, {}).update(without_nulls(value))
    assert merged(*layers) == wanted


@given(LAYERS, LAYERS, LAYERS)
def test_a_template_may_be_merged_with_its_own_template_first_or_last(
    far: dict[str, Any], middle: dict[str, Any], near: dict[str, Any]
) -> None:
    assert merged(merged(far, middle), near) == merged(far, merged(middle, near)) == merged(far, middle, near)


@given(LAYERS)
def test_merging_a_layer_over_itself_or_over_nothing_changes_nothing(layer: dict[str, Any]) -> None:
    assert merged(layer, layer) == merged(layer) == merged({}, layer)


def cut(text: str, at: int, sign: str) -> str:
    return text[:at] + sign + text[at:]


SIGNS = st.text(alphabet="ab:-#&*!|>{}[],'\"\\ \n\t\r$%@`~?./0é\u2028\ufeff\x85", max_size=60)
WORDS = st.sampled_from([*MANIFEST_KEYS, "<<", "x"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), SIGNS, st.dates()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(WORDS, SIGNS), inner, max_size=3)),
    max_leaves=6,
)
SQL = st.sampled_from(
    ["SELECT id, price FROM STREAM orders", "SELECT", "INSERT INTO x SELECT 1", "-- a\nSELECT 1; SELECT 2"]
)
MAPPINGS = st.builds(
    lambda some, more: {**some, **more},
    st.fixed_dictionaries(
        {"name": st.sampled_from(["cheap", "a", "1"]), "target-table": st.sampled_from(["dear", "x"])}
    ),
    st.dictionaries(WORDS, st.one_of(VALUES, SQL), max_size=4),
)
STYLES = st.sampled_from([None, "|", ">", "'", '"'])
TEXTS = st.one_of(
    SIGNS,
    st.builds(lambda value, style: yaml.safe_dump(value, default_style=style, allow_unicode=True), MAPPINGS, STYLES),
    st.builds(lambda value, at, sign: cut(yaml.safe_dump(value), at, sign), MAPPINGS, st.integers(0, 80), SIGNS),
)


def assert_only_problems(found: Mapping[str, str]) -> None:
    """Assert that a project is read, and that each Problem has a remedy and a line that its file has."""
    project, problems = read_sound_tables(generated_texts(found))
    for problem in problems:
        assert problem.remedy and problem.where is not None
        text = found.get(problem.where.path)
        assert text is not None or problem.where.path == "manifests"
        assert problem.where.line <= len((text or "").splitlines()) + 1
    assert project is not None or any(problem.where and problem.where.path == "headgate.yml" for problem in problems)


@given(TEXTS, TEXTS)
def test_any_manifest_and_any_template_give_tables_or_problems(manifest: str, template: str) -> None:
    assert_only_problems(files() | {"manifests/dear.yml": manifest, "job-template.yaml": template})


@given(SIGNS | SQL)
def test_any_table_definitions_give_tables_or_problems(sql: str) -> None:
    assert_only_problems(files(schemas__out_sql=sql))


@given(VALUES)
def test_any_description_of_the_layout_gives_tables_or_problems(value: Any) -> None:
    head = HEADGATE.partition("manifests:\n")[0] + yaml.safe_dump({"manifests": value}, allow_unicode=True)
    assert_only_problems(files() | {"headgate.yml": head})
