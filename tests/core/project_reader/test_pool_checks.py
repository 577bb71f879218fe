"""Statements that no pool can take, and stores that pools find at different addresses."""

import pytest
import small_project

from core.model.problems import Problem
from core.project_reader.loader import read_project


def problems_of(pools: str, yml: str = "", more: str = "", **changed: str) -> tuple[Problem, ...]:
    """Return the problems of the small project, in which b has a yml, and `pools` are in line 5."""
    head = small_project.HEAD.replace("dev: {}", f"dev: {{{pools}}}")
    files = {**small_project.texts(), "headgate.yml": head + more, "pipelines/facts/p/b/b.yml": yml}
    return read_project(files | changed)[1]


NAMED = "pools: {a: {capacity: {cores: 4}}, b: {class: fast, capacity: {cores: 2, memory: 1g}}, c: {class: fast}}"


@pytest.mark.parametrize(
    ("yml", "said"),
    [
        ("pool: aa", "dev has no pool aa; did you mean a?"),
        ("pool: other", "dev has no pool other; pools of dev: a, b, c"),
        ("pool: {class: fas}", "dev has no pool of class fas; did you mean fast?"),
    ],
)
def test_a_name_that_the_environment_lacks_is_a_problem_at_its_line(yml: str, said: str) -> None:
    (found,) = problems_of(NAMED, f"owner: lee\n{yml}\n")
    assert (f"{found.summary}; {found.remedy}", str(found.where)) == (said, "pipelines/facts/p/b/b.yml:2")


@pytest.mark.parametrize("setting", ["pool: huge", "pool: {class: slow}", "resources: {cores: 64}"])
def test_a_mistake_among_the_defaults_is_one_problem_at_its_line(setting: str) -> None:
    (found,) = problems_of(NAMED, more=f"defaults:\n  owner: lee\n  {setting}\n")
    assert (str(found.where), found.subject) == ("headgate.yml:8", "defaults")


@pytest.mark.parametrize(
    ("pools", "yml", "said"),
    [
        (NAMED, "cores: 64", "a (64 of at most 4 cores)"),
        ("pool: {capacity: {memory: 1g}}", "memory: 2g", "local (2g of at most 1g of memory)"),
        (
            f"placement: spread, {NAMED.replace('c: {class: fast}', 'c: {capacity: {memory: 1g}}')}",
            "cores: 8, memory: 2g",
            "a (8 of at most 4 cores), b (8 of at most 2 cores and 2g of at most 1g of memory), "
            "c (2g of at most 1g of memory)",
        ),
    ],
)
def test_resources_that_fit_into_no_pool_are_a_problem_at_their_line(pools: str, yml: str, said: str) -> None:
    (found,) = problems_of(pools, f"owner: lee\nresources: {{{yml}}}\n")
    assert found.summary == f"resources are more than the capacity of {said}"
    assert str(found.where) == "pipelines/facts/p/b/b.yml:2" and "raise capacity:" in found.remedy


def test_resources_that_fit_into_one_of_the_pools_are_none() -> None:
    for yml in ("pool: {class: fast}\nresources: {cores: 64}\n", "resources: {cores: 4}\n"):
        assert problems_of(NAMED, yml) == ()
    assert problems_of(f"placement: spread, {NAMED}", "resources: {cores: 64, memory: 8g}\n") == ()


def stores(first: str, second: str, location: str) -> tuple[Problem, ...]:
    def conf(settings: str) -> str:
        return "".join(f"\n          spark.hadoop.{each}" for each in settings.split(", ") if each)

    # Without a client for its store, the table is a problem as well.
    clients = "\n          spark.jars: /gcp.jar\n"
    pools = f"pools:\n      small:\n        conf:{conf(first)}\n      large:\n        conf:{conf(second)}{clients}"
    head = small_project.HEAD.replace("dev: {}", f"dev:\n    {pools}") + "connectors: {s3: {}}\n"
    ddl = f"CREATE TABLE landed {small_project.COLUMNS} USING json LOCATION '{location}';"
    texts = {**small_project.texts(), "headgate.yml": head}
    return read_project({**texts, "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": ddl})[1]


@pytest.mark.parametrize(
    ("first", "second", "location", "root"),
    [
        ("fs.s3a.endpoint: one:9000", "fs.s3a.endpoint: two:9000", "s3a://data/landed", "s3a://data"),
        ("fs.s3a.endpoint: one", "fs.s3a.bucket.data.endpoint: two", "s3a://data/landed", "s3a://data"),
        ("fs.gs.storage.root.url: one", "fs.gs.storage.root.url: two", "gs://data/landed", "gs://data"),
        (
            "dfs.namenode.http-address.ns.n1: one", "dfs.namenode.http-address.ns.n1: two", "hdfs://ns/landed",
            "hdfs://ns",
        ),
    ],
)  # fmt: skip
def test_a_store_with_another_address_in_a_second_pool_is_a_problem_there(
    first: str, second: str, location: str, root: str
) -> None:
    (found,) = stores(f"fs.x: 1, {first}", f"fs.x: 2, {second}", location)
    assert found.summary == f"pool large finds {root} at another address than pool small"
    assert (str(found.where), "line 10:" in found.remedy) == ("headgate.yml:14", True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("fs.s3a.endpoint: https://one/", "fs.s3a.endpoint: https://one"),
        ("fs.s3a.endpoint: one", ""),
        ("fs.s3a.endpoint: one, fs.s3a.bucket.data.endpoint: two", "fs.s3a.bucket.data.endpoint: two"),
        ("fs.s3a.bucket.other.endpoint: one", "fs.s3a.bucket.other.endpoint: two"),
        ("fs.s3a.connection.maximum: 10", "fs.s3a.connection.maximum: 20"),
    ],
)
def test_settings_of_other_stores_and_other_settings_may_differ(first: str, second: str) -> None:
    assert stores(first, second, "s3a://data/landed") == ()
