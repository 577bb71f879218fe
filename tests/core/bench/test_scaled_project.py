"""Copies of statements and chains of tables: their files are a valid project that reads what it should."""

from collections.abc import Mapping

import pytest
import small_project

from core.bench.scaled_project import AddedTables, NotScaled, with_chain, with_copies
from core.model.names import TableName as T
from core.project.model import Project
from core.project_reader.loader import read_project
from core.text.sentence import Fact


def scaled(texts: Mapping[str, str], added: AddedTables | Fact[NotScaled]) -> Project:
    """Return the project with the added tables, in which there must be no Problems."""
    assert isinstance(added, AddedTables), added
    found = small_project.project({**texts, **added.texts})
    assert found.tables.keys() >= set(added.tables)
    return found


def copied(texts: Mapping[str, str], *tables: str, copies: int = 2) -> Project:
    project = small_project.project(texts)
    variables = {each.name: each for each in project.environments["dev"].variables}
    return scaled(texts, with_copies(project, map(T, tables), copies, variables))


def reads(project: Project, table: str) -> list[str]:
    parsed = project.tables[T(table)].parsed
    assert parsed is not None
    return [read.table for read in parsed.reads]


def test_copies_share_what_is_upstream_of_the_chosen_statements_and_read_each_other() -> None:
    found = copied(small_project.texts(), "b", copies=3)
    assert (reads(found, "b_copy2"), reads(found, "b_copy3")) == (["a"], ["a"])
    found = copied(small_project.texts(), "a", "b", copies=2)
    assert (reads(found, "a_copy2"), reads(found, "b_copy2")) == (["landed"], ["a_copy2"])
    assert found.tables[T("b_copy2")].folder == "pipelines/facts/p/b_copy2"


def test_a_copy_keeps_settings_qualifiers_and_other_forms_of_the_text() -> None:
    texts = small_project.texts(
        b="SELECT x.id, x.kind FROM (SELECT a.id AS id, a.kind FROM STREAM a WHERE a.id > ${least}) x"
    )
    texts["headgate.yml"] += "variables:\n  least: {type: int, default: 7}\n"
    texts["pipelines/facts/p/b/b.yml"] = "trigger: 7 seconds\n"
    texts["pipelines/facts/p/b/sql-scripts/dml.b.sql"] = texts["pipelines/facts/p/b/sql-scripts/dml.b.sql"].replace(
        "INSERT INTO b ", "-- rows of a\ninsert into `b` (id, kind)\n"
    )
    found = copied(texts, "a", "b").tables[T("b_copy2")]
    assert found.parsed is not None and found.dml is not None
    assert [(read.table, read.streaming) for read in found.parsed.reads] == [("a_copy2", True)]
    assert "WHERE a.id > 7" in found.dml.text and "into b_copy2 (id, kind)" in found.dml.text
    assert found.settings.trigger == "7 seconds"


def test_calls_of_functions_stay_calls() -> None:
    texts = small_project.texts(b="SELECT id, loud(kind) AS kind FROM STREAM a")
    texts["functions/loud.sql"] = "CREATE FUNCTION loud(x STRING) RETURNS STRING RETURN upper(x);\n"
    found = copied(texts, "b").tables[T("b_copy2")]
    assert found.dml is not None and "loud(kind)" in found.dml.as_written
    assert [name for name, _ in found.functions] == ["loud"]


def test_metadata_columns_are_added_to_a_copy_and_not_to_a_chain() -> None:
    texts = small_project.texts()
    texts["headgate.yml"] += "defaults: {metadata: true}\n"
    assert len(copied(texts, "b").tables[T("b_copy2")].parsed_ddl.columns) == 2 + 6
    project = small_project.project(texts)
    found = scaled(texts, with_chain(project, [T("b")], 1))
    assert [each.name for each in found.tables[T("b_chain1")].parsed_ddl.columns] == ["id", "kind"]


def test_a_chain_begins_with_the_table_and_has_its_trigger() -> None:
    texts = small_project.texts()
    texts["pipelines/facts/p/b/b.yml"] = "trigger: 7 seconds\n"
    found = scaled(texts, with_chain(small_project.project(texts), [T("b")], 3))
    assert [reads(found, f"b_chain{n}") for n in (1, 2, 3)] == [["b"], ["b_chain1"], ["b_chain2"]]
    assert {found.tables[T(f"b_chain{n}")].settings.trigger for n in (1, 2, 3)} == {"7 seconds"}


def test_a_name_that_the_project_has_is_not_used_again() -> None:
    texts = small_project.texts(b_copy2="SELECT id, kind FROM STREAM a")
    assert reads(copied(texts, "b"), "b_copy2_") == ["a"]


@pytest.mark.parametrize(
    ("tables", "yml", "expected"),
    [
        (("b",), "mode: upsert\nkey: [id]\n", "b replaces rows by key, and the tables of a chain append rows"),
        (("a", "b"), "", "a chain begins with one table, and 2 are chosen"),
    ],
)
def test_a_chain_that_would_be_wrong_is_refused(tables: tuple[str, ...], yml: str, expected: str) -> None:
    texts = small_project.on_delta(small_project.texts())
    texts["pipelines/facts/p/b/b.yml"] = yml
    project, _ = read_project(texts)
    assert project is not None
    found = with_chain(project, map(T, tables), 2)
    assert isinstance(found, Fact) and found.sentence == expected


def test_a_form_that_cannot_be_copied_is_refused() -> None:
    texts = small_project.texts()
    texts["pipelines/facts/p/b/sql-scripts/dml.b.sql"] = (
        "WITH x AS (SELECT id, kind FROM STREAM a) INSERT INTO b SELECT id, kind FROM x;"
    )
    found = with_copies(small_project.project(texts), [T("b")], 2, {})
    assert isinstance(found, Fact) and found.kind is NotScaled.TEXT


def test_a_copy_that_writes_a_topic_writes_one_of_its_own_and_no_chain_begins_with_it() -> None:
    texts = small_project.texts()
    texts["headgate.yml"] += "connectors: {kafka: {}}\n"
    options = "OPTIONS ('kafka.bootstrap.servers'='b:9092', topic='out')"
    ddl = f"CREATE TABLE b (id BIGINT, kind STRING) USING kafka {options};"
    texts["pipelines/facts/p/b/sql-scripts/ddl.b.sql"] = ddl
    found = copied(texts, "b", copies=2)
    assert found.tables[T("b_copy2")].parsed_ddl.location == "kafka://b:9092/out_copy2"
    refused = with_chain(small_project.project(texts), [T("b")], 1)
    assert refused == NotScaled.TOPIC.of(table="b")
