"""Loading a project: every mistake is a Problem with its position and a remedy, and all are reported at once."""

import re
from collections.abc import Mapping

import pytest

from core.model.names import TableName as T
from core.model.problems import Problem, Severity
from core.model.secret_references import SecretKind, SecretReference
from core.observed.planner_input import ObservedDeployment
from core.project.model import Environment, Layer, Pool, Project, Settings
from core.project.naming import Naming
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project, read_settings, settings_as_text
from tests.support.domain_builders import actions, plan

A_TOKEN = SecretReference(SecretKind.VARIABLE, "A")
MANIFEST = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
environments:
  dev: {}
"""


def ddl(name: str, columns: str = "id BIGINT", rest: str = "USING parquet") -> str:
    return f"CREATE TABLE {name} ({columns}) {rest};\n"


def texts(*extra: tuple[str, str], **tables: str) -> dict[str, str]:
    """Return the texts of tables: "" makes an external JSON table, `SELECT …` becomes the table's statement."""
    found = {"headgate.yml": MANIFEST}
    for name, select in tables.items():
        layer = "facts" if select else "sources"
        place = f"pipelines/{layer}/p/{name}/sql-scripts"
        external = f"USING json LOCATION 'landing/{name}'"
        found[f"{place}/ddl.{name}.sql"] = ddl(name) if select else ddl(name, rest=external)
        if select:
            found[f"{place}/dml.{name}.sql"] = f"INSERT INTO {name}\n{select};\n"
    found.update(extra)
    return found


def problems(found: Mapping[str, str]) -> list[str]:
    """Return Problems as `place: summary`."""
    return [f"{p.where}: {p.summary}" for p in read_project(found)[1]]


def errors(found: Mapping[str, str]) -> tuple[Problem, ...]:
    project, every = read_project(found)
    assert (project is None) == any(p.severity is Severity.ERROR for p in every)
    assert all(p.remedy and p.where for p in every)
    return every


def good(found: Mapping[str, str]) -> Project:
    project, every = read_project(found)
    assert project is not None, every
    return project


SRC_A = "pipelines/facts/p/a/sql-scripts"


def test_a_project_is_read_with_tables_products_layers_and_units() -> None:
    project = good(texts(src="", a="SELECT id FROM STREAM src"))
    assert (project.name, project.default_env) == ("shop", "dev")
    assert project.environments == {"dev": Environment("dev")}
    assert list(project.tables) == ["a", "src"]
    table = project.tables[T("a")]
    assert (table.product, table.layer, table.unit, table.external) == ("p", Layer.FACT, "a", False)
    assert project.tables[T("src")].external and project.tables[T("src")].layer is Layer.SOURCE


def test_the_order_of_files_does_not_matter() -> None:
    found = texts(src="", a="SELECT id FROM STREAM src", b="SELECT id FROM STREAM nothing", c="SELECT id FROM STREAM b")
    backwards = dict(reversed(found.items()))
    assert read_project(found) == read_project(backwards)


def test_a_table_without_product_folder_has_an_empty_product() -> None:
    found = {
        "headgate.yml": MANIFEST,
        "pipelines/sources/src/sql-scripts/ddl.src.sql": ddl("src", rest="USING json LOCATION 'x'"),
    }
    assert good(found).tables[T("src")].product == ""


def test_several_inserts_in_one_file_are_one_unit() -> None:
    place = "pipelines/facts/p/router/sql-scripts"
    found = texts(
        (f"{place}/ddl.x.sql", ddl("x")),
        (f"{place}/ddl.y.sql", ddl("y")),
        (
            f"{place}/dml.router.sql",
            "INSERT INTO x SELECT id FROM STREAM src;\nINSERT INTO y SELECT id FROM STREAM src;\n",
        ),
        ("pipelines/facts/p/router/router.yml", "trigger: 3 seconds\n"),
        ("pipelines/facts/p/router/y.yml", "trigger: 4 seconds\n"),
        src="",
    )
    project = good(found)
    assert {project.tables[T(name)].unit for name in "xy"} == {"router"}
    assert project.tables[T("x")].settings.trigger == "3 seconds"
    assert project.tables[T("y")].settings.trigger == "4 seconds"


def test_all_problems_come_at_once_with_file_and_line() -> None:
    found = texts(
        (f"{SRC_A}/../a.yml".replace("sql-scripts/../", ""), "owner: me\ntriger: 5 seconds\n"),
        src="",
        a="SELECT id\nFROM STREAM sorc",
        b="SELECT id FROM STREAM a",
        c="SELECT id FROM STREAM d",
        d="SELECT id FROM STREAM c",
    )
    assert problems(found) == [
        "pipelines/facts/p/a/a.yml:2: triger is not a known key",
        "pipelines/facts/p/a/sql-scripts/dml.a.sql:3: a reads sorc, which no DDL declares",
        "pipelines/facts/p/c/sql-scripts/dml.c.sql:1: these tables form a cycle: c → d → c",
    ]
    remedies = {p.subject: p.remedy for p in errors(found)}
    assert (
        remedies["triger"] == "did you mean trigger?"
        and remedies["sorc"] == "did you mean src? If not, declare it: headgate init table sorc"
    )


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (MANIFEST.replace("12345678-1234", "nonsense"), "headgate.yml:2: id must be a UUID"),
        (MANIFEST.replace("default_env: dev", "default_env: deb"),
         "headgate.yml:3: default_env deb is not an environment"),
        (MANIFEST.replace("default_env: dev\n", ""), "headgate.yml:1: default_env must be the name of an environment"),
        (MANIFEST.replace("dev: {}", "dev: {protected: true}"), "headgate.yml:3: default_env dev is protected"),
        (MANIFEST.replace("dev: {}", "dev: {protectd: true}"),
         "headgate.yml:5: environments.dev.protectd is not a known key"),
        (MANIFEST.replace("dev: {}", "dev: {protected: maybe}"),
         "headgate.yml:5: environments.dev.protected must be true or false"),
        (MANIFEST.replace("dev: {}", "dev: {pool: {cores: 0}}"),
         "headgate.yml:5: environments.dev.pool.cores must be a number above 0, at most 1024"),
        *((MANIFEST.replace("dev: {}", f"dev: {{policy: {{{key}: {value}}}}}"),
           f"headgate.yml:5: environments.dev.policy.{key} must be a number above 0, at most {most}")
          for key, most in (("plan_expires_h", 8760), ("drop_after_d", 3650), ("gate_ends_h", 8760))
          for value in ("-1", "0", ".nan", ".inf", "1e300", "99999", "'7'", "true", "soon")),
        *((MANIFEST.replace("dev: {}", f"dev: {{pool: {{memory: {size}}}}}"),
           "headgate.yml:5: environments.dev.pool.memory must be a size from 512m to 4096g")
          for size in ("1m", "511m", "99999999g", "-2g", "2gb")),
        (MANIFEST.replace("dev: {}", "dev: {pool: {cores: 1.5}}"),
         "headgate.yml:5: environments.dev.pool.cores must be a whole number"),
        (MANIFEST + "defaults: {trigger: 99999999 hours}\n", "headgate.yml:6: defaults.trigger must be an interval"),
        (MANIFEST + "? [a, b]\n: c\n", "headgate.yml:6:3: this file has a list or a mapping as a key"),
        (MANIFEST.replace("dev: {}", "? {a: b}\n  : c"),
         "headgate.yml:5:5: environments has a list or a mapping as a key"),
        (MANIFEST.replace("dev: {}", "dev: {prefix: dev_}"),
         "headgate.yml:5: environments.dev.prefix is now environments.dev.naming.prefix"),
        (MANIFEST.replace("dev: {}", "dev: {naming: {suffix: A}}"),
         "headgate.yml:5: environments.dev.naming.suffix must be lower-case letters, digits and _"),
        (MANIFEST.replace("dev: {}", "dev: {pool: {url: http://x}}"),
         "headgate.yml:5: environments.dev.pool.url must be a Spark Connect address"),
        *((MANIFEST.replace("dev: {}", f"dev: {{pool: {{{pool}}}}}"),
           f"headgate.yml:5: environments.dev.pool.{expected}")
          for pool, expected in (
              ("url: 'sc://h', master: 'spark://h:1'", "master must be left out beside url"),
              *((f"master: '{master}'", "master must be the address of a standalone cluster's master")
                for master in ("h:7077", "spark://h", "spark://h:0", "spark://h:1,g:1", "spark://u@h:1", "yarn",
                               "local[2]", "k8s://https://h:1")),
              ("master_ui: 'http://h:1'", "master_ui must be left out without master or url"),
              ("yarn_ui: 'http://h:1'", "yarn_ui must be left out without url"),
              ("url: 'sc://h', yarn_ui: 'h:1'", "yarn_ui must be the URL of the ResourceManager's web interface"),
              ("url: 'sc://h', yarn_ui: 'http://h:1', master_ui: 'http://h:2'",
               "yarn_ui must be left out beside master_ui"),
              ("master: 'spark://h:1', master_ui: 'h:1'", "master_ui must be the URL of the master's web interface"),
          )),
        (MANIFEST.replace("dev: {}", "dev: [1]"), "headgate.yml:5: environments.dev must be a mapping"),
        (MANIFEST + "defaults: {trigger: soon}\n", "headgate.yml:6: defaults.trigger must be an interval"),
        (MANIFEST + "project: two\n", "headgate.yml:6: project appears twice"),
        (MANIFEST + "defaults: {owner: a, owner: b}\n", "headgate.yml:6: owner appears twice on line 6"),
        (MANIFEST + "x: [\n",
         "headgate.yml:7:1: this file is not valid YAML: did not find expected node content"),
        ("- a\n", "headgate.yml:1: this file must be a mapping of keys to values"),
    ],
)  # fmt: skip
def test_an_invalid_manifest_is_reported_with_its_line(manifest: str, expected: str) -> None:
    found = errors({"headgate.yml": manifest})
    assert expected in [f"{p.where}: {p.summary}" for p in found]


def test_a_folder_without_headgate_yml_is_not_a_project() -> None:
    assert problems({}) == ["headgate.yml: there is no headgate.yml"]


def test_a_manifest_with_everything_is_read() -> None:
    manifest = (
        MANIFEST.replace(
            "dev: {}",
            """dev:
    data: /srv/data
    naming: {prefix: dev_}
    pool: {name: big, url: "sc://host:1", cores: 8, memory: 16g, conf: {spark.x: 1, spark.a: true}}
    policy: {plan_expires_h: 1.5, drop_after_d: 3, gate_ends_h: 48}
  prod: {protected: true}""",
        )
        + "defaults: {trigger: 5 seconds, owner: me}\n"
    )
    project = good({"headgate.yml": manifest})
    pool = Pool("big", "sc://host:1", 8, "16g", (("spark.a", "true"), ("spark.x", "1")))
    assert project.environments == {
        "dev": Environment("dev", False, "/srv/data", Naming("dev_"), pool, 1.5, 3.0, 48.0),
        "prod": Environment("prod", protected=True),
    }
    assert project.defaults == Settings(trigger="5 seconds", owner="me")


@pytest.mark.parametrize(
    ("master", "remedy"),
    [
        ("local[4]", "remove it: without master, the agent starts a local server with that many cores"),
        ("yarn", "start a Connect server there, and write its address: url: sc://host:15002"),
        ("spark://a:7077,b:7077", "write one of the masters: master: spark://a:7077"),
        ("a:7077", "write master: spark://host:7077, as the master's web interface shows it"),
    ],
)
def test_the_remedy_for_another_master_says_what_to_write(master: str, remedy: str) -> None:
    [found] = errors({"headgate.yml": MANIFEST.replace("dev: {}", f"dev: {{pool: {{master: '{master}'}}}}")})
    assert found.remedy == remedy


def test_a_pool_on_a_cluster_is_read() -> None:
    declared = "dev: {pool: {master: 'spark://h-1.x:7077', cores: 4, memory: 1g}}"
    pool = good({"headgate.yml": MANIFEST.replace("dev: {}", declared)}).environments["dev"].pool
    assert pool == Pool("cluster", None, 4, "1g", master="spark://h-1.x:7077")
    assert (pool.address, pool.master_page) == ("spark://h-1.x:7077", "http://h-1.x:8080")
    other = "dev: {pool: {name: big, master: 'spark://[::1]:7077', master_ui: 'https://h:18080/'}}"
    pool = good({"headgate.yml": MANIFEST.replace("dev: {}", other)}).environments["dev"].pool
    assert (pool.name, pool.master, pool.master_page) == ("big", "spark://[::1]:7077", "https://h:18080")


def test_a_server_of_others_can_declare_the_manager_of_its_cluster() -> None:
    declared = (
        "dev: {pools: {a: {url: 'sc://a', master_ui: 'http://m:8080/'}, b: {url: 'sc://b', yarn_ui: 'http://r:8088'}}}"
    )
    a, b = good({"headgate.yml": MANIFEST.replace("dev: {}", declared)}).environments["dev"].pools
    assert (a.master, a.master_page, a.yarn_ui) == (None, "http://m:8080", "")
    assert (b.master_page, b.yarn_ui) == ("", "http://r:8088")


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ("{url: 'sc://a:1', tls: true, token: '${env:A}'}", Pool(url="sc://a:1", token=A_TOKEN, tls=True)),
        (
            "{url: 'sc://a:1', ca: /a.pem, token: '${env:A}'}",
            Pool(url="sc://a:1", token=A_TOKEN, tls=True, ca="/a.pem"),
        ),
        ("{url: 'sc://a:1', tls: false, token: '${env:A}'}", Pool(url="sc://a:1", token=A_TOKEN)),
        ("{url: 'sc://localhost:1', token: '${env:A}'}", Pool(url="sc://localhost:1", token=A_TOKEN)),
        ("{url: 'sc://a:1/;x-tenant=t'}", Pool(url="sc://a:1/;x-tenant=t")),
        ("{url: 'sc://a:1', token: '${env:A}'}", "token must be encrypted on its way to another machine"),
        ("{url: 'sc://a:1', tls: true, token: s3cret}", "token must be a reference to a secret"),
        ("{url: 'sc://a:1', tls: true, token: 12345}", "token must be a reference to a secret"),
        ("{url: 'sc://a:1', tls: true, token: [s3cret]}", "token must be a reference to a secret"),
        ("{url: 'sc://a:1', tls: true, token: }", "token must be a reference to a secret"),
        ("{url: 'sc://a:1', tls: false, ca: /a.pem}", "tls must be true beside ca"),
        ("{url: 'sc://a:1', ca: a.pem}", "ca must be an absolute path"),
        ("{tls: true}", "tls must be left out without url"),
        ("{url: 'sc://a:1', ui: 'https://a:4040'}", Pool(url="sc://a:1", ui="https://a:4040")),
        ("{url: 'sc://a:1', ui: 'http://rm:8088/proxy/a_1'}", Pool(url="sc://a:1", ui="http://rm:8088/proxy/a_1")),
        ("{url: 'sc://a:1', ui: 'a:4040'}", "ui must be the URL of Spark's web interface"),
        ("{url: 'sc://a:1', ui: 'https://u:s3cret@a:4040'}", "ui must be the URL of Spark's web interface"),
        ("{ui: 'http://a:4040'}", "ui must be left out without url"),
        ("{url: 'sc://a:1/;token=s3cret'}", "url must be an address without token"),
        ("{url: 'sc://a:1/;Authorization=Bearer s3cret'}", "url must be an address without authorization"),
        ("{url: 'sc://a:1/;use_ssl=true'}", "url must be an address without use_ssl"),
    ],
)
def test_a_pool_of_others_is_reached_with_a_token_that_is_elsewhere(pool: str, expected: Pool | str) -> None:
    found = {"headgate.yml": MANIFEST.replace("dev: {}", f"dev:\n    pool: {pool}")}
    if isinstance(expected, Pool):
        assert good(found).environments["dev"].pool == expected
    else:
        assert problems(found) == [f"headgate.yml:6: environments.dev.pool.{expected}"]
        assert not any(re.search("s3cret|12345", f"{each.summary}{each.remedy}") for each in errors(found))


@pytest.mark.parametrize(
    ("yml", "expected"),
    [
        ("mode: merge\n", "a.yml:1: mode must be append or upsert, not merge"),
        ("\nowner: [x]\n", "a.yml:2: owner must be one value"),
        ("owner: 3\n", "a.yml:1: owner must be a string"),
        ("tags: {a: b}\n", "a.yml:1: tags must be a list of strings"),
        ("reads: both\n", "a.yml:1: reads must be stream, batch, changes or rows"),
        ("trigger: 10\n", "a.yml:1: trigger must be a string"),
        ("trigger: 10 fortnights\n", "a.yml:1: trigger must be an interval"),
        ("readers: {bi: me}\n", "a.yml:1: readers must be a list of strings"),
        ("readers: [bi (me]\n", "a.yml:1: readers must be a list of names with their owners"),
        ("readers: ['']\n", "a.yml:1: readers must be a list of names with their owners"),
        ("readers: [bi (me), bi (you)]\n", "a.yml:1: readers must be a list that names bi once"),
    ],
)
def test_an_invalid_setting_is_reported_with_its_line(yml: str, expected: str) -> None:
    found = texts(("pipelines/facts/p/a/a.yml", yml), src="", a="SELECT id FROM STREAM src")
    assert problems(found) == [f"pipelines/facts/p/a/{expected}"]


def test_readers_outside_are_declared_where_the_table_is() -> None:
    yml = "readers: [finance  report (bi team), audit]\n"
    found = texts(("pipelines/facts/p/a/a.yml", yml), src="", a="SELECT id FROM STREAM src")
    settings = good(found).tables[T("a")].settings
    assert settings.readers == ("audit", "finance report (bi team)")
    assert settings.outside_readers == (("audit", ""), ("finance report", "bi team"))
    found["headgate.yml"] += "defaults: {readers: [audit]}\n"
    assert problems(found) == ["headgate.yml:6: defaults.readers must be in the yml of the table that they read"]


def test_a_project_or_a_table_can_read_every_table_as_a_stream() -> None:
    found = texts(src="", a="SELECT id FROM src") | {"headgate.yml": MANIFEST + "defaults: {reads: stream}\n"}
    facts = good(found).tables[T("a")].parsed
    assert facts is not None and [(read.streaming, read.implied) for read in facts.reads] == [(True, True)]
    own = {"pipelines/facts/p/a/a.yml": "reads: batch\n"}
    assert problems(found | own) == ["pipelines/facts/p/a/sql-scripts/dml.a.sql:1:1: the statement reads no stream"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("id", "the watermark is on id, which is bigint, not a timestamp"),
        ("tz", "the watermark is on tz, a column that src does not have"),
        ("to_timestamp(id) AS t", ""),
        ("ts", ""),
    ],
)
def test_a_watermark_requires_a_time_column(column: str, expected: str) -> None:
    select = f"SELECT id FROM STREAM src WATERMARK {column} DELAY OF INTERVAL 1 DAY"
    source = {
        "pipelines/sources/p/src/sql-scripts/ddl.src.sql": ddl(
            "src", "id BIGINT, ts TIMESTAMP", "USING json LOCATION 'l'"
        )
    }
    place = "pipelines/facts/p/a/sql-scripts/dml.a.sql:2: "
    assert problems(texts(src="", a=select) | source) == ([f"{place}{expected}"] if expected else [])


def test_a_key_of_a_later_version_is_a_warning_and_the_project_is_read() -> None:
    found = texts(("pipelines/facts/p/a/a.yml", "contract: []\n"), src="", a="SELECT id FROM STREAM src")
    project, every = read_project(found)
    assert project is not None and [p.severity for p in every] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ((f"{SRC_A}/dml.a.sql", "INSERT INTO a SELECT id FROM STREAM src; INSERT INTO a SELECT id FROM STREAM src"),
         f"{SRC_A}/dml.a.sql:1: a has two writers"),
        ((f"{SRC_A}/dml.a.sql", "INSERT INTO b SELECT id FROM STREAM src"), f"{SRC_A}/dml.a.sql:1: b has no DDL"),
        ((f"{SRC_A}/dml.a.sql", "INSERT INTO a SELECT id FROM STREAM a"),
         f"{SRC_A}/dml.a.sql:1: these tables form a cycle: a → a"),
        ((f"{SRC_A}/dml.a.sql", "INSERT INTO a SELECT id, 1 AS x FROM STREAM src"),
         f"{SRC_A}/dml.a.sql:1: a has 1 column and its statement writes 2"),
        ((f"{SRC_A}/dml.a.sql", "INSERT INTO a SELECT id AS key FROM STREAM src"),
         f"{SRC_A}/dml.a.sql:1: a has no column key, which its statement writes"),
        ((f"{SRC_A}/dml.a.sql", "INSERT INTO a\nSELECT *, id + 1 AS nxt FROM STREAM src"),
         f"{SRC_A}/dml.a.sql:1: a has no column nxt, which its statement writes"),
        ((f"{SRC_A}/dml.a.sql", "INSERT INTO a\nSELECT\n  idd\nFROM STREAM src"),
         f"{SRC_A}/dml.a.sql:3: a reads idd, a column that src does not have"),
        ((f"{SRC_A}/ddl.a.sql", ddl("a", rest="USING parquet LOCATION 'x'")),
         f"{SRC_A}/ddl.a.sql:1: a is written by a statement and has a LOCATION"),
        ((f"{SRC_A}/ddl.a.sql", ddl("a", rest="USING json")),
         f"{SRC_A}/ddl.a.sql:1: a is json, which this version cannot write"),
        ((f"{SRC_A}/ddl.a.sql", ddl("b")), f"{SRC_A}/ddl.a.sql:1: ddl.a.sql declares b"),
        (("pipelines/facts/q/a/sql-scripts/ddl.a.sql", ddl("a")),
         "pipelines/facts/q/a/sql-scripts/ddl.a.sql: a is declared twice"),
        (("pipelines/fakts/q/b/sql-scripts/ddl.b.sql", ddl("b")),
         "pipelines/fakts/q/b/sql-scripts/ddl.b.sql: fakts is not a layer"),
        (("pipelines/facts/q/b/sql-scripts/ddl.b__v1.sql", ddl("b")),
         "pipelines/facts/q/b/sql-scripts/ddl.b__v1.sql: 'b__v1' is not a table name"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: e has no statement and no LOCATION"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e", rest="USING avro")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: e is avro, which this version cannot read"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e", rest="USING delta LOCATION '/lake/e'")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: e is delta, and headgate.yml names no connector delta"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e", rest="USING json LOCATION 's3a://KEY:hunter2@b/e'")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: e has a password in its LOCATION"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e", rest="USING delta")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: e has no statement and no LOCATION"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e", rest="USING delta LOCATION 'ftp://lake/e'")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: "
         "e lies at ftp://lake/e, and the log of a table is read from the local file system, HDFS, S3, "
         "Google Cloud Storage, Azure Data Lake Storage only"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e", rest="USING delta LOCATION '/lake/a%20b'")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: "
         "e lies at /lake/a%20b, and %20 is a letter to Spark's catalog and three to Delta"),
        (("pipelines/sources/p/e/sql-scripts/ddl.e.sql", ddl("e", rest="USING delta LOCATION 'file:/lake/a%20b'")),
         "pipelines/sources/p/e/sql-scripts/ddl.e.sql:1: "
         "e lies at file:/lake/a%20b, and %20 is a letter to Spark's catalog and three to Delta"),
        (("pipelines/facts/p/a/other.yml", "owner: x"),
         "pipelines/facts/p/a/other.yml: other.yml matches no table in its folder"),
        (("pipelines/facts/p/a/a.yaml", "owner: x"), "pipelines/facts/p/a/a.yaml: a.yaml is ignored"),
        (("pipelines/facts/p/a/a.YML", "protect: true"), "pipelines/facts/p/a/a.YML: a.YML is ignored"),
        (("pipelines/facts/p/a/sql-scripts/ddl.b.SQL", ddl("b")),
         "pipelines/facts/p/a/sql-scripts/ddl.b.SQL: ddl.b.SQL is ignored"),
        (("pipelines/facts/p/a/sql-scripts/DML.b.sql", ddl("b")),
         "pipelines/facts/p/a/sql-scripts/DML.b.sql: DML.b.sql is ignored"),
    ],
)  # fmt: skip
def test_an_invalid_file_is_reported_with_its_position(extra: tuple[str, str], expected: str) -> None:
    found = errors(texts(("pipelines/facts/p/a/a.yml", ""), src="", a="SELECT id FROM STREAM src") | dict([extra]))
    assert expected in [f"{p.where}: {p.summary}" for p in found]


@pytest.mark.parametrize(
    "path",
    [
        "pipelines/a.yml",
        "pipelines/facts/p/a.YML",
        "pipelines/facts/p/a/sql-scripts/a.yml",
        "pipelines/facts/p/a/ddl.b.sql",
        "pipelines/dml.a.SQL",
    ],
)
def test_a_file_that_nothing_reads_is_a_warning(path: str) -> None:
    project, found = read_project(texts((path, "x"), src="", a="SELECT id FROM STREAM src"))
    assert project is not None
    assert [(str(p.where), p.severity) for p in found] == [(path, Severity.WARNING)] and found[0].remedy


def test_a_stream_over_a_view_names_reader_and_view() -> None:
    place = "pipelines/views/p/v/sql-scripts/ddl.v.sql"
    found = texts((place, "-- a view\nCREATE OR REPLACE VIEW v AS SELECT 1"), a="SELECT id FROM STREAM v")
    assert problems(found) == [
        f"{SRC_A}/dml.a.sql:2: a streams v, which is a view",
        f"{place}:2: v is declared as a view, which cannot be streamed",
    ]


def test_a_changing_table_is_no_static_side_and_no_setting_makes_it_one() -> None:
    found = texts(src="", d="SELECT id FROM STREAM src", a="SELECT s.id FROM STREAM src AS s JOIN d ON d.id = s.id")
    wrong = f"{SRC_A}/dml.a.sql:2: a reads d as a static side, but a statement keeps changing it"
    assert problems(found) == [wrong]
    _, reported = read_project(found)
    assert all("static_refresh" not in problem.remedy for problem in reported)
    with_setting = found | {"pipelines/facts/p/a/a.yml": "static_refresh: true\n"}
    assert wrong in problems(with_setting)
    _, reported = read_project(with_setting)
    assert "static_refresh is not supported by this version yet" in [problem.summary for problem in reported]


def test_an_external_table_may_be_a_static_side() -> None:
    assert good(texts(src="", d="", a="SELECT s.id FROM STREAM src AS s JOIN d ON d.id = s.id"))


def test_an_unreadable_statement_is_one_problem_and_not_a_second_about_its_table() -> None:
    found = texts(src="", a="SELEKT id FROM", b="SELECT id FROM STREAM a")
    assert len(problems(found)) == 1


def test_names_compare_without_case() -> None:
    found = texts(src="", a="SELECT ID FROM STREAM SRC")
    assert good(found).tables[T("a")].parsed.reads[0].table == "src"  # type: ignore[union-attr]  # a has a statement


def test_defaults_apply_to_settings_that_a_table_omits() -> None:
    found = texts(("pipelines/facts/p/a/a.yml", "owner: me\n"), src="", a="SELECT id FROM STREAM src")
    found["headgate.yml"] += "defaults: {trigger: 3 seconds, owner: all}\n"
    assert good(found).tables[T("a")].settings == Settings(trigger="3 seconds", owner="me")


def test_a_data_folder_may_be_in_hdfs_but_not_in_an_object_store() -> None:
    found = texts(src="", a="SELECT id FROM STREAM src")
    head = found["headgate.yml"]
    found["headgate.yml"] = head.replace("dev: {}", "dev: {data: 'hdfs://one:8020/dev'}")
    assert good(found).environments["dev"].data == "hdfs://one:8020/dev"
    found["headgate.yml"] = head.replace("dev: {}", "dev: {data: 's3a://lake/dev'}")
    (problem,) = problems(found)
    assert "s3a://lake/dev is in S3, which cannot rename a folder atomically" in problem


def test_an_objective_is_declared_by_table_defaults_and_environment() -> None:
    found = texts(
        ("pipelines/facts/p/a/a.yml", "objective: {behind: 5 minutes}\n"), src="", a="SELECT id FROM STREAM src"
    )
    found["headgate.yml"] = found["headgate.yml"].replace("dev: {}", "dev: {objective: {behind: 1 hour}}")
    found["headgate.yml"] += "defaults: {objective: {behind: 90 seconds}}\n"
    project = good(found)
    assert project.tables[T("a")].settings.objective == "5 minutes"
    assert project.tables[T("src")].settings.objective == "90 seconds"
    assert project.environments["dev"].objective == "1 hour"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("objective: {behind: 0 minutes}", "objective.behind"),
        ("objective: {behind: soon}", "objective.behind"),
        ("objective: {before: 5 minutes}", "before"),
        ("objective: 5 minutes", "objective"),
    ],
)
def test_an_invalid_objective_is_a_problem_with_its_line(written: str, says: str) -> None:
    wrong: list[Problem] = []
    found = read_settings(f"owner: me\n{written}\n", "a.yml", Settings(), wrong)
    assert found.objective == "" and len(wrong) == 1 and says in wrong[0].summary
    assert wrong[0].where is not None and wrong[0].where.line == 2


@pytest.mark.parametrize(
    "settings",
    [
        Settings(), Settings(trigger="1 hour", owner='a "b" \\ c', description="two\nlines: # not a comment"),
        Settings(tags=("yes", "x, y", "[z]"), key=("id", "No"), runbook="a/b.md"),
        Settings(objective="5 minutes"),
        Settings(protect=True, readers=("audit", "finance report (bi team)")),
    ],
)  # fmt: skip
def test_settings_come_back_from_their_text(settings: Settings) -> None:
    wrong: list[Problem] = []
    other = Settings(trigger="7 seconds")
    assert read_settings(settings_as_text(settings), "x.yml", other, wrong) == settings
    assert wrong == []


def test_an_observed_document_with_raw_texts_of_unchanged_files_finds_no_change() -> None:
    found = texts(("pipelines/facts/p/a/a.yml", "owner: me\n"), src="", a="SELECT id FROM STREAM src")
    found["headgate.yml"] += "defaults: {trigger: 3 seconds}\n"
    project = good(found)
    raw = RevisionTexts(found[f"{SRC_A}/ddl.a.sql"], found[f"{SRC_A}/dml.a.sql"], "owner: me\n")
    assert actions(plan(project, {T("a"): ObservedDeployment("running", "changed", raw)}, "a"))["a"] == "keep"


def test_a_changed_default_is_a_change_of_each_table_that_was_deployed_with_the_old_one() -> None:
    found = texts(src="", a="SELECT id FROM STREAM src")
    before = good(found).tables[T("a")]
    old = RevisionTexts(before.ddl.text, before.dml.text if before.dml else "", settings_as_text(before.settings))
    found["headgate.yml"] += "defaults: {trigger: 3 seconds}\n"
    made = plan(good(found), {T("a"): ObservedDeployment("running", deployed=old)}, "a")
    assert [(node.row, node.action) for node in made.nodes if node.table == "a"] == [("11a", "restart")]


@pytest.mark.parametrize("select", ["*", "src.*", "* EXCEPT (kind)", "*, 1 AS id"])
def test_columns_behind_a_star_are_left_to_spark(select: str) -> None:
    assert problems(texts(src="", a=f"SELECT {select} FROM STREAM src")) == []


@pytest.mark.parametrize(
    "place", ["/lake/orders", "lake/orders", "/lake/a b", "file:/lake/orders", "file:///lake/orders"]
)
def test_an_external_delta_table_is_streamed_and_read_as_a_static_side(place: str) -> None:
    with_delta = MANIFEST + "connectors: {delta: {}}\n"
    orders = ("pipelines/sources/p/orders/sql-scripts/ddl.orders.sql",
              ddl("orders", rest=f"USING delta LOCATION '{place}'"))  # fmt: skip
    found = texts(orders, a="SELECT id FROM STREAM orders", b="SELECT a.id FROM STREAM a JOIN orders o ON o.id = a.id")
    declared = good(found | {"headgate.yml": with_delta}).tables[T("orders")]
    assert declared.external and declared.parsed_ddl.location == place


FEED = "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
KINDS = "SELECT id FROM STREAM orders WHERE _change_type = 'insert'"


def with_orders(select: str, yml: str = "", rest: str = "") -> Mapping[str, str]:
    place = "pipelines/sources/p/orders/sql-scripts/ddl.orders.sql"
    orders = (place, ddl("orders", rest=f"USING delta LOCATION '/lake/orders' {rest}"))
    found = texts(orders, ("pipelines/facts/p/a/a.yml", yml), a=select)
    return found | {"headgate.yml": MANIFEST + "connectors: {delta: {}}\n"}


@pytest.mark.parametrize(
    ("select", "yml", "rest", "expected"),
    [
        (KINDS, "reads: changes\n", FEED, []),
        ("SELECT id FROM STREAM orders", "", FEED, []),
        (KINDS.replace("orders ", "orders WITH ('readChangeFeed'='true') "), "", FEED, []),
        (KINDS, "reads: changes\n", "",
         ["pipelines/facts/p/a/a.yml:1: a takes changes, and nothing that it streams records any"]),
        (KINDS.replace("orders ", "orders WITH ('readChangeFeed'='true') "), "", "",
         [f"{SRC_A}/dml.a.sql:2: a streams the changes of orders, which records none"]),
        ("SELECT id FROM STREAM orders", "reads: changes\n", FEED,
         [f"{SRC_A}/dml.a.sql:2: a streams the changes of orders and does not say which"]),
    ],
)  # fmt: skip
def test_changes_of_an_external_table_are_read_if_both_sides_declare_them(
    select: str, yml: str, rest: str, expected: list[str]
) -> None:
    found = with_orders(select, yml, rest)
    assert problems(found) == expected
    for problem in read_project(found)[1]:
        assert problem.remedy and ("mode: upsert" not in problem.remedy)
    if not expected:
        (read,) = good(found).tables[T("a")].parsed.reads  # type: ignore[union-attr]
        assert read.takes_changes is ("_change_type" in select)


def test_a_file_whose_path_is_not_utf_8_is_a_problem_with_its_bytes() -> None:
    found = {path.replace("/p/", "/caf\udce9/"): text for path, text in texts(a="SELECT id FROM STREAM orders").items()}
    named = [problem for problem in read_project(found)[1] if problem.summary.endswith("is not UTF-8")]
    assert [problem.where and problem.where.path for problem in named] == [
        path.replace(chr(0xDCE9), chr(92) + "xe9") for path in sorted(found) if "\udce9" in path
    ]
    assert named and {problem.remedy for problem in named} == {"rename the file or its folder"}
