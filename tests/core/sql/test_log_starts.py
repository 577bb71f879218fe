"""The position at which a stream starts in its table's log, in the text for Spark and in the recorded text."""

import pytest

from core.model.names import TableName as T
from core.sql.compiler import compile_select
from core.sql.statement import AT_TIME, AT_VERSION, LogStart, describe_log_start, read_log_start
from core.sql.statement_reader import read_statements

AT_12 = LogStart(T("a"), AT_VERSION, "12")


@pytest.mark.parametrize(
    ("select", "compiled"),
    [
        ("SELECT id FROM STREAM a", "SELECT id FROM STREAM a__v1 WITH ('startingVersion'='12')"),
        (
            "SELECT id FROM STREAM a WITH ('maxFilesPerTrigger'='1') WHERE id > 1",
            "SELECT id FROM STREAM a__v1 WITH ('startingVersion'='12', 'maxFilesPerTrigger'='1') WHERE id > 1",
        ),
        (
            "SELECT x.id FROM STREAM a AS x JOIN d ON x.id = d.id",
            "SELECT x.id FROM STREAM a__v1 WITH ('startingVersion'='12') AS x JOIN d ON x.id = d.id",
        ),
        (
            "SELECT id FROM STREAM(a) WATERMARK ts DELAY OF INTERVAL 1 MINUTE",
            "SELECT id FROM STREAM(a__v1) WITH ('startingVersion'='12') WATERMARK ts DELAY OF INTERVAL 1 MINUTE",
        ),
    ],
)
def test_the_option_is_written_to_the_stream_alone(select: str, compiled: str) -> None:
    (parsed,), problems = read_statements(f"INSERT INTO t {select}", "dml.t.sql")
    assert not problems
    found = compile_select(parsed, {T("a"): "a__v1", T("d"): "d"}, starts={T("a"): AT_12})
    assert found.replace(" AS d ON", " ON") == compiled


def test_recorded_entries_are_read_back() -> None:
    since = LogStart(T("a"), AT_TIME, "2026-01-02T03:04:05.5Z")
    assert [read_log_start(str(each)) for each in (AT_12, since)] == [AT_12, since]
    assert describe_log_start(str(AT_12)) == "a from version 12 on"
    assert describe_log_start(str(since)) == "commits to a from 2026-01-02T03:04:05.5Z on"
    assert describe_log_start("a.ts > 1") == "a.ts > 1"
    assert read_log_start("a.ts >= TIMESTAMP '2026-01-02T03:04:05Z'") is None
