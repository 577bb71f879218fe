"""The event time at which a statement can begin: the start of a window, by the column that holds the time."""

import pytest

from core.model.names import TableName as T
from core.planner.start_positions import event_time_of
from core.project_reader.loader import read_project
from tests.core.project_reader.test_loader import MANIFEST

WATER = "WATERMARK ts DELAY OF INTERVAL 1 MINUTE"


def begun(dml: str, at: str) -> str:
    """Return where a statement begins and its filter, or "" if its event time is unknown."""
    made, problems = read_project(
        {
            "headgate.yml": MANIFEST,
            "pipelines/sources/p/s/sql-scripts/ddl.s.sql": "CREATE TABLE s (k STRING, ts TIMESTAMP) "
            "USING json LOCATION 's'",
            "pipelines/sources/p/u/sql-scripts/ddl.u.sql": "CREATE TABLE u (k STRING, ts TIMESTAMP, t2 TIMESTAMP_NTZ) "
            "USING json LOCATION 'u'",
            "pipelines/facts/p/t/sql-scripts/ddl.t.sql": "CREATE TABLE t (k STRING) USING parquet",
            "pipelines/facts/p/t/sql-scripts/dml.t.sql": dml,
        }
    )
    assert made is not None, problems
    found = event_time_of(made.tables[T("t")], made.tables)
    if found is None:
        return ""
    start = found.aligned(at)
    return f"{start} {' AND '.join(f'{table}.{condition}' for table, condition in found.conditions(start).items())}"


@pytest.mark.parametrize(
    ("windowed", "at", "begins"),
    [
        ("window(ts, '10 minutes')", "2026-01-02T00:05:00Z", "2026-01-02T00:10:00Z"),
        ("window(ts, '10 minutes')", "2026-01-02T00:10:00Z", "2026-01-02T00:10:00Z"),
        ("window(ts, '10 minutes')", "2026-01-02", "2026-01-02T00:00:00Z"),
        ("window(ts, '1 hour', '15 minutes')", "2026-01-02T00:05:00Z", "2026-01-02T00:15:00Z"),
        ("window(ts, '1 hour', '1 hour', '5 minutes')", "2026-01-02T00:06:00Z", "2026-01-02T01:05:00Z"),
        ("window(ts, '1 day')", "2026-01-02T01:00:00+02:00", "2026-01-02T00:00:00Z"),
        ("window(ts, '1 week')", "2026-01-02", "2026-01-08T00:00:00Z"),
        ("session_window(ts, '10 minutes')", "2026-01-02T00:05:00Z", "2026-01-02T00:05:00Z"),
    ],
)
def test_a_partial_version_begins_with_the_first_complete_window(windowed: str, at: str, begins: str) -> None:
    dml = f"INSERT INTO t SELECT k FROM STREAM s {WATER} GROUP BY k, {windowed}"
    assert begun(dml, at) == f"{begins} s.ts >= TIMESTAMP '{begins}'"


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ("SELECT k FROM STREAM s", "s.ts >="),
        (f"SELECT k FROM STREAM u {WATER}", "u.ts >="),
        ("SELECT k FROM STREAM s WATERMARK to_timestamp(k) AS z DELAY OF INTERVAL 1 MINUTE", "s.to_timestamp(k) >="),
        (f"SELECT DISTINCT ts AS k FROM STREAM s {WATER}", "s.ts >="),
        (
            f"SELECT a.k FROM STREAM s {WATER} a JOIN STREAM u {WATER} b ON a.k = b.k AND a.ts = b.ts",
            "s.ts >= … AND u.ts >=",
        ),
    ],
    ids=["its one timestamp", "its watermark", "an expression", "a dedup", "both sides of a join"],
)
def test_expressions_that_return_the_current_time(query: str, condition: str) -> None:
    at = "2026-01-02T00:05:00Z"
    whole = condition.replace("…", f"TIMESTAMP '{at}'")
    assert begun(f"INSERT INTO t {query}", at) == f"{at} {whole} TIMESTAMP '{at}'"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM STREAM u",
        "SELECT k FROM STREAM s UNION ALL SELECT k FROM STREAM u",
        f"SELECT k FROM STREAM s {WATER} UNION ALL SELECT k FROM STREAM u",
        f"SELECT _metadata.file_path AS k FROM STREAM s {WATER}",
    ],
    ids=["two timestamps", "two streams", "one stream without a watermark", "a hidden column"],
)
def test_expressions_that_do_not_return_the_current_time(query: str) -> None:
    assert begun(f"INSERT INTO t {query}", "2026-01-02") == ""


def test_a_time_without_a_zone_is_compared_without_one() -> None:
    watered = "INSERT INTO t SELECT k FROM STREAM u WATERMARK t2 DELAY OF INTERVAL 1 MINUTE"
    at = "2026-01-02T00:05:00"
    assert begun(watered, f"{at}Z") == f"{at}Z u.t2 >= TIMESTAMP_NTZ '{at}'"
