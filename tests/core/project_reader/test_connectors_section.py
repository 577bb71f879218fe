"""`connectors:` of headgate.yml, and tables that need one."""

from core.model.problems import Problem
from core.project.connectors import DELTA, KAFKA, Connector
from core.project_reader.loader import read_project
from core.project_reader.manifest import read_manifest

HEAD = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
environments: {dev: {}}
"""


def read(text: str) -> tuple[tuple[Connector, ...], list[str]]:
    problems: list[Problem] = []
    found = read_manifest(HEAD + text, problems).connectors
    assert all(problem.remedy for problem in problems)
    return found, [f"{problem.where}: {problem.summary}" for problem in problems]


def test_a_name_alone_is_what_this_version_brings() -> None:
    assert read("connectors: {delta: {}}") == ((DELTA,), [])
    assert read("connectors:\n  delta:\n") == ((DELTA,), [])
    assert read("") == ((), [])
    assert read("connectors: {kafka: {}, delta: {}}") == ((DELTA, KAFKA), [])


def test_with_a_folder_of_jars_nothing_is_downloaded() -> None:
    found, problems = read("connectors: {delta: {jars: [lib/delta]}}")
    assert not problems and found[0].coordinates == () and found[0].jars == ("lib/delta",)


def test_everything_may_be_given() -> None:
    found, problems = read(
        "connectors: {delta: {coordinates: ['io.delta:delta-spark_4.2_2.13:4.5.0'], exclude: ['a:*'], jars: x.jar}}"
    )
    assert not problems
    assert found == (Connector("delta", ("io.delta:delta-spark_4.2_2.13:4.5.0",), ("a:*",), ("x.jar",)),)


def test_mistakes_are_reported_with_their_lines() -> None:
    coordinates = "    coordinates:\n      - io.delta:delta-spark_4.0_2.13:4.0.0\n"
    wrong = f"connectors:\n  delta:\n{coordinates}    exclude: [a]\n    jar: x\n"
    assert read(wrong)[1] == [
        "headgate.yml:10: connectors.delta.jar is not a known key",
        "headgate.yml:8: io.delta:delta-spark_4.0_2.13:4.0.0 is Delta for Spark 4.0, but pools run Spark 4.2",
        "headgate.yml:9: connectors.delta.exclude must be a list of group:artifact",
    ]
    assert read("connectors: {pulsar: {}}")[1] == ["headgate.yml:5: pulsar is not a connector that this version knows"]


def test_a_table_of_delta_needs_the_connector_by_name() -> None:
    place = "pipelines/facts/p/a/sql-scripts"
    texts = {
        "headgate.yml": HEAD,
        f"{place}/ddl.a.sql": "CREATE TABLE a (id BIGINT) USING delta;",
        f"{place}/dml.a.sql": "INSERT INTO a SELECT id FROM STREAM s;",
        "pipelines/sources/p/s/sql-scripts/ddl.s.sql": "CREATE TABLE s (id BIGINT) USING json LOCATION 's';",
    }
    project, problems = read_project(texts)
    assert project is None
    assert [f"{problem.where}: {problem.summary}" for problem in problems] == [
        f"{place}/ddl.a.sql:1: a is delta, and headgate.yml names no connector delta"
    ]
    assert "connectors: {delta: {}}" in problems[0].remedy
    assert read_project(texts | {"headgate.yml": HEAD + "connectors: {delta: {}}\n"})[0] is not None


def test_a_topic_can_only_be_streamed_and_its_options_are_checked_with_their_line() -> None:
    place, options = "pipelines/facts/p/a/sql-scripts", "'kafka.bootstrap.servers'='b:9092', subscribe='t'"
    topic = "pipelines/sources/p/s/sql-scripts/ddl.s.sql"
    texts = {
        "headgate.yml": f"{HEAD}connectors: {{kafka: {{}}}}\n",
        f"{place}/ddl.a.sql": "CREATE TABLE a (id BIGINT) USING parquet;",
        f"{place}/dml.a.sql": "INSERT INTO a SELECT id FROM STREAM s;",
        "pipelines/sources/p/r/sql-scripts/ddl.r.sql": "CREATE TABLE r (id BIGINT) USING json LOCATION 'r';",
        topic: f"CREATE TABLE s (id BIGINT) USING kafka OPTIONS ({options});",
    }
    assert read_project(texts)[1] == ()
    texts[f"{place}/dml.a.sql"] = "INSERT INTO a SELECT x.id FROM STREAM r AS x JOIN s AS y ON x.id = y.id;"
    _, (static,) = read_project(texts)
    assert str(static.where).startswith(f"{place}/dml.a.sql:1")
    assert static.summary == "a reads s as a static side, but a topic can only be streamed"
    texts[f"{place}/dml.a.sql"] = "INSERT INTO a SELECT id FROM STREAM s;"
    texts[topic] = "CREATE TABLE s (id BIGINT) USING kafka OPTIONS (subscribe='t');"
    _, (unnamed,) = read_project(texts)
    assert (str(unnamed.where), unnamed.summary) == (f"{topic}:1", "s names no broker")
