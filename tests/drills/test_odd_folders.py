"""A project in a folder whose name has a meaning for Spark, for URLs or for our own texts."""

from pathlib import Path

import pytest
from tiny_project import DDL, DML, tiny_that_runs, until

pytestmark = [pytest.mark.spark, pytest.mark.drill, pytest.mark.long]

NAME = "od d#+% headgate_batch"
TOLD = "'${spark.sql.shuffle.partitions} ${env:HOME}'"
TABLES = DDL | {
    "last": f"CREATE TABLE last (id BIGINT COMMENT {TOLD}, kind STRING) USING delta;",
    "heard": "CREATE TABLE heard (id BIGINT, kind STRING) USING delta;",
}
STATEMENTS = DML | {
    "last": "INSERT INTO last SELECT id, concat(kind, 'headgate_batch') AS kind FROM STREAM kept;",
    "heard": "INSERT INTO heard SELECT id, concat(kind, _change_type) AS kind FROM STREAM last;",
}
YML = {
    "last": "mode: upsert\nkey: [id]\nsequence: kind\ndeletes: kind = 'headgate_batch'\n",
    "marked": "schema_tracking: true\n",
}


def test_each_row_arrives_once_and_texts_keep_their_meaning(tmp_path: Path) -> None:
    given = {"formats": {"marked": "parquet"}, "ddl": TABLES, "dml": STATEMENTS, "yml": YML}
    with tiny_that_runs(tmp_path / NAME, landed=20, format="delta", **given) as tiny:
        applied = tiny.apply(tiny.plan("--all"))
        assert applied.returncode == 0, applied.stdout + applied.stderr
        wanted = list(range(1, 21))
        for table in ("kept", "marked", "last", "heard"):
            until(lambda table=table: tiny.ids(table, 1) == wanted, 90, f"all rows are in {table}")
        rows = tiny.done("peek", "last", "--limit", "1")
        assert "headgate_batch" in rows
        tiny.done("restart", "kept", "marked", "last", "heard", "--confirm", "4")
        tiny.land(5)
        wanted = list(range(1, 26))
        for table in ("kept", "marked", "last", "heard"):
            until(lambda table=table: tiny.ids(table, 1) == wanted, 90, f"new rows are in {table}")
