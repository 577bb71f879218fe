"""`pools` in headgate.yml, and the pool that a statement names."""

import pytest
import small_project

from core.model.problems import Problem
from core.project.model import Pool
from core.project_reader.git_comparison import _differing
from core.project_reader.loader import read_project
from core.project_reader.manifest import Manifest, read_manifest

POOLS = "{small: {cores: 2, memory: 2g, statements: 20}, large: {url: 'sc://big:15002'}}"


def manifest(pools: str, *more: str) -> tuple[Manifest, list[str]]:
    problems: list[Problem] = []
    text = small_project.HEAD.replace("dev: {}", f"dev: {{pools: {pools}{''.join(more)}}}")
    return read_manifest(text, problems), [f"{each.summary}; {each.remedy}" for each in problems]


def files(yml: str, pools: str = POOLS, defaults: str = "") -> dict[str, str]:
    head = small_project.HEAD.replace(
        "dev: {}", f"dev: {{pools: {pools}}}\n  one: {{data: of_one, pool: {{name: huge}}}}"
    )
    return {**small_project.texts(), "headgate.yml": head + defaults, "pipelines/facts/p/b/b.yml": yml}


def test_pools_are_read_in_order_and_the_first_is_the_default() -> None:
    found, problems = manifest(POOLS)
    (dev,) = found.environments
    assert not problems
    assert dev.pools == (Pool("small", statements=20), Pool("large", "sc://big:15002"))
    assert dev.pool == dev.pools[0] and [dev.place_of(pool) for pool in dev.pools] == ["small", "large"]


def test_one_pool_has_the_home_itself_as_its_place() -> None:
    (dev,) = read_manifest(small_project.HEAD, []).environments
    assert (dev.pools, dev.named_pools, dev.place_of(dev.pool)) == ((dev.pool,), (), "")


@pytest.mark.parametrize(
    ("pools", "more", "said"),
    [
        ("{}", "", "at least one pool"),
        ("[small]", "", "pools"),
        ("{a b: {}}", "", "named with letters"),
        ("{one: {}, One: {}}", "", "unlike one also in lower case"),
        ("{one: {}}", ", pool: {}", "left out beside pool"),
        ("{one: {name: x}}", "", "name"),
        ("{one: {statements: 0}}", "", "a whole number above 0"),
    ],
)
def test_mistakes_are_problems_with_a_remedy(pools: str, more: str, said: str) -> None:
    _, problems = manifest(pools, more)
    assert problems and any(said in each for each in problems), problems


def test_a_name_that_the_environment_lacks_is_a_problem_at_its_line() -> None:
    project, problems = read_project(files("owner: lee\npool: larg\n"))
    assert project is None
    (found,) = problems
    assert (found.summary, found.remedy) == ("dev has no pool larg", "did you mean large?")
    assert found.where is not None and (found.where.path, found.where.line) == ("pipelines/facts/p/b/b.yml", 2)


def test_a_name_among_the_defaults_is_reported_once_in_the_manifest() -> None:
    project, problems = read_project(files("", defaults="defaults: {pool: huge}\n"))
    assert project is None and [str(each.where.path) for each in problems if each.where] == ["headgate.yml"]


def test_an_environment_with_one_pool_runs_every_statement_there() -> None:
    project, problems = read_project(files("pool: elsewhere\n"), environment="one")
    assert project is not None and not problems
    one, table = project.environments["one"], project.tables[next(each for each in project.tables if each == "b")]
    assert table.settings.pool == "elsewhere" and one.pool_of(table.settings) == one.pool


def test_edits_of_pools_are_named_by_their_keys() -> None:
    before, after = (
        manifest(each)[0].environments[0] for each in (POOLS, "{large: {url: 'sc://big:15003'}, more: {}}")
    )
    assert set(_differing(before, after)) == {"pools.small", "pools.more", "pools.large.url"}
