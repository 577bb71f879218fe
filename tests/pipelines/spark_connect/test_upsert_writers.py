"""The writer of keyed tables is pickled by value, with everything that it needs; other tests run it on Delta."""

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyspark import cloudpickle

from core.model.errors import Busy, EngineRefused, SparkFailure
from core.ports.spark import QueryStart, Upsert
from pipelines.spark_connect.streaming_queries import SparkQueries
from pipelines.spark_connect.upsert_writers import batch_mark, upsert_writer

UPSERT = Upsert("/t/delta", "/t/deleted", "/c", ("id", "v`", "at"), ("id",), "at", "v IS NULL")

ELSEWHERE = """import pickle, sys
class Session:
    def __getattr__(self, name): return self
    def __call__(self, *given):
        if given and isinstance(given[0], str): print(" ".join(given[0].split()))
        return self
    def __iter__(self): return iter([('{"id":"q"}',)])
    sparkSession = property(lambda self: self)
pickle.load(sys.stdin.buffer)(Session(), 7)
assert not [name for name in sys.modules if name.partition(".")[0] in ("core", "pipelines")]
"""


@pytest.mark.drill
def test_the_writer_runs_without_headgate_installed() -> None:
    sent = cloudpickle.dumps(upsert_writer(UPSERT, "a@v1"))
    done = subprocess.run([sys.executable, "-I", "-c", ELSEWHERE], input=sent, capture_output=True, cwd="/")
    said = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    mark = batch_mark("a@v1")
    assert said.startswith(f"{mark}\n/c/metadata\n{mark}_"), "the tag comes before all that the pool does for it"
    assert "MERGE INTO delta.`/t/delta` t USING (" in said
    assert "headgate_batch))" not in said and "`v```" in said
    assert "\ntxnAppId\ntxnVersion\n/t/delta\n" in said


def test_a_version_that_is_not_known_is_refused() -> None:
    assert pickle.loads(pickle.dumps(UPSERT)) == UPSERT
    with pytest.raises(EngineRefused, match="writer 9 of keyed tables is not known"):
        upsert_writer(Upsert("/t", "/d", "/c", ("id",), ("id",), writer=9), "a@v1")


@pytest.fixture
def queries() -> SparkQueries:
    """Queries of a session that is never used."""
    found = object.__new__(SparkQueries)
    found._beginning_writer, found._whose = threading.Lock(), ""
    return found


START = QueryStart("a@v1", "SELECT 1", "a__v1", "delta", "/c", "1 second", upsert=UPSERT)


def test_a_process_that_a_busy_pool_did_not_start_in_time_is_retried(
    queries: SparkQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: QueryStart) -> None:
        raise EngineRefused("It was late.", failure=SparkFailure.WORKER_LATE)

    monkeypatch.setattr(queries, "_launched", refuse)
    for _ in range(2):
        with pytest.raises(Busy, match="the pool is too busy to begin the writer of a@v1"):
            queries.launch(START)


def test_writer_processes_start_one_after_the_other_and_other_starts_do_not_wait(
    queries: SparkQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def launched(start: QueryStart) -> str:
        if start.name == "a@v1":
            begun.set()
            assert let_go.wait(10)
        return start.name

    monkeypatch.setattr(queries, "_launched", launched)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(queries.launch, START)
        assert begun.wait(10)
        with pytest.raises(Busy, match="b@v1 waits for the writer of another statement to begin"):
            queries.launch(replace(START, name="b@v1"))
        assert queries.launch(replace(START, name="c@v1", upsert=None)) == "c@v1"
        let_go.set()
        assert first.result() == "a@v1"
    assert queries.launch(replace(START, name="b@v1")) == "b@v1"
