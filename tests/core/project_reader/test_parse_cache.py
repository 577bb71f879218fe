"""The parse cache only saves time: results are the same with any contents."""

import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from core.model.names import TableName
from core.model.problems import Where
from core.project.model import Settings
from core.project.revision import RevisionTexts
from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision
from core.sql.statement import Column, Operator, ParsedStatement, TableDdl, TableRead, Watermark
from tests.bench.generated_projects import layered_texts, project_texts
from tests.support.small_project import texts

SAMPLE = Path(__file__).parents[3] / "pipelines/samples/pizzeria"
DDL = "pipelines/facts/p/a/sql-scripts/ddl.a.sql"
DML = "pipelines/facts/p/a/sql-scripts/dml.a.sql"


def sample() -> dict[str, str]:
    found = [path for path in SAMPLE.rglob("*") if path.suffix in (".sql", ".yml")]
    return {path.relative_to(SAMPLE).as_posix(): path.read_bytes().decode() for path in found}


BROKEN = {
    "nothing": {DML: ""},
    "not sql": {DML: "INSERT INTO a SELECT ((( FROM STREAM landed"},
    "open string": {DML: "INSERT INTO a SELECT 'x FROM STREAM landed"},
    "unknown table": {DML: "INSERT INTO a SELECT id, kind FROM STREAM nowhere"},
    "one of two": {DML: "INSERT INTO a SELECT id, kind FROM STREAM landed; MERGE INTO a USING b"},
    "view": {DDL: "CREATE VIEW a AS SELECT 1"},
    "no columns": {DDL: "CREATE TABLE a USING parquet"},
    "two tables": {DDL: "CREATE TABLE a (id BIGINT) USING parquet; CREATE TABLE b (id BIGINT) USING parquet"},
    "wrong yml": {"pipelines/facts/p/a/a.yml": "triger: 5 seconds\n"},
    "not yml": {"pipelines/facts/p/a/a.yml": "a: [\n"},
    "byte-order mark": {DML: "\ufeff-- ü\r\nINSERT INTO a SELECT id, 'ä' AS kind FROM STREAM landed"},
    "before insert": {DML: "WITH x AS (SELECT id, kind FROM STREAM landed) INSERT INTO a SELECT id, kind FROM x"},
}


@pytest.mark.parametrize(
    "files",
    [sample(), project_texts(60), layered_texts(3, 3), *({**texts(), **wrong} for wrong in BROKEN.values())],
    ids=["sample", "generated", "layered", *BROKEN],
)
def test_a_project_read_from_facts_equals_one_read_from_its_texts(files: Mapping[str, str]) -> None:
    plain = read_project(files)
    facts = ParseCache()
    assert read_project(files, facts) == plain
    assert read_project(files, facts) == plain
    known = facts.take_fresh()
    assert read_project(files, ParseCache(known)) == plain


def test_every_fact_is_used_when_it_is_known() -> None:
    files, first = project_texts(60), ParseCache()
    read_project(files, first)
    again = ParseCache(first.take_fresh())
    read_project(files, again)
    assert again.take_fresh() == {}


def test_problems_name_the_file_that_is_read_even_if_the_text_was_cached_for_another() -> None:
    facts = ParseCache()
    facts.statements("SELECT", "one.sql")
    packed = facts.take_fresh()
    for known in (facts, ParseCache(packed)):
        (problem,) = known.statements("SELECT", "two.sql")[1]
        assert problem.where == Where("two.sql", 1, 1)


@pytest.mark.parametrize("damage", ["", "[]", "{}", "[[1],[]]", "null", "[[[]]"])
def test_a_damaged_fact_is_read_again(damage: str) -> None:
    first = ParseCache()
    wanted = read_project(texts(), first)
    assert read_project(texts(), ParseCache(dict.fromkeys(first.take_fresh(), damage))) == wanted


def test_settings_of_another_length_are_read_again() -> None:
    first = ParseCache()
    wanted = first.settings("owner: x", "a.yml", Settings(), [])
    known = dict.fromkeys(first.take_fresh(), "[]")
    assert ParseCache(known).settings("owner: x", "a.yml", Settings(), []) == wanted


def test_settings_differ_by_the_defaults_they_are_read_over() -> None:
    facts = ParseCache()
    one = facts.settings("owner: x", "a.yml", Settings(trigger="5 seconds"), [])
    two = facts.settings("owner: x", "a.yml", Settings(trigger="9 seconds"), [])
    assert (one.trigger, two.trigger) == ("5 seconds", "9 seconds")
    assert ParseCache(facts.take_fresh()).settings("owner: x", "a.yml", Settings(trigger="5 seconds"), []) == one


def test_deployed_texts_are_read_from_the_same_facts() -> None:
    ddl, dml = texts()[DDL], texts()[DML]
    facts, revision = ParseCache(), RevisionTexts(ddl, dml, "owner: x\n")
    plain = read_revision(TableName("a"), revision, Settings())
    assert plain is not None
    assert read_revision(TableName("a"), revision, Settings(), facts) == plain
    again = ParseCache(facts.take_fresh())
    assert read_revision(TableName("a"), revision, Settings(), again) == plain
    assert again.take_fresh() == {}


def test_no_parser_is_loaded_when_everything_is_known() -> None:
    script = (
        "import pickle, sys;"
        "from core.project_reader.loader import read_project;"
        "from core.project_reader.parse_cache import ParseCache;"
        "files, known = pickle.load(sys.stdin.buffer);"
        "assert read_project(files, ParseCache(known))[0] is not None;"
        "print([name for name in ('sqlglot', 'networkx') if name in sys.modules])"
    )
    facts = ParseCache()
    read_project(texts(), facts)
    given = pickle.dumps((texts(), facts.take_fresh()))
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], input=given, cwd=root, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_packing_knows_every_field_of_the_values() -> None:
    """Packing must include every new field; otherwise, a cached text would yield less than a parsed one.

    One field of a read comes from the project instead of the text: whether the read accepts changes implicitly.
    """
    counts = {
        kind.__name__: len(fields(kind)) for kind in (ParsedStatement, TableRead, Watermark, Operator, Column, TableDdl)
    }
    assert list(counts.values()) == [12, 11, 2, 3, 5, 9], counts
