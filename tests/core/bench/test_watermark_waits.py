import pytest

from core.bench.watermark_waits import WatermarkWait, watermark_wait
from core.sql.statement import ParsedStatement
from core.sql.statement_reader import read_statements

FROM = "FROM STREAM e WATERMARK at DELAY OF INTERVAL 20 SECONDS"


def parsed(select: str) -> ParsedStatement:
    (found,), problems = read_statements(f"INSERT INTO t {select}", "dml.t.sql")
    assert not problems
    return found


@pytest.mark.parametrize(
    ("select", "wait"),
    [
        ("SELECT * FROM STREAM e", None),
        (f"SELECT DISTINCT id, at {FROM}", WatermarkWait(delay_s=20)),
        (f"SELECT at, count(*) AS n {FROM} GROUP BY at", WatermarkWait(delay_s=20)),
        (f"SELECT window.end, count(*) AS n {FROM} GROUP BY window(at, '30 seconds')", WatermarkWait(30, 30, 20)),
        (
            f"SELECT window.end, id, count(*) AS n {FROM} GROUP BY window(at, '1 minute', '10 seconds'), id",
            WatermarkWait(60, 10, 20),
        ),
        (f"SELECT id, count(*) AS n {FROM} GROUP BY session_window(at, '5 minutes'), id", WatermarkWait(300, 0, 20)),
    ],
)
def test_what_appends_aggregates_waits(select: str, wait: WatermarkWait | None) -> None:
    assert watermark_wait(parsed(select), appends=True) == wait
    assert watermark_wait(parsed(select), appends=False) is None


@pytest.mark.parametrize(
    ("wait", "due_s"),
    [
        (WatermarkWait(), 65.0),
        (WatermarkWait(30, 30), 90.0),
        (WatermarkWait(60, 10), 120.0),
        (WatermarkWait(300, 0), 365.0),
    ],
)
def test_rows_are_due_at_the_end_of_their_last_window(wait: WatermarkWait, due_s: float) -> None:
    assert wait.due_s(65.0) == due_s
