"""Missing columns: each reported with the line that names it, the table that lacks it, and the nearest name."""

import pytest

from core.model.names import TableName as T
from core.model.problems import Problem
from core.project_reader.loader import read_project
from core.project_reader.parse_cache import ParseCache, wrong_columns

MANIFEST = "project: p\nid: 5b0e4a52-9df2-4a52-9c0c-0f6f8d1a2b3c\ndefault_env: dev\nenvironments: {dev: {}}\n"
DDL = {
    "o": "CREATE TABLE o (id BIGINT, Total BIGINT, ts TIMESTAMP) USING json LOCATION 'landing/o'",
    "pay": "CREATE TABLE pay (o_id BIGINT, paid BIGINT) USING json LOCATION 'landing/pay'",
    "derived": "CREATE TABLE derived (id BIGINT) USING parquet",
    "totals": "CREATE TABLE totals (id BIGINT) USING parquet",
}


def declaring(select: str, **ddl: str) -> dict[str, str]:
    """Return the texts of an input, a static side, and a table derived from it without `total`."""
    found = {"headgate.yml": MANIFEST}
    for name, text in (DDL | ddl).items():
        found[f"pipelines/facts/p/{name}/sql-scripts/ddl.{name}.sql"] = text
    for name, text in (("derived", "SELECT id FROM STREAM o"), ("totals", select)):
        found[f"pipelines/facts/p/{name}/sql-scripts/dml.{name}.sql"] = f"INSERT INTO {name}\n{text};\n"
    return found


def wrong(select: str, parse_cache: ParseCache | None = None, **ddl: str) -> tuple[Problem, ...]:
    project, problems = read_project(declaring(select, **ddl), parse_cache)
    assert project is not None, problems
    return wrong_columns(project, [T("totals"), T("o")], parse_cache or ParseCache())


TOTALS = "pipelines/facts/p/totals/sql-scripts/dml.totals.sql"
WRONG_COLUMNS = [
    ("SELECT\n  -- The\n  -- sum.\n  o.totl AS id\nFROM STREAM o", 5, "totl, a column that o does not have"),
    (
        "SELECT a.total AS id\nFROM STREAM o AS a\nJOIN pay AS p\n  ON p.o_id = a.idd",
        5,
        "a.idd, a column that o does not have",
    ),
    (
        "SELECT a.total AS id\nFROM STREAM o AS a JOIN pay AS p ON p.o_id = a.id\nWHERE paidd > 0",
        4,
        "paidd, a column that none of o, pay has",
    ),
    ("SELECT a.id FROM STREAM o AS a\nJOIN pay USING (id)", 3, "id, a column that pay does not have"),
    ("WITH q AS (\n  SELECT ttal AS id\n  FROM STREAM o)\nSELECT id FROM q", 3, "ttal, a column that o does not have"),
    ("WITH q AS (SELECT id FROM STREAM o)\nSELECT q.total AS id FROM q", 3, "total, a column that q does not have"),
    (
        "SELECT id FROM STREAM o\nWHERE id IN (\n  SELECT pay.i_id FROM pay)",
        4,
        "i_id, a column that none of pay, o has",
    ),
    ("SELECT id FROM (\n SELECT id FROM STREAM o) AS s\nWHERE s.total > 1", 4, "total, a column that s does not have"),
    ("SELECT id\nFROM STREAM o\nWHERE w.id > 1", 4, "w.id, a column that o does not have"),
    (
        "SELECT id FROM STREAM o\nWATERMARK to_timestamp(tss) AS t DELAY OF INTERVAL 1 MINUTE",
        3,
        "tss, a column that o does not have",
    ),
    ("SELECT id FROM STREAM derived\nWHERE total > 1", 3, "total, a column that derived does not have"),
]  # fmt: skip


@pytest.mark.parametrize(("select", "line", "summary"), WRONG_COLUMNS)
def test_wrong_column_names_the_table_that_lacks_it_and_its_own_line(select: str, line: int, summary: str) -> None:
    assert [f"{each.where}: {each.summary}" for each in wrong(select)] == [f"{TOTALS}:{line}: totals reads {summary}"]


def test_an_unknown_column_suggests_the_nearest_one_or_lists_all() -> None:
    assert [each.remedy for each in wrong("SELECT TOTL AS id FROM STREAM o")] == ["did you mean total?"]
    assert [each.remedy for each in wrong("SELECT x AS id FROM STREAM o")] == ["columns: id, total, ts"]


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id FROM STREAM o WHERE ts < current_timestamp AND user <> 'x'",
        "SELECT id FROM STREAM o WHERE _metadata.file_name <> ''",
        "SELECT spark_catalog.default.o.id FROM STREAM o",
        "SELECT id FROM (SELECT id, abs(total) FROM STREAM o) WHERE `abs(total)` > 1 AND `anything else` > 1",
        "SELECT id FROM (SELECT id + 1 AS next, next + 1 AS id FROM STREAM o)",
    ],
)
def test_column_that_spark_may_know_is_left_to_it(select: str) -> None:
    assert wrong(select) == ()


def test_columns_are_looked_up_again_only_where_a_text_of_theirs_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    import core.sql.lineage.statement_lineage as reading

    first, select = ParseCache(), "SELECT totl AS id FROM STREAM o"
    said = wrong(select, first)
    assert said
    again = ParseCache(first.take_fresh())
    with monkeypatch.context() as patched:
        patched.delattr(reading, "lineage_of")
        assert wrong(select, again) == said
    assert wrong(select, again, o=DDL["o"].replace("Total", "totl")) == ()
