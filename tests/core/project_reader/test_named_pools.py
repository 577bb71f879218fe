"""`pools` in headgate.yml, and the pool that a statement names."""

from dataclasses import replace

import pytest
import small_project

from core.changes.kinds import ChangeKind
from core.changes.revision_diff import _settings_findings
from core.model.actions import Action
from core.model.names import TableName
from core.model.problems import Problem
from core.project.model import Pool, Settings
from core.project.resources import Amounts, PoolClass
from core.project.server_settings import connector_settings
from core.project_reader.git_comparison import _differing
from core.project_reader.loader import read_project
from core.project_reader.manifest import Manifest, read_manifest
from core.project_reader.table_yml import deployed_yml_as_file, read_settings, settings_as_text

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
    assert dev.pools == (Pool("small", capacity=Amounts(20)), Pool("large", "sc://big:15002"))
    assert dev.pool == dev.pools[0] and [dev.place_of(pool) for pool in dev.pools] == ["small", "large"]


def test_one_pool_has_the_home_itself_as_its_place() -> None:
    (dev,) = read_manifest(small_project.HEAD, []).environments
    assert (dev.pools, dev.named_pools, dev.place_of(dev.pool)) == ((dev.pool,), (), "")


@pytest.mark.parametrize(
    ("pools", "more", "said"),
    [
        ("{}", "", "at least one pool"),
        ("[small]", "", "environments.dev.pools must be a mapping"),
        ("", "", "a mapping of pools by name"),
        ("{a b: {}}", "", "named with letters"),
        ("{one: {}, One: {}}", "", "unlike one also in lower case"),
        ("{one: {}}", ", pool: {}", "left out beside pool"),
        ("{one: {name: x}}", "", "name"),
        ("{one: {statements: 0}}", "", "a whole number above 0"),
        ("{one: {statements: '3'}}", "", "a whole number above 0, optionally with k, M or G; write it without quotes"),
        ("{one: {statements: 2, capacity: {cores: 2}}}", "", "left out beside capacity"),
        ("{one: {capacity: {cores: 0}}}", "", "a number above 0"),
        ("{one: {capacity: {gpus: 1}}}", "", "gpus"),
        ("{one: {capacity: {memory: 2 GB}}}", "", "a size from 1m"),
        ("{one: {class: 'a b'}}", "", "named with letters"),
        ("{one: {class: ''}}", "", "named with letters"),
        ("{one: {class: 3}}", "", "a string"),
        ("{one: {placement: spread}}", "", "one.placement is not a known key; move it to environments.dev"),
        ("{one: {}}", ", placement: even", "default or spread"),
    ],
)
def test_a_mistake_is_one_problem_with_a_remedy(pools: str, more: str, said: str) -> None:
    _, (problem,) = manifest(pools, more)
    assert said in problem


def test_capacity_and_class_of_a_pool_are_read() -> None:
    found, problems = manifest("{a: {capacity: {statements: 9, cores: 1.5, memory: 8g}, class: fast}, b: {}}")
    assert not problems and found.environments[0].pools[0] == Pool("a", capacity=Amounts(9, 1.5, 8192), of_class="fast")
    assert not found.environments[0].spreads
    assert manifest(POOLS, ", placement: spread")[0].environments[0].spreads
    problems = list[Problem]()
    read_manifest(small_project.HEAD.replace("dev: {}", "dev: {placement: spread}"), problems)
    assert ["left out without pools" in each.summary for each in problems] == [True]


def test_a_statement_declares_a_class_and_what_it_needs() -> None:
    pools = "{a: {}, b: {class: fast}, c: {class: fast}}"
    project, problems = read_project(files("pool: {class: fast}\nresources: {cores: 0.5, memory: 512m}\n", pools))
    assert project is not None and not problems
    dev, settings = project.environments["dev"], project.tables[TableName("b")].settings
    assert (settings.pool, settings.resources) == (PoolClass("fast"), Amounts(cores=0.5, mib=512))
    assert [pool.name for pool in dev.pools_for(settings)] == ["b", "c"] and dev.pool_of(settings).name == "b"
    text = settings_as_text(settings)
    assert "pool: {class: fast}\nresources: {cores: 0.5, memory: 512m}\n" in text
    assert read_settings(text, "", Settings(), []) == settings
    defaults = Settings(resources=Amounts(cores=4))
    assert read_settings(text, "", defaults, []).resources == settings.resources
    assert read_settings(deployed_yml_as_file("owner: lee\n", defaults), "", defaults, []).resources == Amounts()
    assert dev.pools_for(replace(settings, pool="")) == () and dev.pools_for(replace(settings, pool="a")) == ()
    spread = replace(dev, spreads=True)
    assert spread.pools_for(replace(settings, pool="")) == dev.pools and spread.pools_for(settings) == dev.pools[1:]


@pytest.mark.parametrize(
    ("yml", "said"),
    [
        ("pool: {clas: fast}", "pool.clas is not a known key; did you mean class?"),
        ("pool: {class: 3}", 'pool.class must be a string; put it in quotes: class: "3"'),
        ("pool: {class: ''}", "pool.class must be the class of some pools"),
        ("pool: {class: [a]}", "pool.class must be one value"),
        ("pool: {}", "pool.class must be the class of some pools"),
        ("pool: 3", "pool must be a string"),
        ("resources: {cores: lots}", "resources.cores must be a number above 0"),
        ("resources: {cores: '2'}", "resources.cores must be a number above 0, at most 1024; write it without quotes"),
        ("resources: {statements: 3}", "statements"),
    ],
)
def test_a_mistake_of_a_statement_is_one_problem_at_its_line(yml: str, said: str) -> None:
    project, (problem,) = read_project(files(f"owner: lee\n{yml}\n", "{a: {}, b: {class: fast}}"))
    assert project is None and said in f"{problem.summary}; {problem.remedy}"
    assert str(problem.where) == "pipelines/facts/p/b/b.yml:2"


def test_an_empty_name_means_no_pool_even_if_the_defaults_name_one() -> None:
    defaults = Settings(pool="large")
    assert read_settings('pool: ""\n', "", defaults, []).pool == ""
    assert read_settings(deployed_yml_as_file("owner: lee\n", defaults), "", defaults, []).pool == ""
    assert [read_settings(each, "", defaults, []).pool for each in ("pool:\n", "owner: lee\n")] == ["large", "large"]


def test_resources_are_an_edit_that_restarts_nothing() -> None:
    assert ChangeKind.DESCRIPTION.definition.action is Action.RECORD
    edits = _settings_findings(Settings(), Settings(resources=Amounts(cores=1)), external=False)
    assert [kind for kind, _ in edits] == [ChangeKind.DESCRIPTION]


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


@pytest.mark.parametrize(
    "key",
    [
        "fs.s3a.secret.key", "fs.s3a.bucket.a.b.access.key", "fs.s3a.session.token",
        "fs.azure.account.key.lake.dfs.core.windows.net", "fs.azure.account.oauth2.client.secret",
    ],
)  # fmt: skip
def test_a_key_of_a_store_is_a_reference_that_hadoop_resolves_and_never_a_value(key: str) -> None:
    found, problems = manifest(f"{{one: {{conf: {{spark.hadoop.{key}: '${{env:KEY}}'}}}}}}")
    ((conf, *_),) = (pool.conf for environment in found.environments for pool in environment.pools)
    assert not problems and conf == (f"spark.hadoop.{key}", "${env:KEY}")
    assert connector_settings((), dict([conf])) == {f"spark.hadoop.{key}": "${env.KEY}"}
    for value in ("hunter2", "${file:/key}"):
        _, problems = manifest(f"{{one: {{conf: {{spark.hadoop.{key}: '{value}'}}}}}}")
        (problem,) = problems
        assert f"spark.hadoop.{key} must be a reference to a secret; write ${{env:NAME}}" in problem
        assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.encryption.key", "hunter2"),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", "hunter2"),
        ("spark.authenticate.secret", "hunter2"),
        ("spark.ssl.keyStorePassword", "hunter2"),
        ("spark.x.token", "hunter2"),
        ("spark.redis.auth", "hunter2"),
        ("spark.foo.apiKey", "hunter2"),
        ("spark.foo.credentials", "hunter2"),
        ("spark.hadoop.javax.jdo.option.ConnectionPassword", "hunter2"),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "hunter2"),
        ("spark.driver.extraJavaOptions", "-Xss1m -Daws.secretKey=hunter2"),
        ("spark.hadoop.fs.s3a.endpoint", "https://me:hunter2@s3.example"),
    ],
)
def test_a_secret_in_any_setting_is_a_problem_that_does_not_repeat_it(key: str, value: str) -> None:
    _, problems = manifest(f"{{one: {{conf: {{{key}: '{value}'}}}}}}")
    (problem,) = problems
    assert f"{key} must be a reference to a secret" in problem and "hunter2" not in problem
    _, problems = manifest(f"{{one: {{conf: {{{key}: '${{env:NAME}}'}}}}}}")
    assert not problems
    kept = {"spark.authenticate.secret": "${env:A}"}
    assert connector_settings((), kept) == kept


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.example.Provider"),
        ("spark.ssl.keyStore", "/etc/keys"),
        ("spark.hadoop.fs.s3a.endpoint", "https://s3.example:9000/a@b"),
        ("spark.kubernetes.driver.secrets.token", "/etc/token"),
        ("spark.kubernetes.executor.secretKeyRef.DB_PASSWORD", "database:password"),
        ("spark.hadoop.fs.gs.auth.type", "APPLICATION_DEFAULT"),
        ("spark.example.use.token", "true"),
        ("spark.driver.extraJavaOptions", "-Dheadgate.pool=x"),
    ],
)
def test_a_setting_without_a_secret_is_none(key: str, value: str) -> None:
    _, problems = manifest(f"{{one: {{conf: {{{key}: '{value}'}}}}}}")
    assert not problems
