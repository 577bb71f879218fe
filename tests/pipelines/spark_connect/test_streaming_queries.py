"""Streaming queries on real Spark: the actual effects of a start, a stop, an end and a client's death."""

import json
import os
import signal
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from live_project import committed

from core.model.errors import EngineRefused
from core.ports.spark import AnotherQuery, QueryStart
from core.sql.metadata_columns import METADATA_COLUMNS, metadata_values
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.session import Session
from pipelines.spark_connect.streaming_queries import SparkQueries

pytestmark = pytest.mark.spark


def test_a_started_query_fills_its_table_and_reports_progress(ground: Any) -> None:
    ground.land(20)
    ground.table("t")
    query = ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: ground.mine()[query.name].progress)
    found = ground.mine()[query.name]
    assert (found.id, found.run_id, found.active) == (query.id, query.run_id, True)
    assert ground.files.read(ground.checkpoint("t")).id == query.id
    ground.until(lambda: ground.count(f"SELECT count(*) FROM t_{ground.mark}__v1") == 20)


@pytest.mark.drill
def test_an_idle_query_is_reported_although_it_commits_nothing(ground: Any) -> None:
    """It is reported every 10 s, as the session is configured; without a listener, its silence would only grow."""
    ground.land(2)
    ground.table("t")
    name = ground.start("t", f"SELECT a, b FROM STREAM {ground.source}").name
    ground.until(lambda: ground.mine()[name].progress)
    batch, longest = ground.mine()[name].progress["batchId"], 0.0

    def is_heard_again() -> bool:
        nonlocal longest
        silence = ground.mine()[name].silent_s
        longest, before = max(longest, silence), longest
        return before > 3.0 and silence < before

    ground.until(is_heard_again)
    found = ground.mine()[name]
    assert found.progress["batchId"] == batch
    assert ground.queries.refresh(found).progress["runId"] == found.run_id
    # The query looks for new files from time to time, and waits in between.
    ground.until(lambda: ground.queries.refresh(found).waits)


def test_a_second_start_by_name_finds_the_first(ground: Any) -> None:
    ground.table("t")
    first = ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    assert ground.start("t", f"SELECT a, b FROM STREAM {ground.source}").run_id == first.run_id
    assert len(ground.mine()) == 1


def test_a_query_started_differently_or_by_an_unknown_caller_is_not_the_requested_one(ground: Any) -> None:
    ground.table("t")
    select = f"SELECT a, b FROM STREAM {ground.source}"
    first = ground.start("t", select)
    with pytest.raises(AnotherQuery):
        ground.start("t", f"{select} WHERE a > 1")
    ground.queries = SparkQueries(ground.session)
    with pytest.raises(AnotherQuery):
        ground.start("t", select)
    assert ground.start("t", select, run_id=first.run_id).run_id == first.run_id
    assert [query.run_id for query in ground.mine().values()] == [first.run_id]


def test_a_stopped_query_is_gone_and_its_checkpoint_does_not_move(ground: Any) -> None:
    ground.land(5)
    ground.table("t")
    query = ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    ground.until(lambda: (ground.files.read(ground.checkpoint("t")).batch or 0) >= 0)
    ground.until(lambda: ground.files.read(ground.checkpoint("t")).batch == 0)
    ground.queries.stop(query.name)
    ground.queries.stop(query.name)
    assert query.name not in {q.name for q in SparkQueries(ground.session).active()}
    ground.land(5)
    assert ground.mine() == {} and ground.queries.ended() == ()
    assert ground.files.read(ground.checkpoint("t")).planned == 0


def test_a_restart_continues_from_the_checkpoint_without_loss_or_repetition(ground: Any) -> None:
    ground.table("t")
    select = f"SELECT a, b FROM STREAM {ground.source}"
    ids = []
    for n in range(3):
        ground.land(10, a=n)
        ids.append(ground.start("t", select).id)
        ground.until(lambda n=n: ground.files.read(ground.checkpoint("t")).batch == n)
        ground.queries.stop(ground.query("t"))
    assert len(set(ids)) == 1
    counted = ground.tables.read(f"SELECT a, count(*) FROM t_{ground.mark}__v1 GROUP BY a ORDER BY a", 10)[1]
    assert counted == ((0, 10), (1, 10), (2, 10))


def test_a_second_query_on_a_running_checkpoint_is_refused_and_the_first_lives(ground: Any) -> None:
    physical = ground.table("t")
    first = ground.start("t", f"SELECT a, b FROM STREAM {ground.source}")
    other = QueryStart(f"x_{ground.mark}@v1", f"SELECT a, b FROM STREAM {ground.source}", physical, "parquet",
                  ground.checkpoint("t"), "0 seconds")  # fmt: skip
    with pytest.raises(EngineRefused):
        ground.queries.start(other)
    assert [query.run_id for query in ground.mine().values()] == [first.run_id]


def test_sql_that_spark_rejects_gives_its_class_and_starts_nothing(ground: Any) -> None:
    ground.table("t")
    with pytest.raises(EngineRefused, match="nope") as raised:
        ground.start("t", f"SELECT nope FROM STREAM {ground.source}")
    assert raised.value.error_class == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert ground.mine() == {}
    with pytest.raises(EngineRefused) as raised:
        ground.start("t", "SELECT a FROM STREAM t WHERE )")
    assert raised.value.error_class == "PARSE_SYNTAX_ERROR"


def test_a_failure_at_run_time_is_reported_once_and_siblings_continue(ground: Any) -> None:
    for name in ("good", "bad"):
        ground.table(name)
    ground.land(5, a=1)
    ground.start("good", f"SELECT a, b FROM STREAM {ground.source}")
    ground.start("bad", f"SELECT 10 DIV (a - 7) AS a, b FROM STREAM {ground.source}")
    ground.until(lambda: len([q for q in ground.mine().values() if q.progress]) == 2)
    ground.land(1, a=7)
    ended: list[Any] = []

    def is_over() -> bool:
        ground.mine()
        ended.extend(ground.queries.ended())
        return bool(ended)

    ground.until(is_over)
    assert [query.name for query in ended] == [ground.query("bad")]
    assert ended[0].error_class == "DIVIDE_BY_ZERO"
    assert ended[0].error.startswith("Division by zero") and "\n" not in ended[0].error
    assert list(ground.mine()) == [ground.query("good")] and ground.queries.ended() == ()


@pytest.mark.drill
def test_a_killed_client_leaves_its_queries_and_the_next_one_finds_them(
    pool: LocalPool, ground: Any, tmp_path: Path
) -> None:
    ground.table("t")
    ground.land(3)
    session_id = str(uuid.uuid4())
    script = tmp_path / "client.py"
    script.write_text(
        "import os, signal\n"
        "from core.ports.spark import AnotherQuery, QueryStart\n"
        "from pipelines.spark_connect.session import Session\n"
        "from pipelines.spark_connect.streaming_queries import SparkQueries\n"
        f"session = Session({pool.url!r}, {pool.token!r}, {session_id!r})\n"
        "session.attach()\n"
        "queries = SparkQueries(session)\n"
        f"select = 'SELECT a, b FROM STREAM {ground.source}'\n"
        f"checkpoint = {ground.checkpoint('k')!r}\n"
        f"queries.start(QueryStart('k@v1', select, 't_{ground.mark}__v1', 'parquet', checkpoint, '0 seconds'))\n"
        "queries.active()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(Path(__file__).parents[3])
    killed = subprocess.run([sys.executable, str(script)], env=os.environ | {"PYTHONPATH": root}, check=False)
    assert killed.returncode == -signal.SIGKILL
    session = Session(pool.url, pool.token, session_id)
    session.attach()
    queries = SparkQueries(session)
    try:
        assert [query.name for query in queries.active()] == ["k@v1"]
        ground.until(lambda: queries.active()[0].progress)
        before = queries.active()[0].progress["batchId"]
        ground.land(3)
        ground.until(lambda: queries.active()[0].progress["batchId"] > before)
        assert "k@v1" not in {query.name for query in ground.queries.active()}
    finally:
        queries.stop("k@v1")
        session.close()


def test_a_query_that_failed_while_nobody_looked_is_known_by_its_run(ground: Any) -> None:
    ground.table("bad")
    ground.land(1, a=7)
    query = ground.start("bad", f"SELECT 10 DIV (a - 7) AS a, b FROM STREAM {ground.source}")
    ground.until(lambda: query.name not in ground.mine())
    later = SparkQueries(ground.session)
    later.register_running(query.name, query.id, query.run_id)
    later.active()
    assert [(q.name, q.error_class) for q in later.ended()] == [(query.name, "DIVIDE_BY_ZERO")]


COUNTS = """SELECT ts, count(*) AS n, CAST(NULL AS STRING) AS __query_id
FROM STREAM {} WATERMARK ts DELAY OF INTERVAL 1 SECOND GROUP BY ts"""


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        # A column that comes through a star is replaced.
        ("SELECT a, b, 'of the input' AS __query_id FROM STREAM {}", "a BIGINT, b STRING"),
        pytest.param(COUNTS, "ts TIMESTAMP, n BIGINT", marks=pytest.mark.long),
    ],
)
def test_a_repeated_batch_has_the_same_metadata(ground: Any, select: str, columns: str) -> None:
    """A batch whose offsets are written, but which is neither in the table nor committed, is as one that was killed."""
    folder, checkpoint = Path(ground.place("t")), Path(ground.checkpoint("t"))
    added = metadata_values("t", 'it\'s a \\ "test"\nof é', id="6f1c", version=3, created_at=1_764_066_467.25)
    ground.land(50)
    ground.table("t", f"{columns}, {', '.join(f'{each.name} {each.type}' for each in METADATA_COLUMNS)}")

    def written() -> list[dict[str, Any]]:
        ground.start("t", select.format(ground.source), added=added)
        ground.until(lambda: committed(folder) and rows_of(folder))
        ground.until(lambda: ground.files.read(str(checkpoint)).batch == ground.files.read(str(checkpoint)).planned)
        ground.queries.stop(ground.query("t"))
        return rows_of(folder)

    first = written()
    batch = ground.files.read(str(checkpoint)).batch
    for place in (checkpoint / "commits", folder / "_spark_metadata"):
        (place / str(batch)).unlink()
        (place / f".{batch}.crc").unlink()
    assert written() == first
    planned = json.loads((checkpoint / f"offsets/{batch}").read_text().splitlines()[1])["batchTimestampMs"]
    told = {tuple(row[column.name] for column in METADATA_COLUMNS) for row in first}
    moments = (datetime.fromtimestamp(at / 1000, UTC) for at in (planned, 1_764_066_467_250))
    # Spark's files have timestamps in UTC without saying so.
    created, scheduled = (each.replace(tzinfo=None) for each in moments)
    assert told == {(created, "t", 'it\'s a \\ "test"\nof é', "6f1c", 3, scheduled)}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows in a table's committed files, in the order of their values."""
    rows = [row for file in committed(folder) for row in parquet.read_table(file).to_pylist()]
    return sorted(rows, key=str)
