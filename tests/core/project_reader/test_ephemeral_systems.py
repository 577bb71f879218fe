"""Topics and databases in the project of an ephemeral environment: topics of its own, and files for databases."""

import pytest
import small_project

from core.model.names import TableName as T
from core.model.problems import Severity
from core.project.model import Project
from core.project.naming import Naming
from core.project_reader.ephemeral_project import (
    EphemeralProject,
    ephemeral_manifest,
    ephemeral_project,
    stand_ins_of,
)
from core.project_reader.ephemeral_systems import NotReplaced, SystemNames, as_read
from core.project_reader.loader import read_project
from core.sql.kafka_topics import topic_fault, topic_place
from core.text.sentence import Fact

NAMES = SystemNames(Naming(prefix="it_1_"), Naming(prefix="dev_"))
HEAD = "connectors: {kafka: {}, postgres: {}}\n"
SECURED = "'kafka.sasl.password'='${env:PASSWORD}', 'kafka.sasl.username'='me', 'kafka.sasl.mechanism'='PLAIN'"
SECURED += ", 'kafka.security.protocol'='SASL_SSL'"


def over(topic: str, kind: str = "subscribe", more: str = "") -> str:
    return f"USING kafka OPTIONS ('kafka.bootstrap.servers'='b:9092', {kind}='{topic}'{more})"


def texts(landed: str, columns: str = "(id BIGINT, kind STRING)", **beside: str) -> dict[str, str]:
    ddl = "pipelines/sources/p/landed/sql-scripts/ddl.landed.sql"
    found = {**small_project.texts(), ddl: f"CREATE TABLE landed {columns} {landed};"} | beside
    found["headgate.yml"] += HEAD
    return found


def generated(given: dict[str, str], table: str = "b") -> EphemeralProject:
    found = ephemeral_project(small_project.project(given), given, [T(table)], data="/e/data", systems=NAMES)
    assert isinstance(found, EphemeralProject), found
    return found


def read_again(given: dict[str, str], found: EphemeralProject) -> Project:
    """Read the generated project, which must have no mistake."""
    manifest = ephemeral_manifest(
        given["headgate.yml"], folder="/branch", name="it_1", base="dev",
        data={"dev": "data", "it_1": "/e/data"}, pool={"name": "tests"}, trigger=None,
    )  # fmt: skip
    project, problems = read_project({**found.texts, "headgate.yml": manifest}, environment="it_1")
    assert project is not None and not [each for each in problems if each.severity is Severity.ERROR], problems
    return project


def test_a_topic_is_replaced_by_one_whose_name_begins_with_that_of_the_environment() -> None:
    given = texts(over("orders", more=f", {SECURED}, startingOffsets='latest', minOffsetsPerTrigger='9'"))
    found = generated(given)
    assert (found.sources, tuple(found.topics), found.stand_ins) == ({}, ("landed",), ())
    (replaced,) = found.replaced_topics.items()
    assert replaced == ("it_1_orders", (small_project.project(given).tables[T("landed")].parsed_ddl.location, "orders"))
    table = read_again(given, found).tables[T("landed")]
    place = topic_place(table.parsed_ddl.location)
    assert (place.servers, place.topics) == ("b:9092", ("it_1_orders",))
    assert ("sasl.password", "${env:PASSWORD}") in place.settings, "a secret stays a reference"
    assert found.topics[T("landed")].location == table.parsed_ddl.location
    names = [name.lower() for name, _ in table.parsed_ddl.options]
    assert "startingoffsets" not in names and "minoffsetspertrigger" not in names


def test_a_topic_between_two_statements_stays_one_topic() -> None:
    folder = "pipelines/facts/p/b/sql-scripts"
    given = texts(over("dev_between"))
    given[f"{folder}/ddl.b.sql"] = f"CREATE TABLE b (id BIGINT, kind STRING) {over('between', 'topic')};"
    found = generated(given)
    assert {name: topic_place(ddl.location).topics for name, ddl in found.topics.items()} == {
        "landed": ("it_1_between",), "b": ("it_1_between",),
    }  # fmt: skip
    assert "topic='between'" in found.texts[f"{folder}/ddl.b.sql"], "the agent applies the naming"
    assert topic_fault(as_read(found.topics[T("b")])) is None


def test_nothing_else_in_kafka_is_used() -> None:
    given = texts(over("orders"))
    given["pipelines/sources/p/landed/landed.yml"] = "connector: http://c:8083/connectors/x\nsilence: 1 minute\n"
    given["pipelines/facts/p/a/a.yml"] = "description: one\nmirror_offsets: production\n"
    project = read_again(given, generated(given))
    assert project.tables[T("landed")].settings.connector == project.tables[T("landed")].settings.silence == ""
    settings = project.tables[T("a")].settings
    assert (settings.mirror_offsets, settings.description) == ("", "one")


def test_files_stand_for_tables_and_changes_of_a_database() -> None:
    database = "url 'jdbc:postgresql://db:5432/shop', user 'reader'"
    folder = "pipelines/sources/p/side/sql-scripts"
    given = texts(f"USING postgres_changes OPTIONS ({database}, dbtable 'public.x', publication 'p')",
                  "(id BIGINT, kind STRING, _op STRING, _lsn BIGINT)")  # fmt: skip
    side = f"CREATE TABLE side (id BIGINT, price DECIMAL(9,2)) USING jdbc OPTIONS ({database}, dbtable 'public.side')"
    given[f"{folder}/ddl.side.sql"] = f"{side};"
    given["pipelines/sources/p/side/side.yml"] = "payload: hidden\ndescription: prices\n"
    given["pipelines/facts/p/b/sql-scripts/dml.b.sql"] = (
        "INSERT INTO b SELECT a.id, a.kind FROM STREAM a JOIN side ON a.id = side.id;"
    )
    found = generated(given)
    assert found.stand_ins == ("landed", "side") == stand_ins_of(small_project.project(given), [T("b")])
    assert found.sources == {"landed": "/e/data/landing/landed", "side": "/e/data/landing/side"}
    project = read_again(given, found)
    assert {project.tables[T(name)].parsed_ddl.format for name in ("landed", "side")} == {"parquet"}
    assert (
        project.tables[T("side")].parsed_ddl.columns
        == small_project.project(given).tables[T("side")].parsed_ddl.columns
    )
    assert project.tables[T("side")].settings.description == "prices"


@pytest.mark.parametrize(
    ("columns", "more", "kind"),
    [
        ("(id BIGINT, kind STRING)", ", 'value.format'='avro', 'schema.registry'='http://r:8081'", NotReplaced.AVRO),
        ("(id BIGINT, kind STRING, _topic STRING)", "", NotReplaced.TOPIC_COLUMN),
    ],
)
def test_topics_that_cannot_be_replaced_are_refused(columns: str, more: str, kind: NotReplaced) -> None:
    given = texts(over("orders", more=more), columns)
    found = ephemeral_project(small_project.project(given), given, [T("b")], data="/e/data", systems=NAMES)
    assert isinstance(found, Fact) and found == kind.of(table="a", source="landed")
