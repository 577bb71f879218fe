"""Two environments that would share a name or folder are refused by the file, with the line of the later one."""

import pytest
import small_project

from core.project.naming import Naming, Sources
from core.project_reader.loader import read_project

HEAD = "project: p\nid: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c\ndefault_env: dev\nenvironments:\n"
ONE = "pool: {url: 'sc://one'}"


def problems(
    *environments: str, more: dict[str, str] | None = None, variables: str = "", read: str | None = None
) -> list[str]:
    head = HEAD + "".join(f"  {each}\n" for each in environments) + "connectors: {kafka: {}}\n"
    head += f"variables:\n{variables}" if variables else ""
    files = small_project.texts() | {"headgate.yml": head} | (more or {})
    return [
        f"{each.where}: {each.summary}"
        for each in read_project(files, environment=read)[1]
        if each.where.path == "headgate.yml"
    ]  # type: ignore[union-attr]  # All have a place.


def environment(name: str, rest: str, pool: str = ONE) -> str:
    return f"{name}: {{data: /{name}, {pool}, {rest}}}"


@pytest.mark.parametrize(
    ("dev", "stage", "expected"),
    [
        ("naming: {prefix: dev_}", "naming: {suffix: _stage}", ""),
        ("naming: {database: dev}", "naming: {database: stage}", ""),
        ("protected: false", "naming: {catalog: spark_catalog, database: default}", "a, b, c and 1 more"),
        ("naming: {prefix: x_}", "naming: {prefix: x_}", "x_a, x_b, x_c and 1 more"),
        ("naming: {prefix: x_}", "naming: {prefix: x_, database: stage}", ""),
    ],
)
def test_names_that_meet_on_one_server_are_refused(dev: str, stage: str, expected: str) -> None:
    found = problems(environment("dev", dev), environment("stage", stage))
    words = f"headgate.yml:6: dev and stage would create the same names on one:15002: {expected}"
    assert found == ([words] if expected else [])


def test_a_prefix_and_a_table_that_make_the_name_of_another_are_refused_with_both() -> None:
    table = "pipelines/facts/p/{0}/sql-scripts/ddl.{0}.sql"
    more = {
        table.format(name): f"CREATE TABLE {name} (id INT) USING parquet LOCATION '{name}';" for name in ("b_t", "t")
    }
    found = problems(
        environment("dev", "naming: {prefix: a_}"), environment("stage", "naming: {prefix: a_b_}"), more=more
    )
    both = "a_b_t (b_t of dev, t of stage)"
    assert found == [f"headgate.yml:6: dev and stage would create the same names on one:15002: {both}"]


def test_servers_of_their_own_have_names_of_their_own() -> None:
    assert problems("dev: {data: /dev}", "stage: {data: /stage}") == []
    other = environment("stage", "protected: false", "pool: {url: 'sc://ONE:15002/;x=y'}")
    assert len(problems(environment("dev", "protected: false"), other)) == 1
    assert problems(environment("dev", "protected: false"), other.replace("15002", "15003")) == []


@pytest.mark.parametrize(
    ("dev", "stage", "expected"),
    [
        ("data", "./data/", "dev and stage have one data folder, data"),
        ("/srv", "/srv/stage", "the data folder /srv/stage of stage is inside /srv, that of dev"),
        ("a/b", "a", "the data folder a/b of dev is inside a, that of stage"),
        ("..", "data", "the data folder data of stage is inside .., that of dev"),
        ("../x", "../..", "the data folder ../x of dev is inside ../.., that of stage"),
        ("/", "data", "the data folder data of stage is inside /, that of dev"),
        ("//srv", "/srv/x", "the data folder /srv/x of stage is inside //srv, that of dev"),
        ("../x", "../x/../x", "dev and stage have one data folder, ../x"),
        ("hdfs://n:1/a", "hdfs://n:1/a/", "dev and stage have one data folder, hdfs://n:1/a"),
        (
            "hdfs://n:1/a",
            "hdfs://n:1/a/b",
            "the data folder hdfs://n:1/a/b of stage is inside hdfs://n:1/a, that of dev",
        ),
        ("/srv/a", "/srv/ab", ""),
        ("../x", "data", ""),
        ("x", "/abs/x", ""),
    ],
)
def test_equal_and_nested_data_folders_are_refused(dev: str, stage: str, expected: str) -> None:
    found = problems(f"dev: {{data: {dev}}}", f"stage: {{data: {stage}}}")
    assert found == ([f"headgate.yml:6: {expected}"] if expected else [])


def test_a_topic_and_a_consumer_group_belong_to_one_environment() -> None:
    options = "'kafka.bootstrap.servers'='h:9092'"
    more = {
        "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": "CREATE TABLE landed (id BIGINT, kind STRING) "
        f"USING kafka OPTIONS ({options}, subscribe='in');",
        "pipelines/facts/p/a/sql-scripts/ddl.a.sql": "CREATE TABLE a (id BIGINT, kind STRING) "
        f"USING kafka OPTIONS ({options}, topic='out');",
        "pipelines/facts/p/a/a.yml": "key: [id]\nmirror_offsets: readers\n",
    }
    found = problems("dev: {data: /dev}", "stage: {data: /stage}", more=more)
    assert found == [
        "headgate.yml:6: dev and stage would commit offsets to the same consumer groups: readers",
        "headgate.yml:6: dev and stage would write the same topics: out",
    ]
    assert problems("dev: {data: /dev}", "stage: {data: /stage, naming: {suffix: _s}}", more=more) == []


BROKERS = "CREATE TABLE {0} (id BIGINT, kind STRING) USING kafka OPTIONS ('kafka.bootstrap.servers'='{1}', {2});"


def on_topics(written: str, servers: str = "h:9092", **more: str) -> dict[str, str]:
    """Return files in which `a` reads topic `in` and writes `written`; `more` replaces the yml and DML of `a`."""
    folder = "pipelines/facts/p/a"
    return {
        "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": BROKERS.format("landed", servers, "subscribe='in'"),
        f"{folder}/sql-scripts/ddl.a.sql": BROKERS.format("a", servers, f"topic='{written}'"),
        f"{folder}/sql-scripts/dml.a.sql": f"INSERT INTO a SELECT id, kind FROM STREAM landed{more.get('where', '')};",
        f"{folder}/a.yml": f"key: [id]\n{more.get('yml', '')}",
    }


TWO = ("dev: {{data: /dev, variables: {{{0}}}}}", "stage: {{data: /stage, variables: {{{1}}}}}")
TOPIC = "headgate.yml:6: dev and stage would write the same topics: "
GROUP = "headgate.yml:6: dev and stage would commit offsets to the same consumer groups: "


@pytest.mark.parametrize(
    ("files", "values", "expected"),
    [
        (on_topics("out", where=" WHERE id > ${n}"), ("n: 1", "n: 2"), [f"{TOPIC}out"]),
        (on_topics("${t}", where=" WHERE id > ${n}"), ("t: out, n: 1", "t: out, n: 2"), [f"{TOPIC}out"]),
        (on_topics("${t}_t"), ("t: dev", "t: stage"), []),
        (on_topics("out", "${s}"), ("s: 'h:9092'", "s: 'H:9092'"), [f"{TOPIC}out"]),
        (on_topics("out", "${s}"), ("s: 'k:1,h:2'", "s: 'h:2,l:3'"), [f"{TOPIC}out"]),
        (on_topics("out", "${s}"), ("s: 'k:1,h:2'", "s: 'h:3,l:1'"), []),
        (
            on_topics("${t}", yml="mirror_offsets: g\n", where=" WHERE id > ${n}"),
            ("t: x, n: 1", "t: y, n: 2"), [f"{GROUP}g"],
        ),
        (on_topics("${t}", yml="mirror_offsets: ${g}\n"), ("t: x, g: one", "t: y, g: two"), []),
        (on_topics("${t}", yml="mirror_offsets: g${g}\n"), ("t: x, g: g", "t: y, g: g"), [f"{GROUP}gg"]),
        (
            on_topics("${t}", "${s}", yml="mirror_offsets: g\n"),
            ("t: x, s: 'k:1,h:2'", "t: y, s: 'H:2,l:3'"), [f"{GROUP}g"],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("read", ["dev", "stage"])
def test_topics_and_groups_have_the_values_of_each_environment(
    files: dict[str, str], values: tuple[str, str], expected: list[str], read: str
) -> None:
    types = {"n": "int"}
    names = {name for name in "ntsg" if f"${{{name}}}" in "".join(files.values())}
    declared = "".join(f"  {name}: {{type: {types.get(name, 'string')}}}\n" for name in sorted(names))
    environments = [each.format(*values) for each in TWO]
    assert problems(*environments, more=files, variables=declared, read=read) == expected


def test_topics_by_names_of_one_environment_and_values_of_another_meet() -> None:
    environments = [
        "dev: {data: /dev, naming: {prefix: a_}, variables: {t: b}}",
        "stage: {data: /stage, variables: {t: a_b}}",
    ]
    assert problems(*environments, more=on_topics("${t}"), variables="  t: {}\n") == [f"{TOPIC}a_b"]


def test_a_shared_location_is_relative_only_with_the_values_of_its_environment() -> None:
    ddl = {
        "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": "CREATE TABLE landed (id BIGINT, kind STRING) "
        "USING json LOCATION '${root}landed';"
    }
    stage = "stage: {data: /stage, sources: shared, naming: {suffix: _s}, variables: {root: %s}}"
    for at, expected in (("/srv/", []), ("srv/", ["landed"])):
        found = problems(stage % at, "dev: {variables: {root: ''}}", more=ddl, variables="  root: {}\n")
        words = "headgate.yml:5: stage would not share external tables that have a relative LOCATION: "
        assert found == [f"{words}{each}" for each in expected]


@pytest.mark.parametrize("name", ["own", "shared"])
def test_no_environment_has_the_name_of_a_value_of_sources(name: str) -> None:
    words = f"headgate.yml:6: environments.{name} must be named otherwise than own and shared"
    (found,) = problems("dev: {data: /dev}", f"{name}: {{data: /stage}}")
    assert found.startswith(words)


def test_sources_are_shared_only_as_declared() -> None:
    dev, stage = environment("dev", "naming: {prefix: d_}"), "naming: {prefix: s_}, sources: "
    files = small_project.texts() | {"headgate.yml": HEAD + f"  {dev}\n  {environment('stage', stage + 'dev')}\n"}
    project, found = read_project(files)
    assert project is not None and not found
    assert project.environments["stage"].sources == Sources(Naming("d_"), "/dev", "dev")
    relative = problems(dev, environment("stage", stage + "shared"))
    assert relative == ["headgate.yml:6: stage would not share external tables that have a relative LOCATION: landed"]
    unknown = problems(dev, environment("stage", stage + "deb"))
    assert unknown == ["headgate.yml:6: environments.stage.sources must be own, shared or another environment, not deb"]


def test_the_sources_of_sources_are_followed() -> None:
    def sources(*environments: str) -> dict[str, Sources]:
        files = small_project.texts() | {"headgate.yml": HEAD + "".join(f"  {each}\n" for each in environments)}
        path = "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
        files[path] = files[path].replace("'landing'", "'/landing'")
        project, found = read_project(files)
        assert project is not None, found
        return {name: each.sources for name, each in project.environments.items()}

    dev = "dev: {data: /dev, naming: {prefix: d_}%s}"
    stage = "stage: {data: /stage, naming: {prefix: s_}, sources: dev}"
    third = "third: {data: /third, naming: {prefix: t_}, sources: stage}"
    found = sources(dev % ", sources: shared", stage, third)
    assert found["stage"] == Sources(Naming(), "/dev", "dev")
    assert found["third"] == Sources(Naming(), "/dev", "stage")
    assert sources(dev % "", stage, third)["third"] == Sources(Naming("d_"), "/dev", "stage")
    words = "headgate.yml:5: environments read the external tables of each other: dev → stage → dev"
    assert problems(dev % ", sources: stage", stage, third) == [words]


def test_names_of_external_tables_that_two_environments_share_with_others_meet() -> None:
    ddl = "CREATE TABLE {0} (id BIGINT, kind STRING) USING json LOCATION '/srv/{0}';"
    path = "pipelines/sources/p/{0}/sql-scripts/ddl.{0}.sql"
    more = {path.format(name): ddl.format(name) for name in ("landed", "a_landed")}
    dev = environment("dev", "naming: {prefix: d_}, sources: shared")
    stage = environment("stage", "naming: {prefix: s_}, sources: third")
    third = environment("third", "naming: {prefix: a_}", "pool: {url: 'sc://two'}")
    both = "a_landed (a_landed of dev, landed of stage)"
    words = f"headgate.yml:6: dev and stage would create the same names on one:15002: {both}"
    assert problems(dev, stage, third, more=more) == [words]


@pytest.mark.parametrize(
    ("values", "sources", "expected"),
    [(("eu", "us"), "dev", ["d_landed"]), (("eu", "us"), "own", []), (("eu", "eu"), "dev", [])],
)
def test_a_shared_external_table_has_one_location(values: tuple[str, str], sources: str, expected: list[str]) -> None:
    ddl = {
        "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql": "CREATE TABLE landed (id BIGINT, kind STRING) "
        "USING json LOCATION '/landing/${r}';"
    }
    dev = environment("dev", f"naming: {{prefix: d_}}, variables: {{r: {values[0]}}}")
    stage = environment("stage", f"naming: {{prefix: s_}}, sources: {sources}, variables: {{r: {values[1]}}}")
    found = problems(dev, stage, more=ddl, variables="  r: {}\n")
    words = "headgate.yml:6: dev and stage share external tables that have different LOCATIONs: "
    assert found == [f"{words}{each}" for each in expected]
    assert problems(dev, stage.replace(ONE, "pool: {}"), more=ddl, variables="  r: {}\n") == []


def test_names_of_environments_differ_in_lower_case() -> None:
    found = problems("dev: {data: /dev}", "DEV: {data: /stage, protected: true}")
    assert found == ["headgate.yml:6: environments.DEV must be unlike dev also in lower case"]


def test_a_naming_makes_no_name_of_inherited_rows() -> None:
    (found,) = problems("dev: {naming: {suffix: __v1_before}}")
    assert found.startswith("headgate.yml:5: the naming of dev makes names of versions from names of tables: a__v1_bef")


def test_a_shared_external_table_has_the_name_of_no_other_table() -> None:
    ddl = "CREATE TABLE {0} (id BIGINT, kind STRING) USING json LOCATION '/srv/{0}';"
    path = "pipelines/sources/p/{0}/sql-scripts/ddl.{0}.sql"
    more = {path.format(name): ddl.format(name) for name in ("landed", "nded")}
    stage = environment("stage", "naming: {prefix: s_}, sources: shared")
    found = problems(environment("dev", "naming: {prefix: la}"), stage, more=more)
    both = "landed (nded of dev, landed of stage)"
    assert found == [f"headgate.yml:6: dev and stage would create the same names on one:15002: {both}"]
    elsewhere = environment("dev", "naming: {prefix: la, database: dev}")
    assert problems(elsewhere, stage, more=more) == []
    alone = problems(
        "dev: {naming: {prefix: lan}, sources: shared}",
        more=more
        | {
            "pipelines/facts/p/ded/sql-scripts/ddl.ded.sql": "CREATE TABLE ded (id BIGINT) USING parquet;",
            "pipelines/facts/p/ded/sql-scripts/dml.ded.sql": "INSERT INTO ded SELECT id FROM STREAM landed;",
        },
    )
    assert alone == ["headgate.yml:5: in dev, the external table landed and the table ded would both be landed"]


def test_a_suffix_makes_no_name_of_a_version() -> None:
    more = {"pipelines/facts/p/t__/sql-scripts/ddl.t__.sql": "CREATE TABLE t__ (id INT) USING parquet LOCATION 't';"}
    (found,) = problems("dev: {naming: {suffix: v2}}", more=more)
    assert found == "headgate.yml:5: the naming of dev makes names of versions from names of tables: t__v2"
